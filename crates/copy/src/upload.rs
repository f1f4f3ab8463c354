//! Uploads: copies from this machine to the other machine.

use std::{
    cell::RefCell,
    fs::{self, File, OpenOptions},
    mem::swap,
    os::unix::fs::{FileExt, MetadataExt},
    path::PathBuf,
    rc::Rc,
    sync::Arc,
};

use sftp::{Attributes, Code, FileType, OpenFlags, Request};

use crate::{
    carrier::{Carrier, is_hole, is_hole_free},
    channel::Channel,
    error::{Error, Result},
    file::{FileCopy, Prepared},
    handle::Handle,
    item::{Item, MODE_BITS},
    journal::Known,
    location::{os, shown},
    partial_files::{PartialFile, at_first, beside},
    remote::final_attributes,
    report::Verified,
    span::Span,
    verify::READING,
};

/// Maximum number of partial files of a small file that lost connections may have left.
const MAX_PARTS: u32 = 8;
impl Carrier {
    /// Opens the source. Creates the partial file on the other machine, or continues that of an earlier run.
    pub(crate) async fn prepare_up(&self, channel: &Rc<Channel>, file: &FileCopy) -> Result<Prepared> {
        let local = open_source(file)?;
        let (target, replaced_permissions) = replaced(channel, &file.item).await?;
        let mode = at_first(&file.item, replaced_permissions);
        let identity = self.identity(file);
        let Known { part: former, mut chunks } = self.known(&identity);
        let (mut name, mut former_bytes) = (self.part_name(file), 0);
        let mut temporary = beside(&target, &name);
        self.part(file, PartialFile::There(Rc::clone(channel), temporary.clone()));
        self.remove_former(channel, file, (&target, former.as_deref()));
        let open = to_make(&temporary, mode);
        let opened = match channel.handle(file.number, &open).await {
            // An earlier attempt of this run, over a connection that was lost, has already created the file.
            Err(Error::Refused(_)) if channel.remove(&temporary).await.is_ok() => {
                channel.handle(file.number, &open).await
            }
            opened => opened,
        };
        let made = opened?;
        if let Some(former) = former {
            let mut surplus = beside(&target, &former);
            let bytes = if chunks.is_empty() {
                None
            } else {
                Error::unless_lost(former_size(channel, &surplus, &made, mode).await)?.ok().flatten()
            };
            drop(made);
            if let Some(bytes) = bytes {
                (former_bytes, name) = (bytes, former);
                swap(&mut temporary, &mut surplus);
                channel.close(file.number)?;
            } else {
                chunks.clear();
            }
            let _ = channel.begin(&Request::Remove(&surplus))?;
        }
        let journal = self.journal(&identity, &name, &chunks);
        if journal.is_some() {
            self.parts.borrow_mut().remove(&file.number);
        } else {
            self.part(file, PartialFile::There(Rc::clone(channel), temporary.clone()));
        }
        let prepared = Prepared {
            local: Arc::new(local),
            temporary,
            target,
            here: None,
            replaced_permissions,
            journal: RefCell::new(journal),
            known: RefCell::new(chunks),
            former_bytes,
        };
        // The size is set first, because the checksum would not include a hole at the end.
        if !is_hole_free(&prepared.local, file.item.size_bytes) {
            let handle = self.handle_up(channel, file, &prepared).await?;
            let attributes = Attributes { size: Some(file.item.size_bytes), ..Attributes::default() };
            channel.begin(&Request::Fsetstat { handle: &handle, attributes })?.done().await?;
        }
        Ok(prepared)
    }

    /// Asks the server to remove the partial files of runs that were killed, except the one that is `kept`.
    fn remove_former(&self, channel: &Channel, file: &FileCopy, (target, kept): (&[u8], Option<&str>)) {
        for name in self.former_names(file).into_iter().filter(|name| Some(&**name) != kept) {
            let _ = channel.begin(&Request::Remove(&beside(target, &name)));
        }
    }

    async fn handle_up(&self, channel: &Channel, file: &FileCopy, prepared: &Prepared) -> Result<Rc<Handle>> {
        let open = Request::Open {
            path: &prepared.temporary,
            flags: OpenFlags::WRITE,
            attributes: Attributes::default(),
        };
        channel.handle(file.number, &open).await
    }

    pub(crate) async fn span_up(
        &self,
        channel: &Channel,
        file: &FileCopy,
        prepared: &Prepared,
        span: &Span,
    ) -> Result {
        let handle = self.handle_up(channel, file, prepared).await?;
        self.write(channel, &handle, &prepared.local, span, prepared.former_bytes).await
    }

    /// Writes a part of a local file to the other machine with many concurrent requests. Skips holes from the offset
    /// `holes_from` on.
    async fn write(
        &self,
        channel: &Channel,
        handle: &[u8],
        local: &File,
        span: &Span,
        holes_from: u64,
    ) -> Result {
        let mut pending = Vec::new();
        while span.left() > 0 {
            let most = channel.next_write_bytes(&self.governor);
            let room = channel.room(most, &self.governor).await;
            // Another channel may have taken the rest meanwhile.
            let Some((offset, bytes)) = span.take(most) else {
                room.for_bytes(0);
                break;
            };
            if offset >= holes_from && is_hole(local, offset, bytes as u64) {
                room.for_bytes(0);
                continue;
            }
            let fill = |space: &mut [u8]| local.read_exact_at(space, offset);
            match channel.begin_write(room, (handle, offset, bytes), fill) {
                Ok(answer) => pending.push(answer),
                // The source has become shorter.
                Err(Error::Local(_))
                    if local.metadata().is_ok_and(|now| now.len() < offset + bytes as u64) =>
                {
                    return Err(Error::Changed);
                }
                Err(error) => return Err(error),
            }
        }
        span.sent();
        for answer in pending {
            answer.done().await?;
        }
        Ok(())
    }

    pub(crate) async fn sync_up(&self, channel: &Channel, file: &FileCopy, prepared: &Prepared) -> Result {
        let handle = self.handle_up(channel, file, prepared).await?;
        channel.sync(&handle).await
    }

    /// Gives a complete file its attributes and its final name.
    pub(crate) async fn finish_up(&self, channel: &Channel, file: &FileCopy, prepared: &Prepared) -> Result {
        let may_have_name = file.may_have_name.get();
        match self.give_name_up(channel, file, prepared).await {
            // An earlier rename may have succeeded although its answer was lost.
            Err(error) if error.is(Code::NoSuchFile) && may_have_name => {
                let size_bytes = file.item.size_bytes;
                let there = channel.stat(&prepared.target).await?.and_then(|there| there.size);
                let is_whole = there == Some(size_bytes)
                    && match self
                        .hashers
                        .hash(&prepared.target, None, size_bytes)
                        .await
                        .filter(|_| self.options.verify)
                    {
                        Some(there) => {
                            there == self.local_hash(&prepared.local, 0, size_bytes).await?.to_string()
                        }
                        None => true,
                    };
                if is_whole { channel.remove_aside(&prepared.temporary).await } else { Err(error) }
            }
            named => named,
        }
    }

    async fn give_name_up(&self, channel: &Channel, file: &FileCopy, prepared: &Prepared) -> Result {
        let handle = self.handle_up(channel, file, prepared).await?;
        // All requests are sent at once, because a server handles the requests of a channel in order.
        let synced = if self.options.sync { channel.begin_sync(&handle)? } else { None };
        drop(handle);
        let closed = [channel.close(file.number)?, channel.close(file.number | READING)?];
        for answer in synced.into_iter().chain(closed.into_iter().flatten()) {
            answer.done().await?;
        }
        unchanged(file, &prepared.local)?;
        file.may_have_name.set(true);
        self.name_up(channel, file, (&prepared.temporary, &prepared.target), prepared.replaced_permissions)
            .await
    }

    async fn name_up(
        &self,
        channel: &Channel,
        file: &FileCopy,
        (temporary, target): (&[u8], &[u8]),
        replaced_permissions: Option<u32>,
    ) -> Result {
        let attributes = final_attributes(&file.item, self.options.preserve, replaced_permissions);
        let set = if attributes == Attributes::default() {
            None
        } else {
            Some(channel.begin_set(temporary, attributes)?)
        };
        channel.rename(temporary, target).await?;
        let Some(set) = set else { return Ok(()) };
        if self.options.preserve && !file.item.has_sftp_times() {
            let target = shown(target);
            self.warn(format!(
                "{target}: its time is not within SFTP's range (1970 to 2106), so it got the nearest one"
            ));
        }
        if let Err(error) = Error::unless_lost(channel.set(target, set).await)? {
            self.warn(format!("{}: cannot set times and permissions: {error}", shown(target)));
        }
        Ok(())
    }

    /// Copies a small file with as many concurrent requests as possible.
    pub(crate) async fn small_up(&self, channel: &Rc<Channel>, file: &FileCopy) -> Result<Verified> {
        let local = Arc::new(open_source(file)?);
        let (target, replaced_permissions) = replaced(channel, &file.item).await?;
        self.remove_former(channel, file, (&target, None));
        let temporary = beside(&target, &self.part_name(file));
        let mode = at_first(&file.item, replaced_permissions);
        let (earlier, temporary, handle) = self.make_there(channel, file, (temporary, mode)).await?;
        let carried = async {
            self.write(channel, &handle, &local, &Span::new(0, file.item.size_bytes), u64::MAX).await?;
            let sync = if self.options.sync { channel.begin_sync(&handle)? } else { None };
            let closed = channel.begin(&Request::Close(&handle.into_bytes()))?;
            if let Some(sync) = sync {
                sync.done().await?;
            }
            closed.done().await?;
            let verified = self.verify_small(channel, file, (&local, &temporary)).await;
            unchanged(file, &local)?;
            let verified = verified?;
            self.name_up(channel, file, (&temporary, &target), replaced_permissions).await?;
            // An attempt over a lost connection may have renamed the old file to one of these names.
            for earlier in &earlier {
                channel.remove_aside(earlier).await?;
            }
            Ok(verified)
        };
        let carried = carried.await;
        if matches!(&carried, Err(error) if !matches!(error, Error::Lost(_))) {
            let _ = channel.remove(&temporary).await;
        }
        carried
    }

    /// Creates the partial file of a small file. An existing one is removed, and the new one gets another name: late
    /// requests over a lost connection could empty the new file or rename it to the final name. Also returns the names
    /// that existed.
    async fn make_there(
        &self,
        channel: &Rc<Channel>,
        file: &FileCopy,
        (first, mode): (Vec<u8>, u32),
    ) -> Result<(Vec<Vec<u8>>, Vec<u8>, Handle)> {
        let (mut earlier, mut path) = (Vec::new(), first.clone());
        let mut number = 1;
        loop {
            self.part(file, PartialFile::There(Rc::clone(channel), path.clone()));
            match channel.ask(&to_make(&path, mode)).await {
                Err(Error::Refused(_)) if number < MAX_PARTS && channel.remove(&path).await.is_ok() => {}
                opened => return Ok((earlier, path, channel.opened(opened?)?)),
            }
            earlier.push(path);
            path = [&first[..], format!("-{number}.part").as_bytes()].concat();
            number += 1;
        }
    }
}

/// Opens a source. This never blocks, even if the source has become something else, such as a FIFO.
pub(crate) fn open_source(file: &FileCopy) -> Result<File> {
    let path = PathBuf::from(os(&file.item.source));
    let opened = files::open_with(OpenOptions::new().read(true), &path);
    opened.map_err(|error| Error::local("read the source", &error))
}

/// The request that creates and opens a new file.
fn to_make(path: &[u8], mode: u32) -> Request<'_> {
    let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
    let attributes = Attributes { permissions: Some(mode), ..Attributes::default() };
    Request::Open { path, flags, attributes }
}

/// Size of an earlier run's partial file; none if it is not ours. It is ours if its owner is that of the file that was
/// just `made` and it grants other users no more rights than `mode`.
async fn former_size(channel: &Channel, path: &[u8], made: &[u8], mode: u32) -> Result<Option<u64>> {
    // Opening a FIFO would block the server until another process opens its other end.
    if channel.lstat(path).await?.is_none_or(|known| known.file_type() != Some(FileType::Regular)) {
        return Ok(None);
    }
    let open = Request::Open { path, flags: OpenFlags::WRITE, attributes: Attributes::default() };
    let opened = channel.opened(channel.ask(&open).await?)?;
    let asked = [channel.begin(&Request::Fstat(&opened))?, channel.begin(&Request::Fstat(made))?];
    let [former, made] = asked;
    let (former, made) = (former.attributes().await?, made.attributes().await?);
    let user = |known: &Attributes| known.owner.map(|owner| owner.uid);
    let is_ours = user(&former) == user(&made) && former.permissions.unwrap_or(0) & 0o077 & !mode == 0;
    Ok(is_ours.then(|| former.size.unwrap_or(u64::MAX)))
}

/// Returns the file to replace, which is the target or the file that it links to, and the permissions of an existing
/// file.
async fn replaced(channel: &Channel, item: &Item) -> Result<(Vec<u8>, Option<u32>)> {
    let target = &item.target;
    let Some(known) = channel.lstat(target).await? else { return Ok((target.to_vec(), None)) };
    let (target, known) = if known.file_type() == Some(FileType::Symlink) {
        // Below a folder that the user named, the link itself is replaced.
        if !item.is_named() {
            return Ok((target.clone(), None));
        }
        // The file that a link leads to is replaced, not the link itself, unless the link dangles.
        match channel.stat(target).await? {
            Some(behind) => (channel.real_path(target).await?, behind),
            None => return Ok((target.to_vec(), None)),
        }
    } else {
        (target.to_vec(), known)
    };
    match known.file_type() {
        Some(FileType::Regular) | None => Ok((target, known.permissions.map(|mode| mode & MODE_BITS))),
        Some(_) => Err(Error::not_regular(&item.target)),
    }
}

/// Fails if the source has changed since it was listed.
pub(crate) fn unchanged(file: &FileCopy, local: &File) -> Result {
    // Kernel files, such as those in `/proc`, report the size 0 but have contents.
    if file.item.size_bytes == 0 && local.read_at(&mut [0], 0).is_ok_and(|read| read > 0) {
        return Err(Error::Local(
            "the source has contents but reports size 0, as files in /proc do; cat it to a regular file and copy that".to_owned(),
        ));
    }
    // Both the open file and the file that now has its name are checked.
    for now in [local.metadata(), fs::metadata(os(&file.item.source))] {
        let now = now.map_err(|error| Error::local("read the source's size", &error))?;
        let modified_ns = i128::from(now.mtime()) * 1_000_000_000 + i128::from(now.mtime_nsec());
        if now.len() != file.item.size_bytes || modified_ns != file.item.modified_ns {
            return Err(Error::Changed);
        }
    }
    Ok(())
}
