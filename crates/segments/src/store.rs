//! A folder of segments, open for lines.

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
    Compression, Config, Error, Failure, Key, KeyError, Port, Recovery, Statistics, StorageState, compressor,
    folders,
    journal::{Entry, Journal},
    key::Keys,
    locator::absolute,
    lock::Lock,
    port::{Done, ReplyQueue, Submitted},
    recovery::{Recovered, recover},
    shared::{Answers, Shared},
    syncer,
    table::Table,
    writer::Writer,
};

/// Writes lines to segments, in threads of its own: one writes, one syncs, one packs what has ended.
///
/// Dropped without [`close`](Self::close), they go on with what was submitted and end in their own time.
#[derive(Debug)]
pub struct Store {
    keys: Keys,
    shared: Arc<Shared>,
    /// Disconnected once all threads have ended.
    ended: Mutex<Receiver<()>>,
    /// Parts that had failed when closing began.
    failed_before: OnceLock<u64>,
}

impl Store {
    /// Opens the store with a way in for each of `ports` threads: makes the folders, recovers what a killed
    /// process has left, begins to write.
    ///
    /// # Errors
    /// When settings do not go together, when another process has the journal, when the folder or the journal
    /// cannot be written, or a segment cannot be recovered.
    pub fn open(config: Config, ports: usize) -> Result<(Self, Vec<Port>, Recovery), Error> {
        config.check()?;
        for folder in [config.template.folder(), &config.state] {
            folders::make_durably(&absolute(folder))
                .map_err(|cause| Error::file("make the folder", folder, cause))?;
        }
        let lock = Lock::acquire(&config.state)?;
        let (journal, damaged) = Journal::open(&config.state)?;
        let (mut recovery, recovered) = recover(&journal)?;
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

    /// The segment of an event of the time `seconds`, since the epoch. `fields` gives the members that the
    /// template asks for, as text. To be kept for as long as [`Key::slice`] says.
    ///
    /// # Errors
    /// When the time is none of the years 0 to 9999.
    pub fn key<'a>(
        &self,
        tag: &str,
        seconds: i64,
        fields: &dyn Fn(&str) -> Option<Cow<'a, str>>,
    ) -> Result<Arc<Key>, KeyError> {
        self.keys.key(tag, seconds, fields).map(Arc::new)
    }

    /// What the last attempts to write and to sync have shown. While they fail the disk is also tried without
    /// lines, once a second.
    pub fn state(&self) -> StorageState {
        self.shared.health.state()
    }

    /// Whether a thread of the store has panicked: nothing is stored any more until it is opened anew.
    pub fn has_panicked(&self) -> bool {
        self.shared.health.has_panicked()
    }

    /// What was done so far.
    pub fn statistics(&self) -> Statistics {
        self.shared.counters.read(self.queued_bytes())
    }

    /// Bytes submitted that are neither written nor failed yet.
    pub fn queued_bytes(&self) -> usize {
        self.shared.queued.value()
    }

    /// Opens all segments anew by their names: after their files were renamed (logrotate, SIGHUP). Returns at
    /// once. A renamed or removed file is noticed without it, too, within a second.
    pub fn reopen(&self) {
        self.shared.reopen.store(true, Ordering::Relaxed);
        self.shared.queue.wake();
    }

    /// Group commits wait for company no longer: the store is to be closed soon, and who waits is to be answered first.
    pub fn skip_sync_delay(&self) {
        self.shared.syncs.end_pauses();
    }

    /// Writes and syncs all that was submitted, closes all segments and ends the threads. What was submitted
    /// is answered by then; what is submitted later gets [`Failure::Closed`]. What has ended but is not packed
    /// yet stays plain until the next start. A second call changes nothing and says the same.
    ///
    /// # Errors
    /// When the disk has not taken everything within [`Config::close_wait`]: the threads are left behind, and
    /// the journal stays locked as long as they hang. When a part has failed since closing began, when a segment
    /// could not be synced, or when a thread has panicked. Syncs that failed before are only counted, in
    /// [`Statistics::sync_failures`].
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

/// Goes on with segments of the last process, as far as the settings still want that.
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

/// Starts the threads. Each outlives the one that gives it work.
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

/// What a thread holds: the journal stays locked until the last is gone, even when nobody waits for it any
/// more; and that is told to whoever does.
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
        // Those that were started before end.
        shared.syncs.close();
        shared.packs.close();
        Error::Thread(cause)
    })
}

/// Should the writer or the syncer panic, nobody waits for ever, nothing more is taken, and that is told.
struct PanicGuard<'a> {
    shared: &'a Shared,
    /// It is the syncer's. Otherwise that goes on until it has done all it was asked for.
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
            // What waits there fails when it is dropped. What was in the hands of the thread has by now.
            self.shared.syncs.take(&mut Vec::new(), Duration::ZERO);
            self.shared.packs.close();
        }
        let mut left: Vec<Submitted> = Vec::new();
        self.shared.queue.take(&mut left, Duration::ZERO);
        let mut answers = Answers::new(self.shared);
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
