//! Idempotency keys: a request repeated under the same key is answered as the first was, and stored once.
//!
//! KeyCache are remembered for a bounded time and number, in memory only and as a hash: a restart forgets them. A repeat that
//! comes while the first is being stored is refused with 409; so it is not held, and its client comes again. Of
//! a request that could be stored only in part it is remembered which part, so that a repeat stores the rest.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry, hash_map::RandomState},
    hash::{BuildHasher, Hash},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use events::EventTime;
use segments::{Level, Receipt};

/// Threads that hold different keys seldom wait for each other.
const SHARDS: usize = 16;

/// The keys of all threads.
#[derive(Debug)]
pub(crate) struct Idempotency {
    shards: Vec<Mutex<Shard>>,
    hashers: [RandomState; 2],
    max_per_shard: usize,
    window_ns: u64,
}

/// A key with its scope, hashed with secrets of this process: two never have the same. Long ones take no more memory.
type KeyHash = u128;

#[derive(Debug, Default)]
struct Shard {
    known: HashMap<KeyHash, KeyEntry>,
    /// How many of these are not in flight.
    ended: usize,
    /// Those that came to an end, in that order, with the time at which they are forgotten. What is in flight is
    /// forgotten by nobody but its [`Claim`].
    order: VecDeque<(u64, KeyHash)>,
}

#[derive(Debug)]
struct KeyEntry {
    body: u64,
    /// When it is forgotten, once it has come to an end.
    until_ns: u64,
    progress: Progress,
}

#[derive(Debug)]
enum Progress {
    InFlight,
    Answered(Arc<EarlierAnswer>),
    PartlyStored(Box<PartlyStored>),
}

/// What is stored of a request that failed for the rest.
#[derive(Debug, Clone)]
pub(crate) struct PartlyStored {
    /// How safe that is.
    pub level: Level,
    pub inputs: Box<RenderInputs>,
    /// The parts that are stored, by number, and where.
    pub stored: Vec<(usize, Receipt)>,
}

/// What the lines of a request are made of besides its body. A repeat comes later, with other headers or from another
/// address: its lines must be those of the first, else what is left to store would begin and end elsewhere.
#[derive(Debug, Clone)]
pub(crate) struct RenderInputs {
    /// The time of events that bear none.
    pub now: EventTime,
    /// The time that the request gives all its events.
    pub time: Option<EventTime>,
    /// Members that every event gets.
    pub extra_members: Box<str>,
}

/// Bytes that are remembered of a request stored in part, at the most: of the names of its files and of members added to
/// its events. One that needs more is forgotten.
const MAX_PARTLY_STORED_BYTES: usize = 2 << 10;
/// Bytes of a request's receipts, likewise: the first ones, whole.
const MAX_RECEIPT_BYTES: usize = 1 << 10;

/// What a request was answered.
#[derive(Debug)]
pub(crate) struct EarlierAnswer {
    /// How safe its events were then.
    pub level: Level,
    /// The value of its first receipts; empty if the first alone is too long to be remembered.
    pub receipts: Box<[u8]>,
}

/// What a key came to.
#[derive(Debug)]
pub(crate) enum Found<'a> {
    /// It is new: store the request, then say what was answered.
    New(Claim<'a>),
    /// EarlierAnswer before.
    Answered(Arc<EarlierAnswer>),
    /// The first request under it is still being stored.
    InFlight,
    /// The first request under it had another body.
    OtherBody,
}

impl Idempotency {
    /// Remembers so many keys at least, for so long after they were answered.
    pub(crate) fn new(max_keys: usize, window_ns: u64) -> Self {
        // KeyCache do not spread evenly: beyond six standard deviations no shard ever comes.
        let mean = max_keys as f64 / SHARDS as f64;
        let max_per_shard = if max_keys == 0 { 0 } else { (mean + 6.0 * mean.sqrt()) as usize + 8 };
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hashers: [RandomState::new(), RandomState::new()],
            max_per_shard,
            window_ns,
        }
    }

    /// Whether keys are looked at at all.
    pub(crate) fn is_enabled(&self) -> bool {
        self.max_per_shard > 0
    }

    /// Looks a key up; `scope` tells users of the same key apart. `body` is the body with how it is read.
    pub(crate) fn look_up(&self, scope: &str, key: &str, body: impl Hash, now_ns: u64) -> Found<'_> {
        let [high, low] = self.hashers.each_ref().map(|hasher| hasher.hash_one((scope, key)));
        let name = KeyHash::from(high) << 64 | KeyHash::from(low);
        let body = self.hashers[0].hash_one(body);
        let shard = &self.shards[low as usize % SHARDS];
        let mut locked = lock(shard);
        locked.evict(now_ns, self.max_per_shard);
        let earlier = match locked.known.entry(name) {
            Entry::Vacant(entry) => {
                entry.insert(KeyEntry { body, until_ns: 0, progress: Progress::InFlight });
                None
            }
            Entry::Occupied(mut known) => match &known.get().progress {
                _ if known.get().body != body => return Found::OtherBody,
                Progress::Answered(answered) => return Found::Answered(Arc::clone(answered)),
                Progress::InFlight => return Found::InFlight,
                Progress::PartlyStored(partly_stored) => {
                    let earlier = partly_stored.clone();
                    known.get_mut().progress = Progress::InFlight;
                    locked.ended -= 1;
                    Some(earlier)
                }
            },
        };
        drop(locked);
        Found::New(Claim { keys: self, shard, name, earlier, is_finished: false })
    }
}

impl KeyEntry {
    /// Whether it has come to an end, and is forgotten then. One that was repeated may be in flight again, or be forgotten
    /// later.
    fn expires_at(&self, until_ns: u64) -> bool {
        self.until_ns == until_ns && !matches!(self.progress, Progress::InFlight)
    }
}

impl Shard {
    /// Forgets those whose time is over, and the oldest if there are more than `most`.
    fn evict(&mut self, now_ns: u64, max_keys: usize) {
        while let Some((until_ns, name)) = self.order.front() {
            let is_current = self.known.get(name).is_some_and(|known| known.expires_at(*until_ns));
            if is_current && *until_ns > now_ns && self.ended <= max_keys {
                break;
            }
            if is_current {
                self.known.remove(name);
                self.ended -= 1;
            }
            self.order.pop_front();
        }
        // Each repeat of a request stored in part leaves an entry that is meant no more.
        if self.order.len() > 2 * self.ended.max(max_keys) {
            let known = &self.known;
            self.order
                .retain(|(until_ns, name)| known.get(name).is_some_and(|known| known.expires_at(*until_ns)));
        }
    }

    /// A request has come to an end.
    fn end(&mut self, name: KeyHash, progress: Progress, until_ns: u64) {
        if let Some(known) = self.known.get_mut(&name) {
            (known.progress, known.until_ns) = (progress, until_ns);
            self.ended += 1;
            self.order.push_back((until_ns, name));
        }
    }
}

/// A key whose request is being stored. If it is dropped before it came to an end, all is as before the request,
/// so that the client can try again.
#[derive(Debug)]
pub(crate) struct Claim<'a> {
    keys: &'a Idempotency,
    shard: &'a Mutex<Shard>,
    name: KeyHash,
    /// What an earlier request under this key has stored.
    earlier: Option<Box<PartlyStored>>,
    is_finished: bool,
}

impl Claim<'_> {
    /// Memory that a key takes while its request is in flight.
    pub(crate) const HELD_BYTES: u64 = size_of::<(KeyHash, KeyEntry)>() as u64;

    /// What an earlier request under this key has stored, and is not to be stored again.
    pub(crate) fn earlier(&self) -> Option<&PartlyStored> {
        self.earlier.as_deref()
    }

    /// The request is stored, at that level, and these are its receipts.
    pub(crate) fn finish_answered(self, level: Level, receipts: &[u8], now_ns: u64) {
        let answered = EarlierAnswer { level, receipts: first_receipts(receipts).into() };
        self.finish(Progress::Answered(Arc::new(answered)), now_ns);
    }

    /// The request is stored in part.
    pub(crate) fn finish_partly_stored(self, partly_stored: PartlyStored, now_ns: u64) {
        let bytes_of = |(_, receipt): &(usize, Receipt)| 40 + receipt.segment.len();
        let stored_bytes: usize = partly_stored.stored.iter().map(bytes_of).sum();
        if stored_bytes + partly_stored.inputs.extra_members.len() <= MAX_PARTLY_STORED_BYTES {
            self.finish(Progress::PartlyStored(Box::new(partly_stored)), now_ns);
        }
    }

    fn finish(mut self, progress: Progress, now_ns: u64) {
        self.is_finished = true;
        let mut shard = lock(self.shard);
        shard.end(self.name, progress, now_ns.saturating_add(self.keys.window_ns));
        shard.evict(now_ns, self.keys.max_per_shard);
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        let mut shard = lock(self.shard);
        let Some(earlier) = self.earlier.take() else {
            shard.known.remove(&self.name);
            return;
        };
        let until_ns = shard.known.get(&self.name).map_or(0, |known| known.until_ns);
        shard.end(self.name, Progress::PartlyStored(earlier), until_ns);
    }
}

/// As many receipts of this value as are remembered.
fn first_receipts(receipts: &[u8]) -> &[u8] {
    if receipts.len() <= MAX_RECEIPT_BYTES {
        return receipts;
    }
    // Within the name of a segment quotes are escaped.
    let next = b", segment=\"";
    let end = receipts[..MAX_RECEIPT_BYTES + next.len()].windows(next.len()).rposition(|part| part == next);
    &receipts[..end.unwrap_or(0)]
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    // A thread that panicked leaves a shard as it was between two changes.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
