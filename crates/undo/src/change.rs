//! What can be changed, and how it is taken back.

use std::{
    fmt, fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use crate::{Error, ProcessId, kill};

/// How long a process may take to end, and a control group to become empty.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// A change of this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Change {
    /// A process, started a moment ago.
    Process {
        /// Which.
        #[serde(flatten)]
        process: ProcessId,
        /// What it is to us: the role and the name under which it is looked up.
        role: String,
    },
    /// A folder with all that is in it, about to be made. Its name holds the run's identity.
    Folder {
        /// Where.
        path: PathBuf,
    },
    /// A file, about to be made. Its name holds the run's identity.
    File {
        /// Where.
        path: PathBuf,
    },
    /// A control group, about to be made. Its path holds the run's identity; all in it is ours.
    ControlGroup {
        /// Its folder in the file system of control groups.
        path: PathBuf,
    },
    /// A word, about to be added to one of the kernel's lists, where it was missing.
    Word {
        /// The setting that holds the list.
        path: PathBuf,
        /// The word.
        word: String,
    },
}

impl Change {
    /// Whether it can later be proven to be the run's.
    pub(crate) fn check_provable(&self, run: &str) -> Result<(), Error> {
        match self {
            Self::Folder { path } | Self::File { path } | Self::ControlGroup { path }
                if !path.to_string_lossy().contains(run) =>
            {
                Err(Error::Unprovable(path.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Takes it back. What is gone already, or is not ours any more, is left as it is. `pid_namespace` is where its process
    /// numbers are from.
    pub(crate) fn undo(&self, run: &str, pid_namespace: &str) -> Result<(), Error> {
        self.check_provable(run)?;
        let undone = match self {
            Self::Process { process, .. } => {
                let known = process.resolve_here(pid_namespace);
                known.and_then(|known| known.map_or(Ok(()), |process| kill(process, END_TIMEOUT)))
            }
            Self::Folder { path } => remove_folder(path),
            Self::File { path } => ignore_not_found(fs::remove_file(path)),
            Self::ControlGroup { path } => remove_control_group(path),
            Self::Word { path, word } => remove_word(path, word),
        };
        undone.map_err(|error| Error::Undo { what: self.to_string(), cause: error.to_string() })
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { process, role } => write!(f, "process {} ({role})", process.pid),
            Self::Folder { path } => write!(f, "folder {}", path.display()),
            Self::File { path } => write!(f, "file {}", path.display()),
            Self::ControlGroup { path } => write!(f, "control group {}", path.display()),
            Self::Word { path, word } => write!(f, "the word {word} in {}", path.display()),
        }
    }
}

fn ignore_not_found(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// A process that dies just now may still write into it: tried again for a while.
fn remove_folder(path: &Path) -> io::Result<()> {
    let deadline = Instant::now() + END_TIMEOUT;
    loop {
        match ignore_not_found(fs::remove_dir_all(path)) {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty && Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(5));
            }
            result => return result,
        }
    }
}

fn remove_control_group(path: &Path) -> io::Result<()> {
    let deadline = Instant::now() + END_TIMEOUT;
    loop {
        match ignore_not_found(fs::remove_dir(path)) {
            // A group is busy as long as a process is in it, or ends in it.
            Err(error) if error.kind() == ErrorKind::ResourceBusy && Instant::now() < deadline => {
                kill_members(path);
                thread::sleep(Duration::from_millis(2));
            }
            result => return result,
        }
    }
}

fn remove_word(path: &Path, word: &str) -> io::Result<()> {
    let list = fs::read_to_string(path)?;
    let kept: Vec<&str> = list.split_whitespace().filter(|own| *own != word).collect();
    if kept.len() == list.split_whitespace().count() { Ok(()) } else { fs::write(path, kept.join(" ")) }
}

fn kill_members(group: &Path) {
    let members = || fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    for pid in members().lines().filter_map(|line| line.parse().ok()) {
        let Some(process) = ProcessId::of(pid) else { continue };
        // Looked up again: a number read a moment ago may have become somebody else's.
        if members().lines().any(|line| line == pid.to_string()) {
            // What cannot be killed keeps the group busy, and that is told.
            let _ = kill(process, END_TIMEOUT);
        }
    }
}
