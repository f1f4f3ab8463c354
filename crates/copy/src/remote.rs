//! What can be asked of a server about its files, each answer checked.

use sftp::{Attributes, Code, OpenFlags, Request, Times};

use crate::{
    channel::{Channel, Pending},
    file::Item,
    said::Said,
    tree::MAX_ITEMS,
    trouble::Trouble,
};

/// An entry of a folder.
pub(crate) type Entry = (Vec<u8>, Attributes);

/// A folder to come.
pub(crate) struct NewFolder {
    made: Pending,
    known: Pending,
}

impl NewFolder {
    /// Waits until it is there.
    pub(crate) async fn made(self) -> Result<(), Trouble> {
        match self.made.done().await {
            Err(Trouble::Refused(refusal)) => match self.known.answer().await {
                Ok(Said::Attributes(known)) if known.file_type() == Some(sftp::FileType::Directory) => Ok(()),
                Err(trouble @ Trouble::Lost(_)) => Err(trouble),
                _ => Err(Trouble::Refused(refusal)),
            },
            made => made,
        }
    }
}

impl Channel {
    async fn done(&self, request: Request<'_>) -> Result<(), Trouble> {
        self.begin(&request)?.done().await
    }

    async fn attributes(&self, request: Request<'_>) -> Result<Option<Attributes>, Trouble> {
        match self.ask(&request).await {
            Ok(Said::Attributes(attributes)) => Ok(Some(attributes)),
            Ok(_) => Err(Trouble::unexpected("STAT")),
            Err(trouble) if trouble.is(Code::NoSuchFile) => Ok(None),
            Err(trouble) => Err(trouble),
        }
    }

    /// Attributes of what a path leads to; none if there is nothing.
    pub(crate) async fn stat(&self, path: &[u8]) -> Result<Option<Attributes>, Trouble> {
        self.attributes(Request::Stat { path }).await
    }

    /// Attributes of a path itself, even if it is a link.
    pub(crate) async fn lstat(&self, path: &[u8]) -> Result<Option<Attributes>, Trouble> {
        self.attributes(Request::Lstat { path }).await
    }

    async fn name(&self, request: Request<'_>) -> Result<Vec<u8>, Trouble> {
        match self.ask(&request).await? {
            Said::Names(mut names) if names.len() == 1 => Ok(names.swap_remove(0).0),
            _ => Err(Trouble::unexpected("a path")),
        }
    }

    /// The absolute path behind links.
    pub(crate) async fn real_path(&self, path: &[u8]) -> Result<Vec<u8>, Trouble> {
        self.name(Request::Realpath { path }).await
    }

    /// What a link points to.
    pub(crate) async fn read_link(&self, path: &[u8]) -> Result<Vec<u8>, Trouble> {
        self.name(Request::Readlink { path }).await
    }

    pub(crate) async fn symlink(&self, target: &[u8], link: &[u8]) -> Result<(), Trouble> {
        self.done(Request::Symlink { target, link }).await
    }

    pub(crate) async fn remove(&self, path: &[u8]) -> Result<(), Trouble> {
        self.done(Request::Remove { path }).await
    }

    /// Asks to make a folder, unless it is there.
    pub(crate) fn begin_folder(&self, path: &[u8], permissions: u32) -> Result<NewFolder, Trouble> {
        let attributes = Attributes { permissions: Some(permissions), ..Attributes::default() };
        let made = self.begin(&Request::Mkdir { path, attributes })?;
        Ok(NewFolder { made, known: self.begin(&Request::Stat { path })? })
    }

    pub(crate) async fn set(&self, path: &[u8], attributes: Attributes) -> Result<(), Trouble> {
        self.done(Request::Setstat { path, attributes }).await
    }

    /// Asks to bring a file to the disk, where the server can.
    pub(crate) fn begin_sync(&self, handle: &[u8]) -> Result<Option<Pending>, Trouble> {
        if self.has_fsync { self.begin(&Request::Fsync { handle }).map(Some) } else { Ok(None) }
    }

    /// Brings a file to the disk, where the server can.
    pub(crate) async fn sync(&self, handle: &[u8]) -> Result<(), Trouble> {
        match self.begin_sync(handle)? {
            Some(synced) => synced.done().await,
            None => Ok(()),
        }
    }

    /// Gives a file its name, in the place of what has it.
    pub(crate) async fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), Trouble> {
        if self.has_posix_rename {
            return self.done(Request::PosixRename { from, to }).await;
        }
        if self.lstat(to).await?.is_none() {
            return self.done(Request::Rename { from, to }).await;
        }
        // Without the extension, a rename replaces nothing. What is there is kept until the new file has its name.
        let aside = [from, b".old"].concat();
        self.done(Request::Rename { from: to, to: &aside }).await?;
        if let Err(trouble) = self.done(Request::Rename { from, to }).await {
            let _ = self.done(Request::Rename { from: &aside, to }).await;
            return Err(trouble);
        }
        self.remove(&aside).await
    }

    /// The entries of a folder but `.` and `..`; and the names that no sound server lists.
    pub(crate) async fn list(&self, path: &[u8]) -> Result<(Vec<Entry>, Vec<Vec<u8>>), Trouble> {
        let Said::Handle(handle) = self.ask(&Request::Opendir { path }).await? else {
            return Err(Trouble::unexpected("OPENDIR"));
        };
        let (mut entries, mut refused) = (Vec::new(), Vec::new());
        loop {
            match self.ask(&Request::Readdir { handle: &handle }).await? {
                Said::Names(names) => {
                    for (name, attributes) in names {
                        if sftp::is_safe_name(&name) {
                            entries.push((name, attributes));
                        } else if name != b"." && name != b".." {
                            refused.push(name);
                        }
                    }
                }
                Said::EndOfFile => break,
                _ => return Err(Trouble::unexpected("READDIR")),
            }
            if entries.len() > MAX_ITEMS {
                return Err(Trouble::Local(format!("the server lists more than {MAX_ITEMS} files")));
            }
        }
        self.done(Request::Close { handle: &handle }).await?;
        Ok((entries, refused))
    }
}

/// Opens a file to be read.
pub(crate) fn to_read(path: &[u8]) -> Request<'_> {
    Request::Open { path, flags: OpenFlags::READ, attributes: Attributes::default() }
}

/// What an item's target gets at the end.
pub(crate) fn final_attributes(item: &Item, preserve: bool, replaced_permissions: Option<u32>) -> Attributes {
    let seconds = |time: i64| u32::try_from(time).unwrap_or(0);
    let times = Times { accessed_s: seconds(item.accessed_s), modified_s: seconds(item.modified_s) };
    Attributes {
        permissions: if preserve { Some(item.permissions) } else { replaced_permissions },
        times: preserve.then_some(times),
        ..Attributes::default()
    }
}
