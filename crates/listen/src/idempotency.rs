//! Idempotency keys: a request repeated under the same key is answered as the first was, and stored once.
//!
//! Keys are remembered for a bounded time and number, in memory only: a restart forgets them. A repeat that
//! comes while the first is being stored is refused with 409; so it is not held, and its client comes again.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry, hash_map::RandomState},
    hash::BuildHasher,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Threads that hold different keys seldom wait for each other.
const SHARDS: usize = 16;

/// The keys of all threads.
#[derive(Debug)]
pub(crate) struct Idempotency {
    shards: Vec<Mutex<Shard>>,
    hasher: RandomState,
    most_per_shard: usize,
    window_ns: u64,
}

#[derive(Debug, Default)]
struct Shard {
    known: HashMap<Arc<str>, Known>,
    /// In the order they came, with the time at which they are forgotten.
    order: VecDeque<(u64, u64, Arc<str>)>,
    next: u64,
}

#[derive(Debug)]
struct Known {
    /// Tells a later use of the same key apart.
    number: u64,
    body: u64,
    /// What was answered; nothing yet while it is being stored.
    answer: Option<Arc<[u8]>>,
}

/// What a key came to.
#[derive(Debug)]
pub(crate) enum Found<'a> {
    /// It is new: store the request, then say what was answered.
    New(Claim<'a>),
    /// Answered before: the receipts of then.
    Again(Arc<[u8]>),
    /// The first request under it is still being stored.
    InFlight,
    /// The first request under it had another body.
    OtherBody,
}

impl Idempotency {
    /// Remembers so many keys, for so long.
    pub fn new(most: usize, window_ns: u64) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            most_per_shard: most.div_ceil(SHARDS),
            window_ns,
        }
    }

    /// Whether keys are looked at at all.
    pub fn is_on(&self) -> bool {
        self.most_per_shard > 0
    }

    /// Looks a key up; `scope` tells users of the same key apart.
    pub fn look_up(&self, scope: &str, key: &str, body: &[u8], now_ns: u64) -> Found<'_> {
        let name: Arc<str> = format!("{scope}\0{key}").into();
        let body = self.hasher.hash_one(body);
        let shard = &self.shards[self.hasher.hash_one(&name) as usize % SHARDS];
        let mut locked = lock(shard);
        locked.forget(now_ns, self.most_per_shard);
        let number = locked.next;
        match locked.known.entry(Arc::clone(&name)) {
            Entry::Occupied(known) => match &known.get().answer {
                _ if known.get().body != body => Found::OtherBody,
                Some(answer) => Found::Again(Arc::clone(answer)),
                None => Found::InFlight,
            },
            Entry::Vacant(place) => {
                place.insert(Known { number, body, answer: None });
                locked.next += 1;
                locked.order.push_back((now_ns.saturating_add(self.window_ns), number, Arc::clone(&name)));
                Found::New(Claim { shard, name, number, answered: false })
            }
        }
    }
}

impl Shard {
    /// Forgets those whose time is over, and the oldest if there are too many.
    fn forget(&mut self, now_ns: u64, most: usize) {
        while let Some((until_ns, number, name)) = self.order.front() {
            if *until_ns > now_ns && self.order.len() < most.max(1) {
                return;
            }
            if self.known.get(name).is_some_and(|known| known.number == *number) {
                self.known.remove(name);
            }
            self.order.pop_front();
        }
    }
}

/// A key whose request is being stored. If it is dropped before it was answered, the key is forgotten, so
/// that the client can try again.
#[derive(Debug)]
pub(crate) struct Claim<'a> {
    shard: &'a Mutex<Shard>,
    name: Arc<str>,
    number: u64,
    answered: bool,
}

impl Claim<'_> {
    /// The request is stored, and these are its receipts.
    pub fn answer(mut self, receipts: &[u8]) {
        self.answered = true;
        let mut shard = lock(self.shard);
        if let Some(known) = shard.known.get_mut(&self.name).filter(|known| known.number == self.number) {
            known.answer = Some(receipts.into());
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut shard = lock(self.shard);
        if !self.answered && shard.known.get(&self.name).is_some_and(|known| known.number == self.number) {
            shard.known.remove(&self.name);
        }
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    // A thread that panicked leaves a shard as it was between two changes.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_stored_once_and_answered_again() {
        let keys = Idempotency::new(1_000, 10);
        let Found::New(claim) = keys.look_up("tag", "k", b"body", 0) else { panic!("a new key") };
        assert!(matches!(keys.look_up("tag", "k", b"body", 1), Found::InFlight));
        assert!(matches!(keys.look_up("other", "k", b"body", 1), Found::New(_)));
        claim.answer(b"receipt");
        let Found::Again(receipts) = keys.look_up("tag", "k", b"body", 2) else { panic!("a known key") };
        assert_eq!(&receipts[..], b"receipt");
        assert!(matches!(keys.look_up("tag", "k", b"other", 2), Found::OtherBody));
        assert!(matches!(keys.look_up("tag", "k", b"body", 10), Found::New(_)), "the window is over");
    }

    #[test]
    fn a_request_that_failed_leaves_its_key_free() {
        let keys = Idempotency::new(1_000, 10);
        drop(keys.look_up("tag", "k", b"body", 0));
        assert!(matches!(keys.look_up("tag", "k", b"body", 0), Found::New(_)));
    }

    #[test]
    fn the_number_of_keys_is_bounded() {
        let keys = Idempotency::new(160, u64::MAX);
        for number in 0..10_000 {
            if let Found::New(claim) = keys.look_up("tag", &number.to_string(), b"", number) {
                claim.answer(b"");
            }
        }
        let held: usize = keys.shards.iter().map(|shard| lock(shard).known.len()).sum();
        let ordered: usize = keys.shards.iter().map(|shard| lock(shard).order.len()).sum();
        assert!(held <= 160 && ordered <= 160, "{held} {ordered}");
    }

    #[test]
    fn an_old_claim_does_not_answer_for_a_later_one() {
        let keys = Idempotency::new(1_000, 10);
        let Found::New(old) = keys.look_up("tag", "k", b"body", 0) else { panic!("a new key") };
        let Found::New(new) = keys.look_up("tag", "k", b"body", 20) else { panic!("a new key") };
        old.answer(b"old");
        assert!(matches!(keys.look_up("tag", "k", b"body", 21), Found::InFlight));
        new.answer(b"new");
        let Found::Again(receipts) = keys.look_up("tag", "k", b"body", 22) else { panic!("a known key") };
        assert_eq!(&receipts[..], b"new");
    }
}
