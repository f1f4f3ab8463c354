//! The two folders of a store: one for the files, one for the journal.

use std::{
    ffi::OsStr,
    fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions},
    io::{self, ErrorKind},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Component, Path, PathBuf},
};

use files::{Folder, Trust};
use rustix::{
    fs::{Mode, OFlags, fsync, mkdirat, openat},
    io::Errno,
    process::geteuid,
};

use crate::Template;

/// Name of the journal's folder beside the files.
pub(crate) const STATE_NAME: &str = ".proofload";

/// The fixed beginning of a template. The user named it, so symbolic links in it are followed. Each use looks it up
/// again, so that the store notices when the folder was moved or removed. Folders beneath it may belong to other users,
/// so links there are not followed.
#[derive(Debug, Clone)]
pub(crate) struct Base {
    /// The absolute path of the folder.
    pub path: PathBuf,
}

impl Base {
    pub(crate) fn new(template: &Template) -> Self {
        Self { path: absolute(template.folder()) }
    }

    /// The part of a path below this folder; `None` if the text of the path does not begin with this folder.
    pub(crate) fn beneath<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        let below = path.strip_prefix(&self.path).ok()?;
        let is_name = |component| matches!(component, Component::Normal(_));
        (below.file_name().is_some() && below.components().all(is_name)).then_some(below)
    }

    /// The folder that contains a file, and the file's name in it. `None` if a component of the path is missing, a link
    /// or not a folder.
    pub(crate) fn holder<'a>(&self, path: &'a Path) -> io::Result<Option<(Folder, &'a OsStr)>> {
        let Some(below) = self.beneath(path) else { return Ok(None) };
        let (parent, name) = (below.parent(), below.file_name().unwrap_or_default());
        let parent = parent.filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        match Folder::open(&self.path, Trust::Anybody).and_then(|base| base.below(parent, Trust::Anybody)) {
            Ok(folder) => Ok(Some((folder, name))),
            Err(cause) if is_gone(&cause) => Ok(None),
            Err(cause) => Err(cause),
        }
    }

    /// Like `holder`, but creates missing folders on the path. Adds the folders in which names were created to
    /// `made_in`.
    pub(crate) fn make_holder<'a>(
        &self,
        path: &'a Path,
        made_in: &mut Vec<PathBuf>,
    ) -> io::Result<(Folder, &'a OsStr)> {
        let below = self.beneath(path).ok_or(Errno::LOOP)?;
        make(&self.path, made_in)?;
        let mut folder = Folder::open(&self.path, Trust::Anybody)?;
        for component in below.parent().into_iter().flat_map(Path::components) {
            let made = mkdirat(&folder, component.as_os_str(), Mode::from_raw_mode(0o777));
            if made.is_ok() {
                made_in.push(folder.path().to_owned());
            }
            folder = match (folder.below(component, Trust::Anybody), made) {
                (Ok(folder), _) => folder,
                // A link affects only the files below it. ELOOP does not count as an error of the disk.
                (Err(cause), _)
                    if cause.raw_os_error().is_none() || is_link(&folder, component.as_os_str())? =>
                {
                    return Err(Errno::LOOP.into());
                }
                (Err(cause), Ok(()) | Err(Errno::EXIST)) => return Err(cause),
                (Err(_), Err(cause)) => return Err(cause.into()),
            };
        }
        Ok((folder, below.file_name().unwrap_or_default()))
    }

    /// Makes the creation, renaming and removal of names in a folder durable.
    pub(crate) fn sync(&self, folder: &Path) -> io::Result<()> {
        let opened = match self.beneath(folder) {
            Some(below) => Folder::open(&self.path, Trust::Anybody)?.below(below, Trust::Anybody),
            None => Folder::open(folder, Trust::Anybody),
        };
        Ok(fsync(opened?)?)
    }
}

/// The absolute path, so that a file has the same path everywhere, including the journal. Without a current folder, the
/// path stays relative; it could not be opened anyway.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Whether the error means that a folder is missing, is not a folder, or must not be entered.
pub(crate) fn is_gone(cause: &io::Error) -> bool {
    matches!(Errno::from_io_error(cause), None | Some(Errno::NOENT | Errno::NOTDIR))
}

/// Whether the entry with this name in a folder is a link.
pub(crate) fn is_link(folder: &Folder, name: &OsStr) -> io::Result<bool> {
    Ok(about(folder, name)?.is_some_and(|found| found.is_symlink()))
}

/// The metadata of the entry with this name in a folder; for a link, those of the link itself.
pub(crate) fn about(folder: &Folder, name: &OsStr) -> io::Result<Option<Metadata>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(folder, name, flags, Mode::empty()) {
        Ok(found) => Ok(Some(File::from(found).metadata()?)),
        Err(Errno::NOENT) => Ok(None),
        Err(cause) => Err(cause.into()),
    }
}

/// Creates the folder of the journal, for this user alone, if it is missing.
pub(crate) fn make_state(path: &Path) -> io::Result<()> {
    let path = absolute(path);
    let parent = path.parent().unwrap_or(Path::new("/"));
    make_durably(parent)?;
    match DirBuilder::new().mode(0o700).create(&path) {
        Ok(()) => Ok(fsync(Folder::open(parent, Trust::Anybody)?)?),
        // The folder exists, but the disk is full or read-only.
        Err(_) if path.is_dir() => Ok(()),
        Err(cause) => Err(cause),
    }
}

/// Opens the folder of the journal. Only this user or root may own it and write to it.
pub(crate) fn open_state(path: &Path) -> io::Result<Folder> {
    let mut path = path.to_owned();
    if !path.ends_with(STATE_NAME) {
        // The user named this folder, so a link there is the user's own and is followed. A link at the default name
        // beside the files is not, because another user may have created it.
        path.push(".");
    } else if path.is_symlink() {
        return Err(io::Error::new(ErrorKind::PermissionDenied, "is a link"));
    }
    narrow(&path)?;
    Folder::open(&path, Trust::OwnersOnly)
}

/// Revokes the group's write permission, which earlier versions gave under a umask of 002. Files in the folder are
/// checked separately.
fn narrow(path: &Path) -> io::Result<()> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let folder = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let about = folder.metadata()?;
    if about.uid() == geteuid().as_raw() && about.mode() & 0o022 == 0o020 {
        folder.set_permissions(Permissions::from_mode(about.mode() & 0o7700))?;
    }
    Ok(())
}

/// Creates a folder and its parents, and syncs the folders in which names were created.
pub(crate) fn make_durably(folder: &Path) -> io::Result<()> {
    let mut made_in = Vec::new();
    make(folder, &mut made_in)?;
    if !folder.is_dir() {
        return Err(ErrorKind::NotADirectory.into());
    }
    made_in.iter().try_for_each(|parent| File::open(parent)?.sync_all())
}

/// Creates a folder and its parents. Adds the folders in which names were created to `made_in`.
fn make(folder: &Path, made_in: &mut Vec<PathBuf>) -> io::Result<()> {
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
    let made = fs::create_dir(folder).or_else(|cause| match (cause.kind(), parent) {
        (ErrorKind::NotFound, Some(parent)) => {
            make(parent, made_in)?;
            fs::create_dir(folder)
        }
        _ => Err(cause),
    });
    match made {
        Ok(()) => {
            made_in.extend(parent.map(Path::to_owned));
            Ok(())
        }
        Err(cause) if cause.kind() == ErrorKind::AlreadyExists => Ok(()),
        // The folder exists, but the disk is full or read-only.
        Err(_) if folder.is_dir() => Ok(()),
        Err(cause) => Err(cause),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn every_folder_with_a_new_name_is_returned() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let mut made_in = Vec::new();
        make(&root.join("a/b/c"), &mut made_in).unwrap();
        assert_eq!(made_in, [root.to_owned(), root.join("a"), root.join("a/b")]);
        made_in.clear();
        make(&root.join("a/b"), &mut made_in).unwrap();
        assert!(made_in.is_empty());
        fs::write(root.join("file"), "").unwrap();
        assert_eq!(make_durably(&root.join("file")).unwrap_err().kind(), ErrorKind::NotADirectory);
        make_durably(&root.join("x/y")).unwrap();
        assert!(root.join("x/y").is_dir());
    }

    #[test]
    fn no_path_leaves_the_base_and_no_link_beneath_it_is_followed() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        fs::create_dir_all(root.join("real/in")).unwrap();
        fs::create_dir(root.join("secret")).unwrap();
        symlink("real", root.join("base")).unwrap();
        symlink("../secret", root.join("real/out")).unwrap();
        // A link in the path that the user named is followed.
        let base = Base::new(&root.join("base/${tag}").to_str().unwrap().parse().unwrap());
        let below = |name: &str| root.join("base").join(name);
        assert!(base.holder(&below("x.log")).unwrap().is_some());
        assert!(base.holder(&below("in/x.log")).unwrap().is_some());
        base.make_holder(&below("new/er/x.log"), &mut Vec::new()).unwrap();
        assert!(root.join("real/new/er").is_dir());
        for other in ["out/x.log", "../secret/x.log", "in/../../secret/x.log", "/etc/x.log", "missing/x.log"]
        {
            assert!(base.holder(&below(other)).unwrap().is_none(), "{other}");
        }
        for other in ["out/x.log", "out/deep/x.log", "../secret/x.log", "/etc/proofload/x.log"] {
            let refused = base.make_holder(&below(other), &mut Vec::new()).unwrap_err();
            assert_eq!(Errno::from_io_error(&refused), Some(Errno::LOOP), "{other}");
        }
        assert_eq!(fs::read_dir(root.join("secret")).unwrap().count(), 0);
        base.sync(&below("in")).unwrap();
        base.sync(&root.join("base")).unwrap();
        assert!(is_gone(&base.sync(&below("out")).unwrap_err()));
    }

    #[test]
    fn the_folder_of_the_journal_is_this_users_alone() {
        let root = tempfile::tempdir().unwrap();
        let state = root.path().join("logs").join(STATE_NAME);
        make_state(&state).unwrap();
        make_state(&state).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o7777;
        assert_eq!(mode(&state), 0o700);
        for (before, after) in [(0o755, Some(0o755)), (0o775, Some(0o700)), (0o777, None), (0o1777, None)] {
            fs::set_permissions(&state, Permissions::from_mode(before)).unwrap();
            let opened = open_state(&state);
            assert_eq!(opened.is_ok().then(|| mode(&state)), after, "{before:o}");
        }
        fs::set_permissions(&state, Permissions::from_mode(0o700)).unwrap();
        let [named, planted] = [root.path().join("named"), root.path().join(STATE_NAME)];
        symlink(&state, &named).unwrap();
        symlink(&state, &planted).unwrap();
        assert!(open_state(&named).is_ok());
        assert_eq!(open_state(&planted).unwrap_err().to_string(), "is a link");
    }
}
