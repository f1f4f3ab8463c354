//! Which load is measured next: one method, one file.

mod bisection;
mod mlrsearch;
mod moves;
mod selector;
mod target;

use crate::{
    goal::Side,
    grid::Grid,
    plan::{Method, Start, WarmUp},
    trials::Trials,
};

/// A method at work. It looks at the trials, and remembers only what they do not show.
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
    /// It decides nothing.
    pub(crate) is_warm_up: bool,
}

impl Candidate {
    fn new(position: i64, duration_s: f64) -> Self {
        Self { position, duration_s, is_warm_up: false }
    }
}

impl Strategy {
    pub(crate) fn new(method: &Method, sides: &[Side], grid: &Grid) -> Self {
        match method {
            Method::Mlrsearch { warm_up, start } => {
                Self::Mlrsearch(mlrsearch::Mlrsearch::new(sides, *warm_up, *start, grid))
            }
            Method::NoiseAware { factor } => {
                let start = Start::Min { factor: *factor };
                Self::Mlrsearch(mlrsearch::Mlrsearch::new(sides, WarmUp::None, start, grid).noise_aware())
            }
            Method::Bisection { midpoint } => {
                Self::Bisection(bisection::Bisection::new(sides, *midpoint, grid))
            }
        }
    }

    /// The next trial; none if the method has nothing left to ask.
    pub(crate) fn nominate(&mut self, trials: &Trials) -> Option<Candidate> {
        match self {
            Self::Mlrsearch(mlrsearch) => mlrsearch.nominate(trials),
            Self::Bisection(bisection) => bisection.nominate(trials),
        }
    }

    /// The trial asked for was measured, and is among the trials unless it was a warm-up.
    pub(crate) fn measured(&mut self, trials: &Trials, candidate: Candidate) {
        if let Self::Mlrsearch(mlrsearch) = self {
            mlrsearch.measured(trials, candidate);
        }
    }

    /// The load asked for is more than the generator can make.
    pub(crate) fn given_up(&mut self, trials: &Trials, candidate: Candidate) {
        if let Self::Mlrsearch(mlrsearch) = self {
            mlrsearch.given_up(trials, candidate);
        }
    }
}
