//! A whole study: all of its settings, each tried as it will be run.

use std::collections::BTreeSet;

use load::{HttpWorkload, MachineLimits, preflight};
use record::{
    GoalQuantity, HttpPlan, Kind, Level, LoadUnit, Setting, Warning,
    units::{parse_time, plain_time_ns},
};
use settings::{Reader, suggestion};
use toml::{Spanned, de::DeTable};

use super::{
    Texts, checks,
    factors::hold,
    ground::{Assembled, Ground},
    levels::Levels,
    outline::Outline,
    places,
    searches::SearchRead,
};
use crate::{
    Workload, observers,
    study::{Search, Source, Study},
};

/// Mistakes after which no further settings are tried.
const ENOUGH: usize = 1_000;
/// Local ports that are taken for as many as are needed: hosts of a study can have more addresses.
const ANY_PORTS: u64 = 1 << 40;

/// Everything of the outline together with its settings; none after mistakes.
pub(super) fn study<'d>(
    reader: &mut Reader<'_>,
    texts: &Texts,
    tree: &'d DeTable<'d>,
    outline: &'d Outline<'d>,
    source: Source,
) -> Option<Study> {
    let ground = Ground::new(reader, texts, tree, outline);
    checks::places(reader, tree, outline, &ground);
    checks::factors(reader, tree, outline, &ground);
    checks::overridden(reader, tree, outline, &ground);
    let settings: Vec<Setting> = outline
        .factors
        .combinations(reader)
        .into_iter()
        .map(|levels| {
            let search = outline.search.as_ref().filter(|search| hold(&search.when, &levels));
            let chosen = search.filter(|search| search.preset_factor().is_some());
            Setting {
                name: outline.factors.words(&levels),
                searched: search.is_some(),
                method: chosen.map(|search| search.at(|factor| levels.get(factor).cloned()).preset.clone()),
                levels,
            }
        })
        .collect();
    checks::searched(reader, outline, &settings);
    let levels_of = |setting: &Setting| Levels::of(&outline.factors, &setting.levels, &ground.folder);
    let targets: Vec<Option<&str>> =
        settings.iter().map(|setting| ground.target_of(&levels_of(setting))).collect();
    checks::targets(reader, outline, &ground, &targets);
    // Levels that are wrong themselves would be told again, less well, by what they are put into.
    if outline.has_sound_factors {
        let mut tries = Tries { host: &texts.host, outline, ground: &ground, planned: BTreeSet::new() };
        for setting in &settings {
            tries.setting(reader, setting, &levels_of(setting));
            if reader.mistakes() > ENOUGH {
                break;
            }
        }
    }
    hold_no_secrets(reader, outline);
    let (settings, warnings) = without_lacking(reader, &ground, settings, &targets);
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
        search: searches.next(),
        other_searches: searches.collect(),
        source,
        warnings,
    })
}

/// Puts settings together as they will be run.
struct Tries<'t, 'd> {
    host: &'t MachineLimits,
    outline: &'d Outline<'d>,
    ground: &'t Ground<'d>,
    /// Workloads that have been planned: settings that differ elsewhere have the same ones.
    planned: BTreeSet<String>,
}

impl<'d> Tries<'_, 'd> {
    /// A setting, at both ends of a search.
    fn setting(&mut self, reader: &mut Reader<'_>, setting: &Setting, levels: &Levels<'d>) {
        let search = self.outline.search.as_ref().filter(|_| setting.searched);
        let loads = match search {
            Some(search) => vec![Some(search.search.min), Some(search.search.max)],
            None => vec![None],
        };
        for load in loads {
            let Some(mut assembled) = self.ground.assembled(reader, levels, load) else { return };
            self.hold_known(reader, &assembled);
            let has_load = search.is_none_or(|search| has_unit(reader, search, &assembled));
            let Workload::Http(workload) = &mut assembled.setup.workload else {
                self.refuse_times(reader);
                continue;
            };
            // Where requests go has been told to be missing: there is no use in looking for it.
            let is_lost = workload.url.is_empty() || !places::names(&workload.url).is_empty();
            if is_lost {
                workload.url = "http://127.0.0.1/".to_owned();
            }
            let mut workload = (**workload).clone();
            assembled.is_whole &= !is_lost;
            if !has_load {
                return;
            }
            if let Some(search) = search
                && !suits(reader, search, setting, &assembled, &workload)
            {
                match search.search.unit {
                    LoadUnit::Users => workload.users = None,
                    LoadUnit::Rate => workload.rate = None,
                    LoadUnit::Connections => workload.connections = None,
                    LoadUnit::Copies | LoadUnit::Factor(_) => {}
                }
            }
            if self.planned.insert(format!("{load:?} {workload:?}")) {
                self.plan(reader, &assembled, &workload, search.zip(load));
            }
        }
    }

    /// Goals on quantities that there are not.
    fn hold_known(&self, reader: &mut Reader<'_>, assembled: &Assembled) {
        let setup = &assembled.setup;
        let given = || observers::quantities(setup).into_iter();
        for goal in &self.outline.goals {
            let GoalQuantity::Given { quantity, .. } = &goal.goal.quantity else { continue };
            if assembled.is_whole && !given().any(|known| known.name == *quantity) {
                let names: Vec<String> = given().map(|known| known.name).collect();
                let hint = suggestion(quantity, names.iter().map(String::as_str));
                let known =
                    if names.is_empty() { String::new() } else { format!(" (known: {})", names.join(", ")) };
                let message = format!("no trial of this study gives a quantity '{quantity}'{hint}{known}");
                reader.mistake(goal.span.clone(), message);
            }
        }
    }

    /// Goals that programs cannot have.
    fn refuse_times(&self, reader: &mut Reader<'_>) {
        for goal in self.outline.goals.iter().filter(|goal| goal.goal.quantity.bound_ns().is_some()) {
            let message =
                "a program has no such times; bound a quantity: quantity = \"wall_s\", at_most = 10";
            reader.mistake(goal.span.clone(), message);
        }
    }

    fn plan(
        &self,
        reader: &mut Reader<'_>,
        assembled: &Assembled,
        http: &HttpWorkload,
        searched: Option<(&SearchRead<'_>, f64)>,
    ) {
        let Assembled { spans, workload, .. } = assembled;
        let load_key = searched.and_then(|(search, _)| search.search.unit.key());
        let load_span =
            searched.map(
                |(search, load)| {
                    if load == search.search.min { search.min.clone() } else { search.max.clone() }
                },
            );
        let place = |field: &str| {
            let of_search = load_span.clone().filter(|_| load_key == Some(field));
            let of_path = || spans.get("path").filter(|_| field == "url").cloned();
            of_search
                .or_else(|| spans.get(field).cloned())
                .or_else(of_path)
                .unwrap_or_else(|| workload.clone())
        };
        match http.plan(self.host) {
            Ok(plan) => {
                let load = ["users", "connections"].into_iter().find(|key| spans.contains_key(key));
                let at = load_span.clone().unwrap_or_else(|| place(load.unwrap_or_default()));
                self.fit(reader, assembled, http, plan, at);
            }
            Err(mistakes) => {
                for mistake in mistakes {
                    reader.mistake(place(mistake.field), format!("{}: {}", mistake.field, mistake.message));
                }
            }
        }
    }

    /// Whether a plan fits this machine and the goals.
    fn fit(
        &self,
        reader: &mut Reader<'_>,
        assembled: &Assembled,
        http: &HttpWorkload,
        mut plan: HttpPlan,
        at: std::ops::Range<usize>,
    ) {
        for goal in &self.outline.goals {
            if goal.goal.quantity.bound_ns().is_some_and(|bound_ns| bound_ns > plan.timeout_ns) {
                let message = format!(
                    "nothing can be this slow: what takes longer than the timeout of {} has failed; give a longer \
                     timeout or a lower bound",
                    plain_time_ns(plan.timeout_ns)
                );
                reader.mistake(goal.span.clone(), message);
            }
        }
        if !assembled.is_whole {
            return;
        }
        let mut host = *self.host;
        match (&assembled.setup.lab, &assembled.setup.from[..]) {
            (None, _) => {}
            (Some(_), [_]) => host.ports = ANY_PORTS,
            // Each of them is a host of its own, with a part of the connections.
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

/// Whether a workload has what the search varies at all.
fn has_unit(reader: &mut Reader<'_>, search: &SearchRead<'_>, assembled: &Assembled) -> bool {
    let unit = &search.search.unit;
    let kind = assembled.setup.workload.kind();
    let is_of_programs = *unit == LoadUnit::Copies;
    let has = matches!(unit, LoadUnit::Factor(_)) || is_of_programs == (kind == Kind::Command);
    if !has {
        let instead = if kind == Kind::Command {
            "copies, or a factor"
        } else {
            "users, rate, connections, or a factor"
        };
        let message = format!("this workload has no {}; a search varies {instead}", unit.name());
        reader.mistake(search.vary.clone(), message);
    }
    has
}

/// Whether a workload is of the kind whose load the search varies.
fn suits(
    reader: &mut Reader<'_>,
    search: &SearchRead<'_>,
    setting: &Setting,
    assembled: &Assembled,
    workload: &HttpWorkload,
) -> bool {
    let spans = &assembled.spans;
    let Some(unit) = search.search.unit.key() else { return true };
    let mistakes = reader.mistakes();
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
            format!("stages say the load, and the search varies '{unit}': leave out one of both"),
        );
    } else if unit == "users"
        && let Some(span) = spans.get("rate")
    {
        reader
            .mistake(span.clone(), "a rate makes an open load, which has no users that a search could vary");
    } else if unit == "connections" && workload.rate.is_none() {
        let message =
            "without a rate every connection is a user: give the workload a rate, or vary = \"users\"";
        reader.mistake(search.vary.clone(), message);
    }
    reader.mistakes() == mistakes
}

/// Levels stand in every table and name their settings: none may be a secret.
fn hold_no_secrets(reader: &mut Reader<'_>, outline: &Outline<'_>) {
    for factor in &outline.factors.list {
        for (level, value) in &factor.levels {
            if matches!(level, Level::Text(text) if secrets::mask(text) != text.as_str()) {
                let message = format!(
                    "this level of '{}' is sent as a secret, and levels stand in every report: put it into an environment \
                     variable and write \"${{NAME}}\"",
                    factor.name
                );
                reader.mistake(value.span(), message);
            }
        }
    }
}

/// The settings whose targets can be run here.
fn without_lacking(
    reader: &mut Reader<'_>,
    ground: &Ground<'_>,
    settings: Vec<Setting>,
    targets: &[Option<&str>],
) -> (Vec<Setting>, Vec<Warning>) {
    let mut warnings = Vec::new();
    let before = settings.len();
    let mut kept: Vec<(Setting, Option<&str>)> = settings.into_iter().zip(targets.iter().copied()).collect();
    for target in ground.targets.list.iter().filter(|target| !target.lacks.is_empty()) {
        let count = kept.len();
        kept.retain(|(_, chosen)| *chosen != Some(target.name));
        let lacks = target.lacks.join(", ");
        let left_out = count - kept.len();
        if left_out == 0 {
            continue;
        }
        let message = format!(
            "{left_out} of {before} settings are left out: the target '{}' needs {lacks}, which this machine does not \
             have; install it to have them measured",
            target.name
        );
        warnings.push(Warning::new("target_left_out", message));
        if kept.is_empty() && before > 0 {
            let message = format!("nothing is left to run: '{}' needs {lacks}; install it", target.name);
            reader.mistake(target.span.clone(), message);
        }
    }
    (kept.into_iter().map(|(setting, _)| setting).collect(), warnings)
}

/// The duration that the workload itself gives, if it is the same everywhere.
fn workload_duration(tree: &DeTable<'_>) -> Option<std::time::Duration> {
    let workload = tree.get("workload")?.get_ref().as_table()?;
    let http = workload.get("http").or_else(|| workload.get("command"))?;
    let duration = http.get_ref().as_table()?.get("duration").map(Spanned::get_ref)?;
    parse_time(duration.as_str()?).ok()
}
