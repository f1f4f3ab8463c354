//! The folder of the journals.

use std::{
    fs::{self, DirBuilder, File},
    io::ErrorKind,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::process::geteuid;

use crate::{
    Error,
    clean::{LOCK_TIMEOUT, try_lock},
};

/// Environment variable that names another folder.
const VARIABLE: &str = "PROOFLOAD_STATE_DIR";
/// Name of the folder of tunings.
const TUNINGS: &str = "tunings";

/// A folder for journals that no other user can write to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder(PathBuf);

impl Folder {
    /// The folder of this user: `$PROOFLOAD_STATE_DIR`; otherwise `/run/proofload` for root, and
    /// `$XDG_RUNTIME_DIR/proofload` or `/tmp/proofload-UID` for other users. Created if missing.
    ///
    /// Call this before entering a user namespace, because the user's number differs inside.
    ///
    /// # Errors
    /// When the folder cannot be created, or another user could write to it.
    pub fn of_this_user() -> Result<Self, Error> {
        let user = geteuid();
        let path = match (std::env::var_os(VARIABLE), std::env::var_os("XDG_RUNTIME_DIR")) {
            (Some(path), _) if !path.is_empty() => path.into(),
            _ if user.is_root() => "/run/proofload".into(),
            (_, Some(path)) if Path::new(&path).is_dir() => Path::new(&path).join("proofload"),
            _ => PathBuf::from(format!("/tmp/proofload-{}", user.as_raw())),
        };
        Self::at(path)
    }

    /// The folder at `path`. Created for this user only if missing.
    ///
    /// # Errors
    /// When the folder cannot be created, or another user could write to it.
    pub fn at(path: impl Into<PathBuf>) -> Result<Self, Error> {
        let path = path.into();
        let refuse = |why: String| Error::Folder { path: path.clone(), why };
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(refuse(format!("cannot be created: {error}; name another folder in {VARIABLE}")));
            }
            _ => {}
        }
        let found =
            fs::symlink_metadata(&path).map_err(|error| refuse(format!("cannot be read: {error}")))?;
        if !found.is_dir() || found.uid() != geteuid().as_raw() || found.mode() & 0o077 != 0 {
            return Err(refuse(format!(
                "must be a folder of user {} that no other user can open (mode 700); correct that, or name another folder in \
                 {VARIABLE}",
                geteuid().as_raw()
            )));
        }
        Ok(Self(path))
    }

    /// The folder of the journals of tunings, inside this one. [`clean`](crate::clean) does not look there.
    ///
    /// # Errors
    /// As for [`at`](Self::at).
    pub fn of_tunings(&self) -> Result<Self, Error> {
        Self::at(self.0.join(TUNINGS))
    }

    /// Whether there has been a tuning.
    pub(crate) fn has_tunings(&self) -> bool {
        self.0.join(TUNINGS).exists()
    }

    /// Locks the folder until the file is closed: two tunings at once would take each other's values for the first ones.
    ///
    /// # Errors
    /// When another process holds the lock.
    pub fn lock(&self) -> Result<File, Error> {
        self.lock_within(LOCK_TIMEOUT)
    }

    pub(crate) fn lock_within(&self, time: Duration) -> Result<File, Error> {
        let refuse = |why: String| Error::Folder { path: self.0.clone(), why };
        let file = File::open(&self.0).map_err(|error| refuse(format!("cannot be opened: {error}")))?;
        let is_locked = try_lock(&file, time);
        let why = "another command changes settings of this host; wait for its end, and try again";
        if is_locked { Ok(file) } else { Err(refuse(why.to_owned())) }
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn folders_that_others_could_write_to_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path();
        assert!(Folder::at(base.join("new")).is_ok() && Folder::at(base.join("new")).is_ok());
        fs::set_permissions(base.join("new"), fs::Permissions::from_mode(0o755)).unwrap();
        let refused = Folder::at(base.join("new")).unwrap_err().to_string();
        assert!(refused.contains("mode 700") && refused.contains(VARIABLE), "{refused}");
        fs::set_permissions(base.join("new"), fs::Permissions::from_mode(0o700)).unwrap();
        symlink(base.join("new"), base.join("link")).unwrap();
        assert!(Folder::at(base.join("link")).is_err());
        assert!(Folder::at(base.join("none/below")).is_err());
    }
}
