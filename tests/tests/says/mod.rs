//! What is said first: the answer, or why there is none.

use std::{net::TcpListener, path::Path};

use anyhow::{Context, Result, ensure};
use proofload_tests::{Nginx, NginxOptions, Output, Proofload, Serve, temporary::TemporaryFolder};
use record::ResultFolder;
use rustix::process::Signal;
use testing::until;

use super::{beside_others, own_address, run};

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// A search that is refused with these words, and has left nothing behind.
fn is_refused(search: Proofload, told: &str) -> Result<()> {
    let folder = TemporaryFolder::new()?;
    let output = search.with(|launch| launch.arg("--out").arg(folder.file("result"))).run()?;
    ensure!(output.code == Some(2) && output.stdout.is_empty(), "{}", output.described());
    ensure!(first_line(&output.stderr).contains(told), "{told}: {}", output.described());
    ensure!(!Path::new(&folder.file("result")).exists(), "{told}: a folder was left");
    Ok(())
}

#[test]
fn what_one_request_can_tell_is_told_before_a_search() -> Result<()> {
    let _shared = beside_others();
    // A request may take as long as a trial and its drain.
    let search = |url: &str, words: &str| {
        Proofload::new(&format!("limit rate --p99 10ms --trial 1s --drain 5m --budget 5s {words} {url}"))
    };
    let refused = search("http://127.0.0.1:1/", "")?;
    is_refused(refused, "nothing listens at 127.0.0.1:1 (connection refused)")?;
    // In a network without another machine, nobody is asked for the address.
    let alone = ["unshare", "--user", "--net"];
    let unknown = search("http://no-such-host.invalid/", "")?.with(|launch| launch.under(alone));
    is_refused(unknown, "cannot find the address of 'no-such-host.invalid'")?;
    let nginx = Nginx::start(&NginxOptions::default())?;
    let secure = search(&nginx.url("/").replace("http", "https"), "")?;
    is_refused(secure, "does not speak TLS; give the URL with http://")?;
    is_refused(search(&nginx.url("/no-such-page"), "")?, "answered 404, not 200-399 (--expect)")?;
    is_refused(search(&nginx.url("/"), "--expect 204")?, "answered 200, not 204 (--expect)")?;
    // Its connections are made by the kernel, and nobody reads them.
    let silent = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}/", silent.local_addr()?);
    is_refused(search(&url, "--timeout 300ms")?, "gave no complete answer within 300 ms")
}

#[test]
fn a_target_that_answers_some_requests_with_errors_is_searched() -> Result<()> {
    let _shared = beside_others();
    let serve = Serve::start("--misbehave error=40%")?;
    let folder = TemporaryFolder::new()?;
    let words = format!(
        "limit rate --errors 60% --max 200 --trial 200ms --drain 5m --repeats 1 --out {} -q",
        folder.file("result")
    );
    let output = Proofload::new(&words)?.arg(&serve.url()).run()?;
    let trials = ResultFolder::open(&folder.path().join("result"))?.trials()?;
    ensure!(!trials.is_empty() && output.code != Some(2), "{}", output.described());
    serve.stop()?;
    Ok(())
}

#[test]
fn a_search_of_a_rate_looks_at_its_target_first_where_that_changes_nothing() -> Result<()> {
    let _shared = beside_others();
    let folder = TemporaryFolder::new()?;
    let limit = |name: &str, serve: &str, words: &str| -> Result<(String, Option<f64>)> {
        let (serve, out) = (Serve::start(serve)?, folder.file(name));
        let fixed = "limit rate --errors 60% --max 400 --trial 200ms --repeats 1 --drain 5m --timeout 5m";
        let output = Proofload::new(&format!("{fixed} --out {out} {words} {}", serve.url()))?.run()?;
        serve.stop()?;
        let plan = ResultFolder::open(Path::new(&out))?.read()?.plan;
        let begin = plan.search.context("no search")?.method_settings["expected_load"].as_f64();
        Ok((output.stderr, begin))
    };
    let (said, begin) = limit("looks", "--delay 10ms", "")?;
    ensure!(said.contains("up to 16 users carried ") && said.contains(" (see --no-look)"), "{said}");
    let begin = begin.context("it says where the search begins")?;
    ensure!((10.0..=100.0).contains(&begin), "a quarter of at most 400: {begin}");
    for (name, serve, words) in [
        ("no-look", "", "--no-look"),
        ("min", "", "--min 20"),
        ("preset", "", "--preset rfc2544"),
        ("posts", "", "--method POST"),
        ("fails", "--misbehave error=50%", ""),
    ] {
        let (said, begin) = limit(name, serve, words)?;
        ensure!(!said.contains("a look of") && begin.is_none(), "{name}: {begin:?} {said}");
    }
    Ok(())
}

#[test]
fn a_target_that_dies_during_a_search_is_no_answer() -> Result<()> {
    let _shared = beside_others();
    let folder = TemporaryFolder::new()?;
    let record = folder.file("record.jsonl");
    let mut serve = Serve::start(&format!("--record {record}"))?;
    let words = "limit rate --errors 0 --min 20 --max 300 --trial 5s --drain 5m --repeats 1 -q";
    let search = Proofload::new(&format!("{words} --out {} {}", folder.file("result"), serve.url()))?;
    let search = search.start()?;
    until("the first trial has begun", || {
        std::fs::read_to_string(&record).is_ok_and(|text| text.lines().count() > 10)
    });
    serve.signal(Signal::KILL);
    let output = search.finish()?;
    ensure!(output.code == Some(2), "{}", output.described());
    ensure!(
        output.stdout.contains("the target stopped answering during the search"),
        "{}",
        output.described()
    );
    ensure!(!output.stdout.contains("Does not carry even"), "{}", output.described());
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
ready_timeout = "10m"
on = "web"
run = "nginx"
[workload.http]
from = "client"
path = "/no-such-page"
drain = "5m"
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

/// A trial whose first line holds this; if it is void for want of time, it says that nothing is decided.
fn trial(url: &str, words: &str, code: i32, first: &str) -> Result<Output> {
    let output = run(url, words)?;
    let expected = if output.counted(code)?.validity.is_void() { "Not decided: " } else { first };
    ensure!(first_line(&output.stdout).contains(expected), "{first}: {}", output.described());
    Ok(output)
}

#[test]
fn one_sentence_answers_a_trial() -> Result<()> {
    let _shared = beside_others();
    let serve = Serve::start("--delay 1ms")?;
    let url = serve.url();
    trial(&url, "-R 200 -c 8 -n 200", 0, " requests/s for ")?;
    trial(&url, "-c 4 -n 400", 0, " requests/s with 4 users for ")?;
    run("http://127.0.0.1:1/", "-n 10 -c 1")?.unanswered()?;
    let output = trial(&url, "-n 10 -c 1 --expect 204", 1, "answered 200, not 204 (--expect)")?;
    ensure!(output.stdout.contains("Statuses     200: 10"), "{}", output.described());
    serve.stop()?;
    Ok(())
}

#[test]
fn what_is_void_is_not_decided() -> Result<()> {
    let _shared = beside_others();
    let serve = Serve::start("")?;
    let output = run(&serve.url(), "-R 100 -c 4 -n 100 --inject-fault drop:2")?;
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
    // What is counted and timed of it is tested on a virtual clock, in the crate `load`.
    let serve = Serve::start("--misbehave silent=100%")?;
    let told = "gave no complete answer within 5.00 s";
    let output = trial(&serve.url(), "-u 4 -n 4 --timeout 5s", 1, told)?;
    ensure!(output.stdout.contains(told) && output.trial()?.counts.failed == 4, "{}", output.described());
    Ok(())
}

#[test]
fn connections_go_to_each_address_in_turn_and_the_one_that_fails_is_named() -> Result<()> {
    let _shared = beside_others();
    let (first, second) = (Serve::start("")?, Serve::start("")?);
    let address = |serve: &Serve| serve.url().trim_start_matches("http://").trim_end_matches('/').to_owned();
    let (one, two, closed) = (address(&first), address(&second), own_address()?);
    let run = |to: &str| {
        Proofload::http("http://example.test/", &format!("-u 1 -n 30 --no-keepalive -q --connect-to {to}"))?
            .run()
    };
    let output = run(&format!("{one},{two}"))?;
    ensure!(output.counted(0)?.counts.completed == 30, "{}", output.described());
    let output = run(&format!("{one},{closed}"))?;
    let trial = output.counted(1)?;
    ensure!(
        trial.counts.failed == 15 && output.stdout.contains(&format!("nothing listens at {closed}")),
        "{}",
        output.described()
    );
    let counts = [first.stop()?.requests, second.stop()?.requests];
    ensure!(counts == [30, 15], "{counts:?}");
    Ok(())
}
