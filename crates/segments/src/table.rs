//! Opens and closes segments.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use rustix::io::Errno;

use crate::{
    Compression, Key,
    file::SyncState,
    journal,
    links::Links,
    listing::next_index,
    locator::{Locator, Start},
    requests::{PackJob, Request},
    segment::{Segment, errno},
    shared::Shared,
    slots::{InUse, Parked, Slots, State},
};

/// Why a segment is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// To save descriptors. The segment will be opened again.
    Parked,
    /// The segment is full; its key continues in the next file.
    Full,
    Ended,
}

/// A closed segment with the remainder of a failed write at its end. Until the remainder is truncated, the segment gets
/// no lines, and the journal records it as open.
#[derive(Debug)]
struct PendingTruncation {
    segment: Segment,
    /// Whether the segment must be packed afterwards.
    ended: bool,
}

/// The segments of a store, owned by its writer.
#[derive(Debug)]
pub(crate) struct Table {
    shared: Arc<Shared>,
    locator: Locator,
    pub slots: Slots,
    pending_truncations: VecDeque<PendingTruncation>,
    links: Links,
    /// Maximum time that a round waits for the syncer to close files.
    pub descriptor_wait: Duration,
}

/// Maximum number of remembered keys without an open segment, as a multiple of [`Config::max_open`](crate::Config::max_open).
const MAX_CLOSED_FACTOR: usize = 16;
/// Maximum number of segments that wait for truncation, each with a descriptor. The next start truncates any others.
const MAX_PENDING_TRUNCATIONS: usize = 64;

impl Table {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let locator = Locator::new(&shared.config, shared.base.clone());
        let descriptor_wait = shared.config.descriptor_wait;
        let links = Links::new(&shared.config);
        let (slots, pending_truncations) = Default::default();
        Self { shared, locator, slots, pending_truncations, links, descriptor_wait }
    }

    /// Opens the closed segments of `group` with a single sync of the journal. Returns the slots that could not be
    /// opened.
    pub(crate) fn open(&mut self, group: &[usize]) -> Vec<(usize, Errno)> {
        let is_closed = |number: &usize| self.slots.segment(*number).is_none();
        let missing: Vec<usize> = group.iter().copied().filter(is_closed).collect();
        if missing.is_empty() {
            return Vec::new();
        }
        // Otherwise, the name of a file that can now be truncated would still count as in use.
        self.truncate_closed();
        self.make_room(missing.len(), group);
        let mut refused = Vec::new();
        let mut opened = Vec::new();
        let mut entries = Vec::new();
        let until = Instant::now() + self.descriptor_wait;
        for number in missing {
            match self.open_segment(number, until) {
                Ok((entry, segment)) => {
                    self.slots.claim(&segment.shared.path, segment.shared.inode.number);
                    entries.push(entry);
                    opened.push((number, segment));
                }
                Err(cause) => refused.push((number, cause)),
            }
        }
        let written = self.shared.journal.append(&entries, true);
        for (number, segment) in opened {
            match &written {
                Ok(()) => self.finish_open(number, segment),
                Err(cause) => {
                    self.slots.release(&segment.shared.path, segment.shared.inode.number);
                    if let State::Closed { start, .. } = &mut self.slots.slot(number).state {
                        // The next attempt continues this file. Otherwise, every attempt would create another empty
                        // file.
                        *start = Start::Continue(segment.index);
                    }
                    refused.push((number, errno(cause)));
                }
            }
        }
        self.shared.counters.open_segments.set(self.slots.open_count() as u64);
        refused
    }

    /// Closes the segment of a slot if it is open. The syncer syncs the segment and closes its file.
    pub(crate) fn close(&mut self, number: usize, reason: CloseReason) {
        let slot = self.slots.slot(number);
        let state = State::Closed { start: Start::Find, parked: None };
        let mut segment = match std::mem::replace(&mut slot.state, state) {
            State::Open(segment) => segment,
            State::Closed { start, parked } => {
                if reason == CloseReason::Ended {
                    self.end(parked);
                    self.slots.remove(number);
                } else {
                    self.slots.slot(number).state = State::Closed { start, parked };
                }
                return;
            }
        };
        let whole = segment.truncate_remainder().is_ok();
        let file = &segment.shared;
        let poisoned = file.is_poisoned();
        let parked = Parked {
            id: file.id,
            path: file.path.clone(),
            inode: file.inode,
            binary: segment.binary,
            sync_state: file.sync_state.clone(),
        };
        slot.state = match reason {
            CloseReason::Parked if whole && !poisoned => {
                State::Closed { start: Start::Continue(segment.index), parked: Some(parked) }
            }
            _ => State::Closed { start: Start::Fresh(next_index(segment.index)), parked: None },
        };
        if reason == CloseReason::Ended {
            self.slots.remove(number);
        }
        let ended =
            (reason != CloseReason::Parked || !whole) && self.shared.config.compress != Compression::None;
        if whole {
            self.finish_close(&segment, ended);
        } else {
            self.defer_truncation(PendingTruncation { segment, ended });
        }
        self.shared.counters.open_segments.set(self.slots.open_count() as u64);
    }

    /// Hands a closed segment to the syncer.
    fn finish_close(&mut self, segment: &Segment, ended: bool) {
        let file = &segment.shared;
        self.slots.release(&file.path, file.inode.number);
        // A poisoned segment stays open in the journal, so that the next start checks which bytes are on the disk.
        let sound = !file.is_poisoned();
        if ended || !sound {
            self.shared.retire(&file.path);
        }
        if sound {
            let request = Request::Close { file: file.clone(), progress: segment.progress(), ended };
            // Fails only if the syncer has panicked, which is reported elsewhere.
            let _ = self.shared.syncs.put(request);
        } else {
            self.shared.record_unsynced(&file.path);
        }
    }

    fn defer_truncation(&mut self, pending: PendingTruncation) {
        // The segment's lines must reach the disk even if the remainder is never truncated.
        let (file, progress) = (pending.segment.shared.clone(), pending.segment.progress());
        let _ = self.shared.syncs.put(Request::Sync { file, progress, waiting: Vec::new() });
        self.pending_truncations.push_back(pending);
        if self.pending_truncations.len() > MAX_PENDING_TRUNCATIONS
            && let Some(PendingTruncation { segment, .. }) = self.pending_truncations.pop_front()
        {
            let file = &segment.shared;
            self.shared.retire(&file.path);
            self.slots.release(&file.path, file.inode.number);
        }
    }

    /// Tries again to truncate the remainders of closed segments.
    fn truncate_closed(&mut self) {
        for mut pending in std::mem::take(&mut self.pending_truncations) {
            match pending.segment.truncate_remainder() {
                Ok(_) => self.finish_close(&pending.segment, pending.ended),
                Err(_) => self.pending_truncations.push_back(pending),
            }
        }
        self.shared.counters.open_segments.set(self.slots.open_count() as u64);
    }

    /// Truncates remainders, closes ended segments and forgets keys that were closed long ago.
    pub(crate) fn sweep(&mut self) {
        self.truncate_closed();
        for segment in self.slots.segments() {
            // If truncation fails, the next line, the next sweep and the closing of the segment try again.
            let _ = segment.truncate_remainder();
        }
        let config = &self.shared.config;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now_s = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let max = config.max_open.max(1).saturating_mul(MAX_CLOSED_FACTOR);
        for number in self.slots.ended(config.idle, config.grace, now_s) {
            self.close(number, CloseReason::Ended);
        }
        let closed = self.slots.closed_by_use();
        for &number in &closed[..closed.len().saturating_sub(max)] {
            self.close(number, CloseReason::Ended);
        }
    }

    /// Closes all open segments; they may be opened again.
    pub(crate) fn park_all(&mut self) {
        self.truncate_closed();
        for number in self.slots.open_by_use() {
            self.close(number, CloseReason::Parked);
        }
    }

    /// Closes all open segments when the store ends.
    pub(crate) fn finish(&mut self) {
        self.park_all();
        for PendingTruncation { segment, .. } in
            self.pending_truncations.iter().filter(|pending| pending.segment.shared.is_poisoned())
        {
            self.shared.record_unsynced(&segment.shared.path);
        }
    }

    /// Adopts a segment of the last process, or ends it if its key has a newer segment.
    pub(crate) fn adopt(&mut self, segment: &journal::Segment, parked: Parked) {
        let named = self.shared.base.path.join(self.locator.name(&segment.key, segment.index));
        let key = Arc::new(Key::from_journal(&segment.key, segment.end));
        let number = self.slots.number(&key);
        let (start, index) = (&self.slots.slot(number).state, segment.index);
        let newer = match start {
            State::Closed { start: Start::Continue(other), .. } => *other < index,
            _ => true,
        };
        if named != parked.path || !newer {
            self.end(Some(parked));
            return;
        }
        let state = State::Closed { start: Start::Continue(index), parked: Some(parked) };
        let slot = self.slots.slot(number);
        if let State::Closed { parked, .. } = std::mem::replace(&mut slot.state, state) {
            self.end(parked);
        }
    }

    /// Requests the packing of a closed segment, if the configuration asks for compression.
    pub(crate) fn end(&mut self, parked: Option<Parked>) {
        let Some(Parked { id, path, inode, sync_state, .. }) = parked else { return };
        if !sync_state.is_poisoned() && self.shared.config.compress != Compression::None {
            self.shared.retire(&path);
            let _ = self.shared.syncs.put(Request::End(PackJob { id, path, inode, renamed: false }));
        }
    }

    /// Closes other segments to make room for `group`. Returns whether the group can be opened without waiting.
    pub(crate) fn try_make_room(&mut self, group: &[usize]) -> bool {
        let missing = group.iter().filter(|&&number| self.slots.segment(number).is_none()).count();
        if missing == 0 {
            return true;
        }
        self.make_room(missing, group);
        let max = self.max_descriptors().saturating_sub(missing - 1).max(1);
        self.shared.descriptors.wait_below(max, Instant::now())
    }

    /// Maximum number of descriptors. The syncer never closes segments that wait for truncation, so their number is
    /// added.
    fn max_descriptors(&self) -> usize {
        self.shared.config.max_open.max(1).saturating_mul(2).saturating_add(self.pending_truncations.len())
    }

    fn make_room(&mut self, wanted: usize, group: &[usize]) {
        let max = self.shared.config.max_open.max(1);
        let excess = (self.slots.open_count() + wanted).saturating_sub(max);
        if excess == 0 {
            return;
        }
        let others = self.slots.open_by_use().into_iter().filter(|number| !group.contains(number));
        for number in others.take(excess).collect::<Vec<_>>() {
            self.close(number, CloseReason::Parked);
        }
    }

    fn open_segment(&mut self, number: usize, until: Instant) -> Result<(journal::Entry, Segment), Errno> {
        if !self.shared.descriptors.wait_below(self.max_descriptors(), until) {
            return Err(Errno::BUSY);
        }
        let slot = self.slots.slot(number);
        let State::Closed { start, parked } = &mut slot.state else {
            unreachable!("only closed slots are opened");
        };
        if let (Some(before), Start::Continue(index)) = (&parked, *start)
            && before.sync_state.is_poisoned()
        {
            self.shared.retire(&before.path);
            // Stores the new start even if opening fails. Otherwise, every failed attempt would create another empty
            // file.
            (*start, *parked) = (Start::Fresh(next_index(index)), None);
        }
        let (start, parked, key) = (*start, parked.clone(), slot.key.clone());
        let in_use = InUse { slots: &self.slots, shared: &self.shared };
        let found = self.locator.open(&key.path, start, &in_use).map_err(|cause| errno(&cause))?;
        let (sync_state, binary) = match parked {
            Some(parked) if parked.inode == found.inode => (parked.sync_state, parked.binary),
            _ => (Arc::new(SyncState::new(found.length)), false),
        };
        let id = self.shared.journal.next_id();
        let segment = journal::Segment {
            path: self.shared.journal.relative_name(&found.path).map_err(|cause| errno(&cause))?,
            inode: found.inode,
            good_bytes: sync_state.limit_to(found.length),
            binary,
            key: key.path.to_string(),
            index: found.index,
            end: key.end(),
        };
        let descriptor = self.shared.descriptors.count();
        Ok((journal::Entry::Opened { id, segment }, Segment::new(found, id, sync_state, binary, descriptor)))
    }

    fn finish_open(&mut self, number: usize, segment: Segment) {
        let path = segment.shared.path.clone();
        let slot = self.slots.slot(number);
        let key = slot.key.clone();
        let before = std::mem::replace(&mut slot.state, State::Open(segment));
        if let State::Closed { parked: Some(parked), .. } = before {
            if parked.path == path {
                // The record of the newly opened segment replaces the old one.
                let _ = self.shared.journal.append(&[journal::Entry::Gone { id: parked.id }], false);
            } else {
                self.end(Some(parked));
            }
        }
        // Ignores a failure, because the file has the lines even without its link.
        let _ = self.links.update(&key, &path);
    }
}
