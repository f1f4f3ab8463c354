//! Runs programs as the load of a trial: several copies at once, timed and counted, ended with all their descendants.
//!
//! * [`Job`]: the programs to run.
//! * [`supervisor`]: the process that runs a job on a host or on this machine and writes a [`Report`].
//! * [`OutputFolder`]: the folder that programs write to.
//! * [`MemoryGroup`]: measures the memory of all processes.
//! * [`Flows`]: counts the traffic of interfaces.
//! * [`number_in`]: reads a number from a program's output.

mod flows;
mod job;
mod memory;
mod numbers;
mod output;
mod rest;
pub mod supervisor;

pub use flows::Flows;
pub use job::{COPY_MARKER, JOB_VARIABLE, Job, Report, Rest, Sent};
pub use memory::MemoryGroup;
pub use numbers::number_in;
pub use output::OutputFolder;
