//! Decides whether a trial is valid, and what share of it is lost to each goal.

use load::absences_in_words;
use record::{AuditResult, Goal, GoalQuantity, HttpTrial, Measured, Trial, Validity, VoidReason, VoidRule};

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
/// a trial that leaves a goal open is void. Lateness is forgiven only if one of the goals bounds response times, and
/// a shared processor or a late link only if all goals were met. In a trial of programs, a late link is forgiven only
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
            VoidRule::Late => is_timed,
            VoidRule::Link => is_met && is_in_spite,
            rule => rule == VoidRule::ProcessorShared && is_met,
        };
        if reasons.iter().all(is_forgiven) {
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
pub(crate) mod tests {
    use super::*;
    use record::{Away, CommandRun, CommandTrial};
    use testing::plans;

    /// A hundred requests with this response time, of which `own_ms` is the generator's share.
    pub(crate) fn trial(response_ms: u64, own_ms: u64, rules: &[VoidRule]) -> Trial {
        let mut http = HttpTrial { plan: plans::closed(1), ..HttpTrial::default() };
        http.counts.scheduled = 100;
        let ms = 1_000_000;
        (0..100).for_each(|_| http.response_time.record_ns(response_ms * ms, own_ms * ms));
        let reason = |&rule: &VoidRule| VoidReason { rule, evidence: "the generator".to_owned() };
        let validity = Validity::from_reasons(rules.iter().map(reason).collect());
        Trial { validity, ..plans::trial(http) }
    }

    /// A trial of one program that succeeded, in which these rules were broken.
    pub(crate) fn program(rules: &[VoidRule]) -> Trial {
        let run = CommandRun { succeeded: true, ..CommandRun::default() };
        let measured = CommandTrial { runs: vec![run], ..CommandTrial::default() };
        Trial { measured: Measured::Command(Box::new(measured)), ..trial(0, 0, rules) }
    }

    fn rules_after(trial: Trial, goals: &[Goal], grow: bool) -> Vec<VoidRule> {
        rules_after_growth(trial, goals, grow.then_some(Growth { per_s: 0.01, may_be_own: true }))
    }

    fn rules_after_growth(mut trial: Trial, goals: &[Goal], growth: Option<Growth>) -> Vec<VoidRule> {
        judge_lateness(&mut trial, None, goals, &[growth]);
        trial.validity.reasons().iter().map(|reason| reason.rule).collect()
    }

    #[test]
    fn lateness_voids_a_trial_only_if_it_may_have_changed_the_result() {
        use VoidRule::{Accounting, CpuExhausted, Late, ProcessorShared};
        let goals = [Goal::response_time(0.99, 10_000_000), Goal::errors(0.0)];
        let errors = [Goal::errors(0.0)];
        assert_eq!(rules_after(trial(9, 8, &[Late]), &goals, false), [], "met in spite of it");
        assert_eq!(rules_after(trial(90, 20, &[Late]), &goals, false), [], "not met without it either");
        assert_eq!(
            rules_after(trial(11, 5, &[Late]), &goals, false),
            [Late],
            "not met, perhaps because of it"
        );
        assert_eq!(rules_after(trial(11, 5, &[]), &goals, false), [Late], "though no percentile was changed");
        assert_eq!(rules_after(trial(9, 8, &[Late]), &[], false), [Late], "nothing was asked");
        assert_eq!(rules_after(trial(9, 8, &[Late]), &errors, false), [Late], "no time was asked about");
        assert_eq!(rules_after(trial(9, 8, &[Late, CpuExhausted]), &goals, false), [Late, CpuExhausted]);
        assert_eq!(rules_after(trial(9, 8, &[Late, ProcessorShared]), &goals, false), [], "the same cause");
        assert_eq!(
            rules_after(trial(9, 0, &[ProcessorShared]), &errors, false),
            [],
            "no error in spite of it"
        );
        assert_eq!(
            rules_after(trial(11, 0, &[ProcessorShared]), &goals, false),
            [ProcessorShared],
            "not met"
        );
        assert_eq!(rules_after(trial(9, 0, &[Accounting]), &goals, false), [Accounting], "something else");
    }

    #[test]
    fn a_late_link_is_forgiven_only_if_a_goal_bounds_what_was_measured() {
        use VoidRule::Link;
        let errors = Goal::errors(0.0);
        let bound = |name: &str, at_least, at_most| {
            let quantity = GoalQuantity::Declared { quantity: name.to_owned(), at_least, at_most };
            Goal { name: name.to_owned(), quantity, loss_ratio: 0.0 }
        };
        let rate = |at_least| bound("goodput_bit_per_s", Some(at_least), None);
        let rules = |goals: &[Goal]| {
            let mut trial = program(&[Link]);
            for name in ["goodput_bit_per_s", "wall_s", "user_s", "peak_memory_bytes"] {
                trial.quantities.insert(name.to_owned(), 5.0);
            }
            rules_after(trial, goals, false)
        };
        assert_eq!(rules(&[bound("wall_s", None, Some(6.0))]), [], "short enough in spite of it");
        for eased in ["goodput_bit_per_s", "user_s", "peak_memory_bytes"] {
            let goals = [rate(4.0), bound(eased, None, Some(6.0))];
            assert_eq!(rules(&goals), [Link], "{eased}: perhaps thanks to it");
        }
        assert_eq!(rules(std::slice::from_ref(&errors)), [Link], "the rate that is shown may be the link's");
        assert_eq!(rules(&[errors.clone(), rate(4.0)]), [], "fast enough in spite of it");
        assert_eq!(rules(&[errors.clone(), rate(6.0)]), [Link], "too slow, perhaps because of it");
        assert_eq!(rules_after(trial(9, 0, &[Link]), &[errors], false), [], "no error in spite of it");
    }

    #[test]
    fn the_reason_says_how_the_generator_was_late() {
        let evidence_of = |away: Away| {
            let mut trial = trial(11, 5, &[]);
            trial.http_mut().unwrap().away = away;
            judge_lateness(&mut trial, None, &[Goal::response_time(0.99, 10_000_000)], &[None]);
            trial.validity.reasons()[0].evidence.clone()
        };
        let once = Away { times: 1, total_s: 0.005, longest_s: 0.005 };
        assert!(evidence_of(once).contains("misses it, but the generator stalled for 5.00 ms, which may be"));
        assert!(
            evidence_of(Away::default()).contains("misses it, but the generator sent late, which may be")
        );
    }

    #[test]
    fn growth_counts_against_the_target_unless_absences_may_explain_it() {
        let goals = [Goal::response_time(0.99, 10_000_000)];
        assert_eq!(rules_after(trial(9, 0, &[]), &goals, true), []);
        assert_eq!(rules_after(trial(9, 5, &[]), &goals, true), [VoidRule::Late]);
        let more_than_that = Growth { per_s: 0.01, may_be_own: false };
        assert_eq!(rules_after_growth(trial(9, 5, &[]), &goals, Some(more_than_that)), []);
    }
}
