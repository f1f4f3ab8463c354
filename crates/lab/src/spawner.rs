//! The threads that the processes of a lab are started from.
//!
//! The kernel sends a parent-death signal when the *thread* that made the child ends, so the children of a
//! lab are made by threads that live as long as it does. Each host has one of its own, whose children live
//! in the host's namespace of process numbers: a thread enters one once and for all, because going back
//! would take rights over the machine's own that only root has.

use std::{
    io,
    process::{Child, Command},
    sync::mpsc,
    thread,
};

use nix::sched::{CloneFlags, unshare};

type Job = Box<dyn FnOnce() + Send>;

/// A thread; it ends when the last handle to it is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Spawner {
    jobs: mpsc::Sender<Job>,
}

impl Spawner {
    /// A thread whose children have process numbers like ours.
    pub(crate) fn start() -> io::Result<Self> {
        let (jobs, inbox) = mpsc::channel::<Job>();
        thread::Builder::new()
            .name("lab spawner".into())
            .spawn(move || inbox.into_iter().for_each(|job| job()))?;
        Ok(Self { jobs })
    }

    /// A thread whose children live in a new namespace of process numbers. The first one is the first
    /// process of the namespace: all others die with it.
    pub(crate) fn start_in_new_pid_namespace() -> io::Result<Self> {
        let spawner = Self::start()?;
        spawner.run(|| unshare(CloneFlags::CLONE_NEWPID))??;
        Ok(spawner)
    }

    /// Starts a process that dies with the lab, provided that it asks for its parent-death signal.
    pub(crate) fn spawn(&self, mut command: Command) -> io::Result<Child> {
        self.run(move || command.spawn())?
    }

    /// Does something on this thread.
    pub(crate) fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        let (answer, result) = mpsc::channel();
        let job: Job = Box::new(move || {
            // Nobody waits for the answer only if the caller has panicked.
            let _ = answer.send(work());
        });
        let lost = || io::Error::other("the thread that starts the lab's processes is gone");
        self.jobs.send(job).map_err(|_| lost())?;
        result.recv().map_err(|_| lost())
    }
}
