//! What bounded a setting of a study, determined from the verdicts of its trials.

use super::{StudyPlan, TrialEntry};
use crate::verdict::Verdict;

/// What bounded most of a setting's trials that count. If some trials decided their goals, only these count; of a
/// search, only those that missed a goal, if there are any.
#[derive(Debug, Clone, Copy)]
pub struct Bounding<'a> {
    /// The last of these trials. A search is nearest to the limit at its end.
    pub entry: &'a TrialEntry,
    /// The trial's verdict.
    pub verdict: &'a Verdict,
    /// The number of trials with the same first cause, and the number of all trials that count.
    pub trials: (usize, usize),
}

impl<'a> Bounding<'a> {
    /// What bounded a setting; `None` if no trial has a verdict.
    pub fn of(
        plan: &StudyPlan,
        setting: usize,
        trials: impl IntoIterator<Item = &'a TrialEntry>,
    ) -> Option<Self> {
        let entries = trials.into_iter().filter(|entry| entry.setting == setting);
        let (valid, void): (Vec<_>, Vec<_>) = entries.partition(|entry| entry.is_decided());
        // If no trial is decided, the limit is the cause that made them void or undecided.
        let valid = if valid.is_empty() { void } else { valid };
        let is_missed =
            |entry: &&&TrialEntry| (0..plan.goals.len()).any(|goal| entry.decides(goal, plan) == Some(false));
        let missed: Vec<&TrialEntry> = valid.iter().filter(is_missed).copied().collect();
        let is_search = plan.settings[setting].searched && !missed.is_empty();
        let counting = if is_search { missed } else { valid };
        let verdicts: Vec<_> =
            counting.iter().filter_map(|entry| Some((*entry, entry.trial.verdict.as_ref()?))).collect();
        let with = |cause| verdicts.iter().filter(|(_, verdict)| verdict.first_cause() == cause).count();
        let &(entry, verdict) = verdicts.iter().max_by_key(|(_, verdict)| with(verdict.first_cause()))?;
        Some(Self { entry, verdict, trials: (with(verdict.first_cause()), verdicts.len()) })
    }
}
