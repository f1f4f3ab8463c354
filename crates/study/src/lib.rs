//! From a study file to a plan, to trials, to a result folder.
//!
//! * [`file`]: reads a study file into a [`Study`].
//! * [`plan`]: everything that decides what is run, as the result folder keeps it.
//! * [`run`]: runs it, trial by trial, and takes up what was killed.
//! * [`outcome`]: what the trials mean; the plan and the journal decide.

mod auditing;
pub mod compare;
mod course;
pub mod environment;
mod event;
mod evidence;
pub mod file;
mod growth;
mod judge;
pub mod links;
mod observer;
mod observers;
pub mod outcome;
mod plan;
mod run;
mod searching;
pub mod single;
mod stand;
mod stop_reason;
mod study;
mod workload;

pub use course::refuse_silent;
pub use event::{Event, Options};
pub use plan::plan;
pub use run::{FAILED, RunError, run};
pub use study::{Audit, Fresh, Search, Setup, Source, Study, StudyFile, Target, TrialShape};
pub use workload::{CommandWorkload, Reading, Workload};
