//! The tables `[[processes]]`.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use serde_json::{Map, Value as Json, json};
use settings::{Reader, Table, Value, placeholders, schema, suggestion};
use toml::de::DeValue;

use crate::{
    host_names::HostNames,
    keys::{self, Key, KeyType, key_table},
    plan::{Flood, Known, KnownKind, Plan, Process, Program, Ready},
    program::{self, read_words, writes_file},
};

const READY: &str = "\"tcp:80\", \"http://HOST:PORT/PATH\", \"log:TEXT\", \"file:PATH\" or \"exit\"";
const READY_TIMEOUT: Duration = Duration::from_secs(10);
const LOG_LIMIT_BYTES: u64 = 64 * 1024 * 1024;

pub(super) fn read(
    reader: &mut Reader<'_>,
    table: &mut Table<'_, '_>,
    names: &HostNames<'_>,
) -> Vec<Process> {
    let mut processes: Vec<Process> = Vec::new();
    let Some(value) = table.take("processes") else { return processes };
    for (stage, value) in reader.array(value, "tables [[processes]]").iter().enumerate() {
        let table = reader.table(value, "a table [[processes]]");
        for process in read_process(reader, table, None, names, stage) {
            if let Some(other) = processes.iter().find(|other| share_port(other, &process)) {
                let message = format!("'{}' already listens on this port; give another 'port'", other.name);
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

/// Reports placeholders of unknown hosts in the commands of a lab file. A study has further placeholders and checks
/// them itself.
pub(super) fn check_placeholders(
    reader: &mut Reader<'_>,
    processes: Option<&Value<'_>>,
    HostNames { plan, groups }: &HostNames<'_>,
) {
    let tables = processes.and_then(|value| value.get_ref().as_array()).into_iter().flatten();
    let commands = tables.filter_map(|table| table.get_ref().as_table()?.get("command"));
    let mut unknown = Vec::new();
    for command in commands {
        placeholders::for_each_text(command, &mut |value, text| {
            let is_unknown = |name: &&str| {
                *name != "self"
                    && !writes_file(plan, name)
                    && plan.host(name).and_then(|host| plan.address_of(host)).is_none()
            };
            unknown.extend(
                placeholders::names(text).into_iter().filter(is_unknown).map(|name| (value.span(), name)),
            );
        });
    }
    for (span, name) in unknown {
        if KnownKind::all_written_files().contains(&name) {
            reader.mistake(span, format!("no program of this lab writes the file {{{name}}}"));
            continue;
        }
        let why = match groups.members_of(name).as_deref() {
            Some([_]) => format!("'{name}' has no address"),
            Some(_) => format!("'{name}' names several hosts; name one of them, such as {{{name}1}}"),
            None => groups.unknown_host(name),
        };
        reader.mistake(span, format!("{why} (for these characters themselves, write {{{{{name}}}}})"));
    }
}

/// Whether both processes listen on the same port of the same host.
fn share_port(one: &Process, other: &Process) -> bool {
    let port = |process: &Process| match &process.program {
        Program::Known(known) => Some((process.host, known.port)),
        Program::Command(_) => None,
    };
    port(one).is_some() && port(one) == port(other)
}

/// The keys of a process besides those of its program.
const KEYS: &[Key<Process>] = key_table! {
    /// when it is ready: tcp:PORT, http://self:PORT/PATH, log:TEXT, file:PATH or exit
    "ready", KeyType::Other(
        |what| schema::text(what, "tcp:8080"),
        |process, reader, value, names| process.ready = read_ready(reader, value, names.plan),
    );
    /// how long the process may take to get ready
    "ready_timeout", KeyType::Time("10s", |process, time| process.ready_timeout = time);
    /// maximum output that is kept
    "log_limit", KeyType::Size("64MiB", |process, n| process.log_limit_bytes = n);
    /// action when the output exceeds the limit
    "flood", KeyType::Choice(&["fail", "truncate"], |process, i| {
        process.flood = [Flood::Fail, Flood::Truncate][i];
    });
    /// the folder that it is started in
    "directory", KeyType::Text("{target_folder}", |process, path| process.directory = Some(path.into()));
    /// how many files and sockets it may have open
    "descriptors", KeyType::Whole(8..1 << 20, 20_000, |process, n| process.descriptors = Some(n));
    /// whether it may end with status 0 while the study runs
    "may_end", KeyType::Flag(|process, is| process.may_end = is);
    /// variables of its environment
    "env", KeyType::Other(
        |what| json!({ "type": "object", "description": what, "additionalProperties": { "type": "string" } }),
        |process, reader, value, _| process.environment = read_environment(reader, value),
    );
};

/// The schema of the keys of `[[processes]]` and of targets, without `on`, `command` and `name`.
pub fn process_schema() -> Map<String, Json> {
    let mut keys = program::schema();
    keys.insert("run".to_owned(), schema::choice("A program that is known.", &KnownKind::names()));
    keys.extend(keys::schema(KEYS));
    keys
}

/// Reads a table of `processes`, or a table with the same keys, such as a study's target. Returns its processes, one
/// for each host. The caller may have taken its own keys from the table. With `name`, the key `name` is not accepted.
pub fn read_process(
    reader: &mut Reader<'_>,
    mut table: Table<'_, '_>,
    name: Option<&str>,
    names: &HostNames<'_>,
    stage: usize,
) -> Vec<Process> {
    let on = table.require(reader, "on", "the host or hosts that it runs on");
    let on = on.map(|value| names.groups.read_hosts(reader, value)).unwrap_or_default();
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
    let program = read_program(reader, &mut table, names);
    let mut process = Process {
        name: String::new(),
        host: 0,
        program: Program::Command(Vec::new()),
        environment: BTreeMap::new(),
        directory: None,
        ready: None,
        ready_timeout: READY_TIMEOUT,
        log_limit_bytes: LOG_LIMIT_BYTES,
        flood: Flood::Fail,
        descriptors: None,
        may_end: false,
        stage,
    };
    keys::read(KEYS, &mut process, reader, &mut table, names);
    table.finish(reader);
    let Some((kind, program)) = program else { return Vec::new() };
    if let (None, Program::Known(known)) = (&process.ready, &program) {
        process.ready = Some(known.kind.ready(known.port));
    }
    process.may_end |= process.ready == Some(Ready::Exit);
    process.program = program;
    let name = name.unwrap_or(kind);
    let host_name = |host: usize| &names.plan.hosts[host].name;
    let on_host = |host| Process { name: format!("{}-{name}", host_name(host)), host, ..process.clone() };
    on.into_iter().map(on_host).collect()
}

/// Reads the program. Also returns the default name of the process.
fn read_program(
    reader: &mut Reader<'_>,
    table: &mut Table<'_, '_>,
    names: &HostNames<'_>,
) -> Option<(String, Program)> {
    let span = table.span();
    let run = table.take("run");
    let command = table.take("command");
    match (run, command) {
        (Some(run), None) => {
            let known = read_known(reader, table, run, names)?;
            Some((known.kind.name().to_owned(), Program::Known(known)))
        }
        (None, Some(value)) => {
            let values = reader.array(value, "a list of words such as [\"sleep\", \"60\"]");
            let words = read_words(reader, values);
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
            let names = KnownKind::names();
            let (first, others) = (names[0], names[1..].join(", "));
            let what = format!("give either run = \"{first}\" (or {others}) or command = [\"…\"]");
            reader.refuse(span, what)
        }
    }
}

fn read_known(
    reader: &mut Reader<'_>,
    table: &mut Table<'_, '_>,
    run: &Value<'_>,
    names: &HostNames<'_>,
) -> Option<Known> {
    let kind = reader.text(run).and_then(|name| {
        let refuse = || {
            let (hint, known) = (suggestion(name, KnownKind::names()), KnownKind::names().join(", "));
            format!("unknown program '{name}'{hint} (known: {known}); or give command")
        };
        reader.checked(run, KnownKind::of(name).ok_or_else(refuse))
    });
    program::read(kind, reader, table, names)
}

fn read_environment(reader: &mut Reader<'_>, value: &Value<'_>) -> BTreeMap<String, String> {
    let table = reader.table(value, "a table such as { LANG = \"C\" }");
    let mut environment = BTreeMap::new();
    for (span, name, value) in table.entries() {
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
    let refuse = || format!("'{text}' is not a condition of readiness; give one of {READY}");
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
    let colon = authority.rfind(':').filter(|&at| !authority[at..].contains(']'));
    let (host, port) = colon.map_or((authority, "80"), |at| (&authority[..at], &authority[at + 1..]));
    let port = port.parse().map_err(|_| None)?;
    Ok(Ready::Http { address: address(host, plan)?, port, path: format!("/{path}") })
}

fn tcp(to: &str, plan: &Plan) -> Result<Ready, Option<String>> {
    let (host, port) = to.rsplit_once(':').unwrap_or(("self", to));
    Ok(Ready::Tcp(address(host, plan)?, port.parse().map_err(|_| None)?))
}

/// Resolves an address, `localhost` or the name of a host; none for `self`.
fn address(host: &str, plan: &Plan) -> Result<Option<IpAddr>, Option<String>> {
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    match host {
        "self" => Ok(None),
        "localhost" => Ok(Some(IpAddr::V4(Ipv4Addr::LOCALHOST))),
        _ => {
            let named = plan.host(host).and_then(|host| plan.address_of(host));
            named.or_else(|| host.parse().ok()).map(Some).ok_or_else(|| {
                Some(format!(
                    "'{host}' is neither a host of this lab with an address, nor an address, nor self"
                ))
            })
        }
    }
}
