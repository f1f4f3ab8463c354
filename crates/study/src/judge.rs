//! Decides whether a trial is valid, and what share of it is lost to each goal.

use load::absences_in_words;
use record::{
    AuditResult, Goal, GoalQuantity, HttpTrial, Measured, Trial, Validity, VoidReason, VoidRule, Warning,
};

use crate::{
    growth::{Growth, growth_of},
    kernels::is_processor_time,
    observer::Observation,
};

/// What a trial means for its goals.
#[derive(Debug)]
pub(crate) struct Judgement {
    /// Share of the trial that is lost to each goal (0 to 1).
    pub loss_ratios: Vec<f64>,
    /// Growth of the median response time in seconds per second, if it is large enough to miss a goal.
    pub growth_per_s: Option<f64>,
}

/// Judges a trial by its measurements, its goals and what the observers report, and sets its validity. In a trial
/// that `explores`, growth is not looked for in bins shorter than a second: they follow the queue of a noisy target.
pub(crate) fn judge(trial: &mut Trial, observed: &Observation, goals: &[Goal], explores: bool) -> Judgement {
    let audit = observed.audit.as_ref();
    add_void_reasons(trial, &observed.void_unless_met);
    let growth: Vec<Option<Growth>> = match &trial.measured {
        Measured::Http(http) if http.plan.interval_ns() >= 1_000_000_000 || !explores => {
            goals.iter().map(|goal| growth_of(http, &goal.quantity)).collect()
        }
        _ => vec![None; goals.len()],
    };
    judge_lateness(trial, audit, goals, &growth);
    add_void_reasons(trial, &observed.void_reasons);
    // A growing backlog means that the load is not carried, however few answers were late in the trial itself.
    let loss_ratios = goals.iter().zip(&growth).map(|(goal, growth)| match growth {
        Some(_) => 1.0,
        None => goal.loss_ratio_of(trial, audit),
    });
    Judgement {
        loss_ratios: loss_ratios.collect(),
        growth_per_s: growth.iter().flatten().map(|growth| growth.per_s).reduce(f64::max),
    }
}

fn add_void_reasons(trial: &mut Trial, more: &[VoidReason]) {
    let mut reasons = trial.validity.reasons().to_vec();
    reasons.extend_from_slice(more);
    trial.validity = Validity::from_reasons(reasons);
}

/// Judges the generator's lateness by the goals. Other reasons for a void trial stay.
///
/// The target's true times lie between the measured times and these times minus the generator's share. A goal is
/// decided if both meet it or both miss it. A trial that decides every goal is valid however late the generator was;
/// a trial that leaves a goal open is void. Where no goal bounds response times, lateness is forgiven only if all goals were met,
/// since requests in bursts are harder to serve and not easier; a warning tells of the times then. A shared processor or a late link
/// is forgiven only if all goals were met. In a trial of programs, a late link is forgiven only
/// if all bounds of quantities are [harder to meet](is_harder_over_late_link) over it. `growth` holds the growth of
/// response times by goal, which absences of the generator may have caused.
fn judge_lateness(trial: &mut Trial, audit: Option<&AuditResult>, goals: &[Goal], growth: &[Option<Growth>]) {
    if goals.is_empty() {
        return;
    }
    let verdicts: Vec<Option<bool>> = goals.iter().map(|goal| goal.is_met_by(trial, audit)).collect();
    let is_timed = goals.iter().any(|goal| matches!(goal.quantity, GoalQuantity::ResponseTime { .. }));
    let mut bounds =
        goals.iter().filter(|goal| matches!(goal.quantity, GoalQuantity::Declared { .. })).peekable();
    let is_in_spite = trial.http().is_some()
        || bounds.peek().is_some() && bounds.all(|goal| is_harder_over_late_link(&goal.quantity));
    let is_met = verdicts.iter().all(|verdict| *verdict == Some(true)) && growth.iter().all(Option::is_none);
    let undecided = goals.iter().zip(&verdicts).find(|(_, verdict)| verdict.is_none()).map(|(goal, _)| goal);
    let mut reasons = trial.validity.reasons().to_vec();
    if let Some((goal, GoalQuantity::Declared { quantity, .. })) =
        undecided.map(|goal| (goal, &goal.quantity))
    {
        let evidence = format!(
            "whether the goal '{}' was met is not known: {quantity} could not be measured; the trial's warnings and \
             docs/command.md say when it can be",
            goal.name
        );
        reasons.push(VoidReason { rule: VoidRule::Unmeasured, evidence });
    } else if let Some(goal) = undecided {
        let evidence = format!(
            "the goal '{}' is undecided: the measured value misses it, but {}, which may be the whole difference; give the \
             generator processors of its own (--cpus)",
            goal.name,
            trial.http().map_or_else(String::new, |http| absences_in_words(&http.away))
        );
        reasons.retain(|reason| reason.rule != VoidRule::Late);
        reasons.push(VoidReason { rule: VoidRule::Late, evidence });
    } else if !growth.iter().flatten().any(|growth| growth.may_be_own)
        || !trial.http().is_some_and(has_lengthened)
    {
        let is_forgiven = |reason: &VoidReason| match reason.rule {
            VoidRule::Late => is_timed || is_met,
            VoidRule::Link => is_met && is_in_spite,
            rule => rule == VoidRule::ProcessorShared && is_met,
        };
        if reasons.iter().all(is_forgiven) {
            let late = reasons.iter().find(|reason| reason.rule == VoidRule::Late && !is_timed);
            let message = |reason: &VoidReason| {
                format!("no goal bounds a time, so the trial counts, but {}", reason.evidence)
            };
            trial.warnings.extend(late.map(|reason| Warning::new("late", message(reason))));
            reasons.clear();
        }
    } else if reasons.is_empty() {
        let evidence = "response times grew, and the generator's own absences may have made them grow; give it processors \
                        of its own (--cpus)";
        reasons.push(VoidReason { rule: VoidRule::Late, evidence: evidence.to_owned() });
    }
    trial.validity = Validity::from_reasons(reasons);
}

/// Whether a bound of programs' quantities is harder to meet over a link that is late: a least rate, or a longest time.
/// Such a link may keep other quantities low. With a goal on errors alone, the rate that is shown may be its doing.
fn is_harder_over_late_link(quantity: &GoalQuantity) -> bool {
    let GoalQuantity::Declared { quantity, at_least, at_most } = quantity else { return false };
    let is_rate = quantity.ends_with("_per_s");
    let is_processor = is_processor_time(quantity) || ["user_s", "system_s"].contains(&quantity.as_str());
    let is_time = quantity.ends_with("_s") && !is_rate && !is_processor;
    is_rate && at_least.is_some() && at_most.is_none() || is_time && at_most.is_some() && at_least.is_none()
}

/// Whether the generator lengthened enough response times to move the medians of single seconds.
fn has_lengthened(http: &HttpTrial) -> bool {
    http.response_time.lengthened.count() * 100 > http.counts.scheduled
}

#[cfg(test)]
pub(crate) mod tests;
