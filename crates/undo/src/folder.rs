//! The folder of the journals.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use files::Trust;
use rustix::{
    process::geteuid,
    rand::{GetRandomFlags, getrandom},
};

use crate::{
    Error,
    lock::{LOCK_TIMEOUT, try_lock},
};

/// Environment variable that selects another folder.
const VARIABLE: &str = "PROOFLOAD_STATE_DIR";
/// Name of the folder with the journals of tunings.
const TUNINGS: &str = "tunings";
/// Folders with the kernel's settings.
const SETTINGS: [&str; 2] = ["/proc/sys", "/sys"];

/// A folder for journals that other users cannot access. It stays open as a descriptor.
#[derive(Debug, Clone)]
pub struct Folder {
    held: Arc<files::Folder>,
    /// Folders with the kernel's settings.
    pub(crate) settings: &'static [&'static str],
}

impl Folder {
    /// The folder of this user: `$PROOFLOAD_STATE_DIR` if set; otherwise `/run/proofload` for root, and
    /// `$XDG_RUNTIME_DIR/proofload` or `/tmp/proofload-UID` for other users. Created if missing.
    ///
    /// Call this before entering a user namespace, because the user's number is different inside.
    ///
    /// # Errors
    /// If the folder cannot be created, or another user could access it.
    pub fn of_this_user() -> Result<Self, Error> {
        let user = geteuid();
        match (std::env::var_os(VARIABLE), std::env::var_os("XDG_RUNTIME_DIR")) {
            (Some(path), _) if !path.is_empty() => Self::at(path),
            _ if user.is_root() => Self::at("/run/proofload"),
            (_, Some(path)) if Path::new(&path).is_dir() => Self::at(Path::new(&path).join("proofload")),
            _ => Self::in_shared(Path::new("/tmp"), &format!("proofload-{}", user.as_raw())),
        }
    }

    /// Opens or creates the folder `name` inside a folder that all users may write to. If another user already has this
    /// name, uses a folder with a random suffix. Later calls find the same folder again, because only private folders
    /// of this user can be opened.
    fn in_shared(place: &Path, name: &str) -> Result<Self, Error> {
        let first = place.join(name);
        let user = geteuid().as_raw();
        if fs::symlink_metadata(&first).map_or(true, |found| found.uid() == user) {
            return Self::at(first);
        }
        let drawn = format!("{name}-");
        let names = fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.file_name());
        let mut drawn_before: Vec<_> =
            names.filter(|found| found.to_string_lossy().starts_with(&drawn)).collect();
        drawn_before.sort();
        let open = |name| files::Folder::open(&place.join(name), Trust::Private).ok();
        if let Some(held) = drawn_before.into_iter().find_map(open) {
            return Ok(Self::of(held));
        }
        let failed = |cause| Error::Write { path: first.clone(), cause };
        Self::at(place.join(drawn + &random_name().map_err(failed)?))
    }

    /// Opens the folder at `path`. If missing, it is created with access for this user only.
    ///
    /// # Errors
    /// If the folder cannot be created, or another user could access it.
    pub fn at(path: impl Into<PathBuf>) -> Result<Self, Error> {
        let path = path.into();
        // The path must be absolute, because journals record the paths of files in this folder.
        let path = std::path::absolute(&path).unwrap_or(path);
        files::Folder::make(&path, Trust::Private).map(Self::of).map_err(|error| unusable(path, &error))
    }

    fn of(held: files::Folder) -> Self {
        Self { held: Arc::new(held), settings: &SETTINGS }
    }

    /// The folder with the journals of tunings, inside this one. [`clean`](crate::clean) ignores it.
    ///
    /// # Errors
    /// As for [`at`](Self::at).
    pub fn of_tunings(&self) -> Result<Self, Error> {
        let held = self.held.make_below(TUNINGS, Trust::Private);
        let held = held.map_err(|error| unusable(self.path().join(TUNINGS), &error))?;
        Ok(Self { held: Arc::new(held), settings: self.settings })
    }

    /// Whether there is a folder for tunings, and so whether there was a tuning.
    pub(crate) fn has_tunings(&self) -> bool {
        self.held.has(TUNINGS)
    }

    /// Locks the folder until the returned value is dropped. Without the lock, two tunings at the same time would
    /// record each other's values as the original ones.
    ///
    /// # Errors
    /// If another process holds the lock.
    pub fn lock(&self) -> Result<files::Folder, Error> {
        self.lock_within(LOCK_TIMEOUT)
    }

    pub(crate) fn lock_within(&self, time: Duration) -> Result<files::Folder, Error> {
        // The lock belongs to a new descriptor, so that dropping that descriptor releases the lock.
        let held = self.held.below(".", Trust::Private);
        let held = held.map_err(|error| unusable(self.path().to_owned(), &error))?;
        let why = "another command is changing settings of this host; wait for its end, and try again";
        match try_lock(&held, time) {
            true => Ok(held),
            false => Err(Error::Folder { path: self.path().to_owned(), why: why.to_owned() }),
        }
    }

    /// The open folder, for reading and writing files in it.
    pub fn held(&self) -> &files::Folder {
        &self.held
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        self.held.path()
    }

    /// Makes `folder` the folder of the kernel's settings.
    #[cfg(test)]
    pub(crate) fn with_settings_in(self, folder: &Path) -> Self {
        let folder: &'static str = folder.display().to_string().leak();
        Self { settings: vec![folder].leak(), ..self }
    }
}

/// The names of the journals in a folder.
pub(crate) fn journals(folder: &Folder) -> Result<Vec<String>, Error> {
    let failed = |error: io::Error| Error::Folder {
        path: folder.path().to_owned(),
        why: format!("cannot be read: {error}"),
    };
    let names = folder.held().names().map_err(failed)?.into_iter();
    let mut names: Vec<String> =
        names.filter_map(|name| name.into_string().ok()).filter(|name| is_journal(name)).collect();
    names.sort();
    Ok(names)
}

pub(crate) fn random_name() -> io::Result<String> {
    let mut bytes = [0; 8];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(format!("{:016x}", u64::from_ne_bytes(bytes)))
}

/// Whether a name is that of a journal: `RUN.journal`. Other files in the folder are ignored.
fn is_journal(name: &str) -> bool {
    let is_run = |run: &str| run.len() == 16 && run.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.strip_suffix(".journal").is_some_and(is_run)
}

fn unusable(path: PathBuf, error: &io::Error) -> Error {
    let user = geteuid().as_raw();
    let why = format!(
        "must be a folder of user {user} that no other user can open, and {}: correct that, or name another folder in {VARIABLE}",
        if error.kind() == io::ErrorKind::PermissionDenied {
            error.to_string()
        } else {
            format!("cannot be used: {error}")
        }
    );
    Error::Folder { path, why }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

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

    #[test]
    fn as_root_a_name_that_another_user_took_is_drawn_and_found_again() {
        let place = tempfile::tempdir().unwrap();
        let own = Folder::in_shared(place.path(), "proofload-0").unwrap();
        assert_eq!(own.path(), place.path().join("proofload-0"));
        // Another user owns three entries: a folder, a link to one of our folders, and a folder whose name has a suffix
        // like a random one.
        for (name, target) in [("taken-0", None), ("linked-0", Some(own.path())), ("drawn-0", None)] {
            let first = place.path().join(name);
            match target {
                Some(target) => symlink(target, &first).unwrap(),
                None => fs::create_dir(&first).unwrap(),
            }
            std::os::unix::fs::lchown(&first, Some(61_234), None).unwrap();
            let planted = place.path().join("drawn-0-0");
            let _ = fs::create_dir(&planted);
            chown(&planted, Some(61_234), None).unwrap();
            let drawn = Folder::in_shared(place.path(), name).unwrap();
            let again = Folder::in_shared(place.path(), name).unwrap();
            assert!(![&*first, &*planted, own.path()].contains(&drawn.path()));
            assert_eq!(drawn.path(), again.path(), "{name}");
        }
    }

    #[test]
    fn a_folder_that_is_renamed_is_still_the_one_that_was_judged() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("state");
        let folder = Folder::at(&path).unwrap();
        fs::rename(&path, place.path().join("moved")).unwrap();
        fs::create_dir(&path).unwrap();
        let planted = path.join("0123456789abcdef.journal");
        fs::write(&planted, "planted").unwrap();
        let cleaned = crate::clean(&folder).unwrap();
        assert!(cleaned.failures.is_empty() && planted.exists(), "{cleaned:?}");
    }
}
