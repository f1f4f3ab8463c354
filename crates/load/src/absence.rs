//! Absences: when a worker's loop was stopped or had no processor, and for how long they delay requests.
//!
//! After an absence the loop sends and reads late. Reading late does not distort a time, because times end when the kernel
//! received the answer. Sending late does: all requests that became due during the absence leave in a burst, wait for
//! connections, and may queue in the target.
//!
//! Queueing theory gives the bound for work-conserving queues (Lindley 1952): arrivals that are delayed by at most *d*
//! leave at most *d* later. So absences of *d* in all make no request more than *d* longer, and the effect ends once as few
//! requests are in flight as before.

use record::Away;

/// Shorter gaps are the noise of a virtual processor, in nanoseconds.
pub(crate) const MIN_ABSENCE_NS: u64 = 250_000;
/// Absences shorter than this, in nanoseconds, delay only the requests that were due during them. A loop without absences
/// takes as long to process answers that arrive together.
pub(crate) const MIN_DISTURBING_NS: u64 = 1_000_000;
/// Time without absences, in nanoseconds, after which the mean number of requests in flight is known.
const MIN_BASELINE_NS: u64 = 20_000_000;

/// The absences of one worker.
#[derive(Debug, Default)]
pub(crate) struct Absences {
    away: Away,
    /// Start and end of the last counted absence, and the end of the one before.
    counted_from_ns: u64,
    counted_until_ns: u64,
    free_from_ns: u64,
    /// By how much requests that are sent now may be delayed.
    delay_ns: u64,
    baseline: Baseline,
    /// Without a baseline: the effect is over once this number of requests have ended.
    recovers_at: Option<u64>,
    /// Requests that had been sent at the last check of whether the effect is over; `u64::MAX` after an absence.
    sent_before: u64,
}

/// Requests in flight while nothing was delayed.
#[derive(Debug, Default)]
struct Baseline {
    /// Start of the current undelayed period, and the integral of requests in flight at that time.
    since_ns: u64,
    since_integral_ns: f64,
    /// Integral and length of all undelayed periods.
    integral_ns: f64,
    lasted_ns: u64,
    /// Requests in flight when the absence began.
    in_flight: u64,
}

/// Requests in flight and sent at one point in time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoadState {
    /// Requests in flight.
    pub in_flight: u64,
    /// Integral over time of the requests in flight, in request-nanoseconds.
    pub integral_ns: f64,
    /// Requests sent so far.
    pub sent: u64,
}

impl Absences {
    /// No absences; the trial starts at `t0_ns`.
    pub(crate) fn new(t0_ns: u64) -> Self {
        let baseline = Baseline { since_ns: t0_ns, ..Baseline::default() };
        Self {
            counted_from_ns: t0_ns,
            counted_until_ns: t0_ns,
            free_from_ns: t0_ns,
            baseline,
            ..Self::default()
        }
    }

    /// Restarts the baseline at the first answer: before it, the load is not yet in its steady state.
    pub(crate) fn first_answered(&mut self, now_ns: u64, load_state: LoadState) {
        if self.delay_ns == 0 {
            self.baseline = Baseline {
                since_ns: now_ns,
                since_integral_ns: load_state.integral_ns,
                ..Baseline::default()
            };
        }
    }

    /// Records an absence of `by_ns` that ends now. Time that was counted before is not counted again: false if all of it was.
    pub(crate) fn record(&mut self, now_ns: u64, by_ns: u64, load_state: LoadState) -> bool {
        // An absence may be noticed in parts, the last part first.
        let from_ns = now_ns.saturating_sub(by_ns).max(self.free_from_ns);
        let fresh_ns = now_ns.saturating_sub(from_ns.max(self.counted_until_ns))
            + self.counted_from_ns.saturating_sub(from_ns);
        if by_ns < MIN_ABSENCE_NS || fresh_ns == 0 {
            return false;
        }
        self.away.times += u64::from(from_ns > self.counted_until_ns || fresh_ns >= MIN_ABSENCE_NS);
        self.away.total_s += fresh_ns as f64 / 1e9;
        self.away.longest_s = self.away.longest_s.max(by_ns as f64 / 1e9);
        if from_ns > self.counted_until_ns {
            (self.free_from_ns, self.counted_from_ns) = (self.counted_until_ns, from_ns);
        }
        self.counted_from_ns = self.counted_from_ns.min(from_ns);
        self.counted_until_ns = now_ns;
        if by_ns < MIN_DISTURBING_NS {
            return true;
        }
        if self.delay_ns == 0 {
            self.baseline.add(now_ns, load_state);
        }
        self.delay_ns += fresh_ns;
        // Requests that leave right after the absence are late themselves.
        (self.recovers_at, self.sent_before) = (None, u64::MAX);
        true
    }

    /// End of the last absence.
    #[inline]
    pub(crate) fn counted_until_ns(&self) -> u64 {
        self.counted_until_ns
    }

    /// Upper bound of the delay of a request that is sent now, in nanoseconds.
    #[inline]
    pub(crate) fn delay_ns(&self) -> u64 {
        self.delay_ns
    }

    /// Whether the number of requests that are usually in flight is known.
    pub(crate) fn has_baseline(&self) -> bool {
        self.baseline.usual_in_flight().is_some()
    }

    /// Ends the delay if no more requests are in flight than usual. To be called when every due request has been sent.
    ///
    /// Just after an answer, the last request of a queue is in flight alone. So only a request that has just been sent tells that it
    /// found no queue: beside itself, as many as usual.
    pub(crate) fn caught_up(&mut self, now_ns: u64, load_state: LoadState) {
        let has_sent = load_state.sent > std::mem::replace(&mut self.sent_before, load_state.sent);
        let is_over = match self.baseline.usual_in_flight() {
            Some(usual) => load_state.in_flight == 0 || has_sent && load_state.in_flight <= usual + 1,
            None => {
                let at = *self.recovers_at.get_or_insert(load_state.sent);
                load_state.sent - load_state.in_flight.min(load_state.sent) >= at
            }
        };
        if is_over {
            self.delay_ns = 0;
            self.baseline.since_ns = now_ns;
            self.baseline.since_integral_ns = load_state.integral_ns;
        }
    }

    /// The absences of the whole trial.
    pub(crate) fn into_total(self) -> Away {
        self.away
    }
}

impl Baseline {
    fn add(&mut self, now_ns: u64, load_state: LoadState) {
        self.lasted_ns += now_ns.saturating_sub(self.since_ns);
        self.integral_ns += load_state.integral_ns - self.since_integral_ns;
        self.in_flight = load_state.in_flight;
    }

    /// The larger of the mean and the number just before the absence, with a margin for fluctuation.
    fn usual_in_flight(&self) -> Option<u64> {
        let mean = self.integral_ns / self.lasted_ns.max(1) as f64;
        (self.lasted_ns >= MIN_BASELINE_NS).then(|| ((mean * 1.1).ceil() as u64).max(self.in_flight))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn load_state(in_flight: u64, at_ns: u64) -> LoadState {
        LoadState { in_flight, integral_ns: 2.0 * at_ns as f64, sent: 1_000 }
    }

    #[test]
    fn an_absence_delays_requests_until_as_few_are_in_flight_as_before() {
        let mut absences = Absences::new(0);
        absences.record(1_000 * MS, 100 * MS, load_state(1, 1_000 * MS));
        assert_eq!(absences.delay_ns(), 100 * MS);
        absences.caught_up(1_010 * MS, load_state(20, 1_010 * MS));
        assert_eq!(absences.delay_ns(), 100 * MS, "two were usual");
        absences.caught_up(1_050 * MS, load_state(3, 1_050 * MS));
        assert_eq!(absences.delay_ns(), 100 * MS, "the last of a queue may be in flight alone");
        absences.caught_up(1_051 * MS, LoadState { sent: 1_001, ..load_state(3, 1_051 * MS) });
        assert_eq!(absences.delay_ns(), 0);
    }

    #[test]
    fn a_short_absence_is_counted_and_delays_nothing_afterwards() {
        let mut absences = Absences::new(0);
        absences.record(1_000 * MS, MIN_DISTURBING_NS - 1, load_state(1, 1_000 * MS));
        assert_eq!(absences.delay_ns(), 0);
        assert_eq!(absences.into_total().times, 1);
    }

    #[test]
    fn an_absence_that_is_recorded_twice_counts_once() {
        let mut absences = Absences::new(0);
        absences.record(1_000 * MS, 100 * MS, load_state(2, 0));
        // A second answer that lay unread meanwhile.
        absences.record(1_002 * MS, 101 * MS, load_state(2, 0));
        assert_eq!(absences.delay_ns(), 102 * MS);
        let away = &absences.away;
        assert_eq!((away.times, away.longest_s), (2, 0.101));
        absences.record(1_002 * MS + 1_000, 101 * MS, load_state(2, 0));
        assert_eq!(absences.into_total().times, 2, "the time to read it is no absence");
    }

    #[test]
    fn an_absence_that_is_noticed_in_parts_counts_whole() {
        let mut absences = Absences::new(0);
        absences.record(500 * MS, 10 * MS, load_state(2, 0));
        // A wait that ended a little late, and then an answer that lay unread during all of it.
        absences.record(1_000 * MS, MS, load_state(2, 0));
        absences.record(1_000 * MS, 600 * MS, load_state(2, 0));
        absences.record(1_000 * MS, 600 * MS, load_state(2, 0));
        assert_eq!(absences.delay_ns(), 510 * MS, "up to the one before");
        assert!((absences.into_total().total_s - 0.51).abs() < 1e-9);
    }

    #[test]
    fn without_a_baseline_all_requests_in_flight_must_have_ended() {
        let mut absences = Absences::new(0);
        absences.record(10 * MS, 5 * MS, load_state(0, 0));
        absences.caught_up(11 * MS, LoadState { in_flight: 50, integral_ns: 0.0, sent: 60 });
        absences.caught_up(12 * MS, LoadState { in_flight: 50, integral_ns: 0.0, sent: 100 });
        assert!(absences.delay_ns() > 0, "50 have ended");
        absences.caught_up(13 * MS, LoadState { in_flight: 50, integral_ns: 0.0, sent: 110 });
        assert_eq!(absences.delay_ns(), 0, "60 have ended");
    }
}
