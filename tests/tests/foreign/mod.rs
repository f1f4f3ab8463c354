//! Command lines of wrk, wrk2, ab and curl: what proofload sends for each is what the list says, and what the program
//! itself sends.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use proofload_tests::{
    Output, Proofload, Serve, process::Launch, recorder::Recorder, temporary::TemporaryFolder,
};
use testing::foreign_lines::{self, ForeignLine, SentRequest};

use super::beside_all;

const LIST: &str = include_str!("../../data/foreign-lines.txt");

/// The words of a line of wrk, wrk2 or ab, as few requests as it makes.
fn short(foreign: &ForeignLine, is_own: bool) -> String {
    let is_rate = ["-R", "--rate"].iter().any(|option| foreign.line.contains(option));
    match (foreign.program(), is_own) {
        ("ab", _) => foreign.with("-n 2 -c 1"),
        (_, false) => foreign.with("-t 1 -c 1 -d 1s"),
        (_, true) if is_rate => foreign.with("-t 1 -c 2 -d 300ms -R 50"),
        (_, true) => foreign.with("-t 1 -c 2 -d 300ms"),
    }
}

/// Runs proofload with a line of another program.
fn run(foreign: &ForeignLine) -> Result<Output> {
    if foreign.program() == "curl" {
        return Proofload::new("http -n 2 -u 1 -q --curl")?.arg(&foreign.line).run();
    }
    // The shell parts the words as a user's does.
    let line = format!("exec {} {}", proofload_tests::proofload::binary()?.display(), short(foreign, true));
    let finished = Launch::new("bash").args(["-c", &quoted_url(&line)]).run(Duration::from_secs(60))?;
    let (stdout, stderr) = (finished.stdout, finished.stderr);
    Ok(Output { line, code: finished.code, trial: None, stdout, stderr, wall: finished.wall })
}

/// What the program itself sends for a line; nothing if it is not installed.
fn original(foreign: &ForeignLine, recorder: &Recorder) -> Result<Vec<SentRequest>> {
    // wrk2's README calls it wrk.
    let is_wrk2 = foreign.program() == "wrk2" || (foreign.program() == "wrk" && foreign.line.contains("-R"));
    let program = if is_wrk2 { "wrk2" } else { foreign.program() };
    let Some(path) = installed(program) else { return Ok(Vec::new()) };
    let line = if program == "curl" { foreign.line.clone() } else { quoted_url(&short(foreign, false)) };
    let line = line.replacen(foreign.program(), &path.display().to_string(), 1);
    let finished = Launch::new("bash").args(["-c", &line]).run(Duration::from_secs(60))?;
    ensure!(finished.code == Some(0), "`{line}` ended with {:?}: {}", finished.code, finished.stderr);
    Ok(recorder.take())
}

/// Where a program is; wrk2 where its user has built it.
fn installed(program: &str) -> Option<PathBuf> {
    let built = proofload_tests::repository().join("target/peers/bin");
    let folders = [PathBuf::from("/usr/bin"), PathBuf::from("/usr/local/bin"), built];
    folders.map(|folder| folder.join(program)).into_iter().find(|path| path.exists())
}

/// The line with its URL in quotes, which the manuals leave to the reader.
fn quoted_url(line: &str) -> String {
    let (before, url) = line.rsplit_once(' ').expect("a line ends in its URL");
    format!("{before} '{url}'")
}

#[test]
fn every_foreign_line_sends_what_the_program_sends() -> Result<()> {
    let _shared = beside_all();
    let (recorder, folder) = (Recorder::start()?, TemporaryFolder::new()?);
    let lines = foreign_lines::read(LIST, &recorder.host(), folder.path());
    let (mut run_lines, mut compared) = (0, 0);
    for foreign in lines.iter().filter(|foreign| foreign.tls.is_empty()) {
        let output = run(foreign).with_context(|| foreign.line.clone())?;
        let requests = recorder.take();
        let Some(sends) = &foreign.sends else {
            ensure!(
                output.code == Some(2) && output.stderr.contains(&foreign.refused),
                "{}",
                output.described()
            );
            ensure!(requests.is_empty(), "{}: something was sent", foreign.line);
            continue;
        };
        // A crowded machine may leave nothing to conclude.
        ensure!(matches!(output.code, Some(0 | 3)), "{}", output.described());
        ensure!(!requests.is_empty(), "nothing was sent: {}", output.described());
        for request in &requests {
            ensure!(request == sends, "{}\nsends {request:?}\ninstead of {sends:?}", foreign.line);
        }
        run_lines += 1;
        for request in original(foreign, &recorder)? {
            ensure!(
                &request == sends,
                "{}\nitself sends {request:?}\nand the list says {sends:?}",
                foreign.line
            );
            compared += 1;
        }
    }
    ensure!(run_lines >= 36, "only {run_lines} lines ran");
    // curl is installed for the tests.
    ensure!(compared >= 13, "only {compared} requests of the programs themselves were compared");
    Ok(())
}

#[test]
fn the_layouts_are_those_of_the_programs() -> Result<()> {
    let _shared = beside_all();
    let (serve, folder) = (Serve::start("")?, TemporaryFolder::new()?);
    let url = serve.url();
    for (line, words) in [
        (
            format!("wrk -t1 -c2 -d1s --latency {url}"),
            &[
                "Running 1s test @ ",
                "  1 threads and 2 connections",
                "  Latency Distribution",
                "     99%",
                "Requests/sec:",
                "Transfer/sec:",
            ][..],
        ),
        (
            format!("wrk2 -t1 -c2 -d500ms -R100 -L -U {url}"),
            &[
                "Recorded Latency)",
                "Uncorrected Latency",
                " 99.990%",
                "Detailed Percentile spectrum:",
                "#[Mean",
            ],
        ),
        (
            format!("ab -n 20 -c 2 {url}"),
            &[
                "Concurrency Level:      2",
                "Complete requests:      20",
                "Requests per second:",
                "(mean, across all",
                "Connection Times (ms)",
                "  50%",
                "(longest request)",
            ],
        ),
    ] {
        let json = folder.file("trial.json");
        let output = Proofload::new(&line)?.with(|launch| launch.args(["--json", &json])).run()?;
        ensure!(matches!(output.code, Some(0 | 3)), "{}", output.described());
        for word in words {
            ensure!(output.stdout.contains(word), "no '{word}': {}", output.described());
        }
        ensure!(output.stdout.contains("The same: proofload http --"), "{}", output.described());
        let trial =
            proofload_tests::proofload::read_trial(Path::new(&json))?.context("no trial was written")?;
        ensure!(trial.counts.completed > 0, "{}", output.described());
    }
    Ok(())
}

#[test]
fn what_the_programs_would_not_say_is_said() -> Result<()> {
    let _shared = beside_all();
    let slow = Serve::start("--capacity 1 --service-time 20ms")?;
    let missed = Proofload::new(&format!("wrk2 -t1 -c1 -d1s -R 500 --timeout 5s {}", slow.url()))?.run()?;
    ensure!(missed.stdout.contains("the rate was missed"), "{}", missed.described());
    slow.stop()?;
    let refused = Serve::start("--status 404")?;
    let unexpected = Proofload::new(&format!("ab -n 5 {}", refused.url()))?.run()?;
    ensure!(matches!(unexpected.code, Some(1 | 3)), "{}", unexpected.described());
    ensure!(unexpected.stdout.contains("Non-2xx responses:      5"), "{}", unexpected.described());
    ensure!(unexpected.stdout.contains("ab counts them as completed"), "{}", unexpected.described());
    refused.stop()?;
    Ok(())
}

#[test]
fn a_line_of_curl_meets_the_load_of_proofload() -> Result<()> {
    let _shared = beside_all();
    let recorder = Recorder::start()?;
    let url = format!("http://{}/x", recorder.host());
    let line = format!("http -n 6 -u 2 -q --json /dev/null -- curl -d a=1 {url}");
    let output = Proofload::new(&line)?.run()?;
    ensure!(matches!(output.code, Some(0 | 3)), "{}", output.described());
    let requests = recorder.take();
    ensure!(requests.len() == 6 && requests.iter().all(|own| own.body == b"a=1"), "{requests:?}");
    let typed = Proofload::new("http -n 2 -u 1 -q --curl -")?
        .with(|launch| launch.input(format!("curl '{url}' \\\n  --json '{{}}'\n")));
    let output = typed.run()?;
    ensure!(matches!(output.code, Some(0 | 3)), "{}", output.described());
    ensure!(recorder.take().iter().all(|own| own.body == b"{}" && own.method == "POST"));
    let conflict = Proofload::new("http --timeout 3s -b x -H Accept:a --curl")?
        .arg(&format!("curl -m 5 -d y {url}"))
        .arg("http://a/")
        .run()?;
    for name in ["--timeout", "--body", "URL"] {
        ensure!(conflict.stderr.contains(&format!("{name}: curl's line")), "{}", conflict.described());
    }
    ensure!(conflict.code == Some(2) && recorder.take().is_empty(), "{}", conflict.described());
    Ok(())
}
