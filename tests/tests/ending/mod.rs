//! How commands end when they are told to, and when nobody can read what they say.

use std::{fs, net::TcpListener, path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use proofload_tests::{
    Output, Proofload, Serve, link::LinkedHosts, process::Launch, proofload::binary,
    temporary::TemporaryFolder,
};
use record::{Ending, ResultFolder};
use rustix::process::Signal;

use super::beside_others;

/// Runs a call by a shell that does this first, with `FOLDER` for a folder of its own.
fn with_output(words: &str, redirect: &str) -> Result<Output> {
    let folder = TemporaryFolder::new()?;
    let script = redirect.replace("FOLDER", &folder.path().display().to_string());
    Proofload::new(words)?.with(|launch| launch.under(["bash", "-c", &script])).run()
}

const FULL: &str = r#"exec "$0" "$@" >/dev/full"#;
/// A pipe whose reader has left.
const UNREAD: &str = r#"mkfifo FOLDER/pipe; exec 3<>FOLDER/pipe 4>FOLDER/pipe 3>&-; exec "$0" "$@" >&4 4>&-"#;

#[test]
fn what_cannot_be_said_is_no_success() -> Result<()> {
    let _shared = beside_others();
    let folder = TemporaryFolder::new()?;
    let lab = folder.file("lab.toml");
    fs::write(&lab, "title = \"one\"\n[hosts]\none = {}\n")?;
    let study = Path::new(env!("CARGO_MANIFEST_DIR")).join("../studies/quickstart.toml");
    for words in [
        "--help",
        "--version",
        "serve --listen 127.0.0.1:0 --duration 100ms",
        "serve --listen 127.0.0.1:0 --duration 100ms --json -",
        "listen --schema",
        &format!("lab graph {lab}"),
        &format!("lab graph {lab} --svg -"),
        &format!("run {} --dry-run", study.display()),
    ] {
        let full = with_output(words, FULL)?;
        ensure!(
            full.code == Some(2) && full.stderr.contains("standard output: No space"),
            "{}",
            full.described()
        );
        let unread = with_output(words, UNREAD)?;
        ensure!(unread.code == Some(141) && unread.stderr.is_empty(), "{}", unread.described());
    }
    Ok(())
}

#[test]
fn receipts_that_cannot_be_written_are_no_success() -> Result<()> {
    let _shared = beside_others();
    let serve = Serve::start("")?;
    let with = |limit: &str| {
        let folder = TemporaryFolder::new()?;
        let script = format!(r#"{limit}; exec "$0" "$@""#);
        let launch = Launch::new("bash").args(["-c", &script, &binary()?.display().to_string()]);
        let words = format!(
            "http {} -c 200 --loops 5 --think-time 1ms --threads 1 -q --events --receipts",
            serve.url()
        );
        launch.words(&words).arg(folder.file("receipts")).run(Duration::from_secs(30))
    };
    let written = with("true")?;
    // Beside other tests, the generator may have had no time: 3.
    ensure!(matches!(written.code, Some(0 | 3)) && !written.stderr.contains("--receipts"), "{written:?}");
    // What goes beyond the largest file is refused, as on a full disk.
    let lost = with("trap '' XFSZ; ulimit -f 4")?;
    let is_told = lost.stderr.contains("proofload: --receipts: ") && lost.stdout.contains("requests/s");
    ensure!(lost.code == Some(2) && is_told, "{lost:?}");
    Ok(())
}

#[test]
fn a_trial_is_shown_although_it_cannot_be_written() -> Result<()> {
    let _shared = beside_others();
    let serve = Serve::start("")?;
    for option in ["--json", "--hlog"] {
        let words = format!("http {} -c 2 -R 5 -d 1s -q {option} /dev/full", serve.url());
        let output = Proofload::new(&words)?.run()?;
        let is_told = output.stderr.contains("cannot write /dev/full");
        ensure!(output.code == Some(2) && is_told, "{}", output.described());
        let is_shown = output.stdout.lines().any(|line| {
            line.starts_with("Carried ") && line.contains("requests/s for") || line.starts_with("Not decided")
        });
        ensure!(is_shown, "{}", output.described());
    }
    let folder = TemporaryFolder::new()?;
    let search = "--p99 900ms --min 20 --max 40 --trial 200ms --repeats 1 -q --json /dev/full";
    let words = format!("limit rate {} {search} --out {}", serve.url(), folder.file("result"));
    let output = Proofload::new(&words)?.run()?;
    let is_told = output.code == Some(2) && output.stderr.contains("cannot write /dev/full");
    ensure!(is_told && output.stdout.contains("Limit of rate at"), "{}", output.described());
    Ok(())
}

#[test]
fn a_trial_is_written_although_it_cannot_be_shown() -> Result<()> {
    let _shared = beside_others();
    let serve = Serve::start("")?;
    let words = format!("http {} -c 2 -n 50 -q", serve.url());
    for (redirect, code) in [(FULL, 2), (UNREAD, 141)] {
        let output = with_output(&words, redirect)?;
        ensure!(output.trial_with_code(code)?.counts.completed == 50, "{}", output.described());
    }
    // Progress is not what was asked for.
    let mute =
        with_output(&format!("http {} -c 2 -R 100 -d 6s", serve.url()), r#"exec "$0" "$@" 2>/dev/full"#)?;
    mute.trial_even_if_crowded(0)?;
    Ok(())
}

#[test]
fn what_a_trial_leaves_may_lie_in_its_result_folder() -> Result<()> {
    let _shared = beside_others();
    let (serve, folder) = (Serve::start("")?, TemporaryFolder::new()?);
    let (out, page) = (folder.file("result"), folder.file("result/own.html"));
    let words = format!("http {} -n 20 -q --out {out} --html {page} --json {out}/trial.json", serve.url());
    let output = Proofload::new(&words)?.run()?;
    ensure!(fs::read_to_string(&page)?.contains("</html>"), "{}", output.described());
    ensure!(fs::metadata(format!("{out}/trial.json"))?.len() > 0, "{}", output.described());
    Ok(())
}

#[test]
fn a_terminal_that_goes_away_leaves_a_marked_result() -> Result<()> {
    let _shared = beside_others();
    let target = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}/", target.local_addr()?);
    let mut running = Proofload::http(&url, "-c 2 -d 60s")?.start()?;
    let connection = target.accept()?;
    // By the kernel, and by the shell.
    running.process.signal(Signal::HUP);
    running.process.signal(Signal::HUP);
    let output = running.finish()?;
    ensure!(output.trial_with_code(130)?.interrupted, "{}", output.described());
    drop(connection);

    // The first one's other connection waits at the old one.
    let target = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}/", target.local_addr()?);
    let folder = TemporaryFolder::new()?;
    let (json, out) = (folder.file("result.json"), folder.file("result"));
    let words = format!("limit rate {url} --p99 50ms --json {json} --out {out} -q");
    let mut running = Proofload::new(&words)?.start()?;
    let connection = target.accept()?;
    running.process.signal(Signal::HUP);
    running.process.signal(Signal::HUP);
    let output = running.finish()?;
    ensure!(output.code == Some(130), "{}", output.described());
    let result = ResultFolder::open(out.as_ref())?.result()?.context("no result was written")?;
    ensure!(result.ending == Ending::Interrupted && fs::metadata(&json)?.len() > 0, "{result:?}");
    drop(connection);

    let link = LinkedHosts::start("--delay 1ms")?;
    ensure!(link.end_by(Signal::HUP)?["counters"].is_array(), "the link left no counters");
    Ok(())
}

#[test]
fn a_run_under_nohup_goes_on_without_its_terminal() -> Result<()> {
    let _shared = beside_others();
    let serve = Serve::start("")?;
    let ignoring = r#"trap "" HUP; "$0" "$@" & pid=$!; sleep 0.5; kill -HUP $pid; wait $pid"#;
    let output = with_output(&format!("http {} -c 2 -d 2s -q", serve.url()), ignoring)?;
    ensure!(!output.trial_even_if_crowded(0)?.interrupted, "{}", output.described());
    Ok(())
}

#[test]
fn lines_are_broken_between_words_on_a_terminal() -> Result<()> {
    let _shared = beside_others();
    let serve = Serve::start("")?;
    let command = format!("stty cols 80; {} http {} -c 2 -n 100 -q", binary()?.display(), serve.url());
    // util-linux's script gives it a terminal.
    let shown = Launch::new("script").args(["-qefc", &command, "/dev/null"]).run(Duration::from_secs(30))?;
    let lines: Vec<&str> = shown.stdout.lines().map(str::trim_end).collect();
    ensure!(lines.iter().all(|line| line.chars().count() <= 80), "{}", shown.stdout);
    let words: Vec<&str> = lines.iter().flat_map(|line| line.split_whitespace()).collect();
    let requests = words.iter().position(|&word| word == "scheduled,").context("no requests are shown")?;
    ensure!(words[requests..].windows(2).any(|pair| pair == ["the", "end"]), "{}", shown.stdout);
    Ok(())
}
