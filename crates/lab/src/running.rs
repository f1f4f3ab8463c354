//! Labs that are up on this machine, found by their journals.

use std::{
    fs::{self, File},
    io,
    path::PathBuf,
    process::Command,
};

use kernel::namespaces::{self, Kind};
use rustix::process::{Signal, pidfd_send_signal};
use undo::{Change, Folder, ProcessId, Run};

use crate::{
    lab::{HOST_ROLE, KIND, PLAN_FILE},
    plan::Plan,
};

/// A lab that is up, seen from outside.
#[derive(Debug, Clone)]
pub struct RunningLab {
    /// What it is called.
    pub title: String,
    /// Its identity.
    pub run: String,
    /// The process that keeps it up.
    pub owner: ProcessId,
    /// Its hosts, and the processes that hold their namespaces.
    pub hosts: Vec<(String, ProcessId)>,
    /// Where its configuration and logs lie; none for a moment at its very beginning.
    pub run_folder: Option<PathBuf>,
}

impl RunningLab {
    /// All of this user's, the oldest first.
    ///
    /// # Errors
    /// When the journals cannot be read.
    pub fn all(folder: &Folder) -> Result<Vec<Self>, undo::Error> {
        let labs = undo::runs(folder)?.into_iter().filter(|run| run.kind == KIND);
        Ok(labs.map(Self::from).collect())
    }

    /// What it consists of.
    ///
    /// # Errors
    /// When it has not written that down yet, or is gone.
    pub fn plan(&self) -> io::Result<Plan> {
        let folder = self.run_folder.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let text = fs::read(folder.join(PLAN_FILE))?;
        Ok(serde_json::from_slice(&text)?)
    }

    /// Asks it to go down, by a SIGTERM to the process that keeps it up.
    ///
    /// # Errors
    /// When the kernel refuses. One that is gone is no error.
    pub fn request_shutdown(&self) -> io::Result<()> {
        match self.owner.open() {
            Some(handle) => Ok(pidfd_send_signal(&handle, Signal::TERM)?),
            None => Ok(()),
        }
    }
}

impl From<Run> for RunningLab {
    fn from(run: Run) -> Self {
        let (mut hosts, mut run_folder) = (Vec::new(), None);
        for change in run.changes {
            match change {
                Change::Process { process, role } => {
                    hosts.extend(role.strip_prefix(HOST_ROLE).map(|host| (host.to_owned(), process)));
                }
                Change::Folder { path } => run_folder = Some(path),
                _ => {}
            }
        }
        Self { title: run.title, run: run.run, owner: run.owner, hosts, run_folder }
    }
}

/// Moves this process into a host, and runs a command there as its child; returns how it ended. The process
/// must have no other threads.
///
/// # Errors
/// When the host cannot be entered or the command not be run.
pub fn run_in_host(holder: ProcessId, mut command: Command) -> io::Result<std::process::ExitStatus> {
    let gone = || io::Error::other("the host is gone");
    // Kept while the namespaces are opened: the number can mean no other process then.
    let _handle = holder.open().ok_or_else(gone)?;
    let open = |kind| File::open(namespaces::of(holder.pid, kind));
    let (network, numbers) = (open(Kind::Network)?, open(Kind::ProcessID)?);
    namespaces::enter_user_of(holder.pid)?;
    namespaces::enter(network, Kind::Network)?;
    namespaces::enter(numbers, Kind::ProcessID)?;
    command.status()
}
