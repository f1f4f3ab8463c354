//! How a study is run, and what is told while it runs.

use std::sync::{Arc, atomic::AtomicBool};

use load::Tick;
use record::{CurrentBounds, Purpose, StudyPlan, TrialEntry};

/// How a study is run.
#[derive(Debug)]
pub struct Options {
    /// How labs are brought up.
    pub lab: lab::Options,
    /// Arguments that make this program a worker process.
    pub worker: Vec<String>,
    /// The command line that repeats the study.
    pub command: Vec<String>,
    /// Ends the study when set.
    pub stop: Arc<AtomicBool>,
    /// Goes on where a killed run was.
    pub resume: bool,
}

/// What happens while a study runs.
#[derive(Debug)]
pub enum Event<'a> {
    /// The plan is made.
    Planned {
        /// The plan.
        plan: &'a StudyPlan,
        /// Trials of an earlier run that need not be run again.
        done: usize,
        /// Those of them that were void, so that their places were or are to be tried again.
        again: usize,
    },
    /// Hosts and targets of a setting are being brought up.
    SettingUp {
        /// The setting's name.
        name: &'a str,
    },
    /// A trial begins.
    Begins {
        /// The setting's name.
        name: &'a str,
        /// What it is for.
        purpose: Purpose,
        /// The load of a search, in words.
        load: Option<String>,
    },
    /// A second of a trial.
    Second(&'a Tick),
    /// A trial has ended.
    Ended(&'a TrialEntry),
    /// A search knows more.
    Closing {
        /// The bounds of each goal so far, or what hints at them, in the order of the plan.
        bounds: Vec<CurrentBounds>,
        /// How long the search still takes, in seconds, by what is known.
        remaining_s: f64,
    },
    /// Something a careful reader should know.
    Warning(&'a str),
}
