//! One trial of a study: hosts and targets brought up for it, what it leaves judged and written down.

use std::{
    path::Path,
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use lab::link::LinkError;
use record::{
    AuditResult, Decision, ErrorClass, Goal, HttpPlan, Purpose, TrialEntry, Warning, study::ENTRY_SCHEMA,
    units::parse_time,
};

use super::{Course, Cut, Place};
use crate::{
    auditing,
    growth::{Growth, growth_of},
    lateness, links,
    run::Event,
    stand::{Stand, StandError},
    study::{Fresh, Setup},
};

/// How often the wish to stop is looked for during a pause.
const GLANCE: Duration = Duration::from_millis(20);
/// No target is waited for longer than this because of what the last trial left it to do.
const LONGEST_LEFTOVER: Duration = Duration::from_secs(30);

impl Course<'_> {
    /// Runs a trial and writes it down.
    pub(super) fn trial(&mut self, place: Place, duration: Option<Duration>) -> Result<&TrialEntry, Cut> {
        self.may_go_on()?;
        let begun_s = self.study_time_s();
        let setup = self.study.setup(place.setting, place.load).map_err(|mistakes| {
            Cut::Failed(mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
        })?;
        let receipts = setup.audit.as_ref().map(|_| self.evidence.receipts(self.next_index));
        let receipts = receipts.transpose().map_err(Cut::Failed)?;
        let setup = with_receipts(with_duration(setup, duration), receipts.as_deref());
        self.bring_up(&setup, place)?;
        self.let_settle()?;
        self.may_go_on()?;
        let study_time_s = self.study_time_s();
        self.links.begin(self.stand.as_mut().and_then(Stand::lab)).map_err(link_cut)?;
        if let Some(lab) = self.stand.as_mut().and_then(Stand::lab) {
            // Workers may have pinned themselves since they were started.
            lab.place_links().map_err(|error| cut(StandError::Lab(error)))?;
        }
        let mut trial = self.run_one(&setup, place)?;
        if trial.interrupted {
            let text = serde_json::to_string_pretty(&trial).expect("a trial can be written as JSON");
            let written = self.folder.write("interrupted-trial.json", &text);
            written.map_err(|error| Cut::Failed(error.to_string()))?;
            return Err(Cut::Stopped);
        }
        let audit = self.audit(&setup, place, receipts.as_deref(), &mut trial)?;
        let lab = self.stand.as_mut().and_then(Stand::lab);
        let doubts = self.links.end(lab, self.next_index, &trial, &self.plan.goals).map_err(link_cut)?;
        links::make_void(&mut trial, doubts.perhaps);
        let goals = &self.plan.goals;
        let judged = self.shows_growth(place, duration, &trial);
        let growth: Vec<Option<Growth>> =
            goals.iter().map(|goal| judged.then(|| growth_of(&trial, goal.quantity)).flatten()).collect();
        let growth_per_s = growth.iter().flatten().map(|growth| growth.per_s).reduce(f64::max);
        lateness::judge(&mut trial, audit.as_ref(), goals, &growth);
        links::make_void(&mut trial, doubts.certain);
        self.leftover = leftover(&trial);
        // What piles up is not carried, however little was late by then.
        let loss_ratios = goals.iter().zip(&growth).map(|(goal, growth)| match growth {
            Some(_) => 1.0,
            None => goal.loss_ratio_of(&trial, audit.as_ref()),
        });
        let mut entry = TrialEntry {
            schema: ENTRY_SCHEMA.to_owned(),
            index: self.next_index,
            block: place.block,
            setting: place.setting,
            purpose: place.purpose,
            load: place.load,
            attempt: place.attempt,
            loss_ratios: loss_ratios.collect(),
            growth_per_s,
            audit,
            noticed: std::mem::take(&mut self.unwritten),
            asked_s: duration.map(|duration| duration.as_secs_f64()),
            study_time_s,
            trial,
        };
        self.journal.append(&entry).map_err(|error| Cut::Failed(error.to_string()))?;
        self.next_index += 1;
        let length_s = duration.map_or(entry.trial.elapsed_s, |duration| duration.as_secs_f64());
        self.beside = (self.beside.0 + self.study_time_s() - begun_s - length_s, self.beside.1 + 1);
        (self.on_event)(Event::Ended(&entry));
        // It is kept to the end of the study, with hundreds like it.
        entry.pack();
        self.entries.push(entry);
        Ok(&self.entries[self.entries.len() - 1])
    }

    /// Whether growth is looked for. Tenths of a second rise and fall together with a noisy target's queue: they tell of
    /// trials that decide, not of those that explore.
    fn shows_growth(&self, place: Place, duration: Option<Duration>, trial: &record::Trial) -> bool {
        let full_s = self.plan.search_of(place.setting).map(|search| search.trial_duration_s);
        let explores =
            duration.zip(full_s).is_some_and(|(asked, full_s)| asked.as_secs_f64() < full_s * 0.999);
        trial.plan.interval_ns() >= 1_000_000_000 || !explores
    }

    /// What the target stored of what it acknowledged in this trial; none if that is not asked for.
    fn audit(
        &mut self,
        setup: &Setup,
        place: Place,
        receipts: Option<&Path>,
        trial: &mut record::Trial,
    ) -> Result<Option<AuditResult>, Cut> {
        let Some((asked, receipts)) = setup.audit.as_ref().zip(receipts) else { return Ok(None) };
        let stand = self.stand.as_ref().expect("it was brought up just before");
        let audited = auditing::audit(asked, receipts, stand.stored(), &self.options.stop);
        let (audit, doubt) = match audited {
            // The trial did not come to its end.
            Ok(None) => return Err(Cut::Stopped),
            Ok(Some(audit)) => {
                let doubt = auditing::doubt(&audit);
                (Some(audit), doubt)
            }
            Err(why) => (None, Some(why)),
        };
        let is_clean = doubt.is_none() && audit.as_ref().is_some_and(AuditResult::is_clean);
        if let Some(why) = doubt {
            auditing::make_void(trial, why);
        }
        let is_worth_it = matches!(place.purpose, Purpose::Repeat | Purpose::Confirm);
        self.evidence.audited(self.next_index, is_clean, is_worth_it).map_err(Cut::Failed)?;
        Ok(audit)
    }

    fn run_one(&mut self, setup: &Setup, place: Place) -> Result<record::Trial, Cut> {
        let stand = self.stand.as_ref().expect("it was brought up just before");
        let seed = self.study.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(self.next_index);
        // A warm-up is no trial of its own number.
        let seed = if place.purpose == Purpose::WarmUp { !seed } else { seed };
        let decides = |plan: &HttpPlan| decision(&self.plan.goals, plan);
        let (plan, fitted) = stand.plan(setup, seed, decides).map_err(cut)?;
        for note in fitted.clone().unwrap_or_default() {
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
            StandError::Fleet(_) if self.options.stop.load(Ordering::Relaxed) => Cut::Stopped,
            error => cut(error),
        })
    }

    /// Hosts and targets as the setting wants them, warmed up if they are new.
    fn bring_up(&mut self, setup: &Setup, place: Place) -> Result<(), Cut> {
        // What has state is new for another setting, even if it is made alike.
        let is_kept = match self.study.trial.fresh {
            _ if setup.lab.is_none() => true,
            Fresh::Trial => false,
            Fresh::Setting => self.stand_is_for == Some(place.setting),
        };
        // All over a link that is not certified is void: measured again, it may be.
        let mut lab = self.stand.as_mut().and_then(Stand::lab);
        let is_kept = is_kept && !lab.as_mut().is_some_and(|lab| self.links.may_be_certified_yet(lab));
        if is_kept && self.stand.as_ref().is_some_and(|stand| stand.carries(setup)) {
            return Ok(());
        }
        self.take_down();
        if setup.lab.is_some() {
            self.leftover = Duration::ZERO;
            (self.on_event)(Event::SettingUp { name: &self.plan.settings[place.setting].name });
        }
        let stored = self.evidence.stored().map_err(Cut::Failed)?;
        let (links, mut told) = (&mut self.links, Vec::new());
        let logs = self.folder.path().join("logs").join(self.next_index.to_string());
        let lab = lab::Options { keep_logs: Some(logs), ..self.options.lab.clone() };
        let stand = Stand::up(setup.clone(), &lab, &self.options.worker, &stored, &mut |name, link| {
            told.extend(links.measure(name, link)?);
            Ok(())
        });
        told.iter().for_each(|text| (self.on_event)(Event::Warning(text)));
        self.stand = Some(stand.map_err(|error| match error {
            StandError::Lab(lab::Error::CalledOff) => Cut::Stopped,
            error => cut(error),
        })?);
        self.stand_is_for = Some(place.setting);
        self.ask_first(setup, place.setting)?;
        if let Some(duration) = self.study.trial.warm_up {
            let warm = with_receipts(with_duration(setup.clone(), Some(duration)), None);
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
                self.notice(Warning::new("not_settled", message));
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
}

/// How long a target may need for the requests that a trial gave up waiting for (a timeout, the end), at the rate it
/// answered the others.
pub(super) fn leftover(trial: &record::Trial) -> Duration {
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
///
/// What counts was checked to be longer than the ramp-up. In a shorter one, which only warms up, all users start at once.
fn with_duration(mut setup: Setup, duration: Option<Duration>) -> Setup {
    if let (Some(duration), false) = (duration, setup.ends_itself()) {
        setup.workload.duration = Some(format!("{}s", duration.as_secs_f64()));
        let ramp_up = setup.workload.ramp_up.as_deref().and_then(|text| parse_time(text).ok());
        if ramp_up.is_some_and(|ramp_up| ramp_up >= duration) {
            setup.workload.ramp_up = None;
        }
    }
    setup
}

/// Where the events' receipts go; none are kept of a trial that no audit looks at.
fn with_receipts(mut setup: Setup, folder: Option<&Path>) -> Setup {
    if setup.audit.is_some() {
        setup.workload.receipts = folder.map(|folder| folder.display().to_string());
    }
    setup
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

fn link_cut(error: LinkError) -> Cut {
    Cut::Failed(format!("a link of the lab: {error}"))
}

pub(super) fn cut(error: StandError) -> Cut {
    Cut::Failed(error.to_string())
}

#[cfg(test)]
mod tests {
    use load::HttpWorkload;

    use super::*;

    #[test]
    fn a_warm_up_shorter_than_the_ramp_up_starts_all_users_at_once() {
        let workload = HttpWorkload { ramp_up: Some("5s".to_owned()), ..HttpWorkload::default() };
        let setup = Setup { lab: None, target: None, from: Vec::new(), workload, audit: None };
        let lasting = |seconds| with_duration(setup.clone(), Some(Duration::from_secs(seconds))).workload;
        assert_eq!((lasting(2).ramp_up, lasting(2).duration.as_deref()), (None, Some("2s")));
        assert_eq!(lasting(30).ramp_up.as_deref(), Some("5s"));
    }
}
