//! The trials of a folder, written one after the other.

use std::{
    fs::File,
    io::{self, Write},
    path::PathBuf,
};

use super::{FolderError, ResultFolder, seal};
use crate::TrialEntry;

/// `trials.jsonl`, open for appending.
#[derive(Debug)]
pub struct TrialJournal {
    folder: ResultFolder,
    file: File,
    path: PathBuf,
    /// The checksum of the plan that the trials are of, once the first is written.
    plan: Option<String>,
}

impl TrialJournal {
    pub(super) fn new(folder: ResultFolder, file: File, path: PathBuf) -> Self {
        Self { folder, file, path, plan: None }
    }

    /// Appends a trial; it is on disk when this returns. What a killed run had begun to write is cut off first.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn append(&mut self, entry: &TrialEntry) -> Result<(), FolderError> {
        if self.plan.is_none() {
            self.folder.cut_incomplete_line(super::TRIALS, &self.file)?;
        }
        let plan = match self.plan.take() {
            Some(plan) => plan,
            None => self.folder.plan_checksum()?,
        };
        let entry = serde_json::to_string(entry).expect("a trial has no maps with keys that are no text");
        let line = seal::seal(&entry, &[("plan", &plan)]) + "\n";
        self.plan = Some(plan);
        // One write: a killed run leaves at most one torn line, the last.
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|cause| self.failed(cause))
    }

    fn failed(&self, cause: io::Error) -> FolderError {
        FolderError::File { what: "write", path: self.path.clone(), cause }
    }
}
