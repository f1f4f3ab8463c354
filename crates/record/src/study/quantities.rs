//! The quantities of a study: those of its kind of trial, and those that its plan declares.

use std::borrow::Cow;

use super::{DeclaredQuantity, StudyPlan, TrialEntry};
use crate::{
    Kind,
    quantity::{Column, Quantity, Reading, errors, http},
    span::Span,
};

/// The metric family of declared quantities.
const DECLARED_METRIC: &str = "proofload_quantity";

/// The quantities of a study, in the order of presentation.
pub fn quantities(plan: &StudyPlan) -> Vec<Quantity> {
    let defined = match plan.kind {
        Kind::Http => http(),
        Kind::Command => Vec::new(),
    };
    let declared = plan.quantities.iter().map(Quantity::of);
    defined.into_iter().chain(declared).chain([errors()]).collect()
}

impl Quantity {
    /// The value in a trial of a study, if the trial has one.
    pub fn read(&self, entry: &TrialEntry) -> Option<Span> {
        self.read_trial(&entry.trial, entry.audit.as_ref())
    }

    fn of(declared: &DeclaredQuantity) -> Self {
        let column = declared.is_main.then(|| Column {
            head: Cow::Owned(declared.words.clone()),
            metric: DECLARED_METRIC,
            help: "A quantity of the study by its name, which ends with its unit, median of the valid repeats.",
            is_compared: true,
            figure: Some(Cow::Owned(declared.words.clone())),
        });
        Self {
            name: Cow::Owned(declared.name.clone()),
            words: Cow::Owned(declared.words.clone()),
            more_is_better: declared.more_is_better,
            // Comparisons use the difference if a value is 0.
            may_be_zero: false,
            column,
            reading: Reading::Declared,
        }
    }
}
