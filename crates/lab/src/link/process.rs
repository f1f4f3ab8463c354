//! The parent's side of a link. The link runs in a child process, which receives requests.

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use processes::{Output, Processes};
use rustix::{
    process::{Pid, PidfdFlags, pidfd_open},
    thread::{CpuSet, sched_setaffinity},
};

use super::{
    LinkError,
    certify::{Certificate, CertifyOptions},
    counters::Counters,
    emulator::MOVER_THREAD,
    namespace::End,
    spec::{Direction, LinkSpec, Shape},
    worker::{Answer, Request},
};

/// Time that the child may take to answer a request, except a certification.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A link in a child process. Dropping it ends the child.
#[derive(Debug)]
pub struct Link {
    /// A group of processes that contains only this child.
    child: Processes<Answer>,
    /// Becomes readable when the child ends.
    handle: OwnedFd,
    spec: LinkSpec,
}

impl Link {
    /// Starts a link between two hosts as a child of the calling thread: this program with the argument `link-worker`.
    /// The link ends with that thread.
    ///
    /// # Errors
    /// When the specification or an end is wrong, or the child cannot be started.
    pub fn start(spec: LinkSpec, a: End, b: End) -> Result<Self, LinkError> {
        let program = std::env::current_exe().map_err(LinkError::Start)?;
        Self::start_with(&program, Stdio::inherit(), spec, a, b)
    }

    /// Like [`Link::start`], but with the path of a program that has the command `link-worker`, and a destination for
    /// the child's standard error.
    ///
    /// # Errors
    /// Those of [`Link::start`].
    pub(crate) fn start_with(
        program: &Path,
        stderr: Stdio,
        spec: LinkSpec,
        a: End,
        b: End,
    ) -> Result<Self, LinkError> {
        let mut command = Command::new(program);
        command.arg("link-worker").stderr(stderr);
        let child = Processes::start_commands([command]).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => LinkError::Program(PathBuf::from(program)),
            _ => LinkError::Start(error),
        })?;
        let handle = pidfd_open(Pid::from_child(child.child(0)), PidfdFlags::empty());
        let handle = handle.map_err(|error| LinkError::Start(error.into()))?;
        let mut link = Self { child, handle, spec: spec.clone() };
        let create = Request::Create { spec: Box::new(spec), a: Box::new(a), b: Box::new(b) };
        match link.request_answer(&create, ANSWER_TIMEOUT)? {
            Answer::Ready => Ok(link),
            other => Err(unexpected(&other)),
        }
    }

    /// Process number of the child.
    pub fn pid(&self) -> u32 {
        self.child.child(0).id()
    }

    /// Pins the thread that moves packets to these processors. The threads that measure the link stay unpinned.
    ///
    /// # Errors
    /// When the kernel refuses, or the thread does not exist.
    pub(crate) fn pin_to(&self, cpus: &CpuSet) -> io::Result<()> {
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        loop {
            let child = self.pid();
            for thread in kernel::threads(child) {
                let name = kernel::read(format!("/proc/{child}/task/{thread}/comm")).unwrap_or_default();
                // 0 would mean the calling thread, so it is not a valid number here.
                if let (MOVER_THREAD, Some(number)) = (name.trim(), Pid::from_raw(thread as i32)) {
                    return Ok(sched_setaffinity(Some(number), cpus)?);
                }
            }
            // The thread may not have set its name yet, because it does so shortly after its start.
            if Instant::now() >= deadline {
                return Err(io::Error::other(format!(
                    "the link's process has no thread named {MOVER_THREAD}"
                )));
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether the child still runs.
    pub fn is_running(&self) -> bool {
        // The handle becomes readable when the process ends.
        undo::readable_within(&self.handle, Duration::ZERO).is_ok_and(|has_ended| !has_ended)
    }

    /// The current specification.
    pub fn spec(&self) -> &LinkSpec {
        &self.spec
    }

    /// Changes one direction while the link runs.
    ///
    /// # Errors
    /// If the shape is wrong. The error names the mistakes.
    pub fn set(&mut self, direction: Direction, shape: Shape) -> Result<(), LinkError> {
        self.request_change(&Request::Set { direction, shape: Box::new(shape.clone()) })?;
        *self.spec.shape_mut(direction) = shape;
        Ok(())
    }

    /// Takes the link down. Packets in the link are lost.
    ///
    /// # Errors
    /// When the child has ended.
    pub fn down(&mut self) -> Result<(), LinkError> {
        self.request_change(&Request::Down)
    }

    /// Takes the link up again.
    ///
    /// # Errors
    /// When the child has ended.
    pub fn up(&mut self) -> Result<(), LinkError> {
        self.request_change(&Request::Up)
    }

    /// Restarts the search for the longest absence of the emulator, which reading the counters does not do.
    ///
    /// # Errors
    /// When the child has ended.
    pub fn forget_longest_absence(&mut self) -> Result<(), LinkError> {
        self.request_change(&Request::ForgetLongestAbsence)
    }

    /// The counters: from the first host to the second, and back.
    ///
    /// # Errors
    /// When the child has ended.
    pub fn counters(&mut self) -> Result<[Counters; 2], LinkError> {
        match self.request_answer(&Request::Counters, ANSWER_TIMEOUT)? {
            Answer::Counters(counters) => Ok(*counters),
            other => Err(unexpected(&other)),
        }
    }

    /// Measures the link, which should carry no other traffic meanwhile. Takes at most
    /// [`CertifyOptions::max_duration`].
    ///
    /// # Errors
    /// If the link cannot be measured. A link that differs from the requested shape is not an error.
    pub fn certify(&mut self, options: &CertifyOptions) -> Result<Certificate, LinkError> {
        let timeout = options.max_duration(&self.spec) + ANSWER_TIMEOUT;
        match self.request_answer(&Request::Certify(options.clone()), timeout)? {
            Answer::Certificate(certificate) => Ok(*certificate),
            other => Err(unexpected(&other)),
        }
    }

    fn request_change(&mut self, request: &Request) -> Result<(), LinkError> {
        match self.request_answer(request, ANSWER_TIMEOUT)? {
            Answer::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn request_answer(&mut self, request: &Request, timeout: Duration) -> Result<Answer, LinkError> {
        let is_sent = self.child.send(0, request).is_ok();
        match is_sent.then(|| self.child.receive(timeout)).flatten() {
            Some((_, Output::Message(answer))) => Ok(answer),
            _ => {
                // A late answer would be mistaken for the answer to the next request, so the child is stopped.
                self.child.stop_all();
                Err(LinkError::Ended)
            }
        }
    }
}

fn unexpected(answer: &Answer) -> LinkError {
    match answer {
        Answer::Failed(why) => LinkError::Refused(why.clone()),
        other => LinkError::Refused(format!("unexpected answer {other:?}")),
    }
}
