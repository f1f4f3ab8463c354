//! Requests to a server about its files. Each answer is checked.

use std::cell::Cell;

use sftp::{Attributes, Code, FileType, OpenFlags, Request, Times};

use crate::{
    channel::Channel,
    error::{Error, Result},
    item::Item,
    pending::Pending,
    reply::OwnedReply,
};

/// Maximum number of files in a copy.
pub(crate) const MAX_ITEMS: usize = 5_000_000;

/// Maximum number of folders that are listed concurrently: a server limits the number of handles.
pub(crate) const LISTINGS: usize = 64;

/// Maximum number of names that are requested concurrently.
pub(crate) const ASKED_AT_ONCE: usize = 256;

/// Maximum number of invalid names in the listing of a folder.
const MAX_REFUSED: usize = 100;

/// The reason for a folder that cannot be created because a file or link has its name.
pub(crate) const NAME_IS_TAKEN: &str = "a file or link with this name exists, so the folder cannot be made; remove it, or \
                                        choose another destination";

/// An entry of a folder.
pub(crate) type Entry = (Vec<u8>, Attributes);

/// A folder whose creation is pending.
pub(crate) struct NewFolder {
    made: Pending,
    known: Pending,
}

impl NewFolder {
    /// Waits until it exists. Returns whether it is new.
    pub(crate) async fn made(self) -> Result<bool> {
        match self.made.done().await {
            Err(Error::Refused(refusal)) => match self.known.answer().await {
                Ok(OwnedReply::Attributes(known)) if known.file_type() == Some(FileType::Directory) => {
                    Ok(false)
                }
                Ok(OwnedReply::Attributes(_)) => Err(Error::Local(NAME_IS_TAKEN.to_owned())),
                Err(error @ Error::Lost(_)) => Err(error),
                _ => Err(Error::Refused(refusal)),
            },
            made => made.map(|()| true),
        }
    }
}

/// Attributes whose change is pending.
pub(crate) struct NewAttributes {
    attributes: Attributes,
    is_link_safe: bool,
    set: Pending,
}

impl Channel {
    async fn done(&self, request: Request<'_>) -> Result {
        self.begin(&request)?.done().await
    }

    /// Attributes of the file that a path leads to; none if there is no such file.
    pub(crate) async fn stat(&self, path: &[u8]) -> Result<Option<Attributes>> {
        self.begin(&Request::Stat(path))?.behind().await
    }

    /// Attributes of a path itself, even if it is a link.
    pub(crate) async fn lstat(&self, path: &[u8]) -> Result<Option<Attributes>> {
        self.begin(&Request::Lstat(path))?.known().await
    }

    async fn name(&self, request: Request<'_>) -> Result<Vec<u8>> {
        match self.ask(&request).await? {
            OwnedReply::Names(mut names) if names.len() == 1 => Ok(names.swap_remove(0).0),
            _ => Err(Error::unexpected("a path")),
        }
    }

    /// The absolute path without links.
    pub(crate) async fn real_path(&self, path: &[u8]) -> Result<Vec<u8>> {
        self.name(Request::Realpath(path)).await
    }

    /// The target of a link.
    pub(crate) async fn read_link(&self, path: &[u8]) -> Result<Vec<u8>> {
        self.name(Request::Readlink(path)).await
    }

    pub(crate) async fn symlink(&self, target: &[u8], link: &[u8]) -> Result {
        self.done(Request::Symlink { target, link }).await
    }

    pub(crate) async fn remove(&self, path: &[u8]) -> Result {
        self.done(Request::Remove(path)).await
    }

    /// Asks the server to create a folder unless it exists.
    pub(crate) fn begin_folder(&self, folder: &Item, permissions: u32) -> Result<NewFolder> {
        let path = &folder.target;
        let attributes = Attributes { permissions: Some(permissions), ..Attributes::default() };
        let made = self.begin(&Request::Mkdir { path, attributes })?;
        // Below the folder that the user named, links are not followed.
        Ok(NewFolder { made, known: self.begin(&folder.look())? })
    }

    /// Asks the server to set attributes of a file or folder. If the server supports it, a link that another user has
    /// put in the place of the file is not followed.
    pub(crate) fn begin_set(&self, path: &[u8], attributes: Attributes) -> Result<NewAttributes> {
        let is_link_safe = self.has_lsetstat.get();
        let request = if is_link_safe {
            Request::Lsetstat { path, attributes }
        } else {
            Request::Setstat { path, attributes }
        };
        Ok(NewAttributes { attributes, is_link_safe, set: self.begin(&request)? })
    }

    /// Waits until the attributes of the file that is now at this path are set.
    pub(crate) async fn set(&self, path: &[u8], asked: NewAttributes) -> Result {
        let NewAttributes { attributes, is_link_safe, set } = asked;
        match set.done().await {
            // With an older libc, a server cannot change permissions without following links.
            Err(error) if is_link_safe && (error.is(Code::Failure) || error.is(Code::Unsupported)) => {
                let known = self.lstat(path).await?;
                if known.is_none_or(|known| known.file_type() == Some(FileType::Symlink)) {
                    return Err(error);
                }
                self.has_lsetstat.set(false);
                self.done(Request::Setstat { path, attributes }).await
            }
            set => set,
        }
    }

    /// Asks the server to write a file to its disk (fsync), if it supports this.
    pub(crate) fn begin_sync(&self, handle: &[u8]) -> Result<Option<Pending>> {
        if self.has_fsync { self.begin(&Request::Fsync { handle }).map(Some) } else { Ok(None) }
    }

    /// Makes the server write a file to its disk (fsync), if it supports this, and waits until that is done.
    pub(crate) async fn sync(&self, handle: &[u8]) -> Result {
        match self.begin_sync(handle)? {
            Some(synced) => synced.done().await,
            None => Ok(()),
        }
    }

    /// Renames a file. An existing file of the new name is replaced.
    pub(crate) async fn rename(&self, from: &[u8], to: &[u8]) -> Result {
        if self.has_posix_rename {
            return self.done(Request::PosixRename { from, to }).await;
        }
        // Without the extension, a rename does not replace files. The old file therefore gets another name until the
        // new file has its final name. This may already have happened over a connection that was lost.
        let aside = aside(from);
        if self.lstat(to).await?.is_some() {
            let _ = self.begin(&Request::Remove(&aside))?;
            // Both renames are sent together, so that the connection is not lost between them.
            let _ = self.begin(&Request::Rename { from: to, to: &aside })?;
        }
        if let Err(error) = self.done(Request::Rename { from, to }).await {
            return match self.done(Request::Rename { from: &aside, to }).await {
                Ok(()) => Err(error),
                Err(lost @ Error::Lost(_)) => Err(lost),
                Err(_) if self.lstat(&aside).await?.is_none() => Err(error),
                Err(_) => {
                    let aside = String::from_utf8_lossy(&aside);
                    Err(Error::Local(format!("{error}; the previous file is now {aside}")))
                }
            };
        }
        self.remove_aside(from).await
    }

    /// Removes the old file with its other name, once the new file has its final name.
    pub(crate) async fn remove_aside(&self, from: &[u8]) -> Result {
        if self.has_posix_rename {
            return Ok(());
        }
        match self.remove(&aside(from)).await {
            Err(error) if !error.is(Code::NoSuchFile) => Err(error),
            _ => Ok(()),
        }
    }

    /// The entries of a folder except `.` and `..`, at most `left`, and its invalid names, which no correct server
    /// lists.
    pub(crate) async fn list(&self, path: &[u8], left: &Cell<usize>) -> Result<(Vec<Entry>, Vec<Vec<u8>>)> {
        let handle = self.opened(self.ask(&Request::Opendir(path)).await?)?;
        let (mut entries, mut refused, mut dots) = (Vec::new(), Vec::new(), 0);
        loop {
            match self.ask(&Request::Readdir(&handle)).await? {
                OwnedReply::Names(names) if !names.is_empty() => {
                    left.set(left.get().saturating_sub(names.len()));
                    for (name, attributes) in names {
                        if sftp::is_safe_name(&name) {
                            entries.push((name, attributes));
                        } else if dots < 2 && (name == b"." || name == b"..") {
                            dots += 1;
                        } else {
                            refused.push(name);
                        }
                    }
                }
                OwnedReply::EndOfFile => return Ok((entries, refused)),
                _ => return Err(Error::unexpected("READDIR")),
            }
            if left.get() == 0 {
                let why =
                    format!("the server lists more than {MAX_ITEMS} files, or fewer with very long paths");
                return Err(Error::Local(why));
            }
            if refused.len() > MAX_REFUSED {
                let words = "invalid file names";
                return Err(Error::Local(format!("the server lists more than {MAX_REFUSED} {words}")));
            }
        }
    }
}

/// Name of the old file until the new file has its final name.
fn aside(from: &[u8]) -> Vec<u8> {
    [from, b".old"].concat()
}

/// The request to open a file for reading.
pub(crate) fn to_read(path: &[u8]) -> Request<'_> {
    Request::Open { path, flags: OpenFlags::READ, attributes: Attributes::default() }
}

/// The final attributes of an item's target.
pub(crate) fn final_attributes(item: &Item, preserve: bool, replaced_permissions: Option<u32>) -> Attributes {
    let seconds = |time: i64| time.clamp(0, u32::MAX.into()) as u32;
    let times = Times { accessed_s: seconds(item.accessed_s), modified_s: seconds(item.modified_s) };
    Attributes {
        permissions: if preserve { Some(item.permissions) } else { replaced_permissions },
        times: preserve.then_some(times),
        ..Attributes::default()
    }
}
