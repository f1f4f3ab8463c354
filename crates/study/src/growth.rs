//! Whether a trial's response time was still growing when it ended.
//!
//! A target that is given a little more than it carries falls behind slowly: after a trial of a few seconds its
//! answers may still be within a goal's bound, and would not be after a minute. Such a load is not carried.

use record::{GoalQuantity, HttpTrial};

/// The share of all pairs of intervals in which the later one must be the slower one, less those in which it is
/// the faster one (Kendall's S over the number of pairs).
const CONCORDANCE: f64 = 0.8;
/// A load must be carried for so many times the trial's length.
const HORIZON: f64 = 10.0;
/// And for at least so long, in seconds: ten times a default trial.
const LEAST_HORIZON_S: f64 = 50.0;

/// How response times grew.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Growth {
    /// By how much the median grew in each second, in seconds per second.
    pub per_s: f64,
    /// Whether the generator's absences alone may have made the difference between this and no growth: they lengthen no
    /// time by more than all of them together lasted.
    pub may_be_own: bool,
}

/// How the median response time of an open load grew, if it did so steadily that a goal's bound would be passed within ten
/// times the trial's length, at least 50 s. None if it did not, or if the trial is too short to tell.
///
/// The trend is that of Theil and Sen (the median of the slopes between all pairs of seconds), its steadiness
/// Kendall's S: neither is moved by a single stall.
pub(crate) fn growth_of(trial: &HttpTrial, goal: &GoalQuantity) -> Option<Growth> {
    if !trial.plan.load.is_open() {
        return None;
    }
    let bound_s = match goal {
        GoalQuantity::ResponseTime { bound_ns } => *bound_ns,
        // Without a bound of its own: what is not answered while answers are waited for is lost.
        GoalQuantity::Errors => trial.plan.timeout_ns.min(trial.plan.drain_ns),
        GoalQuantity::ConnectTime { .. }
        | GoalQuantity::Lost
        | GoalQuantity::Duplicated
        | GoalQuantity::Corrupt
        | GoalQuantity::Given { .. } => return None,
    } as f64
        / 1e9;
    let sending_s = trial.plan.sending_ns()? as f64 / 1e9;
    let medians = trial.medians_over_time()?;
    let mut slopes = Vec::with_capacity(medians.len() * (medians.len() - 1) / 2);
    let mut concordant = 0i64;
    for (index, &(earlier_s, earlier)) in medians.iter().enumerate() {
        for &(later_s, later) in &medians[index + 1..] {
            slopes.push((later - earlier) / (later_s - earlier_s));
            concordant += i64::from(later > earlier) - i64::from(later < earlier);
        }
    }
    let steadiness = concordant as f64 / slopes.len() as f64;
    slopes.sort_by(f64::total_cmp);
    let slope = slopes[slopes.len() / 2];
    let last = medians.last().map_or(0.0, |&(_, last)| last);
    let passes = |last: f64, slope: f64| last + slope * (HORIZON * sending_s).max(LEAST_HORIZON_S) > bound_s;
    let own_s = trial.away.total_s;
    (steadiness >= CONCORDANCE && passes(last, slope))
        .then(|| Growth { per_s: slope, may_be_own: !passes(last - own_s, slope - own_s / sending_s) })
}

#[cfg(test)]
mod tests {
    use load::{HttpWorkload, MachineLimits, TrialContext, WorkerResult, conclude};
    use record::Interval;

    use super::*;

    const HOST: MachineLimits = MachineLimits::EXAMPLE;
    const GOAL: GoalQuantity = GoalQuantity::ResponseTime { bound_ns: 50_000_000 };

    /// A trial of 1,000 requests a second whose seconds had these medians, in milliseconds.
    fn trial(medians_ms: &[f64]) -> HttpTrial {
        every(1.0, medians_ms)
    }

    /// The same with intervals of so many seconds.
    fn every(interval_s: f64, medians_ms: &[f64]) -> HttpTrial {
        let workload = HttpWorkload {
            url: "127.0.0.1:1".to_owned(),
            rate: Some("1000".to_owned()),
            duration: Some(format!("{}s", medians_ms.len() as f64 * interval_s)),
            ..HttpWorkload::default()
        };
        let second = |(index, median_ms): (usize, &f64)| Interval {
            end_s: (index as f64 + 1.0) * interval_s,
            completed: 1_000,
            p50_us: Some(median_ms * 1e3),
            ..Interval::default()
        };
        let context = TrialContext {
            started_unix_s: 0.0,
            command: Vec::new(),
            version: String::new(),
            series: medians_ms.iter().enumerate().map(second).collect(),
        };
        conclude(workload.plan(&HOST).unwrap(), WorkerResult::default(), context).http().unwrap().clone()
    }

    #[test]
    fn an_overload_of_one_per_cent_is_seen_long_before_the_bound_is_reached() {
        let slope = growth_of(&trial(&[5.5, 15.0, 24.8, 35.1, 44.9]), &GOAL).unwrap().per_s;
        assert!((slope - 0.01).abs() < 0.001, "{slope}");
    }

    #[test]
    fn absences_explain_no_more_growth_than_they_lasted() {
        let mut grown = trial(&[5.5, 15.0, 24.8, 35.1, 44.9]);
        for (away_s, may_be_own) in [(0.0, false), (0.02, false), (0.06, true), (1.0, true)] {
            grown.away.total_s = away_s;
            assert_eq!(growth_of(&grown, &GOAL).unwrap().may_be_own, may_be_own, "{away_s} s");
        }
    }

    #[test]
    fn a_queue_that_finds_its_length_does_not_grow() {
        assert_eq!(growth_of(&trial(&[1.0, 3.1, 2.2, 3.4, 2.9]), &GOAL), None);
        assert_eq!(growth_of(&trial(&[0.5, 0.52, 0.53, 0.55, 0.57]), &GOAL), None);
    }

    #[test]
    fn a_single_stall_is_no_growth() {
        assert_eq!(growth_of(&trial(&[0.5, 0.5, 30.0, 12.0, 0.5]), &GOAL), None);
        assert_eq!(growth_of(&trial(&[0.5, 0.5, 0.5, 0.5, 80.0]), &GOAL), None);
    }

    #[test]
    fn a_second_that_ended_late_counts() {
        let mut late = trial(&[5.5, 15.0, 24.8, 35.1]);
        late.series[3].end_s += 0.02;
        assert!(growth_of(&late, &GOAL).is_some());
    }

    #[test]
    fn too_few_seconds_show_no_trend() {
        let too_short: Vec<f64> = (0..7).map(|index| 5.0 + 10.0 * f64::from(index)).collect();
        assert_eq!(growth_of(&every(0.1, &too_short), &GOAL), None);
    }

    #[test]
    fn an_overload_of_one_per_cent_shows_within_a_second() {
        let backlog = |index: i32| 1.0 + f64::from(index) + 0.3 * f64::from(index % 3);
        let slope = growth_of(&every(0.1, &(0..10).map(backlog).collect::<Vec<_>>()), &GOAL).unwrap().per_s;
        assert!((slope - 0.01).abs() < 0.002, "{slope}");
        let noise = |index: i32| 1.0 + f64::from(index * 7 % 10) * 0.1;
        assert_eq!(growth_of(&every(0.1, &(0..10).map(noise).collect::<Vec<_>>()), &GOAL), None);
    }

    #[test]
    fn goals_without_a_bound_take_the_time_that_answers_are_waited_for() {
        let slow = trial(&[10.0, 20.0, 30.0, 40.0, 50.0]);
        assert_eq!(growth_of(&slow, &GoalQuantity::Errors), None, "0.55 s is within the drain of 2 s");
        let fast = trial(&[100.0, 200.0, 300.0, 400.0, 500.0]);
        assert!(growth_of(&fast, &GoalQuantity::Errors).is_some());
        assert_eq!(growth_of(&fast, &GoalQuantity::ConnectTime { bound_ns: 1 }), None);
    }
}
