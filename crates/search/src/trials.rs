//! All valid trials of a search, by load, and the bounds they make.

use std::{collections::BTreeMap, ops::RangeBounds};

use record::{Bound, BoundKind, GoalOutcome};

use crate::{
    classification::{Classification, DurationSums, GoalTrial, Requirement, conditional_throughput},
    goal::SearchGoal,
    grid::Grid,
    threshold::Threshold,
};

/// The trials, and the grid their loads are on.
#[derive(Debug, Clone)]
pub(crate) struct Trials {
    pub(crate) grid: Grid,
    by_load: BTreeMap<i64, Vec<Trial>>,
    /// What the generator cannot make: from which position on, by trials of how many seconds.
    given_up: Vec<(i64, f64)>,
    /// Full-length trials are taken for draws.
    is_cautious: bool,
}

/// A valid trial.
#[derive(Debug, Clone)]
pub(crate) struct Trial {
    pub(crate) duration_s: f64,
    pub(crate) effective_duration_s: f64,
    /// One for each goal.
    pub(crate) loss_ratios: Vec<f64>,
}

/// Two positions that a target's answer lies between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Bounds {
    pub(crate) lower: Option<i64>,
    pub(crate) upper: Option<i64>,
}

impl Trials {
    pub(crate) fn new(grid: Grid, is_cautious: bool) -> Self {
        Self { grid, by_load: BTreeMap::new(), given_up: Vec::new(), is_cautious }
    }

    pub(crate) fn add(&mut self, position: i64, trial: Trial) {
        self.by_load.entry(position).or_default().push(trial);
    }

    /// The largest load that the generator has made for at least that long. A second of a load shows little about
    /// four of them: queues of its own fill, and what was late once delays all that follows.
    pub(crate) fn largest_made(&self, duration_s: f64) -> Option<i64> {
        let is_as_long = |trial: &Trial| trial.duration_s >= as_long_as(duration_s);
        let mut made = self.by_load.iter().filter(|(_, trials)| trials.iter().any(is_as_long));
        made.next_back().map(|(position, _)| *position)
    }

    /// The least position that the generator cannot make for so long, as far as is known.
    pub(crate) fn unavailable_from(&self, duration_s: f64) -> Option<i64> {
        let given_up = self.given_up.iter().filter(|(_, failed_s)| duration_s >= as_long_as(*failed_s));
        given_up.map(|(position, _)| *position).min()
    }

    pub(crate) fn give_up_from(&mut self, position: i64, duration_s: f64) {
        self.given_up.push((position, duration_s));
    }

    pub(crate) fn is_available(&self, position: i64, duration_s: f64) -> bool {
        self.unavailable_from(duration_s).is_none_or(|least| position < least)
    }

    /// The last trial at each load, smallest load first.
    pub(crate) fn last_trials(&self) -> impl Iterator<Item = (i64, &Trial)> {
        self.by_load.iter().filter_map(|(position, trials)| Some((*position, trials.last()?)))
    }

    pub(crate) fn last_at(&self, position: i64) -> Option<&Trial> {
        self.by_load.get(&position).and_then(|trials| trials.last())
    }

    /// Every trial, smallest load first, and whether it is high-loss where so much is allowed.
    pub(crate) fn all(&self, goal: usize, allowed: f64) -> impl Iterator<Item = (i64, bool)> {
        let each =
            self.by_load.iter().flat_map(|(position, trials)| trials.iter().map(|trial| (*position, trial)));
        each.map(move |(position, trial)| (position, trial.loss_ratios[goal] > allowed))
    }

    /// Whether trials are taken for draws.
    pub(crate) fn is_cautious(&self) -> bool {
        self.is_cautious
    }

    /// The full-length trials, smallest load first, and whether they are high-loss.
    pub(crate) fn full_length(&self, goal: usize, wanted: &SearchGoal) -> impl Iterator<Item = (i64, bool)> {
        let (least_s, allowed) = (full_length_s(wanted), wanted.loss_ratio);
        self.by_load.iter().flat_map(move |(position, trials)| {
            let full = trials.iter().filter(move |trial| trial.duration_s >= least_s);
            full.map(move |trial| (*position, trial.loss_ratios[goal] > allowed))
        })
    }

    /// Seconds of all full-length trials.
    pub(crate) fn full_length_s(&self, wanted: &SearchGoal) -> f64 {
        let trials = self.by_load.values().flatten();
        let full = trials.filter(|trial| trial.duration_s >= full_length_s(wanted));
        full.map(|trial| trial.effective_duration_s).sum()
    }

    /// Whether trials are taken for draws: caution is asked for, and there are full-length ones.
    pub(crate) fn are_draws(&self, goal: usize, wanted: &SearchGoal) -> bool {
        self.is_cautious && self.full_length(goal, wanted).next().is_some()
    }

    /// The loads at which trials of any length agree, smallest first, and whether they are high-loss.
    pub(crate) fn unanimous(&self, goal: usize, allowed: f64) -> impl Iterator<Item = (i64, bool)> {
        self.by_load.iter().filter_map(move |(position, trials)| {
            let is_bad = |trial: &Trial| trial.loss_ratios[goal] > allowed;
            let first = is_bad(trials.first()?);
            trials.iter().all(|trial| is_bad(trial) == first).then_some((*position, first))
        })
    }

    /// The smallest upper bound, and the largest lower bound below it: when a larger load does better than a
    /// smaller one, the smaller one is believed.
    pub(crate) fn relevant_bounds(&self, goal: usize, requirement: &Requirement) -> Bounds {
        self.bounds_within(.., goal, requirement)
    }

    /// The relevant bounds below the least load that the generator cannot make, and where there is no upper one,
    /// that load: nothing is to be measured there or above, whatever shorter trials have said.
    pub(crate) fn search_bounds(&self, goal: usize, requirement: &Requirement) -> Bounds {
        match self.unavailable_from(requirement.trial_duration_s) {
            None => self.relevant_bounds(goal, requirement),
            Some(least) => {
                let bounds = self.bounds_within(..least, goal, requirement);
                Bounds { upper: bounds.upper.or(Some(least)), ..bounds }
            }
        }
    }

    fn bounds_within(&self, loads: impl RangeBounds<i64>, goal: usize, requirement: &Requirement) -> Bounds {
        let mut bounds = Bounds::default();
        for (position, trials) in self.by_load.range(loads) {
            match sums(trials, goal, requirement).classify(requirement) {
                Classification::LowerBound => bounds.lower = Some(*position),
                Classification::UpperBound => {
                    bounds.upper = Some(*position);
                    break;
                }
                Classification::Undecided => {}
            }
        }
        bounds
    }

    /// What the trials say about a goal. `complete` if nothing was left to measure.
    pub(crate) fn outcome(&self, goal: usize, wanted: &SearchGoal, complete: bool) -> GoalOutcome {
        self.outcome_with(self.relevant_bounds(goal, &wanted.into()), goal, wanted, complete)
    }

    /// The same where trials may be draws: then the bounds are those of their [`Threshold`]; where they are not,
    /// those that are missing when a search ends early.
    pub(crate) fn noisy_outcome(&self, goal: usize, wanted: &SearchGoal, complete: bool) -> GoalOutcome {
        let mut bounds = self.relevant_bounds(goal, &wanted.into());
        if let Some(threshold) = Threshold::of(self, goal, wanted) {
            if self.are_draws(goal, wanted) {
                bounds = threshold.bounds();
            } else if !complete && (bounds.lower.is_none() || bounds.upper.is_none()) {
                let estimated = threshold.bounds();
                let Bounds { lower, upper } = bounds;
                let below = |position: &i64| upper.is_none_or(|upper| *position < upper);
                let above = |position: &i64| lower.is_none_or(|lower| lower < *position);
                bounds.lower = lower.or(estimated.lower.filter(below));
                bounds.upper = upper.or(estimated.upper.filter(above));
            }
        }
        self.outcome_with(bounds, goal, wanted, complete)
    }

    fn outcome_with(
        &self,
        Bounds { lower, upper }: Bounds,
        goal: usize,
        wanted: &SearchGoal,
        complete: bool,
    ) -> GoalOutcome {
        let requirement = Requirement::from(wanted);
        let width = self.grid.width(wanted.width);
        let unavailable = self.unavailable_from(wanted.final_trial_duration_s);
        // An upper bound of shorter trials may lie beyond what the generator can make for as long as the goal asks.
        let unavailable = unavailable.filter(|least| upper.is_none_or(|upper| *least < upper));
        let kind = match (lower, upper, unavailable) {
            (Some(lower), Some(upper), _) if self.grid.is_narrow(lower, upper, width) => BoundKind::Regular,
            (Some(lower), None, _) if lower == self.grid.last() => BoundKind::AtLeast,
            (None, Some(0), _) => BoundKind::Below,
            (lower, _, Some(least))
                if complete || lower.is_some_and(|lower| self.grid.is_narrow(lower, least, width)) =>
            {
                BoundKind::GeneratorBound { at: self.grid.load(least) }
            }
            (Some(_), Some(_), None) if complete => BoundKind::Regular,
            _ if complete => BoundKind::Disputed,
            _ => BoundKind::Unfinished,
        };
        // Beyond what the generator can make nothing is known well enough to be called the target's.
        let upper = upper.filter(|_| !matches!(kind, BoundKind::GeneratorBound { .. }));
        GoalOutcome {
            goal: wanted.name.clone(),
            lower: lower.map(|position| self.bound(position, goal, &requirement, true)),
            upper: upper.map(|position| self.bound(position, goal, &requirement, false)),
            kind,
        }
    }

    /// Loads above this one that met a goal.
    pub(crate) fn met_above(&self, load: f64, goal: usize, wanted: &SearchGoal) -> Vec<f64> {
        let requirement = Requirement::from(wanted);
        let met = |(_, trials): &(&i64, &Vec<Trial>)| {
            sums(trials, goal, &requirement).classify(&requirement) == Classification::LowerBound
        };
        let loads = self.by_load.iter().filter(met).map(|(position, _)| self.grid.load(*position));
        loads.filter(|met| *met > load).collect()
    }

    fn bound(&self, position: i64, goal: usize, requirement: &Requirement, lower: bool) -> Bound {
        let trials = self.by_load.get(&position).map_or(&[][..], Vec::as_slice);
        let load = self.grid.load(position);
        let sums = sums(trials, goal, requirement);
        // A bound that trials at other loads made has too few of its own to say what gets through.
        let says = lower && sums.classify(requirement) == Classification::LowerBound;
        Bound {
            load,
            conditional_throughput: says
                .then(|| conditional_throughput(load, seen_by(trials, goal), requirement)),
            trials: trials.len() as u64,
        }
    }
}

/// Trials at least this long are full-length, in seconds.
fn full_length_s(wanted: &SearchGoal) -> f64 {
    as_long_as(wanted.final_trial_duration_s)
}

/// A length that a trial of `duration_s` has, whatever its computation lost.
fn as_long_as(duration_s: f64) -> f64 {
    duration_s * (1.0 - 1e-9)
}

fn sums(trials: &[Trial], goal: usize, requirement: &Requirement) -> DurationSums {
    DurationSums::of(seen_by(trials, goal), requirement)
}

fn seen_by(trials: &[Trial], goal: usize) -> impl Iterator<Item = GoalTrial> {
    trials.iter().map(move |trial| GoalTrial {
        duration_s: trial.duration_s,
        effective_duration_s: trial.effective_duration_s,
        loss_ratio: trial.loss_ratios[goal],
    })
}
