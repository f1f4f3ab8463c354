//! How commands end when they are told to, and when nobody can read what they say.

use std::{fs, net::TcpListener, path::Path};

use anyhow::{Context, Result, ensure};
use proofload_tests::{
    Output, Proofload, Serve, link::LinkedHosts, process::Launch, proofload::binary,
    temporary::TemporaryFolder,
};
use record::{AuditResult, Ending, ResultFolder};
use rustix::process::Signal;
use testing::{PATIENCE, unread_bytes, until};

use super::beside_others;

/// Runs a call by a shell that does this first, with `FOLDER` for a folder of its own.
fn with_output(call: Proofload, redirect: &str) -> Result<Output> {
    let folder = TemporaryFolder::new()?;
    let script = redirect.replace("FOLDER", &folder.path().display().to_string());
    call.with(|launch| launch.under(["bash", "-c", &script])).run()
}

/// Waits until a request lies at a target that takes none.
fn is_asked(target: &TcpListener) -> Result<()> {
    let address = target.local_addr()?;
    until("a request is sent", || unread_bytes(address).iter().any(|&bytes| bytes > 0));
    Ok(())
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
        let full = with_output(Proofload::new(words)?, FULL)?;
        ensure!(
            full.code == Some(2) && full.stderr.contains("standard output: No space"),
            "{}",
            full.described()
        );
        let unread = with_output(Proofload::new(words)?, UNREAD)?;
        ensure!(unread.code == Some(141) && unread.stderr.is_empty(), "{}", unread.described());
    }
    Ok(())
}

#[test]
fn a_result_that_is_larger_than_a_file_may_be_is_told() -> Result<()> {
    let _shared = beside_others();
    let (serve, folder) = (Serve::start("")?, TemporaryFolder::new()?);
    let call = Proofload::http(&serve.url(), "-n 5 -q --json")?.arg(&folder.file("trial.json"));
    let limited = with_output(call, r#"ulimit -f 1; exec "$0" "$@""#)?;
    ensure!(
        limited.code == Some(2) && limited.stderr.contains("trial.json: File too large"),
        "{}",
        limited.described()
    );
    ensure!(fs::read_dir(folder.path())?.next().is_none(), "something is left");
    Ok(())
}

#[test]
fn a_body_that_memory_does_not_hold_is_told() -> Result<()> {
    let _shared = beside_others();
    let (serve, folder) = (Serve::start("")?, TemporaryFolder::new()?);
    let limited = |mib: u64| {
        let file = folder.file("body");
        fs::File::create(&file)?.set_len(mib << 20)?;
        let call = Proofload::http(&serve.url(), "-c 1 -n 1 -q --body")?.arg(&format!("@{file}"));
        with_output(call, r#"ulimit -v 400000; exec "$0" "$@""#)
    };
    for mib in [40, 100, 250] {
        let told = limited(mib)?;
        let words = told.stderr.contains("/body: it has ") && told.stderr.contains("allows only 391 MiB");
        ensure!(told.code == Some(2) && words, "{}", told.described());
    }
    ensure!(limited(257)?.stderr.contains("it holds more than 256 MiB"), "it is too large anyway");
    limited(2)?.counted(0)?;
    Ok(())
}

#[test]
fn a_file_that_waits_for_ever_is_refused() -> Result<()> {
    let _shared = beside_others();
    let serve = Serve::start("")?;
    let call = Proofload::http(&serve.url(), "-n 1 -q --feeder /proc/kmsg -H X:{{x}}")?.run()?;
    ensure!(call.code == Some(2) && call.stderr.contains("/proc/kmsg"), "{}", call.described());
    Ok(())
}

#[test]
fn what_nobody_reads_ends_by_one_signal() -> Result<()> {
    let _shared = beside_others();
    let (serve, folder) = (Serve::start("")?, TemporaryFolder::new()?);
    // A pipe that is full, and stays open for reading.
    let full = r#"mkfifo FOLDER/pipe; exec 3<>FOLDER/pipe; head -c 65536 /dev/zero >&3; exec "$0" "$@" >&3"#;
    let script = full.replace("FOLDER", &folder.path().display().to_string());
    let json = folder.file("trial.json");
    let call = Proofload::http(&serve.url(), "-n 5 --json")?.arg(&json);
    let mut call = call.with(|launch| launch.under(["bash", "-c", &script])).start()?;
    until("the trial has ended", || Path::new(&json).exists());
    call.process.signal(Signal::TERM);
    let ended = call.finish()?;
    ensure!(
        ended.code == Some(2) && ended.stderr.contains("output: nobody reads it"),
        "{}",
        ended.described()
    );
    Ok(())
}

#[test]
fn what_is_written_to_a_pipe_that_nobody_reads_ends_by_one_signal() -> Result<()> {
    let _shared = beside_others();
    let full = r#"mkfifo FOLDER/pipe; exec 3<>FOLDER/pipe; head -c 65536 /dev/zero >&3; exec "$0" "$@""#;
    let start = |folder: &TemporaryFolder, words: &str| {
        let script = full.replace("FOLDER", &folder.path().display().to_string());
        let words = words.replace("PIPE", &folder.file("pipe"));
        Proofload::new(&words)?.with(|launch| launch.under(["bash", "-c", &script])).start()
    };
    for processes in [1, 2] {
        let folder = TemporaryFolder::new()?;
        let (seen, json) = (folder.file("seen"), folder.file("trial.json"));
        let serve = Serve::start(&format!("--record {seen}"))?;
        let words = format!(
            "http {} -c 2 -n 6 -q --processes {processes} --log PIPE --log-sample 1 --json {json}",
            serve.url()
        );
        let mut call = start(&folder, &words)?;
        let lines = || fs::read_to_string(&seen).unwrap_or_default().lines().count();
        until("requests have come", || lines() == 6);
        call.process.signal(Signal::TERM);
        let ended = call.finish()?;
        let trial: record::Trial = serde_json::from_slice(&fs::read(&json)?)?;
        let is_told = trial.warnings.iter().any(|warning| warning.message.contains("nobody reads it"));
        ensure!(ended.code == Some(130) && trial.interrupted && is_told, "{}", ended.described());
    }
    // The certificate is written before anything is served, the record meanwhile, and the report behind it.
    for words in [
        "serve --listen 127.0.0.1:0 --tls --tls-ca-out PIPE",
        "serve --listen 127.0.0.1:0 --record PIPE",
        "listen --listen 127.0.0.1:0 --path PIPE.d/x --report PIPE",
    ] {
        let folder = TemporaryFolder::new()?;
        let mut call = start(&folder, words)?;
        let pid = call.process.pid();
        let catches = || fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let mask = |line: &str| u64::from_str_radix(line.trim(), 16).unwrap_or_default();
        until("signals are heeded", || {
            catches()
                .lines()
                .filter_map(|line| line.strip_prefix("SigCgt:"))
                .any(|line| mask(line) >> 14 & 1 == 1)
        });
        if words.contains("--record") {
            call.process.says("listening on ", PATIENCE)?;
            let said = call.process.stdout();
            let address = said.trim().rsplit(' ').next().unwrap_or_default().to_owned();
            Proofload::http(&format!("http://{address}/"), "-n 1 -q")?.run()?.counted(0)?;
        }
        call.process.signal(Signal::TERM);
        let ended = call.finish()?;
        let is_told = ended.stderr.contains("nobody reads it");
        ensure!(ended.code == Some(2) && is_told, "{words}: {}", ended.described());
    }
    Ok(())
}

#[test]
fn receipts_that_cannot_be_written_are_no_success() -> Result<()> {
    let _shared = beside_others();
    let (serve, folder) = (Serve::start("")?, TemporaryFolder::new()?);
    let events = |words: &str, receipts: &str| {
        let words = format!("-c 200 --loops 5 --think-time 1ms --threads 1 -q {words} --events --receipts");
        Ok::<_, anyhow::Error>(Proofload::http(&serve.url(), &words)?.arg(&folder.file(receipts)))
    };
    let written = events("", "whole")?.run()?;
    ensure!(written.counted(0)?.counts.completed == 1_000, "{}", written.described());
    let nothing = folder.file("nothing");
    fs::write(&nothing, "")?;
    let audit =
        Proofload::new("audit --json - --receipts")?.arg(&folder.file("whole")).arg(&nothing).run()?;
    let known: AuditResult = serde_json::from_str(&audit.stdout).with_context(|| audit.described())?;
    ensure!(known.sent.acknowledged == 1_000, "{}", audit.described());
    // What goes beyond the largest file is refused, as on a full disk.
    let lost =
        with_output(events("--json /dev/null", "lost")?, r#"trap '' XFSZ; ulimit -f 4; exec "$0" "$@""#)?;
    let is_told =
        lost.stderr.contains("proofload: --receipts: ") && lost.stdout.contains(" 1,000 completed, ");
    ensure!(lost.code == Some(2) && is_told, "{}", lost.described());
    Ok(())
}

#[test]
fn a_trial_is_shown_although_it_cannot_be_written() -> Result<()> {
    let _shared = beside_others();
    let serve = Serve::start("")?;
    for option in ["--json", "--hlog"] {
        let output = Proofload::http(&serve.url(), &format!("-c 2 -n 20 -q {option} /dev/full"))?.run()?;
        let is_told = output.stderr.contains("cannot write /dev/full");
        ensure!(output.code == Some(2) && is_told, "{}", output.described());
        ensure!(output.stdout.contains(" 20 completed, "), "{}", output.described());
    }
    let folder = TemporaryFolder::new()?;
    let search = "--p99 900ms --min 20 --max 40 --trial 200ms --drain 5m --repeats 1 -q --json /dev/full";
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
    for (redirect, code) in [(FULL, 2), (UNREAD, 141)] {
        let output = with_output(Proofload::http(&serve.url(), "-c 2 -n 50 -q")?, redirect)?;
        ensure!(output.trial_with_code(code)?.counts.completed == 50, "{}", output.described());
    }
    // Progress is not what was asked for.
    let call = Proofload::http(&serve.url(), "-c 2 -R 100 -n 600")?;
    let mute = with_output(call, r#"exec "$0" "$@" 2>/dev/full"#)?;
    ensure!(mute.counted(0)?.counts.completed == 600, "{}", mute.described());
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
    // So may that of a study. The URL of its target is in a variable, and kept from every record.
    let (study, out) = (folder.file("study.toml"), folder.file("of-study"));
    let text = "[targets.one]\nurl = \"${PLACE}\"\n[workload.http]\nusers = 1\nrequests = 5\ncookies = true\n[trial]\nrepeats = 1\n";
    fs::write(&study, text)?;
    let call = Proofload::new(&format!("run {study} -q --out {out} --json {out}/own.json"))?;
    let place = format!("{}hidden-place", serve.url());
    let output = call.with(|launch| launch.env("PLACE", &place)).run()?;
    let (own, trials) =
        (fs::read_to_string(format!("{out}/own.json"))?, fs::read_to_string(format!("{out}/trials.jsonl"))?);
    ensure!(output.code == Some(0) && own.contains("\"schema\""), "{}", output.described());
    ensure!(
        ![own, trials, output.stdout].iter().any(|text| text.contains("hidden-place")),
        "the place is shown"
    );
    for record in ["plan.json", "trials.jsonl", "report.html"] {
        let fresh = folder.file("fresh");
        let words = format!("run {study} -q --out {fresh} --json {fresh}/{record}");
        let eaten = Proofload::new(&words)?.with(|launch| launch.env("PLACE", &serve.url())).run()?;
        let is_told = eaten.stderr.contains("--json writes to it, too") && !Path::new(&fresh).exists();
        ensure!(eaten.code == Some(2) && is_told, "{}", eaten.described());
    }
    Ok(())
}

#[test]
fn a_terminal_that_goes_away_leaves_a_marked_result() -> Result<()> {
    let _shared = beside_others();
    let target = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}/", target.local_addr()?);
    let mut running = Proofload::http(&url, "-c 2 -d 1h")?.start()?;
    is_asked(&target)?;
    // By the kernel, and by the shell.
    running.process.signal(Signal::HUP);
    running.process.signal(Signal::HUP);
    let output = running.finish()?;
    ensure!(output.trial_with_code(130)?.interrupted, "{}", output.described());

    let target = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}/", target.local_addr()?);
    let folder = TemporaryFolder::new()?;
    let (json, out) = (folder.file("result.json"), folder.file("result"));
    let words = format!("limit rate {url} --p99 50ms --trial 1m --drain 5m --json {json} --out {out} -q");
    let mut running = Proofload::new(&words)?.start()?;
    is_asked(&target)?;
    running.process.signal(Signal::HUP);
    running.process.signal(Signal::HUP);
    let output = running.finish()?;
    ensure!(output.code == Some(130), "{}", output.described());
    let result = ResultFolder::open(out.as_ref())?.result()?.context("no result was written")?;
    ensure!(result.ending == Ending::Interrupted && fs::metadata(&json)?.len() > 0, "{result:?}");

    let link = LinkedHosts::start("--delay 1ms")?;
    ensure!(link.end_by(Signal::HUP)?["counters"].is_array(), "the link left no counters");
    Ok(())
}

#[test]
fn a_run_under_nohup_goes_on_without_its_terminal() -> Result<()> {
    let _shared = beside_others();
    let mut serve = Serve::start("")?;
    // Stopped, it leaves unread what it is sent: the run has begun, and cannot end before it hears the signal.
    serve.signal(Signal::STOP);
    let ignoring = ["bash", "-c", r#"trap "" HUP; exec "$0" "$@""#];
    let call = Proofload::http(&serve.url(), "-c 2 -n 1000 -q")?.with(|launch| launch.under(ignoring));
    let mut running = call.start()?;
    let address = serve.addresses()[0].parse()?;
    until("a request is sent", || unread_bytes(address).iter().any(|&bytes| bytes > 0));
    running.process.signal(Signal::HUP);
    serve.signal(Signal::CONT);
    let output = running.finish()?;
    let trial = output.counted(0)?;
    ensure!(!trial.interrupted && trial.counts.completed == 1_000, "{}", output.described());
    Ok(())
}

#[test]
fn lines_are_broken_between_words_on_a_terminal() -> Result<()> {
    let _shared = beside_others();
    let serve = Serve::start("")?;
    let command =
        format!("stty cols 80; {} http {} -c 2 -n 100 -q --timeout 5m", binary()?.display(), serve.url());
    // util-linux's script gives it a terminal.
    let shown = Launch::new("script").args(["-qefc", &command, "/dev/null"]).run(PATIENCE)?;
    let lines: Vec<&str> = shown.stdout.lines().map(str::trim_end).collect();
    ensure!(lines.iter().all(|line| line.chars().count() <= 80), "{}", shown.stdout);
    let words: Vec<&str> = lines.iter().flat_map(|line| line.split_whitespace()).collect();
    let requests = words.iter().position(|&word| word == "scheduled,").context("no requests are shown")?;
    ensure!(words[requests..].windows(2).any(|pair| pair == ["the", "end"]), "{}", shown.stdout);
    Ok(())
}
