//! Waiting for what is about to happen, where the kernel tells of no event.

use std::{
    thread,
    time::{Duration, Instant},
};

/// How long a test waits for what must come, however crowded or slow the machine is.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Shortest and longest pause between two looks.
const PAUSES: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(200)];

/// Looks again and again until there is something; none if there is nothing within this time. What takes long to look is looked at less
/// often: many a look starts a program, and others need the processors.
pub fn find<T>(within: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    loop {
        // Looked once more after the time: this thread may have been away.
        let is_late = begun.elapsed() >= within;
        let looked = Instant::now();
        let found = look();
        if found.is_some() || is_late {
            return found;
        }
        thread::sleep((4 * looked.elapsed()).clamp(PAUSES[0], PAUSES[1]));
    }
}

/// Waits until something holds.
///
/// # Panics
/// When it does not within [`PATIENCE`].
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    assert!(find(PATIENCE, || holds().then_some(())).is_some(), "not within {PATIENCE:?}: {what}");
}
