//! The values that templates and conditions can name: a worker's state, and a user's values.

use std::sync::Arc;

use jiff::Timestamp;
use rand::SeedableRng as _;
use rand_pcg::Pcg64Mcg;

use crate::{Script, feeder::Feeder, names::Place};

/// The numbers of a worker's iterations. An iteration's random numbers, its rows and its values of `counter` follow from its number, so
/// that they do not depend on the worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numbering {
    /// The current piece is the last one.
    pieces: Vec<Piece>,
}

/// Consecutive iterations whose numbers have the same distance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    /// Number of iterations; of the last piece at least.
    count: u64,
    first: u64,
    step: u64,
}

impl Numbering {
    /// The numbers `first`, `first + step`, `first + 2 * step` and so on, from 0.
    pub fn new(first: u64, step: u64) -> Self {
        Self { pieces: vec![Piece { count: u64::MAX, first, step }] }
    }

    /// The numbers of worker `index`, if the workers take numbers by turns, and each has so many iterations: a worker that has begun all
    /// of its own is left out.
    pub fn by_turns(index: usize, counts: &[u64]) -> Self {
        let mut ends: Vec<u64> = counts.iter().copied().filter(|end| *end <= counts[index]).collect();
        ends.sort_unstable();
        let (mut pieces, mut round, mut number) = (Vec::new(), 0, 0);
        for end in ends.into_iter().filter(|end| *end > 0) {
            let taking = |counts: &[u64]| counts.iter().filter(|count| **count >= end).count() as u64;
            let (before, all) = (taking(&counts[..index]), taking(counts));
            if end > round {
                pieces.push(Piece { count: end - round, first: number + before, step: all });
                number += (end - round) * all;
                round = end;
            }
        }
        pieces.reverse();
        if pieces.is_empty() { Self::new(index as u64, counts.len() as u64) } else { Self { pieces } }
    }

    /// The number of the next iteration.
    fn next(&self) -> u64 {
        self.pieces.last().map_or(0, |piece| piece.first)
    }

    /// Takes the number of the next iteration.
    pub fn take(&mut self) -> u64 {
        let number = self.next();
        if let Some(piece) = self.pieces.last_mut() {
            piece.count = piece.count.saturating_sub(1);
            piece.first += piece.step;
            if piece.count == 0 && self.pieces.len() > 1 {
                self.pieces.pop();
            }
        }
        number
    }
}

/// The state that the users of one worker share.
#[derive(Debug)]
pub struct WorkerState {
    /// The random numbers of the current iteration.
    pub(crate) rng: Pcg64Mcg,
    seed: u64,
    numbering: Numbering,
    /// Random numbers of trace IDs. They do not depend on the seed, so that no two trials have the same IDs.
    pub(crate) traces: Pcg64Mcg,
    count: u64,
    workers: u64,
    pub(crate) scratch: Vec<u8>,
    pub(crate) body: Vec<u8>,
    now_ns: i128,
}

impl WorkerState {
    /// The state of worker `index` of `of`, whose iterations have these numbers.
    pub fn new(seed: u64, (index, of): (u64, u64), numbering: Numbering) -> Self {
        Self {
            rng: Pcg64Mcg::seed_from_u64(seed),
            seed,
            numbering,
            traces: Pcg64Mcg::from_rng(&mut rand::rng()),
            count: index + 1,
            workers: of.max(1),
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

    /// Begins the next iteration, whose requests use `counter` so many times; `None` if that is not known. Returns its number.
    fn begin(&mut self, counters: Option<u64>) -> u64 {
        let number = self.numbering.take();
        // The load's pauses use the same seed, so these random numbers must differ from theirs. Trials have consecutive seeds, and
        // iterations consecutive numbers, so plain sums of both would repeat.
        let mixed = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number) ^ 0x7363_7269_7074;
        self.rng = Pcg64Mcg::seed_from_u64(mixed);
        if let Some(counters) = counters {
            (self.count, self.workers) = (number * counters + 1, 1);
        }
        number
    }

    /// The next value of `counter`. No two workers of a trial have the same value.
    pub(crate) fn next_count(&mut self) -> u64 {
        let count = self.count;
        self.count += self.workers;
        count
    }

    /// Whether every feeder has a row for another iteration.
    pub fn has_rows(&self, script: &Script) -> bool {
        script.feeders.iter().all(|feeder| feeder.has_row(self.numbering.next()))
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
    /// The random numbers of the iteration. They stand in the worker's state while a request is rendered.
    pub(crate) rng: Pcg64Mcg,
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
            rng: Pcg64Mcg::seed_from_u64(0),
        }
    }

    /// Begins the next iteration: moves to the next rows, and clears the taken values.
    pub(crate) fn begin(&mut self, script: &Script, state: &mut WorkerState) {
        self.iteration += 1;
        self.status = 0;
        let number = state.begin(script.counters);
        for (row, feeder) in self.rows.iter_mut().zip(&script.feeders) {
            *row = feeder.row(number, self.user, &mut state.rng).unwrap_or_default();
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
