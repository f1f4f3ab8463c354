//! Programs as the load, from outside.

use std::{fs, path::Path, thread, time::Duration};

use anyhow::{Context, Result, ensure};
use proofload_tests::{Proofload, link::uncertified, process::child_with, temporary::TemporaryFolder};
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
        let supervisor = find(PATIENCE, || child_with("command-run", proofload)).context("no supervisor")?;
        let supervisor = Pid::from_raw(supervisor.cast_signed()).context("a number")?;
        kill_process(supervisor, Signal::STOP)?;
        until("the program has ended", || Path::new(&ended).exists());
        thread::sleep(Duration::from_millis(300));
        Ok(kill_process(supervisor, Signal::CONT)?)
    })?;
    ensure!(!stopped.trial.quantities.contains_key("wall_s"), "{:?}", stopped.trial.quantities);
    ensure!(has_warning(&stopped, "end_not_seen"), "{:?}", stopped.trial.warnings);
    Ok(())
}

#[test]
fn an_interrupt_on_hosts_undoes_what_was_prepared() -> Result<()> {
    let _shared = beside_others();
    let folder = TemporaryFolder::new()?;
    let [began, concluded, cleaned] = ["began", "concluded", "cleaned"].map(|name| folder.file(name));
    let file = folder.file("study.toml");
    let hooks =
        format!("setup = \"true\"\nconclude = \"echo > {concluded}\"\ncleanup = \"echo > {cleaned}\"\n");
    let workload = format!("[workload.command]\nrun = \"echo > {began}; exec sleep 30\"\n{hooks}");
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
run = "head -c SIZE /dev/zero | socat -u STDIN TCP:{far}:5001,sndbuf=8000000"
bytes = BYTES
"#;
    for (size, bytes) in [(3_000_000, "3000000"), (3_000_000, "\"link\""), (50_000, "\"link\"")] {
        let study = study.replace("SIZE", &size.to_string()).replace("BYTES", bytes);
        let entry = trial(&study, |_| Ok(()))?;
        if uncertified(std::slice::from_ref(&entry))?.is_some() {
            continue;
        }
        let quantity = |name| entry.trial.quantities.get(name).copied();
        let moved = quantity("moved_bytes").context("no bytes")? / f64::from(size);
        let on_wire = if bytes.starts_with('"') { 1538.0 / 1448.0 } else { 1.0 };
        ensure!(
            (0.99..1.03).contains(&(moved / on_wire)),
            "{moved} of {size} bytes moved, counted by {bytes}"
        );
        let Some(goodput) = quantity("goodput_bit_per_s") else {
            ensure!(has_warning(&entry, "goodput_unknown") || has_warning(&entry, "end_not_seen"));
            continue;
        };
        ensure!(goodput < 20.2e6, "{bytes}: {goodput} bit/s over 20 Mbit/s");
        ensure!(size < 1_000_000 || goodput > 14e6, "{bytes}: {goodput} bit/s over 20 Mbit/s");
    }
    Ok(())
}

#[test]
fn traffic_of_others_does_not_lengthen_a_trial() -> Result<()> {
    let _shared = beside_others();
    // Another program of the same host fills a slow link, whose queue never empties.
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
on = "other"
command = ["socat", "-u", "TCP-LISTEN:5001,fork,reuseaddr", "OPEN:/dev/null"]
ready = "tcp:5001"
[[processes]]
on = "client"
command = ["socat", "-u", "OPEN:/dev/zero", "TCP:{other}:5001"]
[targets.sink]
on = "far"
command = ["socat", "-u", "TCP-LISTEN:5001,fork,reuseaddr", "OPEN:/dev/null"]
port = 5001
ready = "tcp:5001"
[workload.command]
from = "client"
target = "sink"
run = "exec socat -u SYSTEM:'head -c 2000000 /dev/zero' TCP:{far}:5001"
bytes = "2000000B"
"#;
    let entry = trial(study, |_| Ok(()))?;
    let quantity = |name| entry.trial.quantities.get(name).copied();
    if entry.trial.validity.is_void() {
        return Ok(());
    }
    // A crowded machine may not know when the program ended.
    let (Some(wall_s), Some(goodput)) = (quantity("wall_s"), quantity("goodput_bit_per_s")) else {
        ensure!(has_warning(&entry, "goodput_unknown") || has_warning(&entry, "end_not_seen"));
        return Ok(());
    };
    let sending_s = 16e6 / goodput;
    // The socket's buffer holds less than a quarter of the bytes, and the link carries them in 40 ms.
    ensure!(sending_s < wall_s + 0.5 * wall_s.max(0.2), "{sending_s} s, of which the program ran {wall_s} s");
    Ok(())
}
