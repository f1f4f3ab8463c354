//! Bisection as testers practise RFC 2544 section 26.1: the largest load, the smallest, then midpoints. The goal sets the
//! number of trials at each load.

use crate::{
    classification::Requirement, goal::BoundRule, plan::Midpoint, strategy::Candidate, trials::Trials,
};

/// Runs one bisection per rule, one after the other. They share all trials.
#[derive(Debug, Clone)]
pub(crate) struct Bisection {
    rules: Vec<BoundRule>,
    midpoint: Midpoint,
}

impl Bisection {
    pub(crate) fn new(rules: &[BoundRule], midpoint: Midpoint) -> Self {
        Self { rules: rules.to_vec(), midpoint }
    }

    pub(crate) fn use_rules(&mut self, rules: &[BoundRule]) {
        self.rules = rules.to_vec();
    }

    pub(crate) fn nominate(&self, trials: &Trials) -> Option<Candidate> {
        self.rules.iter().find_map(|rule| {
            let position = self.position(trials, rule)?;
            Some(Candidate::new(position, rule.goal.final_trial_duration_s))
        })
    }

    fn position(&self, trials: &Trials, rule: &BoundRule) -> Option<i64> {
        let grid = &trials.grid;
        let width = grid.width(rule.goal.width);
        let bounds = trials.search_bounds(rule.reading, &Requirement::from(&rule.goal));
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
