//! Runs a lab in the background. The background process owns the lab and runs in a separate session. Until the lab is
//! ready, this process forwards the output, and the background process ends if this process does.

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

use super::up::{READY, UpArgs};
use crate::{
    exit::{Exit, Refusal, Result},
    output::standard,
};

/// Time between two checks of the stop flag.
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// Name of the background process's log in the lab's folder.
const LOG: &str = "lab.log";

/// Starts `proofload lab up` in the background and returns when the lab is ready. If it fails, prints the background
/// process's messages and returns its exit status.
pub(super) fn up_in_background(arguments: &UpArgs) -> Result<Exit> {
    let stop = crate::stop::on_signal()?;
    let (mut child, mut messages) = start(arguments)
        .map_err(|e| Refusal::one(format_args!("cannot start the background process: {e}")))?;
    let (mut output, mut stop_sent) = (Vec::new(), false);
    while forward_output(&mut child, &mut output)? {
        if stop.load(Ordering::Relaxed) && !stop_sent {
            stop_sent = true;
            // The process has not been reaped, so its ID cannot belong to another process.
            let _ = Pid::from_raw(child.id() as i32).map(|pid| kill_process(pid, Signal::TERM));
        }
    }
    let is_ready = output.split(|&byte| byte == b'\n').any(|line| line.starts_with(READY.as_bytes()));
    if is_ready && !stop_sent {
        forward_messages(&mut messages).map_err(Refusal::one)?;
        return Ok(Exit::GoalsMet);
    }
    let status = child.wait().map_err(Refusal::one)?;
    forward_messages(&mut messages).map_err(Refusal::one)?;
    exit_status(status)
}

/// The background process calls this after it has entered its user namespace. Starts a session, so that signals of the
/// terminal do not reach it, and requests a SIGTERM for the time when the parent process ends.
pub(super) fn leave_session() -> io::Result<()> {
    setsid()?;
    Ok(set_parent_process_death_signal(Some(Signal::TERM))?)
}

/// The background process calls this when the lab is ready, before the announcement. Cancels the SIGTERM at the parent's
/// end and redirects messages to a log in the lab's folder.
pub(super) fn detach_from_parent(run_folder: &Path) -> io::Result<File> {
    let log = OpenOptions::new().append(true).create_new(true).mode(0o600).open(run_folder.join(LOG))?;
    dup2_stderr(&log)?;
    set_parent_process_death_signal(None)?;
    Ok(log)
}

/// The background process calls this after it has announced that the lab is ready. Closes the pipe to the parent
/// process, whose command then returns.
pub(super) fn close_parent_pipe(log: &File) -> io::Result<()> {
    Ok(dup2_stdout(log)?)
}

/// Starts the background process. Its standard error is a file in memory: the lab's processes keep it open for as long
/// as they run, and a pipe would then have no reader.
fn start(arguments: &UpArgs) -> io::Result<(Child, File)> {
    let messages: OwnedFd = memfd_create("stderr", MemfdFlags::CLOEXEC)?;
    let messages = File::from(messages);
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["lab", "up", "--background"]);
    if let Some(folder) = &arguments.keep_logs {
        command.arg("--keep-logs").arg(folder);
    }
    command.arg("--").arg(&arguments.file);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(messages.try_clone()?).spawn()?;
    Ok((child, messages))
}

/// Waits up to [`POLL_INTERVAL`] for output, prints it and appends it to `received`. Returns false at the end of the
/// output.
fn forward_output(child: &mut Child, received: &mut Vec<u8>) -> Result<bool> {
    let Some(output) = &mut child.stdout else { return Ok(false) };
    match poll(&mut [PollFd::new(output, PollFlags::IN)], Some(&POLL_INTERVAL)) {
        Ok(0) | Err(Errno::INTR) => return Ok(true),
        Ok(_) => {}
        Err(error) => return Err(Refusal::one(error)),
    }
    let mut bytes = [0; 4_096];
    let length = output.read(&mut bytes).map_err(Refusal::one)?;
    received.extend(&bytes[..length]);
    standard::print_wrapped(&String::from_utf8_lossy(&bytes[..length]))?;
    Ok(length > 0)
}

fn forward_messages(messages: &mut File) -> io::Result<()> {
    let mut bytes = Vec::new();
    messages.rewind()?;
    messages.read_to_end(&mut bytes)?;
    if !bytes.is_empty() {
        standard::print_to_stderr(String::from_utf8_lossy(&bytes).trim_end());
    }
    Ok(())
}

fn exit_status(status: ExitStatus) -> Result<Exit> {
    match (status.code(), status.signal()) {
        // Stopped by the user. The status is 0 if the stop arrived just as the lab became ready.
        (Some(0 | 130), _) => Ok(Exit::Interrupted),
        // The process has already printed the reason.
        (Some(_), _) => Ok(Exit::WrongUse),
        (None, signal) => Err(Refusal::one(format_args!(
            "signal {} ended the lab's process before the lab was ready; `proofload clean` removes what it left",
            signal.unwrap_or_default()
        ))),
    }
}
