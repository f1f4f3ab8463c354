//! A study: its factors, settings, goals and searches, and the setup of each setting at each load.

use std::{fmt, sync::Arc, time::Duration};

use kernel::remote::Destination;
use record::{Factor, Goal, LoadUnit, Noise, OnNoise, Setting};
use serde::{Deserialize, Serialize};
use settings::Mistake;

use crate::workload::Workload;

/// A study, read from a file by [`crate::file::read`] or built by a command.
#[derive(Debug, Clone)]
pub struct Study {
    /// Title of the study.
    pub title: String,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Wall-clock time after which no further trial begins; none for no limit.
    pub budget: Option<Duration>,
    /// The factors, in the order of the file.
    pub factors: Vec<Factor>,
    /// All combinations of levels that are run, in the order of the file.
    pub settings: Vec<Setting>,
    /// The goals that a load must meet.
    pub goals: Vec<Goal>,
    /// How trials are run.
    pub trial: TrialShape,
    /// Remote hosts whose kernels are read around each trial.
    pub observe: Vec<Destination>,
    /// The search, if any setting is searched.
    pub search: Option<Search>,
    /// The same search with other presets, for the settings that name one.
    pub other_searches: Vec<Search>,
    /// The noise that a look at this machine measured before the first trial; none if there was no look.
    pub noise: Option<Noise>,
    /// Warnings that the result repeats, such as settings that were left out.
    pub warnings: Vec<record::Warning>,
    /// The source of the setups.
    pub source: Source,
}

/// The source of a setting's setup.
#[derive(Debug, Clone)]
pub enum Source {
    /// A study file; the levels of the setting replace its placeholders.
    File(Arc<dyn StudyFile>),
    /// A fixed setup for all settings; only the load of the search changes.
    Fixed(Box<Setup>),
}

/// A study file that has been read.
pub trait StudyFile: fmt::Debug + Send + Sync {
    /// Passes the setups of the `wanted` settings and loads to `take`, until `take` returns false. `study` must have been read from this
    /// file. The load is in the unit of the setting's search, and `None` without a search. Reading the file has checked all settings, so a
    /// mistake here means that something has changed since then, for example that a file is missing.
    fn each_setup(&self, study: &Study, wanted: &mut Wanted<'_>, take: &mut Take<'_>);

    /// The file's text with all secrets masked.
    fn masked_text(&self) -> String;

    /// Overridden factors and keys, with their values.
    fn overrides(&self) -> Vec<(&str, &str)>;
}

/// Indices of settings, each with a load.
pub(crate) type Wanted<'a> = dyn Iterator<Item = (usize, Option<f64>)> + 'a;
/// Receives the setup of a setting; returns false to stop.
pub(crate) type Take<'a> = dyn FnMut(usize, Result<Setup, Vec<Mistake>>) -> bool + 'a;

/// How the trials of a study are run.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialShape {
    /// Number of repeats of every setting, each in its own block.
    pub repeats: u32,
    /// Duration of a warm-up, which runs before the first trial on a new target and does not count.
    pub warm_up: Option<Duration>,
    /// Pause before every trial.
    pub pause: Duration,
    /// Longest wait before a trial for leftovers of closed connections that would disturb it; zero does not wait. `None`: the time
    /// that connections usually take to close, and the time for which the kernel keeps their state.
    pub settle: Option<Duration>,
    /// When hosts and targets are replaced by new ones.
    pub fresh: Fresh,
    /// How often a void trial is repeated.
    pub void_attempts: u32,
    /// How the study treats the noise of this machine.
    pub on_noise: OnNoise,
}

impl Default for TrialShape {
    /// One trial of each setting.
    fn default() -> Self {
        Self {
            repeats: 1,
            warm_up: None,
            pause: Duration::ZERO,
            settle: None,
            fresh: Fresh::Setting,
            void_attempts: 3,
            on_noise: OnNoise::Widen,
        }
    }
}

/// When hosts and targets are replaced by new ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fresh {
    /// When the setting changes.
    Setting,
    /// For every trial.
    Trial,
}

/// A search for the largest load that meets the goals.
#[derive(Debug, Clone, PartialEq)]
pub struct Search {
    /// The unit of the load.
    pub unit: LoadUnit,
    /// Smallest load, in this unit.
    pub min: f64,
    /// Largest load, in this unit.
    pub max: f64,
    /// Requested distance between the bounds, relative to the load.
    pub width: f64,
    /// Name of a preset of the crate `search`, such as `mlrsearch`, `jmeter`, `rfc2544`.
    pub preset: String,
    /// Duration of a full trial; the preset's if none.
    pub trial_duration: Option<Duration>,
    /// Number of full trials that decide about a load; the preset's if none.
    pub repeats: Option<u32>,
    /// Number of trials at the lower bound after the search.
    pub confirm: u32,
    /// The load at which the search begins.
    pub begin: Begin,
}

/// The load at which a search begins.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Begin {
    /// At its smallest load, and then at multiples of it.
    Smallest,
    /// At the load that a [look](crate::look) at the target suggests.
    Looks,
    /// At its smallest load, then at this one.
    At(f64),
}

/// The setup of one setting at one load.
#[derive(Debug, Clone, PartialEq)]
pub struct Setup {
    /// Hosts, links and all processes on them, including the target; `None` if the load leaves from this machine's own network
    /// towards an external target.
    pub lab: Option<lab::Plan>,
    /// The target of this setting, for reports.
    pub target: Option<Target>,
    /// Indices in the lab's plan of the hosts that make the load; empty without a lab.
    pub from: Vec<usize>,
    /// The workload at this load.
    pub workload: Workload,
    /// The audit after each trial, if any.
    pub audit: Option<Audit>,
    /// Whether each processor's time is attributed to the hosts for which it works.
    pub books_time: bool,
    /// The balancer between load and target, if any.
    pub balancer: Option<lab::Balancer>,
    /// Actions on hosts during each trial.
    pub actions: Vec<Action>,
}

/// An action on a host during a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// Time of the action after the start of the load.
    pub at: Duration,
    /// Index of the host in the lab's plan.
    pub host: usize,
    /// The kind of the action.
    pub what: ActionKind,
}

/// A kind of action on a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionKind {
    /// A command of `proofload balance` for the balancer, given by the words after its name.
    Balance(Vec<String>),
    /// A command line to run on the host.
    Command(Vec<String>),
    /// Sends SIGKILL to the programs of this name.
    Kill(String),
    /// Switches the host's ports of its segments on or off.
    Link(bool),
}

/// An audit after every trial: compares the events that the target acknowledged with those that it stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    /// Patterns of the stored files. `{target_folder}` is replaced by the folder of each of the target's processes.
    pub files: Vec<String>,
    /// Time that the target has to write the acknowledged events.
    pub flush: Duration,
}

/// The target of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Name of the target in the study file.
    pub name: String,
    /// Program (such as `nginx`), command line, or URL.
    pub what: String,
}

impl Setup {
    /// Names of the target's processes; empty for an external target.
    pub fn target_processes(&self) -> impl Iterator<Item = &str> {
        let plan = self.lab.as_ref().zip(self.target.as_ref());
        plan.into_iter().flat_map(|(plan, target)| {
            let is_of_target = |process: &&lab::plan::Process| {
                let host = &plan.hosts[process.host].name;
                process.name.strip_prefix(host.as_str()).and_then(|name| name.strip_prefix('-'))
                    == Some(&target.name)
            };
            plan.processes.iter().filter(is_of_target).map(|process| process.name.as_str())
        })
    }
}

impl Study {
    /// The search of a setting; none if it is not searched.
    pub fn search_of(&self, setting: &Setting) -> Option<&Search> {
        if !setting.searched {
            return None;
        }
        let named = |search: &&Search| setting.method.as_ref().is_none_or(|name| *name == search.preset);
        self.search.iter().chain(&self.other_searches).find(named)
    }

    /// The setup of a setting at a load.
    ///
    /// # Errors
    /// Every mistake. Mistakes are rare here, because reading a study file has checked all settings at both ends of the search.
    pub fn setup(&self, setting: usize, load: Option<f64>) -> Result<Setup, Vec<Mistake>> {
        let mut made = Err(Vec::new());
        self.each_setup(std::iter::once((setting, load)), &mut |_, setup| {
            made = setup;
            true
        });
        made
    }

    /// Passes the setups of several settings and loads to `take`, until `take` returns false. This is much faster
    /// than [`Study::setup`] for each of them.
    pub fn each_setup(&self, mut wanted: impl Iterator<Item = (usize, Option<f64>)>, take: &mut Take<'_>) {
        match &self.source {
            Source::File(file) => file.each_setup(self, &mut wanted, take),
            Source::Fixed(setup) => {
                let _ = wanted.all(|(setting, load)| {
                    let mut setup = (**setup).clone();
                    if let (Some(search), Some(load)) = (&self.search, load) {
                        setup.workload.set_load(&search.unit, load);
                    }
                    take(setting, Ok(setup))
                });
            }
        }
    }
}
