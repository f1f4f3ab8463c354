//! What an audit proves: receipts of what was sent against files of what was stored.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::receipt::{AckLevel, EventOutcome};

/// The form of results written by this version.
pub const SCHEMA: &str = "proofload/audit/1";

/// Findings of one kind that are told one by one; the rest is only counted.
pub const MAX_EXAMPLES: usize = 10;

/// What became of every event, as far as receipts and files tell.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AuditResult {
    /// The form of this record, [`SCHEMA`].
    pub schema: String,
    /// The level from which an acknowledgement is held to its promise; all of them if `None`.
    pub level: Option<AckLevel>,
    /// Runs whose receipts were read.
    pub runs: u64,
    /// What is missing of the receipts, in words; empty if they are complete.
    pub incomplete: Vec<String>,
    /// Events by what the sender knows of them.
    pub sent: EventCounts,
    /// Events that are not in any file, whole, by what the sender knows of them. Those that were acknowledged (at
    /// the level that counts) are lost; refused, unknown and unsent ones may be missing.
    pub missing: EventCounts,
    /// Events that were acknowledged, at the level that counts, and are not stored.
    pub lost: u64,
    /// Events that are stored at least once, whole.
    pub stored: u64,
    /// Copies beyond the first of events that were sent as often: a retry was stored as well.
    pub repeated: u64,
    /// Copies of events beyond the number of times they were sent.
    pub duplicated: u64,
    /// Events stored that were never sent: the receipts know no such number, or say that not a byte of it left.
    pub never_sent: u64,
    /// Events stored although their sender was refused.
    pub refused_stored: u64,
    /// Events stored whose sender never had an answer.
    pub unknown_stored: u64,
    /// Events stored whose receipts are missing: nothing is known of them.
    pub unaccounted: u64,
    /// Stored events that are not as they were sent, torn lines, and lines with NUL bytes.
    pub corrupt: u64,
    /// The part of `corrupt` that is a last line without its end.
    pub torn: u64,
    /// Events that stand behind a later one of the same client in the same file, although that one was sent only
    /// after they had been acknowledged.
    pub out_of_order: u64,
    /// The receiver's own statements of where it stored events.
    pub places: PlaceCounts,
    /// Events of runs that no receipts are of; they are left out of everything else.
    pub foreign_events: u64,
    /// Lines without an event.
    pub other_lines: u64,
    /// What was read.
    pub read: ReadCounts,
    /// The first of the findings, with where they are.
    pub examples: Vec<AuditExample>,
}

impl AuditResult {
    /// Whether nothing is lost, duplicated beyond what was sent, corrupt, stored without being sent, or stored
    /// elsewhere than its receipt says.
    pub fn is_clean(&self) -> bool {
        self.lost + self.duplicated + self.corrupt + self.never_sent + self.places.wrong == 0
    }

    /// Whether it may be concluded that what was acknowledged is stored: there are receipts, and none is missing.
    pub fn is_conclusive(&self) -> bool {
        self.runs > 0 && self.incomplete.is_empty()
    }
}

/// Events by what their sender knows of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventCounts {
    /// Acknowledged by a success that names no level.
    pub acknowledged: u64,
    /// Acknowledged as accepted.
    pub accepted: u64,
    /// Acknowledged as written.
    pub written: u64,
    /// Acknowledged as synced.
    pub synced: u64,
    /// Answered with a refusal.
    pub refused: u64,
    /// Without an answer.
    pub unknown: u64,
    /// Of which not one byte left.
    pub unsent: u64,
}

impl EventCounts {
    /// Counts `n` more.
    pub fn add(&mut self, outcome: EventOutcome, n: u64) {
        *match outcome {
            EventOutcome::Acknowledged => &mut self.acknowledged,
            EventOutcome::Accepted => &mut self.accepted,
            EventOutcome::Written => &mut self.written,
            EventOutcome::Synced => &mut self.synced,
            EventOutcome::Refused => &mut self.refused,
            EventOutcome::Unknown => &mut self.unknown,
            EventOutcome::Unsent => &mut self.unsent,
        } += n;
    }

    /// Those with this outcome.
    pub fn of(&self, outcome: EventOutcome) -> u64 {
        match outcome {
            EventOutcome::Acknowledged => self.acknowledged,
            EventOutcome::Accepted => self.accepted,
            EventOutcome::Written => self.written,
            EventOutcome::Synced => self.synced,
            EventOutcome::Refused => self.refused,
            EventOutcome::Unknown => self.unknown,
            EventOutcome::Unsent => self.unsent,
        }
    }

    /// Those that the receiver took over, at whatever level.
    pub fn all_acknowledged(&self) -> u64 {
        self.acknowledged + self.accepted + self.written + self.synced
    }

    /// All.
    pub fn total(&self) -> u64 {
        self.all_acknowledged() + self.refused + self.unknown + self.unsent
    }
}

/// The receiver's statements of where it stored events (`Proofload-Receipt`), held against the files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlaceCounts {
    /// The event is where the receipt says.
    pub right: u64,
    /// It is not.
    pub wrong: u64,
    /// The file that the receipt names is not among those that were read.
    pub unchecked: u64,
}

/// What an audit read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReadCounts {
    /// Files of the receiver.
    pub files: u64,
    /// Their lines.
    pub lines: u64,
    /// Their bytes, decompressed.
    pub bytes: u64,
    /// How long that took, in seconds.
    pub elapsed_s: f64,
}

/// A kind of finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuditFinding {
    /// Acknowledged and not stored.
    Lost,
    /// Stored more often than sent.
    Duplicated,
    /// Not as it was sent.
    Corrupt,
    /// Stored and never sent.
    NeverSent,
    /// Not where the receipt says.
    WrongPlace,
    /// Behind a later one of its client.
    OutOfOrder,
    /// Stored although refused.
    RefusedStored,
}

impl AuditFinding {
    /// Every kind, the worst first.
    pub const ALL: [Self; 7] = [
        Self::Lost,
        Self::Duplicated,
        Self::Corrupt,
        Self::NeverSent,
        Self::WrongPlace,
        Self::OutOfOrder,
        Self::RefusedStored,
    ];

    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Duplicated => "duplicated",
            Self::Corrupt => "corrupt",
            Self::NeverSent => "never_sent",
            Self::WrongPlace => "wrong_place",
            Self::OutOfOrder => "out_of_order",
            Self::RefusedStored => "refused_stored",
        }
    }
}

/// One finding, with where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditExample {
    /// Of which kind.
    pub finding: AuditFinding,
    /// Which event: `run-client-number` in hexadecimal, as it stands in the files; `None` where that cannot be told.
    pub event: Option<String>,
    /// The file, if it is about one.
    pub file: Option<String>,
    /// Its line, from 1.
    pub line: Option<u64>,
    /// What is known beyond that.
    pub detail: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_schema_is_the_one_of_this_code() {
        crate::testing::assert_published::<AuditResult>("audit.schema.json");
    }

    #[test]
    fn names_in_results_are_the_names_shown() {
        for finding in AuditFinding::ALL {
            assert_eq!(serde_json::to_value(finding).unwrap(), finding.name());
        }
    }

    #[test]
    fn counts_by_outcome_add_up() {
        let mut counts = EventCounts::default();
        for (i, outcome) in EventOutcome::ALL.into_iter().enumerate() {
            counts.add(outcome, 1 << i);
            assert_eq!(counts.of(outcome), 1 << i);
        }
        assert_eq!((counts.all_acknowledged(), counts.total()), (0b1111, 0b111_1111));
    }
}
