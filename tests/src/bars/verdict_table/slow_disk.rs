//! A control group with a slow disk.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use anyhow::{Context, Result};

use super::cases::SLOW_DISK;

/// What members of the group may write to the disk of temporary files.
#[derive(Debug, Clone, Copy)]
pub(in super::super) enum Slow {
    /// So often a second.
    Writes(u32),
    /// So many bytes a second.
    Bytes(u32),
}

/// The group, which is removed when this is dropped.
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
        // A partition has the limits of its disk.
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
        // Its members end with their lab; if one is left, the next bar says so.
        let _ = fs::remove_dir(SLOW_DISK);
    }
}
