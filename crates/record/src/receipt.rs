//! Receipts: what the sender of numbered events knows of each, so that an audit can hold the files of the
//! receiver against it.
//!
//! A folder of receipts has one file a worker, `receipts-<worker>.jsonl`: a [`ReceiptHeader`], then runs of
//! events that ended alike ([`EventRange`]), a sample of the places that the receiver named ([`StoredAt`]), and
//! last an [`ReceiptEnd`]. A file without its end was cut short: what it does not say is unknown.

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

/// The form of receipts written by this version.
pub const SCHEMA: &str = "proofload/receipts/1";

/// How far an event had come when it was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AckLevel {
    /// Taken into memory.
    Accepted,
    /// Handed to the kernel: it survives the receiver's own death.
    Written,
    /// On the disk: it survives a power cut.
    Synced,
}

impl AckLevel {
    /// Every level, weakest first.
    pub const ALL: [Self; 3] = [Self::Accepted, Self::Written, Self::Synced];

    /// Its name in headers, options and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Written => "written",
            Self::Synced => "synced",
        }
    }
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

/// What became of an event, as far as its sender knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventOutcome {
    /// Answered with a success that names no level.
    Acknowledged,
    /// Acknowledged as [`AckLevel::Accepted`].
    Accepted,
    /// Acknowledged as [`AckLevel::Written`].
    Written,
    /// Acknowledged as [`AckLevel::Synced`].
    Synced,
    /// Every attempt was answered, none with a success and none that leaves it open: it should not be stored.
    Refused,
    /// At least one attempt left without an answer, or with one that leaves it open, none was acknowledged: it may
    /// be stored or not.
    Unknown,
    /// Not one byte of it left.
    Unsent,
}

impl EventOutcome {
    /// Every outcome.
    pub const ALL: [Self; 7] = [
        Self::Acknowledged,
        Self::Accepted,
        Self::Written,
        Self::Synced,
        Self::Refused,
        Self::Unknown,
        Self::Unsent,
    ];

    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Acknowledged => "acknowledged",
            Self::Accepted => "accepted",
            Self::Written => "written",
            Self::Synced => "synced",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
            Self::Unsent => "unsent",
        }
    }

    /// Of an answer that is a success and names this level, if it names one.
    pub fn acknowledged(level: Option<AckLevel>) -> Self {
        match level {
            None => Self::Acknowledged,
            Some(AckLevel::Accepted) => Self::Accepted,
            Some(AckLevel::Written) => Self::Written,
            Some(AckLevel::Synced) => Self::Synced,
        }
    }

    /// Whether the receiver took it over.
    pub fn is_acknowledged(self) -> bool {
        matches!(self, Self::Acknowledged | Self::Accepted | Self::Written | Self::Synced)
    }

    /// Whether the receiver promised at least `level`. A success that names no level promises storage, and is
    /// held to that whatever the level.
    pub fn promises(self, level: AckLevel) -> bool {
        match self {
            Self::Acknowledged | Self::Synced => true,
            Self::Written => level <= AckLevel::Written,
            Self::Accepted => level <= AckLevel::Accepted,
            Self::Refused | Self::Unknown | Self::Unsent => false,
        }
    }
}

/// One line of a file of receipts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ReceiptLine {
    /// The first line.
    Header(ReceiptHeader),
    /// Events that ended alike.
    Range(EventRange),
    /// Where an event was stored.
    Stored(StoredAt),
    /// The last line.
    End(ReceiptEnd),
}

/// The first line of a file of receipts: what was sent, and by whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReceiptHeader {
    /// The form of this file, [`SCHEMA`].
    pub schema: String,
    /// Told apart from all other runs by this.
    pub run: RunId,
    /// The worker that wrote the file, from 0.
    pub worker: u64,
    /// Workers of the run: as many files belong together.
    pub workers: u64,
    /// First of the clients that this worker had.
    pub first_client: u32,
    /// How many it had.
    pub clients: u32,
    /// Where events were sent.
    pub url: String,
    /// The event without its number.
    pub template: String,
    /// Length of a numbered event in bytes.
    pub event_bytes: u64,
    /// Events in each request.
    pub events_per_request: u32,
    /// The level that was asked for.
    pub ack: Option<AckLevel>,
}

/// Events of one client, numbered without a gap, that ended alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "EventRun")]
pub struct EventRange {
    /// The client.
    pub client: u32,
    /// Number of the first.
    pub from: u32,
    /// Number of the last.
    pub to: u32,
    /// What became of them.
    pub outcome: EventOutcome,
    /// How often each was sent, at least in part; 255 stands for more as well.
    pub attempts: u8,
}

/// Where the receiver says that it stored a request's events: its receipt, of a sample of all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StoredAt {
    /// The client.
    pub client: u32,
    /// Number of the request's first event.
    pub number: u32,
    /// The file, as the receiver names it.
    pub segment: String,
    /// Where its first line begins, in bytes.
    pub offset: u64,
    /// Bytes of all lines of the request.
    pub bytes: u64,
}

/// The last line of a whole file of receipts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReceiptEnd {
    /// Events that the runs above tell of.
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
    fn names_in_results_are_the_names_shown() {
        for outcome in EventOutcome::ALL {
            assert_eq!(serde_json::to_value(outcome).unwrap(), outcome.name());
        }
        for level in AckLevel::ALL {
            assert_eq!(serde_json::to_value(level).unwrap(), level.name());
            assert_eq!(level.name().parse(), Ok(level));
        }
    }

    #[test]
    fn a_success_without_a_level_is_held_to_every_level() {
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
        fn a_line_that_was_written_is_read_as_the_same(line in lines()) {
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
