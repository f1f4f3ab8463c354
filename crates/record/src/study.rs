//! What a study leaves behind: a folder of files.
//!
//! | file | what |
//! |---|---|
//! | `study.toml` | the study file as run, if there was one |
//! | `plan.json` | [`StudyPlan`]: everything that decides what is run, written before the first trial |
//! | `environment.json` | [`Environment`](crate::Environment) |
//! | `trials.jsonl` | one [`TrialEntry`] a line, in the order they ran; each is on disk before the next begins |
//! | `interrupted-trial.json` | the trial that an interrupt ended; it decides nothing |
//! | `result.json` | [`StudyResult`]: what it means; written at the end, also after an interrupt |
//! | `report.html`, `junit.xml`, `metrics.txt` | written from the others |

use std::{collections::BTreeMap, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    goal::Goal,
    trial::{Trial, Warning},
};

/// The form of plans written by this version.
pub const PLAN_SCHEMA: &str = "proofload/plan/1";
/// The form of trial entries written by this version.
pub const ENTRY_SCHEMA: &str = "proofload/trial-entry/1";
/// The form of results written by this version.
pub const RESULT_SCHEMA: &str = "proofload/result/1";

/// Everything that decides what a study runs. The same plan and the same outcomes of its trials give the same
/// next trial: that is how a killed study goes on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StudyPlan {
    /// The form of this record, [`PLAN_SCHEMA`].
    pub schema: String,
    /// Version of proofload that made it.
    pub proofload_version: String,
    /// What it is called.
    pub title: String,
    /// The command line that repeats it.
    pub command: Vec<String>,
    /// Seed of everything random: the order of settings, arrivals, think times.
    pub seed: u64,
    /// What varies: names of factors and their levels, in the order of the file.
    pub factors: Vec<Factor>,
    /// All combinations of levels that are run; their place here is their number.
    pub settings: Vec<Setting>,
    /// The order they are run in: blocks, each with the numbers of its settings.
    pub blocks: Vec<Vec<usize>>,
    /// What a load must satisfy.
    pub goals: Vec<Goal>,
    /// How long a trial at a fixed load lasts, in seconds; none if requests or loops end it.
    pub trial_duration_s: Option<f64>,
    /// The search, if the study has one.
    pub search: Option<SearchPlan>,
    /// Wall-clock time after which no further trial begins, in seconds; none for no limit.
    pub budget_s: Option<f64>,
    /// The workload in words, for people: `GET http://127.0.0.1:8080/, keep-alive, constant arrivals`.
    pub workload: String,
    /// A digest of everything else that was given: a study is taken up again only if it is the same.
    #[serde(default)]
    pub inputs: String,
}

/// What a study varies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Factor {
    /// Its name.
    pub name: String,
    /// Its levels.
    pub levels: Vec<Level>,
}

/// A level of a factor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Level {
    /// True or false.
    Flag(bool),
    /// A number.
    Number(f64),
    /// Text.
    Text(String),
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// One combination of levels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Setting {
    /// The level of every factor that applies to it.
    pub levels: BTreeMap<String, Level>,
    /// The levels in words, `threads=2 connections=200`; empty if the study has no factors.
    pub name: String,
    /// Whether a load is searched for here; otherwise the workload's own load is run.
    pub searched: bool,
}

/// A search for the largest load that meets the goals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SearchPlan {
    /// What is varied: `users`, `rate`, `connections`, or the name of a factor.
    pub unit: LoadUnit,
    /// Least load.
    pub min: f64,
    /// Largest load.
    pub max: f64,
    /// Width of the interval between the bounds, relative to the upper one.
    pub width: f64,
    /// The method: `mlrsearch`, `bisection`, or the name of a preset.
    pub method: String,
    /// Duration of a trial that counts in full, in seconds.
    pub trial_duration_s: f64,
    /// Seconds of trials that decide about a load.
    pub duration_sum_s: f64,
    /// Share of those seconds that may be bad (0 to 1).
    pub exceed_ratio: f64,
    /// The method's own settings, whole, so that a killed study can go on.
    pub method_settings: serde_json::Value,
}

/// What a search varies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoadUnit {
    /// Users of a closed load.
    Users,
    /// Requests per second of an open load.
    Rate,
    /// Connections of an open load.
    Connections,
    /// A numeric factor of the study.
    Factor(String),
}

impl LoadUnit {
    /// A load in this unit, for people: `128 users`, `997,498/s`.
    pub fn show(&self, load: f64) -> String {
        use crate::units::{show_count, show_rate};
        match self {
            Self::Users => format!("{} users", show_count(load.round() as u64)),
            Self::Rate => show_rate(load),
            Self::Connections => format!("{} connections", show_count(load.round() as u64)),
            Self::Factor(name) => format!("{name} {load}"),
        }
    }

    /// Whether loads are whole numbers by nature.
    pub fn is_whole(&self) -> bool {
        matches!(self, Self::Users | Self::Connections)
    }
}

/// One trial of a study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialEntry {
    /// The form of this record, [`ENTRY_SCHEMA`].
    pub schema: String,
    /// Its number in the study, from 0.
    pub index: u64,
    /// The number of its block.
    pub block: usize,
    /// The number of its setting.
    pub setting: usize,
    /// What it was run for.
    pub purpose: Purpose,
    /// The load of a search, in the search's unit.
    pub load: Option<f64>,
    /// From 0: how often this place of the plan had been tried before and was void.
    pub attempt: u32,
    /// The share lost to each goal (0 to 1), in the order of the plan's goals.
    pub loss_ratios: Vec<f64>,
    /// By how much the median response time grew in each second, in seconds per second, if it grew so steadily
    /// that the load is not carried although the trial may have met its goals (`docs/limit.md`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growth_per_s: Option<f64>,
    /// From the start of the study to the start of the trial, in seconds.
    pub study_time_s: f64,
    /// What was measured.
    pub trial: Trial,
}

impl TrialEntry {
    /// Whether the trial met a goal of the plan, given by its place there: valid, no more lost than allowed, and
    /// nothing piling up.
    pub fn meets(&self, goal: usize, plan: &StudyPlan) -> bool {
        let within = |(loss, goal): (&f64, &Goal)| *loss <= goal.loss_ratio;
        let within = self.loss_ratios.get(goal).zip(plan.goals.get(goal)).is_some_and(within);
        within && self.growth_per_s.is_none() && !self.trial.validity.is_void()
    }

    /// Gives back the memory of the trial's histograms that holds nothing, see [`Trial::pack`].
    pub fn pack(&mut self) {
        self.trial.pack();
    }
}

/// What a trial was run for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// To get the target warm; it decides nothing.
    WarmUp,
    /// A step of a search.
    Search,
    /// The workload's own load.
    Repeat,
}

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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
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
