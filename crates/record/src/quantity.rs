//! The quantities of a trial: name with unit, label, better direction, and how each is read from a trial.
//!
//! Outcomes, comparisons and all report formats use this list. It defines the quantities of HTTP trials; other kinds,
//! observers and the study file declare their own in the plan ([`quantities`](crate::study::quantities)).

use std::borrow::Cow;

use crate::{
    audit::AuditResult,
    histogram::Histogram,
    percentile::{Percentile, columns, usual},
    span::Span,
    trial::{HttpTrial, Trial},
};

/// Name of the quantity: completed requests per second.
pub const THROUGHPUT: &str = "throughput_per_s";
/// Name of the quantity: median response time.
pub const RESPONSE_P50: &str = "response_p50_us";
/// Name of the quantity: 99th percentile of the response time.
pub const RESPONSE_P99: &str = "response_p99_us";

/// A quantity of a trial.
#[derive(Debug, Clone)]
pub struct Quantity {
    /// The name, which ends with the unit: `response_p99_us`.
    pub name: Cow<'static, str>,
    /// The label for people: `response time, p99`.
    pub words: Cow<'static, str>,
    /// Whether more is better.
    pub more_is_better: bool,
    /// Whether a valid trial may give 0, so that ratios of two values are meaningless.
    pub may_be_zero: bool,
    /// Its column among the main figures of a setting, if it is a main figure.
    pub column: Option<Column>,
    /// How the quantity is read from a trial.
    pub reading: Reading,
}

/// How a main figure of a setting is presented.
#[derive(Debug, Clone)]
pub struct Column {
    /// The column's header: `p99`.
    pub head: Cow<'static, str>,
    /// The metric family in OpenMetrics; quantiles of the same times share one.
    pub metric: &'static str,
    /// The description of that metric family.
    pub help: &'static str,
    /// Whether results are compared by this quantity by default.
    pub is_compared: bool,
    /// The title of the chart of this quantity against a factor, if there is one.
    pub figure: Option<Cow<'static, str>>,
}

/// How a quantity is read from a trial.
#[derive(Debug, Clone, Copy)]
pub enum Reading {
    /// A quantile of the response time (0 to 1).
    Response(f64),
    /// A quantile of the time to the first byte of an answer.
    FirstByte(f64),
    /// A quantile of the time to connect.
    Connect(f64),
    /// A quantile of the time of a TLS handshake.
    Handshake(f64),
    /// Computed from the measurements of HTTP requests.
    Http(fn(&HttpTrial) -> Option<Span>),
    /// Computed from the trial and the result of its audit.
    Audited(fn(&Trial, Option<&AuditResult>) -> Option<Span>),
    /// The entry in [`Trial::quantities`](crate::Trial) with the quantity's name.
    Declared,
}

/// The quantities of every trial of requests.
pub fn of_requests() -> Vec<Quantity> {
    http().into_iter().chain([errors()]).collect()
}

/// The value of a quantity in a trial of requests, if the trial has it.
pub fn of_trial(name: &str, trial: &Trial, audit: Option<&AuditResult>) -> Option<Span> {
    trial.http()?;
    of_requests().into_iter().find(|quantity| quantity.name == name)?.read_trial(trial, audit)
}

/// The quantities of HTTP trials, except errors, which all kinds of trials have.
pub(crate) fn http() -> Vec<Quantity> {
    let rates = [
        higher_is_better(THROUGHPUT, "throughput", Reading::Http(|http| Some(http.throughput())))
            .among_main_figures(Column {
                head: Cow::Borrowed("throughput"),
                metric: "proofload_throughput_per_second",
                help: "Completed requests per second, median of the valid repeats.",
                is_compared: true,
                figure: Some(Cow::Borrowed("Throughput, requests per second")),
            }),
        higher_is_better(
            "stored_events_per_s",
            "events stored",
            Reading::Audited(|trial, audit| Some(per_s(trial, audit?.stored as f64))),
        ),
        higher_is_better(
            "stored_bytes_per_s",
            "bytes stored",
            Reading::Audited(|trial, audit| Some(per_s(trial, stored_bytes(audit?)))),
        ),
        higher_is_better(
            "sent_bytes_per_s",
            "bytes sent",
            Reading::Audited(|trial, _| Some(per_s(trial, trial.http()?.counts.sent_bytes as f64))),
        ),
        higher_is_better(
            "received_bytes_per_s",
            "bytes received",
            Reading::Audited(|trial, _| Some(per_s(trial, trial.http()?.counts.received_bytes as f64))),
        ),
    ];
    let response =
        columns().map(|percentile| of_times("response", "response time", percentile, Reading::Response));
    let others = [
        ("first_byte", "first byte", Reading::FirstByte as fn(f64) -> Reading),
        ("connect", "time to connect", Reading::Connect),
        ("handshake", "TLS handshake", Reading::Handshake),
    ];
    let others = others.into_iter().flat_map(|(name, words, reading)| {
        usual().map(move |percentile| of_times(name, words, percentile, reading))
    });
    rates.into_iter().chain(response).chain(others).collect()
}

/// A percentile of a kind of time. Percentiles of the response time may be main figures.
fn of_times(name: &str, words: &str, percentile: Percentile, reading: impl Fn(f64) -> Reading) -> Quantity {
    let quantity = Quantity {
        name: Cow::Owned(format!("{name}_{}_us", percentile.key)),
        words: Cow::Owned(format!("{words}, {}", percentile.name)),
        ..lower_is_better("", "", reading(percentile.quantile))
    };
    match &*quantity.name {
        RESPONSE_P50 => quantity.among_main_figures(response_column(percentile.name, None)),
        RESPONSE_P99 => {
            quantity.among_main_figures(response_column(percentile.name, Some("Response time, p99")))
        }
        _ => quantity,
    }
}

pub(crate) fn errors() -> Quantity {
    Quantity {
    may_be_zero: true,
    ..lower_is_better("error_ratio", "errors", Reading::Audited(error_ratio))
        .among_main_figures(Column {
            head: Cow::Borrowed("errors"),
            metric: "proofload_error_ratio",
            help: "Share of requests failed, never sent or unanswered, or of programs failed, median of the valid repeats.",
            is_compared: true,
            figure: None,
        })
    }
}

/// The main figures of a setting among the quantities.
pub fn main_figures(quantities: &[Quantity]) -> impl Iterator<Item = (&Quantity, &Column)> {
    quantities.iter().filter_map(|quantity| Some((quantity, quantity.column.as_ref()?)))
}

impl Quantity {
    /// The value in a trial, if the trial has one.
    pub fn read_trial(&self, trial: &Trial, audit: Option<&AuditResult>) -> Option<Span> {
        match self.reading {
            Reading::Response(quantile) => trial.http().and_then(|http| {
                let times = &http.response_time;
                // Without times there is no quantile; 0 would look like a measured time.
                let is_timed = !times.observed.is_empty() || !times.censored.is_empty();
                is_timed.then(|| times.percentile(quantile).map(|ns| ns / 1e3))
            }),
            Reading::FirstByte(quantile) => quantile_us(&trial.http()?.first_byte_time, quantile),
            Reading::Connect(quantile) => quantile_us(&trial.http()?.connect_time, quantile),
            Reading::Handshake(quantile) => quantile_us(&trial.http()?.handshake_time, quantile),
            Reading::Http(read) => trial.http().and_then(read),
            Reading::Audited(read) => read(trial, audit),
            // The output of a failed program does not measure its task.
            Reading::Declared if trial.command().is_some_and(|trial| trial.failed_ratio() > 0.0) => None,
            Reading::Declared => trial.declared(&self.name),
        }
    }

    fn among_main_figures(self, column: Column) -> Self {
        Self { column: Some(column), ..self }
    }
}

fn higher_is_better(name: &'static str, words: &'static str, reading: Reading) -> Quantity {
    Quantity { more_is_better: true, ..lower_is_better(name, words, reading) }
}

fn lower_is_better(name: &'static str, words: &'static str, reading: Reading) -> Quantity {
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

fn quantile_us(times: &Histogram, quantile: f64) -> Option<Span> {
    (!times.is_empty()).then(|| Span::exact(times.quantile_ns(quantile) as f64 / 1e3))
}

fn error_ratio(trial: &Trial, _: Option<&AuditResult>) -> Option<Span> {
    Some(Span::exact(trial.error_ratio().1))
}

/// The rate of what requests transfer. Its interval is as wide as that of the request rate.
fn per_s(trial: &Trial, count: f64) -> Span {
    let rate = count / trial.elapsed_s.max(1e-9);
    let throughput = trial.http().map_or(Span::exact(1.0), HttpTrial::throughput);
    Span::of_rate(rate, rate * throughput.most / throughput.value, throughput.at_least)
}

/// The bytes of the trial's own events in the audited files: the bytes of all files times the share of these events.
fn stored_bytes(audit: &AuditResult) -> f64 {
    let found = audit.stored + audit.repeated + audit.duplicated + audit.never_sent + audit.foreign_events;
    audit.read.bytes as f64 * audit.stored as f64 / found.max(1) as f64
}
