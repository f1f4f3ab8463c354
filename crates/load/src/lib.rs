//! Makes load and measures it: one call is one trial.
//!
//! * `schedule`: when requests are due, by closed form.
//! * [`worker`]: the measuring loop, generic over a [`wire`].
//! * [`book`]: counts and histograms, with the identities that prove nothing was lost.
//! * [`run`]: the threads of one process; [`conclude`]: from what they found to a [`record::Trial`],
//!   judged by [`validity`].
//! * [`workload`]: a trial as users write it, and the plan it makes.
//! * [`preflight`]: whether the plan fits this machine, before anything is sent.

mod absence;
pub mod book;
mod conclude;
mod events;
mod failure;
pub mod host;
mod masked;
mod part;
mod pool;
pub mod preflight;
pub mod request;
mod run;
mod schedule;
mod share;
mod slot;
mod source;
#[cfg(any(test, feature = "simulated"))]
pub mod testing;
mod tick;
pub mod validity;
pub mod wire;
pub mod worker;
#[cfg(test)]
mod worker_absence_tests;
#[cfg(test)]
mod worker_event_tests;
#[cfg(test)]
mod worker_failure_tests;
#[cfg(test)]
mod worker_load_tests;
#[cfg(test)]
mod worker_tests;
pub mod workload;

pub use conclude::{Circumstances, conclude};
pub use host::Host;
pub use part::Part;
pub use run::{RunError, run};
pub use share::Share;
pub use tick::{Gather, Tick};
pub use workload::{FieldMistake, HttpOption, HttpWorkload, OPTIONS};
