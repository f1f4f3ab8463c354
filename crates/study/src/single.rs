//! A single trial, stored as a study with one setting.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use fleet::{FleetError, Workers};
use load::{MachineLimits, Tick, TrialContext, conclude};
use record::{
    Ending, Environment, HttpPlan, Kind, OnNoise, Setting, StudyPlan, StudyResult, Trial, TrialEntry,
    Validity, VoidReason, VoidRule,
    folder::{FolderError, TrialJournal},
    study::{PLAN_SCHEMA, RESULT_SCHEMA},
};

use crate::{
    counted::{self, Counted},
    environment,
    generator::Generator,
    guard::Guard,
    outcome,
    remotes::RemoteHosts,
    widened::widened,
};

/// If a trial with a fixed number of requests cannot send any of them, it stops after this time, in nanoseconds.
const LONGEST_IN_VAIN_NS: u64 = 5_000_000_000;

/// The content of a single trial's result folder.
#[derive(Debug, Clone, PartialEq)]
pub struct SingleTrial {
    /// The plan of a study with one setting and no goals.
    pub plan: StudyPlan,
    /// The machine that it ran on.
    pub environment: Environment,
    /// The trial, with its place in the study.
    pub entry: TrialEntry,
    /// The study's result.
    pub result: StudyResult,
}

/// Runs a plan on workers and merges their measurements into a trial.
///
/// # Errors
/// If workers cannot be started or are lost. The error includes the plan, which may contain a large body.
pub fn run(
    plan: HttpPlan,
    workers: Workers<'_>,
    stop: &Arc<AtomicBool>,
    command: &[String],
    mut on_tick: impl FnMut(&Tick),
) -> Result<Trial, (FleetError, Box<HttpPlan>)> {
    let plan = Arc::new(plan);
    let mut circumstances = new_trial_context(command);
    let mut guard = Guard::new(plan.abort_if);
    let measured = fleet::run(&plan, workers, stop, |tick| {
        on_tick(&tick);
        circumstances.series.push(tick.interval());
        // A trial that the user interrupts does not count as aborted.
        if !stop.load(Ordering::Relaxed) && guard.aborts(&tick) {
            stop.store(true, Ordering::Relaxed);
        }
    });
    if guard.aborted_ns.is_some() {
        // The flag must not stop later trials.
        stop.store(false, Ordering::Relaxed);
    }
    let plan = Arc::unwrap_or_clone(plan);
    match measured {
        Ok(measured) => {
            let mut trial = conclude(plan, measured, circumstances);
            guard.mark(&mut trial);
            Ok(trial)
        }
        Err(error) => Err((error, Box::new(plan))),
    }
}

/// Runs a plan on workers of this machine or on other machines, and determines what bounded the trial from the kernel
/// counters of this machine and of remote hosts. A trial without any answer is void, and nothing bounded it. `on_noise` may
/// also make a trial void.
///
/// # Errors
/// As [`run`].
pub fn run_watched(
    plan: HttpPlan,
    generator: &Generator,
    remotes: &RemoteHosts,
    stop: &Arc<AtomicBool>,
    command: &[String],
    on_noise: OnNoise,
    mut on_tick: impl FnMut(&Tick),
) -> Result<Trial, (FleetError, Box<HttpPlan>)> {
    // The pauses between retries of refused requests grow, so a fixed number of requests would take hours.
    let (ends_itself, mut in_vain, mut is_vain) = (plan.duration_ns.is_some(), true, false);
    let watch = |tick: &Tick| {
        on_tick(tick);
        in_vain &= tick.completed == 0 && tick.sent == 0 && tick.failed > 0;
        if in_vain && !ends_itself && tick.end_ns >= LONGEST_IN_VAIN_NS && !stop.load(Ordering::Relaxed) {
            is_vain = true;
            stop.store(true, Ordering::Relaxed);
        }
    };
    let work = || run(plan, generator.workers(), stop, command, watch);
    let (trial, seen) = counted::watch_this_machine(remotes, work);
    let mut trial = trial?;
    if is_vain {
        stop.store(false, Ordering::Relaxed);
        trial.interrupted = false;
    }
    let elapsed_s = trial.elapsed_s;
    if let Some(evidence) = trial.http().and_then(|http| http.never_answered(elapsed_s))
        && !trial.interrupted
    {
        let mut reasons = trial.validity.reasons().to_vec();
        reasons.push(VoidReason { rule: VoidRule::NoAnswer, evidence });
        trial.validity = Validity::from_reasons(reasons);
        return Ok(trial);
    }
    let mut reasons = trial.validity.reasons().to_vec();
    reasons.extend(widened(&trial, on_noise));
    trial.validity = Validity::from_reasons(reasons);
    match seen {
        Ok(counters) => {
            trial.warnings.extend(counted::lost_hosts(&counters));
            let counted = Counted::without_lab(counters, &trial);
            counted::conclude(&mut trial, true, Some(&counted), &[]);
        }
        Err(error) => {
            trial.warnings.push(counted::no_counters(&error));
            counted::conclude(&mut trial, true, None, &[]);
        }
    }
    Ok(trial)
}

/// The start time, command and version of a trial that begins now.
pub(crate) fn new_trial_context(command: &[String]) -> TrialContext {
    TrialContext {
        started_unix_s: clock::unix_s(),
        command: command.to_vec(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        series: Vec::new(),
    }
}

impl SingleTrial {
    /// Makes a study of one setting from an HTTP trial.
    ///
    /// # Errors
    /// If this machine's limits cannot be read.
    pub fn new(trial: &Trial, title: String, workload: String) -> io::Result<Self> {
        let version = env!("CARGO_PKG_VERSION");
        let environment = environment::read(&MachineLimits::read()?);
        let plan = StudyPlan {
            schema: PLAN_SCHEMA.to_owned(),
            proofload_version: version.to_owned(),
            title,
            command: trial.command.clone(),
            seed: trial.http().map_or(1, |http| http.plan.seed),
            factors: Vec::new(),
            settings: vec![Setting::default()],
            blocks: vec![vec![0]],
            goals: Vec::new(),
            trial_duration_s: trial.http().and_then(|http| Some(http.plan.duration_ns? as f64 / 1e9)),
            search: None,
            other_searches: Vec::new(),
            audit: None,
            kind: Kind::Http,
            quantities: Vec::new(),
            workload,
            inputs: String::new(),
            secrets: None,
            noise: trial.http().and_then(|http| http.noise.clone()),
            machines: trial.http().map_or_else(Vec::new, |http| {
                http.machines.iter().map(|machine| machine.name.clone()).collect()
            }),
        };
        let entry = TrialEntry::alone(1, trial.clone());
        let outcomes = outcome::outcomes(&plan, std::slice::from_ref(&entry)).map_err(io::Error::other)?;
        let result = StudyResult {
            schema: RESULT_SCHEMA.to_owned(),
            ending: if trial.interrupted { Ending::Interrupted } else { Ending::Finished },
            started_unix_s: trial.started_unix_s,
            elapsed_s: trial.elapsed_s,
            resumed: 0,
            trials: 1,
            void_trials: u64::from(trial.validity.is_void()),
            outcomes,
            proofs: Vec::new(),
            warnings: Vec::new(),
        };
        Ok(Self { plan, environment, entry, result })
    }

    /// Writes everything into the folder of a new result.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write(&self, journal: &mut TrialJournal) -> Result<(), FolderError> {
        let folder = journal.folder().clone();
        folder.write_environment(&self.environment, &self.plan)?;
        folder.write_plan(&self.plan)?;
        journal.append(&self.entry)?;
        folder.write_result(&self.result)
    }
}
