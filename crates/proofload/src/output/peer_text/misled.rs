//! Facts about a trial that another load generator would not report, one line each.

use record::{
    Cause, ErrorClass, HttpTrial, LoadModel, Trial, Validity,
    units::{show_count, show_rate, show_time_ns},
};

/// Minimum ratio of requests hidden by a stall to completed requests; smaller stalls are not reported.
const HIDDEN_SHARE: f64 = 0.01;

/// Returns the lines; `program` is the other load generator's name.
pub(super) fn lines(trial: &Trial, http: &HttpTrial, program: &str) -> Vec<String> {
    let mut lines = Vec::new();
    match &trial.validity {
        Validity::Void { reasons } => {
            lines.push(format!(
                "VOID: nothing may be concluded; {program} would show the figures without this warning"
            ));
            // The output already starts with the first reason.
            lines.extend(reasons.iter().skip(1).map(|reason| reason.evidence.clone()));
        }
        Validity::Valid
            if trial.verdict.as_ref().and_then(|verdict| verdict.first_cause()) == Some(Cause::Generator) =>
        {
            let raised_by = Cause::Generator.raised_by();
            lines.push(format!("the generator was the limit, not the target; to see more, {raised_by}"));
        }
        Validity::Valid => {}
    }
    match http.plan.load {
        LoadModel::Open { .. } => lines.extend(missed_rate(http)),
        LoadModel::Closed { users, .. } => lines.extend(hidden_requests(http, users, program)),
    }
    let counts = &http.counts;
    if counts.connections_unopened > 0 {
        let n = show_count(counts.connections_unopened);
        lines.push(format!("{n} connections could not be opened; their requests count as never sent"));
    }
    let unexpected = http.errors.of(ErrorClass::Status);
    if unexpected > 0 {
        let n = show_count(unexpected);
        lines.push(format!(
            "{n} answers had an unexpected status and count as failed; {program} counts them as completed"
        ));
    }
    if counts.in_flight > 0 {
        let n = show_count(counts.in_flight);
        lines.push(format!("{n} requests had no answer at the end; {program} leaves them out, here their times are lower limits (≥)"));
    }
    lines.extend(trial.warnings.iter().map(|warning| warning.message.clone()));
    lines
}

/// A line if the trial did not reach its planned rate.
fn missed_rate(http: &HttpTrial) -> Option<String> {
    let counts = &http.counts;
    let planned_s = http.plan.sending_ns()? as f64 / 1e9;
    let planned = counts.scheduled as f64 / planned_s.max(1e-9);
    (counts.completed < counts.scheduled && http.throughput_per_s < 0.99 * planned).then(|| {
        format!(
            "the rate was missed: {} of {} were carried, {} requests were never sent, {} of them because every connection was busy",
            show_rate(http.throughput_per_s),
            show_rate(planned),
            show_count(counts.never_sent),
            show_count(counts.never_sent_busy)
        )
    })
}

/// A line for the requests that a closed load leaves out (coordinated omission): those that would have been due
/// during its longest wait.
fn hidden_requests(http: &HttpTrial, users: u64, program: &str) -> Option<String> {
    // `least` excludes delay that the generator itself may have added.
    let longest = http.response_time.percentile(1.0).least;
    let due = longest / 1e9 * http.throughput_per_s;
    let is_hidden = due > 10.0 * users as f64 && due > HIDDEN_SHARE * http.counts.completed as f64;
    is_hidden.then(|| {
        format!(
            "coordinated omission: during the longest wait, {}, {} requests would have been due at this rate, but {program} \
             sends and times at most {}; to count them all, use proofload http --rate (or wrk2)",
            show_time_ns(longest as u64),
            show_count(due as u64),
            show_count(users)
        )
    })
}
