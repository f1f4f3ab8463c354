//! The paths of a balancer's state, control socket and pins, which depend on its name.
//!
//! Names are unique in a network namespace. Folders and the BPF file system belong to the whole machine, so outside the
//! kernel's first network namespace, as in a lab's host or a container, the paths also contain the number of the
//! namespace. Only a lock proves that the balancer that owns the state or the pins of a name still runs.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, Read, Seek, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use kernel::namespaces;
use rustix::{
    fs::{CWD, FlockOperation, flock, statfs},
    mount::{MountFlags, MoveMountFlags, OpenTreeFlags, mount, move_mount, open_tree},
};
use undo::{Folder, Network, OWN_BPF, PINS_PREFIX};

use crate::Error;

/// Where systemd mounts the BPF file system.
pub(crate) const BPF_FILE_SYSTEM: &str = "/sys/fs/bpf";
/// BPF_FS_MAGIC (linux/magic.h).
const BPF_MAGIC: u64 = 0xcafe_4a11;
/// Maximum time to wait for the previous daemon of this name, which may still be ending.
const END_TIMEOUT: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Name of the folder that contains the folders of all balancers.
const FOLDER: &str = "balance";

/// A balancer identified by its name. It may or may not run.
#[derive(Debug, Clone)]
pub struct Instance {
    /// The name, unique in its network namespace.
    pub name: String,
    /// The name, with the number of the network namespace unless that is the kernel's first one.
    pub(crate) label: String,
    /// The folder of its state.
    pub(crate) folder: PathBuf,
    pub(crate) network: Network,
    journals: Folder,
}

impl Instance {
    /// The balancer of a name in this network namespace. Call this before the process changes its `/proc`.
    ///
    /// # Errors
    /// If the name is not a valid folder name, or the network namespace is unknown.
    pub fn named(name: &str, journals: &Folder) -> Result<Self, Error> {
        let is_name = !name.is_empty()
            && name.len() <= 32
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
            && !name.starts_with('.');
        if !is_name {
            return Err(Error::Refused(format!(
                "'{name}' cannot be the name of a balancer: use letters, digits, '.', '_' and '-' (--name)"
            )));
        }
        let network = own_network()?;
        let label = format!("{name}{}", suffix(&network));
        let folder = journals.path().join(FOLDER).join(&label);
        Ok(Self { name: name.to_owned(), label, folder, network, journals: journals.clone() })
    }

    /// The balancers in this network namespace that run or were killed.
    ///
    /// # Errors
    /// When the network namespace is unknown.
    pub fn all(journals: &Folder) -> Result<Vec<Self>, Error> {
        let suffix = suffix(&own_network()?);
        let entries = fs::read_dir(journals.path().join(FOLDER)).into_iter().flatten().flatten();
        let labels = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = labels.filter_map(|label| name_of(&label, &suffix)).collect();
        names.sort();
        names.iter().map(|name| Self::named(name, journals)).collect()
    }

    /// The folder of journals.
    pub(crate) fn journals(&self) -> &Folder {
        &self.journals
    }

    /// The control socket.
    pub(crate) fn control(&self) -> PathBuf {
        self.folder.join("control")
    }

    /// The file that the daemon locks. It contains the number of the daemon's process.
    pub(crate) fn lock_path(&self) -> PathBuf {
        self.folder.join("lock")
    }

    /// The saved state with which a later daemon continues.
    pub(crate) fn state(&self) -> PathBuf {
        self.folder.join("state.json")
    }

    /// The folder of pins.
    pub(crate) fn pins(&self) -> PathBuf {
        // Names in the BPF file system must not contain dots.
        let name = format!("{PINS_PREFIX}{}", self.label.replace('.', ":"));
        let bpf_folder = self.folder.join(OWN_BPF);
        if is_bpf(&bpf_folder) { bpf_folder.join(name) } else { Path::new(BPF_FILE_SYSTEM).join(name) }
    }

    /// Opens the folder of pins with [`Pins::there`](undo::Pins::there) or [`Pins::make`](undo::Pins::make), so that no
    /// other balancer can use it.
    ///
    /// # Errors
    /// If another process uses the folder, or another user could change it.
    pub(crate) fn take_pins<T>(&self, take: impl Fn(&Path) -> io::Result<T>) -> Result<T, Error> {
        let path = self.pins();
        take(&path).map_err(|error| {
            let next = match error.kind() {
                io::ErrorKind::ResourceBusy => {
                    "stop that balancer, or start this one with another name (--name) or its own BPF file system at /sys/fs/bpf"
                }
                _ if path.exists() => "remove it if it is not needed, or start the balancer with another name (--name)",
                _ => "run this as root",
            };
            Error::Refused(format!("the folder of tables {} cannot be used: {error}; {next}", path.display()))
        })
    }

    /// Makes sure that there is a BPF file system: if the machine has none, mounts one in the folder of the state. The
    /// mount must outlast this process, so call this before the process changes its mount namespace. If only a few
    /// processes share that namespace, as under `ip netns exec`, the outermost ancestor of this process gets the mount
    /// as well. If that fails, returns a warning.
    ///
    /// # Errors
    /// If the kernel refuses the mount.
    pub fn ensure_bpf_file_system(&self) -> Result<Option<String>, Error> {
        let bpf_folder = self.folder.join(OWN_BPF);
        let outside = namespaces::outermost_ancestor();
        let is_seen = |path: &Path| outside.is_none_or(|process| is_seen_by(process, path));
        let is_lasting = |path: &Path| is_bpf(path) && is_seen(path);
        if is_lasting(Path::new(BPF_FILE_SYSTEM)) || is_lasting(&bpf_folder) {
            return Ok(None);
        }
        let failed = |error: io::Error| {
            Error::new(format!("mount a BPF file system at {}", bpf_folder.display()), &error)
        };
        if !is_bpf(&bpf_folder) {
            make_folder(&bpf_folder).map_err(failed)?;
            let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
            mount("bpf", &bpf_folder, "bpf", flags, Some(c"mode=0700"))
                .map_err(|error| failed(error.into()))?;
        }
        let Some(process) = outside.filter(|_| !is_seen(&bpf_folder)) else { return Ok(None) };
        Ok(share_with(process, &self.folder, &bpf_folder).err().map(|why| {
            format!(
                "the tables will be lost when this process ends, even with `stop --keep`, because it has its own mount namespace ({why}); to keep them, \
                 first mount a BPF file system at {BPF_FILE_SYSTEM}, or start the balancer with nsenter --net"
            )
        }))
    }

    /// Locks the name. No other process can lock it until the file is closed.
    ///
    /// # Errors
    /// If another process has locked it.
    pub(crate) fn lock(&self) -> Result<File, Error> {
        self.lock_within(END_TIMEOUT)
    }

    fn lock_within(&self, time: Duration) -> Result<File, Error> {
        let failed = |error: io::Error| Error::new(format!("use {}", self.folder.display()), &error);
        let path = self.lock_path();
        let deadline = Instant::now() + time;
        let mut file = loop {
            let opened = make_folder(&self.folder).and_then(|()| {
                fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)
            });
            let mut file = match opened {
                // The daemon that is ending has removed the folder.
                Err(error) if error.kind() == io::ErrorKind::NotFound && Instant::now() < deadline => {
                    continue;
                }
                opened => opened.map_err(failed)?,
            };
            let is_same = |file: &File| {
                let (of_file, there) = (file.metadata()?, fs::metadata(&path)?);
                Ok::<_, io::Error>((of_file.dev(), of_file.ino()) == (there.dev(), there.ino()))
            };
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) if is_same(&file).unwrap_or(false) => break file,
                // The former daemon has removed the file, and a lock of the removed file excludes no other process.
                Ok(()) => continue,
                Err(_) if Instant::now() < deadline => {
                    thread::sleep(POLL_INTERVAL);
                    continue;
                }
                Err(_) => {}
            }
            let mut process = String::new();
            file.read_to_string(&mut process).map_err(failed)?;
            return Err(Error::Refused(format!(
                "a balancer '{}' runs already (process {}); stop it with `proofload balance stop`, or give this one another --name",
                self.name,
                process.trim()
            )));
        };
        let written = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        written.map_err(failed)?;
        Ok(file)
    }
}

fn own_network() -> Result<Network, Error> {
    Network::own().map_err(|error| Error::new("determine the network namespace", &error))
}

/// Whether a label belongs to a balancer of this network namespace.
pub(crate) fn is_of_this_network(label: &str) -> Result<bool, Error> {
    Ok(name_of(label, &suffix(&own_network()?)).is_some())
}

/// The name in a label with the suffix of this network namespace. None if the suffix differs.
fn name_of(label: &str, suffix: &str) -> Option<String> {
    match suffix {
        "" => (!label.contains('@')).then(|| label.to_owned()),
        suffix => label.strip_suffix(suffix).map(str::to_owned),
    }
}

fn suffix(network: &Network) -> String {
    if network.is_first() { String::new() } else { format!("@{}", network.number()) }
}

/// Whether another process sees the same file system at this path.
fn is_seen_by(process: u32, path: &Path) -> bool {
    let there = Path::new("/proc").join(process.to_string()).join("root");
    let there = there.join(path.strip_prefix("/").unwrap_or(path));
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev()).ok();
    device(&there) == device(path)
}

/// Also mounts the file system in another process's mount namespace, if the folder above the path is the same one
/// there.
fn share_with(process: u32, folder: &Path, path: &Path) -> io::Result<()> {
    let identity = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino()));
    let inside = identity(folder)?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let mounted = open_tree(CWD, path, flags)?;
    let mounts = File::open(namespaces::path_of(process, namespaces::Kind::Mount))?;
    namespaces::run_in_mounts(mounts, || {
        if identity(folder).ok() != Some(inside) {
            return Err(io::Error::other(format!("outside, {} is a different folder", folder.display())));
        }
        Ok(move_mount(&mounted, "", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
    })
}

pub(crate) fn is_bpf(path: &Path) -> bool {
    statfs(path).is_ok_and(|found| found.f_type as u64 == BPF_MAGIC)
}

fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).recursive(true).create(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_removed_while_it_is_waited_for_is_taken_anew() {
        let folder = tempfile::tempdir().unwrap();
        let journals = Folder::at(folder.path().join("state")).unwrap();
        let instance = Instance::named("test", &journals).unwrap();
        let former = instance.lock().unwrap();
        let ends = instance.clone();
        let ending = thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            // As the daemon that ends: what the next one has made in the folder meanwhile may keep it.
            let _ = fs::remove_dir_all(&ends.folder);
            drop(former);
        });
        let _lock = instance.lock_within(testing::PATIENCE).unwrap();
        ending.join().unwrap();
        assert!(instance.lock_path().exists(), "the lock keeps others out");
        let refused = instance.lock().unwrap_err().to_string();
        assert!(refused.contains(&format!("(process {})", std::process::id())), "{refused}");
    }
}
