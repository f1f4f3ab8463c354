//! What is reported: a result folder, read.

use record::{
    Environment, Quantity, ResultFolder, Setting, SettingOutcome, StudyPlan, StudyResult, TrialEntry,
    folder::{Contents, FolderError},
    quantity::quantities,
};

/// All that a study left behind.
#[derive(Debug, Clone, PartialEq)]
pub struct Results {
    /// What was to be run.
    pub plan: StudyPlan,
    /// What it was measured on; none if the run was ended before that was written.
    pub environment: Option<Environment>,
    /// The trials, in the order they ran.
    pub trials: Vec<TrialEntry>,
    /// What they mean; none if the run was killed before it could say.
    pub result: Option<StudyResult>,
    /// What they mean where there is no result, if the caller has worked it out.
    pub so_far: Vec<SettingOutcome>,
}

impl Results {
    /// Reads a folder. What a killed run could not write any more may be missing; the plan may not.
    ///
    /// # Errors
    /// When a file that is there cannot be read or does not belong to the others, or there is no plan.
    pub fn read(folder: &ResultFolder) -> Result<Self, FolderError> {
        let Contents { plan, environment, trials, result } = folder.read()?;
        // A run that was taken up again has more trials than the result that the one before left.
        let result = result.filter(|result| result.trials == trials.len() as u64);
        Ok(Self { plan, environment, trials, result, so_far: Vec::new() })
    }

    /// The quantities of the study, in the order in which people read them.
    pub fn quantities(&self) -> Vec<Quantity> {
        quantities(&self.plan)
    }

    /// What was found in each setting, or is known so far.
    pub(crate) fn outcomes(&self) -> &[SettingOutcome] {
        self.result.as_ref().map_or(&self.so_far, |result| &result.outcomes)
    }

    /// What a setting is called: its levels, or `all` in a study without factors.
    pub(crate) fn setting_name(&self, number: usize) -> String {
        match self.plan.settings.get(number) {
            Some(Setting { name, .. }) if name.is_empty() => "all".to_owned(),
            Some(Setting { name, .. }) => name.clone(),
            None => format!("setting {number}, which the plan does not have"),
        }
    }

    /// The trials of a setting.
    pub(crate) fn trials_of(&self, setting: usize) -> impl Iterator<Item = &TrialEntry> {
        self.trials.iter().filter(move |entry| entry.setting == setting)
    }

    /// Trials that count for nothing.
    pub(crate) fn void_trials(&self) -> usize {
        self.trials.iter().filter(|entry| entry.trial.validity.is_void()).count()
    }
}
