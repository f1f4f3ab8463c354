//! Possible effects of an emulator's absences on a trial.

use lab::link::{LinkAway, LinkSpec, Shape};
use record::{Goal, GoalQuantity, Trial, VoidReason, VoidRule, counters::HostCounters, units::show_time_ns};

use super::quantities::bdp_bytes;

/// Largest share of a trial for which the emulator may be away if no goal was missed. The absence delays about the same share of the
/// requests, so the value shown as the 99th percentile is at least the 98.5th.
const MAX_AWAY: f64 = 0.005;
/// Longest absence that does not count, in nanoseconds. A sleeping virtual processor may wake up this late, and the check of late packets
/// covers the effect.
const IGNORED_AWAY_NS: u64 = 10_000_000;

/// The kernel's counter of slow starts that ended because of a delay.
const ENDED_BY_DELAY: &str = "TcpExt.TCPHystartDelayDetect";
/// The sum of the congestion windows, in segments, at which these slow starts ended.
const WINDOWS_AT_END: &str = "TcpExt.TCPHystartDelayCwnd";
/// Payload of a segment on Ethernet, with timestamps.
const SEGMENT_BYTES: f64 = 1_448.0;
/// The smallest increase of the round-trip time, in nanoseconds, that ends slow start.
const HYSTART_NS: u64 = 4_000_000;

/// Whether the absences of the emulator may have changed the result of a trial.
///
/// Absences with a sum of *d* lengthen no request by more than *d*. They delay the requests that had a packet in transit, and at most as
/// many other requests, which reach the target in one burst with these. A missed goal is still the target's fault if the goal is also
/// missed in either of two cases: with all times shortened by *d*, or with twice as many in-time requests added as there were late packets.
/// If no goal is missed, only the duration of the absences decides.
pub(super) fn may_have_changed_result(
    away: LinkAway,
    late_packets: u64,
    trial: &Trial,
    goals: &[Goal],
) -> bool {
    let is_long = away.total_ns as f64 / 1e9 > trial.elapsed_s * MAX_AWAY;
    let is_missed = |goal: &Goal| goal.is_met_by(trial, None) == Some(false);
    let mut missed = goals.iter().filter(|goal| !goal.quantity.is_audited() && is_missed(goal)).peekable();
    if missed.peek().is_none() {
        return is_long && away.longest_ns > IGNORED_AWAY_NS;
    }
    // Any absence may have delayed a program.
    let Some(http) = trial.http() else { return is_long };
    let held_up = 2.0 * late_packets as f64 / http.counts.scheduled.max(1) as f64;
    missed.any(|goal| {
        let later = |bound_ns: u64| bound_ns.saturating_add(away.total_ns);
        let quantity = match goal.quantity {
            GoalQuantity::ResponseTime { bound_ns } => {
                GoalQuantity::ResponseTime { bound_ns: later(bound_ns) }
            }
            GoalQuantity::ConnectTime { bound_ns } => GoalQuantity::ConnectTime { bound_ns: later(bound_ns) },
            // A delay causes an error only if it exceeds the timeout of requests.
            GoalQuantity::Errors
            | GoalQuantity::Lost
            | GoalQuantity::Duplicated
            | GoalQuantity::Corrupt
            | GoalQuantity::Declared { .. } => {
                return away.total_ns >= http.plan.longest_answer_ns().min(http.plan.drain_ns);
            }
        };
        let shorter = Goal { quantity, ..goal.clone() };
        let fewer = Goal { loss_ratio: goal.loss_ratio + held_up, ..goal.clone() };
        !is_missed(&shorter) && !is_missed(&fewer)
    })
}

/// The absences of a link's emulator, and the properties of the link.
#[derive(Debug)]
pub(super) struct Stalls {
    link: String,
    away: LinkAway,
    round_trip_ns: u64,
    /// `None` if the link has no rate, or if its jitter alone may end a slow start.
    bdp_bytes: Option<f64>,
}

impl Stalls {
    pub(super) fn of(link: &str, spec: &LinkSpec, away: LinkAway) -> Self {
        let steady = Shape::default().jitter;
        let is_steady = [&spec.a_to_b, &spec.b_to_a].into_iter().all(|shape| shape.jitter == steady);
        let bdp_bytes = bdp_bytes(spec).filter(|_| is_steady);
        Self { link: link.to_owned(), away, round_trip_ns: spec.round_trip_ns(), bdp_bytes }
    }

    /// Whether absences may have caused the slow starts that ended because of a delay. `windows_bytes` is the sum of their congestion
    /// windows at that moment.
    ///
    /// If the link was less than half full, its queue did not cause the delay, and an absence as long as HyStart's bound suffices.
    fn may_have_ended(&self, windows_bytes: f64) -> bool {
        let is_early = self.bdp_bytes.is_some_and(|bdp_bytes| windows_bytes < bdp_bytes / 2.0);
        let bound_ns = if is_early {
            (self.round_trip_ns / 8).clamp(HYSTART_NS, IGNORED_AWAY_NS)
        } else {
            IGNORED_AWAY_NS
        };
        self.away.longest_ns > bound_ns
    }
}

/// The reason why the trial is void, if a stalled emulator may have ended the slow start of a program's transfer.
///
/// CUBIC ends slow start when the round-trip time grows by an eighth, at least 4 ms and at most 16 ms, because a queue may be filling
/// (HyStart, Linux's `net/ipv4/tcp_cubic.c`). On a long path, the flow's rate then stays low for minutes: one short absence changes the
/// result of the whole trial.
pub(super) fn ended_slow_start<'a>(
    stalls: &[Stalls],
    trial: &Trial,
    mut hosts: impl Iterator<Item = &'a HostCounters>,
) -> Option<VoidReason> {
    if trial.http().is_some() {
        return None;
    }
    hosts.find_map(|host| {
        host.counters.get(ENDED_BY_DELAY).filter(|times| *times > 0)?;
        let windows_bytes = host.counters.get(WINDOWS_AT_END).unwrap_or(0) as f64 * SEGMENT_BYTES;
        let stalls = stalls.iter().find(|stalls| stalls.may_have_ended(windows_bytes))?;
        let evidence = format!(
            "the emulator of link {} stalled for up to {} (stopped, or without a processor), and TCP on host {} ended a slow \
             start because of a delay ({ENDED_BY_DELAY}), which keeps a flow slow for long; leave a processor to the emulator",
            stalls.link,
            show_time_ns(stalls.away.longest_ns),
            host.host
        );
        Some(VoidReason { rule: VoidRule::Link, evidence })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::tests::{program, trial};
    use record::Distribution;

    #[test]
    fn an_absence_counts_only_if_it_may_have_changed_the_result() {
        const MS: u64 = 1_000_000;
        let (bound, strict) = (Goal::response_time(0.99, 60 * MS), Goal::response_time(0.99, MS));
        let away = |total_ms: u64, longest_ms: u64| LinkAway {
            times: 1,
            total_ns: total_ms * MS,
            longest_ns: longest_ms * MS,
            in_three_seconds_ns: total_ms * MS,
        };
        let decides = |response_ms: u64, away: LinkAway, late: u64, goals: &[Goal]| {
            let mut trial = trial(response_ms, 0, &[]);
            trial.elapsed_s = 4.0;
            may_have_changed_result(away, late, &trial, goals)
        };
        let missed = std::slice::from_ref(&bound);
        assert!(decides(160, away(450, 150), 60, missed), "missed because of it");
        assert!(!decides(160, away(450, 150), 10, missed), "20 of 100 requests at the most were held up");
        assert!(!decides(160, away(90, 90), 60, missed), "missed by more than it");
        assert!(!decides(160, away(0, 0), 0, missed), "never away");
        assert!(decides(160, away(450, 150), 60, &[strict, bound.clone()]), "one of two is open");
        assert!(decides(10, away(300, 300), 9, &[]), "no goal, 300 ms of 4 s");
        assert!(!decides(10, away(18, 3), 9, &[]), "a virtual processor wakes up so late");
        assert!(!decides(10, away(15, 15), 9, &[]), "too short a time to move a 99th percentile");
        let mut failed = trial(10, 0, &[]);
        failed.elapsed_s = 4.0;
        let http = failed.http_mut().unwrap();
        (http.counts.failed, http.plan.timeout_ns) = (1, 1_000 * MS);
        let errors = [Goal::errors(0.0)];
        assert!(!may_have_changed_result(away(300, 300), 9, &failed, &errors), "nobody gave up");
        assert!(may_have_changed_result(away(1_100, 1_100), 9, &failed, &errors));
    }

    #[test]
    fn an_absence_that_may_have_ended_a_slow_start_voids_a_trial_of_programs() {
        const MS: u64 = 1_000_000;
        let shape = Shape { rate_bits_per_s: Some(1_000_000_000), delay_ns: 15 * MS, ..Shape::default() };
        let spec = LinkSpec::symmetric(shape.clone());
        let void = |longest_ns: u64, ended: u64, segments: u64, spec: &LinkSpec, trial: &Trial| {
            let away =
                LinkAway { times: 1, total_ns: longest_ns, longest_ns, in_three_seconds_ns: longest_ns };
            let mut host = HostCounters { host: "client".to_owned(), ..HostCounters::default() };
            host.counters.values.insert(ENDED_BY_DELAY.to_owned(), ended);
            host.counters.values.insert(WINDOWS_AT_END.to_owned(), segments);
            ended_slow_start(&[Stalls::of("ocean", spec, away)], trial, [host].iter())
        };
        let program = program(&[]);
        let evidence = void(20 * MS, 1, 3_000, &spec, &program).expect("it is void").evidence;
        assert!(
            evidence.contains("link ocean stalled for up to 20") && evidence.contains("host client"),
            "{evidence}"
        );
        assert_eq!(void(20 * MS, 0, 0, &spec, &program), None, "slow start went on");
        assert!(void(9 * MS, 1, 58, &spec, &program).is_some(), "58 of 2,590 segments: no queue");
        assert_eq!(void(9 * MS, 1, 3_000, &spec, &program), None, "a queue filled");
        assert_eq!(void(3 * MS, 1, 58, &spec, &program), None, "shorter than what HyStart looks for");
        let jitter = Distribution::Uniform { min_ns: 0, max_ns: 10 * MS };
        let jitter = LinkSpec::symmetric(Shape { jitter, ..shape });
        assert_eq!(void(9 * MS, 1, 58, &jitter, &program), None, "the link's own jitter is as long");
        assert_eq!(
            void(20 * MS, 1, 58, &spec, &trial(10, 0, &[])),
            None,
            "requests are judged by their times"
        );
    }
}
