//! One setting, put together: hosts, links, processes, the target, and the workload that goes to it.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    ops::Range,
    path::PathBuf,
};

use lab::{file::HostGroups, plan::Plan};
use record::{Kind, MovedBytes};
use settings::{Reader, Table, Value};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    Texts, audits, checks,
    command::{self, CommandRead},
    kind::{kind_of, names_in_places},
    length,
    levels::Levels,
    outline::Outline,
    targets::{Place, Standing, TargetTable, Targets, insert},
    wiring::{check_ways, finish_commands, put_on_local, spread},
    workload::{self, Way, WorkloadRead},
};
use crate::{Workload, study::Setup};

/// Tables in whose texts levels stand. A factor that is named there sets nothing else; to be named in a pattern of the audit's
/// files as well is no matter.
pub(super) const WITH_PLACES: [&str; 6] = ["hosts", "links", "processes", "targets", "workload", "search"];

/// The host of a study that names none: it has nothing but a loopback interface.
pub(super) const LOCAL: &str = "local";

/// What settings are put together of.
pub(super) struct Ground<'d> {
    tree: &'d DeTable<'d>,
    outline: &'d Outline<'d>,
    pub(super) targets: Targets<'d>,
    pub(super) folder: PathBuf,
    /// Factors that set the workload's key of their name.
    setters: Vec<&'d str>,
}

/// A setup, and where the fields of its workload stand.
pub(super) struct Assembled {
    pub(super) setup: Setup,
    pub(super) spans: BTreeMap<&'static str, Range<usize>>,
    /// Where the workload stands.
    pub(super) workload: Range<usize>,
    /// Whether hosts and target are there too; if not, why has been told, and only the workload can be looked at.
    pub(super) is_whole: bool,
}

/// Where the load of a setting comes from and where it goes.
struct Scene {
    hosts: Option<Hosts>,
    standing: Option<Standing>,
    from: Vec<usize>,
}

/// Hosts and what runs on them.
struct Hosts {
    plan: Plan,
    groups: HostGroups,
    is_local: bool,
}

impl<'d> Ground<'d> {
    pub(super) fn new(
        reader: &mut Reader<'_>,
        texts: &Texts,
        tree: &'d DeTable<'d>,
        outline: &'d Outline<'d>,
    ) -> Self {
        let named = names_in_places(tree, &WITH_PLACES);
        let is_key = |name: &&str| match kind_of(tree) {
            Kind::Http => workload::is_key(name),
            Kind::Command => command::KEYS.contains(name),
        };
        let setters = outline.factors.names().filter(is_key).filter(|name| !named.contains(name)).collect();
        Self { tree, outline, targets: Targets::read(reader, tree), folder: texts.folder(), setters }
    }

    /// Whether a factor's level becomes the value of the workload's key of its name.
    pub(super) fn sets_a_key(&self, factor: &str) -> bool {
        self.setters.contains(&factor)
    }

    /// The target of a setting, if it can be told.
    pub(super) fn target_of(&self, levels: &Levels<'_>) -> Option<&'d str> {
        // What is wrong there is told when the setting is put together.
        let mut reader = Reader::new("", "");
        let (table, span) = self.workload_table(&mut reader, levels)?;
        let chosen = self.targets.chosen(&mut reader, table.get("target"), table.get("url"), span);
        chosen.ok()?.map(|target| target.name)
    }

    /// What is to be set up.
    pub(super) fn setup(
        &self,
        reader: &mut Reader<'_>,
        levels: &Levels<'d>,
        load: Option<f64>,
    ) -> Option<Setup> {
        self.assembled(reader, levels, load).map(|assembled| assembled.setup)
    }

    /// The same with the places of its parts.
    pub(super) fn assembled(
        &self,
        reader: &mut Reader<'_>,
        levels: &Levels<'d>,
        load: Option<f64>,
    ) -> Option<Assembled> {
        let search = self.outline.search.as_ref();
        // A search halves intervals; what a factor stands for may be a count.
        let whole = search.is_some_and(|search| search.search.takes_whole_loads());
        let load = load.map(|load| if whole { load.round() } else { load });
        let text = load.map(|load| load.to_string()).unwrap_or_default();
        let number = DeValue::parse(&text).ok();
        let varied = search.and_then(|search| Some((search.factor?, &search.max)));
        match (varied, number) {
            (Some((factor, at)), Some(number)) => {
                let value = Spanned::new(at.clone(), number.into_inner());
                self.put_together(reader, &levels.with_load(factor, value), load)
            }
            _ => self.put_together(reader, levels, load),
        }
    }

    fn put_together(
        &self,
        reader: &mut Reader<'_>,
        levels: &Levels<'_>,
        load: Option<f64>,
    ) -> Option<Assembled> {
        let (table, span) = self.workload_table(reader, levels)?;
        let scene = self.scene(reader, levels, &table, &span);
        let is_whole = scene.is_some();
        let Scene { mut hosts, standing, from } =
            scene.unwrap_or(Scene { hosts: None, standing: None, from: Vec::new() });
        let see = |host: usize| {
            let own = from[..] == [host];
            hosts.as_ref()?.plan.address_of(host).or(own.then_some(IpAddr::V4(Ipv4Addr::LOCALHOST)))
        };
        let authority = standing.as_ref().and_then(|standing| standing.place.authority(&see));
        let stands_for = |name: &str| {
            if standing.as_ref().is_some_and(|standing| standing.target.name == name) {
                return authority.clone();
            }
            see(hosts.as_ref()?.plan.host(name)?).map(|address| address.to_string())
        };
        let root = match standing.as_ref().map(|standing| &standing.place) {
            Some(Place::Elsewhere { url }) => Some(url.clone()),
            Some(Place::Hosts { .. }) => authority.as_ref().map(|authority| format!("http://{authority}/")),
            // Nothing is sent there: the rest of the workload is looked at.
            None => (!is_whole).then(|| "http://127.0.0.1/".to_owned()),
        };
        let way = Way { root, stands_for: &stands_for, folder: &self.folder };
        let mut table = Table::of(&table, span.clone());
        table.take("target");
        table.take("from");
        let search = self.outline.search.as_ref().filter(|_| load.is_some());
        let search = search.map(|search| search.at(|factor| levels.level(factor)));
        let (mut workload, spans) = match kind_of(self.tree) {
            Kind::Http => {
                let WorkloadRead { mut workload, mut spans } = workload::read(reader, table, &way);
                spread(&mut workload, standing.as_ref(), authority.as_deref(), &see);
                length::put(reader, &mut workload, &mut spans, self.outline.duration.as_ref(), search);
                workload.seed = self.outline.seed;
                (Workload::Http(Box::new(workload)), spans)
            }
            Kind::Command => {
                let CommandRead { mut workload, spans } = command::read(reader, table, &way);
                if let (Some(MovedBytes::Link), None, Some(span)) =
                    (&workload.bytes, &hosts, spans.get("bytes"))
                {
                    let message =
                        "without hosts the load shares its interfaces with others: give a size or a path";
                    reader.mistake(span.clone(), message);
                }
                length::put_stop(reader, &mut workload, &spans, self.outline.duration.as_ref(), search);
                (Workload::Command(Box::new(workload)), spans)
            }
        };
        if let (Some(search), Some(load)) = (&self.outline.search, load) {
            workload.set_load(&search.search.unit, load);
        }
        if let Some(hosts) = &mut hosts {
            finish_commands(&mut hosts.plan, standing.as_ref(), authority.as_deref());
        }
        // Without a target nothing could be said of its files, and why there is none has been told.
        let audit = self.tree.get("audit").filter(|_| is_whole).and_then(|value| {
            match &workload {
                Workload::Http(workload) => audits::check_events(reader, value, workload, &spans),
                Workload::Command(_) => {
                    reader.mistake(value.span(), "only numbered events of [workload.http] can be audited");
                }
            }
            audits::read(reader, value, levels, standing.as_ref(), &self.folder)
        });
        let setup = Setup {
            lab: hosts.map(|hosts| hosts.plan),
            target: standing.map(|standing| standing.target),
            from,
            workload,
            audit,
        };
        Some(Assembled { setup, spans, workload: span, is_whole })
    }

    /// The hosts and the target of a setting, whose workload's table is given.
    fn scene(
        &self,
        reader: &mut Reader<'_>,
        levels: &Levels<'_>,
        workload: &DeTable<'_>,
        span: &Range<usize>,
    ) -> Option<Scene> {
        let chosen =
            self.targets.chosen(reader, workload.get("target"), workload.get("url"), span.clone()).ok()?;
        let hosts = self.hosts(reader, levels, chosen)?;
        let is_host = |name: &str| hosts.as_ref().is_some_and(|hosts| hosts.plan.host(name).is_some());
        checks::named_targets(reader, workload, self, chosen.map(|chosen| chosen.name), &is_host);
        let (hosts, standing) = match (chosen, hosts) {
            (Some(target), Some(mut hosts)) => {
                let at = (&mut hosts.plan, &hosts.groups);
                let standing = target.stand(reader, levels, Some(at), hosts.is_local)?;
                (Some(hosts), Some(standing))
            }
            (Some(target), None) => (None, Some(target.stand(reader, levels, None, false)?)),
            (None, hosts) => (hosts, None),
        };
        let given = workload.get("from");
        let from = match &hosts {
            Some(hosts) => self.from(reader, hosts, given, span)?,
            None => {
                if let Some(value) = given {
                    reader.mistake(
                        value.span(),
                        "nothing runs on hosts here: the load leaves from this machine",
                    );
                }
                Vec::new()
            }
        };
        if let (Some(hosts), Some(standing)) = (&hosts, &standing)
            && !check_ways(reader, &hosts.plan, &from, standing)
        {
            return None;
        }
        Some(Scene { hosts, standing, from })
    }

    /// The workload's table with levels in their places, those included that set a key.
    fn workload_table<'s>(
        &self,
        reader: &mut Reader<'_>,
        levels: &Levels<'s>,
    ) -> Option<(DeTable<'s>, Range<usize>)>
    where
        'd: 's,
    {
        let Some(value) = self.tree.get("workload") else {
            let message = "[workload.http] is missing: what is sent to the target; or [workload.command]: the program that \
                           is run";
            reader.mistake(0..0, message);
            return None;
        };
        let mut table = reader.table(value, "a table [workload.http] or [workload.command]");
        let (http, command) = (table.take("http"), table.take("command"));
        let span = table.span();
        table.finish(reader);
        let http = match (http, command) {
            (Some(_), Some(command)) => {
                reader.mistake(command.span(), "[workload.http] is there too: a study has one workload");
                return None;
            }
            (Some(own), None) | (None, Some(own)) => own,
            (None, None) => {
                reader.mistake(span, "the table [workload.http] or [workload.command] is missing");
                return None;
            }
        };
        let Some(written) = http.get_ref().as_table() else {
            reader.expected(http.span(), "a table", http.get_ref());
            return None;
        };
        let mut table = levels.put_table(reader, written);
        for name in &self.setters {
            if let Some(level) = levels.get(name) {
                table.insert(Spanned::new(level.span(), Cow::Borrowed(*name)), level.clone());
            }
        }
        Some((table, http.span()))
    }

    /// Hosts, links and processes; none if nothing of the study runs on hosts. An error is told to the reader.
    #[expect(clippy::option_option, reason = "the outer one is for mistakes, as everywhere here")]
    fn hosts(
        &self,
        reader: &mut Reader<'_>,
        levels: &Levels<'_>,
        chosen: Option<&TargetTable<'_>>,
    ) -> Option<Option<Hosts>> {
        let is_elsewhere = chosen.is_some_and(|target| target.url().is_some());
        let has = |key: &str| self.tree.contains_key(key);
        let is_wanted = chosen.is_some() || has("hosts") || has("processes") || has("links");
        if is_elsewhere || !is_wanted {
            return Some(None);
        }
        let parts = ["hosts", "links", "processes"];
        let parts = self.tree.iter().filter(|(key, _)| parts.contains(&key.get_ref().as_ref()));
        let mut table = DeTable::new();
        for (key, value) in parts {
            if let Some(value) = levels.put(reader, value) {
                table.insert(key.clone(), value);
            }
        }
        let is_local = !has("hosts");
        if is_local {
            let mut hosts = DeTable::new();
            insert(&mut hosts, LOCAL, 0..0, DeValue::Table(DeTable::new()));
            insert(&mut table, "hosts", 0..0, DeValue::Table(hosts));
            put_on_local(&mut table);
        }
        let mut table = Table::of(&table, 0..0);
        let begun = reader.mistakes();
        let (plan, groups) = lab::file::read_with_groups(reader, &mut table, self.outline.title.clone());
        (reader.mistakes() == begun).then_some(Some(Hosts { plan, groups, is_local }))
    }

    /// The hosts that the load comes from.
    fn from(
        &self,
        reader: &mut Reader<'_>,
        hosts: &Hosts,
        given: Option<&Value<'_>>,
        workload: &Range<usize>,
    ) -> Option<Vec<usize>> {
        if let Some(value) = given {
            let from = hosts.groups.read_hosts(reader, value);
            return (!from.is_empty()).then_some(from);
        }
        if let [_] = hosts.plan.hosts[..] {
            return Some(vec![0]);
        }
        let written = self.tree.get("hosts").and_then(|hosts| hosts.get_ref().as_table());
        let names = written.into_iter().flatten().map(|(name, _)| name.get_ref().as_ref());
        let targets: Vec<usize> = self
            .targets
            .list
            .iter()
            .flat_map(TargetTable::on)
            .flat_map(|name| hosts.groups.members_of(name).unwrap_or_default())
            .collect();
        let free = names.filter_map(|name| {
            let members = hosts.groups.members_of(name)?;
            (!members.iter().any(|host| targets.contains(host))).then_some((name, members))
        });
        let mut free: Vec<(&str, Vec<usize>)> = free.collect();
        if let [_] = free[..] {
            return free.pop().map(|(_, members)| members);
        }
        let names: Vec<&str> = free.iter().map(|(name, _)| *name).collect();
        let which =
            if names.is_empty() { String::new() } else { format!(", such as {}", names.join(" or ")) };
        reader.mistake(
            workload.clone(),
            format!("'from' is missing: the host or hosts that the load comes from{which}"),
        );
        None
    }
}
