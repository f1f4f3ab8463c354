//! Opens and closes segments.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use rustix::io::Errno;

use crate::{
    Compression, Key,
    compressor::Pack,
    file::Condition,
    journal,
    links::Links,
    place::{Place, Start, next},
    segment::{Segment, errno},
    shared::Shared,
    slots::{InUse, Parked, Slots, State},
    syncer::Request,
};

/// Why a segment is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// It will be gone on with.
    Parked,
    /// It is full: its key goes on in the next file.
    Full,
    /// Its time is over.
    Ended,
}

/// A segment that is closed but for what a failed write has left at its end. No line goes there, and the
/// journal has it as open, until that is cut.
#[derive(Debug)]
struct Uncut {
    segment: Segment,
    /// It is to be packed then.
    ended: bool,
}

/// The segments of a store, in the hands of its writer.
#[derive(Debug)]
pub(crate) struct Table {
    shared: Arc<Shared>,
    place: Place,
    pub slots: Slots,
    /// The oldest first.
    uncut: VecDeque<Uncut>,
    links: Links,
    /// So long at most the syncer is waited for in a round, when too many files wait for it to be closed.
    pub descriptor_wait: Duration,
}

/// Keys whose segments are closed are remembered up to so many times the number that may be open.
const CLOSED_MOST: usize = 16;
/// Each takes a descriptor. Others are left to the next start.
const UNCUT_MOST: usize = 64;

impl Table {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let place = Place::new(&shared.config);
        let descriptor_wait = Duration::from_secs(5);
        let (slots, uncut, links) = Default::default();
        Self { shared, place, slots, uncut, links, descriptor_wait }
    }

    /// Opens what of `group` is not; all of them with one sync of the journal. Says what could not be.
    pub(crate) fn open(&mut self, group: &[usize]) -> Vec<(usize, Errno)> {
        let closed = |number: &usize| self.slots.segment(*number).is_none();
        let missing: Vec<usize> = group.iter().copied().filter(closed).collect();
        if missing.is_empty() {
            return Vec::new();
        }
        // Else the name of a file that is whole by now would be passed over.
        self.cut_closed();
        self.make_room(missing.len(), group);
        let mut refused = Vec::new();
        let mut opened = Vec::new();
        let mut entries = Vec::new();
        let until = Instant::now() + self.descriptor_wait;
        for number in missing {
            match self.find(number, until) {
                Ok((entry, segment)) => {
                    self.slots.take(&segment.shared.path, segment.shared.inode);
                    entries.push(entry);
                    opened.push((number, segment));
                }
                Err(cause) => refused.push((number, cause)),
            }
        }
        let written = self.shared.journal.append(&entries, true);
        for (number, segment) in opened {
            match &written {
                Ok(()) => self.opened(number, segment),
                Err(cause) => {
                    self.slots.untake(&segment.shared.path, segment.shared.inode);
                    if let State::Closed { start, .. } = &mut self.slots.slot(number).state {
                        // Else every attempt would leave another empty file.
                        *start = Start::Continue(segment.index);
                    }
                    refused.push((number, errno(cause)));
                }
            }
        }
        self.shared.counters.open_segments.set(self.slots.open_count() as u64);
        refused
    }

    /// Closes a segment, if it is open; the syncer does the rest.
    pub(crate) fn close(&mut self, number: usize, why: Why) {
        let slot = self.slots.slot(number);
        let state = State::Closed { start: Start::Find, parked: None };
        let mut segment = match std::mem::replace(&mut slot.state, state) {
            State::Open(segment) => segment,
            State::Closed { start, parked } => {
                if why == Why::Ended {
                    self.end(parked);
                    self.slots.remove(number);
                } else {
                    self.slots.slot(number).state = State::Closed { start, parked };
                }
                return;
            }
        };
        let whole = segment.cut_remainder().is_ok();
        let file = &segment.shared;
        let poisoned = file.is_poisoned();
        let parked = Parked {
            id: file.id,
            path: file.path.clone(),
            inode: file.inode,
            binary: segment.binary,
            condition: file.condition.clone(),
        };
        slot.state = match why {
            Why::Parked if whole && !poisoned => {
                State::Closed { start: Start::Continue(segment.index), parked: Some(parked) }
            }
            _ => State::Closed { start: Start::Fresh(next(segment.index)), parked: None },
        };
        if why == Why::Ended {
            self.slots.remove(number);
        }
        let ended = (why != Why::Parked || !whole) && self.shared.config.compress != Compression::None;
        if whole {
            self.closed(&segment, ended);
        } else {
            self.leave_uncut(Uncut { segment, ended });
        }
        self.shared.counters.open_segments.set(self.slots.open_count() as u64);
    }

    /// Nothing is left for the writer to do about a segment.
    fn closed(&mut self, segment: &Segment, ended: bool) {
        let file = &segment.shared;
        self.slots.untake(&file.path, file.inode);
        // Else it stays open in the journal, so that the next start looks at what the disk really has.
        let sound = !file.is_poisoned();
        if ended || !sound {
            self.shared.retire(&file.path);
        }
        if sound {
            let request = Request::Close { file: file.clone(), reach: segment.reach(), ended };
            // The syncer outlives the writer, unless it has panicked: then that is told.
            let _ = self.shared.syncs.put(request);
        } else {
            self.shared.not_synced(&file.path);
        }
    }

    fn leave_uncut(&mut self, uncut: Uncut) {
        // Its lines are on the disk even if what is behind them is never cut.
        let (file, reach) = (uncut.segment.shared.clone(), uncut.segment.reach());
        let _ = self.shared.syncs.put(Request::Sync { file, reach, waiting: Vec::new() });
        self.uncut.push_back(uncut);
        if self.uncut.len() > UNCUT_MOST
            && let Some(Uncut { segment, .. }) = self.uncut.pop_front()
        {
            let file = &segment.shared;
            self.shared.retire(&file.path);
            self.slots.untake(&file.path, file.inode);
        }
    }

    /// Tries again to cut what failed writes have left in segments that are closed.
    fn cut_closed(&mut self) {
        for mut uncut in std::mem::take(&mut self.uncut) {
            match uncut.segment.cut_remainder() {
                Ok(_) => self.closed(&uncut.segment, uncut.ended),
                Err(_) => self.uncut.push_back(uncut),
            }
        }
        self.shared.counters.open_segments.set(self.slots.open_count() as u64);
    }

    /// Cuts what can be cut by now, closes what has ended, and forgets keys that were closed long ago.
    pub(crate) fn sweep(&mut self) {
        self.cut_closed();
        for segment in self.slots.segments() {
            // If not now, then before its next line, by the next sweep, or when it is closed.
            let _ = segment.cut_remainder();
        }
        let config = &self.shared.config;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now_s = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let most = config.open_most.max(1).saturating_mul(CLOSED_MOST);
        for number in self.slots.ended(config.idle, config.grace, now_s) {
            self.close(number, Why::Ended);
        }
        let closed = self.slots.closed_by_use();
        for &number in &closed[..closed.len().saturating_sub(most)] {
            self.close(number, Why::Ended);
        }
    }

    /// Closes all that is open.
    pub(crate) fn park_all(&mut self) {
        self.cut_closed();
        for number in self.slots.open_by_use() {
            self.close(number, Why::Parked);
        }
    }

    /// Closes all that is open, for good.
    pub(crate) fn finish(&mut self) {
        self.park_all();
        for Uncut { segment, .. } in self.uncut.iter().filter(|uncut| uncut.segment.shared.is_poisoned()) {
            self.shared.not_synced(&segment.shared.path);
        }
    }

    /// Goes on with a segment of the last process; or ends it, when its key already has one.
    pub(crate) fn adopt(&mut self, segment: &journal::Segment, parked: Parked) {
        let named = self.place.folder.join(self.place.name(&segment.key, segment.index));
        let key = Arc::new(Key::of_the_past(&segment.key, segment.end));
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

    /// Has a closed segment packed, if that is asked for.
    pub(crate) fn end(&mut self, parked: Option<Parked>) {
        let Some(Parked { id, path, inode, condition, .. }) = parked else { return };
        if !condition.is_poisoned() && self.shared.config.compress != Compression::None {
            self.shared.retire(&path);
            let _ = self.shared.syncs.put(Request::End(Pack { id, path, inode, renamed: false }));
        }
    }

    /// Closes what must be closed for these, and says whether they can be opened without waiting.
    pub(crate) fn has_room(&mut self, group: &[usize]) -> bool {
        let missing = group.iter().filter(|&&number| self.slots.segment(number).is_none()).count();
        if missing == 0 {
            return true;
        }
        self.make_room(missing, group);
        let most = self.descriptors_most().saturating_sub(missing - 1).max(1);
        self.shared.descriptors.wait_below(most, Instant::now())
    }

    /// Of segments that wait to be cut the syncer closes none.
    fn descriptors_most(&self) -> usize {
        self.shared.config.open_most.max(1).saturating_mul(2).saturating_add(self.uncut.len())
    }

    fn make_room(&mut self, wanted: usize, group: &[usize]) {
        let most = self.shared.config.open_most.max(1);
        let excess = (self.slots.open_count() + wanted).saturating_sub(most);
        if excess == 0 {
            return;
        }
        let others = self.slots.open_by_use().into_iter().filter(|number| !group.contains(number));
        for number in others.take(excess).collect::<Vec<_>>() {
            self.close(number, Why::Parked);
        }
    }

    fn find(&mut self, number: usize, until: Instant) -> Result<(journal::Entry, Segment), Errno> {
        if !self.shared.descriptors.wait_below(self.descriptors_most(), until) {
            return Err(Errno::BUSY);
        }
        let slot = self.slots.slot(number);
        let State::Closed { start, parked } = &mut slot.state else {
            unreachable!("only closed slots are looked for");
        };
        if let (Some(before), Start::Continue(index)) = (&parked, *start)
            && before.condition.is_poisoned()
        {
            self.shared.retire(&before.path);
            // Kept: else every attempt that fails behind this would leave another empty file.
            (*start, *parked) = (Start::Fresh(next(index)), None);
        }
        let (start, parked, key) = (*start, parked.clone(), slot.key.clone());
        let taken = InUse { slots: &self.slots, shared: &self.shared };
        let found = self.place.open(&key.path, start, &taken).map_err(|cause| errno(&cause))?;
        let (condition, binary) = match parked {
            Some(parked) if parked.inode == found.inode => (parked.condition, parked.binary),
            _ => (Arc::new(Condition::new(found.length)), false),
        };
        let id = self.shared.journal.number();
        let segment = journal::Segment {
            path: self.shared.journal.name(&found.path).map_err(|cause| errno(&cause))?,
            inode: found.inode,
            good_bytes: condition.at_most(found.length),
            binary,
            key: key.path.to_string(),
            index: found.index,
            end: key.end(),
        };
        let counted = self.shared.descriptors.count();
        Ok((journal::Entry::Opened { id, segment }, Segment::new(found, id, condition, binary, counted)))
    }

    fn opened(&mut self, number: usize, segment: Segment) {
        let path = segment.shared.path.clone();
        let slot = self.slots.slot(number);
        let key = slot.key.clone();
        let before = std::mem::replace(&mut slot.state, State::Open(segment));
        if let State::Closed { parked: Some(parked), .. } = before {
            if parked.path == path {
                // The new record stands for it.
                let _ = self.shared.journal.append(&[journal::Entry::Gone { id: parked.id }], false);
            } else {
                self.end(Some(parked));
            }
        }
        if self.links.lead(&key, &path).is_err() {
            self.shared.counters.symlink_failures.add(1);
        }
    }
}
