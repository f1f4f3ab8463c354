//! Waiting for what is about to happen, where the kernel tells of no event.

use std::{
    thread,
    time::{Duration, Instant},
};

/// How long a test waits for what must come, however crowded or slow the machine is.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Looks again and again until there is something; none if there is nothing within this time.
pub fn find<T>(within: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    loop {
        // Looked once more after the time: this thread may have been away.
        let is_late = begun.elapsed() >= within;
        let found = look();
        if found.is_some() || is_late {
            return found;
        }
        thread::sleep(Duration::from_millis(2));
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
