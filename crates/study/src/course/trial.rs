//! One trial of a study: hosts and targets brought up for it, what it leaves judged and written down.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use record::{
    Decision, ErrorClass, Goal, HttpPlan, Kind, Measured, Purpose, Trial, TrialEntry, Warning,
    study::ENTRY_SCHEMA,
};

use super::{Course, Place};
use crate::{
    event::Event,
    judge::judge,
    observer::At,
    stand::{GOODPUT, Stand, StandError, Step},
    stop_reason::StopReason,
    study::{Fresh, Setup},
    workload::Workload,
};

/// What observers look at; a macro, because the parts of the course are lent apart.
macro_rules! at {
    ($course:ident, $setup:expr, $place:expr) => {
        At {
            stand: $course.stand.as_mut().expect("it was brought up just before"),
            setup: $setup,
            number: $course.next_index,
            purpose: $place.purpose,
            goals: &$course.plan.goals,
            stop: &$course.options.stop,
        }
    };
}

/// How often the wish to stop is looked for during a pause.
const GLANCE: Duration = Duration::from_millis(20);
/// No target is waited for longer than this because of what the last trial left it to do.
const LONGEST_LEFTOVER: Duration = Duration::from_secs(30);

impl Course<'_> {
    /// Runs a trial and writes it down.
    pub(super) fn trial(
        &mut self,
        place: Place,
        duration: Option<Duration>,
    ) -> Result<&TrialEntry, StopReason> {
        self.may_go_on()?;
        let begun_s = self.study_time_s();
        let mut setup = self.study.setup(place.setting, place.load).map_err(|mistakes| {
            StopReason::Failed(mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
        })?;
        if let Some(duration) = duration {
            setup.workload.last(duration);
        }
        if setup.audit.is_some() {
            let receipts = self.observers.evidence.receipts(self.next_index).map_err(StopReason::Failed)?;
            setup.workload.put_receipts(Some(&receipts));
        }
        self.bring_up(&setup, place)?;
        self.let_settle()?;
        self.may_go_on()?;
        let study_time_s = self.study_time_s();
        self.run_step(&setup, Step::Prepare)?;
        self.observers.before(at!(self, &setup, place))?;
        let mut trial = self.run_one(&setup, place)?;
        if trial.interrupted {
            let text = serde_json::to_string_pretty(&trial).expect("a trial can be written as JSON");
            let written = self.folder.write("interrupted-trial.json", &text);
            written.map_err(|error| StopReason::Failed(error.to_string()))?;
            return Err(StopReason::Stopped);
        }
        self.conclude(&setup, &mut trial)?;
        let mut seen = self.observers.after(at!(self, &setup, place), &trial)?;
        trial.quantities.append(&mut seen.quantities);
        let asked_s = duration.map(|duration| duration.as_secs_f64());
        let judged = judge(&mut trial, &seen, &self.plan.goals, self.plan.explores(place.setting, asked_s));
        self.leftover = leftover(&trial);
        let mut entry = TrialEntry {
            schema: ENTRY_SCHEMA.to_owned(),
            index: self.next_index,
            block: place.block,
            setting: place.setting,
            purpose: place.purpose,
            load: place.load,
            attempt: place.attempt,
            loss_ratios: judged.loss_ratios,
            growth_per_s: judged.growth_per_s,
            audit: seen.audit,
            noticed: std::mem::take(&mut self.unwritten),
            asked_s,
            study_time_s,
            trial,
        };
        self.journal.append(&entry).map_err(|error| StopReason::Failed(error.to_string()))?;
        self.next_index += 1;
        let length_s = asked_s.unwrap_or(entry.trial.elapsed_s);
        self.beside = (self.beside.0 + self.study_time_s() - begun_s - length_s, self.beside.1 + 1);
        (self.on_event)(Event::Ended(&entry));
        // It is kept to the end of the study, with hundreds like it.
        entry.pack();
        self.entries.push(entry);
        Ok(&self.entries[self.entries.len() - 1])
    }

    fn run_one(&mut self, setup: &Setup, place: Place) -> Result<Trial, StopReason> {
        let unit = self.plan.search_of(place.setting).map(|search| &search.unit);
        let begins = Event::Begins {
            name: &self.plan.settings[place.setting].name,
            purpose: place.purpose,
            load: place.load.zip(unit).map(|(load, unit)| unit.show(load)),
        };
        match &setup.workload {
            Workload::Http(workload) => {
                let stand = self.stand.as_ref().expect("it was brought up just before");
                let seed = self.study.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(self.next_index);
                // A warm-up is no trial of its own number.
                let seed = if place.purpose == Purpose::WarmUp { !seed } else { seed };
                let decides = |plan: &HttpPlan| decision(&self.plan.goals, plan);
                let (plan, fitted) = stand.plan(workload, seed, decides).map_err(cut)?;
                for note in fitted.clone().unwrap_or_default() {
                    if !self.notes.contains(&note) {
                        (self.on_event)(Event::Warning(&format!("using {note}")));
                        self.notes.push(note);
                    }
                }
                (self.on_event)(begins);
                if let Err(why) = fitted {
                    return Ok(Stand::not_run(plan, &self.options.command, why));
                }
                let on_event = &mut *self.on_event;
                let trial = stand.run(plan, &self.options.stop, &self.options.command, |tick| {
                    on_event(Event::Second(tick));
                });
                // A target that died explains more than the errors of the trial it died in.
                stand.failure().map_err(cut)?;
                trial.map_err(|error| match error {
                    StandError::Fleet(_) if self.options.stop.load(Ordering::Relaxed) => StopReason::Stopped,
                    error => cut(error),
                })
            }
            Workload::Command(workload) => {
                (self.on_event)(begins);
                let folder = self.output_folder();
                let stand = self.stand.as_mut().expect("it was brought up just before");
                let trial = stand.run_programs(
                    workload,
                    &folder,
                    self.study.trial.settle,
                    &self.options.stop,
                    &self.options.command,
                );
                stand.failure().map_err(cut)?;
                trial.map_err(cut)
            }
        }
    }

    /// Where what the programs of the next trial write is kept.
    fn output_folder(&self) -> PathBuf {
        self.folder.path().join("output").join(self.next_index.to_string())
    }

    /// Runs a step around trials, such as `prepare`, if the workload has it.
    fn run_step(&mut self, setup: &Setup, step: Step) -> Result<(), StopReason> {
        let Workload::Command(workload) = &setup.workload else { return Ok(()) };
        let folder = self.output_folder();
        let Some(stand) = self.stand.as_mut() else { return Ok(()) };
        stand.run_step(workload, step, &folder, &self.options.stop).map_err(|error| match error {
            _ if self.options.stop.load(Ordering::Relaxed) => StopReason::Stopped,
            error => cut(error),
        })
    }

    /// Runs the workload's own `conclude`, if it has one. Where that fails the trial has failed: it is how programs are checked.
    fn conclude(&mut self, setup: &Setup, trial: &mut Trial) -> Result<(), StopReason> {
        match self.run_step(setup, Step::Conclude) {
            Err(StopReason::Failed(why)) => {
                if let Measured::Command(command) = &mut trial.measured {
                    command.fail(&why);
                    trial.quantities.remove(GOODPUT);
                }
                trial.warnings.push(Warning::new("program_failed", why));
                Ok(())
            }
            other => other,
        }
    }

    /// Runs the workload's own `cleanup`, if it has one. Returns why it failed.
    pub(super) fn clean_up(&mut self) -> Option<String> {
        let folder = self.output_folder();
        let stand = self.stand.as_mut()?;
        let Workload::Command(workload) = stand.workload().clone() else { return None };
        let stop = AtomicBool::new(false);
        stand.run_step(&workload, Step::Cleanup, &folder, &stop).err().map(|error| error.to_string())
    }

    /// Hosts and targets as the setting wants them, warmed up if they are new.
    fn bring_up(&mut self, setup: &Setup, place: Place) -> Result<(), StopReason> {
        // What has state is new for another setting, even if it is made alike.
        let is_kept = match self.study.trial.fresh {
            // Programs have a folder of their own, and steps that set up.
            _ if setup.lab.is_none() && setup.workload.kind() == Kind::Http => true,
            Fresh::Trial => false,
            Fresh::Setting => self.stand_is_for == Some(place.setting),
        };
        // All over a link that is not certified is void: measured again, it may be.
        let mut lab = self.stand.as_mut().and_then(Stand::lab);
        let is_kept =
            is_kept && !lab.as_mut().is_some_and(|lab| self.observers.links.may_be_certified_yet(lab));
        if is_kept && self.stand.as_ref().is_some_and(|stand| stand.carries(setup)) {
            return Ok(());
        }
        self.take_down();
        if setup.lab.is_some() {
            self.leftover = Duration::ZERO;
            (self.on_event)(Event::SettingUp { name: &self.plan.settings[place.setting].name });
        }
        let stored = self.observers.evidence.stored().map_err(StopReason::Failed)?;
        let (links, mut told) = (&mut self.observers.links, Vec::new());
        let logs = self.folder.path().join("logs").join(self.next_index.to_string());
        let lab = lab::Options { keep_logs: Some(logs), ..self.options.lab.clone() };
        let stand = Stand::up(setup.clone(), &lab, &self.options.worker, &stored, &mut |name, link| {
            told.extend(links.measure(name, link)?);
            Ok(())
        });
        told.iter().for_each(|text| (self.on_event)(Event::Warning(text)));
        self.stand = Some(stand.map_err(|error| match error {
            StandError::Lab(lab::Error::Cancelled) => StopReason::Stopped,
            error => cut(error),
        })?);
        self.stand_is_for = Some(place.setting);
        self.run_step(setup, Step::Setup)?;
        self.ask_first(setup, place.setting)?;
        if let Some(duration) = self.study.trial.warm_up {
            let mut warm = setup.clone();
            warm.workload.last(duration);
            warm.workload.put_receipts(None);
            let place = Place { purpose: Purpose::WarmUp, ..place };
            self.run_step(&warm, Step::Prepare)?;
            let trial = self.run_one(&warm, place)?;
            self.run_step(&warm, Step::Conclude)?;
            if trial.interrupted {
                return Err(StopReason::Stopped);
            }
            self.leftover = leftover(&trial);
        }
        Ok(())
    }

    fn let_settle(&mut self) -> Result<(), StopReason> {
        // What was given up is still being worked on, and would be taken for the next load's.
        let until = Instant::now() + self.study.trial.pause + std::mem::take(&mut self.leftover);
        while Instant::now() < until && !self.options.stop.load(Ordering::Relaxed) {
            thread::sleep(GLANCE.min(until.saturating_duration_since(Instant::now())));
        }
        let patience = self.study.trial.settle;
        if let (false, Some(stand)) = (patience.is_zero(), &self.stand) {
            let left = stand.settle(patience, &self.options.stop);
            if left > 0 && !self.options.stop.load(Ordering::Relaxed) {
                let message = format!(
                    "before trial {}, {left} connections of the trial before were still there after {:.1} s; the target \
                     keeps them, or settle is too short",
                    self.next_index,
                    patience.as_secs_f64()
                );
                self.notice(Warning::new("not_settled", message));
            }
        }
        if self.options.stop.load(Ordering::Relaxed) { Err(StopReason::Stopped) } else { Ok(()) }
    }

    fn may_go_on(&self) -> Result<(), StopReason> {
        if self.options.stop.load(Ordering::Relaxed) {
            return Err(StopReason::Stopped);
        }
        match self.study.budget {
            Some(budget) if self.study_time_s() >= budget.as_secs_f64() => Err(StopReason::OutOfBudget),
            _ => Ok(()),
        }
    }
}

/// How long a target may need for the requests that a trial gave up waiting for (a timeout, the end), at the rate it
/// answered the others.
pub(super) fn leftover(trial: &Trial) -> Duration {
    let Some(http) = trial.http() else { return Duration::ZERO };
    let given_up = http.counts.in_flight + http.errors.of(ErrorClass::Timeout);
    if given_up == 0 {
        return Duration::ZERO;
    }
    if http.throughput_per_s <= 0.0 {
        return LONGEST_LEFTOVER;
    }
    Duration::from_secs_f64(given_up as f64 / http.throughput_per_s).min(LONGEST_LEFTOVER)
}

/// What a trial for these goals is to decide about; without a bound on a time, it is that for which answers are waited.
pub(super) fn decision(goals: &[Goal], plan: &HttpPlan) -> Option<Decision> {
    let bound = |goal: &Goal| goal.quantity.bound_ns();
    let loss_ratio = goals.iter().map(|goal| goal.loss_ratio).reduce(f64::max)?;
    let waited_ns = plan.timeout_ns.min(plan.drain_ns);
    Some(Decision {
        response_time_ns: goals.iter().filter_map(bound).min().unwrap_or(waited_ns),
        longest_ns: goals.iter().map(|goal| bound(goal).unwrap_or(waited_ns)).max()?,
        loss_ratio,
    })
}

pub(super) fn cut(error: StandError) -> StopReason {
    StopReason::Failed(error.to_string())
}
