//! The journal of a folder's trials.

use std::{
    fs::File,
    io::{self, Write},
    path::PathBuf,
};

use super::{FolderError, Result, ResultFolder, seal};
use crate::TrialEntry;

/// `trials.jsonl`, open for appending.
#[derive(Debug)]
pub struct TrialJournal {
    folder: ResultFolder,
    file: File,
    path: PathBuf,
    /// The checksum of the trials' plan; none before the first trial is appended.
    plan: Option<String>,
}

impl TrialJournal {
    pub(super) fn new(folder: ResultFolder, file: File, path: PathBuf) -> Self {
        Self { folder, file, path, plan: None }
    }

    /// Appends a trial and syncs it to disk. Removes an incomplete last line of a killed run first.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn append(&mut self, entry: &TrialEntry) -> Result {
        if self.plan.is_none() {
            self.folder.cut_incomplete_line(super::TRIALS, &self.file)?;
        }
        let plan = match self.plan.take() {
            Some(plan) => plan,
            None => self.folder.plan_checksum()?,
        };
        let entry = serde_json::to_string(entry).expect("all maps in trials have text keys");
        let line = seal::seal(&entry, &[("plan", &plan)]) + "\n";
        self.plan = Some(plan);
        // A single write, so that a killed run leaves at most one incomplete line, the last.
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|cause| self.failed(cause))
    }

    fn failed(&self, cause: io::Error) -> FolderError {
        FolderError::File { what: "write", path: self.path.clone(), cause }
    }
}
