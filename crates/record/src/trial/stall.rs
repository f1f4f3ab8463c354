//! The effect of stalled emulated links on the figures of programs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ByteSource, CommandTrial};
use crate::span::Span;

/// The rate at which a trial moved its bytes, from its start to its end.
const GOODPUT: &str = "goodput_bit_per_s";
/// The shortest time over which a rate may be measured, in seconds. In trials of less than twice this time, it is half
/// of the trial.
const SHORTEST_WINDOW_S: f64 = 5.0;
/// With more stalled time in three seconds, nothing is known of how full the link would have been.
const MOST_STALLED_S: f64 = 0.5;
/// Bins are spread evenly between two samples of the counters, which may lie so far apart.
const SAMPLED_S: f64 = 0.5;

/// Stalls of emulated links in a trial: their emulators moved no packet, since something else had their processor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkStall {
    /// All of them together, in seconds.
    pub total_s: f64,
    /// The most stalled time within three successive seconds of the clock, in seconds; none if more than one link stalled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_three_seconds_s: Option<f64>,
    /// The rate of the fastest link that stalled, in bits per second; none if one of them has no rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bits_per_s: Option<f64>,
}

impl LinkStall {
    /// The stalls of this link and of another link that the trial used.
    pub fn merged(self, other: Self) -> Self {
        match (self.total_s, other.total_s) {
            (0.0, _) => other,
            (_, 0.0) => self,
            (own_s, other_s) => Self {
                total_s: own_s + other_s,
                in_three_seconds_s: None,
                rate_bits_per_s: self.rate_bits_per_s.zip(other.rate_bits_per_s).map(|(a, b)| a.max(b)),
            },
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
        let backlog = match name {
            "moved_bytes" => 0.0,
            // The bytes of a link include those that were sent again.
            GOODPUT if read.is_none() && self.plan.bytes != Some(ByteSource::Link) => 0.0,
            name if name.ends_with("_bit_per_s") => self.backlog_bits_per_s(stall),
            name if name.ends_with("bytes_per_s") => self.backlog_bits_per_s(stall) / 8.0,
            // Of other rates, all may be backlog.
            name if name.ends_with("_per_s") => value,
            _ => return None,
        };
        Some(Span { least: (value - backlog).max(0.0), at_least: true, ..Span::exact(value) })
    }

    /// The most that data may have added to a rate that waited for the end of a stall when the measurement of the rate began.
    ///
    /// Without the stalls, the link would have carried at most its rate while it was stalled. If no second of the trial fills half of
    /// the link, the queue behind a stall is gone within a second, and only stalls within three seconds of the clock add up.
    /// The data that waited came at the link's rate, so it is at most what came in the bins that it can fill.
    fn backlog_bits_per_s(&self, stall: LinkStall) -> f64 {
        let links: Vec<&[u64]> = self.bins_of_links().collect();
        let is_half_full = |rate: f64| self.peak_bits(&links, 1.0) > rate / 2.0;
        let idle = stall.in_three_seconds_s.zip(stall.rate_bits_per_s).filter(|&(stalled_s, rate)| {
            !links.is_empty() && stalled_s < MOST_STALLED_S && !is_half_full(rate)
        });
        let held_s = idle.map_or(stall.total_s, |(stalled_s, _)| stalled_s);
        let most_bits = stall.rate_bits_per_s.map_or(f64::INFINITY, |rate| rate * held_s);
        let peak_bits =
            if links.is_empty() { f64::INFINITY } else { self.peak_bits(&links, held_s + SAMPLED_S) };
        most_bits.min(peak_bits) / self.window_s(&links)
    }

    /// The bins of the flows over links; of all flows if no link has any.
    fn bins_of_links(&self) -> impl Iterator<Item = &[u64]> {
        let is_link = |name: &&String| name.starts_with("link ");
        let has_links = self.flows.keys().any(|name| is_link(&name));
        let flows = self.flows.iter().filter(move |(name, _)| is_link(name) || !has_links);
        flows.map(|(_, flow)| &flow.bins[..]).filter(|bins| !bins.is_empty() && self.bin_s > 0.0)
    }

    /// The most bits in so many seconds and a bin, summed over the flows.
    fn peak_bits(&self, flows: &[&[u64]], seconds: f64) -> f64 {
        let count = (seconds / self.bin_s).ceil() as usize + 1;
        let peak = |bins: &&[u64]| {
            let sums = bins.windows(count.min(bins.len())).map(|bins| bins.iter().sum::<u64>());
            sums.max().unwrap_or(0) as f64 * 8.0
        };
        flows.iter().map(peak).sum()
    }

    /// The shortest time over which a rate may have been measured, in seconds: 5 s, or half of the time with traffic.
    fn window_s(&self, flows: &[&[u64]]) -> f64 {
        let ended = flows.iter().filter_map(|bins| bins.iter().rposition(|bytes| *bytes > 0)).max();
        let traffic_s = ended.map(|last| last as f64 * self.bin_s);
        let elapsed_s = traffic_s.into_iter().chain(self.wall_s).fold(f64::INFINITY, f64::min);
        (elapsed_s / 2.0).clamp(self.bin_s.max(0.1), SHORTEST_WINDOW_S)
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

    const BITS_PER_MS: u64 = 8_000;

    /// A trial of 12 s over a link that was offered this in each of its milliseconds, with the rates of its last 5 s: as
    /// measured, and without the stalls.
    fn trial_over(offered: &[u64], is_stalled: &[bool]) -> (CommandTrial, [f64; 2]) {
        let with = delivered(offered, BITS_PER_MS, |ms| is_stalled[ms]);
        let without = delivered(offered, BITS_PER_MS, |_| false);
        let stalled_s = |stalled: &[bool]| stalled.iter().filter(|is| **is).count() as f64 / 1e3;
        let seconds: Vec<f64> = is_stalled.chunks(1_000).map(stalled_s).collect();
        let bins = with.chunks(100).map(|bits| bits.iter().sum::<u64>().div_ceil(8)).collect();
        let trial = CommandTrial {
            stalled: Some(LinkStall {
                total_s: stalled_s(is_stalled),
                in_three_seconds_s: seconds.windows(3).map(|three| three.iter().sum()).reduce(f64::max),
                rate_bits_per_s: Some(BITS_PER_MS as f64 * 1e3),
            }),
            flows: [("link ocean a to b".to_owned(), Flow { bins, ..Flow::default() })].into(),
            bin_s: 0.1,
            wall_s: Some(12.0),
            ..CommandTrial::default()
        };
        (trial, [with, without].map(|bits| bits[7_000..].iter().sum::<u64>() as f64 / 5.0))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        /// A window of data is sent in each round trip, and a smaller one after a while: over the last 5 s of 12, the lower limit is
        /// never above the rate without the stalls.
        #[test]
        fn no_rate_of_a_stalled_link_is_bounded_above_the_undisturbed_one(
            round_trip_ms in 5_usize..300,
            used in 0.001..1.2_f64,
            later in 0.0..1.0_f64,
            change_ms in 0_usize..12_000,
            stalls in prop::collection::vec((0_usize..12_000, 1_usize..120), 1..60),
        ) {
            let window = |used: f64| (used * (BITS_PER_MS * round_trip_ms as u64) as f64) as u64;
            let sent = |ms| window(if ms < change_ms { used } else { used * later });
            let offered: Vec<u64> =
                (0..12_000).map(|ms| if ms % round_trip_ms == 0 { sent(ms) } else { 0 }).collect();
            let mut is_stalled = vec![false; 12_000];
            for (from, length) in stalls {
                is_stalled[from..(from + length).min(12_000)].fill(true);
            }
            let (trial, [measured, undisturbed]) = trial_over(&offered, &is_stalled);
            let bounded = trial.bounded("last_5_s_bit_per_s", measured).unwrap();
            prop_assert!(bounded.least <= undisturbed + 1.0, "{bounded:?} of {measured}, undisturbed {undisturbed}");
        }
    }

    #[test]
    fn a_slow_flow_over_a_fast_link_keeps_most_of_its_rate() {
        let offered: Vec<u64> = (0..12_000).map(|ms| if ms % 228 == 0 { 8_000 } else { 0 }).collect();
        let is_stalled: Vec<bool> = (0..12_000).map(|ms| ms % 200 < 4).collect();
        let (trial, [measured, _]) = trial_over(&offered, &is_stalled);
        let bounded = trial.bounded("last_5_s_bit_per_s", measured).unwrap();
        assert!(bounded.least > 0.8 * measured, "{bounded:?}");
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
            let stalled = Some(LinkStall {
                total_s: 0.08,
                in_three_seconds_s: Some(0.02),
                rate_bits_per_s: Some(625e6),
            });
            let trial = CommandTrial { plan, stalled, wall_s: Some(wall_s), ..CommandTrial::default() };
            trial.bounded(name, value).map(|span| span.in_words(|value| value.to_string()))
        };
        let is = |wall_s, name: &str, value, expected: &str| {
            assert_eq!(words(wall_s, name, value).as_deref(), Some(expected), "{name}");
        };
        is(15.0, "last_5_s_bit_per_s", 9e8, "≥ 890000000");
        is(2.0, "last_5_s_bit_per_s", 9e8, "≥ 850000000");
        is(15.0, "goodput_bit_per_s", 9e8, "≥ 900000000");
        is(15.0, "read_bytes_per_s", 9e7, "≥ 88750000");
        is(15.0, "read_bytes_per_s", 3e7, "≥ 28750000");
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
