//! Processor time, waiting time and memory that the generator used.

use nix::sys::resource::{UsageWho, getrusage};
use rustix::time::{ClockId, clock_gettime};

use crate::wire::Wire;

/// Processor time and waiting time of a worker thread so far.
pub(super) struct ThreadTime {
    pub(super) cpu_ns: u64,
    pub(super) waited_ns: u64,
    pub(super) spun_ns: u64,
    pub(super) runqueue_ns: Option<u64>,
}

impl ThreadTime {
    pub(super) fn of(wire: &impl Wire) -> Self {
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        Self {
            cpu_ns: cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64,
            waited_ns: wire.waited_ns(),
            spun_ns: wire.spun_ns(),
            runqueue_ns: kernel::waited_for_processor_ns(),
        }
    }

    pub(super) fn since(&self, before: &Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns - before.cpu_ns,
            waited_ns: self.waited_ns - before.waited_ns,
            spun_ns: self.spun_ns - before.spun_ns,
            runqueue_ns: self.runqueue_ns.zip(before.runqueue_ns).map(|(after, before)| after - before),
        }
    }
}

/// Processor time and memory of the process so far.
pub(super) struct ProcessUse {
    pub(super) user_s: f64,
    pub(super) system_s: f64,
    pub(super) max_resident_bytes: u64,
}

impl ProcessUse {
    pub(super) fn now() -> Self {
        match getrusage(UsageWho::RUSAGE_SELF) {
            Ok(usage) => Self {
                user_s: seconds(usage.user_time()),
                system_s: seconds(usage.system_time()),
                max_resident_bytes: usage.max_rss() as u64 * 1024,
            },
            // getrusage(2) fails only for invalid arguments.
            Err(_) => Self { user_s: 0.0, system_s: 0.0, max_resident_bytes: 0 },
        }
    }
}

fn seconds(time: nix::sys::time::TimeVal) -> f64 {
    time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6
}
