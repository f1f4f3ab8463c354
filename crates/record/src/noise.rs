//! The disturbances of a machine, measured before its trials begin.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::{UnitError, show_time_ns};

/// A machine is noisy if it exceeds one of these limits: shares of its processors' time (0 to 1), and a stall in
/// microseconds.
const MAX_STOLEN_RATIO: f64 = 0.02;
const MAX_OTHERS_RATIO: f64 = 0.1;
const MAX_WAITED_RATIO: f64 = 0.05;
const MAX_STALL_US: f64 = 10_000.0;

/// What a look at a machine saw: the processors that proofload may use, while it made no load.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Noise {
    /// How long the look took, in seconds (0 to 1).
    pub looked_s: f64,
    /// By how much a sleep of a millisecond ended late, in microseconds: the median.
    pub late_p50_us: f64,
    /// The 99th percentile of it.
    pub late_p99_us: f64,
    /// The longest stall: by how much the latest of these sleeps ended late.
    pub longest_stall_us: f64,
    /// Share of the processors' time that the hypervisor gave to others (0 to 1).
    pub stolen_ratio: f64,
    /// Share of the processors' time that other programs of this machine used (0 to 1).
    pub others_ratio: f64,
    /// Share of the look for which a thread was ready to run and had no processor (0 to 1); none if the kernel does not count it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runqueue_wait_ratio: Option<f64>,
    /// For how long trials waited for a quieter machine before this look, in seconds (0 to 10).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waited_s: f64,
}

fn is_zero(number: &f64) -> bool {
    *number == 0.0
}

crate::named_enum! {
    /// How trials handle the noise of a machine.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub enum OnNoise {
        /// Figures that noise may have changed become intervals.
        #[default]
        Widen "widen",
        /// A trial with a figure that noise may have changed is void.
        Void "void",
        /// The first trial waits for a quieter machine; then like [`OnNoise::Widen`].
        Wait "wait",
    }
    /// The value in options and study files.
    pub fn word;
}

impl FromStr for OnNoise {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|known| known.word() == text);
        known.ok_or_else(|| UnitError::new(text, "what to do about noise: widen, void or wait"))
    }
}

impl Noise {
    /// Whether the noise is large enough to disturb trials.
    pub fn is_noisy(&self) -> bool {
        self.stolen_ratio > MAX_STOLEN_RATIO
            || self.others_ratio > MAX_OTHERS_RATIO
            || self.runqueue_wait_ratio.is_some_and(|ratio| ratio > MAX_WAITED_RATIO)
            || self.longest_stall_us > MAX_STALL_US
    }
}

impl fmt::Display for Noise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |us: f64| show_time_ns((us * 1e3) as u64);
        let waited = self.runqueue_wait_ratio.map_or(String::new(), |ratio| {
            format!("; a thread waited for a processor {:.1} % of the time", ratio * 100.0)
        });
        write!(
            f,
            "the hypervisor took {:.1} % of the processors' time, other programs {:.1} %; a sleep ends {} late (p99 {}, at most {}){waited}",
            self.stolen_ratio * 100.0,
            self.others_ratio * 100.0,
            time(self.late_p50_us),
            time(self.late_p99_us),
            time(self.longest_stall_us),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_noise_makes_a_machine_noisy_and_a_little_of_all_does_not() {
        let quiet = Noise {
            looked_s: 1.0,
            late_p50_us: 60.0,
            late_p99_us: 300.0,
            longest_stall_us: 4_000.0,
            stolen_ratio: 0.01,
            others_ratio: 0.05,
            runqueue_wait_ratio: Some(0.01),
            waited_s: 0.0,
        };
        assert!(!quiet.is_noisy() && !Noise::default().is_noisy());
        for noisy in [
            Noise { stolen_ratio: 0.05, ..quiet.clone() },
            Noise { others_ratio: 0.2, ..quiet.clone() },
            Noise { runqueue_wait_ratio: Some(0.1), ..quiet.clone() },
            Noise { longest_stall_us: 38_000.0, ..quiet.clone() },
        ] {
            assert!(noisy.is_noisy(), "{noisy:?}");
        }
        assert_eq!(
            Noise { runqueue_wait_ratio: None, ..quiet }.to_string(),
            "the hypervisor took 1.0 % of the processors' time, other programs 5.0 %; a sleep ends 60.0 µs late (p99 300 µs, at most 4.00 ms)"
        );
    }
}
