//! Loads as integer positions on a logarithmic scale, so that doubling an interval exactly undoes halving it.

use crate::plan::Unit;

/// A goal's width is rounded down to a whole number of steps. Smallest ratio of the rounded to the exact width.
const MIN_SHARE: f64 = 0.99;
/// Largest such ratio: below 1, so that rounding errors never make an interval wider than requested.
const MAX_SHARE: f64 = 0.999_999;

/// For whole-numbered loads, moves are narrower than the goal's width by one part in this many. An interval cut into
/// equal parts is then still narrow enough after rounding to whole numbers.
const ROUNDING_DIVISOR: i64 = 32;

/// The loads that can be measured, by position; the smallest load has position 0.
#[derive(Debug, Clone)]
pub(crate) struct Grid {
    scale: Scale,
    last: i64,
}

#[derive(Debug, Clone)]
enum Scale {
    /// Each position has a different load.
    Continuous { min: f64, max: f64, step: f64 },
    /// Several positions may have the same load; the first position at or above a load is its canonical one. Steps are
    /// finer than the distance between neighbouring whole numbers, so each whole number has a canonical position. Other
    /// positions stand for the next smaller whole number.
    Whole { min: f64, max: f64, step: f64 },
}

impl Grid {
    /// A grid on which each of the relative `widths` is nearly a whole number of steps.
    pub(crate) fn new(unit: Unit, min: f64, max: f64, widths: impl Iterator<Item = f64>) -> Self {
        let range = (max / min).ln();
        let widths: Vec<f64> = widths.map(|width| -(-width).ln_1p()).collect();
        match unit {
            Unit::Continuous => {
                let last = common_steps(range, &widths);
                Self { scale: Scale::Continuous { min, max, step: range / last as f64 }, last }
            }
            Unit::Whole => {
                // The narrowest width is a power of two of steps, so that it can be halved exactly.
                let narrowest = widths.iter().copied().fold(f64::INFINITY, f64::min);
                let finest = (1.0 / max).ln_1p() / 4.0;
                let halvings = (narrowest / finest).log2().ceil().max(0.0);
                let step = narrowest / halvings.exp2();
                let mut grid = Self { scale: Scale::Whole { min, max, step }, last: i64::MAX };
                grid.last = grid.at_most(max);
                grid
            }
        }
    }

    /// The position of the largest load.
    pub(crate) fn last(&self) -> i64 {
        self.last
    }

    /// The load at a position.
    pub(crate) fn load(&self, position: i64) -> f64 {
        let position = position.clamp(0, self.last);
        match &self.scale {
            Scale::Continuous { max, .. } if position == self.last => *max,
            Scale::Continuous { min, step, .. } => min * (position as f64 * step).exp(),
            Scale::Whole { min, max, step } => {
                // The added fraction of a step compensates for the rounding error at a whole number's canonical
                // position.
                (min * ((position as f64 + 1e-3) * step).exp()).floor().clamp(*min, *max)
            }
        }
    }

    /// The position of the largest load that is at most `load`, or 0 if all loads are larger.
    pub(crate) fn at_most(&self, load: f64) -> i64 {
        match &self.scale {
            Scale::Continuous { min, step, .. } => {
                let mut position = (((load / min).ln() / step) as i64).clamp(0, self.last);
                while position > 0 && self.load(position) > load {
                    position -= 1;
                }
                while position < self.last && self.load(position + 1) <= load {
                    position += 1;
                }
                position
            }
            Scale::Whole { min, max, step } => {
                let load = load.floor().clamp(*min, *max);
                ((load / min).ln() / step - 1e-3).ceil().max(0.0) as i64
            }
        }
    }

    /// The canonical position of the load that this position stands for.
    pub(crate) fn snap(&self, position: i64) -> i64 {
        let position = position.clamp(0, self.last);
        match &self.scale {
            Scale::Whole { .. } => self.at_most(self.load(position)),
            _ => position,
        }
    }

    /// The canonical position nearest to `position` and strictly between `lower` and `upper`, if there is one.
    pub(crate) fn snap_between(&self, position: i64, lower: i64, upper: i64) -> Option<i64> {
        let settled = self.snap(position);
        let inside = |position: i64| lower < position && position < upper;
        let candidates = [settled, self.next(lower), self.previous(upper)];
        let nearest = |candidate: &i64| (candidate - position).unsigned_abs();
        candidates.into_iter().filter(|candidate| inside(*candidate)).min_by_key(nearest)
    }

    /// The position of the next larger load, or a position beyond the last one if there is none.
    pub(crate) fn next(&self, position: i64) -> i64 {
        match &self.scale {
            Scale::Whole { max, .. } => {
                let load = self.load(position) + 1.0;
                if load > *max { self.last + 1 } else { self.at_most(load) }
            }
            _ => position + 1,
        }
    }

    /// The position of the next smaller load, or −1 if there is none.
    pub(crate) fn previous(&self, position: i64) -> i64 {
        match &self.scale {
            Scale::Whole { min, .. } => {
                let load = self.load(position) - 1.0;
                if load < *min { -1 } else { self.at_most(load) }
            }
            _ => position - 1,
        }
    }

    /// A relative width as a number of steps, rounded down, at least 1.
    pub(crate) fn width(&self, relative: f64) -> i64 {
        match &self.scale {
            Scale::Continuous { step, .. } => self.whole_steps(-(-relative).ln_1p() / step * MAX_SHARE),
            // The added fraction prevents rounding down a width that is exactly a power of two of steps.
            Scale::Whole { step, .. } => {
                let steps = self.whole_steps(-(-relative).ln_1p() / step + 1e-6);
                steps - steps / ROUNDING_DIVISOR
            }
        }
    }

    fn whole_steps(&self, steps: f64) -> i64 {
        steps.floor().clamp(1.0, self.last.max(1) as f64) as i64
    }

    /// Whether two loads are at most `width` steps apart, or have no load between them.
    pub(crate) fn is_narrow(&self, lower: i64, upper: i64, width: i64) -> bool {
        match &self.scale {
            Scale::Whole { step, .. } => {
                let allowed = -(-((width + width / ROUNDING_DIVISOR) as f64) * step).exp_m1();
                let (lower, upper) = (self.load(lower), self.load(upper));
                upper - lower <= (allowed * upper).max(1.0)
            }
            _ => upper - lower <= width,
        }
    }

    /// The position at which to cut an interval so that further halving gives equal parts. One part is `width` times a
    /// power of two. Of such cuts, the most even one is used; the lower part is at most as large as the upper one.
    /// `None` if the interval is narrow.
    pub(crate) fn middle(&self, lower: i64, upper: i64, width: i64) -> Option<i64> {
        if self.is_narrow(lower, upper, width) {
            return None;
        }
        let whole = upper - lower;
        let lower_part = lower_part_of_cut(whole, width);
        self.snap_between(lower + lower_part, lower, upper)
    }
}

/// The size of the lower part of an interval of `whole` steps after a cut; `whole` is larger than `width`.
fn lower_part_of_cut(whole: i64, width: i64) -> i64 {
    let mut width = width;
    while whole < 2 * width {
        if width % 2 != 0 {
            return whole / 2;
        }
        width /= 2;
    }
    if whole == 2 * width {
        return width;
    }
    let mut upper_part = width;
    while whole - 2 * upper_part > 2 * upper_part {
        upper_part *= 2;
    }
    let wider = 2 * upper_part;
    // The product of the parts is larger for the more even cut.
    if upper_part * (whole - upper_part) > wider * (whole - wider) { upper_part } else { whole - wider }
}

/// The smallest number of steps in a logarithmic `range` for which a whole number of steps makes up nearly all of each
/// width.
fn common_steps(range: f64, widths: &[f64]) -> i64 {
    let mut steps = 1_i64;
    loop {
        let step = range / steps as f64;
        let mut next = steps + 1;
        let mut all_fit = true;
        for width in widths {
            let exact = width / step;
            // Takes as many steps as fit in `width`. A width of more than a hundred steps always fits, so the loop
            // ends.
            let whole = (exact * MAX_SHARE).floor();
            if whole < MIN_SHARE * exact {
                all_fit = false;
                let wanted = (whole + 1.0) / MAX_SHARE;
                next = next.max((wanted / exact * steps as f64).ceil() as i64);
            }
        }
        if all_fit {
            return steps;
        }
        steps = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(min: f64, max: f64, width: f64) -> Grid {
        Grid::new(Unit::Whole, min, max, [width].into_iter())
    }

    #[test]
    fn any_widths_have_a_grid() {
        // An earlier algorithm never found a number of steps that fits both widths of the first two cases.
        for widths in [[0.002, 0.503_938_742_688_015_9], [0.002, 0.5], [1e-4, 0.9]] {
            let grid = Grid::new(Unit::Continuous, 48.0, 49.0, widths.into_iter());
            for width in widths {
                let (lower, upper) = (grid.load(0), grid.load(grid.width(width)));
                let asked = width.min(1.0 - 48.0 / 49.0);
                let share = (1.0 - lower / upper) / asked;
                assert!((0.98..=1.000_001).contains(&share), "{width}: {share} of {}", grid.last());
            }
        }
    }

    #[test]
    fn every_whole_number_has_its_own_position() {
        for (min, max, width) in [(1.0, 5_000.0, 0.05), (7.0, 5_000.0, 0.3), (1.0, 5_000.0, 1e-6)] {
            let grid = whole(min, max, width);
            let mut before = -1;
            for load in min as u64..=max as u64 {
                let position = grid.at_most(load as f64);
                assert!(position > before, "{load} shares a position");
                assert_eq!(grid.load(position), load as f64);
                assert_eq!(grid.snap(position), position);
                assert_eq!(grid.previous(position), before);
                assert_eq!(if before < 0 { 0 } else { grid.next(before) }, position);
                before = position;
            }
            assert_eq!(before, grid.last());
        }
        for load in [1.0, 999_999_999.0, 123_456_789.0, 1e9] {
            let grid = whole(1.0, 1e9, 0.01);
            assert_eq!(grid.load(grid.at_most(load)), load);
        }
    }

    #[test]
    fn rates_go_to_positions_and_back() {
        let grid = Grid::new(Unit::Continuous, 1e3, 1e9, [0.005, 0.03].into_iter());
        for position in 0..=grid.last() {
            assert_eq!(grid.at_most(grid.load(position)), position);
        }
        assert_eq!(grid.load(grid.last()), 1e9);
        for relative in [0.005, 0.03] {
            let width = grid.width(relative);
            let upper = grid.load(500 + width);
            let measured = (upper - grid.load(500)) / upper;
            assert!(measured <= relative && measured > 0.99 * relative, "{measured} for {relative}");
        }
    }

    #[test]
    fn an_interval_is_cut_where_halving_stays_even() {
        for (whole, width, lower_part) in
            [(2, 1, 1), (3, 1, 1), (5, 1, 2), (6, 1, 2), (7, 1, 3), (12, 1, 4), (3, 2, 1), (20, 4, 8)]
        {
            assert_eq!(lower_part_of_cut(whole, width), lower_part, "{whole} by {width}");
        }
    }
}
