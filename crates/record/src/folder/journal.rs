//! The journal of a folder's trials.

use std::{
    fs::{File, TryLockError},
    io::{self, Write},
    path::PathBuf,
};

use super::{FolderError, Result, ResultFolder, TRIALS, seal};
use crate::TrialEntry;

/// `trials.jsonl`, open for appending.
#[derive(Debug)]
pub struct TrialJournal {
    folder: ResultFolder,
    file: File,
    path: PathBuf,
    /// The checksum of the trials' plan; `None` until the first trial is appended.
    plan: Option<String>,
}

impl ResultFolder {
    /// Opens the journal of trials for appending and locks it.
    ///
    /// # Errors
    /// When it cannot be opened, or another process has locked it.
    pub fn journal(&self) -> Result<TrialJournal> {
        let path = self.file(TRIALS);
        let failed = |cause| FolderError::File { what: "write", path: path.clone(), cause };
        let file = self.appended(TRIALS).map_err(failed)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => {
                failed(io::Error::other("another run is writing to it; wait for its end, or stop it"))
            }
            TryLockError::Error(cause) => failed(cause),
        })?;
        Ok(TrialJournal { folder: self.clone(), file, path, plan: None })
    }

    /// Opens the journal of a new result. If several commands use the same empty folder, only one of them succeeds.
    ///
    /// # Errors
    /// As for [`journal`](Self::journal), and when the folder is no longer empty.
    pub fn begin(&self) -> Result<TrialJournal> {
        let journal = self.journal()?;
        self.check_empty()?;
        Ok(journal)
    }
}

impl TrialJournal {
    /// The folder.
    pub fn folder(&self) -> &ResultFolder {
        &self.folder
    }

    /// Appends a trial and syncs it to disk. Removes an incomplete last line of a killed run first.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn append(&mut self, entry: &TrialEntry) -> Result {
        if self.plan.is_none() {
            self.folder.cut_incomplete_line(TRIALS, &self.file)?;
        }
        let plan = match self.plan.take() {
            Some(plan) => plan,
            None => self.folder.plan_checksum()?,
        };
        let entry = serde_json::to_string(entry).expect("all maps in trials have text keys");
        let line = seal::seal(&entry, &[("plan", &plan)]) + "\n";
        self.plan = Some(plan);
        // Uses a single write, so that a killed run leaves at most one incomplete line, the last one.
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|cause| self.failed(cause))
    }

    fn failed(&self, cause: io::Error) -> FolderError {
        FolderError::File { what: "write", path: self.path.clone(), cause }
    }
}
