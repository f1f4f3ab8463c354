//! Handles the journals of other runs: lists live runs and cleans up after dead ones.

use std::{
    thread,
    time::{Duration, Instant},
};

use rustix::fs::{FlockOperation, OFlags, flock};

use crate::{
    Change, Error, Folder, Network, ProcessId,
    folder::journals,
    journal::{self, JournalContent, boot_id},
    lock::{LOCK_TIMEOUT, try_lock},
    process::pid_namespace,
};

/// A run whose owner is alive.
#[derive(Debug, Clone)]
pub struct Run {
    /// Identifier of the run.
    pub run: String,
    /// The kind that its owner set.
    pub kind: String,
    /// The title that its owner set.
    pub title: String,
    /// Process that owns the run.
    pub owner: ProcessId,
    /// Its changes that have not been undone.
    pub changes: Vec<Change>,
}

/// The result of [`clean`].
#[derive(Debug, Default)]
pub struct Cleaned {
    /// Number of dead runs that were found.
    pub runs: usize,
    /// Descriptions of the undone changes.
    pub undone: Vec<String>,
    /// Failures. The next call tries again.
    pub failures: Vec<Error>,
}

/// The runs whose owner is alive, the oldest first.
///
/// # Errors
/// When the folder cannot be read.
pub fn runs(folder: &Folder) -> Result<Vec<Run>, Error> {
    let mut runs = Vec::new();
    for name in journals(folder)? {
        // Unreadable journals are skipped, because `clean` reports them.
        let Ok(Some(JournalContent { header, open, .. })) = journal::read(folder, &name) else { continue };
        if header.boot == boot_id() && header.pid_namespace == pid_namespace() && header.owner.is_alive() {
            let journal::Header { kind, title, run, owner, .. } = header;
            runs.push(Run { run, kind, title, owner, changes: open });
        }
    }
    runs.sort_by_key(|run| run.owner.start_ticks);
    Ok(runs)
}

/// Undoes the journals whose owners are dead. Does not touch changes of live owners or changes that are not proven to
/// be ours. The changes of services stay for their next start, unless their network namespace is gone.
///
/// # Errors
/// If the folder cannot be read. The result lists the changes that could not be undone.
pub fn clean(folder: &Folder) -> Result<Cleaned, Error> {
    clean_within(folder, LOCK_TIMEOUT)
}

fn clean_within(folder: &Folder, time: Duration) -> Result<Cleaned, Error> {
    clean_those(folder, time, |content| {
        let is_gone = |change: &Change| change.network().is_some_and(Network::is_gone);
        !content.header.is_service || content.open.iter().any(is_gone)
    })
}

/// Like `clean`, but also undoes the changes of services that were killed or that kept their changes.
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
    // The owner or another call of `clean` may have removed the journal meanwhile.
    let Some(content) = journal::read(folder, name)? else { return Ok(()) };
    if !is_asked(&content) {
        return Ok(());
    }
    let JournalContent { header, .. } = content;
    let is_same_boot = header.boot == boot_id();
    // An owner that was just killed may need a moment to end.
    let deadline = Instant::now() + time;
    while is_same_boot && header.owner.is_dying(&header.pid_namespace) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
    }
    // A free lock does not prove that the owner is dead, so the process is checked as well.
    if is_same_boot && !header.owner.is_gone(&header.pid_namespace) {
        return Ok(());
    }
    let Ok(file) = folder.held().kept(name, OFlags::RDONLY) else { return Ok(()) };
    if !try_lock(&file, time) {
        return Ok(());
    }
    // The journal is read again under the lock, because another call of `clean` may have changed it.
    let Some(JournalContent { header, open, damage }) = journal::read(folder, name)? else { return Ok(()) };
    cleaned.runs += 1;
    let mut failed = damage.is_some();
    cleaned.failures.extend(damage);
    for change in open.iter().rev() {
        // Processes do not survive a reboot, and their numbers may have been reused.
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

/// Removes journals whose owners died before the first line was complete. No changes were made under them.
pub(crate) fn remove_unfinished_journals(folder: &Folder) {
    for name in folder.held().names().unwrap_or_default() {
        let owner = name.to_str().and_then(owner_of_unfinished_journal);
        // An owner in another PID namespace looks dead, but it still has its lock.
        let is_unlocked = |file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
        let is_dead = owner.is_some_and(|owner| !owner.is_alive());
        if is_dead && folder.held().kept(&name, OFlags::RDONLY).is_ok_and(is_unlocked) {
            // Another call of `clean` may have removed the journal.
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
mod tests;
