//! The report of a target.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};

use record::{
    Histogram,
    percentile::columns,
    units::{show_bytes, show_count, show_rate, show_time_ns},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::misbehave::Misbehaviour;

/// The schema of the reports that this version writes.
pub const SCHEMA: &str = "proofload/serve/1";

/// What the target did, counted when it was done. Every complete request is in exactly one of `answers`, the
/// unanswering kinds of `misbehaved`, `rejected_unanswered`, `clients_gone` and `unanswered`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// The format of this record, [`SCHEMA`].
    pub schema: String,
    /// From the start to the end, in seconds.
    pub elapsed_s: f64,
    /// Connections accepted, without the refused ones.
    pub connections_accepted: u64,
    /// Connections above the limit: accepted and reset.
    pub connections_refused: u64,
    /// Peak number of open connections. For several processes, the sum of their peaks, which is an upper bound.
    pub connections_peak: u64,
    /// Connections closed because they were idle for too long.
    pub connections_idled_out: u64,
    /// Complete requests read. A pipelined request is read when those before it are answered.
    pub requests: u64,
    /// Requests cut off by the client.
    pub truncated_requests: u64,
    /// Malformed requests, or HTTP/1.1 requests without exactly one Host; answered with 400.
    pub bad_requests: u64,
    /// Whole, correct answers that the kernel has taken, of every status: including `error` and `unsolicited`
    /// misbehaviour, rejections with 503 and the 400 of bad requests.
    pub answers: u64,
    /// These answers by status.
    pub answers_by_status: BTreeMap<u16, u64>,
    /// Misbehaviour carried out, by kind.
    pub misbehaved: BTreeMap<Misbehaviour, u64>,
    /// Requests that found the queue full.
    pub rejected: u64,
    /// Rejected requests that were closed, reset or ignored rather than answered with 503.
    pub rejected_unanswered: u64,
    /// Requests whose client had closed or reset the connection before the answer was sent.
    pub clients_gone: u64,
    /// Requests whose answer was not due, or not completely sent, when the target stopped.
    pub unanswered: u64,
    /// Bytes received from clients.
    pub request_bytes: u64,
    /// Bytes sent to clients, as taken by the kernel.
    pub response_bytes: u64,
    /// Delays drawn, one for each request; empty without a delay.
    pub delay_drawn: Histogram,
    /// Time from reading the last byte of the request to handing the last byte of the answer to the kernel (the clock
    /// is read just before the last write). Rejected and `silent` requests are not included. Measured only with a
    /// delay, a capacity or a slow head.
    pub delay_applied: Histogram,
    /// Service times drawn, one for each admitted request.
    pub service_drawn: Histogram,
    /// Waiting times before service, of each admitted request.
    pub queue_wait: Histogram,
    /// Peak number of waiting requests. For several processes, the largest of their peaks.
    pub queue_peak: u64,
    /// Number of stalls begun. All threads and processes stall together, so this is not a sum.
    pub stalls: u64,
    /// Time from when an answer was due to when the kernel took its last byte: the accuracy of the delays. Covers the
    /// same requests as `delay_applied`.
    pub late_by: Histogram,
    /// Failed accepts by error.
    pub accept_errors: BTreeMap<String, u64>,
    /// Handshakes of TLS; absent without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsReport>,
    /// Why requests are missing in the record; absent if none are, or nothing was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_failure: Option<String>,
}

/// Handshakes of TLS.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TlsReport {
    /// Handshakes that were done.
    pub handshakes: u64,
    /// Those of them that took up an earlier session.
    pub resumed: u64,
    /// Sessions that failed, in their handshake or later, by cause.
    pub failures: BTreeMap<String, u64>,
    /// Handshakes refused because of a fault that was asked for.
    pub refused: u64,
}

impl Report {
    /// An empty report.
    pub fn new() -> Self {
        Self { schema: SCHEMA.to_owned(), ..Self::default() }
    }

    /// Adds the report of another thread or process that ran during the same time.
    pub fn merge(&mut self, other: &Self) {
        self.schema.clone_from(&other.schema);
        self.elapsed_s = self.elapsed_s.max(other.elapsed_s);
        self.queue_peak = self.queue_peak.max(other.queue_peak);
        self.stalls = self.stalls.max(other.stalls);
        for (mine, theirs) in [
            (&mut self.connections_accepted, other.connections_accepted),
            (&mut self.connections_refused, other.connections_refused),
            (&mut self.connections_peak, other.connections_peak),
            (&mut self.connections_idled_out, other.connections_idled_out),
            (&mut self.requests, other.requests),
            (&mut self.truncated_requests, other.truncated_requests),
            (&mut self.bad_requests, other.bad_requests),
            (&mut self.answers, other.answers),
            (&mut self.rejected, other.rejected),
            (&mut self.rejected_unanswered, other.rejected_unanswered),
            (&mut self.clients_gone, other.clients_gone),
            (&mut self.unanswered, other.unanswered),
            (&mut self.request_bytes, other.request_bytes),
            (&mut self.response_bytes, other.response_bytes),
        ] {
            *mine += theirs;
        }
        add(&mut self.answers_by_status, &other.answers_by_status);
        add(&mut self.misbehaved, &other.misbehaved);
        add(&mut self.accept_errors, &other.accept_errors);
        if let Some(theirs) = &other.tls {
            let mine = self.tls.get_or_insert_default();
            mine.handshakes += theirs.handshakes;
            mine.resumed += theirs.resumed;
            mine.refused += theirs.refused;
            add(&mut mine.failures, &theirs.failures);
        }
        if self.record_failure.is_none() {
            self.record_failure.clone_from(&other.record_failure);
        }
        self.delay_drawn.merge(&other.delay_drawn);
        self.delay_applied.merge(&other.delay_applied);
        self.service_drawn.merge(&other.service_drawn);
        self.queue_wait.merge(&other.queue_wait);
        self.late_by.merge(&other.late_by);
    }

    /// Number of requests in no class or, if negative, in more than one. The report is wrong unless this is 0.
    pub fn unaccounted(&self) -> i64 {
        let unanswering = self.misbehaved.iter().filter(|(kind, _)| !kind.answers()).map(|(_, n)| n);
        let ends = self.answers
            + unanswering.sum::<u64>()
            + self.rejected_unanswered
            + self.clients_gone
            + self.unanswered;
        (self.requests + self.bad_requests) as i64 - ends as i64
    }

    pub(crate) fn count_answer(&mut self, status: u16) {
        self.answers += 1;
        *self.answers_by_status.entry(status).or_default() += 1;
    }

    pub(crate) fn count_misbehaviour(&mut self, kind: Misbehaviour) {
        *self.misbehaved.entry(kind).or_default() += 1;
    }
}

fn add<K: Ord + Clone>(mine: &mut BTreeMap<K, u64>, theirs: &BTreeMap<K, u64>) {
    for (key, count) in theirs {
        *mine.entry(key.clone()).or_default() += count;
    }
}

/// Renders the report as text. Leaves out lines about things that did not happen.
pub fn render(report: &Report) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<16} {value}");
    };
    let seconds = report.elapsed_s.max(1e-9);
    line("served for", show_time_ns((report.elapsed_s * 1e9) as u64));
    line(
        "connections",
        format!(
            "{} accepted, peak {}{}{}",
            show_count(report.connections_accepted),
            show_count(report.connections_peak),
            also(report.connections_refused, "reset above the limit"),
            also(report.connections_idled_out, "closed when idle"),
        ),
    );
    line(
        "requests",
        format!(
            "{} ({}), {}{}{}",
            show_count(report.requests),
            show_rate(report.requests as f64 / seconds),
            show_bytes(report.request_bytes),
            also(report.bad_requests, "bad"),
            also(report.truncated_requests, "cut off by the client"),
        ),
    );
    let statuses = report.answers_by_status.iter().map(|(status, n)| format!("{status}: {}", show_count(*n)));
    let statuses = statuses.collect::<Vec<_>>().join(", ");
    line(
        "answers",
        format!(
            "{}{}, {}{}{}",
            show_count(report.answers),
            if statuses.is_empty() { String::new() } else { format!(" ({statuses})") },
            show_bytes(report.response_bytes),
            also(report.clients_gone, "not sent because the client had gone"),
            also(report.unanswered, "not sent before the end"),
        ),
    );
    for (kind, count) in &report.misbehaved {
        line("misbehaved", format!("{kind}: {}, {}", show_count(*count), kind.meaning()));
    }
    if report.rejected > 0 || report.queue_peak > 0 {
        let (rejected, peak) = (show_count(report.rejected), show_count(report.queue_peak));
        line("queue", format!("peak {peak} waiting, {rejected} rejected"));
    }
    if report.stalls > 0 {
        line("stalls", show_count(report.stalls));
    }
    for (name, histogram) in [
        ("delay drawn", &report.delay_drawn),
        ("service drawn", &report.service_drawn),
        ("queue wait", &report.queue_wait),
        ("request→answer", &report.delay_applied),
        ("answer late by", &report.late_by),
    ] {
        if !histogram.is_empty() {
            line(name, percentiles(histogram));
        }
    }
    if let Some(tls) = &report.tls {
        let resumed = also(tls.resumed, "resumed");
        let refused = also(tls.refused, "refused on purpose");
        line("TLS handshakes", format!("{}{resumed}{refused}", show_count(tls.handshakes)));
        for (cause, count) in &tls.failures {
            line("TLS failed", format!("{cause}: {}", show_count(*count)));
        }
    }
    if let Some(why) = &report.record_failure {
        line("RECORD", format!("requests are missing: {why}"));
    }
    for (error, count) in &report.accept_errors {
        line("accept failed", format!("{error}: {}", show_count(*count)));
    }
    if report.unaccounted() != 0 {
        line("UNACCOUNTED", format!("{} requests: this report is wrong", report.unaccounted()));
    }
    text
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&render(self))
    }
}

fn also(count: u64, what: &str) -> String {
    if count == 0 { String::new() } else { format!(", {} {what}", show_count(count)) }
}

fn percentiles(histogram: &Histogram) -> String {
    let each = columns()
        .map(|column| format!("{} {}", column.name, show_time_ns(histogram.quantile_ns(column.quantile))));
    format!(
        "{} times: mean {}, {}, max {}",
        show_count(histogram.count()),
        show_time_ns(histogram.mean_ns() as u64),
        each.collect::<Vec<_>>().join(", "),
        show_time_ns(histogram.max_ns()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Report {
        let mut report = Report::new();
        report.elapsed_s = 2.0;
        report.requests = 10;
        report.bad_requests = 1;
        (0..6).for_each(|_| report.count_answer(200));
        report.count_answer(503);
        report.count_answer(400);
        report.count_misbehaviour(Misbehaviour::Error);
        report.count_misbehaviour(Misbehaviour::Reset);
        report.rejected = 1;
        report.rejected_unanswered = 1;
        report.clients_gone = 1;
        report.late_by.record_ns(70_000);
        report.accept_errors.insert("EMFILE".to_owned(), 2);
        let failures = BTreeMap::from([("not_tls".to_owned(), 1)]);
        report.tls = Some(TlsReport { handshakes: 5, resumed: 3, failures, refused: 2 });
        report
    }

    #[test]
    fn every_request_is_in_one_class() {
        let mut report = example();
        assert_eq!(report.unaccounted(), 0);
        report.requests += 1;
        assert_eq!(report.unaccounted(), 1);
        assert!(render(&report).contains("UNACCOUNTED"));
        report.unanswered += 2;
        assert_eq!(report.unaccounted(), -1);
    }

    #[test]
    fn merging_adds_everything_up() {
        let mut merged = Report::default();
        merged.merge(&example());
        assert_eq!(merged, example());
        merged.merge(&example());
        assert_eq!((merged.requests, merged.answers, merged.elapsed_s), (20, 16, 2.0));
        assert_eq!(merged.answers_by_status[&200], 12);
        assert_eq!(merged.accept_errors["EMFILE"], 4);
        let tls = merged.tls.clone().unwrap();
        assert_eq!((tls.handshakes, tls.resumed, tls.failures["not_tls"], tls.refused), (10, 6, 2, 4));
        assert_eq!((merged.late_by.count(), merged.unaccounted()), (2, 0));
    }

    #[test]
    fn a_report_is_written_read_back_and_shown() {
        let json = serde_json::to_string(&example()).unwrap();
        assert!(json.contains("proofload/serve/1") && json.contains("\"reset\":1"), "{json}");
        let read: Report = serde_json::from_str(&json).unwrap();
        assert_eq!((read.requests, read.misbehaved[&Misbehaviour::Reset]), (10, 1));
        let text = example().to_string();
        for part in [
            "10 (5.00/s)",
            "200: 6, 400: 1, 503: 1",
            "1 bad",
            "reset: 1",
            "EMFILE: 2",
            "70.0 µs",
            "5, 3 resumed, 2 refused",
        ] {
            assert!(text.contains(part), "{part} in:\n{text}");
        }
        assert!(!text.contains("stalls") && !text.contains("UNACCOUNTED"), "{text}");
    }
}
