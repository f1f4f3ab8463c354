//! A folder kept open by its descriptor.

use std::{
    ffi::{OsStr, OsString},
    fs::{DirBuilder, File},
    io::{self, ErrorKind, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{
            ffi::OsStringExt,
            fs::{DirBuilderExt, MetadataExt},
        },
    },
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{
        AtFlags, CWD, Dir, Mode, OFlags, ResolveFlags, Stat, fchmod, mkdirat, openat2, renameat, statat,
        symlinkat, unlinkat,
    },
    io::Errno,
    process::geteuid,
};

use crate::{check_owners, is_owned, others_may_write, refused, regular};

/// The owner and the access rights that a folder must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// The owner is this user, and no other user has access: mode 700.
    Private,
    /// The owner is this user or root, and no other user may write to it.
    OwnersOnly,
    /// Any owner and mode: a folder of data. Files that this program keeps in it are checked individually.
    Anybody,
}

/// A folder kept open by its descriptor. All operations stay beneath it and follow no link, even if other processes
/// rename parts of the path meanwhile.
///
/// Names may have several components. The kernel refuses `..`, links and other file systems' magic links in them
/// (`openat2` with `RESOLVE_BENEATH` and `RESOLVE_NO_SYMLINKS`, Linux 5.6).
#[derive(Debug)]
pub struct Folder {
    descriptor: OwnedFd,
    path: PathBuf,
}

impl Folder {
    /// Opens a folder by a path from the user. Links above the folder are followed; a link as the last component is
    /// followed only with `Trust::Anybody`.
    ///
    /// # Errors
    /// If it is missing, is no folder, or its owner or mode does not meet `trust`. The message gives the reason.
    pub fn open(path: &Path, trust: Trust) -> io::Result<Self> {
        let follow = if trust == Trust::Anybody { OFlags::empty() } else { OFlags::NOFOLLOW };
        let opened = match Self::unjudged(path, FOLDER | follow) {
            // This user may not list the folder but may still be able to create names in it.
            Err(Errno::ACCESS) if trust == Trust::Anybody => Self::unjudged(path, WAY),
            opened => opened,
        };
        opened?.judged(trust)
    }

    fn unjudged(path: &Path, flags: OFlags) -> Result<Self, Errno> {
        let descriptor = openat2(CWD, path, flags, Mode::empty(), ResolveFlags::empty())?;
        Ok(Self { descriptor, path: path.to_owned() })
    }

    /// Like `open`, but creates the folder with access for this user only if it is missing.
    ///
    /// # Errors
    /// As for [`open`](Self::open), and if it cannot be created.
    pub fn make(path: &Path, trust: Trust) -> io::Result<Self> {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
            _ => Self::open(path, trust),
        }
    }

    /// Creates a new folder that other users may read.
    ///
    /// # Errors
    /// If the name is already taken, or the folder cannot be created.
    pub fn make_new(path: &Path) -> io::Result<Self> {
        DirBuilder::new().mode(0o755).create(path)?;
        Self::open(path, Trust::OwnersOnly)
    }

    /// Opens a folder of this user. Revokes the write permission that a umask of 002 has granted to the group.
    ///
    /// # Errors
    /// As for [`open`](Self::open) with [`Trust::OwnersOnly`].
    pub fn take(path: &Path) -> io::Result<Self> {
        let folder = Self::unjudged(path, FOLDER | OFlags::NOFOLLOW)?;
        let about = folder.metadata()?;
        if about.uid() == geteuid().as_raw() && others_may_write(&about) {
            fchmod(&folder.descriptor, Mode::from_raw_mode(about.mode() & 0o7755))?;
        }
        folder.judged(Trust::OwnersOnly)
    }

    /// Opens a folder beneath this one.
    ///
    /// # Errors
    /// As for [`open`](Self::open), and if the name leads out of this folder or through a link.
    pub fn below(&self, name: impl AsRef<Path>, trust: Trust) -> io::Result<Self> {
        let name = name.as_ref();
        let descriptor = self.resolve(name, FOLDER, Mode::empty())?;
        Self { descriptor, path: self.path.join(name) }.judged(trust)
    }

    /// Like `below`, but creates the last folder of the name with access for this user only if it is missing.
    ///
    /// # Errors
    /// As for [`below`](Self::below), and if it cannot be created.
    pub fn make_below(&self, name: impl AsRef<Path>, trust: Trust) -> io::Result<Self> {
        let name = name.as_ref();
        match self.make_folder(name, 0o700) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
            _ => self.below(name, trust),
        }
    }

    /// Creates a new folder with these permissions, reduced by the umask.
    ///
    /// # Errors
    /// When the name is already taken.
    pub fn make_folder(&self, name: impl AsRef<Path>, mode: u32) -> io::Result<()> {
        let (parent, last) = self.parent(name.as_ref())?;
        Ok(mkdirat(parent, last, Mode::from_raw_mode(mode))?)
    }

    /// Creates a new symbolic link.
    ///
    /// # Errors
    /// When the name is already taken.
    pub fn make_link(&self, name: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        let (parent, last) = self.parent(name.as_ref())?;
        Ok(symlinkat(to.as_ref(), parent, last)?)
    }

    fn judged(self, trust: Trust) -> io::Result<Self> {
        let about = self.metadata()?;
        let (owner, user) = (about.uid(), geteuid().as_raw());
        let why = match trust {
            Trust::Anybody => return Ok(self),
            Trust::OwnersOnly => return check_owners(&about).map(|()| self),
            Trust::Private if owner != user => format!("belongs to user {owner}, not to user {user}"),
            Trust::Private if about.mode() & 0o077 == 0 => return Ok(self),
            Trust::Private => "can be opened by other users; give it mode 700".to_owned(),
        };
        Err(refused(&why))
    }

    /// Creates a new file and opens it for reading and writing.
    ///
    /// # Errors
    /// When the name is already taken.
    pub fn create(&self, name: impl AsRef<Path>, mode: u32) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        self.resolve(name.as_ref(), flags, Mode::from_raw_mode(mode)).map(File::from)
    }

    /// Opens an existing regular file of any owner with these flags. Never creates a file.
    ///
    /// # Errors
    /// If it is missing, or is a link or another kind of file.
    pub fn file(&self, name: impl AsRef<Path>, flags: OFlags) -> io::Result<File> {
        regular(self.resolve(name.as_ref(), flags | OFlags::NONBLOCK | OFlags::NOCTTY, Mode::empty())?.into())
    }

    /// Opens a file that this program keeps and that only this user or root can have written.
    ///
    /// # Errors
    /// As for [`file`](Self::file), and if another user owns it or may write to it, or it has a second hard link.
    pub fn kept(&self, name: impl AsRef<Path>, flags: OFlags) -> io::Result<File> {
        let file = self.file(name, flags)?;
        let about = file.metadata()?;
        check_owners(&about)?;
        if about.nlink() > 1 { Err(refused("has a second hard link")) } else { Ok(file) }
    }

    /// Replaces a file atomically: writes a new file beside the old one and renames it, so that readers see either the
    /// old or the new contents. An old file or link of this name is neither followed nor written to.
    ///
    /// # Errors
    /// If the folder is not writable.
    pub fn replace(&self, name: impl AsRef<Path>, mode: u32, contents: &[u8]) -> io::Result<()> {
        let name = name.as_ref();
        let (mut file, beside) = self.create_beside(name, mode)?;
        let written = file.write_all(contents).and_then(|()| self.rename(&beside, name));
        written.inspect_err(|_| drop(self.remove(&beside)))
    }

    /// Creates a file that will replace the one of this name. Returns the file and its temporary name.
    pub(crate) fn create_beside(&self, name: &Path, mode: u32) -> io::Result<(File, OsString)> {
        let mut beside = name.as_os_str().to_owned();
        beside.push(format!(".{}.new", std::process::id()));
        // A killed process with the same number may have left a file of this name, or another user may have planted
        // one.
        let _ = self.remove(&beside);
        Ok((self.create(&beside, mode)?, beside))
    }

    /// Renames an entry beneath this folder. An existing entry of the new name is replaced.
    ///
    /// # Errors
    /// If the entry is missing, or a name leads out of this folder.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        let (from, to) = (self.parent(from.as_ref())?, self.parent(to.as_ref())?);
        Ok(renameat(from.0, from.1, to.0, to.1)?)
    }

    /// Removes a file or a link.
    ///
    /// # Errors
    /// If it is missing or is a folder.
    pub fn remove(&self, name: impl AsRef<Path>) -> io::Result<()> {
        let (parent, last) = self.parent(name.as_ref())?;
        Ok(unlinkat(parent, last, AtFlags::empty())?)
    }

    /// Whether an entry of this name exists. A dangling link counts as one.
    pub fn has(&self, name: impl AsRef<Path>) -> bool {
        self.look(name).is_ok()
    }

    /// The metadata of the entry with this name; for a link, those of the link itself.
    ///
    /// # Errors
    /// If no entry has this name, or the name leads out of this folder.
    pub fn look(&self, name: impl AsRef<Path>) -> io::Result<Stat> {
        let (parent, last) = self.parent(name.as_ref())?;
        Ok(statat(parent, last, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// The names in this folder, in no particular order.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.descriptor)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        Ok(names)
    }

    /// Whether users other than this user and root may write to this folder and could therefore have planted any of its
    /// entries.
    ///
    /// # Errors
    /// When the kernel does not return the metadata.
    pub fn is_shared(&self) -> io::Result<bool> {
        let about = self.metadata()?;
        Ok(others_may_write(&about) || !is_owned(&about))
    }

    /// The path with which the folder was opened, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn metadata(&self) -> io::Result<std::fs::Metadata> {
        File::from(self.descriptor.try_clone()?).metadata()
    }

    fn resolve(&self, name: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        loop {
            match openat2(&self.descriptor, name, flags, mode, beneath) {
                // A concurrent rename elsewhere kept the kernel from completing its check, so the call is repeated.
                Err(Errno::AGAIN) => {}
                Err(Errno::LOOP) => return Err(refused("is a link")),
                Err(Errno::XDEV) => return Err(refused("leads out of its folder")),
                opened => return Ok(opened?),
            }
        }
    }

    /// The folder that contains the last component of a name, and that component.
    fn parent<'a>(&self, name: &'a Path) -> io::Result<(Parent<'_>, &'a OsStr)> {
        let Some(Component::Normal(last)) = name.components().next_back() else {
            return Err(io::Error::new(ErrorKind::InvalidInput, "is not a valid file name"));
        };
        match name.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            None => Ok((Parent::Same(self.descriptor.as_fd()), last)),
            Some(parent) => Ok((Parent::Below(self.resolve(parent, WAY, Mode::empty())?), last)),
        }
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Flags for a folder in which names are only looked up, so that it need not be readable.
const WAY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The folder that contains the last component of a name.
enum Parent<'a> {
    Same(BorrowedFd<'a>),
    Below(OwnedFd),
}

impl AsFd for Parent<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Same(descriptor) => *descriptor,
            Self::Below(descriptor) => descriptor.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests;
