//! The lock of the journal, which only one process can hold.

use std::{
    fs::File,
    io::{self, ErrorKind, Read, Write},
    os::unix::fs::MetadataExt,
    path::Path,
};

use files::Folder;
use rustix::fs::{FlockOperation, OFlags, flock};

use crate::{Error, folders};

/// Held as long as a thread may still write.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    pub(crate) fn acquire(folder: &Path) -> Result<Self, Error> {
        let held = folders::open_state(folder).map_err(|cause| Error::state("open", folder, cause))?;
        let fails = |cause: io::Error| Error::state("lock", folder.join("lock"), cause);
        let mut file = open(&held).map_err(fails)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut pid = String::new();
                file.read_to_string(&mut pid).map_err(fails)?;
                return Err(Error::Locked { folder: folder.into(), pid: pid.trim().into() });
            }
            Err(cause) => return Err(fails(cause.into())),
        }
        // The process ID is only for the message of a second process, so a full disk does not prevent the start.
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Self { _file: file })
    }
}

/// Opens the lock file. Its content has no effect, so a file of an earlier version may keep the mode from the umask.
fn open(folder: &Folder) -> io::Result<File> {
    match folder.create("lock", 0o600) {
        Err(cause) if cause.kind() != ErrorKind::AlreadyExists => return Err(cause),
        _ => {}
    }
    let file = folder.file("lock", OFlags::RDWR)?;
    match file.metadata()?.nlink() {
        0 | 1 => Ok(file),
        _ => Err(io::Error::new(ErrorKind::PermissionDenied, "has a second hard link")),
    }
}
