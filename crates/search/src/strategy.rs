//! The choice of the next load: one file per method.

mod bisection;
mod mlrsearch;
mod moves;
mod selector;
mod target;

use crate::{
    goal::BoundRule,
    grid::Grid,
    plan::{Method, Start, WarmUp},
    trials::Trials,
};

/// A method in progress. Its state holds only what cannot be derived from the trials.
#[derive(Debug, Clone)]
pub(crate) enum Strategy {
    Mlrsearch(mlrsearch::Mlrsearch),
    Bisection(bisection::Bisection),
}

/// A trial that a method asks for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) position: i64,
    pub(crate) duration_s: f64,
    pub(crate) is_warm_up: bool,
}

impl Candidate {
    fn new(position: i64, duration_s: f64) -> Self {
        Self { position, duration_s, is_warm_up: false }
    }
}

impl Strategy {
    pub(crate) fn new(method: &Method, rules: &[BoundRule], grid: &Grid) -> Self {
        match method {
            Method::Mlrsearch { warm_up, start } => {
                Self::Mlrsearch(mlrsearch::Mlrsearch::new(rules, *warm_up, *start, grid))
            }
            Method::NoiseAware { factor } => {
                let start = Start::Min { factor: *factor };
                Self::Mlrsearch(mlrsearch::Mlrsearch::new(rules, WarmUp::None, start, grid).noise_aware())
            }
            Method::Bisection { midpoint } => Self::Bisection(bisection::Bisection::new(rules, *midpoint)),
        }
    }

    /// Makes the search continue at this position after the smallest load.
    pub(crate) fn expect(&mut self, position: i64) {
        if let Self::Mlrsearch(mlrsearch) = self {
            mlrsearch.expect(position);
        }
    }

    /// Begins at this position instead of the smallest load.
    pub(crate) fn begin_at(&mut self, position: i64) {
        if let Self::Mlrsearch(mlrsearch) = self {
            mlrsearch.begin_at(position);
        }
    }

    /// Continues with other rules for the same goals. Call this only between two trials.
    pub(crate) fn use_rules(&mut self, rules: &[BoundRule]) {
        match self {
            Self::Mlrsearch(mlrsearch) => mlrsearch.use_rules(rules),
            Self::Bisection(bisection) => bisection.use_rules(rules),
        }
    }

    /// The next trial; `None` if nothing is left to measure.
    pub(crate) fn nominate(&mut self, trials: &Trials) -> Option<Candidate> {
        match self {
            Self::Mlrsearch(mlrsearch) => mlrsearch.nominate(trials),
            Self::Bisection(bisection) => bisection.nominate(trials),
        }
    }

    /// Call this after the nominated trial was run, and added to `trials` unless it was a warm-up.
    pub(crate) fn on_measured(&mut self, trials: &Trials, candidate: Candidate) {
        if let Self::Mlrsearch(mlrsearch) = self {
            mlrsearch.on_measured(trials, candidate);
        }
    }

    /// Call this if the generator cannot make the nominated load.
    pub(crate) fn on_unavailable(&mut self, trials: &Trials, candidate: Candidate) {
        if let Self::Mlrsearch(mlrsearch) = self {
            mlrsearch.on_unavailable(trials, candidate);
        }
    }
}
