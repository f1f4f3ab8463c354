//! Services that do not speak the protocol: proofload reports only that, and explains nothing else.

use std::{
    fs,
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::Result;

use super::Outcome;
use crate::{Output, Proofload, Serve, nginx::free_address, temporary::TemporaryFolder};

/// Options of `http`, one load each.
const LOADS: [&str; 4] =
    ["-u 16 -d 300ms", "-R 200 -d 300ms", "-R 200 -d 300ms -c 8", "-c 4 -n 200 --no-keepalive"];
/// Commands that search for a limit.
const SEARCHES: [&str; 3] =
    ["limit rate --budget 5s", "limit rate --p99 20ms --budget 5s", "limit users --trial 1s --budget 5s"];
/// Words that an explanation would contain.
const EXPLANATIONS: [&str; 4] = ["bound by", "Bound by", "bottleneck", "valid"];

/// Adds the number of calls that explained something although no request was answered.
pub(super) fn check(outcome: &mut Outcome) -> Result<()> {
    let serve = Serve::start("")?;
    let speakers = [Speaker::start(greet)?, Speaker::start(repeat)?, Speaker::start(greet_in_bytes)?];
    let at = |scheme: &str, address: &dyn std::fmt::Display| format!("{scheme}://{address}/");
    let targets = [
        ("a dead port", at("http", &free_address()?)),
        ("TLS on a dead port", at("https", &free_address()?)),
        ("TLS on a plain port", at("https", &serve.addresses()[0])),
        ("a greeting of another protocol", at("http", &speakers[0].address)),
        ("what repeats the request", at("http", &speakers[1].address)),
        ("a greeting that is no text", at("http", &speakers[2].address)),
        ("TLS with a greeting of another protocol", at("https", &speakers[0].address)),
    ];
    let (mut explained, mut made) = (0, 0);
    for (target, url) in &targets {
        for call in LOADS.iter().map(|load| format!("http {load}")).chain(SEARCHES.map(str::to_owned)) {
            made += 1;
            if let Some(fault) = fault(&call, url)? {
                explained += 1;
                outcome.note(format!("{target}, {call}: {fault}"));
            }
        }
    }
    outcome.equal("calls", made, (targets.len() * (LOADS.len() + SEARCHES.len())) as u64, "all");
    outcome.equal(
        "explained",
        explained,
        0,
        "calls that say more than that nothing answered, or not even that",
    );
    serve.stop()?;
    Ok(())
}

/// The fault of a call that nothing answers: its exit status, a trial that is not void, or an explanation.
fn fault(call: &str, url: &str) -> Result<Option<String>> {
    let folder = TemporaryFolder::new()?;
    let is_search = call.starts_with("limit");
    let file = folder.file("answer.json");
    let rest =
        if is_search { format!("--json {file} --out {}", folder.file("result")) } else { String::new() };
    let output = Proofload::new(&format!("{call} {url} {rest}"))?.run()?;
    let answered = fs::read_to_string(&file).is_ok_and(|text| text.contains("\"sentence\""));
    Ok(fault_of(&output, is_search, answered).map(|fault| format!("{fault}: {}", output.described())))
}

fn fault_of(output: &Output, is_search: bool, has_answer: bool) -> Option<String> {
    let explanation = EXPLANATIONS.iter().find(|words| output.stdout.contains(**words));
    if output.code != Some(2) {
        return Some("exit status".to_owned());
    }
    if let Some(words) = explanation {
        return Some(format!("it says '{words}'"));
    }
    if is_search {
        return has_answer.then(|| "it has an answer".to_owned());
    }
    match output.unanswered() {
        Err(_) => Some("it does not say in one sentence that nothing answered".to_owned()),
        Ok(trial) => trial.verdict.is_some().then(|| "it has a verdict".to_owned()),
    }
}

/// A server that accepts connections but does not speak HTTP. It ends when dropped.
struct Speaker {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Speaker {
    fn start(speak: fn(&mut TcpStream) -> io::Result<()>) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let (address, stop) = (listener.local_addr()?, Arc::new(AtomicBool::new(false)));
        let seen = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                let Ok((mut connection, _)) = listener.accept() else {
                    thread::sleep(Duration::from_millis(1));
                    continue;
                };
                // The client may already have closed the connection.
                let _ = connection.set_nonblocking(false);
                let _ = connection.set_read_timeout(Some(Duration::from_millis(100)));
                let _ = speak(&mut connection);
            }
        });
        Ok(Self { address, stop, thread: Some(thread) })
    }
}

impl Drop for Speaker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A mail server's greeting, and its answer to a request.
fn greet(connection: &mut TcpStream) -> io::Result<()> {
    connection.write_all(b"220 mail.example ESMTP\r\n")?;
    let _ = connection.read(&mut [0; 4_096])?;
    connection.write_all(b"500 unrecognised command\r\n")
}

fn repeat(connection: &mut TcpStream) -> io::Result<()> {
    let mut bytes = [0; 4_096];
    let length = connection.read(&mut bytes)?;
    connection.write_all(&bytes[..length])
}

/// A database's first packet.
fn greet_in_bytes(connection: &mut TcpStream) -> io::Result<()> {
    connection.write_all(b"\x4a\x00\x00\x00\x0a8.0.36\x00\x0b\x00\x00\x00\x7f\xff\x1b\x01")?;
    let _ = connection.read(&mut [0; 4_096])?;
    Ok(())
}
