//! What stalls of emulated links leave known of the figures of programs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::CommandTrial;
use crate::span::Span;

/// The shortest time over which a rate is taken, in seconds, in trials of at least twice that.
const SHORTEST_WINDOW_S: f64 = 5.0;

/// Stalls of emulated links in a trial: their emulators moved no packet, since something else had their processor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkStall {
    /// All of them together, in seconds.
    pub total_s: f64,
    /// What the links carry in that time, in bits. So much may have come after a stall that was sent before it.
    pub backlog_bits: f64,
}

impl LinkStall {
    /// The same of this link and of others that the trial used as well.
    pub fn merged(self, other: Self) -> Self {
        Self { total_s: self.total_s + other.total_s, backlog_bits: self.backlog_bits + other.backlog_bits }
    }
}

impl CommandTrial {
    /// A quantity by its name and its measured value, as what stalls of links leave known of it; none if that is nothing.
    ///
    /// A stalled link only makes programs slower. A time is at most what was measured; what was moved, at least. A rate is at least
    /// what was measured, less the backlog: what was sent before a stall and came after it may have come in the time over which the
    /// rate is taken, which is 5 s or half of the trial. How a slower program uses processors, memory and packets is unknown.
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
        // What a link itself counted.
        if name.starts_with("link_") {
            return Some(Span::exact(value));
        }
        if read.is_some_and(|read| !read.more_is_better) {
            return None;
        }
        let window_s = self.wall_s.map_or(SHORTEST_WINDOW_S, |wall_s| (wall_s / 2.0).min(SHORTEST_WINDOW_S));
        let backlog = match name {
            name if name.ends_with("_bit_per_s") => stall.backlog_bits / window_s,
            name if name.ends_with("bytes_per_s") => stall.backlog_bits / 8.0 / window_s,
            // Of other rates, all may be backlog.
            name if name.ends_with("_per_s") => value,
            "moved_bytes" => 0.0,
            _ => return None,
        };
        Some(Span { least: (value - backlog).max(0.0), at_least: true, ..Span::exact(value) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CommandPlan, OutputNumber};

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
            let stalled = Some(LinkStall { total_s: 0.08, backlog_bits: 5e7 });
            let trial = CommandTrial { plan, stalled, wall_s: Some(wall_s), ..CommandTrial::default() };
            trial.bounded(name, value).map(|span| span.in_words(|value| value.to_string()))
        };
        let is = |wall_s, name: &str, value, expected: &str| {
            assert_eq!(words(wall_s, name, value).as_deref(), Some(expected), "{name}");
        };
        is(15.0, "last_5_s_bit_per_s", 9e8, "≥ 890000000");
        is(2.0, "goodput_bit_per_s", 9e8, "≥ 850000000");
        is(15.0, "read_bytes_per_s", 9e7, "≥ 88750000");
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
