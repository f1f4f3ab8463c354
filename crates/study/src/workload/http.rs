//! The kind `http`: requests of our own generator.

use std::time::Duration;

use load::{Count, HttpWorkload, Rate, Time, Typed};
use record::{Distribution, LoadUnit};

/// Duration of a trial without any other bound, in seconds, without the ramp-up.
const DEFAULT_S: f64 = 10.0;

pub(super) fn length_s(workload: &HttpWorkload) -> Option<f64> {
    if !workload.stages.is_empty() {
        let stages = workload.stages.iter().filter_map(|stage| stage.value().ok());
        return Some(stages.map(|stage| stage.duration_ns as f64 / 1e9).sum());
    }
    let bounded = workload.loops.is_some() || workload.requests.is_some();
    match &workload.duration {
        Some(duration) => duration.value().ok().map(|Time(duration)| duration.as_secs_f64()),
        None => (!bounded).then(|| DEFAULT_S + ramp_up(workload).as_secs_f64()),
    }
}

/// The shortest time of a trial whose users end after their loops, with a think time between two loops, in seconds.
pub(super) fn least_length_s(workload: &HttpWorkload) -> f64 {
    // The limit on requests may end the trial before the last user has begun, so no time is certain.
    if workload.requests.is_some() {
        return 0.0;
    }
    let count = |given: &Option<Typed<Count>>| {
        given.as_ref().and_then(|given| given.value().ok()).map_or(1, |Count(count)| *count) as f64
    };
    let think_time = workload.think_time.as_ref().and_then(|given| given.value().ok());
    let think_s = match think_time {
        Some(Distribution::Fixed { ns }) => *ns as f64 / 1e9,
        _ => 0.0,
    };
    // The last user begins one step before the end of the ramp-up.
    let users = count(&workload.users);
    ramp_up(workload).as_secs_f64() * (users - 1.0) / users + (count(&workload.loops) - 1.0) * think_s
}

pub(super) fn ramp_up(workload: &HttpWorkload) -> Duration {
    let given = workload.ramp_up.as_ref().and_then(|given| given.value().ok());
    given.map_or(Duration::ZERO, |Time(ramp_up)| *ramp_up)
}

pub(super) fn set_load(workload: &mut HttpWorkload, unit: &LoadUnit, load: f64) {
    let whole = || Some(Typed::set(Count(load.round() as u64)));
    match unit {
        LoadUnit::Users => workload.users = whole(),
        LoadUnit::Connections => workload.connections = whole(),
        LoadUnit::Rate => workload.rate = Some(Typed::set(Rate(load))),
        LoadUnit::Copies | LoadUnit::Factor(_) => {}
    }
}

/// Sets the duration of a trial.
///
/// A measured trial is longer than the ramp-up, as was checked before. In a shorter warm-up all users start at once.
pub(super) fn set_length(workload: &mut HttpWorkload, length: Duration) {
    workload.duration = Some(Typed::set(Time(length)));
    if workload.ramp_up.is_some() && ramp_up(workload) >= length {
        workload.ramp_up = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_who_think_between_loops_take_that_time_at_the_least() {
        let workload = |think: &str| HttpWorkload {
            loops: Some("3".into()),
            ramp_up: Some("20s".into()),
            think_time: Some(think.into()),
            users: Some("2".into()),
            ..HttpWorkload::default()
        };
        assert_eq!([workload("20s"), workload("exp:1s")].map(|load| least_length_s(&load)), [50.0, 10.0]);
    }

    #[test]
    fn a_warm_up_shorter_than_the_ramp_up_starts_all_users_at_once() {
        let lasting = |seconds| {
            let mut workload = HttpWorkload { ramp_up: Some("5s".into()), ..HttpWorkload::default() };
            set_length(&mut workload, Duration::from_secs(seconds));
            workload
        };
        assert_eq!((lasting(2).ramp_up, lasting(2).duration), (None, Some("2s".into())));
        assert_eq!(lasting(30).ramp_up, Some("5s".into()));
    }
}
