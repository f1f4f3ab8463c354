//! A study's search in the terms of the room `search`, and its outcome back.

mod planning;

use record::{CurrentBounds, GoalOutcome, LoadUnit, SearchOutcome, SearchPlan, TrialEntry, Warning};
use search::TrialOutcome;

pub(crate) use planning::plan;

/// A search at work, told in the study's terms.
#[derive(Debug, Clone)]
pub(crate) struct Searching {
    search: search::Search,
    unit: LoadUnit,
}

impl Searching {
    /// A search that has not begun.
    ///
    /// # Errors
    /// When the plan is not one of this version's.
    pub(crate) fn new(plan: &SearchPlan) -> Result<Self, String> {
        let settings = serde_json::from_value(plan.method_settings.clone())
            .map_err(|error| format!("the search of plan.json is not one of this version: {error}"))?;
        let search = search::Search::new(settings).map_err(|mistakes| mistakes.to_string())?;
        Ok(Self { search, unit: plan.unit.clone() })
    }

    /// The next trial; none when there is nothing left to measure.
    pub(crate) fn next(&mut self) -> Option<search::NextTrial> {
        match self.search.next_step() {
            search::Step::Measure(trial) => Some(trial),
            search::Step::Done(_) => None,
        }
    }

    /// Takes in a trial that [`Searching::next`] asked for.
    ///
    /// # Errors
    /// When it is not the one: the journal belongs to another plan.
    pub(crate) fn tell(&mut self, entry: &TrialEntry) -> Result<(), String> {
        let asked = self.next().ok_or("the journal holds more trials than the search asks for")?;
        if entry.load != Some(asked.load) {
            return Err(format!(
                "trial {} was at {}, and the search asks for {}: the journal belongs to another plan or version",
                entry.index,
                entry.load.map_or("no load".to_owned(), |load| self.unit.show(load)),
                self.unit.show(asked.load)
            ));
        }
        let measured = if entry.trial.validity.is_void() {
            TrialOutcome::Void
        } else {
            let loss = |goal| entry.loss_ratios.get(goal).copied().unwrap_or(1.0);
            let loss_ratios = (0..self.search.plan().goals.len()).map(loss).collect();
            TrialOutcome::Valid { loss_ratios, effective_duration_s: asked.duration_s }
        };
        self.search.report(measured).map_err(|error| error.to_string())
    }

    /// How far it is: for each goal, the bounds so far, or what hints at them; and how many seconds it still takes, by what
    /// is known, where each trial takes `beside_s` more than its length.
    pub(crate) fn progress(&self, beside_s: f64) -> (Vec<CurrentBounds>, f64) {
        let progress = self.search.progress();
        let remaining_s = progress.remaining_s + progress.remaining_trials * beside_s;
        (progress.goals, remaining_s.max(0.0))
    }

    /// What is known of each goal by now.
    pub(crate) fn bounds(&self) -> Vec<CurrentBounds> {
        let known = |goal: GoalOutcome| CurrentBounds {
            lower: goal.lower.map(|bound| bound.load),
            upper: goal.upper.map(|bound| bound.load),
        };
        self.search.outcome().goals.into_iter().map(known).collect()
    }

    /// What a careful reader of its outcome should know.
    pub(crate) fn warnings(&self) -> Vec<Warning> {
        let outcome = self.search.outcome();
        let show = |load| self.unit.show(load);
        let distrust = match outcome.ended {
            search::Ending::Void { at } => Some(format!(
                "trials were void again and again, the last at {}, a load that the generator has shown it can make: this \
                 machine was too busy to measure; nothing may be concluded. Give the generator a processor of its own \
                 (cpus), or a quieter machine",
                show(at)
            )),
            _ => None,
        };
        let inversion = |search::Inversion { goal, missed, met }: &search::Inversion| {
            format!(
                "{goal}: not met at {}, and met at {} larger load{}, the least of them {} (loss inversion): the smaller \
                 load is believed; more repeats tell whether it was chance",
                show(*missed),
                met.len(),
                if met.len() == 1 { "" } else { "s" },
                show(met[0])
            )
        };
        let dispute = |search::Dispute { goal, missed, not_made }: &search::Dispute| {
            format!(
                "{goal}: not every trial at {} met it, and the generator could not make {}: between the two it was not told \
                 whether the target or the busy generator is the cause; more repeats (--repeats), or a processor for the \
                 generator alone (--cpus), tell them apart",
                show(*missed),
                show(*not_made)
            )
        };
        let distrust = distrust.map(|why| Warning::new("search_void", why));
        let inversions = outcome.inversions.iter().map(|one| Warning::new("loss_inversion", inversion(one)));
        let disputes = outcome.disputes.iter();
        let disputes = disputes.map(|one| Warning::new("disputed_below_generator", dispute(one)));
        distrust.into_iter().chain(inversions).chain(disputes).collect()
    }

    /// What was found, or is known so far.
    pub(crate) fn outcome(&self, block: usize) -> SearchOutcome {
        let outcome = self.search.outcome();
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
