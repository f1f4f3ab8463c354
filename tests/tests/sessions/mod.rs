//! Templates, feeders, expectations and sessions, against a target that writes down what it gets.

use std::{collections::BTreeMap, fs, net::SocketAddr};

use anyhow::{Context, Result, ensure};
use proofload_tests::{Proofload, Serve, temporary::TemporaryFolder};
use record::ErrorClass;
use rustix::process::Signal;
use serde_json::Value;
use testing::{PATIENCE, unread_bytes, until};

use super::{beside_others, trials_of};

/// A target with pages, and the file in which it writes requests down.
fn recorded(words: &str) -> Result<(Serve, TemporaryFolder)> {
    let folder = TemporaryFolder::new()?;
    let record = folder.path().join("record.jsonl");
    Ok((Serve::start(&format!("--pages --record {} {words}", record.display()))?, folder))
}

/// The requests of each connection, in order.
fn by_connection(folder: &TemporaryFolder) -> Result<BTreeMap<u64, Vec<Value>>> {
    let mut connections: BTreeMap<u64, Vec<Value>> = BTreeMap::new();
    for line in fs::read_to_string(folder.path().join("record.jsonl"))?.lines() {
        let line: Value = serde_json::from_str(line)?;
        let connection = line["connection"].as_u64().context("a connection has a number")?;
        connections.entry(connection).or_default().push(line);
    }
    Ok(connections)
}

fn header<'a>(line: &'a Value, name: &str) -> &'a str {
    let pairs = line["headers"].as_array().into_iter().flatten();
    let found = pairs.filter(|pair| pair[0].as_str().is_some_and(|n| n.eq_ignore_ascii_case(name)));
    found.map(|pair| pair[1].as_str().unwrap_or_default()).next().unwrap_or_default()
}

/// The study of the page about sessions.
fn documented_study(url: &str) -> Result<String> {
    let page = fs::read_to_string(proofload_tests::repository().join("docs/sessions.md"))?;
    let (_, rest) = page.split_once("```toml\n").context("the page has a study")?;
    let (study, _) = rest.split_once("```").context("the study has an end")?;
    ensure!(study.contains("http://127.0.0.1:8080/"), "the study has another URL");
    Ok(study.replace("http://127.0.0.1:8080/", url))
}

#[test]
fn the_documented_login_is_used_and_renewed() -> Result<()> {
    let _others = beside_others();
    let (serve, folder) = recorded("--token-lifetime 1us")?;
    let study = folder.path().join("login.toml");
    fs::write(&study, documented_study(&serve.url())?)?;
    let (out, page) = (folder.file("out"), folder.file("page.html"));
    let words = format!("run {} --out {out} --set workload.http.timeout=5m", study.display());
    let output = Proofload::new(&words)?.arg("--set").arg("trial.void_attempts=0").run()?;
    let trials = trials_of(out.as_ref(), &output)?;
    let output = Proofload::new(&format!("report {out} --html {page}"))?.run()?;
    ensure!(output.code == Some(0), "{}", output.described());
    serve.stop()?;
    let page = fs::read_to_string(page)?;
    let (_, steps) =
        page.split_once("100 iterations began, 100 were completed").context("the steps are on the page")?;
    ensure!(steps.contains(">log in</th>") && steps.contains(">400</td>"), "{steps}");
    let script = trials[0].trial.http().and_then(|http| http.script.as_ref()).context("it has steps")?;
    let completed: Vec<u64> = script.steps.iter().map(|step| step.completed).collect();
    ensure!(script.iterations.completed == 100 && completed[..2] == [100, 400], "{script:?}");
    ensure!(completed[2] > 0, "with tokens that live 1 us, they must have expired: {script:?}");
    let connections = by_connection(&folder)?;
    ensure!(connections.len() == 20, "{} connections", connections.len());
    for lines in connections.values() {
        let mut user = String::new();
        let mut token_login = String::new();
        for line in lines {
            if line["target"] == "/login" {
                let body: Value = serde_json::from_str(line["body"].as_str().unwrap_or_default())?;
                let name = body["user"].as_str().unwrap_or_default().to_owned();
                ensure!(user.is_empty() || user == name, "{user} became {name} on a connection of its own");
                (user, token_login) = (name, String::new());
            } else {
                let token = header(line, "authorization");
                let login =
                    token.trim_start_matches("Bearer ").split('-').next().unwrap_or_default().to_owned();
                ensure!(!login.is_empty(), "a request without a token: {line}");
                ensure!(token_login.is_empty() || token_login == login, "a token changed without a login");
                token_login = login;
            }
        }
    }
    Ok(())
}

#[test]
fn templates_and_feeders_fill_in_every_request() -> Result<()> {
    let _others = beside_others();
    let (serve, folder) = recorded("")?;
    let rows = folder.path().join("rows.csv");
    fs::write(&rows, "name,note\nann,\"a b\"\nbob,x\n")?;
    let url = format!("{}items/{{{{counter}}}}?n={{{{note|url}}}}", serve.url());
    let words = format!("-u 3 -n 60 -q -t 2 --feeder {}", rows.display());
    let output = Proofload::http(&url, &words)?
        .arg("--header=X-Name: {{name}}")
        .arg("--body={\"u\":{{user}},\"i\":{{iteration}}}")
        .arg("--expect=200")
        .arg("--expect=json:$.method = POST")
        .run()?;
    let counts = output.counted(0)?.counts.clone();
    ensure!(counts.completed == 60, "{}", output.described());
    serve.stop()?;
    let (mut numbers, mut seen) = (Vec::new(), BTreeMap::new());
    for lines in by_connection(&folder)?.into_values() {
        for (iteration, line) in (1..).zip(&lines) {
            let target = line["target"].as_str().context("a target")?;
            let (number, note) =
                target.trim_start_matches("/items/").split_once("?n=").context("its form")?;
            numbers.push(number.parse::<u32>()?);
            let name = header(line, "x-name");
            ensure!(note == if name == "ann" { "a%20b" } else { "x" }, "{line}");
            *seen.entry(name.to_owned()).or_insert(0) += 1;
            let body: Value = serde_json::from_str(line["body"].as_str().unwrap_or_default())?;
            ensure!(body["i"] == iteration, "{line}");
        }
    }
    numbers.sort_unstable();
    numbers.dedup();
    ensure!(numbers.len() == 60, "{} different numbers", numbers.len());
    ensure!(seen.values().sum::<u32>() == 60 && seen.len() == 2, "{seen:?}");
    Ok(())
}

#[test]
fn an_answer_without_what_is_expected_fails() -> Result<()> {
    let _others = beside_others();
    let serve = Serve::start("--pages")?;
    let url = format!("{}echo", serve.url());
    for (expectation, fails) in [
        ("text:GET", false),
        ("text:nothing of the kind", true),
        ("no-text:GET", true),
        ("json:$.method = GET", false),
        ("json:$.method = PUT", true),
        ("json:$.nothing", true),
        ("header:content-type = application/json", false),
        ("regex:\"method\": ?\"G", false),
        ("size:> 1KiB", true),
        ("500", true),
    ] {
        let output = Proofload::http(&url, "-u 2 -n 8 -q")?.arg(&format!("--expect={expectation}")).run()?;
        let trial = output.counted(i32::from(fails))?;
        let class = if expectation == "500" { ErrorClass::Status } else { ErrorClass::Check };
        let failed = trial.errors.of(class);
        ensure!(failed == if fails { 8 } else { 0 }, "{expectation}: {}", output.described());
    }
    // Most of a long body is dropped in the kernel.
    let long = Serve::start("--body 100KiB")?;
    for (expectation, fails) in [("size:=100KiB", 0), ("size:<=99KiB", 8)] {
        let words = format!("-u 2 -n 8 -q --expect={expectation}");
        let output = Proofload::http(&long.url(), &words)?.run()?;
        let trial = output.counted(i32::from(fails > 0))?;
        ensure!(trial.errors.of(ErrorClass::Check) == fails, "{expectation}: {}", output.described());
    }
    Ok(())
}

#[test]
fn cookies_redirects_and_compression_work_together() -> Result<()> {
    let _others = beside_others();
    let (serve, folder) = recorded("")?;
    let study = folder.path().join("study.toml");
    let text = format!(
        "title = \"Cookies\"\n[targets.api]\nurl = \"{}\"\n[workload.http]\nusers = 2\nloops = 2\ntimeout = \"5m\"\ncookies = true\nredirects = 3\ncompressed = true\n\
         [[workload.http.steps]]\nrequest = \"/cookies/set?s={{{{user}}}}-{{{{iteration}}}}\"\n\
         [[workload.http.steps]]\nname = \"see\"\nrequest = \"/cookies\"\nexpect = \"regex:[12]-[12]\"\ntake = {{ s = 'regex:\"([12]-[12])\"' }}\n\
         [[workload.http.steps]]\nrequest = \"/redirect/3?was={{{{s}}}}\"\nexpect = \"200\"\n[trial]\nvoid_attempts = 0\n",
        serve.url()
    );
    fs::write(&study, text)?;
    let out = folder.path().join("out");
    let output = Proofload::new(&format!("run {} --out {}", study.display(), out.display()))?.run()?;
    let trials = trials_of(&out, &output)?;
    let counts = &trials[0].trial.http().context("it is of requests")?.counts;
    ensure!((counts.completed, counts.failed) == (24, 0), "{counts:?}");
    serve.stop()?;
    for lines in by_connection(&folder)?.into_values() {
        // Each iteration: set, see, and a redirect with three steps to its end.
        ensure!(lines.len() == 12, "{} requests", lines.len());
        for iteration in lines.chunks(6) {
            let set = iteration[0]["target"].as_str().unwrap_or_default();
            let value = set.rsplit('=').next().unwrap_or_default();
            ensure!(header(&iteration[0], "cookie").is_empty(), "an iteration begins without cookies");
            ensure!(header(&iteration[1], "cookie") == format!("s={value}"), "{}", iteration[1]);
            ensure!(iteration[2]["target"] == format!("/redirect/3?was={value}"), "{}", iteration[2]);
            ensure!(
                iteration[5]["target"].as_str().is_some_and(|t| t.starts_with("/redirect/0")),
                "{}",
                iteration[5]
            );
            ensure!(iteration.iter().all(|line| header(line, "accept-encoding") == "gzip"));
        }
    }
    Ok(())
}

#[test]
fn the_log_says_what_failed_and_joins_with_the_target() -> Result<()> {
    let _others = beside_others();
    let (serve, folder) = recorded("--misbehave error=20%")?;
    let log = folder.path().join("requests.ndjson");
    let url = format!("{}items/{{{{counter}}}}?token=secret-{{{{user}}}}", serve.url());
    let words = format!("-u 4 -n 400 -q -t 2 --log {} --log-sample 10%", log.display());
    let output = Proofload::http(&url, &words)?.run()?;
    let trial = output.counted(1)?;
    let failed = trial.counts.failed;
    let completed = trial.counts.completed;
    serve.stop()?;
    let (mut targets, mut numbers) = (BTreeMap::new(), BTreeMap::new());
    for (number, lines) in by_connection(&folder)? {
        for line in lines {
            numbers.insert(header(&line, "traceparent").to_owned(), number);
            let target = line["target"].as_str().unwrap_or_default().to_owned();
            ensure!(
                targets.insert(header(&line, "traceparent").to_owned(), target).is_none(),
                "a trace came twice"
            );
        }
    }
    ensure!(targets.len() == 400, "{} traces", targets.len());
    let text = fs::read_to_string(&log)?;
    ensure!(!text.contains("secret-"), "the log has a secret");
    let (mut failures, mut others) = (0, 0);
    let mut addresses = BTreeMap::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line)?;
        let trace = line["traceparent"].as_str().unwrap_or_default();
        let target = targets.get(trace).with_context(|| format!("the target did not see {trace}"))?;
        let address: SocketAddr = line["connection"].as_str().context("an address")?.parse()?;
        let same = *addresses.entry(address).or_insert(numbers[trace]);
        ensure!(same == numbers[trace], "{address} is the connections {same} and {}", numbers[trace]);
        let path = |target: &str| target.split('?').next().unwrap_or_default().to_owned();
        ensure!(path(line["target"].as_str().unwrap_or_default()) == path(target), "{line} is {target}");
        let time = |key: &str| line[key].as_f64().unwrap_or_default();
        ensure!(
            time("due_unix_s") <= time("sent_unix_s") && time("sent_unix_s") <= time("ended_unix_s"),
            "{line}"
        );
        if line["error"] == "status" {
            failures += 1
        } else {
            others += 1
        }
        ensure!((line["status"] == 503) == (line["error"] == "status"), "{line}");
    }
    ensure!(failures == failed && failed > 0, "{failures} of {failed} failures");
    // Each of two workers logs every tenth.
    ensure!((completed / 10 - 1..=completed / 10).contains(&others), "{others} of {completed}");
    Ok(())
}

#[test]
fn the_log_has_what_was_under_way_and_no_secret_of_a_user() -> Result<()> {
    let _others = beside_others();
    let (mut serve, folder) = recorded("")?;
    let (rows, log) = (folder.path().join("rows.csv"), folder.path().join("log.ndjson"));
    fs::write(&rows, "token,name\nt0p s3cret,ann\n")?;
    let url = format!("{}items/{{{{token|url}}}}/{{{{name}}}}", serve.url());
    let words = format!("-u 3 -d 1h -q --feeder {} --log {}", rows.display(), log.display());
    // Stopped, it leaves unread what it is sent.
    serve.signal(Signal::STOP);
    let mut running = Proofload::http(&url, &words)?.start()?;
    let address = serve.addresses()[0].parse()?;
    until("three requests are under way", || {
        unread_bytes(address).iter().filter(|&&bytes| bytes > 0).count() == 3
    });
    running.process.signal(Signal::INT);
    running.finish()?.trial_with_code(130)?;
    serve.signal(Signal::CONT);
    let text = fs::read_to_string(&log)?;
    ensure!(text.lines().count() == 3, "{text}");
    for line in text.lines() {
        let line: Value = serde_json::from_str(line)?;
        ensure!(line["target"] == "/items/***/ann", "{line}");
        ensure!(line["sent_unix_s"].is_number() && line["ended_unix_s"].is_null(), "{line}");
        ensure!(line["status"].is_null() && line["error"].is_null(), "{line}");
    }
    Ok(())
}

#[test]
fn a_large_body_is_searched_in_bounded_memory() -> Result<()> {
    let _others = beside_others();
    let folder = TemporaryFolder::new()?;
    let body = folder.path().join("body");
    let mut bytes = vec![b'x'; 100 << 20];
    bytes.extend_from_slice(b"needle");
    fs::write(&body, bytes)?;
    let serve = Serve::start(&format!("--body-file {}", body.display()))?;
    let found = |text: &str| {
        // 16 users whose bodies were kept would need 1.6 GB.
        let limit = ["prlimit", "--as=600000000"];
        let run =
            Proofload::http(&serve.url(), &format!("-u 16 -n 16 -q --timeout 10m --expect text:{text}"))?;
        run.timeout(2 * PATIENCE).with(|launch| launch.under(limit)).run()
    };
    let trial = found("needle")?;
    ensure!(trial.counted(0)?.counts.completed == 16, "{}", trial.described());
    let trial = found("straw")?;
    ensure!(trial.counted(1)?.errors.of(ErrorClass::Check) == 16, "{}", trial.described());
    Ok(())
}

#[test]
fn a_service_that_fails_is_left_alone() -> Result<()> {
    let _others = beside_others();
    let serve = Serve::start("--misbehave error=50%")?;
    let rule = "errors > 10% for 2s";
    let call = Proofload::http(&serve.url(), "-R 200 -n 100000 -q")?;
    let output = call.arg(&format!("--abort-if={rule}")).run()?;
    let trial = output.counted(1)?;
    ensure!(
        !trial.interrupted && trial.warnings.iter().any(|warning| warning.code == "aborted"),
        "{}",
        output.described()
    );
    ensure!(trial.counts.sent < 100_000, "{} requests", trial.counts.sent);
    let output = Proofload::http(&serve.url(), "-R 200 -d 1s -q --ceiling 100")?.run()?;
    ensure!(
        output.code == Some(2) && output.stderr.contains("above the ceiling of 100"),
        "{}",
        output.described()
    );
    Ok(())
}
