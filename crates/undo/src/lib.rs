//! What was changed on this machine, the proof that it is ours, and the way back.
//!
//! A run opens a [`Journal`] and writes down every change before it makes it (a process: as soon as it has a
//! number). The journal undoes what is left when it is dropped. When the run was killed, the next one, or
//! `proofload clean`, calls [`clean`], which undoes the journals whose owner is dead and touches no other.
//!
//! Nothing is removed that is not proven to be ours:
//!
//! * a process by its number and the time it started, which no later process of that number shares;
//! * a folder, a file or a control group by its name, which holds the run's random identity, and by having
//!   been made where nothing was;
//! * the owner is dead when its process is gone and the kernel has released its lock of the journal.

mod change;
mod clean;
mod folder;
mod journal;
mod process;

pub use change::Change;
pub use clean::{Cleaned, Run, clean, runs};
pub use folder::Folder;
pub use journal::{Entry, Journal};
pub use process::{ProcessId, kill, parent_pid, proc_shows_own_pids};

/// Why something could not be written down or undone.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder of the journals cannot be used.
    #[error("{path}: {why}")]
    Folder {
        /// The folder.
        path: std::path::PathBuf,
        /// What is wrong with it, and what to do.
        why: String,
    },
    /// A journal cannot be written: nothing may be changed then.
    #[error("cannot write the journal {path}: {cause}; nothing is changed without it")]
    Write {
        /// The journal.
        path: std::path::PathBuf,
        /// The kernel's reason.
        cause: std::io::Error,
    },
    /// A journal that is there cannot be read.
    #[error(
        "cannot read the journal {path}: {cause}; what it tells of is left as it is: look at the file, and remove it when \
         nothing of it is left"
    )]
    Read {
        /// The journal.
        path: std::path::PathBuf,
        /// The reason.
        cause: std::io::Error,
    },
    /// A line of a journal cannot be read.
    #[error(
        "the journal {path} is damaged: {cause}; what its other lines tell of is undone: look at the file, and remove it when \
         nothing of it is left"
    )]
    Damaged {
        /// The journal.
        path: std::path::PathBuf,
        /// What is wrong with the last such line.
        cause: std::io::Error,
    },
    /// A change that could later not be proven to be ours.
    #[error("{0} does not carry the run's identity in its name: it could not be proven to be ours later")]
    Unprovable(std::path::PathBuf),
    /// A change that cannot be taken back.
    #[error("cannot undo {what}: {cause}")]
    Undo {
        /// The change.
        what: String,
        /// Why not.
        cause: String,
    },
}
