//! The first findings of each kind, with where they are.

use record::{AuditExample, AuditFinding, audit::MOST_EXAMPLES, receipt::EventId};

/// Keeps the first ten of each kind.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    kept: Vec<AuditExample>,
    counts: [usize; AuditFinding::ALL.len()],
}

impl Findings {
    /// One more. `example` gives the event, the file, the line and what else is known; it is only asked if the
    /// finding is kept.
    pub(crate) fn add(
        &mut self,
        finding: AuditFinding,
        example: impl FnOnce() -> (Option<EventId>, Option<String>, Option<u64>, String),
    ) {
        let count = &mut self.counts[finding as usize];
        if *count < MOST_EXAMPLES {
            *count += 1;
            let (event, file, line, detail) = example();
            let event = event.map(|id| id.to_string());
            self.kept.push(AuditExample { finding, event, file, line, detail });
        }
    }

    /// Those that were kept, kind by kind.
    pub(crate) fn into_examples(mut self) -> Vec<AuditExample> {
        self.kept.sort_by_key(|example| example.finding);
        self.kept
    }
}
