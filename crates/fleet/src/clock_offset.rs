//! The offset between the clocks of two machines, from messages that travel between them.
//!
//! Each exchange has three readings: this machine's clock when it asks and when it has the answer, and the other machine's clock in
//! between. Half of the round trip bounds the error, however unequal the two ways are (Cristian 1989, *Probabilistic clock
//! synchronization*). The exchange with the shortest round trip decides. Its bound grows with its age, because clocks drift.

/// Largest drift between two clocks that is expected: 200 ppm.
const MAX_DRIFT: f64 = 200e-6;

/// The offset of another machine's clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ClockOffset {
    best: Option<Exchange>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Exchange {
    /// The other clock minus this one, in nanoseconds.
    offset_ns: i128,
    /// The largest possible error when it was measured.
    bound_ns: u64,
    round_trip_ns: u64,
    /// This machine's clock at the beginning, after which the other clock was read.
    at_ns: u64,
}

impl ClockOffset {
    /// Takes an exchange: this machine's clock before and after it, and the other clock's reading in between, all in nanoseconds.
    pub(crate) fn exchanged(&mut self, before_ns: u64, after_ns: u64, other_ns: u64) {
        let round_trip_ns = after_ns.saturating_sub(before_ns);
        let middle_ns = i128::from(before_ns) + i128::from(round_trip_ns / 2);
        let new = Exchange {
            offset_ns: i128::from(other_ns) - middle_ns,
            bound_ns: round_trip_ns.div_ceil(2),
            round_trip_ns,
            at_ns: before_ns,
        };
        // An old exchange loses to a new one as soon as its bound has grown above the other's.
        if self.best.is_none_or(|best| new.bound_ns <= best.bound_ns_at(after_ns)) {
            self.best = Some(new);
        }
    }

    /// Converts a time of this machine's clock to the other clock. `None` before the first exchange.
    pub(crate) fn there_ns(&self, here_ns: u64) -> Option<u64> {
        let there_ns = i128::from(here_ns) + self.best?.offset_ns;
        Some(u64::try_from(there_ns.max(0)).unwrap_or(u64::MAX))
    }

    /// The largest error of [`Self::there_ns`] for a time of this machine's clock, in nanoseconds.
    pub(crate) fn bound_ns(&self, here_ns: u64) -> Option<u64> {
        Some(self.best?.bound_ns_at(here_ns))
    }

    /// The round trip of the exchange that decides, in nanoseconds.
    pub(crate) fn round_trip_ns(&self) -> Option<u64> {
        Some(self.best?.round_trip_ns)
    }
}

impl Exchange {
    fn bound_ns_at(&self, here_ns: u64) -> u64 {
        self.bound_ns + (here_ns.saturating_sub(self.at_ns) as f64 * MAX_DRIFT) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_shortest_round_trip_decides_until_it_is_old() {
        let mut offset = ClockOffset::default();
        assert_eq!(offset.there_ns(5), None);
        offset.exchanged(1_000_000, 3_000_000, 52_000_000);
        assert_eq!(
            (offset.there_ns(2_000_000), offset.bound_ns(1_000_000)),
            (Some(52_000_000), Some(1_000_000))
        );
        // Longer, and soon after: the first one stays.
        offset.exchanged(4_000_000, 8_000_000, 99_000_000);
        assert_eq!(offset.there_ns(2_000_000), Some(52_000_000));
        // A minute later, the first one may be wrong by 12 ms more.
        offset.exchanged(60_000_000_000, 60_004_000_000, 70_000_000_000);
        assert_eq!(offset.round_trip_ns(), Some(4_000_000));
        assert_eq!(offset.there_ns(60_002_000_000), Some(70_000_000_000));
    }

    proptest! {
        /// Whatever the delays of both ways and the drift are, the true time lies within the bound.
        #[test]
        fn the_bound_holds(
            true_offset_ns in 0u64..1_000_000_000_000,
            drift_ppm in -150i64..150,
            ways in prop::collection::vec((0u64..200_000_000, 0u64..200_000_000, 0u64..5_000_000_000), 1..20),
            later_ns in 0u64..600_000_000_000,
        ) {
            let there = |here_ns: u64| {
                let drifted = i128::from(here_ns) * i128::from(drift_ppm) / 1_000_000;
                (i128::from(here_ns) + i128::from(true_offset_ns) + drifted) as u64
            };
            let mut offset = ClockOffset::default();
            let mut now_ns = 1_000_000_000_000;
            for (out_ns, back_ns, pause_ns) in ways {
                let before_ns = now_ns;
                let other_ns = there(now_ns + out_ns);
                now_ns += out_ns + back_ns;
                offset.exchanged(before_ns, now_ns, other_ns);
                now_ns += pause_ns;
            }
            let at_ns = now_ns + later_ns;
            let (shown, bound) = (offset.there_ns(at_ns).unwrap(), offset.bound_ns(at_ns).unwrap());
            prop_assert!(shown.abs_diff(there(at_ns)) <= bound + 2, "{shown} {} {bound}", there(at_ns));
        }
    }
}
