//! Takes a lab down: asks its processes to end, then kills all that remain by killing the holders.

use std::{
    fs, io,
    path::Path,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use super::{Error, Lab};
use crate::namespace::Namespace;

/// Time that processes may take to end after SIGTERM.
pub(super) const GRACE: Duration = Duration::from_millis(200);
/// The same on a machine, whose network does not end with the lab: a balancer has to take its programs off its device itself.
const GRACE_ON_MACHINE: Duration = Duration::from_secs(5);

impl Lab {
    /// Takes down everything that is up. A second call does nothing.
    pub(super) fn take_down(&mut self) -> Result<(), Vec<Error>> {
        let folder = self.options.keep_logs.clone();
        self.take_down_and(&mut |run_folder| {
            folder.iter().try_for_each(|folder| copy_logs(run_folder, folder))
        })
    }

    /// Takes down everything that is up. Calls `keep` with the folder of the logs when these are complete.
    pub(super) fn take_down_and(
        &mut self,
        keep: &mut dyn FnMut(&Path) -> io::Result<()>,
    ) -> Result<(), Vec<Error>> {
        let Some(journal) = self.journal.take() else { return Ok(()) };
        let mut errors = Vec::new();
        self.end_processes();
        self.links.clear();
        let namespaces = self.hosts.iter_mut().chain(self.segments.values_mut());
        // All holders are killed before the first wait, so that the kernel removes the namespaces in parallel.
        namespaces.for_each(Namespace::kill);
        self.hosts.clear();
        self.segments.clear();
        // The processes have died with their hosts, so the logs are complete within moments.
        let deadline = Instant::now() + GRACE;
        for process in self.processes.drain(..) {
            process.wait_for_log(deadline.saturating_duration_since(Instant::now()));
        }
        if let Err(cause) = keep(&self.run_folder) {
            errors.push(Error::failed("keep the logs", cause));
        }
        if let Err(failures) = journal.finish() {
            errors.extend(failures.into_iter().map(Error::from));
        }
        // A balancer that was killed with its host has left pinned objects in the machine's BPF file system, which this
        // call removes. If it fails, the next command tries again.
        let _ = undo::clean(&self.options.folder);
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    /// Sends SIGTERM to all processes and waits up to [`GRACE`] for their end.
    fn end_processes(&self) {
        let running = || self.processes.iter().filter(|process| process.ended().is_none());
        running().for_each(|process| process.signal(Signal::TERM));
        let grace = if self.options.on_machine { GRACE_ON_MACHINE } else { GRACE };
        let deadline = Instant::now() + grace;
        for process in running() {
            process.wait(deadline.saturating_duration_since(Instant::now()));
        }
    }
}

/// Copies all logs that are not empty, with secrets masked.
fn copy_logs(from: &Path, to: &Path) -> io::Result<()> {
    let failed = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", to.display()));
    for (name, text) in logs(from)? {
        fs::create_dir_all(to).and_then(|()| fs::write(to.join(name), text)).map_err(failed)?;
    }
    Ok(())
}

/// All logs of a folder that are not empty, by the names of their files, with secrets masked.
pub(super) fn logs(folder: &Path) -> io::Result<Vec<(String, String)>> {
    let mut logs = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "log") && entry.metadata()?.len() > 0 {
            let text = fs::read(&path)?;
            let text = secrets::mask(&String::from_utf8_lossy(&text)).into_owned();
            logs.push((entry.file_name().to_string_lossy().into_owned(), text));
        }
    }
    Ok(logs)
}
