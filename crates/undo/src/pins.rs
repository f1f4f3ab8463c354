//! Pins of a balancer in the BPF file system: its tables, and what attaches its program to devices.

use std::{error, fs, io, path::Path};

use aya::programs::tc::{TcAttachType, TcError, qdisc_detach_program};
use rustix::mount::{UnmountFlags, unmount};

/// What the name of the folder of a balancer's pins begins with.
pub const PINS_PREFIX: &str = "proofload-balance-";
/// What the pin of a link of cls_bpf begins with; the device's name follows, as with the other two.
pub const CLS_LINK: &str = "cls-link-";
/// What the pin of a link of XDP begins with.
pub const XDP_LINK: &str = "xdp-link-";
/// What the pin of a filter's program begins with. A filter has no pin of its own: its program says there that it is ours.
pub const FILTER: &str = "filter-";
/// The name of the balancer's program, by which its filters are known.
pub const BALANCER_PROGRAM: &str = "l2dsr";
/// The folder in that of a balancer's state which is a BPF file system of its own, where the machine has none.
pub const OWN_BPF: &str = "bpf";

type Cause = Box<dyn error::Error + Send + Sync>;

/// Removes all pins of a folder, and the folder, after ending what they attach. What nothing else holds is gone a moment later.
///
/// # Errors
/// When a pin cannot be removed; not when there is none.
pub fn remove_pins(pins: &Path) -> Result<(), Cause> {
    if !pins.exists() {
        return Ok(());
    }
    // Before the tables, without which the program would drop.
    detach_pins(pins, |_| true)?;
    for entry in fs::read_dir(pins)? {
        fs::remove_file(entry?.path())?;
    }
    Ok(fs::remove_dir(pins)?)
}

/// Ends the attachments whose pins have names that are asked for.
///
/// # Errors
/// When one cannot be ended.
pub fn detach_pins(pins: &Path, is_asked: impl Fn(&str) -> bool) -> Result<(), Cause> {
    for entry in fs::read_dir(pins)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let filter = name.strip_prefix(FILTER);
        let is_attachment = filter.is_some() || name.starts_with(CLS_LINK) || name.starts_with(XDP_LINK);
        if !is_attachment || !is_asked(&name) {
            continue;
        }
        if let Some(device) = filter {
            match qdisc_detach_program(&device.replace(':', "."), TcAttachType::Ingress, BALANCER_PROGRAM) {
                // The device is gone, or somebody has detached it.
                Err(TcError::IoError(_)) => {}
                detached => detached?,
            }
        }
        fs::remove_file(entry.path())?;
    }
    Ok(())
}

/// Removes the pins of a balancer, and the folder of its state with the BPF file system that may be mounted there.
pub(crate) fn remove_balancer(pins: &Path, folder: &Path) -> io::Result<()> {
    remove_pins(pins).map_err(io::Error::other)?;
    let own = folder.join(OWN_BPF);
    if own.exists() {
        // Mounted in no namespace of mounts that this process sees, or not at all.
        let _ = unmount(&own, UnmountFlags::DETACH);
        // Takes it from other namespaces of mounts, too.
        fs::remove_dir(&own)?;
    }
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // Other balancers may have theirs beside it.
    folder.parent().map(fs::remove_dir);
    Ok(())
}
