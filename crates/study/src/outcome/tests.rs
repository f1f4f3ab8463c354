use record::{SearchPlan, VoidReason, VoidRule};
use search::{Preset, Unit};

use super::*;
use crate::judge::tests::trial;

const MS: u64 = 1_000_000;

/// The outcome of one setting with these trials and the goal p99 ≤ 10 ms. A trial is given as its response time and the generator's share
/// of it, in milliseconds, and judged as the runner does.
fn outcome(trials: &[(u64, u64)]) -> SettingOutcome {
    let goals = vec![Goal::response_time(0.99, 10 * MS)];
    let entries: Vec<TrialEntry> = trials.iter().map(|&(ms, own_ms)| entry(ms, own_ms, &goals)).collect();
    let mut plan = testing::plans::study("a study", goals);
    plan.blocks = vec![vec![0]; trials.len()];
    outcomes(&plan, &entries).unwrap().remove(0)
}

fn entry(ms: u64, own_ms: u64, goals: &[Goal]) -> TrialEntry {
    let mut trial = trial(ms, own_ms, &[]);
    trial.http_mut().unwrap().counts.completed = 100;
    let judged = crate::judge::judge(&mut trial, &crate::observer::Observation::default(), goals, false);
    TrialEntry { loss_ratios: judged.loss_ratios, undecided: judged.undecided, ..TrialEntry::alone(1, trial) }
}

#[test]
fn goals_are_counted_over_the_trials_that_decide_them() {
    assert_eq!(outcome(&[(9, 0), (11, 5)]).goals_met, Some(true), "the second is undecided");
    assert_eq!(outcome(&[(12, 0), (11, 5)]).goals_met, Some(false));
    let open = outcome(&[(11, 5), (12, 6)]);
    assert_eq!((open.goals_met, open.warnings[0].code.as_str()), (None, UNDECIDED));
    // The figures of undecided trials still count, as intervals.
    let p99 = open.summaries.iter().find(|summary| summary.quantity == "response_p99_us").unwrap();
    let ms = |us: f64| (us / 1e3).round() as u64;
    assert_eq!(p99.values.iter().map(|us| ms(*us)).collect::<Vec<_>>(), [11, 12]);
    assert_eq!((ms(p99.low), ms(p99.high), ms(p99.span().least), ms(p99.span().most)), (6, 12, 6, 12));
    let sound = outcome(&[(9, 0), (9, 0)]);
    assert!(sound.summaries.iter().all(|summary| summary.ends.is_empty()));
}

#[test]
fn an_undecided_trial_moves_no_bound_and_is_repeated_as_a_void_one() {
    let goals = [Goal::response_time(0.99, 10 * MS)];
    let method = search::SearchPlan::new(
        Unit::Continuous,
        10.0,
        1_000.0,
        vec![Preset::Mlrsearch.goal(&goals[0].name, goals[0].loss_ratio)],
    );
    let plan = SearchPlan {
        unit: LoadUnit::Rate,
        min: 10.0,
        max: 1_000.0,
        width: 0.05,
        method: "mlrsearch".to_owned(),
        trial_duration_s: 5.0,
        duration_sum_s: 5.0,
        exceed_ratio: 0.0,
        confirm: 0,
        method_settings: serde_json::to_value(&method).unwrap(),
    };
    // The next load and the bounds of a search after this trial and another one that decides.
    let after = |first: TrialEntry| {
        let mut running = RunningSearch::new(&plan, &goals).unwrap();
        for entry in [first, entry(9, 0, &goals)] {
            let load = running.next().map(|next| next.load);
            running.tell(&TrialEntry { load, ..entry }).unwrap();
        }
        (running.next().map(|next| (next.load, next.duration_s)), running.bounds())
    };
    let undecided = entry(11, 5, &goals);
    assert!(!undecided.is_decided() && !undecided.trial.validity.is_void());
    assert!(
        undecided
            .why_undecided()
            .next()
            .unwrap()
            .starts_with("'p99 ≤ 10 ms' is undecided (p99 6.00–11.0 ms)")
    );
    let mut void = entry(9, 0, &goals);
    let why = VoidReason { rule: VoidRule::Accounting, evidence: "lost".to_owned() };
    void.trial.validity = record::Validity::from_reasons(vec![why]);
    assert_eq!(after(undecided), after(void));
    assert_ne!(after(entry(12, 0, &goals)), after(entry(11, 5, &goals)), "a missed goal says more");
}
