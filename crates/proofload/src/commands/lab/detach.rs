//! A lab in the background. Its process, which is its owner, is started here, has a session of its own, and is
//! followed until the lab is ready: until then it ends with us.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek},
    os::{
        fd::OwnedFd,
        unix::{fs::OpenOptionsExt, process::ExitStatusExt},
    },
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::Ordering,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{MemfdFlags, memfd_create},
    io::Errno,
    process::{Pid, Signal, kill_process, set_parent_process_death_signal, setsid},
    stdio::{dup2_stderr, dup2_stdout},
};

use super::{
    stop,
    up::{READY, UpArgs},
};
use crate::{
    exit::{Exit, Refusal},
    output::standard,
};

/// How often a wish to stop is looked for.
const GLANCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// The name of the background process's own log, in the lab's folder.
const LOG: &str = "lab.log";

/// Starts `proofload lab up` in the background and returns when the lab is ready, or when it failed, with its
/// messages and its exit status.
pub(super) fn up_in_background(arguments: &UpArgs) -> Result<Exit, Refusal> {
    let stop = stop::on_signal()?;
    let (mut child, mut said) = start(arguments)
        .map_err(|e| Refusal::one(format_args!("cannot start the background process: {e}")))?;
    let (mut heard, mut is_told) = (Vec::new(), false);
    while hear(&mut child, &mut heard)? {
        if stop.load(Ordering::Relaxed) && !is_told {
            is_told = true;
            // Not waited for yet, so its number cannot be another's.
            let _ = Pid::from_raw(child.id() as i32).map(|pid| kill_process(pid, Signal::TERM));
        }
    }
    let is_ready = heard.split(|&byte| byte == b'\n').any(|line| line.starts_with(READY.as_bytes()));
    if is_ready && !is_told {
        pass_on(&mut said).map_err(Refusal::one)?;
        return Ok(Exit::GoalsMet);
    }
    let status = child.wait().map_err(Refusal::one)?;
    pass_on(&mut said).map_err(Refusal::one)?;
    exit_of(status)
}

/// In the background process, when its user namespace is entered: gives it a session of its own, so that the
/// terminal's signals do not reach it, and asks for a SIGTERM when the one that started it ends.
pub(super) fn leave_session() -> io::Result<()> {
    setsid()?;
    Ok(set_parent_process_death_signal(Some(Signal::TERM))?)
}

/// In the background process, when the lab is ready but nobody was told yet: it does not end with the one that
/// started it any more, and its messages go to a log in the lab's folder.
pub(super) fn let_go(run_folder: &Path) -> io::Result<File> {
    let log = OpenOptions::new().append(true).create_new(true).mode(0o600).open(run_folder.join(LOG))?;
    dup2_stderr(&log)?;
    set_parent_process_death_signal(None)?;
    Ok(log)
}

/// In the background process, when it has said that the lab is ready: the other one, which listens until
/// nobody can say anything more, leaves.
pub(super) fn hang_up(log: &File) -> io::Result<()> {
    Ok(dup2_stdout(log)?)
}

/// The process, and what it says on standard error: a file in memory, because processes of the lab have it
/// open for as long as they live, and nobody would read a pipe.
fn start(arguments: &UpArgs) -> io::Result<(Child, File)> {
    let said: OwnedFd = memfd_create("stderr", MemfdFlags::CLOEXEC)?;
    let said = File::from(said);
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["lab", "up", "--background"]);
    if let Some(folder) = &arguments.keep_logs {
        command.arg("--keep-logs").arg(folder);
    }
    command.arg("--").arg(&arguments.file);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(said.try_clone()?).spawn()?;
    Ok((child, said))
}

/// Waits a moment for more of what the process says on standard output, and passes it on; false at its end.
///
/// No thread does it: the kernel sends a parent-death signal for every thread through whose hands a child goes
/// when its parent's process ends, and the second SIGTERM would end it before it has cleaned up.
fn hear(child: &mut Child, heard: &mut Vec<u8>) -> Result<bool, Refusal> {
    let Some(output) = &mut child.stdout else { return Ok(false) };
    match poll(&mut [PollFd::new(output, PollFlags::IN)], Some(&GLANCE)) {
        Ok(0) | Err(Errno::INTR) => return Ok(true),
        Ok(_) => {}
        Err(error) => return Err(Refusal::one(error)),
    }
    let mut bytes = [0; 4_096];
    let length = output.read(&mut bytes).map_err(Refusal::one)?;
    heard.extend(&bytes[..length]);
    standard::show(&String::from_utf8_lossy(&bytes[..length]))?;
    Ok(length > 0)
}

fn pass_on(said: &mut File) -> io::Result<()> {
    let mut bytes = Vec::new();
    said.rewind()?;
    said.read_to_end(&mut bytes)?;
    if !bytes.is_empty() {
        standard::tell(String::from_utf8_lossy(&bytes).trim_end());
    }
    Ok(())
}

fn exit_of(status: ExitStatus) -> Result<Exit, Refusal> {
    match (status.code(), status.signal()) {
        // Called off; with status 0 at the very moment when it was ready.
        (Some(0 | 130), _) => Ok(Exit::Interrupted),
        // It has said why.
        (Some(_), _) => Ok(Exit::WrongUse),
        (None, signal) => Err(Refusal::one(format_args!(
            "the lab's process was ended by signal {} before the lab was ready; `proofload clean` takes back what \
             it left",
            signal.unwrap_or_default()
        ))),
    }
}
