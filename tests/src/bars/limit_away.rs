//! `proofload limit` with a generator that is stopped from time to time, against targets with a known capacity.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;

use super::{
    Bar, By, Outcome, Scale, is_wanted_among,
    limit_capacity::{Search, capacity},
};
use crate::{
    disturbance::{Awake, stop_for},
    machine::Cores,
    process::Process,
    random::Random,
};

pub(super) const BAR: Bar = Bar {
    name: "limit-away",
    what: "24 searches whose generator is stopped for 50 to 500 ms every 10 s: none excludes the truth, 16 are near it",
    full_seconds: 2_200,
    decided_by: By::Times,
    run,
};

/// Number of searches that one name in `PROVE_CASES` selects: `0-5`.
const TOGETHER: u64 = 6;
/// A useful bound is at least and at most this many times the truth.
const NEAR: (f64, f64) = (0.8, 1.25);

fn run(scale: Scale) -> Result<Outcome> {
    let (searches, every, words) = scale.pick(
        (1, Duration::from_secs(2), "--trial 1s --width 5% --min 100 --budget 12s"),
        (24, Duration::from_secs(10), "--width 5% --min 100 --budget 80s"),
    );
    let _awake = Awake::keep(Cores::of_this_process()?);
    let mut outcome = Outcome::default();
    let (mut excluded, mut near, mut without) = (0, 0, 0);
    let wanted = (0..searches).filter(|&index| is_wanted_among(index, TOGETHER)).collect::<Vec<_>>();
    for &index in &wanted {
        let truth_per_s = capacity(index, searches);
        let search = Search { capacity_per_s: truth_per_s, service: "fixed", arrivals: "constant", words };
        let mut stops = 0;
        let found = search.run(index, |generator| stops = stop_often(generator, index, every))?;
        let (lower, upper) = (found.lower(), found.upper());
        let is_excluded =
            lower.is_some_and(|load| load > truth_per_s) || upper.is_some_and(|load| load < truth_per_s);
        let is_near = lower.is_some_and(|load| load >= NEAR.0 * truth_per_s)
            && upper.is_some_and(|load| load <= NEAR.1 * truth_per_s);
        excluded += u64::from(is_excluded);
        near += u64::from(is_near);
        without += u64::from(stops == 0 || (lower.is_none() && upper.is_none()));
        outcome.note(format!(
            "{truth_per_s:.0}/s: {lower:.1?} to {upper:.1?} ({:?}) in {:.0} s, stopped {stops} times{}",
            found.goal.kind,
            found.wall_s,
            if is_excluded { "  EXCLUDED" } else { "" }
        ));
    }
    let searches = wanted.len() as u64;
    outcome.time().figure("excluded", format!("{excluded} of {searches}"), "0", excluded == 0);
    outcome.time().equal("without_stop_or_bound", without, 0, "of all searches, or nothing is tested");
    let least = scale.pick(0, searches * 2 / 3);
    outcome.time().figure(
        "near",
        format!("{near} of {searches}"),
        format!(">= {least}, within {} to {} of the truth", NEAR.0, NEAR.1),
        near >= least,
    );
    Ok(outcome)
}

/// Repeatedly stops a generator for 50 to 500 ms until it has ended. Returns the number of stops.
fn stop_often(generator: &mut Process, seed: u64, every: Duration) -> u64 {
    let mut random = Random::new(seed);
    let (mut stops, started) = (0, Instant::now());
    let mut next = random.between(Duration::ZERO, 2 * every);
    while generator.is_running() && started.elapsed() < Duration::from_secs(120) {
        if started.elapsed() < next {
            thread::sleep(Duration::from_millis(5));
            continue;
        }
        stop_for(generator, random.between(Duration::from_millis(50), Duration::from_millis(500)));
        stops += 1;
        next = started.elapsed() + random.between(Duration::ZERO, 2 * every);
    }
    stops
}
