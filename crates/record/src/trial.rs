//! What one trial leaves behind: an envelope that every kind of trial has, and what its kind measured.

mod command;
mod http;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::validity::Validity;

pub use command::{ByteSource, CommandPlan, CommandRun, CommandTrial, Flow, OutputNumber};
pub use http::{Away, Counts, CpuUse, HttpTrial, Interval, LittlesLaw, OwnPercentile};

/// The form of results written by this version.
pub const SCHEMA: &str = "proofload/trial/1";

/// One trial: what was measured, and whether it may be believed.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Trial {
    /// The form of this record, [`SCHEMA`].
    pub schema: String,
    /// Version of proofload that ran it.
    pub proofload_version: String,
    /// The command line that repeats it.
    pub command: Vec<String>,
    /// When it started, seconds since 1970 UTC.
    pub started_unix_s: f64,
    /// From the start to the last answer awaited, or to the end of the last program, in seconds.
    pub elapsed_s: f64,
    /// The trial was interrupted: all figures are of the part that ran.
    pub interrupted: bool,
    /// Whether it may be believed.
    pub validity: Validity,
    /// What a careful reader should know.
    pub warnings: Vec<Warning>,
    /// What its kind and the observers gave by name, each in the unit that the study's plan says
    /// ([`StudyPlan::quantities`](crate::StudyPlan)).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub quantities: BTreeMap<String, f64>,
    /// What its kind measured.
    #[serde(flatten)]
    pub measured: Measured,
}

/// What a trial's kind measured, among the fields of the trial itself.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Measured {
    /// Requests that our generator made.
    Http(Box<HttpTrial>),
    /// Programs that were run.
    Command(Box<CommandTrial>),
}

impl Trial {
    /// What requests of it measured; none if it is of another kind.
    pub fn http(&self) -> Option<&HttpTrial> {
        match &self.measured {
            Measured::Http(http) => Some(http),
            Measured::Command(_) => None,
        }
    }

    /// The same, to be changed.
    pub fn http_mut(&mut self) -> Option<&mut HttpTrial> {
        match &mut self.measured {
            Measured::Http(http) => Some(http),
            Measured::Command(_) => None,
        }
    }

    /// What programs of it measured; none if it is of another kind.
    pub fn command(&self) -> Option<&CommandTrial> {
        match &self.measured {
            Measured::Http(_) => None,
            Measured::Command(command) => Some(command),
        }
    }

    /// Gives back the memory of the histograms' empty bins, see [`Histogram::pack`](crate::Histogram::pack): for a trial
    /// that is kept.
    pub fn pack(&mut self) {
        if let Some(http) = self.http_mut() {
            http.pack();
        }
    }
}

impl<'de> Deserialize<'de> for Trial {
    /// Reads JSON three times, once for each layer: what serde keeps of a flattened enum in between takes much memory and
    /// knows no maps with numbers as keys.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let Envelope {
            schema,
            proofload_version,
            command,
            started_unix_s,
            elapsed_s,
            interrupted,
            validity,
            warnings,
            quantities,
            kind,
        } = serde_json::from_str(raw.get()).map_err(Error::custom)?;
        let measured = match kind {
            Kind::Http => serde_json::from_str(raw.get()).map(|http| Measured::Http(Box::new(http))),
            Kind::Command => {
                serde_json::from_str(raw.get()).map(|command| Measured::Command(Box::new(command)))
            }
        };
        let measured = measured.map_err(Error::custom)?;
        Ok(Self {
            schema,
            proofload_version,
            command,
            started_unix_s,
            elapsed_s,
            interrupted,
            validity,
            warnings,
            quantities,
            measured,
        })
    }
}

/// What makes the load of a trial.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Our generator of HTTP requests.
    #[default]
    Http,
    /// Any program.
    Command,
}

#[derive(Deserialize)]
struct Envelope {
    schema: String,
    proofload_version: String,
    command: Vec<String>,
    started_unix_s: f64,
    elapsed_s: f64,
    interrupted: bool,
    validity: Validity,
    warnings: Vec<Warning>,
    #[serde(default)]
    quantities: BTreeMap<String, f64>,
    #[serde(default)]
    kind: Kind,
}

/// Something a careful reader should know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Warning {
    /// A short stable name.
    pub code: String,
    /// What it is, and what to do.
    pub message: String,
}

impl Warning {
    /// A warning with a stable name and a message.
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
