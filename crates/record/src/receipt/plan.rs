//! The events of a workload.

use std::{path::PathBuf, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AckLevel, Numbering, RunId};
use crate::units::UnitError;

/// The event of the published test of an HTTP data listener, which is sent unless another is given.
pub const REFERENCE_EVENT: &str = r#"{"board_id":10,"playtime":5,"minimum_play":"Y","timestamp":"2019-11-12T10:00:01Z","user_id":1,"interest":100}"#;

/// Requests that carry numbered events, so that what was stored can be held against what was sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventPlan {
    /// Told apart from all other runs by this.
    pub run: RunId,
    /// The event without its number: a JSON object.
    pub template: String,
    /// Events in each request.
    pub per_request: u32,
    /// How they stand in the body.
    pub framing: EventFraming,
    /// How often a request that failed is made again, at the most.
    pub retries: u32,
    /// The level of acknowledgement asked for (`Proofload-Ack`).
    pub ack: Option<AckLevel>,
    /// Whether each request carries an `Idempotency-Key`, the same for its retries.
    pub idempotency: bool,
    /// Where receipts are left, if they are.
    pub receipts: Option<ReceiptPlan>,
}

impl EventPlan {
    /// Numbers its events.
    ///
    /// # Panics
    /// When the template is no event: workloads are checked before they become a plan.
    pub fn numbering(&self) -> Numbering {
        Numbering::new(&self.template, self.run).expect("the template was checked when the plan was made")
    }
}

/// Where the sender leaves what it knows of every event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReceiptPlan {
    /// The folder: one file a worker.
    pub folder: PathBuf,
    /// Places of storage that each worker keeps at the most.
    pub sampled: u32,
}

impl ReceiptPlan {
    /// Places of storage that a worker keeps unless told otherwise.
    pub const DEFAULT_SAMPLED: u32 = 10_000;

    /// Receipts in a folder.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), sampled: Self::DEFAULT_SAMPLED }
    }

    /// The file of a worker.
    pub fn file(&self, worker: u64) -> PathBuf {
        self.folder.join(format!("receipts-{worker}.jsonl"))
    }
}

/// How events stand in a request's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventFraming {
    /// One object.
    Json,
    /// An object a line.
    Ndjson,
    /// An array of objects.
    Array,
}

impl EventFraming {
    /// The media type of such a body.
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
