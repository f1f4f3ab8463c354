//! What a trial gives, each quantity said once: its name with the unit, its words, which way is better, how it is read.
//!
//! Outcomes, comparisons and every form of a report read the quantities of a study: those of HTTP trials stand in a table
//! here; other kinds, observers and the study file declare theirs in the plan ([`GivenQuantity`]).

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    audit::AuditResult,
    goal::Goal,
    study::{StudyPlan, TrialEntry},
    trial::{HttpTrial, Kind},
};

/// The name of completed requests per second.
pub const THROUGHPUT: &str = "throughput_per_s";
/// The name of the median of response time.
pub const RESPONSE_P50: &str = "response_p50_us";
/// The name of the 99th percentile of response time.
pub const RESPONSE_P99: &str = "response_p99_us";

/// A quantity that a kind of trial, an observer or a study file declares. Its values stand in
/// [`Trial::quantities`](crate::Trial), by its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GivenQuantity {
    /// Its name, which ends with its unit: `goodput_bit_per_s`.
    pub name: String,
    /// What people call it: `goodput`.
    pub words: String,
    /// Whether more of it is better.
    pub more_is_better: bool,
    /// Whether it stands among the main figures of a setting.
    pub is_main: bool,
}

/// A quantity of a trial.
#[derive(Debug, Clone)]
pub struct Quantity {
    /// Its name, which ends with its unit: `response_p99_us`.
    pub name: Cow<'static, str>,
    /// What people call it: `response time, p99`.
    pub words: Cow<'static, str>,
    /// Whether more of it is better.
    pub more_is_better: bool,
    /// It may be 0 in a sound trial: a ratio of two then says nothing.
    pub may_be_zero: bool,
    /// How it stands among the main figures of a setting; none if it does not.
    pub column: Option<Column>,
    /// How it is read.
    pub reading: Reading,
}

/// A quantity among the main figures of a setting.
#[derive(Debug, Clone)]
pub struct Column {
    /// The head of its column: `p99`.
    pub head: Cow<'static, str>,
    /// Its metric family in OpenMetrics, which quantiles of the same times share.
    pub metric: &'static str,
    /// What that family tells.
    pub help: &'static str,
    /// Whether two results are compared by it when nothing else is asked for.
    pub is_compared: bool,
    /// Its title in the figures of what factors do; none if it has no such figure.
    pub figure: Option<Cow<'static, str>>,
}

/// How a quantity is read from a trial.
#[derive(Debug, Clone, Copy)]
pub enum Reading {
    /// As a quantile of response time (0 to 1).
    Response(f64),
    /// From what HTTP requests measured.
    Http(fn(&HttpTrial) -> Option<f64>),
    /// From all that was written down of the trial.
    Entry(fn(&TrialEntry) -> Option<f64>),
    /// By its name.
    Given,
}

/// A quantity as a trial gave it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QuantityValue {
    /// In the unit of the quantity's name.
    pub value: f64,
    /// It is of a time that still ran when it was no longer waited for: the true one may be longer.
    pub at_least: bool,
    /// It is of a time that may be the generator's own: it says nothing of the target.
    pub is_own: bool,
}

/// The metric family of the quantities that a plan declares.
pub const GIVEN_METRIC: &str = "proofload_quantity";

/// The quantities of a study, in the order in which people read them.
pub fn quantities(plan: &StudyPlan) -> Vec<Quantity> {
    let own = match plan.kind {
        Kind::Http => http(),
        Kind::Command => Vec::new(),
    };
    let given = plan.quantities.iter().map(Quantity::of);
    own.into_iter().chain(given).chain([errors()]).collect()
}

/// The quantities of HTTP trials, but for errors, which every kind has.
fn http() -> Vec<Quantity> {
    vec![
        more(THROUGHPUT, "throughput", Reading::Http(|http| Some(http.throughput_per_s))).among_main_figures(
            Column {
                head: Cow::Borrowed("throughput"),
                metric: "proofload_throughput_per_second",
                help: "Completed requests per second, median of the valid repeats.",
                is_compared: true,
                figure: Some(Cow::Borrowed("Throughput, requests per second")),
            },
        ),
        more(
            "stored_events_per_s",
            "events stored",
            Reading::Entry(|entry| Some(per_s(entry, entry.audit.as_ref()?.stored as f64))),
        ),
        more(
            "stored_bytes_per_s",
            "bytes stored",
            Reading::Entry(|entry| Some(per_s(entry, stored_bytes(entry.audit.as_ref()?)))),
        ),
        more(
            "sent_bytes_per_s",
            "bytes sent",
            Reading::Entry(|entry| Some(per_s(entry, entry.trial.http()?.counts.sent_bytes as f64))),
        ),
        more(
            "received_bytes_per_s",
            "bytes received",
            Reading::Entry(|entry| Some(per_s(entry, entry.trial.http()?.counts.received_bytes as f64))),
        ),
        less(RESPONSE_P50, "response time, p50", Reading::Response(0.5))
            .among_main_figures(response_column("p50", None)),
        less("response_p90_us", "response time, p90", Reading::Response(0.9)),
        less(RESPONSE_P99, "response time, p99", Reading::Response(0.99))
            .among_main_figures(response_column("p99", Some("Response time, p99"))),
        less("response_p99_9_us", "response time, p99.9", Reading::Response(0.999)),
        less("connect_p99_us", "time to connect, p99", Reading::Http(connect_p99_us)),
    ]
}

fn errors() -> Quantity {
    Quantity {
    may_be_zero: true,
    ..less("error_ratio", "errors", Reading::Entry(error_ratio))
        .among_main_figures(Column {
            head: Cow::Borrowed("errors"),
            metric: "proofload_error_ratio",
            help: "Share of requests failed, never sent or unanswered, or of programs failed, median of the valid repeats.",
            is_compared: true,
            figure: None,
        })
    }
}

/// Those of them that are the main figures of a setting.
pub fn main_figures(quantities: &[Quantity]) -> impl Iterator<Item = (&Quantity, &Column)> {
    quantities.iter().filter_map(|quantity| Some((quantity, quantity.column.as_ref()?)))
}

impl Quantity {
    /// Its value in a trial; none if the trial has none.
    pub fn read(&self, entry: &TrialEntry) -> Option<QuantityValue> {
        match self.reading {
            Reading::Response(quantile) => entry.trial.http().and_then(|http| {
                let times = &http.response_time;
                // No time is not the shortest time.
                let is_timed = !times.observed.is_empty() || !times.censored.is_empty();
                is_timed.then(|| {
                    let percentile = times.percentile(quantile);
                    let (at_least, is_own) = (percentile.at_least, percentile.is_own());
                    QuantityValue { value: percentile.ns as f64 / 1e3, at_least, is_own }
                })
            }),
            Reading::Http(read) => entry.trial.http().and_then(read).map(QuantityValue::exact),
            Reading::Entry(read) => read(entry).map(QuantityValue::exact),
            // What a program took to fail is not what it takes.
            Reading::Given if entry.trial.programs().is_some_and(|trial| trial.failed_ratio() > 0.0) => None,
            Reading::Given => entry.trial.quantities.get(&*self.name).copied().map(QuantityValue::exact),
        }
    }

    fn of(given: &GivenQuantity) -> Self {
        let column = given.is_main.then(|| Column {
            head: Cow::Owned(given.words.clone()),
            metric: GIVEN_METRIC,
            help: "A quantity of the study by its name, which ends with its unit, median of the valid repeats.",
            is_compared: true,
            figure: Some(Cow::Owned(given.words.clone())),
        });
        Self {
            name: Cow::Owned(given.name.clone()),
            words: Cow::Owned(given.words.clone()),
            more_is_better: given.more_is_better,
            // Where one is 0, their difference is taken all the same.
            may_be_zero: false,
            column,
            reading: Reading::Given,
        }
    }

    fn among_main_figures(self, column: Column) -> Self {
        Self { column: Some(column), ..self }
    }
}

impl QuantityValue {
    fn exact(value: f64) -> Self {
        Self { value, at_least: false, is_own: false }
    }
}

fn more(name: &'static str, words: &'static str, reading: Reading) -> Quantity {
    Quantity { more_is_better: true, ..less(name, words, reading) }
}

fn less(name: &'static str, words: &'static str, reading: Reading) -> Quantity {
    Quantity {
        name: Cow::Borrowed(name),
        words: Cow::Borrowed(words),
        more_is_better: false,
        may_be_zero: false,
        column: None,
        reading,
    }
}

fn response_column(head: &'static str, figure: Option<&'static str>) -> Column {
    Column {
        head: Cow::Borrowed(head),
        metric: "proofload_response_time_seconds",
        help: "Response time from the intended send, median over the valid repeats; the true one is larger where \
               censored is \"true\".",
        is_compared: figure.is_some(),
        figure: figure.map(Cow::Borrowed),
    }
}

fn connect_p99_us(http: &HttpTrial) -> Option<f64> {
    let times = &http.connect_time;
    (!times.is_empty()).then(|| times.quantile_ns(0.99) as f64 / 1e3)
}

fn error_ratio(entry: &TrialEntry) -> Option<f64> {
    Some(Goal::errors(0.0).loss_ratio_of(&entry.trial, None))
}

fn per_s(entry: &TrialEntry, count: f64) -> f64 {
    count / entry.trial.elapsed_s.max(1e-9)
}

/// The bytes of the files that hold the trial's own events: all of them unless others are there too.
fn stored_bytes(audit: &AuditResult) -> f64 {
    let found = audit.stored + audit.repeated + audit.duplicated + audit.never_sent + audit.foreign_events;
    audit.read.bytes as f64 * audit.stored as f64 / found.max(1) as f64
}
