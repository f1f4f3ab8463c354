//! What the trials at one load say about a goal: RFC 9971, section 6 and appendices A and B.
//!
//! Pure functions of the trials at one load; the search asks them, and so may anybody else.

use serde::{Deserialize, Serialize};

use crate::goal::SearchGoal;

/// Sums of seconds are equal when they differ by less than this share of the whole: `3 × 0.7 s` must be worth
/// `2.1 s`.
const EQUAL: f64 = 1e-9;

/// A trial, as one goal sees it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct GoalTrial {
    /// Its planned length, in seconds: it decides whether the trial is full-length.
    pub duration_s: f64,
    /// What it counts for, in seconds; at least its length, more if its overhead is to count.
    pub effective_duration_s: f64,
    /// The share of what was planned that was lost to the goal (0 to 1).
    pub loss_ratio: f64,
}

/// What classification needs to know of a goal, or of a coarser target on the way to it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Requirement {
    /// Largest loss ratio of a low-loss trial (0 to below 1).
    pub loss_ratio: f64,
    /// Share of the seconds that may be high-loss at a lower bound (0 to below 1).
    pub exceed_ratio: f64,
    /// Trials at least this long are full-length, in seconds.
    pub trial_duration_s: f64,
    /// Seconds of full-length trials that suffice to decide.
    pub duration_sum_s: f64,
}

impl From<&SearchGoal> for Requirement {
    fn from(goal: &SearchGoal) -> Self {
        Self {
            loss_ratio: goal.loss_ratio,
            exceed_ratio: goal.exceed_ratio,
            trial_duration_s: goal.final_trial_duration_s,
            duration_sum_s: goal.duration_sum_s,
        }
    }
}

/// What a load is, by the trials so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Classification {
    /// It meets the goal, whatever the missing trials would say.
    LowerBound,
    /// It does not, whatever they would say.
    UpperBound,
    /// The missing trials decide.
    Undecided,
}

/// Seconds of trials at one load, sorted by what they say.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct DurationSums {
    /// Full-length, low-loss.
    pub full_low_s: f64,
    /// Full-length, high-loss.
    pub full_high_s: f64,
    /// Short, low-loss.
    pub short_low_s: f64,
    /// Short, high-loss.
    pub short_high_s: f64,
}

/// The share of high-loss seconds, by two views of the seconds that are missing to the duration sum.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ExceedRatios {
    /// If all of them will be low-loss (0 to 1).
    pub optimistic: f64,
    /// If all of them will be high-loss (0 to 1).
    pub pessimistic: f64,
}

impl DurationSums {
    /// Sorts the trials at one load.
    pub fn of(trials: impl IntoIterator<Item = GoalTrial>, requirement: &Requirement) -> Self {
        let mut sums = Self::default();
        for trial in trials {
            let full = trial.duration_s >= requirement.trial_duration_s * (1.0 - EQUAL);
            let high = trial.loss_ratio > requirement.loss_ratio;
            let sum = match (full, high) {
                (true, false) => &mut sums.full_low_s,
                (true, true) => &mut sums.full_high_s,
                (false, false) => &mut sums.short_low_s,
                (false, true) => &mut sums.short_high_s,
            };
            *sum += trial.effective_duration_s;
        }
        sums
    }

    /// High-loss seconds: the full-length ones, and the short ones that short low-loss ones do not make up
    /// for.
    pub fn effective_high_s(&self, requirement: &Requirement) -> f64 {
        let tolerated_per_good_s = requirement.exceed_ratio / (1.0 - requirement.exceed_ratio);
        let balance_s = self.short_low_s * tolerated_per_good_s;
        self.full_high_s + (self.short_high_s - balance_s).max(0.0)
    }

    /// The seconds that shares are taken of: those there are, or the duration sum if that is more.
    pub fn effective_whole_s(&self, requirement: &Requirement) -> f64 {
        (self.full_low_s + self.effective_high_s(requirement)).max(requirement.duration_sum_s)
    }

    /// The share of high-loss seconds, seen both ways.
    pub fn exceed_ratios(&self, requirement: &Requirement) -> ExceedRatios {
        let whole_s = self.effective_whole_s(requirement);
        ExceedRatios {
            optimistic: self.effective_high_s(requirement) / whole_s,
            pessimistic: (whole_s - self.full_low_s) / whole_s,
        }
    }

    /// What the load is.
    pub fn classify(&self, requirement: &Requirement) -> Classification {
        let ratios = self.exceed_ratios(requirement);
        let tolerated = requirement.exceed_ratio + EQUAL;
        match (ratios.optimistic <= tolerated, ratios.pessimistic <= tolerated) {
            (true, true) => Classification::LowerBound,
            (false, false) => Classification::UpperBound,
            _ => Classification::Undecided,
        }
    }
}

/// What a load is, by the trials measured at it.
pub fn classify(trials: impl IntoIterator<Item = GoalTrial>, requirement: &Requirement) -> Classification {
    DurationSums::of(trials, requirement).classify(requirement)
}

/// The loss ratio that stands for a load in its conditional throughput: the quantile 1 − exceed ratio of the
/// full-length trials by duration, seconds missing to the duration sum counted as lost whole (RFC 9971,
/// appendix B).
pub fn quantile_loss_ratio(trials: impl IntoIterator<Item = GoalTrial>, requirement: &Requirement) -> f64 {
    let full = |trial: &GoalTrial| trial.duration_s >= requirement.trial_duration_s * (1.0 - EQUAL);
    let mut trials: Vec<GoalTrial> = trials.into_iter().filter(full).collect();
    trials.sort_by(|a, b| a.loss_ratio.total_cmp(&b.loss_ratio));
    let measured_s: f64 = trials.iter().map(|trial| trial.effective_duration_s).sum();
    let whole_s = measured_s.max(requirement.duration_sum_s);
    let mut remaining_s = whole_s * (1.0 - requirement.exceed_ratio);
    for trial in &trials {
        remaining_s -= trial.effective_duration_s;
        if remaining_s <= whole_s * EQUAL {
            return trial.loss_ratio;
        }
    }
    1.0
}

/// What gets through at a load that is a goal's lower bound: the load less its [`quantile_loss_ratio`], in
/// units of load.
pub fn conditional_throughput(
    load: f64,
    trials: impl IntoIterator<Item = GoalTrial>,
    requirement: &Requirement,
) -> f64 {
    load * (1.0 - quantile_loss_ratio(trials, requirement))
}
