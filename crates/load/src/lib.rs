//! Generates load and measures it: one call is one trial.
//!
//! * `schedule`: the due times of requests, from a closed form.
//! * [`worker`]: the measuring loop, generic over a [`wire`].
//! * [`recorder`]: the counts and histograms of one worker.
//! * [`run()`]: the threads of one process. [`conclude()`] turns their result into a [`record::Trial`], and `validity`
//!   judges it.
//! * `workload`: a workload as users write it, and the plan made from it.
//! * [`addresses`]: the choice among the addresses of a name.
//! * [`preflight`]: whether the plan fits this machine, before anything is sent.

mod absence;
pub mod addresses;
mod conclude;
mod events;
pub mod exchange;
mod failure;
mod lease;
mod machine_limits;
mod masked;
mod mistake;
mod pool;
pub mod preflight;
pub mod recorder;
pub mod request;
mod request_log;
mod run;
mod schedule;
mod share;
mod slot;
mod source;
mod tick;
mod tls_config;
mod validity;
pub mod wire;
pub mod worker;
mod worker_result;
mod workload;

#[cfg(test)]
use ::testing::plans as testing;

pub use conclude::{DECIDED_BY_REFUSALS, GENERATOR_AWAY, TrialContext, conclude};
pub use events::{check_receipt_folder, create_receipts, sync_folder_of};
pub use lease::Lease;
pub use machine_limits::{MachineLimits, raise_descriptors};
pub use mistake::FieldMistake;
pub use run::{RunError, run};
pub use script::Script;
pub use script::without_dots;
pub use share::Share;
pub use tick::{Tick, TickMerger};
pub use validity::{sound_time_in_words, soundness_in_words};
pub use worker_result::WorkerResult;
pub use workload::{
    Count, DEFAULT_TIMEOUT_NS, FixedByUser, HttpOption, HttpWorkload, OPTIONS, Rate, StepText, Time, Typed,
    split_port,
};
