//! Compares a sender's receipts with a receiver's files. Finds acknowledged events that are not stored, events that are
//! stored more often than sent, altered events and events at wrong positions.
//!
//! * [`receipts`] reads the receipts of the sender.
//! * [`paths`] finds the files of the receiver.
//! * [`files`] reads them line by line, plain or compressed.
//! * [`event`] finds the events in a line and checks that they are as they were sent.
//! * [`tally`] compares stored and sent events.
//!
//! Files are read once, whatever their size. The audit needs about one byte of memory for each stored event, and memory
//! for the lines of the receipts. Large numbers in receipts reserve no memory.

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
    /// Folders of receipts.
    pub receipts: Vec<PathBuf>,
    /// Files of the receiver: paths, folders (with all files in them except hidden ones), or patterns with `*`, `?`, `[…]`
    /// and `**`.
    pub files: Vec<String>,
    /// Minimum level of the acknowledgements that are checked; all if none.
    pub level: Option<AckLevel>,
}

/// Why an audit failed.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// A file or folder could not be read.
    #[error("cannot read {path}: {cause}")]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// A file is not a receipt file of this version.
    #[error("{path}, line {line}: {cause}; give the folder with the receipts of a load (--receipts)")]
    Receipts {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The mistake in the line.
        cause: String,
    },
    /// A pattern is not valid.
    #[error("'{pattern}' is not a file pattern: {cause}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// The mistake in the pattern.
        cause: glob::PatternError,
    },
}

/// Compares the files with the receipts.
///
/// # Errors
/// When a given folder or file cannot be read, or a receipt file is not valid. Incomplete receipts and truncated compressed
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
