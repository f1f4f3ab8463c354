//! What the valid repeats of a setting gave, taken together.

use record::{Percentile, QuantitySummary, SettingOutcome};

use crate::{
    Results,
    reading::{Reading, median, median_percentile},
    text,
};

/// The names of quantities that every setting is asked for.
pub const THROUGHPUT: &str = "throughput_per_s";
pub const P50: &str = "response_p50_us";
pub const P99: &str = "response_p99_us";
pub const ERRORS: &str = "error_ratio";

/// A setting in a table of settings.
#[derive(Debug, Clone, PartialEq)]
pub struct SettingFigures {
    /// Its number in the plan.
    pub number: usize,
    /// Its levels, for people.
    pub name: String,
    /// Completed requests per second.
    pub throughput_per_s: Figure,
    /// Median of response time, in microseconds.
    pub p50_us: Figure,
    /// 99th percentile of response time, in microseconds.
    pub p99_us: Figure,
    /// Share of requests failed, never sent or unanswered.
    pub error_ratio: Figure,
    /// The least confidence of the intervals shown (0 to 1); none if there are none.
    pub confidence: Option<f64>,
    /// Valid repeats.
    pub valid: usize,
    /// Void trials, of whatever purpose.
    pub void: usize,
}

/// A figure over several trials.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Its median; none if nothing valid was measured.
    pub median: Option<f64>,
    /// Ends of the median's interval, where the result gives one.
    pub interval: Option<(f64, f64)>,
    /// The true one may be larger.
    pub at_least: bool,
    /// All of it, for people.
    pub shown: String,
}

/// The figures of a setting that is not searched.
pub fn figures(results: &Results, readings: &[Reading], number: usize) -> SettingFigures {
    let of_setting = || readings.iter().filter(move |reading| reading.setting == number);
    let valid: Vec<&Reading> = of_setting().filter(|reading| reading.is_valid_repeat()).collect();
    let outcome = outcome(results, number);
    let time = |name, of: fn(&Reading) -> Option<Percentile>| {
        let median = median_percentile(valid.iter().filter_map(|reading| of(reading)));
        let at_least = median.is_some_and(|median| median.at_least);
        figure(outcome, name, median.map(|median| median.ns as f64 / 1e3), at_least)
    };
    SettingFigures {
        number,
        name: results.setting_name(number),
        throughput_per_s: figure(
            outcome,
            THROUGHPUT,
            median(valid.iter().map(|r| r.throughput_per_s)),
            false,
        ),
        p50_us: time(P50, |reading| reading.p50),
        p99_us: time(P99, |reading| reading.p99),
        error_ratio: figure(outcome, ERRORS, median(valid.iter().map(|r| r.error_ratio)), false),
        confidence: outcome.and_then(least_confidence),
        valid: valid.len(),
        void: of_setting().filter(|reading| reading.void).count(),
    }
}

/// What the result says of a setting, if it says anything.
pub fn outcome(results: &Results, number: usize) -> Option<&SettingOutcome> {
    results.outcomes().iter().find(|outcome| outcome.setting == number)
}

fn least_confidence(outcome: &SettingOutcome) -> Option<f64> {
    let shown = [THROUGHPUT, P50, P99, ERRORS];
    let with_interval =
        outcome.summaries.iter().filter(|s| s.values.len() > 1 && shown.contains(&s.quantity.as_str()));
    with_interval.map(|summary| summary.confidence).min_by(f64::total_cmp)
}

fn figure(outcome: Option<&SettingOutcome>, name: &str, computed: Option<f64>, at_least: bool) -> Figure {
    let summaries = outcome.iter().flat_map(|outcome| &outcome.summaries);
    let summary: Option<&QuantitySummary> =
        summaries.into_iter().find(|summary| summary.quantity == name && !summary.values.is_empty());
    let median = summary.map(|summary| summary.median).or(computed).filter(|median| median.is_finite());
    let shown = match (summary, median) {
        (Some(summary), _) => text::interval(summary),
        (None, Some(median)) => text::quantity(name, median),
        (None, None) => "–".to_owned(),
    };
    let interval = summary.filter(|s| s.values.len() > 1).map(|s| (s.low, s.high));
    Figure { median, interval, at_least, shown: format!("{}{shown}", if at_least { "≥ " } else { "" }) }
}
