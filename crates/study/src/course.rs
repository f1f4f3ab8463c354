//! A study on its way: from place to place of its plan, hosts and targets up as each wants them, every trial
//! written down before the next.

use std::{
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use record::{
    Decision, ErrorClass, Goal, GoalQuantity, HttpPlan, Purpose, ResultFolder, StudyPlan, TrialEntry,
    Warning, folder::TrialJournal, study::ENTRY_SCHEMA,
};

use crate::{
    growth, lateness,
    run::{Event, Options},
    searching::Searching,
    stand::{Stand, StandError},
    study::{Fresh, Setup, Study},
};

/// How often the wish to stop is looked for during a pause.
const GLANCE: Duration = Duration::from_millis(20);
/// No target is waited for longer than this because of what the last trial left it to do.
const LONGEST_LEFTOVER: Duration = Duration::from_secs(30);

/// Why a study ends before its plan does.
pub(crate) enum Cut {
    Stopped,
    OutOfBudget,
    Failed(String),
}

/// A study on its way.
pub(crate) struct Course<'a> {
    study: &'a Study,
    plan: &'a StudyPlan,
    options: &'a Options,
    on_event: &'a mut dyn FnMut(Event<'_>),
    folder: &'a ResultFolder,
    journal: TrialJournal,
    begun: Instant,
    /// What earlier runs took, in seconds.
    before_s: f64,
    next_index: u64,
    /// The first so many of `entries` are of earlier runs, and of these `used` have been gone through.
    replayed: usize,
    used: usize,
    pub(crate) entries: Vec<TrialEntry>,
    stand: Option<Stand>,
    /// How long the target needs for what the last trial left it to do.
    leftover: Duration,
    notes: Vec<String>,
    pub(crate) warnings: Vec<Warning>,
}

/// A place of the plan.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Place {
    block: usize,
    setting: usize,
    purpose: Purpose,
    load: Option<f64>,
    attempt: u32,
}

impl<'a> Course<'a> {
    /// At its beginning, or where an earlier run left it after the trials `done`.
    pub(crate) fn new(
        study: &'a Study,
        plan: &'a StudyPlan,
        options: &'a Options,
        on_event: &'a mut dyn FnMut(Event<'_>),
        folder: &'a ResultFolder,
        journal: TrialJournal,
        done: Vec<TrialEntry>,
    ) -> Self {
        Self {
            study,
            plan,
            options,
            on_event,
            folder,
            journal,
            begun: Instant::now(),
            before_s: done.last().map_or(0.0, |entry| entry.study_time_s + entry.trial.elapsed_s),
            next_index: done.len() as u64,
            replayed: done.len(),
            leftover: done.last().map_or(Duration::ZERO, |entry| leftover(&entry.trial)),
            entries: done,
            used: 0,
            stand: None,
            notes: Vec::new(),
            warnings: study.warnings.clone(),
        }
    }

    /// Everything that is planned and was not run before.
    pub(crate) fn through_all_blocks(&mut self) -> Result<(), Cut> {
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

    /// One search, to its end.
    fn search(&mut self, block: usize, setting: usize) -> Result<(), Cut> {
        let plan = self.plan.search.as_ref().expect("only settings of a study with a search are searched");
        let mut searching = Searching::new(plan, &self.plan.goals).map_err(Cut::Failed)?;
        while let Some(next) = searching.next() {
            let purpose = if next.is_warm_up { Purpose::WarmUp } else { Purpose::Search };
            let place = Place { block, setting, purpose, load: Some(next.load), attempt: next.attempt };
            let entry = self.at(place, Some(Duration::from_secs_f64(next.duration_s)))?;
            searching.tell(entry).map_err(Cut::Failed)?;
            if self.used >= self.replayed {
                let (bounds, remaining_s) = searching.progress();
                (self.on_event)(Event::Closing { bounds, remaining_s });
            }
        }
        Ok(())
    }

    /// The workload's own load, once, and again while it is void.
    fn repeat(&mut self, block: usize, setting: usize) -> Result<(), Cut> {
        for attempt in 0..=self.study.trial.void_attempts {
            let place = Place { block, setting, purpose: Purpose::Repeat, load: None, attempt };
            if !self.at(place, None)?.trial.validity.is_void() {
                break;
            }
        }
        Ok(())
    }

    /// The trial at a place of the plan: that of an earlier run if there is one, otherwise run now.
    fn at(&mut self, place: Place, duration: Option<Duration>) -> Result<&TrialEntry, Cut> {
        if self.used < self.replayed { self.earlier(place) } else { self.trial(place, duration) }
    }

    /// The next trial of an earlier run, which must be the one at this place of the plan.
    fn earlier(&mut self, place: Place) -> Result<&TrialEntry, Cut> {
        let entry = &self.entries[self.used];
        self.used += 1;
        let written = Place {
            block: entry.block,
            setting: entry.setting,
            purpose: entry.purpose,
            load: entry.load,
            attempt: entry.attempt,
        };
        if written != place {
            return Err(Cut::Failed(format!(
                "trial {} of the journal is not the one that the plan asks for there ({written:?}, not {place:?}); run the \
                 study anew in another folder",
                entry.index
            )));
        }
        Ok(entry)
    }

    /// Runs a trial and writes it down.
    fn trial(&mut self, place: Place, duration: Option<Duration>) -> Result<&TrialEntry, Cut> {
        self.may_go_on()?;
        let setup = self.study.setup(place.setting, place.load).map_err(|mistakes| {
            Cut::Failed(mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
        })?;
        let setup = with_duration(setup, duration);
        self.bring_up(&setup, place)?;
        self.let_settle()?;
        self.may_go_on()?;
        let mut trial = self.run_one(&setup, place)?;
        if trial.interrupted {
            let text = serde_json::to_string_pretty(&trial).expect("a trial can be written as JSON");
            let written = self.folder.write("interrupted-trial.json", &text);
            written.map_err(|error| Cut::Failed(error.to_string()))?;
            return Err(Cut::Stopped);
        }
        let goals = &self.plan.goals;
        let growing = goals.iter().filter_map(|goal| growth::growth_per_s(&trial, goal.quantity));
        let growth_per_s = growing.reduce(f64::max);
        // What grows may be the lateness itself: then nothing is known.
        if growth_per_s.is_none() {
            lateness::forgive(&mut trial, goals);
        }
        self.leftover = leftover(&trial);
        let mut entry = TrialEntry {
            schema: ENTRY_SCHEMA.to_owned(),
            index: self.next_index,
            block: place.block,
            setting: place.setting,
            purpose: place.purpose,
            load: place.load,
            attempt: place.attempt,
            loss_ratios: goals.iter().map(|goal| goal.loss_ratio_of(&trial)).collect(),
            growth_per_s,
            study_time_s: self.study_time_s() - trial.elapsed_s,
            trial,
        };
        self.journal.append(&entry).map_err(|error| Cut::Failed(error.to_string()))?;
        self.next_index += 1;
        (self.on_event)(Event::Ended(&entry));
        // It is kept to the end of the study, with hundreds like it.
        entry.pack();
        self.entries.push(entry);
        Ok(&self.entries[self.entries.len() - 1])
    }

    fn run_one(&mut self, setup: &Setup, place: Place) -> Result<record::Trial, Cut> {
        let stand = self.stand.as_ref().expect("it was brought up just before");
        let seed = self.study.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(self.next_index);
        let (mut plan, notes) = stand.plan(setup, seed).map_err(cut)?;
        plan.decides = decision(&self.plan.goals, &plan);
        for note in notes {
            if !self.notes.contains(&note) {
                (self.on_event)(Event::Warning(&format!("using {note}")));
                self.notes.push(note);
            }
        }
        let unit = self.plan.search.as_ref().map(|search| &search.unit);
        (self.on_event)(Event::Begins {
            name: &self.plan.settings[place.setting].name,
            purpose: place.purpose,
            load: place.load.zip(unit).map(|(load, unit)| unit.show(load)),
            plan: &plan,
        });
        let on_event = &mut *self.on_event;
        let trial = stand.run(plan, &self.options.stop, &self.options.command, |tick| {
            on_event(Event::Second(tick));
        });
        // A target that died explains more than the errors of the trial it died in.
        stand.failure().map_err(cut)?;
        trial.map_err(|error| match error {
            StandError::Fleet(_) if self.options.stop.load(Ordering::Relaxed) => Cut::Stopped,
            error => cut(error),
        })
    }

    /// Hosts and targets as the setting wants them, warmed up if they are new.
    fn bring_up(&mut self, setup: &Setup, place: Place) -> Result<(), Cut> {
        let fresh = self.study.trial.fresh == Fresh::Trial && setup.lab.is_some();
        if !fresh && self.stand.as_ref().is_some_and(|stand| stand.carries(setup)) {
            return Ok(());
        }
        self.take_down();
        if setup.lab.is_some() {
            self.leftover = Duration::ZERO;
            (self.on_event)(Event::SettingUp { name: &self.plan.settings[place.setting].name });
        }
        let stand = Stand::up(setup.clone(), &self.options.lab, &self.options.worker);
        self.stand = Some(stand.map_err(|error| match error {
            StandError::Lab(lab::Error::CalledOff) => Cut::Stopped,
            error => cut(error),
        })?);
        if let Some(duration) = self.study.trial.warm_up {
            let warm = with_duration(setup.clone(), Some(duration));
            let place = Place { purpose: Purpose::WarmUp, ..place };
            let trial = self.run_one(&warm, place)?;
            if trial.interrupted {
                return Err(Cut::Stopped);
            }
            self.leftover = leftover(&trial);
        }
        Ok(())
    }

    fn let_settle(&mut self) -> Result<(), Cut> {
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
                (self.on_event)(Event::Warning(&message));
                self.warnings.push(Warning::new("not_settled", message));
            }
        }
        if self.options.stop.load(Ordering::Relaxed) { Err(Cut::Stopped) } else { Ok(()) }
    }

    fn may_go_on(&self) -> Result<(), Cut> {
        if self.options.stop.load(Ordering::Relaxed) {
            return Err(Cut::Stopped);
        }
        match self.study.budget {
            Some(budget) if self.study_time_s() >= budget.as_secs_f64() => Err(Cut::OutOfBudget),
            _ => Ok(()),
        }
    }

    /// How long the study has taken, earlier runs included, in seconds.
    pub(crate) fn study_time_s(&self) -> f64 {
        self.before_s + self.begun.elapsed().as_secs_f64()
    }

    /// Ends hosts and targets; what is left of them is told.
    pub(crate) fn take_down(&mut self) {
        for message in self.stand.take().map(Stand::down).unwrap_or_default() {
            (self.on_event)(Event::Warning(&message));
            self.warnings.push(Warning::new("not_taken_down", message));
        }
    }
}

/// How long a target may need for the requests that a trial gave up waiting for (a timeout, the end), at the rate it
/// answered the others.
fn leftover(trial: &record::Trial) -> Duration {
    let given_up = trial.counts.in_flight + trial.errors.of(ErrorClass::Timeout);
    if given_up == 0 {
        return Duration::ZERO;
    }
    if trial.throughput_per_s <= 0.0 {
        return LONGEST_LEFTOVER;
    }
    Duration::from_secs_f64(given_up as f64 / trial.throughput_per_s).min(LONGEST_LEFTOVER)
}

/// A trial's length in the place of the workload's own; a workload that ends by loops or requests keeps its end.
fn with_duration(mut setup: Setup, duration: Option<Duration>) -> Setup {
    let bounded = setup.workload.loops.is_some() || setup.workload.requests.is_some();
    if let (Some(duration), false) = (duration, bounded) {
        setup.workload.duration = Some(format!("{}s", duration.as_secs_f64()));
    }
    setup
}

/// What a trial for these goals is to decide about; without a bound on a time, an open load may be late by a tenth
/// of the time that its answers are waited for.
fn decision(goals: &[Goal], plan: &HttpPlan) -> Option<Decision> {
    let bound = |goal: &Goal| match goal.quantity {
        GoalQuantity::ResponseTime { bound_ns } | GoalQuantity::ConnectTime { bound_ns } => Some(bound_ns),
        GoalQuantity::Errors => None,
    };
    let response_time_ns = goals.iter().filter_map(bound).min();
    let loss_ratio = goals.iter().map(|goal| goal.loss_ratio).reduce(f64::max)?;
    Some(Decision {
        response_time_ns: response_time_ns.unwrap_or(plan.timeout_ns.min(plan.drain_ns)),
        loss_ratio,
    })
}

fn cut(error: StandError) -> Cut {
    Cut::Failed(error.to_string())
}
