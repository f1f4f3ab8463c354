//! From what the workers found to the record of a trial.

use std::collections::BTreeMap;

use record::{
    CensoredTimes, HttpPlan, HttpTrial, Interval, LittlesLaw, LoadModel, Measured, OwnPercentile, Trial,
    Validity, VoidReason, Warning, trial::SCHEMA, units::show_count,
};

use crate::{masked::masked, part::Part, pool, validity};

/// A worker that was away for more than this share of the time is told of.
const AWAY_SHARE: f64 = 0.001;

/// What response times are called among the percentiles that may be the generator's own.
const RESPONSE_TIME: &str = "response_time";

/// What the workers do not know.
#[derive(Debug, Clone)]
pub struct Circumstances {
    /// When the trial started, seconds since 1970 UTC.
    pub started_unix_s: f64,
    /// The command line that repeats it.
    pub command: Vec<String>,
    /// Version of proofload.
    pub version: String,
    /// Its course, second by second.
    pub series: Vec<Interval>,
}

/// Puts a trial's record together and judges it.
pub fn conclude(plan: HttpPlan, part: Part, circumstances: Circumstances) -> Trial {
    let mut reasons = validity::judge(&plan, &part);
    let limited = pool::limited(&plan, &part, &circumstances.series);
    let is_pool_ours = limited.is_some();
    reasons.extend(limited.map(|(rule, evidence)| VoidReason { rule, evidence }));
    let validity = Validity::from_reasons(reasons);
    let (mean_in_flight, rate_times_time) = validity::littles_sides(&part);
    let (completed, measured_s) = measured(&plan, &part);
    let own_percentiles: Vec<OwnPercentile> =
        [(RESPONSE_TIME, &part.http.response_time), ("service_time", &part.http.service_time)]
            .into_iter()
            .flat_map(|(name, times)| own_percentiles(name, times))
            .collect();
    let mut warnings = warnings(&plan, &part, &own_percentiles);
    let throughput_per_s = if measured_s > 0.0 { completed as f64 / measured_s } else { 0.0 };
    if is_pool_ours {
        // The reason why the trial is void says it, and what helps.
        warnings.retain(|warning| warning.code != "connections_busy");
    }
    let (elapsed_s, interrupted) = (part.elapsed_ns as f64 / 1e9, part.interrupted);
    let http = HttpTrial {
        measured_s,
        throughput_per_s,
        throughput_at_most_per_s: throughput_per_s * validity::throughput_lost(&plan, &part),
        series: circumstances.series,
        own_percentiles,
        littles_law: LittlesLaw { mean_in_flight, rate_times_time },
        plan: masked(plan),
        ..part.http
    };
    if http.counts.completed == 0
        && let Some(why) = http.main_failure(elapsed_s)
    {
        let message = format!(
            "no request was completed: {why}; no time and no rate here says anything about a service"
        );
        warnings.push(Warning::new("nothing_completed", message));
    }
    Trial {
        schema: SCHEMA.to_owned(),
        proofload_version: circumstances.version,
        command: circumstances.command.iter().map(|word| secrets::mask(word).into_owned()).collect(),
        started_unix_s: circumstances.started_unix_s,
        elapsed_s,
        interrupted,
        validity,
        warnings,
        quantities: BTreeMap::new(),
        measured: Measured::Http(Box::new(http)),
    }
}

/// Which completions count for the throughput, and over which time in seconds (`docs/throughput.md`).
fn measured(plan: &HttpPlan, part: &Part) -> (u64, f64) {
    let seconds = |ns: f64| ns / 1e9;
    match (&plan.load, plan.duration_ns) {
        // What the target had done when the last request was due.
        (LoadModel::Open { .. }, _) => (part.completed_in_time, seconds(part.sending_ns as f64)),
        // A user's last answer comes up to one cycle before or after the time is up. Ending each user's
        // time with its last cycle takes whole ones, and one slow answer weighs one user only. Users that come to the
        // end of their requests are through with them at different times, and such spans would not be of the same time.
        (LoadModel::Closed { loops: None, .. }, Some(_)) if part.users > 0 && !is_used_up(plan, part) => {
            (part.http.counts.completed, seconds(part.users_span_ns / part.users as f64))
        }
        (LoadModel::Closed { .. }, _) => (part.http.counts.completed, seconds(part.last_answer_ns as f64)),
    }
}

/// Whether all requests of a closed load were begun, so that they and not the time ended it.
fn is_used_up(plan: &HttpPlan, part: &Part) -> bool {
    let begun = part.http.counts.scheduled.saturating_sub(part.http.counts.never_sent_own());
    plan.requests.is_some_and(|requests| begun >= requests)
}

fn own_percentiles(times: &str, of: &CensoredTimes) -> Vec<OwnPercentile> {
    let us = |ns: u64| ns as f64 / 1e3;
    let own = of.own_percentiles().into_iter().map(|(percentile, own)| OwnPercentile {
        times: times.to_owned(),
        percentile: percentile.to_owned(),
        measured_us: us(own.ns),
        less_own_us: us(own.less_own_ns),
    });
    own.collect()
}

/// What the generator's absences did to the figures.
fn away(part: &Part, own: &[OwnPercentile]) -> Option<Warning> {
    let share = part.http.away.total_s
        / (part.elapsed_ns.max(1) as f64 / 1e9)
        / f64::from(part.http.cpu.threads.max(1));
    let of_response = own.iter().filter(|own| own.times == RESPONSE_TIME);
    let names: Vec<&str> = of_response.map(|own| own.percentile.as_str()).collect();
    (share > AWAY_SHARE || !names.is_empty()).then(|| {
        let figures = match names.len() {
            0 => "no percentile of the response time is changed by that".to_owned(),
            _ => format!(
                "the response time's {} (in brackets) may be the generator's own and says nothing about the target",
                names.join(", ")
            ),
        };
        Warning::new("generator_away", format!("{}; {figures}", validity::absences(&part.http.away)))
    })
}

fn warnings(plan: &HttpPlan, part: &Part, own: &[OwnPercentile]) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let counts = &part.http.counts;
    if part.http.counts.never_sent_busy > 0 || (plan.load.is_open() && pool::is_short(plan, part)) {
        warnings.push(Warning::new("connections_busy", still_waiting(plan, part)));
    }
    for why in &part.lost_receipts {
        let message =
            format!("{why}; what became of that worker's events is lost, and an audit can conclude nothing");
        warnings.push(Warning::new("receipts_lost", message));
    }
    let censored = part.http.response_time.censored.count();
    if censored > 0 {
        warnings.push(Warning::new(
            "censored",
            format!(
                "{censored} response times are only known to be at least as long as they were watched (timeouts, in \
                 flight, still waiting); percentiles they may raise are shown with ≥"
            ),
        ));
    }
    if counts.completed > 0 && counts.completed < 1_000 {
        let p99 = if counts.completed < 100 { "p90 and above rest" } else { "p99 and above rest" };
        warnings.push(Warning::new(
            "few_samples",
            format!("{} response times: {p99} on a handful of them", counts.completed),
        ));
    }
    if counts.reconnects > counts.completed / 10 && plan.keepalive && counts.reconnects > 10 {
        warnings.push(Warning::new(
            "reconnects",
            format!(
                "the target closed kept connections {} times; what was measured is partly connection set-up \
                 (nginx: keepalive_requests)",
                counts.reconnects
            ),
        ));
    }
    if plan.decides.is_some() && validity::is_decided_by_refusals(plan, part) {
        warnings.push(Warning::new(
            "decided_by_refusals",
            "the target refused more than any goal allows, which decides; its times and its throughput are not to be used if \
             the generator was late or busy"
                .to_owned(),
        ));
    }
    warnings.extend(away(part, own));
    if let Some(share) = validity::waited_share(part).filter(|share| *share > validity::SHARED_SHARE) {
        warnings.push(Warning::new(
            "processor_shared",
            format!(
                "the generator's threads waited for a processor {:.0} % of the time: something else ran there; give them \
                 processors of their own with --cpus",
                share * 100.0
            ),
        ));
    }
    warnings
}

/// A SYN that a full accept queue dropped is sent again after a second: no connection is otherwise made so late.
const SYN_RETRY_NS: u64 = 1_000_000_000;

/// What requests waited for that were still waiting at the end.
fn still_waiting(plan: &HttpPlan, part: &Part) -> String {
    let counts = &part.http.counts;
    let (planned, peak) = (plan.connections(), counts.connections_peak);
    let waiting = match counts.waited_busy {
        0 => format!("{} requests were still waiting at the end", show_count(counts.never_sent_busy)),
        waited => format!(
            "{} requests waited for a connection, {} of them to the end",
            show_count(waited + counts.never_sent_busy),
            show_count(counts.never_sent_busy)
        ),
    };
    if peak < planned {
        let failed = part.http.errors.connect_failures()
            + part.http.retried_errors.connect_failures()
            + part.http.connection_errors.connect_failures();
        let retried = part.http.connect_time.count() == 0 || part.http.connect_time.max_ns() >= SYN_RETRY_NS;
        let why = match (failed, retried) {
            (0, false) => String::new(),
            (0, true) => {
                ": its accept queue was full, or nothing answers there (SYNs are sent again after 1, 3, 7 s)"
                    .to_owned()
            }
            (failed, _) => format!("; {} could not be made", show_count(failed)),
        };
        return format!(
            "{waiting}: of {} connections the target had let {} come about at the most{why}",
            show_count(planned),
            show_count(peak)
        );
    }
    let service_s = part.http.service_time.observed.mean_ns() / 1e9;
    let bound = if service_s > 0.0 {
        format!(
            ": at a mean service time of {:.1} ms they carry at most {:.0} requests/s (Little's law)",
            service_s * 1e3,
            planned as f64 * f64::from(plan.pipeline) / service_s
        )
    } else {
        String::new()
    };
    format!(
        "{waiting}, because all {} connections were busy{bound}. Whether the target could do more takes more --connections \
         to tell",
        show_count(planned)
    )
}

#[cfg(test)]
mod tests {
    use record::ErrorClass;

    use super::*;
    use crate::testing;

    fn told(plan: HttpPlan, part: Part) -> Vec<(String, String)> {
        let circumstances = Circumstances {
            started_unix_s: 0.0,
            command: Vec::new(),
            version: String::new(),
            series: Vec::new(),
        };
        let trial = conclude(plan, part, circumstances);
        trial.warnings.into_iter().map(|warning| (warning.code, warning.message)).collect()
    }

    fn says(told: &[(String, String)], code: &str, words: &str) {
        assert!(told.iter().any(|(own, message)| own == code && message.contains(words)), "{told:#?}");
    }

    #[test]
    fn answers_that_were_not_expected_are_answers() {
        let mut part = Part::default();
        part.http.counts.failed = 100;
        part.http.errors.add(ErrorClass::Status, 100);
        part.http.statuses.insert(200, 100);
        let plan = HttpPlan { expect: "204".parse().unwrap(), ..testing::closed(4) };
        says(&told(plan, part), "nothing_completed", "answered 200, not 204 (--expect)");
    }

    #[test]
    fn connections_that_never_came_about_were_not_busy() {
        let mut part = Part::default();
        part.http.counts.never_sent_busy = 9_000;
        part.http.counts.never_sent = 9_000;
        part.http.counts.connections_peak = 129;
        part.http.counts.connections_opened = 129;
        part.http.counts.completed = 1_000;
        part.http.connect_time.record_n_ns(1_010_000_000, 129);
        let told = told(testing::open(1_000.0, 10_000, 10_000), part);
        says(
            &told,
            "connections_busy",
            "of 10,000 connections the target had let 129 come about at the most",
        );
        says(&told, "connections_busy", "its accept queue was full");
        assert!(!told.iter().any(|(_, message)| message.contains("were busy")), "{told:#?}");
    }

    #[test]
    fn refused_connections_are_told_as_such() {
        let mut part = Part::default();
        part.http.counts.failed = 100;
        part.http.counts.failed_unsent = 100;
        part.http.errors.add(ErrorClass::ConnectRefused, 100);
        says(&told(testing::closed(4), part), "nothing_completed", "nothing listens at");
    }
}
