//! Mounts of our own: seen by one thread and by the programs that it starts, and gone with them.

use std::{
    path::Path,
    sync::mpsc::{Sender, channel},
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};

/// A thread with its own view of what is mounted. Only root can make one.
#[derive(Debug)]
pub struct PrivateMounts {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

type Job = Box<dyn FnOnce() + Send>;

/// How long a job in the thread may take.
const PATIENCE: Duration = Duration::from_secs(600);

impl PrivateMounts {
    /// A view that is at first the machine's, and from which nothing gets out.
    ///
    /// # Errors
    /// When the kernel refuses, as it does to all but root.
    pub fn new() -> Result<Self> {
        let (jobs, todo) = channel::<Job>();
        let thread = std::thread::Builder::new().name("mounts".to_owned()).spawn(move || {
            todo.into_iter().for_each(|job| job());
        })?;
        let own = Self { jobs: Some(jobs), thread: Some(thread) };
        own.run(|| {
            unshare(CloneFlags::CLONE_NEWNS).context("cannot have mounts of our own; is this root?")?;
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            mount(None::<&str>, "/", None::<&str>, private, None::<&str>).context("cannot keep our mounts in")
        })?;
        Ok(own)
    }

    /// Does something where the mounts are seen. A program started there sees them too.
    ///
    /// # Errors
    /// Those of what is done; and when it takes more than ten minutes.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        let (result, wait) = channel();
        let jobs = self.jobs.as_ref().context("the thread has ended")?;
        let job = Box::new(move || drop(result.send(job())));
        if jobs.send(job).is_err() {
            bail!("the thread with the mounts has ended");
        }
        wait.recv_timeout(PATIENCE).context("what was to be done among the mounts does not end")?
    }

    /// Mounts an empty file system in memory.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn memory(&self, folder: &Path, size_bytes: u64) -> Result<()> {
        let (folder, options) = (folder.to_owned(), format!("size={size_bytes}"));
        self.run(move || {
            mount(Some("tmpfs"), &folder, Some("tmpfs"), MsFlags::empty(), Some(options.as_str()))
                .with_context(|| format!("cannot mount a tmpfs on {}", folder.display()))
        })
    }
}

impl Drop for PrivateMounts {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{process::Launch, temporary::TemporaryFolder};

    #[test]
    fn what_is_mounted_is_seen_inside_and_not_outside() {
        let (mounts, folder) = (PrivateMounts::new().unwrap(), TemporaryFolder::new().unwrap());
        mounts.memory(folder.path(), 1 << 20).unwrap();
        let line = format!("echo inside >{0} && cat {0}", folder.file("file"));
        let launch = Launch::new("sh").args(["-c", &line]);
        let finished = mounts.run(move || launch.run(PATIENCE)).unwrap();
        assert_eq!(finished.stdout, "inside\n", "{}", finished.stderr);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
