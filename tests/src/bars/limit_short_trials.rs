//! `proofload limit --trial 1s` against targets with a known capacity: the bounds of short trials must contain the truth, too.

use anyhow::Result;

use super::{
    Bar, By, Outcome, Runs, Scale,
    limit_capacity::{Search, capacity},
};

pub(super) const BAR: Bar = Bar {
    name: "limit-short-trials",
    what: "--trial 1s: the bounds exclude a known capacity of 500 to 20,000/s in none of 8 runs, and are 10 % apart at the most",
    full_seconds: 320,
    decided_by: By::Times,
    run,
};

/// Largest allowed distance of the bounds in the median run, in percent.
const WIDEST: f64 = 10.0;

fn run(scale: Scale) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let runs = scale.pick(1, 8);
    let (mut excluded, mut widths, mut excused) = (0, Runs::default(), 0);
    for index in 0..runs {
        let truth_per_s = capacity(index, runs);
        let words = scale.pick(
            "--trial 1s --width 5% --min 100 --budget 80s",
            "--trial 1s --width 2% --min 100 --budget 80s",
        );
        let search = Search { capacity_per_s: truth_per_s, service: "fixed", arrivals: "constant", words };
        let found = search.run(index, |_| ())?;
        let (lower, upper) = (found.lower(), found.upper());
        let is_excluded =
            lower.is_some_and(|load| load > truth_per_s) || upper.is_some_and(|load| load < truth_per_s);
        excluded += u64::from(is_excluded);
        excused += u64::from(found.excuse(truth_per_s, truth_per_s).is_some());
        if let (Some(lower), Some(upper)) = (lower, upper) {
            widths.push((1.0 - lower / upper) * 100.0);
        }
        outcome.note(format!(
            "{truth_per_s:.0}/s: {lower:.1?} to {upper:.1?} ({:?}) in {:.0} s{}",
            found.goal.kind,
            found.wall_s,
            if is_excluded { "  EXCLUDED" } else { "" }
        ));
    }
    outcome.time().figure("excluded", format!("{excluded} of {runs}"), "0", excluded == 0);
    let width = widths.median();
    let bound = format!("<= {WIDEST} % (median)");
    if width > WIDEST && 2 * excused >= runs {
        let why =
            format!("{excused} of {runs} searches were given up while something else had the processor");
        outcome.undecided("width", bound, why);
    } else {
        outcome.time().figure("width", format!("{width:.2} %"), bound, width <= WIDEST);
    }
    Ok(outcome)
}
