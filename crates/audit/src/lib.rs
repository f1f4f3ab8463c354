//! Receipts against files: what was acknowledged and is not stored, what is stored more often than it was sent, what is
//! not as it was sent, and what stands where it should not.
//!
//! * [`receipts`]: what the sender knows, read from its folders.
//! * [`paths`]: which files the receiver stored it in.
//! * [`files`]: what is in them, plain or compressed, line by line.
//! * [`event`]: the events in a line, and whether they are as they were sent.
//! * [`tally`]: both held against each other.
//!
//! Files are read once, in one pass, whatever their size. Memory is a byte for each event sent, and eight for each
//! client.

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

/// What to hold against what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditOptions {
    /// Folders of receipts.
    pub receipts: Vec<PathBuf>,
    /// Files of the receiver: paths, folders (with all that lies in them, hidden files left out), or patterns with
    /// `*`, `?`, `[…]` and `**`.
    pub files: Vec<String>,
    /// The level from which an acknowledgement is held to its promise; all of them if `None`.
    pub level: Option<AckLevel>,
}

/// Why there is no audit.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// A file or folder could not be read.
    #[error("cannot read {path}: {cause}")]
    Read {
        /// Which.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// Receipts that no sender of this version wrote.
    #[error("{path}, line {line}: {cause}; give the folder that a load left its receipts in (--receipts)")]
    Receipts {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        cause: String,
    },
    /// A pattern that is none.
    #[error("'{pattern}' is no pattern of files: {cause}")]
    Pattern {
        /// As given.
        pattern: String,
        /// What is wrong with it.
        cause: glob::PatternError,
    },
}

/// Holds the files against the receipts.
///
/// # Errors
/// When a folder or file that was named cannot be read, or receipts are none. Receipts that end early and compressed
/// files that are cut short are findings, not errors.
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
