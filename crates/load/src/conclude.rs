//! Builds the record of a trial from its workers' results.

use std::collections::BTreeMap;

use record::{
    CensoredTimes, HttpPlan, HttpTrial, Interval, LittlesLaw, LoadModel, Measured, OwnPercentile, Span,
    Trial, Validity, VoidReason, Warning,
    percentile::usual,
    trial::SCHEMA,
    units::{show_count, show_time_ns},
};

use crate::{
    masked::{masked, masked_trial},
    pool, validity,
    worker_result::WorkerResult,
};

/// A larger share of the time spent in absences causes a warning.
const MAX_SILENT_AWAY_SHARE: f64 = 0.001;

/// The code of the warning that the target's own refusals decided the trial.
pub const DECIDED_BY_REFUSALS: &str = "decided_by_refusals";

/// The code of the warning that says how far the figures of a disturbed trial can be trusted.
pub const GENERATOR_AWAY: &str = "generator_away";

/// The name of response times in [`OwnPercentile::times`].
const RESPONSE_TIME: &str = "response_time";

/// The parts of a trial's record besides the plan and the workers' results.
#[derive(Debug, Clone)]
pub struct TrialContext {
    /// When the trial started, in seconds since 1970 UTC.
    pub started_unix_s: f64,
    /// The command line that repeats the trial.
    pub command: Vec<String>,
    /// Version of proofload.
    pub version: String,
    /// The time series, one entry for each interval.
    pub series: Vec<Interval>,
}

/// Builds a trial's record: figures, validity and warnings.
pub fn conclude(plan: HttpPlan, result: WorkerResult, context: TrialContext) -> Trial {
    let mut reasons = validity::judge(&plan, &result);
    let pool_limited = pool::pool_limited(&plan, &result, &context.series);
    let is_pool_limited = pool_limited.is_some();
    reasons.extend(pool_limited.map(|(rule, evidence)| VoidReason { rule, evidence }));
    let validity = Validity::from_reasons(reasons);
    let (mean_in_flight, rate_times_time) = validity::littles_law_sides(&result);
    let (completed, measured_s) = measured(&plan, &result);
    let own_percentiles: Vec<OwnPercentile> =
        [(RESPONSE_TIME, &result.http.response_time), ("service_time", &result.http.service_time)]
            .into_iter()
            .flat_map(|(name, times)| own_percentiles(name, times))
            .collect();
    let mut warnings = warnings(&plan, &result, &own_percentiles);
    let throughput_per_s = if measured_s > 0.0 { completed as f64 / measured_s } else { 0.0 };
    if is_pool_limited {
        // The reason why the trial is void says the same as this warning, which is dropped.
        warnings.retain(|warning| warning.code != "connections_busy");
    }
    let (elapsed_s, interrupted) = (result.elapsed_ns as f64 / 1e9, result.interrupted);
    let http = HttpTrial {
        measured_s,
        throughput_per_s,
        throughput_at_most_per_s: throughput_per_s * validity::max_throughput_ratio(&plan, &result),
        series: context.series,
        own_percentiles,
        littles_law: LittlesLaw { mean_in_flight, rate_times_time },
        plan: masked(plan),
        ..result.http
    };
    if http.counts.completed == 0
        && let Some(why) = http.main_failure(elapsed_s)
    {
        let message =
            format!("no request was completed: {why}; do not use the times and rates of this trial");
        warnings.push(Warning::new("nothing_completed", message));
    }
    masked_trial(Trial {
        schema: SCHEMA.to_owned(),
        proofload_version: context.version,
        command: context.command,
        started_unix_s: context.started_unix_s,
        elapsed_s,
        interrupted,
        validity,
        warnings,
        verdict: None,
        quantities: BTreeMap::new(),
        measured: Measured::Http(Box::new(http)),
    })
}

/// The number of completions that count for the throughput, and their time in seconds (`docs/throughput.md`).
fn measured(plan: &HttpPlan, result: &WorkerResult) -> (u64, f64) {
    let seconds = |ns: f64| ns / 1e9;
    match (&plan.load, plan.duration_ns) {
        // Completions up to the time at which the last request was due.
        (LoadModel::Open { .. }, _) => (result.completed_in_time, seconds(result.sending_ns as f64)),
        // A user's last answer comes up to one cycle before or after the end of the duration. Counting each user's complete
        // cycles avoids that error, and a slow answer affects one user only. Users with a bounded number of requests finish
        // at different times, so that their spans cannot be averaged.
        (LoadModel::Closed { loops: None, .. }, Some(_))
            if result.users > 0 && !has_begun_all_requests(plan, result) =>
        {
            (result.http.counts.completed, seconds(result.users_span_ns / result.users as f64))
        }
        (LoadModel::Closed { .. }, _) => {
            (result.http.counts.completed, seconds(result.last_answer_ns as f64))
        }
    }
}

/// Whether a closed load ended because all its requests had begun.
fn has_begun_all_requests(plan: &HttpPlan, result: &WorkerResult) -> bool {
    let begun = match (&plan.script, &result.http.script) {
        // In a session, `requests` limits the iterations.
        (Some(plan), Some(script)) if plan.is_session() => script.iterations.begun,
        _ => result.http.counts.scheduled.saturating_sub(result.http.counts.never_sent_own()),
    };
    plan.requests.is_some_and(|requests| begun >= requests)
}

fn own_percentiles(name: &str, times: &CensoredTimes) -> Vec<OwnPercentile> {
    let us = |ns: f64| ns / 1e3;
    let percentiles = times.own_percentiles().into_iter().map(|(percentile, time)| OwnPercentile {
        times: name.to_owned(),
        percentile: percentile.to_owned(),
        measured_us: us(time.most),
        less_own_us: us(time.least),
    });
    percentiles.collect()
}

/// A warning that says how far the figures can be trusted, if the generator was away for long or a figure is an interval.
fn away_warning(plan: &HttpPlan, result: &WorkerResult, percentiles: &[OwnPercentile]) -> Option<Warning> {
    let share = result.http.away.total_s
        / (result.elapsed_ns.max(1) as f64 / 1e9)
        / f64::from(result.http.cpu.threads.max(1));
    let is_wide = percentiles.iter().any(|affected| affected.times == RESPONSE_TIME);
    let times = usual().map(|told| (told.name, result.http.response_time.percentile(told.quantile)));
    let mut wide: Vec<String> = times
        .filter(|(_, time)| time.is_wide())
        .map(|(name, time)| format!("{name} within {}", time.in_words(|ns| show_time_ns(ns as u64))))
        .collect();
    let ratio = validity::max_throughput_ratio(plan, result);
    if Span::of_rate(1.0, ratio, false).is_wide() {
        wide.push(format!("throughput up to {:.0} % higher", (ratio - 1.0) * 100.0));
    }
    let figures = match (wide.is_empty(), is_wide) {
        (false, _) => wide.join(", "),
        (true, true) => "only percentiles above p99 are affected".to_owned(),
        (true, false) if share > MAX_SILENT_AWAY_SHARE => "no percentile is affected".to_owned(),
        (true, false) => return None,
    };
    Some(Warning::new(
        GENERATOR_AWAY,
        format!("{}: {figures}", validity::soundness_in_words(&result.http, result.elapsed_ns as f64 / 1e9)),
    ))
}

fn warnings(plan: &HttpPlan, result: &WorkerResult, percentiles: &[OwnPercentile]) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let counts = &result.http.counts;
    if result.http.counts.never_sent_busy > 0 || (plan.load.is_open() && pool::is_short(plan, result)) {
        warnings.push(Warning::new("connections_busy", connections_busy(plan, result)));
    }
    for why in &result.lost_receipts {
        let message =
            format!("{why}; the outcome of that worker's events is lost, and an audit can conclude nothing");
        warnings.push(Warning::new("receipts_lost", message));
    }
    if let Some(why) = &result.lost_log {
        warnings.push(Warning::new("log_lost", format!("{why}; lines of the log of requests are missing")));
    }
    if let Some(dropped) =
        result.http.script.as_ref().map(|script| script.log_lines_dropped).filter(|n| *n > 0)
    {
        let message = format!(
            "{} lines are missing in the log of requests, because they came faster than the disk took them; log a smaller share with --log-sample",
            show_count(dropped)
        );
        warnings.push(Warning::new("log_incomplete", message));
    }
    let absent = result.http.machines.iter().filter(|machine| machine.share_ratio == 0.0);
    let absent: Vec<&str> = absent.map(|machine| machine.name.as_str()).collect();
    if !absent.is_empty() {
        let message = format!("{} made no load: lost before this trial (--allow-lost)", absent.join(", "));
        warnings.push(Warning::new("machines_absent", message));
    }
    let censored = result.http.response_time.censored.count();
    if censored > 0 {
        warnings.push(Warning::new(
            "censored",
            format!(
                "{censored} response times have only a lower bound (timeouts, requests in flight or waiting at the end); \
                 percentiles that they may raise are shown with ≥"
            ),
        ));
    }
    if counts.completed > 0 && counts.completed < 1_000 {
        let lowest = if counts.completed < 100 { "p90" } else { "p99" };
        let message = format!(
            "only {} response times: {lowest} and above depend on a handful of them; run for longer",
            counts.completed
        );
        warnings.push(Warning::new("few_samples", message));
    }
    if counts.completed > 0
        && counts.reconnects > counts.completed / 10
        && plan.keepalive
        && counts.reconnects > 10
    {
        let advice = if 2 * counts.closed_idle > counts.reconnects {
            "while they were idle; let it keep idle connections for longer (nginx: keepalive_timeout)"
                .to_owned()
        } else if counts.completed < 2 * counts.connections_opened {
            "after each answer; let it keep connections, or measure new ones (--no-keepalive)".to_owned()
        } else {
            let each = show_count(counts.completed / counts.connections_opened.max(1));
            format!("after about {each} requests each; raise its limit (nginx: keepalive_requests)")
        };
        let n = show_count(counts.reconnects);
        let message = format!(
            "the times include connection set-up, because the target closed kept connections {n} times, {advice}"
        );
        warnings.push(Warning::new("reconnects", message));
    }
    if plan.decides.is_some() && validity::is_decided_by_refusals(plan, result) {
        warnings.push(Warning::new(
            DECIDED_BY_REFUSALS,
            "the target refused more requests than any goal allows, which decides the trial; do not use its times and \
             throughput if the generator was late or busy"
                .to_owned(),
        ));
    }
    warnings.extend(away_warning(plan, result, percentiles));
    let unsent =
        validity::unsent_in_words(result).filter(|_| validity::rate_not_reached(plan, result).is_none());
    let unsent = unsent.map(|words| format!("{words}; they count as never sent"));
    warnings.extend(unsent.map(|words| Warning::new("rate_not_reached", words)));
    warnings.extend(
        validity::exhausted_in_words(plan, result)
            .filter(|_| validity::is_only_slowed(plan, result))
            .map(|words| Warning::new("cpu_exhausted", words)),
    );
    if let Some(share) =
        validity::processor_wait_share(result).filter(|share| *share > validity::MAX_SILENT_WAIT_SHARE)
    {
        warnings.push(Warning::new(
            "processor_shared",
            format!(
                "the generator's threads waited for a processor {:.0} % of the time, because other programs used it; give \
                 them processors of their own with --cpus",
                share * 100.0
            ),
        ));
    }
    warnings
}

/// A full accept queue drops a SYN, and the kernel retransmits it after a second. Connections that open faster met no full queue.
const SYN_RETRY_NS: u64 = 1_000_000_000;

/// Says how many requests waited for a connection, and why.
fn connections_busy(plan: &HttpPlan, result: &WorkerResult) -> String {
    let counts = &result.http.counts;
    let (planned, peak) = (plan.connections(), counts.connections_peak);
    let waiting = match counts.waited_busy {
        0 => format!("{} requests were still waiting at the end", show_count(counts.never_sent_busy)),
        waited => format!(
            "{} requests waited for a connection, {} of them to the end",
            show_count(waited + counts.never_sent_busy),
            show_count(counts.never_sent_busy)
        ),
    };
    if result.opened_no_more {
        return format!(
            "{waiting}: more requests were lost than any goal allows, so no more than {} connections were opened",
            show_count(peak)
        );
    }
    if peak < planned {
        let failed = result.http.errors.connect_failures()
            + result.http.retried_errors.connect_failures()
            + result.http.connection_errors.connect_failures();
        let retried =
            result.http.connect_time.count() == 0 || result.http.connect_time.max_ns() >= SYN_RETRY_NS;
        let why = match (failed, retried) {
            (0, false) => String::new(),
            (0, true) => {
                ": its accept queue was full, or nothing answers there (SYNs are retransmitted after 1, 3, 7 s)"
                    .to_owned()
            }
            (failed, _) => format!("; {} attempts failed", show_count(failed)),
        };
        return format!(
            "{waiting}: the target accepted at most {} of {} connections{why}",
            show_count(peak),
            show_count(planned)
        );
    }
    let connections = show_count(planned);
    let service_s = result.http.service_time.observed.mean_ns() / 1e9;
    if service_s <= 0.0 {
        return format!(
            "{waiting}: {connections} connections were established, and no request on them was completed"
        );
    }
    format!(
        "{waiting}, because all {connections} connections were busy: at a mean service time of {:.1} ms they carry at most {} \
         requests/s (Little's law). To see whether the target can do more, give more --connections",
        service_s * 1e3,
        show_count((planned as f64 * f64::from(plan.pipeline) / service_s).round() as u64)
    )
}

#[cfg(test)]
mod tests;
