//! Receipts: what the sender knows about each numbered event. An audit compares them with the files of the receiver.
//!
//! A folder of receipts has one file per worker, `receipts-<worker>.jsonl`: a [`ReceiptHeader`], then ranges of events with
//! the same outcome ([`EventRange`]), a sample of the locations that the receiver reported ([`StoredAt`]), and a
//! [`ReceiptEnd`]. A file without its end is incomplete: the outcome of the missing events is unknown.

mod answer;
mod marker;
mod plan;

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use answer::AnswerReceipt;
pub use marker::{EVENT_KEY, EventId, Marker, Numbering, RunId, TemplateError};
pub use plan::{EventFraming, EventPlan, REFERENCE_EVENT, ReceiptPlan};

use crate::units::UnitError;

/// The schema of receipts that this version writes.
pub const SCHEMA: &str = "proofload/receipts/1";

crate::named_enum! {
    /// The level of an acknowledgement: how safe the event is.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum AckLevel {
        // The weakest level first, because levels are compared by this order.
        /// In the receiver's memory.
        Accepted "accepted",
        /// Handed to the kernel: survives a crash of the receiver.
        Written "written",
        /// On disk: survives a power failure.
        Synced "synced",
    }
    /// The name in headers, options and results.
    pub fn name;
}

impl fmt::Display for AckLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for AckLevel {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let level = Self::ALL.into_iter().find(|level| level.name() == text);
        level.ok_or_else(|| UnitError::new(text, "a level: accepted, written or synced"))
    }
}

crate::named_enum! {
    /// The outcome of an event, as far as its sender knows.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum EventOutcome {
        /// Acknowledged with a success status and no level.
        Acknowledged "acknowledged",
        /// Acknowledged as [`AckLevel::Accepted`].
        Accepted "accepted",
        /// Acknowledged as [`AckLevel::Written`].
        Written "written",
        /// Acknowledged as [`AckLevel::Synced`].
        Synced "synced",
        /// Every attempt was answered with a definite refusal: the event should not be stored.
        Refused "refused",
        /// No attempt was acknowledged, and at least one had no answer or an indefinite one: the event may be stored or not.
        Unknown "unknown",
        /// No byte of the event was sent.
        Unsent "unsent",
    }
    /// The name in results.
    pub fn name;
}

impl EventOutcome {
    /// The outcome of an event that a success status with this level acknowledged.
    pub fn acknowledged(level: Option<AckLevel>) -> Self {
        match level {
            None => Self::Acknowledged,
            Some(AckLevel::Accepted) => Self::Accepted,
            Some(AckLevel::Written) => Self::Written,
            Some(AckLevel::Synced) => Self::Synced,
        }
    }

    /// Whether the receiver acknowledged the event, at any level.
    pub fn is_acknowledged(self) -> bool {
        matches!(self, Self::Acknowledged | Self::Accepted | Self::Written | Self::Synced)
    }

    /// Whether the receiver promised at least `level`. A success without a level counts as a promise of every level.
    pub fn promises(self, level: AckLevel) -> bool {
        match self {
            Self::Acknowledged | Self::Synced => true,
            Self::Written => level <= AckLevel::Written,
            Self::Accepted => level <= AckLevel::Accepted,
            Self::Refused | Self::Unknown | Self::Unsent => false,
        }
    }
}

/// A line of a file of receipts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ReceiptLine {
    /// The first line.
    Header(ReceiptHeader),
    /// Events with the same outcome.
    Range(EventRange),
    /// Where an event was stored.
    Stored(StoredAt),
    /// The last line.
    End(ReceiptEnd),
}

/// The first line of a file of receipts: what was sent, and by which worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReceiptHeader {
    /// The schema of this file, [`SCHEMA`].
    pub schema: String,
    /// The random identifier of the run.
    pub run: RunId,
    /// The worker that wrote the file, from 0.
    pub worker: u64,
    /// Number of workers of the run, and of its files.
    pub workers: u64,
    /// The first client of this worker.
    pub first_client: u32,
    /// Number of clients of this worker.
    pub clients: u32,
    /// The URL that events were sent to.
    pub url: String,
    /// The event without its number.
    pub template: String,
    /// Length of a numbered event in bytes.
    pub event_bytes: u64,
    /// Number of events per request.
    pub events_per_request: u32,
    /// The requested level of acknowledgement.
    pub ack: Option<AckLevel>,
}

/// Consecutive events of one client with the same outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "EventRun")]
pub struct EventRange {
    /// The client.
    pub client: u32,
    /// Number of the first event.
    pub from: u32,
    /// Number of the last event.
    pub to: u32,
    /// The outcome of the events.
    pub outcome: EventOutcome,
    /// How often each event was sent, at least in part; 255 means 255 or more.
    pub attempts: u8,
}

/// The location at which the receiver says it stored the events of a request. Only a sample of all is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StoredAt {
    /// The client.
    pub client: u32,
    /// Number of the request's first event.
    pub number: u32,
    /// The file, named by the receiver.
    pub segment: String,
    /// Offset of the request's first line, in bytes.
    pub offset: u64,
    /// Bytes of all lines of the request.
    pub bytes: u64,
}

/// The last line of a complete file of receipts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReceiptEnd {
    /// Number of events in the ranges above.
    pub events: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_published_schema_is_the_one_of_this_code() {
        crate::testing::assert_published::<ReceiptLine>("receipts.schema.json");
    }

    #[test]
    fn names_in_results_are_the_displayed_names() {
        for outcome in EventOutcome::ALL {
            assert_eq!(serde_json::to_value(outcome).unwrap(), outcome.name());
        }
        for level in AckLevel::ALL {
            assert_eq!(serde_json::to_value(level).unwrap(), level.name());
            assert_eq!(level.name().parse(), Ok(level));
        }
    }

    #[test]
    fn a_success_without_a_level_promises_every_level() {
        for level in AckLevel::ALL {
            assert!(EventOutcome::Acknowledged.promises(level));
            assert!(!EventOutcome::Unknown.promises(level));
        }
        assert!(EventOutcome::Written.promises(AckLevel::Written));
        assert!(!EventOutcome::Written.promises(AckLevel::Synced));
    }

    fn lines() -> impl Strategy<Value = ReceiptLine> {
        let header = (any::<u32>(), any::<u64>(), any::<u32>(), ".{0,20}", any::<u32>()).prop_map(
            |(run, worker, client, text, n)| {
                ReceiptLine::Header(ReceiptHeader {
                    schema: SCHEMA.to_owned(),
                    run: RunId(run),
                    worker,
                    workers: worker,
                    first_client: client,
                    clients: n,
                    url: text.clone(),
                    template: text,
                    event_bytes: worker,
                    events_per_request: n,
                    ack: AckLevel::ALL.get(n as usize % 4).copied(),
                })
            },
        );
        let run = (any::<u32>(), any::<u32>(), any::<u32>(), 0..7usize, any::<u8>()).prop_map(
            |(client, from, to, outcome, attempts)| {
                let outcome = EventOutcome::ALL[outcome];
                ReceiptLine::Range(EventRange { client, from, to, outcome, attempts })
            },
        );
        let stored = (any::<u32>(), any::<u32>(), ".{0,20}", any::<u64>(), any::<u64>()).prop_map(
            |(client, number, segment, offset, bytes)| {
                ReceiptLine::Stored(StoredAt { client, number, segment, offset, bytes })
            },
        );
        let end = any::<u64>().prop_map(|events| ReceiptLine::End(ReceiptEnd { events }));
        prop_oneof![header, run, stored, end]
    }

    proptest! {
        #[test]
        fn lines_survive_serialization(line in lines()) {
            let text = serde_json::to_string(&line).unwrap();
            prop_assert!(!text.contains('\n'));
            prop_assert_eq!(serde_json::from_str::<ReceiptLine>(&text).unwrap(), line);
        }

        #[test]
        fn no_line_panics(text in "\\PC{0,60}") {
            let _ = serde_json::from_str::<ReceiptLine>(&text);
        }
    }
}
