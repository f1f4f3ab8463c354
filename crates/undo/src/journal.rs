//! The journal of one run.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
    sync::{Mutex, PoisonError},
};

use rustix::{
    fs::{FlockOperation, OFlags, flock},
    time::{ClockId, clock_gettime},
};
use serde::{Deserialize, Serialize};

use crate::{
    Change, Error, Folder, ProcessId,
    folder::{journals, random_name},
    process::pid_namespace,
};

/// The first line of a journal.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Header {
    pub kind: String,
    pub title: String,
    pub run: String,
    pub owner: ProcessId,
    pub boot: String,
    pub pid_namespace: String,
    /// Time at which the journal was opened, in nanoseconds since the boot.
    #[serde(default)]
    pub opened_ns: u64,
    /// Whether its changes stay after a kill, until the service starts again or `clean_all` undoes them.
    #[serde(default)]
    pub is_service: bool,
}

/// Any line except the first.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Line {
    #[serde(rename = "will")]
    Recorded {
        entry: u64,
        change: Change,
    },
    Undone {
        entry: u64,
    },
}

/// Identifier of a recorded change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry(u64);

/// The journal of one run. Dropping it undoes the remaining changes.
#[derive(Debug)]
pub struct Journal {
    folder: Folder,
    name: String,
    run: String,
    state: Mutex<State>,
    is_kept: bool,
    is_service: bool,
}

#[derive(Debug)]
struct State {
    file: File,
    next: u64,
    open: BTreeMap<u64, Change>,
}

impl Journal {
    /// Creates the journal of a new run. [`runs`](crate::runs) reports its `kind` and `title`.
    ///
    /// # Errors
    /// When the journal cannot be written.
    pub fn open(folder: &Folder, kind: &str, title: &str) -> Result<Self, Error> {
        Self::create(folder, kind, title, false)
    }

    /// Creates the journal of a service. Takes over the changes of services of the same kind and title that are dead or
    /// that kept their changes. The caller must make sure that no other service with this title runs.
    ///
    /// # Errors
    /// If the journal cannot be written.
    pub fn resume(folder: &Folder, kind: &str, title: &str) -> Result<(Self, Vec<(Entry, Change)>), Error> {
        let journal = Self::create(folder, kind, title, true)?;
        let (mut changes, mut names) = (Vec::new(), Vec::new());
        for name in journals(folder)?.into_iter().filter(|name| *name != journal.name) {
            // Unreadable journals are skipped, because `clean` reports them.
            let Ok(Some(JournalContent { header, open, .. })) = read(folder, &name) else { continue };
            let is_same = header.is_service && header.kind == kind && header.title == title;
            let is_same_boot = header.boot == boot_id();
            // A live owner has locked its journal. Its process number proves nothing, because it may belong to another
            // container.
            let lock = |file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
            let is_left = || folder.held().kept(&name, OFlags::RDWR).is_ok_and(lock);
            if is_same && (!is_same_boot || is_left()) {
                changes.extend(open.into_iter().filter(|_| is_same_boot));
                names.push(name);
            }
        }
        let entries = journal.record_all(changes.iter().cloned())?;
        // Until the old journals are removed, the same changes are in the old and the new journals. Undoing a change
        // twice is harmless.
        let removed = names.iter().try_for_each(|name| folder.held().remove(name));
        removed.map_err(|cause| Error::Write { path: folder.path().into(), cause })?;
        Ok((journal, entries.into_iter().zip(changes).collect()))
    }

    fn create(folder: &Folder, kind: &str, title: &str, is_service: bool) -> Result<Self, Error> {
        let run = random_name().map_err(|cause| Error::Write { path: folder.path().into(), cause })?;
        let name = format!("{run}.journal");
        let failed = |cause: io::Error| Error::Write { path: folder.path().join(&name), cause };
        let header = Header {
            kind: kind.to_owned(),
            title: title.to_owned(),
            run: run.clone(),
            owner: ProcessId::own().map_err(failed)?,
            boot: boot_id(),
            pid_namespace: pid_namespace(),
            opened_ns: since_boot_ns(),
            is_service,
        };
        // Until the file is locked and its first line is complete, its hidden name shows the owner.
        let ProcessId { pid, start_ticks } = header.owner;
        let hidden = format!(".{run}.{pid}.{start_ticks}");
        let written = || {
            let mut file = folder.held().create(&hidden, 0o600)?;
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            file.write_all(&line(&header)?)?;
            file.sync_data()?;
            folder.held().rename(&hidden, &name)?;
            Ok(file)
        };
        let file = written().inspect_err(|_| drop(folder.held().remove(&hidden))).map_err(failed)?;
        let state = Mutex::new(State { file, next: 0, open: BTreeMap::new() });
        Ok(Self { folder: folder.clone(), name, run, state, is_kept: false, is_service })
    }

    /// Identifier of the run: 16 random hexadecimal digits.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// Records a change. When this returns, the record is on disk, and only then may the caller make the change.
    ///
    /// # Errors
    /// If the record cannot be written, or the change could not be proven to be ours later. The change must then not be
    /// made.
    pub fn record(&self, change: Change) -> Result<Entry, Error> {
        self.record_all([change]).map(|entries| entries[0])
    }

    /// Records several changes with one write.
    ///
    /// # Errors
    /// Those of [`record`](Self::record). None of the changes may then be made.
    pub fn record_all(&self, changes: impl IntoIterator<Item = Change>) -> Result<Vec<Entry>, Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut lines, mut entries, mut next) = (Vec::new(), Vec::new(), state.next);
        for change in changes {
            change.check_provable(&self.run, self.folder.settings)?;
            let text = line(&Line::Recorded { entry: next, change: change.clone() });
            lines.extend(text.map_err(|cause| self.not_written(cause))?);
            entries.push((next, change));
            next += 1;
        }
        self.append(&mut state, &lines)?;
        state.next = next;
        let numbers = entries.iter().map(|(number, _)| Entry(*number)).collect();
        state.open.extend(entries);
        Ok(numbers)
    }

    /// Replaces recorded changes with versions that contain details learned since.
    ///
    /// # Errors
    /// If the record cannot be written. The recorded changes then stay as they were.
    pub fn revise(&self, changes: impl IntoIterator<Item = (Entry, Change)>) -> Result<(), Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut lines, mut revised) = (Vec::new(), Vec::new());
        for (Entry(entry), change) in changes {
            // A later record of an entry replaces the earlier one.
            let text = line(&Line::Recorded { entry, change: change.clone() });
            lines.extend(text.map_err(|cause| self.not_written(cause))?);
            revised.push((entry, change));
        }
        self.append(&mut state, &lines)?;
        state.open.extend(revised);
        Ok(())
    }

    /// Leaves the changes in place and keeps the journal for [`restore`](crate::restore) or for the next start of the
    /// service.
    pub fn keep(mut self) {
        self.set_kept(true);
    }

    /// Sets whether dropping the journal leaves the changes in place, as [`keep`](Self::keep) does.
    pub fn set_kept(&mut self, is_kept: bool) {
        self.is_kept = is_kept;
    }

    /// Undoes one change.
    ///
    /// # Errors
    /// If the change cannot be undone. It then stays in the journal.
    pub fn undo(&self, entry: Entry) -> Result<(), Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(change) = state.open.get(&entry.0).cloned() else { return Ok(()) };
        change.undo(&pid_namespace())?;
        self.remove_entry(&mut state, entry)
    }

    /// Undoes all changes, starting with the last one. Removes the journal if no change is left.
    ///
    /// # Errors
    /// The changes that could not be undone. They stay in the journal for [`clean`](crate::clean).
    pub fn finish(self) -> Result<(), Vec<Error>> {
        self.undo_all()
    }

    fn undo_all(&self) -> Result<(), Vec<Error>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut failures, mut left, numbers) = (Vec::new(), Vec::new(), pid_namespace());
        while let Some((number, change)) = state.open.pop_last() {
            if let Err(error) = change.undo(&numbers) {
                // What another program has changed since stays as it is.
                if !matches!(error, Error::Foreign { .. }) {
                    left.push((number, change));
                }
                failures.push(error);
            } else if !failures.is_empty() {
                // Because of an earlier failure, the journal will stay, so this success must be recorded in it.
                if let Ok(text) = line(&Line::Undone { entry: number }) {
                    let _ = self.append(&mut state, &text);
                }
            }
        }
        if failures.is_empty() {
            // If this fails, the next call of `clean` removes the empty journal.
            let _ = self.folder.held().remove(&self.name);
            return Ok(());
        }
        // Dropping the journal tries them again, and keeps the journal if they fail again.
        state.open.extend(left);
        Err(failures)
    }

    fn not_written(&self, cause: io::Error) -> Error {
        Error::Write { path: self.folder.path().join(&self.name), cause }
    }

    fn remove_entry(&self, state: &mut State, entry: Entry) -> Result<(), Error> {
        if state.open.remove(&entry.0).is_none() {
            return Ok(());
        }
        let text = line(&Line::Undone { entry: entry.0 });
        let text = text.map_err(|cause| self.not_written(cause))?;
        self.append(state, &text)
    }

    fn append(&self, state: &mut State, lines: &[u8]) -> Result<(), Error> {
        let mut written = || {
            let end = state.file.stream_position()?;
            let written = state.file.write_all(lines).and_then(|()| state.file.sync_data());
            if written.is_err() {
                // A partly written line, for example on a full disk, would damage the next line, so it is cut off.
                let _ = state.file.seek(SeekFrom::Start(end)).and_then(|_| state.file.set_len(end));
            }
            written
        };
        written().map_err(|cause| self.not_written(cause))
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // The changes of a service that panics stay, so that they work without it.
        if self.is_kept || self.is_service && std::thread::panicking() {
            return;
        }
        // Changes that cannot be undone stay in the journal for the next call of `clean`.
        let _ = self.undo_all();
    }
}

pub(crate) struct JournalContent {
    pub header: Header,
    /// Changes that have not been undone, in the order in which they were recorded.
    pub open: Vec<Change>,
    /// The error of the last damaged line. The last line of the file does not count.
    pub damage: Option<Error>,
}

/// Reads a journal that this user has written; none if the file does not exist. An incomplete last line is ignored,
/// because its change was never made. A damaged line does not affect the other lines; a line whose change could not be
/// proven to be ours counts as damaged.
///
/// # Errors
/// If the file cannot be read, may have been written by another user, or is not a journal.
pub(crate) fn read(folder: &Folder, name: &str) -> Result<Option<JournalContent>, Error> {
    let path = folder.path().join(name);
    let failed = |cause: io::Error| Error::Read { path: path.clone(), cause };
    let mut text = Vec::new();
    match folder.held().kept(name, OFlags::RDONLY).and_then(|mut file| file.read_to_end(&mut text)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(failed)?,
    };
    let (first, rest) = text.split_at(text.iter().position(|&byte| byte == b'\n').unwrap_or(text.len()));
    let header: Header = serde_json::from_slice(first).map_err(|error| failed(error.into()))?;
    if name.strip_suffix(".journal") != Some(&header.run) {
        return Err(failed(io::Error::other("it belongs to another run")));
    }
    let mut lines = rest.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).peekable();
    let (mut open, mut damage) = (BTreeMap::new(), None);
    let mut damaged = |cause| damage = Some(Error::Damaged { path: path.clone(), cause });
    while let Some(line) = lines.next() {
        match serde_json::from_slice(line) {
            Ok(Line::Recorded { entry, change }) => match change.check_provable(&header.run, folder.settings)
            {
                Ok(()) => drop(open.insert(entry, change)),
                Err(error) => damaged(io::Error::other(error)),
            },
            Ok(Line::Undone { entry }) => drop(open.remove(&entry)),
            Err(_) if lines.peek().is_none() => {}
            Err(cause) => damaged(cause.into()),
        }
    }
    Ok(Some(JournalContent { header, open: open.into_values().collect(), damage }))
}

/// Identifier of the machine's current boot.
pub(crate) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

fn since_boot_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn line(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(value)?;
    text.push(b'\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::{SigSet, Signal};
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;

    #[test]
    fn an_incomplete_record_is_removed() {
        // The limit on the size of files applies to the whole process, whose output may go to a long file, so the test
        // runs in a child process.
        const CHILD: &str = "UNDO_TEST_CHILD";
        if std::env::var_os(CHILD).is_none() {
            let name = "journal::tests::an_incomplete_record_is_removed";
            let mut child = std::process::Command::new(std::env::current_exe().unwrap());
            let output = child.args([name, "--exact"]).env(CHILD, "1").output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains("1 passed"), "{text}");
            return;
        }
        let temporary = tempfile::tempdir().unwrap();
        let folder = Folder::at(temporary.path().join("journals")).unwrap();
        let journal = Journal::open(&folder, "test", "a").unwrap();
        let things = Change::Folder { path: folder.path().join(format!("{}.things", journal.run())) };
        // The kernel also sends a signal to a process that exceeds the limit, so the signal is blocked.
        let mut signals = SigSet::empty();
        signals.add(Signal::SIGXFSZ);
        signals.thread_block().unwrap();
        // The limit is in the middle of a line.
        let (before, max_bytes) = (getrlimit(Resource::Fsize), 100_001);
        setrlimit(Resource::Fsize, Rlimit { current: Some(max_bytes), ..before }).unwrap();
        let written = (0..).take_while(|_| journal.record(things.clone()).is_ok()).take(10_000).count();
        let length = fs::metadata(folder.path().join(&journal.name)).unwrap().len();
        setrlimit(Resource::Fsize, before).unwrap();
        assert!(length < max_bytes, "half a line stayed: {length} bytes");
        journal.record(things).unwrap();
        let read = read(&folder, &journal.name).unwrap().unwrap();
        assert!(read.damage.is_none() && written < 10_000, "{:?}", read.damage);
        assert_eq!(read.open.len(), written + 1);
    }
}
