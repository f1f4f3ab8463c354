//! Runs the trials of a study in the order of its plan, brings up hosts and targets for each setting, and records every trial
//! before the next one begins.

mod look;
mod probe;
mod settle;
mod trial;

pub use look::look;
pub use probe::probe_targets;

use std::time::{Duration, Instant};

use rand::{SeedableRng, seq::SliceRandom};
use rand_pcg::Pcg64Mcg;
use record::{NamePlan, Purpose, ResultFolder, StudyPlan, TrialEntry, Warning, folder::TrialJournal};

use crate::{
    balancer_observer::BalancerObserver,
    event::{Event, Options},
    evidence::Evidence,
    kernels::Kernels,
    links::Links,
    observers::Observers,
    outcome,
    running_search::RunningSearch,
    stop_reason::{Result, StopReason},
    study::Study,
    testbed::Testbed,
};

/// The names that earlier trials resolved, with their addresses.
fn used_names(done: &[TrialEntry]) -> Vec<NamePlan> {
    let plans = done.iter().filter_map(|entry| entry.trial.http());
    let used = plans.flat_map(|http| &http.plan.connection.names).filter(|name| !name.used.is_empty());
    used.cloned().collect()
}

/// The outputs of a study.
pub(crate) struct Outputs<'a> {
    pub folder: &'a ResultFolder,
    pub journal: TrialJournal,
    pub evidence: Evidence,
}

/// Runs the trials of a study, or resumes an interrupted run.
pub(crate) struct Runner<'a> {
    study: &'a Study,
    plan: &'a StudyPlan,
    options: &'a Options,
    on_event: &'a mut dyn FnMut(Event<'_>),
    folder: &'a ResultFolder,
    journal: TrialJournal,
    started: Instant,
    /// Total duration of the earlier runs of this study, in seconds.
    before_s: f64,
    next_index: u64,
    /// Time that the trials of this run took beyond their own durations (setup, settling, draining), in seconds, and the number
    /// of these trials.
    overhead: (f64, u32),
    /// Number of `entries` that earlier runs wrote. `replayed` is the number of these already matched with the plan.
    earlier_trials: usize,
    replayed: usize,
    pub(crate) entries: Vec<TrialEntry>,
    /// Results of the searches so far.
    limits: Vec<FoundLimit>,
    testbed: Option<Testbed>,
    /// The setting that `testbed` serves.
    testbed_setting: Option<usize>,
    /// The addresses of names. All trials use the same addresses, even after a resume.
    names: Vec<NamePlan>,
    /// Searched settings whose target has answered a probe.
    probed_settings: Vec<usize>,
    observers: Observers,
    /// The number of leftovers on the hosts before their first trial.
    idle: settle::Idle,
    /// Time that the target needs for the requests that the last trial gave up.
    backlog: Duration,
    /// The gap that the search requests before the next trial.
    gap: Duration,
    reported_adjustments: Vec<String>,
    /// The actions on hosts during the last trial.
    actions: Vec<record::ActionRecord>,
    /// Warnings that the next trial entry will hold.
    pub(crate) pending_warnings: Vec<Warning>,
}

/// The result of a search: a load that meets all goals.
#[derive(Debug, Clone, Copy)]
struct FoundLimit {
    block: usize,
    setting: usize,
    load: f64,
}

/// A trial of the plan.
#[derive(Debug, Clone, Copy, PartialEq)]
struct PlannedTrial {
    block: usize,
    setting: usize,
    purpose: Purpose,
    load: Option<f64>,
    attempt: u32,
}

impl PlannedTrial {
    fn in_words(self, plan: &StudyPlan) -> String {
        let purpose = match self.purpose {
            Purpose::WarmUp => "a warm-up",
            Purpose::Search => "a trial of a search",
            Purpose::Repeat => "a repeat",
            Purpose::Confirm => "a further trial",
        };
        let unit = plan.search_of(self.setting).map(|search| &search.unit);
        let load = self.load.zip(unit).map(|(load, unit)| format!(" at {}", unit.show(load)));
        let name = plan.settings.get(self.setting).map(|setting| setting.name.as_str()).unwrap_or_default();
        let name = if name.is_empty() { "the only setting" } else { name };
        format!(
            "{purpose} of {name}{} in block {}, attempt {}",
            load.unwrap_or_default(),
            self.block + 1,
            self.attempt + 1
        )
    }
}

impl<'a> Runner<'a> {
    /// `done`: the trials of earlier runs; empty for a new study.
    pub(crate) fn new(
        study: &'a Study,
        plan: &'a StudyPlan,
        options: &'a Options,
        on_event: &'a mut dyn FnMut(Event<'_>),
        outputs: Outputs<'a>,
        done: Vec<TrialEntry>,
    ) -> Self {
        let Outputs { folder, journal, evidence } = outputs;
        Self {
            study,
            plan,
            options,
            on_event,
            folder,
            journal,
            started: Instant::now(),
            before_s: done.last().map_or(0.0, |entry| entry.study_time_s + entry.trial.elapsed_s),
            next_index: done.len() as u64 + 1,
            overhead: (0.0, 0),
            names: used_names(&done),
            earlier_trials: done.len(),
            backlog: done.last().map_or(Duration::ZERO, |entry| trial::backlog(&entry.trial)),
            entries: done,
            replayed: 0,
            limits: Vec::new(),
            testbed: None,
            testbed_setting: None,
            probed_settings: Vec::new(),
            observers: Observers {
                evidence,
                links: Links::new(folder),
                kernels: Kernels::new(folder, &options.remotes),
                balancer: BalancerObserver::default(),
            },
            gap: Duration::ZERO,
            idle: settle::Idle::new(),
            reported_adjustments: Vec::new(),
            actions: Vec::new(),
            pending_warnings: Vec::new(),
        }
    }

    /// Reports a warning, and keeps it for the next trial entry.
    pub(crate) fn warn(&mut self, warning: Warning) {
        let warning = Warning::new(&warning.code, secrets::mask(&warning.message));
        (self.on_event)(Event::Warning(&warning.message));
        self.pending_warnings.push(warning);
    }

    /// Runs every planned trial that earlier runs did not run: first all blocks, then the confirmations of the searches.
    pub(crate) fn finish(&mut self) -> Result {
        self.run_blocks()?;
        self.confirm()
    }

    fn run_blocks(&mut self) -> Result {
        for (block, settings) in self.plan.blocks.iter().enumerate() {
            for &setting in settings {
                if self.plan.settings[setting].searched {
                    self.search(block, setting)?;
                } else {
                    self.repeat(block, setting)?;
                }
            }
        }
        Ok(())
    }

    fn search(&mut self, block: usize, setting: usize) -> Result {
        let plan = self.plan.search_of(setting).expect("only settings of a study with a search are searched");
        let mut search = RunningSearch::new(plan, &self.plan.goals).map_err(StopReason::Failed)?;
        while let Some(next) = search.next() {
            let purpose = if next.is_warm_up { Purpose::WarmUp } else { Purpose::Search };
            let planned =
                PlannedTrial { block, setting, purpose, load: Some(next.load), attempt: next.attempt };
            self.gap = Duration::from_secs_f64(next.gap_s);
            let entry = self.next_trial(planned, Some(Duration::from_secs_f64(next.duration_s)))?;
            let before_s = search.trial_s(0).0;
            search.tell(entry).map_err(StopReason::OtherJournal)?;
            let trial_s = search.trial_s(0).0;
            if trial_s > before_s {
                let text = format!(
                    "the result depends on when a trial runs, not on its load: searching again with trials of {trial_s:.0} s"
                );
                (self.on_event)(Event::Waiting(&text));
            }
            if !self.is_replaying() {
                let (bounds, remaining_s) =
                    search.progress(self.overhead.0 / f64::from(self.overhead.1.max(1)));
                let remaining_s = remaining_s.min(self.budget_left_s());
                (self.on_event)(Event::SearchProgress { bounds, remaining_s });
            }
        }
        // Only this call makes the search notice that nothing is left to measure.
        search.next();
        let load = outcome::confirmed_load(&search.outcome(block));
        self.limits.extend(load.map(|load| FoundLimit { block, setting, load }));
        Ok(())
    }

    /// Repeats the trials at the lower bounds. Each repeat runs all of them once, in a new random order.
    fn confirm(&mut self) -> Result {
        let mut limits = std::mem::take(&mut self.limits);
        let mut rng = Pcg64Mcg::seed_from_u64(self.plan.seed);
        let repeats_of =
            |found: &FoundLimit| self.plan.search_of(found.setting).map_or(0, |search| search.confirm);
        let max_repeats = limits.iter().map(repeats_of).max().unwrap_or(0);
        for repeat in 0..max_repeats {
            limits.shuffle(&mut rng);
            for &FoundLimit { block, setting, load } in &limits {
                let Some(search) = self.plan.search_of(setting).filter(|search| repeat < search.confirm)
                else {
                    continue;
                };
                let duration = Duration::from_secs_f64(search.trial_duration_s);
                let planned =
                    PlannedTrial { block, setting, purpose: Purpose::Confirm, load: Some(load), attempt: 0 };
                self.run_until_valid(planned, Some(duration))?;
            }
        }
        Ok(())
    }

    fn repeat(&mut self, block: usize, setting: usize) -> Result {
        let planned = PlannedTrial { block, setting, purpose: Purpose::Repeat, load: None, attempt: 0 };
        self.run_until_valid(planned, None)
    }

    /// Runs a trial. Repeats it while it is void or, without a search, undecided, up to the configured number of attempts.
    fn run_until_valid(&mut self, trial: PlannedTrial, duration: Option<Duration>) -> Result {
        let most = self.study.trial.void_attempts;
        let mut attempt = 0;
        while self.next_trial(PlannedTrial { attempt, ..trial }, duration)?.needs_retry(most) {
            attempt += 1;
        }
        Ok(())
    }

    /// Takes the trial from an earlier run if there is one, otherwise runs it.
    fn next_trial(&mut self, trial: PlannedTrial, duration: Option<Duration>) -> Result<&TrialEntry> {
        if self.is_replaying() { self.replay(trial) } else { self.run_trial(trial, duration) }
    }

    /// Whether trials of earlier runs have not yet been matched with the plan.
    fn is_replaying(&self) -> bool {
        self.replayed < self.earlier_trials
    }

    /// Returns the next trial of an earlier run; fails if that trial is not the planned one.
    fn replay(&mut self, planned: PlannedTrial) -> Result<&TrialEntry> {
        let entry = &self.entries[self.replayed];
        self.replayed += 1;
        self.gap = Duration::ZERO;
        let written = PlannedTrial {
            block: entry.block,
            setting: entry.setting,
            purpose: entry.purpose,
            load: entry.load,
            attempt: entry.attempt,
        };
        if written != planned {
            return Err(StopReason::OtherJournal(format!(
                "trial {} of trials.jsonl is {}, where the plan asks for {}: another plan or version wrote it; run the \
                 study in another folder (--out)",
                entry.index,
                written.in_words(self.plan),
                planned.in_words(self.plan)
            )));
        }
        Ok(entry)
    }

    /// Seconds until the budget is used up; infinite without a budget.
    fn budget_left_s(&self) -> f64 {
        let budget = self.study.budget.map_or(f64::INFINITY, |budget| budget.as_secs_f64());
        (budget - self.study_time_s()).max(0.0)
    }

    /// Duration of the study including earlier runs, in seconds.
    pub(crate) fn study_time_s(&self) -> f64 {
        self.before_s + self.started.elapsed().as_secs_f64()
    }

    /// Removes hosts and targets, and reports everything that it could not remove. Removes the files that the targets stored, unless an
    /// audit found a problem.
    pub(crate) fn take_down(&mut self) {
        if self.testbed.is_none() {
            return;
        }
        if let Some(why) = self.clean_up() {
            self.warn(Warning::new("not_cleaned_up", why));
        }
        for message in self.testbed.take().map(Testbed::take_down).unwrap_or_default() {
            self.warn(Warning::new("not_taken_down", message));
        }
        if let Err(message) = self.observers.evidence.keep_or_remove_stored() {
            self.warn(Warning::new("stored_files", message));
        }
    }
}
