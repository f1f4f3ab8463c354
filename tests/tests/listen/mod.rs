//! The data listener from outside: what it stores, what it answers, and how it is run as a service.

mod access;
mod running;
mod service;

use std::{fs, net::TcpStream, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use proofload_tests::{Proofload, temporary::TemporaryFolder};
use rustix::process::Signal;
use testing::{
    PATIENCE, find,
    http::{Answer, Client, exchange, get, post_json},
    until,
};

use self::running::{Running, command};

/// The event of the reference test.
const EVENT: &str = r#"{"board_id":10,"playtime":5,"minimum_play":"Y","timestamp":"2019-11-12T10:00:01Z","user_id":1,"interest":100}"#;

/// The configuration of the reference test.
const FLUENTD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../studies/http-listener/fluentd.conf");

/// The line that a receipt names.
fn line_at(answer: &Answer, folder: &Path) -> Result<String> {
    let receipt = &answer.receipts()[0];
    let text = fs::read(folder.join(&receipt.segment))?;
    let line = text.get(receipt.offset..receipt.offset + receipt.bytes);
    let line = line.context("the receipt points behind the file's end")?;
    Ok(String::from_utf8(line.to_vec())?)
}

#[test]
fn events_are_stored_where_the_receipt_says() -> Result<()> {
    let listen = Running::start("--path stored/${tag}.%Y-%m-%d.log --route /audit=synced")?;
    let stored = listen.folder.path().join("stored");
    for (path, words, status, level) in [
        ("/web/clicks", "", 204, "written"),
        ("/web/clicks", "-H Proofload-Ack:accepted", 202, "accepted"),
        ("/web/clicks", "-H Proofload-Ack:synced", 204, "synced"),
        ("/audit/login", "", 204, "synced"),
    ] {
        let answer = listen.post(path, EVENT, words)?;
        ensure!(answer.status == status && answer.receipts()[0].level == level, "{path} {words}: {answer:?}");
        if level != "accepted" {
            let line = line_at(&answer, &stored)?;
            let tag = path[1..].replace('/', ".");
            ensure!(
                line.ends_with(&format!("\t{tag}\t{EVENT}\n")) && line.matches('\n').count() == 1,
                "{line:?}"
            );
        }
    }
    let several = format!("{EVENT}\n{EVENT}\n");
    let answer = listen.post("/web/several", &several, "-H Content-Type:application/x-ndjson")?;
    ensure!(answer.status == 204 && line_at(&answer, &stored)?.lines().count() == 2, "{answer:?}");
    let broken = listen.post("/web/broken", "{\"a\":1}\n{\"a\":", "")?;
    ensure!(broken.status == 400 && broken.text().contains("\"line\":2"), "{broken:?}");
    let (finished, report) = listen.stop()?;
    ensure!(finished.code == Some(0), "{finished:?}");
    ensure!(report["statistics"]["events"]["written"] == 3, "{report}");
    ensure!(report["statistics"]["events"]["synced"] == 2, "{report}");
    ensure!(finished.stderr.contains("storing in stored/${tag}.%Y-%m-%d.log"), "{}", finished.stderr);
    Ok(())
}

#[test]
fn connections_that_are_turned_away_leave_the_storage_its_descriptors() -> Result<()> {
    let words = "--path stored/${tag}.log --open-files 8 --idle-timeout 1h";
    let mut listen = Running::start_as(TemporaryFolder::new()?, words, |launch| launch.descriptors(128))?;
    let mut seated = Client::connect(&listen.address)?;
    ensure!(seated.post("/first", "{}").status == 204);
    // It lingers for two seconds with those that it has told, and closes further ones at once. On a slow machine some may be gone
    // before the last one comes.
    let crowd = || {
        let mut clients: Vec<_> = (0..150).flat_map(|_| Client::connect(&listen.address)).collect();
        let mut ask = |client: &mut Client| {
            client.ask(&post_json("/crowd", "", b"{}")).map_or(0, |answer| answer.status)
        };
        let statuses: Vec<u16> = clients.iter_mut().map(&mut ask).collect();
        [204, 503, 0].iter().all(|status| statuses.contains(status)).then_some(clients)
    };
    let idle = find(PATIENCE, crowd)
        .context("no crowd of which some are seated, some told and some closed at once")?;
    for number in 0..20 {
        let answer = seated.post(&format!("/later{number}"), "{}");
        ensure!(answer.status == 204, "{number}: {answer:?}");
    }
    drop(idle);
    ensure!(listen.process.is_running());
    let (finished, report) = listen.stop()?;
    ensure!(finished.code == Some(0) && report["statistics"]["accept_errors"] == 0, "{finished:?} {report}");
    Ok(())
}

#[test]
fn fluentds_configuration_runs_as_it_stands() -> Result<()> {
    let listen = Running::start(&format!("--import {FLUENTD}"))?;
    let mut client = Client::connect(&listen.address)?;
    let expected =
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n";
    for _ in 0..2 {
        let answer = client.post("/http_listener_test", EVENT);
        ensure!(answer.whole() == expected, "{answer:?}");
    }
    let (name, text) = listen.stored(".log")?;
    let file = name.rsplit('/').next().unwrap_or_default();
    let date = file.strip_prefix("http_listener_test_").and_then(|rest| rest.strip_suffix(".log"));
    ensure!(name.contains("/output/") && date.is_some_and(|date| date.len() == 10), "{name}");
    for line in text.lines() {
        let (time, event) = line.split_once('\t').context("a line has a time and an event")?;
        // 2020-01-13T17:52:09+09:00
        ensure!(time.len() == 25 && &time[10..11] == "T" && &time[22..23] == ":", "{line}");
        ensure!(event == EVENT, "{line}");
    }
    ensure!(text.lines().count() == 2 && text.ends_with('\n'), "{text}");
    let other = listen.post("/other", EVENT, "")?;
    ensure!(other.status == 404, "no <match> takes it: {other:?}");
    let (finished, _) = listen.stop()?;
    ensure!(
        finished.code == Some(0) && finished.stderr.contains("flush_interval has no effect here"),
        "{finished:?}"
    );
    Ok(())
}

#[test]
fn every_mistake_in_every_source_is_told_with_its_place() -> Result<()> {
    let folder = TemporaryFolder::new()?;
    fs::write(
        folder.path().join("f.toml"),
        "listen = \"here\"\nmax_bdy = 1\n\nack = \"often\"\nidle_timeout = 5\n",
    )?;
    fs::write(
        folder.path().join("fluentd.conf"),
        "<source>\n  @type http\n  prot 1\n</source>\n<filter **>\n</filter>\n<match **>\n  @type file\n</match>\n",
    )?;
    let words = "--config f.toml --import fluentd.conf --budget much --tls-key k.pem --route audit=synced \
                 --bearer-token-file nowhere";
    let finished = command(&folder, words)?.run(PATIENCE)?;
    ensure!(finished.code == Some(2) && finished.stdout.is_empty(), "{finished:?}");
    for mistake in [
        "f.toml:1:10: listen: 'here' is not an address",
        "f.toml:2:1: unknown key 'max_bdy'; did you mean 'max_body'?",
        "f.toml:4:7: ack: 'often' is not known here (known: accepted, written, synced)",
        "f.toml:5:16: expected a time in quotes",
        "fluentd.conf:3:3: unknown parameter 'prot' in <source>; did you mean 'port'?",
        "fluentd.conf:5:1: <filter> is not supported",
        "fluentd.conf:7:1: path is missing",
        "--budget: 'much' is not a size",
        "--tls-key needs --tls-cert",
        "--route: the path 'audit' does not begin with /",
        "--bearer-token-file: cannot read nowhere",
    ] {
        ensure!(finished.stderr.contains(mistake), "{mistake} is not told:\n{}", finished.stderr);
    }
    ensure!(finished.stderr.lines().count() == 11, "{}", finished.stderr);
    Ok(())
}

#[test]
fn settings_are_checked_without_being_used() -> Result<()> {
    let folder = TemporaryFolder::new()?;
    fs::write(folder.path().join("f.toml"), "listen = \"127.0.0.1:1\"\npath = \"a/${tag}.txt\"\n")?;
    let finished = command(&folder, "--config f.toml --check --listen 127.0.0.1:2")?.run(PATIENCE)?;
    ensure!(finished.code == Some(0), "{finished:?}");
    let said = "the listener would listen on 127.0.0.1:2 and store in a/${tag}.txt";
    ensure!(finished.stdout.contains(said), "{finished:?}");
    ensure!(fs::read_dir(folder.path())?.count() == 1, "something was made");
    Ok(())
}

#[test]
fn an_address_in_use_is_refused_with_the_next_step() -> Result<()> {
    let listen = Running::start("--accept shared")?;
    let words = format!(
        "listen --accept shared --listen {} --path {}",
        listen.address,
        listen.folder.file("b/x.log")
    );
    let output = Proofload::new(&words)?.run()?;
    ensure!(
        output.code == Some(2) && output.stderr.contains("another program listens there"),
        "{}",
        output.described()
    );
    Ok(())
}

#[test]
fn a_journal_that_others_could_write_is_not_obeyed() -> Result<()> {
    let folder = TemporaryFolder::new()?;
    let state = folder.path().join("stored/.proofload");
    fs::create_dir_all(&state)?;
    fs::set_permissions(&state, fs::Permissions::from_mode(0o777))?;
    let words = "--listen 127.0.0.1:0 --path stored/${tag[0]}/x.log";
    let refused = command(&folder, words)?.run(PATIENCE)?;
    ensure!(
        refused.code == Some(2)
            && refused.stderr.contains("can be written to by other users")
            && refused.stderr.contains("--state"),
        "{refused:?}"
    );
    ensure!(fs::read_dir(&state)?.count() == 0, "something was written");
    fs::remove_dir(&state)?;
    fs::create_dir(folder.path().join("secret"))?;
    std::os::unix::fs::symlink("../secret", &state)?;
    let refused = command(&folder, words)?.run(PATIENCE)?;
    ensure!(refused.code == Some(2) && refused.stderr.contains("is a link"), "{refused:?}");
    fs::remove_file(&state)?;
    // As earlier versions made it, with a umask of 002; and a folder of a tag that leads elsewhere.
    fs::create_dir(&state)?;
    fs::set_permissions(&state, fs::Permissions::from_mode(0o775))?;
    std::os::unix::fs::symlink("../secret", folder.path().join("stored/web"))?;
    let listen = Running::start_in(folder, "--path stored/${tag[0]}/x.log")?;
    let refused = listen.post("/web/a", EVENT, "")?;
    ensure!(refused.status == 500 && refused.text().contains("is a link"), "{refused:?}");
    ensure!(listen.post("/shop/a", EVENT, "")?.status == 204, "other tags are stored");
    ensure!(fs::read_dir(listen.folder.path().join("secret"))?.count() == 0, "it followed the link");
    ensure!(state_mode(&listen)? == 0o700);
    Ok(())
}

fn state_mode(listen: &Running) -> Result<u32> {
    let about = fs::metadata(listen.folder.path().join("stored/.proofload"))?;
    Ok(about.permissions().mode() & 0o777)
}

#[test]
fn two_listeners_do_not_share_a_journal() -> Result<()> {
    let listen = Running::start("--path stored/x.log")?;
    let words = format!("listen --listen 127.0.0.1:0 --path {}", listen.folder.file("stored/x.log"));
    let output = Proofload::new(&words)?.run()?;
    let pid = listen.process.pid().to_string();
    ensure!(output.code == Some(2) && output.stderr.contains(&pid), "{}", output.described());
    Ok(())
}

#[test]
fn what_was_acknowledged_survives_a_kill_and_the_next_start_says_so() -> Result<()> {
    let mut listen = Running::start("--path stored/x.log")?;
    for _ in 0..3 {
        ensure!(listen.post("/a", EVENT, "")?.status == 204);
    }
    listen.process.signal(Signal::KILL);
    listen.process.wait(PATIENCE)?.context("it outlived SIGKILL")?;
    let Running { process, folder, .. } = listen;
    drop(process);
    let again = Running::start_in(folder, "--path stored/x.log")?;
    ensure!(again.process.stderr().contains("recovered from an unclean end"), "{}", again.process.stderr());
    ensure!(again.post("/a", EVENT, "")?.status == 204);
    let (_, text) = again.stored("x.log")?;
    ensure!(text.lines().count() == 4 && text.lines().all(|line| line.ends_with(EVENT)), "{text}");
    Ok(())
}

#[test]
fn a_request_in_flight_is_finished_at_a_stop() -> Result<()> {
    let mut listen = Running::start("--path stored/x.log --drain-timeout 1h --body-timeout 1h")?;
    let mut client = Client::connect(&listen.address)?;
    let request = post_json("/a", "", EVENT.as_bytes());
    let (begin, rest) = request.split_at(request.len() - 20);
    client.send(begin);
    // What was sent must have been read before the stop: a listener that has seen nothing owes nothing.
    until("it is in flight", || is_in_flight(&listen));
    listen.process.signal(Signal::TERM);
    listen.wait_for("stopping")?;
    until("it takes no more connections", || TcpStream::connect(&listen.address).is_err());
    let answer = client.send(rest).answer();
    ensure!(answer.status == 204 && answer.header("Connection") == Some("close"), "{answer:?}");
    ensure!(client.is_closed());
    let finished = listen.process.finish(PATIENCE)?;
    ensure!(finished.code == Some(0), "{finished:?}");
    ensure!(fs::read_to_string(listen.folder.path().join("stored/x.log"))?.ends_with(&format!("{EVENT}\n")));
    Ok(())
}

/// Whether `/metrics` tells that something of a request is held.
fn is_in_flight(listen: &Running) -> bool {
    let page = exchange(&listen.address, &get("/metrics")).map(|page| page.text()).unwrap_or_default();
    let used = page.lines().find_map(|line| line.strip_prefix("proofload_listen_budget_used_bytes "));
    used.is_some_and(|used| used != "0")
}

#[test]
fn the_second_signal_does_not_wait_for_requests() -> Result<()> {
    let mut listen = Running::start("--path stored/x.log --drain-timeout 1h --body-timeout 1h")?;
    let mut client = Client::connect(&listen.address)?;
    client.send("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{");
    until("it is in flight", || is_in_flight(&listen));
    listen.process.signal(Signal::INT);
    listen.wait_for("stopping")?;
    ensure!(listen.process.wait(Duration::from_millis(500))?.is_none(), "it did not wait for the request");
    listen.process.signal(Signal::INT);
    let finished = listen.process.finish(PATIENCE)?;
    ensure!(finished.code == Some(130), "{finished:?}");
    Ok(())
}

#[test]
fn files_are_opened_anew_on_sighup() -> Result<()> {
    let mut listen = Running::start("--path stored/x.log")?;
    ensure!(listen.post("/a", EVENT, "")?.status == 204);
    let (file, moved) =
        (listen.folder.path().join("stored/x.log"), listen.folder.path().join("stored/x.log.1"));
    fs::rename(&file, &moved)?;
    listen.process.signal(Signal::HUP);
    listen.wait_for("reloaded")?;
    ensure!(listen.post("/a", EVENT, "-H Proofload-Ack:synced")?.status == 204);
    for path in [file, moved] {
        ensure!(fs::read_to_string(&path)?.lines().count() == 1, "{}", path.display());
    }
    let (finished, report) = listen.stop()?;
    ensure!(finished.code == Some(0) && report["statistics"]["events"]["synced"] == 1, "{report}");
    Ok(())
}

#[test]
fn the_log_is_json_when_asked_for() -> Result<()> {
    let listen = Running::start("--log json --path stored/x.log")?;
    let (finished, _) = listen.stop()?;
    let lines: Vec<serde_json::Value> = finished
        .stderr
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()
        .context(finished.stderr.clone())?;
    let first = lines.first().context("nothing was told")?;
    let message = first["message"].as_str().unwrap_or_default();
    ensure!(message.starts_with("listening on ") && first["level"] == "INFO", "{first}");
    ensure!(lines.iter().all(|line| line["timestamp"].is_string()), "{}", finished.stderr);
    Ok(())
}
