//! `--save`: what a command line says, as a study.

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};
use proofload_tests::{
    process::{Finished, Launch},
    proofload::binary,
    temporary::TemporaryFolder,
};
use testing::PATIENCE;

/// Command lines that a study says as well: before it is written, proofload compares the plans.
const LINES: &str = r#"
http http://127.0.0.1/
http http://127.0.0.1:8080/x?y=1 -u 20 -d 5s --think-time exp:20ms
http 127.0.0.1 -n 1000 -c 7
http http://127.0.0.1/ -R 5k --arrivals poisson --connections 64 --duration 60s
http http://127.0.0.1/ --stage 10s:500 --stage 30s:0..5k
http http://127.0.0.1/ -R 100 --no-keepalive --expect 200,404 --expect text:ok
http http://127.0.0.1/ -X PUT --pipeline 1 -b '{"a":1}' -T application/json -H 'X-A: b' -H 'X-C:d'
http http://127.0.0.1/ -b '{name} {{uuid}} {{name}}' --feeder items.csv --drain 3s
http 'http://127.0.0.1/items/{{counter}}?a={b}' -n 100 --log requests.ndjson --log-sample 5%
http 'http://127.0.0.1/a b' -H 'X-Quote: "\"' -H "X-Tab: a\\b" --seed 7
http http://127.0.0.1/x --events --retries 3 --ack synced --receipts r --events-per-request 5
http http://127.0.0.1/x --events='{"a":1}' --as array --idempotency
http https://127.0.0.1/ --insecure --alpn none --tls-min 1.3 --no-resumption --sni example.org
http http://127.0.0.1/ --unix-socket /run/app.sock --timeout 2s --answer-timeout 500ms
http http://127.0.0.1/ --connect-to 127.0.0.2:80,127.0.0.3:80 --source 127.0.0.5-127.0.0.9 --cpus 0
http http://127.0.0.1/ --abort-if 'errors > 10% for 5s' --ceiling 5k -R 10 --spin 0 --threads 1
http http://127.0.0.1/ --cookies --redirects 3 --compressed --connection-requests 5 --connection-lifetime 9s
http http://127.0.0.1/ --expect 'no-text:{{x}}' --expect 'text:{y}' -b $(printf 'a\177\302\205b')
http http://127.0.0.1/ -b 'a {{"{x}"}} {y} {{"{{"}}z}} $${H}' -H 'X-A: {{"{x}"}}'
http http://127.0.0.1/ -H 'Cookie: a=b; s={{uuid}}' --observe root@10.0.0.3 --observe web=admin@10.0.0.4:2222 --on-noise void
http http://127.0.0.1/ --body @event.json -u 1 --loops 3 --ramp-up 1s
http -u 5 -- curl 'http://127.0.0.1/x' -H 'Accept: a' --data-raw 'a=${HOME}&b={{x}}'
http -u 5 -- curl -G http://127.0.0.1/x -d q=1 --compressed
limit rate http://127.0.0.1/ --p99 10ms
limit rate http://127.0.0.1/ --p99 10ms --p50 1ms --errors 0.1% --min 100 --max 5k --width 2%
limit rate http://127.0.0.1/ --p99.9 1s --p99.99 2s --trial 2s --repeats 2 --confirm 6 --budget 90s
limit rate http://127.0.0.1/ --preset csit-pdr --max 20
limit rate http://127.0.0.1/ --p75 1ms --goal 'first_byte_p99_us <= 5ms' --goal 'connect_p95_us<=7_500' --goal 'error_ratio ≤ 1%'
limit users http://127.0.0.1/ --errors 0 --connect-p99 900ms --max 200
limit users http://127.0.0.1/ --preset jmeter --no-keepalive --max 20
limit users http://127.0.0.1/ --think-time 1s --warm-up 1s --pause 2s --settle 0s --void-attempts 2
limit connections http://127.0.0.1/ --rate 1k --errors 0 --max 300
limit rate --p99 50ms --max 90 -- curl http://127.0.0.1/ -d a=1
wrk -t1 -c64 -d5s --latency http://127.0.0.1/x?y
wrk -t1 -c4 -d5s -R2000 -H 'X-A: b' http://127.0.0.1/
wrk2 -t1 -c10 -d5s -R200 http://127.0.0.1/
ab -n 10 -t 5 -H 'X-A: b' -C a=b http://127.0.0.1/x/../y
ab -k -n 1000 -c 10 http://127.0.0.1/
"#;

/// Runs a command line in a shell that stands in this folder, and gives what it saves.
fn saved(line: &str, folder: &Path) -> Result<(Finished, String)> {
    let path = folder.join("saved.toml");
    let _ = fs::remove_file(&path);
    let (command, rest) = line.split_once(' ').context("a command and its options")?;
    let script = format!(
        "cd {} && COOKIE=other exec {} {command} --save saved.toml {rest}",
        folder.display(),
        binary()?.display()
    );
    let finished = Launch::new("sh").arg("-c").arg(script).run(PATIENCE)?;
    let text = fs::read_to_string(&path).unwrap_or_default();
    Ok((finished, text))
}

/// A folder with the files that the lines name.
fn folder() -> Result<TemporaryFolder> {
    let folder = TemporaryFolder::new()?;
    fs::write(folder.file("items.csv"), "id,name\n1,ann\n2,bob\n")?;
    fs::write(folder.file("event.json"), "{\"a\": 1}\n")?;
    Ok(folder)
}

#[test]
fn command_lines_are_saved_as_studies_that_do_the_same() -> Result<()> {
    let folder = folder()?;
    for line in LINES.lines().filter(|line| !line.is_empty()) {
        let (finished, study) = saved(line, folder.path())?;
        ensure!(finished.code == Some(0) && study.contains("[workload.http]"), "{line}\n{}", finished.stderr);
        ensure!(!folder.path().join("results").exists(), "{line} ran");
    }
    // The last one again, as a reader of it would.
    let plan = Launch::new("sh").arg("-c");
    let plan = plan.arg(format!(
        "cd {} && {} run saved.toml --dry-run",
        folder.path().display(),
        binary()?.display()
    ));
    let finished = plan.run(PATIENCE)?;
    ensure!(finished.code == Some(0), "{}", finished.stderr);
    Ok(())
}

#[test]
fn a_study_elsewhere_names_the_same_files() -> Result<()> {
    let folder = folder()?;
    fs::create_dir(folder.file("other"))?;
    fs::write(folder.file("times.txt"), "1ms\n2ms\n")?;
    fs::write(folder.file("other/there.toml"), "")?;
    std::os::unix::fs::symlink("other/there.toml", folder.file("link.toml"))?;
    let here = folder.path().display();
    for path in ["other/there.toml", "link.toml"] {
        let line =
            "http http://127.0.0.1/ --think-time file:times.txt --body @event.json --feeder items.csv,once";
        let script = format!("cd {here} && {} {line} --save {path}", binary()?.display());
        let finished = Launch::new("sh").arg("-c").arg(script).run(PATIENCE)?;
        let study = fs::read_to_string(folder.file("other/there.toml"))?;
        ensure!(finished.code == Some(0), "{path}: {}", finished.stderr);
        for file in ["file:", "@", ""].into_iter().zip(["times.txt", "event.json", "items.csv,once"]) {
            ensure!(study.contains(&format!("{}{here}/{}", file.0, file.1)), "{path}: {study}");
        }
    }
    Ok(())
}

#[test]
fn what_is_given_has_its_help_and_what_is_not_is_left_out() -> Result<()> {
    let (_, study) =
        saved("limit rate http://127.0.0.1/ --p99 10ms --timeout 2s --max 20k", folder()?.path())?;
    for part in [
        "title = \"Limit of rate at http://127.0.0.1/\"",
        "# Fail a request that takes longer, including its connection\ntimeout = \"2s\"\n",
        "[search]\nvary = \"rate\"\nmin = 10\nmax = 20000\npreset = \"mlrsearch\"\n",
        "[[goals]]\np99 = \"10ms\"\n",
    ] {
        ensure!(study.contains(part), "{part}\n{study}");
    }
    ensure!(!study.contains("drain") && !study.contains("confirm"), "{study}");
    Ok(())
}

#[test]
fn no_secret_is_saved() -> Result<()> {
    let (folder, secret) = (folder()?, "hunter2hunter2");
    for (line, expected, variable) in [
        (
            "http http://127.0.0.1/ -H 'Authorization: Bearer {}'",
            "Authorization: ${AUTHORIZATION}",
            "AUTHORIZATION",
        ),
        ("http 'http://127.0.0.1/?api_key={}&x=1'", "?api_key=${API_KEY}&x=1", "API_KEY"),
        ("http -- curl http://127.0.0.1/ -H 'X-Api-Key: {}'", "X-Api-Key: ${X_API_KEY}", "X_API_KEY"),
        ("limit rate http://127.0.0.1/ --max 99 -H 'Cookie: session={}'", "Cookie: ${COOKIE}", "COOKIE"),
        (
            "http 'http://api_key:{}@127.0.0.1/?a=1&api_key=api_key1'",
            "${URL_USER}:${URL_PASSWORD}@",
            "URL_PASSWORD",
        ),
        (
            "http http://127.0.0.1/ -x http://ann:{}@127.0.0.1:9",
            "${PROXY_USER}:${PROXY_PASSWORD}@",
            "PROXY_USER",
        ),
        ("http http://127.0.0.1/ -H '2FA-Token: {}'", "2FA-Token: ${_2FA_TOKEN}", "_2FA_TOKEN"),
        ("http http://127.0.0.1/ -H 'X-B: ${COOKIE}' -H 'Cookie: {}'", "Cookie: ${COOKIE_2}", "COOKIE_2"),
        (
            "http -- curl http://127.0.0.1/ -H 'Authorization: Bearer {}{{x}}y'",
            "Authorization: ${AUTHORIZATION}",
            "AUTHORIZATION",
        ),
        ("http -- curl http://127.0.0.1/ -u 'ann:{}'", "Authorization: ${AUTHORIZATION}", "AUTHORIZATION"),
        ("http http://127.0.0.1/ -b 'a=1&password={}&b=2'", "a=1&password=${PASSWORD}&b=2", "PASSWORD"),
        (
            "http http://127.0.0.1/ -H 'Cookie: sid={{uuid}}; theme=${COOKIE}'",
            "sid={{uuid}}; theme=${COOKIE}",
            "",
        ),
        ("http http://127.0.0.1/ -H 'X-Api-Key: body' -b x", "X-Api-Key: ${X_API_KEY}", "X_API_KEY"),
        ("http http://127.0.0.1/ -H 'Authorization: ${HOME}'", "Authorization: ${HOME}", ""),
        ("http http://127.0.0.1/ -H 'Authorization: Bearer {{uuid}}'", "Authorization: Bearer {{uuid}}", ""),
        (
            "http http://127.0.0.1/ -H 'Cookie: PHPSESSID={{uuid}}; a=${COOKIE}'",
            "PHPSESSID={{uuid}}; a=${COOKIE}",
            "",
        ),
    ] {
        let (finished, study) = saved(&line.replace("{}", secret), folder.path())?;
        ensure!(study.contains(expected) && !study.contains(secret), "{line}\n{study}{}", finished.stderr);
        let told = finished.stderr.contains(&format!("set {variable} to"));
        ensure!(
            told != variable.is_empty() && !finished.stderr.contains(secret),
            "{line}\n{}",
            finished.stderr
        );
    }
    Ok(())
}

#[test]
fn what_a_study_cannot_say_is_not_saved() -> Result<()> {
    let folder = folder()?;
    for (line, why) in [
        ("http http://127.0.0.1/ --force", "a study has no --force"),
        ("http http://127.0.0.1/ --json x", "cannot be used with"),
        ("limit rate http://127.0.0.1/ --prove", "cannot be used with"),
        ("http 'http://127.0.0.1/?api_key=a+b==1234'", "url: the study file would contain a secret"),
        ("http http://127.0.0.1/ -H 'Authorization: hunter2hunter2' -b hunter2hunter2", "body: the study"),
        ("http http://127.0.0.1/ -H 'Authorization: Bearer hunter2hunter2{{counter}}'", "headers: the study"),
        ("http http://127.0.0.1/ -H 'X-Api-Key: ${COOKIE}sekretsekret'", "headers: the study"),
        ("http http://127.0.0.1/ -H 'X-Api-Key: sekretsekret {{counter}}'", "headers: the study"),
        (
            "http http://127.0.0.1/ -H 'Referer: http://h/?token=sekretsekret{{counter}}'",
            "headers: the study",
        ),
        ("http 'http://127.0.0.1/?token=sekret1234567{{counter}}'", "url: the study file would contain"),
        ("http 'http://127.0.0.1/?token=${COOKIE}sekret1234567'", "url: the study file would contain"),
        ("http \"http://127.0.0.1/?token=ab'sekret1234567\"", "url: the study file would contain"),
        ("http 'http://127.0.0.1/?token=abc/def&token=abc'", "url: the study file would contain"),
        ("http 'http://127.0.0.1/?token=p@ss1!'", "url: the study file would contain"),
        ("http http://tok1234@127.0.0.1/", "url: the study file would contain"),
        ("http http://127.0.0.1/ --seed 18446744073709551615", "seed: "),
        ("limit rate http://127.0.0.1/ --p99 10", "has no unit"),
        ("http http://127.0.0.1/ --body @-", "standard input"),
        (
            "http http://127.0.0.1/ -H 'X-Token: a{{uuid}}hunter2hunter2' -H 'Authorization: hunter2hunter2'",
            "write ${NAME}",
        ),
        ("http http://127.0.0.1/ --feeder saved.toml", "saved.toml"),
    ] {
        let (finished, study) = saved(line, folder.path())?;
        ensure!(finished.code == Some(2) && study.is_empty(), "{line}\n{study}");
        ensure!(finished.stderr.contains(why), "{line}: {}", finished.stderr);
    }
    Ok(())
}
