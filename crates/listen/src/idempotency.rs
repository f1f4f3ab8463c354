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
    pub fn new(most: usize, window_ns: u64) -> Self {
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
    pub fn is_on(&self) -> bool {
        self.most_per_shard > 0
    }

    /// Looks a key up; `scope` tells users of the same key apart. `body` is the body with how it is read.
    pub fn look_up(&self, scope: &str, key: &str, body: impl Hash, now_ns: u64) -> Found<'_> {
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
    pub const HELD_BYTES: u64 = size_of::<(Name, Known)>() as u64;

    /// What an earlier request under this key has stored, and is not to be stored again.
    pub fn earlier(&self) -> Option<&InPart> {
        self.earlier.as_deref()
    }

    /// The request is stored, at that level, and these are its receipts.
    pub fn answer(self, level: Level, receipts: &[u8], now_ns: u64) {
        let answered = Answered { level, receipts: first_of(receipts).into() };
        self.settle(Course::Answered(Arc::new(answered)), now_ns);
    }

    /// The request is stored in part.
    pub fn leave(self, in_part: InPart, now_ns: u64) {
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
mod tests {
    use super::*;

    #[test]
    fn a_key_is_stored_once_and_answered_again_as_the_first_time() {
        let keys = Idempotency::new(1_000, 10);
        let Found::New(claim) = keys.look_up("tag", "k", b"body", 0) else { panic!("a new key") };
        assert!(matches!(keys.look_up("tag", "k", b"body", 1), Found::InFlight));
        assert!(matches!(keys.look_up("other", "k", b"body", 1), Found::New(_)));
        claim.answer(Level::Synced, b"receipt", 2);
        let Found::Again(answered) = keys.look_up("tag", "k", b"body", 3) else { panic!("a known key") };
        assert_eq!((answered.level, &answered.receipts[..]), (Level::Synced, &b"receipt"[..]));
        assert!(matches!(keys.look_up("tag", "k", b"other", 3), Found::OtherBody));
        assert!(matches!(keys.look_up("tag", "k", b"body", 11), Found::Again(_)));
        assert!(matches!(keys.look_up("tag", "k", b"body", 12), Found::New(_)), "the window is over");
    }

    #[test]
    fn a_request_that_failed_leaves_its_key_free() {
        let keys = Idempotency::new(1_000, 10);
        drop(keys.look_up("tag", "k", b"body", 0));
        assert!(matches!(keys.look_up("tag", "k", b"body", 0), Found::New(_)));
    }

    #[test]
    fn what_is_stored_in_part_is_remembered_until_the_rest_is_stored() {
        let keys = Idempotency::new(1_000, 10);
        let look_up = |now_ns| keys.look_up("tag", "k", b"body", now_ns);
        let claim = |now_ns| match look_up(now_ns) {
            Found::New(claim) => claim,
            other => panic!("not to be stored: {other:?}"),
        };
        let time = EventTime { seconds: 7, nanos: 0 };
        let in_part = || {
            let given = Box::new(Given { now: time, time: None, added: "".into() });
            InPart { level: Level::Written, given, stored: Vec::new() }
        };
        claim(0).leave(in_part(), 1);
        let again = claim(2);
        assert_eq!(again.earlier().map(|earlier| earlier.given.now), Some(time));
        assert!(matches!(look_up(3), Found::InFlight));
        // Refused before it was tried: all is as before.
        drop(again);
        let again = claim(4);
        assert!(again.earlier().is_some());
        again.answer(Level::Written, b"all", 5);
        assert!(matches!(look_up(14), Found::Again(_)));
        assert!(claim(15).earlier().is_none());
        claim(15).leave(in_part(), 16);
        assert!(claim(26).earlier().is_none(), "the window is over");
        for (parts, is_remembered, at_ns) in [(30, true, 50), (60, false, 100)] {
            let receipt = || Receipt { segment: "segment.log".into(), offset: 0, bytes: 1 };
            let stored = (0..parts).map(|number| (number, receipt())).collect();
            claim(at_ns).leave(InPart { stored, ..in_part() }, at_ns);
            assert_eq!(claim(at_ns + 1).earlier().is_some(), is_remembered, "{parts} parts");
        }
    }

    #[test]
    fn a_key_that_is_repeated_again_and_again_drives_out_no_other() {
        let keys = Idempotency::new(1, u64::MAX / 2);
        let Found::New(claim) = keys.look_up("tag", "first", b"", 0) else { panic!("a new key") };
        claim.answer(Level::Written, b"receipt", 0);
        // In the same shard, whichever that is.
        for name in 0..64 {
            for now_ns in 0..100 {
                let Found::New(claim) = keys.look_up("again", &name.to_string(), b"", now_ns) else {
                    continue;
                };
                let time = EventTime { seconds: 0, nanos: 0 };
                let given = Box::new(Given { now: time, time: None, added: "".into() });
                claim.leave(InPart { level: Level::Written, given, stored: Vec::new() }, now_ns);
            }
            if name == 0 {
                assert!(matches!(keys.look_up("tag", "first", b"", 200), Found::Again(_)));
            }
        }
        let longest = keys.shards.iter().map(|shard| lock(shard).order.len()).max();
        assert!(longest <= Some(2 * keys.most_per_shard + 1), "{longest:?}");
    }

    #[test]
    fn the_number_of_keys_is_bounded() {
        let keys = Idempotency::new(160, u64::MAX);
        for number in 0..10_000 {
            if let Found::New(claim) = keys.look_up("tag", &number.to_string(), b"", number) {
                claim.answer(Level::Written, b"", number);
            }
        }
        let held: usize = keys.shards.iter().map(|shard| lock(shard).known.len()).sum();
        let ordered: usize = keys.shards.iter().map(|shard| lock(shard).order.len()).sum();
        let most = SHARDS * keys.most_per_shard;
        assert!(held <= most && ordered <= most && most < 1_000, "{held} {ordered} {most}");
        assert!(!Idempotency::new(0, 1).is_on());
    }

    #[test]
    fn as_many_keys_are_remembered_as_were_asked_for() {
        for most in [1, 16, 1_000, 100_000] {
            let keys = Idempotency::new(most, u64::MAX);
            for again in [false, true] {
                for number in 0..most {
                    match keys.look_up("tag", &number.to_string(), b"", 1) {
                        Found::New(claim) if !again => claim.answer(Level::Written, b"", 1),
                        Found::Again(_) if again => {}
                        other => panic!("key {number} of {most}, {again}: {other:?}"),
                    }
                }
            }
        }
    }

    #[test]
    fn of_long_receipts_the_first_are_remembered_whole() {
        let receipt = |length: usize| {
            format!("segment=\"{}, segment=\\\"\"; offset=0; bytes=1; level=written", "x".repeat(length))
        };
        let several = vec![receipt(200); 16].join(", ");
        let first = std::str::from_utf8(first_of(several.as_bytes())).unwrap();
        assert_eq!(first, vec![receipt(200); 3].join(", "));
        assert_eq!(first_of(&several.as_bytes()[..first.len()]), first.as_bytes());
        assert_eq!(first_of(receipt(2_000).as_bytes()), b"");
        let exact = receipt(RECEIPTS_MOST_BYTES - receipt(0).len());
        assert_eq!(first_of(format!("{exact}, {exact}").as_bytes()), exact.as_bytes());
    }

    #[test]
    fn a_long_key_takes_no_more_memory_than_a_short_one() {
        assert!(size_of::<(Name, Known)>() <= 64 && size_of::<(u64, Name)>() <= 32);
    }

    #[test]
    fn what_is_in_flight_is_not_forgotten_however_long_it_takes_and_however_many_come() {
        let keys = Idempotency::new(16, 10);
        let Found::New(claim) = keys.look_up("tag", "k", b"body", 0) else { panic!("a new key") };
        for number in 0..1_000 {
            if let Found::New(other) = keys.look_up("tag", &number.to_string(), b"", number) {
                other.answer(Level::Written, b"", number);
            }
        }
        assert!(matches!(keys.look_up("tag", "k", b"body", 1_000), Found::InFlight));
        claim.answer(Level::Written, b"receipt", 1_000);
        assert!(matches!(keys.look_up("tag", "k", b"body", 1_009), Found::Again(_)));
    }
}
