//! Changes of this machine, and how they are undone.

use std::{
    fmt, fs,
    io::{self, ErrorKind},
    path::{Component, Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use crate::{
    AddedRoute, Error, InterfaceAddress, Network, ProcessId, Setting, kill,
    pins::{PINS_PREFIX, remove_balancer},
};

/// Time that a process may take to end, or a control group to become empty.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// A change of this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Change {
    /// A process that has just been started.
    Process {
        /// Identity of the process.
        #[serde(flatten)]
        process: ProcessId,
        /// Role and name, by which other processes find this one.
        role: String,
    },
    /// A folder with its contents that is about to be created. Its path contains the run's identifier.
    Folder {
        /// Path of the folder.
        path: PathBuf,
    },
    /// A file that is about to be created. Its path contains the run's identifier.
    File {
        /// Path of the file.
        path: PathBuf,
    },
    /// A control group that is about to be created. Its path contains the run's identifier, and all its members are
    /// ours.
    ControlGroup {
        /// Its folder in the file system of control groups.
        path: PathBuf,
    },
    /// A word that is about to be added to a list of the kernel.
    Word {
        /// Path of the setting that contains the list.
        path: PathBuf,
        /// The word.
        word: String,
    },
    /// A setting of the kernel that is about to change.
    Setting(Setting),
    /// An address that an interface is about to get.
    Address(InterfaceAddress),
    /// A route that is about to be added.
    Route(AddedRoute),
    /// The pins of a balancer that are about to be created, and the folder of its state.
    Balancer {
        /// Folder of the pins, in a BPF file system. Its name begins with [`PINS_PREFIX`].
        pins: PathBuf,
        /// The folder of its state.
        folder: PathBuf,
        /// The network namespace of its device.
        network: Network,
    },
}

impl Change {
    /// The network namespace of the change; none if the change is visible in all of them.
    pub(crate) fn network(&self) -> Option<&Network> {
        match self {
            Self::Setting(setting) => Some(&setting.network),
            Self::Address(address) => Some(&address.network),
            Self::Route(route) => Some(&route.network),
            Self::Balancer { network, .. } => Some(network),
            _ => None,
        }
    }

    /// Fails if a later cleanup could not prove that the change belongs to the run. The kernel's settings are below
    /// `settings`.
    pub(crate) fn check_provable(&self, run: &str, settings: &[&str]) -> Result<(), Error> {
        match self {
            Self::Folder { path } | Self::File { path } | Self::ControlGroup { path }
                if !is_plain(path) || !path.iter().any(|part| part.to_string_lossy().contains(run)) =>
            {
                Err(Error::Unprovable(path.clone()))
            }
            Self::Setting(Setting { path, .. }) | Self::Word { path, .. }
                if !is_plain(path) || !settings.iter().any(|folder| path.starts_with(folder)) =>
            {
                Err(Error::NoSetting(path.clone()))
            }
            Self::Balancer { pins, folder, .. } => {
                let name = pins.file_name().map(|name| name.to_string_lossy());
                let is_beside = folder.parent().is_some_and(|parent| parent.ends_with("balance"));
                let is_ours = is_beside && name.is_some_and(|name| name.starts_with(PINS_PREFIX));
                if is_ours { Ok(()) } else { Err(Error::Unprovable(pins.clone())) }
            }
            _ => Ok(()),
        }
    }

    /// Undoes the change, which was proven to belong to the run. Does nothing if the change is already gone or no
    /// longer ours. Process numbers are those of `pid_namespace`.
    pub(crate) fn undo(&self, pid_namespace: &str) -> Result<(), Error> {
        let undone = match self {
            Self::Process { process, .. } => {
                let known = process.resolve_here(pid_namespace);
                known.and_then(|known| known.map_or(Ok(()), |process| kill(process, END_TIMEOUT)))
            }
            Self::Folder { path } => remove_folder(path),
            Self::File { path } => ignore_not_found(fs::remove_file(path)),
            Self::ControlGroup { path } => remove_control_group(path),
            Self::Word { path, word } => remove_word(path, word),
            Self::Setting(setting) => return setting.put_back(),
            Self::Address(address) => address.remove(),
            Self::Route(route) => route.remove(),
            Self::Balancer { pins, folder, network } => {
                network.is_own_or_gone().and_then(|is_own| remove_balancer(pins, folder, is_own))
            }
        };
        undone.map_err(|error| Error::Undo { what: self.to_string(), cause: error.to_string() })
    }
}

/// Whether a path is absolute and contains no `..`.
fn is_plain(path: &Path) -> bool {
    path.is_absolute() && !path.components().any(|part| part == Component::ParentDir)
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { process, role } => write!(f, "process {} ({role})", process.pid),
            Self::Folder { path } => write!(f, "folder {}", path.display()),
            Self::File { path } => write!(f, "file {}", path.display()),
            Self::ControlGroup { path } => write!(f, "control group {}", path.display()),
            Self::Word { path, word } => write!(f, "the word {word} in {}", path.display()),
            Self::Setting(setting) => write!(f, "the setting {}", setting.path.display()),
            Self::Address(given) => write!(f, "the address {} of {}", given.address, given.interface),
            Self::Route(route) => write!(f, "the route to {}/{}", route.to, route.prefix),
            Self::Balancer { pins, .. } => write!(f, "the balancer of {}", pins.display()),
        }
    }
}

fn ignore_not_found(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Removes a folder. Tries several times, because a dying process may still create files in it.
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
            // A group stays busy while it contains a process, including one that is ending.
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
    let kept: Vec<&str> = list.split_whitespace().filter(|entry| *entry != word).collect();
    if kept.len() == list.split_whitespace().count() { Ok(()) } else { fs::write(path, kept.join(" ")) }
}

fn kill_members(group: &Path) {
    let members = || fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    for pid in members().lines().filter_map(|line| line.parse().ok()) {
        let Some(process) = ProcessId::of(pid) else { continue };
        // The membership is checked again, because the process number may have been reused.
        if members().lines().any(|line| line == pid.to_string()) {
            // A process that survives keeps the group busy, and the caller reports that.
            let _ = kill(process, END_TIMEOUT);
        }
    }
}
