//! Whether a trial's response time was still growing when it ended.
//!
//! A target whose load slightly exceeds its capacity falls behind slowly: in a trial of a few seconds its answers may meet a
//! goal that they would miss after a minute. Such a load counts as not carried.

use record::{GoalQuantity, HttpTrial};

/// Smallest steadiness of the growth, as Kendall's S divided by the number of pairs of intervals: the share of pairs whose
/// later interval is slower, minus the share of pairs whose later interval is faster.
const MIN_CONCORDANCE: f64 = 0.8;
/// A load counts as carried only if the goal would still be met after this multiple of the trial's length.
const HORIZON_TRIALS: f64 = 10.0;
/// A load counts as carried only if the goal would still be met after this time, in seconds: ten times a default trial.
const MIN_HORIZON_S: f64 = 50.0;

/// Growth of the response time over a trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Growth {
    /// Growth of the median response time, in seconds per second.
    pub per_s: f64,
    /// Whether absences of the generator may be the only cause of the growth. They lengthen no response time by more than the largest delay
    /// of a request.
    pub may_be_own: bool,
}

/// Growth of the median response time of an open load, if it is steady and would exceed the goal's bound within ten times the trial's
/// length (at least 50 s). `None` if it would not, or if the trial is too short to tell.
///
/// The slope is the median of the slopes between all pairs of seconds (Theil and Sen). Kendall's S measures its steadiness. A single stall
/// changes neither.
pub(crate) fn growth_of(trial: &HttpTrial, goal: &GoalQuantity) -> Option<Growth> {
    if !trial.plan.load.is_open() || !goal.depends_on_growth() {
        return None;
    }
    // If the goal bounds no time, the longest wait for an answer serves as the bound.
    let bound_ns = goal.bound_ns().unwrap_or_else(|| trial.plan.longest_answer_ns().min(trial.plan.drain_ns));
    let bound_s = bound_ns as f64 / 1e9;
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
    let passes =
        |last: f64, slope: f64| last + slope * (HORIZON_TRIALS * sending_s).max(MIN_HORIZON_S) > bound_s;
    let own_s = own_s(trial);
    (steadiness >= MIN_CONCORDANCE && passes(last, slope))
        .then(|| Growth { per_s: slope, may_be_own: !passes(last - own_s, slope - own_s / sending_s) })
}

/// The growth of an open load's backlog, expressed as growth of the response time. The backlog is the number of unanswered requests at the
/// end of sending, beyond those that response times like the first ones would leave open. `None` if too few requests were answered to tell,
/// or if the goal does not depend on growth.
///
/// Unlike the medians, the backlog reveals a target that answers a part of the load at once and lets the rest wait, for example because its
/// accept queue is full. A stall at the end looks the same, so only exploratory trials use the backlog.
pub(crate) fn backlog_of(trial: &HttpTrial, goal: &GoalQuantity) -> Option<Growth> {
    let depends = trial.plan.load.is_open() && goal.depends_on_growth();
    let sending_s = trial.plan.sending_ns().filter(|_| depends)? as f64 / 1e9;
    let medians = trial.medians_over_time()?;
    let first_s = medians[..medians.len() / 3].iter().map(|&(_, median_s)| median_s).fold(0.0, f64::max);
    let due = trial.counts.scheduled as f64;
    let unanswered = due - trial.throughput_per_s * trial.measured_s;
    let per_s = unanswered / due.max(1.0) - first_s / sending_s;
    Some(Growth { per_s, may_be_own: own_s(trial) >= per_s * sending_s })
}

/// Largest possible delay of a request by absences of the generator, in seconds.
fn own_s(trial: &HttpTrial) -> f64 {
    trial.away.delayed_s.unwrap_or(trial.away.total_s)
}

#[cfg(test)]
mod tests {
    use record::Interval;
    use testing::plans;

    use super::*;

    const GOAL: GoalQuantity = GoalQuantity::ResponseTime { bound_ns: 50_000_000 };

    /// A trial of 1,000 requests a second with these medians of its seconds, in milliseconds.
    fn trial(medians_ms: &[f64]) -> HttpTrial {
        every(1.0, medians_ms)
    }

    /// A trial with these medians of its intervals of `interval_s` seconds.
    fn every(interval_s: f64, medians_ms: &[f64]) -> HttpTrial {
        let seconds = (medians_ms.len() as f64 * interval_s).ceil() as u64;
        let second = |(index, median_ms): (usize, &f64)| Interval {
            end_s: (index as f64 + 1.0) * interval_s,
            completed: 1_000,
            p50_us: Some(median_ms * 1e3),
            ..Interval::default()
        };
        let series = medians_ms.iter().enumerate().map(second).collect();
        HttpTrial { plan: plans::open(1_000.0, seconds, 8), series, ..HttpTrial::default() }
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
    fn a_queue_of_stable_length_shows_no_growth() {
        assert_eq!(growth_of(&trial(&[1.0, 3.1, 2.2, 3.4, 2.9]), &GOAL), None);
        assert_eq!(growth_of(&trial(&[0.5, 0.52, 0.53, 0.55, 0.57]), &GOAL), None);
    }

    #[test]
    fn a_single_stall_is_no_growth() {
        assert_eq!(growth_of(&trial(&[0.5, 0.5, 30.0, 12.0, 0.5]), &GOAL), None);
        assert_eq!(growth_of(&trial(&[0.5, 0.5, 0.5, 0.5, 80.0]), &GOAL), None);
    }

    #[test]
    fn what_is_unanswered_at_the_end_is_a_backlog_beyond_what_long_answers_leave() {
        let mut one = every(0.1, &[10.0; 10]);
        (one.counts.scheduled, one.measured_s) = (1_000, 1.0);
        let backlog = |trial: &HttpTrial| backlog_of(trial, &GoalQuantity::Errors).unwrap();
        for (answered, first_ms, per_s) in [(990.0, 10.0, 0.0), (700.0, 10.0, 0.29), (700.0, 300.0, 0.0)] {
            one.throughput_per_s = answered;
            one.series.iter_mut().for_each(|tenth| tenth.p50_us = Some(first_ms * 1e3));
            assert!((backlog(&one).per_s - per_s).abs() < 1e-9, "{answered} {first_ms}");
        }
        one.series.iter_mut().for_each(|tenth| tenth.p50_us = Some(1e4));
        for (away_s, may_be_own) in [(0.0, false), (0.28, false), (0.3, true)] {
            one.away.total_s = away_s;
            assert_eq!(backlog(&one).may_be_own, may_be_own, "{away_s} s");
        }
        assert_eq!(backlog_of(&one, &GoalQuantity::ConnectTime { bound_ns: 1 }), None);
    }

    #[test]
    fn a_last_second_that_ends_late_counts() {
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
