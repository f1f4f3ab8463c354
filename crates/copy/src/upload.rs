//! From this machine to the other.

use std::{
    cell::RefCell,
    fs::{self, File},
    os::unix::fs::{FileExt, MetadataExt},
    rc::Rc,
    sync::Arc,
};

use sftp::{Attributes, Code, FileType, OpenFlags, Request};

use crate::{
    carrier::{Carrier, is_hole},
    channel::Channel,
    file::{FileCopy, Item, MODE_BITS, Prepared},
    handle::Handle,
    hash::Sum,
    journal::Known,
    location::{os, shown},
    parts::temporary_name,
    remote::{final_attributes, to_read},
    report::Verified,
    span::Span,
    trouble::{Result, Trouble},
};

/// Parts of a small file that lost connections may have left.
const MAX_PARTS: u32 = 8;
/// Handles for reading back have numbers of their own.
pub(crate) const READING: u64 = 1 << 63;

impl Carrier {
    /// Opens the source, and finds what an earlier run has brought.
    pub(crate) async fn prepare_up(&self, channel: &Rc<Channel>, file: &FileCopy) -> Result<Prepared> {
        let local = open_source(file)?;
        let (target, replaced_permissions) = replaced(channel, &file.item).await?;
        let identity = self.identity(file);
        let (journal, Known { chunks, former }) = self.journal(&identity);
        if let Some(former) = former {
            let _ = channel.remove(&temporary_name(&self.manner, &former, &target)).await;
        }
        let temporary = temporary_name(&self.manner, &identity, &target);
        let mut flags = OpenFlags::WRITE | OpenFlags::CREATE;
        if chunks.is_empty() {
            flags = flags | OpenFlags::EXCLUSIVE;
        }
        let open = Request::Open { path: &temporary, flags, attributes: at_first(file) };
        if journal.is_none() {
            self.part(channel, file, &temporary);
        }
        let opened = match channel.handle(file.number, &open).await {
            // Without chunks to go on with, what lies there under this name is worth nothing.
            Err(Trouble::Refused(_)) if channel.remove(&temporary).await.is_ok() => {
                channel.handle(file.number, &open).await
            }
            opened => opened,
        };
        let handle = match Trouble::unless_lost(opened)? {
            Ok(handle) => handle,
            Err(trouble) => {
                if let Some(journal) = journal.filter(|_| chunks.is_empty()) {
                    journal.remove();
                }
                return Err(trouble);
            }
        };
        let former_bytes = if chunks.is_empty() {
            0
        } else {
            let known = channel.begin(&Request::Fstat(&handle))?.attributes().await;
            Trouble::unless_lost(known)?.ok().and_then(|known| known.size).unwrap_or(u64::MAX)
        };
        Ok(Prepared {
            local: Arc::new(local),
            temporary,
            target,
            replaced_permissions,
            journal: RefCell::new(journal),
            known: RefCell::new(chunks),
            former_bytes,
        })
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

    /// Writes a part of a file of this machine, many requests at once. Leaves out the holes from an offset on.
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
                // A source that became shorter.
                Err(Trouble::Local(_))
                    if local.metadata().is_ok_and(|now| now.len() < offset + bytes as u64) =>
                {
                    return Err(Trouble::Changed);
                }
                Err(trouble) => return Err(trouble),
            }
        }
        span.sent();
        for answer in pending {
            answer.done().await?;
        }
        Ok(())
    }

    /// The hash of a chunk that was written: by a shell there, else of what is read back.
    pub(crate) async fn hash_up(
        &self,
        channel: &Channel,
        file: &FileCopy,
        prepared: &Prepared,
        (begin, here): (u64, Sum),
    ) -> Result<String> {
        let length = here.bytes;
        // A hole at its end is not there before the file has its size.
        let has_hole = is_hole(&prepared.local, begin + length - 1, 1);
        if !has_hole && let Some(hash) = self.hashers.hash_chunk(&prepared.temporary, begin, here).await {
            return Ok(hash);
        }
        let handle = channel.handle(file.number | READING, &to_read(&prepared.temporary)).await?;
        let mut bytes = self.read(channel, &handle, begin..begin + length).await?;
        file.lacks_hash.set(true);
        if has_hole {
            bytes.resize(length as usize, 0);
        }
        Ok(Sum::of(&mut bytes).to_string())
    }

    pub(crate) async fn sync_up(&self, channel: &Channel, file: &FileCopy, prepared: &Prepared) -> Result {
        let handle = self.handle_up(channel, file, prepared).await?;
        channel.sync(&handle).await
    }

    /// Gives a file that is whole its size, its attributes and its name.
    pub(crate) async fn finish_up(&self, channel: &Channel, file: &FileCopy, prepared: &Prepared) -> Result {
        let may_have_name = file.may_have_name.get();
        match self.give_name_up(channel, file, prepared).await {
            // The name was given, and the answer was lost.
            Err(trouble) if trouble.is(Code::NoSuchFile) && may_have_name => {
                let size_bytes = file.item.size_bytes;
                let there = channel.stat(&prepared.target).await?.and_then(|there| there.size);
                let is_whole = there == Some(size_bytes)
                    && match self.hashers.hash(&prepared.target, None).await.filter(|_| self.manner.verify) {
                        Some(there) => {
                            there == self.local_hash(&prepared.local, 0, size_bytes).await?.to_string()
                        }
                        None => true,
                    };
                if is_whole { channel.remove_aside(&prepared.temporary).await } else { Err(trouble) }
            }
            named => named,
        }
    }

    async fn give_name_up(&self, channel: &Channel, file: &FileCopy, prepared: &Prepared) -> Result {
        let handle = self.handle_up(channel, file, prepared).await?;
        // All at once: a server takes the requests of a channel one after the other. What was written has given the file its size,
        // but for a hole at its end.
        let size = Attributes { size: Some(file.item.size_bytes), ..Attributes::default() };
        let sized = if is_hole(&prepared.local, file.item.size_bytes - 1, 1) {
            Some(channel.begin(&Request::Fsetstat { handle: &handle, attributes: size })?)
        } else {
            None
        };
        let synced = if self.manner.sync { channel.begin_sync(&handle)? } else { None };
        drop(handle);
        let closed = [channel.close(file.number)?, channel.close(file.number | READING)?];
        for answer in sized.into_iter().chain(synced).chain(closed.into_iter().flatten()) {
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
        let attributes = final_attributes(&file.item, self.manner.preserve, replaced_permissions);
        let set = if attributes == Attributes::default() {
            None
        } else {
            Some(channel.begin(&Request::Setstat { path: temporary, attributes })?)
        };
        channel.rename(temporary, target).await?;
        let Some(set) = set else { return Ok(()) };
        let target = shown(target);
        if self.manner.preserve && !file.item.has_sftp_times() {
            self.warn(format!("{target}: SFTP has times from 1970 to 2106; it got the nearest one"));
        }
        if let Err(trouble) = Trouble::unless_lost(set.done().await)? {
            self.warn(format!("{target}: cannot set times and permissions: {trouble}"));
        }
        Ok(())
    }

    /// A small file: all its requests at once, as far as the answers allow.
    pub(crate) async fn small_up(&self, channel: &Rc<Channel>, file: &FileCopy) -> Result<Verified> {
        let local = Arc::new(open_source(file)?);
        let (target, replaced_permissions) = replaced(channel, &file.item).await?;
        let temporary = temporary_name(&self.manner, &self.identity(file), &target);
        let (earlier, temporary, handle) = self.make_there(channel, file, temporary).await?;
        let carried = async {
            self.write(channel, &handle, &local, &Span::new(0, file.item.size_bytes), u64::MAX).await?;
            let sync = if self.manner.sync { channel.begin_sync(&handle)? } else { None };
            let closed = handle.close(channel)?;
            if let Some(sync) = sync {
                sync.done().await?;
            }
            closed.done().await?;
            let verified = self.verify_small_up(channel, file, (&local, &temporary)).await;
            unchanged(file, &local)?;
            let verified = verified?;
            self.name_up(channel, file, (&temporary, &target), replaced_permissions).await?;
            // For one of these, a connection that was lost may have set the old file aside.
            for earlier in &earlier {
                channel.remove_aside(earlier).await?;
            }
            Ok(verified)
        };
        let carried = carried.await;
        if matches!(&carried, Err(trouble) if !matches!(trouble, Trouble::Lost(_))) {
            let _ = channel.remove(&temporary).await;
        }
        carried
    }

    /// Makes a part of a small file. If there is one, it is removed, and this one gets another name: what was sent over a connection that
    /// was lost may still arrive, and would empty this one or give it the name of the whole. Tells the names that were taken, too.
    async fn make_there(
        &self,
        channel: &Rc<Channel>,
        file: &FileCopy,
        first: Vec<u8>,
    ) -> Result<(Vec<Vec<u8>>, Vec<u8>, Handle)> {
        let (mut earlier, mut path) = (Vec::new(), first.clone());
        let mut number = 1;
        loop {
            let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
            let open = Request::Open { path: &path, flags, attributes: at_first(file) };
            self.part(channel, file, &path);
            match channel.ask(&open).await {
                Err(Trouble::Refused(_)) if number < MAX_PARTS && channel.remove(&path).await.is_ok() => {}
                opened => return Ok((earlier, path, channel.opened(opened?)?)),
            }
            earlier.push(path);
            path = [&first[..], format!("-{number}.part").as_bytes()].concat();
            number += 1;
        }
    }

    async fn verify_small_up(
        &self,
        channel: &Channel,
        file: &FileCopy,
        (local, temporary): (&Arc<File>, &[u8]),
    ) -> Result<Verified> {
        if !self.manner.verify {
            return Ok(Verified::No);
        }
        let size_bytes = file.item.size_bytes;
        let here = self.local_hash(local, 0, size_bytes).await?.to_string();
        let (there, verified) = match self.hashers.hash(temporary, None).await {
            Some(hash) => (hash, Verified::ByChecksum),
            None => {
                let handle = channel.opened(channel.ask(&to_read(temporary)).await?)?;
                let mut bytes = self.read(channel, &handle, 0..size_bytes).await?;
                (Sum::of(&mut bytes).to_string(), Verified::ReadBack)
            }
        };
        if there == here { Ok(verified) } else { Err(Trouble::Differs { offset: 0 }) }
    }
}

pub(crate) fn open_source(file: &FileCopy) -> Result<File> {
    File::open(os(&file.item.source)).map_err(|error| Trouble::local("read the source", &error))
}

/// What the new file may be read and written by until it is whole.
fn at_first(file: &FileCopy) -> Attributes {
    Attributes { permissions: Some(file.item.permissions & 0o777 | 0o600), ..Attributes::default() }
}

/// The file behind a target, and the permissions of the one that is there.
async fn replaced(channel: &Channel, item: &Item) -> Result<(Vec<u8>, Option<u32>)> {
    let target = &item.target;
    let Some(known) = channel.lstat(target).await? else { return Ok((target.to_vec(), None)) };
    let (target, known) = if known.file_type() == Some(FileType::Symlink) {
        // Below a folder, a link is replaced itself.
        if !item.is_named {
            return Ok((target.clone(), None));
        }
        // The file is replaced, not the link. A link to nothing is.
        match channel.stat(target).await? {
            Some(behind) => (channel.real_path(target).await?, behind),
            None => return Ok((target.to_vec(), None)),
        }
    } else {
        (target.to_vec(), known)
    };
    match known.file_type() {
        Some(FileType::Regular) | None => Ok((target, known.permissions.map(|mode| mode & MODE_BITS))),
        Some(_) => Err(Trouble::not_regular(&item.target)),
    }
}

/// Refuses a source that is not what it was when it was listed.
pub(crate) fn unchanged(file: &FileCopy, local: &File) -> Result {
    // Files of the kernel have no size, and contents.
    if file.item.size_bytes == 0 && local.read_at(&mut [0], 0).is_ok_and(|read| read > 0) {
        return Err(Trouble::Local(
            "the source has contents but reports size 0, as files in /proc do; cat it to a regular file and copy that".to_owned(),
        ));
    }
    // What was read, and what has its name now.
    for now in [local.metadata(), fs::metadata(os(&file.item.source))] {
        let now = now.map_err(|error| Trouble::local("read the source's size", &error))?;
        let modified_ns = i128::from(now.mtime()) * 1_000_000_000 + i128::from(now.mtime_nsec());
        if now.len() != file.item.size_bytes || modified_ns != file.item.modified_ns {
            return Err(Trouble::Changed);
        }
    }
    Ok(())
}
