//! Receipts against files, with a listener that is not ours: nginx, which logs the body of each request.

use std::{
    fs,
    net::{SocketAddr, TcpStream},
};

use anyhow::{Context, Result, ensure};
use proofload_tests::{
    Output, Proofload, Serve, machine,
    process::{Launch, Process, children_of},
    temporary::TemporaryFolder,
};
use record::{AuditFinding, AuditResult};
use rustix::process::{Pid, Signal, kill_process};
use testing::{PATIENCE, until};

use super::own_address;

/// nginx that stores every body as a line of its log.
struct BodyLog {
    process: Process,
    folder: TemporaryFolder,
    address: SocketAddr,
}

impl BodyLog {
    fn start() -> Result<Self> {
        let program = machine::program("nginx").context("nginx is missing: apt-get install nginx-light")?;
        let folder = TemporaryFolder::new()?;
        let address = own_address()?;
        let file = folder.file("nginx.conf");
        fs::write(&file, configuration(address, &folder.file("inner.sock")))?;
        let launch = Launch::new(program.display().to_string()).args(["-e", "stderr", "-c", &file]);
        let launch = launch.args(["-p", &folder.file("")]);
        let mut process = launch.start()?;
        let log = || fs::read_to_string(folder.path().join("error.log")).unwrap_or_default();
        process.find("it listens", PATIENCE, |_| TcpStream::connect(address).ok()).with_context(log)?;
        Ok(Self { process, folder, address })
    }

    fn load(&self, words: &str) -> Result<Proofload> {
        let receipts = self.folder.file("receipts");
        let load = Proofload::http(&format!("http://{}/x", self.address), words)?;
        Ok(load.arg("-q").arg("--receipts").arg(&receipts))
    }

    /// What it has stored. It answers before it writes, so that only its end makes sure that all is written.
    fn end(mut self) -> Result<(TemporaryFolder, Vec<u8>)> {
        self.process.signal(Signal::QUIT);
        let status = self.process.wait(PATIENCE)?;
        ensure!(status.is_some(), "nginx did not end");
        let stored = fs::read(self.folder.path().join("stored.log"))?;
        Ok((self.folder, stored))
    }
}

/// `$request_body` is only known where the body goes somewhere: here to a server of the same nginx.
fn configuration(address: SocketAddr, inner: &str) -> String {
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    format!(
        "{user}
daemon off;
worker_processes 1;
pid nginx.pid;
error_log error.log warn;
events {{ worker_connections 1024; }}
http {{
    log_format body escape=none '$request_body';
    client_body_in_single_buffer on;
    client_body_buffer_size 1m;
    client_body_temp_path client_body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    keepalive_requests 1000000;
    upstream inner {{ server unix:{inner}; keepalive 16; }}
    server {{
        listen {address};
        access_log stored.log body;
        location / {{
            proxy_pass http://inner;
            proxy_http_version 1.1;
            proxy_set_header Connection '';
        }}
    }}
    server {{
        listen unix:{inner};
        access_log off;
        location / {{ return 204; }}
    }}
}}
"
    )
}

/// Audits a file with these bytes against the receipts in a folder.
fn audit_of(folder: &TemporaryFolder, stored: &[u8], words: &str) -> Result<(Output, AuditResult)> {
    let (file, json) = (folder.file("audited.log"), folder.file("audit.json"));
    fs::write(&file, stored)?;
    let audit = Proofload::new("audit")?.arg(&file).arg("--receipts").arg(&folder.file("receipts"));
    let output = audit.arg("--json").arg(&json).with(|launch| launch.words(words)).run()?;
    let text = fs::read_to_string(&json).with_context(|| output.described())?;
    Ok((output, serde_json::from_str(&text)?))
}

fn ensure_found(
    folder: &TemporaryFolder,
    stored: &[u8],
    counts: [u64; 4],
    finding: AuditFinding,
    line: Option<u64>,
) -> Result<()> {
    let (output, result) = audit_of(folder, stored, "")?;
    let AuditResult { lost, duplicated, corrupt, out_of_order, .. } = result;
    let told = output.described();
    ensure!([lost, duplicated, corrupt, out_of_order] == counts, "expected {counts:?}: {told}");
    ensure!(output.code == Some(i32::from(counts[..3] != [0; 3])), "{told}");
    let found: Vec<_> = result.examples.iter().filter(|example| example.finding == finding).collect();
    ensure!(found.len() == 1 && found[0].line == line, "{finding:?} in line {line:?}: {told}");
    Ok(())
}

#[test]
fn an_audit_finds_each_damage_exactly() -> Result<()> {
    let listener = BodyLog::start()?;
    let load = listener.load("--events --users 1 --loops 300")?.run()?;
    load.counted(0)?;
    let (folder, stored) = listener.end()?;
    let (output, result) = audit_of(&folder, &stored, "")?;
    ensure!(output.code == Some(0) && result.stored == 300, "{}", output.described());
    ensure!(result.sent.acknowledged == 300 && result.out_of_order == 0, "{result:?}");

    let lines: Vec<&[u8]> = stored.split_inclusive(|&byte| byte == b'\n').collect();
    ensure!(lines.len() == 300, "{} lines", lines.len());
    let mut removed = lines.clone();
    removed.remove(99);
    ensure_found(&folder, &removed.concat(), [1, 0, 0, 0], AuditFinding::Lost, None)?;
    let mut doubled = lines.clone();
    doubled.insert(150, lines[99]);
    ensure_found(&folder, &doubled.concat(), [0, 1, 0, 0], AuditFinding::Duplicated, Some(151))?;
    let mut flipped = stored.clone();
    flipped[lines[..99].concat().len() + 20] ^= 1;
    ensure_found(&folder, &flipped, [1, 0, 1, 0], AuditFinding::Corrupt, Some(100))?;
    let torn = &stored[..stored.len() - 50];
    ensure_found(&folder, torn, [1, 0, 1, 0], AuditFinding::Corrupt, Some(300))?;
    let mut swapped = lines.clone();
    swapped.swap(99, 100);
    ensure_found(&folder, &swapped.concat(), [0, 0, 0, 1], AuditFinding::OutOfOrder, Some(101))?;

    // nginx names no level: what it acknowledged is held to its promise at every level.
    let (output, result) = audit_of(&folder, b"", "--level synced")?;
    ensure!(output.code == Some(1) && result.lost == 300, "{}", output.described());
    Ok(())
}

#[test]
fn several_events_a_request_from_several_processes_are_all_found() -> Result<()> {
    for words in ["--events-per-request 7", "--events-per-request 7 --as array --idempotency --ack written"] {
        let listener = BodyLog::start()?;
        let load = listener.load("--events --users 6 --loops 20 --processes 2 --threads 2 --no-keepalive")?;
        load.with(|launch| launch.words(words)).run()?.counted(0)?;
        let (folder, stored) = listener.end()?;
        let (output, result) = audit_of(&folder, &stored, "")?;
        ensure!(output.code == Some(0) && result.stored == 6 * 20 * 7, "{words}: {}", output.described());
    }
    Ok(())
}

#[test]
fn an_interrupted_load_leaves_whole_receipts_and_a_killed_one_says_so() -> Result<()> {
    for (signal, load_code, audit_code) in [(Signal::INT, Some(130), 0), (Signal::KILL, None, 3)] {
        let listener = BodyLog::start()?;
        let mut running = listener.load("--events --users 4 --duration 1h")?.start()?;
        let receipts = listener.folder.path().join("stored.log");
        until("something is stored", || fs::metadata(&receipts).is_ok_and(|about| about.len() >= 20_000));
        // An event is under way at the end: nginx has stopped, and leaves unread what it is sent.
        let worker = children_of(listener.process.pid());
        let worker =
            Pid::from_raw(worker.first().context("no worker")?.cast_signed()).context("no number")?;
        kill_process(worker, Signal::STOP)?;
        until("an event is unread", || {
            testing::unread_bytes(listener.address).iter().any(|&bytes| bytes > 0)
        });
        running.process.signal(signal);
        let status = running.process.wait(PATIENCE);
        kill_process(worker, Signal::CONT)?;
        let status = status?.context("the load did not end")?;
        ensure!(status.code() == load_code, "{signal:?}: {status:?}");
        let (folder, stored) = listener.end()?;
        let (output, result) = audit_of(&folder, &stored, "")?;
        ensure!(output.code == Some(audit_code), "{signal:?}: {}", output.described());
        ensure!((result.unaccounted > 0) == (audit_code == 3), "{signal:?}: {result:?}");
    }
    Ok(())
}

#[test]
fn receipts_are_never_mixed_and_a_wrong_call_is_told() -> Result<()> {
    let listener = BodyLog::start()?;
    listener.load("--events --users 1 --loops 5")?.run()?.counted(0)?;
    let again = listener.load("--events --users 1 --loops 5 --json /dev/null")?.run()?;
    ensure!(again.code == Some(2) && again.stderr.contains("another run"), "{}", again.described());
    let (folder, _) = listener.end()?;
    let nowhere = Proofload::new("audit /nowhere/at/all --receipts")?.arg(&folder.file("receipts")).run()?;
    ensure!(nowhere.code == Some(2) && nowhere.stderr.contains("/nowhere/at/all"), "{}", nowhere.described());
    let empty = Proofload::new("audit")?
        .arg(&folder.file("stored.log"))
        .arg("--receipts")
        .arg(&folder.file(""))
        .run()?;
    ensure!(empty.code == Some(3), "{}", empty.described());
    Ok(())
}

#[test]
fn events_that_are_refused_at_first_are_made_again() -> Result<()> {
    let serve = Serve::start("--misbehave error=0.2")?;
    let load = Proofload::http(&serve.url(), "--events --users 4 --loops 50 --retries 20 -q")?.run()?;
    let trial = load.counted(0)?;
    ensure!(trial.counts.completed == 200 && trial.counts.retried > 10, "{}", load.described());
    ensure!(trial.counts.sent == 200 + trial.counts.retried, "{}", load.described());
    serve.stop()?;
    Ok(())
}
