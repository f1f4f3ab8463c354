//! The ways to a target: a Unix socket, a proxy's tunnel, the PROXY protocol; and how long connections are used.

use std::{
    fs,
    net::{SocketAddr, TcpStream},
    os::unix::net::{UnixListener, UnixStream},
};

use anyhow::{Result, ensure};
use proofload_tests::{
    Nginx, NginxOptions, Proofload, Serve,
    nginx::Secure,
    process::{Launch, Process},
    temporary::TemporaryFolder,
};
use record::ErrorClass;
use rustix::process::Signal;
use testing::{unread_bytes, until};

use super::{beside_others, completed, own_address, run};

/// HAProxy with frontends that answer by themselves, each with the address that it takes for the client's.
fn haproxy(folder: &TemporaryFolder, binds: &[String]) -> Result<Process> {
    let mut text =
        "defaults\n mode http\n timeout client 5m\n timeout connect 5m\n timeout server 5m\n".to_owned();
    for (number, bind) in binds.iter().enumerate() {
        text += &format!(
            "frontend f{number}\n bind {bind}\n http-request return status 200 hdr X-Source \"%[src]\" \
             content-type text/plain string hello\n"
        );
    }
    let file = folder.file("haproxy.cfg");
    fs::write(&file, text)?;
    Launch::new("haproxy").args(["-db", "-f", &file]).start()
}

fn listens(what: &str, address: SocketAddr) {
    until(what, || TcpStream::connect(address).is_ok());
}

#[test]
fn a_unix_socket_leads_to_the_target() -> Result<()> {
    let _shared = beside_others();
    let folder = TemporaryFolder::new()?;
    let path = folder.file("app.sock");
    let told = folder.file("told.sock");
    let _haproxy = haproxy(&folder, &[format!("unix@{path}"), format!("unix@{told} accept-proxy")])?;
    until("HAProxy listens", || UnixStream::connect(&path).is_ok() && UnixStream::connect(&told).is_ok());
    // The name of the URL leads nowhere.
    let url = "http://nowhere.invalid/";
    for (words, requests) in
        [("-c 4 -n 400", 400), ("-c 4 -n 100 --no-keepalive", 100), ("-R 500 -n 500", 500)]
    {
        let output = run(url, &format!("--unix-socket {path} {words}"))?;
        let trial = completed(&output, requests)?;
        ensure!(trial.plan.targets.is_empty(), "{:?}", trial.plan.targets);
    }
    let output = run(url, &format!("--unix-socket {path} -c 2 -n 50 --proxy-protocol"))?;
    // It answers the line, before or after the request has been sent.
    let trial = if output.code == Some(2) { output.unanswered()? } else { output.counted(1)? };
    let failed = trial.counts.failed;
    ensure!(failed == 50, "this frontend takes no such line: {}", output.described());
    completed(&run(url, &format!("--unix-socket {told} -c 2 -n 50 --proxy-protocol"))?, 50)?;
    let output = run(url, &format!("--unix-socket {} -n 5 -c 1", folder.file("missing.sock")))?;
    ensure!(
        output.code == Some(2) && output.stderr.contains("missing.sock does not exist"),
        "{}",
        output.described()
    );
    // One whose listener has gone.
    let gone = folder.file("gone.sock");
    drop(UnixListener::bind(&gone)?);
    let output = run(url, &format!("--unix-socket {gone} -n 5 -c 1"))?;
    let trial = output.unanswered()?;
    ensure!(trial.errors.of(ErrorClass::ConnectRefused) == 5, "{}", output.described());
    let output = run(url, &format!("--unix-socket {path} --connect-to 127.0.0.1:1 -n 5"))?;
    ensure!(output.code == Some(2) && output.stderr.contains("--connect-to: "), "{}", output.described());
    Ok(())
}

#[test]
fn a_name_leads_to_the_address_that_accepts() -> Result<()> {
    let _shared = beside_others();
    let (folder, serve) = (TemporaryFolder::new()?, Serve::start("")?);
    let address: SocketAddr = serve.addresses()[0].parse()?;
    let hosts = folder.file("hosts");
    fs::write(&hosts, "::1 two.test\n127.0.0.1 two.test\n")?;
    // Names of our own, which nothing else on the machine sees.
    let named = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
    let under = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", named, &hosts];
    let called = |words: &str| {
        let (words, curl) = words.split_once(" -- ").unwrap_or((words, ""));
        let call = Proofload::new(words)?.with(|launch| launch.under(under));
        if curl.is_empty() { call.run() } else { call.arg("--curl").arg(curl).run() }
    };
    let (up, closed) = (format!("two.test:{}", address.port()), own_address()?.port());
    let words = "-n 20 -c 2 -q --timeout 5m";
    for line in [
        format!("http http://{up}/ {words}"),
        format!("http http://other.test/ --connect-to {up} {words}"),
        format!("http http://{up}/ --address all {words}"),
        format!("http {words} -- curl http://{up}/"),
        format!("ab -n 20 -c 2 -q http://{up}/"),
    ] {
        let output = called(&line)?;
        ensure!(output.counted(0)?.counts.completed == 20, "{}", output.described());
        ensure!(output.stderr.contains(&format!("using {address} for {up}")), "{}", output.described());
    }
    ensure!(serve.stop()?.requests == 100, "the tries are no requests");
    let output = called(&format!("http http://two.test:{closed}/ -n 5 -c 1 -q"))?;
    let told = format!("no address of two.test:{closed} accepts a connection: ");
    ensure!(output.code == Some(2) && output.stderr.contains(&told), "{}", output.described());
    for tried in [format!("[::1]:{closed} ("), format!("127.0.0.1:{closed} (connection refused)")] {
        ensure!(output.stderr.contains(&tried), "{tried}: {}", output.described());
    }
    let limit =
        format!("limit rate http://two.test:{closed}/ --errors 0 --max 100 --out {}", folder.file("out"));
    let output = called(&limit)?;
    ensure!(output.code == Some(2) && output.stderr.contains(&told), "{}", output.described());
    Ok(())
}

#[test]
fn the_line_of_the_proxy_protocol_tells_the_connections_own_address() -> Result<()> {
    let _shared = beside_others();
    let folder = TemporaryFolder::new()?;
    let nginx = Nginx::start(&NginxOptions { secure: Some(Secure::Usual), ..Default::default() })?;
    let authority = nginx.authority_file();
    let both = [
        fs::read(authority.replace("ca.pem", "cert.pem"))?,
        fs::read(authority.replace("ca.pem", "key.pem"))?,
    ];
    fs::write(folder.file("both.pem"), both.concat())?;
    let (plain, secure) = (own_address()?, own_address()?);
    let binds = [
        format!("{plain} accept-proxy"),
        format!("{secure} accept-proxy ssl crt {}", folder.file("both.pem")),
    ];
    let _haproxy = haproxy(&folder, &binds)?;
    listens("HAProxy listens", secure);
    for url in [format!("http://{plain}/"), format!("https://{secure}/")] {
        let words = format!(
            "-c 3 -n 30 -t 1 --proxy-protocol --source 127.0.0.7 {}",
            if url.starts_with("https") { "--insecure" } else { "" }
        );
        let output = run(&url, &format!("{words} --expect header:X-Source=127.0.0.7"))?;
        completed(&output, 30)?;
        // The control: without the line, HAProxy takes no request.
        let output = run(&url, &words.replace("--proxy-protocol", ""))?;
        let trial = output.unanswered()?;
        ensure!(trial.counts.failed == 30, "{}", output.described());
    }
    Ok(())
}

#[test]
fn tunnels_of_a_real_proxy_carry_plain_requests_and_tls() -> Result<()> {
    let _shared = beside_others();
    let folder = TemporaryFolder::new()?;
    let nginx = Nginx::start(&NginxOptions { secure: Some(Secure::Usual), ..Default::default() })?;
    let (proxy, closed) = (own_address()?, own_address()?);
    let log = folder.file("log");
    let config = format!(
        "Port {}\nListen {}\nTimeout 600\nMaxClients 50\nLogFile \"{log}\"\nLogLevel Connect\nBasicAuth ann secret\n",
        proxy.port(),
        proxy.ip()
    );
    fs::write(folder.file("tinyproxy.conf"), config)?;
    let mut tinyproxy =
        Launch::new("tinyproxy").args(["-d", "-c", &folder.file("tinyproxy.conf")]).start()?;
    listens("tinyproxy listens", proxy);
    // It begins its log after it listens.
    until("tinyproxy has a log", || fs::exists(&log).unwrap_or(false));
    let tunnels = || -> Result<usize> { Ok(fs::read_to_string(&log)?.matches(": CONNECT ").count()) };
    let trusted = format!("--cacert {}", nginx.authority_file());
    for (url, words) in [(nginx.secure_url("/"), trusted.as_str()), (nginx.url("/"), "")] {
        let before = tunnels()?;
        let output = run(&url, &format!("-x http://ann:secret@{proxy} -c 4 -n 200 {words}"))?;
        let trial = completed(&output, 200)?;
        ensure!(trial.counts.received_body_bytes == 200 * 13, "{}", output.described());
        ensure!(tunnels()? - before == 4, "{} tunnels: {}", tunnels()? - before, fs::read_to_string(&log)?);
        ensure!(!output.stdout.contains("secret"), "{}", output.described());
        let kept = serde_json::to_string(&trial.plan)?;
        ensure!(!kept.contains("secret") && !kept.contains("YW5uOnNlY3JldA"), "{kept}");
    }
    for login in ["", "ann:wrong@"] {
        let output = run(&nginx.url("/"), &format!("-x http://{login}{proxy} -c 1 -n 5"))?;
        let trial = output.unanswered()?;
        ensure!(trial.errors.of(ErrorClass::ProxyLogin) == 5, "{}", output.described());
        ensure!(output.stderr.contains("requires a login"), "{}", output.described());
    }
    // Nothing listens where the tunnel leads.
    let output = run(&format!("http://{closed}/"), &format!("-x http://ann:secret@{proxy} -c 1 -n 5"))?;
    ensure!(output.unanswered()?.errors.of(ErrorClass::ProxyUnreachable) == 5, "{}", output.described());
    // The kernel still takes connections for a proxy that has stopped.
    tinyproxy.signal(Signal::STOP);
    let output = run(&nginx.url("/"), &format!("-x http://ann:secret@{proxy} -c 2 -n 4 --timeout 5s"))?;
    tinyproxy.signal(Signal::CONT);
    let trial = output.unanswered()?;
    ensure!(trial.errors.of(ErrorClass::ProxyTimeout) == 4, "{}", output.described());
    Ok(())
}

#[test]
fn connections_live_as_long_as_they_are_told() -> Result<()> {
    let _shared = beside_others();
    let serve = Serve::start("")?;
    let output = run(&serve.url(), "-u 4 --loops 100 --connection-requests 10")?;
    ensure!(completed(&output, 400)?.counts.reconnects == 0, "the target has closed nothing");
    ensure!(serve.stop()?.connections_accepted == 40, "10 requests on each of 40 connections");
    let serve = Serve::start("")?;
    // These take at least two seconds, however slow the machine is.
    let output = run(&serve.url(), "-c 2 -R 20 -n 40 --connection-lifetime 100ms")?;
    let opened = completed(&output, 40)?.counts.connections_opened;
    let address = serve.addresses()[0].parse()?;
    until("the target has seen the end of all connections", || unread_bytes(address).is_empty());
    let accepted = serve.stop()?.connections_accepted;
    ensure!(opened == accepted && opened > 2, "{opened}, {accepted}: {}", output.described());
    Ok(())
}

#[test]
fn an_answer_that_takes_too_long_fails_before_the_whole_request_would() -> Result<()> {
    let _shared = beside_others();
    let serve = Serve::start("--delay 1h")?;
    let output = run(&serve.url(), "-c 2 -n 6 --answer-timeout 100ms")?;
    let trial = output.counted(1)?;
    ensure!(trial.errors.of(ErrorClass::Timeout) == 6, "{}", output.described());
    ensure!(output.stdout.contains("within 100 ms"), "{}", output.described());
    let serve = Serve::start("--delay 400ms")?;
    completed(&run(&serve.url(), "-c 2 -n 4 --answer-timeout 4m")?, 4)?;
    Ok(())
}

#[test]
fn a_connection_that_ends_between_steps_neither_repeats_nor_hurries_them() -> Result<()> {
    let _shared = beside_others();
    let folder = TemporaryFolder::new()?;
    let record = folder.file("record.jsonl");
    let serve = Serve::start(&format!("--record {record}"))?;
    let (study, out) = (folder.file("study.toml"), folder.file("out"));
    // An open load with a pool: a lost connection is opened again at once, and a step waits for its pause.
    let text = format!(
        "title = \"t\"\n[workload.http]\nurl = \"{}\"\nrate = 50\nrequests = 50\nconnections = 8\ndrain = \"5m\"\ntimeout = \"5m\"\nconnection_requests = 1\n\
         [[workload.http.steps]]\nrequest = \"GET /a\"\npause = \"40ms\"\n[[workload.http.steps]]\nrequest = \"GET /b\"\n[trial]\nvoid_attempts = 0\n",
        serve.url()
    );
    fs::write(&study, text)?;
    let output = Proofload::new(&format!("run {study} --out {out} -q"))?.run()?;
    // Whether its times may be believed is another matter.
    ensure!(output.code != Some(2), "{}", output.described());
    let report = serve.stop()?;
    let targets = fs::read_to_string(&record)?;
    let count = |target: &str| targets.matches(&format!("\"target\":\"{target}\"")).count();
    ensure!((count("/a"), count("/b")) == (50, 50), "{} and {} requests", count("/a"), count("/b"));
    ensure!(report.connections_accepted >= 100, "{} connections", report.connections_accepted);
    Ok(())
}
