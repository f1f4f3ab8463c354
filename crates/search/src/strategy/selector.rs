//! One goal's way from its coarsest target to the goal itself.

use crate::{
    goal::SearchGoal,
    grid::Grid,
    strategy::{
        moves::{MOVES, Proposal, Reach, Situation},
        target::{Target, targets},
    },
    trials::{Bounds, Trials},
};

/// What a goal wants measured next, and why.
#[derive(Debug, Clone)]
pub(crate) struct Selector {
    goal: usize,
    targets: Vec<Target>,
    current: usize,
    reach: Reach,
    proposal: Option<Proposal>,
}

/// A trial that a goal wants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Nomination {
    pub(crate) position: i64,
    pub(crate) duration_s: f64,
    pub(crate) width: i64,
}

impl Selector {
    pub(crate) fn new(goal: usize, wanted: &SearchGoal, initial: Bounds, grid: &Grid) -> Self {
        let targets = targets(wanted, grid);
        let reach = Reach::new(initial, &targets[0]);
        Self { goal, targets, current: 0, reach, proposal: None }
    }

    /// The next trial for this goal; none if the goal is reached. Moves on to finer targets on the way.
    pub(crate) fn nominate(&mut self, trials: &Trials, common_width: i64) -> Option<Nomination> {
        loop {
            let target = self.targets[self.current];
            let bounds = trials.search_bounds(self.goal, &target.requirement);
            let situation = Situation { trials, target: &target, bounds, common_width };
            self.proposal = MOVES.iter().find_map(|step| situation.propose(*step, &mut self.reach));
            if self.proposal.is_none() && bounds == Bounds::default() {
                // Nothing is decided, and nothing is worth a trial by the rules: begin again where the target
                // began.
                let initial = self.reach.initial;
                let position = initial.lower.or(initial.upper).unwrap_or(0);
                let width = target.width;
                self.proposal =
                    Some(Proposal { position, width, widen_if_lower: false, widen_if_upper: false });
            }
            if let Some(Proposal { position, width, .. }) = self.proposal {
                let duration_s = target.requirement.trial_duration_s;
                return Some(Nomination { position, duration_s, width });
            }
            if self.current + 1 == self.targets.len() {
                return None;
            }
            self.current += 1;
            self.reach = Reach::new(bounds, &self.targets[self.current]);
        }
    }

    /// What this goal wanted was measured. The new common width, if steps are to go farther.
    pub(crate) fn measured(&mut self, trials: &Trials) -> Option<i64> {
        let target = self.targets[self.current];
        let proposal = self.proposal.take()?;
        let bounds = trials.relevant_bounds(self.goal, &target.requirement);
        let widen = (proposal.widen_if_lower && bounds.lower == Some(proposal.position))
            || (proposal.widen_if_upper && bounds.upper == Some(proposal.position));
        widen.then(|| self.reach.widen(&target))
    }

    /// The generator cannot make what this goal wanted. As behind an upper bound, the next step down goes farther.
    pub(crate) fn given_up(&mut self) -> Option<i64> {
        let proposal = self.proposal.take()?;
        proposal.widen_if_upper.then(|| self.reach.widen(&self.targets[self.current]))
    }
}
