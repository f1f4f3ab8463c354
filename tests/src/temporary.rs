//! Folders that vanish.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use anyhow::{Context, Result};
use rustix::fs::statvfs;

/// A folder of its own, removed with everything in it when dropped.
#[derive(Debug)]
pub struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    /// Makes a new, empty one under the system's folder for such.
    ///
    /// # Errors
    /// When it cannot be made; names it.
    pub fn new() -> Result<Self> {
        Self::under(&std::env::temp_dir())
    }

    /// A folder in memory, where a disk cannot hold anybody up; like [`new`](Self::new) where memory has less room than
    /// this.
    ///
    /// # Errors
    /// When it cannot be made; names it.
    pub fn in_memory(room_bytes: u64) -> Result<Self> {
        let memory = Path::new("/dev/shm");
        let has_room = statvfs(memory).is_ok_and(|found| found.f_bavail * found.f_frsize >= room_bytes);
        if has_room { Self::under(memory) } else { Self::new() }
    }

    fn under(folder: &Path) -> Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("proofload-tests-{}-{number}", std::process::id()));
        // A process with our number may have been killed before it cleaned up.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path)
            .with_context(|| format!("cannot make {}; is it writable?", path.display()))?;
        Ok(Self(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of a file in it, as text for a command line.
    pub fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
