//! The results of a script's iterations and steps.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_workers_add_up() {
        let of = |begun: u64, completed: u64| {
            let mut one = ScriptResult::default();
            (one.iterations.begun, one.iterations.completed, one.iterations.failed) = (begun, completed, 1);
            let mut step =
                StepResult { name: "login".to_owned(), completed, failed: 2, ..StepResult::default() };
            step.response_time.record_n_ns(1_000, completed);
            one.steps.push(step);
            one
        };
        let mut sum = of(5, 4);
        sum.merge(&of(7, 6));
        let Iterations { begun, completed, failed } = sum.iterations;
        assert_eq!((begun, completed, failed), (12, 10, 2));
        let step = &sum.steps[0];
        assert_eq!((step.completed, step.failed, step.response_time.count()), (10, 4, 10));
    }
}
