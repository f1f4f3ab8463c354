//! All valid trials of a search, by load, and the bounds they make.

use std::collections::BTreeMap;

use crate::{
    classification::{Classification, DurationSums, GoalTrial, Requirement, conditional_throughput},
    goal::SearchGoal,
    grid::Grid,
    outcome::{Bound, BoundKind, GoalOutcome},
};

/// The trials, and the grid their loads are on.
#[derive(Debug, Clone)]
pub(crate) struct Trials {
    pub(crate) grid: Grid,
    by_load: BTreeMap<i64, Vec<Trial>>,
    /// The least position that the generator cannot make.
    unavailable_from: Option<i64>,
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
    pub(crate) fn new(grid: Grid) -> Self {
        Self { grid, by_load: BTreeMap::new(), unavailable_from: None }
    }

    pub(crate) fn add(&mut self, position: i64, trial: Trial) {
        self.by_load.entry(position).or_default().push(trial);
    }

    pub(crate) fn largest_measured(&self) -> Option<i64> {
        self.by_load.last_key_value().map(|(position, _)| *position)
    }

    pub(crate) fn unavailable_from(&self) -> Option<i64> {
        self.unavailable_from
    }

    pub(crate) fn give_up_from(&mut self, position: i64) {
        self.unavailable_from = Some(self.unavailable_from.map_or(position, |least| least.min(position)));
    }

    pub(crate) fn is_available(&self, position: i64) -> bool {
        self.unavailable_from.is_none_or(|least| position < least)
    }

    /// The last trial at each load, smallest load first.
    pub(crate) fn last_trials(&self) -> impl Iterator<Item = (i64, &Trial)> {
        self.by_load.iter().filter_map(|(position, trials)| Some((*position, trials.last()?)))
    }

    pub(crate) fn last_at(&self, position: i64) -> Option<&Trial> {
        self.by_load.get(&position).and_then(|trials| trials.last())
    }

    /// The smallest upper bound, and the largest lower bound below it: when a larger load does better than a
    /// smaller one, the smaller one is believed.
    pub(crate) fn relevant_bounds(&self, goal: usize, requirement: &Requirement) -> Bounds {
        let mut bounds = Bounds::default();
        for (position, trials) in &self.by_load {
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

    /// The relevant bounds, and where there is no upper one, the least load that the generator cannot make:
    /// nothing is to be measured there or above.
    pub(crate) fn search_bounds(&self, goal: usize, requirement: &Requirement) -> Bounds {
        let bounds = self.relevant_bounds(goal, requirement);
        Bounds { upper: bounds.upper.or(self.unavailable_from), ..bounds }
    }

    /// What the trials say about a goal. `complete` if nothing was left to measure.
    pub(crate) fn outcome(&self, goal: usize, wanted: &SearchGoal, complete: bool) -> GoalOutcome {
        let requirement = Requirement::from(wanted);
        let Bounds { lower, upper } = self.relevant_bounds(goal, &requirement);
        let width = self.grid.width(wanted.width);
        let kind = match (lower, upper) {
            (Some(lower), Some(upper)) if complete || self.grid.is_narrow(lower, upper, width) => {
                BoundKind::Regular
            }
            (Some(lower), None) if lower == self.grid.last() => BoundKind::AtLeast,
            (None, Some(upper)) if upper == 0 || complete => BoundKind::Below,
            (lower, None) => match self.unavailable_from {
                Some(least)
                    if complete || lower.is_some_and(|lower| self.grid.is_narrow(lower, least, width)) =>
                {
                    BoundKind::GeneratorBound { at: self.grid.load(least) }
                }
                _ => BoundKind::Unfinished,
            },
            _ => BoundKind::Unfinished,
        };
        let above = upper.map_or(self.grid.last() + 1, |upper| upper + 1);
        let met = |(_, trials): &(&i64, &Vec<Trial>)| {
            sums(trials, goal, &requirement).classify(&requirement) == Classification::LowerBound
        };
        let inverted = self.by_load.range(above..).filter(met).map(|(position, _)| self.grid.load(*position));
        GoalOutcome {
            name: wanted.name.clone(),
            lower: lower.map(|position| self.bound(position, goal, &requirement, true)),
            upper: upper.map(|position| self.bound(position, goal, &requirement, false)),
            kind,
            inverted: inverted.collect(),
        }
    }

    fn bound(&self, position: i64, goal: usize, requirement: &Requirement, lower: bool) -> Bound {
        let trials = self.by_load.get(&position).map_or(&[][..], Vec::as_slice);
        let load = self.grid.load(position);
        let sums = sums(trials, goal, requirement);
        Bound {
            load,
            conditional_throughput: lower
                .then(|| conditional_throughput(load, seen_by(trials, goal), requirement)),
            trials: trials.len() as u64,
            good_s: sums.full_low_s,
            bad_s: sums.full_high_s,
        }
    }
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
