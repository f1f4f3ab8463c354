//! What `proofload limit rate URL --budget 60s` knows after its minute on a shared machine, in virtual time.
//!
//! A target handles `capacity`. At a larger load, it must answer the backlog within the drain time of 2 s, or requests
//! are lost. Growing response times show an overload earlier; short trials show only steep growth. The generator cannot
//! make more than `most`. Each trial may be void because of noise.

mod common;

use common::{limit_rate, lost, splitmix, uniform};
use search::{NextTrial, Search, SearchPlan, Step, TrialOutcome, VoidPolicy};

const BUDGET_S: f64 = 60.0;
/// Time that each trial takes in addition to its length, in seconds: setup, drain, settling.
const OVERHEAD_S: f64 = 1.2;
const DRAIN_S: f64 = 2.0;
/// Trials shorter than this, in seconds, show only steep growth of response times.
const FULL_S: f64 = 5.0;
const STEEP: f64 = 1.1;

struct Machine {
    capacity: f64,
    most: f64,
    void_share: f64,
    state: u64,
}

impl Machine {
    fn draw(&mut self) -> f64 {
        self.state = splitmix(self.state);
        uniform(self.state)
    }

    /// The outcome of a trial, and the time that the backlog takes to drain, in seconds.
    fn trial(&mut self, trial: &NextTrial) -> (TrialOutcome, f64) {
        let backlog_s = (trial.load / self.capacity - 1.0).max(0.0) * trial.duration_s;
        // For a short time, the generator makes a little more load.
        let is_exhausted = trial.load > self.most * if trial.duration_s < 2.0 { 1.2 } else { 1.0 };
        if is_exhausted || self.draw() < self.void_share {
            return (TrialOutcome::Void { is_exhausted }, backlog_s.min(DRAIN_S));
        }
        let grows = trial.load > self.capacity * if trial.duration_s >= FULL_S { 1.02 } else { STEEP };
        let loss_ratio = f64::from(u8::from(backlog_s > DRAIN_S || grows));
        (lost(loss_ratio, 1, trial), backlog_s.min(DRAIN_S))
    }
}

/// The bounds after a minute, of a search that begins at an estimate from a first short trial.
fn search(machine: &mut Machine) -> (Option<f64>, Option<f64>) {
    let carried = machine.capacity.min(machine.most) * (0.8 + 0.3 * machine.draw());
    let plan = SearchPlan {
        gaps_seed: Some(machine.state),
        expected_load: Some(carried / 4.0),
        void: VoidPolicy { attempts: 5, ..VoidPolicy::default() },
        ..limit_rate((10.0, 1e6), 0.0)
    };
    let (mut search, mut now_s) = (Search::new(plan).unwrap(), 0.75);
    while let Step::Measure(trial) = search.next_step()
        && now_s + trial.gap_s + trial.duration_s < BUDGET_S
    {
        let (outcome, drained_s) = machine.trial(&trial);
        now_s += OVERHEAD_S + trial.gap_s + trial.duration_s + drained_s;
        search.report(outcome).unwrap();
    }
    let goal = search.so_far().goals.remove(0);
    (goal.lower.map(|bound| bound.load), goal.upper.map(|bound| bound.load))
}

#[test]
fn a_minute_says_what_a_target_carries() {
    for most_ratio in [10.0, 0.9] {
        for void_share in [0.0, 0.2, 0.4] {
            let useful = (0..50).filter(|&seed| {
                let state = splitmix(seed);
                let capacity = 100.0 * 1_000_f64.powf(uniform(state));
                let mut machine = Machine { capacity, most: capacity * most_ratio, void_share, state };
                let reference = capacity.min(machine.most);
                match search(&mut machine) {
                    (Some(lower), Some(upper)) => {
                        (0.5..=1.1).contains(&(lower / reference))
                            && upper >= 0.75 * reference
                            && upper <= 2.0 * lower
                    }
                    // The generator was the limit, so there is no upper bound.
                    (Some(lower), None) => most_ratio < 1.0 && (0.6..=1.1).contains(&(lower / reference)),
                    _ => false,
                }
            });
            let useful = useful.count();
            println!("generator {most_ratio}, void {void_share}: {useful} of 50");
            assert!(useful >= 45, "generator {most_ratio}, void {void_share}: {useful} of 50");
        }
    }
}
