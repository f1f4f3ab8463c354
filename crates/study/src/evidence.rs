//! Manages receipts and stored files within a result folder, and selects those to keep.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use record::{ResultFolder, TrialEntry};

/// Folder of the receipts, with a subfolder for each trial.
const RECEIPTS: &str = "receipts";
/// Folder of the target's stored files, while the target runs.
const STORED: &str = "stored";
/// Prefix of the folders that keep stored files after an audit found a problem. The trial's index follows.
const KEPT_PREFIX: &str = "stored-of-trial-";
/// Maximum number of such folders, because stored files may be large.
const MAX_KEPT: u32 = 3;

/// Receipts and stored files that audits compare.
#[derive(Debug)]
pub(crate) struct Evidence {
    folder: PathBuf,
    /// The last trial whose audit found a problem in the current stored files.
    found: Option<u64>,
    /// Number of kept folders.
    kept: u32,
}

impl Evidence {
    /// Opens the evidence within a result folder. If an earlier run was killed, keeps or removes its stored files now.
    pub(crate) fn new(folder: &ResultFolder, done: &[TrialEntry]) -> io::Result<Self> {
        let folder = std::path::absolute(folder.path())?;
        let is_kept = |entry: io::Result<fs::DirEntry>| {
            entry.is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with(KEPT_PREFIX))
        };
        let kept = fs::read_dir(&folder)?.filter_map(|entry| is_kept(entry).then_some(())).count();
        let has_finding = |entry: &&TrialEntry| entry.audit.as_ref().is_some_and(|audit| !audit.is_clean());
        let found = done.iter().rev().find(has_finding).map(|entry| entry.index);
        let mut evidence = Self { folder, found, kept: kept as u32 };
        // A killed run may already have kept these files.
        if found.is_some_and(|trial| evidence.kept_path(trial).exists()) {
            evidence.found = None;
        }
        evidence.keep_or_remove_stored().map_err(io::Error::other)?;
        Ok(evidence)
    }

    fn kept_path(&self, trial: u64) -> PathBuf {
        self.folder.join(format!("{KEPT_PREFIX}{trial}"))
    }

    /// Empties the folder for a trial's receipts and returns it. A killed run may have left files there.
    pub(crate) fn clear_receipts(&self, trial: u64) -> Result<PathBuf, String> {
        let folder = self.receipts_path(trial);
        remove(&folder)?;
        Ok(folder)
    }

    pub(crate) fn receipts_path(&self, trial: u64) -> PathBuf {
        self.folder.join(RECEIPTS).join(trial.to_string())
    }

    /// Empties the folder for a target's stored files, and returns it.
    pub(crate) fn clear_stored(&self) -> Result<PathBuf, String> {
        let folder = self.folder.join(STORED);
        remove(&folder)?;
        Ok(folder)
    }

    /// Must be called after each audit. Keeps the trial's receipts if `keep_receipts` or if the audit found a problem.
    pub(crate) fn audited(&mut self, trial: u64, is_clean: bool, keep_receipts: bool) -> Result<(), String> {
        if !is_clean {
            self.found = Some(trial);
        } else if !keep_receipts {
            remove(&self.receipts_path(trial))?;
        }
        Ok(())
    }

    /// Must be called after the target has ended. Keeps its stored files if an audit found a problem; otherwise removes them.
    pub(crate) fn keep_or_remove_stored(&mut self) -> Result<(), String> {
        let stored = self.folder.join(STORED);
        match self.found.take() {
            Some(trial) if self.kept < MAX_KEPT && stored.exists() => {
                self.kept += 1;
                let kept = self.kept_path(trial);
                fs::rename(&stored, &kept)
                    .map_err(|error| format!("cannot keep {}: {error}", stored.display()))
            }
            _ => remove(&stored),
        }
    }
}

/// Removes a folder if it exists. Refuses if another file system is mounted in it, because the files there are not the study's.
fn remove(folder: &Path) -> Result<(), String> {
    if let Some(mounted) = mounted_within(folder) {
        return Err(format!(
            "cannot remove {}: {} is mounted within it; unmount that, then remove the folder",
            folder.display(),
            mounted.display()
        ));
    }
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(format!("cannot remove {}: {error}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// A mount point within a folder (proc_pid_mountinfo(5)).
fn mounted_within(folder: &Path) -> Option<PathBuf> {
    let mounts = kernel::read("/proc/self/mountinfo").ok()?;
    last_mount_within(&fs::canonicalize(folder).ok()?, &mounts)
}

fn last_mount_within(folder: &Path, mounts: &str) -> Option<PathBuf> {
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    let mut points = points.map(|point| PathBuf::from(unescaped(point)));
    points.rfind(|point| point.starts_with(folder))
}

/// Decodes a path in mountinfo, which writes spaces, tabs, line feeds and backslashes as octal numbers.
fn unescaped(path: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(path.to_owned(), |path, (number, character)| path.replace(number, character))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_within_a_folder_are_found() {
        let mounts = "21 1 254:0 / / rw - ext4 /dev/vda rw\n88 21 254:0 /data /a\\040b/.scratch/mnt rw - ext4 /dev/vda rw\n";
        let found = |folder| last_mount_within(Path::new(folder), mounts);
        assert_eq!(found("/a b"), Some(PathBuf::from("/a b/.scratch/mnt")));
        assert_eq!(found("/a b/.scratch/mnt"), Some(PathBuf::from("/a b/.scratch/mnt")));
        assert_eq!((found("/a"), found("/a b/.scratch/mnt2")), (None, None));
        assert!(mounted_within(Path::new("/proc")).is_some());
    }

    #[test]
    fn receipts_and_stored_files_are_kept_only_where_needed() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("result");
        let folder = record::folder::Place::of(&path).unwrap().make().unwrap();
        let mut evidence = Evidence::new(&folder, &[]).unwrap();
        for (trial, is_clean, keep_receipts, kept) in
            [(1, true, false, false), (2, true, true, true), (3, false, false, true)]
        {
            let receipts = evidence.clear_receipts(trial).unwrap();
            fs::create_dir_all(&receipts).unwrap();
            evidence.audited(trial, is_clean, keep_receipts).unwrap();
            assert_eq!(receipts.exists(), kept, "trial {trial}");
        }
        fs::create_dir_all(evidence.clear_stored().unwrap()).unwrap();
        evidence.keep_or_remove_stored().unwrap();
        assert!(path.join("stored-of-trial-3").exists() && !path.join("stored").exists());
        fs::create_dir_all(evidence.clear_stored().unwrap()).unwrap();
        evidence.keep_or_remove_stored().unwrap();
        assert!(!path.join("stored").exists(), "nothing was found in these");
    }
}
