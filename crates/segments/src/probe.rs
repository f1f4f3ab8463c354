//! Probes a failed disk. If no lines arrive, nothing else shows that the disk works again.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    time::{Duration, Instant},
};

use crate::{StorageState, shared::Shared};

const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Size of the probe file, in bytes. If a few bytes fit on the disk, lines may still not fit.
const PROBE_BYTES: usize = 64 << 10;
/// Name of the hidden probe file. It is in the folder of the files, because the journal may be on another disk.
const PROBE_NAME: &str = ".probe.proofload";

/// The time of the next probe. The syncer runs the probe, because the probe may wait for the disk.
#[derive(Debug)]
pub(crate) struct Probe {
    due: Instant,
}

impl Probe {
    pub(crate) fn new() -> Self {
        Self { due: Instant::now() + PROBE_INTERVAL }
    }

    /// Probes the disk at intervals while the last write or sync has failed.
    pub(crate) fn run(&mut self, shared: &Shared) {
        let now = Instant::now();
        if shared.health.state() == StorageState::Ok {
            self.due = now + PROBE_INTERVAL;
        } else if now >= self.due && !shared.is_stopping() && !shared.health.has_panicked() {
            if try_write(shared.config.template.folder()).is_ok() {
                shared.health.write_succeeded();
                shared.health.sync_succeeded();
            }
            self.due = Instant::now() + PROBE_INTERVAL;
        }
    }
}

fn try_write(folder: &Path) -> io::Result<()> {
    let path = folder.join(PROBE_NAME);
    // Removes the file of a killed process. Removes a link too, instead of following it.
    let _ = fs::remove_file(&path);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    let synced = file.write_all(&vec![b'\n'; PROBE_BYTES]).and_then(|()| file.sync_data());
    fs::remove_file(&path).and(synced)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_leaves_the_disk_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = folder.path().join("elsewhere");
        fs::write(&elsewhere, "precious").unwrap();
        std::os::unix::fs::symlink(&elsewhere, folder.path().join(PROBE_NAME)).unwrap();
        try_write(folder.path()).unwrap();
        assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "precious");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(try_write(&elsewhere).is_err());
    }
}
