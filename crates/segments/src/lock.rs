//! The lock that gives one process the journal.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    path::Path,
};

use rustix::fs::{FlockOperation, flock};

use crate::Error;

/// Held as long as a thread may still write.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    pub(crate) fn acquire(folder: &Path) -> Result<Self, Error> {
        let path = folder.join("lock");
        let fails = |cause: io::Error| Error::file("lock", path.clone(), cause);
        let mut options = OpenOptions::new();
        let mut file =
            options.read(true).write(true).create(true).truncate(false).open(&path).map_err(fails)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut pid = String::new();
                file.read_to_string(&mut pid).map_err(fails)?;
                return Err(Error::Locked { folder: folder.into(), pid: pid.trim().into() });
            }
            Err(cause) => return Err(fails(cause.into())),
        }
        // The number is only for the message to a second process, so a full disk does not prevent the start.
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Self { _file: file })
    }
}
