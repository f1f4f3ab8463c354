//! Connections that an open load opens on demand: how many it can need, and what it means that all were busy.

use record::{HttpPlan, Interval, LoadModel, Origin, VoidRule, units::show_count};

use crate::part::Part;

/// Connections that an open load opens at the most when none were asked for.
pub(crate) const MOST_ON_DEMAND: u64 = 10_000;
/// Without goals, processes are started for answers that take so long, in nanoseconds.
const WORTH_NS: u64 = 1_000_000_000;
/// A smaller share of the requests that wait for a connection changes no figure that is shown.
const WAITING_SHARE: f64 = 1e-3;
/// What is in flight grows by this factor at least, while no more is answered than this factor allows: a queue.
const GROWTH: f64 = 1.5;
const AS_MANY: f64 = 1.1;

/// Connections from which on a full pool is the target's doing; 0 where none are opened on demand.
///
/// A target that meets the goals has at any time no more in flight than came in the longest time a goal allows, and
/// those that the goals let be lost. Without goals it is whatever can be in flight before it times out.
pub(crate) fn enough(plan: &HttpPlan) -> u64 {
    at_once(plan, u64::MAX)
}

/// Connections that are worth more worker processes and source addresses: enough for the goals or, without any, for
/// answers that take a second.
pub(crate) fn wanted(plan: &HttpPlan) -> u64 {
    at_once(plan, if plan.decides.is_some() { u64::MAX } else { WORTH_NS })
}

/// Requests in flight at once at the most if none takes longer than `longest_ns`, nor than the plan lets it.
fn at_once(plan: &HttpPlan, longest_ns: u64) -> u64 {
    let LoadModel::Open { stages, .. } = &plan.load else { return 0 };
    if !plan.is_on_demand() {
        return 0;
    }
    let peak = stages.iter().flat_map(|s| [s.from_rate_per_s, s.to_rate_per_s]).fold(0.0, f64::max);
    let seconds = |ns: u64| ns as f64 / 1e9;
    let sending_s = seconds(plan.sending_ns().unwrap_or(u64::MAX));
    let timeout_s = seconds(plan.timeout_ns);
    let in_flight_s = match plan.decides {
        Some(decides) => seconds(decides.longest_ns) + (decides.loss_ratio * sending_s).min(timeout_s),
        None => timeout_s.min(sending_s + seconds(plan.drain_ns)).min(seconds(longest_ns)),
    };
    let mean = peak * in_flight_s / f64::from(plan.pipeline.max(1));
    // Random arrivals come closer together at times; workers have whole connections.
    let most = (mean + 5.0 * mean.sqrt() + 16.0) as u64;
    let most = most.min(plan.requests.unwrap_or(u64::MAX));
    if plan.decides.is_some() { most } else { most.min(MOST_ON_DEMAND) }
}

/// Whether more requests waited for a connection than changes nothing.
pub(crate) fn is_short(plan: &HttpPlan, part: &Part) -> bool {
    let allowed = plan.decides.map_or(WAITING_SHARE, |decides| decides.loss_ratio);
    let changes = if allowed > 0.0 { (allowed / 10.0).min(WAITING_SHARE) } else { WAITING_SHARE };
    let scheduled = part.http.counts.scheduled as f64;
    let (unsent, sent) = (part.http.counts.never_sent_busy, part.http.counts.waited_busy);
    (unsent + sent) as f64 > changes * scheduled || unsent as f64 > allowed * scheduled
}

/// A pool that is smaller than the load may need, for no wish of the user, was full: more connections might have
/// carried more, if nothing shows that the target was at its end.
pub(crate) fn limited(plan: &HttpPlan, part: &Part, series: &[Interval]) -> Option<(VoidRule, String)> {
    let most = plan.connections();
    let enough = enough(plan);
    if most >= enough || !is_short(plan, part) || is_at_its_end(plan, part, series) {
        return None;
    }
    let waited = part.http.counts.never_sent_busy + part.http.counts.waited_busy;
    let why = plan.pool_limit.clone().unwrap_or_else(|| {
        format!("no more are opened unless asked for; add --connections {enough}, or lower the rate")
    });
    let evidence = format!(
        "{} of {} requests waited because all {} connections were busy, and the load can need {}: {why}",
        show_count(waited),
        show_count(part.http.counts.scheduled),
        show_count(most),
        show_count(enough),
    );
    Some((VoidRule::PoolLimited, evidence))
}

/// Whether the target itself was slower than every goal allows on the connections it had, or answered no more when more
/// was in flight.
pub(crate) fn is_at_its_end(plan: &HttpPlan, part: &Part, series: &[Interval]) -> bool {
    let failed: u64 =
        part.http.errors.iter().filter(|(class, _)| class.origin() != Origin::Local).map(|(_, n)| n).sum();
    let is_slow = plan.decides.is_some_and(|decides| {
        let later = |times: &record::Histogram| times.count() - times.count_up_to_ns(decides.longest_ns);
        let times = &part.http.service_time;
        let lost = failed + later(&times.observed) + later(&times.censored) + later(&part.http.connect_time);
        lost as f64 > decides.loss_ratio * part.http.counts.scheduled as f64
    });
    is_slow || (failed > 0 && part.http.counts.completed == 0) || is_saturated(plan, series)
}

/// Whether a queue grew in the target: at the same rate, each second ends with no less in flight than the one before,
/// and in the end with much more, while no more is answered. Where answers just take their time, more in flight is
/// more answers.
fn is_saturated(plan: &HttpPlan, series: &[Interval]) -> bool {
    let LoadModel::Open { stages, .. } = &plan.load else { return false };
    let is_steady = stages.iter().all(|s| s.from_rate_per_s == s.to_rate_per_s) && stages.len() == 1;
    let sending_s = plan.sending_ns().unwrap_or(0) as f64 / 1e9;
    // The first second may lack the answers that were still on their way.
    let whole: Vec<&Interval> = series.iter().take_while(|second| second.end_s <= sending_s + 0.1).collect();
    let grows = |seconds: &[&Interval]| {
        let (Some(first), Some(last)) = (seconds.first(), seconds.last()) else { return false };
        let most_completed = first.completed as f64 * AS_MANY;
        seconds.len() >= 3
            && seconds.windows(2).all(|pair| pair[0].in_flight <= pair[1].in_flight)
            && last.in_flight as f64 >= first.in_flight as f64 * GROWTH
            && seconds.iter().all(|second| second.completed as f64 <= most_completed)
            && first.completed > 0
    };
    is_steady && (grows(&whole) || whole.get(1..).is_some_and(grows))
}

#[cfg(test)]
mod tests {
    use record::{Connections, Decision};

    use super::*;
    use crate::testing;

    const DECIDES: Option<Decision> =
        Some(Decision { response_time_ns: 500_000_000, longest_ns: 500_000_000, loss_ratio: 0.01 });

    fn on_demand(rate_per_s: f64, most: u64) -> HttpPlan {
        let mut plan = HttpPlan { decides: DECIDES, ..testing::open(rate_per_s, 5, 1) };
        if let LoadModel::Open { connections, .. } = &mut plan.load {
            *connections = Connections { initial: 0, most };
        }
        plan
    }

    /// Five seconds of which each ends with so many in flight and has so many answers.
    fn seconds(each: [(u64, u64); 5]) -> Vec<Interval> {
        let second = |(i, (in_flight, completed)): (usize, (u64, u64))| Interval {
            end_s: i as f64 + 1.0,
            in_flight,
            completed,
            ..Interval::default()
        };
        each.into_iter().enumerate().map(second).collect()
    }

    /// One request in ten waited for a connection.
    fn short(service_ms: u64) -> Part {
        let mut part = Part::default();
        (part.http.counts.scheduled, part.http.counts.completed, part.http.counts.waited_busy) =
            (1_000, 1_000, 100);
        part.http.service_time.observed.record_n_ns(service_ms * 1_000_000, 1_000);
        part
    }

    #[test]
    fn enough_is_what_a_target_may_hold_that_meets_the_goals() {
        assert_eq!(enough(&on_demand(1_000.0, 100)), 550 + 117 + 16);
        assert_eq!(enough(&HttpPlan { decides: None, ..on_demand(1_000.0, 100) }), 7_000 + 418 + 16);
        assert_eq!(wanted(&HttpPlan { decides: None, ..on_demand(1_000.0, 100) }), 1_000 + 158 + 16);
        assert_eq!(enough(&HttpPlan { requests: Some(50), ..on_demand(1_000.0, 100) }), 50);
        assert_eq!(enough(&testing::open(1e5, 5, 10)), 0, "they were asked for");
        assert_eq!(enough(&HttpPlan { decides: None, ..on_demand(1e6, 100) }), MOST_ON_DEMAND);
    }

    #[test]
    fn a_full_pool_of_this_machine_says_nothing_of_a_target_that_may_do_more() {
        let flat = seconds([(156, 770), (156, 780), (156, 780), (156, 779), (156, 780)]);
        let (rule, evidence) = limited(&on_demand(1_000.0, 156), &short(200), &flat).unwrap();
        assert!(rule == VoidRule::PoolLimited && evidence.contains("--connections 683"), "{evidence}");
        let own = HttpPlan { pool_limit: Some("descriptors: few".to_owned()), ..on_demand(1_000.0, 156) };
        assert!(limited(&own, &short(200), &flat).unwrap().1.ends_with(": descriptors: few"));
    }

    #[test]
    fn a_full_pool_is_the_targets_where_more_connections_would_not_help() {
        let flat = seconds([(156, 300); 5]);
        let plan = on_demand(1_000.0, 156);
        assert_eq!(limited(&on_demand(1_000.0, 700), &short(200), &flat), None, "a goal cannot need more");
        assert_eq!(limited(&testing::open(1e3, 5, 156), &short(200), &flat), None, "they were asked for");
        assert_eq!(limited(&plan, &short(520), &flat), None, "slower than the goal on what it had");
        let queue = seconds([(40, 760), (80, 780), (120, 778), (156, 781), (156, 780)]);
        assert_eq!(limited(&plan, &short(200), &queue), None, "a queue grew");
        let mut few = short(200);
        few.http.counts.waited_busy = 1;
        assert_eq!(limited(&plan, &few, &flat), None, "too few waited");
    }

    #[test]
    fn answers_that_take_their_time_are_no_queue() {
        let plan = on_demand(1_000.0, 10_000);
        for each in [
            [(900, 100), (900, 1_000), (900, 1_000), (900, 1_000), (900, 1_000)],
            [(1_000, 0), (1_900, 100), (1_900, 1_000), (1_900, 1_000), (1_900, 1_000)],
            [(1_000, 0), (2_000, 0), (3_000, 0), (4_000, 0), (5_000, 0)],
            [(100, 1_000), (150, 990), (110, 1_010), (100, 1_000), (150, 1_000)],
        ] {
            assert!(!is_saturated(&plan, &seconds(each)), "{each:?}");
        }
    }
}
