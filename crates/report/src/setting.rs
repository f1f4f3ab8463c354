//! What the valid repeats of a setting gave, taken together.

use record::{Quantity, QuantitySummary, SettingOutcome, quantity::main_figures};

use crate::{
    Results,
    reading::{Reading, median_value},
    text,
};

/// A setting in a table of settings.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SettingFigures {
    /// Its number in the plan.
    pub number: usize,
    /// Its levels, for people.
    pub name: String,
    /// The main figures, in the order of their table.
    pub figures: Vec<Figure>,
    /// The least confidence of the intervals shown (0 to 1); none if there are none.
    pub confidence: Option<f64>,
    /// Valid repeats.
    pub valid: usize,
    /// Void trials, of whatever purpose.
    pub void: usize,
}

/// A figure over several trials.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Figure {
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
pub(crate) fn figures(results: &Results, readings: &[Reading], number: usize) -> SettingFigures {
    let of_setting = || readings.iter().filter(move |reading| reading.setting == number);
    let valid: Vec<&Reading> = of_setting().filter(|reading| reading.is_valid_repeat()).collect();
    let outcome = outcome(results, number);
    let quantities = results.quantities();
    let figures = main_figures(&quantities).map(|(quantity, _)| {
        let median = median_value(valid.iter().filter_map(|reading| reading.figure(&quantity.name)));
        let at_least = median.is_some_and(|median| median.at_least);
        let summary = outcome.and_then(|outcome| summary(outcome, &quantity.name));
        // Without the dust of binary fractions.
        let computed = || format!("{:.12e}", median?.value).parse().ok();
        let median = summary.map(|summary| summary.median).or_else(computed);
        let median = median.filter(|median| median.is_finite());
        let shown = match (summary, median) {
            (Some(summary), _) => text::interval(summary),
            (None, Some(median)) => text::quantity(&quantity.name, median),
            (None, None) => "–".to_owned(),
        };
        let interval = summary.filter(|s| s.values.len() > 1).map(|s| (s.low, s.high));
        let shown = format!("{}{shown}", if at_least { "≥ " } else { "" });
        Figure { median, interval, at_least, shown }
    });
    SettingFigures {
        number,
        name: results.setting_name(number),
        figures: figures.collect(),
        confidence: outcome.and_then(|outcome| least_confidence(outcome, &quantities)),
        valid: valid.len(),
        void: of_setting().filter(|reading| reading.void).count(),
    }
}

/// What the result says of a setting, if it says anything.
pub(crate) fn outcome(results: &Results, number: usize) -> Option<&SettingOutcome> {
    results.outcomes().iter().find(|outcome| outcome.setting == number)
}

fn least_confidence(outcome: &SettingOutcome, quantities: &[Quantity]) -> Option<f64> {
    let shown = main_figures(quantities).filter_map(|(quantity, _)| summary(outcome, &quantity.name));
    let with_interval = shown.filter(|summary| summary.values.len() > 1);
    with_interval.map(|summary| summary.confidence).min_by(f64::total_cmp)
}

fn summary<'a>(outcome: &'a SettingOutcome, name: &str) -> Option<&'a QuantitySummary> {
    outcome.summaries.iter().find(|summary| summary.quantity == name && !summary.values.is_empty())
}
