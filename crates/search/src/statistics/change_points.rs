//! Where a series changes its level.
//!
//! Optimal partitioning with pruning (PELT: R. Killick, P. Fearnhead and I. A. Eckley, "Optimal detection
//! of changepoints with a linear computational cost", 2012), by the squared error about each segment's
//! mean. Noise and its correlation are taken from differences of neighbours, which a change of level
//! hardly touches (S. Chakar and others, "A robust approach for estimating change-points in the mean of an
//! AR(1) process", 2017); lone spikes are passed over (F. R. Hampel's filter).

use super::sample::{Refusal, Sample};

/// Longer series are averaged to at most so many points first.
const MOST_POINTS: usize = 4_000;
/// What a change must explain, in units of the noise's long-run variance times ln n. By simulation:
/// `docs/statistics.md`.
const PENALTY: f64 = 5.0;
/// The most correlation that noise is credited with: short series would else pass for nothing but
/// correlated noise.
const MOST_CORRELATION: f64 = 0.6;
/// How far on each side the spike filter looks, and how far out a spike is in units of the noise.
const SPIKE_REACH: usize = 3;
const SPIKE: f64 = 4.0;

/// A stretch of one level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Segment {
    /// Its first position.
    pub start: usize,
    /// The position after its last.
    pub end: usize,
    /// Its mean, lone spikes left aside.
    pub mean: f64,
}

/// The levels of a series in order of time: at least one segment, together the whole series. Positions are
/// exact up to 4,000 values, and to n / 4,000 beyond.
pub fn segments(series: &[f64]) -> Result<Vec<Segment>, Refusal> {
    let sample = Sample::new(series)?;
    let length = sample.len().div_ceil(MOST_POINTS);
    let points: Vec<f64> = sample
        .values()
        .chunks(length)
        .map(|chunk| chunk.iter().map(|value| value / chunk.len() as f64).sum())
        .collect();
    let rough = Noise::new(&points);
    let calm = without_spikes(&points, rough.deviation);
    let noise = Noise::new(&calm);
    let penalty = PENALTY * noise.long_run_variance() * (calm.len().max(2) as f64).ln();
    Ok(partition(&calm, penalty)
        .windows(2)
        .map(|ends| Segment {
            start: ends[0] * length,
            end: (ends[1] * length).min(series.len()),
            mean: calm[ends[0]..ends[1]].iter().sum::<f64>() / (ends[1] - ends[0]) as f64,
        })
        .collect())
}

/// The ends of the segments that cost least, beginning with 0: the sum of squared errors, and a penalty for
/// each change.
fn partition(points: &[f64], penalty: f64) -> Vec<usize> {
    let costs = SquaredErrors::new(points);
    let n = points.len();
    let mut best = vec![0.0; n + 1];
    let mut last_change = vec![0; n + 1];
    best[0] = -penalty;
    let mut candidates = vec![0];
    for end in 1..=n {
        let cost = |start: usize| best[start] + costs.of(start, end);
        let (start, least) = candidates
            .iter()
            .map(|&start| (start, cost(start)))
            .min_by(|x, y| x.1.total_cmp(&y.1))
            .expect("the latest position is always a candidate");
        candidates.retain(|&start| cost(start) <= least + penalty);
        (best[end], last_change[end]) = (least + penalty, start);
        candidates.push(end);
    }
    let mut ends = vec![n];
    while let Some(&end) = ends.last().filter(|&&end| end > 0) {
        ends.push(last_change[end]);
    }
    ends.reverse();
    ends
}

/// Squared errors about the mean of any stretch, from running sums.
struct SquaredErrors {
    sums: Vec<f64>,
    squares: Vec<f64>,
}

impl SquaredErrors {
    fn new(points: &[f64]) -> Self {
        // Centred, or the difference of large sums would lose the small one.
        let centre = Sample::of_finite(points.to_vec()).median();
        let (mut sums, mut squares) = (vec![0.0], vec![0.0]);
        for (index, point) in points.iter().map(|point| point - centre).enumerate() {
            sums.push(sums[index] + point);
            squares.push(squares[index] + point * point);
        }
        Self { sums, squares }
    }

    fn of(&self, start: usize, end: usize) -> f64 {
        let sum = self.sums[end] - self.sums[start];
        (self.squares[end] - self.squares[start] - sum * sum / (end - start) as f64).max(0.0)
    }
}

/// The noise of a series whose level may change now and then.
struct Noise {
    deviation: f64,
    correlation: f64,
}

impl Noise {
    fn new(points: &[f64]) -> Self {
        // Var(y₂ − y₀) = 2σ²(1 − ρ²) and Var(y₁ − y₀) = 2σ²(1 − ρ), so their ratio is 1 + ρ.
        let (one, two) = (difference_scale(points, 1), difference_scale(points, 2));
        let correlation =
            if one > 0.0 { ((two / one).powi(2) - 1.0).clamp(0.0, MOST_CORRELATION) } else { 0.0 };
        Self { deviation: one / (2.0 * (1.0 - correlation)).sqrt(), correlation }
    }

    /// σ²(1 + ρ)/(1 − ρ): what the mean of a long stretch varies with, times its length.
    fn long_run_variance(&self) -> f64 {
        self.deviation.powi(2) * (1.0 + self.correlation) / (1.0 - self.correlation)
    }
}

/// The standard deviation of the differences at a lag, by their median size; by their mean size where most
/// are 0.
fn difference_scale(points: &[f64], lag: usize) -> f64 {
    let sizes: Vec<f64> = points.iter().zip(points.iter().skip(lag)).map(|(x, y)| (y - x).abs()).collect();
    if sizes.is_empty() {
        return 0.0;
    }
    let sizes = Sample::of_finite(sizes);
    match sizes.median() {
        0.0 => sizes.mean() * (std::f64::consts::PI / 2.0).sqrt(),
        median => median * 1.482_6,
    }
}

/// Points far from the median of their neighbourhood, replaced by it. The first points stay: a slow start
/// is no spike.
fn without_spikes(points: &[f64], deviation: f64) -> Vec<f64> {
    let replaced = |(index, &point): (usize, &f64)| {
        if index < SPIKE_REACH {
            return point;
        }
        let around = &points[index - SPIKE_REACH..(index + SPIKE_REACH + 1).min(points.len())];
        let median = Sample::of_finite(around.to_vec()).median();
        if (point - median).abs() > SPIKE * deviation { median } else { point }
    };
    points.iter().enumerate().map(replaced).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn starts(series: &[f64]) -> Vec<usize> {
        segments(series).unwrap().iter().map(|segment| segment.start).collect()
    }

    /// ruptures 1.1.10: `Pelt(model="l2", min_size=1, jump=1).fit(x).predict(pen)` of `i =
    /// np.arange(120)`, `x = np.sin(i * 1.7) * 2 + np.cos(i * 0.9) * 1.5 + np.where(i < 25, 0, np.where(i
    /// < 70, 6, np.where(i < 76, -1, 4.5)))`.
    #[test]
    fn partitions_as_in_ruptures() {
        let level = |i: i32| match i {
            ..25 => 0.0,
            25..70 => 6.0,
            70..76 => -1.0,
            _ => 4.5,
        };
        let x: Vec<f64> = (0..120)
            .map(|i| (f64::from(i) * 1.7).sin() * 2.0 + (f64::from(i) * 0.9).cos() * 1.5 + level(i))
            .collect();
        for (penalty, ends) in [
            (10.0, vec![0, 26, 70, 76, 119, 120]),
            (40.0, vec![0, 26, 70, 76, 120]),
            (100.0, vec![0, 26, 70, 76, 120]),
            (1_000.0, vec![0, 120]),
        ] {
            assert_eq!(partition(&x, penalty), ends, "penalty {penalty}");
        }
    }

    #[test]
    fn levels_are_found_and_lone_spikes_passed_over() {
        let wave = |i: i32| (f64::from(i) * 1.7).sin();
        let steady: Vec<f64> = (0..60).map(|i| 100.0 + wave(i)).collect();
        assert_eq!(starts(&steady), [0]);
        let mut spiky = steady.clone();
        (spiky[20], spiky[41]) = (10.0, 300.0);
        assert_eq!(starts(&spiky), [0]);
        let step: Vec<f64> = (0..60).map(|i| 100.0 + wave(i) + if i < 22 { 0.0 } else { 12.0 }).collect();
        assert_eq!(starts(&step), [0, 22]);
    }

    #[test]
    fn long_series_are_averaged_first() {
        let long: Vec<f64> =
            (0..10_000).map(|i| (f64::from(i) * 1.7).sin() + if i < 6_000 { 0.0 } else { 9.0 }).collect();
        assert_eq!(starts(&long), [0, 6_000]);
        assert_eq!(segments(&long).unwrap()[1].end, 10_000);
    }

    proptest! {
        #[test]
        fn segments_are_the_whole_series(values in prop::collection::vec(-1e9..1e9, 1..200)) {
            let segments = segments(&values).unwrap();
            prop_assert_eq!((segments[0].start, segments[segments.len() - 1].end), (0, values.len()));
            prop_assert!(segments.windows(2).all(|pair| pair[0].end == pair[1].start));
            prop_assert!(segments.iter().all(|segment| segment.start < segment.end));
        }

        #[test]
        fn never_panics(values in prop::collection::vec(any::<f64>(), 0..60)) {
            let _ = segments(&values);
        }
    }
}
