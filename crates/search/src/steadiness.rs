//! Whether the load decided the trials of a search, or the time at which they ran.
//!
//! A service that pauses now and then, counts requests by the clock, has tokens in store, is still warming up or gets worse fails some
//! trials and not others, whatever their load. Three things tell: a load was missed and a clearly larger one was met; something came and
//! went within a trial of a steady load; losses begin only late in it, though nothing had piled up. What recurs within a trial often
//! enough is the same in every trial: longer trials are decided by the load again.

/// A valid trial of a search, for one goal.
#[derive(Debug, Clone, PartialEq)]
pub struct Timed {
    /// When it began, in seconds since any moment.
    pub start_s: f64,
    /// Its load.
    pub load: f64,
    /// Its length, in seconds.
    pub duration_s: f64,
    /// The share of requests that was lost to the goal.
    pub loss_ratio: f64,
    /// Whether its answers became steadily slower.
    pub grows: bool,
    /// The share of requests that the goal lets fail (0 to below 1).
    pub allowed: f64,
    /// Equal parts of it, in order; empty if unknown.
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
    /// Median response time, in seconds, if any request was completed.
    pub p50_s: Option<f64>,
    /// The response time that the goal bounds, relative to its bound: 0 if it bounds none, nothing if no request was completed.
    pub slowness: Option<f64>,
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
    /// Within a trial, requests were lost or late, or answers stopped, and then all was as before; or many were not yet answered at its
    /// end, though none was lost.
    Passes {
        /// The load of the trial.
        load: f64,
        /// The shortest time between two such moments of all trials, in seconds, if there are two.
        cycle_s: Option<f64>,
    },
    /// Losses begin this many seconds after the beginning of trials.
    Later {
        /// In the trials at the smallest load that was missed.
        after_s: f64,
    },
}

impl Unsteady {
    /// How long the service takes, in seconds, until it is as it was, if the trials tell.
    pub fn cycle_s(&self) -> Option<f64> {
        match self {
            Self::Disagree { cycle_s, .. } => Some(*cycle_s),
            Self::Passes { cycle_s, .. } => *cycle_s,
            Self::Later { after_s } => Some(*after_s),
        }
    }
}

/// Loads that are further apart than this many widths, and than [`MIN_DISTANCE`], are clearly different.
const CLEAR_WIDTHS: f64 = 3.0;
/// See [`CLEAR_WIDTHS`]: random arrivals make trials of loads disagree that are nearer to each other.
const MIN_DISTANCE: f64 = 0.2;
/// A trial that is shorter than those that decide must have missed a load this many times smaller.
const SHORT_FACTOR: f64 = 2.0;
/// Between the bounds that were found, trials may disagree over loads that are so many times apart.
const WIDE_FACTOR: f64 = 1.6;
/// A trial that lost so much is clearly missed,
const LARGE_LOSS: f64 = 0.3;
/// and a load that was met so many widths above it is clearly larger.
const SURE_WIDTHS: f64 = 2.0;
/// What goes on within a trial tells in trials of at least this share of those that decide.
const LONG_SHARE: f64 = 0.5;
/// A loss that begins before this share of the trial was there from its beginning.
const LATE_SHARE: f64 = 0.2;
/// What passes so often within a trial is the same in every trial.
const RECURS: usize = 4;
/// In a quiet part, at most this share of what was sent is not answered, or a standard deviation of random arrivals;
const MISSING_SHARE: f64 = 0.1;
/// the service stood still in one in which so many times more was not.
const CHANCE: f64 = 5.0;
/// And its times are at most this share of the bound: near a limit, noise comes and goes as well.
const QUIET: f64 = 0.7;
/// So many standard deviations of what is answered late are no chance.
const BEHIND_CHANCE: f64 = 2.5;
/// Times that grow so many times from one part to the next do not grow as those of a queue that fills.
const JUMP: f64 = 8.0;
/// Fewer requests than this are chance.
const MANY: f64 = 8.0;
/// Answers that are this many times slower than at first show a queue.
const MAX_SLOWER: f64 = 2.0;

/// How these trials of a search, in the order in which they ran, depend on the time; none if the load explains them. `width` is the
/// relative distance of bounds that was asked for; trials of `full_s` seconds and more decide. With `hints`, also what noise may have
/// done: enough to try longer trials, and too little to leave bounds undecided without.
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
        // Users who all connect at once lose more in a short trial.
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

/// The longest time between changes of trials at this load or a larger one from missed to met.
fn cycle_s(trials: &[Timed], from: f64) -> f64 {
    let of_load: Vec<&Timed> = trials.iter().filter(|trial| trial.load >= from).collect();
    let changes = of_load.windows(2).filter(|pair| pair[0].is_missed() != pair[1].is_missed());
    let times: Vec<f64> = changes.map(|pair| pair[1].start_s).collect();
    times.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max)
}

/// What came and went within a trial, unless it did so often enough to be the same in every trial. Noise comes and goes as well near a
/// limit, but not so suddenly, and not where a larger load is met.
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

/// Trials without a loss at whose end fewer requests were answered than a load smaller by the width would have brought: what piles up in
/// one pause is not answered before the next, though not steadily.
fn behind(trials: &[Timed], width: f64, full_s: f64) -> Option<Unsteady> {
    let is_behind = |trial: &&Timed| {
        // What slow answers leave open is open from the beginning.
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

/// Refusals that begin late in trials and then go on, though nothing piled up before, and leave less than the load that was found.
fn late_losses(trials: &[Timed], lower: Option<f64>, width: f64, full_s: f64) -> Option<Unsteady> {
    let is_long = |trial: &&Timed| trial.duration_s > LONG_SHARE * full_s && trial.is_missed();
    let late = trials.iter().filter(is_long).filter_map(|trial| {
        let from = trial.fails_late_from()?;
        let bad = trial.parts.iter().filter(|part| trial.fails(part));
        let (failed, all) = bad.fold((0.0, 0.0), |sum, part| (sum.0 + part.failed, sum.1 + part.all()));
        // If what goes on being carried is what was found, the store was small.
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
    /// Whether it missed the goal.
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

    /// The part from which on the trial loses, if that is late.
    fn fails_late_from(&self) -> Option<usize> {
        let from = self.parts.iter().position(|part| self.fails(part))?;
        let is_late = from as f64 >= LATE_SHARE * self.parts.len() as f64;
        let slower = self.parts[from.saturating_sub(1)].p50_s.zip(self.parts[0].p50_s);
        let piles_up = self.grows || slower.is_some_and(|(then, first)| then > MAX_SLOWER * first);
        (is_late && !piles_up && self.parts[from..].iter().all(|part| self.fails(part))).then_some(from)
    }

    /// When in this trial answers stopped or became slower at once, or requests were lost or late and then no more; and whether that
    /// was too sudden for noise. What only the first requests of a trial suffer is the trial's doing.
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
