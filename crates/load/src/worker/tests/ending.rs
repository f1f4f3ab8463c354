//! The loop on virtual time: requests that are unanswered when the trial ends.

use record::{ErrorClass, HttpPlan, HttpTrial};

use super::loads::trial;
use crate::{
    testing,
    wire::simulated::{Action, Target},
    worker::tests::{Steady, run},
};

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// Answers after 10 ms, but never the requests of these numbers.
struct Silent<F>(F);

impl<F: Fn(u64) -> bool> Target for Silent<F> {
    fn request(&mut self, n: u64, now_ns: u64) -> Vec<(u64, Action)> {
        if (self.0)(n) { Vec::new() } else { Steady { after_ns: 10 * MS }.request(n, now_ns) }
    }
}

/// Four users for five seconds, with this wait for the last answers.
fn plan(drain_ns: u64) -> HttpPlan {
    HttpPlan { duration_ns: Some(5 * S), drain_ns, ..testing::closed(4) }
}

/// The trial of a plan, which must be sound, and its length in seconds.
fn measure(plan: &HttpPlan, target: impl Target) -> (HttpTrial, f64) {
    let (result, rules) = run(plan.clone(), target);
    assert_eq!(rules, []);
    let elapsed_s = result.elapsed_ns as f64 / 1e9;
    (trial(plan.clone(), result), elapsed_s)
}

/// Numbers of completed, in-flight and hung requests.
fn counts(trial: &HttpTrial) -> (u64, u64, u64) {
    assert_eq!(trial.counts.sent, trial.counts.completed + trial.counts.in_flight + trial.counts.failed);
    (trial.counts.completed, trial.counts.in_flight, trial.counts.hung)
}

#[track_caller]
fn about(value: f64, expected: f64) {
    assert!((value - expected).abs() <= 0.001 * expected, "{value} is not {expected}");
}

#[test]
fn users_of_a_target_that_falls_silent_hang_to_the_end_of_the_duration() {
    // Silent from 1 s on.
    let (trial, elapsed_s) = measure(&plan(2 * S), Silent(|n| n >= 400));
    assert_eq!(counts(&trial), (400, 4, 4));
    about(elapsed_s, 7.0);
    about(trial.measured_s, 5.0);
    about(trial.throughput_per_s, 80.0);
}

#[test]
fn requests_that_the_end_cuts_off_do_not_hang() {
    // Begun at 3 s and cut off at 5.5 s, because answers take 3 s.
    let (trial, elapsed_s) = measure(&plan(S / 2), Steady { after_ns: 3 * S });
    assert_eq!(counts(&trial), (4, 4, 0));
    about(elapsed_s, 5.5);
    about(trial.measured_s, 3.0);
    // Begun at 4.8 s and cut off at 5.5 s: less than a second, and all but the usual 10 ms of it count. Begun at 4.4 s: more than a second.
    for (silent_from, hung, measured_s) in [(4 * 480, 0, 4.99), (4 * 440, 4, 5.0)] {
        let (trial, _) = measure(&plan(S / 2), Silent(move |n| n >= silent_from));
        assert_eq!(counts(&trial), (silent_from, 4, hung));
        about(trial.measured_s, measured_s);
    }
}

#[test]
fn a_user_that_hangs_changes_only_its_own_time() {
    let (trial, _) = measure(&plan(2 * S), Silent(|n| n == 41));
    let (completed, in_flight, hung) = counts(&trial);
    assert_eq!((in_flight, hung), (1, 1));
    // The others' last answers come up to 10 ms after the duration.
    assert!((1_500 + 10..=1_503 + 11).contains(&completed), "{completed}");
    assert!((5.0..=5.01).contains(&trial.measured_s), "{}", trial.measured_s);
    about(trial.throughput_per_s, completed as f64 / trial.measured_s);
}

#[test]
fn failures_count_up_to_the_end_of_the_duration_and_users_without_an_answer_not_at_all() {
    let plan = HttpPlan { timeout_ns: S, ..plan(2 * S) };
    // Silent from 1 s on: the requests of 1, 2, 3 and 4 s fail, the last of them after the duration.
    let (trial, _) = measure(&plan, Silent(|n| n >= 400));
    assert_eq!(counts(&trial), (400, 0, 0));
    assert_eq!((trial.counts.failed, trial.errors.of(ErrorClass::Timeout)), (16, 16));
    about(trial.measured_s, 5.0);
    // Three users get one answer, and one user gets none.
    let (trial, _) = measure(&plan, Silent(|n| n != 0 && n != 1 && n != 2));
    assert_eq!(counts(&trial).0, 3);
    about(trial.measured_s, 5.0);
    let (trial, _) = measure(&plan, Silent(|_| true));
    assert_eq!(counts(&trial), (0, 0, 0));
    assert_eq!((trial.measured_s, trial.throughput_per_s), (0.0, 0.0));
}
