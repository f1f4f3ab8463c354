//! May the trial be believed? Every rule says when the instrument, not the target, was the limit.
//!
//! `docs/validity.md` gives the reasons for the bounds.

use record::{Decision, ErrorClass, HttpPlan, Origin, VoidReason, VoidRule, units::show_time_ns};

use crate::book::Part;

/// Own lateness at its 99th percentile may be this much, in nanoseconds, whatever the target's times.
const LATE_FLOOR_NS: u64 = 250_000;
/// Or this share of the response time's 99th percentile, or of the time that the trial is to decide about.
const LATE_SHARE: f64 = 0.1;
/// A worker thread may be busy for this share of the time.
const BUSY_SHARE: f64 = 0.95;
/// Shorter trials say nothing about processor use or lateness, in nanoseconds: the first wake-up counts too much.
const SHORTEST_NS: u64 = 200_000_000;
/// Fewer late requests are accidents.
const LATE_FEWEST: u64 = 10;
/// The two sides of Little's law may differ by this share.
const LITTLE_SHARE: f64 = 0.02;

/// A rule gives its evidence when it is broken.
type Rule = fn(&HttpPlan, &Part) -> Option<(VoidRule, String)>;

/// Every rule the trial breaks, with the evidence; none for a valid trial.
pub fn judge(plan: &HttpPlan, part: &Part) -> Vec<VoidReason> {
    let rules: [Rule; 8] = [
        late,
        rate_not_reached,
        cpu_exhausted,
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
    let sum = |h: &record::Histogram| h.mean_ns() * h.count() as f64;
    let times_ns =
        sum(&part.service_time.observed) + sum(&part.service_time.censored) + part.failed_in_flight_ns;
    (part.in_flight_integral_ns / elapsed_ns, times_ns / elapsed_ns)
}

/// How late the generator may be by its own fault, at the 99th percentile, in nanoseconds.
pub fn late_bound_ns(part: &Part, decides: Option<Decision>) -> u64 {
    let response_ns = part.response_time.lower_bound().quantile_ns(0.99);
    let measured_against_ns = response_ns.max(decides.map_or(0, |decision| decision.response_time_ns));
    LATE_FLOOR_NS.max((measured_against_ns as f64 * LATE_SHARE) as u64)
}

/// Whether the target itself refused more than every goal allows; of a trial without goals, everything. That a
/// generator without processor time left makes it do so would need another explanation than lateness.
pub fn is_decided_by_refusals(plan: &HttpPlan, part: &Part) -> bool {
    let own_to_the_target = |class: ErrorClass| {
        class.origin() != Origin::Local && !matches!(class, ErrorClass::Timeout | ErrorClass::ConnectTimeout)
    };
    let refused: u64 =
        part.errors.iter().filter(|(class, _)| own_to_the_target(*class)).map(|(_, n)| n).sum();
    match plan.decides {
        Some(decision) => refused as f64 > decision.loss_ratio * part.counts.scheduled as f64,
        None => refused > 0 && part.counts.completed == 0 && refused == part.errors.total(),
    }
}

fn late(plan: &HttpPlan, part: &Part) -> Option<(VoidRule, String)> {
    let own_ns = part.own_lateness.quantile_ns(0.99);
    if is_decided_by_refusals(plan, part) {
        return None;
    }
    let bound_ns = late_bound_ns(part, plan.decides);
    let late = part.own_lateness.count() - part.own_lateness.count_up_to_ns(bound_ns);
    (own_ns > bound_ns && late >= LATE_FEWEST && part.elapsed_ns >= SHORTEST_NS).then(|| {
        let evidence = format!(
            "one request in a hundred left {} or more after it was due with a connection free (bound {}): the \
             generator was late; give it more --threads or a processor of its own (--cpus), or lower the rate",
            show_time_ns(own_ns),
            show_time_ns(bound_ns),
        );
        (VoidRule::Late, evidence)
    })
}

fn rate_not_reached(_: &HttpPlan, part: &Part) -> Option<(VoidRule, String)> {
    let own = part.counts.never_sent - part.counts.never_sent_busy;
    (own > 0).then(|| {
        let evidence = format!(
            "{own} of {} planned requests were never sent, through no fault of the target",
            part.counts.scheduled
        );
        (VoidRule::RateNotReached, evidence)
    })
}

fn cpu_exhausted(plan: &HttpPlan, part: &Part) -> Option<(VoidRule, String)> {
    if is_decided_by_refusals(plan, part) {
        return None;
    }
    let (busy, at_work) = (part.cpu.busiest_thread_ratio, part.cpu.busiest_loop_ratio);
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

fn unopened_connections(plan: &HttpPlan, part: &Part) -> Option<(VoidRule, String)> {
    let unopened = part.counts.connections_unopened;
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
        .connection_errors
        .iter()
        .chain(part.errors.iter())
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
    let c = &part.counts;
    let accounted = c.completed + c.failed + c.in_flight + c.never_sent;
    let again = c.retried.saturating_sub(c.retried_unsent);
    let on_the_wire = c.completed + (c.failed - c.failed_unsent) + c.in_flight + again;
    let checks = [
        ("planned by the schedule", part.planned.unwrap_or(c.scheduled), "taken from it", c.scheduled),
        ("taken from the schedule", c.scheduled, "completed, failed, in flight or never sent", accounted),
        ("sent", c.sent, "completed, failed, made again or in flight", on_the_wire),
        ("completed", c.completed, "response times recorded", part.response_time.observed.count()),
        ("completed", c.completed, "service times recorded", part.service_time.observed.count()),
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
