//! Everything that decides how a search goes.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::goal::SearchGoal;

/// The inputs of a search. Together with the outcomes of its trials they decide every step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SearchPlan {
    /// Whether loads are whole numbers.
    pub unit: Unit,
    /// Least load, above 0.
    pub min_load: f64,
    /// Largest load.
    pub max_load: f64,
    /// What a load must satisfy: one search finds bounds for all of them.
    pub goals: Vec<SearchGoal>,
    /// How loads are chosen.
    pub method: Method,
    /// No trial begins that would take the sum of trial durations above this, in seconds; none for no limit.
    pub search_duration_max_s: Option<f64>,
    /// What is done with void trials.
    pub void: VoidPolicy,
}

/// What a load is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A rate: any number will do.
    Continuous,
    /// Users, connections: whole numbers only.
    Whole,
}

/// How loads are chosen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "name", rename_all = "snake_case", deny_unknown_fields)]
pub enum Method {
    /// Multiple Loss Ratio search (RFC 9971), with the heuristics of FD.io CSIT.
    Mlrsearch {
        /// A trial that decides nothing, before the first that counts.
        warm_up: WarmUp,
        /// Where to begin.
        start: Start,
    },
    /// For targets that may be noisy: MLRsearch from the smallest load up. Where loads are continuous and a goal
    /// wants more than three trials at one, full-length trials are draws, and the bounds follow from the share
    /// of bad ones that each load is likely to have.
    NoiseAware {
        /// First loads are multiplied by this until a trial is high-loss; above 1, 2 doubles.
        factor: f64,
    },
    /// The largest load, the smallest, then midpoints; a load is measured in full before the next.
    Bisection {
        /// Which middle.
        midpoint: Midpoint,
    },
}

/// A trial that decides nothing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "at", rename_all = "snake_case", deny_unknown_fields)]
pub enum WarmUp {
    /// No such trial.
    None,
    /// One at the largest load: for packet forwarders and other targets that forget an overload at once.
    Max {
        /// Its length, in seconds.
        duration_s: f64,
    },
}

/// Where a search begins.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "from", rename_all = "snake_case", deny_unknown_fields)]
pub enum Start {
    /// At the largest load, and go on at what got through: fewest trials, for targets that forget an overload
    /// at once.
    Max,
    /// At the smallest load, times `factor` until a trial is high-loss: for services, which an overload may
    /// leave with full queues, and for ranges whose upper end nobody knows.
    Min {
        /// Above 1; 2 doubles.
        factor: f64,
    },
}

/// Which middle of two loads a bisection takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Midpoint {
    /// Half their sum, as people and RFC 2544 testers do.
    Arithmetic,
    /// The root of their product: fewer steps where the range is large.
    Geometric,
}

/// What is done with void trials: those that say nothing, since the instrument failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VoidPolicy {
    /// Void trials in a row after which a load above all that were measured is given up as more than the
    /// generator can make (1 or more).
    pub attempts: u32,
    /// Void trials that are borne, over the whole search, at loads the generator has shown it can make; the
    /// search ends with the one after.
    pub unlucky: u32,
}

impl Default for VoidPolicy {
    fn default() -> Self {
        Self { attempts: 3, unlucky: 10 }
    }
}

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
        }
    }

    /// What is wrong with it, if anything.
    pub fn mistakes(&self) -> Vec<Mistake> {
        let mut mistakes: Vec<Mistake> = self.goals.iter().flat_map(SearchGoal::mistakes).collect();
        let mut check = |fine: bool, field: &str, message: String| {
            if !fine {
                mistakes.push(Mistake { field: field.to_owned(), message });
            }
        };
        check(!self.goals.is_empty(), "goals", "there are none: name at least one".to_owned());
        let mut names: Vec<&str> = self.goals.iter().map(|goal| goal.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        check(
            names.len() == self.goals.len(),
            "goals",
            "two have the same name: give each its own".to_owned(),
        );
        check(
            self.search_duration_max_s.is_none_or(|limit_s| limit_s > 0.0),
            "search_duration_max_s",
            "it leaves no time for a trial: use a positive one, or none for no limit".to_owned(),
        );
        check(
            self.void.attempts >= 1,
            "void.attempts",
            "0 gives a load up before it is tried: use 1 or more".to_owned(),
        );
        match &self.method {
            Method::Mlrsearch { warm_up, start } => {
                if let WarmUp::Max { duration_s } = warm_up {
                    let fine = duration_s.is_finite() && *duration_s > 0.0;
                    check(
                        fine,
                        "warm_up.duration_s",
                        format!("{duration_s} s is no length of a trial: use a positive one"),
                    );
                }
                if let Start::Min { factor } = start {
                    check(climbs(*factor), "start.factor", too_flat(*factor));
                }
            }
            Method::NoiseAware { factor } => check(climbs(*factor), "factor", too_flat(*factor)),
            Method::Bisection { .. } => {}
        }
        check(
            self.min_load.is_finite() && self.min_load > 0.0,
            "min_load",
            format!("{} is no load: use a positive number", self.min_load),
        );
        check(
            self.max_load.is_finite() && self.max_load > self.min_load,
            "max_load",
            format!("{} is not above the smallest load of {}", self.max_load, self.min_load),
        );
        if self.unit == Unit::Whole {
            for (field, load) in [("min_load", self.min_load), ("max_load", self.max_load)] {
                check(load.fract() == 0.0, field, format!("{load} is no whole number"));
                check(load <= 1e9, field, format!("{load} is more than the 1e9 that can be told apart"));
            }
        }
        mistakes
    }
}

fn climbs(factor: f64) -> bool {
    (1.01..=1e9).contains(&factor)
}

fn too_flat(factor: f64) -> String {
    format!("{factor} does not climb usefully: use 1.01 or more, such as 2")
}

/// A value that a search cannot work with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Mistake {
    /// Where it is.
    pub field: String,
    /// What is wrong, and what would do.
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// All that is wrong with a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistakes(pub Vec<Mistake>);

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{mistake}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}
