//! Private mounts: only one thread and the programs that it starts see them, and they disappear with these.

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

/// A thread with a private view of mounts. Only root can make one.
#[derive(Debug)]
pub struct PrivateMounts {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

type Job = Box<dyn FnOnce() + Send>;

/// Maximum time of a job in the thread.
const PATIENCE: Duration = Duration::from_secs(600);

impl PrivateMounts {
    /// Makes a view that equals the machine's at first. Mounts in it stay invisible to others.
    ///
    /// # Errors
    /// If the kernel refuses, as it does for all users but root.
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

    /// Runs a job in the thread, where the mounts are visible. Programs that it starts see them, too.
    ///
    /// # Errors
    /// The errors of the job, and if it takes more than ten minutes.
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
    /// If the kernel refuses.
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
