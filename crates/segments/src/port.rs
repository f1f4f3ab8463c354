//! Ports: threads submit lines and receive answers.

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
    /// On submission, by the caller. The later [`Done`] only frees the part's bytes.
    Accepted,
    /// When the kernel has the part: it survives the end of this process, but not a crash of the machine.
    Written,
    /// When the disk has the part.
    Synced,
}

/// Lines that a port submits together.
#[derive(Debug, Default)]
pub struct Batch {
    /// The lines.
    pub data: Vec<u8>,
    /// The parts of `data`, in the order of writing.
    pub parts: Vec<Part>,
}

/// Whole lines of one request for one segment. They are contiguous in one file.
#[derive(Debug)]
pub struct Part {
    /// Returned in the part's [`Done`].
    pub token: u64,
    /// Key of the segment.
    pub key: Arc<Key>,
    /// Range of the lines in the batch. They must end with a newline; otherwise the part fails with [`Failure::Io`] and
    /// EINVAL.
    pub range: Range<usize>,
    /// When the part is answered.
    pub level: Level,
}

/// The answer to a part.
#[derive(Debug)]
pub struct Done {
    /// Token of the part.
    pub token: u64,
    /// The position of the stored part, or the reason why it is not stored.
    pub result: Result<Receipt, Failure>,
}

/// The position of a stored part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// Path of the file, relative to [`Template::folder`](crate::Template::folder). An ended segment may later get the
    /// suffix of its compression; offsets still refer to the plain bytes.
    pub segment: Arc<str>,
    /// Offset of the part, in bytes.
    pub offset: u64,
    /// Length of the part, in bytes.
    pub bytes: u64,
}

/// Why a part is not stored. A part with [`Level::Synced`] may be in the file despite the failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Failure {
    /// The disk or the quota is full.
    Full,
    /// The filesystem is read-only.
    ReadOnly,
    /// Another error number of the kernel.
    Io(i32),
    /// Another error number of the kernel. Some of the part's lines may be in the file, because the file could not be
    /// truncated.
    Partial(i32),
    /// The store is closed.
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

    /// The same failure without the information that lines may be in the file.
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

/// A thread's access to the store.
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
    /// Whether the batch was submitted in bulk.
    pub bulk: bool,
}

/// The queue of answers to one port.
#[derive(Debug)]
pub(crate) struct ReplyQueue {
    event: OwnedFd,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    done: Vec<Done>,
    spare: Vec<Vec<u8>>,
    /// Bytes submitted in bulk that are neither written nor failed yet.
    bulk_bytes: usize,
}

const MAX_SPARE_BUFFERS: usize = 8;
const MAX_SPARE_BUFFER_BYTES: usize = 4 << 20;

impl ReplyQueue {
    pub(crate) fn new() -> rustix::io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { event, inner: Mutex::default() })
    }

    /// Moves all answers from `done` to the port.
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

    /// Subtracts bytes submitted in bulk that are written or have failed.
    pub(crate) fn finish_bulk(&self, bytes: usize) {
        self.lock().bulk_bytes -= bytes;
        self.wake();
    }

    fn wake(&self) {
        // Fails only if the counter overflows, after 2^64 writes without a read.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a buffer for reuse.
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

    /// Submits lines to the writer. Never blocks; the caller must bound
    /// [`Store::queued_bytes`](crate::Store::queued_bytes). Every part gets exactly one [`Done`]. Parts of one key keep
    /// their order, within a batch and across batches.
    pub fn submit(&mut self, batch: Batch) {
        self.send(batch, false);
    }

    /// Like [`submit`](Self::submit), and adds to [`bulk_bytes`](Self::bulk_bytes) until the batch is written or has failed.
    /// For a caller that splits many lines into batches so that other ports are served in between.
    pub fn submit_in_bulk(&mut self, batch: Batch) {
        self.send(batch, true);
    }

    /// Bytes submitted in bulk that are neither written nor failed yet. [`fd`](Self::fd) becomes readable when they decrease.
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

    /// A descriptor that is readable while [`drain`](Self::drain) has answers, and once for each bulk batch.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.replies.event.as_fd()
    }

    /// Appends the answers since the last call to `done`.
    pub fn drain(&mut self, done: &mut Vec<Done>) {
        // Resets the counter before taking the answers, so that an answer in between makes the descriptor readable
        // again.
        let _ = rustix::io::read(&self.replies.event, &mut [0; 8]);
        done.append(&mut self.replies.lock().done);
    }

    /// An empty buffer for the next batch's data, reused if possible.
    pub fn spare_buffer(&mut self) -> Vec<u8> {
        self.replies.lock().spare.pop().unwrap_or_default()
    }
}
