//! Room for labels: how wide they are, and where they go when they would lie upon each other.

/// Room for a letter, in pixels; generous, since the reader's font is not known.
const LETTER: f64 = 7.2;

/// Room for a label, in pixels.
pub(crate) fn width(label: &str) -> f64 {
    label.chars().count() as f64 * LETTER
}

/// Ticks whose labels do not touch.
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

/// Places in rising order, moved as little as makes them lie `least` apart.
pub(super) fn pushed_apart(wanted: &[f64], least: f64, top: f64, bottom: f64) -> Vec<f64> {
    let mut places = wanted.to_vec();
    for i in 1..places.len() {
        places[i] = places[i].max(places[i - 1] + least);
    }
    let over = places.last().map_or(0.0, |last| (last - bottom).max(0.0));
    if over > 0.0 {
        let last = places.len() - 1;
        places[last] -= over;
        for i in (0..last).rev() {
            places[i] = places[i].min(places[i + 1] - least);
        }
    }
    // Two that push each other meet half way.
    if let ([a, b], [wanted_a, wanted_b]) = (&mut places[..], wanted) {
        let shift = ((*a - wanted_a) + (*b - wanted_b)) / 2.0;
        let shift = shift.min(*a - top).max(*b - bottom);
        (*a, *b) = (*a - shift, *b - shift);
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_pushed_apart_and_stay_inside() {
        let places = pushed_apart(&[50.0, 52.0], 16.0, 0.0, 200.0);
        assert_eq!(places, [43.0, 59.0]);
        let places = pushed_apart(&[190.0, 195.0, 199.0], 16.0, 0.0, 200.0);
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= 16.0) && places[2] <= 200.0, "{places:?}");
    }
}
