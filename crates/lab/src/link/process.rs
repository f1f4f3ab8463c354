//! The parent's side of a link: a child process that is is_sent what to do.

use std::{
    io::{self, BufRead, BufReader, Write},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
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

/// How long the child may take for anything but a certificate.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A link. Dropping it ends it.
#[derive(Debug)]
pub struct Link {
    child: Child,
    /// Tells when the child has ended; none only while the link is being started.
    handle: Option<OwnedFd>,
    input: Option<ChildStdin>,
    answers: mpsc::Receiver<Answer>,
    spec: LinkSpec,
}

impl Link {
    /// Starts a link between two hosts, as a child of the calling thread: it dies when that thread
    /// does. The child is this program with the argument `link-worker`.
    ///
    /// # Errors
    /// What is wrong, and with which end.
    pub fn start(spec: LinkSpec, a: End, b: End) -> Result<Self, LinkError> {
        let program = std::env::current_exe().map_err(LinkError::Start)?;
        Self::start_with(&program, Stdio::inherit(), spec, a, b)
    }

    /// As [`Link::start`], with another program that has `link-worker`, and another place for what it writes
    /// to standard error.
    ///
    /// # Errors
    /// As [`Link::start`].
    pub fn start_with(
        program: &Path,
        stderr: Stdio,
        spec: LinkSpec,
        a: End,
        b: End,
    ) -> Result<Self, LinkError> {
        use std::os::unix::process::CommandExt;
        let mut child = Command::new(program)
            .arg("link-worker")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            // Ctrl-C is for the parent, which then ends its links.
            .process_group(0)
            .spawn()
            .map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => LinkError::Program(PathBuf::from(program)),
                _ => LinkError::Start(error),
            })?;
        let input = child.stdin.take();
        let output = child.stdout.take();
        let (sender, answers) = mpsc::channel();
        let handle = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
        let mut link = Self { child, handle: None, input, answers, spec: spec.clone() };
        link.handle = Some(handle.map_err(|error| LinkError::Start(error.into()))?);
        thread::Builder::new()
            .name("link-answers".to_owned())
            .spawn(move || {
                let lines = output.into_iter().flat_map(|output| BufReader::new(output).lines());
                for line in lines.map_while(Result::ok) {
                    // Anything else than an answer means that the child is not to be trusted any more.
                    let Ok(answer) = serde_json::from_str(&line) else { return };
                    if sender.send(answer).is_err() {
                        return;
                    }
                }
            })
            .map_err(LinkError::Start)?;
        let create = Request::Create { spec: Box::new(spec), a: Box::new(a), b: Box::new(b) };
        match link.request_answer(&create, ANSWER_TIMEOUT)? {
            Answer::Ready => Ok(link),
            other => Err(unexpected(&other)),
        }
    }

    /// The process id of the child.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Keeps the thread that moves packets to these processors. Those that measure the link run where they may.
    ///
    /// # Errors
    /// When the kernel refuses, or there is no such thread.
    pub fn pin_to(&self, cpus: &CpuSet) -> io::Result<()> {
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        loop {
            let child = self.child.id();
            for thread in kernel::threads(child) {
                let name = kernel::read(format!("/proc/{child}/task/{thread}/comm")).unwrap_or_default();
                // A number that is none would mean the calling thread.
                if let (MOVER_THREAD, Some(number)) = (name.trim(), Pid::from_raw(thread as i32)) {
                    return Ok(sched_setaffinity(Some(number), cpus)?);
                }
            }
            // It names itself, a moment after it was started.
            if Instant::now() >= deadline {
                return Err(io::Error::other(format!(
                    "the link's process has no thread named {MOVER_THREAD}"
                )));
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether its process still runs.
    pub fn is_running(&self) -> bool {
        let Some(handle) = &self.handle else { return false };
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Readable as soon as the process has ended.
        matches!(poll(&mut [PollFd::new(handle, PollFlags::IN)], Some(&now)), Ok(0) | Err(Errno::INTR))
    }

    /// What it is now.
    pub fn spec(&self) -> &LinkSpec {
        &self.spec
    }

    /// Changes one direction while it runs.
    ///
    /// # Errors
    /// What is wrong with the shape.
    pub fn set(&mut self, direction: Direction, shape: Shape) -> Result<(), LinkError> {
        self.request_change(&Request::Set { direction, shape: Box::new(shape.clone()) })?;
        *self.spec.shape_mut(direction) = shape;
        Ok(())
    }

    /// Cuts the link; what is in it is lost.
    ///
    /// # Errors
    /// When it has ended.
    pub fn down(&mut self) -> Result<(), LinkError> {
        self.request_change(&Request::Down)
    }

    /// Mends it.
    ///
    /// # Errors
    /// When it has ended.
    pub fn up(&mut self) -> Result<(), LinkError> {
        self.request_change(&Request::Up)
    }

    /// What was counted: from the first host to the second, and back.
    ///
    /// # Errors
    /// When it has ended.
    pub fn counters(&mut self) -> Result<[Counters; 2], LinkError> {
        match self.request_answer(&Request::Counters, ANSWER_TIMEOUT)? {
            Answer::Counters(counters) => Ok(*counters),
            other => Err(unexpected(&other)),
        }
    }

    /// Measures what the link really is. It should be idle meanwhile. Takes
    /// [`CertifyOptions::max_duration`] at most.
    ///
    /// # Errors
    /// When it could not be measured; a link that is not what it should be is no error.
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
        let input = self.input.as_mut().ok_or(LinkError::Ended)?;
        let mut line = serde_json::to_vec(request).map_err(|error| LinkError::Start(error.into()))?;
        line.push(b'\n');
        let is_sent = input.write_all(&line).and_then(|()| input.flush()).is_ok();
        let answer = if is_sent { self.answers.recv_timeout(timeout).ok() } else { None };
        if answer.is_none() {
            // An answer that came too late would be taken for that to the next request.
            self.input = None;
        }
        answer.ok_or(LinkError::Ended)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.input = None;
        // A child not yet waited for keeps its process id: this cannot hit another process.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn unexpected(answer: &Answer) -> LinkError {
    match answer {
        Answer::Failed(why) => LinkError::Refused(why.clone()),
        other => LinkError::Refused(format!("unexpected answer {other:?}")),
    }
}
