//! The effect of the generator's absences on a trial's figures.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;

/// Absences: times of at least 250 µs in which a worker thread had work but did not do it, because it was stopped, waited
/// for a processor, or was busy with other responses.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Away {
    /// Number of absences of all worker threads.
    pub times: u64,
    /// Sum of the absences of all worker threads, in seconds.
    pub total_s: f64,
    /// The longest absence, in seconds.
    pub longest_s: f64,
    /// The most by which absences may have delayed a request, in seconds; not known of trials of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delayed_s: Option<f64>,
}

impl Away {
    /// Adds the absences of another worker.
    pub fn merge(&mut self, other: &Self) {
        self.times += other.times;
        self.total_s += other.total_s;
        self.longest_s = self.longest_s.max(other.longest_s);
        self.delayed_s = self.delayed_s.into_iter().chain(other.delayed_s).reduce(f64::max);
    }
}

/// The windows in which the generator was there and the load was the planned one; see `docs/validity.md`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SoundTime {
    /// The length of a window, in seconds.
    pub window_s: f64,
    /// The sum of all windows, in seconds.
    pub total_s: f64,
    /// Response times of the requests that were due in them.
    pub response_time: Histogram,
}

/// A percentile that the generator may have lengthened, as an interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OwnPercentile {
    /// The times: `response_time` or `service_time`.
    pub times: String,
    /// The percentile: `p99`, `max`.
    pub percentile: String,
    /// The measured value, in microseconds.
    pub measured_us: f64,
    /// The value without the largest possible share of the generator, in microseconds. The target's own value lies between
    /// the two.
    pub less_own_us: f64,
}
