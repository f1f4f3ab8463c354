//! The values that templates and conditions can name: a worker's state, and a user's values.

use std::sync::Arc;

use jiff::Timestamp;
use rand::SeedableRng as _;
use rand_pcg::Pcg64Mcg;

use crate::{
    Script,
    feeder::{Cursor, Feeder},
    names::Place,
};

/// The state that the users of one worker share.
#[derive(Debug)]
pub struct WorkerState {
    pub(crate) rng: Pcg64Mcg,
    /// Random numbers of trace IDs. They do not depend on the seed, so that no two trials have the same IDs.
    pub(crate) traces: Pcg64Mcg,
    count: u64,
    workers: u64,
    cursors: Vec<Cursor>,
    pub(crate) scratch: Vec<u8>,
    pub(crate) body: Vec<u8>,
    now_ns: i128,
}

impl WorkerState {
    /// The state of worker `index` of `of`.
    pub fn new(script: &Script, seed: u64, index: u64, of: u64) -> Self {
        Self {
            // The load's pauses use the same seed, so these random numbers must differ from theirs. Trials have consecutive
            // seeds, and workers consecutive indexes, so plain sums of both would repeat.
            rng: Pcg64Mcg::seed_from_u64(
                seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(index) ^ 0x7363_7269_7074,
            ),
            traces: Pcg64Mcg::from_rng(&mut rand::rng()),
            count: index + 1,
            workers: of.max(1),
            cursors: script.feeders.iter().map(|_| Cursor::new(index, of)).collect(),
            scratch: Vec::new(),
            body: Vec::new(),
            now_ns: 0,
        }
    }

    /// Sets the time for templates, in nanoseconds since 1970.
    pub fn set_now(&mut self, unix_ns: i128) {
        self.now_ns = unix_ns;
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_nanosecond(self.now_ns).unwrap_or_default()
    }

    /// The next value of `counter`. No two workers of a trial have the same value.
    pub(crate) fn next_count(&mut self) -> u64 {
        let count = self.count;
        self.count += self.workers;
        count
    }

    /// Whether every feeder has a row for another iteration.
    pub fn has_rows(&self, script: &Script) -> bool {
        script.feeders.iter().zip(&self.cursors).all(|(feeder, cursor)| feeder.has_row(cursor))
    }
}

/// The values that templates and conditions of a user can name.
#[derive(Debug)]
pub(crate) struct Values {
    /// The user's number, from 1.
    pub(crate) user: u64,
    /// The iteration's number, from 1.
    pub(crate) iteration: u64,
    /// The status of the last answer; 0 if there was none.
    pub(crate) status: u16,
    feeders: Arc<[Arc<Feeder>]>,
    rows: Box<[u64]>,
    taken: Box<[Vec<u8>]>,
}

impl Values {
    pub(crate) fn new(script: &Script, user: u64) -> Self {
        Self {
            user,
            iteration: 0,
            status: 0,
            feeders: script.feeders.as_slice().into(),
            rows: vec![0; script.feeders.len()].into(),
            taken: vec![Vec::new(); script.taken].into(),
        }
    }

    /// Begins the next iteration: moves to the next rows, and clears the taken values.
    pub(crate) fn begin(&mut self, script: &Script, state: &mut WorkerState) {
        self.iteration += 1;
        self.status = 0;
        for (number, feeder) in script.feeders.iter().enumerate() {
            let row = feeder.next_row(&mut state.cursors[number], self.user, &mut state.rng);
            self.rows[number] = row.unwrap_or_default();
        }
        self.taken.iter_mut().for_each(Vec::clear);
    }

    /// Keeps a value taken from an answer.
    pub(crate) fn take(&mut self, place: usize, value: Vec<u8>) {
        self.taken[place] = value;
    }

    /// A value; empty if no step has taken it yet.
    pub(crate) fn get(&self, place: Place) -> &[u8] {
        match place {
            Place::Column { feeder, column } => self.feeders[feeder].value(self.rows[feeder], column),
            Place::Taken(place) => &self.taken[place],
        }
    }
}
