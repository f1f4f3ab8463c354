//! Whether the load decided the trials of a search, or the time at which they ran.
//!
//! A service that pauses now and then, counts requests by the clock, has tokens in store, is still warming up or gets worse fails some
//! trials and not others, whatever their load. A search that goes by such trials ends with two bounds all the same. So its trials are
//! looked at once more: where a load was missed and a clearly larger one was met, or where losses begin only late in trials of a steady
//! load, the bounds are not the service's.

/// A valid trial of a search, for one goal.
#[derive(Debug, Clone, PartialEq)]
pub struct Timed {
    /// When it began, in seconds since any moment.
    pub start_s: f64,
    /// Its load.
    pub load: f64,
    /// Whether it is as long as trials that decide.
    pub is_full: bool,
    /// Its length, in seconds.
    pub duration_s: f64,
    /// Whether it missed the goal.
    pub is_missed: bool,
    /// Whether answers had become much slower when losses began, as where a queue fills.
    pub piles_up: bool,
    /// For equal parts of the trial, in order, whether more of their requests failed than the goal allows; empty if unknown.
    pub bad_parts: Vec<bool>,
    /// The share of requests that did not fail in those parts; 1 if there is none.
    pub kept_ratio: f64,
}

/// How trials depend on the time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Unsteady {
    /// One trial missed a load, and another met a clearly larger one.
    Disagree {
        /// The smallest load that was missed.
        missed: f64,
        /// The largest load that was met.
        met: f64,
        /// Whether every trial that was missed in spite of it ran before every one that was met: the service got better by itself.
        got_better: bool,
        /// The longest time from one such trial to the next that was met, or back again, in seconds: a trial must be some times longer
        /// to be the same whenever it runs.
        cycle_s: f64,
    },
    /// Losses begin this many seconds after the beginning of trials.
    Later {
        /// In the trials at the smallest load that was missed.
        after_s: f64,
    },
}

/// Loads that are further apart than this many widths, and than [`MIN_DISTANCE`], are clearly different.
const CLEAR_WIDTHS: f64 = 3.0;
/// See [`CLEAR_WIDTHS`]: random arrivals make trials of loads disagree that are nearer to each other.
const MIN_DISTANCE: f64 = 0.2;
/// A trial that is shorter than those that decide must have missed a load this many times smaller.
const SHORT_FACTOR: f64 = 2.0;
/// Between the bounds that were found, trials may disagree over loads that are so many times apart.
const WIDE_FACTOR: f64 = 1.6;
/// Losses in so many parts of a trial are no chance.
const FEWEST_BAD: usize = 2;
/// A loss that begins before this share of the trial was there from its beginning.
const LATE_SHARE: f64 = 0.2;

/// How the trials of a finished search, in the order in which they ran, depend on the time; none if the load explains them, or if they
/// disagree only between the bounds that were found. `width` is the relative distance of bounds that was asked for.
pub fn unsteady(trials: &[Timed], bounds: (Option<f64>, Option<f64>), width: f64) -> Option<Unsteady> {
    late_losses(trials, bounds.0, width).or_else(|| disagreement(trials, bounds, width))
}

fn disagreement(trials: &[Timed], bounds: (Option<f64>, Option<f64>), width: f64) -> Option<Unsteady> {
    let distance = 1.0 + (CLEAR_WIDTHS * width).max(MIN_DISTANCE);
    let met = || trials.iter().enumerate().filter(|(_, trial)| trial.is_full && !trial.is_missed);
    let is_contradicted = |missed: &Timed, met: &Timed| {
        let is_between = bounds.0.is_some_and(|lower| missed.load > lower)
            && bounds.1.is_some_and(|upper| met.load < upper);
        let distance = if is_between { distance.max(WIDE_FACTOR) } else { distance };
        met.load > missed.load * if missed.is_full { distance } else { distance.max(SHORT_FACTOR) }
    };
    let missed = || {
        let missed = trials.iter().enumerate().filter(|(_, trial)| trial.is_missed);
        missed.filter(|(_, missed)| met().any(|(_, met)| is_contradicted(missed, met)))
    };
    let smallest = missed().map(|(_, trial)| trial).min_by(|a, b| a.load.total_cmp(&b.load))?;
    let larger = || met().filter(|(_, met)| is_contradicted(smallest, met));
    Some(Unsteady::Disagree {
        missed: smallest.load,
        met: larger().map(|(_, met)| met.load).fold(0.0, f64::max),
        got_better: missed().next_back()?.0 < larger().next()?.0,
        cycle_s: cycle_s(trials, smallest.load),
    })
}

/// The longest time between changes of trials at this load or a larger one from missed to met.
fn cycle_s(trials: &[Timed], from: f64) -> f64 {
    let of_load: Vec<&Timed> = trials.iter().filter(|trial| trial.load >= from).collect();
    let changes = of_load.windows(2).filter(|pair| pair[0].is_missed != pair[1].is_missed);
    let times: Vec<f64> = changes.map(|pair| pair[1].start_s).collect();
    times.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max)
}

/// Refusals that begin late in trials and then go on, though nothing piled up before, and leave less than the load that was found.
fn late_losses(trials: &[Timed], lower: Option<f64>, width: f64) -> Option<Unsteady> {
    let late = trials.iter().filter(|trial| trial.is_full && trial.is_missed).filter_map(|trial| {
        let from = late_from(trial)?;
        // If what goes on being carried is what was found, the store was small.
        let is_less = trial.load * trial.kept_ratio < lower.unwrap_or(trial.load) * (1.0 - width);
        (is_less && trial.bad_parts.len() >= from + FEWEST_BAD).then_some((trial, from))
    });
    let after_s = late.map(|(trial, from)| from as f64 / trial.bad_parts.len() as f64 * trial.duration_s);
    after_s.reduce(f64::min).map(|after_s| Unsteady::Later { after_s })
}

/// The part from which on a trial loses, if that is late.
fn late_from(trial: &Timed) -> Option<usize> {
    let from = trial.bad_parts.iter().position(|is_bad| *is_bad)?;
    let is_late = from as f64 >= LATE_SHARE * trial.bad_parts.len() as f64;
    (is_late && !trial.piles_up && trial.bad_parts[from..].iter().all(|is_bad| *is_bad)).then_some(from)
}
