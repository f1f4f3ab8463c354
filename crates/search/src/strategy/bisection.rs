//! Bisection as testers practise RFC 2544 section 26.1: the largest load, the smallest, then midpoints. The goal sets the
//! number of trials at each load.

use crate::{
    classification::Requirement, goal::BoundRule, grid::Grid, plan::Midpoint, strategy::Candidate,
    trials::Trials,
};

/// One bisection per rule, one after the other. They share all trials.
#[derive(Debug, Clone)]
pub(crate) struct Bisection {
    /// For each rule: the index of its goal, its requirement, and its width in steps.
    rules: Vec<(usize, Requirement, i64)>,
    midpoint: Midpoint,
}

impl Bisection {
    pub(crate) fn new(rules: &[BoundRule], midpoint: Midpoint, grid: &Grid) -> Self {
        let entry =
            |rule: &BoundRule| (rule.goal_index, Requirement::from(&rule.goal), grid.width(rule.goal.width));
        Self { rules: rules.iter().map(entry).collect(), midpoint }
    }

    pub(crate) fn nominate(&self, trials: &Trials) -> Option<Candidate> {
        self.rules.iter().find_map(|(goal_index, requirement, width)| {
            let position = self.position(trials, *goal_index, requirement, *width)?;
            Some(Candidate::new(position, requirement.trial_duration_s))
        })
    }

    fn position(
        &self,
        trials: &Trials,
        goal_index: usize,
        requirement: &Requirement,
        width: i64,
    ) -> Option<i64> {
        let grid = &trials.grid;
        let bounds = trials.search_bounds(goal_index, requirement);
        match (bounds.lower, bounds.upper) {
            (Some(lower), None) if lower == grid.last() => None,
            (_, None) => Some(grid.last()),
            (None, Some(0)) => None,
            (None, Some(_)) => Some(0),
            (Some(lower), Some(upper)) if grid.is_narrow(lower, upper, width) => None,
            (Some(lower), Some(upper)) => {
                let middle = match self.midpoint {
                    Midpoint::Geometric => lower + (upper - lower) / 2,
                    Midpoint::Arithmetic => grid.at_most((grid.load(lower) + grid.load(upper)) / 2.0),
                };
                grid.snap_between(middle, lower, upper)
            }
        }
    }
}
