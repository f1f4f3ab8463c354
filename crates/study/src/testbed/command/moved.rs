//! The bytes that programs moved.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::Path,
    thread,
    time::{Duration, UNIX_EPOCH},
};

use record::{ByteSource, CommandTrial, Flow, Warning};
use rustix::{
    fs::{SeekFrom, seek},
    time::{ClockId, clock_gettime},
};

/// The state of a file at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileState {
    /// Its size.
    bytes: u64,
    /// When it was last written.
    written: (i64, i64),
    /// Bytes of the file that contain data, without ranges that were preallocated but never written.
    data_bytes: u64,
}

/// The states of files, by device, inode and creation time. The time distinguishes a replaced file that got the same inode.
pub(super) type FileStates = BTreeMap<(u64, u64, i64), FileState>;

/// The bytes that the programs moved, if known. `before` is the state of the files at `path` before the trial, which began at
/// `began_unix_ns` ([`next_tick_unix_ns`]).
///
/// # Errors
/// A warning that says why the bytes are unknown.
pub(super) fn moved_bytes(
    source: &ByteSource,
    trial: &CommandTrial,
    counters: &Counters,
    path: &Path,
    before: &FileStates,
    began_unix_ns: i64,
) -> Result<u64, Warning> {
    let unknown = |why: &str| Err(unknown_bytes(why));
    match source {
        ByteSource::Declared(bytes) => {
            let complete = trial.runs.iter().filter(|run| run.succeeded).count();
            match bytes.checked_mul(complete as u64) {
                _ if trial.runs.iter().any(|run| run.stopped) => unknown(
                    "a stopped copy does not tell how many bytes it moved; count the bytes by a path or at the link \
                     (bytes = { path = \"…\" }, or \"link\")",
                ),
                None | Some(0) => unknown("no copy succeeded, or the sum of bytes is too large"),
                Some(bytes) => Ok(bytes),
            }
        }
        ByteSource::Path(_) => {
            let after = file_states(path);
            // A program may preallocate its file. If it ended by itself, it has moved the whole file, including holes.
            let is_stopped = trial.runs.iter().any(|run| run.stopped);
            let of = |now: &FileState| if is_stopped { now.data_bytes } else { now.bytes };
            // The number of bytes written to an existing file is unknown, because its beginning may have been overwritten.
            let is_changed = |(file, now): (_, &FileState)| {
                let was = before.get(file).filter(|was| was.bytes > 0);
                was.is_some_and(|was| (was.bytes, was.written) != (now.bytes, now.written))
            };
            if after.iter().any(is_changed) {
                return unknown(
                    "files that were there before the trial have changed; remove them in `prepare`",
                );
            }
            // The creation time is 0 if the file system does not report it.
            let is_older = |made_ns: i64| made_ns > 0 && made_ns < began_unix_ns;
            if after.keys().any(|file| !before.contains_key(file) && is_older(file.2)) {
                return unknown(
                    "a file older than the trial appeared by a hard link or a rename, which move no bytes",
                );
            }
            let new = after.iter().filter(|(file, _)| before.get(file).is_none_or(|was| was.bytes == 0));
            match new.map(|(_, now)| of(now)).sum() {
                0 => unknown(&format!("there is no new file with content at {}", path.display())),
                bytes => Ok(bytes),
            }
        }
        // Zero bytes are a measurement too.
        ByteSource::Link => Ok(counters.larger(&trial.flows).map(|flow| flow.bytes).sum()),
    }
}

/// The warning that the bytes are unknown.
pub(super) fn unknown_bytes(why: &str) -> Warning {
    let message = format!("the bytes moved and the goodput are unknown: {why}");
    Warning::new("moved_bytes_unknown", message)
}

/// Waits until the clock of the file systems has passed the current time, and returns its new time in nanoseconds. Existing files then have
/// an earlier creation time, and new files do not.
pub(super) fn next_tick_unix_ns() -> i64 {
    let read_ns = |clock| {
        let time = clock_gettime(clock);
        time.tv_sec * 1_000_000_000 + time.tv_nsec
    };
    // Since Linux 6.13, a file may have the exact time, which is later than that of the last tick.
    let now_ns = read_ns(ClockId::Realtime);
    // A tick takes 1 to 10 ms.
    for _ in 0..100 {
        if read_ns(ClockId::RealtimeCoarse) > now_ns {
            break;
        }
        thread::sleep(Duration::from_micros(500));
    }
    read_ns(ClockId::RealtimeCoarse)
}

/// Names of the flows that count the data from and to the load's hosts: the deliveries of an emulated link, or a host's counters of
/// another interface.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub sent: Vec<String>,
    pub received: Vec<String>,
}

impl Counters {
    /// The flows of the direction that carried more data.
    pub(super) fn larger<'f>(&self, flows: &'f BTreeMap<String, Flow>) -> impl Iterator<Item = &'f Flow> {
        let of =
            |names: &[String]| -> Vec<&'f Flow> { names.iter().filter_map(|name| flows.get(name)).collect() };
        let bytes = |flows: &[&Flow]| flows.iter().map(|flow| flow.bytes).sum::<u64>();
        let (sent, received) = (of(&self.sent), of(&self.received));
        if bytes(&sent) >= bytes(&received) { sent } else { received }.into_iter()
    }
}

/// States of a file, or of all files in a folder.
pub(super) fn file_states(path: &Path) -> FileStates {
    let mut files = BTreeMap::new();
    // The path itself may be a symbolic link; links within the folder do not count.
    if let Ok(metadata) = fs::metadata(path) {
        add_files(path, &metadata, &mut files);
    }
    files
}

fn add_files(path: &Path, metadata: &fs::Metadata, files: &mut FileStates) {
    if metadata.is_file() {
        let made_s = metadata.created().ok().and_then(|made| made.duration_since(UNIX_EPOCH).ok());
        let made_ns = made_s.map_or(0, |made| made.as_nanos() as i64);
        let state = FileState {
            bytes: metadata.len(),
            written: (metadata.mtime(), metadata.mtime_nsec()),
            data_bytes: data_bytes(path, metadata.len()),
        };
        files.insert((metadata.dev(), metadata.ino(), made_ns), state);
    }
    // A symbolic link to a folder does not count as a folder.
    if !metadata.is_dir() {
        return;
    }
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if let Ok(metadata) = entry.metadata() {
            add_files(&entry.path(), &metadata, files);
        }
    }
}

/// Bytes of a file that contain data (lseek(2), `SEEK_DATA`); the file's size if the file system does not report them.
fn data_bytes(path: &Path, size: u64) -> u64 {
    let Ok(file) = File::open(path) else { return size };
    let (mut total, mut position) = (0, 0);
    while let Ok(data) = seek(&file, SeekFrom::Data(position)) {
        let Ok(hole) = seek(&file, SeekFrom::Hole(data)) else { return size };
        (total, position) = (total + hole.saturating_sub(data), hole);
        if hole <= data || hole >= size {
            break;
        }
    }
    total.min(size)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use record::CommandRun;
    use rustix::fs::{FallocateFlags, fallocate};

    use super::*;

    #[test]
    fn the_direction_that_carried_more_is_counted_by_what_links_delivered() {
        let flow = |bytes| Flow { bytes, ..Flow::default() };
        let flows = BTreeMap::from([
            ("client wan sent".to_owned(), flow(900)),
            ("link wan a to b".to_owned(), flow(500)),
            ("link wan b to a".to_owned(), flow(20)),
            ("client lan received".to_owned(), flow(40)),
        ]);
        let counters = Counters {
            sent: vec!["link wan a to b".to_owned()],
            received: vec!["link wan b to a".to_owned(), "client lan received".to_owned()],
        };
        let trial = CommandTrial { flows, ..CommandTrial::default() };
        let moved =
            |counters| moved_bytes(&ByteSource::Link, &trial, counters, Path::new(""), &FileStates::new(), 0);
        assert_eq!(moved(&counters), Ok(500));
        let other = Counters { sent: counters.received.clone(), received: Vec::new() };
        assert_eq!(moved(&other), Ok(60));
    }

    #[test]
    fn preallocated_bytes_count_once_the_program_ended_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut file = File::create(&path).unwrap();
        fallocate(&file, FallocateFlags::empty(), 0, 8 << 20).unwrap();
        file.write_all(&[7; 1 << 20]).unwrap();
        file.sync_all().unwrap();
        let moved = |stopped| {
            let run = CommandRun { succeeded: true, stopped, ..CommandRun::default() };
            let trial = CommandTrial { runs: vec![run], ..CommandTrial::default() };
            let (source, none) = (ByteSource::Path(String::new()), Counters::default());
            moved_bytes(&source, &trial, &none, folder.path(), &FileStates::new(), 0).unwrap()
        };
        assert_eq!((moved(true), moved(false)), (1 << 20, 8 << 20));
    }

    #[test]
    fn links_within_a_folder_lead_nowhere() {
        let [folder, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        fs::write(other.path().join("old"), "old").unwrap();
        std::os::unix::fs::symlink(other.path(), folder.path().join("link")).unwrap();
        std::os::unix::fs::symlink(other.path().join("old"), folder.path().join("file")).unwrap();
        assert!(file_states(folder.path()).is_empty());
        fs::write(folder.path().join("new"), "new").unwrap();
        assert_eq!(file_states(folder.path()).len(), 1);
    }

    #[test]
    fn files_that_were_there_before_and_changed_make_the_bytes_unknown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "four").unwrap();
        let before = file_states(&path);
        let trial = CommandTrial::default();
        let (source, none) = (ByteSource::Path(String::new()), Counters::default());
        let moved = || moved_bytes(&source, &trial, &none, folder.path(), &before, 0);
        assert!(moved().unwrap_err().message.contains("no new file"));
        fs::write(folder.path().join("new"), "three").unwrap();
        assert_eq!(moved(), Ok(5));
        fs::write(&path, "longer").unwrap();
        assert!(moved().is_err());
    }

    #[test]
    fn an_old_file_that_is_linked_or_renamed_was_not_moved() {
        let [folder, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let old = other.path().join("old");
        fs::write(&old, "old").unwrap();
        let path = folder.path().join("new");
        let (source, none) = (ByteSource::Path(String::new()), Counters::default());
        let moved = |began_unix_ns| {
            moved_bytes(&source, &CommandTrial::default(), &none, &path, &FileStates::new(), began_unix_ns)
        };
        std::os::unix::fs::symlink(&old, &path).unwrap();
        let began_unix_ns = next_tick_unix_ns();
        assert!(moved(began_unix_ns).unwrap_err().message.contains("link or a rename"));
        fs::remove_file(&path).unwrap();
        fs::rename(&old, &path).unwrap();
        assert!(moved(began_unix_ns).is_err());
        fs::remove_file(&path).unwrap();
        fs::write(&old, "new").unwrap();
        fs::rename(&old, &path).unwrap();
        assert_eq!(moved(began_unix_ns), Ok(3), "made in the trial");
    }
}
