//! Processes, told apart from later ones of the same number.

use std::{
    fs, io,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use serde::{Deserialize, Serialize};

/// A process, by its number and the time it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its number.
    pub pid: u32,
    /// When it started, in clock ticks since the machine did (field 22 of `/proc/PID/stat`).
    pub start_ticks: u64,
}

impl ProcessId {
    /// The process that has this number now; none if there is none.
    pub fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        start_ticks(&stat).map(|start_ticks| Self { pid, start_ticks })
    }

    /// This process.
    ///
    /// # Errors
    /// When `/proc` does not tell.
    pub fn own() -> io::Result<Self> {
        Self::of(std::process::id()).ok_or_else(|| io::Error::other("/proc does not show this process"))
    }

    /// Whether it lives. One that has ended but was not waited for lives no more.
    pub fn is_alive(self) -> bool {
        let Ok(stat) = fs::read_to_string(format!("/proc/{}/stat", self.pid)) else { return false };
        let ended = matches!(fields(&stat).and_then(|mut fields| fields.next()), Some("Z" | "X"));
        start_ticks(&stat) == Some(self.start_ticks) && !ended
    }

    /// A handle to it that can mean no other process; none if it is gone.
    pub fn open(self) -> Option<OwnedFd> {
        let handle = pidfd_open(Pid::from_raw(i32::try_from(self.pid).ok()?)?, PidfdFlags::empty()).ok()?;
        // The handle is of whatever has the number now; that it is ours is seen only afterwards.
        (Self::of(self.pid) == Some(self)).then_some(handle)
    }
}

/// Kills a process and waits for its end. One that is gone is no error.
///
/// # Errors
/// When the kernel refuses, or it has not ended within `patience`.
pub fn kill(process: ProcessId, patience: Duration) -> io::Result<()> {
    let Some(handle) = process.open() else { return Ok(()) };
    match pidfd_send_signal(&handle, Signal::KILL) {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(error) => return Err(error.into()),
    }
    let deadline = Instant::now() + patience;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Err(io::Error::other(format!("it has not ended within {patience:?}"))),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn start_ticks(stat: &str) -> Option<u64> {
    // Field 3, the state, is the first after the name.
    fields(stat)?.nth(22 - 3)?.parse().ok()
}

/// The fields after the name, which is in parentheses and may hold anything.
fn fields(stat: &str) -> Option<std::str::SplitWhitespace<'_>> {
    Some(stat.rsplit_once(')')?.1.split_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_blanks_and_parentheses_do_not_confuse() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 19 20";
        assert_eq!(start_ticks(stat), Some(4711));
    }

    #[test]
    fn another_start_is_another_process() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = ProcessId::of(child.id()).unwrap();
        let recycled = ProcessId { start_ticks: process.start_ticks + 1, ..process };
        kill(recycled, Duration::from_secs(1)).unwrap();
        assert!(process.is_alive() && !recycled.is_alive());
        kill(process, Duration::from_secs(5)).unwrap();
        assert!(!process.is_alive(), "a process not yet waited for has ended all the same");
        child.wait().unwrap();
        kill(process, Duration::from_secs(1)).unwrap();
    }
}
