//! A study's search in the terms of the room `search`, and its outcome back.

mod planning;

use record::{
    Bound, BoundKind, BoundsSoFar, Goal, GoalOutcome, LoadUnit, SearchOutcome, SearchPlan, TrialEntry,
};
use search::Measured;

use crate::run::Closing;
use planning::Method;
pub(crate) use planning::plan;

/// Trials that disagree so near below what the generator cannot make are its doing.
const DISPUTED_WIDTHS: f64 = 2.0;

/// A search at work, told in the study's terms.
#[derive(Debug, Clone)]
pub(crate) struct Searching {
    search: search::Search,
    method: Method,
    unit: LoadUnit,
    goals: Vec<String>,
}

impl Searching {
    /// A search that has not begun.
    ///
    /// # Errors
    /// When the plan is not one of this version's.
    pub(crate) fn new(plan: &SearchPlan, goals: &[Goal]) -> Result<Self, String> {
        let method: Method = serde_json::from_value(plan.method_settings.clone())
            .map_err(|error| format!("the search of plan.json is not one of this version: {error}"))?;
        let search = search::Search::new(method.plan.clone()).map_err(|mistakes| mistakes.to_string())?;
        let goals = goals.iter().map(|goal| goal.name.clone()).collect();
        Ok(Self { search, method, unit: plan.unit.clone(), goals })
    }

    /// The next trial; none when there is nothing left to measure.
    pub(crate) fn next(&mut self) -> Option<search::NextTrial> {
        match self.search.next() {
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
            Measured::Void
        } else {
            let loss = |&place: &usize| entry.loss_ratios.get(place).copied().unwrap_or(1.0);
            Measured::Valid {
                loss_ratios: self.method.goals.iter().map(loss).collect(),
                effective_duration_s: asked.duration_s,
            }
        };
        self.search.tell(measured).map_err(|error| error.to_string())
    }

    /// How far it is: for each goal of the study, the bounds so far, or what hints at them; and how many seconds it still
    /// takes, by what is known, where each trial takes `beside_s` more than its length.
    pub(crate) fn progress(&self, beside_s: f64) -> (Vec<Closing>, f64) {
        let progress = self.search.progress();
        let of_goal = |(place, name): (usize, &String)| {
            let own = || progress.goals.iter().zip(&self.method.goals).filter(move |(_, at)| **at == place);
            let lower = own().filter_map(|(goal, _)| goal.lower.or(goal.probed_lower)).next();
            let upper = own().filter_map(|(goal, _)| goal.upper.or(goal.probed_upper)).next_back();
            Closing { goal: name.clone(), lower, upper }
        };
        let remaining_s = progress.remaining_s + progress.remaining_trials * beside_s;
        (self.goals.iter().enumerate().map(of_goal).collect(), remaining_s.max(0.0))
    }

    /// What is known of each goal of the study by now.
    pub(crate) fn bounds(&self) -> Vec<BoundsSoFar> {
        let known = |goal: GoalOutcome| BoundsSoFar {
            lower: goal.lower.map(|bound| bound.load),
            upper: goal.upper.map(|bound| bound.load),
        };
        self.outcome(0).goals.into_iter().map(known).collect()
    }

    /// Loads above the upper bound that met a goal all the same, in words.
    pub(crate) fn inversions(&self) -> Vec<String> {
        let outcome = self.search.outcome();
        let of_goal = |(place, name): (usize, &String)| {
            let (upper, _) = outcome.goals.iter().zip(&self.method.goals).rfind(|(_, at)| **at == place)?;
            let (least, bound) = (upper.inverted.first()?, upper.upper.as_ref()?);
            Some(format!(
                "{name}: not met at {}, and met at {} larger load{}, the least of them {} (loss inversion): the smaller \
                 load is believed; more repeats tell whether it was chance",
                self.unit.show(bound.load),
                upper.inverted.len(),
                if upper.inverted.len() == 1 { "" } else { "s" },
                self.unit.show(*least)
            ))
        };
        self.goals.iter().enumerate().filter_map(of_goal).collect()
    }

    /// Goals whose answer is the generator's limit although trials disagree well below it, in words.
    pub(crate) fn disputes(&self) -> Vec<String> {
        let outcome = self.search.outcome();
        let of_goal = |(place, name): (usize, &String)| {
            let mut own = outcome.goals.iter().zip(&self.method.goals).filter(|(_, at)| **at == place);
            let (meets, misses) = (own.next()?.0, own.next()?.0);
            let (Some(missed), BoundKind::GeneratorBound { at }) = (&meets.upper, misses.kind) else {
                return None;
            };
            let width = self.search.plan().goals.first()?.width;
            if missed.load >= at * (1.0 - DISPUTED_WIDTHS * width) {
                return None;
            }
            Some(format!(
                "{name}: not every trial at {} met it, and the generator could not make {}: between the two it was not told \
                 whether the target or the busy generator is the cause; more repeats (--repeats), or a processor for the \
                 generator alone (--cpus), tell them apart",
                self.unit.show(missed.load),
                self.unit.show(at)
            ))
        };
        self.goals.iter().enumerate().filter_map(of_goal).collect()
    }

    /// Why it ended without an answer, if the instrument is to blame.
    pub(crate) fn distrust(&self) -> Option<String> {
        let search::Ended::Void { at } = self.search.outcome().ended else { return None };
        Some(format!(
            "trials were void again and again, the last at {}, a load that the generator has shown it can make: this \
             machine was too busy to measure; nothing may be concluded. Give the generator a processor of its own (cpus), or a \
             quieter machine",
            self.unit.show(at)
        ))
    }

    /// What was found, or is known so far.
    pub(crate) fn outcome(&self, block: usize) -> SearchOutcome {
        let outcome = self.search.outcome();
        let of_goal = |(place, name): (usize, &String)| {
            let mut own = outcome.goals.iter().zip(&self.method.goals).filter(|(_, at)| **at == place);
            let meets = own.next().expect("every goal of the study has one in the search").0;
            let misses = own.next().map_or(meets, |(goal, _)| goal);
            let kind = kind(meets.kind, misses.kind);
            // What lies beyond the generator's limit is not called the target's.
            let upper = misses.upper.as_ref().filter(|_| !matches!(kind, BoundKind::GeneratorBound { .. }));
            GoalOutcome {
                goal: name.clone(),
                lower: meets.lower.as_ref().map(bound),
                upper: upper.map(bound),
                kind,
            }
        };
        SearchOutcome {
            block,
            goals: self.goals.iter().enumerate().map(of_goal).collect(),
            finished: outcome.ended == search::Ended::Complete,
            trials: outcome.trials,
            trial_seconds: outcome.trial_seconds,
            path: Vec::new(),
            confirmation: None,
        }
    }
}

fn bound(bound: &search::Bound) -> Bound {
    Bound { load: bound.load, conditional_throughput: bound.conditional_throughput, trials: bound.trials }
}

/// The lower bound is of the first goal, the upper one of the second.
fn kind(meets: BoundKind, misses: BoundKind) -> BoundKind {
    match (meets, misses) {
        (BoundKind::Unfinished, _) | (_, BoundKind::Unfinished) => BoundKind::Unfinished,
        // What a generator that cannot make more has caused below that is not told apart from the target's doing.
        (_, BoundKind::GeneratorBound { at }) | (BoundKind::GeneratorBound { at }, _) => {
            BoundKind::GeneratorBound { at }
        }
        (same, other) if same == other => same,
        (BoundKind::Regular | BoundKind::AtLeast, BoundKind::Regular | BoundKind::Below) => {
            BoundKind::Regular
        }
        // One of them found its bound, the other none: between it and the end of the range trials disagree.
        _ => BoundKind::Disputed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_has_one_answer_of_the_two_searches_for_its_bounds() {
        use BoundKind::{AtLeast, Below, Disputed, GeneratorBound, Regular, Unfinished};
        let void = GeneratorBound { at: 9.0 };
        for (meets, misses, answer) in [
            (Regular, Regular, Regular),
            (AtLeast, AtLeast, AtLeast),
            (Below, Below, Below),
            (void, void, void),
            (Unfinished, Regular, Unfinished),
            // At the largest load some trials are good and some are bad: neither bound of the goal is there.
            (Regular, AtLeast, Disputed),
            (Below, AtLeast, Disputed),
            (Below, Regular, Disputed),
            (Regular, void, void),
        ] {
            assert_eq!(kind(meets, misses), answer, "{meets:?} and {misses:?}");
        }
    }
}
