use super::*;
use record::{Away, CommandRun, CommandTrial, LinkStall};
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
    rules_after_growth(trial, goals, grow.then_some(Growth { per_s: 0.01, may_be_own: true })).0
}

/// The rules that a trial breaks, and the goals that it leaves undecided.
fn rules_after_growth(
    mut trial: Trial,
    goals: &[Goal],
    growth: Option<Growth>,
) -> (Vec<VoidRule>, Vec<usize>) {
    let undecided = judge_goals(&mut trial, &Observation::default(), goals, &vec![growth; goals.len()]);
    (trial.validity.reasons().iter().map(|reason| reason.rule).collect(), undecided)
}

fn judged(trial: Trial, goals: &[Goal]) -> (Vec<VoidRule>, Vec<usize>) {
    rules_after_growth(trial, goals, None)
}

/// Ten thousand requests of 2 ms. A tenth of them came during absences of the generator and took 12 ms, of which up to 10 ms is
/// its share.
fn disturbed(failed_in_bursts: u64) -> Trial {
    let mut trial = trial(2, 0, &[]);
    let http = trial.http_mut().unwrap();
    http.counts.scheduled = 10_000;
    (0..8_900).for_each(|_| http.response_time.record_ns(2_000_000, 0));
    (0..1_000 - failed_in_bursts).for_each(|_| http.response_time.record_ns(12_000_000, 10_000_000));
    (http.counts.failed, http.counts.lost_delayed) = (failed_in_bursts, failed_in_bursts);
    http.away = Away { times: 20, total_s: 1.0, longest_s: 0.01, delayed_s: None };
    trial
}

#[test]
fn a_goal_is_met_missed_or_undecided() {
    use VoidRule::Late;
    let p = Goal::response_time;
    assert_eq!(judged(disturbed(0), &[p(0.99, 12_500_000)]), (vec![], vec![]), "met though disturbed");
    assert_eq!(judged(disturbed(0), &[p(0.99, 1_000_000)]), (vec![], vec![]), "missed though disturbed");
    // p99 lies between 2 and 12 ms.
    assert_eq!(judged(disturbed(0), &[p(0.99, 10_000_000)]), (vec![Late], vec![0]), "it says too little");
    assert_eq!(judged(trial(11, 5, &[]), &[p(0.99, 10_000_000)]), (vec![], vec![0]), "within 6 and 11 ms");
    let two = [p(0.99, 10_000_000), p(0.5, 10_000_000)];
    assert_eq!(judged(disturbed(0), &two), (vec![], vec![0]), "the other goal is met");
    // Requests that failed in bursts cannot decide a goal alone.
    let errors = [Goal::errors(0.0)];
    assert_eq!(judged(disturbed(0), &errors), (vec![], vec![]), "no error in spite of it");
    assert_eq!(judged(disturbed(3), &errors), (vec![Late], vec![0]), "between none and three");
    assert_eq!(judged(disturbed(3), &[Goal::errors(0.0), p(0.5, 10_000_000)]), (vec![], vec![0]));
}

#[test]
fn a_stall_in_the_middle_decides_no_goal_below_it() {
    let mut stalled = trial(2, 0, &[]);
    let http = stalled.http_mut().unwrap();
    http.counts.scheduled = 1_000;
    (0..850).for_each(|_| http.response_time.record_ns(2_000_000, 0));
    (0..50).for_each(|_| http.response_time.record_ns(60_000_000, 55_000_000));
    let of = |goal: Goal| judged(stalled.clone(), &[goal]);
    assert_eq!(of(Goal::response_time(0.9, 3_000_000)), (vec![], vec![]), "p90 is the target's");
    assert_eq!(of(Goal::response_time(0.99, 4_000_000)), (vec![], vec![]), "5 ms without it either");
    assert_eq!(of(Goal::response_time(0.99, 70_000_000)), (vec![], vec![]));
    assert_eq!(of(Goal::response_time(0.99, 20_000_000)), (vec![VoidRule::Late], vec![0]), "5 to 60 ms");
}

#[test]
fn users_whom_the_generator_slows_decide_no_goal() {
    let exhausted = |warnings: Vec<Warning>| {
        let mut trial = trial(9, 0, &[]);
        let http = trial.http_mut().unwrap();
        (http.cpu.busiest_loop_ratio, http.measured_s, http.throughput_per_s) = (0.97, 10.0, 5_000.0);
        Trial { warnings, ..trial }
    };
    let goals = [Goal::response_time(0.99, 10_000_000), Goal::errors(0.0)];
    assert_eq!(judged(exhausted(vec![]), &goals), (vec![], vec![0, 1]), "neither met");
    let missed = [Goal::response_time(0.99, 8_000_000)];
    assert_eq!(judged(exhausted(vec![]), &missed), (vec![], vec![0]), "nor missed");
    let throughput = exhausted(vec![]).http().unwrap().throughput();
    assert!(throughput.at_least && throughput.value == 5_000.0, "{throughput:?}");
    let refused = exhausted(vec![Warning::new(DECIDED_BY_REFUSALS, "refused")]);
    assert_eq!(judged(refused, &goals), (vec![], vec![]), "the target itself refused");
}

#[test]
fn only_what_the_goals_need_is_judged() {
    use VoidRule::{Accounting, CpuExhausted, Late, ProcessorShared};
    let goals = [Goal::response_time(0.99, 10_000_000), Goal::errors(0.0)];
    let errors = [Goal::errors(0.0)];
    assert_eq!(rules_after(trial(9, 8, &[Late]), &goals, false), [], "met in spite of it");
    assert_eq!(rules_after(trial(90, 20, &[Late]), &goals, false), [], "not met without it either");
    assert_eq!(rules_after(trial(9, 8, &[Late]), &[], false), [Late], "nothing was asked");
    let mut refused = trial(9, 8, &[Late]);
    refused.http_mut().unwrap().counts.failed = 1;
    assert_eq!(judged(refused, &errors), (vec![], vec![]), "missed, for it did not fail in a burst");
    assert_eq!(rules_after(trial(9, 8, &[Late, CpuExhausted]), &goals, false), [CpuExhausted]);
    assert_eq!(rules_after(trial(9, 8, &[Late, ProcessorShared]), &goals, false), [], "the same cause");
    assert_eq!(rules_after(trial(9, 0, &[ProcessorShared]), &errors, false), [], "no error in spite of it");
    assert_eq!(rules_after(trial(11, 0, &[ProcessorShared]), &goals, false), [ProcessorShared], "not met");
    assert_eq!(rules_after(trial(9, 0, &[Accounting]), &goals, false), [Accounting], "something else");
}

#[test]
fn a_late_link_only_slows_programs_down() {
    use VoidRule::Link;
    let errors = Goal::errors(0.0);
    let bound = |name: &str, at_least, at_most| {
        let quantity = GoalQuantity::Declared { quantity: name.to_owned(), at_least, at_most };
        Goal { name: name.to_owned(), quantity, loss_ratio: 0.0 }
    };
    let rate = |at_least| bound("last_5_s_bit_per_s", Some(at_least), None);
    let judged = |goals: &[Goal]| {
        let mut trial = program(&[]);
        for name in ["last_5_s_bit_per_s", "wall_s", "user_s", "peak_memory_bytes"] {
            trial.quantities.insert(name.to_owned(), 5.0);
        }
        let late = VoidReason { rule: Link, evidence: "it stalled".to_owned() };
        let stall = LinkStall { total_s: 0.1, in_three_seconds_s: Some(0.1), rate_bits_per_s: Some(20.0) };
        let observed = Observation { stalls: vec![late], stall, ..Observation::default() };
        let judgement = judge(&mut trial, &observed, goals, false);
        let is_told = trial.told(LINK_STALLED).is_some();
        assert_ne!(is_told, trial.validity.is_void());
        (trial.validity.is_void(), judgement.undecided, trial.declared("last_5_s_bit_per_s").unwrap())
    };
    let is = |goals: &[Goal], void: bool, undecided: &[usize]| {
        let (is_void, are_undecided, goodput) = judged(goals);
        assert_eq!((is_void, &are_undecided[..]), (void, undecided), "{goals:?}");
        // The backlog of 2 bits arrived in the 5 s over which its rate was measured.
        assert_eq!((goodput.at_least, goodput.least), (true, 4.6));
    };
    is(&[], false, &[]);
    is(&[bound("wall_s", None, Some(6.0))], false, &[]);
    is(&[bound("wall_s", None, Some(4.0))], true, &[]);
    for eased in ["last_5_s_bit_per_s", "user_s", "peak_memory_bytes"] {
        is(&[rate(4.0), bound(eased, None, Some(6.0))], false, &[1]);
    }
    is(&[bound("last_5_s_bit_per_s", None, Some(4.0))], false, &[]);
    is(std::slice::from_ref(&errors), false, &[]);
    is(&[errors.clone(), rate(4.5)], false, &[]);
    is(&[errors.clone(), rate(4.7)], false, &[1]);
    is(&[rate(6.0)], true, &[]);
    let http = rules_after(trial(9, 0, &[Link]), &[errors], false);
    assert_eq!(http, [], "requests: no error in spite of it");
}

#[test]
fn a_warning_says_which_goals_are_undecided_and_why() {
    let told = |away: Away| {
        let mut trial = trial(11, 5, &[]);
        trial.http_mut().unwrap().away = away;
        trial.elapsed_s = 1.0;
        let goals = [Goal::response_time(0.99, 10_000_000)];
        let judged = judge(&mut trial, &Observation::default(), &goals, false);
        assert_eq!((judged.undecided, judged.loss_ratios), (vec![0], vec![1.0]));
        assert!(!trial.validity.is_void());
        trial.told(UNDECIDED).unwrap().to_owned()
    };
    let once = Away { times: 1, total_s: 0.005, longest_s: 0.005, delayed_s: None };
    let words = "'p99 ≤ 10 ms' is undecided (p99 6.00–11.0 ms): sound for 99.5 % of 1 s (longest stall 5.00 ms); give the generator \
                 processors of its own (--cpus)";
    assert_eq!(told(once), words);
}

#[test]
fn growth_counts_against_the_target_unless_absences_may_explain_it() {
    let goals = [Goal::response_time(0.99, 10_000_000)];
    let growing = |own_ms, may_be_own| {
        rules_after_growth(trial(9, own_ms, &[]), &goals, Some(Growth { per_s: 0.01, may_be_own }))
    };
    assert_eq!(growing(0, true), (vec![], vec![]), "missed");
    assert_eq!(growing(5, true), (vec![], vec![0]));
    assert_eq!(growing(8, true), (vec![VoidRule::Late], vec![0]), "p99 lies within 1 and 9 ms");
    assert_eq!(growing(5, false), (vec![], vec![]));
    let missed = Some(Growth { per_s: 0.01, may_be_own: true });
    assert_eq!(
        rules_after_growth(trial(20, 5, &[]), &goals, missed),
        (vec![], vec![]),
        "growth meets no goal"
    );
}

#[test]
fn a_load_that_was_sent_too_late_meets_no_goal_and_may_miss_one() {
    let sent = |late_ms: u64| {
        let mut trial = trial(9, 0, &[]);
        let http = trial.http_mut().unwrap();
        http.plan = plans::open(1_000.0, 5, 8);
        (0..100).for_each(|_| http.own_lateness.record_ns(late_ms * 1_000_000));
        trial
    };
    let [met, missed] = [10_000_000, 8_000_000].map(|bound_ns| [Goal::response_time(0.99, bound_ns)]);
    assert_eq!(judged(sent(240), &met), (vec![], vec![]), "0.95 of the rate at the least");
    assert_eq!(judged(sent(260), &met), (vec![], vec![0]));
    assert_eq!(judged(sent(260), &missed), (vec![], vec![]), "less than the planned load was too much");
}

#[test]
fn short_trials_that_explore_show_steep_growth_alone() {
    let losses = |step_ms: f64, explores| {
        let mut trial = trial(9, 0, &[]);
        let http = trial.http_mut().unwrap();
        http.plan = plans::open(1_000.0, 1, 8);
        let tenth = |index: u32| record::Interval {
            end_s: f64::from(index + 1) * 0.1,
            completed: 100,
            p50_us: Some(1e3 * (1.0 + step_ms * f64::from(index))),
            ..record::Interval::default()
        };
        http.series = (0..10).map(tenth).collect();
        (http.throughput_per_s, http.measured_s) = (98.0, 1.0);
        judge(&mut trial, &Observation::default(), &[Goal::errors(0.0)], explores).loss_ratios
    };
    assert_eq!([losses(8.0, true), losses(12.0, true)], [[0.0], [1.0]]);
    assert_eq!(losses(8.0, false), [1.0], "a full trial");
}
