//! What the receiver stored: files, plain or compressed, line by line.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use memchr::memchr;

use crate::AuditError;

/// Read at once, in bytes.
const CHUNK_BYTES: usize = 1 << 20;
/// No line is longer, in bytes: what is, is no line but a broken file.
const LONGEST_LINE_BYTES: usize = 256 << 20;

/// One line of a file.
#[derive(Debug, Clone, Copy)]
pub struct Line<'a> {
    /// Without its end.
    pub bytes: &'a [u8],
    /// From 1.
    pub number: u64,
    /// Where it begins in the plain file, in bytes.
    pub offset: u64,
    /// It has an end; only the last line of a file may have none.
    pub is_ended: bool,
}

/// How the reading of a file ended.
#[derive(Debug)]
pub struct FileEnd {
    /// Its bytes, decompressed.
    pub bytes: u64,
    /// Why what is behind them cannot be decompressed.
    pub broken: Option<String>,
}

/// The files that paths, folders and patterns name, each once, in a stable order. Hidden ones are taken only where
/// they are named themselves.
///
/// # Errors
/// When a path does not exist, or a folder cannot be read.
pub fn find(names: &[String]) -> Result<Vec<PathBuf>, AuditError> {
    let mut found = Vec::new();
    for name in names {
        let path = Path::new(name);
        if path.exists() || !name.contains(['*', '?', '[']) {
            gather(path, &mut found)?;
            continue;
        }
        let options =
            glob::MatchOptions { require_literal_leading_dot: true, ..glob::MatchOptions::default() };
        let paths = glob::glob_with(name, options)
            .map_err(|cause| AuditError::Pattern { pattern: name.clone(), cause })?;
        for path in paths {
            let path = path.map_err(|error| {
                let path = error.path().to_owned();
                AuditError::Read { path, cause: error.into() }
            })?;
            gather(&path, &mut found)?;
        }
    }
    found.sort();
    // A symbolic link to the segment in use, or a path given twice.
    let mut seen = BTreeSet::new();
    let mut distinct = Vec::with_capacity(found.len());
    for path in found {
        let about = fs::metadata(&path).map_err(|cause| AuditError::Read { path: path.clone(), cause })?;
        if seen.insert((about.dev(), about.ino())) {
            distinct.push(path);
        }
    }
    Ok(distinct)
}

fn gather(path: &Path, found: &mut Vec<PathBuf>) -> Result<(), AuditError> {
    let failed = |cause| AuditError::Read { path: path.to_owned(), cause };
    let about = fs::metadata(path).map_err(failed)?;
    if about.is_file() {
        found.push(path.to_owned());
        return Ok(());
    }
    if !about.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        // A link to a folder may lead back up, and one to nothing names no file.
        let is_link = entry.file_type().map_err(failed)?.is_symlink();
        if hidden || (is_link && !fs::metadata(entry.path()).is_ok_and(|about| about.is_file())) {
            continue;
        }
        gather(&entry.path(), found)?;
    }
    Ok(())
}

/// The name of a file without the ending of its compression, and that.
pub fn plain_name(path: &Path) -> (PathBuf, Compression) {
    let compression = match path.extension().and_then(|extension| extension.to_str()) {
        Some("gz") => Compression::Gzip,
        Some("zst") => Compression::Zstd,
        _ => return (path.to_owned(), Compression::None),
    };
    (path.with_extension(""), compression)
}

/// How a file is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// It is not.
    None,
    /// RFC 1952, any number of members.
    Gzip,
    /// RFC 8878, any number of frames.
    Zstd,
}

/// Gives every line of a file.
///
/// # Errors
/// When the file cannot be read. A compressed one that is cut short is no error: see [`FileEnd::broken`].
pub fn lines(path: &Path, give: impl FnMut(Line<'_>)) -> io::Result<FileEnd> {
    let file = File::open(path)?;
    match plain_name(path).1 {
        Compression::None => lines_of(file, false, give),
        Compression::Gzip => lines_of(flate2::read::MultiGzDecoder::new(file), true, give),
        Compression::Zstd => lines_of(zstd::stream::read::Decoder::new(file)?, true, give),
    }
}

fn lines_of(mut input: impl Read, compressed: bool, mut give: impl FnMut(Line<'_>)) -> io::Result<FileEnd> {
    let mut buffer = vec![0; CHUNK_BYTES];
    let (mut held, mut number, mut offset) = (0, 1, 0);
    let mut broken = None;
    loop {
        if held == buffer.len() {
            if held >= LONGEST_LINE_BYTES {
                broken = Some(format!("line {number} is longer than {LONGEST_LINE_BYTES} bytes"));
                break;
            }
            buffer.resize(held * 2, 0);
        }
        let received = match input.read(&mut buffer[held..]) {
            Ok(0) => break,
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if compressed => {
                broken = Some(error.to_string());
                break;
            }
            Err(error) => return Err(error),
        };
        // What was held has no line end, or it would have been given.
        let mut searched = held;
        held += received;
        let mut start = 0;
        while let Some(at) = memchr(b'\n', &buffer[searched..held]) {
            let end = searched + at;
            give(Line { bytes: &buffer[start..end], number, offset, is_ended: true });
            offset += (end + 1 - start) as u64;
            number += 1;
            start = end + 1;
            searched = start;
        }
        buffer.copy_within(start..held, 0);
        held -= start;
    }
    if held > 0 {
        give(Line { bytes: &buffer[..held], number, offset, is_ended: false });
    }
    Ok(FileEnd { bytes: offset + held as u64, broken })
}
