//! The effect of stalled emulated links on the figures of programs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::CommandTrial;
use crate::span::Span;

/// The rate at which a trial moved its bytes, from its start to its end.
const GOODPUT: &str = "goodput_bit_per_s";
/// The shortest time over which a rate may be measured, in seconds. In trials of less than twice this time, it is half
/// of the trial.
const SHORTEST_WINDOW_S: f64 = 5.0;

/// Stalls of emulated links in a trial: their emulators moved no packet, since something else had their processor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkStall {
    /// All of them together, in seconds.
    pub total_s: f64,
    /// The most stalled time within any second, in seconds; all of it if more than one link stalled.
    pub in_a_second_s: f64,
    /// The rate of the fastest of these links, in bits per second.
    pub rate_bits_per_s: f64,
}

impl LinkStall {
    /// The stalls of this link and of another link that the trial used.
    pub fn merged(self, other: Self) -> Self {
        let total_s = self.total_s + other.total_s;
        let stalled_alone = [(other.total_s, self), (self.total_s, other)];
        let alone = stalled_alone.into_iter().find(|(of_other, _)| *of_other == 0.0);
        Self {
            total_s,
            in_a_second_s: alone.map_or(total_s, |(_, alone)| alone.in_a_second_s),
            rate_bits_per_s: self.rate_bits_per_s.max(other.rate_bits_per_s),
        }
    }
}

impl CommandTrial {
    /// The interval that contains the value of a quantity without the stalls of links; `None` if the stalls may have
    /// changed it by any amount.
    ///
    /// A stalled link only makes programs slower. A measured time is therefore an upper limit. A measured amount is a
    /// lower limit, and so is the rate of a whole trial, because no data is on its way when a trial begins. The lower
    /// limit of another rate is the measured rate less the backlog: data that was sent before a stall may have arrived
    /// during the time over which the rate is measured, which is 5 s or half of the trial. The effect of slower
    /// programs on processors, memory and packets is unknown.
    pub fn bounded(&self, name: &str, value: f64) -> Option<Span> {
        let Some(stall) = self.stalled else { return Some(Span::exact(value)) };
        let read = self.plan.read.iter().find(|read| read.quantity == name);
        let ends_with = |units: &[&str]| units.iter().any(|unit| name.ends_with(unit));
        let is_time = match read {
            Some(read) => {
                !read.more_is_better && !name.ends_with("_per_s") && ends_with(&["_s", "_ms", "_us", "_ns"])
            }
            None => name == "wall_s",
        };
        if is_time {
            return Some(Span { least: 0.0, ..Span::exact(value) });
        }
        // The link's own counters are exact.
        if name.starts_with("link_") {
            return Some(Span::exact(value));
        }
        if read.is_some_and(|read| !read.more_is_better) {
            return None;
        }
        let window_s = self.wall_s.map_or(SHORTEST_WINDOW_S, |wall_s| (wall_s / 2.0).min(SHORTEST_WINDOW_S));
        let backlog = match name {
            "moved_bytes" => 0.0,
            GOODPUT if read.is_none() => 0.0,
            name if name.ends_with("_bit_per_s") => self.backlog_bits(stall, value) / window_s,
            name if name.ends_with("bytes_per_s") => self.backlog_bits(stall, value * 8.0) / 8.0 / window_s,
            // Other rates have an unknown unit, so all of the value may be backlog.
            name if name.ends_with("_per_s") => value,
            _ => return None,
        };
        Some(Span { least: (value - backlog).max(0.0), at_least: true, ..Span::exact(value) })
    }

    /// The largest possible backlog, in bits: data that waited for the end of a stall when the measurement of this rate
    /// began.
    ///
    /// While the link was stalled, it would have carried at most its rate. If the flow needs less than half of the
    /// link, the queue behind a stall is empty within a second, so only the stalls within a second add up. The backlog
    /// arrived at the link's rate, so it is at most the data that arrived in the bins that it can fill.
    fn backlog_bits(&self, stall: LinkStall, bits_per_s: f64) -> f64 {
        let is_idle = bits_per_s <= stall.rate_bits_per_s / 2.0;
        let held_s = if is_idle { stall.in_a_second_s } else { stall.total_s };
        let bins = if self.bin_s > 0.0 { (held_s / self.bin_s).ceil() as usize + 1 } else { 0 };
        let flows = self.flows.values().map(|flow| &flow.bins).filter(|flow| bins > 0 && flow.len() >= bins);
        let peaks = flows.flat_map(|flow| flow.windows(bins)).map(|bins| bins.iter().sum::<u64>());
        let peak_bits = peaks.max().map_or(f64::INFINITY, |bytes| bytes as f64 * 8.0);
        (stall.rate_bits_per_s * held_s).min(peak_bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CommandPlan, Flow, OutputNumber};
    use proptest::prelude::*;

    /// The bits that a link with a queue delivers in each millisecond. It delivers nothing while it is stalled.
    fn delivered(offered: &[u64], bits_per_ms: u64, is_stalled: impl Fn(usize) -> bool) -> Vec<u64> {
        let mut queued = 0;
        let carry = |(ms, offered): (usize, &u64)| {
            queued += offered;
            let carried = if is_stalled(ms) { 0 } else { queued.min(bits_per_ms) };
            queued -= carried;
            carried
        };
        offered.iter().enumerate().map(carry).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        /// A flow sends a window of data in each round trip, whether or not the link is stalled. The lower limit of its
        /// rate over the last 5 s of 12 must not exceed the rate without the stalls.
        #[test]
        fn no_rate_of_a_stalled_link_is_bounded_above_the_undisturbed_one(
            round_trip_ms in 5_usize..300,
            used in 0.001..1.0_f64,
            stalls in prop::collection::vec((0_usize..12_000, 1_usize..60), 1..60),
        ) {
            const BITS_PER_MS: u64 = 8_000;
            let window = (used * (BITS_PER_MS * round_trip_ms as u64) as f64) as u64;
            let offered: Vec<u64> =
                (0..12_000).map(|ms| if ms % round_trip_ms == 0 { window } else { 0 }).collect();
            let mut is_stalled = vec![false; 12_000];
            for (from, length) in stalls {
                is_stalled[from..(from + length).min(12_000)].fill(true);
            }
            let with = delivered(&offered, BITS_PER_MS, |ms| is_stalled[ms]);
            let without = delivered(&offered, BITS_PER_MS, |_| false);
            let last_5_s = |bits: &[u64]| bits[7_000..].iter().sum::<u64>() as f64 / 5.0;
            let stalled_s = |stalled: &[bool]| stalled.iter().filter(|is| **is).count() as f64 / 1e3;
            let flow = Flow {
                bins: with.chunks(100).map(|bits| bits.iter().sum::<u64>() / 8).collect(),
                ..Flow::default()
            };
            let trial = CommandTrial {
                stalled: Some(LinkStall {
                    total_s: stalled_s(&is_stalled),
                    in_a_second_s: is_stalled.windows(1_000).map(stalled_s).fold(0.0, f64::max),
                    rate_bits_per_s: BITS_PER_MS as f64 * 1e3,
                }),
                flows: [("link".to_owned(), flow)].into(),
                bin_s: 0.1,
                wall_s: Some(12.0),
                ..CommandTrial::default()
            };
            let measured = last_5_s(&with);
            let bounded = trial.bounded("last_5_s_bit_per_s", measured).unwrap();
            // Bins contain whole bytes, so the measured rate may be rounded.
            let rounding = 8.0 * 20.0;
            prop_assert!(bounded.least <= last_5_s(&without) + rounding, "{bounded:?} of {measured}");
        }
    }

    #[test]
    fn a_stalled_link_only_makes_programs_slower() {
        let read = |quantity: &str, more_is_better| OutputNumber {
            json: String::new(),
            quantity: quantity.to_owned(),
            more_is_better,
            optional: false,
        };
        let numbers = [
            ("latency_us", false),
            ("retransmits_count", false),
            ("files_per_s", true),
            ("lost_per_s", false),
        ];
        let words = |wall_s, name: &str, value| {
            let plan = CommandPlan {
                read: numbers.map(|(name, more)| read(name, more)).into(),
                ..CommandPlan::default()
            };
            let stalled = Some(LinkStall { total_s: 0.08, in_a_second_s: 0.02, rate_bits_per_s: 625e6 });
            let trial = CommandTrial { plan, stalled, wall_s: Some(wall_s), ..CommandTrial::default() };
            trial.bounded(name, value).map(|span| span.in_words(|value| value.to_string()))
        };
        let is = |wall_s, name: &str, value, expected: &str| {
            assert_eq!(words(wall_s, name, value).as_deref(), Some(expected), "{name}");
        };
        is(15.0, "last_5_s_bit_per_s", 9e8, "≥ 890000000");
        is(2.0, "last_5_s_bit_per_s", 9e8, "≥ 850000000");
        is(15.0, "last_5_s_bit_per_s", 3e8, "≥ 297500000");
        is(15.0, "goodput_bit_per_s", 9e8, "≥ 900000000");
        is(15.0, "read_bytes_per_s", 9e7, "≥ 88750000");
        is(15.0, "read_bytes_per_s", 3e7, "≥ 29687500");
        is(15.0, "files_per_s", 100.0, "≥ 0");
        is(15.0, "moved_bytes", 3.0, "≥ 3");
        is(15.0, "wall_s", 15.0, "≤ 15");
        is(15.0, "latency_us", 120.0, "≤ 120");
        is(15.0, "link_a_b_dropped_packets", 3.0, "3");
        for unknown in [
            "retransmits_count",
            "lost_per_s",
            "user_s",
            "host_a_processor_s",
            "peak_memory_bytes",
            "sent_bytes",
        ] {
            assert_eq!(words(15.0, unknown, 3.0), None, "{unknown}");
        }
        assert_eq!(CommandTrial::default().bounded("user_s", 3.0), Some(Span::exact(3.0)));
    }
}
