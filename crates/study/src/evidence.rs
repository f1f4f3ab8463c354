//! Receipts and stored files within a result folder: where they lie, and which of them are kept.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use record::{ResultFolder, TrialEntry};

/// Receipts, in a folder for each trial.
const RECEIPTS: &str = "receipts";
/// What the target's processes store, while they run.
const STORED: &str = "stored";
/// What is stored with findings is kept under this name and the trial's number.
const KEPT: &str = "stored-of-trial-";
/// Stored files with findings are kept so often: they may be large.
const MOST_KEPT: u32 = 3;

/// The files that an audit holds against each other.
#[derive(Debug)]
pub(crate) struct Evidence {
    folder: PathBuf,
    /// The last trial whose audit found something wrong with what is stored now.
    found: Option<u64>,
    /// How often such files were kept.
    kept: u32,
}

impl Evidence {
    /// Within this result folder. What a killed run found in the files of its last target is kept as if that had
    /// ended.
    pub(crate) fn new(folder: &ResultFolder, done: &[TrialEntry]) -> io::Result<Self> {
        let folder = std::path::absolute(folder.path())?;
        let is_kept = |entry: io::Result<fs::DirEntry>| {
            entry.is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with(KEPT))
        };
        let kept = fs::read_dir(&folder)?.filter_map(|entry| is_kept(entry).then_some(())).count();
        let has_finding = |entry: &&TrialEntry| entry.audit.as_ref().is_some_and(|audit| !audit.is_clean());
        let found = done.iter().rev().find(has_finding).map(|entry| entry.index);
        let mut evidence = Self { folder, found, kept: kept as u32 };
        // Of the last trial with a finding, unless these were kept then.
        let is_known = found.is_some_and(|trial| evidence.kept_of(trial).exists());
        if is_known {
            evidence.found = None;
        }
        evidence.target_ended().map_err(io::Error::other)?;
        Ok(evidence)
    }

    fn kept_of(&self, trial: u64) -> PathBuf {
        self.folder.join(format!("{KEPT}{trial}"))
    }

    /// An empty place for a trial's receipts: a run that was killed may have left some there.
    pub(crate) fn receipts(&self, trial: u64) -> Result<PathBuf, String> {
        let folder = self.receipts_of(trial);
        remove(&folder)?;
        Ok(folder)
    }

    /// The place of a trial's receipts.
    pub(crate) fn receipts_of(&self, trial: u64) -> PathBuf {
        self.folder.join(RECEIPTS).join(trial.to_string())
    }

    /// An empty place for what a target stores.
    pub(crate) fn stored(&self) -> Result<PathBuf, String> {
        let folder = self.folder.join(STORED);
        remove(&folder)?;
        Ok(folder)
    }

    /// A trial was audited: its receipts are kept if `is_worth_it`, or something was found.
    pub(crate) fn audited(&mut self, trial: u64, is_clean: bool, is_worth_it: bool) -> Result<(), String> {
        if !is_clean {
            self.found = Some(trial);
        } else if !is_worth_it {
            remove(&self.receipts_of(trial))?;
        }
        Ok(())
    }

    /// The target has ended: what it stored goes, unless it is needed to look into what was found.
    pub(crate) fn target_ended(&mut self) -> Result<(), String> {
        let stored = self.folder.join(STORED);
        match self.found.take() {
            Some(trial) if self.kept < MOST_KEPT && stored.exists() => {
                self.kept += 1;
                let kept = self.kept_of(trial);
                fs::rename(&stored, &kept)
                    .map_err(|error| format!("cannot keep {}: {error}", stored.display()))
            }
            _ => remove(&stored),
        }
    }
}

/// Takes away a folder; one that was never made is no matter.
fn remove(folder: &Path) -> Result<(), String> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(format!("cannot remove {}: {error}", folder.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_tells_more_than_the_audit_is_kept() {
        let path = std::env::temp_dir().join(format!("evidence-{}", std::process::id()));
        let folder = ResultFolder::create(&path).unwrap();
        let mut evidence = Evidence::new(&folder, &[]).unwrap();
        for (trial, is_clean, is_worth_it, kept) in
            [(1, true, false, false), (2, true, true, true), (3, false, false, true)]
        {
            let receipts = evidence.receipts(trial).unwrap();
            fs::create_dir_all(&receipts).unwrap();
            evidence.audited(trial, is_clean, is_worth_it).unwrap();
            assert_eq!(receipts.exists(), kept, "trial {trial}");
        }
        fs::create_dir_all(evidence.stored().unwrap()).unwrap();
        evidence.target_ended().unwrap();
        assert!(path.join("stored-of-trial-3").exists() && !path.join("stored").exists());
        fs::create_dir_all(evidence.stored().unwrap()).unwrap();
        evidence.target_ended().unwrap();
        assert!(!path.join("stored").exists(), "nothing was found in these");
        fs::remove_dir_all(&path).unwrap();
    }
}
