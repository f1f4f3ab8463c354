//! May the trial be believed? Every rule says when the instrument, not the target, was the limit.
//!
//! `docs/validity.md` gives the reasons for the bounds.

use record::{
    Away, ErrorClass, Histogram, HttpPlan, LoadModel, Origin, VoidReason, VoidRule, units::show_time_ns,
};

use crate::part::Part;

/// Percentiles that must be the target's own: of a trial in which more than one request in ten is the generator's, what
/// is left tells too little. A higher one that is the generator's is marked, see `CensoredTimes::own_percentiles`.
const JUDGED: [(f64, &str); 2] = [(0.5, "p50"), (0.9, "p90")];
/// With fewer times beyond a percentile the percentile is one of accidents.
const FEWEST_BEYOND: f64 = 10.0;
/// The throughput may be this many times as much without the generator's absences.
const THROUGHPUT_LOST: f64 = 1.08;
/// A generator whose threads wait for a processor for more than this share of the time has to share it.
pub const SHARED_SHARE: f64 = 0.05;
/// From this share on, it cannot be told whose times a trial shows.
const STARVED_SHARE: f64 = 0.25;
/// A worker thread may be busy for this share of the time.
const BUSY_SHARE: f64 = 0.95;
/// Shorter trials say nothing about processor use or lateness, in nanoseconds: the first wake-up counts too much.
const SHORTEST_NS: u64 = 200_000_000;
/// The two sides of Little's law may differ by this share.
const LITTLE_SHARE: f64 = 0.02;

/// A rule gives its evidence when it is broken.
type Rule = fn(&HttpPlan, &Part) -> Option<(VoidRule, String)>;

/// Every rule the trial breaks, with the evidence; none for a valid trial.
pub fn judge(plan: &HttpPlan, part: &Part) -> Vec<VoidReason> {
    let rules: [Rule; 9] = [
        late,
        rate_not_reached,
        cpu_exhausted,
        processor_shared,
        unopened_connections,
        local_exhaustion,
        accounting,
        littles_law,
        worker_lost,
    ];
    rules
        .iter()
        .filter_map(|rule| rule(plan, part))
        .map(|(rule, evidence)| VoidReason { rule, evidence })
        .collect()
}

/// Mean requests in flight by integration, and rate × mean time from the recorded times.
pub fn littles_sides(part: &Part) -> (f64, f64) {
    let elapsed_ns = part.elapsed_ns.max(1) as f64;
    let sum = |h: &Histogram| h.mean_ns() * h.count() as f64;
    let times_ns = sum(&part.http.service_time.observed)
        + sum(&part.http.service_time.censored)
        + part.failed_in_flight_ns;
    // A request was in flight, to the loop, until its answer was read.
    (part.in_flight_integral_ns / elapsed_ns, (times_ns + part.unread_ns) / elapsed_ns)
}

/// Share of the time (0 to 1) that the generator's threads waited for a processor, if the kernel tells.
pub fn waited_share(part: &Part) -> Option<f64> {
    let elapsed_s = part.elapsed_ns.max(1) as f64 / 1e9;
    Some(part.http.cpu.runqueue_wait_s? / elapsed_s / f64::from(part.http.cpu.threads.max(1)))
}

/// How many times as much the throughput would have been at the most without the generator's absences.
///
/// A user that begins its next request late makes fewer of them. What an open load's requests were delayed by when
/// sending ended, the answers were too.
pub fn throughput_lost(plan: &HttpPlan, part: &Part) -> f64 {
    let lost_share = match &plan.load {
        // A target that answers nobody has no throughput that anything could raise.
        _ if part.http.counts.completed == 0 => 0.0,
        LoadModel::Closed { .. } => {
            part.users_delayed_ns / part.users_span_ns.max(1.0) / f64::from(plan.pipeline.max(1))
        }
        LoadModel::Open { .. } => {
            let delay_ns = part.delay_at_end_ns as f64;
            delay_ns / (part.sending_ns as f64 + delay_ns).max(1.0)
        }
    };
    1.0 / (1.0 - lost_share.min(0.99))
}

/// How often and for how long the generator was away, in words.
pub fn absences(away: &Away) -> String {
    let show = |seconds: f64| show_time_ns((seconds * 1e9) as u64);
    match away.times {
        0 => "the generator sent late".to_owned(),
        1 => format!("the generator was away from its work for {}", show(away.longest_s)),
        times => format!(
            "the generator was away from its work {times} times, {} in all, at the longest {}",
            show(away.total_s),
            show(away.longest_s)
        ),
    }
}

/// Whether the target itself refused more than every goal allows; of an open load or a trial without goals, everything.
///
/// Users who are refused try again at once and keep the generator busy, which makes no target refuse. The bursts that a
/// late generator makes of an open load can.
pub fn is_decided_by_refusals(plan: &HttpPlan, part: &Part) -> bool {
    let own_to_the_target = |class: ErrorClass| {
        class.origin() != Origin::Local && !matches!(class, ErrorClass::Timeout | ErrorClass::ConnectTimeout)
    };
    let refused: u64 =
        part.http.errors.iter().filter(|(class, _)| own_to_the_target(*class)).map(|(_, n)| n).sum();
    match (plan.decides, &plan.load) {
        (Some(decision), LoadModel::Closed { .. }) => {
            refused as f64 > decision.loss_ratio * part.http.counts.scheduled as f64
        }
        _ => refused > 0 && part.http.counts.completed == 0 && refused == part.http.errors.total(),
    }
}

/// Sent late, or read late, so that a figure may be the generator's own.
fn late(plan: &HttpPlan, part: &Part) -> Option<(VoidRule, String)> {
    if part.elapsed_ns < SHORTEST_NS || is_decided_by_refusals(plan, part) {
        return None;
    }
    let figure = own_percentile(part).or_else(|| {
        let lost = throughput_lost(plan, part);
        (lost > THROUGHPUT_LOST).then(|| {
            format!(
                "the throughput would have been up to {:.0} % higher without its absences",
                (lost - 1.0) * 100.0
            )
        })
    })?;
    let evidence = format!(
        "{}: {figure}; give the generator processors of its own (--cpus), more --threads, or a lower load",
        absences(&part.http.away)
    );
    Some((VoidRule::Late, evidence))
}

/// The first percentile that may be the generator's own.
fn own_percentile(part: &Part) -> Option<String> {
    let times = [("response", &part.http.response_time), ("service", &part.http.service_time)];
    times.into_iter().find_map(|(name, times)| {
        let count = (times.observed.count() + times.censored.count()) as f64;
        JUDGED.into_iter().find_map(|(quantile, percentile)| {
            let measured = times.percentile(quantile);
            let tells = count * (1.0 - quantile) >= FEWEST_BEYOND;
            (tells && measured.is_own()).then(|| {
                format!(
                    "the {name} time's {percentile} is its own: {} were measured, and the target's may be as little as {}",
                    show_time_ns(measured.ns),
                    show_time_ns(measured.less_own_ns)
                )
            })
        })
    })
}

fn rate_not_reached(_: &HttpPlan, part: &Part) -> Option<(VoidRule, String)> {
    let own = part.http.counts.never_sent_own();
    (own > 0).then(|| {
        let evidence = format!(
            "{own} of {} planned requests were never sent, through no fault of the target",
            part.http.counts.scheduled
        );
        (VoidRule::RateNotReached, evidence)
    })
}

fn cpu_exhausted(plan: &HttpPlan, part: &Part) -> Option<(VoidRule, String)> {
    if is_decided_by_refusals(plan, part) {
        return None;
    }
    let (busy, at_work) = (part.http.cpu.busiest_thread_ratio, part.http.cpu.busiest_loop_ratio);
    (busy.max(at_work) > BUSY_SHARE && part.elapsed_ns >= SHORTEST_NS).then(|| {
        let evidence = format!(
            "the generator's busiest thread was at work {:.0} % of the time and had a processor for {:.0} % of it: it, not \
             the target, may have been the limit; raise --threads above {}, give them processors of their own (--cpus), \
             or lower the load",
            at_work * 100.0,
            busy * 100.0,
            plan.threads
        );
        (VoidRule::CpuExhausted, evidence)
    })
}

/// Of a trial that decides about times, or about an open load, whose answers are waited for so long only. Where the goals
/// were met in spite of it, who knows the goals takes it back.
fn processor_shared(plan: &HttpPlan, part: &Part) -> Option<(VoidRule, String)> {
    let decision = plan.decides?;
    let is_open = matches!(plan.load, LoadModel::Open { .. });
    let is_timed = decision.response_time_ns < plan.timeout_ns.min(plan.drain_ns);
    let share = waited_share(part).filter(|share| *share > STARVED_SHARE)?;
    let tells =
        (is_open || is_timed) && part.elapsed_ns >= SHORTEST_NS && !is_decided_by_refusals(plan, part);
    tells.then(|| {
        let evidence = format!(
            "the generator's threads waited for a processor {:.0} % of the time, which something else had: requests were sent \
             late and in bursts; give them processors of their own (--cpus)",
            share * 100.0
        );
        (VoidRule::ProcessorShared, evidence)
    })
}

fn unopened_connections(plan: &HttpPlan, part: &Part) -> Option<(VoidRule, String)> {
    let unopened = part.http.counts.connections_unopened;
    (unopened > 0).then(|| {
        let planned = plan.connections();
        let evidence = format!(
            "{unopened} of {planned} planned connections could not be opened on this machine; their part of the load \
             was never sent"
        );
        (VoidRule::UnopenedConnections, evidence)
    })
}

fn local_exhaustion(_: &HttpPlan, part: &Part) -> Option<(VoidRule, String)> {
    let local: Vec<String> = part
        .http
        .connection_errors
        .iter()
        .chain(part.http.errors.iter())
        .filter(|(class, _)| class.origin() == Origin::Local)
        .map(|(class, n)| format!("{}: {n} × {}", class.name(), class.meaning()))
        .collect();
    (!local.is_empty()).then(|| {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let limit = limit.map_or("none".to_owned(), |n| n.to_string());
        let evidence = format!(
            "this machine ran out: {} (descriptor limit of a process: {limit}); see --processes, --source and `ulimit -n`",
            local.join("; ")
        );
        (VoidRule::LocalExhaustion, evidence)
    })
}

/// Every planned request must be accounted for once, and every completed one must have been timed.
fn accounting(_: &HttpPlan, part: &Part) -> Option<(VoidRule, String)> {
    let c = &part.http.counts;
    let accounted = c.completed + c.failed + c.in_flight + c.never_sent;
    let again = c.retried.saturating_sub(c.retried_unsent);
    let on_the_wire = c.completed + (c.failed - c.failed_unsent) + c.in_flight + again;
    let checks = [
        ("planned by the schedule", part.planned.unwrap_or(c.scheduled), "taken from it", c.scheduled),
        ("taken from the schedule", c.scheduled, "completed, failed, in flight or never sent", accounted),
        ("sent", c.sent, "completed, failed, made again or in flight", on_the_wire),
        ("completed", c.completed, "response times recorded", part.http.response_time.observed.count()),
        ("completed", c.completed, "service times recorded", part.http.service_time.observed.count()),
    ];
    // A lost worker process takes its figures along: that is said by its own rule.
    let broken: Vec<String> = checks
        .iter()
        .filter(|(_, left, _, right)| left != right && part.lost_workers == 0)
        .map(|(what, left, other, right)| format!("{left} requests {what}, but {right} {other}"))
        .collect();
    (!broken.is_empty()).then(|| {
        let evidence =
            format!("the figures do not add up: {}; this is a fault of the instrument", broken.join("; "));
        (VoidRule::Accounting, evidence)
    })
}

fn littles_law(_: &HttpPlan, part: &Part) -> Option<(VoidRule, String)> {
    let (in_flight, rate_times_time) = littles_sides(part);
    let differ = (in_flight - rate_times_time).abs() > LITTLE_SHARE * in_flight.max(rate_times_time);
    // Below that, the resolution of the histograms is in the way.
    let tells = part.in_flight_integral_ns > 1e6 && part.lost_workers == 0;
    (differ && tells).then(|| {
        let evidence = format!(
            "on average {in_flight:.2} requests were in flight, but rate × service time is {rate_times_time:.2}: \
             samples are missing or counted twice"
        );
        (VoidRule::LittlesLaw, evidence)
    })
}

fn worker_lost(_: &HttpPlan, part: &Part) -> Option<(VoidRule, String)> {
    (part.lost_workers > 0).then(|| {
        let evidence =
            format!("{} worker process(es) were lost; their part of the load is missing", part.lost_workers);
        (VoidRule::WorkerLost, evidence)
    })
}

#[cfg(test)]
mod tests {
    use record::Decision;

    use super::*;
    use crate::testing;

    const DECIDES: Option<Decision> =
        Some(Decision { response_time_ns: 50_000_000, longest_ns: 50_000_000, loss_ratio: 0.01 });

    /// A second in which the generator waited for its processor for so long, and one request in fifty took a second.
    fn waited(wait_s: f64) -> Part {
        let mut part = Part { elapsed_ns: 1_000_000_000, ..Part::default() };
        part.http.cpu.threads = 1;
        part.http.cpu.runqueue_wait_s = Some(wait_s);
        part.http.counts.scheduled = 1_000;
        part.http.counts.completed = 1_000;
        part.http.response_time.observed.record_n_ns(1_000_000, 980);
        part.http.response_time.observed.record_n_ns(1_000_000_000, 20);
        part
    }

    #[test]
    fn a_generator_that_waits_for_its_processor_says_nothing_against_the_target() {
        let rules = |plan: HttpPlan, wait_s| processor_shared(&plan, &waited(wait_s)).map(|(rule, _)| rule);
        let open = HttpPlan { decides: DECIDES, ..testing::open(1_000.0, 1, 10) };
        assert_eq!(rules(open.clone(), 0.3), Some(VoidRule::ProcessorShared));
        assert_eq!(rules(open.clone(), 0.2), None);
        assert_eq!(
            rules(HttpPlan { decides: None, ..open }, 0.3),
            None,
            "there is nothing that it could have missed"
        );
        let users = HttpPlan { decides: DECIDES, ..testing::closed(10) };
        assert_eq!(rules(users.clone(), 0.3), Some(VoidRule::ProcessorShared));
        let waited_ns = users.timeout_ns.min(users.drain_ns);
        let untimed = Decision { response_time_ns: waited_ns, longest_ns: waited_ns, loss_ratio: 0.0 };
        assert_eq!(rules(HttpPlan { decides: Some(untimed), ..users }, 0.3), None, "errors take no time");
    }

    #[test]
    fn a_target_that_never_answers_loses_no_throughput_by_absences() {
        let mut part = Part { elapsed_ns: 60_000_000_000, users_delayed_ns: 20e6, ..Part::default() };
        part.http.counts.scheduled = 5;
        assert_eq!(late(&testing::closed(2), &part), None);
        (part.http.counts.completed, part.users_span_ns) = (5, 100e6);
        assert!(late(&testing::closed(2), &part).is_some());
    }

    #[test]
    fn bursts_may_be_refused_and_users_may_not() {
        let mut part = waited(0.0);
        part.http.errors.add(ErrorClass::Reset, 100);
        let open = HttpPlan { decides: DECIDES, ..testing::open(1_000.0, 1, 10) };
        let users = HttpPlan { decides: DECIDES, ..testing::closed(10) };
        assert!(!is_decided_by_refusals(&open, &part) && is_decided_by_refusals(&users, &part));
        part.http.counts.completed = 0;
        assert!(is_decided_by_refusals(&open, &part), "everything was refused");
    }
}
