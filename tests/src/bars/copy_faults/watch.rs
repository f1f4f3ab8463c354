//! Watches files while a copy runs, and lists the processes that it has started.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Read,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, Result};

/// Interval between two checks.
const TICK: Duration = Duration::from_millis(3);

/// The contents that each file may have, by name.
type Allowed = BTreeMap<String, Vec<Vec<u8>>>;

/// Checks that a file with a final name is always complete.
#[derive(Debug)]
pub(super) struct Watch {
    allowed: Arc<Mutex<Allowed>>,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Vec<String>>,
}

impl Watch {
    /// Starts to watch. A file of the target may have its current contents or those of the source.
    pub(super) fn start(source: &Path, target: &Path) -> Result<Self> {
        let mut allowed = Allowed::new();
        for entry in fs::read_dir(source)? {
            let name = entry?.file_name().into_string().ok().context("an odd name")?;
            let old = fs::read(target.join(&name)).ok();
            let contents = fs::read(source.join(&name))?;
            allowed.insert(name, old.into_iter().chain([contents]).collect());
        }
        let (allowed, is_over) = (Arc::new(Mutex::new(allowed)), Arc::new(AtomicBool::new(false)));
        let (own, over, target) = (Arc::clone(&allowed), Arc::clone(&is_over), target.to_owned());
        let thread = thread::spawn(move || {
            let (mut seen, mut wrong) = (BTreeMap::new(), Vec::new());
            loop {
                // Check once more after the end of the copy.
                let is_last = over.load(Ordering::Acquire);
                for (name, allowed) in own.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                    look(&target.join(name), allowed, &mut seen, &mut wrong);
                }
                if is_last {
                    return wrong;
                }
                thread::sleep(TICK);
            }
        });
        Ok(Self { allowed, is_over, thread })
    }

    /// Allows further contents of a file. `next` makes them from the contents that were allowed last.
    pub(super) fn allow(&self, name: &str, next: impl FnOnce(&[u8]) -> Vec<u8>) {
        let mut allowed = self.allowed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of_name) = allowed.get_mut(name) {
            let contents = of_name.last().map(|last| next(last));
            of_name.extend(contents);
        }
    }

    /// Ends the watch, and returns what was wrong.
    pub(super) fn end(self) -> Vec<String> {
        self.is_over.store(true, Ordering::Release);
        self.thread.join().unwrap_or_else(|_| vec!["nobody watched".to_owned()])
    }
}

/// Identifies a version of a file: inode, size and time of the last change.
type Version = (u64, u64, i64, i64);

fn look(path: &Path, allowed: &[Vec<u8>], seen: &mut BTreeMap<PathBuf, Version>, wrong: &mut Vec<String>) {
    let Ok(mut file) = File::open(path) else { return };
    let Ok(known) = file.metadata() else { return };
    let version = (known.ino(), known.size(), known.mtime(), known.mtime_nsec());
    if seen.insert(path.to_owned(), version) == Some(version) {
        return;
    }
    let mut contents = Vec::new();
    if file.read_to_end(&mut contents).is_ok() && !allowed.contains(&contents) {
        wrong.push(format!("{} had {} bytes that it must not have", path.display(), contents.len()));
    }
}

/// All descendants of a process, with their process ids and command lines.
pub(super) fn descendants(of: u32) -> Vec<(u32, String)> {
    let all = processes();
    let mut found = vec![of];
    let mut at = 0;
    while at < found.len() {
        let parent = found[at];
        found.extend(all.iter().filter(|(_, above, _)| *above == parent).map(|(pid, ..)| *pid));
        at += 1;
    }
    let is_own = |pid: &u32| found[1..].contains(pid);
    all.into_iter().filter(|(pid, ..)| is_own(pid)).map(|(pid, _, words)| (pid, words)).collect()
}

/// The `ssh` processes of a lab, and the folders of their sockets.
pub(super) fn ssh_of(folder: &str) -> Vec<(u32, Option<PathBuf>)> {
    let is_own = |words: &str| words.starts_with("ssh ") && words.contains(folder);
    let socket = |words: &str| {
        let folder = words.split(' ').find(|word| word.starts_with("/tmp/proofload-copy"))?;
        Path::new(folder).parent().map(Path::to_owned)
    };
    let own = processes().into_iter().filter(|(.., words)| is_own(words));
    own.map(|(pid, _, words)| (pid, socket(&words))).collect()
}

/// All processes: process id, parent, command line.
fn processes() -> Vec<(u32, u32, String)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let known = entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let status = fs::read_to_string(entry.path().join("stat")).ok()?;
        // The name is in brackets and may contain brackets itself, so search for the last one.
        let above = status.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
        let words = fs::read(entry.path().join("cmdline")).ok()?;
        Some((pid, above, String::from_utf8_lossy(&words).replace('\0', " ")))
    });
    known.collect()
}
