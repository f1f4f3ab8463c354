//! The part of a trial that one machine of a fleet made.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Counts, CpuUse, HttpTrial};
use crate::histogram::Histogram;

/// The part of a trial that one machine made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineTrial {
    /// Name of the machine.
    pub name: String,
    /// Its share of the load (0 to 1).
    pub share_ratio: f64,
    /// Number of its worker processes.
    pub processes: u32,
    /// Its counts of requests and connections.
    pub counts: Counts,
    /// From the intended send to the last byte of the response, for complete requests.
    pub response_time: Histogram,
    /// The generator's share of the lateness.
    pub own_lateness: Histogram,
    /// Its CPU and memory use.
    pub cpu: CpuUse,
    /// Time in which its generator was away, in seconds, summed over its threads.
    pub away_s: f64,
    /// Round trip to the machine, in seconds: the shortest that was measured.
    pub round_trip_s: f64,
    /// How far the common start, as told to the machine by its clock, may be from the true one, in seconds. Its own lateness comes on top.
    pub clock_bound_s: f64,
    /// Why its part is missing; none if it is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
}

impl MachineTrial {
    /// Takes the counts and times of what the machine measured.
    pub fn measured(self, http: &HttpTrial) -> Self {
        Self {
            counts: http.counts.clone(),
            response_time: http.response_time.observed.clone(),
            own_lateness: http.own_lateness.clone(),
            cpu: http.cpu.clone(),
            away_s: http.away.total_s,
            ..self
        }
    }

    /// Frees the memory of the histograms' empty bins.
    pub(super) fn pack(&mut self) {
        self.response_time.pack();
        self.own_lateness.pack();
    }
}
