//! Downloads: copies from the other machine to this machine.

use std::{
    cell::RefCell,
    fs::{self, File},
    io,
    ops::Range,
    os::unix::fs::{FileExt, PermissionsExt},
    rc::Rc,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use sftp::{Attributes, Request};

use crate::{
    carrier::{Carrier, is_hole, sync_local},
    channel::Channel,
    error::{Error, Result},
    file::{FileCopy, Prepared},
    item::Item,
    journal::Known,
    partial_files::{PartialFile, at_first},
    place::Place,
    remote::to_read,
    reply::OwnedReply,
    report::Verified,
    span::Span,
};

impl Carrier {
    /// Creates the partial file on this machine, or continues that of an earlier run.
    pub(crate) async fn prepare_down(&self, file: &FileCopy) -> Result<Prepared> {
        let (target, replaced_permissions) = self.held.target(&file.item)?;
        let mode = at_first(&file.item, replaced_permissions);
        let identity = self.identity(file);
        let Known { part: former, mut chunks } = self.known(&identity);
        let former = former.map(|name| (target.beside(&name), name));
        // A partial file without any known chunk is useless.
        let taken_up = match &former {
            Some((part, _)) if !chunks.is_empty() => {
                part.take_up(mode).filter(|local| local.set_len(file.item.size_bytes).is_ok())
            }
            _ => None,
        };
        let (part, name, local) = match (former, taken_up) {
            (Some((part, name)), Some(local)) => (part, name, local),
            (former, _) => {
                let _ = former.map(|(part, _)| part.remove());
                chunks.clear();
                let (part, name) = self.new_part_here(file, &target);
                let local = part.create(mode, file.item.size_bytes)?;
                (part, name, local)
            }
        };
        let journal = self.journal(&identity, &name, &chunks);
        if journal.is_some() {
            self.parts.borrow_mut().remove(&file.number);
        } else {
            self.part(file, PartialFile::Here(part.clone()));
        }
        let bytes = |place: &Place| place.path().into_os_string().into_encoded_bytes();
        Ok(Prepared {
            local: Arc::new(local),
            temporary: bytes(&part),
            target: bytes(&target),
            here: Some([part, target]),
            replaced_permissions,
            journal: RefCell::new(journal),
            known: RefCell::new(chunks),
            former_bytes: 0,
        })
    }

    /// The place and the name of a new partial file on this machine. Removes the partial files of runs that were
    /// killed.
    fn new_part_here(&self, file: &FileCopy, target: &Place) -> (Place, String) {
        for name in self.former_names(file) {
            let _ = target.beside(&name).remove();
        }
        let name = self.part_name(file);
        let part = target.beside(&name);
        self.part(file, PartialFile::Here(part.clone()));
        (part, name)
    }

    pub(crate) async fn span_down(
        &self,
        channel: &Channel,
        file: &FileCopy,
        prepared: &Prepared,
        span: &Span,
    ) -> Result {
        let handle = channel.handle(file.number, &to_read(&file.item.source)).await?;
        // Each channel opens the path at another time, so this channel may have opened a different file.
        let opened = channel.begin(&Request::Fstat(&handle))?;
        self.fetch(channel, &handle, &prepared.local, span).await?;
        unchanged(&file.item, opened.attributes().await?)
    }

    /// Reads a range of a remote file into the local file with many concurrent requests. Blocks of zeros stay holes.
    async fn fetch(&self, channel: &Channel, handle: &[u8], local: &Arc<File>, span: &Span) -> Result {
        let local = Arc::clone(local);
        let write = move |offset: u64, data: &[u8]| {
            if data.iter().all(|byte| *byte == 0) && is_hole(&local, offset, data.len() as u64) {
                return Ok(());
            }
            local.write_all_at(data, offset).map_err(|error| Error::local("write the file here", &error))
        };
        match self.receive(channel, handle, span, write).await? {
            None => Ok(()),
            Some(_) => Err(Error::Changed),
        }
    }

    /// Reads a range of a remote file. Returns fewer bytes if the file ends earlier.
    pub(crate) async fn read(&self, channel: &Channel, handle: &[u8], range: Range<u64>) -> Result<Vec<u8>> {
        let begin = range.start;
        let bytes = Rc::new(RefCell::new(vec![0; (range.end - begin) as usize]));
        let span = Span::new(begin, range.end);
        let taken = Rc::clone(&bytes);
        let ended = self.receive(channel, handle, &span, move |offset, data: &[u8]| {
            let at = (offset - begin) as usize;
            // Once a missing piece has ended the read, the buffer is gone and later pieces are dropped.
            if let Some(space) = taken.borrow_mut().get_mut(at..at + data.len()) {
                space.copy_from_slice(data);
            }
            Ok(())
        });
        let ended = ended.await?;
        let mut bytes = bytes.take();
        if let Some(end) = ended {
            bytes.truncate((end - begin) as usize);
        }
        Ok(bytes)
    }

    /// Reads a range of a remote file and passes its pieces to `take`. Returns the end of the file if it was reached.
    async fn receive(
        &self,
        channel: &Channel,
        handle: &[u8],
        span: &Span,
        take: impl Fn(u64, &[u8]) -> Result + 'static,
    ) -> Result<Option<u64>> {
        let take = Rc::new(take);
        let at = |offset: u64| {
            let take = Rc::clone(&take);
            move |data: &[u8]| take(offset, data)
        };
        let mut pending = Vec::new();
        while span.left() > 0 {
            let most = channel.next_read_bytes(&self.governor);
            let room = channel.room(most, &self.governor).await;
            // Another channel may have taken the rest meanwhile.
            let Some((offset, bytes)) = span.take(most) else {
                room.for_bytes(0);
                break;
            };
            pending.push((offset, bytes, channel.begin_read(room, (handle, offset, bytes), at(offset))?));
        }
        span.sent();
        for (mut offset, mut bytes, answer) in pending {
            let mut answer = answer.answer().await?;
            loop {
                let taken = match answer {
                    OwnedReply::Taken(taken) => taken,
                    OwnedReply::EndOfFile => return Ok(Some(offset)),
                    _ => return Err(Error::unexpected("READ")),
                };
                offset += taken as u64;
                bytes -= taken;
                if bytes == 0 {
                    break;
                }
                // A server may return less than was requested.
                let room = channel.room(bytes, &self.governor).await;
                answer = channel.begin_read(room, (handle, offset, bytes), at(offset))?.answer().await?;
            }
        }
        Ok(None)
    }

    /// Gives a complete file its size, its attributes and its final name.
    pub(crate) async fn finish_down(
        &self,
        channel: &Channel,
        file: &FileCopy,
        prepared: &Prepared,
    ) -> Result {
        self.unchanged_there(channel, file).await?;
        let Some(ends) = &prepared.here else { return Ok(()) };
        self.name_down(file, &prepared.local, ends, prepared.replaced_permissions).await
    }

    /// Fails if the source has been changed, or replaced by another file, since it was listed.
    pub(crate) async fn unchanged_there(&self, channel: &Channel, file: &FileCopy) -> Result {
        unchanged(&file.item, channel.stat(&file.item.source).await?.ok_or(Error::Changed)?)
    }

    async fn name_down(
        &self,
        file: &FileCopy,
        local: &Arc<File>,
        [part, target]: &[Place; 2],
        replaced_permissions: Option<u32>,
    ) -> Result {
        let item = &file.item;
        local
            .set_len(item.size_bytes)
            .map_err(|error| Error::local("set the size of the file here", &error))?;
        let permissions = if self.options.preserve { Some(item.permissions) } else { replaced_permissions };
        let set = permissions
            .map_or(Ok(()), |permissions| local.set_permissions(fs::Permissions::from_mode(permissions)));
        let set = set.and_then(|()| if self.options.preserve { set_times(local, item) } else { Ok(()) });
        if let Err(error) = set {
            // Some file systems, such as FAT, do not support such times or permissions.
            self.warn(format!("{}: cannot set times and permissions: {error}", target.path().display()));
        }
        if self.options.sync {
            sync_local(local).await?;
        }
        part.rename(target)
            .map_err(|error| Error::local("rename the temporary file to its final name", &error))?;
        if self.options.sync {
            target.sync_folder();
        }
        Ok(())
    }

    /// Copies a small file.
    pub(crate) async fn small_down(&self, channel: &Rc<Channel>, file: &FileCopy) -> Result<Verified> {
        let (target, replaced_permissions) = self.held.target(&file.item)?;
        let (part, _) = self.new_part_here(file, &target);
        let handle = channel.opened(channel.ask(&to_read(&file.item.source)).await?)?;
        let local = Arc::new(part.create(at_first(&file.item, replaced_permissions), file.item.size_bytes)?);
        let ends = [part, target];
        let carried = async {
            let size_bytes = file.item.size_bytes;
            self.fetch(channel, &handle, &local, &Span::new(0, size_bytes)).await?;
            if size_bytes == 0 && !self.read(channel, &handle, 0..1).await?.is_empty() {
                let why = "the source has contents but reports size 0, as files in /proc do; there, cat it to a regular \
                           file and copy that";
                return Err(Error::Local(why.to_owned()));
            }
            let now = channel.begin(&Request::Fstat(&handle))?;
            unchanged(&file.item, now.attributes().await?)?;
            let verified = self.verify_small(channel, file, (&local, &file.item.source)).await?;
            self.name_down(file, &local, &ends, replaced_permissions).await?;
            Ok(verified)
        };
        let carried = carried.await;
        if carried.is_err() {
            let _ = ends[0].remove();
        }
        carried
    }
}

/// Fails if the source has changed since it was listed.
fn unchanged(item: &Item, now: Attributes) -> Result {
    let modified_s = now.times.map(|times| i64::from(times.modified_s));
    let is_same = now.size.is_none_or(|size| size == item.size_bytes)
        && modified_s.is_none_or(|modified_s| modified_s == item.modified_s);
    if is_same { Ok(()) } else { Err(Error::Changed) }
}

pub(crate) fn set_times(file: &File, item: &Item) -> io::Result<()> {
    let time = |seconds: i64| -> SystemTime {
        u64::try_from(seconds).map_or(UNIX_EPOCH, |seconds| UNIX_EPOCH + Duration::from_secs(seconds))
    };
    file.set_times(
        fs::FileTimes::new().set_accessed(time(item.accessed_s)).set_modified(time(item.modified_s)),
    )
}
