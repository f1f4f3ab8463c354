//! What a copy is asked to do.

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
    /// Which files of the sources.
    pub choice: FileFilter,
    /// Keeps times and permissions.
    pub preserve: bool,
    /// Compares what was written with what was read.
    pub verify: bool,
    /// Syncs every file to its disk before it gets its final name.
    pub sync: bool,
    /// The folder for journals of chunks and for facts about logins; none keeps nothing.
    pub state: Option<PathBuf>,
    /// Continues where an earlier copy stopped.
    pub resume: bool,
    /// Connections; none chooses by the round trip.
    pub connections: Option<u32>,
    /// Takes no larger share of a path than one connection of another program.
    pub is_polite: bool,
    /// The bound of bytes in flight; none follows the path.
    pub in_flight_bytes: Option<usize>,
    /// The limit of the rate in bytes per second; none is no limit.
    pub limit_bytes_per_s: Option<u64>,
    /// Reports what would be copied, and copies nothing.
    pub dry_run: bool,
}
