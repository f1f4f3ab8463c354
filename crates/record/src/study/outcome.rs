//! What a study found.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{audit::AuditResult, trial::Warning};

/// What a study found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StudyResult {
    /// The form of this record, [`RESULT_SCHEMA`].
    pub schema: String,
    /// How it ended.
    pub ending: Ending,
    /// When it started, seconds since 1970 UTC.
    pub started_unix_s: f64,
    /// How long it took, pauses of a killed run not counted, in seconds.
    pub elapsed_s: f64,
    /// How often it was taken up again after an interrupt.
    pub resumed: u32,
    /// Trials run, the void ones included.
    pub trials: u64,
    /// The void ones.
    pub void_trials: u64,
    /// What was found in each setting, in the order of the plan's settings.
    pub outcomes: Vec<SettingOutcome>,
    /// What a careful reader should know.
    pub warnings: Vec<Warning>,
}

/// How a study ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// Everything planned was run.
    Finished,
    /// It was interrupted: everything says what the trials before that say.
    Interrupted,
    /// The time budget was used up before the plan was.
    OutOfBudget,
    /// A target or a host failed, and what was planned could not be run; the warnings say what.
    Failed,
}

/// What was found in one setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SettingOutcome {
    /// The number of the setting in the plan.
    pub setting: usize,
    /// Whether the goals were met at the workload's own load, each in at least half of the valid repeats;
    /// none where a search was made or nothing valid was measured.
    pub goals_met: Option<bool>,
    /// One search for each block in which it was finished or begun.
    pub searches: Vec<SearchOutcome>,
    /// What the valid repeats gave, by quantity.
    pub summaries: Vec<QuantitySummary>,
    /// The knee of response time against load, if the trials show one.
    pub knee: Option<Knee>,
    /// What the conclusive audits of its trials found, taken together, the void trials' included: what is lost is
    /// lost however late the generator was. None if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<AuditTotals>,
    /// What a careful reader should know.
    pub warnings: Vec<Warning>,
}

/// What one search found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SearchOutcome {
    /// The block it belongs to.
    pub block: usize,
    /// For each goal, in the order of the plan.
    pub goals: Vec<GoalOutcome>,
    /// Whether it came to its end.
    pub finished: bool,
    /// Trials made for it, the void ones included.
    pub trials: u64,
    /// Seconds of trials.
    pub trial_seconds: f64,
    /// How its bounds closed in, trial by trial, in the order they ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<BoundsAfter>,
    /// What further trials at the lower bound gave, if there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmation: Option<Confirmation>,
}

/// What a search knew after one of its trials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BoundsAfter {
    /// The trial's number in the study.
    pub trial: u64,
    /// For each goal, in the order of the plan.
    pub goals: Vec<BoundsSoFar>,
}

/// The bounds of a goal while a search is on its way. They may still move in either direction.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct BoundsSoFar {
    /// Largest load known to meet the goal, in the search's unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower: Option<f64>,
    /// Smallest load known not to, in the search's unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upper: Option<f64>,
}

/// What further trials at a search's lower bound gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Confirmation {
    /// Their load, in the search's unit: the largest that all goals have a lower bound at or above.
    pub load: f64,
    /// How many were to be run.
    pub planned: u32,
    /// How many were valid.
    pub valid: u32,
    /// How many of the valid ones met each goal, in the order of the plan.
    pub met: Vec<u32>,
    /// What the valid ones gave, by quantity.
    pub summaries: Vec<QuantitySummary>,
    /// What the audits of the valid ones found, taken together; none if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<AuditTotals>,
}

/// What several audits found, added up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditTotals {
    /// Trials audited.
    pub trials: u64,
    /// Events that were acknowledged.
    pub acknowledged: u64,
    /// Events found in the files, each counted once.
    pub stored: u64,
    /// Acknowledged and not found.
    pub lost: u64,
    /// Copies that retries made.
    pub repeated: u64,
    /// Copies beyond the times that an event was sent.
    pub duplicated: u64,
    /// Events that are not as they were sent, and torn lines.
    pub corrupt: u64,
    /// Stored and never sent.
    pub never_sent: u64,
    /// Not where their receipts say.
    pub wrong_places: u64,
    /// Behind a later one of the same client.
    pub out_of_order: u64,
}

impl AuditTotals {
    /// Of these; none if there are none.
    pub fn of<'a>(audits: impl IntoIterator<Item = &'a AuditResult>) -> Option<Self> {
        let mut totals = Self::default();
        for audit in audits {
            totals.trials += 1;
            totals.acknowledged += audit.sent.taken_over();
            totals.stored += audit.stored;
            totals.lost += audit.lost;
            totals.repeated += audit.repeated;
            totals.duplicated += audit.duplicated;
            totals.corrupt += audit.corrupt;
            totals.never_sent += audit.never_sent;
            totals.wrong_places += audit.places.wrong;
            totals.out_of_order += audit.out_of_order;
        }
        (totals.trials > 0).then_some(totals)
    }

    /// Whether nothing is lost, duplicated beyond what was sent, corrupt, stored without being sent, or stored
    /// elsewhere than its receipt says.
    pub fn is_clean(&self) -> bool {
        self.lost + self.duplicated + self.corrupt + self.never_sent + self.wrong_places == 0
    }
}

/// The bounds that a search found for a goal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GoalOutcome {
    /// The goal's name.
    pub goal: String,
    /// Largest load that meets it, below all that do not.
    pub lower: Option<Bound>,
    /// Smallest load that does not meet it.
    pub upper: Option<Bound>,
    /// What kind of answer the bounds are.
    pub kind: BoundKind,
}

/// One bound.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bound {
    /// The load, in the search's unit.
    pub load: f64,
    /// The load less what was lost at it (RFC 9971, conditional throughput), in the search's unit.
    pub conditional_throughput: Option<f64>,
    /// Valid trials at this load.
    pub trials: u64,
}

/// What kind of answer two bounds are.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum BoundKind {
    /// Both bounds, as near as asked.
    Regular,
    /// The largest load asked for meets the goal: the answer is *at least* that.
    AtLeast,
    /// The smallest load asked for does not meet it: the answer is *below* that.
    Below,
    /// The generator could not make more load: the answer is *at least* the lower bound.
    GeneratorBound {
        /// Least load at which trials were void again and again.
        at: f64,
    },
    /// A bound is missing although everything was measured: from the lower bound to the largest load asked for, or
    /// from the smallest to the upper bound, trials at the same load disagree.
    Disputed,
    /// Time or trials ran out: the bounds are as wide as they are.
    Unfinished,
}

/// A quantity over the valid repeats of a setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QuantitySummary {
    /// Its name with its unit: `throughput_per_s`, `response_p99_us`.
    pub quantity: String,
    /// What each repeat gave, in the order of the blocks.
    pub values: Vec<f64>,
    /// At least one of them is of a time that still ran when it was no longer waited for: the true one may be longer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_least: bool,
    /// Their arithmetic mean; none in results of versions that did not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean: Option<f64>,
    /// Their median.
    pub median: f64,
    /// Lower end of the median's interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// The confidence that interval really has (0 to 1).
    pub confidence: f64,
    /// What a careful reader should know.
    pub warnings: Vec<Warning>,
}

/// Where response time begins to rise faster than load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Knee {
    /// The load, in the search's unit (requests per second where there was no search).
    pub load: f64,
    /// The 99th percentile of response time there, in microseconds.
    pub response_p99_us: f64,
}
