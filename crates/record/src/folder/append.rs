//! Appends lines to the files of a folder.

use std::{
    fs::File,
    io::{self, Write},
    os::unix::fs::FileExt,
};

use rustix::fs::OFlags;
use serde::Serialize;

use super::{COUNTERS, FolderError, LINKS, MODE, Result, ResultFolder, seal};
use crate::TrialCounters;

impl ResultFolder {
    /// Appends a record of a link. Removes an incomplete last line of a killed run first.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn append_link(&self, record: &impl Serialize) -> Result {
        self.append(LINKS, record)
    }

    /// Appends the kernel counters of a trial's hosts. Removes an incomplete last line of a killed run first.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn append_counters(&self, counters: &TrialCounters) -> Result {
        self.append(COUNTERS, counters)
    }

    fn append(&self, name: &'static str, record: &impl Serialize) -> Result {
        let path = self.file(name);
        let failed = |cause| FolderError::File { what: "write", path: path.clone(), cause };
        let mut file = self.appended(name).map_err(failed)?;
        self.cut_incomplete_line(name, &file)?;
        let record = serde_json::to_string(record).expect("all maps in records have text keys");
        let line = seal::seal(&record, &[("plan", &self.plan_checksum()?)]) + "\n";
        file.write_all(line.as_bytes()).map_err(failed)
    }

    /// Opens a file for appending lines, and creates it if it is missing.
    pub(super) fn appended(&self, name: &str) -> io::Result<File> {
        match self.held.create(name, MODE) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        self.held.file(name, OFlags::RDWR | OFlags::APPEND)
    }

    /// Removes an incomplete last line, which a killed run leaves.
    pub(super) fn cut_incomplete_line(&self, name: &'static str, file: &File) -> Result {
        let path = self.file(name);
        let failed = |cause: io::Error| FolderError::File { what: "write", path: path.clone(), cause };
        let (length, mut last) = (file.metadata().map_err(failed)?.len(), *b"\n");
        if length > 0 {
            file.read_exact_at(&mut last, length - 1).map_err(failed)?;
        }
        if last == *b"\n" {
            return Ok(());
        }
        let mut complete_bytes = 0;
        self.each_line(name, |_, line| {
            complete_bytes += line.len() as u64;
            Ok(())
        })?;
        file.set_len(complete_bytes).map_err(failed)
    }
}
