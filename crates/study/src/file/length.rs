//! Durations of trials, and estimates of a study's duration.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use load::{HttpWorkload, Time, Typed};
use record::units::show_count;

use settings::Reader;

use super::searches::preset_trials;
use crate::{CommandWorkload, study::Search};

/// Maximum number of loads that a search measures in full, and the seconds of trials at each. The search doubles the smallest load, then
/// bisects until the bounds are as close as requested.
pub(super) fn worst_case(search: &Search) -> (f64, f64) {
    let (_, repeats) = preset_trials(&search.preset);
    let doublings = (search.max / search.min).log2().ceil().max(1.0);
    let mut halvings = (std::f64::consts::LN_2 / -(1.0 - search.width).ln()).log2().ceil().max(0.0);
    if search.unit.is_whole() {
        halvings = halvings.min(search.max.log2().ceil());
    }
    (doublings + 1.0 + halvings, trial_s(search) * f64::from(search.repeats.unwrap_or(repeats)))
}

pub(super) fn trial_s(search: &Search) -> f64 {
    let duration_s = search.trial_duration.map(|duration| duration.as_secs_f64());
    duration_s.unwrap_or_else(|| preset_trials(&search.preset).0)
}

/// Sets the duration of a trial to that of the search or the study, unless the workload has its own.
pub(super) fn set_duration(
    reader: &mut Reader<'_>,
    workload: &mut HttpWorkload,
    spans: &mut BTreeMap<&'static str, Range<usize>>,
    trial: Option<&(Duration, Range<usize>)>,
    search: Option<&Search>,
) {
    if let (Some(_), Some(span)) = (trial, spans.get("duration")) {
        reader.mistake(span.clone(), "the duration is given in [trial] too: leave out one of them");
    }
    let ends_itself = workload.loops.is_some() || workload.requests.is_some();
    let length = match (search, trial) {
        (Some(_), _) if !workload.stages.is_empty() => return,
        (Some(search), _) => {
            if search.trial_duration.is_none() && (workload.duration.is_some() || ends_itself) {
                return;
            }
            Duration::from_secs_f64(trial_s(search))
        }
        (None, Some((duration, span))) => {
            spans.insert("duration", span.clone());
            *duration
        }
        (None, None) => return,
    };
    workload.duration = Some(Typed::set(Time(length)));
}

/// Sets the time after which programs are stopped, if the study or the search gives a duration.
pub(super) fn set_stop_after(
    reader: &mut Reader<'_>,
    workload: &mut CommandWorkload,
    spans: &BTreeMap<&'static str, Range<usize>>,
    trial: Option<&(Duration, Range<usize>)>,
    search: Option<&Search>,
) {
    if let (Some(_), Some(span)) = (trial, spans.get("stop_after")) {
        reader.mistake(span.clone(), "the duration is given in [trial] too: leave out one of them");
    }
    let length = search.and_then(|search| search.trial_duration).or(trial.map(|(length, _)| *length));
    workload.stop_after = workload.stop_after.or(length);
}

/// Formats two durations with the same units, chosen by the longer: `48 min` and `2 h 5 min`, not `47 min 20 s`.
pub(super) fn show_minutes_alike(shorter_s: f64, longer_s: f64) -> (String, String) {
    let whole = shorter_s.ceil() as u64;
    let shorter = match longer_s.ceil() as u64 {
        0..=7_199 => show_minutes(shorter_s),
        _ if whole < 3_600 => format!("{} min", whole.div_ceil(60)),
        _ => show_hours(whole),
    };
    (shorter, show_minutes(longer_s))
}

/// Formats a duration: `50 s`, `6 min 40 s`, `2 h 5 min`.
pub(super) fn show_minutes(seconds: f64) -> String {
    let whole = seconds.ceil() as u64;
    match whole {
        0..=119 => format!("{whole} s"),
        120..=7_199 if whole.is_multiple_of(60) => format!("{} min", whole / 60),
        120..=7_199 => format!("{} min {} s", whole / 60, whole % 60),
        _ => show_hours(whole),
    }
}

fn show_hours(seconds: u64) -> String {
    format!("{} h {} min", show_count(seconds / 3_600), seconds % 3_600 / 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_durations_have_one_format() {
        let both = |shorter, longer| {
            let (shorter, longer) = show_minutes_alike(shorter, longer);
            format!("{shorter}, {longer}")
        };
        assert_eq!(both(7_014.0, 7_200.0), "1 h 56 min, 2 h 0 min");
        assert_eq!(both(50.0, 9_000.0), "1 min, 2 h 30 min");
        assert_eq!(both(405.0, 7_199.0), "6 min 45 s, 119 min 59 s");
        assert_eq!(both(8_000.0, 9_000.0), "2 h 13 min, 2 h 30 min");
    }
}
