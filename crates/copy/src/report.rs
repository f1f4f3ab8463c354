//! The report of a copy.

use std::time::Duration;

use serde::Serialize;

use crate::{Bottleneck, file::FileCopy, host_sampler::HostUse, item::Item, location::shown};

/// The way in which a target was verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verified {
    /// The other machine computed the checksum.
    ByChecksum,
    /// The data was read back over the connection.
    ReadBack,
    /// Only the data that was written to this machine was read again, because the other machine cannot compute
    /// checksums.
    HereOnly,
    /// The target was not verified, as requested by the user.
    No,
}

/// The outcome of a file.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct FileReport {
    /// Its source.
    pub source: String,
    /// Its target; empty if it was never begun.
    pub target: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Bytes copied by an earlier run.
    pub resumed_bytes: u64,
    /// Time from its first byte to its final name, in seconds.
    pub elapsed_s: f64,
    /// The way in which it was verified; none if it failed.
    pub verified: Option<Verified>,
    /// Reason why it was not copied.
    pub error: Option<String>,
}

/// The outcome of a copy.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Report {
    /// The files, in the order in which they were finished.
    pub files: Vec<FileReport>,
    /// Number of folders that were created or already existed.
    pub folders: u64,
    /// Bytes that this run carried, without those of earlier runs.
    pub carried_bytes: u64,
    /// Duration of the copy, in seconds.
    pub elapsed_s: f64,
    /// Time until the first connection could carry data, in seconds.
    pub login_s: f64,
    /// Smallest round trip that was seen, in seconds.
    pub round_trip_s: f64,
    /// Maximum number of concurrent connections.
    pub connections: u32,
    /// Maximum number of concurrent channels.
    pub channels: u32,
    /// The limit on the bytes in flight at the end.
    pub in_flight_bytes: u64,
    /// Rate in each full second, in bytes per second.
    pub rate_bytes_per_s: Vec<f64>,
    /// The bottleneck of the copy; none if nothing was carried.
    pub held_back: Option<Bottleneck>,
    /// Reason why files were not verified by checksums from the other machine; none if all were.
    pub no_checksum_because: Option<String>,
    /// The load of this machine during the copy.
    pub here: Option<HostUse>,
    /// The load of the other machine, if a shell there has answered.
    pub there: Option<HostUse>,
    /// Requests that could not be fulfilled, for example for times and permissions, although all data was copied.
    pub warnings: Vec<String>,
    /// Notes on files that were not copied, or that may be missing.
    pub notes: Vec<String>,
    /// Whether the copy was interrupted.
    pub is_interrupted: bool,
}

/// The progress of a copy.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// Bytes that have been copied, including those of earlier runs.
    pub done_bytes: u64,
    /// Bytes of all files.
    pub total_bytes: u64,
    /// Files that are finished.
    pub done_files: u64,
    /// All files.
    pub total_files: u64,
    /// Time since the copy began.
    pub elapsed: Duration,
    /// Number of channels in use.
    pub channels: u32,
    /// Reason why no channel carries data, if all connections were lost.
    pub lost: Option<String>,
}

impl FileReport {
    pub(crate) fn copied(file: &FileCopy, verified: Verified) -> Self {
        Self { verified: Some(verified), ..Self::of(file) }
    }

    pub(crate) fn failed(file: &FileCopy, error: String) -> Self {
        Self { error: Some(error), ..Self::of(file) }
    }

    /// A file whose folder could not be made.
    pub(crate) fn homeless(item: &Item) -> Self {
        Self::missing(&item.source, "its folder could not be made".to_owned())
    }

    /// A source that cannot be copied.
    pub(crate) fn missing(source: &[u8], why: String) -> Self {
        Self { source: shown(source), error: Some(why), ..Self::default() }
    }

    /// The facts about a file, without an outcome.
    pub(crate) fn of(file: &FileCopy) -> Self {
        Self {
            source: shown(&file.item.source),
            target: shown(&file.item.target),
            size_bytes: file.item.size_bytes,
            resumed_bytes: file.resumed_bytes.get(),
            elapsed_s: file.began.get().map_or(0.0, |began| began.elapsed().as_secs_f64()),
            verified: None,
            error: None,
        }
    }
}
