//! The store: a folder of segments that accepts lines.

use std::{
    borrow::Cow,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::Duration,
};

use rustix::io::Errno;

use crate::{
    Compression, Config, Error, Failure, Key, KeyError, Port, Recovery, Statistics, StorageState,
    answers::Answers,
    compressor,
    folders::{self, Base, absolute},
    journal::{Entry, Journal},
    key::Keys,
    lock::Lock,
    port::{Done, ReplyQueue, Submitted},
    recovery::{Recovered, recover},
    shared::Shared,
    syncer,
    table::Table,
    writer::Writer,
};

/// Writes lines to segments with three threads: one writes, one syncs, one packs ended segments.
///
/// If the store is dropped without [`close`](Self::close), the threads finish the submitted work and then end.
#[derive(Debug)]
pub struct Store {
    keys: Keys,
    shared: Arc<Shared>,
    /// Its sender is dropped when all threads have ended.
    ended: Mutex<Receiver<()>>,
    /// Number of failed parts when closing began.
    failed_before: OnceLock<u64>,
}

impl Store {
    /// Opens a store with a number of ports: creates the folders, recovers the segments of a killed process and starts
    /// the threads.
    ///
    /// # Errors
    /// When the configuration is wrong, another process uses the journal, the folder or the journal cannot be written,
    /// or a segment cannot be recovered.
    pub fn open(config: Config, ports: usize) -> Result<(Self, Vec<Port>, Recovery), Error> {
        config.check()?;
        let fails = |folder, cause| Error::file("make the folder", folder, cause);
        let base = config.template.folder();
        folders::make_durably(&absolute(base)).map_err(|cause| fails(base, cause))?;
        folders::make_state(&config.state).map_err(|cause| fails(&config.state, cause))?;
        let lock = Lock::acquire(&config.state)?;
        let (journal, damaged) = Journal::open(&config.state)?;
        let (mut recovery, recovered) = recover(&journal, &Base::new(&config.template))?;
        recovery.journal_damaged_lines = damaged;
        let reply_queues: Result<Vec<_>, _> = (0..ports).map(|_| ReplyQueue::new().map(Arc::new)).collect();
        let reply_queues = reply_queues.map_err(|cause| Error::file("make", "an eventfd", cause))?;
        let keys = Keys::new(&config);
        let shared = Arc::new(Shared::new(config, journal, reply_queues));
        if shared.journal.needs_rewrite() {
            shared.health.write_failed(Errno::NOSPC);
        }
        let mut table = Table::new(shared.clone());
        adopt(&mut table, &shared, recovered)?;
        let ended = start_threads(&shared, lock, Writer::new(shared.clone(), table))?;
        let port = |(number, replies): (usize, &Arc<ReplyQueue>)| {
            Port::new(number, shared.queue.clone(), shared.queued.clone(), replies.clone())
        };
        let ports = shared.reply_queues.iter().enumerate().map(port).collect();
        let store = Self { keys, shared, ended: Mutex::new(ended), failed_before: OnceLock::new() };
        Ok((store, ports, recovery))
    }

    /// The key of an event with the time `seconds` since the epoch. `fields` returns the members in the template as text.
    /// The caller may reuse the key for event times in [`Key::slice`].
    ///
    /// # Errors
    /// When the time is outside the years 0 to 9999.
    pub fn key<'a>(
        &self,
        tag: &str,
        seconds: i64,
        fields: &dyn Fn(&str) -> Option<Cow<'a, str>>,
    ) -> Result<Arc<Key>, KeyError> {
        self.keys.key(tag, seconds, fields).map(Arc::new)
    }

    /// The result of the last attempts to write and to sync. While the last attempt has failed, the store also probes
    /// the disk once a second.
    pub fn state(&self) -> StorageState {
        self.shared.health.state()
    }

    /// Whether a thread of the store has panicked. Nothing is stored after that until the store is opened again.
    pub fn has_panicked(&self) -> bool {
        self.shared.health.has_panicked()
    }

    /// Totals since the store was opened.
    pub fn statistics(&self) -> Statistics {
        self.shared.counters.read(self.queued_bytes())
    }

    /// Submitted bytes that are neither written nor failed yet.
    pub fn queued_bytes(&self) -> usize {
        self.shared.queued.value()
    }

    /// Makes the store open all segments again by their names, after their files were renamed (logrotate, SIGHUP).
    /// Returns immediately. Without this call, the store notices renamed and removed files within a second.
    pub fn reopen(&self) {
        self.shared.reopen.store(true, Ordering::Relaxed);
        self.shared.queue.wake();
    }

    /// Ends [`Config::sync_delay`] permanently, so that pending parts are answered soon. Call it when the store will be
    /// closed soon.
    pub fn skip_sync_delay(&self) {
        self.shared.syncs.end_pauses();
    }

    /// Writes and syncs all submitted parts, closes all segments and ends the threads. All submitted parts have been
    /// answered when it returns; later ones get [`Failure::Closed`]. Ended segments that are not packed yet stay plain
    /// until the next start. A second call returns the same result.
    ///
    /// # Errors
    /// When the disk has not stored everything within [`Config::close_wait`]; the threads then keep the journal locked
    /// as long as they hang. When a part has failed since closing began, a segment could not be synced, or a thread has
    /// panicked. Earlier failed syncs are only counted in [`Statistics::sync_failures`].
    pub fn close(&self) -> Result<(), Error> {
        let failed_parts = || self.shared.counters.failed_parts.value();
        let failed_before = *self.failed_before.get_or_init(failed_parts);
        self.shared.stopping.store(true, Ordering::Relaxed);
        self.skip_sync_delay();
        self.shared.queue.close();
        let wait = self.shared.config.close_wait;
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(wait);
        if ended == Err(RecvTimeoutError::Timeout) {
            return Err(Error::Hung(wait));
        }
        let unsynced: Vec<_> = self.shared.unsynced().iter().cloned().collect();
        let failed_parts = failed_parts() - failed_before;
        let panicked = self.shared.health.has_panicked();
        if failed_parts == 0 && unsynced.is_empty() && !panicked {
            return Ok(());
        }
        Err(Error::Incomplete { failed_parts, unsynced, panicked })
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        self.skip_sync_delay();
        self.shared.queue.close();
    }
}

/// Adopts segments of the last process that must be continued or packed.
fn adopt(table: &mut Table, shared: &Shared, recovered: Vec<Recovered>) -> Result<(), Error> {
    let mut gone = Vec::new();
    for Recovered { segment, parked, ended } in recovered {
        match shared.config.compress {
            Compression::None => gone.push(Entry::Gone { id: parked.id }),
            _ if ended => table.end(Some(parked)),
            _ => table.adopt(&segment, parked),
        }
    }
    let journal = shared.config.state.join("journal");
    shared.journal.append_eventually(&gone, true).map_err(|cause| Error::file("write", journal, cause))
}

/// Starts the threads. Each thread ends only after the thread that gives it work.
fn start_threads(shared: &Arc<Shared>, lock: Lock, writer: Writer) -> Result<Receiver<()>, Error> {
    let (alive, ended) = channel();
    let alive = ThreadGuard { _lock: Arc::new(lock), _sender: alive };
    spawn("segments-pack", &alive, shared, compressor::run)?;
    spawn("segments-sync", &alive, shared, |shared| {
        let _guard = PanicGuard { shared, is_syncer: true };
        syncer::run(shared);
        shared.packs.close();
    })?;
    spawn("segments-write", &alive, shared, |shared| {
        let _guard = PanicGuard { shared, is_syncer: false };
        writer.run();
        shared.syncs.close();
    })?;
    Ok(ended)
}

/// Held by every thread. It keeps the journal locked until the last thread has ended, and then disconnects the channel
/// on which [`Store::close`] waits.
#[derive(Clone)]
struct ThreadGuard {
    _lock: Arc<Lock>,
    _sender: Sender<()>,
}

fn spawn(
    name: &str,
    alive: &ThreadGuard,
    shared: &Arc<Shared>,
    work: impl FnOnce(&Shared) + Send + 'static,
) -> Result<(), Error> {
    let (alive, on) = (alive.clone(), shared.clone());
    let spawned = thread::Builder::new().name(name.to_owned()).spawn(move || {
        work(&on);
        drop(alive);
    });
    spawned.map(drop).map_err(|cause| {
        // Ends the threads that have already been started.
        shared.syncs.close();
        shared.packs.close();
        Error::Thread(cause)
    })
}

/// If the writer or the syncer panics, records that, refuses further parts and answers the waiting ones.
struct PanicGuard<'a> {
    shared: &'a Shared,
    /// Whether the guarded thread is the syncer. If the writer panics, the syncer finishes its requests.
    is_syncer: bool,
}

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        self.shared.health.thread_panicked();
        self.shared.queue.close();
        self.shared.syncs.close();
        if self.is_syncer {
            // Dropping the waiting requests answers their parts. The panicked thread has already dropped its own
            // requests.
            self.shared.syncs.take(&mut Vec::new(), Duration::ZERO);
            self.shared.packs.close();
        }
        let mut left: Vec<Submitted> = Vec::new();
        self.shared.queue.take(&mut left, Duration::ZERO);
        let mut answers = Answers::new(&self.shared.reply_queues);
        for submitted in left {
            self.shared.finish_batch(&submitted);
            let Submitted { port, batch, .. } = submitted;
            self.shared.counters.failed_parts.add(batch.parts.len() as u64);
            for part in batch.parts {
                answers.push(port, Done { token: part.token, result: Err(Failure::Closed) });
            }
        }
    }
}

#[cfg(test)]
mod tests;
