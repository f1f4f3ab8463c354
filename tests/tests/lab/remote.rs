//! Remote hosts that are observed over ssh: what is left there, hosts that fall silent, and refusals.

use std::{collections::BTreeSet, fs};

use anyhow::{Context, Result, ensure};
use proofload_tests::{
    lab::{Labs, SshdFolder},
    proofload::binary,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testing::{PATIENCE, find, until};

use super::{alone, run_folder};

const LAB: &str = r#"
title = "remote"
[hosts]
client = {}
web = {}
[[links]]
between = ["client", "web"]
[[processes]]
on = "web"
run = "sshd"
[[processes]]
on = "web"
run = "serve"
"#;
/// The same for all: the target, and where it is logged in to.
const OBSERVED: &str = "http http://10.1.0.2:8080/ -u 2 -q --json - --observe web=root@web";

/// The ids of processes in other network namespaces than this one whose words begin with these.
fn elsewhere(words: &str) -> Result<BTreeSet<i32>> {
    let own = fs::read_link("/proc/self/ns/net")?;
    let is_found = |pid: &i32| {
        let found = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let network = fs::read_link(format!("/proc/{pid}/ns/net"));
        String::from_utf8_lossy(&found).replace('\0', " ").starts_with(words)
            && network.is_ok_and(|of| of != own)
    };
    let all = fs::read_dir("/proc")?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(all.filter(is_found).collect())
}

fn signal(pid: i32, signal: Signal) -> Result<()> {
    Ok(kill_process(Pid::from_raw(pid).context("no process")?, signal)?)
}

/// The shell that answers on the other side, once there is one.
fn shell() -> Result<i32> {
    find(PATIENCE, || elsewhere("sh ").ok()?.first().copied()).context("there is no shell")
}

/// Brings the lab up and calls `test` with a place, and the search path on which `ssh` knows its hosts.
fn with_lab(test: impl FnOnce(&Labs, &str) -> Result<()>) -> Result<()> {
    let _alone = alone();
    let _sshd = SshdFolder::made()?;
    let labs = Labs::new()?;
    let (lab, _) = labs.up(&labs.file("lab.toml", LAB)?)?;
    let path =
        labs.with_ssh(&format!("exec /usr/bin/ssh -F {}/ssh_config \"$@\"", run_folder(&lab.stdout())?))?;
    let tested = test(&labs, &path);
    labs.down(lab)?;
    tested
}

#[test]
fn nothing_is_left_on_a_remote_host_when_the_command_is_killed() -> Result<()> {
    with_lab(|labs, path| {
        let before = labs.inventory()?;
        let program = binary()?.display().to_string();
        let words = format!("lab shell client -- {program} {OBSERVED} -d 60s");
        let mut command = labs.command(&words)?.env("PATH", path).start()?;
        shell()?;
        for pid in elsewhere(&format!("{program} http"))? {
            signal(pid, Signal::KILL)?;
        }
        command.wait(PATIENCE)?.context("it goes on")?;
        let left = labs.difference(&before)?;
        ensure!(left.is_empty(), "{left:#?}");
        Ok(())
    })
}

#[test]
fn a_remote_host_that_falls_silent_costs_its_counters_and_not_the_trial() -> Result<()> {
    with_lab(|labs, path| {
        let words = format!("lab shell client -- {} {OBSERVED} -d 3s", binary()?.display());
        let command = labs.command(&words)?.env("PATH", path).start()?;
        let shell = shell()?;
        // The trial has begun once the target has connections.
        let sockets = || fs::read_to_string(format!("/proc/{shell}/net/tcp")).unwrap_or_default();
        until("the target is connected to", || {
            sockets().lines().any(|line| line.contains(":1F90 ") && line.contains(" 01 "))
        });
        signal(shell, Signal::STOP)?;
        let finished = command.finish(PATIENCE)?;
        signal(shell, Signal::CONT)?;
        let trial: Value = serde_json::from_str(&finished.stdout).with_context(|| finished.stderr.clone())?;
        let expected = "web (no answer for 5 s)";
        let warnings = trial["warnings"].to_string();
        ensure!(warnings.contains(expected) && finished.code == Some(0), "{:?} {trial:#}", finished.code);
        ensure!(trial["verdict"]["missing"][0] == "web: no answer for 5 s", "{:#}", trial["verdict"]);
        ensure!(trial["elapsed_s"].as_f64().is_some_and(|elapsed_s| elapsed_s < 3.5), "{trial:#}");
        Ok(())
    })
}

#[test]
fn a_remote_host_needs_only_a_shell_and_cat() -> Result<()> {
    let _alone = alone();
    let labs = Labs::new()?;
    let tools = labs.path("tools");
    fs::create_dir(&tools)?;
    std::os::unix::fs::symlink("/bin/cat", format!("{tools}/cat"))?;
    // The shell adds the folders of system programs, where Debian has no ss.
    let path = labs.with_ssh(&format!("PATH={tools} exec /bin/sh"))?;
    let target = proofload_tests::Serve::start("")?;
    let words = format!("http {} -u 2 -q -d 1s --json - --observe elsewhere", target.url());
    let finished = labs.command(&words)?.env("PATH", &path).run(PATIENCE)?;
    let trial: Value = serde_json::from_str(&finished.stdout).with_context(|| finished.stderr.clone())?;
    let missing = trial["verdict"]["missing"].to_string();
    ensure!(missing.contains("ss is not installed there") && !trial["warnings"].is_null(), "{trial:#}");
    let excluded = trial["verdict"]["excluded"].to_string();
    ensure!(excluded.contains("accept_queue") && excluded.contains("packet_queue"), "{excluded}");
    Ok(())
}

#[test]
fn hosts_that_cannot_be_logged_in_to_are_refused_together_and_nothing_is_sent() -> Result<()> {
    let labs = Labs::new()?;
    let path = labs.with_ssh("echo \"Permission denied (publickey).\" >&2; exit 255")?;
    let words = "http http://192.0.2.1/ --observe one=admin@a --observe admin@b:2222 --observe one=admin@c";
    let refused = labs.command(words)?.env("PATH", &path).run(PATIENCE)?;
    let why = "Permission denied (publickey); `ssh";
    for part in [
        format!("cannot observe one: {why} admin@a true` must work without a password"),
        format!("cannot observe admin@b:2222: {why} -p 2222 admin@b true`"),
        "two hosts to observe are called one".to_owned(),
    ] {
        ensure!(refused.stderr.contains(&part) && refused.code == Some(2), "{part}: {}", refused.stderr);
    }
    let none = labs
        .command("http http://192.0.2.1/ --observe admin@a")?
        .env("PATH", "/nonexistent")
        .run(PATIENCE)?;
    ensure!(
        none.stderr.contains("cannot run ssh") && none.stderr.contains("openssh-client"),
        "{}",
        none.stderr
    );
    let text = "observe = [\"a@b\", \"a@b:x\", 3]\n[workload.http]\nurl = \"http://192.0.2.1/\"\nusers = 1\nduration = \"1s\"\n";
    let refused = labs.run(&format!("run {}", labs.file("study.toml", text)?))?;
    ensure!(
        refused.stderr.contains(":1:20: 'a@b:x' is no host") && refused.stderr.contains(":1:29: "),
        "{}",
        refused.stderr
    );
    Ok(())
}
