//! What is said first: the answer, or why there is none.

use std::{net::TcpListener, path::Path};

use anyhow::{Result, ensure};
use proofload_tests::{Nginx, NginxOptions, Output, Proofload, Serve, temporary::TemporaryFolder};

use super::{beside_others, run};

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// A search that is refused with these words, and has left nothing behind.
fn is_refused(url: &str, words: &str, told: &str) -> Result<()> {
    let folder = TemporaryFolder::new()?;
    let line =
        format!("limit rate --p99 10ms --trial 1s --budget 5s {words} --out {}", folder.file("result"));
    let output = Proofload::new(&line)?.arg(url).run()?;
    ensure!(output.code == Some(2) && output.stdout.is_empty(), "{}", output.described());
    ensure!(first_line(&output.stderr).contains(told), "{told}: {}", output.described());
    ensure!(!Path::new(&folder.file("result")).exists(), "{url}: a folder was left");
    Ok(())
}

#[test]
fn what_one_request_can_tell_is_told_before_a_search() -> Result<()> {
    let _shared = beside_others();
    is_refused("http://127.0.0.1:1/", "", "nothing listens at 127.0.0.1:1 (connection refused)")?;
    is_refused("http://no-such-host.invalid/", "", "cannot find the address of 'no-such-host.invalid'")?;
    let nginx = Nginx::start(&NginxOptions::default())?;
    is_refused(
        &nginx.url("/").replace("http", "https"),
        "",
        "does not speak TLS; its plain port needs http://",
    )?;
    is_refused(&nginx.url("/no-such-page"), "", "answered 404, not 200-399 (--expect)")?;
    is_refused(&nginx.url("/"), "--expect 204", "answered 200, not 204 (--expect)")?;
    // Its connections are made by the kernel, and nobody reads them.
    let silent = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}/", silent.local_addr()?);
    is_refused(&url, "--timeout 300ms", "gave no complete answer within 300 ms")
}

#[test]
fn a_target_that_answers_some_requests_with_errors_is_searched() -> Result<()> {
    let _shared = beside_others();
    let serve = Serve::start("--misbehave error=40%")?;
    let folder = TemporaryFolder::new()?;
    let words = format!(
        "limit rate --errors 60% --max 200 --trial 1s --repeats 1 --out {} -q",
        folder.file("result")
    );
    let output = Proofload::new(&words)?.arg(&serve.url()).run()?;
    ensure!(matches!(output.code, Some(0 | 3)), "{}", output.described());
    serve.stop()?;
    Ok(())
}

/// A target of a study is asked from the host that the load comes from.
#[test]
fn a_target_of_a_study_is_asked_once_it_is_up() -> Result<()> {
    let _shared = beside_others();
    let folder = TemporaryFolder::new()?;
    let study = r#"
title = "nothing there"
[hosts]
client = {}
web = {}
[[links]]
between = ["client", "web"]
[targets.nginx]
on = "web"
run = "nginx"
[workload.http]
from = "client"
path = "/no-such-page"
[search]
vary = "rate"
min = 10
max = 1000
trial = "1s"
[[goals]]
p99 = "10ms"
"#;
    std::fs::write(folder.file("study.toml"), study)?;
    let words = format!("run {} --out {} -q", folder.file("study.toml"), folder.file("result"));
    let output = Proofload::new(&words)?.run()?;
    ensure!(output.code == Some(2), "{}", output.described());
    let first = first_line(&output.stdout);
    ensure!(first.starts_with("Not decided: ") && first.contains("answered 404"), "{}", output.described());
    let junit = std::fs::read_to_string(folder.path().join("result/junit.xml"))?;
    ensure!(junit.contains(first), "{junit}");
    Ok(())
}

fn trial(url: &str, words: &str, code: i32, first: &str) -> Result<Output> {
    let output = run(url, words)?;
    let is_void = output.code == Some(3) && first_line(&output.stdout).starts_with("Not decided: ");
    let said = output.code == Some(code) && first_line(&output.stdout).contains(first);
    ensure!(said || is_void, "{first}: {}", output.described());
    Ok(output)
}

#[test]
fn one_sentence_answers_a_trial() -> Result<()> {
    let _shared = beside_others();
    let serve = Serve::start("--delay 1ms")?;
    let url = serve.url();
    trial(&url, "-R 200 -c 8 -d 1s", 0, "Carried 200 requests/s for 1 s: p")?;
    trial(&url, "-c 4 -d 1s", 0, " requests/s with 4 users for 1 s: p")?;
    trial("http://127.0.0.1:1/", "-n 10 -c 1", 1, "Carried nothing: nothing listens at 127.0.0.1:1")?;
    let output = trial(&url, "-n 10 -c 1 --expect 204", 1, "answered 200, not 204 (--expect)")?;
    ensure!(output.stdout.contains("Statuses     200: 10"), "{}", output.described());
    serve.stop()?;
    Ok(())
}

#[test]
fn what_is_void_is_not_decided() -> Result<()> {
    let _shared = beside_others();
    let serve = Serve::start("")?;
    let output = run(&serve.url(), "-R 100 -c 4 -d 1s --inject-fault drop:2")?;
    ensure!(output.code == Some(3), "{}", output.described());
    ensure!(first_line(&output.stdout).starts_with("Not decided: "), "{}", output.described());
    ensure!(
        output.stdout.trim_end().ends_with("no connection failed: not decided."),
        "{}",
        output.described()
    );
    serve.stop()?;
    Ok(())
}
