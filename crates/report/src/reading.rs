//! The figures of a trial, read once from its histograms.

use std::borrow::Cow;

use record::{
    CensoredTimes, Histogram, Purpose, Quantity, Span, StudyPlan, TrialEntry, quantity::main_figures,
};

use crate::Results;

/// The figures of a trial that tables and charts show. A figure of time is `None` if the trial timed nothing.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reading {
    /// The trial's number in the study, from 1.
    pub index: u64,
    /// Index of the setting.
    pub setting: usize,
    /// Index of the block.
    pub block: usize,
    /// The purpose of the trial.
    pub purpose: Purpose,
    /// The load of a search, in the search's unit.
    pub load: Option<f64>,
    /// Whether the trial is void.
    pub void: bool,
    /// Whether the trial is shorter than a full trial of its search.
    pub short: bool,
    /// The offered load: users, requests per second, or programs at the same time.
    pub offered: f64,
    /// The main figures by name, in the order of the table.
    pub figures: Vec<(Cow<'static, str>, Option<Span>)>,
    /// 99th percentile of lateness, in nanoseconds.
    pub lateness_p99_ns: Option<u64>,
    /// 99th percentile of the part of lateness that the generator itself caused, in nanoseconds.
    pub own_lateness_p99_ns: Option<u64>,
    /// Whether the trial met each goal of the plan; `None` if it decided nothing about the goal.
    pub met: Vec<Option<bool>>,
    /// Whether the trial is valid but leaves a goal undecided.
    pub undecided: bool,
    /// Whether response time grew steadily. If so, the target does not carry the load even if the goals are met.
    pub response_time_grows: bool,
    /// Duration of the trial, in seconds.
    pub elapsed_s: f64,
}

/// Reads every trial.
pub(crate) fn readings(results: &Results) -> Vec<Reading> {
    let quantities = results.quantities();
    results.trials.iter().map(|entry| Reading::of(entry, &results.plan, &quantities)).collect()
}

impl Reading {
    /// Reads a trial.
    pub(crate) fn of(entry: &TrialEntry, plan: &StudyPlan, quantities: &[Quantity]) -> Self {
        let trial = &entry.trial;
        Self {
            index: entry.index,
            setting: entry.setting,
            block: entry.block,
            purpose: entry.purpose,
            load: entry.load.filter(|load| load.is_finite()),
            void: trial.validity.is_void(),
            short: entry.is_short(plan),
            offered: trial.offered_load(),
            figures: main_figures(quantities)
                .map(|(quantity, _)| (quantity.name.clone(), quantity.read(entry)))
                .collect(),
            lateness_p99_ns: trial.http().and_then(|http| quantile_ns(&http.lateness, 0.99)),
            own_lateness_p99_ns: trial.http().and_then(|http| quantile_ns(&http.own_lateness, 0.99)),
            met: (0..plan.goals.len()).map(|goal| entry.decides(goal, plan)).collect(),
            undecided: !entry.undecided.is_empty(),
            response_time_grows: entry.growth_per_s.is_some(),
            elapsed_s: trial.elapsed_s,
        }
    }

    /// The main figure with this name; `None` if the trial has none.
    pub(crate) fn figure(&self, name: &str) -> Option<Span> {
        self.figures.iter().find(|(known, _)| known == name)?.1
    }

    /// Whether the trial is a valid repeat of its setting.
    pub(crate) fn is_valid_repeat(&self) -> bool {
        !self.void && self.purpose == Purpose::Repeat
    }
}

/// Whether a trial counts: it is valid and not a warm-up.
pub(crate) fn is_decisive(entry: &TrialEntry) -> bool {
    !entry.trial.validity.is_void() && entry.purpose != Purpose::WarmUp
}

/// A percentile of times that may be censored; `None` if nothing was timed.
pub(crate) fn quantile(times: &CensoredTimes, quantile: f64) -> Option<Span> {
    let nothing = times.observed.is_empty() && times.censored.is_empty();
    (!nothing).then(|| times.percentile(quantile))
}

fn quantile_ns(times: &Histogram, quantile: f64) -> Option<u64> {
    (!times.is_empty()).then(|| times.quantile_ns(quantile))
}

/// The median; `None` if there are no finite values.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    Span::median(values.into_iter().map(Span::exact)).map(|median| median.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0, f64::NAN, 1.0]), Some(2.0));
    }
}
