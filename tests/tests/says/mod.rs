//! What is said first: the answer, or why there is none.

use std::{net::TcpListener, path::Path};

use anyhow::{Result, ensure};
use proofload_tests::{
    Nginx, NginxOptions, Output, Proofload, Serve, nginx::free_address, temporary::TemporaryFolder,
};

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
    // A last answer that comes late lengthens the time, and the rate is 199-point-something.
    trial(&url, "-R 200 -c 8 -d 1s", 0, " requests/s for 1 s: p")?;
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

#[test]
fn a_target_that_hangs_is_not_told_by_its_speed_before() -> Result<()> {
    let _shared = beside_others();
    // Each of 4 users meets an answer that never comes within its first thousand.
    let serve = Serve::start("--delay 1ms --misbehave silent=1%")?;
    let output = Proofload::http(&serve.url(), "-u 4 -d 3s --drain 500ms -q")?.run()?;
    let trial = output.trial_even_if_crowded(1)?;
    ensure!(trial.counts.in_flight == 4 && trial.counts.hung == 4, "{}", output.described());
    ensure!(trial.measured_s >= 2.9, "over {} s: {}", trial.measured_s, output.described());
    let expected = trial.counts.completed as f64 / trial.measured_s;
    ensure!((trial.throughput_per_s / expected - 1.0).abs() < 0.01, "{}", output.described());
    // A search does not find that it carries its users without an error.
    let folder = TemporaryFolder::new()?;
    let words = "--errors 0.1% --min 2 --max 4 --trial 2s --repeats 1 --budget 20s -q";
    let limit = format!("limit users {} {words} --out {}", serve.url(), folder.file("result"));
    let output = Proofload::new(&limit)?.run()?;
    ensure!(!output.stdout.contains("Carries at least 4 users"), "{}", output.described());
    // Slow answers that the end cuts off are no errors.
    let slow = Serve::start("--delay 1500ms")?;
    let output = Proofload::http(&slow.url(), "-u 4 -d 2s --drain 100ms -q")?.run()?;
    let trial = output.trial_even_if_crowded(1)?;
    ensure!(trial.counts.in_flight == 4 && trial.counts.hung == 0, "{}", output.described());
    ensure!(trial.measured_s < 1.9, "over {} s: {}", trial.measured_s, output.described());
    Ok(())
}

#[test]
fn connections_go_to_each_address_in_turn_and_the_one_that_fails_is_named() -> Result<()> {
    let _shared = beside_others();
    let (first, second) = (Serve::start("")?, Serve::start("")?);
    let address = |serve: &Serve| serve.url().trim_start_matches("http://").trim_end_matches('/').to_owned();
    let (one, two, closed) = (address(&first), address(&second), free_address()?);
    let run = |to: &str| {
        Proofload::http("http://example.test/", &format!("-u 1 -n 30 --no-keepalive -q --connect-to {to}"))?
            .run()
    };
    let output = run(&format!("{one},{two}"))?;
    ensure!(output.trial_even_if_crowded(0)?.counts.completed == 30, "{}", output.described());
    let output = run(&format!("{one},{closed}"))?;
    let trial = output.trial_even_if_crowded(1)?;
    ensure!(
        trial.counts.failed == 15 && output.stdout.contains(&format!("nothing listens at {closed}")),
        "{}",
        output.described()
    );
    let counts = [first.stop()?.requests, second.stop()?.requests];
    ensure!(counts == [30, 15], "{counts:?}");
    Ok(())
}
