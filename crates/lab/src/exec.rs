//! `proofload lab-exec`: enters a host of a lab and executes a command in it.

use std::{
    fs::{self, File},
    io,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::Command,
};

use kernel::namespaces::{self, Kind};
use rustix::{
    process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit},
    thread::{CpuSet, sched_setaffinity},
};
use serde::{Deserialize, Serialize};

use crate::private;

/// The host to enter and the command to execute.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ExecRequest {
    pub network: PathBuf,
    /// The mount namespace, if the host has private folders.
    pub mounts: Option<PathBuf>,
    pub control_group: Option<PathBuf>,
    pub cpus: Option<Vec<usize>>,
    pub descriptors: Option<u64>,
    pub directory: Option<PathBuf>,
    pub command: Vec<String>,
}

/// Runs `proofload lab-exec REQUEST`. Returns only on an error, which then goes to the process's log.
pub fn exec(request: &str) -> io::Error {
    let request: ExecRequest = match serde_json::from_str(request) {
        Ok(request) => request,
        Err(error) => return error.into(),
    };
    if let Err(error) = enter_host(&request) {
        return error;
    }
    let Some((program, arguments)) = request.command.split_first() else {
        return io::Error::other("the command is empty");
    };
    let mut command = Command::new(program);
    if let Some(directory) = &request.directory {
        if let Err(error) = fs::create_dir_all(directory) {
            return io::Error::new(error.kind(), format!("cannot make {}: {error}", directory.display()));
        }
        command.current_dir(directory);
    }
    let error = command.args(arguments).env("PATH", search_path()).exec();
    let hint = if error.kind() == io::ErrorKind::NotFound { "; is it installed?" } else { "" };
    io::Error::new(error.kind(), format!("cannot run {program}: {error}{hint}"))
}

/// This process's PATH plus the folders of nginx, sshd and tc, which only root's PATH usually contains.
pub(crate) fn search_path() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}{}/usr/local/sbin:/usr/sbin:/sbin", if path.is_empty() { "" } else { ":" })
}

fn enter_host(request: &ExecRequest) -> io::Result<()> {
    // The parent-death signal remains set after the exec unless the program gains privileges.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if let Some(file) = &request.control_group {
        fs::write(file, "0")?;
    }
    // After entering the mount namespace, these files could be other ones.
    let (network, mounts) =
        (File::open(&request.network)?, request.mounts.as_ref().map(File::open).transpose()?);
    namespaces::enter(network, Kind::Network)?;
    if let Some(mounts) = mounts {
        private::enter(&mounts)?;
    }
    if let Some(cpus) = &request.cpus {
        let mut set = CpuSet::new();
        cpus.iter().for_each(|&cpu| set.set(cpu));
        sched_setaffinity(None, &set)
            .map_err(|error| io::Error::other(format!("cannot run on processors {cpus:?} only: {error}")))?;
    }
    if let Some(descriptors) = request.descriptors {
        // Both limits are set, because many programs raise their soft limit to the hard limit.
        let limit = Rlimit { current: Some(descriptors), maximum: Some(descriptors) };
        setrlimit(Resource::Nofile, limit)
            .map_err(|error| io::Error::other(format!("cannot allow {descriptors} descriptors: {error}")))?;
    }
    Ok(())
}
