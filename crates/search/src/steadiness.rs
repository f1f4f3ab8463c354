//! Detects whether the results of a search's trials depended on the load or on the time.
//!
//! A service that pauses now and then, limits requests per period, has stored tokens, is still warming up or degrades fails some trials
//! and not others, whatever their load. Three signs reveal this: a load was missed and a clearly larger one was met; a disturbance
//! began and ended within a trial of a steady load; losses begin late in a trial although no queue had built up. An effect that recurs
//! often enough within a trial is the same in every trial, so the load decides longer trials again.

/// A valid trial of a search, for one goal.
#[derive(Debug, Clone, PartialEq)]
pub struct Timed {
    /// When the trial began, in seconds since an arbitrary moment.
    pub start_s: f64,
    /// Its load.
    pub load: f64,
    /// Its length, in seconds.
    pub duration_s: f64,
    /// Share of the requests that were lost to the goal.
    pub loss_ratio: f64,
    /// Whether answers became steadily slower.
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
    /// Median response time, in seconds, if any request was completed.
    pub p50_s: Option<f64>,
    /// The bounded response time relative to its bound: 0 if the goal bounds none, `None` if no request was completed.
    pub slowness: Option<f64>,
}

/// How the results of trials depend on the time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Unsteady {
    /// One trial missed a load, and another met a clearly larger one.
    Disagree {
        /// The smallest load that was missed.
        missed: f64,
        /// The largest load that was met.
        met: f64,
        /// Whether all missed trials that a met trial contradicts ran before these met trials: the service improved by itself.
        got_better: bool,
        /// The longest time between two changes from missed to met or back, in seconds. A trial must be several times longer for its
        /// result not to depend on when it runs.
        cycle_s: f64,
    },
    /// Within a trial, requests were lost or late, or answers stopped, and then the service recovered; or many requests were
    /// unanswered at the end of the trial, though none was lost.
    Passes {
        /// The load of the trial.
        load: f64,
        /// The shortest time between two such moments of all trials, in seconds, if there are two.
        cycle_s: Option<f64>,
    },
    /// Losses begin this many seconds after the beginning of trials.
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

/// Loads are clearly different if they are further apart than this many widths and than [`MIN_DISTANCE`].
const CLEAR_WIDTHS: f64 = 3.0;
/// See [`CLEAR_WIDTHS`]: trials at closer loads may disagree because of random arrivals.
const MIN_DISTANCE: f64 = 0.2;
/// A missed trial below full length contradicts a met one only if the met load is this many times larger.
const SHORT_FACTOR: f64 = 2.0;
/// Trials between the bounds that were found contradict each other only if their loads differ by more than this factor.
const WIDE_FACTOR: f64 = 1.6;
/// A trial with a larger loss ratio than this clearly missed the goal.
const LARGE_LOSS: f64 = 0.3;
/// A met load that is at least this many widths above a clearly missed one is clearly larger.
const SURE_WIDTHS: f64 = 2.0;
/// Late losses count only in trials that are longer than this share of a full-length trial.
const LONG_SHARE: f64 = 0.5;
/// A loss that begins before this share of the trial counts as present from its beginning.
const LATE_SHARE: f64 = 0.2;
/// A disturbance that recurs at least this often within a trial affects every trial alike.
const RECURS: usize = 4;
/// In a quiet part, at most this share of the sent requests is unanswered, or one standard deviation of random arrivals if that is more.
const MISSING_SHARE: f64 = 0.1;
/// The service stood still in a part with more than this many times the unanswered requests that [`MISSING_SHARE`] allows.
const CHANCE: f64 = 5.0;
/// In a quiet part, response times are at most this share of the goal's bound, because noise near a limit also comes and goes.
const QUIET: f64 = 0.7;
/// A backlog of more than this many standard deviations of random arrivals is not a chance result.
const BEHIND_CHANCE: f64 = 2.5;
/// Response times that grow by more than this factor from one part to the next do not come from a queue that fills.
const JUMP: f64 = 8.0;
/// Fewer requests than this may be due to chance.
const MANY: f64 = 8.0;
/// Response times that have grown by more than this factor since the first part show a queue.
const MAX_SLOWER: f64 = 2.0;

/// How the results of these trials, given in the order in which they ran, depend on the time; `None` if the load explains them.
/// `width`: requested relative distance of the bounds. Trials of at least `full_s` seconds decide. With `hints`, effects that may be
/// noise count too: they justify longer trials, but not undecided bounds if trials cannot become longer.
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
        // Users that all connect at once lose more in a short trial.
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

/// The longest time between two changes from missed to met or back, in seconds, among the trials at loads of at least `from`.
fn cycle_s(trials: &[Timed], from: f64) -> f64 {
    let of_load: Vec<&Timed> = trials.iter().filter(|trial| trial.load >= from).collect();
    let changes = of_load.windows(2).filter(|pair| pair[0].is_missed() != pair[1].is_missed());
    let times: Vec<f64> = changes.map(|pair| pair[1].start_s).collect();
    times.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max)
}

/// A disturbance that began and ended within a trial, unless it recurs so often that it affects every trial alike. Near a limit, noise
/// comes and goes as well, but less suddenly, and not where a larger load is met.
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

/// Finds trials that met the goal, but at whose end fewer requests had been answered than a load smaller by the width would have
/// sent: the service does not work off the backlog of one pause before the next, although the backlog does not grow steadily.
fn behind(trials: &[Timed], width: f64, full_s: f64) -> Option<Unsteady> {
    let is_behind = |trial: &&Timed| {
        // Slow answers leave requests open from the beginning, so the parts before the first answers do not count.
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

/// Finds losses that begin late in trials and last to the end, without an earlier backlog, and that leave less than the lower bound.
fn late_losses(trials: &[Timed], lower: Option<f64>, width: f64, full_s: f64) -> Option<Unsteady> {
    let is_long = |trial: &&Timed| trial.duration_s > LONG_SHARE * full_s && trial.is_missed();
    let late = trials.iter().filter(is_long).filter_map(|trial| {
        let from = trial.fails_late_from()?;
        let bad = trial.parts.iter().filter(|part| trial.fails(part));
        let (failed, all) = bad.fold((0.0, 0.0), |sum, part| (sum.0 + part.failed, sum.1 + part.all()));
        // If the load that is still carried equals the lower bound, the store of tokens was small.
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

    /// The part in which the trial begins to lose requests, if it is late and no queue had built up.
    fn fails_late_from(&self) -> Option<usize> {
        let from = self.parts.iter().position(|part| self.fails(part))?;
        let is_late = from as f64 >= LATE_SHARE * self.parts.len() as f64;
        let slower = self.parts[from.saturating_sub(1)].p50_s.zip(self.parts[0].p50_s);
        let piles_up = self.grows || slower.is_some_and(|(then, first)| then > MAX_SLOWER * first);
        (is_late && !piles_up && self.parts[from..].iter().all(|part| self.fails(part))).then_some(from)
    }

    /// The times at which, in this trial, answers stopped or suddenly became slower, or requests were lost or late for a while; and
    /// whether each change was too sudden for noise. The trial itself causes a disturbance of its first requests alone.
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
