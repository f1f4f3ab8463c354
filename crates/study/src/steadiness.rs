//! Whether the load decided the trials of a search, or the time at which they ran.

use record::{
    Bound, BoundKind, Goal, HttpTrial, Interval, SearchOutcome, StudyPlan, TrialEntry, Warning,
    units::show_number,
};
use search::{
    Preset,
    steadiness::{Timed, Unsteady, unsteady},
};

/// Code of the warning about a goal whose trials depend on the time.
pub(crate) const UNSTEADY: &str = "unsteady";
/// A trial that is this many times longer than a cycle of the service is nearly the same whenever it runs.
const CYCLES: f64 = 5.0;
/// A trial that is this many times longer than it took until losses began shows mostly what comes then.
const DELAYS: f64 = 10.0;
/// Answers that are this many times slower just before losses began than at first show that a queue had filled.
const MAX_SLOWER: f64 = 2.0;

/// Looks whether the valid trials of a search depend on the time, and says so. In a search of the preset `mlrsearch`, the goal is not
/// decided then; the others name the bounds that their standards define.
pub(crate) fn check(plan: &StudyPlan, found: &mut SearchOutcome, trials: &[&TrialEntry]) -> Vec<Warning> {
    let Some(search) = trials.first().and_then(|first| plan.search_of(first.setting)) else {
        return Vec::new();
    };
    let decides = search.method.parse() == Ok(Preset::Mlrsearch);
    let mut warnings = Vec::new();
    for (index, goal) in plan.goals.iter().enumerate() {
        let timed: Vec<Timed> = trials.iter().filter_map(|entry| timed(plan, index, goal, entry)).collect();
        let Some(outcome) = found.goals.get_mut(index) else { continue };
        let load = |bound: &Option<Bound>| bound.as_ref().map(|bound| bound.load);
        let bounds = (load(&outcome.lower), load(&outcome.upper));
        let Some(unsteady) = unsteady(&timed, bounds, search.width) else { continue };
        if decides {
            (outcome.lower, outcome.upper, outcome.kind) = (None, None, BoundKind::Unsteady);
        }
        let why = in_words(unsteady, &|load| search.unit.show(load), search.trial_duration_s, &timed);
        warnings.push(Warning::new(UNSTEADY, format!("{}: {why}", goal.name)));
    }
    warnings
}

fn timed(plan: &StudyPlan, index: usize, goal: &Goal, entry: &TrialEntry) -> Option<Timed> {
    let (load, loss_ratio) = (entry.load?, *entry.loss_ratios.get(index)?);
    let parts = entry.trial.http().map_or(&[][..], parts);
    let all = |part: &Interval| (part.completed + part.failed) as f64;
    let bad_parts: Vec<bool> =
        parts.iter().map(|part| part.failed as f64 > goal.loss_ratio * all(part)).collect();
    let bad = || parts.iter().zip(&bad_parts).filter(|(_, is_bad)| **is_bad).map(|(part, _)| part);
    let begin = bad_parts.iter().position(|is_bad| *is_bad).unwrap_or(0);
    let median_us = |at: usize| parts.get(at).and_then(|part| part.p50_us);
    let slower = median_us(begin.saturating_sub(1))
        .zip(median_us(0))
        .is_some_and(|(then, first)| then > MAX_SLOWER * first);
    Some(Timed {
        start_s: entry.study_time_s,
        load,
        is_full: !entry.is_short(plan),
        duration_s: entry.asked_s.unwrap_or(entry.trial.elapsed_s),
        is_missed: loss_ratio > goal.loss_ratio,
        piles_up: entry.growth_per_s.is_some() || slower,
        kept_ratio: 1.0
            - bad().map(|part| part.failed as f64).sum::<f64>() / bad().map(all).sum::<f64>().max(1.0),
        bad_parts,
    })
}

/// The intervals of a steady load in which requests were due. None if they do not tell: requests that time out are counted when they
/// do, not when they are due.
fn parts(http: &HttpTrial) -> &[Interval] {
    let sending_ns = http.plan.sending_ns().filter(|_| http.plan.load.is_open());
    if http.errors.iter().any(|(class, _)| class.is_timeout()) {
        return &[];
    }
    let due = sending_ns.map_or(0, |sending_ns| (sending_ns / http.plan.interval_ns().max(1)) as usize);
    &http.series[..due.min(http.series.len())]
}

fn in_words(unsteady: Unsteady, show: &dyn Fn(f64) -> String, trial_s: f64, timed: &[Timed]) -> String {
    let seconds = |s: f64| format!("{} s", show_number(s.ceil()));
    match unsteady {
        Unsteady::Disagree { missed, met, got_better, cycle_s } => {
            let end_s = |trial: &Timed| trial.start_s + trial.duration_s;
            let missed_until_s = timed.iter().filter(|trial| trial.is_missed && trial.load < met).map(end_s);
            let help = match got_better {
                true => format!(
                    "the service got better by itself, as one that warms up: search again now, or give --warm-up {}",
                    seconds(missed_until_s.fold(0.0, f64::max))
                ),
                false => format!(
                    "as of a service that pauses, or counts requests by the clock: give trials of {} (--trial; now {})",
                    seconds(CYCLES * cycle_s.max(trial_s)),
                    seconds(trial_s)
                ),
            };
            let (missed, met) = (show(missed), show(met));
            format!(
                "when a trial ran decided, not its load: {missed} was missed and {met}, a larger load, was met; {help}"
            )
        }
        Unsteady::Later { after_s } => format!(
            "losses begin {after_s:.1} s after the beginning of a trial, before which nothing piled up, as of a service that has a \
             store of permits: give trials of {} (--trial; now {})",
            seconds(DELAYS * after_s.max(trial_s / 2.0)),
            seconds(trial_s)
        ),
    }
}

#[cfg(test)]
mod tests {
    use record::ErrorClass;
    use testing::plans;

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
    fn the_words_say_how_long_a_trial_would_have_to_be() {
        let show = |load: f64| format!("{load}/s");
        let disagree = |got_better| Unsteady::Disagree { missed: 20.0, met: 90.0, got_better, cycle_s: 8.0 };
        let words = |unsteady| in_words(unsteady, &show, 5.0, &[]);
        assert!(words(disagree(false)).contains("give trials of 40 s (--trial; now 5 s)"));
        assert!(words(disagree(true)).contains("--warm-up"));
        assert!(words(Unsteady::Later { after_s: 3.0 }).contains("give trials of 30 s"));
    }
}
