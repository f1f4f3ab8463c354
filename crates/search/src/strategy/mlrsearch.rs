//! Multiple Loss Ratio search. RFC 9971 defines the result and leaves the choice of loads to the implementation. This
//! implementation follows FD.io CSIT (docs: "MLRsearch" of the CSIT methodology, PyPI package MLRsearch 1.2.1).

use crate::{
    goal::{BoundRule, Reading},
    grid::Grid,
    plan::{Start, WarmUp},
    strategy::{
        Candidate,
        moves::keep_distance,
        selector::{Nomination, Selector},
        target::targets,
    },
    threshold::Threshold,
    trials::{Bounds, Trials},
};

/// A search in progress.
#[derive(Debug, Clone)]
pub(crate) struct Mlrsearch {
    rules: Vec<BoundRule>,
    phase: Phase,
    start: Start,
    /// Length of the first trials, in seconds: the longest initial length of all goals.
    initial_duration_s: f64,
    /// Width of the first steps: the largest initial width of all goals.
    initial_width: i64,
    common_width: i64,
    selectors: Vec<Selector>,
    winner: Option<(usize, Nomination)>,
    /// Whether a [`Threshold`] chooses the loads of goals whose trials are random samples.
    is_noise_aware: bool,
    /// The position at which the answer is expected, if any.
    expected: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    WarmUp(Candidate),
    /// The largest load, or half of a load that the generator cannot make.
    Largest(i64),
    /// The load that the target handled in a trial at a larger load.
    Forwarded {
        position: i64,
        from: i64,
    },
    /// A load near the first one, on the other side of the answer.
    OtherSide {
        position: i64,
        first: i64,
    },
    /// Rising multiples of the smallest load.
    Climb {
        position: i64,
        good: Option<i64>,
    },
    /// The goals' selectors choose the loads.
    Main,
}

impl Mlrsearch {
    pub(crate) fn new(rules: &[BoundRule], warm_up: WarmUp, start: Start, grid: &Grid) -> Self {
        let first_target = |rule: &BoundRule| targets(&rule.goal, grid)[0];
        let widths = rules.iter().map(|rule| first_target(rule).width);
        let durations = rules.iter().map(|rule| first_target(rule).requirement.trial_duration_s);
        let phase = match warm_up {
            WarmUp::None => first_phase(start, grid),
            WarmUp::Max { duration_s } => {
                Phase::WarmUp(Candidate { position: grid.last(), duration_s, is_warm_up: true })
            }
        };
        Self {
            rules: rules.to_vec(),
            phase,
            start,
            initial_duration_s: durations.fold(0.0, f64::max),
            initial_width: widths.max().unwrap_or(1),
            common_width: 0,
            selectors: Vec::new(),
            winner: None,
            is_noise_aware: false,
            expected: None,
        }
    }

    /// Adapts the search to targets that may be noisy.
    pub(crate) fn noise_aware(self) -> Self {
        Self { is_noise_aware: true, ..self }
    }

    pub(crate) fn expect(&mut self, position: i64) {
        self.expected = Some(position);
    }

    pub(crate) fn begin_at(&mut self, at: i64) {
        if let Phase::Climb { position, .. } = &mut self.phase {
            *position = at;
        }
    }

    /// Continues with other rules for the same goals. A new rule starts from the state of an existing rule of its goal.
    pub(crate) fn use_rules(&mut self, rules: &[BoundRule]) {
        let of = |rule: &BoundRule| {
            let find =
                |is_it: &dyn Fn(Reading) -> bool| self.selectors.iter().find(|one| is_it(one.reading()));
            let same_goal = |reading: Reading| reading.goal_index == rule.reading.goal_index;
            let selector = find(&|reading| reading == rule.reading).or_else(|| find(&same_goal))?;
            Some(selector.clone().with_reading(rule.reading))
        };
        self.selectors = rules.iter().filter_map(of).collect();
        self.rules = rules.to_vec();
    }

    pub(crate) fn nominate(&mut self, trials: &Trials) -> Option<Candidate> {
        match self.phase {
            Phase::WarmUp(candidate) => Some(candidate),
            Phase::Largest(position)
            | Phase::Forwarded { position, .. }
            | Phase::OtherSide { position, .. }
            | Phase::Climb { position, .. } => Some(Candidate::new(position, self.initial_duration_s)),
            Phase::Main => {
                self.winner = self.winner(trials);
                let Some((_, winner)) = self.winner else { return self.nominate_by_threshold(trials) };
                Some(Candidate::new(winner.position, winner.duration_s))
            }
        }
    }

    pub(crate) fn on_measured(&mut self, trials: &Trials, candidate: Candidate) {
        let grid = &trials.grid;
        let at = candidate.position;
        match self.phase {
            Phase::WarmUp(_) => self.phase = first_phase(self.start, grid),
            Phase::Largest(_) => match self.forwarded(trials, at).filter(|position| *position < at) {
                None => self.enter_main(trials, at, at),
                Some(forwarded) => {
                    let below = Bounds { lower: None, upper: Some(at) };
                    match keep_distance(grid, forwarded, self.initial_width, below) {
                        Some(position) => self.phase = Phase::Forwarded { position, from: at },
                        None => self.enter_main(trials, at, at),
                    }
                }
            },
            Phase::Forwarded { from, .. } => {
                let other_side = if self.is_high_loss(trials, at) {
                    let below = Bounds { lower: None, upper: Some(at) };
                    let forwarded = self.forwarded(trials, at).filter(|position| *position < at);
                    forwarded.and_then(|position| keep_distance(grid, position, self.initial_width, below))
                } else {
                    let between = Bounds { lower: Some(at), upper: Some(from) };
                    keep_distance(grid, at + self.initial_width, self.initial_width, between)
                };
                match other_side {
                    Some(position) => self.phase = Phase::OtherSide { position, first: at },
                    None => self.enter_main(trials, at, at),
                }
            }
            Phase::OtherSide { first, .. } => self.enter_main(trials, first.min(at), first.max(at)),
            Phase::Climb { good, .. } => {
                if self.is_high_loss(trials, at) {
                    // The answer is nearer to the expected position than to the smallest load, so the way down to it is
                    // shorter than the way up.
                    let below = good.filter(|_| self.expected != Some(at));
                    self.enter_main(trials, below.unwrap_or(at), at);
                } else if at == grid.last() {
                    self.enter_main(trials, at, at);
                } else {
                    let position = self.climb(grid, at);
                    self.phase = Phase::Climb { position, good: Some(at) };
                }
            }
            Phase::Main => {
                if let Some((index, winner)) = self.winner.take() {
                    let wider = self.selectors[index].on_measured(trials);
                    self.common_width = wider.unwrap_or(winner.width);
                }
            }
        }
    }

    pub(crate) fn on_unavailable(&mut self, trials: &Trials, candidate: Candidate) {
        let grid = &trials.grid;
        let at = candidate.position;
        match self.phase {
            Phase::Largest(_) if at > 0 => {
                let half = grid.at_most(grid.load(at) / 2.0).min(grid.previous(at));
                self.phase = Phase::Largest(half.max(0));
            }
            Phase::Climb { good, .. } => self.enter_main(trials, good.unwrap_or(at), at),
            Phase::Main => {
                if let Some((index, winner)) = self.winner.take() {
                    let wider = self.selectors[index].on_unavailable();
                    self.common_width = wider.unwrap_or(winner.width);
                }
            }
            _ => self.enter_main(trials, at, at),
        }
    }

    /// Ends the first phases. The search for every goal begins with these two positions.
    fn enter_main(&mut self, trials: &Trials, lower: i64, upper: i64) {
        let initial = Bounds { lower: Some(lower), upper: Some(upper) };
        let selector = |rule: &BoundRule| Selector::new(rule.reading, &rule.goal, initial, &trials.grid);
        self.selectors = self.rules.iter().map(selector).collect();
        self.common_width = upper - lower;
        self.phase = Phase::Main;
    }

    /// The nomination with the smallest load; among equal loads the longest trial, then the widest step, then the first
    /// goal. Small loads come first because their results can make larger ones unnecessary, and they do not disturb the
    /// target.
    fn winner(&mut self, trials: &Trials) -> Option<(usize, Nomination)> {
        let common_width = self.common_width;
        let mut winner: Option<(usize, Nomination)> = None;
        for (index, selector) in self.selectors.iter_mut().enumerate() {
            if self.is_noise_aware && trials.uses_threshold(&self.rules[index]) {
                continue;
            }
            let Some(nomination) = selector.nominate(trials, common_width) else { continue };
            let precedes = |other: &Nomination| {
                let by_load = nomination.position.cmp(&other.position);
                let by_duration = other.duration_s.total_cmp(&nomination.duration_s);
                by_load.then(by_duration).then(other.width.cmp(&nomination.width)).is_lt()
            };
            if winner.as_ref().is_none_or(|(_, other)| precedes(other)) {
                winner = Some((index, nomination));
            }
        }
        winner
    }

    /// The trial for the first goal whose [`Threshold`] still needs one.
    fn nominate_by_threshold(&self, trials: &Trials) -> Option<Candidate> {
        if !self.is_noise_aware {
            return None;
        }
        let mut noisy = self.rules.iter().filter(|rule| trials.uses_threshold(rule));
        noisy.find_map(|rule| {
            let position = Threshold::of(trials, rule)?.next_position()?;
            Some(Candidate::new(position, rule.goal.final_trial_duration_s))
        })
    }

    /// The position at which all goals would just be met, computed from the last trial at `position`. Assumes that the
    /// target loses exactly the load above its capacity.
    fn forwarded(&self, trials: &Trials, position: i64) -> Option<i64> {
        let trial = trials.last_at(position)?;
        let load = trials.grid.load(position);
        let share = |rule: &BoundRule| (1.0 - trial.loss_ratio(rule.reading)) / (1.0 - rule.goal.loss_ratio);
        let min_share = self.rules.iter().map(share).fold(f64::INFINITY, f64::min);
        Some(trials.grid.at_most(load * min_share))
    }

    fn is_high_loss(&self, trials: &Trials, position: i64) -> bool {
        trials.last_at(position).is_some_and(|trial| {
            self.rules.iter().any(|rule| trial.loss_ratio(rule.reading) > rule.goal.loss_ratio)
        })
    }

    fn climb(&self, grid: &Grid, from: i64) -> i64 {
        let factor = match self.start {
            Start::Min { factor } => factor,
            Start::Max => 2.0,
        };
        let position = grid.at_most(grid.load(from) * factor).max(grid.next(from));
        let position = self.expected.filter(|expected| *expected > from).unwrap_or(position);
        let bounds = Bounds { lower: Some(from), upper: None };
        keep_distance(grid, position, self.initial_width, bounds).unwrap_or(grid.last())
    }
}

fn first_phase(start: Start, grid: &Grid) -> Phase {
    match start {
        Start::Max => Phase::Largest(grid.last()),
        Start::Min { .. } => Phase::Climb { position: 0, good: None },
    }
}
