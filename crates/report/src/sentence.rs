//! The sentences that answer a study, which every format shows: one for each goal in each setting.

use record::{Bound, BoundKind, Ending, Goal, GoalOutcome, GoalQuantity, LoadUnit, Measured, TrialEntry};

use crate::{
    Results, Status,
    answer::{Answer, searches_of},
    reading::Reading,
    text,
};

/// More answers than this are told goal by goal.
pub(crate) const MOST_SENTENCES: usize = 12;

/// Where a search's answer belongs.
pub(crate) struct Place<'a> {
    /// The study's result.
    pub results: &'a Results,
    /// The number of the setting.
    pub setting: usize,
    /// The number of the goal.
    pub goal: usize,
    /// The block of the search.
    pub block: usize,
    /// What the search varies.
    pub unit: &'a LoadUnit,
}

impl Place<'_> {
    /// `Carries 1,994–2,099 requests/s with p99 ≤ 10 ms.`, with what is known of the goal.
    pub(crate) fn in_words(&self, outcome: &GoalOutcome, readings: &[&Reading]) -> (Status, String) {
        let with = with(&self.results.plan.goals[self.goal]);
        let show = |bound: &Bound| one(self.unit, bound.load);
        let (status, sentence) = match (&outcome.kind, &outcome.lower, &outcome.upper) {
            (BoundKind::Regular, Some(lower), Some(upper)) => {
                (Status::Met, format!("Carries {} {with}", self.between(lower, upper)))
            }
            (BoundKind::Disputed, Some(lower), None) => (
                Status::Met,
                format!(
                    "Carries at least {} {with}; from there to the largest load asked for, trials at the same load disagree",
                    show(lower)
                ),
            ),
            (BoundKind::Disputed, None, upper) => {
                let upper =
                    upper.as_ref().map_or_else(String::new, |upper| format!(" below {}", show(upper)));
                let why = format!("Not decided: trials at the same load disagree at all loads{upper}");
                (Status::Unfinished, format!("{why}, and none is carried for certain {with}"))
            }
            (BoundKind::AtLeast | BoundKind::Regular, Some(lower), None) => {
                (Status::Met, format!("Carries at least {} {with}, the largest load asked for", show(lower)))
            }
            (BoundKind::Below | BoundKind::Regular, None, Some(upper)) => (
                Status::NotMet,
                format!(
                    "Does not carry even {} {with}, the smallest load asked for{}",
                    show(upper),
                    self.failure_at(upper.load)
                ),
            ),
            (BoundKind::GeneratorBound { .. }, Some(lower), _) => {
                (Status::Met, format!("Carries at least {} {with}; the generator was the limit", show(lower)))
            }
            (BoundKind::GeneratorBound { at }, None, _) => (
                Status::Void,
                format!(
                    "Not decided: the generator could not make {}, and no smaller load was carried {with}",
                    one(self.unit, *at)
                ),
            ),
            (_, None, None) => return nothing_found(self.results, readings),
            (_, lower, upper) => {
                let carried = lower.as_ref().map(|lower| format!("carries {}", show(lower)));
                let missed = upper.as_ref().map(|upper| format!("does not carry {}", show(upper)));
                let known: Vec<String> = carried.into_iter().chain(missed).collect();
                let known = known.join(" and ");
                if self.was_distrusted() {
                    let sentence =
                        format!("Not decided: trials were void again and again; so far it {known} {with}");
                    (Status::Void, sentence)
                } else {
                    let why = failure(self.results);
                    let why = why.map_or_else(String::new, |why| format!("; ended because {why}"));
                    (Status::Unfinished, format!("Unfinished: {known} {with} so far{why}"))
                }
            }
        };
        let unconfirmed = outcome.lower.as_ref().filter(|_| status == Status::Met);
        let unconfirmed = unconfirmed.and_then(|lower| self.unconfirmed(lower.load)).unwrap_or_default();
        (status, format!("{sentence}{unconfirmed}."))
    }

    /// Whether the search ended because the instrument could not be trusted.
    fn was_distrusted(&self) -> bool {
        let outcome = self.results.outcomes().iter().find(|outcome| outcome.setting == self.setting);
        outcome.is_some_and(|outcome| outcome.warnings.iter().any(|warning| warning.code == "search_void"))
    }

    fn between(&self, lower: &Bound, upper: &Bound) -> String {
        let (low, high) = (lower.load, upper.load);
        match self.unit {
            // The limit itself is known.
            unit if unit.is_whole() && high - low < 1.5 => one(unit, low),
            LoadUnit::Rate => format!("{}–{} requests/s", text::rate(low), text::rate(high)),
            LoadUnit::Factor(name) => format!("{name} {}–{}", text::number(low), text::number(high)),
            unit => format!("{}–{}", text::number(low), one(unit, high)),
        }
    }

    /// What most requests at a load came to, if most failed.
    fn failure_at(&self, load: f64) -> String {
        let why = self
            .decisive(load)
            .filter(|entry| mostly_failed(entry))
            .find_map(|entry| entry.trial.main_failure());
        why.map_or_else(String::new, |why| format!(": {why}"))
    }

    /// Trials so short that answers which grow slower and slower would not have shown are told.
    fn unconfirmed(&self, load: f64) -> Option<String> {
        let grows = matches!(
            self.results.plan.goals[self.goal].quantity,
            GoalQuantity::Errors | GoalQuantity::ResponseTime { .. }
        );
        let cannot_tell = |entry: &&TrialEntry| {
            entry
                .trial
                .http()
                .is_some_and(|http| http.plan.load.is_open() && http.medians_over_time().is_none())
        };
        let entry = self.decisive(load).find(cannot_tell).filter(|_| grows)?;
        let length = text::seconds(entry.asked_s?);
        Some(format!(", not confirmed for longer than {length}: give longer trials (--trial)"))
    }

    /// The valid trials of the search at a load that decide about it.
    fn decisive(&self, load: f64) -> impl Iterator<Item = &TrialEntry> {
        self.results.trials_of(self.setting).filter(move |entry| {
            entry.block == self.block
                && entry.load == Some(load)
                && !entry.trial.validity.is_void()
                && !entry.is_short(&self.results.plan)
        })
    }
}

/// The answer where there is no bound, or no valid trial.
pub(crate) fn nothing_found(results: &Results, readings: &[&Reading]) -> (Status, String) {
    let void = !readings.is_empty() && readings.iter().all(|reading| reading.void);
    match failure(results) {
        Some(why) if !void => (Status::Unfinished, format!("Not decided: {why}.")),
        _ if readings.is_empty() => (Status::Unfinished, "Not decided: no trial was run.".to_owned()),
        _ if void => {
            let trials = text::counted(readings.len(), "trial");
            let reason = results.trials.iter().find(|entry| entry.index == readings[0].index);
            let reason = reason.and_then(|entry| entry.trial.validity.reasons().first());
            let reason =
                reason.map_or_else(String::new, |reason| format!(", the first: {}", reason.evidence));
            (Status::Void, format!("Not decided: {trials} run, none of them valid{reason}."))
        }
        _ => (Status::Unfinished, "Not decided: it was ended before any bound was found.".to_owned()),
    }
}

/// The answer of a setting's own load, of whose valid trials `met` met the goal.
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
    let mut of = text::counted(judged, "valid trial");
    let planned = results.plan.blocks.iter().flatten().filter(|&&planned| planned == setting).count();
    let is_finished = results.result.as_ref().is_some_and(|result| result.ending == Ending::Finished);
    if !is_finished && planned > readings.len() {
        of += &format!(" ({planned} were planned)");
    }
    if results.plan.counts_as_met(goal, met, judged) {
        return (Status::Met, format!("Meets {name} in {met} of {of}."));
    }
    let failed = |entry: &&TrialEntry| !entry.trial.validity.is_void() && mostly_failed(entry);
    let why = results.trials_of(setting).filter(failed).find_map(|entry| entry.trial.main_failure());
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    (Status::NotMet, format!("Does not meet {name}: {met} of {of} did{why}."))
}

/// Whether more than half of the requests, or of the programs, failed.
fn mostly_failed(entry: &TrialEntry) -> bool {
    match &entry.trial.measured {
        Measured::Http(http) => 2 * http.errors.total() > http.counts.scheduled,
        Measured::Command(command) => command.failed_ratio() > 0.5,
    }
}

/// Why the study could not be run to its end.
fn failure(results: &Results) -> Option<&str> {
    let result = results.result.as_ref().filter(|result| result.ending == Ending::Failed)?;
    let warning = result.warnings.iter().find(|warning| warning.code == "study_failed")?;
    Some(&warning.message)
}

/// What a study says first: a sentence for each goal in each setting; of many, one for each goal.
pub(crate) fn headline(results: &Results, answers: &[Answer]) -> Vec<(Option<Status>, String)> {
    if answers.is_empty() {
        let why = failure(results).map(|why| format!("Not decided: {why}."));
        let measured = || "Measured, without goals that could be met or not.".to_owned();
        return vec![(None, why.unwrap_or_else(measured))];
    }
    let same = |a: &Answer, b: &Answer| a.setting == b.setting && a.goal == b.goal;
    let mut told = Vec::new();
    for of_goal in answers.chunk_by(same) {
        let place = match results.plan.settings.len() {
            0 | 1 => String::new(),
            _ => format!("{}: ", text::printable(&results.setting_name(of_goal[0].setting))),
        };
        match over_blocks(results, of_goal) {
            Some(sentence) => told.push((Some(of_goal[0].status), format!("{place}{sentence}"))),
            None => told.extend(of_goal.iter().map(|answer| {
                let block = answer.block.map(|block| format!("{}: ", text::block(block))).unwrap_or_default();
                (Some(answer.status), format!("{place}{block}{}", text::printable(&answer.sentence)))
            })),
        }
    }
    if told.len() <= MOST_SENTENCES {
        return told;
    }
    (0..results.plan.goals.len()).map(|goal| over_settings(results, answers, goal)).collect()
}

/// Several searches in a sentence, if all of them found both bounds.
fn over_blocks(results: &Results, answers: &[Answer]) -> Option<String> {
    if answers.len() < 2 {
        return None;
    }
    let outcomes = answers.iter().map(|answer| {
        let search = searches_of(results, answer.setting).iter().find(|s| Some(s.block) == answer.block)?;
        let outcome = search.goals.get(answer.goal).filter(|outcome| outcome.kind == BoundKind::Regular)?;
        Some((outcome.lower.as_ref()?.load, outcome.upper.as_ref()?.load))
    });
    let bounds: Vec<(f64, f64)> = outcomes.collect::<Option<_>>()?;
    let unit = &results.plan.search.as_ref()?.unit;
    let range = |of: fn(&(f64, f64)) -> f64| {
        let (least, most) =
            bounds.iter().map(of).fold((f64::INFINITY, 0.0_f64), |(l, h), v| (l.min(v), h.max(v)));
        if least < most { format!("{} to {}", unit.show(least), unit.show(most)) } else { unit.show(most) }
    };
    Some(format!(
        "In {} searches, carries {} and does not carry {} {}.",
        bounds.len(),
        range(|(lower, _)| *lower),
        range(|(_, upper)| *upper),
        with(&results.plan.goals[answers[0].goal])
    ))
}

/// A goal over many settings: in how many it is met, and where it is not.
fn over_settings(results: &Results, answers: &[Answer], goal: usize) -> (Option<Status>, String) {
    let of_goal: Vec<&Answer> = answers.iter().filter(|answer| answer.goal == goal).collect();
    let met = of_goal.iter().filter(|answer| answer.status == Status::Met).count();
    let statuses = [Status::NotMet, Status::Void, Status::Unfinished];
    let worst = statuses.into_iter().find(|status| of_goal.iter().any(|answer| answer.status == *status));
    let others = statuses.into_iter().filter_map(|status| {
        let mut places: Vec<String> = of_goal
            .iter()
            .filter(|answer| answer.status == status)
            .map(|answer| {
                let block = answer.block.map(|block| format!(" {}", text::block(block))).unwrap_or_default();
                format!("{}{block}", text::printable(&results.setting_name(answer.setting)))
            })
            .collect();
        let more = places.len().saturating_sub(MOST_SENTENCES);
        places.truncate(MOST_SENTENCES);
        if more > 0 {
            places.push(format!("{more} more"));
        }
        (!places.is_empty()).then(|| format!("; {} with {}", status.word(), places.join(", ")))
    });
    let name = goal_name(&results.plan.goals[goal]);
    let what = if results.plan.search.is_some() { "searches" } else { "settings" };
    let sentence = format!("{name}: met in {met} of {} {what}{}.", of_goal.len(), others.collect::<String>());
    (Some(worst.unwrap_or(Status::Met)), sentence)
}

/// A load as a sentence has it.
fn one(unit: &LoadUnit, load: f64) -> String {
    match unit {
        LoadUnit::Rate => format!("{} requests/s", text::rate(load)),
        LoadUnit::Users => text::counted(load.round() as usize, "user"),
        LoadUnit::Connections => text::counted(load.round() as usize, "connection"),
        LoadUnit::Copies | LoadUnit::Factor(_) => unit.show(load),
    }
}

/// `with p99 ≤ 10 ms`.
fn with(goal: &Goal) -> String {
    format!("with {}", goal_name(goal))
}

/// A goal's name: as it is where it says what is asked, and marked as a name otherwise.
fn goal_name(goal: &Goal) -> String {
    let name = text::printable(&goal.name);
    if name.contains('≤') || name.starts_with("no") { name } else { format!("“{name}”") }
}
