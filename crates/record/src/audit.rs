//! The result of an audit, which compares receipts of sent events with the files of stored events.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::receipt::{AckLevel, EventOutcome};

/// The schema of audit results that this version writes.
pub const SCHEMA: &str = "proofload/audit/1";

/// Largest number of examples per kind of finding. Further findings are only counted.
pub const MAX_EXAMPLES: usize = 10;

/// The result of an audit: counts of events by what receipts and files show.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AuditResult {
    /// The schema of this record, [`SCHEMA`].
    pub schema: String,
    /// The weakest level of acknowledgement that counts as a promise; every acknowledgement if `None`.
    pub level: Option<AckLevel>,
    /// Number of runs whose receipts were read.
    pub runs: u64,
    /// Descriptions of missing receipts; empty if the receipts are complete.
    pub incomplete: Vec<String>,
    /// Sent events by outcome.
    pub sent: EventCounts,
    /// Events that no file contains intact, by outcome. Those acknowledged at the level that counts are lost; refused,
    /// unknown and unsent ones may be missing.
    pub missing: EventCounts,
    /// Events that were acknowledged at the level that counts, and are not stored.
    pub lost: u64,
    /// Events that are stored intact, each counted once.
    pub stored: u64,
    /// Further copies of events that were sent at least as often: retries that were stored too.
    pub repeated: u64,
    /// Copies of events beyond the number of times that they were sent.
    pub duplicated: u64,
    /// Stored events that were never sent: the receipts have no such number, or list it as unsent.
    pub never_sent: u64,
    /// Stored events that the receiver refused.
    pub refused_stored: u64,
    /// Stored events whose sender received no answer.
    pub unknown_stored: u64,
    /// Stored events without receipts.
    pub unaccounted: u64,
    /// Stored events that differ from what was sent, incomplete lines, and lines with NUL bytes.
    pub corrupt: u64,
    /// The part of `corrupt` that is an incomplete last line of a file.
    pub torn: u64,
    /// Events stored after a later event of the same client in the same file, although the later event was sent only after
    /// they were acknowledged.
    pub out_of_order: u64,
    /// The receiver's receipts, compared with the files.
    pub places: PlaceCounts,
    /// Events of runs without receipts, which no other count includes.
    pub foreign_events: u64,
    /// Lines without an event.
    pub other_lines: u64,
    /// The amount of data read.
    pub read: ReadCounts,
    /// The first findings of each kind.
    pub examples: Vec<AuditExample>,
}

impl AuditResult {
    /// Whether no event is lost, duplicated, corrupt, stored without being sent, or stored elsewhere than its receipt says.
    pub fn is_clean(&self) -> bool {
        self.lost + self.duplicated + self.corrupt + self.never_sent + self.places.wrong == 0
    }

    /// Whether the audit is conclusive: there are receipts, and none are missing.
    pub fn is_conclusive(&self) -> bool {
        self.runs > 0 && self.incomplete.is_empty()
    }
}

/// Numbers of events by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventCounts {
    /// Acknowledged without a level.
    pub acknowledged: u64,
    /// Acknowledged as accepted.
    pub accepted: u64,
    /// Acknowledged as written.
    pub written: u64,
    /// Acknowledged as synced.
    pub synced: u64,
    /// Refused.
    pub refused: u64,
    /// Neither acknowledged nor refused.
    pub unknown: u64,
    /// Not sent at all.
    pub unsent: u64,
}

impl EventCounts {
    /// Counts `n` more events.
    pub fn add(&mut self, outcome: EventOutcome, n: u64) {
        *self.count(outcome) += n;
    }

    /// The number of events with this outcome.
    pub fn of(mut self, outcome: EventOutcome) -> u64 {
        *self.count(outcome)
    }

    fn count(&mut self, outcome: EventOutcome) -> &mut u64 {
        match outcome {
            EventOutcome::Acknowledged => &mut self.acknowledged,
            EventOutcome::Accepted => &mut self.accepted,
            EventOutcome::Written => &mut self.written,
            EventOutcome::Synced => &mut self.synced,
            EventOutcome::Refused => &mut self.refused,
            EventOutcome::Unknown => &mut self.unknown,
            EventOutcome::Unsent => &mut self.unsent,
        }
    }

    /// The number of acknowledged events, at any level.
    pub fn all_acknowledged(&self) -> u64 {
        self.acknowledged + self.accepted + self.written + self.synced
    }

    /// The number of all events.
    pub fn total(&self) -> u64 {
        self.all_acknowledged() + self.refused + self.unknown + self.unsent
    }
}

/// The receiver's receipts (`Proofload-Receipt`), compared with the files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlaceCounts {
    /// Events that are where the receipt says.
    pub right: u64,
    /// Events that are not where the receipt says.
    pub wrong: u64,
    /// Events whose receipt names a file that was not read.
    pub unchecked: u64,
}

/// The amount of data that an audit read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReadCounts {
    /// Number of the receiver's files.
    pub files: u64,
    /// Number of their lines.
    pub lines: u64,
    /// Decompressed size in bytes.
    pub bytes: u64,
    /// Time that the audit took, in seconds.
    pub elapsed_s: f64,
}

crate::named_enum! {
    /// A kind of finding.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum AuditFinding {
        // The worst first.
        /// An acknowledged event is not stored.
        Lost "lost",
        /// An event is stored more often than it was sent.
        Duplicated "duplicated",
        /// A stored event differs from what was sent.
        Corrupt "corrupt",
        /// A stored event was never sent.
        NeverSent "never_sent",
        /// An event is not where its receipt says.
        WrongPlace "wrong_place",
        /// An event is stored after a later event of its client.
        OutOfOrder "out_of_order",
        /// A refused event is stored.
        RefusedStored "refused_stored",
    }
    /// The name in results.
    pub fn name;
}

/// An example of a finding, with its location.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditExample {
    /// The kind of finding.
    pub finding: AuditFinding,
    /// The event, `run-client-number` in hexadecimal as in the files; `None` if unknown.
    pub event: Option<String>,
    /// The file, if the finding concerns one.
    pub file: Option<String>,
    /// The line in the file, from 1.
    pub line: Option<u64>,
    /// Further details.
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
    fn names_in_results_are_the_displayed_names() {
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
