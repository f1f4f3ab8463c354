//! The description of a copy.

use std::{ffi::OsString, path::PathBuf};

use crate::{FileFilter, Location};

/// The sources, the destination and the options of a copy.
#[derive(Debug, Clone)]
pub struct Job {
    /// The sources: all on this machine, or all on the same other machine.
    pub sources: Vec<Location>,
    /// The destination.
    pub destination: Location,
    /// Options for `ssh`.
    pub ssh_options: Vec<OsString>,
    /// The files of the sources to copy.
    pub choice: FileFilter,
    /// Keeps times and permissions.
    pub preserve: bool,
    /// Verifies that the copied data equals the source.
    pub verify: bool,
    /// Writes every file to its disk (fsync) before it gets its final name.
    pub sync: bool,
    /// The folder for journals of chunks and for facts about logins. Without a folder, neither is stored.
    pub state: Option<PathBuf>,
    /// Continues where an earlier copy stopped.
    pub resume: bool,
    /// Number of connections; chosen by the round-trip time if none.
    pub connections: Option<u32>,
    /// Takes no larger share of a path than one connection of another program would.
    pub is_polite: bool,
    /// Limit on the bytes in flight; it follows the path if none.
    pub in_flight_bytes: Option<usize>,
    /// Limit of the rate in bytes per second; none if unlimited.
    pub limit_bytes_per_s: Option<u64>,
    /// Reports the files that would be copied, but copies nothing.
    pub dry_run: bool,
}
