//! Pins of a balancer in the BPF file system: its tables, and what attaches its program to devices.

use std::{error, fs, io, path::Path};

use aya::programs::tc::{TcAttachType, TcError, qdisc_detach_program};
use files::Trust;
use rustix::{
    fs::{fstat, stat},
    mount::{UnmountFlags, unmount},
};

use crate::{
    interface_name,
    lock::{LOCK_TIMEOUT, try_lock},
    qdisc,
};

/// What the name of the folder of a balancer's pins begins with.
pub const PINS_PREFIX: &str = "proofload-balance-";
/// What the pin of a link of cls_bpf begins with; the device's index follows, as with the others.
pub const CLS_LINK: &str = "cls-link-";
/// What the pin of a link of XDP begins with.
pub const XDP_LINK: &str = "xdp-link-";
/// What the pin of a filter's program begins with. A filter has no pin of its own: its program says there that it is ours.
pub const FILTER: &str = "filter-";
/// What the name of a folder among the pins begins with which says that the qdisc clsact of a device is ours.
pub const QDISC: &str = "qdisc-";
/// The name of the balancer's program, by which its filters are known.
pub const BALANCER_PROGRAM: &str = "l2dsr";
/// The folder in that of a balancer's state which is a BPF file system of its own, where the machine has none.
pub const OWN_BPF: &str = "bpf";

type Cause = Box<dyn error::Error + Send + Sync>;

/// The folder of a balancer's pins, held by a lock of the folder itself: as long as a process has this, no other one takes the folder or
/// removes what is in it, whatever namespaces and folders of state the two have. The kernel ends the lock with the process.
#[derive(Debug)]
pub struct Pins(files::Folder);

impl Pins {
    /// Takes the folder, if it is there.
    ///
    /// # Errors
    /// [`io::ErrorKind::ResourceBusy`] when another process has it; when other users can write to it, or it is theirs.
    pub fn there(path: &Path) -> io::Result<Option<Self>> {
        match Self::take(|| files::Folder::open(path, Trust::OwnersOnly)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            taken => taken.map(Some),
        }
    }

    /// Takes the folder, and makes it if it is missing.
    ///
    /// # Errors
    /// As for [`there`](Self::there), and when it cannot be made.
    pub fn make(path: &Path) -> io::Result<Self> {
        Self::take(|| files::Folder::make(path, Trust::OwnersOnly))
    }

    fn take(open: impl Fn() -> io::Result<files::Folder>) -> io::Result<Self> {
        loop {
            let pins = Self(open()?);
            if !try_lock(&pins.0, LOCK_TIMEOUT) {
                let why = "a balancer that runs uses it, here, in another container or of another user";
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
            }
            // Its owner may have removed it.
            if pins.is_there() {
                return Ok(pins);
            }
        }
    }

    /// Whether its path still leads to it.
    pub fn is_there(&self) -> bool {
        let (held, there) = (fstat(&self.0), stat(self.0.path()));
        held.is_ok_and(|held| there.is_ok_and(|it| (it.st_dev, it.st_ino) == (held.st_dev, held.st_ino)))
    }

    /// Removes the pins and the folder. What nothing else holds is gone a moment later.
    ///
    /// # Errors
    /// When one cannot be removed.
    pub fn remove(self) -> Result<(), Cause> {
        // Before the tables, without which the program would drop.
        detach_pins(self.0.path(), |_| true)?;
        self.remove_rest()
    }

    /// Removes the pins of tables, and the folder.
    fn remove_rest(self) -> Result<(), Cause> {
        for entry in fs::read_dir(self.0.path())? {
            let path = entry?.path();
            if path.is_dir() { fs::remove_dir(path)? } else { fs::remove_file(path)? }
        }
        Ok(fs::remove_dir(self.0.path())?)
    }
}

/// Ends the attachments whose pins have names that are asked for.
///
/// # Errors
/// When one cannot be ended.
pub fn detach_pins(pins: &Path, is_asked: impl Fn(&str) -> bool) -> Result<(), Cause> {
    let mut names = Vec::new();
    for entry in fs::read_dir(pins)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    // Filters come before the qdisc that they are in, by the alphabet.
    names.sort();
    for name in names.iter().filter(|name| is_asked(name)) {
        let path = pins.join(name);
        if let Some(index) = name.strip_prefix(FILTER) {
            // A device that is gone has taken its filter along.
            if let Some(device) = index.parse().ok().and_then(interface_name) {
                match qdisc_detach_program(&device, TcAttachType::Ingress, BALANCER_PROGRAM) {
                    // It was detached.
                    Err(TcError::IoError(_)) => {}
                    detached => detached?,
                }
            }
            fs::remove_file(path)?;
        } else if let Some(index) = name.strip_prefix(QDISC) {
            index.parse().map_or(Ok(()), qdisc::remove_if_unused)?;
            fs::remove_dir(path)?;
        } else if name.starts_with(CLS_LINK) || name.starts_with(XDP_LINK) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Removes the pins of a balancer, and the folder of its state with the BPF file system that may be mounted there. What is attached to
/// devices of another network namespace has gone with that.
pub(crate) fn remove_balancer(pins: &Path, folder: &Path, is_own_network: bool) -> io::Result<()> {
    let removed = match Pins::there(pins)? {
        Some(pins) if is_own_network => pins.remove(),
        Some(pins) => pins.remove_rest(),
        None => Ok(()),
    };
    removed.map_err(io::Error::other)?;
    let bpf_folder = folder.join(OWN_BPF);
    if bpf_folder.exists() {
        // Mounted in no namespace of mounts that this process sees, or not at all; or several times, where mounts of other namespaces
        // come by.
        (0..16).find(|_| unmount(&bpf_folder, UnmountFlags::DETACH).is_err());
        // Takes it from other namespaces of mounts, too.
        fs::remove_dir(&bpf_folder)?;
    }
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // Other balancers may have theirs beside it.
    folder.parent().map(fs::remove_dir);
    Ok(())
}
