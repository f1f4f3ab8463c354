//! The record of one trial: the fields of all kinds of trials, and the measurements of its kind.

mod command;
mod http;
mod machine;
mod script;
mod stall;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::{span::Span, validity::Validity, verdict::Verdict};

pub use command::{ByteSource, CommandPlan, CommandRun, CommandTrial, Flow, OutputNumber};
pub use http::{Away, Counts, CpuUse, HttpTrial, Interval, LittlesLaw, OwnPercentile, SoundTime, UsersTime};
pub use machine::MachineTrial;
pub use script::{Iterations, ScriptResult, StepResult};
pub use stall::LinkStall;

/// The schema of trials that this version writes.
pub const SCHEMA: &str = "proofload/trial/1";

/// The record of one trial: its measurements and its validity.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Trial {
    /// The schema of this record, [`SCHEMA`].
    pub schema: String,
    /// Version of proofload that ran the trial.
    pub proofload_version: String,
    /// The command line that repeats the trial.
    pub command: Vec<String>,
    /// Start of the trial, in seconds since 1970 UTC.
    pub started_unix_s: f64,
    /// Time from the start to the last response or timeout, or to the end of the last program, in seconds.
    pub elapsed_s: f64,
    /// Whether the trial was interrupted. All figures then cover the part that ran.
    pub interrupted: bool,
    /// Whether the trial is valid or void.
    pub validity: Validity,
    /// What bounded the trial; none if it was not observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Warnings for the reader.
    pub warnings: Vec<Warning>,
    /// The quantities of the kind and of the observers, by name. [`StudyPlan::quantities`](crate::StudyPlan) declares
    /// their units.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub quantities: BTreeMap<String, f64>,
    /// The measurements of the kind.
    #[serde(flatten)]
    pub measured: Measured,
}

/// The measurements of a trial's kind, serialized among the fields of the trial.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Measured {
    /// HTTP requests of the built-in generator.
    Http(Box<HttpTrial>),
    /// Programs that were run as the load.
    Command(Box<CommandTrial>),
}

impl Trial {
    /// The measurements of HTTP requests; `None` for another kind of trial.
    pub fn http(&self) -> Option<&HttpTrial> {
        match &self.measured {
            Measured::Http(http) => Some(http),
            Measured::Command(_) => None,
        }
    }

    /// Like [`Self::http`], but mutable.
    pub fn http_mut(&mut self) -> Option<&mut HttpTrial> {
        match &mut self.measured {
            Measured::Http(http) => Some(http),
            Measured::Command(_) => None,
        }
    }

    /// The message of the first warning with this code.
    pub fn told(&self, code: &str) -> Option<&str> {
        self.warnings.iter().find(|warning| warning.code == code).map(|warning| warning.message.as_str())
    }

    /// The offered load: the number of users of a closed load, the largest rate of an open load per second, or the
    /// number of programs that run at the same time.
    pub fn offered_load(&self) -> f64 {
        match &self.measured {
            Measured::Command(command) => f64::from(command.plan.copies),
            Measured::Http(http) => http.plan.load.peak(),
        }
    }

    /// Whether the load is sent at its own rate, whatever the target does.
    pub fn is_open(&self) -> bool {
        self.http().is_some_and(|http| http.plan.load.is_open())
    }

    /// The share of requests that failed, were never sent or stayed unanswered, or of programs that failed (0 to 1).
    /// The first value excludes all that the generator or a stalled link may have caused; the second one is as
    /// measured.
    pub fn error_ratio(&self) -> (f64, f64) {
        match &self.measured {
            Measured::Http(http) => http.error_ratio(self.interrupted),
            Measured::Command(command) => {
                let most = command.failed_ratio();
                (if command.stalled.is_some() { 0.0 } else { most }, most)
            }
        }
    }

    /// A quantity of the kind or of an observer, by its name; `None` if it was not measured. If a stalled link changed
    /// it by an unknown amount, the measured value.
    pub fn declared(&self, name: &str) -> Option<Span> {
        let value = *self.quantities.get(name)?;
        Some(self.bounded(name, value).unwrap_or(Span::exact(value)))
    }

    /// The lower and the upper end of such a quantity; `None` if it was not measured, or if nothing limits the change
    /// by a stalled link.
    pub fn range_of(&self, name: &str) -> Option<[f64; 2]> {
        let span = self.bounded(name, *self.quantities.get(name)?)?;
        Some([span.least, if span.at_least { f64::INFINITY } else { span.most }])
    }

    fn bounded(&self, name: &str, value: f64) -> Option<Span> {
        self.command().map_or(Some(Span::exact(value)), |command| command.bounded(name, value))
    }

    /// The measurements of programs; `None` for another kind of trial.
    pub fn command(&self) -> Option<&CommandTrial> {
        match &self.measured {
            Measured::Http(_) => None,
            Measured::Command(command) => Some(command),
        }
    }

    /// Frees the memory of the histograms' empty bins, for trials that stay in memory; see
    /// [`Histogram::pack`](crate::Histogram::pack).
    pub fn pack(&mut self) {
        if let Some(http) = self.http_mut() {
            http.pack();
        }
    }
}

impl<'de> Deserialize<'de> for Trial {
    /// Parses the JSON in three passes, because the buffer that serde needs for a flattened enum takes much memory and
    /// does not support maps with numbers as keys.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let all: Envelope = serde_json::from_str(raw.get()).map_err(Error::custom)?;
        let measured = match all.kind {
            Kind::Http => serde_json::from_str(raw.get()).map(|http| Measured::Http(Box::new(http))),
            Kind::Command => {
                serde_json::from_str(raw.get()).map(|command| Measured::Command(Box::new(command)))
            }
        };
        Ok(Self {
            schema: all.schema,
            proofload_version: all.proofload_version,
            command: all.command,
            started_unix_s: all.started_unix_s,
            elapsed_s: all.elapsed_s,
            interrupted: all.interrupted,
            validity: all.validity,
            verdict: all.verdict,
            warnings: all.warnings,
            quantities: all.quantities,
            measured: measured.map_err(Error::custom)?,
        })
    }
}

/// The kind of a trial: what makes its load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The built-in generator of HTTP requests.
    #[default]
    Http,
    /// Any program.
    Command,
}

/// The fields of all kinds of trials.
#[derive(Deserialize)]
struct Envelope {
    schema: String,
    proofload_version: String,
    command: Vec<String>,
    started_unix_s: f64,
    elapsed_s: f64,
    interrupted: bool,
    validity: Validity,
    #[serde(default)]
    verdict: Option<Verdict>,
    warnings: Vec<Warning>,
    #[serde(default)]
    quantities: BTreeMap<String, f64>,
    #[serde(default)]
    kind: Kind,
}

/// A warning for the reader of a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Warning {
    /// A short, stable code.
    pub code: String,
    /// The problem, and what to do about it.
    pub message: String,
}

impl Warning {
    /// Creates a warning from its stable code and its message.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_schema_is_the_one_of_this_code() {
        crate::testing::assert_published::<Trial>("trial.schema.json");
    }
}
