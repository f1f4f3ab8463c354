//! Validity rules: each finds trials in which the instrument, not the target, was the limit.
//!
//! `docs/validity.md` gives the reasons for the bounds.

use record::{
    ErrorClass, Histogram, HttpPlan, HttpTrial, LoadModel, Origin, SoundTime, VoidReason, VoidRule,
    percentile::{self, Percentile},
    units::{show_nominal_time_ns, show_time_ns},
};

use crate::worker_result::WorkerResult;

/// A percentile with fewer times beyond it is too random to judge.
const MIN_BEYOND: f64 = 10.0;
/// A median of fewer times is too random to judge.
const MIN_TIMES: u64 = 20;
/// Share of the planned requests that may be unsent in a trial without goals.
const MAX_UNSENT_SHARE: f64 = 0.01;
/// If the 99th percentile of lateness exceeds this, in nanoseconds, a busy loop delayed requests by work that is not
/// recorded as the generator's share of their times.
const MAX_UNRECORDED_NS: u64 = 200_000;
/// If the absences add up to less than this share of the threads' waiting time, they do not explain the waiting.
const MIN_EXPLAINED_WAIT: f64 = 0.5;
/// Threads that wait for a processor for more than this share of the time cause a warning.
pub(crate) const MAX_SILENT_WAIT_SHARE: f64 = 0.05;
/// Threads that wait for a processor for more than this share of the time make a trial's times meaningless.
const MAX_WAIT_SHARE: f64 = 0.25;
/// Shorter trials, in nanoseconds, cannot be judged by processor use or lateness, because the first wake-up dominates.
const MIN_TRIAL_NS: u64 = 200_000_000;
/// Largest allowed relative difference of the two sides of Little's law.
const MAX_LITTLES_LAW_DIFFERENCE: f64 = 0.02;

/// A validity rule: returns its name and the evidence if the trial breaks it.
type Rule = fn(&HttpPlan, &WorkerResult) -> Option<(VoidRule, String)>;

/// Every rule that the trial breaks, with the evidence; empty for a valid trial.
pub(crate) fn judge(plan: &HttpPlan, result: &WorkerResult) -> Vec<VoidReason> {
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
        .filter_map(|rule| rule(plan, result))
        .map(|(rule, evidence)| VoidReason { rule, evidence })
        .collect()
}

/// The two sides of Little's law: mean requests in flight by integration, and rate × mean service time.
pub(crate) fn littles_law_sides(result: &WorkerResult) -> (f64, f64) {
    let elapsed_ns = result.elapsed_ns.max(1) as f64;
    let sum = |h: &Histogram| h.mean_ns() * h.count() as f64;
    let times_ns = sum(&result.http.service_time.observed)
        + sum(&result.http.service_time.censored)
        + result.failed_in_flight_ns;
    // The loop counts a request as in flight until its answer is read, so the time for which answers were unread is added.
    (result.in_flight_integral_ns / elapsed_ns, (times_ns + result.unread_ns) / elapsed_ns)
}

/// Share of the time (0 to 1) for which the generator's threads waited for a processor, if the kernel reports it.
pub(crate) fn processor_wait_share(result: &WorkerResult) -> Option<f64> {
    let elapsed_s = result.elapsed_ns.max(1) as f64 / 1e9;
    Some(result.http.cpu.runqueue_wait_s? / elapsed_s / f64::from(result.http.cpu.threads.max(1)))
}

/// Upper bound of the ratio of the throughput without absences of the generator to the measured throughput.
///
/// In a closed load, a user that begins its next request late sends fewer requests. In an open load, the delay of requests
/// at the end of sending also delays their answers.
pub(crate) fn max_throughput_ratio(plan: &HttpPlan, result: &WorkerResult) -> f64 {
    let lost_share = match &plan.load {
        // Without an answer there is no throughput that the absences could have reduced.
        _ if result.http.counts.completed == 0 => 0.0,
        LoadModel::Closed { .. } => {
            result.users_delayed_ns / result.users_span_ns.max(1.0) / f64::from(plan.pipeline.max(1))
        }
        LoadModel::Open { .. } => {
            let delay_ns = result.delay_at_end_ns as f64;
            delay_ns / (result.sending_ns as f64 + delay_ns).max(1.0)
        }
    };
    1.0 / (1.0 - lost_share.min(0.99))
}

/// Whether refusals by the target alone decide the trial: in a closed load with goals, if it refused more requests than any goal
/// allows; otherwise only if it refused all.
///
/// In a closed load, refused users retry at once and keep the generator busy, but that causes no refusals. In an open load,
/// a late generator sends bursts, which can cause refusals.
pub(crate) fn is_decided_by_refusals(plan: &HttpPlan, result: &WorkerResult) -> bool {
    let is_refusal = |class: ErrorClass| class.origin() != Origin::Local && !class.is_timeout();
    let refused: u64 =
        result.http.errors.iter().filter(|(class, _)| is_refusal(*class)).map(|(_, n)| n).sum();
    match (plan.decides, &plan.load) {
        (Some(decision), LoadModel::Closed { .. }) => {
            refused as f64 > decision.loss_ratio * result.http.counts.scheduled as f64
        }
        _ => refused > 0 && result.http.counts.completed == 0 && refused == result.http.errors.total(),
    }
}

/// The share of the time in which the generator was present, and its longest absence, in words: `sound for 93 % of 10 s (longest stall
/// 38.0 ms)`.
pub fn soundness_in_words(http: &HttpTrial, elapsed_s: f64) -> String {
    let share = http.away.total_s / elapsed_s.max(1e-9) / f64::from(http.cpu.threads.max(1));
    let percent = 100.0 * (1.0 - share.min(1.0));
    // A trial with absences must not be rounded up to 100 %.
    let percent = if percent >= 99.0 { (percent * 10.0).floor() / 10.0 } else { percent.floor() };
    let elapsed = show_nominal_time_ns((elapsed_s * 10.0).round() as u64 * 100_000_000);
    let longest = show_time_ns((http.away.longest_s * 1e9) as u64);
    format!("sound for {percent} % of {elapsed} (longest stall {longest})")
}

/// The result of a trial's sound windows, in words: `; in the 81 % of the time that no stall touched, p50 0.41 ms, p99 1.10 ms`.
/// `None` if the windows have too few times.
pub fn sound_time_in_words(sound: &SoundTime, elapsed_s: f64) -> Option<String> {
    let count = sound.response_time.count() as f64;
    let known = percentile::usual().filter(|known| count * (1.0 - known.quantile) >= MIN_BEYOND);
    let known = known.map(|Percentile { name, quantile, .. }| {
        format!("{name} {}", show_time_ns(sound.response_time.quantile_ns(quantile)))
    });
    let known: Vec<String> = known.collect();
    let percent = (100.0 * sound.total_s / elapsed_s.max(1e-9)).min(100.0).floor();
    (!known.is_empty())
        .then(|| format!("; in the {percent} % of the time that no stall touched, {}", known.join(", ")))
}

/// Validity rule: the generator's absences make even the median of the response time uncertain.
fn late(plan: &HttpPlan, result: &WorkerResult) -> Option<(VoidRule, String)> {
    let times = &result.http.response_time;
    let median = times.percentile(0.5);
    let is_significant = times.observed.count() + times.censored.count() >= MIN_TIMES;
    let is_judged = result.elapsed_ns >= MIN_TRIAL_NS && !is_decided_by_refusals(plan, result);
    (is_judged && is_significant && median.is_vague()).then(|| {
        let evidence = format!(
            "{}: even p50 is only known to lie within {}; give the generator processors of its own (--cpus), more --threads, \
             or a lower load",
            soundness_in_words(&result.http, result.elapsed_ns as f64 / 1e9),
            median.in_words(|ns| show_time_ns(ns as u64))
        );
        (VoidRule::Late, evidence)
    })
}

/// The number of planned requests that the generator did not send, in words; `None` if it sent all.
pub(crate) fn unsent_in_words(result: &WorkerResult) -> Option<String> {
    let (unsent, scheduled) = (result.http.counts.never_sent_own(), result.http.counts.scheduled);
    (unsent > 0).then(|| {
        format!("the generator did not send {unsent} of {scheduled} planned requests, through no fault of the target")
    })
}

/// Validity rule: more requests were unsent than the goals allow to be lost, or more than 1 % without goals. Fewer are only
/// reported.
pub(crate) fn rate_not_reached(plan: &HttpPlan, result: &WorkerResult) -> Option<(VoidRule, String)> {
    let counts = &result.http.counts;
    let allowed =
        plan.decides.map_or(MAX_UNSENT_SHARE, |decision| decision.loss_ratio) * counts.scheduled as f64;
    let evidence = unsent_in_words(result).filter(|_| counts.never_sent_own() as f64 > allowed)?;
    Some((VoidRule::RateNotReached, evidence))
}

/// Whether a lack of processor time only lengthened times, because users' requests left as soon as their answers were read.
/// Such a loop sends evenly, at intervals of the work for one answer, so it causes no burst that queues in the target. An
/// open load is different: a busy loop delays each arrival by less than a millisecond, which is not recorded as the
/// generator's share, and sends arrivals in bursts. `--pipeline` is also different: other requests that are read together
/// with a request delay it.
pub(crate) fn is_only_slowed(plan: &HttpPlan, result: &WorkerResult) -> bool {
    let is_closed = matches!(plan.load, LoadModel::Closed { .. }) && plan.pipeline <= 1;
    is_closed && result.http.lateness.quantile_ns(0.99) <= MAX_UNRECORDED_NS
}

fn cpu_exhausted(plan: &HttpPlan, result: &WorkerResult) -> Option<(VoidRule, String)> {
    let is_judged = !is_decided_by_refusals(plan, result) && !is_only_slowed(plan, result);
    exhausted_in_words(plan, result).filter(|_| is_judged).map(|evidence| (VoidRule::CpuExhausted, evidence))
}

/// The evidence that the generator had no processor time left, in words; `None` if it had some.
pub(crate) fn exhausted_in_words(plan: &HttpPlan, result: &WorkerResult) -> Option<String> {
    let cpu = &result.http.cpu;
    (cpu.is_used_up() && result.elapsed_ns >= MIN_TRIAL_NS).then(|| {
        format!(
            "the generator's busiest thread was at work for {:.0} % of the time and had a processor for {:.0} %: the \
             generator, not the target, may have been the limit; raise --threads above {}, give them processors of their own \
             (--cpus), or lower the load",
            cpu.busiest_loop_ratio * 100.0,
            cpu.busiest_thread_ratio * 100.0,
            plan.threads
        )
    })
}

/// Validity rule: the generator's threads waited too long for a processor, and the absences that the loop noticed do not
/// explain the wait, so its effect on times has no known bound. The rule judges only trials with goals; in a closed load, a
/// goal must bound a time. `study::judge` revokes it if every goal was met.
fn processor_shared(plan: &HttpPlan, result: &WorkerResult) -> Option<(VoidRule, String)> {
    let decision = plan.decides?;
    let is_open = matches!(plan.load, LoadModel::Open { .. });
    let is_timed = decision.response_time_ns < plan.timeout_ns.min(plan.drain_ns);
    let share = processor_wait_share(result).filter(|share| *share > MAX_WAIT_SHARE)?;
    let is_explained = result.http.away.total_s >= MIN_EXPLAINED_WAIT * result.http.cpu.runqueue_wait_s?;
    let applies = !is_explained
        && (is_open || is_timed)
        && result.elapsed_ns >= MIN_TRIAL_NS
        && !is_decided_by_refusals(plan, result);
    applies.then(|| {
        let evidence = format!(
            "the generator's threads waited for a processor {:.0} % of the time, because other programs used it: requests were \
             sent late and in bursts; give them processors of their own (--cpus)",
            share * 100.0
        );
        (VoidRule::ProcessorShared, evidence)
    })
}

fn unopened_connections(plan: &HttpPlan, result: &WorkerResult) -> Option<(VoidRule, String)> {
    let unopened = result.http.counts.connections_unopened;
    (unopened > 0).then(|| {
        let planned = plan.connections();
        let evidence = format!(
            "this machine could not open {unopened} of {planned} planned connections; their share of the load was never sent"
        );
        (VoidRule::UnopenedConnections, evidence)
    })
}

fn local_exhaustion(_: &HttpPlan, result: &WorkerResult) -> Option<(VoidRule, String)> {
    let local: Vec<String> = result
        .http
        .connection_errors
        .iter()
        .chain(result.http.errors.iter())
        .filter(|(class, _)| class.origin() == Origin::Local)
        .map(|(class, n)| format!("{}: {n} × {}", class.name(), class.meaning()))
        .collect();
    (!local.is_empty()).then(|| {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let limit = limit.map_or("none".to_owned(), |n| n.to_string());
        let evidence = format!(
            "this machine ran out of resources: {} (descriptor limit of a process: {limit}); see --processes, --source and `ulimit -n`",
            local.join("; ")
        );
        (VoidRule::LocalExhaustion, evidence)
    })
}

/// Validity rule: every planned request must be counted once, and every completed request must have its times.
fn accounting(_: &HttpPlan, result: &WorkerResult) -> Option<(VoidRule, String)> {
    let c = &result.http.counts;
    let accounted = c.completed + c.failed + c.in_flight + c.never_sent;
    let retried_sent = c.retried.saturating_sub(c.retried_unsent);
    let on_the_wire = c.completed + (c.failed - c.failed_unsent) + c.in_flight + retried_sent;
    let checks = [
        ("planned by the schedule", result.planned.unwrap_or(c.scheduled), "taken from it", c.scheduled),
        ("taken from the schedule", c.scheduled, "completed, failed, in flight or never sent", accounted),
        ("sent", c.sent, "completed, failed, retried or in flight", on_the_wire),
        ("completed", c.completed, "response times recorded", result.http.response_time.observed.count()),
        ("completed", c.completed, "service times recorded", result.http.service_time.observed.count()),
    ];
    // The figures of a lost worker process are missing; `worker_lost` reports that.
    let broken: Vec<String> = checks
        .iter()
        .filter(|(_, left, _, right)| left != right && result.lost_workers == 0)
        .map(|(what, left, other, right)| format!("{left} requests {what}, but {right} {other}"))
        .collect();
    (!broken.is_empty()).then(|| {
        let evidence =
            format!("the figures do not add up: {}; this is a bug in proofload", broken.join("; "));
        (VoidRule::Accounting, evidence)
    })
}

fn littles_law(_: &HttpPlan, result: &WorkerResult) -> Option<(VoidRule, String)> {
    let (in_flight, rate_times_time) = littles_law_sides(result);
    let differ =
        (in_flight - rate_times_time).abs() > MAX_LITTLES_LAW_DIFFERENCE * in_flight.max(rate_times_time);
    // A smaller integral is below the resolution of the histograms.
    let is_significant = result.in_flight_integral_ns > 1e6 && result.lost_workers == 0;
    (differ && is_significant).then(|| {
        let evidence = format!(
            "on average {in_flight:.2} requests were in flight, but rate × service time is {rate_times_time:.2}: \
             samples are missing or counted twice"
        );
        (VoidRule::LittlesLaw, evidence)
    })
}

fn worker_lost(_: &HttpPlan, result: &WorkerResult) -> Option<(VoidRule, String)> {
    let of_machines = result.http.machines.iter().filter(|machine| machine.share_ratio > 0.0);
    let lost: Vec<String> = of_machines
        .filter_map(|machine| {
            let percent = 100.0 * machine.share_ratio;
            Some(format!("{}, {percent:.0} % of the load ({})", machine.name, machine.lost.as_ref()?))
        })
        .collect();
    (result.lost_workers > 0).then(|| {
        let evidence = match lost.is_empty() {
            true => format!(
                "{} worker process(es) were lost; their share of the load is missing",
                result.lost_workers
            ),
            false => format!("machines were lost: {}", lost.join("; ")),
        };
        (VoidRule::WorkerLost, evidence)
    })
}

#[cfg(test)]
mod tests;
