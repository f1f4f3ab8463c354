//! `/health` and `/metrics`.

use std::fmt::{Display, Write as _};

use crate::{
    Statistics,
    answer::Page,
    refusal::Refusal,
    shared::{Shared, State},
};

/// Upper limits of the histogram buckets for answer times, in nanoseconds.
const BUCKETS_NS: [u64; 14] = [
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    1_000_000_000,
    5_000_000_000,
    30_000_000_000,
];

/// `/health`: whether events can currently be stored.
pub(crate) fn health(shared: &Shared) -> Page {
    let stopping = (shared.lifecycle.state() != State::Running).then_some(Refusal::Stopping);
    let (status, body) = match stopping.or_else(|| shared.storage_refusal()) {
        None => (200, serde_json::json!({ "status": "ok" })),
        Some(refusal) => (503, serde_json::json!({ "status": refusal.name(), "error": refusal.message() })),
    };
    Page { status, content_type: "application/json", body: format!("{body}\n") }
}

/// `/metrics`: all counters as OpenMetrics text 1.0.0.
pub(crate) fn metrics(shared: &Shared) -> Page {
    let all = Statistics::of(shared);
    let mut text = Text(String::new());
    text.family("requests", "counter", "Requests answered, by status.");
    all.requests.iter().for_each(|(status, count)| text.labelled("requests_total", "status", status, count));
    text.family("events", "counter", "Events acknowledged, by level.");
    all.events.iter().for_each(|(level, count)| text.labelled("events_total", "level", level, count));
    text.family("refused", "counter", "Requests and connections refused, by reason.");
    all.refused.iter().for_each(|(reason, count)| text.labelled("refused_total", "reason", reason, count));
    for (name, help, value) in [
        ("accepted_events_lost", "Events accepted that could not be stored.", all.accepted_events_lost),
        ("replayed", "Repeated requests answered by their idempotency key.", all.replayed),
        ("received_bytes", "Bytes received.", all.received_bytes),
        ("sent_bytes", "Bytes of answers.", all.sent_bytes),
        ("stored_bytes", "Bytes of lines stored.", all.stored_bytes),
        ("connections", "Connections accepted.", all.connections_accepted),
        ("connections_refused", "Connections refused because there were too many.", all.connections_refused),
        ("connections_timed_out", "Connections that took too long.", all.connections_timed_out),
        ("accept_errors", "Failed calls of accept.", all.accept_errors),
        ("writes", "System calls that wrote lines.", all.writes),
        ("syncs", "Successful calls of fdatasync.", all.syncs),
        ("sync_failures", "Failed calls of fdatasync.", all.sync_failures),
    ] {
        text.family(name, "counter", help);
        text.sample(&format!("{name}_total"), value);
    }
    for (name, help, value) in [
        ("connections_open", "Connections open.", all.connections_open),
        ("budget_used_bytes", "Bytes of the budget in use.", all.budget_used_bytes),
        ("budget_bytes", "Bytes of the budget.", all.budget_bytes),
        ("accepted_events_pending", "Events accepted and not yet written.", all.accepted_events_pending),
        ("queued_bytes", "Bytes of lines not yet written.", all.queued_bytes),
        ("open_segments", "Segments open.", all.open_segments),
        ("storage_ok", "1 if events can be stored.", u64::from(all.storage == "ok")),
    ] {
        text.family(name, "gauge", help);
        text.sample(name, value);
    }
    text.family("sync_seconds", "summary", "Duration of fdatasync calls.");
    for (quantile, us) in [("0.5", all.sync_p50_us), ("0.99", all.sync_p99_us)] {
        if let Some(us) = us {
            text.labelled("sync_seconds", "quantile", quantile, us as f64 / 1e6);
        }
    }
    let times = &all.answer_time;
    text.family("answer_seconds", "histogram", "From a request's last byte to its answer, successes only.");
    for bound_ns in BUCKETS_NS {
        let bound_s = bound_ns as f64 / 1e9;
        text.labelled("answer_seconds_bucket", "le", bound_s, times.count_up_to_ns(bound_ns));
    }
    text.labelled("answer_seconds_bucket", "le", "+Inf", times.count());
    text.sample("answer_seconds_sum", times.mean_ns() * times.count() as f64 / 1e9);
    text.sample("answer_seconds_count", times.count());
    text.0.push_str("# EOF\n");
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Page { status: 200, content_type, body: text.0 }
}

/// OpenMetrics text. Its labels need no escapes, because all their values are fixed words.
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# TYPE proofload_listen_{name} {kind}"));
        self.line(format_args!("# HELP proofload_listen_{name} {help}"));
    }

    fn sample(&mut self, name: &str, value: impl Display) {
        self.line(format_args!("proofload_listen_{name} {value}"));
    }

    fn labelled(&mut self, name: &str, label: &str, label_value: impl Display, value: impl Display) {
        self.line(format_args!("proofload_listen_{name}{{{label}=\"{label_value}\"}} {value}"));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{line}").expect("a string takes everything");
    }
}
