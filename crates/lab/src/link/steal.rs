//! Records when the hypervisor took processor time, because the link is not at fault for delays at these times.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use clock::monotonic_ns;
use kernel::steal_ticks;

/// Interval between two readings of the steal time.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A thread that records the growth of the processors' steal time.
#[derive(Debug)]
pub(super) struct StealWatch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<Range<u64>>>>,
}

impl StealWatch {
    /// Starts the thread.
    pub(super) fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new().name("steal-watch".to_owned()).spawn(move || watch(&stopped));
        Self { stop, thread: thread.ok() }
    }

    /// Ends the thread. Returns the intervals in which steal time grew, in nanoseconds of the monotonic clock.
    pub(super) fn finish(mut self) -> Vec<Range<u64>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for StealWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn watch(stop: &AtomicBool) -> Vec<Range<u64>> {
    let mut stolen: Vec<Range<u64>> = Vec::new();
    let (mut before_ns, mut before) = (monotonic_ns(), steal_ticks());
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(POLL_INTERVAL);
        let (at_ns, ticks) = (monotonic_ns(), steal_ticks());
        if ticks != before {
            // A tick of 10 ms is counted at its end, so it may have begun before the previous reading.
            let from = before_ns.saturating_sub(10_000_000);
            match stolen.last_mut() {
                Some(last) if last.end >= from => last.end = at_ns,
                _ => stolen.push(from..at_ns),
            }
        }
        (before_ns, before) = (at_ns, ticks);
    }
    stolen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watching_ends() {
        let watch = StealWatch::start();
        // The thread needs this time to read the steal time a few times.
        thread::sleep(Duration::from_millis(20));
        watch.finish();
    }
}
