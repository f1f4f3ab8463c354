//! Unnamed network namespaces, each owned by a holder process.
//!
//! A holder is this program, as the first process of a PID namespace. When the holder dies, the kernel kills every
//! process of the host. When all of them have ended and our own handle is closed, the network namespace and its
//! interfaces disappear. Two signs tell the holder to end with the lab: its parent-death signal and the end of its
//! standard input.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsFd, BorrowedFd},
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use kernel::namespaces::{self, Kind};
use nix::{
    sched::{CloneFlags, unshare},
    sys::{
        signal::{SigSet, Signal as SignalNumber},
        signalfd::{SfdFlags, SignalFd},
    },
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::OFlags,
    io::Errno,
    process::{Signal, WaitOptions, set_parent_process_death_signal, wait},
};
use undo::ProcessId;

use crate::{private::PrivateFolders, spawner::Spawner};

/// Time that a holder may take to create its namespace.
const HOLDER_TIMEOUT: Duration = Duration::from_secs(10);

/// A network namespace and its holder.
#[derive(Debug)]
pub(crate) struct Namespace {
    holder: Child,
    input: Option<ChildStdin>,
    id: ProcessId,
    network: Arc<File>,
    /// The mount namespace of a host with private folders.
    mounts: Option<File>,
    spawner: Spawner,
}

/// A holder that has been started but has not reported its namespace yet.
#[derive(Debug)]
pub(crate) struct StartingHolder {
    /// None once a [`Namespace`] has taken over the holder.
    holder: Option<Child>,
    id: Option<ProcessId>,
    on_machine: bool,
    has_mounts: bool,
    spawner: Spawner,
}

impl StartingHolder {
    /// Starts a holder: `program lab-holder`. With `on_machine`, the host has this process's own network. It gets
    /// the host's private folders as JSON.
    pub(crate) fn start(
        program: &OsStr,
        on_machine: bool,
        private: Option<&PrivateFolders>,
    ) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.arg("lab-holder").args(on_machine.then_some("--on-machine"));
        if let Some(private) = private {
            command.arg(serde_json::to_string(private)?);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // Ctrl-C must not reach the holder: the lab takes everything down in order.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let spawner = Spawner::start_in_new_pid_namespace()?;
        let holder = spawner.spawn(command)?;
        let id = ProcessId::of(holder.id());
        Ok(Self { holder: Some(holder), id, on_machine, has_mounts: private.is_some(), spawner })
    }

    /// Identity of the holder, for the journal.
    pub(crate) fn id(&self) -> io::Result<ProcessId> {
        self.id.ok_or_else(|| io::Error::other("/proc does not show the process that was just started"))
    }

    /// Waits until the namespace exists.
    pub(crate) fn wait_until_ready(mut self) -> io::Result<Namespace> {
        let id = self.id()?;
        let Some(holder) = &mut self.holder else { return Err(io::ErrorKind::NotConnected.into()) };
        let mut output = holder.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        if !undo::readable_within(&output, HOLDER_TIMEOUT)? {
            return Err(io::Error::other(format!("its process did not answer within {HOLDER_TIMEOUT:?}")));
        }
        let mut answer = [0; 1_024];
        let length = output.read(&mut answer)?;
        match &answer[..length] {
            b"ready\n" => {}
            b"" => return Err(io::Error::other("its process ended at once")),
            why => return Err(io::Error::other(String::from_utf8_lossy(why).trim().to_owned())),
        }
        // The holder has not been reaped, so its process number is not reused.
        let network = Arc::new(File::open(namespaces::path_of(id.pid, Kind::Network))?);
        // Settings made in this process's own network would change the machine itself.
        if !self.on_machine && namespaces::identity(&network)? == namespaces::own_identity(Kind::Network)? {
            return Err(io::Error::other("the kernel gave a host this process's own network namespace"));
        }
        let mounts =
            self.has_mounts.then(|| File::open(namespaces::path_of(id.pid, Kind::Mount))).transpose()?;
        let spawner = self.spawner.clone();
        let input = holder.stdin.take();
        match self.holder.take() {
            Some(holder) => Ok(Namespace { holder, input, id, network, mounts, spawner }),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

impl Drop for StartingHolder {
    fn drop(&mut self) {
        if let Some(holder) = &mut self.holder {
            end(holder);
        }
    }
}

impl Namespace {
    pub(crate) fn pid(&self) -> u32 {
        self.holder.id()
    }

    pub(crate) fn id(&self) -> ProcessId {
        self.id
    }

    /// The network namespace.
    pub(crate) fn network(&self) -> BorrowedFd<'_> {
        self.network.as_fd()
    }

    /// The thread that starts the host's processes.
    pub(crate) fn spawner(&self) -> &Spawner {
        &self.spawner
    }

    /// A shared handle of the network namespace.
    pub(crate) fn handle(&self) -> Arc<File> {
        Arc::clone(&self.network)
    }

    /// The mount namespace, if the host has private folders.
    pub(crate) fn mounts(&self) -> Option<&File> {
        self.mounts.as_ref()
    }

    /// The file in `/proc` of this mount namespace.
    pub(crate) fn mounts_path(&self) -> Option<PathBuf> {
        self.mounts.as_ref().map(|_| namespaces::path_of(self.pid(), Kind::Mount))
    }

    /// Kills the holder and thereby every process of the host. Does not wait; [`end`](Self::end) does.
    pub(crate) fn kill(&mut self) {
        self.input = None;
        // The holder has not been reaped, so its process number is not reused.
        let _ = self.holder.kill();
    }

    /// Kills the holder and waits for its end. The holder ends after all other processes of the host.
    pub(crate) fn end(&mut self) {
        self.kill();
        end(&mut self.holder);
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.end();
    }
}

/// Kills and reaps a holder. A child that has not been reaped keeps its process number, so no other process can be hit.
fn end(holder: &mut Child) {
    let _ = holder.kill();
    let _ = holder.wait();
}

/// Runs a holder process: `proofload lab-holder`. Reports to the parent on standard output. With `on_machine`, the host has
/// this process's own network. `private`: its private folders, as JSON.
///
/// # Errors
/// When signals or standard input cannot be watched.
pub fn run_holder(on_machine: bool, private: Option<&str>) -> io::Result<()> {
    // Linux always accepts this request. If it did not, the end of standard input would still end the holder.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let mut stdout = io::stdout();
    if !on_machine && let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
        return writeln!(stdout, "the kernel refuses a network namespace: {error}; run it as root");
    }
    if let Some(private) = private
        && let Err(error) = serde_json::from_str::<PrivateFolders>(private)?.enter_new()
    {
        return writeln!(stdout, "{error}");
    }
    let mut mask = SigSet::empty();
    mask.add(SignalNumber::SIGCHLD);
    mask.thread_block()?;
    let children = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    stdout.write_all(b"ready\n")?;
    stdout.flush()?;
    let input = io::stdin();
    loop {
        let mut events = [PollFd::new(&input, PollFlags::IN), PollFd::new(&children, PollFlags::IN)];
        match poll(&mut events, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        // The lab never writes to this pipe: standard input becomes readable only when the lab is gone.
        if !events[0].revents().is_empty() {
            return Ok(());
        }
        while let Ok(Some(_)) = children.read_signal() {}
        // Orphans become children of the namespace's first process, which must reap them.
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
    }
}

/// Makes reads of a pipe return at once.
pub(crate) fn make_nonblocking(pipe: impl AsFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(&pipe)?;
    Ok(rustix::fs::fcntl_setfl(&pipe, flags | OFlags::NONBLOCK)?)
}
