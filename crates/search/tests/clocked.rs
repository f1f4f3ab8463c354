//! Searches of 60 services whose behaviour changes with the clock, compared with their true limits
//! (`common/services.rs`). The searches are those of `proofload limit rate`, with its defaults and with `--p99 50ms`.

mod common;

use std::collections::BTreeMap;

use common::{
    limit_rate,
    services::{BOUND_S, Change, Goal, LOADS, Measured, Running, Second, Service, drawn},
    splitmix, uniform,
};
use search::{
    BoundKind, Search, SearchPlan, Step, TrialOutcome,
    steadiness::{Part, Timed},
};

/// Time that each trial takes in addition to its length, in seconds.
const OVERHEAD_S: f64 = 0.3;
const WIDTH: f64 = 0.05;
const SEED: u64 = 2_026;
const ROUNDS: u64 = 5;
/// Largest lengthening of trials that `proofload limit` allows.
const LONGER_MAX: f64 = 16.0;

struct Answer {
    lower: Option<f64>,
    upper: Option<f64>,
    is_decided: bool,
    is_longer: bool,
    took_s: f64,
}

/// The plan of a search. Without a seed, trials have no gaps and never become longer.
fn plan(goal: Goal, gaps_seed: Option<u64>) -> SearchPlan {
    let plan = limit_rate(LOADS, goal.allowed());
    SearchPlan { gaps_seed, longer_max: gaps_seed.map(|_| LONGER_MAX), ..plan }
}

fn timed(service: &Service, start_s: f64, load: f64, duration_s: f64, measured: &Measured) -> Timed {
    let is_bounded = service.goal == Goal::P99;
    let part = |second: &Second| Part {
        sent: second.sent,
        completed: second.completed,
        failed: second.failed,
        p50_s: second.percentile_s(0.5),
        slowness: if is_bounded {
            second.percentile_s(0.99).map(|time_s| time_s / BOUND_S)
        } else {
            Some(0.0)
        },
    };
    Timed {
        start_s,
        load,
        duration_s,
        loss_ratio: measured.loss_ratio,
        grows: measured.grows,
        allowed: service.goal.allowed(),
        parts: measured.seconds.iter().map(part).collect(),
    }
}

/// Searches a service whose clock is at `begin_s` when the search begins. No trial begins after `budget_s`.
fn search(service: Service, plan: SearchPlan, begin_s: f64, budget_s: f64, mut draws: Option<u64>) -> Answer {
    let mut running = Running::new(service);
    let mut search = Search::new(plan).unwrap();
    let mut now_s = begin_s;
    loop {
        let next = match search.next_step() {
            Step::Measure(next) if now_s - begin_s < budget_s => next,
            _ => break,
        };
        now_s += OVERHEAD_S + next.gap_s;
        let measured = running.trial(now_s, next.load, next.duration_s, &mut draws);
        let loss_ratios = vec![measured.loss_ratio];
        search.report(TrialOutcome::Valid { loss_ratios, effective_duration_s: next.duration_s }).unwrap();
        search.note(vec![timed(&service, now_s, next.load, next.duration_s, &measured)]);
        now_s += next.duration_s + measured.drained_s;
    }
    let goal = search.outcome().goals.remove(0);
    let load = |bound: &Option<search::Bound>| bound.as_ref().map(|bound| bound.load);
    let bounds = (load(&goal.lower), load(&goal.upper));
    let is_open = matches!(goal.kind, BoundKind::Disputed | BoundKind::Unsteady) || bounds == (None, None);
    Answer {
        lower: bounds.0,
        upper: bounds.1,
        is_decided: !is_open && search.unsteady(0).is_none(),
        is_longer: search.longer() > 1.0,
        took_s: now_s - begin_s,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Right,
    NotDecided,
    Wrong,
    /// Wrong, but because of a change with a period of more than a third of the search.
    TooSeldom,
}

fn verdict(service: &Service, truth: (f64, f64), answer: &Answer) -> Verdict {
    if !answer.is_decided {
        return Verdict::NotDecided;
    }
    // The requested width is the allowed error.
    let contains = answer.lower.is_none_or(|lower| lower <= truth.1 * (1.0 + WIDTH))
        && answer.upper.is_none_or(|upper| upper >= truth.0 * (1.0 - WIDTH));
    match contains {
        true => Verdict::Right,
        false if service.period_s() > answer.took_s / 3.0 => Verdict::TooSeldom,
        false => Verdict::Wrong,
    }
}

/// The number of searches by verdict, and the searches with a wrong answer. Prints the verdicts by family of services,
/// and the durations.
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
            let answer = search(service, plan(service.goal, Some(draw)), begin_s, budget_s, None);
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

/// Without longer trials, 26 of 300 searches named a wrong load, and 107 were not decided. The rules were tuned on the
/// first half of the services, with the first seeds.
#[test]
fn of_services_that_change_by_the_clock_hardly_a_wrong_load_is_named() {
    assert_eq!(drawn(SEED).len(), 60);
    for (odd, seeds) in [(0, 0..ROUNDS), (1, ROUNDS..2 * ROUNDS)] {
        let (totals, wrong) = verdicts(halves(odd), seeds, f64::INFINITY);
        assert!(wrong.len() <= 1, "{wrong:?}");
        // A quarter of the searches may be undecided; the limit is stricter.
        assert!(totals[&Verdict::NotDecided] * 10 <= 150, "{totals:?}");
    }
}

/// The rules were not tuned on these services. A pause may fall between the trials of a search, or into overloaded
/// trials.
#[test]
fn of_services_that_nobody_looked_at_hardly_a_wrong_load_is_named() {
    let (totals, wrong) = verdicts(drawn(14).into_iter(), 0..ROUNDS, f64::INFINITY);
    assert!(wrong.len() <= 6, "{wrong:?}");
    assert!(totals[&Verdict::NotDecided] * 4 <= 300, "{totals:?}");
}

#[test]
fn sound_services_are_right_and_take_no_longer() {
    let (mut took_s, mut plain_s) = (0.0, 0.0);
    for number in 0..20 {
        let capacity = 25.5 * 1.2_f64.powi(number);
        for (change, goal) in
            [(Change::Sound, Goal::P99), (Change::Sound, Goal::Errors), (Change::SoundRefusing, Goal::Errors)]
        {
            let service = Service { capacity, change, goal };
            let answer = search(service, plan(goal, Some(number as u64)), 0.0, f64::INFINITY, None);
            let plain = search(service, plan(goal, None), 0.0, f64::INFINITY, None);
            assert_eq!((answer.lower, answer.upper), (plain.lower, plain.upper), "{service:?}");
            assert_eq!(verdict(&service, service.truth(), &answer), Verdict::Right, "{service:?}");
            took_s += answer.took_s;
            plain_s += plain.took_s;
        }
    }
    println!("{took_s:.0} s instead of {plain_s:.0} s");
    assert!(took_s <= 1.3 * plain_s, "{took_s} s instead of {plain_s} s");
}

#[test]
fn random_arrivals_and_work_are_seldom_taken_for_a_clock() {
    for goal in [Goal::P99, Goal::Errors] {
        let (mut undecided, mut longer) = (0, 0);
        for seed in 0..30 {
            let capacity = [50.0, 200.0, 800.0][seed as usize % 3];
            let service = Service { capacity, change: Change::Sound, goal };
            let answer = search(service, plan(goal, Some(seed)), 0.0, f64::INFINITY, Some(splitmix(seed)));
            undecided += u32::from(!answer.is_decided);
            longer += u32::from(answer.is_longer);
        }
        println!("{goal:?}: {undecided} of 30 not decided, {longer} with longer trials");
        // Near its limit, a queue with random work fills and empties as after a pause.
        assert!(longer <= 12, "{goal:?}: {longer}");
        assert!(undecided <= 1, "{goal:?}: {undecided}");
    }
}

/// At most 4 of 60 short searches remain undecided, including those that find no bounds.
#[test]
fn random_arrivals_and_work_are_seldom_taken_for_a_clock_where_a_budget_ends_the_search() {
    let mut unsteady = 0;
    for seed in 0..60 {
        let capacity = [50.0, 200.0, 800.0][seed as usize % 3];
        let service = Service { capacity, change: Change::Sound, goal: Goal::P99 };
        let plan = SearchPlan { longer_max: None, ..plan(Goal::P99, Some(seed)) };
        unsteady += u32::from(!search(service, plan, 0.0, 75.0, Some(splitmix(seed))).is_decided);
    }
    println!("{unsteady} of 60 not decided");
    assert!(unsteady <= 4, "{unsteady} of 60");
}

/// With a budget of three periods, the bounds at its end are seldom wrong.
#[test]
fn a_search_that_a_budget_ends_hardly_names_a_wrong_load() {
    let (mut wrong, mut searches) = (0, 0);
    for (goal, pause_s) in [(Goal::P99, 1.0), (Goal::P99, 5.0), (Goal::Errors, 1.0), (Goal::Errors, 5.0)] {
        for capacity in [60.0, 200.0] {
            let service = Service { capacity, change: Change::Pauses { period_s: 25.0, pause_s }, goal };
            let truth = service.truth();
            for seed in 0..10 {
                let draw = splitmix(seed);
                // The budget is too short for longer trials.
                let plan = SearchPlan { longer_max: None, ..plan(goal, Some(draw)) };
                let answer = search(service, plan, uniform(draw) * 25.0, 75.0, None);
                let verdict = verdict(&service, truth, &answer);
                wrong += u32::from(matches!(verdict, Verdict::Wrong | Verdict::TooSeldom));
                searches += 1;
            }
        }
    }
    println!("{wrong} of {searches} wrong");
    assert!(wrong <= 12, "{wrong} of {searches}");
}
