//! The progress of one goal from its coarsest target to the goal itself.

use crate::{
    goal::{Reading, SearchGoal},
    grid::Grid,
    strategy::{
        moves::{Expansion, MOVES, MoveContext, Proposal},
        target::{Target, targets},
    },
    trials::{Bounds, Trials},
};

/// Chooses the trials for one goal.
#[derive(Debug, Clone)]
pub(crate) struct Selector {
    reading: Reading,
    targets: Vec<Target>,
    current: usize,
    expansion: Expansion,
    proposal: Option<Proposal>,
}

/// A trial that a selector asks for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Nomination {
    pub(crate) position: i64,
    pub(crate) duration_s: f64,
    pub(crate) width: i64,
}

impl Selector {
    pub(crate) fn new(reading: Reading, goal: &SearchGoal, initial: Bounds, grid: &Grid) -> Self {
        let targets = targets(goal, grid);
        let expansion = Expansion::new(initial, &targets[0]);
        Self { reading, targets, current: 0, expansion, proposal: None }
    }

    /// Continues with another rule of the same goal.
    pub(crate) fn with_reading(self, reading: Reading) -> Self {
        Self { reading, ..self }
    }

    /// The end of the loss ratio by which the selector judges trials.
    pub(crate) fn reading(&self) -> Reading {
        self.reading
    }

    /// The next trial for this goal; `None` if the goal is reached. When a target is reached, continues with the next
    /// finer one.
    pub(crate) fn nominate(&mut self, trials: &Trials, common_width: i64) -> Option<Nomination> {
        loop {
            let target = self.targets[self.current];
            let bounds = trials.search_bounds(self.reading, &target.requirement);
            let context = MoveContext { trials, target: &target, bounds, common_width };
            self.proposal = MOVES.iter().find_map(|step| context.propose(*step, &mut self.expansion));
            if self.proposal.is_none() && bounds == Bounds::default() {
                // No load is decided and no move applies, so the search returns to the target's first load.
                let initial = self.expansion.initial;
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
            self.expansion = Expansion::new(bounds, &self.targets[self.current]);
        }
    }

    /// Call this after the nominated trial was run. Returns the new common width if the next steps must be wider.
    pub(crate) fn on_measured(&mut self, trials: &Trials) -> Option<i64> {
        let target = self.targets[self.current];
        let proposal = self.proposal.take()?;
        let bounds = trials.relevant_bounds(self.reading, &target.requirement);
        let widen = (proposal.widen_if_lower && bounds.lower == Some(proposal.position))
            || (proposal.widen_if_upper && bounds.upper == Some(proposal.position));
        widen.then(|| self.expansion.widen(&target))
    }

    /// Call this if the generator cannot make the nominated load. The next step down is then wider, as after an upper
    /// bound.
    pub(crate) fn on_unavailable(&mut self) -> Option<i64> {
        let proposal = self.proposal.take()?;
        proposal.widen_if_upper.then(|| self.expansion.widen(&self.targets[self.current]))
    }
}
