//! The plan of a workload's events.

use std::{path::PathBuf, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AckLevel, Numbering, RunId};
use crate::units::UnitError;

/// The default event, from the published test of an HTTP data listener.
pub const REFERENCE_EVENT: &str = r#"{"board_id":10,"playtime":5,"minimum_play":"Y","timestamp":"2019-11-12T10:00:01Z","user_id":1,"interest":100}"#;

/// The numbered events that requests carry, so that an audit can compare stored with sent events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventPlan {
    /// The random identifier of the run.
    pub run: RunId,
    /// The event without its number: a JSON object.
    pub template: String,
    /// Number of events per request.
    pub per_request: u32,
    /// The framing of events in the body.
    pub framing: EventFraming,
    /// Largest number of retries of a failed request.
    pub retries: u32,
    /// The requested level of acknowledgement (`Proofload-Ack`).
    pub ack: Option<AckLevel>,
    /// Whether each request carries an `Idempotency-Key`, which its retries repeat.
    pub idempotency: bool,
    /// Where receipts are written, if anywhere.
    pub receipts: Option<ReceiptPlan>,
}

impl EventPlan {
    /// The object that numbers the events of this plan.
    ///
    /// # Panics
    /// When the template is invalid. It must be checked before the plan is made.
    pub fn numbering(&self) -> Numbering {
        Numbering::new(&self.template, self.run).expect("the template was checked when the plan was made")
    }
}

/// Where the sender writes its receipts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReceiptPlan {
    /// The folder, with one file per worker.
    pub folder: PathBuf,
    /// Largest number of storage locations that each worker records.
    pub sampled: u32,
}

impl ReceiptPlan {
    /// The default of [`Self::sampled`].
    const DEFAULT_SAMPLED: u32 = 10_000;

    /// A plan with the default number of samples.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), sampled: Self::DEFAULT_SAMPLED }
    }

    /// The path of a worker's file.
    pub fn file(&self, worker: u64) -> PathBuf {
        self.folder.join(format!("receipts-{worker}.jsonl"))
    }
}

/// The framing of events in a request's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventFraming {
    /// One object.
    Json,
    /// One object per line.
    Ndjson,
    /// An array of objects.
    Array,
}

impl EventFraming {
    /// The media type of the body.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Json | Self::Array => "application/json",
            Self::Ndjson => "application/x-ndjson",
        }
    }
}

impl FromStr for EventFraming {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "json" => Ok(Self::Json),
            "ndjson" => Ok(Self::Ndjson),
            "array" => Ok(Self::Array),
            _ => Err(UnitError::new(text, "json, ndjson or array")),
        }
    }
}
