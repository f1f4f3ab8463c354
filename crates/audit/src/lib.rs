//! Compares a sender's receipts with a receiver's files. Finds acknowledged events that are not stored, events that are
//! stored more often than sent, altered events, and events at wrong positions.
//!
//! * [`receipts`] reads the receipts of the sender.
//! * [`paths`] finds the files of the receiver.
//! * [`files`] reads them line by line, plain or compressed.
//! * [`event`] finds the events in a line and checks that they are as they were sent.
//! * [`tally`] compares stored and sent events.
//!
//! Files are read once, so their size does not matter. The audit needs about one byte of memory for each stored event,
//! and memory for the lines of the receipts. Memory is not reserved according to numbers that receipts claim.

mod copies;
mod event;
mod files;
mod findings;
mod paths;
mod positions;
mod receipts;
mod tally;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::{io, path::PathBuf, time::Instant};

use record::{AckLevel, AuditResult, ReadCounts};

use event::Examiner;
use files::Line;
use receipts::Receipts;
use tally::Tally;

/// The input of an audit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditOptions {
    /// Folders that contain receipts.
    pub receipts: Vec<PathBuf>,
    /// Files of the receiver: paths, folders (all their files except hidden ones), or patterns with `*`, `?`, `[…]` and
    /// `**`.
    pub files: Vec<String>,
    /// Minimum level of acknowledgements to check; `None` checks all.
    pub level: Option<AckLevel>,
}

/// Why an audit failed.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// A file or folder could not be read.
    #[error("cannot read {path}: {cause}")]
    Read {
        /// The unreadable file or folder.
        path: PathBuf,
        /// Why it could not be read.
        cause: io::Error,
    },
    /// A file is not a receipt file of this version.
    #[error("{path}, line {line}: {cause}; give the folder with the receipts of a load (--receipts)")]
    Receipts {
        /// The invalid file.
        path: PathBuf,
        /// The invalid line, from 1.
        line: usize,
        /// The mistake in that line.
        cause: String,
    },
    /// A pattern is invalid.
    #[error("'{pattern}' is not a file pattern: {cause}")]
    Pattern {
        /// The invalid pattern.
        pattern: String,
        /// The mistake in the pattern.
        cause: glob::PatternError,
    },
}

/// Compares the files with the receipts.
///
/// # Errors
/// If a given folder or file cannot be read, or a receipt file is invalid. Incomplete receipts and truncated compressed
/// files are findings, not errors.
pub fn audit(options: &AuditOptions) -> Result<AuditResult, AuditError> {
    let started = Instant::now();
    let receipts = Receipts::read(&options.receipts)?;
    let files = paths::find(&options.files)?;
    let examiner = Examiner::new(receipts.runs.iter().map(|run| &run.numbering));
    let mut read = ReadCounts { files: files.len() as u64, ..ReadCounts::default() };
    let mut tally = Tally::new(receipts, options.level);
    for path in &files {
        tally.begin_file(path);
        let end = files::lines(path, |line: Line<'_>| {
            read.lines += 1;
            tally.count_line(&line, &examiner);
        })
        .map_err(|cause| AuditError::Read { path: path.clone(), cause })?;
        read.bytes += end.bytes;
        if let Some(why) = end.broken {
            tally.count_broken_file(&why);
        }
    }
    read.elapsed_s = started.elapsed().as_secs_f64();
    Ok(tally.finish(read))
}
