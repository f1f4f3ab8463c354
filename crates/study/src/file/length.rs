//! How long a study takes, as far as that is known beforehand.

use load::HttpWorkload;
use record::{
    Stage,
    units::{parse_time, show_count},
};

use super::searches::preset_trials;
use crate::study::Search;

/// Duration of a trial that nothing else bounds, in seconds.
const DEFAULT_S: f64 = 10.0;

/// Loads that a search measures at the most, if all are measured in full, and seconds of trials at each: doubling up
/// from the least load, then halving the interval until it is as narrow as asked.
pub(super) fn worst_case(search: &Search) -> (f64, f64) {
    let (trial_s, repeats) = preset_trials(&search.preset);
    let trial_s = search.trial_duration.map_or(trial_s, |duration| duration.as_secs_f64());
    let doublings = (search.max / search.min).log2().ceil().max(1.0);
    let mut halvings = (std::f64::consts::LN_2 / -(1.0 - search.width).ln()).log2().ceil().max(0.0);
    if search.unit.is_whole() {
        halvings = halvings.min(search.max.log2().ceil());
    }
    (doublings + 1.0 + halvings, trial_s * f64::from(search.repeats.unwrap_or(repeats)))
}

/// How long a trial lasts, unless its requests alone end it.
pub(super) fn length_s(workload: &HttpWorkload) -> Option<f64> {
    if !workload.stages.is_empty() {
        let stages = workload.stages.iter().filter_map(|stage| stage.parse::<Stage>().ok());
        return Some(stages.map(|stage| stage.duration_ns as f64 / 1e9).sum());
    }
    let bounded = workload.loops.is_some() || workload.requests.is_some();
    match &workload.duration {
        Some(duration) => parse_time(duration).ok().map(|duration| duration.as_secs_f64()),
        None => (!bounded).then_some(DEFAULT_S),
    }
}

/// A longer time for people: `50 s`, `6 min 40 s`, `2 h 5 min`.
pub(super) fn minutes(seconds: f64) -> String {
    let whole = seconds.ceil() as u64;
    match whole {
        0..=119 => format!("{whole} s"),
        120..=7_199 if whole.is_multiple_of(60) => format!("{} min", whole / 60),
        120..=7_199 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", show_count(whole / 3_600), whole % 3_600 / 60),
    }
}
