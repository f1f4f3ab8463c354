//! Idempotency keys: a request that repeats a key gets the answer of the first one and is not stored again.
//!
//! Keys are remembered for a limited time and up to a maximum number, as hashes in memory only, so a restart forgets
//! them. A repeat that arrives while the first request is being stored gets a 409, and its client retries. If a request
//! was stored in part, the stored parts are remembered, so that a repeat stores only the rest.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry, hash_map::RandomState},
    hash::{BuildHasher, Hash},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use events::EventTime;
use segments::{Level, Receipt};

/// Number of locks. Several, so that threads with different keys rarely wait for each other.
const SHARDS: usize = 16;

/// The idempotency keys that all threads share.
#[derive(Debug)]
pub(crate) struct Idempotency {
    shards: Vec<Mutex<Shard>>,
    hashers: [RandomState; 2],
    max_per_shard: usize,
    window_ns: u64,
}

/// The hash of a key and its scope. It is seeded randomly and 128 bits long, so collisions do not occur in practice. A
/// long key takes no more memory than a short one.
type KeyHash = u128;

#[derive(Debug, Default)]
struct Shard {
    known: HashMap<KeyHash, KeyEntry>,
    /// Number of entries whose requests have finished.
    ended: usize,
    /// The finished entries in order of expiry, each with its time. Only a [`Claim`] removes an entry in flight.
    order: VecDeque<(u64, KeyHash)>,
}

#[derive(Debug)]
struct KeyEntry {
    body: u64,
    /// When a finished entry expires.
    until_ns: u64,
    progress: Progress,
}

#[derive(Debug)]
enum Progress {
    InFlight,
    Answered(Arc<EarlierAnswer>),
    PartlyStored(Box<PartlyStored>),
}

/// The stored parts of a request that was stored only in part.
#[derive(Debug, Clone)]
pub(crate) struct PartlyStored {
    pub level: Level,
    pub inputs: Box<RenderInputs>,
    /// The stored parts: their numbers and receipts.
    pub stored: Vec<(usize, Receipt)>,
}

/// Inputs besides the body that determine a request's lines. A repeat may have another time, other headers or another
/// address, but it must render the same lines, because its parts must have the same boundaries.
#[derive(Debug, Clone)]
pub(crate) struct RenderInputs {
    /// The time for events without a time.
    pub now: EventTime,
    /// The time that the request sets for all its events.
    pub time: Option<EventTime>,
    /// The members that are added to every event.
    pub extra_members: Box<str>,
}

/// Maximum memory in bytes for a partly stored request: the names of its files and its extra members. Larger ones are
/// not remembered.
const MAX_PARTLY_STORED_BYTES: usize = 2 << 10;
/// Maximum length in bytes of a request's remembered receipts. Further receipts are dropped.
const MAX_RECEIPT_BYTES: usize = 1 << 10;

/// What is remembered of the answer to an earlier request.
#[derive(Debug)]
pub(crate) struct EarlierAnswer {
    /// The level that the request's events reached.
    pub level: Level,
    /// The value of the first receipts; empty if even the first one is too long.
    pub receipts: Box<[u8]>,
}

/// The result of looking up a key.
#[derive(Debug)]
pub(crate) enum Found<'a> {
    /// The key is new. The caller stores the request and then records the answer in the claim.
    New(Claim<'a>),
    /// A request with this key has been answered.
    Answered(Arc<EarlierAnswer>),
    /// A request with this key is still being stored.
    InFlight,
    /// An earlier request with this key had another body.
    OtherBody,
}

impl Idempotency {
    /// Remembers at least `max_keys` keys, each for `window_ns` after its answer.
    pub(crate) fn new(max_keys: usize, window_ns: u64) -> Self {
        // Keys are not spread evenly over the shards, so each has a margin of six standard deviations.
        let mean = max_keys as f64 / SHARDS as f64;
        let max_per_shard = if max_keys == 0 { 0 } else { (mean + 6.0 * mean.sqrt()) as usize + 8 };
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hashers: [RandomState::new(), RandomState::new()],
            max_per_shard,
            window_ns,
        }
    }

    /// Whether the configuration allows keys.
    pub(crate) fn is_enabled(&self) -> bool {
        self.max_per_shard > 0
    }

    /// Looks up a key in its scope. `body` is the body together with its content type.
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
    /// Whether the entry is finished and expires at this time. A repeat can put an entry in flight again or make it
    /// expire later.
    fn expires_at(&self, until_ns: u64) -> bool {
        self.until_ns == until_ns && !matches!(self.progress, Progress::InFlight)
    }
}

impl Shard {
    /// Removes expired entries, and the oldest ones beyond `max_keys`.
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
        // Each repeat of a partly stored request leaves an outdated entry, so these are removed from time to time.
        if self.order.len() > 2 * self.ended.max(max_keys) {
            let known = &self.known;
            self.order
                .retain(|(until_ns, name)| known.get(name).is_some_and(|known| known.expires_at(*until_ns)));
        }
    }

    /// Records that a request has finished.
    fn end(&mut self, name: KeyHash, progress: Progress, until_ns: u64) {
        if let Some(known) = self.known.get_mut(&name) {
            (known.progress, known.until_ns) = (progress, until_ns);
            self.ended += 1;
            self.order.push_back((until_ns, name));
        }
    }
}

/// A key whose request is being stored. Dropping an unfinished claim restores the earlier state, so that the client can
/// retry.
#[derive(Debug)]
pub(crate) struct Claim<'a> {
    keys: &'a Idempotency,
    shard: &'a Mutex<Shard>,
    name: KeyHash,
    /// The stored parts of an earlier request with this key.
    earlier: Option<Box<PartlyStored>>,
    is_finished: bool,
}

impl Claim<'_> {
    /// Memory in bytes of a key whose request is in flight.
    pub(crate) const HELD_BYTES: u64 = size_of::<(KeyHash, KeyEntry)>() as u64;

    /// The stored parts of an earlier request with this key, which must not be stored again.
    pub(crate) fn earlier(&self) -> Option<&PartlyStored> {
        self.earlier.as_deref()
    }

    /// Records that the request was stored, with its level and receipts.
    pub(crate) fn finish_answered(self, level: Level, receipts: &[u8], now_ns: u64) {
        let answered = EarlierAnswer { level, receipts: first_receipts(receipts).into() };
        self.finish(Progress::Answered(Arc::new(answered)), now_ns);
    }

    /// Records that the request was stored in part, so that a repeat stores the rest.
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

/// The first complete receipts of a value, up to the maximum length.
fn first_receipts(receipts: &[u8]) -> &[u8] {
    if receipts.len() <= MAX_RECEIPT_BYTES {
        return receipts;
    }
    // Matches only between receipts, because quotes in segment names are escaped.
    let next = b", segment=\"";
    let end = receipts[..MAX_RECEIPT_BYTES + next.len()].windows(next.len()).rposition(|part| part == next);
    &receipts[..end.unwrap_or(0)]
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    // A panic cannot leave a shard inconsistent, so poisoning is ignored.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
