//! `proofload limit` beside a hog, against targets with a known capacity.

use anyhow::Result;

use super::{
    Bar, By, Outcome, Runs, Scale, is_wanted_among,
    limit_capacity::{Answer, Search, capacity},
};
use crate::{
    hog::{Bursts, Hog},
    machine::Cores,
};

pub(super) const BAR: Bar = Bar {
    name: "limit-beside-hog",
    what: "12 known capacities, each without and beside a hog of 5 % on the generator's processor: none is excluded, bounds are at \
           most twice as wide, and take at most 1.5 times as long",
    full_seconds: 1_800,
    decided_by: By::Times,
    run,
};

const HOG_SHARE: f64 = 0.05;
const HOG_BURSTS_MS: [f64; 2] = [0.2, 50.0];
/// Largest allowed effect of the hog: factors for the width of the bounds and for the time.
const MAX_WIDER: f64 = 2.0;
const MAX_LONGER: f64 = 1.5;

fn run(scale: Scale) -> Result<Outcome> {
    let (searches, words) =
        scale.pick((1, "--trial 1s --width 5% --min 100 --budget 12s"), (12, "--width 5%"));
    let core = Cores::of_this_process()?.generator;
    let mut outcome = Outcome::default();
    let (mut excluded, mut without) = (0, 0);
    let (mut widths, mut times) = ([Runs::default(), Runs::default()], [Runs::default(), Runs::default()]);
    // A name in `PROVE_CASES` selects four runs: `0-3`.
    let indices: Vec<u64> = (0..searches).filter(|&index| is_wanted_among(index, 4)).collect();
    for &index in &indices {
        let truth_per_s = capacity(index, searches);
        let search = Search { capacity_per_s: truth_per_s, service: "fixed", arrivals: "constant", words };
        for (beside, name) in ["alone", "beside the hog"].into_iter().enumerate() {
            let bursts = (beside == 1).then(|| (core, Bursts::new(index, HOG_SHARE, HOG_BURSTS_MS)));
            let hog = Hog::start(bursts)?;
            let found = search.run(index, |_| ())?;
            let taken: f64 = hog.end()?.iter().map(|taken| taken.share()).sum();
            excluded += u64::from(excludes(&found, truth_per_s));
            let width = width_percent(&found);
            without += u64::from(width.is_none());
            widths[beside].push(width.unwrap_or(f64::INFINITY));
            times[beside].push(found.wall_s);
            let took = if beside == 1 { format!(" of {:.1} %", taken * 100.0) } else { String::new() };
            let mark = if excludes(&found, truth_per_s) { "  EXCLUDED" } else { "" };
            outcome.note(format!("{truth_per_s:.0}/s {name}{took}: {}{mark}", found.shown()));
        }
    }
    let searches = indices.len() as u64;
    outcome.time().figure("excluded", format!("{excluded} of {}", 2 * searches), "0", excluded == 0);
    for (name, unit, of, most) in [("width", " %", &widths, MAX_WIDER), ("time", " s", &times, MAX_LONGER)] {
        let [alone, beside] = of.each_ref().map(Runs::median);
        let value = format!("{beside:.2}{unit}, alone {alone:.2}{unit}");
        let bound = format!("<= {most} x alone, medians");
        outcome.time().figure(name, value, bound, scale != Scale::Full || beside <= most * alone);
    }
    outcome.note(format!("{without} of {} searches have no two bounds", 2 * searches));
    Ok(outcome)
}

fn excludes(found: &Answer, truth_per_s: f64) -> bool {
    found.lower().is_some_and(|load| load > truth_per_s)
        || found.upper().is_some_and(|load| load < truth_per_s)
}

/// The distance between the bounds in percent of the upper one; none if one is missing.
fn width_percent(found: &Answer) -> Option<f64> {
    Some((1.0 - found.lower()? / found.upper()?) * 100.0)
}
