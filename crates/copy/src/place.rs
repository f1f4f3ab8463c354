//! Places of files on this machine: names beneath a folder that is kept open.
//!
//! Links in a path that the user named are followed once, as in scp. Below that path, links are not followed, even if
//! other users rename files meanwhile.

use std::{
    cell::RefCell,
    collections::HashMap,
    fs::{self, File},
    io::{self, ErrorKind},
    os::{fd::AsFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
    rc::Rc,
};

use files::{Folder, Trust};
use rustix::{
    fs::{FileType, OFlags, fsync},
    process::geteuid,
};

use crate::{
    error::{Error, Result},
    item::{Item, MODE_BITS},
    location::os,
};

/// Open folders by path: folders that the user named, and folders that contain a file that the user named.
#[derive(Debug, Default)]
pub(crate) struct OpenFolders(RefCell<HashMap<PathBuf, Rc<Folder>>>);

impl OpenFolders {
    fn folder(&self, path: &Path) -> io::Result<Rc<Folder>> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        if let Some(folder) = self.0.borrow().get(path) {
            return Ok(Rc::clone(folder));
        }
        Ok(self.hold(path, Folder::open(path, Trust::Anybody)?))
    }

    fn hold(&self, path: &Path, folder: Folder) -> Rc<Folder> {
        let folder = Rc::new(folder);
        self.0.borrow_mut().insert(path.to_owned(), Rc::clone(&folder));
        folder
    }

    fn place(&self, item: &Item) -> io::Result<Place> {
        if !item.is_named() {
            let (named, below) = item.target.split_at(item.named_bytes);
            let below = &below[below.iter().take_while(|byte| **byte == b'/').count()..];
            return Ok(Place { folder: self.folder(Path::new(&os(named)))?, name: os(below).into() });
        }
        let target = PathBuf::from(os(&item.target));
        // The file that a link leads to is replaced, not the link itself, unless the link dangles.
        let target = fs::canonicalize(&target).unwrap_or(target);
        let (Some(folder), Some(name)) = (target.parent(), target.file_name()) else {
            return Err(io::Error::new(ErrorKind::IsADirectory, "is a folder"));
        };
        Ok(Place { folder: self.folder(folder)?, name: name.into() })
    }

    /// Returns the place of a target file, and the permissions of an existing file there.
    pub(crate) fn target(&self, item: &Item) -> Result<(Place, Option<u32>)> {
        let failed = |error: &io::Error| Error::local("open the folder of the target", error);
        let place = self.place(item).map_err(|error| failed(&error))?;
        let found = match place.folder.look(&place.name) {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok((place, None)),
            Err(error) => return Err(failed(&error)),
        };
        match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile => Ok((place, Some(found.st_mode & MODE_BITS))),
            // The link itself is replaced: otherwise the user who created it could redirect files.
            FileType::Symlink => Ok((place, None)),
            _ => Err(Error::not_regular(&item.target)),
        }
    }

    /// The type of the existing file at an item's target.
    pub(crate) fn found(&self, item: &Item) -> Option<sftp::FileType> {
        let found = self.place(item).and_then(|place| place.folder.look(&place.name)).ok()?;
        sftp::Attributes { permissions: Some(found.st_mode), ..Default::default() }.file_type()
    }

    /// Creates a folder unless it exists. Returns whether it is new. A folder that the user named is kept open from now
    /// on.
    pub(crate) fn make_folder(&self, item: &Item, mode: u32) -> io::Result<bool> {
        let path = PathBuf::from(os(&item.target));
        if item.is_named() && self.folder(&path).is_ok() {
            return Ok(false);
        }
        let place = self.place(item)?;
        let is_new = match place.folder.make_folder(&place.name, mode) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && place.is(FileType::Directory) => false,
            made => made.map(|()| true)?,
        };
        if item.is_named() {
            self.hold(&path, place.folder.below(&place.name, Trust::Anybody)?);
        }
        Ok(is_new)
    }

    /// Opens an existing folder.
    pub(crate) fn open_folder(&self, item: &Item) -> io::Result<File> {
        let folder = if item.is_named() {
            self.folder(Path::new(&os(&item.target)))?
        } else {
            let place = self.place(item)?;
            Rc::new(place.folder.below(&place.name, Trust::Anybody)?)
        };
        Ok(folder.as_fd().try_clone_to_owned()?.into())
    }

    /// Creates a link. A file or link of the same name is replaced.
    pub(crate) fn make_link(&self, item: &Item, to: &[u8]) -> io::Result<()> {
        let place = self.place(item)?;
        if place.is(FileType::Symlink) || place.is(FileType::RegularFile) {
            place.remove()?;
        }
        place.folder.make_link(&place.name, os(to))
    }
}

/// A name beneath a folder that is kept open.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    folder: Rc<Folder>,
    name: PathBuf,
}

impl Place {
    /// The path, for messages.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }

    /// Another name in the same folder.
    pub(crate) fn beside(&self, name: &str) -> Self {
        Self { folder: Rc::clone(&self.folder), name: self.name.with_file_name(name) }
    }

    fn is(&self, kind: FileType) -> bool {
        self.folder.look(&self.name).is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == kind)
    }

    /// Creates a file of this size. A file of the same name is replaced, because an earlier attempt of this run may
    /// have left it.
    pub(crate) fn create(&self, mode: u32, size_bytes: u64) -> Result<File> {
        let made = match self.folder.create(&self.name, mode) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                self.remove().and_then(|()| self.folder.create(&self.name, mode))
            }
            made => made,
        };
        // The size is set first, so that blocks of zeros stay holes, even at the end.
        let made = made.and_then(|file| {
            file.set_len(size_bytes).inspect_err(|_| drop(self.remove()))?;
            Ok(file)
        });
        made.map_err(|error| {
            let advice = if error.kind() == ErrorKind::PermissionDenied {
                "; its folder must be writable"
            } else {
                ""
            };
            Error::Local(format!("cannot make {}: {error}{advice}", self.path().display()))
        })
    }

    /// Opens the partial file of an earlier run. None unless this user owns it and it gives other users no more rights
    /// than this mode.
    pub(crate) fn take_up(&self, mode: u32) -> Option<File> {
        let file = self.folder.file(&self.name, OFlags::RDWR).ok()?;
        let about = file.metadata().ok()?;
        let is_ours = about.uid() == geteuid().as_raw() && about.nlink() == 1;
        (is_ours && about.mode() & 0o077 & !mode == 0).then_some(file)
    }

    pub(crate) fn remove(&self) -> io::Result<()> {
        self.folder.remove(&self.name)
    }

    /// Renames the file to another place in the same folder.
    pub(crate) fn rename(&self, to: &Self) -> io::Result<()> {
        self.folder.rename(&self.name, &to.name)
    }

    /// Writes the folder to its disk (fsync). Some file systems do not support this.
    pub(crate) fn sync_folder(&self) {
        let _ = match self.name.parent().filter(|parent| *parent != Path::new("")) {
            Some(parent) => self.folder.below(parent, Trust::Anybody).map(fsync),
            None => Ok(fsync(&self.folder)),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::Permissions,
        os::unix::fs::{PermissionsExt, symlink},
        process::Command,
    };

    use super::*;
    use crate::item::{Kind, item};

    /// An item below a folder that the user named.
    fn below(named: &Path, name: &str, kind: Kind) -> Item {
        let target = named.join(name);
        Item {
            named_bytes: if name.is_empty() { target.as_os_str().len() } else { named.as_os_str().len() },
            target: target.into_os_string().into_encoded_bytes(),
            kind,
            ..item("source", 1)
        }
    }

    #[test]
    fn nothing_below_a_named_folder_follows_a_link_or_waits_for_a_pipe() {
        let place = tempfile::tempdir().unwrap();
        let [named, link, elsewhere] = ["named", "link", "elsewhere"].map(|name| place.path().join(name));
        for folder in [&named, &elsewhere] {
            fs::create_dir(folder).unwrap();
        }
        symlink(&named, &link).unwrap();
        let held = OpenFolders::default();
        // A link that the user named is followed.
        assert!(!held.make_folder(&below(&link, "", Kind::Folder), 0o755).unwrap());
        for name in ["a", "b", "c"] {
            assert!(held.make_folder(&below(&link, name, Kind::Folder), 0o700).unwrap());
            assert!(!held.make_folder(&below(&link, name, Kind::Folder), 0o700).unwrap());
            assert!(held.open_folder(&below(&link, name, Kind::Folder)).is_ok());
        }
        for name in ["a", "b"] {
            fs::remove_dir(named.join(name)).unwrap();
        }
        symlink(&elsewhere, named.join("a")).unwrap();
        assert!(Command::new("mkfifo").arg(named.join("b")).status().unwrap().success());
        for name in ["a", "b"] {
            assert!(held.make_folder(&below(&link, name, Kind::Folder), 0o700).is_err(), "{name}");
            assert!(held.open_folder(&below(&link, name, Kind::Folder)).is_err(), "{name}");
            assert!(held.target(&below(&link, &format!("{name}/file"), Kind::File)).is_err(), "{name}");
        }
        // The folder that was opened first is used, although its name now leads to another folder.
        fs::remove_file(&link).unwrap();
        symlink(&elsewhere, &link).unwrap();
        let (target, replaced) = held.target(&below(&link, "c/file", Kind::File)).unwrap();
        assert!(replaced.is_none());
        drop(target.beside("part").create(0o600, 5).unwrap());
        target.beside("part").rename(&target).unwrap();
        target.sync_folder();
        assert_eq!(fs::metadata(named.join("c/file")).unwrap().len(), 5);
        held.make_link(&below(&link, "c/file", Kind::Link(Vec::new())), b"to").unwrap();
        assert_eq!(fs::read_link(named.join("c/file")).unwrap(), Path::new("to"));
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    }

    #[test]
    fn only_a_part_of_our_own_is_taken_up() {
        let place = tempfile::tempdir().unwrap();
        let item = below(place.path(), "file", Kind::File);
        let (target, _) = OpenFolders::default().target(&item).unwrap();
        let part = target.beside("part");
        let path = part.path();
        drop(part.create(0o640, 5).unwrap());
        assert!(part.take_up(0o640).is_some());
        // Files with another mode or a second hard link, and files of other types, are refused.
        assert!(part.take_up(0o600).is_none());
        for mode in [0o642, 0o644, 0o660] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert!(part.take_up(0o640).is_none(), "{mode:o}");
        }
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert!(part.take_up(0o640).is_some());
        fs::hard_link(&path, place.path().join("second")).unwrap();
        assert!(part.take_up(0o640).is_none());
        fs::remove_file(&path).unwrap();
        symlink("second", &path).unwrap();
        assert!(part.take_up(0o640).is_none());
        fs::remove_file(&path).unwrap();
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert!(part.take_up(0o640).is_none());
        // The file that replaces it is new.
        assert_eq!(part.create(0o600, 7).unwrap().metadata().unwrap().len(), 7);
        assert!(fs::metadata(&path).unwrap().is_file());
    }

    #[test]
    fn as_root_a_part_of_another_user_is_not_taken_up() {
        let place = tempfile::tempdir().unwrap();
        let (target, _) = OpenFolders::default().target(&below(place.path(), "file", Kind::File)).unwrap();
        let part = target.beside("part");
        drop(part.create(0o600, 5).unwrap());
        assert!(part.take_up(0o600).is_some());
        std::os::unix::fs::chown(part.path(), Some(61_234), None).unwrap();
        assert!(part.take_up(0o600).is_none());
    }
}
