//! Options of a study's run, and the events that it reports.

use std::sync::{Arc, atomic::AtomicBool};

use load::Tick;
use record::{CurrentBounds, HttpPlan, Purpose, StudyPlan, TrialEntry};

use crate::{generator::Generator, machines::Placement, remotes::RemoteHosts};

/// How a study is run.
#[derive(Debug, Clone)]
pub struct Options {
    /// How labs are brought up.
    pub lab: lab::Options,
    /// What makes the HTTP load.
    pub generator: Generator,
    /// The command line that repeats the study.
    pub command: Vec<String>,
    /// Ends the study when set.
    pub stop: Arc<AtomicBool>,
    /// Resumes an interrupted run.
    pub resume: bool,
    /// Remote hosts whose kernels are read around each trial.
    pub remotes: RemoteHosts,
    /// Which machines the hosts are; none if they are made in a lab.
    pub placement: Option<Placement>,
}

/// An event while a study runs.
#[derive(Debug)]
pub enum Event<'a> {
    /// The plan is made.
    Planned {
        /// The plan of the study.
        plan: &'a StudyPlan,
        /// Trials of earlier runs, which are not run again.
        done: usize,
        /// Void trials of earlier runs that are repeated.
        retried: usize,
    },
    /// Hosts and targets of a setting are being brought up.
    SettingUp {
        /// The setting's name.
        name: &'a str,
    },
    /// A trial begins.
    TrialBegins {
        /// The setting's name.
        name: &'a str,
        /// Its purpose.
        purpose: Purpose,
        /// The load in words, if it belongs to a search.
        load: Option<String>,
        /// The plan of its requests, if it sends any.
        plan: Option<&'a HttpPlan>,
    },
    /// One second of a trial has passed.
    Tick(&'a Tick),
    /// A trial has ended.
    TrialEnded(&'a TrialEntry),
    /// A search has made progress.
    SearchProgress {
        /// The bounds of each goal so far, in the order of the plan. An estimate stands in for a bound that is not known yet.
        bounds: Vec<CurrentBounds>,
        /// Estimated time that the search still takes, in seconds.
        remaining_s: f64,
    },
    /// The reason for a wait before a trial, and its longest duration.
    Waiting(&'a str),
    /// A warning for the user.
    Warning(&'a str),
}
