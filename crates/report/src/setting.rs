//! The figures of a setting over its valid repeats.

use record::{Quantity, QuantitySummary, SettingOutcome, Span, quantity::main_figures};

use crate::{Results, reading::Reading, text};

/// A setting and its figures.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SettingFigures {
    /// Index of the setting in the plan.
    pub number: usize,
    /// The setting's name.
    pub name: String,
    /// The main figures in the order of the table.
    pub figures: Vec<Figure>,
    /// The smallest confidence of the intervals (0 to 1), if there are any.
    pub confidence: Option<f64>,
    /// Number of valid repeats.
    pub valid: usize,
    /// Number of void trials of any purpose.
    pub void: usize,
}

/// A figure over several trials.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Figure {
    /// The median; `None` without valid values.
    pub median: Option<Span>,
    /// The ends of the median's interval, if the result has one.
    pub interval: Option<(f64, f64)>,
    /// The figure as text.
    pub shown: String,
}

/// The figures of a setting that is not searched.
pub(crate) fn figures(results: &Results, readings: &[Reading], number: usize) -> SettingFigures {
    let own_readings = || readings.iter().filter(move |reading| reading.setting == number);
    let valid: Vec<&Reading> = own_readings().filter(|reading| reading.is_valid_repeat()).collect();
    let outcome = outcome(results, number);
    let quantities = results.quantities();
    let figures = main_figures(&quantities).map(|(quantity, _)| {
        let median = Span::median(valid.iter().filter_map(|reading| reading.figure(&quantity.name)));
        let at_least = median.is_some_and(|median| median.at_least);
        let summary = outcome.and_then(|outcome| summary(outcome, &quantity.name));
        // Rounded to 13 digits, to remove errors of binary fractions.
        let rounded = |value: f64| format!("{value:.12e}").parse().unwrap_or(value);
        let computed = || median.map(|median| median.map(rounded));
        // A censored value is a lower bound. Above the middle, its true value does not matter to the median.
        let median = summary.map(|summary| Span { at_least, ..summary.span() }).or_else(computed);
        let median = median.filter(|median| median.value.is_finite());
        let shown = match summary {
            Some(summary) => text::interval(summary, at_least),
            None => text::value(&quantity.name, median),
        };
        let interval = summary.filter(|s| s.values.len() > 1).map(|s| (s.low, s.high));
        let interval = interval.or(median.filter(Span::is_wide).map(|median| (median.least, median.most)));
        Figure { median, interval, shown }
    });
    SettingFigures {
        number,
        name: results.setting_name(number),
        figures: figures.collect(),
        confidence: outcome.and_then(|outcome| least_confidence(outcome, &quantities)),
        valid: valid.len(),
        void: own_readings().filter(|reading| reading.void).count(),
    }
}

/// The outcome of a setting, if the result has one.
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
