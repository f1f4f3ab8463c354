//! Idempotency keys: a request repeated under the same key is answered as the first was, and stored once.
//!
//! Keys are remembered for a bounded time and number, in memory only and as a hash: a restart forgets them. A repeat that
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
    most_per_shard: usize,
    window_ns: u64,
}

/// A key with its scope, hashed with secrets of this process: two never have the same. Long ones take no more memory.
type Name = u128;

#[derive(Debug, Default)]
struct Shard {
    known: HashMap<Name, Known>,
    /// How many of these are not in flight.
    ended: usize,
    /// Those that came to an end, in that order, with the time at which they are forgotten. What is in flight is
    /// forgotten by nobody but its [`Claim`].
    order: VecDeque<(u64, Name)>,
}

#[derive(Debug)]
struct Known {
    body: u64,
    /// When it is forgotten, once it has come to an end.
    until_ns: u64,
    course: Course,
}

#[derive(Debug)]
enum Course {
    InFlight,
    Answered(Arc<Answered>),
    InPart(Box<InPart>),
}

/// What is stored of a request that failed for the rest.
#[derive(Debug, Clone)]
pub(crate) struct InPart {
    /// How safe that is.
    pub level: Level,
    pub given: Box<Given>,
    /// The parts that are stored, by number, and where.
    pub stored: Vec<(usize, Receipt)>,
}

/// What the lines of a request are made of besides its body. A repeat comes later, with other headers or from another
/// address: its lines must be those of the first, else what is left to store would begin and end elsewhere.
#[derive(Debug, Clone)]
pub(crate) struct Given {
    /// The time of events that bear none.
    pub now: EventTime,
    /// The time that the request gives all its events.
    pub time: Option<EventTime>,
    /// Members that every event gets.
    pub added: Box<str>,
}

/// Bytes that are remembered of a request stored in part, at the most: of the names of its files and of members added to
/// its events. One that needs more is forgotten.
const IN_PART_MOST_BYTES: usize = 2 << 10;
/// Bytes of a request's receipts, likewise: the first ones, whole.
const RECEIPTS_MOST_BYTES: usize = 1 << 10;

/// What a request was answered.
#[derive(Debug)]
pub(crate) struct Answered {
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
    /// Answered before.
    Again(Arc<Answered>),
    /// The first request under it is still being stored.
    InFlight,
    /// The first request under it had another body.
    OtherBody,
}

impl Idempotency {
    /// Remembers so many keys at least, for so long after they were answered.
    pub(crate) fn new(most: usize, window_ns: u64) -> Self {
        // Keys do not spread evenly: beyond six standard deviations no shard ever comes.
        let mean = most as f64 / SHARDS as f64;
        let most_per_shard = if most == 0 { 0 } else { (mean + 6.0 * mean.sqrt()) as usize + 8 };
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hashers: [RandomState::new(), RandomState::new()],
            most_per_shard,
            window_ns,
        }
    }

    /// Whether keys are looked at at all.
    pub(crate) fn is_on(&self) -> bool {
        self.most_per_shard > 0
    }

    /// Looks a key up; `scope` tells users of the same key apart. `body` is the body with how it is read.
    pub(crate) fn look_up(&self, scope: &str, key: &str, body: impl Hash, now_ns: u64) -> Found<'_> {
        let [high, low] = self.hashers.each_ref().map(|hasher| hasher.hash_one((scope, key)));
        let name = Name::from(high) << 64 | Name::from(low);
        let body = self.hashers[0].hash_one(body);
        let shard = &self.shards[low as usize % SHARDS];
        let mut locked = lock(shard);
        locked.forget(now_ns, self.most_per_shard);
        let earlier = match locked.known.entry(name) {
            Entry::Vacant(place) => {
                place.insert(Known { body, until_ns: 0, course: Course::InFlight });
                None
            }
            Entry::Occupied(mut known) => match &known.get().course {
                _ if known.get().body != body => return Found::OtherBody,
                Course::Answered(answered) => return Found::Again(Arc::clone(answered)),
                Course::InFlight => return Found::InFlight,
                Course::InPart(in_part) => {
                    let earlier = in_part.clone();
                    known.get_mut().course = Course::InFlight;
                    locked.ended -= 1;
                    Some(earlier)
                }
            },
        };
        drop(locked);
        Found::New(Claim { keys: self, shard, name, earlier, is_settled: false })
    }
}

impl Known {
    /// Whether it has come to an end, and is forgotten then. One that was repeated may be in flight again, or be forgotten
    /// later.
    fn is_until(&self, until_ns: u64) -> bool {
        self.until_ns == until_ns && !matches!(self.course, Course::InFlight)
    }
}

impl Shard {
    /// Forgets those whose time is over, and the oldest if there are more than `most`.
    fn forget(&mut self, now_ns: u64, most: usize) {
        while let Some((until_ns, name)) = self.order.front() {
            let is_meant = self.known.get(name).is_some_and(|known| known.is_until(*until_ns));
            if is_meant && *until_ns > now_ns && self.ended <= most {
                break;
            }
            if is_meant {
                self.known.remove(name);
                self.ended -= 1;
            }
            self.order.pop_front();
        }
        // Each repeat of a request stored in part leaves an entry that is meant no more.
        if self.order.len() > 2 * self.ended.max(most) {
            let known = &self.known;
            self.order
                .retain(|(until_ns, name)| known.get(name).is_some_and(|known| known.is_until(*until_ns)));
        }
    }

    /// A request has come to an end.
    fn end(&mut self, name: Name, course: Course, until_ns: u64) {
        if let Some(known) = self.known.get_mut(&name) {
            (known.course, known.until_ns) = (course, until_ns);
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
    name: Name,
    /// What an earlier request under this key has stored.
    earlier: Option<Box<InPart>>,
    is_settled: bool,
}

impl Claim<'_> {
    /// Memory that a key takes while its request is in flight.
    pub(crate) const HELD_BYTES: u64 = size_of::<(Name, Known)>() as u64;

    /// What an earlier request under this key has stored, and is not to be stored again.
    pub(crate) fn earlier(&self) -> Option<&InPart> {
        self.earlier.as_deref()
    }

    /// The request is stored, at that level, and these are its receipts.
    pub(crate) fn answer(self, level: Level, receipts: &[u8], now_ns: u64) {
        let answered = Answered { level, receipts: first_of(receipts).into() };
        self.settle(Course::Answered(Arc::new(answered)), now_ns);
    }

    /// The request is stored in part.
    pub(crate) fn leave(self, in_part: InPart, now_ns: u64) {
        let bytes_of = |(_, receipt): &(usize, Receipt)| 40 + receipt.segment.len();
        let stored_bytes: usize = in_part.stored.iter().map(bytes_of).sum();
        if stored_bytes + in_part.given.added.len() <= IN_PART_MOST_BYTES {
            self.settle(Course::InPart(Box::new(in_part)), now_ns);
        }
    }

    fn settle(mut self, course: Course, now_ns: u64) {
        self.is_settled = true;
        let mut shard = lock(self.shard);
        shard.end(self.name, course, now_ns.saturating_add(self.keys.window_ns));
        shard.forget(now_ns, self.keys.most_per_shard);
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if self.is_settled {
            return;
        }
        let mut shard = lock(self.shard);
        let Some(earlier) = self.earlier.take() else {
            shard.known.remove(&self.name);
            return;
        };
        let until_ns = shard.known.get(&self.name).map_or(0, |known| known.until_ns);
        shard.end(self.name, Course::InPart(earlier), until_ns);
    }
}

/// As many receipts of this value as are remembered.
fn first_of(receipts: &[u8]) -> &[u8] {
    if receipts.len() <= RECEIPTS_MOST_BYTES {
        return receipts;
    }
    // Within the name of a segment quotes are escaped.
    let next = b", segment=\"";
    let end = receipts[..RECEIPTS_MOST_BYTES + next.len()].windows(next.len()).rposition(|part| part == next);
    &receipts[..end.unwrap_or(0)]
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    // A thread that panicked leaves a shard as it was between two changes.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
