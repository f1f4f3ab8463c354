//! A study as it was read: what varies, and what is to be set up for every setting and load.

use std::{fmt, sync::Arc, time::Duration};

use record::{Factor, Goal, LoadUnit, Setting};
use settings::Mistake;

use crate::workload::Workload;

/// A study. Made from a file by [`crate::file::read`], or by a command that needs no file.
#[derive(Debug, Clone)]
pub struct Study {
    /// What it is called.
    pub title: String,
    /// Seed of everything random.
    pub seed: u64,
    /// Wall-clock time after which no further trial begins; none for no limit.
    pub budget: Option<Duration>,
    /// What varies, in the order of the file.
    pub factors: Vec<Factor>,
    /// All combinations of levels that are run, in the order of the file's levels.
    pub settings: Vec<Setting>,
    /// What a load must satisfy.
    pub goals: Vec<Goal>,
    /// How trials are run.
    pub trial: TrialShape,
    /// The search, if there is one; the settings say where.
    pub search: Option<Search>,
    /// The same search by other presets, for the settings that name them.
    pub other_searches: Vec<Search>,
    /// What the reader of the result should know from the beginning, such as settings that were left out.
    pub warnings: Vec<record::Warning>,
    /// Where setups come from.
    pub source: Source,
}

/// Where the setup of a setting comes from.
#[derive(Debug, Clone)]
pub enum Source {
    /// A study file, in which the levels are put in the places of their factors.
    File(Arc<dyn StudyFile>),
    /// Always the same; the search's load is put into it.
    Fixed(Box<Setup>),
}

/// A study file that was read.
pub trait StudyFile: fmt::Debug + Send + Sync {
    /// What is to be set up for settings of `study`, which was read from this file, and loads in the unit of their search, one
    /// after the other as long as `take` returns true; the load is none where none is searched for. All settings were tried
    /// when the file was read, so that mistakes come only from what has changed since, such as a file that is gone.
    fn each_setup(&self, study: &Study, wanted: &mut Wanted<'_>, take: &mut Take<'_>);

    /// The file's text as it may be written: every secret in it is masked.
    fn masked_text(&self) -> String;

    /// Factors and keys whose values were not the file's.
    fn overrides(&self) -> Vec<(&str, &str)>;
}

/// Settings by their numbers, and a load of each.
pub(crate) type Wanted<'a> = dyn Iterator<Item = (usize, Option<f64>)> + 'a;
/// Takes what is to be set up for a setting; false ends.
pub(crate) type Take<'a> = dyn FnMut(usize, Result<Setup, Vec<Mistake>>) -> bool + 'a;

/// How the trials of a study are run.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialShape {
    /// Repeats of every setting, each in a block of its own.
    pub repeats: u32,
    /// A trial of so long before those that count, each time the target is new; its figures decide nothing.
    pub warm_up: Option<Duration>,
    /// Pause before every trial.
    pub pause: Duration,
    /// Longest time that is waited before a trial for the connections of the one before to be gone (sockets in
    /// TIME_WAIT do not count); zero does not look.
    pub settle: Duration,
    /// What is new for every trial.
    pub fresh: Fresh,
    /// How often a void trial is tried again.
    pub void_attempts: u32,
}

/// What is made anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fresh {
    /// Hosts and targets, whenever the setting changes.
    Setting,
    /// Hosts and targets, for every trial.
    Trial,
}

/// A search for the largest load that meets the goals.
#[derive(Debug, Clone, PartialEq)]
pub struct Search {
    /// What is varied.
    pub unit: LoadUnit,
    /// Least load.
    pub min: f64,
    /// Largest load.
    pub max: f64,
    /// Width of the interval between the bounds, relative.
    pub width: f64,
    /// The name of a preset of the room `search`, such as `mlrsearch`, `jmeter`, `rfc2544`.
    pub preset: String,
    /// Duration of a trial that counts in full; the preset's if none.
    pub trial_duration: Option<Duration>,
    /// Seconds of trials that decide about a load, as a number of such trials; the preset's if none.
    pub repeats: Option<u32>,
    /// Trials at the lower bound once it is found.
    pub confirm: u32,
}

/// What is to be set up for one setting at one load.
#[derive(Debug, Clone, PartialEq)]
pub struct Setup {
    /// Hosts, links, and all processes on them, targets included; none if the load leaves from this machine's own
    /// network, towards a target that runs already.
    pub lab: Option<lab::Plan>,
    /// The target of this setting, for reports.
    pub target: Option<Target>,
    /// Hosts that the load comes from, by their numbers in the lab's plan; none without a lab.
    pub from: Vec<usize>,
    /// The workload, with the load in its place.
    pub workload: Workload,
    /// What the target's files are held against, if they are.
    pub audit: Option<Audit>,
}

/// An audit after every trial: what the target acknowledged against what it stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    /// Patterns of the files that it stores in. `{target_folder}` stands for the folder of each of the target's
    /// processes.
    pub files: Vec<String>,
    /// How long it may take to write what it has acknowledged.
    pub flush: Duration,
}

/// A target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its name in the file.
    pub name: String,
    /// What it is: `nginx`, a command line, or the URL.
    pub what: String,
}

impl Setup {
    /// The names of the target's processes; none if it runs already.
    pub fn target_processes(&self) -> impl Iterator<Item = &str> {
        let plan = self.lab.as_ref().zip(self.target.as_ref());
        plan.into_iter().flat_map(|(plan, target)| {
            let own = |process: &&lab::plan::Process| {
                let host = &plan.hosts[process.host].name;
                process.name.strip_prefix(host.as_str()).and_then(|name| name.strip_prefix('-'))
                    == Some(&target.name)
            };
            plan.processes.iter().filter(own).map(|process| process.name.as_str())
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

    /// What is to be set up.
    ///
    /// # Errors
    /// Every mistake. A study that was read whole has tried all its settings at the ends of its search, so that
    /// later ones are not to be expected.
    pub fn setup(&self, setting: usize, load: Option<f64>) -> Result<Setup, Vec<Mistake>> {
        let mut made = Err(Vec::new());
        self.each_setup(std::iter::once((setting, load)), &mut |_, setup| {
            made = setup;
            true
        });
        made
    }

    /// The same for several settings and their loads, one after the other, as long as `take` returns true: much faster than
    /// one by one.
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
