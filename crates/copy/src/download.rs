//! From the other machine to this one.

use std::{
    cell::RefCell,
    fs::{self, File, OpenOptions},
    io,
    ops::Range,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use sftp::{Attributes, Request};

use crate::{
    carrier::{Carrier, is_hole, sync_local},
    channel::Channel,
    file::{FileCopy, Item, MODE_BITS, Prepared},
    journal::Known,
    location::os,
    parts::temporary_name,
    remote::to_read,
    report::Verified,
    said::Said,
    span::Span,
    trouble::{Result, Trouble},
};

impl Carrier {
    /// Makes the file here, and finds what an earlier run has brought.
    pub(crate) async fn prepare_down(&self, channel: &Rc<Channel>, file: &FileCopy) -> Result<Prepared> {
        let (target, replaced_permissions) = replaced(&file.item)?;
        let bytes = target.as_os_str().as_encoded_bytes();
        let identity = self.identity(file);
        let (journal, Known { chunks: mut known, former }) = self.journal(&identity);
        if let Some(former) = former {
            let _ = fs::remove_file(os(&temporary_name(&self.manner, &former, bytes)));
        }
        let temporary = temporary_name(&self.manner, &identity, bytes);
        let path = PathBuf::from(os(&temporary));
        if !path.exists() {
            known.clear();
        }
        if journal.is_none() {
            self.part(channel, file, &temporary);
        }
        let local = match make(&path, &file.item, known.is_empty()) {
            Ok(local) => local,
            Err(trouble) => {
                if let Some(journal) = journal.filter(|_| known.is_empty()) {
                    journal.remove();
                }
                return Err(trouble);
            }
        };
        Ok(Prepared {
            local: Arc::new(local),
            temporary,
            target: target.into_os_string().into_encoded_bytes(),
            replaced_permissions,
            journal: RefCell::new(journal),
            known: RefCell::new(known),
            former_bytes: 0,
        })
    }

    pub(crate) async fn span_down(
        &self,
        channel: &Channel,
        file: &FileCopy,
        prepared: &Prepared,
        span: &Span,
    ) -> Result {
        let handle = channel.handle(file.number, &to_read(&file.item.source)).await?;
        // Each channel has opened the path at its own time, and may have got another file.
        let opened = channel.begin(&Request::Fstat(&handle))?;
        self.fetch(channel, &handle, &prepared.local, span).await?;
        unchanged(&file.item, opened.attributes().await?)
    }

    /// Reads a part of a file there into one here, many requests at once. What is zero stays a hole.
    async fn fetch(&self, channel: &Channel, handle: &[u8], local: &Arc<File>, span: &Span) -> Result {
        let local = Arc::clone(local);
        let write = move |offset: u64, data: &[u8]| {
            if data.iter().all(|byte| *byte == 0) && is_hole(&local, offset, data.len() as u64) {
                return Ok(());
            }
            local.write_all_at(data, offset).map_err(|error| Trouble::local("write the file here", &error))
        };
        match self.receive(channel, handle, span, write).await? {
            None => Ok(()),
            Some(_) => Err(Trouble::Changed),
        }
    }

    /// Reads a part of a file there; less, if it ends before.
    pub(crate) async fn read(&self, channel: &Channel, handle: &[u8], range: Range<u64>) -> Result<Vec<u8>> {
        let begin = range.start;
        let bytes = Rc::new(RefCell::new(vec![0; (range.end - begin) as usize]));
        let span = Span::new(begin, range.end);
        let taken = Rc::clone(&bytes);
        let ended = self.receive(channel, handle, &span, move |offset, data: &[u8]| {
            let at = (offset - begin) as usize;
            // Once a piece was missing, nobody waits for those behind it.
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

    /// Reads a part of a file there, and hands its pieces over. Returns where the file ended, if it did.
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
                    Said::Taken(taken) => taken,
                    Said::EndOfFile => return Ok(Some(offset)),
                    _ => return Err(Trouble::unexpected("READ")),
                };
                offset += taken as u64;
                bytes -= taken;
                if bytes == 0 {
                    break;
                }
                // A server may answer with less than was asked for.
                let room = channel.room(bytes, &self.governor).await;
                answer = channel.begin_read(room, (handle, offset, bytes), at(offset))?.answer().await?;
            }
        }
        Ok(None)
    }

    /// Gives a file that is whole its size, its attributes and its name.
    pub(crate) async fn finish_down(
        &self,
        channel: &Channel,
        file: &FileCopy,
        prepared: &Prepared,
    ) -> Result {
        self.unchanged_there(channel, file).await?;
        self.name_down(
            file,
            &prepared.local,
            (&os(&prepared.temporary).into(), &os(&prepared.target).into()),
            prepared.replaced_permissions,
        )
        .await
    }

    /// Refuses a source that is not what it was when it was listed, or that another file has replaced since.
    pub(crate) async fn unchanged_there(&self, channel: &Channel, file: &FileCopy) -> Result {
        unchanged(&file.item, channel.stat(&file.item.source).await?.ok_or(Trouble::Changed)?)
    }

    async fn name_down(
        &self,
        file: &FileCopy,
        local: &Arc<File>,
        (temporary, target): (&PathBuf, &PathBuf),
        replaced_permissions: Option<u32>,
    ) -> Result {
        let item = &file.item;
        local
            .set_len(item.size_bytes)
            .map_err(|error| Trouble::local("set the size of the file here", &error))?;
        let permissions = if self.manner.preserve { Some(item.permissions) } else { replaced_permissions };
        let set = permissions
            .map_or(Ok(()), |permissions| local.set_permissions(fs::Permissions::from_mode(permissions)));
        let set = set.and_then(|()| if self.manner.preserve { set_times(local, item) } else { Ok(()) });
        if let Err(error) = set {
            // Some file systems, such as FAT, have neither.
            self.warn(format!("{}: cannot set times and permissions: {error}", target.display()));
        }
        if self.manner.sync {
            sync_local(local).await?;
        }
        fs::rename(temporary, target)
            .map_err(|error| Trouble::local("rename the temporary file to its final name", &error))?;
        if self.manner.sync
            && let Some(folder) = target.parent().and_then(|folder| File::open(folder).ok())
        {
            // Some file systems have no way to do this for folders.
            let _ = folder.sync_all();
        }
        Ok(())
    }

    /// A small file.
    pub(crate) async fn small_down(&self, channel: &Rc<Channel>, file: &FileCopy) -> Result<Verified> {
        let (target, replaced_permissions) = replaced(&file.item)?;
        let bytes = target.as_os_str().as_encoded_bytes();
        let temporary = temporary_name(&self.manner, &self.identity(file), bytes);
        self.part(channel, file, &temporary);
        let temporary = PathBuf::from(os(&temporary));
        let handle = channel.opened(channel.ask(&to_read(&file.item.source)).await?)?;
        let local = Arc::new(make(&temporary, &file.item, true)?);
        let carried = async {
            let size_bytes = file.item.size_bytes;
            self.fetch(channel, &handle, &local, &Span::new(0, size_bytes)).await?;
            if size_bytes == 0 && !self.read(channel, &handle, 0..1).await?.is_empty() {
                let why = "the source has contents but reports size 0, as files in /proc do; there, cat it to a regular \
                           file and copy that";
                return Err(Trouble::Local(why.to_owned()));
            }
            let now = channel.begin(&Request::Fstat(&handle))?;
            unchanged(&file.item, now.attributes().await?)?;
            let verified = if self.manner.verify {
                let here = self.local_hash(&local, 0, size_bytes).await?.to_string();
                match self.hashers.hash(&file.item.source, None).await {
                    Some(there) if there == here => Verified::ByChecksum,
                    Some(_) => return Err(Trouble::Differs { offset: 0 }),
                    None => Verified::HereOnly,
                }
            } else {
                Verified::No
            };
            self.name_down(file, &local, (&temporary, &target), replaced_permissions).await?;
            Ok(verified)
        };
        let carried = carried.await;
        if carried.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        carried
    }
}

fn make(path: &Path, item: &Item, is_new: bool) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(is_new).mode(item.permissions & 0o777 | 0o600);
    // Somebody else's link under this name is not followed.
    options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
    // What is zero stays a hole, also at the end.
    let made = options.open(path).and_then(|file| {
        let sized = file.set_len(item.size_bytes).inspect_err(|_| drop(fs::remove_file(path)));
        sized.map(|()| file)
    });
    made.map_err(|error| Trouble::local(&format!("make {}", path.display()), &error))
}

/// The file behind a target, and the permissions of the one that is there.
fn replaced(item: &Item) -> Result<(PathBuf, Option<u32>)> {
    let target = PathBuf::from(os(&item.target));
    // Below a folder, a link is replaced itself: whoever wrote it must not say where else files come to.
    let known = if item.is_named { fs::metadata(&target) } else { fs::symlink_metadata(&target) };
    match known {
        Ok(known) if known.is_file() => {
            let behind = if item.is_named { fs::canonicalize(&target) } else { Ok(target) };
            let behind = behind.map_err(|error| Trouble::local("find the target", &error))?;
            Ok((behind, Some(known.mode() & MODE_BITS)))
        }
        Ok(known) if known.is_symlink() => Ok((target, None)),
        Ok(_) => Err(Trouble::not_regular(&item.target)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((target, None)),
        Err(error) => Err(Trouble::local("stat the target", &error)),
    }
}

/// Refuses a source that is not what it was when it was listed.
fn unchanged(item: &Item, now: Attributes) -> Result {
    let modified_s = now.times.map(|times| i64::from(times.modified_s));
    let is_same = now.size.is_none_or(|size| size == item.size_bytes)
        && modified_s.is_none_or(|modified_s| modified_s == item.modified_s);
    if is_same { Ok(()) } else { Err(Trouble::Changed) }
}

pub(crate) fn set_times(file: &File, item: &Item) -> io::Result<()> {
    let time = |seconds: i64| -> SystemTime {
        u64::try_from(seconds).map_or(UNIX_EPOCH, |seconds| UNIX_EPOCH + Duration::from_secs(seconds))
    };
    file.set_times(
        fs::FileTimes::new().set_accessed(time(item.accessed_s)).set_modified(time(item.modified_s)),
    )
}
