//! The kind `http`: requests of our own generator.

use std::time::Duration;

use load::HttpWorkload;
use record::{
    LoadUnit, Stage,
    units::{parse_count, parse_time},
};

/// Duration of a trial without any other bound, in seconds, without the ramp-up.
const DEFAULT_S: f64 = 10.0;

pub(super) fn length_s(workload: &HttpWorkload) -> Option<f64> {
    if !workload.stages.is_empty() {
        let stages = workload.stages.iter().filter_map(|stage| stage.parse::<Stage>().ok());
        return Some(stages.map(|stage| stage.duration_ns as f64 / 1e9).sum());
    }
    let bounded = workload.loops.is_some() || workload.requests.is_some();
    match &workload.duration {
        Some(duration) => parse_time(duration).ok().map(|duration| duration.as_secs_f64()),
        None => (!bounded).then(|| DEFAULT_S + ramp_up(workload).as_secs_f64()),
    }
}

/// The shortest time of a trial whose users end after their loops, with a think time between two loops, in seconds.
pub(super) fn least_length_s(workload: &HttpWorkload) -> f64 {
    // The limit on requests may end the trial before the last user has begun.
    if workload.requests.is_some() {
        return 0.0;
    }
    let loops = workload.loops.as_deref().and_then(|text| parse_count(text).ok()).unwrap_or(1);
    let pauses = loops.saturating_sub(1) as f64;
    let think = workload.think_time.as_deref().and_then(|text| parse_time(text).ok()).unwrap_or_default();
    // The last user begins one step before the end of the ramp-up.
    let users = workload.users.as_deref().and_then(|text| parse_count(text).ok()).unwrap_or(1).max(1) as f64;
    ramp_up(workload).as_secs_f64() * (users - 1.0) / users + pauses * think.as_secs_f64()
}

pub(super) fn ramp_up(workload: &HttpWorkload) -> Duration {
    workload.ramp_up.as_deref().and_then(|text| parse_time(text).ok()).unwrap_or_default()
}

pub(super) fn set_load(workload: &mut HttpWorkload, unit: &LoadUnit, load: f64) {
    match unit {
        LoadUnit::Users => workload.users = Some(format!("{}", load.round())),
        LoadUnit::Connections => workload.connections = Some(format!("{}", load.round())),
        LoadUnit::Rate => workload.rate = Some(format!("{load}")),
        LoadUnit::Copies | LoadUnit::Factor(_) => {}
    }
}

/// Sets the duration of a trial.
///
/// A measured trial is longer than the ramp-up, as was checked before. In a shorter warm-up all users start at once.
pub(super) fn set_length(workload: &mut HttpWorkload, length: Duration) {
    workload.duration = Some(format!("{}s", length.as_secs_f64()));
    if workload.ramp_up.is_some() && ramp_up(workload) >= length {
        workload.ramp_up = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_who_think_between_loops_take_that_time_at_the_least() {
        let (loops, ramp_up) = (Some("3".to_owned()), Some("20s".to_owned()));
        let workload = |think: &str| HttpWorkload {
            loops: loops.clone(),
            ramp_up: ramp_up.clone(),
            think_time: Some(think.to_owned()),
            users: Some("2".to_owned()),
            ..HttpWorkload::default()
        };
        assert_eq!([workload("20s"), workload("exp:1s")].map(|load| least_length_s(&load)), [50.0, 10.0]);
    }

    #[test]
    fn a_warm_up_shorter_than_the_ramp_up_starts_all_users_at_once() {
        let lasting = |seconds| {
            let mut workload = HttpWorkload { ramp_up: Some("5s".to_owned()), ..HttpWorkload::default() };
            set_length(&mut workload, Duration::from_secs(seconds));
            workload
        };
        assert_eq!((lasting(2).ramp_up, lasting(2).duration.as_deref()), (None, Some("2s")));
        assert_eq!(lasting(30).ramp_up.as_deref(), Some("5s"));
    }
}
