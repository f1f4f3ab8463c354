//! How a worker writes down what happens.

mod times;

use std::sync::mpsc;

use http1::Response;
use record::{Away, Counts, ErrorClass, Fault, Histogram, HttpPlan, Origin};

use crate::{
    absence::{SHORTEST_NS, UnderWay},
    part::Part,
    tick::Tick,
};
pub use times::{Arrival, InFlight, Waiting};

/// Keeps a worker's [`Part`] as things happen. All times are of the wire's clock.
pub struct Book {
    part: Part,
    worker: u32,
    ticks: mpsc::Sender<Tick>,
    /// Used histograms come back empty, so that ticking allocates nothing.
    spare: mpsc::Receiver<Box<Histogram>>,
    interval: Box<Histogram>,
    ok: u64,
    ok_status: u16,
    t0_ns: u64,
    interval_ns: u64,
    next_tick: u64,
    /// Sent, completed and failed when the last interval ended.
    ticked: (u64, u64, u64),
    open: u64,
    in_flight: u64,
    changed_ns: u64,
    given_on_time: u64,
    sent_on_time: u64,
    fault: Option<Fault>,
    since_fault: u64,
}

impl Book {
    /// An empty book that hands in a [`Tick`] for each interval of the plan, and gets used histograms back, empty.
    pub fn new(
        worker: u32,
        ticks: mpsc::Sender<Tick>,
        spare: mpsc::Receiver<Box<Histogram>>,
        plan: &HttpPlan,
    ) -> Self {
        Self {
            part: Part::default(),
            worker,
            ticks,
            spare,
            interval: Box::default(),
            ok: 0,
            ok_status: 200,
            t0_ns: 0,
            interval_ns: plan.interval_ns(),
            next_tick: 0,
            ticked: (0, 0, 0),
            open: 0,
            in_flight: 0,
            changed_ns: 0,
            given_on_time: 0,
            sent_on_time: 0,
            fault: plan.fault,
            since_fault: 0,
        }
    }

    /// The trial starts.
    pub fn start(&mut self, t0_ns: u64) {
        (self.t0_ns, self.changed_ns) = (t0_ns, t0_ns);
    }

    /// When the next tick is due.
    #[inline]
    pub fn tick_due_ns(&self) -> u64 {
        self.t0_ns + (self.next_tick + 1) * self.interval_ns
    }

    /// Hands in the interval that ends now.
    pub fn tick(&mut self, now_ns: u64) {
        let fresh = self.spare.try_recv().unwrap_or_default();
        let Counts { sent, completed, failed, .. } = self.part.http.counts;
        let (sent_before, completed_before, failed_before) = self.ticked;
        let tick = Tick {
            worker: self.worker,
            index: self.next_tick,
            end_ns: now_ns - self.t0_ns,
            sent: sent - sent_before,
            completed: completed - completed_before,
            failed: failed - failed_before,
            open_connections: self.open,
            in_flight: self.in_flight,
            response_time: std::mem::replace(&mut self.interval, fresh),
        };
        self.ticked = (sent, completed, failed);
        self.next_tick += 1;
        // Nobody listens any more when the trial is being thrown away.
        let _ = self.ticks.send(tick);
    }

    /// A connection was made or refused that was begun while requests may have been delayed.
    pub fn connect_delayed(&mut self) {
        self.part.http.counts.connects_delayed += 1;
    }

    /// A connection was made.
    pub fn connected(&mut self, took_ns: u64, again: bool) {
        self.part.http.connect_time.record_ns(took_ns);
        self.part.http.counts.connections_opened += 1;
        self.part.http.counts.reconnects += u64::from(again);
        self.open += 1;
        self.part.http.counts.connections_peak = self.part.http.counts.connections_peak.max(self.open);
    }

    /// A connection is no more.
    pub fn disconnected(&mut self) {
        self.open -= 1;
    }

    /// A request was given to a connection, so long after it could have been.
    #[inline]
    pub fn assigned(&mut self, own_lateness_ns: u64) {
        // In a closed load without pauses every request is on time: count those apart.
        if own_lateness_ns == 0 {
            self.given_on_time += 1;
        } else {
            self.part.http.own_lateness.record_ns(own_lateness_ns);
        }
    }

    /// The first byte of a request went to the kernel.
    #[inline]
    pub fn sent(&mut self, request: &InFlight, again: bool) {
        self.part.http.counts.sent += 1;
        if again {
            // It left when its wait was over; that the plan wanted it sent long before shows in its response time.
            self.flight_changed(request.sent_ns);
            self.in_flight += 1;
            return;
        }
        match request.sent_ns.saturating_sub(request.intended_ns) {
            0 => self.sent_on_time += 1,
            late_ns => self.part.http.lateness.record_ns(late_ns),
        }
        self.flight_changed(request.sent_ns);
        self.in_flight += 1;
    }

    /// Bytes went to the kernel.
    #[inline]
    pub fn sent_bytes(&mut self, bytes: usize) {
        self.part.http.counts.sent_bytes += bytes as u64;
    }

    /// Bytes came.
    #[inline]
    pub fn received_bytes(&mut self, bytes: usize) {
        self.part.http.counts.received_bytes += bytes as u64;
    }

    /// A sent request was answered whole. `expected` says whether the status was a success.
    #[inline]
    pub fn answered(
        &mut self,
        request: &InFlight,
        response: &Response,
        expected: bool,
        first_byte_ns: u64,
        arrival: Arrival,
    ) {
        self.count_answer(response);
        if !expected {
            self.failed(request, ErrorClass::Status, arrival.read_ns);
            return;
        }
        self.flight_changed(arrival.read_ns);
        self.in_flight -= 1;
        self.part.unread_ns += arrival.read_ns.saturating_sub(arrival.ns) as f64;
        self.part.last_answer_ns = arrival.ns.saturating_sub(self.t0_ns).max(self.part.last_answer_ns);
        let mut copies = 1;
        if let Some(fault) = self.fault {
            copies = self.copies_under(fault);
            self.part.http.counts.completed += u64::from(copies.max(1)) - 1;
        }
        self.part.http.counts.completed += 1;
        for _ in 0..copies {
            let response_ns = arrival.ns.saturating_sub(request.intended_ns);
            let own_service_ns = request.own_service_ns + arrival.earlier_ns;
            self.interval.record_ns(response_ns);
            self.part.http.response_time.lengthened_ns(response_ns, request.own_ns + own_service_ns);
            let service_ns = arrival.ns.saturating_sub(request.sent_ns);
            self.part.http.service_time.record_ns(service_ns, request.own_queue_ns + own_service_ns);
            self.part.http.first_byte_time.record_ns(first_byte_ns.saturating_sub(request.sent_ns));
        }
    }

    /// A request failed, sent or not. Failures of this machine are no failures of the request: it was
    /// never sent.
    pub fn failed(&mut self, request: &InFlight, class: ErrorClass, now_ns: u64) {
        let sent = request.sent_ns != 0;
        if class.origin() == Origin::Local && !sent {
            self.part.http.counts.never_sent += 1;
            return;
        }
        self.part.http.errors.add(class, 1);
        self.part.http.counts.failed += 1;
        self.part.http.counts.failed_unsent += u64::from(!sent);
        self.part.http.counts.lost_delayed += u64::from(request.own_ns >= SHORTEST_NS);
        let censored = matches!(class, ErrorClass::Timeout | ErrorClass::ConnectTimeout);
        if censored {
            self.part.http.response_time.record_censored_ns(now_ns - request.intended_ns, request.own_ns);
        } else {
            self.part.http.failure_time.record_ns(now_ns - request.intended_ns);
        }
        if sent {
            self.flight_changed(now_ns);
            self.in_flight -= 1;
            if censored {
                let service_ns = now_ns - request.sent_ns;
                self.part.http.service_time.record_censored_ns(service_ns, request.own_queue_ns);
            } else {
                self.part.failed_in_flight_ns += (now_ns - request.sent_ns) as f64;
            }
        }
    }

    /// A request was answered, and will be made again.
    pub fn refused_for_now(&mut self, response: &Response) {
        self.count_answer(response);
    }

    /// An attempt failed, and its request waits to be made again.
    pub fn attempt_failed(&mut self, request: &InFlight, now_ns: u64) {
        if request.sent_ns != 0 {
            self.flight_changed(now_ns);
            self.in_flight -= 1;
            self.part.failed_in_flight_ns += (now_ns - request.sent_ns) as f64;
        }
    }

    /// A request whose last attempt failed is made again, so long after it could have been.
    pub fn retried(&mut self, waiting: &Waiting, own_lateness_ns: u64) {
        self.part.http.retried_errors.add(waiting.class, 1);
        self.part.http.counts.retried += 1;
        self.part.http.counts.retried_unsent += u64::from(!waiting.sent);
        self.assigned(own_lateness_ns);
    }

    /// A request whose last attempt failed is not made again after all.
    pub fn given_up(&mut self, waiting: &Waiting, now_ns: u64) {
        self.part.http.errors.add(waiting.class, 1);
        self.part.http.counts.failed += 1;
        self.part.http.counts.failed_unsent += u64::from(!waiting.sent);
        self.part.http.counts.lost_delayed += u64::from(waiting.own_ns >= SHORTEST_NS);
        self.part.http.failure_time.record_ns(now_ns.saturating_sub(waiting.intended_ns));
    }

    /// A sent request is left unanswered because the trial ends, which in an open load means that it is lost.
    pub fn left_in_flight(&mut self, request: &InFlight, is_lost: bool, now_ns: u64) {
        self.flight_changed(now_ns);
        self.in_flight -= 1;
        self.part.http.counts.in_flight += 1;
        self.part.http.counts.lost_delayed += u64::from(is_lost && request.own_ns >= SHORTEST_NS);
        let response_ns = now_ns.saturating_sub(request.intended_ns);
        self.part.http.response_time.record_censored_ns(response_ns, request.own_ns);
        self.part.http.service_time.record_censored_ns(now_ns - request.sent_ns, request.own_queue_ns);
    }

    /// Planned requests are not sent through a fault of this machine.
    pub fn never_sent(&mut self, n: u64) {
        self.part.http.counts.never_sent += n;
    }

    /// A request due since `intended_ns` is not sent because every connection stayed busy, which may be our own doing
    /// for `own_ns`.
    pub fn never_sent_busy(&mut self, intended_ns: u64, own_ns: u64, now_ns: u64) {
        self.part.http.counts.never_sent += 1;
        self.part.http.counts.never_sent_busy += 1;
        self.part.http.counts.lost_delayed += u64::from(own_ns >= SHORTEST_NS);
        self.part.http.response_time.record_censored_ns(now_ns.saturating_sub(intended_ns), own_ns);
    }

    /// A request was due while every connection was busy, and now has one.
    pub fn waited_busy(&mut self) {
        self.part.http.counts.waited_busy += 1;
    }

    /// Something went wrong with a connection that no request can be blamed for.
    pub fn connection_error(&mut self, class: ErrorClass) {
        self.part.http.connection_errors.add(class, 1);
    }

    /// This machine could not open a planned connection.
    pub fn unopened(&mut self, class: ErrorClass) {
        self.part.http.counts.connections_unopened += 1;
        self.connection_error(class);
    }

    /// A user's next request begins so much later than the user would have begun it.
    #[inline]
    pub fn user_delayed(&mut self, by_ns: u64) {
        self.part.users_delayed_ns += by_ns as f64;
    }

    /// Sending is over, while requests may be delayed by so much.
    pub fn sending_ended(&mut self, now_ns: u64, delay_ns: u64) {
        self.part.delay_at_end_ns = delay_ns;
        self.part.sending_ns = now_ns - self.t0_ns;
        self.part.completed_in_time = self.part.http.counts.completed;
    }

    /// A user's whole cycles took so long.
    pub fn user_span(&mut self, span_ns: u64) {
        self.part.users_span_ns += span_ns as f64;
        self.part.users += 1;
    }

    /// What is under way now.
    pub fn under_way(&self) -> UnderWay {
        let integral_ns = self.part.in_flight_integral_ns;
        UnderWay { in_flight: self.in_flight, integral_ns, sent: self.part.http.counts.sent }
    }

    /// Closes the book: the last, partial interval is handed in.
    pub fn close(
        mut self,
        now_ns: u64,
        scheduled: u64,
        planned: Option<u64>,
        interrupted: bool,
        away: Away,
    ) -> Part {
        self.flight_changed(now_ns);
        self.flush_statuses();
        self.tick(now_ns);
        self.part.http.own_lateness.record_n_ns(0, self.given_on_time);
        self.part.http.lateness.record_n_ns(0, self.sent_on_time);
        self.part.http.counts.scheduled = scheduled;
        self.part.planned = planned;
        self.part.interrupted = interrupted;
        self.part.http.away = away;
        self.part.elapsed_ns = now_ns - self.t0_ns;
        self.part
    }

    /// The integral of requests in flight, up to now.
    #[inline]
    fn flight_changed(&mut self, now_ns: u64) {
        self.part.in_flight_integral_ns +=
            self.in_flight as f64 * now_ns.saturating_sub(self.changed_ns) as f64;
        self.changed_ns = self.changed_ns.max(now_ns);
    }

    #[inline]
    fn count_answer(&mut self, response: &Response) {
        self.part.http.counts.received_body_bytes += response.body_bytes;
        // Nearly all answers have the same status: count those apart from the map.
        if response.status == self.ok_status {
            self.ok += 1;
        } else {
            self.flush_statuses();
            (self.ok_status, self.ok) = (response.status, 1);
        }
    }

    fn flush_statuses(&mut self) {
        if self.ok > 0 {
            *self.part.http.statuses.entry(self.ok_status).or_default() += self.ok;
            self.ok = 0;
        }
    }

    fn copies_under(&mut self, fault: Fault) -> u32 {
        let (every, copies) = match fault {
            Fault::DropSamples { every } => (every, 0),
            Fault::DoubleCount { every } => (every, 2),
            _ => return 1,
        };
        self.since_fault += 1;
        if self.since_fault.is_multiple_of(every) { copies } else { 1 }
    }
}
