//! How lines come in and how word of them goes back.

use std::{
    fmt,
    ops::Range,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustix::{
    event::{EventfdFlags, eventfd},
    io::Errno,
};

use crate::{Key, gauge::Gauge, mailbox::Mailbox};

/// When a part is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// By the caller, as soon as it is submitted; its [`Done`] only gives its bytes back.
    Accepted,
    /// Once the kernel has it: it survives the end of this process, not that of the machine.
    Written,
    /// Once the disk has it.
    Synced,
}

/// Lines of one port, and which of them belong to whom.
#[derive(Debug, Default)]
pub struct Batch {
    /// The lines.
    pub data: Vec<u8>,
    /// What of `data` goes where, in the order in which it is written.
    pub parts: Vec<Part>,
}

/// Whole lines of one request to one segment. They stand together in the file, never across two files.
#[derive(Debug)]
pub struct Part {
    /// Given back in its [`Done`].
    pub token: u64,
    /// The segment.
    pub key: Arc<Key>,
    /// Where the lines lie in the batch. They end with a newline; [`Failure::Io`] with EINVAL otherwise.
    pub range: Range<usize>,
    /// What its [`Done`] stands for.
    pub level: Level,
}

/// What became of a part.
#[derive(Debug)]
pub struct Done {
    /// The part's.
    pub token: u64,
    /// Where it lies; or why it is not stored.
    pub result: Result<Receipt, Failure>,
}

/// Where a part lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// Name of the file, relative to [`Template::folder`](crate::Template::folder). A segment that has ended
    /// may since carry a suffix of its compression; offsets are those of its plain bytes.
    pub segment: Arc<str>,
    /// Where the part begins, in bytes.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
}

/// Why a part is not stored. Of a part that was to be synced it may be in the file all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Failure {
    /// The disk or the quota is full.
    Full,
    /// The filesystem is read-only.
    ReadOnly,
    /// Another error number of the kernel's.
    Io(i32),
    /// That error number, and some of its lines may be in the file all the same: the file could not be cut.
    Partial(i32),
    /// The store was closed before.
    Closed,
}

impl Failure {
    pub(crate) fn of(cause: Errno) -> Self {
        match cause {
            Errno::NOSPC | Errno::DQUOT => Self::Full,
            Errno::ROFS => Self::ReadOnly,
            other => Self::Io(other.raw_os_error()),
        }
    }

    /// The same without what is left of the part.
    #[must_use]
    pub fn cause(self) -> Self {
        match self {
            Self::Partial(number) => Self::of(Errno::from_raw_os_error(number)),
            other => other,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cause() {
            Self::Full => f.write_str("the disk or the quota is full"),
            Self::ReadOnly => f.write_str("the filesystem is read-only"),
            Self::Io(number) | Self::Partial(number) => {
                write!(f, "{}", std::io::Error::from_raw_os_error(number))
            }
            Self::Closed => f.write_str("the store is closed"),
        }
    }
}

/// One thread's way into the store.
#[derive(Debug)]
pub struct Port {
    number: usize,
    queue: Arc<Mailbox<Submitted>>,
    queued: Arc<Gauge>,
    replies: Arc<ReplyQueue>,
}

/// A batch on its way to the writer.
#[derive(Debug)]
pub(crate) struct Submitted {
    pub port: usize,
    pub batch: Batch,
    /// It was submitted in bulk.
    pub bulk: bool,
}

/// The way back of one port.
#[derive(Debug)]
pub(crate) struct ReplyQueue {
    event: OwnedFd,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    done: Vec<Done>,
    spare: Vec<Vec<u8>>,
    /// Bytes submitted in bulk that are on their way.
    bulk_bytes: usize,
}

const MAX_SPARE_BUFFERS: usize = 8;
const MAX_SPARE_BUFFER_BYTES: usize = 4 << 20;

impl ReplyQueue {
    pub(crate) fn new() -> rustix::io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { event, inner: Mutex::default() })
    }

    /// Hands `done` over and leaves it empty.
    pub(crate) fn post(&self, done: &mut Vec<Done>) {
        if done.is_empty() {
            return;
        }
        let mut inner = self.lock();
        let was_empty = inner.done.is_empty();
        inner.done.append(done);
        drop(inner);
        if was_empty {
            self.wake();
        }
    }

    /// So much that was submitted in bulk is written, or never will be.
    pub(crate) fn finish_bulk(&self, bytes: usize) {
        self.lock().bulk_bytes -= bytes;
        self.wake();
    }

    fn wake(&self) {
        // It cannot fail: the counter would have to be written 2^64 times unread.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a buffer back for reuse.
    pub(crate) fn recycle(&self, mut buffer: Vec<u8>) {
        if buffer.capacity() == 0 || buffer.capacity() > MAX_SPARE_BUFFER_BYTES {
            return;
        }
        buffer.clear();
        let mut inner = self.lock();
        if inner.spare.len() < MAX_SPARE_BUFFERS {
            inner.spare.push(buffer);
        }
    }
}

impl Port {
    pub(crate) fn new(
        number: usize,
        queue: Arc<Mailbox<Submitted>>,
        queued: Arc<Gauge>,
        replies: Arc<ReplyQueue>,
    ) -> Self {
        Self { number, queue, queued, replies }
    }

    /// Hands lines to the writer. Never blocks: what is on its way is bounded by whoever submits, see
    /// [`Store::queued_bytes`](crate::Store::queued_bytes). Every part gets exactly one [`Done`]. Parts of one
    /// key keep their order, within a batch and across batches.
    pub fn submit(&mut self, batch: Batch) {
        self.send(batch, false);
    }

    /// The same, and counts in [`bulk_bytes`](Self::bulk_bytes) until the writer has done with it: for a caller with so many
    /// lines that others should get their turn in between.
    pub fn submit_in_bulk(&mut self, batch: Batch) {
        self.send(batch, true);
    }

    /// Bytes submitted in bulk that are neither written nor failed yet. [`fd`](Self::fd) is readable when they become fewer.
    pub fn bulk_bytes(&self) -> usize {
        self.replies.lock().bulk_bytes
    }

    fn send(&mut self, batch: Batch, bulk: bool) {
        if batch.parts.is_empty() {
            self.replies.recycle(batch.data);
            return;
        }
        let bytes = batch.data.len();
        self.queued.add(bytes);
        if bulk {
            self.replies.lock().bulk_bytes += bytes;
        }
        if let Err(refused) = self.queue.put(Submitted { port: self.number, batch, bulk }) {
            self.queued.remove(bytes);
            if bulk {
                self.replies.finish_bulk(bytes);
            }
            let closed = |part: &Part| Done { token: part.token, result: Err(Failure::Closed) };
            self.replies.post(&mut refused.batch.parts.iter().map(closed).collect());
        }
    }

    /// Readable while there is something to [`drain`](Self::drain), and once for each batch in bulk.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.replies.event.as_fd()
    }

    /// Appends what has become of parts since the last call.
    pub fn drain(&mut self, done: &mut Vec<Done>) {
        // Before the list is taken: what is posted in between makes it readable anew.
        let _ = rustix::io::read(&self.replies.event, &mut [0; 8]);
        done.append(&mut self.replies.lock().done);
    }

    /// An empty buffer for the next batch's data, one used before if there is any.
    pub fn spare_buffer(&mut self) -> Vec<u8> {
        self.replies.lock().spare.pop().unwrap_or_default()
    }
}
