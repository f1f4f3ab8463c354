//! Counts and times of one worker, recorded as requests run.

mod connections;
mod missed;
mod times;
mod unanswered;
mod users_time;
mod windows;

use std::{mem, net::SocketAddr, sync::mpsc};

use http1::Response;
use record::{Away, Counts, ErrorClass, Fault, Histogram, HttpPlan, Origin};

use crate::{
    absence::MIN_ABSENCE_NS,
    tick::Tick,
    worker_result::{SourceTotals, WorkerResult},
};
use missed::Loss;
pub use times::{InFlight, PendingRetry, ReceiveTime};
use users_time::UsersNs;
use windows::Windows;

/// Builds a worker's [`WorkerResult`] and sends a [`Tick`] for each interval. All times are on the wire's clock.
pub struct Recorder {
    result: WorkerResult,
    worker: u32,
    ticks: mpsc::Sender<Tick>,
    /// Histograms of earlier ticks, cleared and returned, so that a tick allocates nothing.
    spare_histograms: mpsc::Receiver<Box<Histogram>>,
    interval: Box<Histogram>,
    /// The longest time to an answer that was not a success.
    longest_failed_ns: u64,
    /// The status of the last answers, and how many of them are not yet in the map.
    usual_status: (u16, u64),
    t0_ns: u64,
    interval_ns: u64,
    next_tick: u64,
    /// Requests sent, completed and failed when the last interval ended.
    last_tick_counts: (u64, u64, u64),
    open: u64,
    in_flight: u64,
    /// Sum of the times at which requests left, less that of the times at which they were sent, modulo 2^64.
    in_flight_ns: u64,
    assigned_on_time: u64,
    sent_on_time: u64,
    fault: Option<Fault>,
    since_fault: u64,
    users: UsersNs,
    windows: Windows,
    loss: Loss,
    /// Whether each answer must be recorded for the sound windows or the goals.
    is_watched: bool,
}

impl Recorder {
    /// A recorder that sends its ticks to `ticks` and takes cleared histograms from `spare_histograms`.
    pub fn new(
        worker: u32,
        ticks: mpsc::Sender<Tick>,
        spare_histograms: mpsc::Receiver<Box<Histogram>>,
        plan: &HttpPlan,
    ) -> Self {
        Self {
            result: WorkerResult::default(),
            worker,
            ticks,
            spare_histograms,
            interval: Box::default(),
            longest_failed_ns: 0,
            usual_status: (200, 0),
            t0_ns: 0,
            interval_ns: plan.interval_ns(),
            next_tick: 0,
            last_tick_counts: (0, 0, 0),
            open: 0,
            in_flight: 0,
            in_flight_ns: 0,
            assigned_on_time: 0,
            sent_on_time: 0,
            fault: plan.fault,
            since_fault: 0,
            users: UsersNs::default(),
            windows: Windows::of(plan),
            loss: Loss::of(plan),
            is_watched: plan.decides.is_some(),
        }
    }

    /// Starts the trial at `t0_ns`. `users_until_ns`: when the time of its users ends.
    pub(crate) fn start(&mut self, t0_ns: u64, users_until_ns: u64) {
        self.users.until_ns = users_until_ns;
        self.t0_ns = t0_ns;
    }

    /// The time of the users, to add to.
    #[inline]
    pub(crate) fn users(&mut self) -> &mut UsersNs {
        &mut self.users
    }

    /// The time at which the current interval ends.
    #[inline]
    pub(crate) fn tick_due_ns(&self) -> u64 {
        self.t0_ns + (self.next_tick + 1) * self.interval_ns
    }

    /// Ends the current interval and sends its tick.
    pub(crate) fn tick(&mut self, now_ns: u64) {
        let fresh = self.spare_histograms.try_recv().unwrap_or_default();
        let Counts { sent, completed, failed, .. } = self.result.http.counts;
        let (sent_before, completed_before, failed_before) = self.last_tick_counts;
        let tick = Tick {
            worker: self.worker,
            index: self.next_tick,
            // A worker without requests ends before the start.
            end_ns: now_ns.saturating_sub(self.t0_ns),
            sent: sent - sent_before,
            completed: completed - completed_before,
            failed: failed - failed_before,
            open_connections: self.open,
            in_flight: self.in_flight,
            response_time: mem::replace(&mut self.interval, fresh),
        };
        self.last_tick_counts = (sent, completed, failed);
        self.next_tick += 1;
        // Sending fails only if the trial was cancelled, because the receiver is gone then.
        let _ = self.ticks.send(tick);
    }

    /// Records an assignment. `own_lateness_ns`: time since the request was due and a connection was free.
    #[inline]
    pub(crate) fn assigned(&mut self, own_lateness_ns: u64) {
        // In a closed load without pauses every request is on time: a counter is cheaper than the histogram.
        if own_lateness_ns == 0 {
            self.assigned_on_time += 1;
        } else {
            self.result.http.own_lateness.record_ns(own_lateness_ns);
        }
    }

    /// Records that the first byte of a request was sent.
    #[inline]
    pub(crate) fn sent(&mut self, request: &InFlight, is_retry: bool) {
        self.result.http.counts.sent += 1;
        // A retry leaves after its backoff, so that delay belongs to the response time, not to the lateness.
        if !is_retry {
            match request.sent_ns.saturating_sub(request.intended_ns) {
                0 => self.sent_on_time += 1,
                late_ns => self.result.http.lateness.record_ns(late_ns),
            }
        }
        self.in_flight += 1;
        self.in_flight_ns = self.in_flight_ns.wrapping_sub(request.sent_ns);
    }

    /// Counts bytes that the kernel accepted for sending.
    #[inline]
    pub(crate) fn sent_bytes(&mut self, bytes: usize) {
        self.result.http.counts.sent_bytes += bytes as u64;
    }

    /// Counts received bytes.
    #[inline]
    pub(crate) fn received_bytes(&mut self, bytes: usize) {
        self.result.http.counts.received_bytes += bytes as u64;
    }

    /// Records a complete answer. `failure`: the class if it is not a success.
    #[inline]
    pub(crate) fn answered(
        &mut self,
        request: &InFlight,
        response: &Response,
        failure: Option<ErrorClass>,
        first_byte_ns: u64,
        time: ReceiveTime,
    ) {
        self.count_answer(response);
        if let Some(class) = failure {
            let took_ns = time.received_ns.saturating_sub(request.sent_ns);
            self.longest_failed_ns = self.longest_failed_ns.max(took_ns);
            let is_refused = class == ErrorClass::Status && refuses_what_is_asked(response.status);
            let own_ns = if is_refused { 0 } else { request.own_ns };
            self.failed(&InFlight { own_ns, ..*request }, class, time.read_ns);
            return;
        }
        self.left(time.read_ns);
        self.result.unread_ns += time.read_ns.saturating_sub(time.received_ns) as f64;
        self.result.last_answer_ns =
            time.received_ns.saturating_sub(self.t0_ns).max(self.result.last_answer_ns);
        let mut copies = 1;
        if let Some(fault) = self.fault {
            copies = self.copies_by_fault(fault);
            self.result.http.counts.completed += u64::from(copies.max(1)) - 1;
        }
        self.result.http.counts.completed += 1;
        for _ in 0..copies {
            let response_ns = time.received_ns.saturating_sub(request.intended_ns);
            let own_service_ns = request.own_service_ns + time.uncertainty_ns;
            self.interval.record_ns(response_ns);
            self.result.http.response_time.lengthened_ns(response_ns, request.own_ns + own_service_ns);
            let service_ns = time.received_ns.saturating_sub(request.sent_ns);
            self.result.http.service_time.record_ns(service_ns, request.own_queue_ns + own_service_ns);
            self.result.http.first_byte_time.record_ns(first_byte_ns.saturating_sub(request.sent_ns));
        }
        if self.is_watched {
            self.note_answer(request, time);
        }
    }

    /// Records an answer for the sound windows and for the loss that the goals allow.
    #[inline(never)]
    fn note_answer(&mut self, request: &InFlight, time: ReceiveTime) {
        let response_ns = time.received_ns.saturating_sub(request.intended_ns);
        self.windows.ended(request.intended_ns, Some(response_ns));
        self.loss.answered(response_ns, request.own_ns + request.own_service_ns + time.uncertainty_ns);
    }

    /// Records a failed request. An unsent request that fails because of this machine counts as never sent.
    pub(crate) fn failed(&mut self, request: &InFlight, class: ErrorClass, now_ns: u64) {
        self.windows.ended(request.intended_ns, None);
        let sent = request.sent_ns != 0;
        if class.origin() == Origin::Local && !sent {
            self.result.http.counts.never_sent += 1;
            return;
        }
        self.result.http.errors.add(class, 1);
        self.result.http.counts.failed += 1;
        self.loss.failed(request, class);
        self.result.http.counts.failed_unsent += u64::from(!sent);
        self.result.http.counts.lost_delayed += u64::from(request.own_ns >= MIN_ABSENCE_NS);
        let censored = class.is_timeout();
        if censored {
            self.result.http.response_time.record_censored_ns(now_ns - request.intended_ns, request.own_ns);
        } else {
            self.result.http.failure_time.record_ns(now_ns - request.intended_ns);
        }
        if sent {
            self.left(now_ns);
            if censored {
                let service_ns = now_ns - request.sent_ns;
                self.result.http.service_time.record_censored_ns(service_ns, request.own_queue_ns);
            } else {
                self.result.failed_in_flight_ns += (now_ns - request.sent_ns) as f64;
            }
        }
    }

    /// Records an answer to an attempt that is retried.
    pub(crate) fn refused_attempt(&mut self, response: &Response) {
        self.count_answer(response);
    }

    /// Records a failed attempt of a request that is retried.
    pub(crate) fn attempt_failed(&mut self, request: &InFlight, now_ns: u64) {
        if request.sent_ns != 0 {
            self.left(now_ns);
            self.result.failed_in_flight_ns += (now_ns - request.sent_ns) as f64;
        }
    }

    /// Records a retry. `own_lateness_ns`: time since the retry was due and the connection was free.
    pub(crate) fn retried(&mut self, retry: &PendingRetry, own_lateness_ns: u64) {
        self.result.http.retried_errors.add(retry.class, 1);
        self.result.http.counts.retried += 1;
        self.result.http.counts.retried_unsent += u64::from(!retry.was_sent);
        self.assigned(own_lateness_ns);
    }

    /// Records an attempt that was not answered because an earlier request ended its connection. It counts as a retry only if
    /// it was sent.
    pub(crate) fn repeated(&mut self, request: &InFlight, class: ErrorClass, now_ns: u64) {
        if request.sent_ns != 0 {
            self.attempt_failed(request, now_ns);
            self.result.http.retried_errors.add(class, 1);
            self.result.http.counts.retried += 1;
        }
    }

    /// Counts a kept connection that the target closed while no request was on it.
    pub(crate) fn closed_idle(&mut self) {
        self.result.http.counts.closed_idle += 1;
    }

    /// Records the failure of a request whose pending retry is dropped.
    pub(crate) fn given_up(&mut self, retry: &PendingRetry, now_ns: u64) {
        self.windows.ended(retry.intended_ns, None);
        self.result.http.errors.add(retry.class, 1);
        self.result.http.counts.failed += 1;
        self.result.http.counts.failed_unsent += u64::from(!retry.was_sent);
        self.result.http.counts.lost_delayed += u64::from(retry.own_ns >= MIN_ABSENCE_NS);
        self.result.http.failure_time.record_ns(now_ns.saturating_sub(retry.intended_ns));
    }

    /// Counts a request that waited because every connection was busy.
    pub(crate) fn waited_busy(&mut self) {
        self.result.http.counts.waited_busy += 1;
    }

    /// Counts an error of a connection that belongs to no request.
    pub(crate) fn connection_error(&mut self, class: ErrorClass) {
        self.result.http.connection_errors.add(class, 1);
    }

    /// Notes the cause of the first failure of a class.
    pub(crate) fn caused(&mut self, class: ErrorClass, cause: impl FnOnce() -> String) {
        self.result.http.causes.entry(class).or_insert_with(cause);
    }

    /// Adds the time by which the generator delayed a user's next request.
    #[inline]
    pub(crate) fn user_delayed(&mut self, by_ns: u64) {
        self.result.users_delayed_ns += by_ns as f64;
    }

    /// Records the end of sending. `delay_ns`: upper bound of the delay by absences of requests sent at that time.
    pub(crate) fn sending_ended(&mut self, now_ns: u64, delay_ns: u64) {
        self.result.delay_at_end_ns = delay_ns;
        self.result.sending_ns = now_ns - self.t0_ns;
        self.users.is_sending_over = true;
        self.result.completed_in_time = self.result.http.counts.completed;
    }

    /// Counts failures by the address of the connection.
    pub(crate) fn failed_at(&mut self, address: SocketAddr, class: ErrorClass, n: u64) {
        self.result.http.failed_at.entry(address).or_default().add(class, n);
    }

    /// The longest time from sending a request to its answer so far, including answers that are failures.
    pub(crate) fn longest_service_ns(&self) -> u64 {
        self.result.http.service_time.observed.max_ns().max(self.longest_failed_ns)
    }

    /// Adds the time that a user's complete cycles took.
    pub(crate) fn user_span(&mut self, span_ns: u64) {
        self.result.users_span_ns += span_ns as f64;
        self.result.users += 1;
    }

    /// Number of requests that were sent and have ended.
    pub(crate) fn ended(&self) -> u64 {
        self.result.http.counts.sent - self.in_flight
    }

    /// Ends the trial: sends the last, partial interval and returns the worker's result.
    pub(crate) fn finish(
        mut self,
        now_ns: u64,
        totals: SourceTotals,
        interrupted: bool,
        away: Away,
    ) -> WorkerResult {
        let all_ns = self.in_flight_ns.wrapping_add(self.in_flight.wrapping_mul(now_ns));
        self.result.in_flight_integral_ns = all_ns as f64;
        self.flush_statuses();
        self.tick(now_ns);
        self.result.http.own_lateness.record_n_ns(0, self.assigned_on_time);
        self.result.http.lateness.record_n_ns(0, self.sent_on_time);
        self.result.http.counts.scheduled = totals.scheduled;
        self.result.http.counts.never_sent += totals.left_out;
        self.result.planned = totals.planned;
        self.result.interrupted = interrupted;
        self.result.http.away = away;
        self.result.http.users_time = self.users.total();
        self.result.opened_no_more = self.has_missed_all_goals();
        self.result.http.sound = self.windows.total();
        self.result.elapsed_ns = now_ns - self.t0_ns;
        self.result
    }

    /// A sent request is no longer in flight.
    #[inline]
    fn left(&mut self, now_ns: u64) {
        self.in_flight -= 1;
        self.in_flight_ns = self.in_flight_ns.wrapping_add(now_ns);
    }

    #[inline]
    fn count_answer(&mut self, response: &Response) {
        self.result.http.counts.received_body_bytes += response.body_bytes;
        // Nearly all answers have the same status, and a counter is cheaper than the map.
        if response.status == self.usual_status.0 {
            self.usual_status.1 += 1;
        } else {
            self.flush_statuses();
            self.usual_status = (response.status, 1);
        }
    }

    fn flush_statuses(&mut self) {
        let (status, count) = &mut self.usual_status;
        if *count > 0 {
            *self.result.http.statuses.entry(*status).or_default() += mem::take(count);
        }
    }

    fn copies_by_fault(&mut self, fault: Fault) -> u32 {
        let (every, copies) = match fault {
            Fault::DropSamples { every } => (every, 0),
            Fault::DoubleCount { every } => (every, 2),
            _ => return 1,
        };
        self.since_fault += 1;
        if self.since_fault.is_multiple_of(every) { copies } else { 1 }
    }
}

/// Whether a status refuses a request for what it asks (RFC 9110, 15.5), so that no burst of other requests can have caused it. Other
/// requests can cause 403 (limits of rates), 408, 409, 412, 423, 425, 429 and 5xx.
fn refuses_what_is_asked(status: u16) -> bool {
    (400..500).contains(&status) && !matches!(status, 403 | 408 | 409 | 412 | 423 | 425 | 429)
}

#[cfg(test)]
mod tests;
