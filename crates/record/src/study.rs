//! The result folder of a study, and the records in it.
//!
//! | file | content |
//! |---|---|
//! | `study.toml` | the study file as run, if there was one |
//! | `plan.json` | [`StudyPlan`]: everything that decides what is run; written before the first trial |
//! | `environment.json` | [`Environment`](crate::Environment) |
//! | `trials.jsonl` | one [`TrialEntry`] per line, in the order of the runs; each is on disk before the next trial begins |
//! | `links.jsonl` | one record per line for each emulated link: its certificate, and its figures in each trial |
//! | `counters.jsonl` | [`TrialCounters`](crate::TrialCounters): one line per trial |
//! | `proof/` | the result folder of the trials with and without raised limits (`--prove`) |
//! | `interrupted-trial.json` | the trial that was interrupted, which does not count |
//! | `receipts/N/` | the receipts of trial N; kept in a study with an audit if they say more than the audit |
//! | `stored/PROCESS/` | the files of a target's process while it runs; kept if the audit found something |
//! | `result.json` | [`StudyResult`]: the outcome; written at the end, also after an interrupt |
//! | `report.html`, `junit.xml`, `metrics.txt` | reports, derived from the other files |
//!
//! Each record in `plan.json`, `environment.json`, `trials.jsonl`, `links.jsonl`, `counters.jsonl` and `result.json`
//! begins with a checksum of the rest of the record (`crc32c`). All records but the plan contain the checksum of their
//! `plan`; the result also contains the checksum of the trials' lines (`trials_crc32c`).

mod action;
mod bounding;
mod entry;
mod outcome;
mod quantities;

use std::{collections::BTreeMap, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use action::ActionRecord;
pub use bounding::Bounding;
pub use entry::{ENTRY_SCHEMA, Purpose, TrialEntry, UNDECIDED};
pub use outcome::{
    AuditTotals, Bound, BoundKind, BoundsAfterTrial, Confirmation, CurrentBounds, Ending, GoalOutcome, Knee,
    Proof, ProofFigure, Proven, QuantitySummary, SearchOutcome, SettingOutcome, StudyResult,
};
pub use quantities::quantities;

use crate::{goal::Goal, noise::Noise, trial::Kind};

/// The schema of plans that this version writes.
pub const PLAN_SCHEMA: &str = "proofload/plan/2";
/// The schema of the lines of `links.jsonl`.
pub const LINK_SCHEMA: &str = "proofload/link/1";
/// The schema of results that this version writes.
pub const RESULT_SCHEMA: &str = "proofload/result/2";

/// A quantity that a kind of trial, an observer or a study file declares. Its values are in
/// [`Trial::quantities`](crate::Trial), under its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeclaredQuantity {
    /// The name, which ends with the unit: `goodput_bit_per_s`.
    pub name: String,
    /// The label for people: `goodput`.
    pub words: String,
    /// Whether more is better.
    pub more_is_better: bool,
    /// Whether it is a main figure of a setting.
    pub is_main: bool,
}

/// Everything that decides what a study runs. The same plan and the same outcomes give the same next trial, so that a
/// killed study can be resumed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StudyPlan {
    /// The schema of this record, [`PLAN_SCHEMA`].
    pub schema: String,
    /// Version of proofload that made the plan.
    pub proofload_version: String,
    /// The study's title.
    pub title: String,
    /// The command line that repeats the study.
    pub command: Vec<String>,
    /// Seed of all random numbers: the order of settings, arrivals, think times.
    pub seed: u64,
    /// The factors, in the order of the study file.
    pub factors: Vec<Factor>,
    /// All combinations of levels that are run. The number of a setting is its index here.
    pub settings: Vec<Setting>,
    /// The blocks in the order of the run, each with the numbers of its settings.
    pub blocks: Vec<Vec<usize>>,
    /// What a load must satisfy.
    pub goals: Vec<Goal>,
    /// Length of a trial at a fixed load, in seconds; none if requests or loops end the trial.
    pub trial_duration_s: Option<f64>,
    /// The search, if the study has one.
    pub search: Option<SearchPlan>,
    /// The same search with other methods, for the settings that name them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_searches: Vec<SearchPlan>,
    /// How the stored events are compared with the acknowledged ones, if there is an audit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<AuditPlan>,
    /// The kind of the trials.
    #[serde(default)]
    pub kind: Kind,
    /// The quantities that the kind, the observers and the study file declare.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quantities: Vec<DeclaredQuantity>,
    /// The workload, for people: `GET http://127.0.0.1:8080/, keep-alive, constant arrivals`.
    pub workload: String,
    /// A digest of all other inputs that decide about a trial. A study is resumed only if it is unchanged.
    #[serde(default)]
    pub inputs: String,
    /// Fingerprints of the secrets in its requests, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<SecretFingerprints>,
    /// What a look at this machine saw before the first trial; none if there was no look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<Noise>,
    /// Names of the machines that make the load; none if this machine makes it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<String>,
}

/// Fingerprints of secrets that are sent but never stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretFingerprints {
    /// A random salt for this folder, which makes fingerprints of different folders incomparable.
    pub salt: String,
    /// The fingerprints, one per secret.
    pub prints: Vec<SecretFingerprint>,
}

/// The fingerprint of a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretFingerprint {
    /// What the secret is: `the header Authorization`.
    pub what: String,
    /// The secret's fingerprint.
    pub fingerprint: String,
}

impl StudyPlan {
    /// Whether a load meets a goal that `met` of `valid` trials met. At least half of them must meet it, or all if an
    /// audit decides.
    pub fn counts_as_met(&self, goal: usize, met: usize, valid: usize) -> bool {
        let audited = self.goals.get(goal).is_some_and(|goal| goal.quantity.is_audited());
        valid > 0 && if audited { met == valid } else { 2 * met >= valid }
    }

    /// Whether a trial of this length, in seconds, is shorter than a full trial of the setting's search.
    pub fn is_exploratory(&self, setting: usize, asked_s: Option<f64>) -> bool {
        let full_s = self.search_of(setting).map(|search| search.trial_duration_s);
        asked_s.zip(full_s).is_some_and(|(asked_s, full_s)| asked_s < full_s * 0.999)
    }

    /// The search of a setting, if it has one.
    pub fn search_of(&self, setting: usize) -> Option<&SearchPlan> {
        let setting = self.settings.get(setting).filter(|setting| setting.searched)?;
        let has_method =
            |search: &&SearchPlan| setting.method.as_ref().is_none_or(|name| *name == search.method);
        self.search.iter().chain(&self.other_searches).find(has_method)
    }
}

/// A factor that a study varies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Factor {
    /// The factor's name.
    pub name: String,
    /// The factor's levels.
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

/// A combination of levels.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Setting {
    /// The level of every factor that applies to this setting.
    pub levels: BTreeMap<String, Level>,
    /// The levels as text, `threads=2 connections=200`; empty if the study has no factors.
    pub name: String,
    /// Whether the load is searched for; if not, the workload's own load is run.
    pub searched: bool,
    /// The search method, if settings use different ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Kernel settings of the study's hosts, by host and name, that are not the same in all settings of the study.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub host_settings: BTreeMap<String, BTreeMap<String, String>>,
}

/// A search for the largest load that meets the goals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SearchPlan {
    /// What the search varies: `users`, `rate`, `connections`, `copies`, or a factor.
    pub unit: LoadUnit,
    /// Smallest load.
    pub min: f64,
    /// Largest load.
    pub max: f64,
    /// Requested distance between the bounds, relative to the upper bound.
    pub width: f64,
    /// The method: `mlrsearch`, `bisection`, or the name of a preset.
    pub method: String,
    /// Length of a full trial, in seconds.
    pub trial_duration_s: f64,
    /// Seconds of full trials that decide about a load.
    pub duration_sum_s: f64,
    /// Share of those seconds that may be bad (0 to 1).
    pub exceed_ratio: f64,
    /// Further trials at the lower bound after the search.
    #[serde(default)]
    pub confirm: u32,
    /// All settings of the method, so that a killed study can be resumed.
    pub method_settings: serde_json::Value,
}

/// How the stored events are compared with the acknowledged ones.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AuditPlan {
    /// The files of the target, as patterns of the first setting.
    pub files: Vec<String>,
    /// Largest time between an acknowledgement and the write to a file, in seconds.
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
            Self::Factor(name) => format!("{name} {}", crate::units::show_number(load)),
        }
    }

    /// The workload's key for this unit; `None` for a factor.
    pub fn key(&self) -> Option<&'static str> {
        match self {
            Self::Users => Some("users"),
            Self::Rate => Some("rate"),
            Self::Connections => Some("connections"),
            Self::Copies => Some("copies"),
            Self::Factor(_) => None,
        }
    }

    /// The name: the workload's key, or the factor's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Factor(name) => name,
            unit => unit.key().unwrap_or_default(),
        }
    }

    /// Whether loads in this unit are whole numbers.
    pub fn is_whole(&self) -> bool {
        matches!(self, Self::Users | Self::Connections | Self::Copies)
    }
}

#[cfg(test)]
mod tests;
