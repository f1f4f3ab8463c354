//! Runs one trial of a study: brings up hosts and targets, judges the trial and records it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use record::{
    Decision, ErrorClass, Goal, HttpPlan, Kind, Measured, OnNoise, Purpose, Trial, TrialEntry, Validity,
    VoidReason, VoidRule, Warning, study::ENTRY_SCHEMA,
};

use super::{PlannedTrial, Runner, settle::closing_wait};
use crate::{
    actions::{self, RunningActions},
    balancer_observer::wait_until_ready,
    counted,
    event::Event,
    judge::judge,
    machines::PlacedHosts,
    observer::TrialContext,
    stop_reason::{Result, StopReason},
    study::{Fresh, Setup},
    testbed::{Hook, Kept, Testbed, TestbedError},
    widened::widened,
    workload::{GOODPUT, Workload},
};

/// The context for observers. It is a macro because it borrows fields of the runner separately, which a method cannot.
macro_rules! context {
    ($runner:ident, $setup:expr, $planned:expr) => {
        TrialContext {
            testbed: $runner.testbed.as_mut().expect("it was brought up just before"),
            setup: $setup,
            number: $runner.next_index,
            purpose: $planned.purpose,
            goals: &$runner.plan.goals,
            stop: &$runner.options.stop,
        }
    };
}

/// How often it is looked whether a running trial has to stop.
const STOP_POLL: Duration = Duration::from_millis(20);
/// Longest wait for the target's backlog of requests that a trial gave up.
const MAX_BACKLOG: Duration = Duration::from_secs(30);

impl<'a> Runner<'a> {
    /// Runs a trial, judges it and records it.
    pub(super) fn run_trial(
        &mut self,
        planned: PlannedTrial,
        duration: Option<Duration>,
    ) -> Result<&TrialEntry> {
        self.check_stop_and_budget()?;
        let began_s = self.study_time_s();
        let mut setup = self.study.setup(planned.setting, planned.load).map_err(|mistakes| {
            StopReason::Failed(mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
        })?;
        if let Some(duration) = duration {
            setup.workload.set_length(duration);
        }
        if setup.audit.is_some() {
            let receipts =
                self.observers.evidence.clear_receipts(self.next_index).map_err(StopReason::Failed)?;
            setup.workload.set_receipts(Some(&receipts));
        }
        if self.idle.is_empty() {
            self.wait_for_leftovers(&setup)?;
        }
        self.bring_up(&setup, planned)?;
        self.settle(&setup)?;
        self.check_stop_and_budget()?;
        let study_time_s = self.study_time_s();
        let measured = self.prepare_and_measure(&setup, planned);
        if !measured.as_ref().is_ok_and(|trial| !trial.interrupted) {
            self.conclude_despite_stop(&setup);
        }
        let mut trial = measured?;
        if trial.interrupted {
            let text = serde_json::to_string_pretty(&trial).expect("a trial can be written as JSON");
            let written = self.folder.write("interrupted-trial.json", &text);
            written.map_err(|error| StopReason::Failed(error.to_string()))?;
            return Err(StopReason::Stopped);
        }
        if let Err(why) = self.conclude(&setup, &mut trial) {
            // The user interrupted the hook, so run it again to undo the preparations.
            self.conclude_despite_stop(&setup);
            return Err(why);
        }
        let mut observed = self.observers.after(context!(self, &setup, planned), &trial)?;
        observed.void_reasons.extend(actions::void_reasons(&self.actions));
        let gone = self.is_gone(&setup, planned.setting, &trial)?;
        let reason = |evidence| VoidReason { rule: VoidRule::TargetGone, evidence };
        observed.void_reasons.extend(gone.clone().map(reason));
        observed.void_reasons.extend(widened(&trial, self.study.trial.on_noise));
        if trial.command().is_some() && self.study.trial.on_noise == OnNoise::Void {
            observed.void_reasons.append(&mut observed.stalls);
        }
        trial.quantities.append(&mut observed.quantities);
        trial.warnings.extend(observed.warning.take());
        let asked_s = duration.map(|duration| duration.as_secs_f64());
        let judged = judge(
            &mut trial,
            &observed,
            &self.plan.goals,
            self.plan.is_exploratory(planned.setting, asked_s),
        );
        // An undecided goal counts as missed here, because its loss ratio is that of the worst case.
        let goals_met =
            judged.loss_ratios.iter().zip(&self.plan.goals).all(|(lost, goal)| *lost <= goal.loss_ratio);
        counted::conclude(&mut trial, goals_met, observed.counted.as_ref(), &observed.links);
        self.backlog = backlog(&trial);
        let mut entry = TrialEntry {
            schema: ENTRY_SCHEMA.to_owned(),
            index: self.next_index,
            block: planned.block,
            setting: planned.setting,
            purpose: planned.purpose,
            load: planned.load,
            attempt: planned.attempt,
            loss_ratios: judged.loss_ratios,
            growth_per_s: judged.growth_per_s,
            undecided: judged.undecided,
            audit: observed.audit,
            actions: std::mem::take(&mut self.actions),
            noticed: std::mem::take(&mut self.pending_warnings),
            asked_s,
            study_time_s,
            trial,
        };
        self.journal.append(&entry).map_err(|error| StopReason::Failed(error.to_string()))?;
        self.next_index += 1;
        let length_s = asked_s.unwrap_or(entry.trial.elapsed_s);
        self.overhead = (self.overhead.0 + self.study_time_s() - began_s - length_s, self.overhead.1 + 1);
        (self.on_event)(Event::TrialEnded(&entry));
        // The entry stays in memory until the end of the study, together with hundreds of others.
        entry.pack();
        self.entries.push(entry);
        // Later trials could not reach the target either, so end the study.
        gone.map_or(Ok(()), |why| Err(StopReason::Failed(why)))?;
        Ok(&self.entries[self.entries.len() - 1])
    }

    /// Runs the hook before a trial, and the trial.
    fn prepare_and_measure(&mut self, setup: &Setup, planned: PlannedTrial) -> Result<Trial> {
        self.run_hook(setup, Hook::Prepare)?;
        if planned.purpose != Purpose::WarmUp {
            self.observers.before(context!(self, setup, planned))?;
        }
        self.measure(setup, planned)
    }

    /// Runs the hook that undoes the preparations of a workload for a trial that did not end as planned.
    fn conclude_despite_stop(&mut self, setup: &Setup) {
        let Workload::Command(workload) = &setup.workload else { return };
        let (kept, stop) = (self.kept_output(), AtomicBool::new(false));
        let Some(testbed) = self.testbed.as_mut() else { return };
        if let Err(error) = testbed.run_hook(workload, Hook::Conclude, &kept, &stop) {
            (self.on_event)(Event::Warning(&error.to_string()));
        }
    }

    /// Runs the workload once, without observers and hooks.
    fn measure(&mut self, setup: &Setup, planned: PlannedTrial) -> Result<Trial> {
        let unit = self.plan.search_of(planned.setting).map(|search| &search.unit);
        let load = planned.load.zip(unit).map(|(load, unit)| unit.show(load));
        let name = &self.plan.settings[planned.setting].name;
        let purpose = planned.purpose;
        match &setup.workload {
            Workload::Http(workload) => {
                let testbed = self.testbed.as_ref().expect("it was brought up just before");
                let seed = self.study.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(self.next_index);
                // A warm-up has the index of the trial after it, so it needs a different seed.
                let seed = if planned.purpose == Purpose::WarmUp { !seed } else { seed };
                let decides = |plan: &HttpPlan| decision(&self.plan.goals, plan);
                let (plan, fitted) =
                    testbed.plan(workload, seed, &mut self.names, decides).map_err(failed)?;
                for adjustment in fitted.clone().unwrap_or_default() {
                    if !self.reported_adjustments.contains(&adjustment) {
                        (self.on_event)(Event::Warning(&format!("using {adjustment}")));
                        self.reported_adjustments.push(adjustment);
                    }
                }
                (self.on_event)(Event::TrialBegins { name, purpose, load, plan: Some(&plan) });
                if let Err(why) = fitted {
                    return Ok(Testbed::not_run(plan, &self.options.command, VoidRule::LocalExhaustion, why));
                }
                let acts = planned.purpose != Purpose::WarmUp;
                let testbed = self.testbed.as_mut().expect("it was brought up just before");
                let actions = if acts { RunningActions::start(testbed, setup) } else { Ok(None) };
                let actions = actions
                    .map_err(|error| StopReason::Failed(format!("cannot prepare an action: {error}")))?;
                let on_event = &mut *self.on_event;
                let mut lost = None;
                let trial = with_own_stop(&self.options.stop, |stop| {
                    testbed.run(plan, stop, &self.options.command, |tick| {
                        actions.iter().for_each(|actions| actions.tick(tick));
                        on_event(Event::Tick(tick));
                        if lost.is_none() {
                            lost = testbed.machines().and_then(PlacedHosts::lost);
                            if let Some(why) = &lost {
                                let text = format!("the trial ends, because a host is lost: {why}");
                                on_event(Event::Warning(&text));
                                stop.store(true, Ordering::Relaxed);
                            }
                        }
                    })
                });
                let lost = lost.or_else(|| testbed.machines().and_then(PlacedHosts::lost));
                let is_stopped = self.options.stop.load(Ordering::Relaxed);
                let trial = trial.map(|trial| without_host(trial, lost, is_stopped));
                self.actions = actions.map(RunningActions::finish).unwrap_or_default();
                // If the target died, its failure explains more than the errors of the trial.
                testbed.failure().map_err(failed)?;
                trial.map_err(|error| self.stopped_or_failed(error))
            }
            Workload::Command(workload) => {
                (self.on_event)(Event::TrialBegins { name, purpose, load, plan: None });
                let kept = self.kept_output();
                let testbed = self.testbed.as_mut().expect("it was brought up just before");
                let trial = testbed.run_programs(
                    workload,
                    &kept,
                    closing_wait(self.study.trial.settle),
                    &self.options.stop,
                    &self.options.command,
                );
                testbed.failure().map_err(failed)?;
                let is_stopped = self.options.stop.load(Ordering::Relaxed);
                trial.map_err(|error| if is_stopped { StopReason::Stopped } else { failed(error) })
            }
        }
    }

    /// The place where the output of the next trial's programs is stored.
    fn kept_output(&self) -> Kept<'a> {
        Kept { folder: self.folder, within: format!("output/{}", self.next_index) }
    }

    /// Runs a hook of the workload, such as `prepare`, if there is one.
    fn run_hook(&mut self, setup: &Setup, hook: Hook) -> Result {
        let Workload::Command(workload) = &setup.workload else { return Ok(()) };
        let kept = self.kept_output();
        let Some(testbed) = self.testbed.as_mut() else { return Ok(()) };
        testbed.run_hook(workload, hook, &kept, &self.options.stop).map_err(|error| match error {
            _ if self.options.stop.load(Ordering::Relaxed) => StopReason::Stopped,
            error => failed(error),
        })
    }

    /// Runs the workload's `conclude` hook, if there is one. Studies use it to check programs, so the trial fails if the hook
    /// fails.
    fn conclude(&mut self, setup: &Setup, trial: &mut Trial) -> Result {
        match self.run_hook(setup, Hook::Conclude) {
            Err(StopReason::Failed(why)) => {
                if let Measured::Command(command) = &mut trial.measured {
                    command.fail(&why);
                    trial.quantities.remove(GOODPUT);
                }
                trial.warnings.push(Warning::new("conclude_failed", why));
                Ok(())
            }
            other => other,
        }
    }

    /// Runs the workload's `cleanup` hook, if there is one. Returns the error message if the hook fails.
    pub(super) fn clean_up(&mut self) -> Option<String> {
        let kept = self.kept_output();
        let testbed = self.testbed.as_mut()?;
        let Workload::Command(workload) = testbed.workload().clone() else { return None };
        let stop = AtomicBool::new(false);
        testbed.run_hook(&workload, Hook::Cleanup, &kept, &stop).err().map(|error| error.to_string())
    }

    /// Brings up new hosts and targets if the setting needs them, then probes and warms up the target.
    fn bring_up(&mut self, setup: &Setup, planned: PlannedTrial) -> Result {
        // Another setting needs new hosts even if its setup is equal, because processes keep state.
        let is_kept = match self.study.trial.fresh {
            // Programs always need a testbed, which holds their folder and runs their hooks.
            _ if setup.lab.is_none() && setup.workload.kind() == Kind::Http => true,
            Fresh::Trial => false,
            // The effects of actions end only when the hosts are removed.
            Fresh::Setting if !setup.actions.is_empty() => false,
            Fresh::Setting => self.testbed_setting == Some(planned.setting),
        };
        // Trials over an uncertified link are void; a new lab measures the link again.
        let mut lab = self.testbed.as_mut().and_then(Testbed::lab);
        let is_kept =
            is_kept && !lab.as_mut().is_some_and(|lab| self.observers.links.may_be_measured_again(lab));
        let machines = self.testbed.as_ref().and_then(Testbed::machines);
        let is_kept = is_kept && machines.and_then(PlacedHosts::lost).is_none();
        if is_kept && self.testbed.as_ref().is_some_and(|testbed| testbed.supports(setup)) {
            return Ok(());
        }
        self.take_down();
        if setup.lab.is_some() {
            self.backlog = Duration::ZERO;
            (self.on_event)(Event::SettingUp { name: &self.plan.settings[planned.setting].name });
        }
        let stored = self.observers.evidence.clear_stored().map_err(StopReason::Failed)?;
        let (links, mut messages) = (&mut self.observers.links, Vec::new());
        let logs = self.folder.path().join("logs").join(self.next_index.to_string());
        let lab = lab::Options { keep_logs: Some(logs), ..self.options.lab.clone() };
        let testbed = Testbed::bring_up(
            setup.clone(),
            &lab,
            &self.options.generator,
            self.options.placement.as_ref(),
            &stored,
            &mut |name, link| {
                messages.extend(links.measure(name, link)?);
                Ok(())
            },
        );
        messages.iter().for_each(|text| (self.on_event)(Event::Warning(text)));
        self.testbed = Some(testbed.map_err(|error| match error {
            TestbedError::Lab(lab::Error::Cancelled) => StopReason::Stopped,
            TestbedError::Machine(_) if self.options.stop.load(Ordering::Relaxed) => StopReason::Stopped,
            error => failed(error),
        })?);
        self.testbed_setting = Some(planned.setting);
        if let (Some(balancer), Some(testbed)) = (&setup.balancer, &mut self.testbed) {
            let ready = wait_until_ready(testbed, balancer);
            // The last output of a process explains a failure better than the error here.
            testbed.failure().map_err(failed)?;
            ready.map_err(StopReason::Failed)?;
        }
        if setup.lab.is_some() {
            self.note_idle_lab(setup);
        }
        let other = self.testbed.as_mut().and_then(Testbed::lab).and_then(|lab| lab.other_congestion());
        if let Some(message) = other {
            self.warn(Warning::new("other_congestion", message));
        }
        self.run_hook(setup, Hook::Setup)?;
        self.probe_once(setup, planned.setting)?;
        if let Some(duration) = self.study.trial.warm_up {
            let mut warm_up = setup.clone();
            warm_up.workload.set_length(duration);
            warm_up.workload.set_receipts(None);
            let planned = PlannedTrial { purpose: Purpose::WarmUp, ..planned };
            let measured = self.prepare_and_measure(&warm_up, planned);
            if !measured.as_ref().is_ok_and(|trial| !trial.interrupted) {
                self.conclude_despite_stop(&warm_up);
            }
            let trial = measured?;
            if trial.interrupted {
                return Err(StopReason::Stopped);
            }
            self.run_hook(&warm_up, Hook::Conclude)?;
            self.backlog = backlog(&trial);
        }
        Ok(())
    }

    /// The loss of a worker while the study stops is not a failure.
    pub(super) fn stopped_or_failed(&self, error: TestbedError) -> StopReason {
        match error {
            TestbedError::Fleet(_) if self.options.stop.load(Ordering::Relaxed) => StopReason::Stopped,
            error => failed(error),
        }
    }

    fn check_stop_and_budget(&self) -> Result {
        if self.options.stop.load(Ordering::Relaxed) {
            return Err(StopReason::Stopped);
        }
        match self.study.budget {
            Some(budget) if self.study_time_s() >= budget.as_secs_f64() => Err(StopReason::OutOfBudget),
            _ => Ok(()),
        }
    }
}

/// Calls `work` with a flag that is set when `outer` is, and may be set without that.
fn with_own_stop<T>(outer: &AtomicBool, work: impl FnOnce(&Arc<AtomicBool>) -> T) -> T {
    let (own, is_done) = (Arc::new(AtomicBool::new(false)), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) && !own.load(Ordering::Relaxed) {
                own.fetch_or(outer.load(Ordering::Relaxed), Ordering::Relaxed);
                thread::sleep(STOP_POLL);
            }
        });
        let done = work(&own);
        is_done.store(true, Ordering::Relaxed);
        done
    })
}

/// Makes a trial void that ended because a host was lost.
fn without_host(mut trial: Trial, lost: Option<String>, is_stopped: bool) -> Trial {
    if let Some(evidence) = lost {
        trial.interrupted &= is_stopped;
        let mut reasons = trial.validity.reasons().to_vec();
        reasons.push(VoidReason { rule: VoidRule::WorkerLost, evidence });
        trial.validity = Validity::from_reasons(reasons);
    }
    trial
}

/// Time that a target needs for the requests that a trial gave up (after a timeout or at its end), at the rate at which it answered the
/// other requests.
pub(super) fn backlog(trial: &Trial) -> Duration {
    let Some(http) = trial.http() else { return Duration::ZERO };
    let given_up = http.counts.in_flight + http.errors.of(ErrorClass::Timeout);
    if given_up == 0 {
        return Duration::ZERO;
    }
    if http.throughput_per_s <= 0.0 {
        return MAX_BACKLOG;
    }
    Duration::from_secs_f64(given_up as f64 / http.throughput_per_s).min(MAX_BACKLOG)
}

/// The decision that a trial must make for these goals. If a goal bounds no time, the longest wait for an answer serves as the
/// bound.
pub(super) fn decision(goals: &[Goal], plan: &HttpPlan) -> Option<Decision> {
    let bound = |goal: &Goal| goal.quantity.bound_ns();
    let loss_ratio = goals.iter().map(|goal| goal.loss_ratio).reduce(f64::max)?;
    let waited_ns = plan.longest_answer_ns().min(plan.drain_ns);
    Some(Decision {
        response_time_ns: goals.iter().filter_map(bound).min().unwrap_or(waited_ns),
        longest_ns: goals.iter().map(|goal| bound(goal).unwrap_or(waited_ns)).max()?,
        loss_ratio,
    })
}

fn failed(error: TestbedError) -> StopReason {
    StopReason::Failed(error.to_string())
}
