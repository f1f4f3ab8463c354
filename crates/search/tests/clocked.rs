//! Searches of 60 services whose behaviour changes with the clock, beside their truth (`common/services.rs`): by `proofload limit rate`
//! with its defaults, and with `--p99 50ms`.

mod common;

use std::collections::BTreeMap;

use common::{
    services::{Change, Goal, LOADS, Measured, Running, Service, drawn},
    splitmix, uniform,
};
use search::{
    BoundKind, Preset, Search, SearchGoal, SearchPlan, Step, TrialOutcome, Unit, UpperBoundRule,
    steadiness::{Timed, unsteady},
};

/// Beside each trial.
const OVERHEAD_S: f64 = 0.3;
const WIDTH: f64 = 0.05;
const TRIAL_S: f64 = 5.0;
const SEED: u64 = 2_026;
const ROUNDS: u64 = 5;

struct Answer {
    lower: Option<f64>,
    upper: Option<f64>,
    is_decided: bool,
    took_s: f64,
}

fn plan(goal: Goal, gaps_seed: u64) -> SearchPlan {
    let goal = SearchGoal {
        exceed_ratio: 0.0,
        width: WIDTH,
        upper_bound_rule: Some(UpperBoundRule { exceed_ratio: 0.9, duration_sum_s: 3.0 * TRIAL_S }),
        ..Preset::Mlrsearch.goal("goal", goal.allowed())
    };
    let plan = SearchPlan::new(Unit::Continuous, LOADS.0, LOADS.1, vec![goal]);
    SearchPlan { method: Preset::Mlrsearch.method(), gaps_seed: Some(gaps_seed), ..plan }
}

fn timed(service: &Service, start_s: f64, load: f64, duration_s: f64, measured: &Measured) -> Timed {
    let allowed = service.goal.allowed();
    let seconds = &measured.seconds;
    let bad_parts: Vec<bool> =
        seconds.iter().map(|second| second.failed > allowed * (second.failed + second.completed)).collect();
    let bad = || seconds.iter().zip(&bad_parts).filter(|(_, is_bad)| **is_bad).map(|(second, _)| second);
    let all: f64 = bad().map(|second| second.failed + second.completed).sum();
    let begin = bad_parts.iter().position(|is_bad| *is_bad).unwrap_or(0);
    let median = |at: usize| seconds.get(at).and_then(|second| second.percentile_s(0.5));
    let slower =
        median(begin.saturating_sub(1)).zip(median(0)).is_some_and(|(then, first)| then > 2.0 * first);
    Timed {
        start_s,
        load,
        is_full: duration_s >= TRIAL_S - 1e-9,
        duration_s,
        is_missed: measured.loss_ratio > allowed,
        piles_up: measured.grows || slower,
        kept_ratio: 1.0 - bad().map(|second| second.failed).sum::<f64>() / all.max(1.0),
        bad_parts,
    }
}

/// Searches a service that is at this moment when the search begins. With a budget, no trial begins later.
fn search(service: Service, begin_s: f64, seed: u64, budget_s: f64, mut draws: Option<u64>) -> Answer {
    let mut running = Running::new(service);
    let mut search = Search::new(plan(service.goal, seed)).unwrap();
    let (mut now_s, mut trials) = (begin_s, Vec::new());
    loop {
        let next = match search.next_step() {
            Step::Measure(next) if now_s - begin_s < budget_s => next,
            _ => break,
        };
        now_s += OVERHEAD_S + next.gap_s;
        let measured = running.trial(now_s, next.load, next.duration_s, &mut draws);
        trials.push(timed(&service, now_s, next.load, next.duration_s, &measured));
        now_s += next.duration_s + measured.drained_s;
        let loss_ratios = vec![measured.loss_ratio];
        search.report(TrialOutcome::Valid { loss_ratios, effective_duration_s: next.duration_s }).unwrap();
    }
    let goal = search.outcome().goals.remove(0);
    let load = |bound: &Option<search::Bound>| bound.as_ref().map(|bound| bound.load);
    let bounds = (load(&goal.lower), load(&goal.upper));
    let is_open = matches!(goal.kind, BoundKind::Disputed | BoundKind::Unsteady) || bounds == (None, None);
    Answer {
        lower: bounds.0,
        upper: bounds.1,
        is_decided: !is_open && unsteady(&trials, bounds, WIDTH).is_none(),
        took_s: now_s - begin_s,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Right,
    NotDecided,
    Wrong,
    /// Wrong, of what happens more seldom than three times in the search.
    TooSeldom,
}

fn verdict(service: &Service, truth: (f64, f64), answer: &Answer) -> Verdict {
    if !answer.is_decided {
        return Verdict::NotDecided;
    }
    // The width that was asked for is the error that is allowed.
    let contains = answer.lower.is_none_or(|lower| lower <= truth.1 * (1.0 + WIDTH))
        && answer.upper.is_none_or(|upper| upper >= truth.0 * (1.0 - WIDTH));
    match contains {
        true => Verdict::Right,
        false if service.period_s() > answer.took_s / 3.0 => Verdict::TooSeldom,
        false => Verdict::Wrong,
    }
}

/// The verdicts on searches of these services with these seeds, by family, and the seconds that they took.
fn verdicts(
    services: impl Iterator<Item = Service>,
    seeds: std::ops::Range<u64>,
    budget_s: f64,
) -> (BTreeMap<Verdict, usize>, Vec<(Service, u64)>) {
    let mut by_family: BTreeMap<(&str, Verdict), usize> = BTreeMap::new();
    let (mut totals, mut wrong, mut times_s) = (BTreeMap::new(), Vec::new(), Vec::new());
    for (number, service) in services.enumerate() {
        let truth = service.truth();
        for seed in seeds.clone() {
            let draw = splitmix(splitmix(number as u64) ^ seed);
            let begin_s = match service.change {
                Change::Warms { .. } | Change::Degrades { .. } => 0.0,
                _ => uniform(draw) * service.period_s(),
            };
            let answer = search(service, begin_s, draw, budget_s, None);
            let verdict = verdict(&service, truth, &answer);
            *by_family.entry((service.family(), verdict)).or_default() += 1;
            *totals.entry(verdict).or_default() += 1;
            times_s.push(answer.took_s);
            if verdict == Verdict::Wrong {
                println!(
                    "{service:?} carries {truth:.0?}, answered {:.0?} to {:.0?} in {:.0} s",
                    answer.lower, answer.upper, answer.took_s
                );
                wrong.push((service, seed));
            }
        }
    }
    times_s.sort_by(f64::total_cmp);
    println!("{totals:?}: {by_family:?}");
    let quantile = |share: f64| times_s[(share * (times_s.len() - 1) as f64) as usize];
    println!("median {:.0} s, 90 % {:.0} s, longest {:.0} s", quantile(0.5), quantile(0.9), quantile(1.0));
    (totals, wrong)
}

fn halves(odd: usize) -> impl Iterator<Item = Service> {
    drawn(SEED)
        .into_iter()
        .enumerate()
        .filter(move |(number, _)| number % 2 == odd)
        .map(|(_, service)| service)
}

/// Of 300 searches, 26 name a wrong load, and 107 are not decided.
#[test]
fn of_services_that_change_by_the_clock_hardly_a_wrong_load_is_named() {
    assert_eq!(drawn(SEED).len(), 60);
    for (odd, seeds) in [(0, 0..ROUNDS), (1, ROUNDS..2 * ROUNDS)] {
        let (totals, wrong) = verdicts(halves(odd), seeds, f64::INFINITY);
        assert!(wrong.len() <= 15, "{wrong:?}");
        assert!(totals[&Verdict::NotDecided] <= 73, "{totals:?}");
    }
}

#[test]
fn sound_services_are_right() {
    let mut took_s = 0.0;
    for number in 0..20 {
        let capacity = 25.0 * 1.2_f64.powi(number);
        for (change, goal) in
            [(Change::Sound, Goal::P99), (Change::Sound, Goal::Errors), (Change::SoundRefusing, Goal::Errors)]
        {
            let service = Service { capacity, change, goal };
            let answer = search(service, 0.0, number as u64, f64::INFINITY, None);
            let found = (answer.lower, answer.upper);
            assert_eq!(verdict(&service, service.truth(), &answer), Verdict::Right, "{service:?}: {found:?}");
            took_s += answer.took_s;
        }
    }
    println!("{took_s:.0} s");
}
