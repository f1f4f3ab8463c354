//! Records changes of this machine, proves that they are ours and undoes them.
//!
//! A run creates a [`Journal`] and records every change before it makes the change (a process as soon as it has a
//! number). Dropping the journal undoes the remaining changes. After a kill, the next run or `proofload clean` calls
//! [`clean`], which undoes only the journals whose owners are dead.
//! A service may be killed and restarted without losing its changes: [`Journal::resume`] takes them over, and only
//! [`clean_all`] undoes them.
//! A tuning of the kernel's settings outlasts its owner, so its journals are in a separate folder and wait for
//! [`restore`].
//!
//! Only changes that are proven to be ours are undone:
//!
//! * a process is identified by its number and start time, because no later process with this number has the same start
//!   time;
//! * a folder, a file or a control group is identified by its path, which contains the run's random identifier;
//! * pins of a balancer are identified by the name of their folder and by its location in a BPF file system;
//! * an address is identified by its interface and the network namespace in which it was added;
//! * a route is identified by its destination, its gateways, our own protocol number and the network namespace in which it was added;
//! * a setting is identified by its path below `/proc/sys` or `/sys`, the network namespace in which it was changed,
//!   and the value that we gave it;
//! * an owner is dead if its process is gone and the kernel has released its lock of the journal.

mod address;
mod change;
mod clean;
mod folder;
mod journal;
mod lock;
mod pins;
mod process;
mod qdisc;
mod route;
mod setting;
#[cfg(test)]
mod testing;
mod tuning;

pub use address::InterfaceAddress;
pub use change::Change;
pub use clean::{Cleaned, Run, clean, clean_all, runs};
pub use folder::Folder;
pub use journal::{Entry, Journal};
pub use pins::{
    BALANCER_PROGRAM, CLS_LINK, FILTER, OWN_BPF, PINS_PREFIX, Pins, QDISC, XDP_LINK, detach_pins,
};
pub use process::{ProcessId, kill, parent_pid, proc_shows_own_pids, readable_within};
pub use qdisc::is_filtered;
pub use route::{AddedRoute, route_message};
pub(crate) use setting::interface_name;
pub use setting::{Network, Setting, sys_is_own};
pub use tuning::{Restored, restore, tuned};

/// Reason why a change could not be recorded or undone.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder of the journals cannot be used.
    #[error("{path}: {why}")]
    Folder {
        /// The folder.
        path: std::path::PathBuf,
        /// The reason, and advice for the user.
        why: String,
    },
    /// A journal cannot be written, so no change may be made.
    #[error("cannot write the journal {path}: {cause}; without it nothing is changed")]
    Write {
        /// The journal.
        path: std::path::PathBuf,
        /// The kernel's error.
        cause: std::io::Error,
    },
    /// An existing journal cannot be read.
    #[error(
        "cannot read the journal {path}: {cause}; nothing is undone: check the file, undo what it lists, then remove the file"
    )]
    Read {
        /// The journal.
        path: std::path::PathBuf,
        /// The error.
        cause: std::io::Error,
    },
    /// A line of a journal cannot be read.
    #[error(
        "the journal {path} is damaged: {cause}; its other lines are undone: check the file, undo what the damaged line lists, \
         then remove the file"
    )]
    Damaged {
        /// The journal.
        path: std::path::PathBuf,
        /// The error in the last damaged line.
        cause: std::io::Error,
    },
    /// A later cleanup could not prove that the change is ours.
    #[error(
        "the path {0} does not contain the run's identifier, so a later cleanup could not prove that proofload made it"
    )]
    Unprovable(std::path::PathBuf),
    /// The path does not belong to a setting of the kernel.
    #[error("{0} is not a kernel setting: those are files below /proc/sys and /sys")]
    NoSetting(std::path::PathBuf),
    /// A setting does not have the value that we gave it.
    #[error(
        "{path} is '{now}': another program or user has set it since, so the value stays; before the tuning it was '{before}': to \
         restore it, write '{before}' to {path}"
    )]
    Foreign {
        /// The setting.
        path: std::path::PathBuf,
        /// Its current value.
        now: String,
        /// Its value before we changed it.
        before: String,
    },
    /// A change cannot be undone.
    #[error("cannot undo {what}: {cause}")]
    Undo {
        /// The change.
        what: String,
        /// The error.
        cause: String,
    },
}
