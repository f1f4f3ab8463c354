//! Every load of a list, several times: blocks, each in an order of its own, so that drift does not look like
//! load.

use rand::{SeedableRng, seq::SliceRandom};
use rand_pcg::Pcg64;

use crate::{goal::SearchGoal, grid::Grid, strategy::Candidate, trials::Trials};

/// A sweep on its way.
#[derive(Debug, Clone)]
pub(crate) struct Sweep {
    order: Vec<i64>,
    done: usize,
    duration_s: f64,
}

impl Sweep {
    pub(crate) fn new(goals: &[SearchGoal], repeats: u32, seed: u64, grid: &Grid) -> Self {
        let mut random = Pcg64::seed_from_u64(seed);
        let mut order = Vec::new();
        for _ in 0..repeats {
            let mut block: Vec<i64> = (0..=grid.last()).collect();
            block.shuffle(&mut random);
            order.extend(block);
        }
        let duration_s = goals.iter().map(|goal| goal.final_trial_duration_s).fold(0.0, f64::max);
        Self { order, done: 0, duration_s }
    }

    pub(crate) fn nominate(&mut self, trials: &Trials) -> Option<Candidate> {
        while let Some(position) = self.order.get(self.done) {
            if trials.is_available(*position, self.duration_s) {
                return Some(Candidate::new(*position, self.duration_s));
            }
            self.done += 1;
        }
        None
    }

    pub(crate) fn measured(&mut self) {
        self.done += 1;
    }
}
