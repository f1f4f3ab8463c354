//! Decides whether a trial is valid, and computes the share of it that is lost to each goal.

use load::{DECIDED_BY_REFUSALS, soundness_in_words};
use record::{
    AuditResult, Goal, GoalQuantity, HttpTrial, Measured, Trial, Validity, VoidReason, VoidRule, Warning,
    quantity::of_trial, study::UNDECIDED,
};

use crate::{
    growth::{Growth, backlog_of, growth_of},
    observer::Observation,
    sending::is_sent_late,
};

/// The judgement of a trial by its goals.
#[derive(Debug)]
pub(crate) struct Judgement {
    /// Share of the trial that is lost to each goal (0 to 1); the worst case if the share is uncertain.
    pub loss_ratios: Vec<f64>,
    /// Growth of the median response time, in seconds per second, if it is large enough to miss a goal.
    pub growth_per_s: Option<f64>,
    /// Indices of the goals that a valid trial leaves undecided.
    pub undecided: Vec<usize>,
}

/// Smallest growth of response times, in seconds per second, that counts in an exploratory trial. An overload by 10 % causes this growth.
/// Smaller growth may be noise: the intervals of such a trial are tenths of a second, and their medians follow the queue of a noisy target.
const STEEP_GROWTH: f64 = 0.1;

/// The warning that a link stalled while programs used it.
const LINK_STALLED: &str = "link_stalled";

/// Judges a trial by its measurements, its goals and the reports of the observers, and sets its validity. In a trial that
/// `explores`, only [steep](STEEP_GROWTH) growth counts.
pub(crate) fn judge(trial: &mut Trial, observed: &Observation, goals: &[Goal], explores: bool) -> Judgement {
    let audit = observed.audit.as_ref();
    // A link's stall can delay any number of requests, because many more requests queue behind it. Programs only become slower.
    let is_of_programs = match &mut trial.measured {
        Measured::Http(_) => {
            add_void_reasons(trial, &observed.stalls);
            false
        }
        Measured::Command(command) => {
            command.stalled = (!observed.stalls.is_empty()).then_some(observed.stall);
            command.stalled.is_some()
        }
    };
    let growth: Vec<Option<Growth>> = match &trial.measured {
        Measured::Http(http) => {
            let is_coarse = explores && http.plan.interval_ns() < 1_000_000_000;
            let steep = |growth: Option<Growth>| growth.filter(|growth| growth.per_s >= STEEP_GROWTH);
            let of_goal = |goal: &Goal| match growth_of(http, &goal.quantity) {
                growth if !is_coarse => growth,
                growth => steep(growth).or_else(|| steep(backlog_of(http, &goal.quantity))),
            };
            goals.iter().map(of_goal).collect()
        }
        _ => vec![None; goals.len()],
    };
    let undecided = judge_goals(trial, observed, goals, &growth);
    add_void_reasons(trial, &observed.void_reasons);
    let undecided = if trial.validity.is_void() { Vec::new() } else { undecided };
    if is_of_programs && !trial.validity.is_void() {
        let stalls: Vec<&str> = observed.stalls.iter().map(|reason| &*reason.evidence).collect();
        let words =
            format!("{}; true rates may be higher than shown, and true times shorter", stalls.join("; "));
        trial.warnings.push(Warning::new(LINK_STALLED, words));
    }
    if !undecided.is_empty() {
        let words = undecided_in_words(trial, audit, goals, &growth, &undecided);
        trial.warnings.push(Warning::new(UNDECIDED, words));
    }
    // A growing response time means that the target does not carry the load, even if few answers were late in the trial itself.
    let loss_ratios = goals.iter().zip(&growth).map(|(goal, growth)| match growth {
        Some(_) => 1.0,
        None => goal.loss_ratio_of(trial, audit),
    });
    Judgement {
        loss_ratios: loss_ratios.collect(),
        growth_per_s: growth.iter().flatten().map(|growth| growth.per_s).reduce(f64::max),
        undecided,
    }
}

fn add_void_reasons(trial: &mut Trial, more: &[VoidReason]) {
    let mut reasons = trial.validity.reasons().to_vec();
    reasons.extend_from_slice(more);
    trial.validity = Validity::from_reasons(reasons);
}

/// Judges a trial by its goals, and returns the indices of the goals that it leaves undecided.
///
/// The target's own figures lie between the measured figures and those without the generator's share. A goal is met if the worst case meets
/// it, missed if the best case misses it, and otherwise undecided. The trial is void only if every goal is undecided and each bounded
/// figure is uncertain. A shared processor or a stalled link is accepted only if all goals were met. `growth` is the growth of response
/// times for each goal; absences of the generator may have caused it.
fn judge_goals(
    trial: &mut Trial,
    observed: &Observation,
    goals: &[Goal],
    growth: &[Option<Growth>],
) -> Vec<usize> {
    if goals.is_empty() {
        return Vec::new();
    }
    let audit = observed.audit.as_ref();
    let may_grow_alone = trial.http().is_some_and(has_lengthened);
    // Users who wait for the generator put less load on the target than planned, so the trial decides nothing about the planned load.
    let is_exhausted =
        trial.http().is_some_and(HttpTrial::is_exhausted) && trial.told(DECIDED_BY_REFUSALS).is_none();
    // A load that was sent late is smaller than planned, so a goal that it met may be missed at the planned load.
    let is_sent_late = trial.http().is_some_and(is_sent_late);
    let is_met_by = |goal: &Goal| {
        let is_open = is_sent_late && goal.quantity.is_of_requests();
        goal.is_met_by(trial, audit).filter(|met| !(is_open && *met))
    };
    let verdict = |(goal, growth): (&Goal, &Option<Growth>)| match growth {
        _ if is_exhausted && goal.quantity.is_of_requests() => None,
        Some(growth) if growth.may_be_own && may_grow_alone => is_met_by(goal).filter(|met| !met),
        Some(_) => Some(false),
        None => is_met_by(goal),
    };
    let verdicts: Vec<Option<bool>> = goals.iter().zip(growth).map(verdict).collect();
    let undecided: Vec<usize> = (0..goals.len()).filter(|&goal| verdicts[goal].is_none()).collect();
    let is_met = verdicts.iter().all(|verdict| *verdict == Some(true));
    let mut reasons = trial.validity.reasons().to_vec();
    // The goals determine which figures matter, so they replace this rule.
    reasons.retain(|reason| reason.rule != VoidRule::Late);
    let unmeasured = undecided.iter().find_map(|&goal| match &goals[goal].quantity {
        GoalQuantity::Declared { quantity, .. }
            if !trial.quantities.contains_key(quantity) && of_trial(quantity, trial, audit).is_none() =>
        {
            Some((&goals[goal].name, quantity))
        }
        _ => None,
    });
    let is_forgiven =
        |reason: &VoidReason| is_met && matches!(reason.rule, VoidRule::Link | VoidRule::ProcessorShared);
    if let Some((goal, quantity)) = unmeasured {
        let evidence = format!(
            "it is unknown whether the goal '{goal}' was met: {quantity} could not be measured; the trial's warnings and \
             docs/command.md say why"
        );
        reasons.push(VoidReason { rule: VoidRule::Unmeasured, evidence });
    } else if undecided.len() == goals.len()
        && !is_exhausted
        && goals.iter().all(|goal| goal.bounded(trial, audit).is_vague())
    {
        if trial.command().is_some() {
            reasons.extend_from_slice(&observed.stalls);
        } else {
            let evidence = undecided_in_words(trial, audit, goals, growth, &undecided);
            reasons.push(VoidReason { rule: VoidRule::Late, evidence });
        }
    } else if reasons.iter().all(is_forgiven) {
        reasons.clear();
    }
    trial.validity = Validity::from_reasons(reasons);
    undecided
}

/// Words for the undecided goals and the reason: `'p99 ≤ 10 ms' is undecided (p99 8.20–12.1 ms): sound for 93 % of…`.
fn undecided_in_words(
    trial: &Trial,
    audit: Option<&AuditResult>,
    goals: &[Goal],
    growth: &[Option<Growth>],
    undecided: &[usize],
) -> String {
    let told = |&index: &usize| {
        let goal = &goals[index];
        let grew = if growth[index].is_some() { ", and times grew" } else { "" };
        format!("'{}' is undecided ({}{grew})", goal.name, goal.bounded_in_words(trial, audit))
    };
    let told: Vec<String> = undecided.iter().map(told).collect();
    let why = match trial.http() {
        Some(http) if http.is_exhausted() => "the generator's processor was used up".to_owned(),
        Some(http) if is_sent_late(http) => {
            format!("the generator sent the requests too late, {}", soundness_in_words(http, trial.elapsed_s))
        }
        Some(http) => soundness_in_words(http, trial.elapsed_s),
        None => return format!("{}: links stalled", told.join(", ")),
    };
    format!("{}: {why}; give the generator processors of its own (--cpus)", told.join(", "))
}

/// Whether the generator lengthened so many response times that the medians of single seconds may be wrong.
fn has_lengthened(http: &HttpTrial) -> bool {
    http.response_time.lengthened.count() * 100 > http.counts.scheduled
}

#[cfg(test)]
pub(crate) mod tests;
