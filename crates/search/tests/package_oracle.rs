//! Comparison with the PyPI package MLRsearch: the example of its README, and the results on noisy targets that
//! `oracles/mlrsearch.py` recorded.

mod common;

use std::collections::BTreeMap;

use common::{run, splitmix, uniform};
use search::{Method, NextTrial, SearchGoal, SearchPlan, Start, TrialOutcome, Unit, WarmUp};
use serde::Deserialize;

#[derive(Deserialize)]
struct Golden {
    package: String,
    version: String,
    scenarios: Vec<Scenario>,
}

#[derive(Deserialize)]
struct Scenario {
    seed: u64,
    min: f64,
    max: f64,
    capacity: f64,
    noise: f64,
    bad_share: f64,
    bad_depth: f64,
    drop_share: f64,
    drop_loss: f64,
    /// Ranges of loads with less capacity: start, end, missing share of the capacity (0 to 1).
    dips: Vec<(f64, f64, f64)>,
    overhead_s: f64,
    warm_up_s: f64,
    goals: Vec<Goal>,
    found: Found,
}

#[derive(Deserialize)]
struct Goal {
    loss_ratio: f64,
    exceed_ratio: f64,
    width: f64,
    initial_s: f64,
    final_s: f64,
    sum_s: f64,
    preceding: u32,
    expansion: u32,
}

#[derive(Deserialize)]
struct Found {
    trials: u64,
    seconds: f64,
    /// Lower bound, upper bound, conditional throughput.
    goals: Vec<(Option<f64>, Option<f64>, Option<f64>)>,
}

impl Scenario {
    fn plan(&self) -> SearchPlan {
        let goal = |(index, goal): (usize, &Goal)| SearchGoal {
            name: format!("goal {index}"),
            loss_ratio: goal.loss_ratio,
            exceed_ratio: goal.exceed_ratio,
            final_trial_duration_s: goal.final_s,
            duration_sum_s: goal.sum_s,
            initial_trial_duration_s: goal.initial_s,
            width: goal.width,
            preceding_targets: goal.preceding,
            expansion: goal.expansion,
            upper_bound_rule: None,
        };
        let goals = self.goals.iter().enumerate().map(goal).collect();
        let warm_up = match self.warm_up_s {
            0.0 => WarmUp::None,
            duration_s => WarmUp::Max { duration_s },
        };
        let method = Method::Mlrsearch { warm_up, start: Start::Max };
        SearchPlan { method, ..SearchPlan::new(Unit::Continuous, self.min, self.max, goals) }
    }

    /// Must return the same outcome as `Target.measure` of the script.
    fn measure(&self, trial: &NextTrial, measured: &mut BTreeMap<u64, u64>) -> TrialOutcome {
        let load = trial.load;
        let key = (load * 1024.0).round_ties_even() as u64;
        let index = measured.entry(key).or_default();
        let mut state = splitmix(splitmix(splitmix(self.seed) ^ key) ^ *index);
        *index += 1;
        let [near, far, bad, drop] = [(); 4].map(|()| {
            state = splitmix(state);
            uniform(state)
        });
        let mut capacity = self.capacity * (1.0 + (near + far - 1.0) * self.noise);
        if bad < self.bad_share {
            capacity *= 1.0 - self.bad_depth;
        }
        for (low, high, depth) in &self.dips {
            if *low <= load && load < *high {
                capacity *= 1.0 - depth;
            }
        }
        let mut loss = if load > capacity { 1.0 - capacity / load } else { 0.0 };
        if drop < self.drop_share {
            loss += (1.0 - loss) * self.drop_loss;
        }
        let loss_ratio = (loss * 1e9).trunc() / 1e9;
        let effective_duration_s = trial.duration_s + self.overhead_s;
        TrialOutcome::Valid { loss_ratios: vec![loss_ratio; self.goals.len()], effective_duration_s }
    }
}

#[test]
fn the_readme_example_gives_the_readme_bounds() {
    let goal = |name: &str, loss_ratio| SearchGoal {
        name: name.to_owned(),
        loss_ratio,
        exceed_ratio: 0.005,
        final_trial_duration_s: 1.0,
        duration_sum_s: 21.0,
        initial_trial_duration_s: 1.0,
        width: 0.005,
        preceding_targets: 2,
        expansion: 2,
        upper_bound_rule: None,
    };
    let plan = SearchPlan {
        method: Method::Mlrsearch { warm_up: WarmUp::None, start: Start::Max },
        ..SearchPlan::new(Unit::Continuous, 1e3, 1e9, vec![goal("NDR", 0.0), goal("PDR", 0.005)])
    };
    let (outcome, _) = run(plan, |trial| {
        let sent = (trial.duration_s * trial.load).trunc();
        let received = sent.min((trial.duration_s * 1e6).trunc());
        let loss_ratio = (sent - received) / sent;
        TrialOutcome::Valid { loss_ratios: vec![loss_ratio; 2], effective_duration_s: trial.duration_s }
    });
    let printed =
        [(997_497.602_939_238_2, 997_497.602_939_238_2), (1_002_508.674_761_110_1, 1_000_000.673_073_042_9)];
    for (goal, (lower, throughput)) in outcome.goals.iter().zip(printed) {
        let bound = goal.lower.as_ref().expect("the target carries the smallest load");
        let measured = bound.conditional_throughput.expect("a lower bound has one");
        assert!((bound.load / lower - 1.0).abs() < 1e-9, "{}: {} for {lower}", goal.goal, bound.load);
        assert!((measured / throughput - 1.0).abs() < 1e-9, "{}: {measured} for {throughput}", goal.goal);
        println!("{}: lower bound {:.1}, conditional throughput {measured:.1}", goal.goal, bound.load);
    }
}

#[test]
fn noisy_targets_give_the_bounds_of_the_package() {
    let golden: Golden =
        serde_json::from_str(include_str!("oracles/mlrsearch.json")).expect("the script wrote it");
    let (mut goals, mut same, mut irregular, mut same_way, mut ours_s, mut theirs_s) = (0, 0, 0, 0, 0.0, 0.0);
    let mut wrong = Vec::new();
    for (number, scenario) in golden.scenarios.iter().enumerate() {
        let mut measured = BTreeMap::new();
        let (outcome, _) = run(scenario.plan(), |trial| scenario.measure(trial, &mut measured));
        ours_s += outcome.trial_seconds;
        theirs_s += scenario.found.seconds;
        let close = (outcome.trial_seconds - scenario.found.seconds).abs() < 1e-6;
        same_way += u32::from(close && outcome.trials == scenario.found.trials);
        for ((ours, theirs), goal) in outcome.goals.iter().zip(&scenario.found.goals).zip(&scenario.goals) {
            let lower = ours.lower.as_ref().map(|bound| bound.load);
            let upper = ours.upper.as_ref().map(|bound| bound.load);
            let throughput = ours.lower.as_ref().and_then(|bound| bound.conditional_throughput);
            let pairs = [(lower, theirs.0), (upper, theirs.1), (throughput, theirs.2)];
            let agree = |tolerance: f64| {
                pairs.iter().all(|pair| match pair {
                    (Some(ours), Some(theirs)) => (ours - theirs).abs() <= tolerance * ours.max(*theirs),
                    (None, None) => true,
                    _ => false,
                })
            };
            goals += 1;
            irregular += u32::from(theirs.0.is_none() || theirs.1.is_none());
            same += u32::from(agree(1e-9));
            if !agree(goal.width) {
                wrong.push(format!("scenario {number}, {}: ours and theirs {pairs:?}", ours.goal));
            }
        }
    }
    println!(
        "{} scenarios, {goals} goals ({irregular} irregular) against {} {}: {same} with the same bounds to 1e-9, \
         {same_way} scenarios by the same number and seconds of trials; {ours_s:.0} s of trials for {theirs_s:.0} s",
        golden.scenarios.len(),
        golden.package,
        golden.version,
    );
    assert!(golden.scenarios.len() >= 200);
    assert_eq!(same, goals, "the bounds were the package's own when the golden file was written");
    assert!(ours_s <= theirs_s * 1.01, "{ours_s} s of trials for {theirs_s} s");
    assert!(wrong.is_empty(), "{} of {goals} beyond the width:\n{}", wrong.len(), wrong.join("\n"));
}
