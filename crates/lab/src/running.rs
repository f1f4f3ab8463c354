//! Finds running labs on this machine by their journals.

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
    private,
};

/// A running lab that another process owns.
#[derive(Debug, Clone)]
pub struct RunningLab {
    /// Title of the lab.
    pub title: String,
    /// Identifier of the run.
    pub run: String,
    /// The process that brought the lab up and keeps it up.
    pub owner: ProcessId,
    /// Names of the hosts, each with the process that owns the host's namespaces.
    pub hosts: Vec<(String, ProcessId)>,
    /// Folder of the lab's configuration and logs; none until the lab has created it.
    pub run_folder: Option<PathBuf>,
}

impl RunningLab {
    /// All labs of this user, the oldest first.
    ///
    /// # Errors
    /// When the journals cannot be read.
    pub fn all(folder: &Folder) -> Result<Vec<Self>, undo::Error> {
        let labs = undo::runs(folder)?.into_iter().filter(|run| run.kind == KIND);
        Ok(labs.map(Self::from).collect())
    }

    /// The plan of the lab.
    ///
    /// # Errors
    /// If the lab has not written its plan yet, or is gone.
    pub fn plan(&self) -> io::Result<Plan> {
        let folder = self.run_folder.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let text = fs::read(folder.join(PLAN_FILE))?;
        Ok(serde_json::from_slice(&text)?)
    }

    /// Asks the lab to go down: sends SIGTERM to its owner.
    ///
    /// # Errors
    /// If the kernel refuses the signal. An owner that has already ended is not an error.
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

/// Moves this process into a host of a lab and runs a command there as a child. Returns the exit status of the command.
/// The calling process must have no other threads.
///
/// # Errors
/// When the host cannot be entered or the command cannot be started.
pub fn run_in_host(
    lab: &RunningLab,
    holder: ProcessId,
    mut command: Command,
) -> io::Result<std::process::ExitStatus> {
    let gone = || io::Error::other("the host is gone");
    // The handle stays open until the namespaces are open, so that the holder's process number cannot be reused
    // meanwhile.
    let _handle = holder.open().ok_or_else(gone)?;
    let open = |kind| File::open(namespaces::path_of(holder.pid, kind));
    let (network, numbers) = (open(Kind::Network)?, open(Kind::ProcessID)?);
    // A host without private folders has the mounts of its lab's process, which need not be those of this process.
    let of_lab = namespaces::identity(&File::open(namespaces::path_of(lab.owner.pid, Kind::Mount))?)?;
    let mounts = open(Kind::Mount)?;
    let is_own = namespaces::identity(&mounts)? != of_lab;
    namespaces::enter_user_of(holder.pid)?;
    namespaces::enter(network, Kind::Network)?;
    namespaces::enter(numbers, Kind::ProcessID)?;
    if is_own {
        private::enter(&mounts)?;
    }
    command.status()
}
