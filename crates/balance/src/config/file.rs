//! Reads a configuration and reports all mistakes in it.

use std::{
    net::{IpAddr, Ipv4Addr},
    ops::Range,
};

use settings::{Mistake, Reader, Table, Value, options::OptionSpec};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    ALL_PORTS, Config, Persistence, Problem, Server, Vip, WhenAllDown, WhenServerDies,
    keys::{BALANCER, CHECK, CheckKeys, SERVER, SIZES, VIP},
};
use crate::{
    Schedule,
    health::{Check, CheckKind},
};

/// Maximum bytes of a device's name in the kernel (IFNAMSIZ without the terminating zero).
const MAX_DEVICE_BYTES: usize = 15;

impl Config {
    /// Reads the text of a file. Messages call the file `name`.
    ///
    /// # Errors
    /// All mistakes with their lines, in the order of the file.
    pub fn read(name: &str, text: &str) -> Result<Self, Vec<Mistake>> {
        let mut reader = Reader::new(name, text);
        let document = reader.document(text);
        if reader.has_mistakes() {
            // After a syntax error, further messages would mislead.
            return reader.finish(Self::new(""));
        }
        let mut table = reader.root(&document);
        let config = config(&mut reader, &mut table);
        table.finish(&mut reader);
        if reader.mistake_count() == reader.unknown_keys {
            // The configuration as a whole can be checked only if all single values are right.
            for problem in config.problems() {
                reader.mistake(span(&document, &problem).unwrap_or_default(), problem.why);
            }
        }
        reader.finish(config)
    }
}

/// The position of a VIP or a server in a file without mistakes.
fn span(document: &Spanned<DeTable<'_>>, problem: &Problem) -> Option<Range<usize>> {
    let vip = document.get_ref().get("vips")?.get_ref().as_array()?.get(problem.vip?)?;
    let servers = || vip.get_ref().as_table()?.get("servers")?.get_ref().as_array();
    let server = problem.server.and_then(|server| servers()?.get(server));
    Some(server.unwrap_or(vip).span())
}

fn config(reader: &mut Reader<'_>, table: &mut Table<'_, '_>) -> Config {
    let device = table.require(reader, "device", "the device that receives client frames, such as \"eth0\"");
    let mut config = Config::new(device.and_then(|value| device_name(reader, value)).unwrap_or_default());
    take_all(reader, table, BALANCER, &mut config);
    if let Some(value) = table.take("tables") {
        let mut sizes = reader.table(value, "a table, such as { flows = 1_000_000 }");
        take_all(reader, &mut sizes, SIZES, &mut config.sizes);
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
    let check = match table.take("check") {
        Some(value) => check(reader, value, &ports),
        None => default_check(reader, table.span(), &ports),
    };
    let servers = table.take("servers").map(|value| reader.array(value, "tables [[vips.servers]]"));
    let servers = servers.unwrap_or_default().iter().filter_map(|value| server(reader, value)).collect();
    let mut vip = Vip {
        address: address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        ports,
        schedule: Schedule::Ring,
        persistence: Persistence::default(),
        when_all_down: WhenAllDown::default(),
        when_server_dies: WhenServerDies::default(),
        check,
        servers,
    };
    take_all(reader, &mut table, VIP, &mut vip);
    table.finish(reader);
    address.map(|_| vip)
}

/// Reads all keys of a table that these rows define.
fn take_all<T>(reader: &mut Reader<'_>, table: &mut Table<'_, '_>, rows: &[OptionSpec<T>], to: &mut T) {
    for row in rows {
        if let Some(value) = table.take(row.key) {
            reader.apply(row, value, to);
        }
    }
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
            reader.mistake(several.span(), "'port' and 'ports' set the same value: leave one out");
        }
        (None, None) => reader.mistake(table.span(), format!("'ports' is missing: {WHAT}")),
    }
    numbers.into_iter().map(|number| number as u16).collect()
}

fn server(reader: &mut Reader<'_>, value: &Value<'_>) -> Option<Server> {
    let mut table = reader.table(value, "a table [[vips.servers]]");
    let address = table.require(reader, "address", "the server's own address on the segment");
    let address = address.and_then(|value| reader.address(value));
    let mut server = Server::new(address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)));
    take_all(reader, &mut table, SERVER, &mut server);
    table.finish(reader);
    address.map(|_| server)
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

/// The default check of a VIP: a TCP connection to its first port.
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
    let mut keys = CheckKeys::default();
    for row in CHECK {
        let Some(value) = table.take(row.key) else { continue };
        // The row of the key `kind` is the first.
        if ["path", "host", "status"].contains(&row.key) && !keys.kind.starts_with("http") {
            let message = format!("'{}' needs kind = \"http\" or \"https\"", row.key);
            reader.mistake(value.span(), message);
        } else {
            reader.apply(row, value, &mut keys);
        }
    }
    let CheckKeys { kind, path, host, status, mut check } = keys;
    check.kind = match &*kind {
        "none" => CheckKind::None,
        "http" | "https" => CheckKind::Http {
            tls: kind == "https",
            path: path.unwrap_or_else(|| "/".to_owned()),
            host,
            status: status.unwrap_or(200..=399),
        },
        _ => check.kind,
    };
    if check.kind != CheckKind::None && check.port.is_none() && ports == [ALL_PORTS] {
        reader.mistake(table.span(), "'port' is missing: with ports = \"all\", a check needs a port");
    }
    table.finish(reader);
    check
}
