//! Waits for conditions of which the kernel sends no event.

use std::{
    thread,
    time::{Duration, Instant},
};

/// Longest wait of a test for an expected event, long enough for a busy or slow machine.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Shortest and longest pause between two checks.
const PAUSES: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(200)];

/// Calls `look` repeatedly until it returns a value; `None` if it returns none within this time. The pauses grow with
/// the duration of `look`, because it may start a program, and other threads need the processors.
pub fn find<T>(within: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    loop {
        // Checks once more after the time is over, because this thread may not have run in between.
        let is_late = begun.elapsed() >= within;
        let looked = Instant::now();
        let found = look();
        if found.is_some() || is_late {
            return found;
        }
        thread::sleep((4 * looked.elapsed()).clamp(PAUSES[0], PAUSES[1]));
    }
}

/// Waits until a condition holds.
///
/// # Panics
/// When the condition does not hold within [`PATIENCE`].
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    assert!(find(PATIENCE, || holds().then_some(())).is_some(), "not within {PATIENCE:?}: {what}");
}
