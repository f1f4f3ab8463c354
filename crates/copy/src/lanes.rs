//! Carries files chunk by chunk, verifies the chunks that arrived, and renames complete files to their final names.

use std::{path::Path, rc::Rc, sync::Arc, time::Instant};

use sftp::Code;
use tokio::task::spawn_local;

use crate::{
    carrier::{Carrier, sync_local},
    channel::Channel,
    error::{Error, Result},
    file::{FileCopy, Prepared},
    hash::Sum,
    location::shown,
    options::Direction,
    partial_files::PartialFile,
    queue::Step,
    report::{FileReport, Verified},
    span::Span,
    upload,
    verify::READING,
};

/// Number of bytes after which the target is written to its disk (fsync).
const SYNC_BYTES: u64 = 256 << 20;

impl Carrier {
    /// Carries chunks over a channel until none are left or the channel is lost.
    pub(crate) async fn carry_chunks(self: Rc<Self>, channel: Rc<Channel>) {
        loop {
            let turns = Arc::clone(&channel.turns);
            let Ok(turn) = turns.acquire_owned().await else { return };
            let Some(work) = channel.unless_lost(self.queue.take_chunk()).await else { return };
            let done = match &work.step {
                Step::Carry(chunk, span) => {
                    span.keep(turn);
                    let done = self.chunk(&channel, &work.file, *chunk, span).await;
                    span.sent();
                    done
                }
                // Finishing a file takes some round trips without data, so the turn is released for another chunk.
                Step::Finish => {
                    drop(turn);
                    self.finish(&channel, &work.file).await
                }
            };
            self.queue.carried(&work);
            match done {
                Ok(()) => {}
                Err(Error::Lost(_)) => {
                    match work.step {
                        Step::Carry(chunk, span) if span.give_up() => self.put_back(&work.file, chunk),
                        Step::Carry(..) => {}
                        Step::Finish => self.queue.complete(work.file),
                    }
                    return;
                }
                Err(error) => self.failed(&channel, &work.file, &error).await,
            }
        }
    }

    /// Carries small files over a channel until none are left or the channel is lost.
    pub(crate) async fn carry_small(self: Rc<Self>, channel: Rc<Channel>) {
        while let Some(file) = channel.unless_lost(self.queue.take_small()).await {
            file.began.set(Some(Instant::now()));
            let carried = match self.options.direction {
                Direction::Up => self.small_up(&channel, &file).await,
                Direction::Down => self.small_down(&channel, &file).await,
            };
            match carried {
                Ok(verified) => self.finished(&file, verified),
                Err(Error::Lost(_)) => {
                    self.queue.put_back(file);
                    return;
                }
                Err(Error::Differs { .. }) => match self.retry_differing(&channel, &file, 0).await {
                    Ok(()) | Err(Error::Lost(_)) => self.queue.put_back(file),
                    Err(error) => self.failed(&channel, &file, &error).await,
                },
                Err(error) => self.failed(&channel, &file, &error).await,
            }
        }
    }

    async fn chunk(
        self: &Rc<Self>,
        channel: &Rc<Channel>,
        file: &Rc<FileCopy>,
        chunk: u64,
        span: &Span,
    ) -> Result {
        if file.began.get().is_none() {
            file.began.set(Some(Instant::now()));
        }
        let prepared = match self.options.direction {
            Direction::Up => file.prepared.get_or_try_init(|| self.prepare_up(channel, file)).await?,
            Direction::Down => file.prepared.get_or_try_init(|| self.prepare_down(file)).await?,
        };
        let known = prepared.known.borrow_mut().remove(&chunk);
        if known.is_some() {
            // Other channels may have taken a part of the chunk but have sent nothing yet.
            span.give_up();
        } else {
            match self.options.direction {
                Direction::Up => self.span_up(channel, file, prepared, span).await?,
                Direction::Down => self.span_down(channel, file, prepared, span).await?,
            }
            let is_whole = span.finish_part();
            if !is_whole {
                return Ok(());
            }
        }
        // The chunk is verified while the next one is carried.
        let place = Arc::clone(&self.settling).acquire_owned().await;
        let (carrier, channel, file) = (Rc::clone(self), Rc::clone(channel), Rc::clone(file));
        spawn_local(async move {
            let _place = place;
            match carrier.settle(&channel, &file, chunk, known).await {
                Ok(()) => {}
                Err(Error::Lost(_)) => carrier.put_back(&file, chunk),
                Err(error) => carrier.failed(&channel, &file, &error).await,
            }
        });
        Ok(())
    }

    /// Marks a chunk for another attempt, because its connection was lost.
    fn put_back(&self, file: &FileCopy, chunk: u64) {
        file.put_back(chunk);
        self.queue.wake();
    }

    /// Verifies a chunk that arrived in this run or, with `known`, in an earlier one. Finishes the file if the chunk
    /// was its last.
    async fn settle(
        self: &Rc<Self>,
        channel: &Rc<Channel>,
        file: &Rc<FileCopy>,
        chunk: u64,
        known: Option<String>,
    ) -> Result {
        let Some(prepared) = file.prepared.get() else { return Ok(()) };
        let (begin, length) = file.range(chunk);
        let here = if self.options.verify || self.options.journals.is_some() {
            self.local_hash(&prepared.local, begin, length).await?
        } else {
            Sum::default()
        };
        let hash = here.to_string();
        if !self.is_same(channel, file, prepared, (begin, here, known.as_deref())).await? {
            // A chunk of an earlier run that has changed since does not count as a failed attempt.
            if known.is_some() {
                self.put_back(file, chunk);
            } else {
                self.retry_differing(channel, file, chunk).await?;
                self.queue.wake();
            }
            return Ok(());
        }
        if !file.mark_arrived(chunk) {
            return Ok(());
        }
        if known.is_some() {
            file.resumed_bytes.set(file.resumed_bytes.get() + length);
        }
        self.done_bytes.set(self.done_bytes.get() + length);
        let written = match prepared.journal.borrow_mut().as_mut() {
            Some(journal) if known.is_none() => journal.add_chunk(chunk, &hash),
            _ => Ok(()),
        };
        if let Err(error) = written {
            let folder = self.options.journals.as_ref();
            self.warn_of_journal(folder.map_or(Path::new(""), |folder| folder.path()), &error);
            if let Some(journal) = prepared.journal.take() {
                journal.remove();
            }
            self.part(file, PartialFile::of(prepared, channel));
        }
        let unsynced_bytes = file.unsynced_bytes.get() + length;
        file.unsynced_bytes.set(unsynced_bytes);
        if file.is_whole() {
            self.queue.complete(Rc::clone(file));
        } else if unsynced_bytes >= SYNC_BYTES && self.options.sync {
            file.unsynced_bytes.set(0);
            let synced = match self.options.direction {
                Direction::Up => self.sync_up(channel, file, prepared).await,
                Direction::Down => sync_local(&prepared.local).await,
            };
            // The chunk has arrived. If the connection was lost before the sync, the final sync includes the chunk.
            return synced.or_else(|error| match error {
                Error::Lost(_) => Ok(()),
                error => Err(error),
            });
        }
        Ok(())
    }

    /// Marks a differing chunk or small file for another attempt. Fails if its source has changed, or after too many
    /// attempts.
    async fn retry_differing(&self, channel: &Channel, file: &FileCopy, chunk: u64) -> Result {
        match self.options.direction {
            Direction::Up => upload::unchanged(file, &upload::open_source(file)?)?,
            Direction::Down => self.unchanged_there(channel, file).await?,
        }
        file.retry_differing(chunk)
    }

    async fn finish(self: &Rc<Self>, channel: &Rc<Channel>, file: &Rc<FileCopy>) -> Result {
        let Some(prepared) = file.prepared.get() else { return Ok(()) };
        match self.options.direction {
            Direction::Up => self.finish_up(channel, file, prepared).await?,
            Direction::Down => self.finish_down(channel, file, prepared).await?,
        }
        if let Some(journal) = prepared.journal.borrow_mut().take() {
            journal.remove();
        }
        self.finished(
            file,
            match self.options.direction {
                _ if !self.options.verify => Verified::No,
                _ if !file.lacks_hash.get() => Verified::ByChecksum,
                Direction::Up => Verified::ReadBack,
                Direction::Down => Verified::HereOnly,
            },
        );
        Ok(())
    }

    pub(crate) fn finished(&self, file: &Rc<FileCopy>, verified: Verified) {
        if !file.close() {
            return;
        }
        if file.is_small() {
            self.done_bytes.set(self.done_bytes.get() + file.item.size_bytes);
        }
        self.reports.borrow_mut().push(FileReport::copied(file, verified));
        self.end(file);
    }

    async fn failed(&self, channel: &Rc<Channel>, file: &Rc<FileCopy>, error: &Error) {
        // A late answer about a file that is already closed is ignored.
        if !file.close() {
            return;
        }
        // Without a journal, no run can resume the partial file, so it is removed.
        let is_kept = |prepared: &Prepared| prepared.journal.borrow().is_some();
        // If the server refused, the error concerns the file on the other machine.
        let mut why = match (error, self.options.direction) {
            (Error::Refused(_), Direction::Up) => {
                let is_denied = error.is(Code::PermissionDenied);
                let advice = if is_denied { "; its folder must be writable" } else { "" };
                format!("cannot write {} on the other machine: {error}{advice}", shown(&file.item.target))
            }
            _ => error.to_string(),
        };
        let kept = file.prepared.get().filter(|prepared| is_kept(prepared) && *error != Error::Changed);
        if let Some(prepared) = kept {
            let part = shown(&prepared.temporary);
            why += &format!("; {part} has the data received so far, and the same command continues from it");
        }
        // The failure is reported before the partial file is removed, because an interrupt may come during the removal.
        self.reports.borrow_mut().push(FileReport::failed(file, why));
        if let Some(prepared) = file.prepared.get().filter(|_| kept.is_none()) {
            if let Some(removed) = PartialFile::of(prepared, channel).begin_remove(None) {
                let _ = removed.done().await;
            }
            if let Some(journal) = prepared.journal.take() {
                journal.remove();
            }
        }
        self.end(file);
    }

    /// Ends all work on a file and frees its handles.
    fn end(&self, file: &Rc<FileCopy>) {
        self.parts.borrow_mut().remove(&file.number);
        self.queue.finished(file);
        for channel in self.channels.borrow().iter() {
            // A server limits the number of handles, so both are closed now.
            let _ = channel.close(file.number);
            let _ = channel.close(file.number | READING);
        }
    }
}
