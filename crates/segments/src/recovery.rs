//! Recovers segments after a kill or a power cut.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use memchr::{memchr, memrchr};
use rustix::fs::OFlags;

use crate::{
    Error, compressor,
    file::SyncState,
    journal::{Entry, Journal, Phase, Segment, Unfinished},
    slots::Parked,
};

/// The result of recovering the segments of the last process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recovery {
    /// Segments that were open when the process ended.
    pub segments: u64,
    /// Those of them that were removed or replaced by another file. Nothing is done about these.
    pub replaced: u64,
    /// Bytes read for the recovery.
    pub scanned_bytes: u64,
    /// Torn ends that were truncated.
    pub truncations: Vec<Truncation>,
    /// Finished compressions.
    pub compressions_finished: u64,
    /// Compressions that must start again.
    pub compressions_undone: u64,
    /// Lines of the journal that are not valid records.
    pub journal_damaged_lines: u64,
}

/// A truncated torn end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Truncation {
    /// Path of the segment.
    pub path: PathBuf,
    /// Length before, in bytes.
    pub from_bytes: u64,
    /// Length after, in bytes.
    pub to_bytes: u64,
}

/// A recovered segment of the last process.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub segment: Segment,
    pub parked: Parked,
    /// Whether the segment must be packed and not continued.
    pub ended: bool,
}

/// Recovers all unfinished segments in the journal.
///
/// # Errors
/// When a segment cannot be read or truncated, because nothing may be appended to it then. A full disk is no error: the
/// journal records the results when there is space.
pub(crate) fn recover(journal: &Journal) -> Result<(Recovery, Vec<Recovered>), Error> {
    let mut recovery = Recovery::default();
    let mut recovered = Vec::new();
    for (id, Unfinished { segment, phase }) in journal.unfinished() {
        let path = journal.path(&segment.path);
        let fails = |cause| Error::file("recover", path.clone(), cause);
        if let Phase::Packing(packed) = &phase {
            let packed = journal.path(packed);
            if finish_packing(&packed, &path, &segment, &mut recovery).map_err(fails)? {
                journal.append_eventually(&[Entry::Gone { id }], false).map_err(fails)?;
                continue;
            }
            journal.append_eventually(&[Entry::Ended { id }], true).map_err(fails)?;
            // Until the journal is rewritten, the hidden file shows that the packed file is a foreign one.
            if !journal.needs_rewrite() {
                let _ = fs::remove_file(compressor::hidden_path(&packed));
            }
        }
        let open = phase == Phase::Open;
        recovery.segments += u64::from(open);
        let Some(length) = truncate_torn_end(&path, &segment, open, &mut recovery).map_err(fails)? else {
            recovery.replaced += u64::from(open);
            journal.append_eventually(&[Entry::Gone { id }], false).map_err(fails)?;
            continue;
        };
        if open {
            journal.append_eventually(&[Entry::Closed { id, good_bytes: length }], false).map_err(fails)?;
        }
        let (inode, binary) = (segment.inode, segment.binary);
        let parked = Parked { id, path, inode, binary, sync_state: Arc::new(SyncState::new(length)) };
        let ended = matches!(phase, Phase::Ended | Phase::Packing(_));
        recovered.push(Recovered { segment, parked, ended });
    }
    Ok((recovery, recovered))
}

/// Finishes packing if the packed file is complete. Returns whether it is.
fn finish_packing(
    packed: &Path,
    plain: &Path,
    segment: &Segment,
    recovery: &mut Recovery,
) -> io::Result<bool> {
    // A file gets the packed name when it is complete. A file with this name beside a hidden file is a foreign one.
    if compressor::is_renamed(packed)? {
        let _ = fs::remove_file(compressor::hidden_path(packed));
        compressor::remove_plain(plain, segment.inode, packed)?;
        recovery.compressions_finished += 1;
        return Ok(true);
    }
    recovery.compressions_undone += 1;
    Ok(false)
}

/// Truncates the torn end of a segment that was open, syncs the segment and returns its length. None if the file was removed
/// or replaced by another one.
fn truncate_torn_end(
    path: &Path,
    segment: &Segment,
    open: bool,
    recovery: &mut Recovery,
) -> io::Result<Option<u64>> {
    let found = match path.symlink_metadata() {
        Ok(found) => found,
        Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(cause),
    };
    if !found.is_file() || found.ino() != segment.inode {
        return Ok(None);
    }
    let length = found.len();
    // A file shorter than the synced bytes was truncated by another process on purpose.
    if !open || length <= segment.good_bytes {
        return Ok(Some(length));
    }
    let nofollow = OFlags::NOFOLLOW.bits().cast_signed();
    let file = OpenOptions::new().read(true).write(true).custom_flags(nofollow).open(path)?;
    let end = end_of_lines(&file, segment.good_bytes, length, segment.binary)?;
    recovery.scanned_bytes += length - segment.good_bytes;
    if end < length {
        file.set_len(end)?;
        recovery.truncations.push(Truncation { path: path.to_owned(), from_bytes: length, to_bytes: end });
    }
    // Its length counts as synced from here on.
    file.sync_all()?;
    Ok(Some(end))
}

/// Offset of the end of the last whole line before any damage. The first `good` bytes are not checked.
fn end_of_lines(file: &File, good: u64, length: u64, binary: bool) -> io::Result<u64> {
    let mut buffer = vec![0; 256 << 10];
    let mut end = good;
    let mut at = good;
    while at < length {
        let chunk_bytes = buffer.len().min(usize::try_from(length - at).unwrap_or(usize::MAX));
        let chunk = &mut buffer[..chunk_bytes];
        file.read_exact_at(chunk, at)?;
        // A filesystem that extends a file before it writes the blocks leaves zeros.
        let zero = if binary { None } else { memchr(0, chunk) };
        let sound = &chunk[..zero.unwrap_or(chunk_bytes)];
        if let Some(newline) = memrchr(b'\n', sound) {
            end = at + newline as u64 + 1;
        }
        if zero.is_some() {
            break;
        }
        at += chunk_bytes as u64;
    }
    Ok(end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn end(text: &[u8], good: u64, binary: bool) -> u64 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.log");
        fs::write(&path, text).unwrap();
        end_of_lines(&File::open(path).unwrap(), good, text.len() as u64, binary).unwrap()
    }

    #[test]
    fn a_torn_line_and_everything_after_zeros_is_truncated() {
        assert_eq!(end(b"one\ntwo\nthr", 0, false), 8);
        assert_eq!(end(b"one\ntwo\0\0\nthree\n", 0, false), 4);
        assert_eq!(end(b"one\ntwo\0\0\nthree\n", 0, true), 16);
        assert_eq!(end(b"one\ntwo\n", 0, false), 8);
        assert_eq!(end(b"torn", 0, false), 0);
    }

    #[test]
    fn synced_bytes_are_never_truncated() {
        assert_eq!(end(b"one\ntorn, but not ours", 22, false), 22);
        assert_eq!(end(b"no newline|tail", 11, false), 11);
    }

    /// A journal of one segment of 4 bytes that was being packed.
    fn being_packed(folder: &Path) -> (PathBuf, PathBuf, Journal) {
        let state = folder.join("state");
        fs::create_dir(&state).unwrap();
        let (plain, packed) = (folder.join("x.log"), folder.join("x.log.gz"));
        fs::write(&plain, "one\n").unwrap();
        let (journal, _) = Journal::open(&state).unwrap();
        let segment = Segment {
            path: "x.log".into(),
            inode: plain.metadata().unwrap().ino(),
            good_bytes: 4,
            binary: false,
            key: "x".into(),
            index: None,
            end: None,
        };
        let begun = Entry::Packing { id: 0, packed: "x.log.gz".into() };
        journal.append(&[Entry::Opened { id: 0, segment }, Entry::Ended { id: 0 }, begun], true).unwrap();
        (plain, packed, journal)
    }

    #[test]
    fn one_copy_of_a_packed_segment_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (plain, packed, journal) = being_packed(folder.path());
        fs::write(&packed, "whole").unwrap();
        let (recovery, recovered) = recover(&journal).unwrap();
        assert_eq!((recovery.compressions_finished, recovered.len(), journal.unfinished().len()), (1, 0, 0));
        assert!(packed.exists() && !plain.exists());
    }

    #[test]
    fn incomplete_packing_starts_again() {
        let folder = tempfile::tempdir().unwrap();
        let (plain, packed, journal) = being_packed(folder.path());
        let hidden = compressor::hidden_path(&packed);
        fs::write(&hidden, "hal").unwrap();
        let (recovery, recovered) = recover(&journal).unwrap();
        assert_eq!((recovery.compressions_undone, recovery.segments), (1, 0));
        assert!(recovered[0].ended && plain.exists() && !hidden.exists());
    }

    #[test]
    fn a_foreign_packed_file_is_not_taken_for_ours() {
        let folder = tempfile::tempdir().unwrap();
        let (plain, packed, journal) = being_packed(folder.path());
        fs::write(compressor::hidden_path(&packed), "whole").unwrap();
        fs::write(&packed, "somebody's").unwrap();
        let (recovery, recovered) = recover(&journal).unwrap();
        assert_eq!((recovery.compressions_finished, recovery.compressions_undone), (0, 1));
        assert!(recovered[0].ended && plain.exists());
        assert_eq!(fs::read_to_string(&packed).unwrap(), "somebody's");
    }

    #[test]
    fn a_packed_file_with_both_names_is_ours() {
        let folder = tempfile::tempdir().unwrap();
        let (plain, packed, journal) = being_packed(folder.path());
        let hidden = compressor::hidden_path(&packed);
        fs::write(&hidden, "whole").unwrap();
        fs::hard_link(&hidden, &packed).unwrap();
        let (recovery, _) = recover(&journal).unwrap();
        assert_eq!(recovery.compressions_finished, 1);
        assert!(packed.exists() && !plain.exists() && !hidden.exists());
    }

    #[test]
    fn another_file_with_the_plain_name_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (plain, packed, journal) = being_packed(folder.path());
        fs::write(&packed, "whole").unwrap();
        fs::rename(&plain, folder.path().join("elsewhere")).unwrap();
        fs::write(&plain, "another").unwrap();
        recover(&journal).unwrap();
        assert_eq!(fs::read_to_string(&plain).unwrap(), "another");
    }

    proptest! {
        #[test]
        fn exactly_the_whole_lines_before_the_damage_stay(
            lengths in prop::collection::vec(0usize..3000, 0..400),
            torn in "[a-z]{0,50}",
            zeros in 0usize..5000,
            more in "[a-z\n]{0,20}",
        ) {
            let whole: String = lengths.iter().map(|&length| "x".repeat(length) + "\n").collect();
            let mut text = whole.clone().into_bytes();
            text.extend(torn.as_bytes());
            if zeros > 0 {
                text.extend(std::iter::repeat_n(0, zeros));
                text.extend(more.as_bytes());
            }
            prop_assert_eq!(end(&text, 0, false), whole.len() as u64);
        }
    }
}
