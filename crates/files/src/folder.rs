//! A folder that is held by its descriptor.

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

/// Which owner a folder, and what lies in it, must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// This user, and no other may look into it: mode 700.
    Private,
    /// This user or root, and no other may write to it.
    OwnersOnly,
    /// To anybody: a folder where data lie. What we keep in it is judged by itself.
    Anybody,
}

/// A folder held by its descriptor. What is done in it stays beneath it, and follows no link, whatever others rename meanwhile.
///
/// Names may have several components; `..`, links and other file systems' magic links in them are refused by the kernel
/// (`openat2` with `RESOLVE_BENEATH` and `RESOLVE_NO_SYMLINKS`, Linux 5.6).
#[derive(Debug)]
pub struct Folder {
    descriptor: OwnedFd,
    path: PathBuf,
}

impl Folder {
    /// Opens a folder by a path that the user named: links above it are followed, and so is the last component where anybody's
    /// folder will do.
    ///
    /// # Errors
    /// When it is missing, is no folder, or its owner and mode are not what `trust` asks for; the message says which.
    pub fn open(path: &Path, trust: Trust) -> io::Result<Self> {
        let follow = if trust == Trust::Anybody { OFlags::empty() } else { OFlags::NOFOLLOW };
        let opened = match Self::unjudged(path, FOLDER | follow) {
            // Names can be made in it, though it cannot be listed.
            Err(Errno::ACCESS) if trust == Trust::Anybody => Self::unjudged(path, WAY),
            opened => opened,
        };
        opened?.judged(trust)
    }

    fn unjudged(path: &Path, flags: OFlags) -> Result<Self, Errno> {
        let descriptor = openat2(CWD, path, flags, Mode::empty(), ResolveFlags::empty())?;
        Ok(Self { descriptor, path: path.to_owned() })
    }

    /// The same; makes the folder, for this user alone, if it is missing.
    ///
    /// # Errors
    /// As for [`open`](Self::open), and when it cannot be made.
    pub fn make(path: &Path, trust: Trust) -> io::Result<Self> {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
            _ => Self::open(path, trust),
        }
    }

    /// Makes a folder that is not there yet, which others may look into.
    ///
    /// # Errors
    /// When the name is taken, by whatever it be, or the folder cannot be made.
    pub fn make_new(path: &Path) -> io::Result<Self> {
        DirBuilder::new().mode(0o755).create(path)?;
        Self::open(path, Trust::OwnersOnly)
    }

    /// Opens a folder of this user, and takes from others the right to write to it, which umask 002 gave them.
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
    /// As for [`open`](Self::open); also when the name leads out, or over a link.
    pub fn below(&self, name: impl AsRef<Path>, trust: Trust) -> io::Result<Self> {
        let name = name.as_ref();
        let descriptor = self.resolve(name, FOLDER, Mode::empty())?;
        Self { descriptor, path: self.path.join(name) }.judged(trust)
    }

    /// The same; makes the last folder of the name, for this user alone, if it is missing.
    ///
    /// # Errors
    /// As for [`below`](Self::below), and when it cannot be made.
    pub fn make_below(&self, name: impl AsRef<Path>, trust: Trust) -> io::Result<Self> {
        let name = name.as_ref();
        match self.make_folder(name, 0o700) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
            _ => self.below(name, trust),
        }
    }

    /// Makes a folder that is not there yet, with these permissions as far as the umask allows.
    ///
    /// # Errors
    /// When the name is taken, by whatever it be.
    pub fn make_folder(&self, name: impl AsRef<Path>, mode: u32) -> io::Result<()> {
        let (parent, last) = self.parent(name.as_ref())?;
        Ok(mkdirat(parent, last, Mode::from_raw_mode(mode))?)
    }

    /// Makes a symbolic link that is not there yet.
    ///
    /// # Errors
    /// When the name is taken, by whatever it be.
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

    /// Makes a file that is not there yet, to write and to read it.
    ///
    /// # Errors
    /// When the name is taken, by whatever it be.
    pub fn create(&self, name: impl AsRef<Path>, mode: u32) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        self.resolve(name.as_ref(), flags, Mode::from_raw_mode(mode)).map(File::from)
    }

    /// Opens a regular file of whomever it be, with these flags; nothing is made.
    ///
    /// # Errors
    /// When it is missing, is a link or no regular file.
    pub fn file(&self, name: impl AsRef<Path>, flags: OFlags) -> io::Result<File> {
        regular(self.resolve(name.as_ref(), flags | OFlags::NONBLOCK | OFlags::NOCTTY, Mode::empty())?.into())
    }

    /// Opens a file that only this user, or root, can have written: what we kept.
    ///
    /// # Errors
    /// As for [`file`](Self::file); also when another user owns it or may write to it, and when it has a second name.
    pub fn kept(&self, name: impl AsRef<Path>, flags: OFlags) -> io::Result<File> {
        let file = self.file(name, flags)?;
        let about = file.metadata()?;
        check_owners(&about)?;
        if about.nlink() > 1 { Err(refused("has a second name")) } else { Ok(file) }
    }

    /// Writes a file beside its place, and puts it there: readers see the old contents or the new ones, and what stood there, a link
    /// too, is neither followed nor written to.
    ///
    /// # Errors
    /// When the folder cannot be written to.
    pub fn replace(&self, name: impl AsRef<Path>, mode: u32, contents: &[u8]) -> io::Result<()> {
        let name = name.as_ref();
        let (mut file, beside) = self.create_beside(name, mode)?;
        let written = file.write_all(contents).and_then(|()| self.rename(&beside, name));
        written.inspect_err(|_| drop(self.remove(&beside)))
    }

    /// Makes a file to be put in the place of this name, and the name that it has until then.
    pub(crate) fn create_beside(&self, name: &Path, mode: u32) -> io::Result<(File, OsString)> {
        let mut beside = name.as_os_str().to_owned();
        beside.push(format!(".{}.new", std::process::id()));
        // Left by a killed process of this number, or planted.
        let _ = self.remove(&beside);
        Ok((self.create(&beside, mode)?, beside))
    }

    /// Gives something another name beneath this folder, in place of what has it.
    ///
    /// # Errors
    /// When it is missing, or a name leads out.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        let (from, to) = (self.parent(from.as_ref())?, self.parent(to.as_ref())?);
        Ok(renameat(from.0, from.1, to.0, to.1)?)
    }

    /// Removes a file or a link.
    ///
    /// # Errors
    /// When it is missing or a folder.
    pub fn remove(&self, name: impl AsRef<Path>) -> io::Result<()> {
        let (parent, last) = self.parent(name.as_ref())?;
        Ok(unlinkat(parent, last, AtFlags::empty())?)
    }

    /// Whether something has this name, a link to nowhere too.
    pub fn has(&self, name: impl AsRef<Path>) -> bool {
        self.look(name).is_ok()
    }

    /// What has this name: of a link, the link itself.
    ///
    /// # Errors
    /// When nothing has it, or it leads out.
    pub fn look(&self, name: impl AsRef<Path>) -> io::Result<Stat> {
        let (parent, last) = self.parent(name.as_ref())?;
        Ok(statat(parent, last, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// The names in it, in no order.
    ///
    /// # Errors
    /// When it cannot be read.
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

    /// Whether others than the owner and root may write here, so that any name in it may be a trap.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn is_shared(&self) -> io::Result<bool> {
        let about = self.metadata()?;
        Ok(others_may_write(&about) || !is_owned(&about))
    }

    /// The path it was opened by, for messages.
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
                // A rename elsewhere made the kernel give up the check.
                Err(Errno::AGAIN) => {}
                Err(Errno::LOOP) => return Err(refused("is a link")),
                Err(Errno::XDEV) => return Err(refused("leads out of its folder")),
                opened => return Ok(opened?),
            }
        }
    }

    /// The folder that holds the last component of a name, and that component.
    fn parent<'a>(&self, name: &'a Path) -> io::Result<(Parent<'_>, &'a OsStr)> {
        let Some(Component::Normal(last)) = name.components().next_back() else {
            return Err(io::Error::new(ErrorKind::InvalidInput, "is no name of a file"));
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

/// A folder in which names are looked up, and which need not be readable.
const WAY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The folder that a name's last component is in.
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
