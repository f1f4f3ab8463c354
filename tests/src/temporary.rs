//! Temporary folders.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use anyhow::{Context, Result};
use rustix::fs::statvfs;

/// A new folder. Dropping it removes the folder with everything in it.
#[derive(Debug)]
pub struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    /// Makes an empty folder below the system's temporary folder.
    ///
    /// # Errors
    /// If it cannot be made. The error names the folder.
    pub fn new() -> Result<Self> {
        Self::under(&std::env::temp_dir())
    }

    /// Makes a folder in memory, so that no disk delays its users. If memory has less than `room_bytes` of space, this is the same as
    /// [`new`](Self::new).
    ///
    /// # Errors
    /// If it cannot be made. The error names the folder.
    pub fn in_memory(room_bytes: u64) -> Result<Self> {
        let memory = Path::new("/dev/shm");
        let has_room = statvfs(memory).is_ok_and(|found| found.f_bavail * found.f_frsize >= room_bytes);
        if has_room { Self::under(memory) } else { Self::new() }
    }

    fn under(folder: &Path) -> Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("proofload-tests-{}-{number}", std::process::id()));
        // An earlier process with the same id may have been killed before it removed its folder.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path)
            .with_context(|| format!("cannot make {}; is it writable?", path.display()))?;
        Ok(Self(path))
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of a file in the folder, as text for a command line.
    pub fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
