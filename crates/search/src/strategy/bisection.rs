//! The largest load, the smallest, then midpoints: RFC 2544 section 26.1 as testers practise it, with
//! whatever number of trials a goal wants at a load before the next load is chosen.

use crate::{
    classification::Requirement, goal::Side, grid::Grid, plan::Midpoint, strategy::Candidate, trials::Trials,
};

/// A bisection for each goal, one after the other; what one has measured counts for all.
#[derive(Debug, Clone)]
pub(crate) struct Bisection {
    /// By each rule: the goal, and the width.
    sides: Vec<(usize, Requirement, i64)>,
    midpoint: Midpoint,
}

impl Bisection {
    pub(crate) fn new(sides: &[Side], midpoint: Midpoint, grid: &Grid) -> Self {
        let side = |Side { goal, rule }: &Side| (*goal, Requirement::from(rule), grid.width(rule.width));
        Self { sides: sides.iter().map(side).collect(), midpoint }
    }

    pub(crate) fn nominate(&self, trials: &Trials) -> Option<Candidate> {
        self.sides.iter().find_map(|(goal, requirement, width)| {
            let position = self.position(trials, *goal, requirement, *width)?;
            Some(Candidate::new(position, requirement.trial_duration_s))
        })
    }

    fn position(&self, trials: &Trials, goal: usize, requirement: &Requirement, width: i64) -> Option<i64> {
        let grid = &trials.grid;
        let bounds = trials.search_bounds(goal, requirement);
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
                grid.settle_between(middle, lower, upper)
            }
        }
    }
}
