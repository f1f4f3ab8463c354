//! The answer of a single trial in one sentence.

use record::{
    ErrorClass, HttpTrial, LoadModel, Trial,
    percentile::{PERCENTILES, Percentile, usual},
};

use crate::{Status, text};

/// The status and sentence of a trial of requests without goals. The status is met if every planned request completed
/// as expected and no connection failed, except for unused connections of the pool, which the target may close.
pub fn trial_answer(trial: &Trial, http: &HttpTrial) -> (Status, String) {
    let counts = &http.counts;
    let unused = http.connection_errors.of(ErrorClass::ClosedUnused);
    let never_sent = counts.never_sent - counts.never_sent_own();
    let is_met =
        counts.failed + never_sent + counts.in_flight == 0 && http.connection_errors.total() == unused;
    // Requests that the generator did not send say nothing about the target.
    let status = if trial.validity.is_void() || is_met && counts.never_sent > 0 {
        Status::Void
    } else if is_met {
        Status::Met
    } else {
        Status::NotMet
    };
    let prefix = if trial.interrupted { "Interrupted: " } else { "" };
    let sentence = match (trial.validity.reasons(), counts.completed) {
        ([first, ..], _) => format!("Not decided: {}.", first.evidence),
        ([], 0) => {
            let why = trial.main_failure().unwrap_or_else(|| "no request was completed".to_owned());
            format!("Carried nothing: {why}.")
        }
        ([], _) => format!("Carried {}: {}, {}.", load(trial, http), times(http), failures(trial, http)),
    };
    (status, format!("{prefix}{sentence}"))
}

/// The load of a trial in words: `1,000 requests/s for 10 s`, `812 of 1,000 requests/s for 10 s`, `5,123 requests/s
/// with 100 users for 30 s`.
fn load(trial: &Trial, http: &HttpTrial) -> String {
    let duration = text::seconds(http.measured_s);
    let carried = http.throughput().in_words(text::rate);
    match &http.plan.load {
        LoadModel::Closed { users, .. } => {
            format!("{carried} requests/s with {} for {duration}", text::counted(*users as usize, "user"))
        }
        LoadModel::Open { .. } => {
            let sending_s = http.plan.sending_ns().map_or(http.measured_s, |ns| ns as f64 / 1e9);
            let sending_s =
                if trial.interrupted { sending_s.min(http.measured_s) } else { sending_s }.max(1e-9);
            let planned = |requests: u64| requests as f64 / sending_s;
            // A rate up to 1 % below the plan is not a shortfall, because a few requests may be unanswered at the end.
            // One request is subtracted because a fixed number of requests ends when the last one is sent, not an
            // interval later.
            let is_short = http.throughput_per_s < 0.99 * planned(http.counts.scheduled.saturating_sub(1));
            let rate = match is_short {
                true => format!("{carried} of {}", text::rate(planned(http.counts.scheduled))),
                false => carried,
            };
            format!("{rate} requests/s for {duration}")
        }
    }
}

fn times(http: &HttpTrial) -> String {
    // Prefer the highest percentile that is precise enough: with few requests, or many missing times, a high one may be
    // too vague.
    let told = |known: Percentile| (known.name, http.response_time.percentile(known.quantile));
    let clear = usual().rev().map(told).find(|(_, time)| !time.is_vague());
    let (name, time) = clear.unwrap_or_else(|| told(PERCENTILES[0]));
    format!("{name} {}", text::time(time))
}

/// The shares of requests that were not completed, and why; `no errors` if all were.
fn failures(trial: &Trial, http: &HttpTrial) -> String {
    let counts = &http.counts;
    let share = |n: u64| text::share(n as f64 / counts.scheduled.max(1) as f64);
    let kinds = [
        (counts.failed, "of the requests failed"),
        (counts.never_sent, "never sent"),
        (counts.in_flight, "unanswered at the end"),
    ];
    let parts = kinds.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{} {what}", share(n)));
    let mut parts: Vec<String> = parts.collect();
    let connections = http.connection_errors.total() - http.connection_errors.of(ErrorClass::ClosedUnused);
    if connections > 0 {
        parts.push(format!("{} failed", text::counted(connections as usize, "connection")));
    }
    let why = (counts.failed + connections > 0).then(|| trial.main_failure()).flatten();
    match (parts.is_empty(), why) {
        (true, _) => "no errors".to_owned(),
        (false, Some(why)) => format!("{} ({why})", parts.join(", ")),
        (false, None) => parts.join(", "),
    }
}
