//! Detects whether the results of a search's trials depended on the time instead of the load.

use record::{
    BoundKind, Goal, GoalQuantity, HttpTrial, Interval, SearchOutcome, SearchPlan, TrialEntry, Warning,
    units::show_number,
};
use search::{
    NextTrial, Preset,
    steadiness::{Part, Timed, Unsteady},
};

/// Code of the warning about a goal whose trials depend on the time.
const UNSTEADY: &str = "unsteady";
/// Code of the warning about a goal whose bounds come from longer trials than the user requested.
const LONGER_TRIALS: &str = "longer_trials";
/// A trial of this many cycles of the service gives nearly the same result at any time.
const CYCLES: f64 = 5.0;
/// A trial that is longer by this factor than the time until losses begin mostly shows the service after that time.
const DELAYS: f64 = 10.0;

/// Warns if the trials of a search depend on the time. A search with the preset `mlrsearch` then leaves the goal undecided; other
/// presets keep the bounds that their standards define.
pub(crate) fn check(
    search: &SearchPlan,
    of_goal: impl Fn(usize) -> (Option<Unsteady>, (f64, f64)),
    found: &mut SearchOutcome,
) -> Vec<Warning> {
    let decides = search.method.parse() == Ok(Preset::Mlrsearch);
    let mut warnings = Vec::new();
    for (index, outcome) in found.goals.iter_mut().enumerate() {
        let (unsteady, (trial_s, longer)) = of_goal(index);
        if let Some(unsteady) = unsteady {
            if decides {
                (outcome.lower, outcome.upper, outcome.kind) = (None, None, BoundKind::Unsteady);
            }
            let why = in_words(unsteady, &|load| search.unit.show(load), trial_s);
            warnings.push(Warning::new(UNSTEADY, format!("{}: {why}", outcome.goal)));
        } else if longer > 1.0 {
            let message = format!(
                "{}: the result of trials of {} depended on when they ran, not on their load; the \
                 bounds are those of trials of {}",
                outcome.goal,
                seconds(trial_s / longer),
                seconds(trial_s)
            );
            warnings.push(Warning::new(LONGER_TRIALS, message));
        }
    }
    warnings
}

/// A valid trial, in the form that a search needs.
pub(crate) fn timed(goal: &Goal, loss_ratio: f64, entry: &TrialEntry, asked: &NextTrial) -> Timed {
    let is_told = matches!(goal.quantity, GoalQuantity::Errors | GoalQuantity::ResponseTime { .. });
    let mut parts = entry.trial.http().filter(|_| is_told).map_or(&[][..], parts);
    // Without the generator's share, too few requests were lost for any part to miss the goal: a change in the course of such a trial
    // says nothing about the service.
    let least = goal.least_loss_ratio_of(&entry.trial, None);
    if least < goal.loss_ratio_of(&entry.trial, None) && least * parts.len() as f64 <= goal.loss_ratio {
        parts = &[];
    }
    let slowness = |part: &Interval| {
        let GoalQuantity::ResponseTime { bound_ns } = goal.quantity else { return Some(0.0) };
        // Use the known percentile of a second that is nearest to the bounded one, and not below it.
        let time_us = match goal.loss_ratio {
            share if share >= 0.5 => part.p50_us,
            share if share >= 0.01 => part.p99_us,
            _ => part.max_us,
        };
        Some(time_us? * 1e3 / bound_ns as f64)
    };
    let part = |part: &Interval| Part {
        sent: part.sent as f64,
        completed: part.completed as f64,
        failed: part.failed as f64,
        p50_s: part.p50_us.map(|time_us| time_us / 1e6),
        slowness: slowness(part),
    };
    Timed {
        start_s: entry.study_time_s,
        load: asked.load,
        duration_s: asked.duration_s,
        loss_ratio,
        grows: entry.growth_per_s.is_some(),
        allowed: goal.loss_ratio,
        parts: parts.iter().map(part).collect(),
    }
}

/// The intervals of a steady load in which requests were due. Empty if the intervals cannot show the losses: requests that time out
/// are counted at the timeout, not when they are due.
fn parts(http: &HttpTrial) -> &[Interval] {
    let sending_ns = http.plan.sending_ns().filter(|_| http.plan.load.is_open());
    if http.errors.iter().any(|(class, _)| class.is_timeout()) {
        return &[];
    }
    let due = sending_ns.map_or(0, |sending_ns| (sending_ns / http.plan.interval_ns().max(1)) as usize);
    &http.series[..due.min(http.series.len())]
}

fn seconds(s: f64) -> String {
    format!("{} s", show_number(s.ceil()))
}

fn in_words(unsteady: Unsteady, show: &dyn Fn(f64) -> String, trial_s: f64) -> String {
    let longer = |cycle_s: f64| {
        format!(
            "give trials of {} (--trial; now {})",
            seconds(CYCLES * cycle_s.max(trial_s)),
            seconds(trial_s)
        )
    };
    match unsteady {
        Unsteady::Disagree { missed, met, got_better, cycle_s } => {
            let help = match got_better {
                true => "the service got better by itself, perhaps because it warmed up: search again now, or give a --warm-up".to_owned(),
                false => {
                    let longer = longer(cycle_s);
                    format!("the service may pause, or count requests by the clock: {longer}")
                }
            };
            let (missed, met) = (show(missed), show(met));
            format!(
                "the result depends on when a trial runs, not on its load: a trial at {missed} missed the goal, and one at {met}, a larger load, met it; {help}"
            )
        }
        Unsteady::Passes { load, cycle_s } => format!(
            "the result depends on when a trial runs, not on its load: at {} answers stopped or failed for a part of a trial; the service may \
             pause, or count requests by the clock: {}",
            show(load),
            longer(cycle_s.unwrap_or(trial_s))
        ),
        Unsteady::Later { after_s } => format!(
            "losses begin {after_s:.1} s after the beginning of a trial, and nothing piled up before; the service may have a reserve, \
             such as a token bucket: give trials of {} (--trial; now {})",
            seconds(DELAYS * after_s.max(trial_s / 2.0)),
            seconds(trial_s)
        ),
    }
}

#[cfg(test)]
mod tests {
    use record::{CensoredTimes, ErrorClass};
    use testing::plans;

    use crate::judge::tests::trial;

    use super::*;

    fn second(failed: u64, p50_us: f64) -> Interval {
        Interval { end_s: 1.0, completed: 50, failed, p50_us: Some(p50_us), ..Interval::default() }
    }

    #[test]
    fn seconds_tell_when_losses_began_and_whether_anything_piled_up() {
        let of = |seconds: &[(u64, f64)], timeouts| {
            let series = seconds.iter().map(|(failed, p50_us)| second(*failed, *p50_us)).collect();
            let plan = plans::open(50.0, seconds.len() as u64, 8);
            let mut http = HttpTrial { plan, series, ..HttpTrial::default() };
            http.errors.add(ErrorClass::Timeout, timeouts);
            parts(&http).len()
        };
        let seconds = [(0, 900.0), (0, 910.0), (3, 900.0), (9, 905.0)];
        assert_eq!(of(&seconds, 0), 4);
        assert_eq!(of(&seconds, 1), 0, "time-outs are counted later than they are due");
    }

    #[test]
    fn what_the_generator_may_have_caused_tells_nothing_of_the_service() {
        let parts_of = |own_ms: u64| {
            let mut trial = trial(0, 0, &[]);
            let http = trial.http_mut().unwrap();
            http.plan = plans::open(50.0, 10, 8);
            http.counts.scheduled = 500;
            http.response_time = CensoredTimes::default();
            (0..490).for_each(|_| http.response_time.record_ns(1_000_000, 0));
            (0..10).for_each(|_| http.response_time.record_ns(100_000_000, own_ms * 1_000_000));
            http.series = vec![second(0, 900.0); 10];
            let asked = NextTrial { load: 50.0, duration_s: 10.0, is_warm_up: false, attempt: 0, gap_s: 0.0 };
            let goal = Goal::response_time(0.99, 50_000_000);
            timed(&goal, 0.02, &TrialEntry::alone(1, trial), &asked).parts.len()
        };
        assert_eq!((parts_of(0), parts_of(40), parts_of(60)), (10, 10, 0));
    }

    #[test]
    fn the_words_say_how_long_a_trial_would_have_to_be() {
        let show = |load: f64| format!("{load}/s");
        let disagree = |got_better| Unsteady::Disagree { missed: 20.0, met: 90.0, got_better, cycle_s: 8.0 };
        let words = |unsteady| in_words(unsteady, &show, 5.0);
        assert!(words(disagree(false)).contains("give trials of 40 s (--trial; now 5 s)"));
        assert!(words(disagree(true)).contains("--warm-up"));
        assert!(words(Unsteady::Later { after_s: 3.0 }).contains("give trials of 30 s"));
    }
}
