//! State that the threads of a store share.

use std::{
    collections::{BTreeSet, HashSet},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{
    Config,
    file::Descriptors,
    folders::Base,
    gauge::Gauge,
    health::Health,
    journal::Journal,
    mailbox::Mailbox,
    port::{ReplyQueue, Submitted},
    requests::{PackJob, Request},
    statistics::Counters,
};

#[derive(Debug)]
pub(crate) struct Shared {
    pub config: Config,
    /// The folder of the files.
    pub base: Base,
    pub journal: Journal,
    pub health: Health,
    pub counters: Counters,
    pub queue: Arc<Mailbox<Submitted>>,
    pub queued: Arc<Gauge>,
    pub reply_queues: Vec<Arc<ReplyQueue>>,
    pub syncs: Mailbox<Request>,
    pub packs: Mailbox<PackJob>,
    pub descriptors: Arc<Descriptors>,
    /// Whether all segments must be opened again.
    pub reopen: AtomicBool,
    /// Whether the store is closing. Long work is then left to the next start.
    pub stopping: AtomicBool,
    /// Ended files. Nothing may be written to them any more.
    retired: Mutex<HashSet<PathBuf>>,
    /// Segments that could not be synced while the store was being closed.
    unsynced: Mutex<BTreeSet<PathBuf>>,
}

impl Shared {
    pub(crate) fn new(config: Config, journal: Journal, reply_queues: Vec<Arc<ReplyQueue>>) -> Self {
        Self {
            base: Base::new(&config.template),
            config,
            journal,
            health: Health::default(),
            counters: Counters::default(),
            queue: Arc::default(),
            queued: Arc::default(),
            reply_queues,
            syncs: Mailbox::default(),
            packs: Mailbox::default(),
            descriptors: Arc::default(),
            reopen: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            retired: Mutex::default(),
            unsynced: Mutex::default(),
        }
    }

    /// Accounts for a batch that is written or has failed.
    pub(crate) fn finish_batch(&self, submitted: &Submitted) {
        let bytes = submitted.batch.data.len();
        self.queued.remove(bytes);
        if let Some(replies) = self.reply_queues.get(submitted.port).filter(|_| submitted.bulk) {
            replies.finish_bulk(bytes);
        }
    }

    pub(crate) fn retire(&self, path: &Path) {
        self.retired().insert(path.to_owned());
    }

    /// Allows segments to use a path again, because its name is free or belongs to a packed file.
    pub(crate) fn release(&self, path: &Path) {
        self.retired().remove(path);
    }

    pub(crate) fn is_retired(&self, path: &Path) -> bool {
        self.retired().contains(path)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Records a segment whose sync failed for the last time, if the store is closing.
    pub(crate) fn record_unsynced(&self, path: &Path) {
        if self.is_stopping() {
            self.unsynced().insert(path.to_owned());
        }
    }

    /// Segments that could not be synced while the store was being closed.
    pub(crate) fn unsynced(&self) -> MutexGuard<'_, BTreeSet<PathBuf>> {
        self.unsynced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn retired(&self) -> MutexGuard<'_, HashSet<PathBuf>> {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
