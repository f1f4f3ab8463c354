//! How a load ended, beside the target's own log.

use std::collections::BTreeSet;

use anyhow::Result;
use record::{Counts, Histogram, HttpTrial, Validity, VoidRule};

use super::site::{MACHINES, machine_ip};
use crate::{
    held_target::Received,
    process::Finished,
    proofload::{is_crowded, parse_trial},
};

/// How a load ended, and what is wrong with that.
#[derive(Debug, Default)]
pub(super) struct Judged {
    /// In words.
    pub(super) end: String,
    pub(super) is_valid: bool,
    /// Whether all that was planned was sent and answered, whether or not in time.
    pub(super) is_complete: bool,
    /// Whether there is no trial.
    pub(super) is_refused: bool,
    /// The machines of the trial, and those of them that were lost.
    pub(super) machines: Vec<String>,
    pub(super) lost: Vec<String>,
    pub(super) wrong: Vec<String>,
}

/// Requests that the target received twice, by their numbers in the path.
pub(super) fn twice(received: &[Received]) -> Vec<String> {
    let mut known = BTreeSet::new();
    let again: Vec<&str> =
        received.iter().map(Received::path).filter(|path| !known.insert(path.to_owned())).collect();
    if again.is_empty() { Vec::new() } else { vec![format!("sent twice: {again:?}")] }
}

/// Judges a load whose trial is its standard output.
pub(super) fn of_load(finished: &Finished, received: &[Received]) -> Result<Judged> {
    if finished.stdout.starts_with('{') {
        let trial = parse_trial(&finished.stdout)?;
        let mut judged = of_trial(&trial, &trial.validity, received);
        let codes: &[i32] = if judged.is_valid { &[0, 1] } else { &[3, 2] };
        if finished.code.is_none_or(|code| !codes.contains(&code)) {
            judged.wrong.push(format!("exit status {:?} of a trial that is {}", finished.code, judged.end));
        }
        judged.wrong.extend(twice(received));
        return Ok(judged);
    }
    let said = finished.stderr.trim();
    let last = said.lines().last().unwrap_or_default();
    let mut judged = Judged { end: format!("refused: {last}"), is_refused: true, ..Judged::default() };
    if finished.code != Some(2) {
        judged.wrong.push(format!("exit status {:?} without a trial: {said}", finished.code));
    }
    if !MACHINES.iter().chain(&["broker", "nats://"]).any(|name| said.contains(name)) {
        judged.wrong.push(format!("neither a machine nor the broker is named: {said}"));
    }
    if !received.is_empty() {
        judged.wrong.push(format!("refused after {} requests: {said}", received.len()));
    }
    Ok(judged)
}

/// Judges a trial by what the target received in it.
pub(super) fn of_trial(http: &HttpTrial, validity: &Validity, received: &[Received]) -> Judged {
    let machines: Vec<String> = http.machines.iter().map(|machine| machine.name.clone()).collect();
    let lost = http.machines.iter().filter(|machine| machine.lost.is_some());
    let lost: Vec<String> = lost.map(|machine| machine.name.clone()).collect();
    let is_valid = !validity.is_void();
    let mut wrong = Vec::new();
    if machines.iter().collect::<BTreeSet<_>>().len() != machines.len() {
        wrong.push(format!("a machine's result is there twice: {machines:?}"));
    }
    wrong.extend(not_their_sum(http));

    // Before its first trial, a study looks whether the target answers: by a request like any other.
    let seen = |name: &str| {
        let own = received.iter().filter(|request| request.from == machine_ip(name));
        own.map(Received::path).collect::<BTreeSet<_>>().len() as u64
    };
    for name in MACHINES.iter().filter(|name| machines.iter().all(|known| known != *name)) {
        if seen(name) > 0 {
            wrong.push(format!("{name} sent {} requests and is not in the trial", seen(name)));
        }
    }
    for machine in &http.machines {
        let (counts, seen) = (&machine.counts, seen(&machine.name));
        let Counts { scheduled, sent, completed, failed, in_flight, never_sent, .. } = *counts;
        let told = || {
            format!(
                "{}: {completed} of {sent} sent completed, {failed} failed; {seen} received",
                machine.name
            )
        };
        if completed > seen {
            wrong.push(format!("more is counted than was received: {}", told()));
        }
        if machine.lost.is_none() && seen > sent {
            wrong.push(format!("more was received than is counted: {}", told()));
        }
        let is_plain = failed == 0 && in_flight == 0 && never_sent == 0;
        if is_valid && is_plain && [scheduled, sent, completed] != [seen; 3] {
            wrong.push(format!("valid, and not what was received: {} of {scheduled}", told()));
        }
    }
    let counts = &http.counts;
    let is_complete = lost.is_empty()
        && (is_valid || is_crowded(validity))
        && counts.completed == counts.scheduled
        && counts.completed == MACHINES.iter().map(|name| seen(name)).sum::<u64>();

    let reasons: Vec<String> = validity
        .reasons()
        .iter()
        .map(|reason| format!("{}: {}", reason.rule.words(), reason.evidence))
        .collect();
    let reasons = reasons.join("; ");
    let of_loss = validity.reasons().iter().find(|reason| reason.rule == VoidRule::WorkerLost);
    let is_named = |name: &String| of_loss.is_some_and(|reason| reason.evidence.contains(name.as_str()));
    if is_valid && !lost.is_empty() {
        wrong.push(format!("valid, and {lost:?} were lost"));
    }
    if !is_valid && !lost.iter().all(is_named) {
        wrong.push(format!("not all of {lost:?} are named: {reasons}"));
    }
    if !is_valid && lost.is_empty() && !is_crowded(validity) {
        wrong.push(format!("void, and no machine is lost: {reasons}"));
    }
    let sum = format!("{} of {} completed by {}", counts.completed, counts.scheduled, machines.join(","));
    let end = if is_valid { format!("valid, {sum}") } else { format!("void, {sum} ({reasons})") };
    Judged { end, is_valid, is_complete, is_refused: false, machines, lost, wrong }
}

/// Whether the trial is not what all its machines counted.
fn not_their_sum(http: &HttpTrial) -> Option<String> {
    let figures = |counts: &Counts| {
        let Counts { scheduled, sent, never_sent, completed, failed, in_flight, .. } = *counts;
        [scheduled, sent, never_sent, completed, failed, in_flight]
    };
    let (mut sums, mut union) = ([0_u64; 6], Histogram::empty());
    for machine in &http.machines {
        sums.iter_mut().zip(figures(&machine.counts)).for_each(|(sum, figure)| *sum += figure);
        union.merge(&machine.response_time);
    }
    let is_sum = sums == figures(&http.counts)
        && union == http.response_time.observed
        && union.count() == http.counts.completed;
    (!is_sum).then(|| format!("{sums:?} over all machines, and {:?} in all", http.counts))
}
