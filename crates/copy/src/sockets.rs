//! The folder of ssh's control sockets.

use std::{
    fs::{self, File},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::fs::{FlockOperation, flock};

/// Prefix of the names of folders for sockets.
const FOLDER: &str = "proofload-copy-";
/// Prefix of their names before they are locked.
const YOUNG: &str = "proofload-copy.";
/// A folder younger than this may not have its lock yet.
const SWEEP_AGE: Duration = Duration::from_secs(60);

/// A folder for sockets. Dropping it removes it with its contents.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// The lock that marks the folder as in use.
    _lock: File,
}

impl Folder {
    /// Creates a folder. Removes those of runs that were killed.
    ///
    /// # Errors
    /// If the folder cannot be created.
    pub(crate) fn new() -> std::io::Result<Self> {
        sweep(Path::new("/tmp"));
        // A socket's path is limited to about 100 bytes, so the folder is directly in `/tmp`.
        let folder = tempfile::Builder::new()
            .prefix(YOUNG)
            .rand_bytes(8)
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir_in("/tmp")?;
        let lock = File::open(folder.path())?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        let name = folder.path().file_name().unwrap_or_default().to_string_lossy().replacen(YOUNG, FOLDER, 1);
        let named = Path::new("/tmp").join(name);
        fs::rename(folder.path(), &named)?;
        // The folder was renamed, so `TempDir` has nothing to remove.
        let _ = folder.keep();
        Ok(Self { path: named, _lock: lock })
    }

    /// The control socket of a connection.
    pub(crate) fn control(&self, slot: u32) -> PathBuf {
        self.path.join(slot.to_string())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the folders of runs that were killed: those whose lock is free. Process ids prove nothing, because a run may
/// be in another PID namespace.
fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let age = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
        let (name, is_old) = (entry.file_name(), || age() >= Some(SWEEP_AGE));
        let name = name.to_string_lossy();
        if !(name.starts_with(FOLDER) || name.starts_with(YOUNG) && is_old()) {
            continue;
        }
        let path = entry.path();
        // Any user may create files in this folder: a pipe must not block, a link must not be followed, and folders of
        // other users must stay.
        let is_left =
            |opened: files::Folder| flock(&opened, FlockOperation::NonBlockingLockExclusive).is_ok();
        if files::Folder::open(&path, files::Trust::OwnersOnly).is_ok_and(is_left) {
            let _ = fs::remove_dir_all(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{process::Command, sync::mpsc, thread};

    use super::*;

    #[test]
    fn only_folders_that_were_left_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(format!("{FOLDER}{name}"));
        for name in ["left", "used", "elsewhere"] {
            // Earlier versions created their folders in this way.
            fs::create_dir(at(name)).unwrap();
            fs::set_permissions(at(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        let elsewhere = folder.path().join("elsewhere");
        fs::rename(at("elsewhere"), &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, at("link")).unwrap();
        assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
        let lock = File::open(at("used")).unwrap();
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        let (done, ended) = mpsc::channel();
        let path = folder.path().to_owned();
        thread::spawn(move || {
            sweep(&path);
            done.send(())
        });
        ended.recv_timeout(testing::PATIENCE).expect("it waits for nobody");
        assert!(!at("left").exists() && at("used").exists() && elsewhere.exists());
        assert!(at("link").is_symlink() && at("pipe").exists());
    }
}
