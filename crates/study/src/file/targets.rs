//! The tables `[targets.NAME]`.

use std::{
    borrow::Cow,
    net::{IpAddr, SocketAddr},
    ops::Range,
};

use lab::{
    file::{HostGroups, HostNames},
    plan::{KnownKind, Plan, Process, Program},
};
use secrets::reference;
use settings::{Reader, Table, Value, suggestion};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{levels::Levels, placeholders, programs, resolver::LOCAL};
use crate::study::Target;

pub(super) struct Targets<'d> {
    pub(super) list: Vec<TargetTable<'d>>,
}

/// A target as the file defines it.
pub(super) struct TargetTable<'d> {
    pub(super) name: &'d str,
    pub(super) span: Range<usize>,
    value: &'d Value<'d>,
    /// Programs that the target needs but that are not installed.
    pub(super) missing_programs: Vec<&'d str>,
    /// Whether the study may leave the target out, unless the user requests it (`--set target=NAME`).
    pub(super) is_optional: bool,
}

/// A target in one setting.
pub(super) struct ResolvedTarget {
    pub(super) label: Target,
    pub(super) location: TargetLocation,
    pub(super) span: Range<usize>,
}

pub(super) enum TargetLocation {
    /// A target that already runs, outside of the study.
    External { url: String },
    /// A target that the study starts on these hosts, listening on this port.
    Hosts { hosts: Vec<usize>, port: u16 },
}

impl<'d> Targets<'d> {
    /// With `on_machines`, the programs that targets need are looked for there, and not here.
    pub(super) fn read(reader: &mut Reader<'_>, tree: &'d DeTable<'d>, on_machines: bool) -> Self {
        let Some(value) = tree.get("targets") else { return Self { list: Vec::new() } };
        let table = reader.table(value, "tables such as [targets.web]");
        let mut list: Vec<TargetTable<'d>> = Vec::new();
        for (span, name, value) in table.entries() {
            placeholders::check_name(reader, name, &span);
            let key = |key: &str| value.get_ref().as_table()?.get(key);
            let missing_programs =
                key("needs").map_or_else(Vec::new, |needs| programs::missing(reader, needs));
            let missing_programs = if on_machines { Vec::new() } else { missing_programs };
            let optional = key("optional");
            let is_optional = optional.and_then(|value| reader.flag(value)).unwrap_or(false);
            list.push(TargetTable { name, span, value, missing_programs, is_optional });
        }
        list.sort_by_key(|target| target.span.start);
        Self { list }
    }

    pub(super) fn get(&self, name: &str) -> Option<&TargetTable<'d>> {
        self.list.iter().find(|target| target.name == name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &'d str> {
        self.list.iter().map(|target| target.name)
    }

    /// Selects the target of a setting: the one that it names, else the only one that its URL uses, else the only one of the study.
    pub(super) fn select(
        &self,
        reader: &mut Reader<'_>,
        named: Option<&Value<'_>>,
        url: Option<&Value<'_>>,
        workload: Range<usize>,
    ) -> Result<Option<&TargetTable<'d>>, ()> {
        if let Some(value) = named {
            let name = reader.text_such_as(value, "the name of a target in quotes").ok_or(())?;
            return match self.get(name) {
                Some(target) => Ok(Some(target)),
                None => {
                    let hint = suggestion(name, self.names());
                    let known: Vec<&str> = self.names().collect();
                    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                    reader.mistake(
                        value.span(),
                        format!("there is no target '{name}'{hint} (targets: {known})"),
                    );
                    Err(())
                }
            };
        }
        let text = url.and_then(|value| value.get_ref().as_str());
        let in_url: Vec<&TargetTable<'d>> =
            text.map(placeholders::names).into_iter().flatten().filter_map(|name| self.get(name)).collect();
        match (&self.list[..], &in_url[..]) {
            (_, [target]) => Ok(Some(target)),
            ([], _) => Ok(None),
            ([target], _) => Ok(Some(target)),
            _ => {
                let names: Vec<&str> = self.names().collect();
                let message =
                    format!("'target' is missing: one of {}, or a factor named target", names.join(", "));
                reader.mistake(workload, message);
                Err(())
            }
        }
    }
}

impl<'d> TargetTable<'d> {
    /// The URL of an external target.
    pub(super) fn url(&self) -> Option<&'d Value<'d>> {
        self.value.get_ref().as_table()?.get("url")
    }

    pub(super) fn on(&self) -> Vec<&'d str> {
        let on = self.value.get_ref().as_table().and_then(|table| table.get("on"));
        match on.map(Spanned::get_ref) {
            Some(DeValue::String(name)) => vec![name],
            Some(DeValue::Array(names)) => names.iter().filter_map(|name| name.get_ref().as_str()).collect(),
            _ => Vec::new(),
        }
    }

    /// Resolves the target with the levels of a setting and, unless it is external, adds its processes to the plan.
    pub(super) fn resolve(
        &self,
        reader: &mut Reader<'_>,
        levels: &Levels<'_>,
        hosts: Option<(&mut Plan, &HostGroups)>,
        is_local: bool,
    ) -> Option<ResolvedTarget> {
        let value = levels.substitute(reader, self.value)?;
        let Some(mut table) = value.get_ref().as_table().cloned() else {
            return reader.refuse_type(&value, "a table such as { on = \"web\", run = \"nginx\" }");
        };
        let label = |what: String| Target { name: self.name.to_owned(), what };
        let resolved =
            |what, location| ResolvedTarget { label: label(what), location, span: self.span.clone() };
        if table.contains_key("url") {
            let mut table = Table::new(&table, value.span());
            table.take("needs");
            table.take("optional");
            for key in ["run", "command", "on", "args", "port"] {
                if let Some(value) = table.take(key) {
                    let message = format!(
                        "'{key}' starts a target, but 'url' names one that runs already: leave out one of them"
                    );
                    reader.mistake(value.span(), message);
                }
            }
            let url = table.take("url").and_then(|value| read_url(reader, value));
            table.finish(reader);
            let url = url?;
            return Some(resolved(url.clone(), TargetLocation::External { url }));
        }
        let (plan, groups) = hosts?;
        if is_local && !table.contains_key("on") {
            insert(&mut table, "on", value.span(), DeValue::String(Cow::Borrowed(LOCAL)));
        }
        let run = table.get("run").and_then(|run| run.get_ref().as_str()).map(str::to_owned);
        let port = port_of(&table, run.as_deref());
        let lookup = |name: &str| (name == "port").then_some(port).flatten().map(|port| port.to_string());
        let whole =
            placeholders::substitute_in_value(&Spanned::new(value.span(), DeValue::Table(table)), &lookup);
        let mut table = reader.table(&whole, "a table");
        table.take("needs");
        table.take("optional");
        let mut port = port;
        if table.take("command").is_some() {
            let value = table.require(reader, "port", "the port that it listens on");
            port = value.and_then(|value| reader.whole(value, 1..65_536)).map(|port| port as u16);
        }
        let stage = plan.processes.iter().map(|process| process.stage + 1).max().unwrap_or(0);
        let names = HostNames { plan, groups };
        let processes = lab::file::read_process(reader, table, Some(self.name), &names, stage);
        let first = processes.first()?;
        let (what, port) = match &first.program {
            Program::Known(known) => {
                let words = std::iter::once(known.kind.name()).chain(known.args.iter().map(String::as_str));
                (words.collect::<Vec<_>>().join(" "), known.port)
            }
            Program::Command(words) => (placeholders::expand(&words.join(" "), &|_| None), port?),
        };
        let hosts = processes.iter().map(|process| process.host).collect();
        for process in processes {
            self.check(reader, plan, &process, port);
            plan.processes.push(process);
        }
        Some(resolved(what, TargetLocation::Hosts { hosts, port }))
    }

    /// Reports conflicts with other processes of the plan, such as a port used twice.
    fn check(&self, reader: &mut Reader<'_>, plan: &Plan, process: &Process, port: u16) {
        for other in &plan.processes {
            if other.name == process.name {
                let message =
                    format!("there is another process '{}': give one of them another name", other.name);
                reader.mistake(self.span.clone(), message);
            }
            if let Program::Known(known) = &other.program
                && (other.host, known.port) == (process.host, port)
            {
                let message = format!("'{}' already listens on port {port} of the same host", other.name);
                reader.mistake(self.span.clone(), message);
            }
        }
    }
}

impl TargetLocation {
    /// The authority of its URL, such as `10.1.0.2:80`; `address_of` gives a host's address.
    pub(super) fn authority(&self, address_of: &dyn Fn(usize) -> Option<IpAddr>) -> Option<String> {
        match self {
            Self::External { url } => {
                let rest = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
                Some(rest.split(['/', '?', '#']).next().unwrap_or(rest).to_owned())
            }
            Self::Hosts { hosts, port } => {
                Some(SocketAddr::new(address_of(*hosts.first()?)?, *port).to_string())
            }
        }
    }
}

fn read_url(reader: &mut Reader<'_>, value: &Value<'_>) -> Option<String> {
    let url = reader.text_such_as(value, "a URL such as \"http://10.0.0.7/\"")?;
    match url.split_once("://") {
        Some(("http" | "https", rest)) if !rest.is_empty() && !rest.starts_with('/') => Some(url.to_owned()),
        // The workload resolves references to variables later.
        _ if reference::has_reference(url) => Some(url.to_owned()),
        _ => reader.refuse(value.span(), format!("'{url}' is not a URL such as http://10.0.0.7:8080/")),
    }
}

/// The port in a target's table, or the default of its program.
fn port_of(table: &DeTable<'_>, run: Option<&str>) -> Option<u16> {
    match table.get("port").map(Spanned::get_ref) {
        Some(DeValue::Integer(number)) => number.as_str().replace('_', "").parse().ok(),
        Some(_) => None,
        None => Some(KnownKind::of(run?)?.default_port()),
    }
}

/// Inserts a key that the file does not have.
pub(super) fn insert<'d>(table: &mut DeTable<'d>, key: &'static str, at: Range<usize>, value: DeValue<'d>) {
    table.insert(Spanned::new(at.clone(), Cow::Borrowed(key)), Spanned::new(at, value));
}
