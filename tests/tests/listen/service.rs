//! The listener as systemd runs it: sockets handed in, readiness told, the watchdog fed.

use std::{
    fs::{self, File},
    io::{self, Write},
    net::TcpListener,
    os::{fd::OwnedFd, unix::net::UnixDatagram},
    process::{Child, Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, bail, ensure};
use proofload_tests::{process::Launch, proofload::binary, temporary::TemporaryFolder};
use rustix::process::Signal;
use testing::{PATIENCE, find, until};

use super::{super::own_address, EVENT, running::curl};

/// Ended when dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn post(url: &str) -> Result<u16> {
    Ok(curl(url, &["-H", "Content-Type: application/json", "--data-binary", EVENT], "")?.status)
}

#[test]
fn a_socket_handed_in_is_listened_on() -> Result<()> {
    let folder = TemporaryFolder::new()?;
    let socket = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}/a", socket.local_addr()?);
    // The shell makes number 3 of what came as number 0, as sd_listen_fds(3) has it.
    let script = format!(
        "exec 3<&0 </dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec {} listen -q --threads 2 --path {}",
        binary()?.display(),
        folder.file("stored/x.log")
    );
    let child = Command::new("setpriv")
        .args(["--pdeathsig", "TERM", "sh", "-c", &script])
        .stdin(OwnedFd::from(socket))
        .stdout(Stdio::null())
        .stderr(Stdio::from(File::create(folder.path().join("stderr"))?))
        .spawn()?;
    let mut child = Ended(child);
    for _ in 0..4 {
        ensure!(post(&url)? == 204);
    }
    let listens = format!("listening on {};", url.trim_start_matches("http://").trim_end_matches("/a"));
    let told = || fs::read_to_string(folder.path().join("stderr")).unwrap_or_default();
    until(&format!("it says '{listens}'"), || told().contains(&listens));
    ensure!(end(&mut child.0)? == Some(0), "{}", told());
    let text = fs::read_to_string(folder.path().join("stored/x.log"))?;
    ensure!(text.lines().count() == 4, "{text}");
    Ok(())
}

#[test]
fn systemd_activates_it_by_its_socket() -> Result<()> {
    let folder = TemporaryFolder::new()?;
    let address = own_address()?;
    let mut process = Launch::new("systemd-socket-activate")
        .args(["--listen", &address.to_string(), &binary()?.display().to_string(), "listen", "-q", "--path"])
        .arg(folder.file("stored/x.log"))
        .start()?;
    process.says("Listening on", PATIENCE)?;
    // The first connection starts it; the second finds it there.
    for _ in 0..2 {
        ensure!(post(&format!("http://{address}/a"))? == 204, "{}", process.stderr());
    }
    process.signal(Signal::TERM);
    let finished = process.finish(PATIENCE)?;
    ensure!(finished.code == Some(0), "{finished:?}");
    Ok(())
}

#[test]
fn systemd_is_told_what_it_asks_for() -> Result<()> {
    let folder = TemporaryFolder::new()?;
    let path = folder.file("notify");
    let told = UnixDatagram::bind(&path)?;
    told.set_read_timeout(Some(PATIENCE))?;
    let mut process = Launch::new(binary()?.display().to_string())
        .words("listen -q --listen 127.0.0.1:0 --path")
        .arg(folder.file("stored/x.log"))
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "2000000")
        .start()?;
    expect(&told, "READY=1\nSTATUS=listening on 127.0.0.1:")?;
    expect(&told, "WATCHDOG=1")?;
    expect(&told, "WATCHDOG=1")?;
    process.signal(Signal::HUP);
    expect(&told, "RELOADING=1\nMONOTONIC_USEC=")?;
    expect(&told, "READY=1")?;
    process.signal(Signal::TERM);
    expect(&told, "STOPPING=1")?;
    ensure!(process.finish(PATIENCE)?.code == Some(0));
    Ok(())
}

#[test]
fn a_log_that_cannot_be_written_holds_nobody_up() -> Result<()> {
    let (_, nobody_reads) = io::pipe()?;
    let (_unread, full) = io::pipe()?;
    fill(File::from(OwnedFd::from(full.try_clone()?)))?;
    let full_disk = File::options().write(true).open("/dev/full")?;
    for (what, log) in [
        ("full disk", full_disk.into()),
        ("no reader", nobody_reads.into()),
        ("full pipe", OwnedFd::from(full)),
    ] {
        let folder = TemporaryFolder::new()?;
        let address = own_address()?;
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", &binary()?.display().to_string(), "listen", "-q", "--listen"])
            .args([&address.to_string(), "--path", &folder.file("stored/x.log"), "--ack", "accepted"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        let mut child = Ended(child);
        let url = format!("http://{address}/a");
        until(&format!("it listens with a {what}"), || post(&url).is_ok());
        // What is refused is told in the log, and so is that it reloads.
        ensure!(curl(&url, &["--data-binary", "{"], "")?.status == 400, "{what}");
        rustix::process::kill_process(rustix::process::Pid::from_child(&child.0), Signal::HUP)?;
        ensure!(post(&url)? == 202, "{what}");
        ensure!(end(&mut child.0)? == Some(0), "{what}");
        let text = fs::read_to_string(folder.path().join("stored/x.log"))?;
        ensure!(text.lines().count() == 2, "{what}: {text}");
    }
    Ok(())
}

/// Writes to a pipe until it takes no more.
fn fill(mut pipe: File) -> Result<()> {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    let flags = fcntl_getfl(&pipe)?;
    fcntl_setfl(&pipe, flags | OFlags::NONBLOCK)?;
    while pipe.write(&[b'\n'; 4096]).is_ok() {}
    Ok(fcntl_setfl(&pipe, flags)?)
}

/// Waits for a message that begins so; those of the watchdog may come between.
fn expect(socket: &UnixDatagram, beginning: &str) -> Result<()> {
    let (mut buffer, begun) = ([0; 1024], Instant::now());
    while begun.elapsed() < PATIENCE {
        let length = socket.recv(&mut buffer).with_context(|| format!("'{beginning}' was not told"))?;
        let message = String::from_utf8_lossy(&buffer[..length]);
        if message.starts_with(beginning) {
            return Ok(());
        }
        ensure!(message.starts_with("WATCHDOG=1"), "told '{message}' instead of '{beginning}'");
    }
    bail!("'{beginning}' was not told")
}

fn end(child: &mut Child) -> Result<Option<i32>> {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, Signal::TERM)?;
    let ended = find(PATIENCE, || child.try_wait().transpose()).context("it does not end")?;
    Ok(ended?.code())
}
