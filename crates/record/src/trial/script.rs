//! What the iterations and steps of a script came to.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{errors::ErrorCounts, histogram::Histogram};

/// What a script came to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScriptResult {
    /// The iterations of all users.
    pub iterations: Iterations,
    /// The steps that send requests, in the order of the plan.
    pub steps: Vec<StepResult>,
    /// Lines that are missing in the log of requests, because the disk was too slow.
    #[serde(default)]
    pub log_lines_dropped: u64,
}

/// Iterations, by how they ended. Those that are in none of the other counts did not end before the trial did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Iterations {
    /// All that began.
    pub begun: u64,
    /// Those that ended without a failure.
    pub completed: u64,
    /// Those of which a step failed.
    pub failed: u64,
}

/// What the requests of one step came to. Redirects that were followed count as requests of their step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepResult {
    /// Its name.
    pub name: String,
    /// Requests with the expected answer.
    pub completed: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Their failures by class.
    pub errors: ErrorCounts,
    /// From the intended send to the last byte, of completed requests.
    pub response_time: Histogram,
}

impl ScriptResult {
    /// Adds another worker's result of the same plan.
    pub fn merge(&mut self, other: &Self) {
        self.iterations.begun += other.iterations.begun;
        self.iterations.completed += other.iterations.completed;
        self.iterations.failed += other.iterations.failed;
        self.log_lines_dropped += other.log_lines_dropped;
        for (step, other) in self.steps.iter_mut().zip(&other.steps) {
            step.completed += other.completed;
            step.failed += other.failed;
            step.errors.merge(&other.errors);
            step.response_time.merge(&other.response_time);
        }
    }
}
