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
    assert_eq!(rules_after(trial(11, 5, &[Late]), &goals, false), [Late], "not met, perhaps because of it");
    assert_eq!(rules_after(trial(11, 5, &[]), &goals, false), [Late], "though no percentile was changed");
    assert_eq!(rules_after(trial(9, 8, &[Late]), &[], false), [Late], "nothing was asked");
    assert_eq!(rules_after(trial(9, 8, &[Late]), &errors, false), [], "no error in spite of it");
    let mut refused = trial(9, 8, &[Late]);
    refused.http_mut().unwrap().counts.failed = 1;
    assert_eq!(rules_after(refused, &errors, false), [Late], "perhaps by requests in bursts");
    let mut told = trial(9, 8, &[Late]);
    judge_lateness(&mut told, None, &errors, &[None]);
    assert_eq!(told.warnings[0].message, "no goal bounds a time, so the trial counts, but the generator");
    assert_eq!(rules_after(trial(9, 8, &[Late, CpuExhausted]), &goals, false), [Late, CpuExhausted]);
    assert_eq!(rules_after(trial(9, 8, &[Late, ProcessorShared]), &goals, false), [], "the same cause");
    assert_eq!(rules_after(trial(9, 0, &[ProcessorShared]), &errors, false), [], "no error in spite of it");
    assert_eq!(rules_after(trial(11, 0, &[ProcessorShared]), &goals, false), [ProcessorShared], "not met");
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
    assert!(evidence_of(Away::default()).contains("misses it, but the generator sent late, which may be"));
}

#[test]
fn growth_counts_against_the_target_unless_absences_may_explain_it() {
    let goals = [Goal::response_time(0.99, 10_000_000)];
    assert_eq!(rules_after(trial(9, 0, &[]), &goals, true), []);
    assert_eq!(rules_after(trial(9, 5, &[]), &goals, true), [VoidRule::Late]);
    let more_than_that = Growth { per_s: 0.01, may_be_own: false };
    assert_eq!(rules_after_growth(trial(9, 5, &[]), &goals, Some(more_than_that)), []);
}
