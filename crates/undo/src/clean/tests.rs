use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use testing::PATIENCE;

use super::*;
use crate::{Journal, Setting};

/// A journal folder for one test.
struct Scratch(Folder, #[expect(dead_code, reason = "removes the folder on drop")] tempfile::TempDir);

impl Scratch {
    fn new() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        Self(Folder::at(temporary.path().join("journals")).unwrap(), temporary)
    }

    fn files(&self) -> usize {
        fs::read_dir(self.0.path()).unwrap().count()
    }

    /// Makes the only journal look as if its owner had been killed.
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
    // Simulates a kill: no destructor has run, and the kernel has released the lock.
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
        // A process that must free much memory takes long to end.
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
    // A manipulated journal does not prove that its changes are ours.
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
        // The last line may be incomplete.
        fs::write(&file, text.join("\n") + "\n").unwrap();
        let cleaned = clean(&scratch.0).unwrap();
        assert!(matches!(cleaned.failures[..], [Error::Damaged { .. }]), "{cleaned:?}");
        assert!(cleaned.undone.is_empty() && fs::read(&list).unwrap() == b"3 word", "{cleaned:?}");
    }
    // Two other journals prove nothing either: one with the name of another run, and one that other users may have
    // written.
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
