//! The answers of a study as sentences, one for each goal in each setting. Every format shows them.

use record::{Bound, BoundKind, Cause, Ending, Goal, GoalOutcome, LoadUnit, TrialEntry, Verdict};

use crate::{Results, Status, reading::Reading, text};

/// The search and the goal that an answer is about.
pub(crate) struct SearchAnswer<'a> {
    /// The study's result.
    pub results: &'a Results,
    /// Index of the setting.
    pub setting: usize,
    /// Index of the goal.
    pub goal: usize,
    /// The block of the search.
    pub block: usize,
    /// The unit of the load.
    pub unit: &'a LoadUnit,
}

impl SearchAnswer<'_> {
    /// The status of the goal and its sentence: `Carries 1,994–2,099 requests/s with p99 ≤ 10 ms.`
    pub(crate) fn sentence(&self, outcome: &GoalOutcome, readings: &[&Reading]) -> (Status, String) {
        let with_goal = with_goal(&self.results.plan.goals[self.goal]);
        let show = |bound: &Bound| load_words(self.unit, bound.load);
        let (status, sentence) = match (&outcome.kind, &outcome.lower, &outcome.upper) {
            (BoundKind::Regular, Some(lower), Some(upper)) => {
                let bound = self.bound_at(upper.load);
                (Status::Met, format!("Carries {} {with_goal}{bound}", self.between(lower, upper)))
            }
            (BoundKind::Disputed, Some(lower), None) => (
                Status::Met,
                format!(
                    "Carries at least {} {with_goal}; from there to the largest load asked for, trials at the same load disagree or are undecided",
                    show(lower)
                ),
            ),
            (BoundKind::Disputed, None, upper) => {
                let upper =
                    upper.as_ref().map_or_else(String::new, |upper| format!(" below {}", show(upper)));
                let why = format!("Not decided: trials disagree or are undecided at all loads{upper}");
                (Status::Unfinished, format!("{why}; no load is known to be carried {with_goal}"))
            }
            (BoundKind::AtLeast | BoundKind::Regular, Some(lower), None) => (
                Status::Met,
                format!(
                    "Carries at least {} {with_goal}, the largest load asked for{}",
                    show(lower),
                    self.bound_at(lower.load)
                ),
            ),
            // If the study failed, its last trial proves nothing about the undecided load.
            (BoundKind::Below | BoundKind::Regular, None, Some(upper)) if failure(self.results).is_none() => {
                (
                    Status::NotMet,
                    format!(
                        "Does not carry even {} {with_goal}, the smallest load asked for{}",
                        show(upper),
                        self.failure_at(upper.load)
                    ),
                )
            }
            (BoundKind::GeneratorBound { .. }, Some(lower), _) => (
                Status::Unfound,
                format!(
                    "Limit not found: carries at least {} {with_goal}; above that, this machine was too busy or too small to \
                     test",
                    show(lower)
                ),
            ),
            (BoundKind::GeneratorBound { at }, None, _) => (
                Status::Void,
                format!(
                    "Not decided: the generator could not make {}, and no smaller load was carried {with_goal}",
                    load_words(self.unit, *at)
                ),
            ),
            (BoundKind::Unsteady, _, _) => {
                let why = self.warned("unsteady", &format!("{}: ", outcome.goal));
                (Status::Unfinished, format!("Not decided: {}", why.unwrap_or("trials depend on the time")))
            }
            (_, None, None) => return nothing_found(self.results, readings),
            (_, lower, upper) => {
                let carried = lower.as_ref().map(|lower| format!("carries {}", show(lower)));
                let missed = upper.as_ref().map(|upper| format!("does not carry {}", show(upper)));
                let known: Vec<String> = carried.into_iter().chain(missed).collect();
                let known = known.join(" and ");
                let short = self.only_short_trials([lower, upper]);
                let busy = self.not_made_above(lower.as_ref()).filter(|_| upper.is_none());
                let told = [short, busy].into_iter().flatten().collect::<String>();
                // The search ended because too many trials were void.
                if self.warned("search_void", "").is_some() {
                    let sentence = format!(
                        "Not decided: too many trials were void or undecided; so far it {known} {with_goal}{told}"
                    );
                    (Status::Void, sentence)
                } else {
                    let why = failure(self.results);
                    let why = why.map_or_else(String::new, |why| format!("; ended because {why}"));
                    let bound = upper.as_ref().map_or_else(String::new, |upper| self.bound_at(upper.load));
                    (Status::Unfinished, format!("Unfinished: {known} {with_goal} so far{told}{bound}{why}"))
                }
            }
        };
        let is_carried = matches!(status, Status::Met | Status::Unfound);
        let met_lower = outcome.lower.as_ref().filter(|_| is_carried);
        let note = met_lower.and_then(|lower| self.too_short_note(lower.load)).unwrap_or_default();
        (status, format!("{sentence}{note}."))
    }

    /// The text after `words` in the setting's first warning with this code.
    fn warned(&self, code: &str, words: &str) -> Option<&str> {
        let outcome = self.results.outcomes().iter().find(|outcome| outcome.setting == self.setting)?;
        let mut warnings = outcome.warnings.iter().filter(|warning| warning.code == code);
        warnings.find_map(|warning| warning.message.strip_prefix(words))
    }

    fn between(&self, lower: &Bound, upper: &Bound) -> String {
        let (low, high) = (lower.load, upper.load);
        match self.unit {
            // The bounds are neighbours, so the limit is exact.
            unit if unit.is_whole() && high - low < 1.5 => load_words(unit, low),
            LoadUnit::Rate => format!("{}–{} requests/s", text::rate(low), text::rate(high)),
            LoadUnit::Factor(name) => format!("{name} {}–{}", text::number(low), text::number(high)),
            unit => format!("{}–{}", text::number(low), load_words(unit, high)),
        }
    }

    /// The cause that bounded the trials at a load, if a verdict determined it, with a semicolon in front. The load is
    /// the smallest that is not carried, or else the largest that was tested.
    fn bound_at(&self, load: f64) -> String {
        let verdicts = self.decisive(load).filter_map(|entry| entry.trial.verdict.as_ref());
        let told = verdicts.filter(|verdict| {
            verdict.bottlenecks.first().is_some_and(|first| first.cause != Cause::OfferedLoad)
        });
        told.filter_map(Verdict::in_words).next().map_or_else(String::new, |words| format!("; {words}"))
    }

    /// The main failure at a load at which most requests failed, with a colon in front.
    fn failure_at(&self, load: f64) -> String {
        let why = self
            .decisive(load)
            .filter(|entry| entry.trial.mostly_failed())
            .find_map(|entry| entry.trial.main_failure());
        why.map_or_else(String::new, |why| format!(": {why}"))
    }

    /// A note if the trials at a load are too short to show whether response times keep growing.
    fn too_short_note(&self, load: f64) -> Option<String> {
        let has_no_trend = |entry: &&TrialEntry| {
            entry
                .trial
                .http()
                .is_some_and(|http| http.plan.load.is_open() && http.medians_over_time().is_none())
        };
        let goal = &self.results.plan.goals[self.goal];
        let entry = self.decisive(load).find(has_no_trend).filter(|_| goal.quantity.depends_on_growth())?;
        let length = text::seconds(entry.asked_s?);
        Some(format!(", not confirmed for longer than {length}: give longer trials (--trial)"))
    }

    /// A note if a bound rests only on trials that are shorter than a full trial.
    fn only_short_trials(&self, bounds: [&Option<Bound>; 2]) -> Option<String> {
        let found = bounds.into_iter().flatten();
        let short = found.filter(|bound| self.decisive(bound.load).next().is_none());
        let trials = short.flat_map(|bound| self.at(bound.load)).filter(|entry| entry.is_decided());
        let lengths = trials.filter_map(|entry| entry.asked_s);
        Some(format!(", in trials of {}", text::seconds(lengths.reduce(f64::max)?)))
    }

    /// A note on the smallest load above the lower bound that this machine was too busy to test.
    fn not_made_above(&self, lower: Option<&Bound>) -> Option<String> {
        let trials = self.results.trials_of(self.setting).filter(|entry| entry.block == self.block);
        let above = trials
            .filter_map(|entry| entry.load)
            .filter(|load| lower.is_some_and(|lower| *load > lower.load));
        let load = above.filter(|&load| !self.at(load).any(TrialEntry::is_decided)).reduce(f64::min)?;
        Some(format!("; this machine was too busy to test {}", load_words(self.unit, load)))
    }

    /// The trials of the search at a load.
    fn at(&self, load: f64) -> impl Iterator<Item = &TrialEntry> {
        let trials = self.results.trials_of(self.setting);
        trials.filter(move |entry| entry.block == self.block && entry.load == Some(load))
    }

    /// The valid, full trials of the search at a load.
    fn decisive(&self, load: f64) -> impl Iterator<Item = &TrialEntry> {
        self.at(load).filter(|entry| !entry.trial.validity.is_void() && !entry.is_short(&self.results.plan))
    }
}

/// The answer if there is no bound or no valid trial.
pub(crate) fn nothing_found(results: &Results, readings: &[&Reading]) -> (Status, String) {
    let void = !readings.is_empty() && readings.iter().all(|reading| reading.void || reading.undecided);
    match failure(results) {
        Some(why) => (Status::Unfinished, format!("Not decided: {why}.")),
        _ if readings.is_empty() => (Status::Unfinished, "Not decided: no trial was run.".to_owned()),
        _ if void => {
            let trials = text::counted(readings.len(), "trial");
            let reason = results.trials.iter().find(|entry| entry.index == readings[0].index);
            let reason = reason.and_then(|entry| entry.why_undecided().next());
            let reason = reason.map_or_else(String::new, |reason| format!("; the first: {reason}"));
            let none =
                if readings.iter().all(|reading| reading.void) { "none is valid" } else { "none decides" };
            (Status::Void, format!("Not decided: of {trials}, {none}{reason}."))
        }
        _ => (Status::Unfinished, "Not decided: the study ended before any bound was found.".to_owned()),
    }
}

/// The answer for a setting without a search: `met` of the `judged` valid trials met the goal.
pub(crate) fn repeated(
    results: &Results,
    setting: usize,
    goal: usize,
    met: usize,
    judged: usize,
    readings: &[&Reading],
) -> (Status, String) {
    let name = goal_name(&results.plan.goals[goal]);
    if judged == 0 {
        return match nothing_found(results, readings) {
            (Status::Unfinished, _) if !readings.is_empty() && failure(results).is_none() => {
                (Status::Unfinished, format!("Not decided: no valid trial was judged by {name}."))
            }
            found => found,
        };
    }
    let mut trials = text::counted(judged, "valid trial");
    let planned = results.plan.blocks.iter().flatten().filter(|&&planned| planned == setting).count();
    let is_finished = results.result.as_ref().is_some_and(|result| result.ending == Ending::Finished);
    if !is_finished && planned > readings.len() {
        trials += &format!(" ({planned} were planned)");
    }
    let open =
        readings.iter().filter(|reading| reading.is_valid_repeat() && reading.met[goal].is_none()).count();
    if open > 0 {
        trials += &format!(" ({open} more undecided)");
    }
    if results.plan.counts_as_met(goal, met, judged) {
        return (Status::Met, format!("Meets {name} in {met} of {trials}."));
    }
    let failed = |entry: &&TrialEntry| !entry.trial.validity.is_void() && entry.trial.mostly_failed();
    let why = results.trials_of(setting).filter(failed).find_map(|entry| entry.trial.main_failure());
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    (Status::NotMet, format!("Does not meet {name}: {met} of {trials} did{why}."))
}

/// Why the study ended early; `None` if it did not fail.
pub(crate) fn failure(results: &Results) -> Option<&str> {
    let result = results.result.as_ref().filter(|result| result.ending == Ending::Failed)?;
    let warning = result.warnings.iter().find(|warning| warning.code == "study_failed")?;
    Some(&warning.message)
}

/// A load in words, for a sentence.
fn load_words(unit: &LoadUnit, load: f64) -> String {
    match unit {
        LoadUnit::Rate => format!("{} requests/s", text::rate(load)),
        LoadUnit::Users => text::counted(load.round() as usize, "user"),
        LoadUnit::Connections => text::counted(load.round() as usize, "connection"),
        LoadUnit::Copies | LoadUnit::Factor(_) => unit.show(load),
    }
}

/// The condition of a goal: `with p99 ≤ 10 ms`.
pub(crate) fn with_goal(goal: &Goal) -> String {
    format!("with {}", goal_name(goal))
}

/// A goal's name, in quotation marks unless it reads as a condition.
pub(crate) fn goal_name(goal: &Goal) -> String {
    let name = text::printable(&goal.name);
    if name.contains('≤') || name.starts_with("no") { name } else { format!("“{name}”") }
}
