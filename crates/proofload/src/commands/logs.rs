//! The log on standard error. A separate thread writes it, because a write may block (an unread pipe) or fail (a full
//! disk). Lines that cannot be written are dropped and counted.

use std::{
    collections::VecDeque,
    io::{self, Write},
    panic,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use tracing::{error, level_filters::LevelFilter};

/// Capacity of the queue in lines; further lines are dropped.
const MAX_LINES: usize = 1024;
/// Maximum wait of [`flush`].
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

static QUEUE: Queue = Queue { state: Mutex::new(State::NEW), changed: Condvar::new() };

#[derive(Debug)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    lines: VecDeque<Vec<u8>>,
    is_writing: bool,
    dropped: u64,
}

impl State {
    const NEW: Self = Self { lines: VecDeque::new(), is_writing: false, dropped: 0 };
}

/// Starts logging. Only the first call has an effect.
pub(crate) fn start(format: LogFormat, level: LevelFilter) {
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        .with_writer(|| &QUEUE)
        // Otherwise tracing would report a failed write to standard error, fail again and panic.
        .log_internal_errors(false);
    // Text omits the time, because systemd's journal adds it; JSON lines need it.
    let started = match format {
        LogFormat::Text => subscriber.without_time().try_init(),
        LogFormat::Json => subscriber.json().flatten_event(true).try_init(),
    };
    // Fails if a subscriber already exists, such as that of another test in this process.
    if started.is_ok() {
        panic::set_hook(Box::new(|panicked| error!("{panicked}")));
        thread::spawn(|| QUEUE.write_to(io::stderr()));
    }
}

/// Waits up to [`FLUSH_TIMEOUT`] for all lines to be written. Returns whether they are.
pub(crate) fn flush() -> bool {
    let is_pending = |state: &mut State| !state.lines.is_empty() || state.is_writing;
    let waited = QUEUE.changed.wait_timeout_while(QUEUE.lock(), FLUSH_TIMEOUT, is_pending);
    !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the lines of the queue; never returns.
    fn write_to(&self, mut output: impl Write) {
        let mut reported = 0;
        loop {
            let is_empty = |state: &mut State| state.lines.is_empty();
            let mut state =
                self.changed.wait_while(self.lock(), is_empty).unwrap_or_else(PoisonError::into_inner);
            let Some(line) = state.lines.pop_front() else { continue };
            state.is_writing = true;
            drop(state);
            let written = output.write_all(&line);
            let mut state = self.lock();
            state.is_writing = false;
            state.dropped += u64::from(written.is_err());
            let dropped = state.dropped;
            // The count of dropped lines is logged through the queue too, so it waits for room there.
            let has_room = state.lines.len() < MAX_LINES / 2;
            self.changed.notify_all();
            drop(state);
            if written.is_ok() && has_room && dropped > reported {
                error!("{} earlier log lines could not be written and were dropped", dropped - reported);
                reported = dropped;
            }
        }
    }
}

impl Write for &Queue {
    /// Adds a complete line to the queue.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut state = self.lock();
        if state.lines.len() < MAX_LINES {
            state.lines.push_back(line.to_vec());
            self.changed.notify_all();
        } else {
            state.dropped += 1;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_bound_are_dropped_and_counted() {
        let queue = Queue { state: Mutex::new(State::NEW), changed: Condvar::new() };
        for _ in 0..MAX_LINES + 5 {
            (&queue).write_all(b"line\n").unwrap();
        }
        let state = queue.lock();
        assert_eq!((state.lines.len(), state.dropped), (MAX_LINES, 5));
    }
}
