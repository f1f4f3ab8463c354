//! Resolves one setting: hosts, links, processes, the target and the workload.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    ops::Range,
    path::PathBuf,
};

use lab::{
    Balancer,
    file::{HostGroups, HostNames},
    plan::Plan,
};
use record::{ByteSource, Kind};
use settings::{Reader, Table};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    Input, actions, audits, balancers, checks,
    command::{self, ParsedCommand},
    kind::{kind_of, placeholder_names},
    length,
    levels::Levels,
    outline::Outline,
    routing::{check_routes, connect_to_all_hosts, fill_in_addresses, place_on_local_host},
    targets::{ResolvedTarget, TargetLocation, TargetTable, Targets, insert},
    tuning,
    workload::{self, Context, ParsedWorkload},
};
use crate::{
    Workload,
    machines::{self, Placement},
    study::{Action, Setup},
};

/// Tables in which a placeholder may use a factor. A factor that is used there does not set the workload's key of the same name. Patterns
/// of the audit may use factors, too, but without this effect.
pub(super) const LEVEL_TABLES: [&str; 8] =
    ["hosts", "links", "processes", "targets", balancers::NAME, actions::NAME, "workload", "search"];

/// The name of the only host in a study without hosts; it has only a loopback interface.
pub(super) const LOCAL: &str = "local";

/// Resolves settings of a study file into setups.
pub(super) struct Resolver<'d> {
    pub(super) tree: &'d DeTable<'d>,
    pub(super) outline: &'d Outline<'d>,
    pub(super) targets: Targets<'d>,
    pub(super) folder: PathBuf,
    /// Which machines the hosts are; none if they are made in a lab.
    pub(super) placement: Option<&'d Placement>,
    /// Factors that set a key of the workload, which has the factor's name.
    setters: Vec<&'d str>,
}

/// A setup, and the spans of its workload's fields.
pub(super) struct ResolvedSetup {
    pub(super) setup: Setup,
    pub(super) spans: BTreeMap<&'static str, Range<usize>>,
    /// The span of the workload's table.
    pub(super) workload: Range<usize>,
    /// Whether hosts and target could be resolved. If not, the mistakes are already reported, and only the workload needs checking.
    pub(super) is_whole: bool,
}

/// The hosts that make the load of a setting, and its target.
#[derive(Default)]
struct Endpoints {
    hosts: Option<ResolvedHosts>,
    target: Option<ResolvedTarget>,
    from: Vec<usize>,
    balancer: Option<Balancer>,
    actions: Vec<Action>,
}

/// Hosts and the processes on them.
pub(super) struct ResolvedHosts {
    pub(super) plan: Plan,
    pub(super) groups: HostGroups,
    is_local: bool,
}

impl<'d> Resolver<'d> {
    pub(super) fn new(
        reader: &mut Reader<'_>,
        input: &'d Input,
        tree: &'d DeTable<'d>,
        outline: &'d Outline<'d>,
    ) -> Self {
        let named = placeholder_names(tree, &LEVEL_TABLES);
        let is_key = |name: &&str| match kind_of(tree) {
            Kind::Http => workload::is_key(name),
            Kind::Command => command::KEYS.contains(name),
        };
        let setters = outline.factors.names().filter(is_key).filter(|name| !named.contains(name)).collect();
        let placement = input.placement.as_ref();
        Self {
            tree,
            outline,
            targets: Targets::read(reader, tree, placement.is_some()),
            folder: input.folder(),
            placement,
            setters,
        }
    }

    /// Whether a factor sets the workload's key of the same name.
    pub(super) fn sets_key(&self, factor: &str) -> bool {
        self.setters.contains(&factor)
    }

    /// The target of a setting; `None` if the setting names none or names one wrongly.
    pub(super) fn target_of(&self, levels: &Levels<'_>) -> Option<&'d str> {
        // Drop the mistakes: resolving the setting reports them.
        let mut reader = Reader::new("", "");
        let (table, span) = self.workload_table(&mut reader, levels)?;
        let chosen = self.targets.select(&mut reader, table.get("target"), table.get("url"), span);
        chosen.ok()?.map(|target| target.name)
    }

    /// Resolves a setting at a load, with the spans of the workload's fields.
    pub(super) fn resolve(
        &self,
        reader: &mut Reader<'_>,
        levels: &Levels<'d>,
        load: Option<f64>,
    ) -> Option<ResolvedSetup> {
        let search = self.outline.search.as_ref();
        // Bisection yields fractions, but the factor may be a count.
        let is_whole = search.is_some_and(|search| search.search.takes_whole_loads());
        let load = load.map(|load| if is_whole { load.round() } else { load });
        let text = load.map(|load| load.to_string()).unwrap_or_default();
        let number = DeValue::parse(&text).ok();
        let varied = search.and_then(|search| Some((search.factor?, &search.max)));
        match (varied, number) {
            (Some((factor, at)), Some(number)) => {
                let value = Spanned::new(at.clone(), number.into_inner());
                self.resolve_at_load(reader, &levels.with_load(factor, value), load)
            }
            _ => self.resolve_at_load(reader, levels, load),
        }
    }

    fn resolve_at_load(
        &self,
        reader: &mut Reader<'_>,
        levels: &Levels<'_>,
        load: Option<f64>,
    ) -> Option<ResolvedSetup> {
        let (table, span) = self.workload_table(reader, levels)?;
        let endpoints = self.endpoints(reader, levels, &table, &span);
        let is_whole = endpoints.is_some();
        let Endpoints { mut hosts, target, from, balancer, actions } = endpoints.unwrap_or_default();
        let address_of = |host: usize| {
            let is_own = from[..] == [host];
            hosts.as_ref()?.plan.address_of(host).or(is_own.then_some(IpAddr::V4(Ipv4Addr::LOCALHOST)))
        };
        // With a balancer, clients connect to the balancer instead of the target.
        let authority = match &balancer {
            Some(balancer) => Some(SocketAddr::new(balancer.vip, balancer.port).to_string()),
            None => target.as_ref().and_then(|target| target.location.authority(&address_of)),
        };
        let is_tls = balancer.as_ref().is_some_and(|balancer| balancer.is_tls);
        let scheme = if is_tls { "https" } else { "http" };
        let lookup = |name: &str| {
            if target.as_ref().is_some_and(|target| target.label.name == name) {
                return authority.clone();
            }
            address_of(hosts.as_ref()?.plan.host(name)?).map(|address| address.to_string())
        };
        let root = match target.as_ref().map(|target| &target.location) {
            Some(TargetLocation::External { url }) => Some(url.clone()),
            Some(TargetLocation::Hosts { .. }) => authority.as_ref().map(|to| format!("{scheme}://{to}/")),
            // A placeholder address, so that the rest of the workload can still be checked.
            None => (!is_whole).then(|| "http://127.0.0.1/".to_owned()),
        };
        let context = Context { root, lookup: &lookup, folder: &self.folder };
        let mut table = Table::new(&table, span.clone());
        table.take("target");
        table.take("from");
        let search = self.outline.search.as_ref().filter(|_| load.is_some());
        let search = search.map(|search| search.at(|factor| levels.level(factor)));
        let duration = self.outline.duration.as_ref();
        let (mut workload, spans) = match kind_of(self.tree) {
            Kind::Http => {
                let ParsedWorkload { mut workload, mut spans } = workload::read(reader, table, &context);
                if balancer.is_none() {
                    connect_to_all_hosts(&mut workload, target.as_ref(), authority.as_deref(), &address_of);
                }
                // No client knows the authority that signed the balancer's certificate.
                workload.insecure |= is_tls;
                length::set_duration(reader, &mut workload, &mut spans, duration, search);
                workload.seed = self.outline.seed;
                (Workload::Http(Box::new(workload)), spans)
            }
            Kind::Command => {
                let ParsedCommand { mut workload, spans } = command::read(reader, table, &context);
                if let (Some(ByteSource::Link), None, Some(span)) =
                    (&workload.bytes, &hosts, spans.get("bytes"))
                {
                    let message = "\"link\" counts bytes only if the load runs on [hosts] of the study, because other programs use this machine's interfaces, too: give a size or a path";
                    reader.mistake(span.clone(), message);
                }
                length::set_stop_after(reader, &mut workload, &spans, duration, search);
                (Workload::Command(Box::new(workload)), spans)
            }
        };
        if let (Some(search), Some(load)) = (&self.outline.search, load) {
            workload.set_load(&search.search.unit, load);
        }
        if let Some(hosts) = &mut hosts {
            fill_in_addresses(&mut hosts.plan, target.as_ref(), authority.as_deref());
        }
        // Without a target, there is nothing to audit, and the mistake is already reported.
        let audit = self.tree.get("audit").filter(|_| is_whole).and_then(|value| {
            match &workload {
                Workload::Http(workload) => audits::check_events(reader, value, workload, &spans),
                Workload::Command(_) => {
                    reader.mistake(value.span(), "only numbered events of [workload.http] can be audited");
                }
            }
            audits::read(reader, value, levels, target.as_ref(), &self.folder)
        });
        let setup = Setup {
            lab: hosts.map(|hosts| hosts.plan),
            target: target.map(|target| target.label),
            from,
            workload,
            audit,
            books_time: self.outline.books_time,
            balancer,
            actions,
        };
        Some(ResolvedSetup { setup, spans, workload: span, is_whole })
    }

    /// Resolves hosts and target of a setting; `workload` is the workload's table.
    fn endpoints(
        &self,
        reader: &mut Reader<'_>,
        levels: &Levels<'_>,
        workload: &DeTable<'_>,
        span: &Range<usize>,
    ) -> Option<Endpoints> {
        let chosen =
            self.targets.select(reader, workload.get("target"), workload.get("url"), span.clone()).ok()?;
        let hosts = self.hosts(reader, levels, chosen)?;
        let is_host = |name: &str| hosts.as_ref().is_some_and(|hosts| hosts.plan.host(name).is_some());
        checks::named_targets(reader, workload, self, chosen.map(|chosen| chosen.name), &is_host);
        let (mut hosts, target) = match (chosen, hosts) {
            (Some(target), Some(mut hosts)) => {
                let at = (&mut hosts.plan, &hosts.groups);
                let target = target.resolve(reader, levels, Some(at), hosts.is_local)?;
                (Some(hosts), Some(target))
            }
            (Some(target), None) => (None, Some(target.resolve(reader, levels, None, false)?)),
            (None, hosts) => (hosts, None),
        };
        let given = workload.get("from");
        let from = match &hosts {
            Some(hosts) => self.from(reader, hosts, given, span)?,
            None => {
                if let Some(value) = given {
                    reader.mistake(
                        value.span(),
                        "without hosts, the load leaves from this machine: leave this out",
                    );
                }
                Vec::new()
            }
        };
        let plan = hosts.as_mut().map(|hosts| (&mut hosts.plan, &hosts.groups));
        let balancer = balancers::read(reader, self.tree, levels, plan, target.as_ref(), &from)?;
        // Skip the check of routes for a load through a proxy or a Unix socket, which needs no route to the target, and with a balancer,
        // which receives the load instead.
        let has_other_way = ["proxy", "unix_socket"].iter().any(|key| workload.contains_key(*key));
        if let (Some(hosts), Some(target), false) = (&hosts, &target, has_other_way || balancer.is_some())
            && !check_routes(reader, &hosts.plan, &from, target)
        {
            return None;
        }
        let names = hosts.as_ref().map(|hosts| HostNames { plan: &hosts.plan, groups: &hosts.groups });
        let actions = actions::read(reader, self.tree, levels, names, balancer.as_ref());
        if let (false, Kind::Command, Some(value)) =
            (actions.is_empty(), kind_of(self.tree), self.tree.get(actions::NAME))
        {
            reader.mistake(
                value.span(),
                "[[actions]] needs [workload.http]: remove the actions, or use an HTTP workload",
            );
        }
        Some(Endpoints { hosts, target, from, balancer, actions })
    }

    /// The workload's table with levels substituted for placeholders, and with the keys that factors set.
    fn workload_table<'s>(
        &self,
        reader: &mut Reader<'_>,
        levels: &Levels<'s>,
    ) -> Option<(DeTable<'s>, Range<usize>)>
    where
        'd: 's,
    {
        let Some(value) = self.tree.get("workload") else {
            let message = "[workload.http] (the requests to send) or [workload.command] (the programs to run) is missing";
            return reader.refuse(0..0, message);
        };
        let mut table = reader.table(value, "a table [workload.http] or [workload.command]");
        let (http, command) = (table.take("http"), table.take("command"));
        let span = table.span();
        table.finish(reader);
        let http = match (http, command) {
            (Some(_), Some(command)) => {
                let message = "a study has one workload: leave out [workload.http] or [workload.command]";
                return reader.refuse(command.span(), message);
            }
            (Some(workload), None) | (None, Some(workload)) => workload,
            (None, None) => {
                return reader.refuse(span, "the table [workload.http] or [workload.command] is missing");
            }
        };
        let Some(written) = http.get_ref().as_table() else {
            return reader.refuse_type(http, "a table");
        };
        let mut table = levels.substitute_table(reader, written);
        for name in &self.setters {
            if let Some(level) = levels.get(name) {
                table.insert(Spanned::new(level.span(), Cow::Borrowed(*name)), level.clone());
            }
        }
        Some((table, http.span()))
    }

    /// Resolves hosts, links and processes. The outer option is `None` if there are mistakes; the inner one is `None` if nothing runs on
    /// hosts.
    #[expect(clippy::option_option, reason = "the outer option means mistakes, as in the other functions")]
    fn hosts(
        &self,
        reader: &mut Reader<'_>,
        levels: &Levels<'_>,
        chosen: Option<&TargetTable<'_>>,
    ) -> Option<Option<ResolvedHosts>> {
        let is_external = chosen.is_some_and(|target| target.url().is_some());
        let has = |key: &str| self.tree.contains_key(key);
        let is_wanted = chosen.is_some() || has("hosts") || has("processes") || has("links");
        let tuning = tuning::changes(self.tree, levels);
        if is_external || !is_wanted {
            if let Some((span, _)) = tuning {
                let message =
                    "only hosts of the study are tuned; proofload host tune changes those of a real host";
                reader.mistake(span, message);
            }
            return Some(None);
        }
        let parts = ["hosts", "links", "processes"];
        let parts = self.tree.iter().filter(|(key, _)| parts.contains(&key.get_ref().as_ref()));
        let mut table = DeTable::new();
        for (key, value) in parts {
            if let Some(value) = levels.substitute(reader, value) {
                table.insert(key.clone(), value);
            }
        }
        let is_local = !has("hosts");
        if is_local {
            let mut hosts = DeTable::new();
            insert(&mut hosts, LOCAL, 0..0, DeValue::Table(DeTable::new()));
            insert(&mut table, "hosts", 0..0, DeValue::Table(hosts));
            place_on_local_host(&mut table);
        }
        if let Some((span, changes)) = tuning {
            tuning::apply(reader, &mut table, span, changes);
        }
        let mut table = Table::new(&table, 0..0);
        let mistakes_before = reader.mistake_count();
        let (mut plan, groups) = lab::file::read_with_groups(reader, &mut table, self.outline.title.clone());
        if let Some(placement) = self.placement {
            let span_of = |key: &str| self.tree.get(key).map_or(0..0, Spanned::span);
            if is_local {
                reader.mistake(0..0, "--machines: the study has no [hosts] that could be machines");
            }
            machines::adapt(reader, &mut plan, placement, span_of("links"), span_of("hosts"));
        }
        (reader.mistake_count() == mistakes_before).then_some(Some(ResolvedHosts { plan, groups, is_local }))
    }
}
