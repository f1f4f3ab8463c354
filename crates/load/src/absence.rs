//! Absences: periods in which a worker's loop was stopped or had no processor, and how long they delay requests.
//!
//! After an absence the loop sends and reads late. Reading late does not distort a time, because times end when the kernel
//! received the answer. Sending late does: all requests that became due during the absence leave in a burst, wait for
//! connections, and may queue in the target.
//!
//! Queueing theory gives the bound for a first-in, first-out queue (Lindley 1952): if each arrival is delayed by at most
//! *d*, each departure is delayed by at most *d*. So absences that sum to *d* lengthen no time by more than *d*. Their
//! effect ends when as few requests are in flight as before them. In an open load, *d* is also at most the largest lateness
//! of a request, because the target sees only when requests were sent. This bound is below the sum if the target kept
//! working during the absences.

use record::Away;

/// The shortest gap that counts as an absence, in nanoseconds: shorter ones are scheduling noise of a virtual processor.
pub(crate) const MIN_ABSENCE_NS: u64 = 250_000;
/// Absences shorter than this, in nanoseconds, delay only the requests that were due during them: a loop without absences also
/// takes that long to process answers that arrive together.
pub(crate) const MIN_DISTURBING_NS: u64 = 1_000_000;
/// Undelayed time, in nanoseconds, after which the mean number of requests in flight counts as known.
const MIN_BASELINE_NS: u64 = 20_000_000;
/// The mean covers at least this many requests, or all if there are fewer.
const RECENT_REQUESTS: u64 = 512;
/// The requests in flight are averaged over blocks of at most `MAX_BLOCK` + 1 requests, then compared with the mean.
const MAX_BLOCK: u64 = 8;
/// The queue of an absence counts as worked off after this number of consecutive rounds without a new minimum of requests in
/// flight.
const ROUNDS_IN_A_ROW: u64 = 6;

/// The absences of one worker.
#[derive(Debug, Default)]
pub(crate) struct Absences {
    away: Away,
    /// Start and end of the last counted absence, and the end of the absence before it.
    counted_from_ns: u64,
    counted_until_ns: u64,
    free_from_ns: u64,
    /// Upper bound of the delay of requests that are sent now: the sum of the absences since the load last recovered.
    delay_ns: u64,
    /// Length of the last absence together with the absences shortly before it, and the longest such length.
    run_ns: u64,
    longest_run_ns: u64,
    /// Largest lateness of a request since the load last recovered, and the lateness of the last request.
    max_lateness_ns: u64,
    last_lateness_ns: u64,
    /// Upper bound of the delay of every request so far.
    max_delay_ns: u64,
    baseline: Baseline,
    recovery: Recovery,
    /// The plan may raise the number of requests in flight later.
    may_grow: bool,
}

/// Mean number of requests in flight at the beginning of a request, over undelayed time. Recent requests weigh more, because
/// a load may grow.
#[derive(Debug, Default)]
struct Baseline {
    in_flight: u64,
    requests: u64,
    /// Start of the current undelayed period, and the total length of the earlier ones.
    since_ns: u64,
    lasted_ns: u64,
}

/// Detects when the effect of absences is over.
#[derive(Debug, Default)]
struct Recovery {
    /// Number of requests begun up to the last check; `None` after an absence.
    begun: Option<u64>,
    /// Number of requests in the current block, and the sum of the requests in flight when each of them began.
    block: u64,
    in_flight: u64,
    /// Requests begun when the current round started. The round is over when all of them have ended.
    round: u64,
    /// The fewest requests in flight at the end of a round, and the number of rounds since then.
    fewest: u64,
    rounds: u64,
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
    /// No absences; the trial starts at `t0_ns`. `may_grow`: the planned load may grow.
    pub(crate) fn new(t0_ns: u64, may_grow: bool) -> Self {
        let baseline = Baseline { since_ns: t0_ns, ..Baseline::default() };
        Self {
            counted_from_ns: t0_ns,
            counted_until_ns: t0_ns,
            free_from_ns: t0_ns,
            baseline,
            may_grow,
            ..Self::default()
        }
    }

    /// Restarts the baseline at the first answer, because the load is not in its steady state before it.
    pub(crate) fn first_answered(&mut self, now_ns: u64) {
        self.baseline = Baseline { since_ns: now_ns, ..Baseline::default() };
        self.recovery = Recovery::default();
    }

    /// Adds the requests in flight at the beginning of a request to the baseline. The caller leaves out delayed requests.
    #[inline]
    pub(crate) fn note_in_flight(&mut self, in_flight: u64) {
        self.baseline.in_flight += in_flight;
        self.baseline.requests += 1;
        if self.baseline.requests >= 2 * RECENT_REQUESTS {
            self.baseline.in_flight /= 2;
            self.baseline.requests /= 2;
        }
    }

    /// Records an absence of `by_ns` that ends now. Time of earlier absences is not counted again. Returns false if no new
    /// time is left.
    pub(crate) fn record(&mut self, now_ns: u64, by_ns: u64) -> bool {
        // The parts of an absence may be recorded in reverse order.
        let from_ns = now_ns.saturating_sub(by_ns).max(self.free_from_ns);
        let fresh_ns = now_ns.saturating_sub(from_ns.max(self.counted_until_ns))
            + self.counted_from_ns.saturating_sub(from_ns);
        if by_ns < MIN_ABSENCE_NS || fresh_ns == 0 {
            return false;
        }
        self.away.times += u64::from(from_ns > self.counted_until_ns || fresh_ns >= MIN_ABSENCE_NS);
        self.away.total_s += fresh_ns as f64 / 1e9;
        self.away.longest_s = self.away.longest_s.max(by_ns as f64 / 1e9);
        let is_apart = from_ns.saturating_sub(self.counted_until_ns) > by_ns;
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
        self.run_ns = if is_apart { by_ns } else { by_ns.max(self.run_ns + fresh_ns) };
        self.longest_run_ns = self.longest_run_ns.max(self.run_ns);
        // The last request may have left only after the absence, so its lateness may include it.
        self.max_lateness_ns = self.max_lateness_ns.max(self.last_lateness_ns + fresh_ns);
        // Requests that leave right after the absence are late, so the recovery starts again.
        self.recovery = Recovery::default();
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

    /// Longest time for which an arrival waits for a free connection while the load recovers, in nanoseconds; 0 if nothing
    /// is delayed. The wait keeps absences from adding connections. A longer wait is due to the target: if the target keeps
    /// up, it has served the requests that one absence delayed before the next absence. The factor of two allows for varying
    /// answer times.
    pub(crate) fn longest_hold_ns(&self) -> u64 {
        if self.delay_ns == 0 { 0 } else { 2 * self.longest_run_ns + MIN_DISTURBING_NS }
    }

    /// Upper bound of the delay of a request that begins now, `late_ns` after it was due, in nanoseconds. Call it for each request,
    /// in order. `are_arrivals`: only the schedule makes requests due.
    pub(crate) fn note_begun(&mut self, late_ns: u64, are_arrivals: bool) -> u64 {
        self.last_lateness_ns = late_ns;
        self.max_lateness_ns = self.max_lateness_ns.max(late_ns);
        let delay_ns = self.delay_ns_of(are_arrivals);
        self.max_delay_ns = self.max_delay_ns.max(delay_ns);
        delay_ns
    }

    /// Same as [`Self::note_begun`], without recording a request.
    pub(crate) fn delay_ns_of(&self, are_arrivals: bool) -> u64 {
        if are_arrivals { self.delay_ns.min(self.max_lateness_ns) } else { self.delay_ns }
    }

    /// Whether the usual number of requests in flight is known.
    pub(crate) fn has_baseline(&self) -> bool {
        self.baseline.mean().is_some()
    }

    /// Ends the delay if no more requests are in flight than usual. Call it when every due request has been sent.
    ///
    /// Just after an answer, the last request of a queue is alone in flight. So the others in flight are counted when a request
    /// begins, and averaged over several requests, because requests that arrive together are answered together and then leave gaps.
    /// If the usual number is unknown or the load grows, the queue of the absence counts as worked off once several rounds of
    /// requests end with no fewer in flight.
    pub(crate) fn caught_up(&mut self, now_ns: u64, LoadState { in_flight, begun }: LoadState) {
        let recovery = &mut self.recovery;
        let fresh = begun - recovery.begun.replace(begun).unwrap_or(begun);
        recovery.block += fresh;
        recovery.in_flight += fresh * in_flight.saturating_sub(1);
        let mut is_usual = false;
        if let Some(mean) = self.baseline.mean()
            && recovery.block > (1.1 * mean).min(MAX_BLOCK as f64) as u64
        {
            is_usual = recovery.in_flight as f64 <= 1.01 * mean * recovery.block as f64;
            (recovery.block, recovery.in_flight) = (0, 0);
        }
        if begun - in_flight >= recovery.round {
            let is_fewest = recovery.round == 0 || in_flight < recovery.fewest;
            (recovery.fewest, recovery.rounds) =
                if is_fewest { (in_flight, 0) } else { (recovery.fewest, recovery.rounds + 1) };
            recovery.round = begun;
        }
        let are_rounds_enough = self.may_grow || self.baseline.mean().is_none();
        if in_flight == 0 || is_usual || are_rounds_enough && recovery.rounds >= ROUNDS_IN_A_ROW {
            self.end_delay(now_ns);
        }
    }

    /// Ends the delay.
    pub(crate) fn end_delay(&mut self, now_ns: u64) {
        (self.delay_ns, self.run_ns, self.longest_run_ns) = (0, 0, 0);
        (self.max_lateness_ns, self.last_lateness_ns) = (0, 0);
        self.baseline.since_ns = now_ns;
    }

    /// The absences of the whole trial.
    pub(crate) fn into_total(self) -> Away {
        Away { delayed_s: Some(self.max_delay_ns as f64 / 1e9), ..self.away }
    }
}

impl Baseline {
    /// The mean, if it covers enough undelayed time.
    fn mean(&self) -> Option<f64> {
        let is_known = self.requests > 0 && self.lasted_ns >= MIN_BASELINE_NS;
        is_known.then(|| self.in_flight as f64 / self.requests as f64)
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
        let mut absences = Absences::new(0, false);
        (0..2_000).for_each(|_| absences.note_in_flight(2));
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
        let mut absences = Absences::new(0, false);
        for at_ms in [1_000, 1_100, 1_200] {
            absences.record(at_ms * MS, 20 * MS);
            assert_eq!(absences.note_begun(19 * MS, true), 20 * MS, "the last one before may not have left");
            assert_eq!(absences.note_begun(0, true), 20 * MS, "it queues behind others");
        }
        assert_eq!((absences.delay_ns(), absences.longest_run_ns), (60 * MS, 20 * MS));
        // Each request that waits for a connection is later than the one before.
        assert_eq!(absences.note_begun(50 * MS, true), 50 * MS);
        absences.record(1_300 * MS, 5 * MS);
        assert_eq!(absences.note_begun(50 * MS, true), 55 * MS);
        assert_eq!(absences.note_begun(90 * MS, true), 65 * MS, "never more than all of them");
    }

    #[test]
    fn a_short_absence_is_counted_and_delays_nothing_afterwards() {
        let mut absences = Absences::new(0, false);
        absences.record(1_000 * MS, MIN_DISTURBING_NS - 1);
        assert_eq!(absences.delay_ns(), 0);
        assert_eq!(absences.into_total().times, 1);
    }

    #[test]
    fn an_absence_that_is_recorded_twice_counts_once() {
        let mut absences = Absences::new(0, false);
        absences.record(1_000 * MS, 100 * MS);
        // A second answer was unread for the whole of the absence.
        absences.record(1_002 * MS, 101 * MS);
        assert_eq!(absences.delay_ns(), 102 * MS);
        let away = &absences.away;
        assert_eq!((away.times, away.longest_s), (2, 0.101));
        absences.record(1_002 * MS + 1_000, 101 * MS);
        assert_eq!(absences.into_total().times, 2, "the time to read it is no absence");
    }

    #[test]
    fn an_absence_that_is_noticed_in_parts_counts_whole() {
        let mut absences = Absences::new(0, false);
        absences.record(500 * MS, 10 * MS);
        // A wait ended slightly late; then the loop found an answer that had been unread during the whole absence.
        absences.record(1_000 * MS, MS);
        absences.record(1_000 * MS, 600 * MS);
        absences.record(1_000 * MS, 600 * MS);
        assert_eq!(absences.delay_ns(), 510 * MS, "up to the one before");
        assert!((absences.into_total().total_s - 0.51).abs() < 1e-9);
    }

    #[test]
    fn without_a_baseline_rounds_of_requests_must_leave_no_fewer_in_flight() {
        let mut absences = Absences::new(0, false);
        absences.record(10 * MS, 5 * MS);
        for (begun, in_flight) in [(60, 50), (100, 50), (110, 45)] {
            absences.caught_up(11 * MS, LoadState { begun, in_flight });
        }
        for round in 1..=ROUNDS_IN_A_ROW {
            assert!(absences.delay_ns() > 0, "{round}");
            absences.caught_up(11 * MS, LoadState { begun: 110 + 45 * round, in_flight: 45 });
        }
        assert_eq!(absences.delay_ns(), 0);
    }

    #[test]
    fn absences_in_a_row_are_one() {
        let mut absences = Absences::new(0, false);
        for piece in 1..=5 {
            absences.record(1_000 * MS + piece * 9 * MS, 8 * MS);
        }
        assert_eq!(absences.longest_run_ns, 40 * MS, "with a millisecond between them");
        absences.record(1_200 * MS, 10 * MS);
        assert_eq!(absences.longest_run_ns, 40 * MS);
    }
}
