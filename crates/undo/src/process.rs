//! Identifies processes even if process numbers are reused.

use std::{
    fs, io,
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use serde::{Deserialize, Serialize};

/// Flag of a process that is ending (linux/sched.h).
const PF_EXITING: u64 = 4;

/// Identity of a process: its number and start time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// Process number.
    pub pid: u32,
    /// Start time in clock ticks since the boot (field 22 of `/proc/PID/stat`).
    pub start_ticks: u64,
}

impl ProcessId {
    /// The process that has this number now; none if there is none.
    ///
    /// Also none if `/proc` belongs to another PID namespace, because it would show a different process.
    pub fn of(pid: u32) -> Option<Self> {
        if !proc_shows_own_pids() {
            return None;
        }
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        start_ticks(&stat).map(|start_ticks| Self { pid, start_ticks })
    }

    /// This process.
    ///
    /// # Errors
    /// If `/proc` does not show this process.
    pub fn own() -> io::Result<Self> {
        Self::of(std::process::id()).ok_or_else(|| io::Error::other("/proc does not show this process"))
    }

    /// Whether the process is alive. A zombie counts as dead. If `/proc` belongs to another PID namespace, returns
    /// true.
    pub fn is_alive(self) -> bool {
        if !proc_shows_own_pids() {
            return true;
        }
        let stat = match fs::read_to_string(format!("/proc/{}/stat", self.pid)) {
            Ok(stat) => stat,
            // The process does not exist, or it ended while its file was read.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return false,
            Err(error) => return error.raw_os_error() != Some(Errno::SRCH.raw_os_error()),
        };
        let ended = matches!(fields(&stat).and_then(|mut fields| fields.next()), Some("Z" | "X"));
        start_ticks(&stat) == Some(self.start_ticks) && !ended
    }

    /// Whether the process, whose number is that in `pid_namespace`, is certainly dead.
    pub(crate) fn is_gone(self, pid_namespace: &str) -> bool {
        let can_tell =
            proc_shows_own_pids() && (pid_namespace == self::pid_namespace() || in_initial_pid_namespace());
        can_tell && self.resolve_here(pid_namespace).is_ok_and(|known| !known.is_some_and(Self::is_alive))
    }

    /// Whether the process is still alive but was killed or is ending.
    pub(crate) fn is_dying(self, pid_namespace: &str) -> bool {
        let here = match self.resolve_here(pid_namespace) {
            Ok(Some(here)) if here.is_alive() => here,
            _ => return false,
        };
        let status = fs::read_to_string(format!("/proc/{}/status", here.pid)).unwrap_or_default();
        let pending = status.lines().filter_map(|line| {
            let mask = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
            u64::from_str_radix(mask.trim(), 16).ok()
        });
        here.is_ending() || pending.into_iter().any(|mask| mask & (1 << (Signal::KILL.as_raw() - 1)) > 0)
    }

    /// Whether the process is ending.
    fn is_ending(self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        let flags = fields(&stat).and_then(|mut fields| fields.nth(6)?.parse::<u64>().ok());
        flags.is_some_and(|flags| flags & PF_EXITING > 0)
    }

    /// Translates the process number from `pid_namespace` to our namespace; none if our namespace does not contain the
    /// process.
    ///
    /// # Errors
    /// If `/proc`, or the namespace of a process that may be this one, cannot be read.
    pub(crate) fn resolve_here(self, pid_namespace: &str) -> io::Result<Option<Self>> {
        if pid_namespace == self::pid_namespace() {
            return Ok(Some(self));
        }
        if !proc_shows_own_pids() {
            return Err(io::Error::other("/proc belongs to another PID namespace"));
        }
        for entry in fs::read_dir("/proc")? {
            let number = entry?.file_name().to_str().and_then(|name| name.parse().ok());
            let Some(here) = number.and_then(Self::of).filter(|here| here.start_ticks == self.start_ticks)
            else {
                continue;
            };
            // Every user may read the number of a process but not its namespace, and a process of another user may have
            // started in the same tick, so the number is compared first.
            if innermost_pid(here.pid) != Some(self.pid) {
                continue;
            }
            match fs::read_link(format!("/proc/{}/ns/pid", here.pid)) {
                Ok(inside) if inside.to_str() == Some(pid_namespace) => return Ok(Some(here)),
                // The process may be ending or have ended, and then has no namespaces.
                Err(error) if Self::of(here.pid) == Some(here) && !here.is_ending() => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(None)
    }

    /// A handle that cannot refer to another process; none if the process is gone.
    pub fn open(self) -> Option<OwnedFd> {
        let handle = pidfd_open(Pid::from_raw(i32::try_from(self.pid).ok()?)?, PidfdFlags::empty()).ok()?;
        // The handle refers to the process that has the number now, so the identity is checked after it was opened.
        (Self::of(self.pid) == Some(self)).then_some(handle)
    }
}

/// Number of a process's parent; none if the process does not exist.
pub fn parent_pid(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Field 4, the second after the name.
    fields(&stat)?.nth(1)?.parse().ok()
}

/// Whether `/proc` belongs to our PID namespace.
pub fn proc_shows_own_pids() -> bool {
    let shown = fs::read_link("/proc/self");
    shown.is_ok_and(|number| number.to_str() == Some(&std::process::id().to_string()))
}

/// Kills a process and waits for its end. Does nothing if the process is gone.
///
/// # Errors
/// If the kernel refuses, or the process has not ended within `timeout`.
pub fn kill(process: ProcessId, timeout: Duration) -> io::Result<()> {
    let Some(handle) = process.open() else { return Ok(()) };
    match pidfd_send_signal(&handle, Signal::KILL) {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(error) => return Err(error.into()),
    }
    match readable_within(&handle, timeout)? {
        true => Ok(()),
        false => Err(io::Error::other(format!("the process has not ended within {timeout:?}"))),
    }
}

/// Waits until a descriptor is readable: it has input, or it is the handle of a process that has ended. Returns false
/// after `timeout`.
///
/// # Errors
/// If the kernel refuses the wait.
pub fn readable_within(descriptor: impl AsFd, timeout: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + timeout;
    loop {
        let left = Timespec::try_from(deadline.saturating_duration_since(Instant::now())).ok();
        match poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], left.as_ref()) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Identifier of our PID namespace.
pub(crate) fn pid_namespace() -> String {
    fs::read_link("/proc/self/ns/pid").map(|link| link.display().to_string()).unwrap_or_default()
}

/// Whether we are in the initial PID namespace, which contains all processes of the machine. Its identifier is a
/// constant of the kernel (`PROC_PID_INIT_INO`).
pub(crate) fn in_initial_pid_namespace() -> bool {
    pid_namespace() == "pid:[4026531836]"
}

/// The number of a process in its own PID namespace: the last one of `NSpid` (proc_pid_status(5)).
fn innermost_pid(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_whitespace().next_back()?.parse().ok()
}

fn start_ticks(stat: &str) -> Option<u64> {
    // Field 3, the state, is the first one after the name.
    fields(stat)?.nth(22 - 3)?.parse().ok()
}

/// The fields after the name, which is in parentheses and may contain any characters.
fn fields(stat: &str) -> Option<std::str::SplitWhitespace<'_>> {
    Some(stat.rsplit_once(')')?.1.split_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_contain_blanks_and_parentheses() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 19 20";
        assert_eq!(start_ticks(stat), Some(4711));
    }

    #[test]
    fn process_numbers_are_translated_between_namespaces() {
        let process = ProcessId::own().unwrap();
        assert_eq!(process.resolve_here(&pid_namespace()).unwrap(), Some(process));
        assert_eq!(process.resolve_here("pid:[1]").unwrap(), None, "no process is in this namespace");
        assert_eq!(process.is_gone("pid:[1]"), in_initial_pid_namespace());
        assert!(!process.is_gone(&pid_namespace()));
        // For a process in our namespace, both numbers are the same.
        assert_eq!(innermost_pid(process.pid), Some(process.pid));
    }

    #[test]
    fn as_root_a_process_that_cannot_be_inspected_is_not_gone() {
        let looked = std::thread::spawn(|| {
            crate::testing::become_nobody();
            let first = ProcessId::of(1).unwrap();
            assert!(fs::read_link("/proc/1/ns/pid").is_err());
            assert!(first.resolve_here("pid:[1]").is_err() && !first.is_gone("pid:[1]"));
            let of_same_tick = ProcessId { pid: u32::MAX, ..first };
            assert_eq!(of_same_tick.resolve_here("pid:[1]").unwrap(), None);
        });
        looked.join().unwrap();
    }

    #[test]
    fn another_start_is_another_process() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let process = ProcessId::of(child.id()).unwrap();
        let recycled = ProcessId { start_ticks: process.start_ticks + 1, ..process };
        kill(recycled, Duration::from_secs(1)).unwrap();
        assert!(process.is_alive() && !recycled.is_alive());
        kill(process, testing::PATIENCE).unwrap();
        assert!(!process.is_alive(), "a zombie is not alive");
        child.wait().unwrap();
        kill(process, Duration::from_secs(1)).unwrap();
    }
}
