//! Validates a whole study: resolves and plans every setting before anything runs.

use std::collections::BTreeSet;

use load::{HttpWorkload, MachineLimits, preflight};
use record::{
    GoalQuantity, HttpPlan, Kind, Level, LoadUnit, Setting, quantity::of_requests, units::parse_time,
};
use settings::{Reader, suggestion};
use toml::de::DeTable;

use super::{
    Input, balancers, checks,
    factors::all_hold,
    goals::{self, ParsedGoal},
    kind::workload_table,
    left_out,
    levels::Levels,
    outline::Outline,
    placeholders,
    resolver::{ResolvedSetup, Resolver},
    searches::ParsedSearch,
    tuning,
};
use crate::{
    Workload, observers,
    study::{Search, Source, Study},
};

/// Number of mistakes after which no further settings are validated.
const MAX_MISTAKES: usize = 1_000;
/// A number of local ports that no plan reaches. Hosts of a study can have more addresses, so ports do not limit it here.
const ANY_PORTS: u64 = 1 << 40;

/// Makes the study from its outline and its settings; none if there are mistakes.
pub(super) fn study<'d>(
    reader: &mut Reader<'_>,
    input: &'d Input,
    tree: &'d DeTable<'d>,
    outline: &'d Outline<'d>,
    source: Source,
) -> Option<Study> {
    let resolver = Resolver::new(reader, input, tree, outline);
    checks::placeholders(reader, &resolver);
    checks::factors(reader, &resolver);
    tuning::check(reader, tree, outline);
    let settings: Vec<Setting> = outline
        .factors
        .combinations(reader)
        .into_iter()
        .map(|levels| {
            let search = outline.search.as_ref().filter(|search| all_hold(&search.when, &levels));
            let chosen = search.filter(|search| search.preset_factor().is_some());
            Setting {
                name: outline.factors.words(&levels),
                searched: search.is_some(),
                method: chosen.map(|search| search.at(|factor| levels.get(factor).cloned()).preset.clone()),
                levels,
                ..Setting::default()
            }
        })
        .collect();
    checks::overridden(reader, &resolver, &settings);
    checks::searched(reader, outline, &settings);
    let levels_of = |setting: &Setting| Levels::of(&outline.factors, &setting.levels, &resolver.folder);
    let targets: Vec<Option<&str>> =
        settings.iter().map(|setting| resolver.target_of(&levels_of(setting))).collect();
    checks::targets(reader, &resolver, &targets);
    // If a factor is wrong, every setting that uses it would report the mistake again.
    if outline.has_valid_factors {
        let mut validator = Validator { host: &input.host, resolver: &resolver, planned: BTreeSet::new() };
        for setting in &settings {
            validator.setting(reader, setting, &levels_of(setting));
            if reader.mistake_count() > MAX_MISTAKES {
                break;
            }
        }
    }
    refuse_secret_levels(reader, outline);
    // What machines lack, they say themselves.
    let shortage = |setting: &Setting| match &input.placement {
        None => balancers::shortage(tree, &levels_of(setting), &input.host),
        Some(_) => None,
    };
    let unfit: Vec<_> = settings.iter().map(shortage).collect();
    let (settings, warnings) = left_out::leave_out(reader, &resolver, settings, (&targets, &unfit));
    if reader.has_mistakes() {
        return None;
    }
    let mut searches: Vec<Search> = Vec::new();
    for setting in settings.iter().filter(|setting| setting.searched) {
        let search =
            outline.search.as_ref().map(|search| search.at(|factor| setting.levels.get(factor).cloned()));
        searches.extend(search.filter(|search| !searches.contains(search)).cloned());
    }
    for search in &mut searches {
        search.trial_duration = search.trial_duration.or_else(|| workload_duration(tree));
    }
    let mut searches = searches.into_iter();
    Some(Study {
        title: outline.title.clone(),
        seed: outline.seed,
        budget: outline.budget,
        factors: outline.factors.record(&settings),
        settings,
        goals: outline.goals.iter().map(|goal| goal.goal.clone()).collect(),
        trial: outline.trial.clone(),
        observe: outline.observe.clone(),
        search: searches.next(),
        other_searches: searches.collect(),
        noise: None,
        source,
        warnings,
    })
}

/// Resolves and plans settings as they will be run.
struct Validator<'t, 'd> {
    host: &'t MachineLimits,
    resolver: &'t Resolver<'d>,
    /// Workloads that are already planned. Many settings share one, so each needs planning only once.
    planned: BTreeSet<String>,
}

impl<'d> Validator<'_, 'd> {
    /// Validates a setting, at both ends of a search.
    fn setting(&mut self, reader: &mut Reader<'_>, setting: &Setting, levels: &Levels<'d>) {
        let search = self.resolver.outline.search.as_ref().filter(|_| setting.searched);
        let loads = match search {
            Some(search) => vec![Some(search.search.min), Some(search.search.max)],
            None => vec![None],
        };
        for load in loads {
            let Some(mut resolved) = self.resolver.resolve(reader, levels, load) else { return };
            self.check_quantities(reader, &resolved, search.is_some());
            let has_load = search.is_none_or(|search| check_unit(reader, search, &resolved));
            let Workload::Http(workload) = &mut resolved.setup.workload else {
                self.refuse_time_goals(reader);
                continue;
            };
            // The missing URL is already reported; use another one to check the rest of the plan.
            let has_no_url = workload.url.is_empty() || !placeholders::names(&workload.url).is_empty();
            if has_no_url {
                workload.url = "http://127.0.0.1/".to_owned();
            }
            let mut workload = (**workload).clone();
            resolved.is_whole &= !has_no_url;
            if !has_load {
                return;
            }
            if let Some(search) = search
                && !check_load_model(reader, search, setting, &resolved, &workload)
            {
                match search.search.unit {
                    LoadUnit::Users => workload.users = None,
                    LoadUnit::Rate => workload.rate = None,
                    LoadUnit::Connections => workload.connections = None,
                    LoadUnit::Copies | LoadUnit::Factor(_) => {}
                }
            }
            if self.planned.insert(format!("{load:?} {workload:?}")) {
                self.plan(reader, &resolved, &workload, search.zip(load));
            }
        }
    }

    /// Reports goals on quantities that do not exist.
    fn check_quantities(&self, reader: &mut Reader<'_>, resolved: &ResolvedSetup, is_searched: bool) {
        let named = |goal: &&ParsedGoal| matches!(goal.goal.quantity, GoalQuantity::Declared { .. });
        if self.resolver.outline.goals.iter().find(named).is_none() {
            return;
        }
        let setup = &resolved.setup;
        let of_requests = match setup.workload {
            Workload::Http(_) => of_requests(),
            Workload::Command(_) => Vec::new(),
        };
        let declared = observers::quantities(setup).into_iter().map(|known| known.name);
        let names: Vec<String> =
            declared.chain(of_requests.iter().map(|known| known.name.to_string())).collect();
        for goal in &self.resolver.outline.goals {
            let GoalQuantity::Declared { quantity, at_least, .. } = &goal.goal.quantity else { continue };
            if is_searched && at_least.is_some() && of_requests.iter().any(|known| known.name == *quantity) {
                reader.mistake(goal.span.clone(), goals::GETS_BETTER);
            }
            if resolved.is_whole && !names.contains(quantity) {
                let hint = suggestion(quantity, names.iter().map(String::as_str));
                let known =
                    if names.is_empty() { String::new() } else { format!(" (known: {})", names.join(", ")) };
                let message = format!("no trial of this study gives a quantity '{quantity}'{hint}{known}");
                reader.mistake(goal.span.clone(), message);
            }
        }
    }

    /// Reports goals that bound response times: programs have none.
    fn refuse_time_goals(&self, reader: &mut Reader<'_>) {
        for goal in self.resolver.outline.goals.iter().filter(|goal| goal.goal.quantity.bound_ns().is_some())
        {
            let message =
                "programs have no response times; bound a quantity: quantity = \"wall_s\", at_most = 10";
            reader.mistake(goal.span.clone(), message);
        }
    }

    fn plan(
        &self,
        reader: &mut Reader<'_>,
        resolved: &ResolvedSetup,
        http: &HttpWorkload,
        searched: Option<(&ParsedSearch<'_>, f64)>,
    ) {
        let ResolvedSetup { spans, workload, .. } = resolved;
        let load_key = searched.and_then(|(search, _)| search.search.unit.key());
        let load_span = searched.map(|(search, load)| search.span_of_load(load));
        let span_of = |field: &str| {
            let search_span = load_span.as_ref().filter(|_| load_key == Some(field));
            let path_span = || spans.get("path").filter(|_| field == "url");
            search_span.or_else(|| spans.get(field)).or_else(path_span).unwrap_or(workload).clone()
        };
        match http.plan(self.host) {
            Ok(plan) => {
                let load = ["users", "connections"].into_iter().find(|key| spans.contains_key(key));
                let at = load_span.clone().unwrap_or_else(|| span_of(load.unwrap_or_default()));
                self.fit(reader, resolved, http, plan, at);
            }
            Err(mistakes) => {
                for mistake in mistakes {
                    reader.mistake(span_of(mistake.field), format!("{}: {}", mistake.field, mistake.message));
                }
            }
        }
    }

    /// Reports a plan that does not fit this machine or the goals.
    fn fit(
        &self,
        reader: &mut Reader<'_>,
        resolved: &ResolvedSetup,
        http: &HttpWorkload,
        mut plan: HttpPlan,
        at: std::ops::Range<usize>,
    ) {
        for goal in &self.resolver.outline.goals {
            if let Some(message) = goals::unreachable(&goal.goal, &plan) {
                reader.mistake(goal.span.clone(), message);
            }
        }
        if !resolved.is_whole {
            return;
        }
        let mut host = *self.host;
        match (&resolved.setup.lab, &resolved.setup.from[..]) {
            // The limits are those of all machines together.
            (Some(_), _) if self.resolver.placement.is_some() => {}
            (None, _) => {}
            (Some(_), [_]) => host.ports = ANY_PORTS,
            // Each host has its own ports and opens only some of the connections, so the check would be wrong here.
            (Some(_), _) => return,
        }
        let asked = http.fixed_by_user();
        let key = if plan.load.is_open() { "connections" } else { "users" };
        let fitted = preflight::fit_or_advise(&mut plan, &host, asked, key);
        for refusal in fitted.err().into_iter().flatten() {
            reader.mistake(at.clone(), refusal);
        }
    }
}

/// Reports a load unit that the workload does not support; returns whether it does.
fn check_unit(reader: &mut Reader<'_>, search: &ParsedSearch<'_>, resolved: &ResolvedSetup) -> bool {
    let unit = &search.search.unit;
    let kind = resolved.setup.workload.kind();
    let is_of_programs = *unit == LoadUnit::Copies;
    let has_unit = matches!(unit, LoadUnit::Factor(_)) || is_of_programs == (kind == Kind::Command);
    if !has_unit {
        let instead = if kind == Kind::Command {
            "copies, or a factor"
        } else {
            "users, rate, connections, or a factor"
        };
        let message = format!("this workload has no {}; a search varies {instead}", unit.name());
        reader.mistake(search.vary.clone(), message);
    }
    has_unit
}

/// Reports a workload whose load model the search cannot vary; returns whether it can.
fn check_load_model(
    reader: &mut Reader<'_>,
    search: &ParsedSearch<'_>,
    setting: &Setting,
    resolved: &ResolvedSetup,
    workload: &HttpWorkload,
) -> bool {
    let spans = &resolved.spans;
    let Some(unit) = search.search.unit.key() else { return true };
    let mistakes = reader.mistake_count();
    if setting.levels.contains_key(unit)
        && let Some(span) = spans.get(unit)
    {
        let message =
            format!("the search varies '{unit}' where this factor has levels: limit one of them by 'when'");
        reader.mistake(span.clone(), message);
    }
    if let Some(span) = spans.get("stages") {
        reader.mistake(
            span.clone(),
            format!("both 'stages' and the search of '{unit}' set the load: leave out one of them"),
        );
    } else if unit == "users"
        && let Some(span) = spans.get("rate")
    {
        let message = "a rate makes an open load, which has no users: leave out the rate, or vary = \"rate\"";
        reader.mistake(span.clone(), message);
    } else if unit == "connections" && workload.rate.is_none() {
        let message =
            "without a rate every connection is a user: give the workload a rate, or vary = \"users\"";
        reader.mistake(search.vary.clone(), message);
    }
    reader.mistake_count() == mistakes
}

/// Reports secrets in levels: every table and the names of settings show levels.
fn refuse_secret_levels(reader: &mut Reader<'_>, outline: &Outline<'_>) {
    for factor in &outline.factors.list {
        for (level, value) in &factor.levels {
            if matches!(level, Level::Text(text) if secrets::mask(text) != text.as_str()) {
                let message = format!(
                    "this level of '{}' is sent as a secret, but every report shows levels: put it into an environment \
                     variable and write \"${{NAME}}\"",
                    factor.name
                );
                reader.mistake(value.span(), message);
            }
        }
    }
}

/// The duration that the workload itself sets, if it is the same for all settings.
fn workload_duration(tree: &DeTable<'_>) -> Option<std::time::Duration> {
    parse_time(workload_table(tree)?.get("duration")?.get_ref().as_str()?).ok()
}
