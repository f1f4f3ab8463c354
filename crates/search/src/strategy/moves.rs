//! The moves that find a target's bounds and bring them together, and the widths of those moves.

use crate::{
    grid::Grid,
    strategy::target::Target,
    trials::{Bounds, Trials},
};

/// The moves in order of priority: the search makes the first move that proposes a load.
pub(crate) const MOVES: [Move; 6] =
    [Move::Halve, Move::RefineLower, Move::RefineUpper, Move::ExtendLower, Move::ExtendUpper, Move::Bisect];

/// A kind of step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Move {
    /// The middle of the preceding target's bounds, if one cut makes both parts narrow enough.
    Halve,
    /// The preceding target's lower bound, tested by this target's stricter rules.
    RefineLower,
    /// The preceding target's upper bound, tested by this target's stricter rules.
    RefineUpper,
    /// If there is no lower bound: down from the upper bound by a growing width.
    ExtendLower,
    /// If there is no upper bound: up from the lower bound by a growing width.
    ExtendUpper,
    /// The middle of the two bounds, or a step away from one bound if that is nearer to the preceding target's bounds.
    Bisect,
}

/// The first bounds of a target, and the width of its next step away from a bound.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expansion {
    /// The bounds by the rules of the preceding target, which this target must test again.
    pub(crate) initial: Bounds,
    next_width: i64,
}

/// A load that a move proposes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Proposal {
    pub(crate) position: i64,
    /// Distance from a known load, in steps.
    pub(crate) width: i64,
    /// Whether the next step is wider if the load turns out to be a lower bound.
    pub(crate) widen_if_lower: bool,
    /// Whether the next step is wider if the load turns out to be an upper bound.
    pub(crate) widen_if_upper: bool,
}

impl Expansion {
    pub(crate) fn new(initial: Bounds, target: &Target) -> Self {
        let between = match (initial.lower, initial.upper) {
            (Some(lower), Some(upper)) => upper - lower,
            _ => 0,
        };
        let mut expansion = Self { initial, next_width: target.width.max(between) };
        expansion.widen(target);
        expansion
    }

    /// Makes the next step wider and returns its width.
    pub(crate) fn widen(&mut self, target: &Target) -> i64 {
        self.next_width = self.next_width.saturating_mul(target.expansion).min(i64::MAX / 4);
        self.next_width
    }

    /// Resets the width of the next step, because the bounds are near to each other.
    fn shrink(&mut self, width: i64, target: &Target) {
        self.next_width = width.max(target.width);
        self.widen(target);
    }
}

/// The data for choosing a move's load.
pub(crate) struct MoveContext<'a> {
    pub(crate) trials: &'a Trials,
    pub(crate) target: &'a Target,
    pub(crate) bounds: Bounds,
    /// Smallest width of steps away from a bound. It is common to all goals, so that they do not measure the same
    /// region at different widths.
    pub(crate) common_width: i64,
}

impl MoveContext<'_> {
    /// The load that a move proposes, if any.
    pub(crate) fn propose(&self, step: Move, expansion: &mut Expansion) -> Option<Proposal> {
        match step {
            Move::Halve => self.halve(expansion),
            Move::RefineLower => self.refine(expansion.initial.lower?, expansion),
            Move::RefineUpper => self.refine(expansion.initial.upper?, expansion),
            Move::ExtendLower => self.extend_lower(expansion),
            Move::ExtendUpper => self.extend_upper(expansion),
            Move::Bisect => self.bisect(expansion),
        }
    }

    fn halve(&self, expansion: &mut Expansion) -> Option<Proposal> {
        let (lower, upper) = (expansion.initial.lower?, expansion.initial.upper?);
        let middle = self.grid().middle(lower, upper, self.target.width)?;
        let narrow = |lower, upper| self.grid().is_narrow(lower, upper, self.target.width);
        if narrow(lower, middle) && narrow(middle, upper) { self.refine(middle, expansion) } else { None }
    }

    fn refine(&self, position: i64, expansion: &mut Expansion) -> Option<Proposal> {
        if !self.can_improve_bound(position) {
            return None;
        }
        expansion.shrink(self.target.width, self.target);
        Some(Proposal { position, width: self.target.width, widen_if_lower: false, widen_if_upper: false })
    }

    fn extend_lower(&self, expansion: &Expansion) -> Option<Proposal> {
        let (None, Some(upper)) = (self.bounds.lower, self.bounds.upper) else { return None };
        let width = self.step_width(expansion);
        let position =
            keep_distance(self.grid(), upper.saturating_sub(width), self.target.width, self.bounds)?;
        self.can_improve_bound(position).then_some(Proposal {
            position,
            width,
            widen_if_lower: false,
            widen_if_upper: true,
        })
    }

    fn extend_upper(&self, expansion: &Expansion) -> Option<Proposal> {
        let (Some(lower), None) = (self.bounds.lower, self.bounds.upper) else { return None };
        let width = self.step_width(expansion);
        let position =
            keep_distance(self.grid(), lower.saturating_add(width), self.target.width, self.bounds)?;
        self.can_improve_bound(position).then_some(Proposal {
            position,
            width,
            widen_if_lower: true,
            widen_if_upper: false,
        })
    }

    fn bisect(&self, expansion: &mut Expansion) -> Option<Proposal> {
        let (lower, upper) = (self.bounds.lower?, self.bounds.upper?);
        let middle = self.grid().middle(lower, upper, self.target.width)?;
        if let Some(proposal) = self.step_away(expansion, lower, middle, upper) {
            return Some(proposal);
        }
        if !self.can_improve_bound(middle) {
            return None;
        }
        let width = (middle - lower).min(upper - middle);
        expansion.shrink(width, self.target);
        Some(Proposal { position: middle, width, widen_if_lower: false, widen_if_upper: false })
    }

    /// A step away from a bound, if it is nearer to the preceding target's bounds than the middle is. The other bound
    /// may come from another goal and be far from this goal's answer.
    fn step_away(&self, expansion: &Expansion, lower: i64, middle: i64, upper: i64) -> Option<Proposal> {
        let width = self.step_width(expansion);
        let adjust = |position| keep_distance(self.grid(), position, self.target.width, self.bounds);
        if let Some(initial) = expansion.initial.upper {
            let down = adjust(upper.saturating_sub(width)).filter(|down| middle < *down && *down < initial);
            if let Some(position) = down.filter(|down| self.can_improve_bound(*down)) {
                return Some(Proposal { position, width, widen_if_lower: false, widen_if_upper: true });
            }
        }
        let initial = expansion.initial.lower?;
        let up = adjust(lower.saturating_add(width)).filter(|up| initial < *up && *up < middle)?;
        self.can_improve_bound(up).then_some(Proposal {
            position: up,
            width,
            widen_if_lower: true,
            widen_if_upper: false,
        })
    }

    /// Whether a trial at this position can improve a bound.
    fn can_improve_bound(&self, position: i64) -> bool {
        let Bounds { lower, upper } = self.bounds;
        let narrow = match (lower, upper) {
            (Some(lower), Some(upper)) => self.grid().is_narrow(lower, upper, self.target.width),
            _ => false,
        };
        !narrow && lower.is_none_or(|lower| lower < position) && upper.is_none_or(|upper| position < upper)
    }

    fn step_width(&self, expansion: &Expansion) -> i64 {
        expansion.next_width.max(self.common_width)
    }

    fn grid(&self) -> &Grid {
        &self.trials.grid
    }
}

/// Moves `position` to at least `width` from each bound; if it is nearer than `width` to an end of the grid that is no
/// bound, moves it to that end. `None` if no load between the bounds is left.
pub(crate) fn keep_distance(grid: &Grid, position: i64, width: i64, bounds: Bounds) -> Option<i64> {
    let (min, max) = (bounds.lower.unwrap_or(0), bounds.upper.unwrap_or(grid.last()));
    if min >= max {
        return None;
    }
    let position = position.clamp(0, grid.last());
    if bounds.upper.is_some_and(|upper| upper <= position)
        || bounds.lower.is_some_and(|lower| position <= lower)
    {
        return None;
    }
    let narrow = grid.is_narrow(min, max, width);
    let position = match (bounds.lower, bounds.upper) {
        (None, _) if narrow => min,
        (_, None) if narrow => max,
        _ if narrow => return None,
        _ => {
            let (mut soft_min, mut soft_max) = (min + width, max - width);
            if soft_min > soft_max {
                soft_min = grid.middle(min, max, width)?;
                soft_max = soft_min;
            }
            if position < soft_min {
                if bounds.lower.is_some() { soft_min } else { min }
            } else if position > soft_max {
                if bounds.upper.is_some() { soft_max } else { max }
            } else {
                position
            }
        }
    };
    let below = bounds.lower.unwrap_or(-1);
    let above = bounds.upper.unwrap_or(grid.last() + 1);
    grid.snap_between(position, below, above)
}
