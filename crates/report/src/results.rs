//! What is reported: a result folder, read.

use record::{Environment, ResultFolder, Setting, StudyPlan, StudyResult, TrialEntry, folder::FolderError};

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
}

impl Results {
    /// Reads a folder. What a killed run could not write any more may be missing; the plan may not.
    ///
    /// # Errors
    /// When a file that is there cannot be read, or there is no plan.
    pub fn read(folder: &ResultFolder) -> Result<Self, FolderError> {
        let environment = match folder.environment() {
            Ok(environment) => Some(environment),
            Err(FolderError::NoResult { .. }) => None,
            Err(other) => return Err(other),
        };
        Ok(Self { plan: folder.plan()?, environment, trials: folder.trials()?, result: folder.result()? })
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
