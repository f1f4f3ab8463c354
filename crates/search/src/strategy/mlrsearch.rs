//! Multiple Loss Ratio search: RFC 9971 says what a result is; which load comes next is left to the
//! implementation. This is the way of FD.io CSIT (docs: "MLRsearch" of the CSIT methodology, PyPI package
//! MLRsearch 1.2.1).

use crate::{
    goal::Side,
    grid::Grid,
    plan::{Start, WarmUp},
    strategy::{
        Candidate,
        moves::far_enough,
        selector::{Nomination, Selector},
        target::targets,
    },
    threshold::Threshold,
    trials::{Bounds, Trials},
};

/// The search on its way.
#[derive(Debug, Clone)]
pub(crate) struct Mlrsearch {
    sides: Vec<Side>,
    phase: Phase,
    start: Start,
    /// Of the first trials: the longest and widest that any goal begins with.
    initial_duration_s: f64,
    initial_width: i64,
    common_width: i64,
    selectors: Vec<Selector>,
    winner: Option<(usize, Nomination)>,
    /// Goals whose trials are draws are left to their [`Threshold`].
    is_noise_aware: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    WarmUp(Candidate),
    /// At the largest load, or at the largest that the generator can make.
    Largest(i64),
    /// At what got through of a larger load.
    Forwarded {
        position: i64,
        from: i64,
    },
    /// Near the load before, on the other side of the answer.
    Beside {
        position: i64,
        first: i64,
    },
    /// Upwards from the smallest load.
    Climb {
        position: i64,
        good: Option<i64>,
    },
    /// Goals take turns.
    Main,
}

impl Mlrsearch {
    pub(crate) fn new(sides: &[Side], warm_up: WarmUp, start: Start, grid: &Grid) -> Self {
        let first = |side: &Side| targets(&side.rule, grid)[0];
        let widths = sides.iter().map(|side| first(side).width);
        let durations = sides.iter().map(|side| first(side).requirement.trial_duration_s);
        let warm = |position, duration_s| Phase::WarmUp(Candidate { position, duration_s, is_warm_up: true });
        let phase = match warm_up {
            WarmUp::None => first_phase(start, grid),
            WarmUp::Max { duration_s } => warm(grid.last(), duration_s),
        };
        Self {
            sides: sides.to_vec(),
            phase,
            start,
            initial_duration_s: durations.fold(0.0, f64::max),
            initial_width: widths.max().unwrap_or(1),
            common_width: 0,
            selectors: Vec::new(),
            winner: None,
            is_noise_aware: false,
        }
    }

    /// The same, for targets that may be noisy.
    pub(crate) fn noise_aware(self) -> Self {
        Self { is_noise_aware: true, ..self }
    }

    pub(crate) fn nominate(&mut self, trials: &Trials) -> Option<Candidate> {
        match self.phase {
            Phase::WarmUp(candidate) => Some(candidate),
            Phase::Largest(position)
            | Phase::Forwarded { position, .. }
            | Phase::Beside { position, .. }
            | Phase::Climb { position, .. } => Some(Candidate::new(position, self.initial_duration_s)),
            Phase::Main => {
                self.winner = self.winner(trials);
                let Some((_, winner)) = self.winner else { return self.between_bounds(trials) };
                Some(Candidate::new(winner.position, winner.duration_s))
            }
        }
    }

    pub(crate) fn measured(&mut self, trials: &Trials, candidate: Candidate) {
        let grid = &trials.grid;
        let at = candidate.position;
        match self.phase {
            Phase::WarmUp(_) => self.phase = first_phase(self.start, grid),
            Phase::Largest(_) => match self.forwarded(trials, at).filter(|position| *position < at) {
                None => self.begin(trials, at, at),
                Some(forwarded) => {
                    let below = Bounds { lower: None, upper: Some(at) };
                    match far_enough(grid, forwarded, self.initial_width, below) {
                        Some(position) => self.phase = Phase::Forwarded { position, from: at },
                        None => self.begin(trials, at, at),
                    }
                }
            },
            Phase::Forwarded { from, .. } => {
                let beside = if self.is_high_loss(trials, at) {
                    let below = Bounds { lower: None, upper: Some(at) };
                    let forwarded = self.forwarded(trials, at).filter(|position| *position < at);
                    forwarded.and_then(|position| far_enough(grid, position, self.initial_width, below))
                } else {
                    let between = Bounds { lower: Some(at), upper: Some(from) };
                    far_enough(grid, at + self.initial_width, self.initial_width, between)
                };
                match beside {
                    Some(position) => self.phase = Phase::Beside { position, first: at },
                    None => self.begin(trials, at, at),
                }
            }
            Phase::Beside { first, .. } => self.begin(trials, first.min(at), first.max(at)),
            Phase::Climb { good, .. } => {
                if self.is_high_loss(trials, at) {
                    self.begin(trials, good.unwrap_or(at), at);
                } else if at == grid.last() {
                    self.begin(trials, at, at);
                } else {
                    let position = self.climb(grid, at);
                    self.phase = Phase::Climb { position, good: Some(at) };
                }
            }
            Phase::Main => {
                if let Some((index, winner)) = self.winner.take() {
                    let wider = self.selectors[index].measured(trials);
                    self.common_width = wider.unwrap_or(winner.width);
                }
            }
        }
    }

    pub(crate) fn given_up(&mut self, trials: &Trials, candidate: Candidate) {
        let grid = &trials.grid;
        let at = candidate.position;
        match self.phase {
            Phase::Largest(_) if at > 0 => {
                let half = grid.at_most(grid.load(at) / 2.0).min(grid.previous(at));
                self.phase = Phase::Largest(half.max(0));
            }
            Phase::Climb { good, .. } => self.begin(trials, good.unwrap_or(at), at),
            Phase::Main => {
                if let Some((index, winner)) = self.winner.take() {
                    let wider = self.selectors[index].given_up();
                    self.common_width = wider.unwrap_or(winner.width);
                }
            }
            _ => self.begin(trials, at, at),
        }
    }

    /// The first trials are done; two of their loads are where every goal begins.
    fn begin(&mut self, trials: &Trials, lower: i64, upper: i64) {
        let initial = Bounds { lower: Some(lower), upper: Some(upper) };
        let selector = |side: &Side| Selector::new(side.goal, &side.rule, initial, &trials.grid);
        self.selectors = self.sides.iter().map(selector).collect();
        self.common_width = upper - lower;
        self.phase = Phase::Main;
    }

    /// The smallest load that any goal wants measured; of several trials there the longest, then the widest
    /// step, then the first goal's. Small loads first: what is found there can spare larger ones, and does
    /// not disturb the target.
    fn winner(&mut self, trials: &Trials) -> Option<(usize, Nomination)> {
        let common_width = self.common_width;
        let mut winner: Option<(usize, Nomination)> = None;
        for (index, selector) in self.selectors.iter_mut().enumerate() {
            if self.is_noise_aware && trials.are_draws(self.sides[index].goal, &self.sides[index].rule) {
                continue;
            }
            let Some(nomination) = selector.nominate(trials, common_width) else { continue };
            let before = |other: &Nomination| {
                let by_load = nomination.position.cmp(&other.position);
                let by_duration = other.duration_s.total_cmp(&nomination.duration_s);
                by_load.then(by_duration).then(other.width.cmp(&nomination.width)).is_lt()
            };
            if winner.as_ref().is_none_or(|(_, other)| before(other)) {
                winner = Some((index, nomination));
            }
        }
        winner
    }

    /// What the first goal whose trials are draws, and that can still be told more of, wants measured.
    fn between_bounds(&self, trials: &Trials) -> Option<Candidate> {
        let sides = self.sides.iter().filter(|_| self.is_noise_aware);
        let mut noisy = sides.filter(|side| trials.are_draws(side.goal, &side.rule));
        noisy.find_map(|Side { goal, rule }| {
            let position = Threshold::of(trials, *goal, rule)?.next()?;
            Some(Candidate::new(position, rule.final_trial_duration_s))
        })
    }

    /// The load at which, by the last trial at `position`, every goal would just be met, if all load above
    /// the target's capacity is lost.
    fn forwarded(&self, trials: &Trials, position: i64) -> Option<i64> {
        let trial = trials.last_at(position)?;
        let load = trials.grid.load(position);
        let share = |side: &Side| (1.0 - trial.loss_ratios[side.goal]) / (1.0 - side.rule.loss_ratio);
        let least = self.sides.iter().map(share).fold(f64::INFINITY, f64::min);
        Some(trials.grid.at_most(load * least))
    }

    fn is_high_loss(&self, trials: &Trials, position: i64) -> bool {
        trials.last_at(position).is_some_and(|trial| {
            self.sides.iter().any(|side| trial.loss_ratios[side.goal] > side.rule.loss_ratio)
        })
    }

    fn climb(&self, grid: &Grid, from: i64) -> i64 {
        let factor = match self.start {
            Start::Min { factor } => factor,
            Start::Max => 2.0,
        };
        let position = grid.at_most(grid.load(from) * factor).max(grid.next(from));
        let bounds = Bounds { lower: Some(from), upper: None };
        far_enough(grid, position, self.initial_width, bounds).unwrap_or(grid.last())
    }
}

fn first_phase(start: Start, grid: &Grid) -> Phase {
    match start {
        Start::Max => Phase::Largest(grid.last()),
        Start::Min { .. } => Phase::Climb { position: 0, good: None },
    }
}
