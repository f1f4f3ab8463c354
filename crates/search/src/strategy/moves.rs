//! The moves by which a target's bounds are found and brought together, and the widths they use.

use crate::{
    grid::Grid,
    strategy::target::Target,
    trials::{Bounds, Trials},
};

/// In this order: the first that has something to measure is made.
pub(crate) const MOVES: [Move; 6] =
    [Move::Halve, Move::RefineLower, Move::RefineUpper, Move::ExtendLower, Move::ExtendUpper, Move::Bisect];

/// One kind of step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Move {
    /// The middle of the preceding target's bounds, if one halving makes them narrow enough.
    Halve,
    /// The preceding target's lower bound, under the stricter rules of this target.
    RefineLower,
    /// Its upper bound.
    RefineUpper,
    /// Down from an upper bound that has no lower one, by a growing width.
    ExtendLower,
    /// Up from a lower bound that has no upper one.
    ExtendUpper,
    /// Between two bounds; or a step out from one of them, if that stays nearer to where the preceding target
    /// ended.
    Bisect,
}

/// Where a target begins, and how far its next step out goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reach {
    /// Where the preceding target ended; a bound by its rules, and only a hint by ours.
    pub(crate) initial: Bounds,
    next_width: i64,
}

/// A load that a move wants measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Proposal {
    pub(crate) position: i64,
    /// How far it is from a known load, in steps.
    pub(crate) width: i64,
    /// Step farther next time if the load turns out to be a lower bound.
    pub(crate) widen_if_lower: bool,
    /// Step farther next time if the load turns out to be an upper bound.
    pub(crate) widen_if_upper: bool,
}

impl Reach {
    pub(crate) fn new(initial: Bounds, target: &Target) -> Self {
        let between = match (initial.lower, initial.upper) {
            (Some(lower), Some(upper)) => upper - lower,
            _ => 0,
        };
        let mut reach = Self { initial, next_width: target.width.max(between) };
        reach.widen(target);
        reach
    }

    /// The next step out goes farther.
    pub(crate) fn widen(&mut self, target: &Target) -> i64 {
        self.next_width = self.next_width.saturating_mul(target.expansion).min(i64::MAX / 4);
        self.next_width
    }

    /// Bounds have come near: the next step out starts from this width again.
    fn shrink(&mut self, width: i64, target: &Target) {
        self.next_width = width.max(target.width);
        self.widen(target);
    }
}

/// What a move has to go by.
pub(crate) struct Situation<'a> {
    pub(crate) trials: &'a Trials,
    pub(crate) target: &'a Target,
    pub(crate) bounds: Bounds,
    /// Steps out are at least this wide, so that several goals do not measure the same region twice at
    /// different widths.
    pub(crate) common_width: i64,
}

impl Situation<'_> {
    /// The load this move wants measured, if any.
    pub(crate) fn propose(&self, step: Move, reach: &mut Reach) -> Option<Proposal> {
        match step {
            Move::Halve => self.halve(reach),
            Move::RefineLower => self.refine(reach.initial.lower?, reach),
            Move::RefineUpper => self.refine(reach.initial.upper?, reach),
            Move::ExtendLower => self.extend_lower(reach),
            Move::ExtendUpper => self.extend_upper(reach),
            Move::Bisect => self.bisect(reach),
        }
    }

    fn halve(&self, reach: &mut Reach) -> Option<Proposal> {
        let (lower, upper) = (reach.initial.lower?, reach.initial.upper?);
        let middle = self.grid().middle(lower, upper, self.target.width)?;
        let narrow = |lower, upper| self.grid().is_narrow(lower, upper, self.target.width);
        if narrow(lower, middle) && narrow(middle, upper) { self.refine(middle, reach) } else { None }
    }

    fn refine(&self, position: i64, reach: &mut Reach) -> Option<Proposal> {
        if !self.is_worth(position) {
            return None;
        }
        reach.shrink(self.target.width, self.target);
        Some(Proposal { position, width: self.target.width, widen_if_lower: false, widen_if_upper: false })
    }

    fn extend_lower(&self, reach: &Reach) -> Option<Proposal> {
        let (None, Some(upper)) = (self.bounds.lower, self.bounds.upper) else { return None };
        let width = self.step_out(reach);
        let position = far_enough(self.grid(), upper.saturating_sub(width), self.target.width, self.bounds)?;
        self.is_worth(position).then_some(Proposal {
            position,
            width,
            widen_if_lower: false,
            widen_if_upper: true,
        })
    }

    fn extend_upper(&self, reach: &Reach) -> Option<Proposal> {
        let (Some(lower), None) = (self.bounds.lower, self.bounds.upper) else { return None };
        let width = self.step_out(reach);
        let position = far_enough(self.grid(), lower.saturating_add(width), self.target.width, self.bounds)?;
        self.is_worth(position).then_some(Proposal {
            position,
            width,
            widen_if_lower: true,
            widen_if_upper: false,
        })
    }

    fn bisect(&self, reach: &mut Reach) -> Option<Proposal> {
        let (lower, upper) = (self.bounds.lower?, self.bounds.upper?);
        let middle = self.grid().middle(lower, upper, self.target.width)?;
        if let Some(proposal) = self.step_in(reach, lower, middle, upper) {
            return Some(proposal);
        }
        if !self.is_worth(middle) {
            return None;
        }
        let width = (middle - lower).min(upper - middle);
        reach.shrink(width, self.target);
        Some(Proposal { position: middle, width, widen_if_lower: false, widen_if_upper: false })
    }

    /// A bound that another goal brought in may be far from this goal's answer. If a step out from the other
    /// bound is nearer to where the preceding target ended than the middle is, it is the better guess.
    fn step_in(&self, reach: &Reach, lower: i64, middle: i64, upper: i64) -> Option<Proposal> {
        let width = self.step_out(reach);
        let settle = |position| far_enough(self.grid(), position, self.target.width, self.bounds);
        if let Some(initial) = reach.initial.upper.filter(|initial| middle < *initial) {
            let down = settle(upper.saturating_sub(width)).filter(|down| middle < *down && *down < initial);
            if let Some(position) = down.filter(|down| self.is_worth(*down)) {
                return Some(Proposal { position, width, widen_if_lower: false, widen_if_upper: true });
            }
        }
        let initial = reach.initial.lower.filter(|initial| *initial < middle)?;
        let up = settle(lower.saturating_add(width)).filter(|up| initial < *up && *up < middle)?;
        self.is_worth(up).then_some(Proposal {
            position: up,
            width,
            widen_if_lower: true,
            widen_if_upper: false,
        })
    }

    /// Whether a trial there can still improve a bound.
    fn is_worth(&self, position: i64) -> bool {
        let Bounds { lower, upper } = self.bounds;
        let narrow = match (lower, upper) {
            (Some(lower), Some(upper)) => self.grid().is_narrow(lower, upper, self.target.width),
            _ => false,
        };
        !narrow && lower.is_none_or(|lower| lower < position) && upper.is_none_or(|upper| position < upper)
    }

    fn step_out(&self, reach: &Reach) -> i64 {
        reach.next_width.max(self.common_width)
    }

    fn grid(&self) -> &Grid {
        &self.trials.grid
    }
}

/// A load near `position` that is not too near to a bound or to an end of the grid to tell anything new: less
/// than `width` from a bound it moves away from it, less than `width` from an end it moves to the end. None
/// if there is no such load.
pub(crate) fn far_enough(grid: &Grid, position: i64, width: i64, bounds: Bounds) -> Option<i64> {
    let (least, largest) = (bounds.lower.unwrap_or(0), bounds.upper.unwrap_or(grid.last()));
    if least >= largest {
        return None;
    }
    let position = position.clamp(0, grid.last());
    if bounds.upper.is_some_and(|upper| upper <= position)
        || bounds.lower.is_some_and(|lower| position <= lower)
    {
        return None;
    }
    let narrow = grid.is_narrow(least, largest, width);
    let position = match (bounds.lower, bounds.upper) {
        (None, _) if narrow => least,
        (_, None) if narrow => largest,
        _ if narrow => return None,
        _ => {
            let (mut soft_least, mut soft_largest) = (least + width, largest - width);
            if soft_least > soft_largest {
                soft_least = grid.middle(least, largest, width)?;
                soft_largest = soft_least;
            }
            if position < soft_least {
                if bounds.lower.is_some() { soft_least } else { least }
            } else if position > soft_largest {
                if bounds.upper.is_some() { soft_largest } else { largest }
            } else {
                position
            }
        }
    };
    let below = bounds.lower.unwrap_or(-1);
    let above = bounds.upper.unwrap_or(grid.last() + 1);
    grid.settle_between(position, below, above)
}
