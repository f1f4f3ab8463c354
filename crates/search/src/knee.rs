//! The knee of latency against load: the load above which latency rises faster than load.
//!
//! Kneedle, after V. Satopää, J. Albrecht, D. Irwin, B. Raghavan, "Finding a 'Kneedle' in a Haystack:
//! Detecting Knee Points in System Behavior", ICDCS Workshops 2011, <https://doi.org/10.1109/ICDCSW.2011.20>.
//! The curve is scaled to the unit square and turned by 180°, which makes a rising convex curve a rising concave one. A
//! knee is a local maximum of the height above the diagonal, after which the height falls by more than a threshold.
//! There are three differences from the paper: the median of the repeats at a load replaces the smoothing spline; of
//! several knees, the most pronounced is the result; a curve that does not rise has no knee.

/// The paper's sensitivity S: the fall of the curve after a knee, in mean distances of loads. Larger values find fewer
/// knees; the paper uses 1 for complete data.
const SENSITIVITY: f64 = 1.0;
/// Smallest ratio of the largest to the smallest latency of a curve that can have a knee.
const MIN_RISE: f64 = 1.5;
/// Smallest number of loads of a curve that can have a knee.
const MIN_LOADS: usize = 4;

/// The load and latency of the knee of `points`: pairs of load and latency in any order, with any number of repeats.
/// `None` if there are fewer than four loads, a load or latency is not a positive number, or latency does not rise
/// enough, rises evenly, or bends only within the noise.
pub fn knee(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let is_positive = |value: f64| value.is_finite() && value > 0.0;
    if points.iter().any(|(load, latency)| !is_positive(*load) || !is_positive(*latency)) {
        return None;
    }
    let curve = medians(points);
    if curve.len() < MIN_LOADS {
        return None;
    }
    let latencies = || curve.iter().map(|(_, latency)| *latency);
    let (min, max) = (latencies().fold(f64::INFINITY, f64::min), latencies().fold(0.0, f64::max));
    let rises = curve[curve.len() - 1].1 > curve[0].1;
    if !rises || max <= min || max < min * MIN_RISE {
        return None;
    }
    most_pronounced(&heights(&curve, min, max)).map(|index| curve[index])
}

/// Index of the most pronounced knee. The turned curve begins at the largest load, so the loop counts down.
fn most_pronounced(heights: &[f64]) -> Option<usize> {
    let last = heights.len() - 1;
    let fall = SENSITIVITY / last as f64;
    let mut best: Option<(usize, f64)> = None;
    let mut candidate: Option<(usize, f64)> = None;
    for index in (0..last).rev() {
        let height = heights[index];
        let next = if index == 0 { f64::NEG_INFINITY } else { heights[index - 1] };
        if height >= heights[index + 1] && height >= next && height > 0.0 {
            candidate = Some((index, height));
        }
        if let Some(knee) = candidate.filter(|(_, top)| height < top - fall) {
            if best.is_none_or(|(_, top)| knee.1 > top) {
                best = Some(knee);
            }
            candidate = None;
        }
    }
    best.map(|(index, _)| index)
}

/// Scaled load minus scaled latency: the depth of the curve below its diagonal, which is the height of the turned curve
/// above its diagonal.
fn heights(curve: &[(f64, f64)], min: f64, max: f64) -> Vec<f64> {
    let (first, last) = (curve[0].0, curve[curve.len() - 1].0);
    let height =
        |(load, latency): &(f64, f64)| (load - first) / (last - first) - (latency - min) / (max - min);
    curve.iter().map(height).collect()
}

/// The median latency at each load, in ascending order of load.
fn medians(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut points = points.to_vec();
    points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let same_load = points.chunk_by(|a, b| a.0 == b.0);
    same_load
        .map(|repeats| {
            let (below, above) = (repeats[(repeats.len() - 1) / 2].1, repeats[repeats.len() / 2].1);
            (repeats[0].0, (below + above) / 2.0)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Response time of a queue with one server (M/M/1) of this capacity.
    fn queue(capacity: f64) -> impl Fn(f64) -> f64 {
        move |load| 1e6 / (capacity - load)
    }

    fn knee_load(points: &[(f64, f64)]) -> Option<f64> {
        knee(points).map(|(load, _)| load)
    }

    #[test]
    fn the_knee_of_a_queue_is_where_the_slope_is_that_of_the_diagonal() {
        let latency = queue(1000.0);
        let points: Vec<_> =
            (1..=99).map(|step| (f64::from(step) * 10.0, latency(f64::from(step) * 10.0))).collect();
        let diagonal = (latency(990.0) - latency(10.0)) / 980.0;
        let exact = 1000.0 - (1e6 / diagonal).sqrt();
        let found = knee_load(&points).expect("a queue has a knee");
        assert!((found - exact).abs() <= 10.0, "{found} for {exact}");
    }

    #[test]
    fn a_hockey_stick_bends_at_its_corner_in_any_order_and_under_noise() {
        let mut points = Vec::new();
        for repeat in 0..5 {
            for step in 1..=20 {
                let load = f64::from((step * 7 + repeat) % 20 + 1) * 50.0;
                let noise = f64::from((step * 13 + repeat * 5) % 7 - 3) * 0.02;
                points.push((load, 10.0 * (1.0 + noise) + (load - 700.0).max(0.0)));
            }
        }
        assert_eq!(knee_load(&points), Some(700.0));
    }

    /// The knees that the PyPI package kneed 0.9.0 finds with `KneeLocator(x, y, S=1.0, curve="convex",
    /// direction="increasing")`.
    #[test]
    fn knees_are_where_kneed_finds_them() {
        let loads = [10.0, 20.0, 50.0, 100.0, 200.0, 400.0, 500.0, 550.0, 600.0];
        let latencies = [2.0, 2.1, 2.0, 2.2, 2.6, 4.0, 9.0, 25.0, 80.0];
        let uneven: Vec<_> = loads.into_iter().zip(latencies).collect();
        assert_eq!(knee_load(&uneven), Some(500.0));
        let latencies = [1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 15.0, 20.0, 40.0, 100.0];
        let steps: Vec<_> = (1..=10).map(f64::from).zip(latencies).collect();
        assert_eq!(knee_load(&steps), Some(8.0));
        let loads = (1..=9).map(|step| f64::from(step) * 100.0).chain([950.0, 980.0]);
        let queue: Vec<_> = loads.map(|load| (load, queue(1000.0)(load))).collect();
        assert_eq!(knee_load(&queue), Some(900.0));
    }

    #[test]
    fn curves_without_a_bend_have_no_knee() {
        let line: Vec<_> = (1..=10).map(|step| (f64::from(step), 5.0 * f64::from(step))).collect();
        let noise: Vec<_> =
            (1..=10).map(|step| (f64::from(step), 5.0 + f64::from(step * 7 % 3) * 0.1)).collect();
        let concave: Vec<_> = (1..=10).map(|step| (f64::from(step), f64::from(step).sqrt())).collect();
        for points in [&line[..], &noise, &concave, &line[..3], &[(1.0, f64::NAN), (2.0, 1.0)], &[]] {
            assert_eq!(knee(points), None, "{points:?}");
        }
    }

    #[test]
    fn a_curve_with_a_value_that_is_no_positive_number_has_no_knee() {
        let bent: Vec<_> =
            (1..=20).map(|step| (f64::from(step), 1.0 + f64::from(step - 14).max(0.0))).collect();
        assert_eq!(knee_load(&bent), Some(14.0));
        for wrong in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
            for point in [(wrong, 1.0), (1.0, wrong)] {
                assert_eq!(knee(&[bent.clone(), vec![point]].concat()), None, "{point:?}");
            }
        }
    }
}
