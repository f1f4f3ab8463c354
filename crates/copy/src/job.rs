//! The description of a copy.

use std::{ffi::OsString, path::PathBuf};

use crate::{FileFilter, Location};

/// The sources, the destination and the options of a copy.
#[derive(Debug, Clone)]
pub struct Job {
    /// Where the files are: all on this machine, or all on the same other one.
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
    /// Syncs every file to its disk before it gets its final name.
    pub sync: bool,
    /// The folder for journals of chunks and for facts about logins; without one, neither is kept.
    pub state: Option<PathBuf>,
    /// Continues where an earlier copy stopped.
    pub resume: bool,
    /// Number of connections; none if the round-trip time decides.
    pub connections: Option<u32>,
    /// Takes no larger share of a path than one connection of another program.
    pub is_polite: bool,
    /// Bound on the bytes in flight; none if it follows the path.
    pub in_flight_bytes: Option<usize>,
    /// Limit of the rate in bytes per second; none if unlimited.
    pub limit_bytes_per_s: Option<u64>,
    /// Reports the files that would be copied, but copies nothing.
    pub dry_run: bool,
}
