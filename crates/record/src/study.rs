//! What a study leaves behind: a folder of files.
//!
//! | file | what |
//! |---|---|
//! | `study.toml` | the study file as run, if there was one |
//! | `plan.json` | [`StudyPlan`]: everything that decides what is run, written before the first trial |
//! | `environment.json` | [`Environment`](crate::Environment) |
//! | `trials.jsonl` | one [`TrialEntry`] a line, in the order they ran; each is on disk before the next begins |
//! | `links.jsonl` | what was found of each emulated link, a line each: measured, and in each trial |
//! | `interrupted-trial.json` | the trial that an interrupt ended; it decides nothing |
//! | `receipts/N/` | what trial N sent and was acknowledged; kept of a study with an audit, where it says more than the audit |
//! | `stored/PROCESS/` | what a target's process stored, while it runs; kept where the audit found something |
//! | `result.json` | [`StudyResult`]: what it means; written at the end, also after an interrupt |
//! | `report.html`, `junit.xml`, `metrics.txt` | written from the others |
//!
//! The records in `plan.json`, `environment.json`, `trials.jsonl`, `links.jsonl` and `result.json` begin with the checksum of
//! what follows (`crc32c`). All but the plan name the checksum of their `plan`, the result that of its trials' lines
//! (`trials_crc32c`).

mod outcome;

use std::{collections::BTreeMap, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use outcome::{
    AuditTotals, Bound, BoundKind, BoundsAfter, BoundsSoFar, Confirmation, Ending, GoalOutcome, Knee,
    QuantitySummary, SearchOutcome, SettingOutcome, StudyResult,
};

use crate::{
    audit::AuditResult,
    goal::Goal,
    quantity::GivenQuantity,
    trial::{Kind, Trial, Warning},
};

/// The form of plans written by this version.
pub const PLAN_SCHEMA: &str = "proofload/plan/2";
/// The form of trial entries written by this version.
pub const ENTRY_SCHEMA: &str = "proofload/trial-entry/2";
/// The form of a line of `links.jsonl`.
pub const LINK_SCHEMA: &str = "proofload/link/1";
/// The form of results written by this version.
pub const RESULT_SCHEMA: &str = "proofload/result/2";

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
    /// The same search by other methods, for the settings that name them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_searches: Vec<SearchPlan>,
    /// How what the target stored is compared with what it acknowledged, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<AuditPlan>,
    /// What makes the load.
    #[serde(default)]
    pub kind: Kind,
    /// The quantities that its kind, its observers and the study file declare.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quantities: Vec<GivenQuantity>,
    /// The workload in words, for people: `GET http://127.0.0.1:8080/, keep-alive, constant arrivals`.
    pub workload: String,
    /// A digest of everything else that was given and decides about a trial: a study is taken up again only if it is the
    /// same.
    #[serde(default)]
    pub inputs: String,
    /// What the secrets of its requests are known again by; none if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<SecretPrints>,
}

/// Fingerprints of the secrets that are sent and not written down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretPrints {
    /// Drawn for this folder: fingerprints of other folders cannot be compared with these.
    pub salt: String,
    /// One of each secret.
    pub prints: Vec<SecretPrint>,
}

/// The fingerprint of a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretPrint {
    /// What it is: `the header Authorization`.
    pub what: String,
    /// Its fingerprint, by which it is known again.
    pub fingerprint: String,
}

impl StudyPlan {
    /// Whether a load that met a goal in so many of its valid trials meets it: in at least half of them, or in all
    /// where an audit tells.
    pub fn is_carried(&self, goal: usize, met: usize, valid: usize) -> bool {
        let audited = self.goals.get(goal).is_some_and(|goal| goal.quantity.is_audited());
        valid > 0 && if audited { met == valid } else { 2 * met >= valid }
    }

    /// Whether a trial of so many seconds counts for less than a whole one of its setting's search.
    pub fn explores(&self, setting: usize, asked_s: Option<f64>) -> bool {
        let full_s = self.search_of(setting).map(|search| search.trial_duration_s);
        asked_s.zip(full_s).is_some_and(|(asked_s, full_s)| asked_s < full_s * 0.999)
    }

    /// The search of a setting; none if it is not searched.
    pub fn search_of(&self, setting: usize) -> Option<&SearchPlan> {
        let setting = self.settings.get(setting).filter(|setting| setting.searched)?;
        let named = |search: &&SearchPlan| setting.method.as_ref().is_none_or(|name| *name == search.method);
        self.search.iter().chain(&self.other_searches).find(named)
    }
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
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Setting {
    /// The level of every factor that applies to it.
    pub levels: BTreeMap<String, Level>,
    /// The levels in words, `threads=2 connections=200`; empty if the study has no factors.
    pub name: String,
    /// Whether a load is searched for here; otherwise the workload's own load is run.
    pub searched: bool,
    /// The method of its search, where settings are searched by different ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
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
    /// Trials at the lower bound once it is found.
    #[serde(default)]
    pub confirm: u32,
    /// The method's own settings, whole, so that a killed study can go on.
    pub method_settings: serde_json::Value,
}

/// How what a target stored is compared with what it acknowledged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AuditPlan {
    /// The files that it stores in, as patterns of the first setting.
    pub files: Vec<String>,
    /// How long it may take to write what it has acknowledged, in seconds.
    pub flush_s: f64,
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
    /// Programs that run at once.
    Copies,
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
            Self::Copies => format!("{} copies", show_count(load.round() as u64)),
            Self::Factor(name) => format!("{name} {}", crate::units::plain(load)),
        }
    }

    /// The key of a workload that it is; none of a factor.
    pub fn key(&self) -> Option<&'static str> {
        match self {
            Self::Users => Some("users"),
            Self::Rate => Some("rate"),
            Self::Connections => Some("connections"),
            Self::Copies => Some("copies"),
            Self::Factor(_) => None,
        }
    }

    /// What is varied: the key, or the factor.
    pub fn name(&self) -> &str {
        match self {
            Self::Factor(name) => name,
            own => own.key().unwrap_or_default(),
        }
    }

    /// Whether loads are whole numbers by nature.
    pub fn is_whole(&self) -> bool {
        matches!(self, Self::Users | Self::Connections | Self::Copies)
    }
}

/// One trial of a study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialEntry {
    /// The form of this record, [`ENTRY_SCHEMA`].
    pub schema: String,
    /// Its number in the study, from 1: the one that progress, reports, messages and file names tell.
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
    /// The share lost to each goal (0 to 1), in the order of the plan's goals; 1 to a goal whose bound the growing
    /// response times would have passed (`growth_per_s`).
    pub loss_ratios: Vec<f64>,
    /// By how much the median response time grew in each second, in seconds per second, if it grew so steadily
    /// that the load is not carried, however little was late by then (`docs/limit.md`): the largest of all goals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growth_per_s: Option<f64>,
    /// What the target had stored of what it acknowledged, if that was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<AuditResult>,
    /// What was noticed since the trial before that a careful reader of the study should know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub noticed: Vec<Warning>,
    /// How long a search asked it to be, in seconds, which is what it counts for; trials that requests end are as long as
    /// they are. None outside of searches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_s: Option<f64>,
    /// From the start of the study to the start of the trial, in seconds.
    pub study_time_s: f64,
    /// What was measured.
    pub trial: Trial,
}

impl TrialEntry {
    /// Whether the trial met a goal of the plan, given by its place there: valid, and no more lost than allowed.
    pub fn meets(&self, goal: usize, plan: &StudyPlan) -> bool {
        let within = |(loss, goal): (&f64, &Goal)| *loss <= goal.loss_ratio;
        let within = self.loss_ratios.get(goal).zip(plan.goals.get(goal)).is_some_and(within);
        within && !self.trial.validity.is_void()
    }

    /// Whether its place of the plan is tried again, where void trials are so often.
    pub fn is_tried_again(&self, void_attempts: u32) -> bool {
        let is_repeated = matches!(self.purpose, Purpose::Repeat | Purpose::Confirm);
        is_repeated && self.trial.validity.is_void() && self.attempt < void_attempts
    }

    /// Whether it counts for less than a whole trial of its search: such trials explore.
    pub fn is_short(&self, plan: &StudyPlan) -> bool {
        plan.explores(self.setting, self.asked_s)
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
    /// The lower bound of a search, once more.
    Confirm,
}
