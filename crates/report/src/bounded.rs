//! The cause that bounded the trials of each setting.

use std::iter::once;

use record::Bounding;

use crate::{Results, text};

/// The cause that bounded most trials of a setting.
pub(crate) struct Bounded<'a> {
    pub setting: usize,
    pub bounding: Bounding<'a>,
}

/// Column titles of [`Bounded::row`].
pub(crate) const HEADER: [&str; 4] = ["bound by", "of", "evidence", "trials"];

/// The cause that bounded the trials of each setting; omits settings whose trials have no verdict.
pub(crate) fn bounded(results: &Results) -> Vec<Bounded<'_>> {
    let bounding =
        |setting| Some(Bounded { setting, bounding: Bounding::of(&results.plan, setting, &results.trials)? });
    (0..results.plan.settings.len()).filter_map(bounding).collect()
}

/// Column titles and rows of a table.
pub(crate) type SettingTable = (Vec<&'static str>, Vec<Vec<String>>);

/// The causes that bounded the settings without a search; `None` if their trials have no verdict. For settings with a
/// search, the headline names the cause.
pub(crate) fn table(results: &Results) -> Option<SettingTable> {
    let unsearched =
        bounded(results).into_iter().filter(|bounded| !results.plan.settings[bounded.setting].searched);
    let row =
        |bounded: Bounded<'_>| once(results.setting_name(bounded.setting)).chain(bounded.row()).collect();
    let rows: Vec<Vec<String>> = unsearched.map(row).collect();
    (!rows.is_empty()).then(|| (once("setting").chain(HEADER).collect(), rows))
}

impl Bounded<'_> {
    /// Cause, place, evidence and number of trials.
    pub(crate) fn row(&self) -> Vec<String> {
        let trials = format!("{} of {}", self.bounding.trials.0, self.bounding.trials.1);
        match self.bounding.verdict.bottlenecks.first() {
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
    use record::{Bottleneck, Cause, Certainty, HttpTrial, TrialEntry, Verdict};
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
