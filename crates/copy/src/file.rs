//! A file that is being copied.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    fs::File,
    rc::Rc,
    sync::Arc,
    time::Instant,
};

use tokio::sync::OnceCell;

use crate::{
    error::{Error, Result},
    hash::BLOCK_BYTES,
    item::Item,
    journal::Journal,
    place::Place,
};

/// Size of a chunk in bytes: two SSH windows. A chunk is the unit of work that a channel takes from the queue.
pub(crate) const CHUNK_BYTES: u64 = 4 * BLOCK_BYTES;
/// Maximum size of a small file, in bytes. Small files are not split into chunks, and a channel carries many at the
/// same time.
pub(crate) const SMALL_BYTES: u64 = 2 * BLOCK_BYTES;
/// Maximum number of attempts for a chunk that differs.
const MAX_ATTEMPTS: u32 = 3;

/// A file that is being copied, with the state of its chunks.
#[derive(Debug)]
pub(crate) struct FileCopy {
    pub(crate) number: u64,
    pub(crate) item: Item,
    /// Both ends of the file, opened on first use.
    pub(crate) prepared: OnceCell<Prepared>,
    next: Cell<u64>,
    again: RefCell<BTreeMap<u64, u32>>,
    there: RefCell<BTreeSet<u64>>,
    /// Whether the rename to the final name may have succeeded, because its answer was lost.
    pub(crate) may_have_name: Cell<bool>,
    pub(crate) unsynced_bytes: Cell<u64>,
    pub(crate) resumed_bytes: Cell<u64>,
    /// Whether at least one chunk was not verified by a checksum from the other machine.
    pub(crate) lacks_hash: Cell<bool>,
    is_closed: Cell<bool>,
    pub(crate) began: Cell<Option<Instant>>,
}

/// Both ends of a file that is being copied.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// The end on this machine: the source of an upload, or the partial file of a download.
    pub(crate) local: Arc<File>,
    /// The path of the partial file, on the machine of the target.
    pub(crate) temporary: Vec<u8>,
    /// The final path: the target, or the file that the target links to.
    pub(crate) target: Vec<u8>,
    /// The places of the partial file and of the final file on this machine; only for downloads.
    pub(crate) here: Option<[Place; 2]>,
    /// Permissions of the existing file that this one will replace.
    pub(crate) replaced_permissions: Option<u32>,
    pub(crate) journal: RefCell<Option<Journal>>,
    /// Chunks that an earlier run copied, with their checksums.
    pub(crate) known: RefCell<BTreeMap<u64, String>>,
    /// Size of an earlier run's partial file, in bytes. Its data may come from another source, so holes of the source
    /// must be written as zeros over it.
    pub(crate) former_bytes: u64,
}

impl FileCopy {
    pub(crate) fn new(number: u64, item: Item) -> Rc<Self> {
        Rc::new(Self {
            number,
            item,
            prepared: OnceCell::new(),
            next: Cell::new(0),
            again: RefCell::default(),
            there: RefCell::default(),
            may_have_name: Cell::new(false),
            unsynced_bytes: Cell::new(0),
            resumed_bytes: Cell::new(0),
            lacks_hash: Cell::new(false),
            is_closed: Cell::new(false),
            began: Cell::new(None),
        })
    }

    pub(crate) fn is_small(&self) -> bool {
        self.item.size_bytes <= SMALL_BYTES
    }

    /// The next chunk to carry; none if no chunk waits.
    pub(crate) fn take_chunk(&self) -> Option<u64> {
        if self.is_closed.get() {
            return None;
        }
        let waiting =
            self.again.borrow().iter().find(|(_, attempts)| **attempts & WAITS != 0).map(|(chunk, _)| *chunk);
        if let Some(chunk) = waiting {
            *self.again.borrow_mut().get_mut(&chunk).expect("it was found") &= !WAITS;
            return Some(chunk);
        }
        let chunk = self.next.get();
        (chunk * CHUNK_BYTES < self.item.size_bytes).then(|| {
            self.next.set(chunk + 1);
            chunk
        })
    }

    /// Whether a chunk waits to be carried.
    pub(crate) fn has_more(&self) -> bool {
        !self.is_closed.get()
            && (self.next.get() * CHUNK_BYTES < self.item.size_bytes
                || self.again.borrow().values().any(|attempts| attempts & WAITS != 0))
    }

    /// Marks a chunk for another attempt, because its connection was lost.
    pub(crate) fn put_back(&self, chunk: u64) {
        *self.again.borrow_mut().entry(chunk).or_default() |= WAITS;
    }

    /// Marks a differing chunk for another attempt. Fails after [`MAX_ATTEMPTS`].
    pub(crate) fn retry_differing(&self, chunk: u64) -> Result {
        let mut again = self.again.borrow_mut();
        let attempts = again.entry(chunk).or_default();
        *attempts += 1;
        if *attempts & !WAITS >= MAX_ATTEMPTS {
            return Err(Error::Differs { offset: chunk * CHUNK_BYTES });
        }
        *attempts |= WAITS;
        Ok(())
    }

    /// Records that a chunk has arrived. Returns false if it was already recorded.
    pub(crate) fn mark_arrived(&self, chunk: u64) -> bool {
        self.there.borrow_mut().insert(chunk)
    }

    /// Whether all chunks have arrived.
    pub(crate) fn is_whole(&self) -> bool {
        self.there.borrow().len() as u64 == self.item.size_bytes.div_ceil(CHUNK_BYTES)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.get()
    }

    /// Closes a file that is complete or was given up. Returns false if it was closed before.
    pub(crate) fn close(&self) -> bool {
        !self.is_closed.replace(true)
    }

    /// Offset and length of a chunk, in bytes.
    pub(crate) fn range(&self, chunk: u64) -> (u64, u64) {
        let begin = chunk * CHUNK_BYTES;
        (begin, CHUNK_BYTES.min(self.item.size_bytes - begin))
    }
}

/// Bit that marks a chunk for another attempt. The other bits count its failed attempts.
const WAITS: u32 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::item;

    #[test]
    fn every_chunk_is_taken_once_and_again_only_if_asked() {
        let file = FileCopy::new(1, item("a", 3 * CHUNK_BYTES - 1));
        assert_eq!((file.take_chunk(), file.take_chunk()), (Some(0), Some(1)));
        file.put_back(0);
        assert_eq!((file.take_chunk(), file.take_chunk(), file.take_chunk()), (Some(0), Some(2), None));
        assert_eq!(file.range(2), (2 * CHUNK_BYTES, CHUNK_BYTES - 1));
        for _ in 1..MAX_ATTEMPTS {
            file.retry_differing(1).unwrap();
            assert_eq!((file.take_chunk(), file.take_chunk()), (Some(1), None));
        }
        assert!(file.retry_differing(1).is_err());
        assert!(file.mark_arrived(0) && !file.mark_arrived(0) && file.mark_arrived(2) && !file.is_whole());
        assert!(file.mark_arrived(1) && file.is_whole());
        assert!(file.close() && !file.close() && file.take_chunk().is_none());
    }
}
