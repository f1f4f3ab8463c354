//! Why a trial could not be run.

use std::io;

use load::RunError;

/// Why a trial could not be run.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// The trial failed in this process.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A worker process could not be started.
    #[error("cannot start a worker process: {0}; see `ulimit -u` and `ulimit -n`")]
    Start(io::Error),
    /// A worker process ran out of a resource before the start.
    #[error("a worker process could not be set up: {0}")]
    OutOfResources(String),
    /// A worker process failed before the start.
    #[error("a worker process failed before the start: {0}")]
    Worker(String),
    /// The message to start reached a machine after the start.
    #[error("the message to start came {:.1} ms after the start", *late_ns as f64 / 1e6)]
    LateStart {
        /// How long after it, in nanoseconds.
        late_ns: u64,
    },
    /// A machine could not take its part before the start.
    #[error("{name} could not take its part of the load: {why}")]
    Machine {
        /// Name of the machine.
        name: String,
        /// The reason, and the next step.
        why: String,
    },
}

impl FleetError {
    /// Whether the machine ran out of a resource: processes, threads, descriptors or memory; or another machine could not take
    /// part. In these cases, a later trial may succeed.
    pub fn is_resource_shortage(&self) -> bool {
        matches!(
            self,
            Self::Start(_) | Self::OutOfResources(_) | Self::Machine { .. } | Self::Run(RunError::Setup(_))
        )
    }
}
