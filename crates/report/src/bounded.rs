//! What bounded the trials of each setting.

use record::{Cause, TrialEntry, Verdict};

use crate::{Results, text};

/// What bounded most trials of a setting that count: of a search, those that missed a goal, if there were any.
pub(crate) struct Bounded<'a> {
    pub setting: usize,
    /// The verdict of one of these trials.
    pub verdict: &'a Verdict,
    /// The number of trials that this cause bounded, and of all trials that count.
    pub trials: (usize, usize),
}

/// The column heads of [`Bounded::row`].
pub(crate) const HEADER: [&str; 4] = ["bound by", "of", "evidence", "trials"];

/// What bounded the trials of each setting; without settings in which nobody looked.
pub(crate) fn bounded(results: &Results) -> Vec<Bounded<'_>> {
    (0..results.plan.settings.len()).filter_map(|setting| bounded_setting(results, setting)).collect()
}

fn bounded_setting(results: &Results, setting: usize) -> Option<Bounded<'_>> {
    let valid: Vec<&TrialEntry> =
        results.trials_of(setting).filter(|entry| !entry.trial.validity.is_void()).collect();
    let is_missed = |entry: &&&TrialEntry| {
        let ratios = entry.loss_ratios.iter().zip(&results.plan.goals);
        ratios.into_iter().any(|(lost, goal)| *lost > goal.loss_ratio)
    };
    let missed: Vec<&TrialEntry> = valid.iter().filter(is_missed).copied().collect();
    let is_search = results.plan.settings[setting].searched && !missed.is_empty();
    let counting = if is_search { missed } else { valid };
    let verdicts: Vec<&Verdict> = counting.iter().filter_map(|entry| entry.trial.verdict.as_ref()).collect();
    let with = |cause| verdicts.iter().filter(|verdict| first_cause(verdict) == cause).count();
    // The last of the most frequent: towards its end, a search is nearest to the limit.
    let verdict = *verdicts.iter().max_by_key(|verdict| with(first_cause(verdict)))?;
    Some(Bounded { setting, verdict, trials: (with(first_cause(verdict)), verdicts.len()) })
}

fn first_cause(verdict: &Verdict) -> Option<Cause> {
    verdict.bottlenecks.first().map(|first| first.cause)
}

impl Bounded<'_> {
    /// Cause, place, evidence and number of trials.
    pub(crate) fn row(&self) -> Vec<String> {
        let trials = format!("{} of {}", self.trials.0, self.trials.1);
        match self.verdict.bottlenecks.first() {
            Some(first) => vec![
                first.cause.words().to_owned(),
                text::printable(&first.place),
                text::printable(&first.evidence),
                trials,
            ],
            None => vec!["not determined".to_owned(), String::new(), String::new(), trials],
        }
    }
}

#[cfg(test)]
mod tests {
    use record::{Bottleneck, Certainty, HttpTrial};
    use testing::plans;

    use super::*;

    #[test]
    fn the_most_frequent_cause_of_a_setting_is_shown() {
        let entry = |index, cause: Option<Cause>| {
            let mut trial = plans::trial(HttpTrial { plan: plans::closed(1), ..HttpTrial::default() });
            let bottleneck = |cause| {
                let evidence = format!("of trial {index}");
                Bottleneck { cause, place: "web".to_owned(), evidence, certainty: Certainty::Counted }
            };
            let bottlenecks = cause.into_iter().map(bottleneck).collect();
            trial.verdict = Some(Verdict { bottlenecks, ..Verdict::default() });
            TrialEntry::alone(index, trial)
        };
        let mut results = Results {
            plan: plans::study("a", Vec::new()),
            environment: None,
            trials: vec![
                entry(1, Some(Cause::HotCore)),
                entry(2, Some(Cause::AcceptQueue)),
                entry(3, Some(Cause::HotCore)),
                entry(4, None),
            ],
            result: None,
            so_far: Vec::new(),
        };
        let rows = |results: &Results| bounded(results).iter().map(Bounded::row).collect::<Vec<_>>();
        assert_eq!(rows(&results), [["a busy core", "web", "of trial 3", "2 of 4"]]);
        results.trials.drain(..3);
        assert_eq!(rows(&results), [["not determined", "", "", "1 of 1"]]);
        results.trials[0].trial.verdict = None;
        assert!(bounded(&results).is_empty());
    }
}
