//! Pins of a balancer in the BPF file system: its tables, and the links and filters that attach its program to devices.

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

/// Prefix of the name of a folder that contains a balancer's pins.
pub const PINS_PREFIX: &str = "proofload-balance-";
/// Prefix of the name of a cls_bpf link's pin. The device's index follows, as in the names below.
pub const CLS_LINK: &str = "cls-link-";
/// Prefix of the name of an XDP link's pin.
pub const XDP_LINK: &str = "xdp-link-";
/// Prefix of the name of a filter program's pin. A filter itself cannot be pinned; the pin of its program proves that
/// the filter is ours.
pub const FILTER: &str = "filter-";
/// Prefix of the name of a folder, among the pins, that marks a device's clsact qdisc as ours.
pub const QDISC: &str = "qdisc-";
/// The name of the balancer's program, which identifies its filters.
pub const BALANCER_PROGRAM: &str = "l2dsr";
/// Name of the folder, inside a balancer's state folder, on which a BPF file system is mounted if the machine has none.
pub const OWN_BPF: &str = "bpf";

type Cause = Box<dyn error::Error + Send + Sync>;

/// The locked folder of a balancer's pins. While a process holds the lock, no other process can take the folder or
/// remove its contents, not even one with another namespace or state folder. The kernel releases the lock when the
/// process ends.
#[derive(Debug)]
pub struct Pins(files::Folder);

impl Pins {
    /// Locks the folder if it exists.
    ///
    /// # Errors
    /// [`io::ErrorKind::ResourceBusy`] if another process has locked it; another error if another user owns it or may
    /// write to it.
    pub fn there(path: &Path) -> io::Result<Option<Self>> {
        match Self::take(|| files::Folder::open(path, Trust::OwnersOnly)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            taken => taken.map(Some),
        }
    }

    /// Locks the folder. Creates it if it is missing.
    ///
    /// # Errors
    /// Those of [`there`](Self::there), and if the folder cannot be created.
    pub fn make(path: &Path) -> io::Result<Self> {
        Self::take(|| files::Folder::make(path, Trust::OwnersOnly))
    }

    fn take(open: impl Fn() -> io::Result<files::Folder>) -> io::Result<Self> {
        loop {
            let pins = Self(open()?);
            if !try_lock(&pins.0, LOCK_TIMEOUT) {
                let why = "a running balancer uses it: here, in another container or of another user";
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
            }
            // Its former owner may have removed the folder before the lock was released.
            if pins.is_there() {
                return Ok(pins);
            }
        }
    }

    /// Whether the path still refers to this folder.
    pub fn is_there(&self) -> bool {
        let (held, there) = (fstat(&self.0), stat(self.0.path()));
        held.is_ok_and(|held| there.is_ok_and(|it| (it.st_dev, it.st_ino) == (held.st_dev, held.st_ino)))
    }

    /// Removes the pins and the folder. The kernel soon frees programs and tables without other references.
    ///
    /// # Errors
    /// When a pin or the folder cannot be removed.
    pub fn remove(self) -> Result<(), Cause> {
        // The program is detached first, because it would drop packets without its tables.
        detach_pins(self.0.path(), |_| true)?;
        self.remove_rest()
    }

    /// Removes the pins of tables and the folder.
    fn remove_rest(self) -> Result<(), Cause> {
        for entry in fs::read_dir(self.0.path())? {
            let path = entry?.path();
            if path.is_dir() { fs::remove_dir(path)? } else { fs::remove_file(path)? }
        }
        Ok(fs::remove_dir(self.0.path())?)
    }
}

/// Detaches the attachments for whose pin names `is_asked` holds.
///
/// # Errors
/// When an attachment cannot be detached.
pub fn detach_pins(pins: &Path, is_asked: impl Fn(&str) -> bool) -> Result<(), Cause> {
    let mut names = Vec::new();
    for entry in fs::read_dir(pins)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    // Sorted by name, filters come before the qdisc that contains them.
    names.sort();
    for name in names.iter().filter(|name| is_asked(name)) {
        let path = pins.join(name);
        if let Some(index) = name.strip_prefix(FILTER) {
            // If the device is gone, the kernel has already removed its filter.
            if let Some(device) = index.parse().ok().and_then(interface_name) {
                match qdisc_detach_program(&device, TcAttachType::Ingress, BALANCER_PROGRAM) {
                    // The filter has already been detached.
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

/// Removes the pins of a balancer, and the folder of its state with the BPF file system that may be mounted in it.
/// Attachments to devices of another network namespace have ended with that namespace.
pub(crate) fn remove_balancer(pins: &Path, folder: &Path, is_own_network: bool) -> io::Result<()> {
    let removed = match Pins::there(pins)? {
        Some(pins) if is_own_network => pins.remove(),
        Some(pins) => pins.remove_rest(),
        None => Ok(()),
    };
    removed.map_err(io::Error::other)?;
    let bpf_folder = folder.join(OWN_BPF);
    if bpf_folder.exists() {
        // The file system may not be mounted here at all, only in another mount namespace, or several times, because
        // mounts propagate between mount namespaces.
        (0..16).find(|_| unmount(&bpf_folder, UnmountFlags::DETACH).is_err());
        // Removing the folder also unmounts the file system in other mount namespaces.
        fs::remove_dir(&bpf_folder)?;
    }
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // This fails, as intended, if other balancers still have state folders there.
    folder.parent().map(fs::remove_dir);
    Ok(())
}
