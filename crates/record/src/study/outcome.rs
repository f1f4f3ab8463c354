//! The result of a study.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{audit::AuditResult, span::Span, trial::Warning, verdict::Cause};

/// The result of a study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StudyResult {
    /// The schema of this record, [`RESULT_SCHEMA`].
    pub schema: String,
    /// How the study ended.
    pub ending: Ending,
    /// Start of the study, in seconds since 1970 UTC.
    pub started_unix_s: f64,
    /// Duration in seconds, without the pauses between runs.
    pub elapsed_s: f64,
    /// How often the study was resumed.
    pub resumed: u32,
    /// Number of trials, including void ones.
    pub trials: u64,
    /// Number of void trials.
    pub void_trials: u64,
    /// The outcome of each setting, in the order of the plan.
    pub outcomes: Vec<SettingOutcome>,
    /// What came of raising the limits that were named, if that was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proofs: Vec<Proof>,
    /// Warnings for the reader.
    pub warnings: Vec<Warning>,
}

/// What came of raising a limit that a verdict named.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Proof {
    /// The number of the setting in the plan.
    pub setting: usize,
    /// The load of the trials, in the search's unit; none without a search.
    pub load: Option<f64>,
    /// The cause that the verdict named.
    pub cause: Cause,
    /// The host or link where it was named; empty for this machine.
    pub place: String,
    /// What was raised; what would raise it if it was not.
    pub change: String,
    /// What came of it.
    pub proven: Proven,
    /// The figures without and with the change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<ProofFigure>,
    /// What bounded the trials after the change, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub then: Option<String>,
}

/// A figure without and with a raised limit: medians of as many trials each, which ran in turns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProofFigure {
    /// The quantity with its unit.
    pub quantity: String,
    /// The median as it was.
    pub before: f64,
    /// The median with the raised limit.
    pub after: f64,
    /// Whether a difference is shown (`docs/statistics.md`).
    pub is_shown: bool,
}

/// What raising a limit has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Proven {
    /// The target carries more, or answers sooner: the verdict was right.
    Moved,
    /// No figure is better: something else bounds the target as well, or the verdict was wrong.
    NotMoved,
    /// The trials were too few or too noisy to say.
    Undecided,
    /// The limit is not one that proofload can raise.
    NotTried,
}

/// How a study ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// All planned trials were run.
    Finished,
    /// The study was interrupted; the result covers the trials before that.
    Interrupted,
    /// The time budget was used up before all planned trials were run.
    OutOfBudget,
    /// A target or a host failed, so that the rest could not be run; the warnings explain it.
    Failed,
}

/// The outcome of one setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SettingOutcome {
    /// The number of the setting in the plan.
    pub setting: usize,
    /// Whether the goals were met at the workload's own load, each in at least half of the valid repeats. None if there was
    /// a search, or no valid repeat.
    pub goals_met: Option<bool>,
    /// The searches, one for each block in which one was begun.
    pub searches: Vec<SearchOutcome>,
    /// The quantities of the valid repeats.
    pub summaries: Vec<QuantitySummary>,
    /// The knee of response time against load, if there is one.
    pub knee: Option<Knee>,
    /// The sums of all conclusive audits, including those of void trials: a late generator does not excuse lost events.
    /// None if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<AuditTotals>,
    /// Warnings for the reader.
    pub warnings: Vec<Warning>,
}

/// The outcome of one search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SearchOutcome {
    /// The block of the search.
    pub block: usize,
    /// The outcome for each goal, in the order of the plan.
    pub goals: Vec<GoalOutcome>,
    /// Whether the search was completed.
    pub finished: bool,
    /// Number of its trials, including void ones.
    pub trials: u64,
    /// Sum of the trials' lengths, in seconds.
    pub trial_seconds: f64,
    /// The bounds after each trial, in the order of the runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<BoundsAfterTrial>,
    /// The outcome of further trials at the lower bound, if there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmation: Option<Confirmation>,
}

/// The bounds of a search after one of its trials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BoundsAfterTrial {
    /// The trial's number in the study.
    pub trial: u64,
    /// The bounds of each goal, in the order of the plan.
    pub goals: Vec<CurrentBounds>,
}

/// The bounds of a goal during a search. Both may still move in either direction.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CurrentBounds {
    /// Largest load known to meet the goal, in the search's unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower: Option<f64>,
    /// Smallest load known not to meet the goal, in the search's unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upper: Option<f64>,
}

/// The outcome of further trials at a search's lower bound.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Confirmation {
    /// The load, in the search's unit: the smallest lower bound of all goals.
    pub load: f64,
    /// Number of planned trials.
    pub planned: u32,
    /// Number of valid trials.
    pub valid: u32,
    /// Number of valid trials that met each goal, in the order of the plan.
    pub met: Vec<u32>,
    /// The quantities of the valid trials.
    pub summaries: Vec<QuantitySummary>,
    /// The sums of the valid trials' audits; none if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<AuditTotals>,
}

/// The sums of several audits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditTotals {
    /// Number of audited trials.
    pub trials: u64,
    /// Acknowledged events.
    pub acknowledged: u64,
    /// Stored events, each counted once.
    pub stored: u64,
    /// Acknowledged events that are not stored.
    pub lost: u64,
    /// Copies caused by retries.
    pub repeated: u64,
    /// Copies beyond the number of times that an event was sent.
    pub duplicated: u64,
    /// Stored events that differ from what was sent, and incomplete lines.
    pub corrupt: u64,
    /// Stored events that were never sent.
    pub never_sent: u64,
    /// Events that are not where their receipts say.
    pub wrong_places: u64,
    /// Events stored after a later event of the same client.
    pub out_of_order: u64,
}

impl AuditTotals {
    /// The sums of `audits`; `None` if there are no audits.
    pub fn of<'a>(audits: impl IntoIterator<Item = &'a AuditResult>) -> Option<Self> {
        let mut totals = Self::default();
        for audit in audits {
            totals.trials += 1;
            totals.acknowledged += audit.sent.all_acknowledged();
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

    /// Whether no event is lost, duplicated, corrupt, stored without being sent, or stored elsewhere than its receipt says.
    pub fn is_clean(&self) -> bool {
        self.lost + self.duplicated + self.corrupt + self.never_sent + self.wrong_places == 0
    }
}

/// The bounds that a search found for a goal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GoalOutcome {
    /// The goal's name.
    pub goal: String,
    /// Largest load that meets the goal and is below all loads that do not.
    pub lower: Option<Bound>,
    /// Smallest load that does not meet the goal.
    pub upper: Option<Bound>,
    /// How the bounds are to be read.
    pub kind: BoundKind,
}

/// A bound of a goal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bound {
    /// The load, in the search's unit.
    pub load: f64,
    /// The load less the lost share (RFC 9971, conditional throughput), in the search's unit.
    pub conditional_throughput: Option<f64>,
    /// Number of valid trials at this load.
    pub trials: u64,
}

/// How two bounds are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum BoundKind {
    /// Both bounds were found, with the requested width.
    Regular,
    /// The largest requested load meets the goal: the limit is *at least* that load.
    AtLeast,
    /// The smallest requested load does not meet the goal: the limit is *below* that load.
    Below,
    /// The generator could not make more load: the limit is *at least* the lower bound.
    GeneratorBound {
        /// Smallest load at which trials were void repeatedly.
        at: f64,
    },
    /// A bound is missing although the search was completed: trials at the same load disagree, from the lower bound up to
    /// the largest requested load, or from the upper bound down to the smallest.
    Disputed,
    /// Neither bound is known: whether trials meet the goal depends on when they ran, or on how long, and not on their load alone.
    Unsteady,
    /// The search ended early, so the bounds may be wider than requested.
    Unfinished,
}

/// A quantity over the valid repeats of a setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QuantitySummary {
    /// The quantity's name with its unit: `throughput_per_s`, `response_p99_us`.
    pub quantity: String,
    /// The value of each repeat, in the order of the blocks.
    pub values: Vec<f64>,
    /// The least and the most that each value may be, where a disturbance of the instrument may have changed one of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<[f64; 2]>,
    /// Whether a true value may be larger, because some measured times were cut off (censored).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_least: bool,
    /// The arithmetic mean; none in results of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean: Option<f64>,
    /// The median.
    pub median: f64,
    /// Lower end of the median's confidence interval, computed from the least that each value may be.
    pub low: f64,
    /// Upper end of the median's confidence interval, computed from the most that each value may be.
    pub high: f64,
    /// The actual confidence of that interval (0 to 1).
    pub confidence: f64,
    /// Warnings for the reader.
    pub warnings: Vec<Warning>,
}

impl QuantitySummary {
    /// The lower or (with `most`) the upper end of each value. Without recorded ends, the measured values.
    pub fn at_end(&self, most: bool) -> Vec<f64> {
        if self.ends.is_empty() {
            self.values.clone()
        } else {
            self.ends.iter().map(|ends| ends[usize::from(most)]).collect()
        }
    }

    /// The mean, as an interval if the values are intervals; `None` in results of earlier versions.
    pub fn mean_span(&self) -> Option<Span> {
        let mean = self.mean?;
        let of = |most| self.at_end(most).iter().sum::<f64>() / self.values.len() as f64;
        let exact = Span { at_least: self.at_least, ..Span::exact(mean) };
        Some(if self.ends.is_empty() { exact } else { Span { least: of(false), most: of(true), ..exact } })
    }

    /// The median, as an interval if the values are intervals.
    pub fn span(&self) -> Span {
        let spans = self.at_end(false).into_iter().zip(self.at_end(true));
        let spans = spans.map(|(least, most)| Span { least, most, ..Span::exact(least) });
        let of_ends = Span::median(spans).filter(Span::is_wide).unwrap_or(Span::exact(self.median));
        Span { value: self.median, at_least: self.at_least, ..of_ends }
    }
}

/// The load above which response time rises faster than load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Knee {
    /// The load, in the search's unit, or in requests per second without a search.
    pub load: f64,
    /// The 99th percentile of response time at that load, in microseconds.
    pub response_p99_us: f64,
}
