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
        AtFlags, CWD, Dir, Mode, OFlags, ResolveFlags, fchmod, mkdirat, openat2, renameat, statat, unlinkat,
    },
    process::{getegid, geteuid},
};

use crate::{others_may_write, refused, regular};

/// Whom a folder, and what lies in it, must belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// To this user, and nobody else may look into it: mode 700.
    Private,
    /// To this user or root, and nobody else may write to it.
    OwnersOnly,
    /// To this user, root, or the user in whose folder this program was started; others cannot rename what we make in it. It may be
    /// `/tmp`, where the kernel sees to that, and members of this user's own group may write to it, as under umask 002.
    KeepsNames,
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
        let is_followed = matches!(trust, Trust::Anybody | Trust::KeepsNames);
        let follow = if is_followed { OFlags::empty() } else { OFlags::NOFOLLOW };
        let descriptor = openat2(CWD, path, FOLDER | follow, Mode::empty(), ResolveFlags::empty())
            .map_err(io::Error::from)?;
        Self { descriptor, path: path.to_owned() }.judged(trust)
    }

    /// The same; makes the folder, for this user alone, if it is missing.
    ///
    /// # Errors
    /// As for [`open`](Self::open), and when it cannot be made.
    pub fn make(path: &Path, trust: Trust) -> io::Result<Self> {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
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
        let descriptor = openat2(CWD, path, FOLDER | OFlags::NOFOLLOW, Mode::empty(), ResolveFlags::empty())
            .map_err(io::Error::from)?;
        let folder = Self { descriptor, path: path.to_owned() };
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

    /// Makes a folder that is not there yet.
    ///
    /// # Errors
    /// When the name is taken, or the folder cannot be made.
    pub fn make_folder(&self, name: impl AsRef<Path>, mode: u32) -> io::Result<()> {
        let (parent, last) = self.parent(name.as_ref())?;
        Ok(mkdirat(parent, last, Mode::from_raw_mode(mode))?)
    }

    fn judged(self, trust: Trust) -> io::Result<Self> {
        let about = self.metadata()?;
        let user = geteuid().as_raw();
        let (is_ours, is_roots) = (about.uid() == user, about.uid() == 0);
        let why = match trust {
            Trust::Anybody => None,
            Trust::KeepsNames if !is_ours && !is_roots && !is_host(about.uid()) => {
                Some(format!("belongs to user {}", about.uid()))
            }
            Trust::KeepsNames => {
                let by_group = about.mode() & 0o020 != 0 && about.gid() != getegid().as_raw();
                let is_open = by_group || about.mode() & 0o002 != 0;
                let others = "can be written to by other users, who could rename what is made in it";
                (is_open && about.mode() & 0o1000 == 0).then(|| others.to_owned())
            }
            Trust::Private if !is_ours => {
                Some(format!("belongs to user {}, not to user {user}", about.uid()))
            }
            Trust::Private => (about.mode() & 0o077 != 0)
                .then(|| "can be opened by other users; give it mode 700".to_owned()),
            Trust::OwnersOnly if !is_ours && !is_roots => Some(format!("belongs to user {}", about.uid())),
            Trust::OwnersOnly => {
                others_may_write(&about).then(|| "can be written to by other users".to_owned())
            }
        };
        why.map_or(Ok(self), |why| Err(refused(&why)))
    }

    /// Makes a file that is not there yet, to write it.
    ///
    /// # Errors
    /// When the name is taken, by whatever it be.
    pub fn create(&self, name: impl AsRef<Path>, mode: u32) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
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
        if about.uid() != geteuid().as_raw() && about.uid() != 0 {
            return Err(refused(&format!("belongs to user {}", about.uid())));
        }
        if others_may_write(&about) {
            return Err(refused("can be written to by other users"));
        }
        if about.nlink() > 1 {
            return Err(refused("has a second name"));
        }
        Ok(file)
    }

    /// Writes a file beside its place, and puts it there: readers see the old contents or the new ones, and what stood there, a link
    /// too, is neither followed nor written to.
    ///
    /// # Errors
    /// When the folder cannot be written to.
    pub fn replace(&self, name: impl AsRef<Path>, mode: u32, contents: &[u8]) -> io::Result<()> {
        let name = name.as_ref();
        let mut beside = name.as_os_str().to_owned();
        beside.push(format!(".{}.new", std::process::id()));
        // What a killed process of this number left, or somebody planted.
        let _ = self.remove(&beside);
        let mut file = self.create(&beside, mode)?;
        let written = file.write_all(contents).and_then(|()| self.rename(&beside, name));
        written.inspect_err(|_| drop(self.remove(&beside)))
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
        self.parent(name.as_ref())
            .is_ok_and(|(parent, last)| statat(parent, last, AtFlags::SYMLINK_NOFOLLOW).is_ok())
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
        let is_owned = [0, geteuid().as_raw()].contains(&about.uid());
        Ok(others_may_write(&about) || !is_owned)
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
                Err(rustix::io::Errno::AGAIN) => {}
                Err(rustix::io::Errno::LOOP) => return Err(refused("is a link")),
                Err(rustix::io::Errno::XDEV) => return Err(refused("leads out of its folder")),
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
            Some(parent) => Ok((Parent::Below(self.resolve(parent, FOLDER, Mode::empty())?), last)),
        }
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Whether this program was started in a folder of this user, as root in another user's project or container.
fn is_host(user: u32) -> bool {
    std::fs::metadata(".").is_ok_and(|here| here.uid() == user)
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

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
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
    };

    use super::*;

    #[test]
    fn nothing_leaves_the_folder_and_no_link_is_followed() {
        let place = tempfile::tempdir().unwrap();
        let [inside, outside] = ["inside", "outside"].map(|name| place.path().join(name));
        fs::create_dir(&inside).unwrap();
        fs::write(&outside, "secret").unwrap();
        symlink(&outside, inside.join("link")).unwrap();
        symlink(place.path(), inside.join("up")).unwrap();
        let folder = Folder::open(&inside, Trust::OwnersOnly).unwrap();
        for name in ["link", "up/outside", "../outside", "/etc/passwd"] {
            assert!(folder.file(name, OFlags::RDONLY).is_err(), "{name}");
            assert!(folder.create(name, 0o600).is_err(), "{name}");
        }
        folder.replace("link", 0o600, b"ours").unwrap();
        assert_eq!(fs::read(&outside).unwrap(), b"secret");
        assert_eq!(fs::read(inside.join("link")).unwrap(), b"ours");
        assert!(folder.remove("../outside").is_err() || outside.exists());
        // Renamed, it is still the folder that was judged.
        let moved = place.path().join("moved");
        fs::rename(&inside, &moved).unwrap();
        folder.create("new", 0o600).unwrap();
        assert!(moved.join("new").exists() && folder.has("new") && !folder.has("other"));
    }

    #[test]
    fn folders_and_files_of_others_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("kept");
        let folder = Folder::make(&path, Trust::Private).unwrap();
        drop(folder.create("file", 0o600).unwrap());
        assert!(folder.kept("file", OFlags::RDONLY).is_ok());
        fs::hard_link(path.join("file"), path.join("second")).unwrap();
        assert!(folder.kept("file", OFlags::RDONLY).unwrap_err().to_string().contains("second name"));
        fs::remove_file(path.join("second")).unwrap();
        fs::set_permissions(path.join("file"), fs::Permissions::from_mode(0o666)).unwrap();
        assert!(folder.kept("file", OFlags::RDONLY).unwrap_err().to_string().contains("other users"));

        assert!(!folder.is_shared().unwrap());
        for (mode, is_private, is_owners) in
            [(0o755, false, true), (0o775, false, false), (0o1777, false, false)]
        {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(Folder::open(&path, Trust::Private).is_ok(), is_private, "{mode:o}");
            assert_eq!(Folder::open(&path, Trust::OwnersOnly).is_ok(), is_owners, "{mode:o}");
            assert!(Folder::open(&path, Trust::Anybody).is_ok());
        }
        assert!(folder.is_shared().unwrap());
        symlink(&path, place.path().join("link")).unwrap();
        assert!(Folder::open(&place.path().join("link"), Trust::OwnersOnly).is_err());
    }

    #[test]
    fn what_is_made_in_a_folder_keeps_its_name_only_where_others_cannot_rename_it() {
        let place = tempfile::tempdir().unwrap();
        let open = |mode| {
            fs::set_permissions(place.path(), fs::Permissions::from_mode(mode)).unwrap();
            Folder::open(place.path(), Trust::KeepsNames)
        };
        for (mode, keeps) in [(0o755, true), (0o775, true), (0o1777, true), (0o777, false), (0o757, false)] {
            assert_eq!(open(mode).is_ok(), keeps, "{mode:o}");
        }
        // A new folder is new; an own one, which umask 002 opened to a group, is taken.
        let path = place.path().join("a");
        drop(Folder::make_new(&path).unwrap());
        assert_eq!(Folder::make_new(&path).unwrap_err().kind(), ErrorKind::AlreadyExists);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o2775)).unwrap();
        let folder = Folder::take(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o2755);
        assert!(folder.names().unwrap().is_empty());
        drop(folder.create("x", 0o600).unwrap());
        assert_eq!(folder.names().unwrap(), ["x"]);
        symlink(&path, place.path().join("link")).unwrap();
        assert!(Folder::take(&place.path().join("link")).is_err());
        assert!(Folder::make_new(&place.path().join("link")).is_err());
    }

    #[test]
    fn as_root_another_users_folder_and_file_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("kept");
        let folder = Folder::make(&path, Trust::Private).unwrap();
        drop(folder.create("file", 0o600).unwrap());
        std::os::unix::fs::chown(path.join("file"), Some(61_234), None).unwrap();
        assert!(
            folder.kept("file", OFlags::RDONLY).unwrap_err().to_string().contains("belongs to user 61234")
        );
        std::os::unix::fs::chown(&path, Some(61_234), None).unwrap();
        assert!(Folder::take(&path).unwrap_err().to_string().contains("belongs to user 61234"));
        for trust in [Trust::Private, Trust::OwnersOnly, Trust::KeepsNames] {
            assert!(Folder::open(&path, trust).unwrap_err().to_string().contains("belongs to user 61234"));
        }
    }
}
