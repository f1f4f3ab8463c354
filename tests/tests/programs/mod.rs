//! Programs as the load, from outside.

use std::{fs, path::Path, thread, time::Duration};

use anyhow::{Context, Result, ensure};
use proofload_tests::{Proofload, process::child_with, temporary::TemporaryFolder};
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
    // The program says when it has begun, and ends when it is told to: while the supervisor stands still.
    let folder = TemporaryFolder::new()?;
    let [began, go] = ["began", "go"].map(|name| folder.file(name));
    let run = format!("echo $$ > {began}; until [ -e {go} ]; do sleep 0.01; done");
    let study = format!("title = \"t\"\n[workload.command]\nrun = \"{run}\"\n");
    let stopped = trial(&study, |proofload| {
        let begun = || fs::read_to_string(&began).ok()?.trim().parse::<u32>().ok();
        let program = find(PATIENCE, begun).context("the program does not begin")?;
        let number = find(PATIENCE, || child_with("command-run", proofload)).context("no supervisor")?;
        let supervisor = Pid::from_raw(number.cast_signed()).context("a number")?;
        kill_process(supervisor, Signal::STOP)?;
        until("the supervisor stands still", || state_of(number) == Some('T'));
        fs::write(&go, "")?;
        until("the program has ended", || state_of(program) == Some('Z'));
        // No less than that is the end away from where it is seen.
        thread::sleep(Duration::from_millis(300));
        Ok(kill_process(supervisor, Signal::CONT)?)
    })?;
    ensure!(!stopped.trial.quantities.contains_key("wall_s"), "{:?}", stopped.trial.quantities);
    ensure!(has_warning(&stopped, "end_not_seen"), "{:?}", stopped.trial.warnings);
    Ok(())
}

/// The letter that the kernel has for the state of a process.
fn state_of(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

#[test]
fn an_interrupt_on_hosts_undoes_what_was_prepared() -> Result<()> {
    let _shared = beside_others();
    let folder = TemporaryFolder::new()?;
    let [began, concluded, cleaned] = ["began", "concluded", "cleaned"].map(|name| folder.file(name));
    let file = folder.file("study.toml");
    let hooks =
        format!("setup = \"true\"\nconclude = \"echo > {concluded}\"\ncleanup = \"echo > {cleaned}\"\n");
    let workload = format!("[workload.command]\nrun = \"echo > {began}; exec sleep infinity\"\n{hooks}");
    fs::write(&file, format!("title = \"t\"\n[hosts]\nhost = {{}}\n{workload}"))?;
    let mut running = Proofload::new(&format!("run {file} --out {} -q", folder.file("result")))?.start()?;
    until("the program has begun", || Path::new(&began).exists());
    running.process.signal(Signal::INT);
    let output = running.finish()?;
    ensure!(output.code == Some(130), "{}", output.described());
    for hook in [&concluded, &cleaned] {
        ensure!(Path::new(hook).exists(), "{hook} is missing: {}", output.described());
    }
    Ok(())
}

/// How fast they were is a figure of the bar command-figures.
#[test]
fn bytes_that_the_kernel_still_sends_for_a_program_that_has_ended_are_counted() -> Result<()> {
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
ready_timeout = "10m"
on = "far"
command = ["socat", "-u", "TCP-LISTEN:5001,fork,reuseaddr", "OPEN:/dev/null"]
port = 5001
ready = "tcp:5001"
[workload.command]
from = "client"
target = "sink"
run = "head -c SIZE /dev/zero | socat -u STDIN TCP:{far}:5001,sndbuf=8000000"
bytes = BYTES
[trial]
settle = "5m"
"#;
    for (size, bytes) in [(3_000_000, "3000000"), (3_000_000, "\"link\""), (50_000, "\"link\"")] {
        let study = study.replace("SIZE", &size.to_string()).replace("BYTES", bytes);
        let entry = trial(&study, |_| Ok(()))?;
        let moved = entry.trial.quantities.get("moved_bytes").context("no bytes")? / f64::from(size);
        let on_wire = if bytes.starts_with('"') { 1538.0 / 1448.0 } else { 1.0 };
        // What is sent twice counts twice.
        ensure!(moved / on_wire >= 0.99, "{moved} of {size} bytes moved, counted by {bytes}");
    }
    Ok(())
}

#[test]
fn traffic_of_others_does_not_lengthen_a_trial() -> Result<()> {
    let _shared = beside_others();
    // Another program of the same host fills a slow link, whose queue never empties. Connected after the trial's beginning, it would be
    // taken for a part of it.
    let study = r#"
title = "beside others"
[hosts]
client = {}
far = {}
other = {}
[[links]]
name = "way"
between = ["client", "far"]
rate = "100mbit"
delay = "5ms"
[[links]]
name = "slow"
between = ["client", "other"]
rate = "1mbit"
delay = "200ms"
[[processes]]
ready_timeout = "10m"
on = "other"
command = ["socat", "-u", "TCP-LISTEN:5001,fork,reuseaddr", "OPEN:/dev/null"]
ready = "tcp:5001"
[[processes]]
ready_timeout = "10m"
on = "client"
command = ["socat", "-d", "-d", "-u", "OPEN:/dev/zero", "TCP:{other}:5001"]
ready = "log:data transfer loop"
[targets.sink]
ready_timeout = "10m"
on = "far"
command = ["socat", "-u", "TCP-LISTEN:5001,fork,reuseaddr", "OPEN:/dev/null"]
port = 5001
ready = "tcp:5001"
[workload.command]
from = "client"
target = "sink"
run = "exec socat -u SYSTEM:'head -c 2000000 /dev/zero' TCP:{far}:5001"
bytes = "2000000B"
[trial]
settle = "1h"
"#;
    // It does not end as long as it waits for the traffic of others.
    let entry = trial(study, |_| Ok(()))?;
    let moved = entry.trial.quantities.get("moved_bytes");
    ensure!(moved == Some(&2e6) && !entry.trial.interrupted, "{:?}", entry.trial);
    Ok(())
}
