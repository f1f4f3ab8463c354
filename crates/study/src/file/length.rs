//! How long a study takes, as far as that is known beforehand.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use load::HttpWorkload;
use record::units::show_count;

use settings::Reader;

use super::searches::preset_trials;
use crate::{CommandWorkload, study::Search};

/// Loads that a search measures at the most, if all are measured in full, and seconds of trials at each: doubling up
/// from the least load, then halving the interval until it is as narrow as asked.
pub(super) fn worst_case(search: &Search) -> (f64, f64) {
    let (_, repeats) = preset_trials(&search.preset);
    let doublings = (search.max / search.min).log2().ceil().max(1.0);
    let mut halvings = (std::f64::consts::LN_2 / -(1.0 - search.width).ln()).log2().ceil().max(0.0);
    if search.unit.is_whole() {
        halvings = halvings.min(search.max.log2().ceil());
    }
    (doublings + 1.0 + halvings, trial_s(search) * f64::from(search.repeats.unwrap_or(repeats)))
}

/// Seconds of a trial that counts in full.
pub(super) fn trial_s(search: &Search) -> f64 {
    let own = search.trial_duration.map(|duration| duration.as_secs_f64());
    own.unwrap_or_else(|| preset_trials(&search.preset).0)
}

/// How long a trial lasts, where the workload does not say it: the study's own length, or that of its search.
pub(super) fn put(
    reader: &mut Reader<'_>,
    workload: &mut HttpWorkload,
    spans: &mut BTreeMap<&'static str, Range<usize>>,
    trial: Option<&(Duration, Range<usize>)>,
    search: Option<&Search>,
) {
    if let (Some(_), Some(span)) = (trial, spans.get("duration")) {
        reader.mistake(span.clone(), "the duration is given in [trial] too: leave out one of both");
    }
    let ends_itself = workload.loops.is_some() || workload.requests.is_some();
    let length_s = match (search, trial) {
        (Some(_), _) if !workload.stages.is_empty() => return,
        (Some(search), _) => {
            if search.trial_duration.is_none() && (workload.duration.is_some() || ends_itself) {
                return;
            }
            trial_s(search)
        }
        (None, Some((duration, span))) => {
            spans.insert("duration", span.clone());
            duration.as_secs_f64()
        }
        (None, None) => return,
    };
    workload.duration = Some(format!("{length_s}s"));
}

/// The same of programs: a length of the study ends them, if it says one.
pub(super) fn put_stop(
    reader: &mut Reader<'_>,
    workload: &mut CommandWorkload,
    spans: &BTreeMap<&'static str, Range<usize>>,
    trial: Option<&(Duration, Range<usize>)>,
    search: Option<&Search>,
) {
    if let (Some(_), Some(span)) = (trial, spans.get("stop_after")) {
        reader.mistake(span.clone(), "the duration is given in [trial] too: leave out one of both");
    }
    let length = search.and_then(|search| search.trial_duration).or(trial.map(|(length, _)| *length));
    workload.stop_after = workload.stop_after.or(length);
}

/// Two times for people in one format, that of the longer: `48 min` and `2 h 5 min`, not `47 min 20 s`.
pub(super) fn minutes_of_both(shorter_s: f64, longer_s: f64) -> (String, String) {
    let whole = shorter_s.ceil() as u64;
    let shorter = match longer_s.ceil() as u64 {
        0..=7_199 => minutes(shorter_s),
        _ if whole < 3_600 => format!("{} min", whole.div_ceil(60)),
        _ => hours(whole),
    };
    (shorter, minutes(longer_s))
}

/// A longer time for people: `50 s`, `6 min 40 s`, `2 h 5 min`.
pub(super) fn minutes(seconds: f64) -> String {
    let whole = seconds.ceil() as u64;
    match whole {
        0..=119 => format!("{whole} s"),
        120..=7_199 if whole.is_multiple_of(60) => format!("{} min", whole / 60),
        120..=7_199 => format!("{} min {} s", whole / 60, whole % 60),
        _ => hours(whole),
    }
}

fn hours(seconds: u64) -> String {
    format!("{} h {} min", show_count(seconds / 3_600), seconds % 3_600 / 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_times_that_are_told_together_have_one_format() {
        let both = |shorter, longer| {
            let (shorter, longer) = minutes_of_both(shorter, longer);
            format!("{shorter}, {longer}")
        };
        assert_eq!(both(7_014.0, 7_200.0), "1 h 56 min, 2 h 0 min");
        assert_eq!(both(50.0, 9_000.0), "1 min, 2 h 30 min");
        assert_eq!(both(405.0, 7_199.0), "6 min 45 s, 119 min 59 s");
        assert_eq!(both(8_000.0, 9_000.0), "2 h 13 min, 2 h 30 min");
    }
}
