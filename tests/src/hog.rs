//! A hog: a program that takes processors in bursts, with real-time priority.
//!
//! It represents what a user cannot see: other guests of the host, and the machine's own work. With real-time priority, it takes the same
//! time from every program beside it, however many threads that program has.

use std::{
    hint,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};

use crate::{disturbance::become_on, random::Random};

/// Interval at which a pause checks for the request to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Alternating pauses and bursts, drawn from a seed. A burst's length is log-uniform. The pause before it is 0.5 to 1.5 times as long as
/// the share requires on average.
#[derive(Debug, Clone)]
pub struct Bursts {
    random: Random,
    share: f64,
    lengths_ms: [f64; 2],
    is_first: bool,
}

impl Bursts {
    /// Bursts of `lengths_ms[0]` to `lengths_ms[1]` for this share of the time (above 0, below 1).
    pub fn new(seed: u64, share: f64, lengths_ms: [f64; 2]) -> Self {
        Self { random: Random::new(seed), share, lengths_ms, is_first: true }
    }
}

impl Iterator for Bursts {
    type Item = [Duration; 2];

    /// A pause, and the burst after it.
    fn next(&mut self) -> Option<[Duration; 2]> {
        let burst_ms = self.random.log_uniform(self.lengths_ms[0], self.lengths_ms[1]);
        let pause_ms = burst_ms * (1.0 - self.share) / self.share * (0.5 + self.random.ratio());
        // The first pause is shortened by a random share, as if it had begun before the start.
        let elapsed_ratio = if std::mem::take(&mut self.is_first) { self.random.ratio() } else { 0.0 };
        let times_ms = [pause_ms * (1.0 - elapsed_ratio), burst_ms];
        Some(times_ms.map(|ms| Duration::from_secs_f64(ms / 1e3)))
    }
}

/// The time that a hog took from a processor.
#[derive(Debug, Clone)]
pub struct Taken {
    /// Start and end of each burst.
    pub spans: Vec<(Instant, Instant)>,
    /// Time from the hog's start to its end.
    pub elapsed: Duration,
}

impl Taken {
    /// The share of the time that the hog took (0 to 1).
    pub fn share(&self) -> f64 {
        let total: Duration = self.spans.iter().map(|&(from, to)| to - from).sum();
        total.as_secs_f64() / self.elapsed.as_secs_f64()
    }
}

/// A running hog: one thread on each of its processors. It ends when dropped.
#[derive(Debug)]
pub struct Hog {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Taken>>,
}

impl Hog {
    /// Starts to take these processors, each in its own bursts.
    ///
    /// # Errors
    /// If a thread cannot get real-time priority there.
    pub fn start(on: impl IntoIterator<Item = (u32, Bursts)>) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut hog = Self { stop, threads: Vec::new() };
        for (core, bursts) in on {
            let (stop, (told, ready)) = (Arc::clone(&hog.stop), mpsc::channel());
            let thread = thread::Builder::new().name("hog".to_owned()).spawn(move || {
                let has_priority = become_on(core, ["--fifo", "20"]);
                let may_take = has_priority.is_ok();
                // Sending only fails if the starting thread has gone.
                let _ = told.send(has_priority);
                take(may_take.then_some(bursts).into_iter().flatten(), &stop)
            })?;
            hog.threads.push(thread);
            ready.recv().context("a hog ended at once")?.context("a hog needs real-time priority")?;
        }
        Ok(hog)
    }

    /// Ends the hog, and returns the time that it took from each processor.
    ///
    /// # Errors
    /// If a thread panicked.
    pub fn end(mut self) -> Result<Vec<Taken>> {
        self.stop.store(true, Ordering::Relaxed);
        let threads = self.threads.drain(..);
        threads.map(|thread| thread.join().map_err(|_| anyhow!("the hog panicked"))).collect()
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn take(bursts: impl Iterator<Item = [Duration; 2]>, stop: &AtomicBool) -> Taken {
    let (began, mut spans) = (Instant::now(), Vec::new());
    for [pause, burst] in bursts {
        let until = Instant::now() + pause;
        while !stop.load(Ordering::Relaxed) && Instant::now() < until {
            thread::sleep(until.saturating_duration_since(Instant::now()).min(POLL_INTERVAL));
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let from = Instant::now();
        while from.elapsed() < burst {
            hint::spin_loop();
        }
        spans.push((from, Instant::now()));
    }
    Taken { spans, elapsed: began.elapsed() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_repeat_stay_within_their_lengths_and_take_their_share() {
        let draw = || Bursts::new(7, 0.3, [0.2, 50.0]).take(4_000).collect::<Vec<_>>();
        let drawn = draw();
        assert_eq!(drawn, draw());
        let within = |[_, burst]: &[Duration; 2]| {
            (Duration::from_micros(199)..=Duration::from_millis(50)).contains(burst)
        };
        assert!(drawn.iter().all(within));
        let sum_s = |at: usize| drawn.iter().map(|times| times[at].as_secs_f64()).sum::<f64>();
        let share = sum_s(1) / (sum_s(0) + sum_s(1));
        assert!((share - 0.3).abs() < 0.02, "{share}");
    }

    #[test]
    fn what_is_taken_is_told() {
        let bursts = [[Duration::ZERO, Duration::from_millis(3)], [Duration::from_millis(1); 2]];
        let taken = take(bursts.into_iter(), &AtomicBool::new(false));
        assert_eq!(taken.spans.len(), 2);
        assert!(taken.spans[0].1 - taken.spans[0].0 >= Duration::from_millis(3));
        assert!(taken.share() > 0.0 && taken.share() <= 1.0);
    }
}
