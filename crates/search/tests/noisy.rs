//! Tests how often the bounds contain the true limit of a queue, and how wide they are. The searches are those of
//! `proofload limit rate --p99 50ms --width 2% --trial 4s --repeats 5 --budget 80s`.
//!
//! The service is an M/M/1 queue, simulated request by request: Poisson arrivals, exponential service, first come, first
//! served. Every trial begins with an empty queue. The time in the system is exponential with the rate capacity − load, so
//! its 99th percentile is 50 ms at the load capacity − ln(100) / 0.05 s. As in a study, a trial is bad if more than 1 % of
//! its requests take longer, or if the medians of its seconds grow so steadily that they would exceed the bound within ten
//! times its length (`docs/limit.md`). A trial takes 0.6 to 1 s beyond its length, and an overload up to 2 s to drain.

mod common;

use common::{splitmix, uniform};
use search::{Preset, Search, SearchGoal, SearchPlan, Step, TrialOutcome, Unit};

const RUNS: u64 = 200;
const BOUND_S: f64 = 0.05;
const BUDGET_S: f64 = 80.0;
const TRIAL_S: f64 = 4.0;
const REPEATS: f64 = 5.0;
const ALLOWED: f64 = 0.01;

struct Draws(u64);

impl Draws {
    fn uniform(&mut self) -> f64 {
        self.0 = splitmix(self.0);
        uniform(self.0)
    }

    fn exponential(&mut self, rate_per_s: f64) -> f64 {
        -(1.0 - self.uniform()).ln() / rate_per_s
    }
}

struct Queued {
    is_bad: bool,
    drain_s: f64,
}

fn trial(capacity_per_s: f64, load_per_s: f64, duration_s: f64, draws: &mut Draws) -> Queued {
    let (mut at_s, mut free_s, mut requests, mut late) = (0.0, 0.0_f64, 0.0, 0.0);
    let mut seconds = vec![Vec::new(); duration_s as usize];
    loop {
        at_s += draws.exponential(load_per_s);
        if at_s >= duration_s {
            break;
        }
        free_s = free_s.max(at_s) + draws.exponential(capacity_per_s);
        let response_s = free_s - at_s;
        requests += 1.0;
        late += f64::from(response_s > BOUND_S);
        if let Some(second) = seconds.get_mut(free_s as usize) {
            second.push(response_s);
        }
    }
    let is_bad = late > ALLOWED * requests || grows(&mut seconds, duration_s);
    Queued { is_bad, drain_s: (free_s - duration_s).clamp(0.0, 2.0) }
}

/// A copy of the rule in `study::growth`, because this crate must not depend on `study`.
fn grows(seconds: &mut [Vec<f64>], duration_s: f64) -> bool {
    let mut medians = Vec::new();
    for (index, responses) in seconds.iter_mut().enumerate().filter(|(_, responses)| !responses.is_empty()) {
        let middle = responses.len() / 2;
        medians.push((index as f64, *responses.select_nth_unstable_by(middle, f64::total_cmp).1));
    }
    if medians.len() < 4 {
        return false;
    }
    let (mut slopes, mut concordant) = (Vec::new(), 0);
    for (index, &(earlier_s, earlier)) in medians.iter().enumerate() {
        for &(later_s, later) in &medians[index + 1..] {
            slopes.push((later - earlier) / (later_s - earlier_s));
            concordant += i32::from(later > earlier) - i32::from(later < earlier);
        }
    }
    slopes.sort_by(f64::total_cmp);
    let reached_s = medians[medians.len() - 1].1 + slopes[slopes.len() / 2] * 10.0 * duration_s;
    f64::from(concordant) >= 0.8 * slopes.len() as f64 && reached_s > BOUND_S
}

/// The two goals that replace the goal of a study: one that all trials must meet, and one that nine in ten of three
/// trials must miss.
fn plan() -> SearchPlan {
    let goal = |name: &str, exceed_ratio, repeats| SearchGoal {
        exceed_ratio,
        final_trial_duration_s: TRIAL_S,
        duration_sum_s: TRIAL_S * repeats,
        width: 0.02,
        ..Preset::Mlrsearch.goal(name, ALLOWED)
    };
    let goals = vec![goal("met", 0.0, REPEATS), goal("not met", 0.9, 3.0)];
    SearchPlan { method: Preset::Mlrsearch.method(), ..SearchPlan::new(Unit::Continuous, 10.0, 1e6, goals) }
}

/// The bounds at the end of the budget, relative to the true limit.
fn searched(capacity_per_s: f64, seed: u64) -> (Option<f64>, Option<f64>) {
    let truth_per_s = capacity_per_s - 100.0_f64.ln() / BOUND_S;
    let mut draws = Draws(splitmix(seed));
    let mut search = Search::new(plan()).expect("the plan is right");
    let mut elapsed_s = 0.0;
    while elapsed_s < BUDGET_S {
        let Step::Measure(next) = search.next_step() else { break };
        let queued = trial(capacity_per_s, next.load, next.duration_s, &mut draws);
        elapsed_s += next.duration_s + queued.drain_s + 0.6 + 0.4 * draws.uniform();
        let loss_ratios = vec![f64::from(u8::from(queued.is_bad)); 2];
        let outcome = TrialOutcome::Valid { loss_ratios, effective_duration_s: next.duration_s };
        search.report(outcome).expect("the search asked for this trial");
    }
    let outcome = search.outcome();
    let share = |bound: &search::Bound| bound.load / truth_per_s;
    (outcome.goals[0].lower.as_ref().map(share), outcome.goals[1].upper.as_ref().map(share))
}

#[test]
fn bounds_within_the_budget_hold_the_limit_of_a_queue() {
    let (mut held, mut low, mut high, mut missing, mut widths) = (0, 0, 0, 0, Vec::new());
    for run in 0..RUNS {
        let capacity_per_s = 500.0 * 40.0_f64.powf((run as f64 + 0.5) / RUNS as f64);
        match searched(capacity_per_s, run) {
            (Some(lower), Some(upper)) => {
                held += u64::from(lower <= 1.0 && 1.0 <= upper);
                high += u64::from(lower > 1.0);
                low += u64::from(upper < 1.0);
                widths.push((1.0 - lower / upper) * 100.0);
            }
            _ => missing += 1,
        }
    }
    widths.sort_by(f64::total_cmp);
    println!(
        "{held} of {RUNS} held the limit; lower bound too high {high}, upper too low {low}, missing {missing}; \
         width {:.1} % (median), {:.1} % (nine in ten)",
        widths[widths.len() / 2],
        widths[widths.len() * 9 / 10]
    );
    assert!(held * 100 >= RUNS * 96, "{held} of {RUNS}");
    // Wide bounds would contain the limit without giving useful information.
    assert!(widths[widths.len() / 2] < 20.0, "{:.1} %", widths[widths.len() / 2]);
}
