//! Taking a lab down: processes are asked first, then everything goes with its namespaces.

use std::{
    fs, io,
    path::Path,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use super::{Error, Lab};
use crate::namespace::Namespace;

/// How long processes may take to end by themselves.
pub(super) const GRACE: Duration = Duration::from_millis(200);

impl Lab {
    /// Takes down whatever is up; a second time there is nothing to do.
    pub(super) fn take_down(&mut self) -> Result<(), Vec<Error>> {
        let Some(journal) = self.journal.take() else { return Ok(()) };
        let mut errors = Vec::new();
        self.end_processes();
        self.links.clear();
        let namespaces = self.hosts.iter_mut().chain(self.segments.values_mut());
        // All are told before the first is waited for: the kernel takes them down at the same time.
        namespaces.for_each(Namespace::kill);
        self.hosts.clear();
        self.segments.clear();
        // What was not asked to end, or did not want to, has been killed with its host by now: the logs are
        // whole in a moment.
        let deadline = Instant::now() + GRACE;
        for process in self.processes.drain(..) {
            process.wait_for_log(deadline.saturating_duration_since(Instant::now()));
        }
        if let Some(folder) = &self.options.keep_logs
            && let Err(cause) = copy_logs(&self.run_folder, folder)
        {
            errors.push(Error::failed(format!("keep the logs in {}", folder.display()), cause));
        }
        if let Err(failures) = journal.finish() {
            errors.extend(failures.into_iter().map(Error::from));
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    /// Asks all processes to end, and gives them a moment.
    fn end_processes(&self) {
        let running = || self.processes.iter().filter(|process| process.ended().is_none());
        running().for_each(|process| process.signal(Signal::TERM));
        let deadline = Instant::now() + GRACE;
        for process in running() {
            process.wait(deadline.saturating_duration_since(Instant::now()));
        }
    }
}

/// Those that hold something, without secrets.
fn copy_logs(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "log") && entry.metadata()?.len() > 0 {
            fs::create_dir_all(to)?;
            let text = fs::read(&path)?;
            fs::write(to.join(entry.file_name()), &*secrets::mask(&String::from_utf8_lossy(&text)))?;
        }
    }
    Ok(())
}
