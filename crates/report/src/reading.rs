//! A trial's figures, read out of its histograms once.

use record::{
    Censored, Goal, GoalQuantity, Histogram, LoadModel, Percentile, Purpose, StudyPlan, TrialEntry,
};

use crate::Results;

/// What the tables and the figures show of a trial. A time is none where nothing was timed.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
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
    /// Completed requests per second.
    pub throughput_per_s: f64,
    /// Median of response time.
    pub p50: Option<Percentile>,
    /// 99th percentile of response time.
    pub p99: Option<Percentile>,
    /// 99th percentile of lateness, in nanoseconds.
    pub lateness_p99_ns: Option<u64>,
    /// 99th percentile of the instrument's own lateness, in nanoseconds.
    pub own_lateness_p99_ns: Option<u64>,
    /// Requests failed, never sent or (of an open load) unanswered, as a share of those scheduled.
    pub error_ratio: f64,
    /// For each goal of the plan, whether it was met; none if the trial was not judged by it.
    pub met: Vec<Option<bool>>,
    /// Response time grew steadily: the load is not carried, whatever else was met.
    pub piles_up: bool,
    /// How long it took, in seconds.
    pub elapsed_s: f64,
}

/// What load a trial offered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Offered {
    /// Users of a closed load.
    Users(f64),
    /// Largest rate of an open load, per second.
    RatePerS(f64),
}

/// Reads every trial.
pub fn readings(results: &Results) -> Vec<Reading> {
    results.trials.iter().map(|entry| Reading::of(entry, &results.plan)).collect()
}

impl Reading {
    /// Reads a trial.
    pub fn of(entry: &TrialEntry, plan: &StudyPlan) -> Self {
        let trial = &entry.trial;
        let errors = Goal { name: String::new(), quantity: GoalQuantity::Errors, loss_ratio: 0.0 };
        Self {
            index: entry.index,
            setting: entry.setting,
            block: entry.block,
            purpose: entry.purpose,
            load: entry.load.filter(|load| load.is_finite()),
            void: trial.validity.is_void(),
            short: entry.is_short(plan),
            offered: match &trial.plan.load {
                LoadModel::Closed { users, .. } => Offered::Users(*users as f64),
                LoadModel::Open { stages, .. } => {
                    let rates = stages.iter().map(|stage| stage.from_rate_per_s.max(stage.to_rate_per_s));
                    Offered::RatePerS(rates.fold(0.0, f64::max))
                }
            },
            throughput_per_s: trial.throughput_per_s,
            p50: quantile(&trial.response_time, 0.5),
            p99: quantile(&trial.response_time, 0.99),
            lateness_p99_ns: ended(&trial.lateness, 0.99),
            own_lateness_p99_ns: ended(&trial.own_lateness, 0.99),
            error_ratio: errors.loss_ratio_of(trial, None),
            met: (0..plan.goals.len())
                .map(|goal| (goal < entry.loss_ratios.len()).then(|| entry.meets(goal, plan)))
                .collect(),
            piles_up: entry.growth_per_s.is_some(),
            elapsed_s: trial.elapsed_s,
        }
    }

    /// Whether it says something about its setting's own load.
    pub fn is_valid_repeat(&self) -> bool {
        !self.void && self.purpose == Purpose::Repeat
    }
}

/// Whether a trial says anything of its target: it is valid, and no warm-up.
pub fn decides(entry: &TrialEntry) -> bool {
    !entry.trial.validity.is_void() && entry.purpose != Purpose::WarmUp
}

/// A percentile of partly censored times; none if nothing was timed.
pub fn quantile(times: &Censored, quantile: f64) -> Option<Percentile> {
    let nothing = times.observed.is_empty() && times.censored.is_empty();
    (!nothing).then(|| times.percentile(quantile))
}

fn ended(times: &Histogram, quantile: f64) -> Option<u64> {
    (!times.is_empty()).then(|| times.quantile_ns(quantile))
}

/// The median of some values; none if there are none.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

/// The median of some percentiles: a lower bound of the true one if any at or below its middle is. Those that may be
/// the generator's own are left out.
pub fn median_percentile(values: impl IntoIterator<Item = Percentile>) -> Option<Percentile> {
    let mut values: Vec<Percentile> = values.into_iter().filter(|percentile| !percentile.is_own()).collect();
    values.sort_by_key(|percentile| percentile.ns);
    let middle = values.len().checked_sub(1)? / 2;
    let upper = values.len() / 2;
    let at_least = values[..=upper].iter().any(|percentile| percentile.at_least);
    let ns = u64::midpoint(values[middle].ns, values[upper].ns);
    Some(Percentile { ns, at_least, less_own_ns: ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0, f64::NAN, 1.0]), Some(2.0));
        let of = |ns, at_least| Percentile { ns, at_least, less_own_ns: ns };
        assert_eq!(median_percentile([of(3, true), of(1, false), of(2, false)]), Some(of(2, false)));
        assert_eq!(median_percentile([of(3, false), of(1, true), of(2, false)]), Some(of(2, true)));
        assert_eq!(median_percentile([]), None);
    }
}
