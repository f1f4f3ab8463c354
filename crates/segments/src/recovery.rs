//! Recovers segments after a kill or a power cut.

use std::{ffi::OsStr, fs::File, io, os::unix::fs::FileExt, path::PathBuf, sync::Arc};

use files::Folder;
use memchr::{memchr, memrchr};
use rustix::fs::OFlags;

use crate::{
    Compression, Error,
    compressor::{hidden_name, is_renamed, remove_plain},
    file::SyncState,
    folders::{Base, about},
    inode::Inode,
    journal::{Entry, Journal, Phase, Segment, Unfinished},
    locator::packed_name,
    slots::Parked,
};

/// The result of recovering the segments of the last process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recovery {
    /// Segments that were open when the process ended.
    pub segments: u64,
    /// Segments that were removed or replaced by another file. Recovery ignores them.
    pub replaced: u64,
    /// Segments whose recorded path is outside the folder of the files. Recovery does not change them or their records.
    pub elsewhere: Vec<PathBuf>,
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
/// When a segment cannot be read or truncated, because nothing may be appended to it then. A full disk is not an error:
/// the journal records the results when there is space.
pub(crate) fn recover(journal: &Journal, base: &Base) -> Result<(Recovery, Vec<Recovered>), Error> {
    let mut recovery = Recovery::default();
    let mut recovered = Vec::new();
    for (id, Unfinished { segment, phase }) in journal.unfinished() {
        let path = journal.path(&segment.path);
        let fails = |cause| Error::file("recover", path.clone(), cause);
        if base.beneath(&path).is_none() {
            recovery.elsewhere.push(path);
            continue;
        }
        let open = phase == Phase::Open;
        recovery.segments += u64::from(open);
        let mut length = None;
        if let Some((folder, name)) = base.holder(&path).map_err(fails)? {
            if let Phase::Packing(packed) = &phase {
                // The packed file is always beside the plain file, so a folder in the record is ignored.
                let suffix = Compression::ALL_SUFFIXES.iter().find(|suffix| packed.ends_with(**suffix));
                let packed = suffix.map(|suffix| packed_name(name, suffix));
                if finish_packing(&folder, name, packed.as_deref(), segment.inode).map_err(fails)? {
                    recovery.compressions_finished += 1;
                    journal.append_eventually(&[Entry::Gone { id }], false).map_err(fails)?;
                    continue;
                }
                recovery.compressions_undone += 1;
                journal.append_eventually(&[Entry::Ended { id }], true).map_err(fails)?;
                // Until the journal is rewritten, the hidden file must stay: it shows that the packed file is a foreign
                // one.
                if let Some(packed) = packed.filter(|_| !journal.needs_rewrite()) {
                    let _ = folder.remove(hidden_name(&packed));
                }
            }
            length = truncate_torn_end(&folder, name, &segment, open, &mut recovery).map_err(fails)?;
        }
        let Some((length, cut)) = length else {
            recovery.replaced += u64::from(open);
            journal.append_eventually(&[Entry::Gone { id }], false).map_err(fails)?;
            continue;
        };
        if let Some(from_bytes) = cut {
            recovery.truncations.push(Truncation { path: path.clone(), from_bytes, to_bytes: length });
        }
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
fn finish_packing(folder: &Folder, plain: &OsStr, packed: Option<&OsStr>, inode: Inode) -> io::Result<bool> {
    // Packing renames the file only when it is complete. While the hidden file exists, a file with the packed name is
    // foreign.
    let Some(packed) = packed else { return Ok(false) };
    let is_complete = is_renamed(folder, packed)?;
    if is_complete {
        let _ = folder.remove(hidden_name(packed));
        remove_plain(folder, plain, inode)?;
    }
    Ok(is_complete)
}

/// Truncates the torn end of a segment that was open, and syncs the segment. Returns its length, and its previous
/// length if it was truncated. `None` if the file was removed or replaced.
fn truncate_torn_end(
    folder: &Folder,
    name: &OsStr,
    segment: &Segment,
    open: bool,
    recovery: &mut Recovery,
) -> io::Result<Option<(u64, Option<u64>)>> {
    let found = about(folder, name)?.filter(|found| segment.inode.is(found));
    let Some(length) = found.map(|found| found.len()) else { return Ok(None) };
    // A file shorter than the synced bytes was truncated by another process on purpose.
    if !open || length <= segment.good_bytes {
        return Ok(Some((length, None)));
    }
    let file = folder.file(name, OFlags::RDWR)?;
    if !segment.inode.is(&file.metadata()?) {
        return Ok(None);
    }
    let end = end_of_lines(&file, segment.good_bytes, length, segment.binary)?;
    recovery.scanned_bytes += length - segment.good_bytes;
    if end < length {
        file.set_len(end)?;
    }
    // From now on, recovery treats all bytes of the file as synced.
    file.sync_all()?;
    Ok(Some((end, (end < length).then_some(length))))
}

/// Offset of the end of the last whole line before any damage. Does not check the first `good` bytes.
fn end_of_lines(file: &File, good: u64, length: u64, binary: bool) -> io::Result<u64> {
    let mut buffer = vec![0; 256 << 10];
    let mut end = good;
    let mut at = good;
    while at < length {
        let chunk_bytes = buffer.len().min(usize::try_from(length - at).unwrap_or(usize::MAX));
        let chunk = &mut buffer[..chunk_bytes];
        file.read_exact_at(chunk, at)?;
        // A filesystem that extends a file before it writes the blocks leaves zeros after a power cut.
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
    use std::{fs, os::unix::fs::symlink, path::Path};

    use proptest::prelude::*;

    use super::*;

    fn recover(journal: &Journal) -> Result<(Recovery, Vec<Recovered>), Error> {
        let template = journal.path("${tag}").to_str().unwrap().parse().unwrap();
        super::recover(journal, &Base::new(&template))
    }

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
            inode: Inode::of(&plain.metadata().unwrap()),
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
        let (plain, _, journal) = being_packed(folder.path());
        let hidden = folder.path().join(".x.log.gz.proofload");
        fs::write(&hidden, "hal").unwrap();
        let (recovery, recovered) = recover(&journal).unwrap();
        assert_eq!((recovery.compressions_undone, recovery.segments), (1, 0));
        assert!(recovered[0].ended && plain.exists() && !hidden.exists());
    }

    #[test]
    fn a_foreign_packed_file_is_not_taken_for_ours() {
        let folder = tempfile::tempdir().unwrap();
        let (plain, packed, journal) = being_packed(folder.path());
        fs::write(folder.path().join(".x.log.gz.proofload"), "whole").unwrap();
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
        let hidden = folder.path().join(".x.log.gz.proofload");
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

    #[test]
    fn another_file_that_got_the_number_of_ours_stays_whole() {
        let root = tempfile::tempdir().unwrap();
        let state = root.path().join("state");
        fs::create_dir(&state).unwrap();
        let (journal, _) = Journal::open(&state).unwrap();
        let mut ids = 0_u64..;
        let mut begin = |name: &str, change: fn(&mut Segment)| {
            let mut segment = torn(root.path(), name, name);
            change(&mut segment);
            let id = ids.next().unwrap();
            journal.append(&[Entry::Opened { id, segment }], true).unwrap();
        };
        begin("ours.log", |_| {});
        begin("of_old.log", |segment| segment.inode.born_ns = None);
        begin("later.log", |segment| segment.inode.born_ns = segment.inode.born_ns.map(|born| born - 1));
        begin("linked.log", |segment| segment.inode.born_ns = None);
        fs::hard_link(root.path().join("linked.log"), root.path().join("second")).unwrap();
        let (recovery, _) = recover(&journal).unwrap();
        assert_eq!((recovery.segments, recovery.replaced, recovery.truncations.len()), (4, 2, 2));
        for (name, text) in
            [("ours", "one\n"), ("of_old", "one\n"), ("later", "one\ntorn"), ("linked", "one\ntorn")]
        {
            assert_eq!(
                fs::read_to_string(root.path().join(name).with_extension("log")).unwrap(),
                text,
                "{name}"
            );
        }
    }

    /// A file of two lines, the second of which is torn, and its segment.
    fn torn(root: &Path, name: &str, recorded: &str) -> Segment {
        let path = root.join(name);
        fs::write(&path, "one\ntorn").unwrap();
        Segment {
            path: recorded.into(),
            inode: Inode::of(&path.metadata().unwrap()),
            good_bytes: 0,
            binary: false,
            key: "x".into(),
            index: None,
            end: None,
        }
    }

    #[test]
    fn no_path_in_a_journal_leads_out_of_the_folder_of_the_files() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        for folder in ["logs/state", "logs/in", "secret"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        symlink("../secret", root.join("logs/link")).unwrap();
        let secret = |recorded: &str| torn(root, "secret/x.log", recorded);
        let absolute = root.join("secret/x.log").to_str().unwrap().to_owned();
        let inside = root.join("logs/in/y.log").to_str().unwrap().to_owned();
        let (journal, _) = Journal::open(&root.join("logs/state")).unwrap();
        let mut entries: Vec<Entry> = ["../secret/x.log", "in/../../secret/x.log", &absolute, "link/x.log"]
            .into_iter()
            .zip(0..)
            .map(|(recorded, id)| Entry::Opened { id, segment: secret(recorded) })
            .collect();
        // Earlier versions recorded paths in two forms: relative and absolute.
        entries.push(Entry::Opened { id: 5, segment: torn(root, "logs/x.log", "x.log") });
        entries.push(Entry::Opened { id: 6, segment: torn(root, "logs/in/y.log", &inside) });
        // A packed file in another folder does not cause the removal of the plain one.
        fs::write(root.join("secret/x.log.gz"), "").unwrap();
        entries.push(Entry::Opened { id: 7, segment: torn(root, "logs/z.log", "z.log") });
        entries.push(Entry::Packing { id: 7, packed: "../secret/x.log.gz".into() });
        journal.append(&entries, true).unwrap();
        let (recovery, _) = recover(&journal).unwrap();
        assert_eq!(recovery.elsewhere.len(), 3);
        assert_eq!(fs::read_to_string(root.join("secret/x.log")).unwrap(), "one\ntorn");
        assert!(root.join("logs/z.log").exists());
        // The segment behind the link counts as replaced.
        assert_eq!((recovery.replaced, recovery.truncations.len()), (1, 2));
        for sound in ["logs/x.log", "logs/in/y.log"] {
            assert_eq!(fs::read_to_string(root.join(sound)).unwrap(), "one\n");
        }
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
