//! The clock that all processes of a machine share, and precise wake-ups.

mod run;
mod spin;

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

pub use run::Clock;
pub use spin::SpinTail;

/// The time of CLOCK_MONOTONIC in nanoseconds. It is the same in every process of this machine, and never goes back.
#[inline]
pub fn monotonic_ns() -> u64 {
    read_ns(ClockId::Monotonic)
}

/// The time of CLOCK_BOOTTIME in nanoseconds: like [`monotonic_ns`], but it also runs while the machine is suspended.
#[inline]
pub fn boottime_ns() -> u64 {
    read_ns(ClockId::Boottime)
}

#[inline]
fn read_ns(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Same as [`monotonic_ns`], in seconds.
pub fn monotonic_s() -> f64 {
    monotonic_ns() as f64 / 1e9
}

/// The wall-clock time, in seconds since 1970.
pub fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_as_the_standard_library_s_does() {
        let (began, began_ns) = (std::time::Instant::now(), monotonic_ns());
        std::thread::sleep(std::time::Duration::from_millis(2));
        let (inner_ns, outer) = (monotonic_ns() - began_ns, began.elapsed());
        assert!(inner_ns >= 2_000_000 && u128::from(inner_ns) <= outer.as_nanos());
    }
}
