//! The measurements of a trial with HTTP requests.

mod away;
mod users_time;

use std::{collections::BTreeMap, net::SocketAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{machine::MachineTrial, script::ScriptResult};
use crate::{
    errors::{ErrorClass, ErrorCounts},
    histogram::{CensoredTimes, Histogram},
    noise::Noise,
    plan::{HttpPlan, LoadModel},
    span::Span,
};
pub use away::{Away, OwnPercentile, SoundTime};
pub use users_time::UsersTime;

/// The measurements of a trial with HTTP requests.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HttpTrial {
    /// The plan as run.
    pub plan: HttpPlan,
    /// The time over which rates are computed, in seconds; see `docs/throughput.md`.
    pub measured_s: f64,
    /// Counts of requests and connections.
    pub counts: Counts,
    /// Completed requests per second of `measured_s`.
    pub throughput_per_s: f64,
    /// Upper limit of `throughput_per_s` for a generator without absences. Equal to it in most trials; 0 in results of
    /// earlier versions.
    #[serde(default)]
    pub throughput_at_most_per_s: f64,
    /// Failures by class.
    pub errors: ErrorCounts,
    /// Failures of attempts that were retried, by class; not included in `errors`.
    #[serde(default, skip_serializing_if = "ErrorCounts::is_empty")]
    pub retried_errors: ErrorCounts,
    /// Failures of connections outside of any request: this machine lacked a resource to open one, or one carried
    /// unsolicited bytes.
    pub connection_errors: ErrorCounts,
    /// The cause of a worker's first failure of each class, where more than the class is known.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub causes: BTreeMap<ErrorClass, String>,
    /// Responses by status, including unexpected ones.
    pub statuses: BTreeMap<u16, u64>,
    /// Failures of requests and of connections by the address at which they came, where the load goes to several. Those of events
    /// that were retried are left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failed_at: BTreeMap<SocketAddr, ErrorCounts>,
    /// From the intended send to the last byte of the response.
    pub response_time: CensoredTimes,
    /// From the actual send to the last byte of the response.
    pub service_time: CensoredTimes,
    /// From the first SYN to the established connection.
    pub connect_time: Histogram,
    /// From the established connection to the end of the TLS handshake, without the time for which bytes of the target lay
    /// unread. Empty without TLS.
    #[serde(default)]
    pub handshake_time: Histogram,
    /// Handshakes by TLS version and cipher suite.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tls_sessions: BTreeMap<String, u64>,
    /// From the actual send to the first byte of the response.
    pub first_byte_time: Histogram,
    /// From the intended to the actual send, including the wait for a free connection.
    pub lateness: Histogram,
    /// The generator's share of the lateness: the request was due and a connection was free.
    pub own_lateness: Histogram,
    /// From the intended send to the failure, for failed requests that were not censored.
    pub failure_time: Histogram,
    /// The time series, in intervals of 1 s; of 0.1 s for an open load shorter than 4 s.
    pub series: Vec<Interval>,
    /// Where the users' time went; nothing in results of earlier versions.
    #[serde(default)]
    pub users_time: UsersTime,
    /// The generator's CPU and memory use.
    pub cpu: CpuUse,
    /// What a look at this machine saw before the trial; none if there was no look, and in trials of studies, whose plan has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<Noise>,
    /// Absences of the generator's threads.
    #[serde(default)]
    pub away: Away,
    /// The time in which no absence touched the load, judged alone; none if there was no absence, or no such time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sound: Option<SoundTime>,
    /// The percentiles of `response_time` and `service_time` that are known as intervals only, because the generator may have
    /// lengthened them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own_percentiles: Vec<OwnPercentile>,
    /// The check of concurrency against rate × time.
    pub littles_law: LittlesLaw,
    /// The part of each machine, if other machines made the load.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<MachineTrial>,
    /// The iterations and steps of a script; none without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<ScriptResult>,
}

/// Largest share of the time for which a worker thread may be busy (0 to 1).
const MAX_BUSY_SHARE: f64 = 0.95;
/// The processor use of shorter trials, in seconds, is not judged, because the first wake-up dominates it.
const MIN_JUDGED_S: f64 = 0.2;
/// Smallest number of intervals of a second that can show a trend.
const MIN_SECONDS_FOR_TREND: usize = 4;
/// Smallest number of intervals of a tenth of a second that can show a trend.
const MIN_TENTHS_FOR_TREND: usize = 8;

impl HttpTrial {
    /// Requests that an interrupt of the trial cut off. The service did not lose them.
    pub(crate) fn cut_off(&self, was_interrupted: bool) -> u64 {
        if was_interrupted { self.counts.in_flight } else { 0 }
    }

    /// The share of the planned requests that failed, was never sent or stayed unanswered; see
    /// [`Trial::error_ratio`](super::Trial).
    pub(crate) fn error_ratio(&self, was_interrupted: bool) -> (f64, f64) {
        let (counts, cut_off) = (&self.counts, self.cut_off(was_interrupted));
        let scheduled = counts.scheduled.saturating_sub(cut_off);
        if scheduled == 0 {
            return (1.0, 1.0);
        }
        // In a closed load, the end of the trial may cut off a user's last request, so only a hanging one is lost. In
        // an open load, a request without an answer after the drain time is lost.
        let unanswered = if self.plan.load.is_open() { counts.in_flight } else { counts.hung };
        let lost = counts.failed + counts.never_sent + unanswered.saturating_sub(cut_off);
        let ratio =
            |lost: u64| (lost as f64 / scheduled as f64).max(self.initial_connections_refused()).min(1.0);
        (ratio(lost.saturating_sub(counts.lost_delayed + counts.never_sent_own())), ratio(lost))
    }

    /// The share of the initial connections that the target refused or closed unused (0 to 1).
    fn initial_connections_refused(&self) -> f64 {
        match &self.plan.load {
            LoadModel::Open { connections, .. } if connections.initial > 0 => {
                self.connection_errors.connect_failures() as f64 / connections.initial as f64
            }
            _ => 0.0,
        }
    }

    /// Completed requests per second, as an interval. Without its absences, the generator might have received more
    /// answers; if the generator was fully used, the rate has no upper limit.
    pub fn throughput(&self) -> Span {
        Span::of_rate(self.throughput_per_s, self.throughput_at_most_per_s, self.is_exhausted())
    }

    /// Whether the generator was fully used.
    pub fn is_exhausted(&self) -> bool {
        self.cpu.is_used_up() && self.measured_s >= MIN_JUDGED_S
    }

    /// The end and the median response time, both in seconds, of each interval in which requests were due and
    /// completed. `None` if too few intervals exist to show a trend.
    pub fn medians_over_time(&self) -> Option<Vec<(f64, f64)>> {
        let sending_s = self.plan.sending_ns()? as f64 / 1e9;
        let interval_ns = self.plan.interval_ns();
        let interval_s = interval_ns as f64 / 1e9;
        // After the last planned send the backlog only drains. The test uses the index, because the recorded end of an
        // interval may be late by a few milliseconds.
        let is_due = |index: usize| (index + 1) as f64 * interval_s <= sending_s + 0.01;
        let intervals = self.series.iter().enumerate();
        let medians: Vec<(f64, f64)> = intervals
            .filter(|(index, interval)| is_due(*index) && interval.completed > 0)
            .filter_map(|(_, interval)| Some((interval.end_s, interval.p50_us? / 1e6)))
            .collect();
        let min_intervals =
            if interval_ns < 1_000_000_000 { MIN_TENTHS_FOR_TREND } else { MIN_SECONDS_FOR_TREND };
        (medians.len() >= min_intervals).then_some(medians)
    }

    /// Adds the counts and times of another worker of the same trial. The plan and derived figures stay unchanged.
    pub fn merge(&mut self, other: &Self) {
        self.counts.merge(&other.counts);
        self.errors.merge(&other.errors);
        self.retried_errors.merge(&other.retried_errors);
        self.connection_errors.merge(&other.connection_errors);
        for (class, cause) in &other.causes {
            self.causes.entry(*class).or_insert_with(|| cause.clone());
        }
        for (&status, &n) in &other.statuses {
            *self.statuses.entry(status).or_default() += n;
        }
        for (&address, errors) in &other.failed_at {
            self.failed_at.entry(address).or_default().merge(errors);
        }
        self.response_time.merge(&other.response_time);
        self.service_time.merge(&other.service_time);
        self.connect_time.merge(&other.connect_time);
        self.handshake_time.merge(&other.handshake_time);
        for (session, n) in &other.tls_sessions {
            *self.tls_sessions.entry(session.clone()).or_default() += n;
        }
        self.first_byte_time.merge(&other.first_byte_time);
        self.lateness.merge(&other.lateness);
        self.own_lateness.merge(&other.own_lateness);
        self.failure_time.merge(&other.failure_time);
        self.users_time.merge(&other.users_time);
        self.cpu.merge(&other.cpu);
        self.away.merge(&other.away);
        self.sound = self.sound.take().or_else(|| other.sound.clone());
        match (&mut self.script, &other.script) {
            (Some(script), Some(other)) => script.merge(other),
            (none, other) => *none = other.clone(),
        }
    }

    /// Frees the memory of the histograms' empty bins, for trials that stay in memory; see [`Histogram::pack`].
    pub fn pack(&mut self) {
        self.response_time.pack();
        self.service_time.pack();
        self.connect_time.pack();
        self.handshake_time.pack();
        self.first_byte_time.pack();
        self.lateness.pack();
        self.own_lateness.pack();
        self.failure_time.pack();
        self.sound.iter_mut().for_each(|sound| sound.response_time.pack());
        self.machines.iter_mut().for_each(MachineTrial::pack);
        let steps = self.script.iter_mut().flat_map(|script| &mut script.steps);
        steps.for_each(|step| step.response_time.pack());
    }
}

/// Counts of requests and connections. `scheduled = completed + failed + in_flight + never_sent`, and
/// `sent = completed + failed - failed_unsent + in_flight + retried - retried_unsent`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counts {
    /// Planned requests.
    pub scheduled: u64,
    /// Requests whose first byte was handed to the kernel; retries count again.
    pub sent: u64,
    /// Planned requests that were not sent.
    pub never_sent: u64,
    /// The part of `never_sent` that waited for a busy connection at the end: the target was slow, or there were too few
    /// connections.
    pub never_sent_busy: u64,
    /// Requests of an open load that were due while every connection was busy, and were sent later.
    #[serde(default)]
    pub waited_busy: u64,
    /// Requests with a complete response and an expected status.
    pub completed: u64,
    /// Requests that failed, with or without a response.
    pub failed: u64,
    /// The part of `failed` that failed before a byte was sent (no connection).
    pub failed_unsent: u64,
    /// The part of `failed`, `never_sent_busy` and (for an open load) `in_flight` that was due while the generator caught
    /// up after an absence: its burst of requests may have caused the loss.
    #[serde(default)]
    pub lost_delayed: u64,
    /// Connections begun in such a burst that failed or took at least 1 ms: the burst may have filled the accept queue.
    #[serde(default)]
    pub connects_delayed: u64,
    /// Attempts that failed and were retried, and pipelined ones behind the last answer of a connection. A request is counted by
    /// the outcome of its last attempt.
    #[serde(default)]
    pub retried: u64,
    /// The part of `retried` that failed before a byte was sent.
    #[serde(default)]
    pub retried_unsent: u64,
    /// Requests sent and neither completed nor failed at the end.
    pub in_flight: u64,
    /// The part of `in_flight` that had waited for at least a second, and for twice as long as any answer of its worker took: the
    /// target hangs. The others may have been cut off.
    #[serde(default)]
    pub hung: u64,
    /// Connections established.
    pub connections_opened: u64,
    /// TLS handshakes completed.
    #[serde(default)]
    pub handshakes: u64,
    /// The part of `handshakes` that resumed an earlier session.
    #[serde(default)]
    pub handshakes_resumed: u64,
    /// Session tickets received, each of which can resume a session of TLS 1.3 once.
    #[serde(default)]
    pub session_tickets: u64,
    /// Connections established in the place of kept ones that had answered and ended by no plan of this side, because the target
    /// closed or broke them.
    pub reconnects: u64,
    /// Kept connections that the target closed between two requests, without announcing it in an answer.
    #[serde(default)]
    pub closed_idle: u64,
    /// Planned connections that this machine could not open.
    pub connections_unopened: u64,
    /// Largest number of connections open at once.
    pub connections_peak: u64,
    /// Bytes handed to the kernel, including headers; with TLS before encryption.
    pub sent_bytes: u64,
    /// Bytes received, including headers; with TLS after decryption.
    pub received_bytes: u64,
    /// Payload bytes received.
    pub received_body_bytes: u64,
}

impl Counts {
    /// Unsent requests that did not wait for a busy connection: the target did not delay them.
    pub fn never_sent_own(&self) -> u64 {
        self.never_sent - self.never_sent_busy
    }

    /// Adds another worker's counts. Peaks are added too, because the workers ran at the same time.
    pub fn merge(&mut self, other: &Self) {
        self.scheduled += other.scheduled;
        self.sent += other.sent;
        self.never_sent += other.never_sent;
        self.never_sent_busy += other.never_sent_busy;
        self.waited_busy += other.waited_busy;
        self.completed += other.completed;
        self.failed += other.failed;
        self.failed_unsent += other.failed_unsent;
        self.lost_delayed += other.lost_delayed;
        self.connects_delayed += other.connects_delayed;
        self.retried += other.retried;
        self.retried_unsent += other.retried_unsent;
        self.in_flight += other.in_flight;
        self.hung += other.hung;
        self.connections_opened += other.connections_opened;
        self.handshakes += other.handshakes;
        self.handshakes_resumed += other.handshakes_resumed;
        self.session_tickets += other.session_tickets;
        self.reconnects += other.reconnects;
        self.closed_idle += other.closed_idle;
        self.connections_unopened += other.connections_unopened;
        self.connections_peak += other.connections_peak;
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        self.received_body_bytes += other.received_body_bytes;
    }
}

/// An interval of the time series.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// End of the interval, in seconds after the start.
    pub end_s: f64,
    /// Requests sent in the interval.
    pub sent: u64,
    /// Requests completed in the interval.
    pub completed: u64,
    /// Requests failed in the interval.
    pub failed: u64,
    /// Open connections at the end of the interval.
    pub open_connections: u64,
    /// Requests in flight at the end of the interval.
    pub in_flight: u64,
    /// Median response time of the completed requests, in microseconds; none if there are none.
    pub p50_us: Option<f64>,
    /// 99th percentile of response time, in microseconds.
    pub p99_us: Option<f64>,
    /// Largest response time, in microseconds.
    pub max_us: Option<f64>,
}

/// The generator's use of CPU and memory.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuUse {
    /// User CPU time of all processes of the generator, in seconds.
    pub user_s: f64,
    /// System CPU time of all processes of the generator, in seconds.
    pub system_s: f64,
    /// Time that worker threads polled for the next send, in seconds; does not count as busy.
    pub spin_s: f64,
    /// CPU time of the busiest worker thread without polling, relative to the elapsed time (0 to 1).
    pub busiest_thread_ratio: f64,
    /// Share of the time in which the loop of the busiest worker thread was not idle (0 to 1). Exceeds the CPU time if other
    /// processes took the processor.
    pub busiest_loop_ratio: f64,
    /// Time that worker threads were ready to run and waited for a processor, in seconds, if the kernel reports it.
    pub runqueue_wait_s: Option<f64>,
    /// Peak resident memory, summed over the processes, in bytes.
    pub max_resident_bytes: u64,
    /// Number of worker threads in all processes.
    pub threads: u32,
}

impl CpuUse {
    /// Whether a worker thread had no time left. Above this limit, requests queue in the generator.
    pub fn is_used_up(&self) -> bool {
        self.busiest_thread_ratio.max(self.busiest_loop_ratio) > MAX_BUSY_SHARE
    }

    /// Adds the use of another process.
    pub fn merge(&mut self, other: &Self) {
        self.user_s += other.user_s;
        self.system_s += other.system_s;
        self.spin_s += other.spin_s;
        self.busiest_thread_ratio = self.busiest_thread_ratio.max(other.busiest_thread_ratio);
        self.busiest_loop_ratio = self.busiest_loop_ratio.max(other.busiest_loop_ratio);
        self.runqueue_wait_s = match (self.runqueue_wait_s, other.runqueue_wait_s) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
        self.max_resident_bytes += other.max_resident_bytes;
        self.threads += other.threads;
    }
}

/// Little's law, L = λ · W, with both sides measured independently: L as the integral of the requests in flight over time,
/// λ · W from the recorded service times.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LittlesLaw {
    /// Mean requests in flight (L).
    pub mean_in_flight: f64,
    /// Rate of requests that ended or were cut off, times their mean service time (λ · W).
    pub rate_times_time: f64,
}

#[cfg(test)]
mod tests;
