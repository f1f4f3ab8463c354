//! A study on its way: from place to place of its plan, hosts and targets up as each wants them, every trial
//! written down before the next.

mod asking;
mod trial;

pub use asking::refuse_silent;

use std::time::{Duration, Instant};

use rand::{SeedableRng, seq::SliceRandom};
use rand_pcg::Pcg64Mcg;
use record::{Purpose, ResultFolder, StudyPlan, TrialEntry, Warning, folder::TrialJournal};

use crate::{
    event::{Event, Options},
    evidence::Evidence,
    links::Links,
    observers::Observers,
    outcome,
    searching::Searching,
    stand::Stand,
    stop_reason::StopReason,
    study::Study,
};

/// Where a study leaves what it measures.
pub(crate) struct Kept<'a> {
    pub folder: &'a ResultFolder,
    pub journal: TrialJournal,
    pub evidence: Evidence,
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
    /// What the trials of this run took beside their lengths (set-up, settling, draining), in seconds, and their number.
    beside: (f64, u32),
    /// The first so many of `entries` are of earlier runs, and of these `used` have been gone through.
    replayed: usize,
    used: usize,
    pub(crate) entries: Vec<TrialEntry>,
    /// What the searches found so far.
    found: Vec<Found>,
    stand: Option<Stand>,
    /// The setting that it was brought up for.
    stand_is_for: Option<usize>,
    /// Searched settings whose target has answered a single request.
    asked: Vec<usize>,
    observers: Observers,
    /// How long the target needs for what the last trial left it to do.
    leftover: Duration,
    notes: Vec<String>,
    /// What a careful reader should know and no trial has written down yet.
    pub(crate) unwritten: Vec<Warning>,
}

/// The answer of a search: a load that meets all goals.
#[derive(Debug, Clone, Copy)]
struct Found {
    block: usize,
    setting: usize,
    load: f64,
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

impl Place {
    fn in_words(self, plan: &StudyPlan) -> String {
        let purpose = match self.purpose {
            Purpose::WarmUp => "a warm-up",
            Purpose::Search => "a step of a search",
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

impl<'a> Course<'a> {
    /// At its beginning, or where an earlier run left it after the trials `done`.
    pub(crate) fn new(
        study: &'a Study,
        plan: &'a StudyPlan,
        options: &'a Options,
        on_event: &'a mut dyn FnMut(Event<'_>),
        kept: Kept<'a>,
        done: Vec<TrialEntry>,
    ) -> Self {
        let Kept { folder, journal, evidence } = kept;
        Self {
            study,
            plan,
            options,
            on_event,
            folder,
            journal,
            begun: Instant::now(),
            before_s: done.last().map_or(0.0, |entry| entry.study_time_s + entry.trial.elapsed_s),
            next_index: done.len() as u64 + 1,
            beside: (0.0, 0),
            replayed: done.len(),
            leftover: done.last().map_or(Duration::ZERO, |entry| trial::leftover(&entry.trial)),
            entries: done,
            used: 0,
            found: Vec::new(),
            stand: None,
            stand_is_for: None,
            asked: Vec::new(),
            observers: Observers { evidence, links: Links::new(folder) },
            notes: Vec::new(),
            unwritten: Vec::new(),
        }
    }

    /// Something that a careful reader should know: told, and written down with the next trial.
    pub(crate) fn notice(&mut self, warning: Warning) {
        let warning = Warning::new(&warning.code, secrets::mask(&warning.message));
        (self.on_event)(Event::Warning(&warning.message));
        self.unwritten.push(warning);
    }

    /// Everything that is planned and was not run before: all blocks, then the answers of their searches once more.
    pub(crate) fn finish(&mut self) -> Result<(), StopReason> {
        self.through_all_blocks()?;
        self.confirm()
    }

    fn through_all_blocks(&mut self) -> Result<(), StopReason> {
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
    fn search(&mut self, block: usize, setting: usize) -> Result<(), StopReason> {
        let plan = self.plan.search_of(setting).expect("only settings of a study with a search are searched");
        let mut searching = Searching::new(plan).map_err(StopReason::Failed)?;
        while let Some(next) = searching.next() {
            let purpose = if next.is_warm_up { Purpose::WarmUp } else { Purpose::Search };
            let place = Place { block, setting, purpose, load: Some(next.load), attempt: next.attempt };
            let entry = self.at(place, Some(Duration::from_secs_f64(next.duration_s)))?;
            let is_refused = asking::is_refused(&entry.trial);
            searching.tell(entry).map_err(StopReason::OtherJournal)?;
            if is_refused && self.used >= self.replayed {
                self.still_there(setting, next.load)?;
            }
            if self.used >= self.replayed {
                let (bounds, remaining_s) = searching.progress(self.beside_s());
                let remaining_s = remaining_s.min(self.budget_left_s());
                (self.on_event)(Event::Closing { bounds, remaining_s });
            }
        }
        // Only after it was asked once more does a search know that it has come to its end.
        searching.next();
        let load = outcome::confirmed_load(&searching.outcome(block));
        self.found.extend(load.map(|load| Found { block, setting, load }));
        Ok(())
    }

    /// The lower bounds that were found, in turns: each repeat is one pass over all of them, in an order of its own.
    fn confirm(&mut self) -> Result<(), StopReason> {
        let mut found = std::mem::take(&mut self.found);
        let mut rng = Pcg64Mcg::seed_from_u64(self.plan.seed);
        let wanted = |found: &Found| self.plan.search_of(found.setting).map_or(0, |search| search.confirm);
        let most = found.iter().map(wanted).max().unwrap_or(0);
        for repeat in 0..most {
            found.shuffle(&mut rng);
            for &Found { block, setting, load } in &found {
                let Some(search) = self.plan.search_of(setting).filter(|search| repeat < search.confirm)
                else {
                    continue;
                };
                let duration = Duration::from_secs_f64(search.trial_duration_s);
                let place = Place { block, setting, purpose: Purpose::Confirm, load: Some(load), attempt: 0 };
                self.until_valid(place, Some(duration))?;
            }
        }
        Ok(())
    }

    /// The workload's own load.
    fn repeat(&mut self, block: usize, setting: usize) -> Result<(), StopReason> {
        let place = Place { block, setting, purpose: Purpose::Repeat, load: None, attempt: 0 };
        self.until_valid(place, None)
    }

    /// A trial, and again while it is void.
    fn until_valid(&mut self, place: Place, duration: Option<Duration>) -> Result<(), StopReason> {
        for attempt in 0..=self.study.trial.void_attempts {
            if !self.at(Place { attempt, ..place }, duration)?.trial.validity.is_void() {
                break;
            }
        }
        Ok(())
    }

    /// The trial at a place of the plan: that of an earlier run if there is one, otherwise run now.
    fn at(&mut self, place: Place, duration: Option<Duration>) -> Result<&TrialEntry, StopReason> {
        if self.used < self.replayed { self.earlier(place) } else { self.trial(place, duration) }
    }

    /// The next trial of an earlier run, which must be the one at this place of the plan.
    fn earlier(&mut self, place: Place) -> Result<&TrialEntry, StopReason> {
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
            return Err(StopReason::OtherJournal(format!(
                "trial {} of trials.jsonl is {}, where the plan asks for {}: it was not run by this plan and version; run the \
                 study anew in another folder (--out)",
                entry.index,
                written.in_words(self.plan),
                place.in_words(self.plan)
            )));
        }
        Ok(entry)
    }

    /// What a trial takes beside its length, in seconds, by those of this run.
    fn beside_s(&self) -> f64 {
        self.beside.0 / f64::from(self.beside.1.max(1))
    }

    /// Seconds until no further trial begins.
    fn budget_left_s(&self) -> f64 {
        let budget = self.study.budget.map_or(f64::INFINITY, |budget| budget.as_secs_f64());
        (budget - self.study_time_s()).max(0.0)
    }

    /// How long the study has taken, earlier runs included, in seconds.
    pub(crate) fn study_time_s(&self) -> f64 {
        self.before_s + self.begun.elapsed().as_secs_f64()
    }

    /// Ends hosts and targets; what is left of them is told. What they stored goes with them, unless an audit found something.
    pub(crate) fn take_down(&mut self) {
        if self.stand.is_none() {
            return;
        }
        if let Some(why) = self.clean_up() {
            self.notice(Warning::new("not_cleaned_up", why));
        }
        for message in self.stand.take().map(Stand::down).unwrap_or_default() {
            self.notice(Warning::new("not_taken_down", message));
        }
        if let Err(message) = self.observers.evidence.target_ended() {
            self.notice(Warning::new("stored_files", message));
        }
    }
}
