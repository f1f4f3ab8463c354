//! A trial's figures, read out of its histograms once.

use std::borrow::Cow;

use record::{
    CensoredTimes, Histogram, LoadModel, Measured, Percentile, Purpose, Quantity, QuantityValue, StudyPlan,
    TrialEntry, quantity::main_figures,
};

use crate::Results;

/// What the tables and the figures show of a trial. A time is none where nothing was timed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reading {
    /// Its number in the study.
    pub index: u64,
    /// The number of its setting.
    pub setting: usize,
    /// The number of its block.
    pub block: usize,
    /// What it was run for.
    pub purpose: Purpose,
    /// The load of a search, in the search's unit.
    pub load: Option<f64>,
    /// Nothing may be concluded from it.
    pub void: bool,
    /// It counts for less than a whole trial of its search.
    pub short: bool,
    /// The load as it was offered.
    pub offered: Offered,
    /// The main figures by their names, in the order of their table.
    pub figures: Vec<(Cow<'static, str>, Option<QuantityValue>)>,
    /// 99th percentile of lateness, in nanoseconds.
    pub lateness_p99_ns: Option<u64>,
    /// 99th percentile of the instrument's own lateness, in nanoseconds.
    pub own_lateness_p99_ns: Option<u64>,
    /// For each goal of the plan, whether it was met; none if the trial was not judged by it.
    pub met: Vec<Option<bool>>,
    /// Response time grew steadily: the load is not carried, whatever else was met.
    pub piles_up: bool,
    /// How long it took, in seconds.
    pub elapsed_s: f64,
}

/// What load a trial offered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Offered {
    /// Users of a closed load.
    Users(f64),
    /// Largest rate of an open load, per second.
    RatePerS(f64),
    /// Programs at once.
    Copies(f64),
}

impl Offered {
    fn by(measured: &Measured) -> Self {
        match measured {
            Measured::Command(command) => Self::Copies(f64::from(command.plan.copies)),
            Measured::Http(http) => match &http.plan.load {
                LoadModel::Closed { users, .. } => Self::Users(*users as f64),
                LoadModel::Open { stages, .. } => {
                    let rates = stages.iter().map(|stage| stage.from_rate_per_s.max(stage.to_rate_per_s));
                    Self::RatePerS(rates.fold(0.0, f64::max))
                }
            },
        }
    }
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
            offered: Offered::by(&trial.measured),
            figures: main_figures(quantities)
                .map(|(quantity, _)| (quantity.name.clone(), quantity.read(entry)))
                .collect(),
            lateness_p99_ns: trial.http().and_then(|http| ended(&http.lateness, 0.99)),
            own_lateness_p99_ns: trial.http().and_then(|http| ended(&http.own_lateness, 0.99)),
            met: (0..plan.goals.len())
                .map(|goal| (goal < entry.loss_ratios.len()).then(|| entry.meets(goal, plan)))
                .collect(),
            piles_up: entry.growth_per_s.is_some(),
            elapsed_s: trial.elapsed_s,
        }
    }

    /// The main figure of this name; none if the trial has none.
    pub(crate) fn figure(&self, name: &str) -> Option<QuantityValue> {
        self.figures.iter().find(|(known, _)| known == name)?.1
    }

    /// Whether it says something about its setting's own load.
    pub(crate) fn is_valid_repeat(&self) -> bool {
        !self.void && self.purpose == Purpose::Repeat
    }
}

/// Whether a trial says anything of its target: it is valid, and no warm-up.
pub(crate) fn decides(entry: &TrialEntry) -> bool {
    !entry.trial.validity.is_void() && entry.purpose != Purpose::WarmUp
}

/// A percentile of partly censored times; none if nothing was timed.
pub(crate) fn quantile(times: &CensoredTimes, quantile: f64) -> Option<Percentile> {
    let nothing = times.observed.is_empty() && times.censored.is_empty();
    (!nothing).then(|| times.percentile(quantile))
}

fn ended(times: &Histogram, quantile: f64) -> Option<u64> {
    (!times.is_empty()).then(|| times.quantile_ns(quantile))
}

/// The median of some values; none if there are none.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let measured = |value| QuantityValue { value, at_least: false, is_own: false };
    median_value(values.into_iter().map(measured)).map(|median| median.value)
}

/// The median of what some trials gave: a lower bound of the true one if any at or below its middle is. What may be the
/// generator's own is left out.
pub(crate) fn median_value(values: impl IntoIterator<Item = QuantityValue>) -> Option<QuantityValue> {
    let mut values: Vec<QuantityValue> =
        values.into_iter().filter(|measured| !measured.is_own && measured.value.is_finite()).collect();
    values.sort_by(|a, b| a.value.total_cmp(&b.value));
    let middle = values.len().checked_sub(1)? / 2;
    let upper = values.len() / 2;
    let at_least = values[..=upper].iter().any(|measured| measured.at_least);
    let value = f64::midpoint(values[middle].value, values[upper].value);
    Some(QuantityValue { value, at_least, is_own: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0, f64::NAN, 1.0]), Some(2.0));
        let of = |value, at_least| QuantityValue { value, at_least, is_own: false };
        assert_eq!(median_value([of(3.0, true), of(1.0, false), of(2.0, false)]), Some(of(2.0, false)));
        assert_eq!(median_value([of(3.0, false), of(1.0, true), of(2.0, false)]), Some(of(2.0, true)));
        assert_eq!(median_value([]), None);
    }
}
