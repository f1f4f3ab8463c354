//! What happens, told on standard error, which holds nobody up: whoever should read it may have gone, its disk may be full,
//! and a pipe that nobody reads would make us wait. A thread of its own writes; what it cannot write is dropped and counted.

use std::{
    collections::VecDeque,
    io::{self, Write},
    panic,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use tracing::{error, level_filters::LevelFilter};

use super::draft::LogForm;

/// Lines that may wait to be written; further ones are dropped.
const LINES_MOST: usize = 1024;
/// How long the end waits for those.
const PATIENCE: Duration = Duration::from_secs(1);

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

/// Begins to tell. Nothing but the first call has an effect.
pub(super) fn begin(form: LogForm, level: LevelFilter) {
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        .with_writer(|| &QUEUE)
        // It would tell on standard error that standard error fails, and panic.
        .log_internal_errors(false);
    // The journal and its like have times of their own; JSON goes to those who have not.
    let begun = match form {
        LogForm::Text => subscriber.without_time().try_init(),
        LogForm::Json => subscriber.json().flatten_event(true).try_init(),
    };
    // Refused where somebody tells already, such as another test in this process.
    if begun.is_ok() {
        panic::set_hook(Box::new(|panicked| error!("{panicked}")));
        thread::spawn(|| QUEUE.write_to(io::stderr()));
    }
}

/// Waits until all is written, for a second at the most. Whether it is.
pub(super) fn end() -> bool {
    let waits = |state: &mut State| !state.lines.is_empty() || state.is_writing;
    let waited = QUEUE.changed.wait_timeout_while(QUEUE.lock(), PATIENCE, waits);
    !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what comes, for ever.
    fn write_to(&self, mut output: impl Write) {
        let mut told = 0;
        loop {
            let waits = |state: &mut State| state.lines.is_empty();
            let mut state =
                self.changed.wait_while(self.lock(), waits).unwrap_or_else(PoisonError::into_inner);
            let Some(line) = state.lines.pop_front() else { continue };
            state.is_writing = true;
            drop(state);
            let written = output.write_all(&line);
            let mut state = self.lock();
            state.is_writing = false;
            state.dropped += u64::from(written.is_err());
            let dropped = state.dropped;
            // Told as any line is: while there is no room, that would be dropped as well.
            let has_room = state.lines.len() < LINES_MOST / 2;
            self.changed.notify_all();
            drop(state);
            if written.is_ok() && has_room && dropped > told {
                error!("{} lines before this could not be written here and were dropped", dropped - told);
                told = dropped;
            }
        }
    }
}

impl Write for &Queue {
    /// Takes a line, which comes whole.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut state = self.lock();
        if state.lines.len() < LINES_MOST {
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
        for _ in 0..LINES_MOST + 5 {
            (&queue).write_all(b"line\n").unwrap();
        }
        let state = queue.lock();
        assert_eq!((state.lines.len(), state.dropped), (LINES_MOST, 5));
    }
}
