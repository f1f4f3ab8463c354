//! The keys of a writer and their open segments.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    Key,
    file::SyncState,
    inode::Inode,
    locator::{FilesInUse, Start},
    segment::Segment,
    shared::Shared,
};

/// The state of a key.
#[derive(Debug)]
pub(crate) struct Slot {
    pub key: Arc<Key>,
    pub state: State,
    /// Parts of this round: index of the batch, and index of the part in the batch.
    pub pieces: Vec<(usize, usize)>,
    pub used: Instant,
}

#[derive(Debug)]
pub(crate) enum State {
    Open(Segment),
    Closed {
        start: Start,
        /// The segment to continue, unless it has ended since.
        parked: Option<Parked>,
    },
}

/// A segment that is closed to save descriptors and has not ended.
#[derive(Debug, Clone)]
pub(crate) struct Parked {
    pub id: u64,
    pub path: PathBuf,
    pub inode: Inode,
    /// Whether the journal records that the segment contains NUL bytes.
    pub binary: bool,
    /// Shared with the syncer, which may still change it in its last sync.
    pub sync_state: Arc<SyncState>,
}

#[derive(Debug, Default)]
pub(crate) struct Slots {
    numbers: HashMap<Arc<Key>, usize>,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    open_paths: HashSet<PathBuf>,
    open_inodes: HashSet<u64>,
}

impl Slots {
    /// Number of the slot of `key`. Creates the slot if necessary.
    pub(crate) fn number(&mut self, key: &Arc<Key>) -> usize {
        if let Some(&number) = self.numbers.get(key) {
            return number;
        }
        self.insert(key.clone(), Start::Find, None)
    }

    /// Adds a slot for a key without one.
    pub(crate) fn insert(&mut self, key: Arc<Key>, start: Start, parked: Option<Parked>) -> usize {
        let state = State::Closed { start, parked };
        let slot = Slot { key: key.clone(), state, pieces: Vec::new(), used: Instant::now() };
        let number = self.free.pop().unwrap_or(self.slots.len());
        if number == self.slots.len() {
            self.slots.push(Some(slot));
        } else {
            self.slots[number] = Some(slot);
        }
        self.numbers.insert(key, number);
        number
    }

    pub(crate) fn remove(&mut self, number: usize) {
        if let Some(slot) = self.slots[number].take() {
            self.numbers.remove(&slot.key);
            self.free.push(number);
        }
    }

    pub(crate) fn slot(&mut self, number: usize) -> &mut Slot {
        self.slots[number].as_mut().expect("no number of a removed slot is kept")
    }

    pub(crate) fn segment(&mut self, number: usize) -> Option<&mut Segment> {
        match &mut self.slot(number).state {
            State::Open(segment) => Some(segment),
            State::Closed { .. } => None,
        }
    }

    /// Takes the open segment of a slot. The segment counts as closed until it is put back.
    pub(crate) fn take_segment(&mut self, number: usize) -> Option<Segment> {
        let state = &mut self.slot(number).state;
        match std::mem::replace(state, State::Closed { start: Start::Find, parked: None }) {
            State::Open(segment) => Some(segment),
            closed => {
                *state = closed;
                None
            }
        }
    }

    pub(crate) fn segments(&mut self) -> impl Iterator<Item = &mut Segment> {
        self.slots.iter_mut().flatten().filter_map(|slot| match &mut slot.state {
            State::Open(segment) => Some(segment),
            State::Closed { .. } => None,
        })
    }

    /// Marks a file as used by this store.
    pub(crate) fn claim(&mut self, path: &Path, inode: u64) {
        self.open_paths.insert(path.to_owned());
        self.open_inodes.insert(inode);
    }

    pub(crate) fn release(&mut self, path: &Path, inode: u64) {
        self.open_paths.remove(path);
        self.open_inodes.remove(&inode);
    }

    pub(crate) fn open_count(&self) -> usize {
        self.open_inodes.len()
    }

    /// The slots with an open segment, the least recently used first.
    pub(crate) fn open_by_use(&self) -> Vec<usize> {
        self.by_use(|slot| matches!(slot.state, State::Open(_)))
    }

    /// The slots without an open segment, the least recently used first.
    pub(crate) fn closed_by_use(&self) -> Vec<usize> {
        self.by_use(|slot| matches!(slot.state, State::Closed { .. }))
    }

    /// The slots whose segments have ended, because they are idle or their time slice is over.
    pub(crate) fn ended(&self, idle: Duration, grace: Duration, now_s: i64) -> Vec<usize> {
        let ended = |slot: &Slot| {
            let unused = slot.used.elapsed();
            let grace_s = i64::try_from(grace.as_secs()).unwrap_or(i64::MAX);
            let over = slot.key.end().is_some_and(|end| now_s >= end.saturating_add(grace_s));
            unused >= idle || (over && unused >= grace)
        };
        self.by_use(ended)
    }

    fn by_use(&self, chosen: impl Fn(&Slot) -> bool) -> Vec<usize> {
        let slots = self.slots.iter().enumerate();
        let chosen = slots.filter_map(|(number, slot)| {
            slot.as_ref().filter(|slot| chosen(slot)).map(|slot| (slot.used, number))
        });
        let mut chosen: Vec<_> = chosen.collect();
        chosen.sort_unstable();
        chosen.into_iter().map(|(_, number)| number).collect()
    }
}

/// The files in use by a store.
pub(crate) struct InUse<'a> {
    pub slots: &'a Slots,
    pub shared: &'a Shared,
}

impl FilesInUse for InUse<'_> {
    fn contains_path(&self, path: &Path) -> bool {
        self.slots.open_paths.contains(path) || self.shared.is_retired(path)
    }

    fn contains_inode(&self, inode: u64) -> bool {
        self.slots.open_inodes.contains(&inode)
    }
}
