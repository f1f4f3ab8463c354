//! When a worker's loop was away from its work, and for how long the load feels it.
//!
//! A thread that is stopped, or has no processor, sends late and reads late. What it reads late does no harm to a time,
//! because times end when the kernel received the answer. What it sends late does: all that was due meanwhile leaves in
//! a burst, waits for connections, and may queue in the target.
//!
//! The bound is that of queueing theory for work-conserving queues (Lindley 1952): arrivals that are delayed by at most
//! *d* leave at most *d* later, whatever they meet on the way. So after absences of *d* in all, no request takes more than
//! *d* longer than it would have, until the load is as it was before.

use record::Away;

/// Shorter absences are the noise of a virtual processor, in nanoseconds.
pub(crate) const SHORTEST_NS: u64 = 250_000;
/// Of shorter absences only the requests feel anything that leave late themselves, in nanoseconds: so long a loop also
/// takes to work off the answers that a target gives at once.
pub(crate) const FELT_NS: u64 = 1_000_000;
/// The mean number of requests in flight is known after so long without an absence, in nanoseconds.
const BASELINE_NS: u64 = 20_000_000;

/// The absences of one worker.
#[derive(Debug, Default)]
pub(crate) struct Absences {
    away: Away,
    /// Absences are counted up to here.
    counted_ns: u64,
    /// By how much requests may be delayed that are sent now.
    delay_ns: u64,
    baseline: Baseline,
    /// Without a baseline: the load is as it was once so many requests have ended.
    recovers_at: Option<u64>,
}

/// What the load was like while nothing was delayed.
#[derive(Debug, Default)]
struct Baseline {
    /// When it began to be so, and the integral of requests in flight then.
    since_ns: u64,
    since_integral_ns: f64,
    /// Over all such times.
    integral_ns: f64,
    lasted_ns: u64,
    /// In flight when the absence began.
    in_flight: u64,
}

/// What is under way at a moment.
#[derive(Debug, Clone, Copy)]
pub struct UnderWay {
    /// Requests in flight.
    pub in_flight: u64,
    /// Their integral over time, in request-nanoseconds.
    pub integral_ns: f64,
    /// Requests sent so far.
    pub sent: u64,
}

impl Absences {
    /// None so far; the trial starts.
    pub(crate) fn since(t0_ns: u64) -> Self {
        let baseline = Baseline { since_ns: t0_ns, ..Baseline::default() };
        Self { counted_ns: t0_ns, baseline, ..Self::default() }
    }

    /// The first answer has come: only from now on the load is as it will be.
    pub(crate) fn first_answered(&mut self, now_ns: u64, under_way: UnderWay) {
        if self.delay_ns == 0 {
            self.baseline = Baseline {
                since_ns: now_ns,
                since_integral_ns: under_way.integral_ns,
                ..Baseline::default()
            };
        }
    }

    /// The loop was away for `by_ns` up to now. What was counted already is not counted again.
    pub(crate) fn was_away(&mut self, now_ns: u64, by_ns: u64, under_way: UnderWay) {
        let from_ns = now_ns.saturating_sub(by_ns).max(self.counted_ns);
        if by_ns < SHORTEST_NS || from_ns >= now_ns {
            return;
        }
        let fresh_ns = now_ns - from_ns;
        self.away.times += u64::from(from_ns > self.counted_ns || fresh_ns >= SHORTEST_NS);
        self.away.total_s += fresh_ns as f64 / 1e9;
        self.away.longest_s = self.away.longest_s.max(by_ns as f64 / 1e9);
        self.counted_ns = now_ns;
        if by_ns < FELT_NS {
            return;
        }
        if self.delay_ns == 0 {
            self.baseline.add(now_ns, under_way);
        }
        self.delay_ns += fresh_ns;
        self.recovers_at = None;
    }

    /// Up to when absences are counted: the end of the last one.
    #[inline]
    pub(crate) fn counted_ns(&self) -> u64 {
        self.counted_ns
    }

    /// By how much a request that is sent now may be delayed at the most, in nanoseconds.
    #[inline]
    pub(crate) fn delay_ns(&self) -> u64 {
        self.delay_ns
    }

    /// Everything due has been sent: the delay is over once no more is in flight than was usual before.
    pub(crate) fn caught_up(&mut self, now_ns: u64, under_way: UnderWay) {
        let is_over = match self.baseline.usual_in_flight() {
            Some(usual) => under_way.in_flight <= usual,
            None => {
                let at = *self.recovers_at.get_or_insert(under_way.sent);
                under_way.sent - under_way.in_flight.min(under_way.sent) >= at
            }
        };
        if is_over {
            self.delay_ns = 0;
            self.baseline.since_ns = now_ns;
            self.baseline.since_integral_ns = under_way.integral_ns;
        }
    }

    /// All absences of the trial.
    pub(crate) fn all(self) -> Away {
        self.away
    }
}

impl Baseline {
    fn add(&mut self, now_ns: u64, under_way: UnderWay) {
        self.lasted_ns += now_ns.saturating_sub(self.since_ns);
        self.integral_ns += under_way.integral_ns - self.since_integral_ns;
        self.in_flight = under_way.in_flight;
    }

    /// The mean or what was in flight just before, and a little more: that goes up and down.
    fn usual_in_flight(&self) -> Option<u64> {
        let mean = self.integral_ns / self.lasted_ns.max(1) as f64;
        (self.lasted_ns >= BASELINE_NS).then(|| ((mean * 1.1).ceil() as u64).max(self.in_flight) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn under_way(in_flight: u64, at_ns: u64) -> UnderWay {
        UnderWay { in_flight, integral_ns: 2.0 * at_ns as f64, sent: 1_000 }
    }

    #[test]
    fn an_absence_is_felt_until_the_load_is_as_it_was() {
        let mut absences = Absences::since(0);
        absences.was_away(1_000 * MS, 100 * MS, under_way(1, 1_000 * MS));
        assert_eq!(absences.delay_ns(), 100 * MS);
        absences.caught_up(1_010 * MS, under_way(20, 1_010 * MS));
        assert_eq!(absences.delay_ns(), 100 * MS, "two were usual");
        absences.caught_up(1_050 * MS, under_way(4, 1_050 * MS));
        assert_eq!(absences.delay_ns(), 0);
    }

    #[test]
    fn a_short_absence_is_counted_and_not_felt_afterwards() {
        let mut absences = Absences::since(0);
        absences.was_away(1_000 * MS, FELT_NS - 1, under_way(1, 1_000 * MS));
        assert_eq!(absences.delay_ns(), 0);
        assert_eq!(absences.all().times, 1);
    }

    #[test]
    fn what_is_found_out_twice_counts_once() {
        let mut absences = Absences::since(0);
        absences.was_away(1_000 * MS, 100 * MS, under_way(2, 0));
        // A second answer that lay unread meanwhile.
        absences.was_away(1_002 * MS, 101 * MS, under_way(2, 0));
        assert_eq!(absences.delay_ns(), 102 * MS);
        let away = &absences.away;
        assert_eq!((away.times, away.longest_s), (2, 0.101));
        absences.was_away(1_002 * MS + 1_000, 101 * MS, under_way(2, 0));
        assert_eq!(absences.all().times, 2, "what the loop needs to read it is no absence");
    }

    #[test]
    fn without_a_baseline_what_was_in_flight_must_have_ended() {
        let mut absences = Absences::since(0);
        absences.was_away(10 * MS, 5 * MS, under_way(0, 0));
        absences.caught_up(11 * MS, UnderWay { in_flight: 50, integral_ns: 0.0, sent: 60 });
        absences.caught_up(12 * MS, UnderWay { in_flight: 50, integral_ns: 0.0, sent: 100 });
        assert!(absences.delay_ns() > 0, "50 have ended");
        absences.caught_up(13 * MS, UnderWay { in_flight: 50, integral_ns: 0.0, sent: 110 });
        assert_eq!(absences.delay_ns(), 0, "60 have ended");
    }
}
