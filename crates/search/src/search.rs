//! The search as its caller sees it: what next, and what came of it.

use record::{BoundKind, GoalOutcome};
use serde::{Deserialize, Serialize};

use crate::{
    goal::{SearchGoal, Side, sides},
    grid::Grid,
    outcome::{Dispute, Ended, Inversion, Outcome, both},
    plan::{Method, Mistakes, SearchPlan, Unit},
    strategy::{Candidate, Strategy},
    trials::{Trial, Trials},
};

/// A search for the largest load that meets each goal.
#[derive(Debug, Clone)]
pub struct Search {
    plan: SearchPlan,
    sides: Vec<Side>,
    trials: Trials,
    strategy: Strategy,
    pending: Option<Candidate>,
    ended: Ended,
    told: u64,
    void: u64,
    void_in_a_row: u32,
    unlucky: u32,
    trial_seconds: f64,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Run this trial, then [`Search::tell`].
    Measure(NextTrial),
    /// There is nothing left to do.
    Done(Outcome),
}

/// A trial to be run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct NextTrial {
    /// Its load, in the unit of the plan.
    pub load: f64,
    /// Its length, in seconds.
    pub duration_s: f64,
    /// Whether it decides nothing: its outcome is told like any other, and forgotten.
    pub is_warm_up: bool,
    /// How many trials in a row were void at this place of the search.
    pub attempt: u32,
}

/// What came of a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "measured", rename_all = "snake_case")]
pub enum Measured {
    /// It ran as planned.
    Valid {
        /// The share lost to each goal (0 to 1), in the order of the plan.
        loss_ratios: Vec<f64>,
        /// What it counts for, in seconds: its planned length, or more where overhead is to count (CSIT adds
        /// 0.5 s). Less is taken for the planned length, since a clock that stopped a hair early loses
        /// nothing.
        effective_duration_s: f64,
    },
    /// It says nothing: the generator was late, an agent was lost, a clock was bad.
    Void,
}

/// What was told makes no sense.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TellError {
    /// No trial was asked for.
    #[error("no trial is waited for: call `next` first and run what it asks for")]
    NoTrial,
    /// Another number of loss ratios than of goals.
    #[error("{told} loss ratios for {goals} goals: tell one for each goal, in the order of the plan")]
    Ratios {
        /// How many were told.
        told: usize,
        /// How many goals there are.
        goals: usize,
    },
    /// A loss ratio that is no share.
    #[error("the loss ratio {loss_ratio} of goal {goal:?} is no share: tell 0 to 1, or a void trial")]
    Ratio {
        /// The goal.
        goal: String,
        /// What was told.
        loss_ratio: f64,
    },
    /// A trial that ran far shorter than planned.
    #[error(
        "a trial of {duration_s} s counts for {effective_duration_s} s: tell its planned length, or a void trial if it was cut short"
    )]
    Duration {
        /// Its planned length, in seconds.
        duration_s: f64,
        /// What was told, in seconds.
        effective_duration_s: f64,
    },
}

/// A valid trial counts for at least this share of its planned length.
const LEAST_SHARE_OF_DURATION: f64 = 0.9;

/// Trials that disagree so near below what the generator cannot make are its doing.
const DISPUTED_WIDTHS: f64 = 2.0;

/// Where trials are taken for draws, loads nearer to each other than the width are told apart.
const LOADS_PER_WIDTH: f64 = 4.0;

/// Who asks for more trials at a rate than this expects noise. Users and connections seldom have it, and their
/// answers are exact.
const REPEATS_OF_THE_QUIET: f64 = 3.0;

impl Search {
    /// A search that has not begun.
    ///
    /// # Errors
    /// Everything that is wrong with the plan.
    pub fn new(plan: SearchPlan) -> Result<Self, Mistakes> {
        let mistakes = plan.mistakes();
        if !mistakes.is_empty() {
            return Err(Mistakes(mistakes));
        }
        let repeats = |goal: &SearchGoal| goal.duration_sum_s / goal.final_trial_duration_s;
        let is_cautious = matches!(plan.method, Method::NoiseAware { .. })
            && plan.unit == Unit::Continuous
            && plan.goals.iter().any(|goal| repeats(goal) > REPEATS_OF_THE_QUIET + 1e-9);
        let grid = match &plan.method {
            Method::NoiseAware { .. } if is_cautious => {
                let widths = plan.goals.iter().map(|goal| goal.width / LOADS_PER_WIDTH);
                Grid::new(plan.unit, plan.min_load, plan.max_load, widths)
            }
            _ => Grid::new(plan.unit, plan.min_load, plan.max_load, plan.goals.iter().map(|goal| goal.width)),
        };
        let sides = sides(&plan.goals);
        Ok(Self {
            strategy: Strategy::new(&plan.method, &sides, &grid),
            trials: Trials::new(grid, is_cautious),
            plan,
            sides,
            pending: None,
            ended: Ended::Unfinished,
            told: 0,
            void: 0,
            void_in_a_row: 0,
            unlucky: 0,
            trial_seconds: 0.0,
        })
    }

    /// The plan it follows.
    pub fn plan(&self) -> &SearchPlan {
        &self.plan
    }

    /// What to do next. Asked again before anything is told, it says the same.
    #[expect(clippy::should_implement_trait, reason = "it is no iterator: it waits to be told")]
    pub fn next(&mut self) -> Step {
        if self.ended == Ended::Unfinished && self.pending.is_none() {
            self.pending = self.strategy.nominate(&self.trials);
            if self.pending.is_none() {
                self.ended = Ended::Complete;
            }
        }
        match self.pending {
            Some(candidate) if self.ended == Ended::Unfinished => {
                let spent_s = self.trial_seconds + candidate.duration_s;
                if self.plan.search_duration_max_s.is_some_and(|limit_s| spent_s > limit_s * (1.0 + 1e-9)) {
                    self.ended = Ended::OutOfBudget;
                    return Step::Done(self.outcome());
                }
                Step::Measure(NextTrial {
                    load: self.trials.grid.load(candidate.position),
                    duration_s: candidate.duration_s,
                    is_warm_up: candidate.is_warm_up,
                    attempt: self.void_in_a_row,
                })
            }
            _ => Step::Done(self.outcome()),
        }
    }

    /// Takes in what came of the trial that [`Search::next`] asked for.
    ///
    /// # Errors
    /// What was told makes no sense; nothing has changed.
    pub fn tell(&mut self, measured: Measured) -> Result<(), TellError> {
        let waiting = self.pending.filter(|_| self.ended == Ended::Unfinished);
        let candidate = waiting.ok_or(TellError::NoTrial)?;
        match measured {
            Measured::Valid { loss_ratios, effective_duration_s } => {
                self.check(&loss_ratios, candidate.duration_s, effective_duration_s)?;
                let effective_duration_s = effective_duration_s.max(candidate.duration_s);
                self.trial_seconds += effective_duration_s;
                self.void_in_a_row = 0;
                self.pending = None;
                if !candidate.is_warm_up {
                    let trial = Trial { duration_s: candidate.duration_s, effective_duration_s, loss_ratios };
                    self.trials.add(candidate.position, trial);
                }
                self.strategy.measured(&self.trials, candidate);
            }
            Measured::Void => {
                self.void += 1;
                self.trial_seconds += candidate.duration_s;
                self.take_void(candidate);
            }
        }
        self.told += 1;
        Ok(())
    }

    /// What is known so far, or was found if the search has ended.
    pub fn outcome(&self) -> Outcome {
        let (mut goals, mut inversions, mut disputes) = (Vec::new(), Vec::new(), Vec::new());
        for sides in self.sides.chunk_by(|a, b| a.goal == b.goal) {
            let lower = self.outcome_of(&sides[0]);
            let upper = sides.get(1).map_or_else(|| lower.clone(), |side| self.outcome_of(side));
            inversions.extend(self.inversion(&upper, &sides[sides.len() - 1]));
            disputes.extend(dispute(&lower, &upper, sides[0].rule.width));
            goals.push(both(lower, upper));
        }
        Outcome {
            goals,
            inversions,
            disputes,
            ended: self.ended,
            trials: self.told,
            void_trials: self.void,
            trial_seconds: self.trial_seconds,
        }
    }

    fn outcome_of(&self, Side { goal, rule }: &Side) -> GoalOutcome {
        let complete = self.ended == Ended::Complete;
        match self.plan.method {
            Method::NoiseAware { .. } => self.trials.noisy_outcome(*goal, rule, complete),
            _ => self.trials.outcome(*goal, rule, complete),
        }
    }

    fn inversion(&self, found: &GoalOutcome, Side { goal, rule }: &Side) -> Option<Inversion> {
        let missed = found.upper.as_ref()?.load;
        let met = self.trials.met_above(missed, *goal, rule);
        (!met.is_empty()).then(|| Inversion { goal: rule.name.clone(), missed, met })
    }

    pub(crate) fn trials(&self) -> &Trials {
        &self.trials
    }

    /// Trials told of.
    pub(crate) fn told(&self) -> u64 {
        self.told
    }

    /// The void ones.
    pub(crate) fn void(&self) -> u64 {
        self.void
    }

    fn check(
        &self,
        loss_ratios: &[f64],
        duration_s: f64,
        effective_duration_s: f64,
    ) -> Result<(), TellError> {
        let goals = self.plan.goals.len();
        if loss_ratios.len() != goals {
            return Err(TellError::Ratios { told: loss_ratios.len(), goals });
        }
        for (goal, loss_ratio) in self.plan.goals.iter().zip(loss_ratios) {
            if !(0.0..=1.0).contains(loss_ratio) {
                return Err(TellError::Ratio { goal: goal.name.clone(), loss_ratio: *loss_ratio });
            }
        }
        let ran =
            effective_duration_s.is_finite() && effective_duration_s >= LEAST_SHARE_OF_DURATION * duration_s;
        if ran { Ok(()) } else { Err(TellError::Duration { duration_s, effective_duration_s }) }
    }

    /// A load that the generator has shown it can make for as long is tried again, within a bound over the whole
    /// search. Another is given up after a few attempts.
    fn take_void(&mut self, candidate: Candidate) {
        self.void_in_a_row += 1;
        if candidate.is_warm_up {
            self.void_in_a_row = 0;
            self.pending = None;
            self.strategy.measured(&self.trials, candidate);
        } else if self
            .trials
            .largest_made(candidate.duration_s)
            .is_some_and(|largest| candidate.position <= largest)
        {
            self.unlucky += 1;
            if self.unlucky > self.plan.void.unlucky {
                self.ended = Ended::Void { at: self.trials.grid.load(candidate.position) };
            }
        } else if self.void_in_a_row >= self.plan.void.attempts {
            self.void_in_a_row = 0;
            self.pending = None;
            self.trials.give_up_from(candidate.position, candidate.duration_s);
            self.strategy.given_up(&self.trials, candidate);
        }
    }
}

fn dispute(meets: &GoalOutcome, misses: &GoalOutcome, width: f64) -> Option<Dispute> {
    let missed = meets.upper.as_ref()?.load;
    let BoundKind::GeneratorBound { at } = misses.kind else { return None };
    let is_below = missed < at * (1.0 - DISPUTED_WIDTHS * width);
    is_below.then(|| Dispute { goal: meets.goal.clone(), missed, not_made: at })
}
