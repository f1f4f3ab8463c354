//! Programs as the load, from outside.

use std::{fs, path::Path, thread, time::Duration};

use anyhow::{Context, Result, ensure};
use proofload_tests::{Proofload, link::uncertified, temporary::TemporaryFolder};
use record::{ResultFolder, TrialEntry};
use rustix::process::{Pid, Signal, kill_process};
use testing::{PATIENCE, find, until};

use super::beside_others;

/// Runs a study of one trial and calls `meanwhile` with the number of proofload's process.
fn trial(study: &str, meanwhile: impl FnOnce(u32) -> Result<()>) -> Result<TrialEntry> {
    let folder = TemporaryFolder::new()?;
    let file = folder.file("study.toml");
    fs::write(&file, study)?;
    let words = format!("run {file} --out {} -q", folder.file("result"));
    let running = Proofload::new(&words)?.start()?;
    meanwhile(running.process.pid())?;
    let output = running.finish()?;
    let mut trials = ResultFolder::open(&folder.path().join("result"))?.trials()?;
    trials.pop().with_context(|| output.described())
}

fn has_warning(entry: &TrialEntry, code: &str) -> bool {
    entry.trial.warnings.iter().any(|warning| warning.code == code)
}

#[test]
fn an_end_that_nobody_saw_gives_no_wall_time() -> Result<()> {
    let _shared = beside_others();
    // The program says when it begins and ends, so that the supervisor can be stopped meanwhile.
    let folder = TemporaryFolder::new()?;
    let [began, ended] = ["began", "ended"].map(|name| folder.file(name));
    let run = format!("echo > {began}; sleep 1; echo > {ended}");
    let study = format!("title = \"t\"\n[workload.command]\nrun = \"{run}\"\n");
    let stopped = trial(&study, |proofload| {
        until("the program has begun", || Path::new(&began).exists());
        let supervisor = find(PATIENCE, || child(proofload)).context("no supervisor")?;
        let supervisor = Pid::from_raw(supervisor).context("a number")?;
        kill_process(supervisor, Signal::STOP)?;
        until("the program has ended", || Path::new(&ended).exists());
        thread::sleep(Duration::from_millis(300));
        Ok(kill_process(supervisor, Signal::CONT)?)
    })?;
    ensure!(!stopped.trial.quantities.contains_key("wall_s"), "{:?}", stopped.trial.quantities);
    ensure!(has_warning(&stopped, "end_not_seen"), "{:?}", stopped.trial.warnings);
    Ok(())
}

/// The first child of a process that runs programs.
fn child(process: u32) -> Option<i32> {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).ok()?;
    let is_supervisor = |child: &&str| {
        fs::read(format!("/proc/{child}/cmdline")).is_ok_and(|line| line.ends_with(b"\0command-run\0"))
    };
    children.split_whitespace().find(is_supervisor)?.parse().ok()
}

#[test]
fn handing_bytes_to_the_kernel_is_not_faster_than_the_link() -> Result<()> {
    let _shared = beside_others();
    let study = r#"
title = "handed over"
[hosts]
client = {}
far = {}
[[links]]
name = "way"
between = ["client", "far"]
rate = "20mbit"
delay = "10ms"
[targets.sink]
on = "far"
command = ["socat", "-u", "TCP-LISTEN:5001,fork,reuseaddr", "OPEN:/dev/null"]
port = 5001
ready = "tcp:5001"
[workload.command]
from = "client"
target = "sink"
run = "head -c 3M /dev/zero | socat -u STDIN TCP:{far}:5001,sndbuf=8000000"
bytes = BYTES
"#;
    for bytes in ["\"3MiB\"", "\"link\""] {
        let entry = trial(&study.replace("BYTES", bytes), |_| Ok(()))?;
        if uncertified(std::slice::from_ref(&entry))?.is_some() {
            continue;
        }
        let [wall_s, goodput] = ["wall_s", "goodput_bit_per_s"]
            .map(|name| entry.trial.quantities.get(name).copied().unwrap_or(0.0));
        ensure!(wall_s < 0.6, "the kernel did not take all at once, but in {wall_s} s");
        ensure!((10e6..20e6).contains(&goodput), "{bytes}: {goodput} bit/s over 20 Mbit/s");
    }
    Ok(())
}
