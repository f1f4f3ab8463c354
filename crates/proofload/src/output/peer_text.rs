//! Prints a trial in the layout of another load generator, with proofload's figures, and adds facts that the other
//! program would not report.

mod ab;
mod misled;
mod wrk;

use std::fmt::Write;

use record::{HttpTrial, LoadModel, Trial};

/// The program whose layout the output has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    Wrk {
        /// Whether the output has the latency distribution (`-L`).
        is_distribution: bool,
    },
    Wrk2 {
        /// Whether the output has the latency distribution (`-L`).
        is_distribution: bool,
        /// Whether the output also has the latency from the actual send (`-U`).
        is_uncorrected: bool,
    },
    Ab,
}

impl Layout {
    fn program(self) -> &'static str {
        match self {
            Self::Wrk { .. } => "wrk",
            Self::Wrk2 { .. } => "wrk2",
            Self::Ab => "ab",
        }
    }
}

/// Renders a trial in a layout. Appends the facts that the other program would not report, the notes on the
/// translation, and the equivalent proofload command.
pub(crate) fn render(trial: &Trial, layout: &Layout, notes: &[String], line: &str) -> String {
    let Some(http) = trial.http() else { return String::new() };
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = match *layout {
        Layout::Wrk { is_distribution } => wrk::write(&mut text, trial, http, is_distribution),
        Layout::Wrk2 { is_distribution, is_uncorrected } => {
            wrk::write_wrk2(&mut text, trial, http, is_distribution, is_uncorrected)
        }
        Layout::Ab => ab::write(&mut text, trial, http),
    };
    let (_, sentence) = report::trial_answer(trial, http);
    let _ = writeln!(text, "\nproofload: {sentence}");
    for misled in misled::lines(trial, http, layout.program()).iter().chain(notes) {
        let _ = writeln!(text, "  - {misled}");
    }
    let _ = writeln!(text, "The same: {line}");
    text
}

/// The number of connections that the plan's load uses.
fn connections(http: &HttpTrial) -> u64 {
    match &http.plan.load {
        LoadModel::Closed { users, .. } => *users,
        LoadModel::Open { connections, .. } => connections.initial.max(1),
    }
}

/// Mean and standard deviation of the values.
fn deviation(values: &[f64]) -> (f64, f64) {
    let n = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / n;
    (mean, (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / n).sqrt())
}
