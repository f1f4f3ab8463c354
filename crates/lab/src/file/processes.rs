//! The tables `[[processes]]`.

use std::{collections::BTreeMap, net::Ipv4Addr, path::PathBuf, time::Duration};

use settings::{Reader, Table, Value, places, suggestion};
use toml::de::DeValue;

use super::hosts::Groups;
use crate::plan::{Flood, Known, KnownKind, Plan, Process, Program, Ready};

const READY: &str = "\"tcp:80\", \"http://HOST:PORT/PATH\", \"log:TEXT\", \"file:PATH\" or \"exit\"";
const READY_TIMEOUT: Duration = Duration::from_secs(10);
const LOG_LIMIT_BYTES: u64 = 64 * 1024 * 1024;

pub(super) fn read(
    reader: &mut Reader<'_>,
    table: &mut Table<'_, '_>,
    plan: &Plan,
    groups: &Groups,
) -> Vec<Process> {
    let mut processes: Vec<Process> = Vec::new();
    let Some(value) = table.take("processes") else { return processes };
    for (stage, value) in reader.array(value, "tables [[processes]]").iter().enumerate() {
        let table = reader.table(value, "a table [[processes]]");
        for process in read_one(reader, table, None, plan, groups, stage) {
            if let Some(other) = processes.iter().find(|other| is_on_its_port(other, &process)) {
                let message = format!("'{}' listens there already; give another 'port'", other.name);
                reader.mistake(value.span(), message);
            }
            if processes.iter().any(|other| other.name == process.name) {
                let message = format!("the name '{}' is given twice; give another by 'name'", process.name);
                reader.mistake(value.span(), message);
            }
            processes.push(process);
        }
    }
    processes
}

/// Names in the commands of a lab file that stand for no host. A study, in which they may stand for more, looks by itself.
pub(super) fn check_places(
    reader: &mut Reader<'_>,
    processes: Option<&Value<'_>>,
    plan: &Plan,
    groups: &Groups,
) {
    let tables = processes.and_then(|value| value.get_ref().as_array()).into_iter().flatten();
    let commands = tables.filter_map(|table| table.get_ref().as_table()?.get("command"));
    let mut unknown = Vec::new();
    for command in commands {
        places::each_text(command, &mut |value, text| {
            let has_none = |name: &&str| {
                *name != "self" && plan.host(name).and_then(|host| plan.address_of(host)).is_none()
            };
            unknown.extend(places::names(text).into_iter().filter(has_none).map(|name| (value.span(), name)));
        });
    }
    for (span, name) in unknown {
        let why = match groups.named(name).as_deref() {
            Some([_]) => format!("'{name}' has no address"),
            Some(_) => format!("'{name}' is several hosts; name one of them, such as {{{name}1}}"),
            None => groups.unknown(name),
        };
        reader.mistake(span, format!("{why} (for these characters themselves, write {{{{{name}}}}})"));
    }
}

/// Whether both listen on one port of one host.
fn is_on_its_port(one: &Process, other: &Process) -> bool {
    let port = |process: &Process| match &process.program {
        Program::Known(known) => Some((process.host, known.port)),
        Program::Command(_) => None,
    };
    port(one).is_some() && port(one) == port(other)
}

/// A table's processes, one for each host. The name is a key of the table unless it is given.
pub(super) fn read_one(
    reader: &mut Reader<'_>,
    mut table: Table<'_, '_>,
    name: Option<&str>,
    plan: &Plan,
    groups: &Groups,
    stage: usize,
) -> Vec<Process> {
    let on = table.need(reader, "on", "the host or hosts that it runs on");
    let on = on.map(|value| groups.list(reader, value)).unwrap_or_default();
    let own_name = if name.is_none() { table.take("name") } else { None };
    let own_name = own_name.and_then(|value| {
        let name = reader.text(value)?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        if name.is_empty() || name.len() > 40 || !name.chars().all(plain) {
            reader.mistake(value.span(), format!("'{name}' is not a name: letters, digits, '-' and '_'"));
        }
        Some(name.to_owned())
    });
    let name = name.map(str::to_owned).or(own_name);
    let program = read_program(reader, &mut table, plan, groups);
    let ready = table.take("ready").and_then(|value| read_ready(reader, value, plan));
    let ready_timeout = table.take("ready_timeout").and_then(|value| reader.time(value));
    let limit = table.take("log_limit").and_then(|value| reader.size(value));
    let flood = table.take("flood").and_then(|value| {
        let text = reader.text(value)?;
        let flood = match text {
            "fail" => Ok(Flood::Fail),
            "truncate" => Ok(Flood::Truncate),
            _ => Err(format!("'{text}' is not what happens to a flood; one of fail, truncate")),
        };
        reader.checked(value, flood)
    });
    let directory = table.take("directory").and_then(|value| reader.text(value)).map(PathBuf::from);
    let may_end = table.take("may_end").and_then(|value| reader.flag(value));
    let environment = table.take("env").map(|value| read_environment(reader, value)).unwrap_or_default();
    table.finish(reader);
    let Some((kind, program)) = program else { return Vec::new() };
    let default = match &program {
        Program::Known(known) => Some(known.ready()),
        Program::Command(_) => None,
    };
    let ready = ready.or(default);
    let process = |host: usize| Process {
        name: format!("{}-{}", plan.hosts[host].name, name.as_deref().unwrap_or(&kind)),
        host,
        program: program.clone(),
        environment: environment.clone(),
        directory: directory.clone(),
        ready_timeout: ready_timeout.unwrap_or(READY_TIMEOUT),
        log_limit_bytes: limit.unwrap_or(LOG_LIMIT_BYTES),
        flood: flood.unwrap_or(Flood::Fail),
        may_end: may_end.unwrap_or(ready == Some(Ready::Exit)),
        ready: ready.clone(),
        stage,
    };
    on.into_iter().map(process).collect()
}

/// What is run, and what it is called if it was not given a name.
fn read_program(
    reader: &mut Reader<'_>,
    table: &mut Table<'_, '_>,
    plan: &Plan,
    groups: &Groups,
) -> Option<(String, Program)> {
    let span = table.span();
    let run = table.take("run");
    let command = table.take("command");
    match (run, command) {
        (Some(run), None) => {
            let known = read_known(reader, table, run, plan, groups)?;
            Some((known.kind.name().to_owned(), Program::Known(known)))
        }
        (None, Some(value)) => {
            let values = reader.array(value, "a list of words such as [\"sleep\", \"60\"]");
            let words: Vec<String> =
                values.iter().filter_map(|value| reader.text(value)).map(str::to_owned).collect();
            let Some(program) = words.first() else {
                if values.is_empty() && matches!(value.get_ref(), DeValue::Array(_)) {
                    reader.mistake(value.span(), "a command needs at least the program's name");
                }
                return None;
            };
            let name = program.rsplit('/').next().unwrap_or(program);
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
            Some((name.chars().filter(|&c| plain(c)).take(40).collect(), Program::Command(words)))
        }
        _ => {
            let what =
                "give either run = \"nginx\" (or haproxy, sshd, iperf3, serve, listen) or command = [\"…\"]";
            reader.mistake(span, what);
            None
        }
    }
}

fn read_known(
    reader: &mut Reader<'_>,
    table: &mut Table<'_, '_>,
    run: &Value<'_>,
    plan: &Plan,
    groups: &Groups,
) -> Option<Known> {
    let name = reader.text(run);
    let kind = name.and_then(|name| {
        let kind = KnownKind::ALL.into_iter().find(|kind| kind.name() == name);
        if kind.is_none() {
            let names = KnownKind::ALL.map(KnownKind::name);
            let hint = suggestion(name, names);
            let message =
                format!("'{name}' is not known{hint} (known: {}; or give command)", names.join(", "));
            reader.mistake(run.span(), message);
        }
        kind
    });
    let port = table.take("port").and_then(|value| reader.whole(value, 1..65_536));
    let args = table.take("args").map(|value| {
        let values = reader.array(value, "a list of arguments in quotes");
        values.iter().filter_map(|value| reader.text(value)).map(str::to_owned).collect()
    });
    let mut known = Known {
        kind: kind.unwrap_or(KnownKind::Serve),
        port: port.map_or(kind.unwrap_or(KnownKind::Serve).default_port(), |port| port as u16),
        files: Vec::new(),
        log_bodies: false,
        backlog: None,
        store: None,
        workers: 1,
        backends: Vec::new(),
        args: args.unwrap_or_default(),
    };
    if matches!(kind, Some(KnownKind::Nginx) | None)
        && let Some(value) = table.take("files")
    {
        let files = reader.table(value, "a table such as { \"/5k\" = \"5KiB\" }");
        for (span, path, value) in files.all() {
            if !path.starts_with('/') || path.ends_with('/') || path.split('/').any(|part| part == "..") {
                reader.mistake(span, format!("'{path}' is not the path of a file such as \"/5k\""));
            }
            known.files.extend(reader.size(value).map(|size| (path.to_owned(), size)));
        }
    }
    if matches!(kind, Some(KnownKind::Nginx) | None)
        && let Some(value) = table.take("log_bodies")
    {
        known.log_bodies = reader.flag(value).unwrap_or(false);
    }
    if matches!(kind, Some(KnownKind::Nginx | KnownKind::Listen) | None)
        && let Some(value) = table.take("backlog")
    {
        known.backlog = reader.whole(value, 1..1 << 31).map(|backlog| backlog as u32);
    }
    if matches!(kind, Some(KnownKind::Nginx | KnownKind::Haproxy) | None)
        && let Some(value) = table.take("workers")
    {
        known.workers = reader.whole(value, 1..1_025).unwrap_or(1) as u32;
    }
    if matches!(kind, Some(KnownKind::Haproxy) | None) {
        let backend_port = table.take("backend_port").and_then(|value| reader.whole(value, 1..65_536));
        let value = match kind {
            Some(_) => table.need(reader, "backends", "the hosts that requests go to"),
            None => table.take("backends"),
        };
        let hosts = value.map(|value| groups.list(reader, value)).unwrap_or_default();
        for host in hosts {
            let name = plan.hosts[host].name.clone();
            match (plan.address_of(host), value) {
                (Some(address), _) => known.backends.push((name, address, backend_port.unwrap_or(80) as u16)),
                (None, Some(value)) => reader.mistake(value.span(), format!("'{name}' has no address")),
                (None, None) => {}
            }
        }
    }
    kind.map(|_| known)
}

fn read_environment(reader: &mut Reader<'_>, value: &Value<'_>) -> BTreeMap<String, String> {
    let table = reader.table(value, "a table such as { LANG = \"C\" }");
    let mut environment = BTreeMap::new();
    for (span, name, value) in table.all() {
        if name.is_empty() || name.contains(['=', '\0']) {
            reader.mistake(span, format!("'{name}' is not the name of a variable"));
        }
        if let Some(text) = reader.text(value) {
            secrets::mask::learn_variable(name, text);
            environment.insert(name.to_owned(), text.to_owned());
        }
    }
    environment
}

fn read_ready(reader: &mut Reader<'_>, value: &Value<'_>, plan: &Plan) -> Option<Ready> {
    let text = reader.text_such_as(value, &format!("one of {READY}"))?;
    let refuse = || format!("'{text}' is not when a process is ready; one of {READY}");
    let ready = if text == "exit" {
        Ok(Ready::Exit)
    } else if let Some(url) = text.strip_prefix("http://") {
        http(url, plan).map_err(|why| why.unwrap_or_else(refuse))
    } else {
        match text.split_once(':') {
            Some(("tcp", to)) => tcp(to, plan).map_err(|why| why.unwrap_or_else(refuse)),
            Some(("log", text)) if !text.is_empty() => Ok(Ready::Log(text.to_owned())),
            Some(("file", path)) if path.starts_with('/') => Ok(Ready::File(path.into())),
            _ => Err(refuse()),
        }
    };
    reader.checked(value, ready)
}

fn http(url: &str, plan: &Plan) -> Result<Ready, Option<String>> {
    let (authority, path) = url.split_once('/').unwrap_or((url, ""));
    let (host, port) = authority.split_once(':').unwrap_or((authority, "80"));
    let port = port.parse().map_err(|_| None)?;
    Ok(Ready::Http { address: address(host, plan)?, port, path: format!("/{path}") })
}

fn tcp(to: &str, plan: &Plan) -> Result<Ready, Option<String>> {
    let (host, port) = to.rsplit_once(':').unwrap_or(("self", to));
    Ok(Ready::Tcp(address(host, plan)?, port.parse().map_err(|_| None)?))
}

/// An address, `localhost`, a host of the lab, or `self` (none).
fn address(host: &str, plan: &Plan) -> Result<Option<Ipv4Addr>, Option<String>> {
    match host {
        "self" => Ok(None),
        "localhost" => Ok(Some(Ipv4Addr::LOCALHOST)),
        _ => {
            let named = plan.host(host).and_then(|host| plan.address_of(host));
            named.or_else(|| host.parse().ok()).map(Some).ok_or_else(|| {
                Some(format!("'{host}' is no host of this lab with an address, no address, and not self"))
            })
        }
    }
}
