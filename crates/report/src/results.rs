//! The content of a result folder.

use record::{
    Environment, Quantity, ResultFolder, SearchOutcome, Setting, SettingOutcome, StudyPlan, StudyResult,
    TrialEntry,
    folder::{Contents, FolderError},
    study::quantities,
};

/// Everything that a study wrote.
#[derive(Debug, Clone, PartialEq)]
pub struct Results {
    /// The plan of the study.
    pub plan: StudyPlan,
    /// The machine; `None` if the run ended before it was recorded.
    pub environment: Option<Environment>,
    /// The trials in the order of their runs.
    pub trials: Vec<TrialEntry>,
    /// The result; `None` if the run is still running or was killed.
    pub result: Option<StudyResult>,
    /// Outcomes that the caller computed from the trials, for a run without a result.
    pub so_far: Vec<SettingOutcome>,
}

impl Results {
    /// Reads a folder. Only the plan is required, because a run may be killed before it has written the other files.
    ///
    /// # Errors
    /// If there is no plan, or a file cannot be read or belongs to another run.
    pub fn read(folder: &ResultFolder) -> Result<Self, FolderError> {
        let Contents { plan, environment, trials, result } = folder.read()?;
        // A resumed run has more trials than the result of the earlier run covers, so ignore that result.
        let result = result.filter(|result| result.trials == trials.len() as u64);
        Ok(Self { plan, environment, trials, result, so_far: Vec::new() })
    }

    /// The quantities of the study, in the order of their columns.
    pub fn quantities(&self) -> Vec<Quantity> {
        quantities(&self.plan)
    }

    /// The outcome of each setting, or the outcomes so far if there is no result.
    pub(crate) fn outcomes(&self) -> &[SettingOutcome] {
        self.result.as_ref().map_or(&self.so_far, |result| &result.outcomes)
    }

    /// The searches of a setting; empty if the result has none.
    pub(crate) fn searches_of(&self, setting: usize) -> &[SearchOutcome] {
        let mut outcomes = self.outcomes().iter();
        outcomes.find(|outcome| outcome.setting == setting).map_or(&[], |outcome| &outcome.searches)
    }

    /// The name of a setting: its levels, or `all` in a study without factors.
    pub(crate) fn setting_name(&self, number: usize) -> String {
        match self.plan.settings.get(number) {
            Some(Setting { name, .. }) if name.is_empty() => "all".to_owned(),
            Some(Setting { name, .. }) => name.clone(),
            None => format!("setting {number} (not in the plan)"),
        }
    }

    /// The trials of a setting.
    pub(crate) fn trials_of(&self, setting: usize) -> impl Iterator<Item = &TrialEntry> {
        self.trials.iter().filter(move |entry| entry.setting == setting)
    }
}
