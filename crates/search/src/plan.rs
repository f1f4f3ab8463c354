//! The inputs of a search.

use serde::{Deserialize, Serialize};

use crate::{goal::SearchGoal, mistake::Mistake};

/// The inputs of a search. The plan and the outcomes of the trials determine every step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchPlan {
    /// Whether loads are whole numbers.
    pub unit: Unit,
    /// Smallest load, above 0.
    pub min_load: f64,
    /// Largest load.
    pub max_load: f64,
    /// The goals that a load must meet. One search finds bounds for all of them.
    pub goals: Vec<SearchGoal>,
    /// How the search chooses loads.
    pub method: Method,
    /// Largest sum of trial durations, in seconds: the search starts no trial that would exceed it.
    pub search_duration_max_s: Option<f64>,
    /// How the search treats void trials.
    pub void: VoidPolicy,
    /// Seed of the random gaps before trials; each gap is up to half a trial long. Without gaps, trials at regular
    /// intervals would always sample a service with a periodic cycle at the same moments of its cycle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gaps_seed: Option<u64>,
    /// The first load of the search, in place of the smallest load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_load: Option<f64>,
    /// Largest factor by which trials may become longer if results depend on the time of the trial instead of the load,
    /// see [`crate::Search::note`]; `None` keeps their length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longer_max: Option<f64>,
}

/// The numbers that can be loads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Any number, such as a rate.
    Continuous,
    /// Whole numbers only, such as users or connections.
    Whole,
}

/// How the search chooses loads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case", deny_unknown_fields)]
pub enum Method {
    /// Multiple Loss Ratio search (RFC 9971), with the heuristics of FD.io CSIT.
    Mlrsearch {
        /// A trial before the first that counts.
        warm_up: WarmUp,
        /// The first load.
        start: Start,
    },
    /// For targets that may be noisy: MLRsearch from the smallest load up. If loads are continuous and a goal needs
    /// more than three trials at a load, full-length trials are random samples, and the bounds follow from the
    /// estimated probability of a bad trial at each load.
    NoiseAware {
        /// Factor between the first loads, until a trial is high-loss; above 1.
        factor: f64,
    },
    /// The largest load, the smallest load, then midpoints. Measures each load in full before the next.
    Bisection {
        /// Which midpoint.
        midpoint: Midpoint,
    },
}

/// A trial whose outcome does not influence the bounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "at", rename_all = "snake_case", deny_unknown_fields)]
pub enum WarmUp {
    /// No such trial.
    None,
    /// One trial at the largest load: for packet forwarders and other targets that recover from overload at once.
    Max {
        /// Its length, in seconds.
        duration_s: f64,
    },
}

/// The first load of a search.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "snake_case", deny_unknown_fields)]
pub enum Start {
    /// The largest load, then the load that got through. Needs the fewest trials, but the target must recover from
    /// overload at once.
    Max,
    /// The smallest load, then multiples by `factor` until a trial is high-loss: for services, whose queues may stay
    /// full after an overload, and for ranges whose upper end is a guess.
    Min {
        /// Factor between loads, above 1.
        factor: f64,
    },
}

/// Which midpoint of two loads a bisection uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Midpoint {
    /// The arithmetic mean, as RFC 2544 testers use it.
    Arithmetic,
    /// The geometric mean: fewer steps in a large range.
    Geometric,
}

/// How the search treats void trials, which say nothing about the target because the instrument failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VoidPolicy {
    /// Consecutive void trials after which the search assumes that the generator cannot make a load (1 or more). They
    /// count only if no load this large has been measured.
    pub attempts: u32,
    /// Void trials that the whole search tolerates at loads that the generator has shown it can make. The next one ends
    /// the search.
    pub unlucky: u32,
}

impl Default for VoidPolicy {
    fn default() -> Self {
        Self { attempts: 3, unlucky: 10 }
    }
}

/// Largest number of attempts at a load with trials below full length, if the generator was exhausted.
const EXHAUSTED_ATTEMPTS: u32 = 2;

impl SearchPlan {
    /// MLRsearch from the smallest load upwards, without a budget: the default of the interactive commands.
    pub fn new(unit: Unit, min_load: f64, max_load: f64, goals: Vec<SearchGoal>) -> Self {
        let method = Method::Mlrsearch { warm_up: WarmUp::None, start: Start::Min { factor: 2.0 } };
        Self {
            unit,
            min_load,
            max_load,
            goals,
            method,
            search_duration_max_s: None,
            void: VoidPolicy::default(),
            gaps_seed: None,
            expected_load: None,
            longer_max: None,
        }
    }

    /// Number of attempts at a load that the generator has not made yet. Short trials only show which loads are worth
    /// longer trials, so they get fewer attempts if the generator was exhausted.
    pub(crate) fn attempts(&self, duration_s: f64, is_exhausted: bool) -> u32 {
        let lengths = self.goals.iter().map(|goal| goal.final_trial_duration_s);
        let explores = matches!(self.method, Method::NoiseAware { .. })
            && duration_s < lengths.fold(f64::INFINITY, f64::min) * (1.0 - 1e-9);
        let most = if explores && is_exhausted { EXHAUSTED_ATTEMPTS } else { u32::MAX };
        self.void.attempts.min(most)
    }

    /// The mistakes in this plan.
    pub fn mistakes(&self) -> Vec<Mistake> {
        let mut mistakes: Vec<Mistake> = self.goals.iter().flat_map(SearchGoal::mistakes).collect();
        let mut require = |is_met: bool, field: &str, message: String| {
            if !is_met {
                mistakes.push(Mistake { field: field.to_owned(), message });
            }
        };
        require(!self.goals.is_empty(), "goals", "the list is empty: name at least one goal".to_owned());
        let mut names: Vec<&str> = self.goals.iter().map(|goal| goal.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        require(
            names.len() == self.goals.len(),
            "goals",
            "two goals have the same name: give each its own".to_owned(),
        );
        require(
            self.search_duration_max_s.is_none_or(|limit_s| limit_s > 0.0),
            "search_duration_max_s",
            "it leaves no time for a trial: use a positive number, or leave it out for no limit".to_owned(),
        );
        require(
            self.void.attempts >= 1,
            "void.attempts",
            "0 allows no trial at a load: use 1 or more".to_owned(),
        );
        match &self.method {
            Method::Mlrsearch { warm_up, start } => {
                if let WarmUp::Max { duration_s } = warm_up {
                    let is_length = duration_s.is_finite() && *duration_s > 0.0;
                    require(
                        is_length,
                        "warm_up.duration_s",
                        format!("{duration_s} s is not a length of a trial: use a positive one"),
                    );
                }
                if let Start::Min { factor } = start {
                    require(is_growth_factor(*factor), "start.factor", growth_too_small(*factor));
                }
            }
            Method::NoiseAware { factor } => {
                require(is_growth_factor(*factor), "factor", growth_too_small(*factor))
            }
            Method::Bisection { .. } => {}
        }
        require(
            self.min_load.is_finite() && self.min_load > 0.0,
            "min_load",
            format!("{} is not a load: use a positive number", self.min_load),
        );
        require(
            self.max_load.is_finite() && self.max_load > self.min_load,
            "max_load",
            format!("{} is not above the smallest load of {}", self.max_load, self.min_load),
        );
        if self.unit == Unit::Whole {
            for (field, load) in [("min_load", self.min_load), ("max_load", self.max_load)] {
                require(load.fract() == 0.0, field, format!("{load} is not a whole number"));
                require(load <= 1e9, field, format!("{load} is above the largest load of 1e9"));
            }
        }
        mistakes
    }
}

fn is_growth_factor(factor: f64) -> bool {
    (1.01..=1e9).contains(&factor)
}

fn growth_too_small(factor: f64) -> String {
    format!("{factor} is not a useful growth factor: use 1.01 or more, such as 2")
}
