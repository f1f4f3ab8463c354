//! When the hypervisor took the processors away: what happened then is not the link's doing.

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

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Watches the steal time of all processors.
#[derive(Debug)]
pub(super) struct StealWatch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<Range<u64>>>>,
}

impl StealWatch {
    /// Begins to watch.
    pub(super) fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new().name("steal-watch".to_owned()).spawn(move || watch(&stopped));
        Self { stop, thread: thread.ok() }
    }

    /// Ends watching: the times, in nanoseconds of the monotonic clock, within which steal time grew.
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
            // A tick is 10 ms long, and is shown when it is full: it may have begun before.
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
        thread::sleep(Duration::from_millis(20));
        watch.finish();
    }
}
