//! The width of labels, and their positions without overlaps.

/// Width of a character in pixels; an upper estimate, since the reader's font is not known.
const LETTER: f64 = 7.2;

/// Width of a label in pixels.
pub(crate) fn width(label: &str) -> f64 {
    label.chars().count() as f64 * LETTER
}

/// Leaves out ticks whose labels would overlap.
pub(super) fn thinned(ticks: impl Iterator<Item = (f64, String)>) -> Vec<(f64, String)> {
    let mut end = f64::NEG_INFINITY;
    let keep = ticks.filter(|(x, label)| {
        let half = width(label) / 2.0 + 3.0;
        let fits = x - half >= end;
        if fits {
            end = x + half;
        }
        fits
    });
    keep.collect()
}

/// Moves increasing positions as little as possible so that they are `distance` apart.
pub(super) fn pushed_apart(wanted: &[f64], distance: f64, top: f64, bottom: f64) -> Vec<f64> {
    let mut positions = wanted.to_vec();
    for i in 1..positions.len() {
        positions[i] = positions[i].max(positions[i - 1] + distance);
    }
    let over = positions.last().map_or(0.0, |last| (last - bottom).max(0.0));
    if over > 0.0 {
        let last = positions.len() - 1;
        positions[last] -= over;
        for i in (0..last).rev() {
            positions[i] = positions[i].min(positions[i + 1] - distance);
        }
    }
    // If there are only two positions, move both by the same distance.
    if let ([a, b], [wanted_a, wanted_b]) = (&mut positions[..], wanted) {
        let shift = ((*a - wanted_a) + (*b - wanted_b)) / 2.0;
        let shift = shift.min(*a - top).max(*b - bottom);
        (*a, *b) = (*a - shift, *b - shift);
    }
    positions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_pushed_apart_and_stay_inside() {
        let positions = pushed_apart(&[50.0, 52.0], 16.0, 0.0, 200.0);
        assert_eq!(positions, [43.0, 59.0]);
        let positions = pushed_apart(&[190.0, 195.0, 199.0], 16.0, 0.0, 200.0);
        assert!(
            positions.windows(2).all(|pair| pair[1] - pair[0] >= 16.0) && positions[2] <= 200.0,
            "{positions:?}"
        );
    }
}
