//! The OpenMetrics text format, for files that a collector reads.
//!
//! No client library is used, because none supports summaries.

use std::{collections::BTreeSet, fmt::Write};

use record::{
    BoundKind, LoadUnit, Span,
    quantity::{self, Column, main_figures},
};

use crate::{
    Results, Status, answer, confirmed,
    reading::{Reading, readings},
    setting::{self, SettingFigures},
    text,
};

/// OpenMetrics 1.0 text.
pub(crate) fn render(results: &Results) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_all(&mut out, results);
    out
}

/// A metric family with all its samples.
struct Family {
    name: &'static str,
    kind: &'static str,
    unit: &'static str,
    help: &'static str,
    samples: Vec<Sample>,
}

struct Sample {
    suffix: &'static str,
    labels: Vec<(&'static str, String)>,
    value: f64,
}

impl Family {
    /// A metric family without a unit.
    fn of(
        (kind, name): (&'static str, &'static str),
        help: &'static str,
        samples: impl IntoIterator<Item = Sample>,
    ) -> Self {
        Self { name, kind, unit: "", help, samples: samples.into_iter().collect() }
    }

    /// A gauge that has neither a unit nor samples yet.
    fn gauge(name: &'static str, help: &'static str) -> Self {
        Self::of(("gauge", name), help, [])
    }
}

impl Sample {
    fn new(labels: Vec<(&'static str, String)>, value: f64) -> Self {
        Self { suffix: "", labels, value }
    }
}

fn write_all(out: &mut String, results: &Results) -> std::fmt::Result {
    let readings = readings(results);
    for family in
        [info(results), ending(results)].into_iter().chain(bounds(results)).chain(repeats(results, &readings))
    {
        write_family(out, &family)?;
    }
    for family in confirmations(results).into_iter().chain([audits(results)]) {
        write_family(out, &family)?;
    }
    for family in [goals(results, &readings), trials(results), void_trials(results)] {
        write_family(out, &family)?;
    }
    writeln!(out, "# EOF")
}

fn write_family(out: &mut String, family: &Family) -> std::fmt::Result {
    let Family { name, kind, unit, help, samples } = family;
    if samples.is_empty() {
        return Ok(());
    }
    writeln!(out, "# TYPE {name} {kind}")?;
    if !unit.is_empty() {
        writeln!(out, "# UNIT {name} {unit}")?;
    }
    writeln!(out, "# HELP {name} {}", escaped(help))?;
    // Two goals with the same name would give the same series twice, which the format forbids.
    let mut written = BTreeSet::new();
    for Sample { suffix, labels, value } in samples {
        let labels: Vec<String> =
            labels.iter().map(|(key, text)| format!("{key}=\"{}\"", escaped(text))).collect();
        let labels = labels.join(",");
        if written.insert(labels.clone()) {
            writeln!(out, "{name}{suffix}{{{labels}}} {value}")?;
        }
    }
    Ok(())
}

/// Escapes text as the format requires and makes control characters visible.
fn escaped(text: &str) -> String {
    let lines = text.split('\n').map(|line| text::printable(line).replace('\\', "\\\\").replace('"', "\\\""));
    lines.collect::<Vec<_>>().join("\\n")
}

fn info(results: &Results) -> Family {
    let plan = &results.plan;
    let labels = vec![
        ("title", plan.title.clone()),
        ("version", plan.proofload_version.clone()),
        ("seed", plan.seed.to_string()),
    ];
    let sample = Sample { suffix: "_info", ..Sample::new(labels, 1.0) };
    Family::of(("info", "proofload_study"), "The study.", [sample])
}

fn ending(results: &Results) -> Family {
    let ended = results.result.as_ref().map(|result| serde_json::to_value(result.ending));
    let ended = ended.and_then(Result::ok).and_then(|name| name.as_str().map(str::to_owned));
    let states = ["finished", "interrupted", "out_of_budget", "failed"];
    let samples = states.into_iter().map(|state| {
        let labels = vec![("proofload_study_ending", state.to_owned())];
        Sample::new(labels, f64::from(u8::from(ended.as_deref() == Some(state))))
    });
    let help = "How the study ended; all 0 if it was killed or is still running.";
    Family::of(("stateset", "proofload_study_ending"), help, samples)
}

fn bounds(results: &Results) -> Vec<Family> {
    let mut lower = Family::gauge(
        "proofload_lower_bound",
        "Largest load that meets the goal, below all loads that do not.",
    );
    let mut upper = Family::gauge(
        "proofload_upper_bound",
        "Smallest load that does not meet the goal; missing if there is none.",
    );
    let mut throughput = Family::gauge(
        "proofload_conditional_throughput",
        "The lower bound minus the loss at that load (RFC 9971).",
    );
    let unit = results.plan.search.as_ref().map_or("", |search| match &search.unit {
        LoadUnit::Rate => "per_second",
        unit => unit.name(),
    });
    for setting in 0..results.plan.settings.len() {
        for search in results.searches_of(setting) {
            for goal in &search.goals {
                let labels = || {
                    vec![
                        ("goal", goal.goal.clone()),
                        ("setting", results.setting_name(setting)),
                        ("unit", unit.to_owned()),
                        ("block", (search.block + 1).to_string()),
                        ("kind", kind(&goal.kind).to_owned()),
                    ]
                };
                let sample = |value| Sample::new(labels(), value);
                lower.samples.extend(goal.lower.iter().map(|bound| sample(bound.load)));
                upper.samples.extend(goal.upper.iter().map(|bound| sample(bound.load)));
                let conditional = goal.lower.as_ref().and_then(|bound| bound.conditional_throughput);
                throughput.samples.extend(conditional.map(sample));
            }
        }
    }
    vec![lower, upper, throughput]
}

fn kind(kind: &BoundKind) -> &'static str {
    match kind {
        BoundKind::Regular => "regular",
        BoundKind::AtLeast => "at_least",
        BoundKind::Below => "below",
        BoundKind::GeneratorBound { .. } => "generator_bound",
        BoundKind::Disputed => "disputed",
        BoundKind::Unsteady => "unsteady",
        BoundKind::Unfinished => "unfinished",
    }
}

fn repeats(results: &Results, readings: &[Reading]) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    let quantities = results.quantities();
    for number in 0..results.plan.settings.len() {
        let SettingFigures { name: setting, figures, .. } = setting::figures(results, readings, number);
        for ((quantity, column), figure) in main_figures(&quantities).zip(figures) {
            let &Column { metric: name, help, .. } = column;
            let mut labels = vec![("setting", setting.clone())];
            let (kind, unit, divisor) = match quantity.reading {
                quantity::Reading::Response(quantile) => {
                    let is_censored = figure.median.is_some_and(|median| median.at_least);
                    labels
                        .extend([("censored", is_censored.to_string()), ("quantile", quantile.to_string())]);
                    ("summary", "seconds", 1e6)
                }
                quantity::Reading::Declared => {
                    labels.push(("quantity", quantity.name.clone().into_owned()));
                    ("gauge", "", 1.0)
                }
                _ => ("gauge", if name.ends_with("_ratio") { "ratio" } else { "" }, 1.0),
            };
            let samples = figure.median.into_iter().flat_map(|median| ends(median, divisor, &labels));
            match families.iter_mut().find(|family| family.name == name) {
                Some(family) => family.samples.extend(samples),
                None => families.push(Family { name, kind, unit, help, samples: samples.collect() }),
            }
        }
    }
    families
}

/// Samples of a figure, divided by `divisor` to get the metric's unit: one sample, or one for each end of an interval.
fn ends(figure: Span, divisor: f64, labels: &[(&'static str, String)]) -> Vec<Sample> {
    let with = |end: Option<&str>, value: f64| {
        let mut labels = labels.to_vec();
        labels.extend(end.map(|end| ("end", end.to_owned())));
        Sample::new(labels, value / divisor)
    };
    match figure.is_wide() {
        false => vec![with(None, figure.value)],
        true => vec![with(Some("least"), figure.least), with(Some("most"), figure.most)],
    }
}

fn confirmations(results: &Results) -> Vec<Family> {
    let mut load =
        Family::gauge("proofload_confirmed_load", "The lower bound at which further trials were run.");
    let mut median = Family::gauge(
        "proofload_confirmed_median",
        "Median of each quantity over the valid further trials at the lower bound.",
    );
    let mut mean = Family::gauge(
        "proofload_confirmed_mean",
        "Mean of each quantity over the valid further trials at the lower bound.",
    );
    let mut valid =
        Family::gauge("proofload_confirmed_valid", "Number of valid further trials at the lower bound.");
    let mut met = Family::gauge(
        "proofload_confirmed_met",
        "Number of valid further trials at the lower bound that met the goal.",
    );
    for confirmed in confirmed::confirmed(results) {
        let labels = |quantity: Option<&str>| {
            let mut labels = vec![("setting", results.setting_name(confirmed.setting))];
            labels.extend(confirmed.block.map(|block| ("block", (block + 1).to_string())));
            labels.extend(quantity.map(|quantity| ("quantity", quantity.to_owned())));
            labels
        };
        load.samples.push(Sample::new(labels(None), confirmed.found.load));
        let found = confirmed.found;
        valid.samples.push(Sample::new(labels(None), f64::from(found.valid)));
        for (goal, times) in results.plan.goals.iter().zip(&found.met) {
            let mut labels = labels(None);
            labels.push(("goal", goal.name.clone()));
            met.samples.push(Sample::new(labels, f64::from(*times)));
        }
        for summary in &found.summaries {
            let mut labels = labels(Some(&summary.quantity));
            if summary.quantity.ends_with("_us") {
                labels.push(("censored", summary.at_least.to_string()));
            }
            median.samples.extend(ends(summary.span(), 1.0, &labels));
            mean.samples.extend(summary.mean_span().into_iter().flat_map(|mean| ends(mean, 1.0, &labels)));
        }
    }
    vec![load, valid, met, median, mean]
}

fn audits(results: &Results) -> Family {
    let samples = confirmed::audited(results).into_iter().flat_map(|audited| {
        let totals = &audited.totals;
        let counts = [
            ("acknowledged", totals.acknowledged),
            ("stored", totals.stored),
            ("lost", totals.lost),
            ("repeated", totals.repeated),
            ("duplicated", totals.duplicated),
            ("corrupt", totals.corrupt),
            ("never_sent", totals.never_sent),
            ("wrong_place", totals.wrong_places),
            ("out_of_order", totals.out_of_order),
        ];
        let setting = results.setting_name(audited.setting);
        let labels = move |what: &str| vec![("setting", setting.clone()), ("events", what.to_owned())];
        counts.map(|(what, count)| Sample::new(labels(what), count as f64))
    });
    let help = "Events of all audited trials, by finding.";
    Family::of(("gauge", "proofload_audited_events"), help, samples)
}

fn goals(results: &Results, readings: &[Reading]) -> Family {
    let answers = answer::answers_with(results, readings);
    let samples = answers.into_iter().filter_map(|answer| {
        let value = match answer.status {
            Status::Met | Status::Unfound => 1.0,
            Status::NotMet => 0.0,
            Status::Void | Status::Unfinished => return None,
        };
        let setting = results.setting_name(answer.setting);
        let mut labels = vec![("goal", answer.goal_name), ("setting", setting)];
        labels.extend(answer.block.map(|block| ("block", (block + 1).to_string())));
        Some(Sample::new(labels, value))
    });
    let help = "1 if the goal is met (in a search: at the lower bound), 0 if it is not; missing if nothing may be concluded.";
    Family::of(("gauge", "proofload_goal_met"), help, samples)
}

fn trials(results: &Results) -> Family {
    counter(results, "proofload_trials", "Trials run, including void ones.", |_| true)
}

fn void_trials(results: &Results) -> Family {
    let void = |entry: &record::TrialEntry| entry.trial.validity.is_void();
    counter(results, "proofload_void_trials", "Void trials: nothing may be concluded from them.", void)
}

fn counter(
    results: &Results,
    name: &'static str,
    help: &'static str,
    counts: impl Fn(&record::TrialEntry) -> bool,
) -> Family {
    let samples = (0..results.plan.settings.len()).map(|setting| Sample {
        suffix: "_total",
        labels: vec![("setting", results.setting_name(setting))],
        value: results.trials_of(setting).filter(|entry| counts(entry)).count() as f64,
    });
    Family::of(("counter", name), help, samples)
}
