//! The entries of a study's journal of trials.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ActionRecord, StudyPlan};
use crate::{
    audit::AuditResult,
    trial::{Trial, Warning},
};

/// The schema of trial entries that this version writes.
pub const ENTRY_SCHEMA: &str = "proofload/trial-entry/2";
/// The code of the warning of a valid trial that leaves goals undecided.
pub const UNDECIDED: &str = "undecided";

/// One trial of a study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialEntry {
    /// The schema of this record, [`ENTRY_SCHEMA`].
    pub schema: String,
    /// The trial's number in the study, from 1, as progress, reports, messages and file names show it.
    pub index: u64,
    /// The number of the block.
    pub block: usize,
    /// The number of the setting.
    pub setting: usize,
    /// The purpose of the trial.
    pub purpose: Purpose,
    /// The load of a search, in the search's unit.
    pub load: Option<f64>,
    /// How many void attempts preceded this one, from 0.
    pub attempt: u32,
    /// The share lost to each goal (0 to 1), in the order of the plan's goals; 1 for a goal whose bound the growing
    /// response times would exceed (`growth_per_s`).
    pub loss_ratios: Vec<f64>,
    /// Growth of the median response time, in seconds per second, if it grew so steadily that the target does not sustain
    /// the load (`docs/limit.md`): the largest value of all goals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growth_per_s: Option<f64>,
    /// Indices of the goals that the trial leaves undecided although it is valid: the interval of what they bound contains
    /// their bound. `loss_ratios` has the worse end for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undecided: Vec<usize>,
    /// The audit of the stored events, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<AuditResult>,
    /// What was done during the trial, in the order of the study file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<ActionRecord>,
    /// Warnings about the study since the preceding trial.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub noticed: Vec<Warning>,
    /// The length that a search asked for and counts, in seconds; trials that end after a number of requests may differ.
    /// None outside of searches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_s: Option<f64>,
    /// From the start of the study to the start of the trial, in seconds.
    pub study_time_s: f64,
    /// The measurements.
    pub trial: Trial,
}

impl TrialEntry {
    /// The entry of a trial without goals and without a search, at the start of a study of one setting.
    pub fn alone(index: u64, trial: Trial) -> Self {
        Self {
            schema: ENTRY_SCHEMA.to_owned(),
            index,
            block: 0,
            setting: 0,
            purpose: Purpose::Repeat,
            load: None,
            attempt: 0,
            loss_ratios: Vec::new(),
            growth_per_s: None,
            undecided: Vec::new(),
            audit: None,
            actions: Vec::new(),
            noticed: Vec::new(),
            asked_s: None,
            study_time_s: 0.0,
            trial,
        }
    }

    /// Whether the trial is valid and meets the goal with this index in the plan.
    pub fn meets(&self, goal: usize, plan: &StudyPlan) -> bool {
        self.decides(goal, plan) == Some(true)
    }

    /// Whether the trial meets the goal with this index in the plan. `None` if the trial is void, leaves the goal
    /// undecided, or was not judged by this goal.
    pub fn decides(&self, goal: usize, plan: &StudyPlan) -> Option<bool> {
        let (loss, goal_plan) = self.loss_ratios.get(goal).zip(plan.goals.get(goal))?;
        let is_decided = !self.trial.validity.is_void() && !self.undecided.contains(&goal);
        is_decided.then_some(*loss <= goal_plan.loss_ratio)
    }

    /// Whether the trial decides all its goals: it is valid, and leaves none undecided.
    pub fn is_decided(&self) -> bool {
        !self.trial.validity.is_void() && self.undecided.is_empty()
    }

    /// The reasons for which the trial is void or leaves goals undecided.
    pub fn why_undecided(&self) -> impl Iterator<Item = &str> {
        let reasons = self.trial.validity.reasons().iter().map(|reason| reason.evidence.as_str());
        reasons.chain(self.trial.told(UNDECIDED))
    }

    /// Whether the trial must be repeated, up to `void_attempts` times. A void repeat must be; a confirmation must be
    /// if it is void or undecided. An undecided repeat at the workload's own load still has its figures, and a search
    /// repeats its trials itself.
    pub fn needs_retry(&self, void_attempts: u32) -> bool {
        let is_repeated = match self.purpose {
            Purpose::Repeat => self.trial.validity.is_void(),
            Purpose::Confirm => !self.is_decided(),
            Purpose::WarmUp | Purpose::Search => false,
        };
        is_repeated && self.attempt < void_attempts
    }

    /// Whether the trial is shorter than a full trial of its search.
    pub fn is_short(&self, plan: &StudyPlan) -> bool {
        plan.is_exploratory(self.setting, self.asked_s)
    }

    /// Frees the memory of empty histogram bins, see [`Trial::pack`].
    pub fn pack(&mut self) {
        self.trial.pack();
    }
}

/// The purpose of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Warms up the target; does not count.
    WarmUp,
    /// A step of a search.
    Search,
    /// A repeat at the workload's own load.
    Repeat,
    /// A further trial at the lower bound of a search.
    Confirm,
}
