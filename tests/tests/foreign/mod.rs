//! Command lines of wrk, wrk2, ab and curl: what proofload sends for each is what the list says, and what the program
//! itself sends.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use proofload_tests::{
    Output, Proofload, Serve, process::Launch, recorder::Recorder, temporary::TemporaryFolder,
};
use testing::{
    PATIENCE,
    foreign_lines::{self, ForeignLine, SentRequest},
};

const LIST: &str = include_str!("../../data/foreign-lines.txt");

/// The words of a line of wrk, wrk2 or ab, as few requests as it makes in this time.
fn short(foreign: &ForeignLine, is_own: bool, duration: &str) -> String {
    let is_rate = ["-R", "--rate"].iter().any(|option| foreign.line.contains(option));
    match (foreign.program(), is_own) {
        ("ab", _) => foreign.with("-n 2 -c 1"),
        (_, false) => foreign.with(&format!("-t 1 -c 1 -d {duration}")),
        (_, true) if is_rate => foreign.with(&format!("-t 1 -c 2 -d {duration} -R 50")),
        (_, true) => foreign.with(&format!("-t 1 -c 2 -d {duration}")),
    }
}

/// Runs proofload with a line of another program.
fn run(foreign: &ForeignLine, duration: &str) -> Result<Output> {
    if foreign.program() == "curl" {
        return Proofload::new("http -n 2 -u 1 -q --curl")?.arg(&foreign.line).run();
    }
    // The shell parts the words as a user's does.
    let words = short(foreign, true, duration);
    let line = format!("exec {} {words}", proofload_tests::proofload::binary()?.display());
    let finished = Launch::new("bash").args(["-c", &quoted_url(&line)]).run(PATIENCE)?;
    let (stdout, stderr) = (finished.stdout, finished.stderr);
    Ok(Output { line, code: finished.code, trial: None, stdout, stderr, wall: finished.wall })
}

/// Runs the program itself with its line.
fn run_itself(foreign: &ForeignLine, path: &Path, duration: &str) -> Result<()> {
    let line = match foreign.program() {
        "curl" => foreign.line.clone(),
        _ => quoted_url(&short(foreign, false, duration)),
    };
    let line = line.replacen(foreign.program(), &path.display().to_string(), 1);
    Launch::new("bash").args(["-c", &line]).run(PATIENCE).map(drop)
}

/// What is sent in a second, or in longer times as long as that is nothing, as it may be on a slow machine.
fn sent(recorder: &Recorder, mut run: impl FnMut(&str) -> Result<()>) -> Result<Vec<SentRequest>> {
    for duration in ["1s", "10s", "100s"] {
        run(duration)?;
        let requests = recorder.take();
        if !requests.is_empty() {
            return Ok(requests);
        }
    }
    bail!("nothing was sent")
}

/// Where a program is; wrk2 where it was built for `make bench`.
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
    let (recorder, folder) = (Recorder::start()?, TemporaryFolder::new()?);
    let lines = foreign_lines::read(LIST, &recorder.host(), folder.path());
    let (mut run_lines, mut compared) = (0, BTreeMap::new());
    for foreign in lines.iter().filter(|foreign| foreign.tls.is_empty()) {
        let Some(sends) = &foreign.sends else {
            let output = run(foreign, "1s")?;
            ensure!(
                output.code == Some(2) && output.stderr.contains(&foreign.refused),
                "{}",
                output.described()
            );
            ensure!(recorder.take().is_empty(), "{}: something was sent", foreign.line);
            continue;
        };
        let of_line = || foreign.line.clone();
        let requests = sent(&recorder, |duration| {
            let output = run(foreign, duration)?;
            ensure!(output.code != Some(2), "{}", output.described());
            Ok(())
        });
        for request in requests.with_context(of_line)? {
            ensure!(&request == sends, "{}\nsends {request:?}\ninstead of {sends:?}", foreign.line);
        }
        run_lines += 1;
        // wrk2's README calls it wrk.
        let is_wrk2 = foreign.program() == "wrk" && foreign.line.contains("-R");
        let program = if is_wrk2 { "wrk2" } else { foreign.program() };
        let Some(path) = installed(program) else { continue };
        let requests = sent(&recorder, |duration| run_itself(foreign, &path, duration));
        for request in requests.with_context(of_line)? {
            ensure!(
                &request == sends,
                "{}\nitself sends {request:?}\nand the list says {sends:?}",
                foreign.line
            );
        }
        *compared.entry(program).or_insert(0) += 1;
    }
    ensure!(run_lines >= 36, "only {run_lines} lines ran");
    for (program, lines) in [("wrk", 6), ("ab", 6), ("curl", 13)] {
        let own = compared.get(program).copied().unwrap_or(0);
        ensure!(own >= lines, "only {own} lines of {program} were compared with itself; is it installed?");
    }
    // No package of Debian has wrk2: where it is missing, its lines are held against the list alone.
    Ok(())
}

#[test]
fn the_layouts_are_those_of_the_programs() -> Result<()> {
    let serve = Serve::start("")?;
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
            format!("ab -n 20 -c 2 -s 300 {url}"),
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
        let output = Proofload::new(&line)?.run()?;
        for word in words {
            ensure!(output.stdout.contains(word), "no '{word}': {}", output.described());
        }
        ensure!(output.stdout.contains("The same: proofload http --"), "{}", output.described());
    }
    Ok(())
}

#[test]
fn what_the_programs_would_not_say_is_said() -> Result<()> {
    let slow = Serve::start("--capacity 1 --service-time 20ms")?;
    let missed = Proofload::new(&format!("wrk2 -t1 -c1 -d1s -R 500 --timeout 5s {}", slow.url()))?.run()?;
    ensure!(missed.stdout.contains("the rate was missed"), "{}", missed.described());
    slow.stop()?;
    let refused = Serve::start("--status 404")?;
    let unexpected = Proofload::new(&format!("ab -n 5 -s 300 {}", refused.url()))?.run()?;
    ensure!(unexpected.counted(1)?.counts.failed == 5, "{}", unexpected.described());
    ensure!(unexpected.stdout.contains("Non-2xx responses:      5"), "{}", unexpected.described());
    ensure!(unexpected.stdout.contains("ab counts them as completed"), "{}", unexpected.described());
    refused.stop()?;
    Ok(())
}

#[test]
fn a_line_of_curl_meets_the_load_of_proofload() -> Result<()> {
    let recorder = Recorder::start()?;
    let url = format!("http://{}/x", recorder.host());
    let line = format!("http -n 6 -u 2 -q --timeout 5m --json /dev/null -- curl -d a=1 {url}");
    let output = Proofload::new(&line)?.run()?;
    ensure!(output.stdout.contains(" 6 completed, "), "{}", output.described());
    let requests = recorder.take();
    ensure!(requests.len() == 6 && requests.iter().all(|own| own.body == b"a=1"), "{requests:?}");
    let typed = Proofload::new("http -n 2 -u 1 -q --timeout 5m --curl -")?
        .with(|launch| launch.input(format!("curl '{url}' \\\n  --json '{{}}'\n")));
    let output = typed.run()?;
    ensure!(output.counted(0)?.counts.completed == 2, "{}", output.described());
    let requests = recorder.take();
    ensure!(requests.len() == 2 && requests.iter().all(|own| own.body == b"{}" && own.method == "POST"));
    let conflict = Proofload::new("http --timeout 3s -b x -H Accept:a --curl")?
        .arg(&format!("curl -m 5 -d y {url}"))
        .arg("http://a/")
        .run()?;
    for name in ["--timeout", "--body", "URL"] {
        ensure!(conflict.stderr.contains(&format!("{name}: curl's command")), "{}", conflict.described());
    }
    ensure!(conflict.code == Some(2) && recorder.take().is_empty(), "{}", conflict.described());
    Ok(())
}
