//! Classifies a load for a goal by its trials: RFC 9971, section 6 and appendices A and B.

use crate::goal::SearchGoal;

/// Relative difference below which sums of seconds are equal: `3 × 0.7 s` must equal `2.1 s`.
const TOLERANCE: f64 = 1e-9;

/// A trial and its loss to one goal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GoalTrial {
    /// Its planned length, in seconds, which decides whether the trial is full-length.
    pub duration_s: f64,
    /// The seconds for which it counts: its length, or more if overhead is included.
    pub effective_duration_s: f64,
    /// The share of the planned requests that was lost to the goal (0 to 1).
    pub loss_ratio: f64,
}

/// The part of a goal, or of a coarser target, that classification needs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Requirement {
    /// Largest loss ratio of a low-loss trial (0 to below 1).
    pub loss_ratio: f64,
    /// Share of the seconds that may be high-loss at a lower bound (0 to below 1).
    pub exceed_ratio: f64,
    /// Shortest length of a full-length trial, in seconds.
    pub trial_duration_s: f64,
    /// Seconds of full-length trials that suffice to classify a load.
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

/// The classification of a load by its trials so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Classification {
    /// The load meets the goal, whatever the missing trials give.
    LowerBound,
    /// The load does not meet the goal, whatever the missing trials give.
    UpperBound,
    /// The classification depends on the missing trials.
    Undecided,
}

/// Seconds of trials at one load, by length and loss.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct DurationSums {
    /// Seconds of full-length, low-loss trials.
    pub full_low_s: f64,
    /// Seconds of full-length, high-loss trials.
    pub full_high_s: f64,
    /// Seconds of short, low-loss trials.
    pub short_low_s: f64,
    /// Seconds of short, high-loss trials.
    pub short_high_s: f64,
}

/// The share of high-loss seconds under two assumptions about the seconds that are missing from the duration sum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExceedRatios {
    /// If all missing seconds are low-loss (0 to 1).
    pub optimistic: f64,
    /// If all missing seconds are high-loss (0 to 1).
    pub pessimistic: f64,
}

impl DurationSums {
    /// Adds up the trials at one load.
    pub fn of(trials: impl IntoIterator<Item = GoalTrial>, requirement: &Requirement) -> Self {
        let mut sums = Self::default();
        for trial in trials {
            let full = trial.duration_s >= requirement.trial_duration_s * (1.0 - TOLERANCE);
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

    /// High-loss seconds of full-length trials, plus those high-loss seconds of short trials that short low-loss trials
    /// do not balance.
    pub fn effective_high_s(&self, requirement: &Requirement) -> f64 {
        let tolerated_per_good_s = requirement.exceed_ratio / (1.0 - requirement.exceed_ratio);
        let balance_s = self.short_low_s * tolerated_per_good_s;
        self.full_high_s + (self.short_high_s - balance_s).max(0.0)
    }

    /// The denominator of the exceed ratios: the measured seconds, or the duration sum if that is more.
    pub fn effective_whole_s(&self, requirement: &Requirement) -> f64 {
        (self.full_low_s + self.effective_high_s(requirement)).max(requirement.duration_sum_s)
    }

    /// The optimistic and the pessimistic share of high-loss seconds.
    pub fn exceed_ratios(&self, requirement: &Requirement) -> ExceedRatios {
        let whole_s = self.effective_whole_s(requirement);
        ExceedRatios {
            optimistic: self.effective_high_s(requirement) / whole_s,
            pessimistic: (whole_s - self.full_low_s) / whole_s,
        }
    }

    /// Classifies the load.
    pub fn classify(&self, requirement: &Requirement) -> Classification {
        let ratios = self.exceed_ratios(requirement);
        let tolerated = requirement.exceed_ratio + TOLERANCE;
        match (ratios.optimistic <= tolerated, ratios.pessimistic <= tolerated) {
            (true, true) => Classification::LowerBound,
            (false, false) => Classification::UpperBound,
            _ => Classification::Undecided,
        }
    }
}

/// The loss ratio that determines a load's conditional throughput: the quantile 1 − exceed ratio of the full-length
/// trials, weighted by duration. Seconds missing from the duration sum count as fully lost (RFC 9971, appendix B).
fn quantile_loss_ratio(trials: impl IntoIterator<Item = GoalTrial>, requirement: &Requirement) -> f64 {
    let full = |trial: &GoalTrial| trial.duration_s >= requirement.trial_duration_s * (1.0 - TOLERANCE);
    let mut trials: Vec<GoalTrial> = trials.into_iter().filter(full).collect();
    trials.sort_by(|a, b| a.loss_ratio.total_cmp(&b.loss_ratio));
    let measured_s: f64 = trials.iter().map(|trial| trial.effective_duration_s).sum();
    let whole_s = measured_s.max(requirement.duration_sum_s);
    let mut remaining_s = whole_s * (1.0 - requirement.exceed_ratio);
    for trial in &trials {
        remaining_s -= trial.effective_duration_s;
        if remaining_s <= whole_s * TOLERANCE {
            return trial.loss_ratio;
        }
    }
    1.0
}

/// The conditional throughput at a goal's lower bound, in units of load: the load times 1 − its quantile loss ratio.
pub fn conditional_throughput(
    load: f64,
    trials: impl IntoIterator<Item = GoalTrial>,
    requirement: &Requirement,
) -> f64 {
    load * (1.0 - quantile_loss_ratio(trials, requirement))
}
