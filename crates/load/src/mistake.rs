//! Mistakes of users in a workload.

/// A mistake in a field of a workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldMistake {
    /// The field's key.
    pub field: &'static str,
    /// What is wrong, and what was expected.
    pub message: String,
}
