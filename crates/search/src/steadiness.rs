//! Detects whether the results of a search's trials depend on the load or on the time at which the trials run.
//!
//! A service fails some trials and not others, whatever their load, if it pauses now and then, limits requests per
//! period, has stored tokens, is still warming up, or degrades. Three signs reveal this: one trial missed the goal and
//! another met it at a clearly larger load; a disturbance began and ended within a trial of a steady load; losses begin
//! late in a trial although no queue had built up. An effect that recurs often enough within a trial is the same in
//! every trial, so the results of longer trials depend on the load again.

/// A valid trial of a search, for one goal.
#[derive(Debug, Clone, PartialEq)]
pub struct Timed {
    /// When the trial began, in seconds since a moment common to all trials.
    pub start_s: f64,
    /// Its load.
    pub load: f64,
    /// Its length, in seconds.
    pub duration_s: f64,
    /// Share of the planned requests that count against the goal: failed, late or never sent.
    pub loss_ratio: f64,
    /// Whether response times grew steadily.
    pub grows: bool,
    /// The share of requests that the goal lets fail (0 to below 1).
    pub allowed: f64,
    /// Equal parts of the trial, in order; empty if unknown.
    pub parts: Vec<Part>,
}

/// A part of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Part {
    /// Requests sent in it.
    pub sent: f64,
    /// Requests completed in it.
    pub completed: f64,
    /// Requests failed in it.
    pub failed: f64,
    /// The response time that the goal bounds, relative to its bound: 0 if the goal bounds none, `None` if no request
    /// was completed.
    pub p50_s: Option<f64>,
    /// The bounded response time relative to its bound: 0 if the goal bounds none, `None` if no request was completed.
    pub slowness: Option<f64>,
}

/// How the results of trials depend on the time at which they run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Unsteady {
    /// One trial missed the goal, and another met it at a clearly larger load.
    Disagree {
        /// The smallest load at which a trial missed the goal.
        missed: f64,
        /// The largest load at which a trial met the goal.
        met: f64,
        /// Whether the service improved by itself: all trials that missed the goal ran before the trials that
        /// contradict them.
        got_better: bool,
        /// The longest time between two changes from missed to met or back, in seconds. The results of trials several
        /// times longer no longer depend on when they run.
        cycle_s: f64,
    },
    /// Within a trial, requests were lost or late, or answers stopped, and then the service recovered; or many requests
    /// were unanswered at the end of the trial although none was lost.
    Passes {
        /// The load of the trial.
        load: f64,
        /// The shortest time between two such disturbances in all trials, in seconds, if there are two.
        cycle_s: Option<f64>,
    },
    /// Losses begin only some time after the start of a trial.
    Later {
        /// The shortest such time of all trials, in seconds.
        after_s: f64,
    },
}

impl Unsteady {
    /// How long the service takes to return to its earlier state, in seconds, if the trials show it.
    pub fn cycle_s(&self) -> Option<f64> {
        match self {
            Self::Disagree { cycle_s, .. } => Some(*cycle_s),
            Self::Passes { cycle_s, .. } => *cycle_s,
            Self::Later { after_s } => Some(*after_s),
        }
    }
}

/// Loads are clearly different if their distance is more than this many widths and more than [`MIN_DISTANCE`].
const CLEAR_WIDTHS: f64 = 3.0;
/// Trials at loads with a smaller relative distance may disagree because of random arrivals; see [`CLEAR_WIDTHS`].
const MIN_DISTANCE: f64 = 0.2;
/// If the trial that missed the goal is below full length, another trial contradicts it only at a load this many times
/// larger.
const SHORT_FACTOR: f64 = 2.0;
/// Trials between the search's bounds contradict each other only if their loads differ by more than this factor.
const WIDE_FACTOR: f64 = 1.6;
/// A trial with a larger loss ratio than this clearly missed the goal.
const LARGE_LOSS: f64 = 0.3;
/// A trial contradicts one that clearly missed the goal only if its load is at least this many widths larger.
const SURE_WIDTHS: f64 = 2.0;
/// Late losses count only in trials longer than this share of a full-length trial.
const LONG_SHARE: f64 = 0.5;
/// A loss that begins in this first share of a trial counts as present from the beginning.
const LATE_SHARE: f64 = 0.2;
/// A disturbance that recurs at least this often within a trial affects all trials alike.
const RECURS: usize = 4;
/// Largest share of the sent requests that may be unanswered in a quiet part, or one standard deviation of random
/// arrivals if that is more.
const MISSING_SHARE: f64 = 0.1;
/// In a part with more than this many times the unanswered requests that [`MISSING_SHARE`] allows, the service stood
/// still.
const CHANCE: f64 = 5.0;
/// Largest response time in a quiet part, as a share of the goal's bound. It is well below 1 because noise near the
/// bound also comes and goes.
const QUIET: f64 = 0.7;
/// A backlog of at most this many standard deviations of random arrivals may be due to chance.
const BEHIND_CHANCE: f64 = 2.5;
/// If response times grow by more than this factor from one part to the next, the reason is not a growing queue.
const JUMP: f64 = 8.0;
/// A smaller number of requests may be due to chance.
const MANY: f64 = 8.0;
/// Response times that have grown by more than this factor since the first part show a queue.
const MAX_SLOWER: f64 = 2.0;

/// How the results of these trials depend on the time at which they ran; `None` if the load explains them. `trials` are
/// in the order in which they ran; `width` is the requested relative distance of the bounds; trials of at least
/// `full_s` seconds decide. With `hints`, effects that may be noise count too. They justify longer trials, but not
/// undecided bounds, so `hints` must be off if trials cannot become longer.
pub fn unsteady(
    trials: &[Timed],
    bounds: (Option<f64>, Option<f64>),
    width: f64,
    full_s: f64,
    hints: bool,
) -> Option<Unsteady> {
    let full_s = full_s * (1.0 - 1e-9);
    late_losses(trials, bounds.0, width, full_s)
        .or_else(|| passing(trials, width, full_s))
        .or_else(|| behind(trials, width, full_s).filter(|_| hints))
        .or_else(|| disagreement(trials, bounds, width, full_s))
}

fn disagreement(
    trials: &[Timed],
    bounds: (Option<f64>, Option<f64>),
    width: f64,
    full_s: f64,
) -> Option<Unsteady> {
    let distance = 1.0 + (CLEAR_WIDTHS * width).max(MIN_DISTANCE);
    let is_full = |trial: &Timed| trial.duration_s >= full_s;
    let met = || trials.iter().enumerate().filter(|(_, trial)| is_full(trial) && !trial.is_missed());
    let is_contradicted = |missed: &Timed, met: &Timed| {
        // Many users that connect at the same time lose more in a short trial.
        if missed.loss_ratio > missed.allowed.max(LARGE_LOSS) && !missed.parts.is_empty() {
            let is_short = 2.0 * missed.duration_s < met.duration_s;
            let widths = [SURE_WIDTHS, CLEAR_WIDTHS][usize::from(missed.grows)];
            let distance = if is_short { 0.0 } else { widths * width };
            return met.load >= missed.load * (1.0 + distance);
        }
        let is_between = bounds.0.is_some_and(|lower| missed.load > lower)
            && bounds.1.is_some_and(|upper| met.load < upper);
        let distance = if is_between { distance.max(WIDE_FACTOR) } else { distance };
        met.load > missed.load * if is_full(missed) { distance } else { distance.max(SHORT_FACTOR) }
    };
    let missed = || {
        let missed = trials.iter().enumerate().filter(|(_, trial)| trial.is_missed());
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

/// The longest time between two changes from missed to met or back, in seconds, in the trials at loads of at least
/// `from`.
fn cycle_s(trials: &[Timed], from: f64) -> f64 {
    let of_load: Vec<&Timed> = trials.iter().filter(|trial| trial.load >= from).collect();
    let changes = of_load.windows(2).filter(|pair| pair[0].is_missed() != pair[1].is_missed());
    let times: Vec<f64> = changes.map(|pair| pair[1].start_s).collect();
    times.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max)
}

/// Finds a disturbance that began and ended within a trial, unless it recurs so often that it affects all trials alike.
/// Near a limit, noise also comes and goes, but less suddenly, and no larger load is met.
fn passing(trials: &[Timed], width: f64, full_s: f64) -> Option<Unsteady> {
    let is_clear = |trial: &Timed| {
        let larger = trial.load * (1.0 + (CLEAR_WIDTHS * width).max(MIN_DISTANCE));
        let is_met =
            |met: &Timed| met.load > larger && met.duration_s >= trial.duration_s && !met.is_missed();
        trial.is_missed() && trials.iter().any(is_met)
    };
    let seen: Vec<(&Timed, Vec<(f64, bool)>)> = trials
        .iter()
        .filter(|trial| trial.duration_s > 0.5 * full_s)
        .map(|trial| (trial, trial.passages()))
        .collect();
    if seen.iter().any(|(_, passages)| passages.len() >= RECURS) {
        return None;
    }
    let told = seen
        .iter()
        .find(|(trial, passages)| passages.iter().any(|(_, is_sudden)| *is_sudden || is_clear(trial)));
    let load = told?.0.load;
    let times: Vec<f64> = seen.iter().flat_map(|(_, passages)| passages).map(|(at_s, _)| *at_s).collect();
    let cycle_s = times.windows(2).map(|pair| pair[1] - pair[0]).reduce(f64::min);
    Some(Unsteady::Passes { load, cycle_s })
}

/// Finds trials that met the goal, but with fewer answers at their end than the requests of a load smaller by `width`.
/// The service does not work off the backlog of one pause before the next, although the backlog does not grow steadily.
fn behind(trials: &[Timed], width: f64, full_s: f64) -> Option<Unsteady> {
    let is_behind = |trial: &&Timed| {
        // Slow answers leave requests open from the beginning, so the parts before the first answer do not count.
        let answer_s = trial.parts.iter().filter_map(|part| part.p50_s).fold(f64::INFINITY, f64::min);
        let parts = trial.parts.iter().skip((answer_s / trial.part_s() + 0.9) as usize);
        let sum = |of: fn(&Part) -> f64| parts.clone().map(of).sum::<f64>();
        let (sent, ended) = (sum(|part| part.sent), sum(Part::all));
        sent - ended > (width * sent).max(BEHIND_CHANCE * sent.sqrt())
    };
    let long = trials.iter().filter(|trial| trial.duration_s >= full_s && !trial.is_missed());
    long.filter(is_behind)
        .map(|trial| trial.load)
        .reduce(f64::min)
        .map(|load| Unsteady::Passes { load, cycle_s: None })
}

/// Finds losses that begin late in trials and last to the end, without an earlier backlog, if the remaining load is
/// below the lower bound.
fn late_losses(trials: &[Timed], lower: Option<f64>, width: f64, full_s: f64) -> Option<Unsteady> {
    let is_long = |trial: &&Timed| trial.duration_s > LONG_SHARE * full_s && trial.is_missed();
    let late = trials.iter().filter(is_long).filter_map(|trial| {
        let from = trial.fails_late_from()?;
        let bad = trial.parts.iter().filter(|part| trial.fails(part));
        let (failed, all) = bad.fold((0.0, 0.0), |sum, part| (sum.0 + part.failed, sum.1 + part.all()));
        // If the remaining load equals the lower bound, few tokens were stored, and the lower bound is right.
        let is_less = trial.load * (1.0 - failed / all) < lower.unwrap_or(trial.load) * (1.0 - width);
        (is_less && failed >= MANY).then_some((trial, from))
    });
    let after_s = late.map(|(trial, from)| from as f64 * trial.part_s());
    after_s.reduce(f64::min).map(|after_s| Unsteady::Later { after_s })
}

impl Part {
    fn all(&self) -> f64 {
        self.completed + self.failed
    }
}

impl Timed {
    /// Whether the trial missed the goal.
    pub fn is_missed(&self) -> bool {
        self.loss_ratio > self.allowed
    }

    fn part_s(&self) -> f64 {
        self.duration_s / self.parts.len() as f64
    }

    /// Whether more requests failed in a part than the goal allows.
    fn fails(&self, part: &Part) -> bool {
        part.failed > self.allowed * part.all()
    }

    /// Index of the part in which the trial begins to lose requests, if that is late in the trial and no queue had
    /// built up.
    fn fails_late_from(&self) -> Option<usize> {
        let from = self.parts.iter().position(|part| self.fails(part))?;
        let is_late = from as f64 >= LATE_SHARE * self.parts.len() as f64;
        let slower = self.parts[from.saturating_sub(1)].p50_s.zip(self.parts[0].p50_s);
        let piles_up = self.grows || slower.is_some_and(|(then, first)| then > MAX_SLOWER * first);
        (is_late && !piles_up && self.parts[from..].iter().all(|part| self.fails(part))).then_some(from)
    }

    /// The moments at which answers stopped or suddenly became slower, or requests were lost or late for a while, in
    /// seconds; and whether each change was too sudden for noise. A disturbance of only the first requests does not
    /// count, because the start of the trial causes it.
    fn passages(&self) -> Vec<(f64, bool)> {
        let (mut passages, mut begun, mut quiet) = (Vec::new(), None, None);
        for (index, part) in self.parts.iter().enumerate() {
            let missing = (part.sent - part.all()) / (MISSING_SHARE * part.sent).max(part.sent.sqrt());
            let is_still = missing > CHANCE && part.slowness != Some(0.0);
            let slowness = part.slowness.unwrap_or(QUIET * 1.1);
            if self.fails(part) || slowness > 1.0 || is_still {
                let before: Option<f64> = quiet.take();
                let is_sudden = before.is_some_and(|before| {
                    is_still || (part.sent >= MANY && slowness > JUMP * before.max(1.0 / JUMP))
                });
                match is_sudden {
                    true => passages.push((self.start_s + index as f64 * self.part_s(), true)),
                    false if index == 0 || before.is_some() => begun = Some(index),
                    false => {}
                }
            } else if slowness <= QUIET && missing <= 1.0 {
                quiet = Some(slowness);
                let is_own = |from: &usize| *from > 0 || index as f64 > LATE_SHARE * self.parts.len() as f64;
                let at_s = |from| self.start_s + from as f64 * self.part_s();
                passages.extend(begun.take().filter(is_own).map(|from| (at_s(from), self.allowed == 0.0)));
            }
        }
        passages
    }
}
