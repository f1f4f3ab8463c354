//! A control group whose members have a slow disk.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use anyhow::{Context, Result};

use super::cases::SLOW_DISK;

/// Limits on what members of the group may write to the disk of temporary files.
#[derive(Debug, Clone, Copy)]
pub(in super::super) enum Slow {
    /// Writes per second.
    Writes(u32),
    /// Bytes per second.
    Bytes(u32),
}

/// The control group. It is removed on drop.
pub(in super::super) struct SlowDisk;

impl SlowDisk {
    /// The folder of the group.
    pub(in super::super) const GROUP: &str = SLOW_DISK;

    pub(in super::super) fn made(slow: Slow) -> Result<Self> {
        fs::create_dir(SLOW_DISK).with_context(|| format!("cannot make the control group {SLOW_DISK}"))?;
        let made = Self;
        let device = fs::metadata(std::env::temp_dir())?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let of_device = format!("/sys/dev/block/{major}:{minor}");
        // The limits of a partition are set on its disk.
        let disk = if Path::new(&of_device).join("partition").exists() { "../dev" } else { "dev" };
        let disk = fs::read_to_string(fs::canonicalize(&of_device)?.join(disk))?;
        let (file, limit) = match slow {
            Slow::Writes(writes) => ("write_iops_device", writes),
            Slow::Bytes(bytes) => ("write_bps_device", bytes),
        };
        fs::write(format!("{SLOW_DISK}/blkio.throttle.{file}"), format!("{} {limit}", disk.trim()))?;
        Ok(made)
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        // The group's members end with their lab. If one is left, creating the group fails in the next bar.
        let _ = fs::remove_dir(SLOW_DISK);
    }
}
