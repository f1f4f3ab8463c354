//! Mistakes in a plan.

use std::fmt;

/// A value in a plan that a search cannot work with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The field of the plan.
    pub field: String,
    /// The mistake, and what to use instead.
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// All mistakes in a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistakes(pub Vec<Mistake>);

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{mistake}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}
