//! An open segment, which gets new lines at its end.

use std::{
    io::IoSlice,
    ops::Range,
    os::unix::fs::MetadataExt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::{
    fs::{SeekFrom, ftruncate, seek},
    io::{Errno, writev},
};

use crate::{
    file::{DescriptorGuard, Progress, SegmentFile, SyncState},
    listing::Index,
    locator::OpenedFile,
};

/// Maximum bytes of one write, so that answers do not wait for all queued parts. A part up to this size is a single
/// write, so lines of other processes never appear within it.
pub const MAX_WRITE_BYTES: usize = 1 << 20;
/// Interval between checks that a segment's path still leads to its file, while lines arrive.
const PATH_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Interval between checks that a segment's file still has a name.
const LINK_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The writer's state of an open segment.
#[derive(Debug)]
pub(crate) struct Segment {
    pub shared: Arc<SegmentFile>,
    pub name: Arc<str>,
    pub index: Index,
    /// Offset of the next line.
    pub tail: u64,
    /// Whether the journal records that the segment contains NUL bytes.
    pub binary: bool,
    /// Bytes written since the last requested sync.
    pub unsynced_bytes: u64,
    /// Whether another process truncated the file and the journal does not record it yet.
    pub shortened: bool,
    /// Time of the last check of its path.
    path_checked: Instant,
    /// Time of the last check of its link count.
    links_checked: Instant,
    changed_bytes: u64,
    /// Whether the last line is torn and belongs to another process, so that this process must not truncate it.
    torn: bool,
    /// Range of bytes that a failed write left in the file.
    remainder: Option<(u64, u64)>,
}

/// Lines in a buffer.
#[derive(Debug)]
pub(crate) struct Lines<'a> {
    pub data: &'a [u8],
    pub range: Range<usize>,
}

/// The result of an attempt to append.
#[derive(Debug)]
pub(crate) struct Appended {
    pub writes: u64,
    /// Why some pieces are not stored.
    pub failure: Option<Errno>,
    /// Whether some of the failed pieces' lines are in the file and may stay there.
    pub partial: bool,
}

impl Segment {
    /// Creates the state of an opened file. `binary` means that the journal records NUL bytes in it.
    pub(crate) fn new(
        found: OpenedFile,
        id: u64,
        sync_state: Arc<SyncState>,
        binary: bool,
        descriptor: DescriptorGuard,
    ) -> Self {
        let shared = SegmentFile {
            file: found.file,
            id,
            path: found.path,
            inode: found.inode,
            sync_state,
            synced_bytes: AtomicU64::new(0),
            folders: Mutex::new(found.folders),
            linked: found.linked,
            removed: AtomicBool::new(false),
            _descriptor: descriptor,
        };
        let now = Instant::now();
        Self {
            shared: Arc::new(shared),
            name: found.name.into(),
            index: found.index,
            tail: found.length,
            binary,
            unsynced_bytes: 0,
            shortened: false,
            path_checked: now,
            links_checked: now,
            changed_bytes: 0,
            torn: found.torn,
            remainder: None,
        }
    }

    pub(crate) fn progress(&self) -> Progress {
        let truncations = self.shared.sync_state.truncations();
        Progress { changed_bytes: self.changed_bytes, tail: self.tail, truncations }
    }

    /// Appends pieces of whole lines and pushes the offset of each stored piece. After a failure, truncates the file
    /// after the last stored piece.
    ///
    /// The file is open in append mode, and each write is followed by a query of its position. This process therefore
    /// never overwrites lines of other processes, and leaves no hole after other processes truncate the file.
    ///
    /// Calls `between` after each mebibyte of a longer piece.
    pub(crate) fn append(
        &mut self,
        pieces: &[Lines<'_>],
        offsets: &mut Vec<u64>,
        between: &mut dyn FnMut(),
    ) -> Appended {
        if let Err(failure) = self.truncate_remainder() {
            return Appended { writes: 0, failure: Some(failure), partial: false };
        }
        let newline: &[u8] = if self.torn { b"\n" } else { b"" };
        let mut slices = Vec::new();
        slices.extend((!newline.is_empty()).then(|| IoSlice::new(newline)));
        slices.extend(merge_adjacent(pieces));
        let written = self.write(&mut slices, between);
        let (mut kept, mut partial) = (0, written.interleaved);
        let mut at = newline.len() as u64;
        for piece in pieces {
            let end = at + piece.range.len() as u64;
            if end > written.bytes {
                break;
            }
            offsets.push(written.begin + at);
            (at, kept) = (end, end);
        }
        self.torn = written.interleaved || (self.torn && kept == 0);
        self.tail = written.begin + kept;
        self.unsynced_bytes += kept;
        self.changed_bytes += written.bytes;
        if written.bytes > kept {
            self.remainder = Some((self.tail, written.begin + written.bytes));
            // If truncation fails, the next write and every sweep try again.
            partial |= self.truncate_remainder() != Ok(true);
        }
        Appended { writes: written.calls, failure: written.failure, partial }
    }

    /// Checks whether the file was renamed or removed. Checks only at intervals, because they are system calls.
    pub(crate) fn detect_removal(&mut self) -> bool {
        let now = Instant::now();
        if now - self.path_checked >= PATH_CHECK_INTERVAL {
            (self.path_checked, self.links_checked) = (now, now);
            // The path may lead to another file, or to none.
            let now = self.shared.path.symlink_metadata();
            return !now.is_ok_and(|now| now.ino() == self.shared.inode.number);
        }
        if now - self.links_checked >= LINK_CHECK_INTERVAL {
            self.links_checked = now;
            return self.shared.detect_removal();
        }
        // The syncer may have detected it.
        self.shared.removed.load(Ordering::Relaxed)
    }

    fn write(&mut self, slices: &mut [IoSlice<'_>], between: &mut dyn FnMut()) -> Written {
        let mut written = Written { begin: self.tail, bytes: 0, calls: 0, interleaved: false, failure: None };
        let mut rest = slices;
        while !rest.is_empty() {
            if written.calls > 0 {
                between();
            }
            written.calls += 1;
            let count = match writev(&self.shared.file, &limited(rest)) {
                Ok(0) => return written.failed(Errno::IO),
                Ok(count) => count,
                Err(Errno::INTR) => continue,
                Err(cause) => return written.failed(cause),
            };
            let end = match seek(&self.shared.file, SeekFrom::Current(0)) {
                Ok(end) => end,
                Err(cause) => return written.failed(cause),
            };
            let landed = end - count as u64;
            let expected = written.begin + written.bytes;
            if landed != expected {
                if landed < expected {
                    // Another process truncated the file, for example logrotate with copytruncate. The synced bytes are
                    // gone, and the new ones are not synced.
                    self.shared.sync_state.record_truncation(landed);
                    self.shortened = true;
                }
                if written.bytes > 0 {
                    written.interleaved = true;
                    return written.failed(Errno::IO);
                }
                written.begin = landed;
            }
            written.bytes += count as u64;
            IoSlice::advance_slices(&mut rest, count);
        }
        written
    }

    /// Truncates the remainder of a failed write, unless another process has written after it. Returns whether the file
    /// contains nothing of it.
    ///
    /// # Errors
    /// When the file cannot be truncated. The caller should try again later.
    pub(crate) fn truncate_remainder(&mut self) -> Result<bool, Errno> {
        let Some((from, to)) = self.remainder else { return Ok(true) };
        let length = self.shared.file.metadata().map_err(|cause| errno(&cause))?.len();
        if length == to {
            ftruncate(&self.shared.file, from)?;
            // The remainder may be on the disk. Until the next sync, a power cut can restore it.
            self.changed_bytes += to - from;
        } else {
            self.torn = true;
        }
        self.remainder = None;
        Ok(length == to)
    }
}

/// The first buffers, up to the maximum size of one write.
fn limited<'s>(slices: &'s [IoSlice<'_>]) -> Vec<IoSlice<'s>> {
    // One extra byte for the newline after a torn line.
    let mut partial = MAX_WRITE_BYTES + 1;
    let mut limited = Vec::with_capacity(slices.len());
    for slice in slices {
        if partial == 0 {
            break;
        }
        let length = slice.len().min(partial);
        limited.push(IoSlice::new(&slice[..length]));
        partial -= length;
    }
    limited
}

/// Merges pieces that are adjacent in a buffer, so that a write needs fewer buffers.
fn merge_adjacent<'a>(pieces: &[Lines<'a>]) -> Vec<IoSlice<'a>> {
    let mut merge_adjacent = Vec::new();
    let mut pieces = pieces.iter().peekable();
    while let Some(first) = pieces.next() {
        let mut end = first.range.end;
        while let Some(more) =
            pieces.next_if(|more| std::ptr::eq(more.data, first.data) && more.range.start == end)
        {
            end = more.range.end;
        }
        merge_adjacent.push(IoSlice::new(&first.data[first.range.start..end]));
    }
    merge_adjacent
}

#[derive(Debug)]
struct Written {
    begin: u64,
    bytes: u64,
    calls: u64,
    /// Whether bytes of another process are between the bytes of this process.
    interleaved: bool,
    failure: Option<Errno>,
}

impl Written {
    fn failed(self, cause: Errno) -> Self {
        Self { failure: Some(cause), ..self }
    }
}

/// The error number of an I/O error; EIO if the error has no number.
pub(crate) fn errno(cause: &std::io::Error) -> Errno {
    Errno::from_io_error(cause).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write};

    use super::*;
    use crate::{
        Config, Template,
        file::Descriptors,
        folders::Base,
        locator::{FilesInUse, Locator, Start},
    };

    struct NoFilesInUse;

    impl FilesInUse for NoFilesInUse {
        fn contains_path(&self, _: &std::path::Path) -> bool {
            false
        }
        fn contains_inode(&self, _: u64) -> bool {
            false
        }
    }

    fn segment(folder: &std::path::Path) -> Segment {
        let template: Template = folder.join("${tag}").to_str().unwrap().parse().unwrap();
        let base = Base::new(&template);
        let found = Locator::new(&Config::new(template), base).open("x", Start::Find, &NoFilesInUse).unwrap();
        let descriptor = Arc::new(Descriptors::default()).count();
        Segment::new(found, 0, Arc::default(), false, descriptor)
    }

    fn append(segment: &mut Segment, pieces: &[&'static str]) -> (Vec<u64>, Option<Errno>) {
        let mut offsets = Vec::new();
        let lines = |piece: &&'static str| Lines { data: piece.as_bytes(), range: 0..piece.len() };
        let pieces: Vec<_> = pieces.iter().map(lines).collect();
        let failure = segment.append(&pieces, &mut offsets, &mut || {}).failure;
        (offsets, failure)
    }

    #[test]
    fn pieces_are_contiguous() {
        let folder = tempfile::tempdir().unwrap();
        let mut segment = segment(folder.path());
        assert_eq!(append(&mut segment, &["one\n", "three\nfour\n"]), (vec![0, 4], None));
        assert_eq!(append(&mut segment, &["five\n"]), (vec![15], None));
        assert_eq!(fs::read_to_string(folder.path().join("x.log")).unwrap(), "one\nthree\nfour\nfive\n");
    }

    #[test]
    fn lines_of_other_processes_stay_and_offsets_are_right() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.log");
        let mut segment = segment(folder.path());
        append(&mut segment, &["one\n"]);
        fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"stranger\n").unwrap();
        assert_eq!(append(&mut segment, &["two\n"]), (vec![13], None));
        assert_eq!(segment.tail, 17);
        // Truncates the file as logrotate's copytruncate does.
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
        let before = segment.progress();
        assert!(!segment.shortened);
        assert_eq!(append(&mut segment, &["three\n"]), (vec![0], None));
        assert_eq!(fs::read_to_string(&path).unwrap(), "three\n");
        // The file is shorter, but the progress has grown.
        let since = segment.progress();
        assert!(segment.shortened && since.tail < before.tail && since.truncations > before.truncations);
        assert_eq!(since.changed_bytes, before.changed_bytes + 6);
    }

    #[test]
    fn an_existing_torn_line_is_ended_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.log");
        fs::write(&path, "torn").unwrap();
        let mut segment = segment(folder.path());
        assert_eq!(append(&mut segment, &["one\n", "two\n"]), (vec![5, 9], None));
        assert_eq!(append(&mut segment, &["three\n"]), (vec![13], None));
        assert_eq!(fs::read_to_string(&path).unwrap(), "torn\none\ntwo\nthree\n");
    }

    #[test]
    fn a_failed_part_that_cannot_be_truncated_is_partial() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.log");
        let lines = "line\n".repeat(2 * MAX_WRITE_BYTES / 5);
        let stranger =
            || fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"stranger\n").unwrap();
        let mut segment = segment(folder.path());
        let mut append = |bytes: usize| {
            let (lines, mut writes) = ([Lines { data: lines.as_bytes(), range: 0..bytes }], 0);
            let appended = segment.append(&lines, &mut Vec::new(), &mut || {
                writes += 1;
                stranger();
            });
            (appended.failure, appended.partial, writes)
        };
        assert_eq!(append(2 * MAX_WRITE_BYTES / 5 * 5), (Some(Errno::IO), true, 1));
        // A part of the maximum size is one write, even after the newline that ends a torn line.
        assert_eq!(append(MAX_WRITE_BYTES), (None, false, 0));
    }
}
