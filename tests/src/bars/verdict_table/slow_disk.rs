//! A control group with a slow disk.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use anyhow::{Context, Result};

use super::cases::SLOW_DISK;

/// Writes per second to the disk of temporary files, for members of the group.
const WRITES_PER_S: u32 = 30;

/// The group, which is removed when this is dropped.
pub(in super::super) struct SlowDisk;

impl SlowDisk {
    /// The folder of the group.
    pub(in super::super) const GROUP: &str = SLOW_DISK;

    pub(in super::super) fn made() -> Result<Self> {
        fs::create_dir(SLOW_DISK).with_context(|| format!("cannot make the control group {SLOW_DISK}"))?;
        let made = Self;
        let device = fs::metadata(std::env::temp_dir())?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let of_device = format!("/sys/dev/block/{major}:{minor}");
        // A partition has the limits of its disk.
        let disk = if Path::new(&of_device).join("partition").exists() { "../dev" } else { "dev" };
        let disk = fs::read_to_string(fs::canonicalize(&of_device)?.join(disk))?;
        fs::write(
            format!("{SLOW_DISK}/blkio.throttle.write_iops_device"),
            format!("{} {WRITES_PER_S}", disk.trim()),
        )?;
        Ok(made)
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        // Its members end with their lab; if one is left, the next bar says so.
        let _ = fs::remove_dir(SLOW_DISK);
    }
}
