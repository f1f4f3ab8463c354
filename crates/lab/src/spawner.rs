//! Threads that start the processes of a lab.
//!
//! The kernel sends a child's parent-death signal when the *thread* that started the child ends, so the threads of this
//! module live as long as the lab. Each host has its own thread, whose children live in the host's PID namespace. A
//! thread never leaves a PID namespace, because only root may return to the machine's own.

use std::{
    io,
    process::{Child, Command},
    sync::mpsc,
    thread,
};

use nix::sched::{CloneFlags, unshare};

type Job = Box<dyn FnOnce() + Send>;

/// Handle of a thread that starts processes. The thread ends when the last handle is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Spawner {
    jobs: mpsc::Sender<Job>,
}

impl Spawner {
    /// Starts a thread whose children live in the current PID namespace.
    pub(crate) fn start() -> io::Result<Self> {
        let (jobs, inbox) = mpsc::channel::<Job>();
        thread::Builder::new()
            .name("lab spawner".into())
            .spawn(move || inbox.into_iter().for_each(|job| job()))?;
        Ok(Self { jobs })
    }

    /// Starts a thread whose children live in a new PID namespace. The first child becomes the first process of the
    /// namespace: when it dies, the kernel kills all others.
    pub(crate) fn start_in_new_pid_namespace() -> io::Result<Self> {
        let spawner = Self::start()?;
        spawner.run(|| unshare(CloneFlags::CLONE_NEWPID))??;
        Ok(spawner)
    }

    /// Starts a process. A process that sets its parent-death signal dies with the lab.
    pub(crate) fn spawn(&self, mut command: Command) -> io::Result<Child> {
        self.run(move || command.spawn())?
    }

    /// Runs `work` on the thread and returns the result.
    pub(crate) fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        let (answer, result) = mpsc::channel();
        let job: Job = Box::new(move || {
            // The receiver is gone only if the caller has panicked.
            let _ = answer.send(work());
        });
        let lost = || io::Error::other("the thread that starts the lab's processes is gone");
        self.jobs.send(job).map_err(|_| lost())?;
        result.recv().map_err(|_| lost())
    }
}
