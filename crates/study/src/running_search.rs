//! Adapts a search of the crate `search` to the terms of a study.

mod planning;

use record::{
    CurrentBounds, Goal, GoalOutcome, LoadUnit, SearchOutcome, SearchPlan, TrialEntry, VoidRule, Warning,
    units::show_number,
};
use search::{TrialOutcome, steadiness::Unsteady};

use crate::{sending::is_sent_late, steadiness};

pub(crate) use planning::plan;

/// A search in progress.
#[derive(Debug, Clone)]
pub(crate) struct RunningSearch {
    search: search::Search,
    unit: LoadUnit,
    goals: Vec<Goal>,
}

impl RunningSearch {
    /// Starts a search; fails if another version of this program made the plan.
    pub(crate) fn new(plan: &SearchPlan, goals: &[Goal]) -> Result<Self, String> {
        let settings = serde_json::from_value(plan.method_settings.clone())
            .map_err(|error| format!("another version made the search in plan.json: {error}"))?;
        let search = search::Search::new(settings).map_err(|mistakes| mistakes.to_string())?;
        Ok(Self { search, unit: plan.unit.clone(), goals: goals.to_vec() })
    }

    /// The next trial; `None` when nothing is left to measure.
    pub(crate) fn next(&mut self) -> Option<search::NextTrial> {
        match self.search.next_step() {
            search::Step::Measure(trial) => Some(trial),
            search::Step::Done(_) => None,
        }
    }

    /// Adds a trial. Fails if [`RunningSearch::next`] did not request it, because the journal then belongs to another plan.
    pub(crate) fn tell(&mut self, entry: &TrialEntry) -> Result<(), String> {
        let wanted = self.next().ok_or("the journal holds more trials than the search asks for")?;
        if entry.load != Some(wanted.load) {
            return Err(format!(
                "trial {} was at {}, and the search asks for {}: the journal belongs to another plan or version",
                entry.index,
                entry.load.map_or("no load".to_owned(), |load| self.unit.show(load)),
                self.unit.show(wanted.load)
            ));
        }
        // A trial that leaves a goal undecided does not show whether the load is carried.
        let loss = |goal| entry.loss_ratios.get(goal).copied().unwrap_or(1.0);
        let loss_ratios = (0..self.search.plan().goals.len()).map(loss).collect();
        let is_exhausted = entry.trial.http().is_some_and(|http| http.is_exhausted() || is_sent_late(http));
        // If a trial is void only because each goal is undecided within wide bounds, it did send the planned load.
        let is_open = |goal: &Goal| goal.is_met_by(&entry.trial, entry.audit.as_ref()).is_none();
        let is_vague = entry.trial.validity.is_void()
            && entry.trial.validity.reasons().iter().all(|reason| reason.rule == VoidRule::Late)
            && self.goals.iter().all(is_open);
        let is_valid = entry.is_decided();
        let measured = if is_valid {
            TrialOutcome::Valid { loss_ratios, effective_duration_s: wanted.duration_s }
        } else if entry.trial.validity.is_void() && !is_vague {
            TrialOutcome::Void { is_exhausted }
        } else {
            let goals = if is_vague { (0..self.goals.len()).collect() } else { entry.undecided.clone() };
            TrialOutcome::Undecided { loss_ratios, goals, is_exhausted }
        };
        self.search.report(measured).map_err(|error| error.to_string())?;
        if is_valid && !wanted.is_warm_up {
            let goals = self.goals.iter().enumerate();
            let timed = goals.map(|(index, goal)| {
                steadiness::timed(goal, entry.loss_ratios.get(index).copied().unwrap_or(1.0), entry, &wanted)
            });
            self.search.note(timed.collect());
        }
        Ok(())
    }

    /// How the results for the goal at this index depend on the time of the trial; none if the load explains the results.
    pub(crate) fn unsteady(&self, goal_index: usize) -> Option<Unsteady> {
        self.search.unsteady(goal_index)
    }

    /// Length of the trials that decide about the goal at this index, in seconds, and its ratio to the initial length.
    pub(crate) fn trial_s(&self, goal_index: usize) -> (f64, f64) {
        (self.search.plan().goals[goal_index].final_trial_duration_s, self.search.longer())
    }

    /// The current bounds of each goal, as in the answer, and the estimated remaining time in seconds. Each trial takes
    /// `overhead_s` seconds beyond its own duration.
    pub(crate) fn progress(&self, overhead_s: f64) -> (Vec<CurrentBounds>, f64) {
        let progress = self.search.progress();
        let remaining_s = progress.remaining_s + progress.remaining_trials * overhead_s;
        (self.bounds(), remaining_s.max(0.0))
    }

    /// The current bounds of each goal.
    pub(crate) fn bounds(&self) -> Vec<CurrentBounds> {
        let known = |goal: GoalOutcome| CurrentBounds {
            lower: goal.lower.map(|bound| bound.load),
            upper: goal.upper.map(|bound| bound.load),
        };
        self.search.so_far().goals.into_iter().map(known).collect()
    }

    /// Warnings about the search's result.
    pub(crate) fn warnings(&self) -> Vec<Warning> {
        let outcome = self.search.outcome();
        let show = |load| self.unit.show(load);
        let void = match outcome.ended {
            search::Ending::Void { at } => Some(format!(
                "trials were void repeatedly, the last at {}, a load that the generator has shown it can make: this \
                 machine was too busy to measure; nothing may be concluded. Give the generator a processor of its own \
                 (cpus), or a quieter machine",
                show(at)
            )),
            _ => None,
        };
        let inversion = |search::Inversion { goal, missed, met }: &search::Inversion| {
            format!(
                "{goal}: not met at {}, but met at {} larger load{}, the smallest of them {} (loss inversion): the result \
                 counts the smaller load; more repeats show whether this was chance",
                show(*missed),
                met.len(),
                if met.len() == 1 { "" } else { "s" },
                show(met[0])
            )
        };
        let dispute = |search::Dispute { goal, missed, not_made }: &search::Dispute| {
            format!(
                "{goal}: not every trial at {} met it, and the generator could not make {}: it is unknown \
                 whether the target or the generator is the cause; more repeats (--repeats), or a processor for the \
                 generator alone (--cpus), show which",
                show(*missed),
                show(*not_made)
            )
        };
        let undecided = |search::UndecidedBetween { goal, loads, width }: &search::UndecidedBetween| {
            let (first, last) = (loads[0], loads[loads.len() - 1]);
            let at = if first == last { show(first) } else { format!("{} to {}", show(first), show(last)) };
            format!(
                "{goal}: trials at {at} left it undecided, because this machine was busy; on a quiet machine the bounds would be \
                 closer ({} % were asked for). Give the generator a processor of its own (cpus)",
                show_number(width * 100.0)
            )
        };
        let undecided = outcome.undecided.iter().map(|one| Warning::new("undecided_between", undecided(one)));
        let void = void.map(|why| Warning::new("search_void", why));
        let inversions = outcome.inversions.iter().map(|one| Warning::new("loss_inversion", inversion(one)));
        let disputes = outcome.disputes.iter();
        let disputes = disputes.map(|one| Warning::new("disputed_below_generator", dispute(one)));
        void.into_iter().chain(undecided).chain(inversions).chain(disputes).collect()
    }

    /// The result, or the current state if the search has not ended.
    pub(crate) fn outcome(&self, block: usize) -> SearchOutcome {
        let outcome = self.search.so_far();
        SearchOutcome {
            block,
            goals: outcome.goals,
            finished: outcome.ended == search::Ending::Complete,
            trials: outcome.trials,
            trial_seconds: outcome.trial_seconds,
            path: Vec::new(),
            confirmation: None,
        }
    }
}
