//! The connections that an open load opens on demand: how many it may need, and whether a full pool makes the trial void.

use record::{HttpPlan, Interval, LoadModel, Origin, VoidRule, units::show_count};

use crate::worker_result::WorkerResult;

/// Maximum number of connections that an open load opens if the user gives no number.
pub(crate) const MAX_ON_DEMAND: u64 = 10_000;
/// Without goals, worker processes are planned for answer times up to this one, in nanoseconds.
const PLANNED_ANSWER_NS: u64 = 1_000_000_000;
/// A smaller share of requests that wait for a connection changes no printed figure.
const MAX_WAITING_SHARE: f64 = 1e-3;
/// Minimum growth factor of the requests in flight if the target is queueing.
const MIN_IN_FLIGHT_GROWTH: f64 = 1.5;
/// Maximum growth factor of the completions if the target is queueing.
const MAX_COMPLETION_GROWTH: f64 = 1.1;

/// Number of connections at which a full pool is the target's fault; 0 if none are opened on demand.
///
/// A target that meets the goals has at most as many requests in flight as arrive during the longest time that a goal
/// allows, plus those that the goals allow to be lost. Without goals, the timeout bounds the requests in flight.
pub(crate) fn sufficient(plan: &HttpPlan) -> u64 {
    max_in_flight(plan, u64::MAX)
}

/// Number of connections for which worker processes and source addresses are added: sufficient for the goals; without
/// goals, for answers that take a second.
pub(crate) fn wanted(plan: &HttpPlan) -> u64 {
    max_in_flight(plan, if plan.decides.is_some() { u64::MAX } else { PLANNED_ANSWER_NS })
}

/// Maximum number of requests in flight if none takes longer than `longest_ns` or than the plan allows.
fn max_in_flight(plan: &HttpPlan, longest_ns: u64) -> u64 {
    if !plan.is_on_demand() {
        return 0;
    }
    let seconds = |ns: u64| ns as f64 / 1e9;
    let sending_s = seconds(plan.sending_ns().unwrap_or(u64::MAX));
    let timeout_s = seconds(plan.timeout_ns);
    let in_flight_s = match plan.decides {
        Some(decides) => seconds(decides.longest_ns) + (decides.loss_ratio * sending_s).min(timeout_s),
        None => timeout_s.min(sending_s + seconds(plan.drain_ns)).min(seconds(longest_ns)),
    };
    let mean = plan.load.peak() * in_flight_s / f64::from(plan.pipeline.max(1));
    // The margin is for clusters of random arrivals, and for rounding to whole connections of each worker.
    let max = (mean + 5.0 * mean.sqrt() + 16.0) as u64;
    let max = max.min(plan.requests.unwrap_or(u64::MAX));
    if plan.decides.is_some() { max } else { max.min(MAX_ON_DEMAND) }
}

/// Whether so many requests waited for a connection that printed figures may have changed.
pub(crate) fn is_short(plan: &HttpPlan, result: &WorkerResult) -> bool {
    let allowed_loss = plan.decides.map(|decides| decides.loss_ratio);
    let max_share = match allowed_loss {
        Some(ratio) if ratio > 0.0 => (ratio / 10.0).min(MAX_WAITING_SHARE),
        _ => MAX_WAITING_SHARE,
    };
    let scheduled = result.http.counts.scheduled as f64;
    let (unsent, sent) = (result.http.counts.never_sent_busy, result.http.counts.waited_busy);
    (unsent + sent) as f64 > max_share * scheduled || (unsent > 0 && allowed_loss == Some(0.0))
}

/// Validity rule: the pool was full and smaller than the load may need, and the user did not set its size. With more
/// connections the target might have carried more, unless it was at its limit.
pub(crate) fn pool_limited(
    plan: &HttpPlan,
    result: &WorkerResult,
    series: &[Interval],
) -> Option<(VoidRule, String)> {
    let connections = plan.connections();
    let sufficient = sufficient(plan);
    if connections >= sufficient || !is_short(plan, result) || target_is_at_its_limit(plan, result, series) {
        return None;
    }
    let waited = result.http.counts.never_sent_busy + result.http.counts.waited_busy;
    let why = plan.pool_limit.clone().unwrap_or_else(|| {
        format!("no more are opened by default; add --connections {sufficient}, or lower the rate")
    });
    let evidence = format!(
        "{} of {} requests waited because all {} connections were busy, and the load may need {}: {why}",
        show_count(waited),
        show_count(result.http.counts.scheduled),
        show_count(connections),
        show_count(sufficient),
    );
    Some((VoidRule::PoolLimited, evidence))
}

/// Whether the target was slower on its connections than any goal allows, answered nothing, or answered no more requests
/// when more were in flight.
fn target_is_at_its_limit(plan: &HttpPlan, result: &WorkerResult, series: &[Interval]) -> bool {
    let failed: u64 =
        result.http.errors.iter().filter(|(class, _)| class.origin() != Origin::Local).map(|(_, n)| n).sum();
    let is_slow = plan.decides.is_some_and(|decides| {
        let later = |times: &record::Histogram| times.count() - times.count_up_to_ns(decides.longest_ns);
        let times = &result.http.service_time;
        let lost =
            failed + later(&times.observed) + later(&times.censored) + later(&result.http.connect_time);
        lost as f64 > decides.loss_ratio * result.http.counts.scheduled as f64
    });
    is_slow || (failed > 0 && result.http.counts.completed == 0) || is_saturated(plan, series)
}

/// Whether a queue grew in the target: at a constant rate, the requests in flight never fall from one interval to the next
/// and grow strongly overall, while completions do not grow. If answers are merely slow, more requests in flight mean more
/// completions.
fn is_saturated(plan: &HttpPlan, series: &[Interval]) -> bool {
    let LoadModel::Open { stages, .. } = &plan.load else { return false };
    let is_steady = stages.iter().all(|s| s.from_rate_per_s == s.to_rate_per_s) && stages.len() == 1;
    let sending_s = plan.sending_ns().unwrap_or(0) as f64 / 1e9;
    let sending: Vec<&Interval> =
        series.iter().take_while(|interval| interval.end_s <= sending_s + 0.1).collect();
    let grows = |intervals: &[&Interval]| {
        let (Some(first), Some(last)) = (intervals.first(), intervals.last()) else { return false };
        let max_completed = first.completed as f64 * MAX_COMPLETION_GROWTH;
        intervals.len() >= 3
            && intervals.windows(2).all(|pair| pair[0].in_flight <= pair[1].in_flight)
            && last.in_flight as f64 >= first.in_flight as f64 * MIN_IN_FLIGHT_GROWTH
            && intervals.iter().all(|interval| interval.completed as f64 <= max_completed)
            && first.completed > 0
    };
    // The first interval may count too few completions, because its last answers were still on their way.
    is_steady && (grows(&sending) || sending.get(1..).is_some_and(grows))
}

#[cfg(test)]
mod tests {
    use record::{Decision, ErrorClass};

    use super::*;
    use crate::testing;

    const DECIDES: Option<Decision> =
        Some(Decision { response_time_ns: 500_000_000, longest_ns: 500_000_000, loss_ratio: 0.01 });

    fn on_demand(rate_per_s: f64, most: u64) -> HttpPlan {
        HttpPlan { decides: DECIDES, ..testing::on_demand(rate_per_s, 5, most) }
    }

    /// A series of five intervals of a second, each with its requests in flight and completed.
    fn intervals(each: [(u64, u64); 5]) -> Vec<Interval> {
        let interval = |(i, (in_flight, completed)): (usize, (u64, u64))| Interval {
            end_s: i as f64 + 1.0,
            in_flight,
            completed,
            ..Interval::default()
        };
        each.into_iter().enumerate().map(interval).collect()
    }

    /// A trial in which one request in ten waited for a connection.
    fn short(service_ms: u64) -> WorkerResult {
        let mut result = WorkerResult::default();
        (result.http.counts.scheduled, result.http.counts.completed, result.http.counts.waited_busy) =
            (1_000, 1_000, 100);
        result.http.service_time.observed.record_n_ns(service_ms * 1_000_000, 1_000);
        result
    }

    #[test]
    fn sufficient_connections_hold_what_a_target_that_meets_the_goals_has_in_flight() {
        assert_eq!(sufficient(&on_demand(1_000.0, 100)), 550 + 117 + 16);
        assert_eq!(sufficient(&HttpPlan { decides: None, ..on_demand(1_000.0, 100) }), 7_000 + 418 + 16);
        assert_eq!(wanted(&HttpPlan { decides: None, ..on_demand(1_000.0, 100) }), 1_000 + 158 + 16);
        assert_eq!(sufficient(&HttpPlan { requests: Some(50), ..on_demand(1_000.0, 100) }), 50);
        assert_eq!(sufficient(&testing::open(1e5, 5, 10)), 0, "they were asked for");
        assert_eq!(sufficient(&HttpPlan { decides: None, ..on_demand(1e6, 100) }), MAX_ON_DEMAND);
    }

    #[test]
    fn a_pool_that_this_machine_limits_voids_the_trial() {
        let flat = intervals([(156, 770), (156, 780), (156, 780), (156, 779), (156, 780)]);
        let (rule, evidence) = pool_limited(&on_demand(1_000.0, 156), &short(200), &flat).unwrap();
        assert!(rule == VoidRule::PoolLimited && evidence.contains("--connections 683"), "{evidence}");
        let limited = HttpPlan { pool_limit: Some("descriptors: few".to_owned()), ..on_demand(1_000.0, 156) };
        assert!(pool_limited(&limited, &short(200), &flat).unwrap().1.ends_with(": descriptors: few"));
    }

    #[test]
    fn a_full_pool_is_valid_if_more_connections_would_not_help() {
        let flat = intervals([(156, 300); 5]);
        let plan = on_demand(1_000.0, 156);
        assert_eq!(
            pool_limited(&on_demand(1_000.0, 700), &short(200), &flat),
            None,
            "a goal cannot need more"
        );
        assert_eq!(
            pool_limited(&testing::open(1e3, 5, 156), &short(200), &flat),
            None,
            "they were asked for"
        );
        assert_eq!(pool_limited(&plan, &short(520), &flat), None, "slower than the goal on what it had");
        let queue = intervals([(40, 760), (80, 780), (120, 778), (156, 781), (156, 780)]);
        assert_eq!(pool_limited(&plan, &short(200), &queue), None, "a queue grew");
        let mut few = short(200);
        few.http.counts.waited_busy = 1;
        assert_eq!(pool_limited(&plan, &few, &flat), None, "too few waited");
    }

    #[test]
    fn slow_answers_are_no_queue() {
        let plan = on_demand(1_000.0, 10_000);
        for each in [
            [(900, 100), (900, 1_000), (900, 1_000), (900, 1_000), (900, 1_000)],
            [(1_000, 0), (1_900, 100), (1_900, 1_000), (1_900, 1_000), (1_900, 1_000)],
            [(1_000, 0), (2_000, 0), (3_000, 0), (4_000, 0), (5_000, 0)],
            [(100, 1_000), (150, 990), (110, 1_010), (100, 1_000), (150, 1_000)],
        ] {
            assert!(!is_saturated(&plan, &intervals(each)), "{each:?}");
        }
    }

    #[test]
    fn a_steady_rate_with_a_growing_queue_is_saturated() {
        let plan = on_demand(1_000.0, 10_000);
        let grown = [(100, 1_000), (110, 1_000), (120, 1_100), (130, 1_000), (150, 900)];
        for (each, is_full) in [
            (grown, true),
            ([(100, 1_000), (110, 1_000), (120, 1_101), (130, 1_000), (150, 900)], false),
            ([(100, 1_000), (110, 1_000), (120, 1_000), (130, 1_000), (149, 1_000)], false),
            ([(100, 1_000), (110, 1_000), (109, 1_000), (130, 1_000), (150, 1_000)], false),
            // The first interval has too few completions.
            ([(100, 500), (100, 1_000), (120, 1_000), (130, 1_000), (150, 1_000)], true),
        ] {
            assert_eq!(is_saturated(&plan, &intervals(each)), is_full, "{each:?}");
        }
        assert!(is_saturated(&plan, &intervals(grown)[..3]) == (120.0 >= 100.0 * MIN_IN_FLIGHT_GROWTH));
        let steep = intervals([(100, 1_000), (200, 1_000), (300, 1_000), (0, 0), (0, 0)]);
        assert!(is_saturated(&plan, &steep[..3]) && !is_saturated(&plan, &steep[..2]));
        assert!(!is_saturated(&plan, &steep) && !is_saturated(&testing::closed(1), &steep[..3]));
        let mut short = plan.clone();
        let stage_of = |plan: &mut HttpPlan| match &mut plan.load {
            LoadModel::Open { stages, .. } => stages.clone(),
            LoadModel::Closed { .. } => unreachable!(),
        };
        short.duration_ns = Some(3_000_000_000);
        assert!(is_saturated(&short, &steep), "what comes after sending does not count");
        for stages in [[stage_of(&mut short), stage_of(&mut short)].concat(), {
            let mut ramp = stage_of(&mut short);
            ramp[0].to_rate_per_s = 2_000.0;
            ramp
        }] {
            let mut other = short.clone();
            if let LoadModel::Open { stages: planned, .. } = &mut other.load {
                *planned = stages;
            }
            assert!(!is_saturated(&other, &steep), "the rate is not steady");
        }
    }

    #[test]
    fn a_target_that_loses_more_than_the_goals_allow_is_at_its_limit() {
        let flat = intervals([(156, 300); 5]);
        let plan = on_demand(1_000.0, 156);
        let is_at_its_limit = |change: fn(&mut WorkerResult)| {
            let mut result = short(200);
            change(&mut result);
            target_is_at_its_limit(&plan, &result, &flat)
        };
        assert!(!is_at_its_limit(|_| {}));
        assert!(!is_at_its_limit(|r| r.http.errors.add(ErrorClass::Reset, 10)));
        assert!(is_at_its_limit(|r| r.http.errors.add(ErrorClass::Reset, 11)));
        assert!(!is_at_its_limit(|r| r.http.errors.add(ErrorClass::Descriptors, 11)), "this machine's fault");
        assert!(is_at_its_limit(|r| r.http.service_time.censored.record_n_ns(600_000_000, 11)));
        assert!(is_at_its_limit(|r| r.http.connect_time.record_n_ns(600_000_000, 11)));
        assert!(!is_at_its_limit(|r| r.http.connect_time.record_n_ns(400_000_000, 11)));
        let untold = HttpPlan { decides: None, ..plan.clone() };
        let mut silent = short(200);
        silent.http.counts.completed = 0;
        assert!(!target_is_at_its_limit(&untold, &silent, &flat), "nothing failed");
        silent.http.errors.add(ErrorClass::Reset, 1);
        assert!(target_is_at_its_limit(&untold, &silent, &flat));
        silent.http.counts.completed = 1;
        assert!(!target_is_at_its_limit(&untold, &silent, &flat));
    }

    #[test]
    fn a_pool_is_short_if_printed_figures_or_the_goal_may_have_changed() {
        let short = |loss_ratio: Option<f64>, waited, unsent| {
            let decides = loss_ratio.map(|loss_ratio| Decision { loss_ratio, ..DECIDES.unwrap() });
            let mut result = WorkerResult::default();
            let counts = &mut result.http.counts;
            (counts.scheduled, counts.waited_busy, counts.never_sent_busy) = (100_000, waited, unsent);
            is_short(&HttpPlan { decides, ..on_demand(1_000.0, 156) }, &result)
        };
        for (loss_ratio, most) in [(None, 100), (Some(0.0), 100), (Some(0.5), 100), (Some(0.001), 10)] {
            let name = format!("{loss_ratio:?}");
            assert!(!short(loss_ratio, most, 0) && short(loss_ratio, most + 1, 0), "{name}");
        }
        assert!(!short(None, 50, 50) && short(None, 50, 51));
        assert!(short(Some(0.0), 0, 1), "no request may be lost");
    }
}
