//! The interface of a search: the next trial to run, and the outcome of each trial.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use record::{Bound, BoundKind, GoalOutcome};

use crate::{
    goal::{BoundRule, SearchGoal, bound_rules},
    grid::Grid,
    mistake::Mistakes,
    outcome::{Dispute, Ending, Inversion, Outcome, UndecidedBetween, combine},
    plan::{Method, SearchPlan, Unit},
    steadiness::{Timed, Unsteady, unsteady},
    step::{NextTrial, OutcomeError, Step, TrialOutcome},
    strategy::{Candidate, Strategy},
    threshold::noisy_outcome,
    trials::{Trial, Trials},
};

/// A search for the largest load that meets each goal.
#[derive(Debug, Clone)]
pub struct Search {
    plan: SearchPlan,
    pub(crate) rules: Vec<BoundRule>,
    pub(crate) trials: Trials,
    strategy: Strategy,
    pending: Option<Candidate>,
    ended: Ending,
    reported: u64,
    void: u64,
    void_in_a_row: u32,
    /// Void trials at loads that the generator has shown it can make.
    unlucky: u32,
    /// The trials of the pending step that left a goal undecided.
    undecided: Vec<Trial>,
    /// Whether undecided trials count. If they do, each bound of a goal has its own rule.
    reads_ends: bool,
    trial_seconds: f64,
    /// The trials since the search began or restarted, for each goal.
    timed: Vec<Vec<Timed>>,
    /// Ratio of the trials' length to their initial length.
    longer: f64,
    /// Why trials became longer, for each goal.
    longer_because: Vec<Option<Unsteady>>,
}

/// The longest gap before a trial, relative to its length.
const MAX_GAP_RATIO: f64 = 0.5;

/// The smallest factor by which trials become longer if results depend on the time of the trial.
const MIN_LONGER: f64 = 6.0;
/// A trial this many times longer than the service's cycle gives nearly the same result whenever it runs.
const CYCLES: f64 = 4.0;

/// Number of undecided attempts at a load after which both ends of their loss ratios count: the first time in a search,
/// and later.
const UNDECIDED_ATTEMPTS: usize = 3;
const LATER_UNDECIDED_ATTEMPTS: usize = 2;

/// The smallest reported length of a valid trial, relative to its planned length.
const MIN_DURATION_RATIO: f64 = 0.9;

/// A goal is disputed if trials disagree at a load that is at least this many widths below the generator's limit.
const MIN_DISPUTE_WIDTHS: f64 = 2.0;

/// Grid steps per goal width if full-length trials are treated as random samples.
const STEPS_PER_WIDTH: f64 = 4.0;

/// A plan with more repeats per rate than this expects noise. Trials with a number of users or connections never expect
/// it, because they are seldom noisy and the answer is a whole number.
const MAX_REPEATS_WITHOUT_NOISE: f64 = 3.0;

impl Search {
    /// Starts a search.
    ///
    /// # Errors
    /// All mistakes in the plan.
    pub fn new(plan: SearchPlan) -> Result<Self, Mistakes> {
        let mistakes = plan.mistakes();
        if !mistakes.is_empty() {
            return Err(Mistakes(mistakes));
        }
        let repeats = |goal: &SearchGoal| goal.duration_sum_s / goal.final_trial_duration_s;
        let expects_noise = matches!(plan.method, Method::NoiseAware { .. })
            && plan.unit == Unit::Continuous
            && plan.goals.iter().any(|goal| repeats(goal) > MAX_REPEATS_WITHOUT_NOISE + 1e-9);
        let steps_per_width = if expects_noise { STEPS_PER_WIDTH } else { 1.0 };
        let widths = plan.goals.iter().map(|goal| goal.width / steps_per_width);
        let grid = Grid::new(plan.unit, plan.min_load, plan.max_load, widths);
        let rules = bound_rules(&plan.goals, false);
        let mut strategy = Strategy::new(&plan.method, &rules, &grid);
        if let Some(load) = plan.expected_load {
            strategy.begin_at(grid.at_most(load));
        }
        Ok(Self {
            strategy,
            trials: Trials::new(grid, expects_noise),
            plan,
            rules,
            pending: None,
            ended: Ending::Unfinished,
            reported: 0,
            void: 0,
            void_in_a_row: 0,
            unlucky: 0,
            undecided: Vec::new(),
            reads_ends: false,
            trial_seconds: 0.0,
            timed: Vec::new(),
            longer: 1.0,
            longer_because: Vec::new(),
        })
    }

    /// The plan of this search.
    pub fn plan(&self) -> &SearchPlan {
        &self.plan
    }

    /// The next step. Returns the same step until an outcome is reported.
    pub fn next_step(&mut self) -> Step {
        if self.ended == Ending::Unfinished && self.pending.is_none() {
            self.pending = self.strategy.nominate(&self.trials);
            if self.pending.is_none() {
                self.ended = Ending::Complete;
            }
        }
        match self.pending {
            Some(candidate) if self.ended == Ending::Unfinished => {
                let spent_s = self.trial_seconds + candidate.duration_s;
                if self.plan.search_duration_max_s.is_some_and(|limit_s| spent_s > limit_s * (1.0 + 1e-9)) {
                    self.ended = Ending::OutOfBudget;
                    return Step::Done(self.outcome());
                }
                Step::Measure(NextTrial {
                    load: self.trials.grid.load(candidate.position),
                    duration_s: candidate.duration_s,
                    is_warm_up: candidate.is_warm_up,
                    attempt: self.void_in_a_row,
                    gap_s: self.gap_s(candidate.duration_s),
                })
            }
            _ => Step::Done(self.outcome()),
        }
    }

    /// The gap before the next trial, in seconds. It depends only on the seed, the number of trials, and the planned
    /// length. The first trial has no gap.
    fn gap_s(&self, duration_s: f64) -> f64 {
        let Some(seed) = self.plan.gaps_seed.filter(|_| self.reported > 0) else { return 0.0 };
        let mut rng = Pcg64Mcg::seed_from_u64(seed.wrapping_add(self.reported));
        duration_s / self.longer * MAX_GAP_RATIO * rng.random::<f64>()
    }

    /// Records the outcome of the trial that [`Search::next_step`] asked for.
    ///
    /// # Errors
    /// When no trial was asked for, or the outcome is impossible; the search is then unchanged.
    pub fn report(&mut self, outcome: TrialOutcome) -> Result<(), OutcomeError> {
        let pending = self.pending.filter(|_| self.ended == Ending::Unfinished);
        let candidate = pending.ok_or(OutcomeError::NoTrial)?;
        match outcome {
            TrialOutcome::Valid { loss_ratios, effective_duration_s } => {
                self.check(&loss_ratios, candidate.duration_s, effective_duration_s)?;
                let effective_duration_s = effective_duration_s.max(candidate.duration_s);
                self.trial_seconds += effective_duration_s;
                self.void_in_a_row = 0;
                self.pending = None;
                self.keep_decided(candidate);
                if !candidate.is_warm_up {
                    let lengths_s = [candidate.duration_s, effective_duration_s];
                    let trial = Trial::new(lengths_s, loss_ratios, Vec::new());
                    self.trials.add(candidate.position, trial, &self.rules);
                }
                self.strategy.on_measured(&self.trials, candidate);
            }
            TrialOutcome::Undecided { loss_ratios, goals, is_exhausted } => {
                self.check(&loss_ratios, candidate.duration_s, candidate.duration_s)?;
                self.void += 1;
                self.trial_seconds += candidate.duration_s;
                if is_exhausted && !self.has_generated(candidate) {
                    self.handle_void(candidate, is_exhausted);
                } else {
                    self.handle_undecided(candidate, loss_ratios, goals);
                }
            }
            TrialOutcome::Void { is_exhausted } => {
                self.void += 1;
                self.trial_seconds += candidate.duration_s;
                self.handle_void(candidate, is_exhausted);
            }
        }
        self.reported += 1;
        Ok(())
    }

    /// Records the course of the last reported valid trial, for each goal. If results depend on the time of the trial
    /// instead of the load, and the plan allows longer trials, the search restarts with longer trials and ignores the
    /// results of the shorter ones.
    pub fn note(&mut self, timed: Vec<Timed>) {
        self.timed.push(timed);
        let Some(left) = self.plan.longer_max.map(|max| max / self.longer).filter(|left| *left > 1.0) else {
            return;
        };
        let because: Vec<_> = (0..self.plan.goals.len()).map(|index| self.unsteady_now(index)).collect();
        let cycles = self.plan.goals.iter().zip(&because).filter_map(|(goal, unsteady)| {
            let cycle_s = unsteady.as_ref()?.cycle_s().unwrap_or(0.0);
            Some(CYCLES * cycle_s / goal.final_trial_duration_s)
        });
        if let Some(longer) = cycles.reduce(f64::max) {
            self.begin_again(longer.max(MIN_LONGER).min(left));
            self.longer_because = because;
        }
    }

    /// Ratio of the trials' length to their initial length. It is above 1 if results depended on the time of the trial.
    pub fn longer(&self) -> f64 {
        self.longer
    }

    /// How the results depend on the time of the trial, for the goal at this index of the plan; `None` if the load
    /// explains them. Until the search is complete, the reason for longer trials still counts, because a few longer
    /// trials do not refute it.
    pub fn unsteady(&self, goal_index: usize) -> Option<Unsteady> {
        let before = self.longer_because.get(goal_index).filter(|_| self.ended != Ending::Complete);
        self.unsteady_now(goal_index).or(before.copied().flatten())
    }

    fn unsteady_now(&self, goal_index: usize) -> Option<Unsteady> {
        let goal = &self.plan.goals[goal_index];
        let found = &self.outcome().goals[goal_index];
        let load = |bound: &Option<Bound>| bound.as_ref().map(|bound| bound.load);
        let trials: Vec<Timed> = self.timed.iter().map(|goals| goals[goal_index].clone()).collect();
        let hints = self.plan.longer_max.is_some();
        let bounds = (load(&found.lower), load(&found.upper));
        unsteady(&trials, bounds, goal.width, goal.final_trial_duration_s, hints)
    }

    fn begin_again(&mut self, longer: f64) {
        self.longer *= longer;
        for goal in &mut self.plan.goals {
            goal.final_trial_duration_s *= longer;
            goal.initial_trial_duration_s = goal.final_trial_duration_s;
            goal.duration_sum_s *= longer;
            if let Some(rule) = &mut goal.upper_bound_rule {
                rule.duration_sum_s *= longer;
            }
        }
        self.rules = bound_rules(&self.plan.goals, self.reads_ends);
        self.strategy = Strategy::new(&self.plan.method, &self.rules, &self.trials.grid);
        let hint = self.timed.iter().filter(|goals| goals.iter().all(|trial| !trial.is_missed()));
        let hint = hint.map(|goals| goals[0].load).reduce(f64::max);
        if let Some(load) = hint {
            self.strategy.expect(self.trials.grid.at_most(load));
        }
        self.trials.forget();
        self.timed.clear();
        (self.pending, self.ended) = (None, Ending::Unfinished);
    }

    /// The bounds of all goals, final or current.
    pub fn outcome(&self) -> Outcome {
        let (mut goals, mut inversions, mut disputes) = (Vec::new(), Vec::new(), Vec::new());
        let mut undecided = Vec::new();
        for rules in self.rules.chunk_by(|a, b| a.reading.goal_index == b.reading.goal_index) {
            let (lower_rule, upper_rule) = (&rules[0], &rules[rules.len() - 1]);
            let lower = self.outcome_of(lower_rule);
            let upper = if rules.len() == 1 { lower.clone() } else { self.outcome_of(upper_rule) };
            inversions.extend(self.inversion(&upper, upper_rule));
            disputes.extend(dispute(&lower, &upper, lower_rule.goal.width));
            let found = combine(lower, upper);
            undecided.extend(self.undecided_between(&found, lower_rule));
            goals.push(found);
        }
        Outcome {
            goals,
            inversions,
            disputes,
            undecided,
            ended: self.ended,
            trials: self.reported,
            void_trials: self.void,
            trial_seconds: self.trial_seconds,
        }
    }

    fn outcome_of(&self, rule: &BoundRule) -> GoalOutcome {
        let complete = self.ended == Ending::Complete;
        match self.plan.method {
            Method::NoiseAware { .. } => noisy_outcome(&self.trials, rule, complete),
            _ => self.trials.outcome(rule, complete),
        }
    }

    fn undecided_between(&self, found: &GoalOutcome, rule: &BoundRule) -> Option<UndecidedBetween> {
        let load = |bound: &Option<Bound>| bound.as_ref().map(|bound| bound.load);
        let (lower, upper) = (load(&found.lower)?, load(&found.upper)?);
        if 1.0 - lower / upper <= rule.goal.width * (1.0 + 1e-9) {
            return None;
        }
        let mut loads = self.trials.undecided(rule.reading.goal_index, &rule.goal);
        loads.retain(|load| lower < *load && *load < upper);
        let goal = rule.goal.name.clone();
        (!loads.is_empty()).then_some(UndecidedBetween { goal, loads, width: rule.goal.width })
    }

    fn inversion(&self, found: &GoalOutcome, rule: &BoundRule) -> Option<Inversion> {
        let missed = found.upper.as_ref()?.load;
        let met = self.trials.met_above(missed, rule);
        (!met.is_empty()).then(|| Inversion { goal: rule.goal.name.clone(), missed, met })
    }

    fn check(
        &self,
        loss_ratios: &[f64],
        duration_s: f64,
        effective_duration_s: f64,
    ) -> Result<(), OutcomeError> {
        let goals = self.plan.goals.len();
        if loss_ratios.len() != goals {
            return Err(OutcomeError::Ratios { reported: loss_ratios.len(), goals });
        }
        for (goal, loss_ratio) in self.plan.goals.iter().zip(loss_ratios) {
            if !(0.0..=1.0).contains(loss_ratio) {
                return Err(OutcomeError::Ratio { goal: goal.name.clone(), loss_ratio: *loss_ratio });
            }
        }
        let is_long_enough =
            effective_duration_s.is_finite() && effective_duration_s >= MIN_DURATION_RATIO * duration_s;
        if is_long_enough { Ok(()) } else { Err(OutcomeError::Duration { duration_s, effective_duration_s }) }
    }

    /// Repeats an undecided trial, like a void one. If all attempts were undecided, the load is near the limit or the
    /// machine is too busy for a decision. The attempts then count with their worse end for the lower bound and with
    /// their better end for the upper bound, and the search continues on both sides of the load.
    fn handle_undecided(&mut self, candidate: Candidate, loss_ratios: Vec<f64>, undecided: Vec<usize>) {
        let duration_s = candidate.duration_s;
        self.undecided.push(Trial::new([duration_s; 2], loss_ratios, undecided));
        self.void_in_a_row += 1;
        // Once attempts count at both ends, a further undecided trial is less likely to be due to chance.
        let attempts = if self.reads_ends { LATER_UNDECIDED_ATTEMPTS } else { UNDECIDED_ATTEMPTS };
        let attempts = attempts.min(self.plan.void.attempts as usize);
        if !candidate.is_warm_up && self.undecided.len() < attempts {
            return;
        }
        (self.void_in_a_row, self.pending) = (0, None);
        let attempts = std::mem::take(&mut self.undecided);
        if !candidate.is_warm_up {
            attempts.into_iter().for_each(|trial| self.trials.add(candidate.position, trial, &self.rules));
        }
        self.strategy.on_measured(&self.trials, candidate);
        if !self.reads_ends && !candidate.is_warm_up {
            self.reads_ends = true;
            self.rules = bound_rules(&self.plan.goals, true);
            self.strategy.use_rules(&self.rules);
        }
    }

    /// Keeps earlier undecided attempts at a load for the goals that they did decide: to use only the repeat would bias
    /// the result.
    fn keep_decided(&mut self, candidate: Candidate) {
        let has_decided = |trial: &Trial| trial.undecided.len() < self.plan.goals.len();
        for mut trial in std::mem::take(&mut self.undecided).into_iter().filter(has_decided) {
            trial.forgotten.clone_from(&trial.undecided);
            self.trials.add(candidate.position, trial, &self.rules);
        }
    }

    /// Whether the generator has made this load or a larger one for at least as long.
    fn has_generated(&self, candidate: Candidate) -> bool {
        let largest = self.trials.largest_generated(candidate.duration_s);
        largest.is_some_and(|largest| candidate.position <= largest)
    }

    /// Skips a void warm-up. At a load that the generator has made for as long, repeats a void trial, and ends the
    /// search after too many such trials. Gives up any other load after a few attempts.
    fn handle_void(&mut self, candidate: Candidate, is_exhausted: bool) {
        self.void_in_a_row += 1;
        if candidate.is_warm_up {
            self.void_in_a_row = 0;
            self.pending = None;
            self.strategy.on_measured(&self.trials, candidate);
        } else if self.has_generated(candidate) {
            self.unlucky += 1;
            if self.unlucky > self.plan.void.unlucky {
                self.ended = Ending::Void { at: self.trials.grid.load(candidate.position) };
            }
        } else if self.void_in_a_row - self.undecided.len() as u32
            >= self.plan.attempts(candidate.duration_s, is_exhausted)
        {
            (self.void_in_a_row, self.pending) = (0, None);
            self.undecided.clear();
            self.trials.mark_unavailable(candidate.position, candidate.duration_s);
            self.strategy.on_unavailable(&self.trials, candidate);
        }
    }
}

/// A dispute about a goal, if trials disagree far below the generator's limit.
fn dispute(lower: &GoalOutcome, upper: &GoalOutcome, width: f64) -> Option<Dispute> {
    let missed = lower.upper.as_ref()?.load;
    let BoundKind::GeneratorBound { at } = upper.kind else { return None };
    let is_below = missed < at * (1.0 - MIN_DISPUTE_WIDTHS * width);
    is_below.then(|| Dispute { goal: lower.goal.clone(), missed, not_made: at })
}

#[cfg(test)]
mod tests;
