//! The valid trials of a search by load, and the bounds that follow from them.

use std::{collections::BTreeMap, ops::RangeBounds};

use record::{Bound, BoundKind, GoalOutcome};

use crate::{
    classification::{Classification, DurationSums, GoalTrial, Requirement, conditional_throughput},
    goal::{BoundRule, Reading, SearchGoal},
    grid::Grid,
};

/// The trials, and the grid of their loads.
#[derive(Debug, Clone)]
pub(crate) struct Trials {
    pub(crate) grid: Grid,
    by_load: BTreeMap<i64, Vec<Trial>>,
    /// Loads that the generator cannot make: the smallest position, and the length of the trial that showed it, in
    /// seconds.
    unavailable: Vec<(i64, f64)>,
    /// Whether full-length trials are treated as random samples.
    pub(crate) expects_noise: bool,
}

/// A valid trial.
#[derive(Debug, Clone)]
pub(crate) struct Trial {
    pub(crate) duration_s: f64,
    pub(crate) effective_duration_s: f64,
    /// One loss ratio per goal.
    pub(crate) loss_ratios: Vec<f64>,
    /// The goals that the trial leaves undecided: the loss to them may be anything from 0 to 1.
    pub(crate) undecided: Vec<usize>,
    /// Undecided goals for which the trial no longer counts, because other trials decide its load.
    pub(crate) forgotten: Vec<usize>,
}

impl Trial {
    /// A trial of length `duration_s` that counts as `effective_duration_s`, which is longer if overhead is included.
    pub(crate) fn new(
        [duration_s, effective_duration_s]: [f64; 2],
        loss_ratios: Vec<f64>,
        undecided: Vec<usize>,
    ) -> Self {
        Self { duration_s, effective_duration_s, loss_ratios, undecided, forgotten: Vec::new() }
    }

    /// Whether the trial counts for the goal of `reading`.
    fn counts(&self, reading: Reading) -> bool {
        !self.forgotten.contains(&reading.goal_index)
    }

    /// The loss ratio for a goal (0 to 1). For an undecided goal, it is the better or the worse end of the range.
    pub(crate) fn loss_ratio(&self, Reading { goal_index, is_best }: Reading) -> f64 {
        match self.undecided.contains(&goal_index) {
            true if is_best => 0.0,
            true => 1.0,
            false => self.loss_ratios[goal_index],
        }
    }
}

/// The grid positions of two bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Bounds {
    pub(crate) lower: Option<i64>,
    pub(crate) upper: Option<i64>,
}

impl Trials {
    pub(crate) fn new(grid: Grid, expects_noise: bool) -> Self {
        Self { grid, by_load: BTreeMap::new(), unavailable: Vec::new(), expects_noise }
    }

    /// Forgets all trials, but not the loads that the generator cannot make.
    pub(crate) fn forget(&mut self) {
        self.by_load.clear();
    }

    /// Adds a trial. If it met a goal of `rules`, undecided trials that are not longer no longer count for this goal at
    /// smaller loads; if it missed the goal, they no longer count at larger loads. If the new trial is itself
    /// undecided, it does not count for a goal whose bounds already decide its load.
    pub(crate) fn add(&mut self, position: i64, mut trial: Trial, rules: &[BoundRule]) {
        for BoundRule { reading, goal } in rules {
            let goal_index = reading.goal_index;
            if trial.undecided.contains(&goal_index) {
                let bounds = self.relevant_bounds(*reading, &Requirement::from(goal));
                // The better end can only prove that a goal was missed, and the worse end only that it was met.
                let is_decided = if reading.is_best {
                    bounds.upper.is_some_and(|upper| upper < position)
                } else {
                    bounds.lower.is_some_and(|lower| position < lower)
                };
                if is_decided {
                    trial.forgotten.push(goal_index);
                }
                continue;
            }
            let is_met = trial.loss_ratio(*reading) <= goal.loss_ratio;
            let is_settled = |at: i64| if is_met { at < position } else { at > position };
            let smaller_or_larger = self.by_load.iter_mut().filter(|(at, _)| is_settled(**at));
            for other in smaller_or_larger.flat_map(|(_, trials)| trials) {
                if other.undecided.contains(&goal_index) && other.duration_s <= trial.duration_s {
                    other.forgotten.push(goal_index);
                }
            }
        }
        self.by_load.entry(position).or_default().push(trial);
    }

    /// The largest position that the generator has made for at least `duration_s`. A shorter trial proves nothing,
    /// because the generator's queues take time to fill and a late request delays later ones.
    pub(crate) fn largest_generated(&self, duration_s: f64) -> Option<i64> {
        let is_long_enough = |trial: &Trial| trial.duration_s >= min_duration_s(duration_s);
        let mut generated = self.by_load.iter().filter(|(_, trials)| trials.iter().any(is_long_enough));
        generated.next_back().map(|(position, _)| *position)
    }

    /// The smallest position that the generator has failed to make for `duration_s` or less.
    pub(crate) fn unavailable_from(&self, duration_s: f64) -> Option<i64> {
        let failed = self.unavailable.iter().filter(|(_, failed_s)| duration_s >= min_duration_s(*failed_s));
        failed.map(|(position, _)| *position).min()
    }

    /// Records that the generator cannot make this position, or a larger one, for `duration_s` or longer.
    pub(crate) fn mark_unavailable(&mut self, position: i64, duration_s: f64) {
        self.unavailable.push((position, duration_s));
    }

    pub(crate) fn is_available(&self, position: i64, duration_s: f64) -> bool {
        self.unavailable_from(duration_s).is_none_or(|first| position < first)
    }

    /// The last trial at each load, smallest load first.
    pub(crate) fn last_trials(&self) -> impl Iterator<Item = (i64, &Trial)> {
        self.by_load.iter().filter_map(|(position, trials)| Some((*position, trials.last()?)))
    }

    pub(crate) fn last_at(&self, position: i64) -> Option<&Trial> {
        self.by_load.get(&position).and_then(|trials| trials.last())
    }

    /// The loads at which full-length trials left a goal undecided, smallest first.
    pub(crate) fn undecided(&self, goal_index: usize, goal: &SearchGoal) -> Vec<f64> {
        let min_s = full_length_s(goal);
        let is_one = |(_, trials): &(&i64, &Vec<Trial>)| {
            let is_open = |trial: &&Trial| trial.counts(Reading::worst(goal_index));
            trials
                .iter()
                .filter(is_open)
                .any(|trial| trial.undecided.contains(&goal_index) && trial.duration_s >= min_s)
        };
        self.by_load.iter().filter(is_one).map(|(position, _)| self.grid.load(*position)).collect()
    }

    /// Every trial that counts, smallest load first, and whether it lost more than `allowed`.
    pub(crate) fn all(&self, reading: Reading, allowed: f64) -> impl Iterator<Item = (i64, bool)> {
        let each =
            self.by_load.iter().flat_map(|(position, trials)| trials.iter().map(|trial| (*position, trial)));
        each.filter(move |(_, trial)| trial.counts(reading))
            .map(move |(position, trial)| (position, trial.loss_ratio(reading) > allowed))
    }

    /// The full-length trials that count, smallest load first, and whether each is high-loss.
    pub(crate) fn full_length(&self, rule: &BoundRule) -> impl Iterator<Item = (i64, bool)> {
        let (min_s, allowed) = (full_length_s(&rule.goal), rule.goal.loss_ratio);
        self.by_load.iter().flat_map(move |(position, trials)| {
            let full =
                trials.iter().filter(move |trial| trial.duration_s >= min_s && trial.counts(rule.reading));
            full.map(move |trial| (*position, trial.loss_ratio(rule.reading) > allowed))
        })
    }

    /// Seconds of all full-length trials.
    pub(crate) fn full_length_s(&self, goal: &SearchGoal) -> f64 {
        let trials = self.by_load.values().flatten();
        let full = trials.filter(|trial| trial.duration_s >= full_length_s(goal));
        full.map(|trial| trial.effective_duration_s).sum()
    }

    /// Whether a [`Threshold`](crate::threshold::Threshold) decides about a goal: noise is expected, and there are
    /// full-length trials.
    pub(crate) fn uses_threshold(&self, rule: &BoundRule) -> bool {
        self.expects_noise && self.full_length(rule).next().is_some()
    }

    /// The loads at which all trials agree, smallest first, and whether those trials are high-loss.
    pub(crate) fn unanimous(&self, reading: Reading, allowed: f64) -> impl Iterator<Item = (i64, bool)> {
        self.by_load.iter().filter_map(move |(position, trials)| {
            let is_bad = |trial: &Trial| trial.loss_ratio(reading) > allowed;
            let mut counting = trials.iter().filter(|trial| trial.counts(reading));
            let first = is_bad(counting.next()?);
            counting.all(|trial| is_bad(trial) == first).then_some((*position, first))
        })
    }

    /// The smallest upper bound, and the largest lower bound below it. If a larger load gives a better result than a
    /// smaller one, the search trusts the smaller load.
    pub(crate) fn relevant_bounds(&self, reading: Reading, requirement: &Requirement) -> Bounds {
        self.bounds_within(.., reading, requirement)
    }

    /// The relevant bounds below the smallest load that the generator cannot make. If there is no upper bound, that
    /// load replaces it, so that the search measures nothing there or above.
    pub(crate) fn search_bounds(&self, reading: Reading, requirement: &Requirement) -> Bounds {
        match self.unavailable_from(requirement.trial_duration_s) {
            None => self.relevant_bounds(reading, requirement),
            Some(first) => {
                let bounds = self.bounds_within(..first, reading, requirement);
                Bounds { upper: bounds.upper.or(Some(first)), ..bounds }
            }
        }
    }

    fn bounds_within(
        &self,
        loads: impl RangeBounds<i64>,
        reading: Reading,
        requirement: &Requirement,
    ) -> Bounds {
        let mut bounds = Bounds::default();
        for (position, trials) in self.by_load.range(loads) {
            match sums(trials, reading, requirement).classify(requirement) {
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

    /// The outcome for a goal. `complete`: whether nothing is left to measure.
    pub(crate) fn outcome(&self, rule: &BoundRule, complete: bool) -> GoalOutcome {
        self.outcome_with(self.relevant_bounds(rule.reading, &Requirement::from(&rule.goal)), rule, complete)
    }

    /// The outcome for a goal with these bounds.
    pub(crate) fn outcome_with(
        &self,
        Bounds { lower, upper }: Bounds,
        rule: &BoundRule,
        complete: bool,
    ) -> GoalOutcome {
        let requirement = Requirement::from(&rule.goal);
        let width = self.grid.width(rule.goal.width);
        let unavailable = self.unavailable_from(rule.goal.final_trial_duration_s);
        // Shorter trials may have given an upper bound above the generator's limit for trials of the goal's duration.
        let unavailable = unavailable.filter(|first| upper.is_none_or(|upper| *first < upper));
        let kind = match (lower, upper, unavailable) {
            (Some(lower), Some(upper), _) if self.grid.is_narrow(lower, upper, width) => BoundKind::Regular,
            (Some(lower), None, _) if lower == self.grid.last() => BoundKind::AtLeast,
            (None, Some(0), _) => BoundKind::Below,
            (lower, _, Some(first))
                if complete || lower.is_some_and(|lower| self.grid.is_narrow(lower, first, width)) =>
            {
                BoundKind::GeneratorBound { at: self.grid.load(first) }
            }
            (Some(_), Some(_), None) if complete => BoundKind::Regular,
            _ if complete => BoundKind::Disputed,
            _ => BoundKind::Unfinished,
        };
        // An upper bound above the generator's limit is not a limit of the target.
        let upper = upper.filter(|_| !matches!(kind, BoundKind::GeneratorBound { .. }));
        GoalOutcome {
            goal: rule.goal.name.clone(),
            lower: lower.map(|position| self.bound(position, rule.reading, &requirement, true)),
            upper: upper.map(|position| self.bound(position, rule.reading, &requirement, false)),
            kind,
        }
    }

    /// The lower and the upper bound of an unfinished goal, each by its own rule. If full-length trials give no bound,
    /// the load at which trials of any length agree replaces it, if the generator can make that load.
    pub(crate) fn so_far(&self, rules: [&BoundRule; 2]) -> [Option<Bound>; 2] {
        let [of_lower, of_upper] =
            rules.map(|rule| self.relevant_bounds(rule.reading, &Requirement::from(&rule.goal)));
        let agreed = |rule: &BoundRule| {
            let all = self.unanimous(rule.reading, rule.goal.loss_ratio);
            all.take_while(|(position, _)| self.is_available(*position, f64::INFINITY))
        };
        let [first_bad, last_good] = {
            let bad = agreed(rules[1]).find(|(_, is_bad)| *is_bad).map(|(position, _)| position);
            let below = agreed(rules[0]).take_while(|(position, _)| bad.is_none_or(|bad| *position < bad));
            [bad, below.filter(|(_, is_bad)| !is_bad).last().map(|(position, _)| position)]
        };
        let upper = of_upper.upper.or(first_bad.filter(|upper| of_lower.lower < Some(*upper)));
        let lower = of_lower.lower.or(last_good).filter(|lower| upper.is_none_or(|upper| *lower < upper));
        let requirement = Requirement::from(&rules[0].goal);
        let bound = |position, is_lower| self.bound(position, rules[0].reading, &requirement, is_lower);
        [lower.map(|position| bound(position, true)), upper.map(|position| bound(position, false))]
    }

    /// Loads above `load` that meet the goal.
    pub(crate) fn met_above(&self, load: f64, rule: &BoundRule) -> Vec<f64> {
        let (requirement, reading) = (Requirement::from(&rule.goal), Reading::worst(rule.reading.goal_index));
        let met = |(_, trials): &(&i64, &Vec<Trial>)| {
            sums(trials, reading, &requirement).classify(&requirement) == Classification::LowerBound
        };
        let loads = self.by_load.iter().filter(met).map(|(position, _)| self.grid.load(*position));
        loads.filter(|met| *met > load).collect()
    }

    fn bound(&self, position: i64, reading: Reading, requirement: &Requirement, lower: bool) -> Bound {
        let trials = self.by_load.get(&position).map_or(&[][..], Vec::as_slice);
        let load = self.grid.load(position);
        let sums = sums(trials, reading, requirement);
        // A bound that follows from trials at other loads has too few trials for a conditional throughput.
        let is_measured = lower && sums.classify(requirement) == Classification::LowerBound;
        Bound {
            load,
            conditional_throughput: is_measured
                .then(|| conditional_throughput(load, goal_trials(trials, reading), requirement)),
            trials: trials.len() as u64,
        }
    }
}

/// The shortest length of a full-length trial, in seconds.
fn full_length_s(goal: &SearchGoal) -> f64 {
    min_duration_s(goal.final_trial_duration_s)
}

/// The smallest length that counts as `duration_s`, in seconds. The margin allows for rounding errors.
fn min_duration_s(duration_s: f64) -> f64 {
    duration_s * (1.0 - 1e-9)
}

fn sums(trials: &[Trial], reading: Reading, requirement: &Requirement) -> DurationSums {
    DurationSums::of(goal_trials(trials, reading), requirement)
}

fn goal_trials(trials: &[Trial], reading: Reading) -> impl Iterator<Item = GoalTrial> {
    trials.iter().filter(move |trial| trial.counts(reading)).map(move |trial| GoalTrial {
        duration_s: trial.duration_s,
        effective_duration_s: trial.effective_duration_s,
        loss_ratio: trial.loss_ratio(reading),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Unit;

    #[test]
    fn what_the_generator_made_or_not_holds_for_trials_of_that_length() {
        let mut trials = Trials::new(Grid::new(Unit::Continuous, 1.0, 1e3, [0.01].into_iter()), false);
        let add = |trials: &mut Trials, position, duration_s| {
            let trial = Trial::new([duration_s; 2], vec![0.0], vec![]);
            trials.add(position, trial, &[]);
        };
        assert_eq!((trials.largest_generated(1.0), trials.unavailable_from(1.0)), (None, None));
        add(&mut trials, 3, 10.0);
        add(&mut trials, 7, 1.0);
        add(&mut trials, 7, 2.0);
        trials.mark_unavailable(20, 1.0);
        trials.mark_unavailable(9, 10.0);
        for (duration_s, made, not_made) in [
            (0.5, Some(7), None),
            (1.0, Some(7), Some(20)),
            (2.0, Some(7), Some(20)),
            (2.1, Some(3), Some(20)),
            (10.0, Some(3), Some(9)),
            (11.0, None, Some(9)),
        ] {
            assert_eq!(trials.largest_generated(duration_s), made, "{duration_s} s");
            assert_eq!(trials.unavailable_from(duration_s), not_made, "{duration_s} s");
            let first = not_made.unwrap_or(i64::MAX);
            assert!(trials.is_available(first - 1, duration_s), "{duration_s} s");
            assert!(not_made.is_none() || !trials.is_available(first, duration_s), "{duration_s} s");
        }
        assert_eq!(trials.last_at(7).map(|trial| trial.duration_s), Some(2.0));
        let last: Vec<(i64, f64)> =
            trials.last_trials().map(|(position, trial)| (position, trial.duration_s)).collect();
        assert_eq!(last, [(3, 10.0), (7, 2.0)]);
    }
}
