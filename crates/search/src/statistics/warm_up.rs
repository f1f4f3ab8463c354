//! Does a series reach a steady state, and where does that begin?
//!
//! Cutting a fixed number of seconds assumes the answer. The levels of the series tell it: E. Barrett and
//! others, "Virtual machine warmup blows hot and cold", 2017, whose classes these are.

use record::Warning;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    change_points::{Segment, segments},
    compare::Better,
    sample::{Refusal, Sample},
};

/// Fewer values than this have no course.
const FEWEST: usize = 8;
/// The share of the series that its last level must last for to be called steady, as in the paper.
const STEADY_SHARE: f64 = 0.25;

/// The course that a series takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Course {
    /// Steady from the first value.
    Flat,
    /// Worse first, then steady.
    WarmUp,
    /// Better first, then steady: it slowed down.
    Slowdown,
    /// It had not come to rest at the end, or went up and down.
    NoSteadyState,
    /// Fewer than 8 values.
    TooShort,
}

/// The course of a series, and its steady part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WarmUp {
    /// The course it takes.
    pub course: Course,
    /// Position (from 0) of the first value of the steady part; none if there is no steady part.
    pub steady_from: Option<usize>,
    /// The steady part's mean, lone spikes left aside.
    pub steady_mean: Option<f64>,
    /// Where the level changed by more than was called relevant: position of the first value after each change.
    pub changes: Vec<usize>,
    /// `warm_up`, `slowdown`, `no_steady_state` or `too_short`.
    pub warnings: Vec<Warning>,
}

/// Classifies a series of equal intervals, such as the completed requests of each second. Levels that
/// differ by less than `relevant` (0.02 for 2 %) of the last one count as the same.
pub fn classify(series: &[f64], better: Better, relevant: f64) -> Result<WarmUp, Refusal> {
    let sample = Sample::new(series)?;
    if sample.len() < FEWEST {
        return Ok(WarmUp::new(Course::TooShort, None, Vec::new(), sample.len()));
    }
    let segments = segments(series)?;
    let last = segments[segments.len() - 1];
    let against_last = |segment: &Segment| {
        let change = segment.mean - last.mean;
        match better {
            _ if change.abs() <= relevant.max(0.0) * last.mean.abs() => Level::Same,
            Better::More if change > 0.0 => Level::Better,
            Better::Less if change < 0.0 => Level::Better,
            _ => Level::Worse,
        }
    };
    let levels: Vec<Level> = segments.iter().map(against_last).collect();
    let before = levels.iter().rposition(|&level| level != Level::Same).map_or(0, |index| index + 1);
    let start = segments[before].start;
    let long_enough = (series.len() - start) as f64 >= STEADY_SHARE * series.len() as f64;
    let earlier = &levels[..before];
    let course = match earlier.first() {
        None => Course::Flat,
        _ if !long_enough => Course::NoSteadyState,
        Some(Level::Worse) if !earlier.contains(&Level::Better) => Course::WarmUp,
        Some(Level::Better) if !earlier.contains(&Level::Worse) => Course::Slowdown,
        Some(_) => Course::NoSteadyState,
    };
    let changes = (1..segments.len())
        .filter(|&index| levels[index] != levels[index - 1] || levels[index] != Level::Same)
        .map(|index| segments[index].start)
        .collect();
    let steady = &segments[before..];
    let weighted: f64 = steady.iter().map(|part| part.mean * (part.end - part.start) as f64).sum();
    let mean = weighted / (series.len() - start) as f64;
    let steady = (course != Course::NoSteadyState).then_some((start, mean));
    Ok(WarmUp::new(course, steady, changes, series.len()))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Same,
    Better,
    Worse,
}

impl WarmUp {
    fn new(course: Course, steady: Option<(usize, f64)>, changes: Vec<usize>, n: usize) -> Self {
        let start = steady.map_or(0, |(start, _)| start);
        let warning = match course {
            Course::Flat => None,
            Course::WarmUp => Some((
                "warm_up",
                format!(
                    "the first {start} of {n} values are warm-up; leave them out, or warm the target \
                     before the trial"
                ),
            )),
            Course::Slowdown => Some((
                "slowdown",
                format!(
                    "the target slowed down after {start} of {n} values: what came before does not last; \
                     find what fills up"
                ),
            )),
            Course::NoSteadyState => Some((
                "no_steady_state",
                format!("{n} values reach no steady state; run longer, and look where the level changed"),
            )),
            Course::TooShort => Some((
                "too_short",
                format!("{n} values cannot tell warm-up from steady state; use {FEWEST} or more"),
            )),
        };
        Self {
            course,
            steady_from: steady.map(|(start, _)| start),
            steady_mean: steady.map(|(_, mean)| mean),
            changes,
            warnings: warning.map(|(code, message)| Warning::new(code, message)).into_iter().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_distr::{Distribution, StandardNormal};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    /// 60 values about levels that hold until the positions given, with noise of 1 %.
    fn series(levels: &[(usize, f64)], seed: u64) -> Vec<f64> {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        (0..60)
            .map(|i| {
                let level = levels.iter().find(|(until, _)| i < *until).unwrap().1;
                let noise: f64 = StandardNormal.sample(&mut rng);
                level * (1.0 + 0.01 * noise)
            })
            .collect()
    }

    fn courses(levels: &[(usize, f64)], better: Better) -> Vec<(Course, Option<usize>)> {
        let course = |seed| {
            let course = classify(&series(levels, seed), better, 0.02).unwrap();
            assert_eq!(course.warnings.is_empty(), course.course == Course::Flat);
            (course.course, course.steady_from)
        };
        (0..20).map(course).collect()
    }

    #[test]
    fn courses_are_told_apart() {
        for (levels, course, from) in [
            (&[(60, 1_000.0)][..], Course::Flat, Some(0)),
            (&[(1, 600.0), (60, 1_000.0)], Course::WarmUp, Some(1)),
            (&[(4, 500.0), (9, 800.0), (60, 1_000.0)], Course::WarmUp, Some(9)),
            (&[(30, 1_000.0), (60, 850.0)], Course::Slowdown, Some(30)),
            (&[(52, 1_000.0), (60, 850.0)], Course::NoSteadyState, None),
            (&[(20, 1_000.0), (30, 500.0), (60, 1_000.0)], Course::NoSteadyState, None),
            (&[(10, 800.0), (20, 1_200.0), (60, 1_000.0)], Course::NoSteadyState, None),
            (&[(30, 1_000.0), (60, 1_010.0)], Course::Flat, Some(0)),
        ] {
            for (seed, found) in courses(levels, Better::More).into_iter().enumerate() {
                assert_eq!(found, (course, from), "{levels:?}, seed {seed}");
            }
        }
    }

    #[test]
    fn what_is_worse_depends_on_the_quantity() {
        let slow_start = [(5, 1_500.0), (60, 1_000.0)];
        assert!(courses(&slow_start, Better::Less).iter().all(|found| *found == (Course::WarmUp, Some(5))));
        assert!(courses(&slow_start, Better::More).iter().all(|found| *found == (Course::Slowdown, Some(5))));
    }

    #[test]
    fn the_steady_part_has_its_mean_and_the_changes_their_places() {
        let found = classify(&series(&[(4, 500.0), (60, 1_000.0)], 1), Better::More, 0.02).unwrap();
        assert_eq!(found.changes, [4]);
        assert!((found.steady_mean.unwrap() - 1_000.0).abs() < 5.0);
        assert!(found.warnings[0].message.starts_with("the first 4 of 60 values are warm-up"));
    }

    #[test]
    fn steady_noise_is_seldom_called_anything_else() {
        let mut rng = Pcg64Mcg::seed_from_u64(9);
        for n in [10, 30, 60, 300] {
            let flat = (0..500)
                .filter(|_| {
                    let steady: Vec<f64> =
                        StandardNormal.sample_iter(&mut rng).take(n).map(|z: f64| 100.0 + 5.0 * z).collect();
                    classify(&steady, Better::More, 0.0).unwrap().course == Course::Flat
                })
                .count();
            assert!(flat >= 485, "n {n}: {flat} of 500");
        }
    }

    #[test]
    fn odd_input_is_classified_or_refused() {
        assert_eq!(classify(&[1.0; 7], Better::More, 0.02).unwrap().course, Course::TooShort);
        assert_eq!(classify(&[0.0; 50], Better::More, 0.02).unwrap().course, Course::Flat);
        assert!(classify(&[], Better::More, 0.02).is_err());
        assert!(classify(&[1.0, f64::NAN], Better::More, 0.02).is_err());
    }

    proptest! {
        #[test]
        fn the_steady_part_is_at_least_a_quarter(values in prop::collection::vec(0.0..1e6, 8..120)) {
            let found = classify(&values, Better::More, 0.02).unwrap();
            match found.steady_from {
                Some(from) => prop_assert!((values.len() - from) * 4 >= values.len()),
                None => prop_assert_eq!(found.course, Course::NoSteadyState),
            }
        }
    }
}
