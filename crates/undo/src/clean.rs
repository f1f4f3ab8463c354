//! Journals of other runs: lists live runs and cleans up after dead ones.

use std::{
    os::fd::AsFd,
    thread,
    time::{Duration, Instant},
};

use rustix::fs::{FlockOperation, OFlags, flock};

use crate::{
    Change, Error, Folder, Network, ProcessId,
    journal::{self, JournalContent, boot_id},
    process::pid_namespace,
};

/// Time that the kernel may take to release the lock of an owner that has just been killed.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// A run whose owner is alive.
#[derive(Debug, Clone)]
pub struct Run {
    /// Identifier of the run.
    pub run: String,
    /// The kind that its owner gave.
    pub kind: String,
    /// The title that its owner gave.
    pub title: String,
    /// Process that owns the run.
    pub owner: ProcessId,
    /// Its changes that are not undone.
    pub changes: Vec<Change>,
}

/// The result of [`clean`].
#[derive(Debug, Default)]
pub struct Cleaned {
    /// Number of dead runs.
    pub runs: usize,
    /// Descriptions of the undone changes.
    pub undone: Vec<String>,
    /// Failures; the next call tries again.
    pub failures: Vec<Error>,
}

/// The runs whose owner is alive, the oldest first.
///
/// # Errors
/// When the folder cannot be read.
pub fn runs(folder: &Folder) -> Result<Vec<Run>, Error> {
    let mut runs = Vec::new();
    for name in journals(folder)? {
        // `clean` reports journals that cannot be read.
        let Ok(Some(JournalContent { header, open, .. })) = journal::read(folder, &name) else { continue };
        if header.boot == boot_id() && header.pid_namespace == pid_namespace() && header.owner.is_alive() {
            let journal::Header { kind, title, run, owner, .. } = header;
            runs.push(Run { run, kind, title, owner, changes: open });
        }
    }
    runs.sort_by_key(|run| run.owner.start_ticks);
    Ok(runs)
}

/// Undoes the journals whose owner is dead. Changes nothing of a live owner, and nothing that is not proven to be ours. Services are
/// left to their next start, unless their network namespace is gone.
///
/// # Errors
/// When the folder cannot be read. What cannot be undone is in the result.
pub fn clean(folder: &Folder) -> Result<Cleaned, Error> {
    clean_within(folder, LOCK_TIMEOUT)
}

fn clean_within(folder: &Folder, time: Duration) -> Result<Cleaned, Error> {
    clean_those(folder, time, |content| {
        let is_gone = |change: &Change| change.network().is_some_and(Network::is_gone);
        !content.header.is_service || content.open.iter().any(is_gone)
    })
}

/// The same, with services that were killed or have kept their changes.
///
/// # Errors
/// As [`clean`].
pub fn clean_all(folder: &Folder) -> Result<Cleaned, Error> {
    clean_those(folder, LOCK_TIMEOUT, |_| true)
}

fn clean_those(
    folder: &Folder,
    time: Duration,
    is_asked: fn(&JournalContent) -> bool,
) -> Result<Cleaned, Error> {
    let mut cleaned = Cleaned::default();
    for name in journals(folder)? {
        let done = clean_one(folder, &name, time, is_asked, &mut cleaned);
        done.unwrap_or_else(|error| cleaned.failures.push(error));
    }
    remove_unfinished_journals(folder);
    Ok(cleaned)
}

fn clean_one(
    folder: &Folder,
    name: &str,
    time: Duration,
    is_asked: fn(&JournalContent) -> bool,
    cleaned: &mut Cleaned,
) -> Result<(), Error> {
    // The owner or another call of `clean` may have removed the journal.
    let Some(content) = journal::read(folder, name)? else { return Ok(()) };
    if !is_asked(&content) {
        return Ok(());
    }
    let JournalContent { header, .. } = content;
    let is_same_boot = header.boot == boot_id();
    // An owner that has just been killed may take a moment to end.
    let deadline = Instant::now() + time;
    while is_same_boot && header.owner.is_dying(&header.pid_namespace) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
    }
    // A free lock alone does not prove that the owner is dead.
    if is_same_boot && !header.owner.is_gone(&header.pid_namespace) {
        return Ok(());
    }
    let Ok(file) = folder.held().kept(name, OFlags::RDONLY) else { return Ok(()) };
    if !try_lock(&file, time) {
        return Ok(());
    }
    // Read again under the lock, because another call of `clean` may have changed the journal.
    let Some(JournalContent { header, open, damage }) = journal::read(folder, name)? else { return Ok(()) };
    cleaned.runs += 1;
    let mut failed = damage.is_some();
    cleaned.failures.extend(damage);
    for change in open.iter().rev() {
        // Processes do not survive a reboot; the number may be reused.
        if !is_same_boot && matches!(change, Change::Process { .. }) {
            continue;
        }
        match change.undo(&header.pid_namespace) {
            Ok(()) => cleaned.undone.push(change.to_string()),
            Err(error) => {
                failed = true;
                cleaned.failures.push(error);
            }
        }
    }
    if !failed {
        // If the removal fails, the next call of `clean` removes the journal.
        let _ = folder.held().remove(name);
    }
    Ok(())
}

/// Locks a file or folder, within the time that a killed owner may take to release it.
pub(crate) fn try_lock(file: impl AsFd, time: Duration) -> bool {
    let deadline = Instant::now() + time;
    while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
    true
}

/// The names of the journals in a folder.
pub(crate) fn journals(folder: &Folder) -> Result<Vec<String>, Error> {
    let failed = |error: std::io::Error| Error::Folder {
        path: folder.path().to_owned(),
        why: format!("cannot be read: {error}"),
    };
    let names = folder.held().names().map_err(failed)?.into_iter();
    let mut names: Vec<String> =
        names.filter_map(|name| name.into_string().ok()).filter(|name| is_journal(name)).collect();
    names.sort();
    Ok(names)
}

/// Whether a name is that of a journal, `RUN.journal`. Other files in the folder are ignored.
fn is_journal(name: &str) -> bool {
    let is_run = |run: &str| run.len() == 16 && run.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.strip_suffix(".journal").is_some_and(is_run)
}

/// Removes journals whose owner died before the first line was complete. Nothing was changed under them.
pub(crate) fn remove_unfinished_journals(folder: &Folder) {
    for name in folder.held().names().unwrap_or_default() {
        let owner = name.to_str().and_then(owner_of_unfinished_journal);
        // An owner in another PID namespace looks dead but holds its lock.
        let is_unlocked = |file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
        let is_dead = owner.is_some_and(|owner| !owner.is_alive());
        if is_dead && folder.held().kept(&name, OFlags::RDONLY).is_ok_and(is_unlocked) {
            // Another call of `clean` may have removed it.
            let _ = folder.held().remove(&name);
        }
    }
}

/// The owner in a name `.RUN.PID.START`.
fn owner_of_unfinished_journal(name: &str) -> Option<ProcessId> {
    let mut parts = name.strip_prefix('.')?.split('.');
    let run = parts.next()?;
    let owner = ProcessId { pid: parts.next()?.parse().ok()?, start_ticks: parts.next()?.parse().ok()? };
    (run.len() == 16 && parts.next().is_none()).then_some(owner)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::PermissionsExt,
        path::{Path, PathBuf},
    };

    use testing::PATIENCE;

    use super::*;
    use crate::{Journal, Setting};

    /// A folder of journals for one test.
    struct Scratch(Folder, #[expect(dead_code, reason = "removes the folder on drop")] tempfile::TempDir);

    impl Scratch {
        fn new() -> Self {
            let temporary = tempfile::tempdir().unwrap();
            Self(Folder::at(temporary.path().join("journals")).unwrap(), temporary)
        }

        fn files(&self) -> usize {
            fs::read_dir(self.0.path()).unwrap().count()
        }

        /// Makes the one journal look as if its owner had been killed.
        fn orphan(&self) {
            let path = &self.0.path().join(&journals(&self.0).unwrap()[0]);
            let text = fs::read_to_string(path).unwrap();
            let owner = format!("\"pid\":{},\"start_ticks\"", std::process::id());
            fs::write(path, text.replacen(&owner, "\"pid\":1,\"start_ticks\"", 1)).unwrap();
        }
    }

    #[test]
    fn what_is_left_is_undone_on_drop() {
        let scratch = Scratch::new();
        let journal = Journal::open(&scratch.0, "test", "a").unwrap();
        let path = scratch.0.path().join(format!("{}.things", journal.run()));
        journal.record(Change::Folder { path: path.clone() }).unwrap();
        fs::create_dir_all(path.join("deep")).unwrap();
        assert_eq!(runs(&scratch.0).unwrap()[0].title, "a");
        drop(journal);
        assert!(!path.exists() && scratch.files() == 0);
    }

    #[test]
    fn only_dead_owners_are_cleaned_up_after() {
        let scratch = Scratch::new();
        let journal = Journal::open(&scratch.0, "test", "a").unwrap();
        let path = scratch.0.path().join(format!("{}.things", journal.run()));
        journal.record(Change::Folder { path: path.clone() }).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(clean(&scratch.0).unwrap().runs, 0);
        scratch.orphan();
        assert_eq!(clean(&scratch.0).unwrap().runs, 0, "its lock is still held");
        assert!(path.exists() && runs(&scratch.0).unwrap().is_empty());
        // Simulates a kill: no destructor ran, and the kernel released the lock.
        let State { text, path: file } = State::of(&scratch);
        drop(journal);
        fs::write(&file, text).unwrap();
        fs::create_dir(&path).unwrap();
        let cleaned = clean_within(&scratch.0, PATIENCE).unwrap();
        assert!(cleaned.runs == 1 && cleaned.failures.is_empty(), "{cleaned:?}");
        assert!(!path.exists() && !file.exists());
    }

    #[test]
    fn an_owner_that_is_dying_is_waited_for() {
        for _ in 0..5 {
            let scratch = Scratch::new();
            // Freeing much memory makes the end slow.
            let script = "import sys; x = bytearray(100 << 20); print(flush=True); sys.stdin.read()";
            let mut owner = std::process::Command::new("python3")
                .args(["-c", script])
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let mut ready = [0];
            std::io::Read::read_exact(owner.stdout.as_mut().unwrap(), &mut ready).unwrap();
            let id = ProcessId::of(owner.id()).unwrap();
            let header = journal::Header {
                kind: "test".into(),
                title: String::new(),
                run: "0123456789abcdef".into(),
                owner: id,
                boot: boot_id(),
                pid_namespace: pid_namespace(),
                opened_ns: 0,
                is_service: false,
            };
            let text = serde_json::to_string(&header).unwrap() + "\n";
            fs::write(scratch.0.path().join("0123456789abcdef.journal"), text).unwrap();
            assert_eq!(clean(&scratch.0).unwrap().runs, 0, "it lives");
            owner.kill().unwrap();
            assert_eq!(clean_within(&scratch.0, PATIENCE).unwrap().runs, 1, "it is dying");
            owner.wait().unwrap();
        }
    }

    #[test]
    fn an_unreadable_journal_is_reported_and_kept() {
        let scratch = Scratch::new();
        let path = scratch.0.path().join("0123456789abcdef.journal");
        for text in ["", "no journal\n", "{}\n"] {
            fs::write(&path, text).unwrap();
            let cleaned = clean(&scratch.0).unwrap();
            assert!(matches!(cleaned.failures[..], [Error::Read { .. }]) && path.exists(), "{cleaned:?}");
        }
    }

    #[test]
    fn a_damaged_line_affects_no_other_line() {
        let scratch = Scratch::new();
        let journal = Journal::open(&scratch.0, "test", "a").unwrap();
        let path = scratch.0.path().join(format!("{}.things", journal.run()));
        for _ in 0..2 {
            journal.record(Change::Folder { path: path.clone() }).unwrap();
        }
        scratch.orphan();
        let State { text, path: file } = State::of(&scratch);
        drop(journal);
        let mut lines: Vec<&str> = text.lines().collect();
        lines[1] = &lines[1][..20];
        fs::write(&file, lines.join("\n")).unwrap();
        fs::create_dir(&path).unwrap();
        let cleaned = clean_within(&scratch.0, PATIENCE).unwrap();
        assert!(matches!(cleaned.failures[..], [Error::Damaged { .. }]), "{cleaned:?}");
        assert!(!path.exists() && file.exists());
    }

    struct State {
        text: String,
        path: PathBuf,
    }

    impl State {
        fn of(scratch: &Scratch) -> Self {
            let path = scratch.0.path().join(journals(&scratch.0).unwrap().remove(0));
            Self { text: fs::read_to_string(&path).unwrap(), path }
        }
    }

    #[test]
    fn an_unprovable_change_is_not_recorded() {
        let scratch = Scratch::new();
        let journal = Journal::open(&scratch.0, "test", "a").unwrap();
        let refused = journal.record(Change::Folder { path: "/home".into() }).unwrap_err();
        assert!(matches!(refused, Error::Unprovable(_)));
        drop(journal);
        // A manipulated journal proves nothing either.
        let run = "fedcba9876543210";
        let header = journal::Header {
            kind: "test".into(),
            title: String::new(),
            run: run.into(),
            owner: ProcessId { pid: 1, start_ticks: u64::MAX },
            boot: boot_id(),
            pid_namespace: pid_namespace(),
            opened_ns: 0,
            is_service: false,
        };
        let (keep, file) = (scratch.0.path().join("keep"), scratch.0.path().join(format!("{run}.journal")));
        fs::create_dir(&keep).unwrap();
        fs::create_dir(scratch.0.path().join(run)).unwrap();
        let list = keep.join("list");
        fs::write(&list, "3 word").unwrap();
        let setting = |path: PathBuf| {
            let network = Network::own().unwrap();
            Change::Setting(Setting { path, before: "1".to_owned(), after: None, interface: None, network })
        };
        let through = Path::new("/proc/sys").join("../..").join(list.strip_prefix("/").unwrap());
        for change in [
            Change::Folder { path: keep.clone() },
            Change::Folder { path: scratch.0.path().join(run).join("../keep") },
            Change::Word { path: list.clone(), word: "word".to_owned() },
            setting(list.clone()),
            setting(through),
        ] {
            let line = journal::Line::Recorded { entry: 0, change };
            let text = [serde_json::to_string(&header).unwrap(), serde_json::to_string(&line).unwrap()];
            // The last line may be torn.
            fs::write(&file, text.join("\n") + "\n").unwrap();
            let cleaned = clean(&scratch.0).unwrap();
            assert!(matches!(cleaned.failures[..], [Error::Damaged { .. }]), "{cleaned:?}");
            assert!(cleaned.undone.is_empty() && fs::read(&list).unwrap() == b"3 word", "{cleaned:?}");
        }
        // Nor does one of another run, or one that others may have written.
        fs::rename(&file, scratch.0.path().join("0123456789abcdef.journal")).unwrap();
        let cleaned = clean(&scratch.0).unwrap();
        assert!(matches!(cleaned.failures[..], [Error::Read { .. }]), "{cleaned:?}");
        fs::rename(scratch.0.path().join("0123456789abcdef.journal"), &file).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        let cleaned = clean(&scratch.0).unwrap();
        assert!(matches!(cleaned.failures[..], [Error::Read { .. }]), "{cleaned:?}");
    }

    #[test]
    fn unfinished_journals_of_dead_owners_are_removed() {
        let scratch = Scratch::new();
        let process = ProcessId::own().unwrap();
        for (pid, start) in [(process.pid, process.start_ticks), (process.pid, process.start_ticks + 1)] {
            fs::write(scratch.0.path().join(format!(".0123456789abcdef.{pid}.{start}")), "").unwrap();
        }
        fs::write(scratch.0.path().join(".somebody.else"), "").unwrap();
        clean(&scratch.0).unwrap();
        assert_eq!(scratch.files(), 2);
    }
}
