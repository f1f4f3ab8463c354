//! Totals of the counters of all threads, at any time and at the end.

use std::{collections::BTreeMap, fmt::Write as _};

use record::Histogram;
use schemars::JsonSchema;
use segments::Level;
use serde::{Deserialize, Serialize};

use crate::{answer::level_name, shared::Shared};

/// Version of the format of [`Report`].
pub const SCHEMA: &str = "proofload-listen-report/1";

/// The counters of all threads so far.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Statistics {
    /// Requests answered, by status.
    pub requests: BTreeMap<u16, u64>,
    /// Events acknowledged, by level: `accepted`, `written`, `synced`.
    pub events: BTreeMap<String, u64>,
    /// Requests and connections refused, by reason, such as `budget` or `storage_full`.
    pub refused: BTreeMap<String, u64>,
    /// Events that were acknowledged as `accepted` and could not be stored.
    pub accepted_events_lost: u64,
    /// Events acknowledged as `accepted` that the storage has not written yet; at the end, those that may not be stored.
    #[serde(default)]
    pub accepted_events_pending: u64,
    /// Repeated requests answered by their idempotency key.
    pub replayed: u64,
    /// Bytes received, heads and framing included, after decryption.
    pub received_bytes: u64,
    /// Bytes of answers.
    pub sent_bytes: u64,
    /// Bytes of lines stored.
    pub stored_bytes: u64,
    /// Connections open.
    pub connections_open: u64,
    /// Peak number of open connections, without those to the admin port.
    pub connections_peak: u64,
    /// Connections accepted.
    pub connections_accepted: u64,
    /// Connections answered 503, or closed at once, because there were too many.
    pub connections_refused: u64,
    /// Connections closed because they, or their requests, took too long.
    pub connections_timed_out: u64,
    /// Failed calls of accept, mostly for want of descriptors.
    pub accept_errors: u64,
    /// Bytes of the budget in use.
    pub budget_used_bytes: u64,
    /// Bytes of the budget.
    pub budget_bytes: u64,
    /// From a request's last byte to its answer, successes only.
    pub answer_time: Histogram,
    /// Lines not yet written, in bytes.
    pub queued_bytes: u64,
    /// System calls that wrote lines.
    pub writes: u64,
    /// Successful calls of fdatasync.
    pub syncs: u64,
    /// Calls of fdatasync that failed: the lines written since the last one may be lost.
    #[serde(default)]
    pub sync_failures: u64,
    /// Median time of a call of fdatasync, in microseconds; none if there was no call.
    pub sync_p50_us: Option<u64>,
    /// 99th percentile of these times, in microseconds.
    pub sync_p99_us: Option<u64>,
    /// Segments open now.
    pub open_segments: u64,
    /// `ok`, or why nothing can be stored: `storage_full`, `storage_read_only`, `storage_failing`.
    pub storage: String,
}

/// The final report of a listener.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// Version of this format.
    pub schema: String,
    /// How long the listener ran, in seconds.
    pub elapsed_s: f64,
    /// Connections that each thread accepted.
    pub connections_per_thread: Vec<u64>,
    /// Requests that were waiting for the storage when the time to drain was over.
    pub unanswered: u64,
    /// Why some acknowledged events may not be on the disk; none if all are.
    pub close_error: Option<String>,
    /// The counters.
    pub statistics: Statistics,
}

impl Statistics {
    /// Sums the counters of all threads.
    pub(crate) fn of(shared: &Shared) -> Self {
        let mut all = Self::default();
        for thread in &shared.counters {
            thread.statuses().for_each(|(status, count)| *all.requests.entry(status).or_default() += count);
            thread.refusals().for_each(|(name, count)| *all.refused.entry(name.into()).or_default() += count);
            for level in [Level::Accepted, Level::Written, Level::Synced] {
                *all.events.entry(level_name(level).into()).or_default() += thread.events(level);
            }
            all.accepted_events_lost += thread.accepted_events_lost.value();
            // Settled events must be read before accepted ones, so that the difference cannot become negative.
            let settled = thread.accepted_events_settled.value();
            all.accepted_events_pending += thread.events(Level::Accepted).saturating_sub(settled);
            all.replayed += thread.replayed.value();
            all.received_bytes += thread.received_bytes.value();
            all.sent_bytes += thread.sent_bytes.value();
            all.stored_bytes += thread.stored_bytes.value();
            all.connections_accepted += thread.connections_accepted.value();
            all.connections_refused += thread.connections_refused.value();
            all.connections_timed_out += thread.connections_timed_out.value();
            all.accept_errors += thread.accept_errors.value();
            thread.add_times_to(&mut all.answer_time);
        }
        let store = shared.store.statistics();
        all.connections_open = shared.connection_limit.open() + shared.admin_connection_limit.open();
        all.connections_peak = shared.connection_limit.peak();
        all.budget_used_bytes = shared.budget.used();
        all.budget_bytes = shared.budget.limit();
        all.queued_bytes = store.queued_bytes;
        all.writes = store.writes;
        all.syncs = store.syncs;
        all.sync_failures = store.sync_failures;
        all.sync_p50_us = (store.syncs > 0).then_some(store.sync_us.p50);
        all.sync_p99_us = (store.syncs > 0).then_some(store.sync_us.p99);
        all.open_segments = store.open_segments;
        let refusal = shared.storage_refusal();
        all.storage = refusal.map_or("ok", |refusal| refusal.name()).to_owned();
        all
    }
}

impl Report {
    /// The report at the end of a run.
    pub(crate) fn of(shared: &Shared, close_error: Option<String>) -> Self {
        let mut statistics = Statistics::of(shared);
        if close_error.is_none() {
            // The storage closed without errors, so even events whose results were not read are stored.
            statistics.accepted_events_pending = 0;
        }
        Self {
            schema: SCHEMA.to_owned(),
            elapsed_s: shared.clock.now_ns() as f64 / 1e9,
            connections_per_thread: shared.counters.iter().map(|c| c.connections_accepted.value()).collect(),
            unanswered: shared.counters.iter().map(|c| c.unanswered.value()).sum(),
            close_error,
            statistics,
        }
    }
}

/// Renders the report as text, one figure per line.
pub fn render(report: &Report) -> String {
    let all = &report.statistics;
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        writeln!(text, "{name:<28}{value}").expect("a string takes everything");
    };
    line("elapsed", format!("{:.1} s", report.elapsed_s));
    all.requests
        .iter()
        .for_each(|(status, count)| line(&format!("requests answered {status}"), count.to_string()));
    let events = all.events.iter().filter(|(_, count)| **count > 0);
    events.for_each(|(level, count)| line(&format!("events {level}"), count.to_string()));
    all.refused.iter().for_each(|(reason, count)| line(&format!("refused: {reason}"), count.to_string()));
    line("stored", format!("{} B", all.stored_bytes));
    line("connections", format!("{} accepted, peak {}", all.connections_accepted, all.connections_peak));
    if !all.answer_time.is_empty() {
        let ms = |quantile| all.answer_time.quantile_ns(quantile) as f64 / 1e6;
        line("answer time p50, p99, max", format!("{:.3}, {:.3}, {:.3} ms", ms(0.5), ms(0.99), ms(1.0)));
    }
    for (name, count) in [
        ("replayed", all.replayed),
        ("connections refused", all.connections_refused),
        ("connections timed out", all.connections_timed_out),
        ("accept errors", all.accept_errors),
        ("sync failures", all.sync_failures),
        ("ACCEPTED EVENTS LOST", all.accepted_events_lost),
        ("ACCEPTED, MAYBE NOT STORED", all.accepted_events_pending),
        ("unanswered at the end", report.unanswered),
    ] {
        if count > 0 {
            line(name, count.to_string());
        }
    }
    if let Some(error) = &report.close_error {
        line("NOT ALL IS ON THE DISK", error.clone());
    }
    text
}
