//! Absences: when a worker's loop was stopped or had no processor, and for how long they delay requests.
//!
//! After an absence the loop sends and reads late. Reading late does not distort a time, because times end when the kernel
//! received the answer. Sending late does: all requests that became due during the absence leave in a burst, wait for
//! connections, and may queue in the target.
//!
//! Queueing theory gives the bound for work-conserving queues (Lindley 1952): arrivals that are delayed by at most *d*
//! leave at most *d* later. So absences of *d* in all make no request more than *d* longer, and the effect ends once as few
//! requests are in flight as before. In an open load, the target's arrivals are what was sent: *d* is also the longest time by
//! which one of them left late, which is less than the sum of absences where the target worked through them.

use record::Away;

/// Shorter gaps are the noise of a virtual processor, in nanoseconds.
pub(crate) const MIN_ABSENCE_NS: u64 = 250_000;
/// Absences shorter than this, in nanoseconds, delay only the requests that were due during them. A loop without absences
/// takes as long to process answers that arrive together.
pub(crate) const MIN_DISTURBING_NS: u64 = 1_000_000;
/// Time without absences, in nanoseconds, after which the mean number of requests in flight is known.
const MIN_BASELINE_NS: u64 = 20_000_000;
/// The mean is that of at least this number of requests, if there were as many.
const RECENT_REQUESTS: u64 = 512;
/// Requests that have to find no more than usual in turn, at the most.
const MOST_IN_TURN: u64 = 8;
/// Without a baseline: rounds of requests in turn that have to leave as many in flight as the one before.
const ROUNDS_IN_TURN: u64 = 4;

/// The absences of one worker.
#[derive(Debug, Default)]
pub(crate) struct Absences {
    away: Away,
    /// Start and end of the last counted absence, and the end of the one before.
    counted_from_ns: u64,
    counted_until_ns: u64,
    free_from_ns: u64,
    /// By how much requests that are sent now may be delayed: the sum of the absences since the load was last as usual.
    delay_ns: u64,
    /// The longest of these absences.
    longest_ns: u64,
    /// The most by which a request has left late since then, and by how much the last one did.
    most_late_ns: u64,
    last_late_ns: u64,
    baseline: Baseline,
    /// Without a baseline: the requests that were begun at a moment, and how many of them were in flight.
    round: Option<LoadState>,
    /// Requests that had been begun at the last check of whether the effect is over; `u64::MAX` after an absence.
    begun_before: u64,
    /// Requests since then that found no more in flight than usual, one after the other; without a baseline, rounds of requests.
    undisturbed: u64,
}

/// How many requests others found in flight while nothing was delayed. Recent ones count more: a load may grow.
#[derive(Debug, Default)]
struct Baseline {
    found: u64,
    requests: u64,
    /// Start of the current undelayed period, and the length of the others.
    since_ns: u64,
    lasted_ns: u64,
}

/// Requests in flight and begun at one point in time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoadState {
    /// Requests in flight.
    pub in_flight: u64,
    /// Requests begun so far.
    pub begun: u64,
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
    pub(crate) fn first_answered(&mut self, now_ns: u64) {
        if self.delay_ns == 0 {
            self.baseline = Baseline { since_ns: now_ns, ..Baseline::default() };
        }
    }

    /// Notes how many requests another one finds in flight, while nothing is delayed.
    #[inline]
    pub(crate) fn found(&mut self, in_flight: u64) {
        self.baseline.found += in_flight;
        self.baseline.requests += 1;
        if self.baseline.requests >= 2 * RECENT_REQUESTS {
            self.baseline.found /= 2;
            self.baseline.requests /= 2;
        }
    }

    /// Records an absence of `by_ns` that ends now. Time that was counted before is not counted again: false if all of it was.
    pub(crate) fn record(&mut self, now_ns: u64, by_ns: u64) -> bool {
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
            self.baseline.lasted_ns += from_ns.saturating_sub(self.baseline.since_ns);
        }
        self.delay_ns += fresh_ns;
        self.longest_ns = self.longest_ns.max(by_ns);
        // The last request may not have left before the absence.
        self.most_late_ns = self.most_late_ns.max(self.last_late_ns + fresh_ns);
        // Requests that leave right after the absence are late themselves.
        (self.round, self.begun_before, self.undisturbed) = (None, u64::MAX, 0);
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

    /// The longest of the absences that may still delay requests, in nanoseconds.
    #[inline]
    pub(crate) fn longest_ns(&self) -> u64 {
        self.longest_ns
    }

    /// Upper bound of the delay of a request of an open load, in nanoseconds, that is sent now and `late_ns` after it was due. To
    /// be called for each, in order.
    pub(crate) fn delay_of_arrival_ns(&mut self, late_ns: u64) -> u64 {
        self.last_late_ns = late_ns;
        self.most_late_ns = self.most_late_ns.max(late_ns);
        self.delay_ns.min(self.most_late_ns)
    }

    /// Whether the number of requests that are usually in flight is known.
    pub(crate) fn has_baseline(&self) -> bool {
        self.baseline.usually_found().is_some()
    }

    /// Ends the delay if no more requests are in flight than usual. To be called when every due request has been sent.
    ///
    /// Just after an answer, the last request of a queue is in flight alone. So only a request that has just been sent tells that it
    /// found no queue: beside itself, as many as usual. Where several are in flight, as many have to find that in turn, up to
    /// [`MOST_IN_TURN`]: what came together is answered together, and leaves gaps.
    pub(crate) fn caught_up(&mut self, now_ns: u64, load_state: LoadState) {
        let begun_before = std::mem::replace(&mut self.begun_before, load_state.begun);
        let is_over = match self.baseline.usually_found() {
            Some(usual) => {
                let is_usual = load_state.in_flight <= usual + 1;
                let begun = load_state.begun.saturating_sub(begun_before);
                self.undisturbed = if is_usual { self.undisturbed + begun } else { 0 };
                load_state.in_flight == 0 || self.undisturbed > usual.min(MOST_IN_TURN)
            }
            // The queue that an absence left shrinks from one round of requests to the next.
            None => {
                let round = *self.round.get_or_insert(load_state);
                if load_state.begun - load_state.in_flight >= round.begun {
                    self.undisturbed =
                        if load_state.in_flight < round.in_flight { 0 } else { self.undisturbed + 1 };
                    self.round = Some(load_state);
                }
                load_state.in_flight == 0 || self.undisturbed >= ROUNDS_IN_TURN
            }
        };
        if is_over {
            self.end_delay(now_ns);
        }
    }

    /// Ends the delay.
    pub(crate) fn end_delay(&mut self, now_ns: u64) {
        (self.delay_ns, self.longest_ns, self.most_late_ns, self.last_late_ns) = (0, 0, 0, 0);
        self.baseline.since_ns = now_ns;
    }

    /// The absences of the whole trial.
    pub(crate) fn into_total(self) -> Away {
        self.away
    }
}

impl Baseline {
    /// The mean with a margin for fluctuation, rounded down: what a steady load finds is at times no more than that.
    fn usually_found(&self) -> Option<u64> {
        let is_known = self.requests > 0 && self.lasted_ns >= MIN_BASELINE_NS;
        is_known.then(|| (1.1 * self.found as f64 / self.requests as f64) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn load_state(in_flight: u64) -> LoadState {
        LoadState { in_flight, begun: 1_000 }
    }

    #[test]
    fn an_absence_delays_requests_until_as_few_are_in_flight_as_before() {
        let mut absences = Absences::new(0);
        (0..2_000).for_each(|_| absences.found(2));
        absences.record(1_000 * MS, 100 * MS);
        assert_eq!(absences.delay_ns(), 100 * MS);
        absences.caught_up(1_010 * MS, load_state(20));
        assert_eq!(absences.delay_ns(), 100 * MS, "two were usual");
        absences.caught_up(1_050 * MS, load_state(3));
        assert_eq!(absences.delay_ns(), 100 * MS, "the last of a queue may be in flight alone");
        for begun in 1_001..1_003 {
            absences.caught_up(1_051 * MS, LoadState { begun, ..load_state(3) });
            assert_eq!(absences.delay_ns(), 100 * MS, "a gap between two that came together");
        }
        absences.caught_up(1_052 * MS, LoadState { begun: 1_003, ..load_state(3) });
        assert_eq!(absences.delay_ns(), 0);
    }

    #[test]
    fn absences_in_which_the_target_went_on_working_do_not_add_up() {
        let mut absences = Absences::new(0);
        for at_ms in [1_000, 1_100, 1_200] {
            absences.record(at_ms * MS, 20 * MS);
            assert_eq!(
                absences.delay_of_arrival_ns(19 * MS),
                20 * MS,
                "the last one before may not have left"
            );
            assert_eq!(absences.delay_of_arrival_ns(0), 20 * MS, "it queues behind others");
        }
        assert_eq!((absences.delay_ns(), absences.longest_ns()), (60 * MS, 20 * MS));
        // Requests that wait for connections are later each time.
        assert_eq!(absences.delay_of_arrival_ns(50 * MS), 50 * MS);
        absences.record(1_300 * MS, 5 * MS);
        assert_eq!(absences.delay_of_arrival_ns(50 * MS), 55 * MS);
        assert_eq!(absences.delay_of_arrival_ns(90 * MS), 65 * MS, "never more than all of them");
    }

    #[test]
    fn a_short_absence_is_counted_and_delays_nothing_afterwards() {
        let mut absences = Absences::new(0);
        absences.record(1_000 * MS, MIN_DISTURBING_NS - 1);
        assert_eq!(absences.delay_ns(), 0);
        assert_eq!(absences.into_total().times, 1);
    }

    #[test]
    fn an_absence_that_is_recorded_twice_counts_once() {
        let mut absences = Absences::new(0);
        absences.record(1_000 * MS, 100 * MS);
        // A second answer that lay unread meanwhile.
        absences.record(1_002 * MS, 101 * MS);
        assert_eq!(absences.delay_ns(), 102 * MS);
        let away = &absences.away;
        assert_eq!((away.times, away.longest_s), (2, 0.101));
        absences.record(1_002 * MS + 1_000, 101 * MS);
        assert_eq!(absences.into_total().times, 2, "the time to read it is no absence");
    }

    #[test]
    fn an_absence_that_is_noticed_in_parts_counts_whole() {
        let mut absences = Absences::new(0);
        absences.record(500 * MS, 10 * MS);
        // A wait that ended a little late, and then an answer that lay unread during all of it.
        absences.record(1_000 * MS, MS);
        absences.record(1_000 * MS, 600 * MS);
        absences.record(1_000 * MS, 600 * MS);
        assert_eq!(absences.delay_ns(), 510 * MS, "up to the one before");
        assert!((absences.into_total().total_s - 0.51).abs() < 1e-9);
    }

    #[test]
    fn without_a_baseline_rounds_of_requests_must_leave_no_fewer_in_flight() {
        let mut absences = Absences::new(0);
        absences.record(10 * MS, 5 * MS);
        let states = [(60, 50), (100, 50), (110, 45), (155, 45), (200, 45), (245, 45), (289, 45)];
        for (begun, in_flight) in states {
            absences.caught_up(11 * MS, LoadState { begun, in_flight });
            assert!(absences.delay_ns() > 0, "{begun}");
        }
        absences.caught_up(13 * MS, LoadState { begun: 290, in_flight: 45 });
        assert_eq!(absences.delay_ns(), 0, "four rounds of 45");
    }
}
