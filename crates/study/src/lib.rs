//! Runs studies: from a study file to a plan, to trials, to a result folder.
//!
//! * [`file`]: reads a study file into a [`Study`].
//! * [`plan`]: makes the plan, which determines everything that is run.
//! * [`run`]: runs the trials of a study, or resumes an interrupted run.
//! * [`outcome`]: derives the results from the plan and the trials.

mod actions;
mod audit_observer;
mod balancer_observer;
pub mod compare;
mod counted;
mod environment;
mod event;
mod evidence;
pub mod file;
mod generator;
mod growth;
mod guard;
mod host_service;
mod judge;
mod kernels;
mod links;
mod machines;
pub mod noise;
mod observer;
mod observers;
pub mod outcome;
mod plan;
mod proof;
mod remotes;
mod run;
mod runner;
mod running_search;
mod sending;
pub mod single;
mod steadiness;
mod stop_reason;
mod study;
mod testbed;
mod widened;
mod workload;

pub use event::{Event, Options};
pub use generator::{Generator, refusals};
pub use host_service::serve;
pub use kernel::remote::Destination;
pub use machines::{Placement, Wish, hosts_of, refusals as placement_refusals};
pub use plan::plan;
pub use proof::prove;
pub use remotes::RemoteHosts;
pub use run::{FAILED, RunError, run};
pub use runner::{look, probe_targets};
pub use study::{Audit, Begin, Fresh, Search, Setup, Source, Study, StudyFile, Target, TrialShape};
pub use workload::{CommandWorkload, Reading, Workload};
