//! Reads a configuration, and finds every mistake in it.

use std::{net::SocketAddr, ops::Range, time::Duration};

use record::units::parse_ratio;
use settings::{Mistake, Reader, Table, Value, suggestion};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    ALL_PORTS, Config, MAX_WEIGHT, Persistence, Problem, Server, Vip, WhenAllDown, WhenServerDies,
    checked_name,
};
use crate::{
    Hook, Schedule,
    health::{Check, CheckKind},
};

/// Kinds of checks.
const KINDS: [&str; 4] = ["tcp", "http", "https", "none"];

/// Longest name of a device, as the kernel has it.
const MAX_DEVICE_BYTES: usize = 15;

/// Schedules by their names here and in ipvs. ipvs has two names, with and without weights, where this program has one schedule.
const SCHEDULES: [(&str, Schedule); 6] = [
    ("maglev", Schedule::Ring),
    ("round-robin", Schedule::RoundRobin),
    ("mh", Schedule::Ring),
    ("sh", Schedule::Ring),
    ("rr", Schedule::RoundRobin),
    ("wrr", Schedule::RoundRobin),
];

impl Config {
    /// Reads the text of a file. Mistakes name it `name`.
    ///
    /// # Errors
    /// Every mistake with its line, in the order of the file.
    pub fn read(name: &str, text: &str) -> Result<Self, Vec<Mistake>> {
        let mut reader = Reader::new(name, text);
        let document = reader.document(text);
        if reader.has_mistakes() {
            // After a syntax error, reports of further mistakes would only mislead.
            return reader.finish(Self::new(""));
        }
        let mut table = reader.root(&document);
        let config = config(&mut reader, &mut table);
        table.finish(&mut reader);
        if reader.mistake_count() == reader.unknown_keys {
            // If single values are wrong, the configuration as a whole cannot be checked.
            for problem in config.problems() {
                reader.mistake(span(&document, &problem).unwrap_or_default(), problem.why);
            }
        }
        reader.finish(config)
    }
}

/// Where a VIP or a server stands in a file without mistakes.
fn span(document: &Spanned<DeTable<'_>>, problem: &Problem) -> Option<Range<usize>> {
    let vip = document.get_ref().get("vips")?.get_ref().as_array()?.get(problem.vip?)?;
    let servers = || vip.get_ref().as_table()?.get("servers")?.get_ref().as_array();
    let server = problem.server.and_then(|server| servers()?.get(server));
    Some(server.unwrap_or(vip).span())
}

fn config(reader: &mut Reader<'_>, table: &mut Table<'_, '_>) -> Config {
    let device = table.require(reader, "device", "the device that clients' frames come by, such as \"eth0\"");
    let mut config = Config::new(device.and_then(|value| device_name(reader, value)).unwrap_or_default());
    if let Some(value) = table.take("hook") {
        config.hook =
            choice(reader, value, &[("auto", None), ("cls", Some(Hook::Cls)), ("xdp", Some(Hook::Xdp))])
                .flatten();
    }
    set(&mut config.answer_arp, table.take("answer_arp").and_then(|value| reader.flag(value)));
    set(&mut config.seed, whole(reader, table, "seed", 0..i64::MAX as u64));
    set(&mut config.handshake, time(reader, table, "handshake"));
    let remembered = whole(reader, table, "remember_per_second", 0..1 << 32);
    set(&mut config.remember_per_second, remembered.map(|number| number as u32));
    set(&mut config.idle_timeout, time(reader, table, "idle_timeout"));
    set(&mut config.closing_timeout, time(reader, table, "closing_timeout"));
    config.metrics = table.take("metrics").and_then(|value| {
        let text = reader.text_such_as(value, "an address and a port in quotes")?;
        let read = text.parse::<SocketAddr>();
        reader.checked(
            value,
            read.map_err(|_| format!("'{text}' is not an address and a port such as 127.0.0.1:9100")),
        )
    });
    if let Some(value) = table.take("tables") {
        let mut sizes = reader.table(value, "a table, such as { flows = 1_000_000 }");
        for (key, size) in [
            ("flows", &mut config.sizes.flows),
            ("pending", &mut config.sizes.pending),
            ("sources", &mut config.sizes.sources),
            ("fragments", &mut config.sizes.fragments),
        ] {
            set(size, whole(reader, &mut sizes, key, 1..(1 << 26) + 1).map(|number| number as u32));
        }
        sizes.finish(reader);
    }
    let vips = table.require(reader, "vips", "a table [[vips]] for each address that clients connect to");
    for value in vips.map_or(&[][..], |value| reader.array(value, "tables [[vips]]")) {
        config.vips.extend(vip(reader, value));
    }
    config
}

fn vip(reader: &mut Reader<'_>, value: &Value<'_>) -> Option<Vip> {
    let mut table = reader.table(value, "a table [[vips]]");
    let address = table.require(reader, "address", "the address that clients connect to");
    let address = address.and_then(|value| reader.address(value));
    let ports = ports(reader, &mut table);
    let schedule = table.take("schedule").and_then(|value| choice(reader, value, &SCHEDULES));
    let persistence = table.take("persistence").and_then(|value| persistence(reader, value));
    let all_down = [("drop", WhenAllDown::Drop), ("all", WhenAllDown::All)];
    let all_down = table.take("when_all_down").and_then(|value| choice(reader, value, &all_down));
    let dies = [("move", WhenServerDies::Move), ("hold", WhenServerDies::Hold)];
    let dies = table.take("when_server_dies").and_then(|value| choice(reader, value, &dies));
    let check = match table.take("check") {
        Some(value) => check(reader, value, &ports),
        None => default_check(reader, table.span(), &ports),
    };
    let mut servers = Vec::new();
    for value in table.take("servers").map_or(&[][..], |value| reader.array(value, "tables [[vips.servers]]"))
    {
        servers.extend(server(reader, value));
    }
    table.finish(reader);
    Some(Vip {
        address: address?,
        ports,
        schedule: schedule.unwrap_or(Schedule::Ring),
        persistence: persistence.unwrap_or_default(),
        when_all_down: all_down.unwrap_or_default(),
        when_server_dies: dies.unwrap_or_default(),
        check,
        servers,
    })
}

fn ports(reader: &mut Reader<'_>, table: &mut Table<'_, '_>) -> Vec<u16> {
    const WHAT: &str = "ports, such as [80, 443], or \"all\"";
    let mut numbers = Vec::new();
    match (table.take("port"), table.take("ports")) {
        (Some(one), None) => numbers.extend(reader.whole(one, 1..65_536)),
        (None, Some(several)) => match several.get_ref() {
            DeValue::String(text) if text == "all" => numbers.push(ALL_PORTS.into()),
            DeValue::Array(ports) if !ports.is_empty() => {
                numbers.extend(ports.iter().filter_map(|port| reader.whole(port, 1..65_536)));
            }
            DeValue::Array(_) => reader.mistake(several.span(), format!("the list is empty: give {WHAT}")),
            _ => reader.expected(several, WHAT),
        },
        (Some(_), Some(several)) => {
            reader.mistake(several.span(), "'port' and 'ports' are the same: leave one out");
        }
        (None, None) => reader.mistake(table.span(), format!("'ports' is missing: {WHAT}")),
    }
    numbers.into_iter().map(|number| number as u16).collect()
}

fn persistence(reader: &mut Reader<'_>, value: &Value<'_>) -> Option<Persistence> {
    match reader.text_such_as(value, "\"off\", \"source\" or a time such as \"300s\"")? {
        "off" => Some(Persistence::Off),
        "source" => Some(Persistence::Source),
        _ => positive_time(reader, value).map(Persistence::For),
    }
}

fn server(reader: &mut Reader<'_>, value: &Value<'_>) -> Option<Server> {
    let mut table = reader.table(value, "a table [[vips.servers]]");
    let address = table.require(reader, "address", "the server's own address on the segment");
    let address = address.and_then(|value| reader.address(value));
    let name = table.take("name").and_then(|value| server_name(reader, value)).map(str::to_owned);
    let number = |reader: &mut Reader<'_>, table: &mut Table<'_, '_>, key, bounds| {
        whole(reader, table, key, bounds).map(|number| number as u32)
    };
    let weight = number(reader, &mut table, "weight", 0..u64::from(MAX_WEIGHT) + 1);
    let max_connections = number(reader, &mut table, "max_connections", 1..1 << 32);
    let resume_connections = number(reader, &mut table, "resume_connections", 1..1 << 32);
    let drain = table.take("drain").and_then(|value| reader.flag(value));
    table.finish(reader);
    let plain = Server::new(address?);
    Some(Server {
        name: name.unwrap_or_else(|| plain.name.clone()),
        weight: weight.unwrap_or(plain.weight),
        max_connections,
        resume_connections,
        drain: drain.unwrap_or_default(),
        ..plain
    })
}

fn server_name<'d>(reader: &mut Reader<'_>, value: &'d Value<'_>) -> Option<&'d str> {
    let name = reader.text(value)?;
    reader.checked(value, checked_name(name))
}

fn device_name(reader: &mut Reader<'_>, value: &Value<'_>) -> Option<String> {
    let name = reader.text_such_as(value, "the name of a device in quotes")?;
    let is_name = (1..=MAX_DEVICE_BYTES).contains(&name.len())
        && name != "."
        && name != ".."
        && !name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace());
    reader.checked(
        value,
        if is_name { Ok(name.to_owned()) } else { Err(format!("'{name}' is not the name of a device")) },
    )
}

fn choice<T: Copy>(reader: &mut Reader<'_>, value: &Value<'_>, known: &[(&str, T)]) -> Option<T> {
    let text = reader.text(value)?;
    let found = known.iter().find(|(name, _)| *name == text).map(|(_, chosen)| *chosen);
    let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
    let refused = || {
        let hint = suggestion(text, names.iter().copied());
        format!("'{text}' is not known here{hint} (known here: {})", names.join(", "))
    };
    reader.checked(value, found.ok_or_else(refused))
}

fn whole(
    reader: &mut Reader<'_>,
    table: &mut Table<'_, '_>,
    key: &'static str,
    bounds: Range<u64>,
) -> Option<u64> {
    table.take(key).and_then(|value| reader.whole(value, bounds))
}

fn time(reader: &mut Reader<'_>, table: &mut Table<'_, '_>, key: &'static str) -> Option<Duration> {
    table.take(key).and_then(|value| positive_time(reader, value))
}

fn positive_time(reader: &mut Reader<'_>, value: &Value<'_>) -> Option<Duration> {
    let time = reader.time(value)?;
    reader.checked(value, if time.is_zero() { Err("the time must be above 0") } else { Ok(time) })
}

fn set<T>(into: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *into = value;
    }
}

/// The checks of a VIP for which a file has none: a TCP connection to the first port.
fn default_check(reader: &mut Reader<'_>, span: Range<usize>, ports: &[u16]) -> Check {
    let check = Check::default();
    if ports == [ALL_PORTS] {
        reader.mistake(
            span,
            "'check' is missing: with ports = \"all\", a check needs a port, such as check = { port = 80 }",
        );
    }
    check
}

fn check(reader: &mut Reader<'_>, value: &Value<'_>, ports: &[u16]) -> Check {
    let mut table = reader.table(value, "a table, such as { kind = \"tcp\", interval = \"2s\" }");
    let mut check = Check::default();
    let kind = match table.take("kind") {
        Some(kind) => choice(reader, kind, &KINDS.map(|kind| (kind, kind))),
        None => None,
    };
    let (path, host, status) = (table.take("path"), table.take("host"), table.take("status"));
    match kind {
        Some("none") => check.kind = CheckKind::None,
        Some(http @ ("http" | "https")) => {
            let path = path.map_or(Some("/"), |value| path_text(reader, value)).unwrap_or("/");
            let host = host.and_then(|value| host_text(reader, value));
            let status = status.and_then(|value| statuses(reader, value)).unwrap_or(200..=399);
            let (path, host) = (path.to_owned(), host.map(str::to_owned));
            check.kind = CheckKind::Http { tls: http == "https", path, host, status };
        }
        _ => {}
    }
    if !matches!(check.kind, CheckKind::Http { .. }) {
        for (key, value) in [("path", path), ("host", host), ("status", status)] {
            if let Some(value) = value {
                reader.mistake(value.span(), format!("'{key}' needs kind = \"http\" or \"https\""));
            }
        }
    }
    check.port = whole(reader, &mut table, "port", 1..65_536).map(|port| port as u16);
    if check.kind != CheckKind::None && check.port.is_none() && ports == [ALL_PORTS] {
        reader.mistake(table.span(), "'port' is missing: with ports = \"all\", a check needs a port");
    }
    set(&mut check.interval, time(reader, &mut table, "interval"));
    set(&mut check.timeout, time(reader, &mut table, "timeout"));
    if let Some(value) = table.take("jitter") {
        let text = reader.number_or_text(value, "a share in quotes, such as \"10%\"");
        let read = text.and_then(|text| reader.checked(value, parse_ratio(&text)));
        set(&mut check.jitter, read);
    }
    set(&mut check.rise, whole(reader, &mut table, "rise", 1..1_001).map(|number| number as u32));
    set(&mut check.fall, whole(reader, &mut table, "fall", 1..1_001).map(|number| number as u32));
    table.finish(reader);
    check
}

fn path_text<'d>(reader: &mut Reader<'_>, value: &'d Value<'_>) -> Option<&'d str> {
    let path = reader.text_such_as(value, "a path in quotes, such as \"/health\"")?;
    let is_path = path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic());
    reader.checked(
        value,
        if is_path { Ok(path) } else { Err(format!("'{path}' is not a path; write one such as /health")) },
    )
}

fn host_text<'d>(reader: &mut Reader<'_>, value: &'d Value<'_>) -> Option<&'d str> {
    let host = reader.text_such_as(value, "the name of a host in quotes")?;
    let is_name = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic());
    reader.checked(value, if is_name { Ok(host) } else { Err(format!("'{host}' is not the name of a host")) })
}

fn statuses(reader: &mut Reader<'_>, value: &Value<'_>) -> Option<std::ops::RangeInclusive<u16>> {
    let text = reader.number_or_text(value, "a status or several, such as \"200-399\"")?;
    let (first, last) = text.split_once('-').unwrap_or((&text, &text));
    let number = |text: &str| text.trim().parse().ok().filter(|status| (100..=599).contains(status));
    let range = number(first).zip(number(last)).filter(|(first, last)| first <= last);
    let range = range.map(|(first, last)| first..=last);
    reader.checked(value, range.ok_or_else(|| format!("'{text}' is not a status or a range such as 200-399")))
}
