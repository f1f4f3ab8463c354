//! The first findings of each kind, with their positions.

use record::{AuditExample, AuditFinding, audit::MAX_EXAMPLES, receipt::EventId};

/// Keeps up to [`MAX_EXAMPLES`] findings of each kind.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    kept: Vec<AuditExample>,
    counts: [usize; AuditFinding::ALL.len()],
}

impl Findings {
    /// Adds a finding. `example` returns the event, the file, the line and the detail. It is called only if the finding
    /// is kept.
    pub(crate) fn add(
        &mut self,
        finding: AuditFinding,
        example: impl FnOnce() -> (Option<EventId>, Option<String>, Option<u64>, String),
    ) {
        let count = &mut self.counts[finding as usize];
        if *count < MAX_EXAMPLES {
            *count += 1;
            let (event, file, line, detail) = example();
            let event = event.map(|id| id.to_string());
            self.kept.push(AuditExample { finding, event, file, line, detail });
        }
    }

    /// The kept findings, sorted by kind.
    pub(crate) fn into_examples(mut self) -> Vec<AuditExample> {
        self.kept.sort_by_key(|example| example.finding);
        self.kept
    }
}
