//! Remote hosts that are observed over ssh: what is left there, hosts that fall silent, and refusals.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::symlink,
};

use anyhow::{Context, Result, ensure};
use proofload_tests::{
    fleet_hosts::{processes_in, signal},
    lab::{Labs, SshdFolder},
    proofload::binary,
};
use rustix::process::Signal;
use serde_json::Value;
use testing::{PATIENCE, find, until};

use super::run_folder;

const LAB: &str = r#"
title = "remote"
[hosts]
client = {}
web = {}
[[links]]
between = ["client", "web"]
[[processes]]
ready_timeout = "10m"
on = "web"
run = "sshd"
[[processes]]
ready_timeout = "10m"
on = "web"
run = "serve"
"#;
/// The same for all: the target, and where it is logged in to.
const OBSERVED: &str = "http http://10.1.0.2:8080/ -u 2 -q --json - --observe web=root@web";

/// The lab's hosts.
struct Hosts {
    labs: Labs,
    /// The search path on which `ssh` knows them.
    path: String,
    /// Their network namespaces: that of the client, and that of the target.
    networks: [String; 2],
}

impl Hosts {
    /// The processes of a host, by their ids, with their words.
    fn processes(&self, host: usize) -> BTreeMap<i32, String> {
        processes_in(&self.networks[host])
    }

    /// The shell that answers on the other side, once there is one.
    fn shell(&self) -> Result<i32> {
        let is_shell = |(pid, words): (i32, String)| (words == "sh ").then_some(pid);
        find(PATIENCE, || self.processes(1).into_iter().find_map(is_shell)).context("there is no shell")
    }

    /// Sends a signal to the load on the client.
    fn signal_load(&self, which: Signal) -> Result<()> {
        let processes = self.processes(0);
        let mut own = processes.iter().filter(|(_, words)| words.contains(" http "));
        own.try_for_each(|(&pid, _)| signal(pid, which))
    }
}

/// Brings the lab up and calls `test`.
fn with_lab(test: impl FnOnce(&Hosts) -> Result<()>) -> Result<()> {
    let _lock = crate::without_other_labs();
    let _sshd = SshdFolder::made()?;
    let labs = Labs::new()?;
    let (lab, _) = labs.up(&labs.file("lab.toml", LAB)?)?;
    let path =
        labs.with_ssh(&format!("exec /usr/bin/ssh -F {}/ssh_config \"$@\"", run_folder(&lab.stdout())?))?;
    let network = |host: &str| labs.done(&format!("lab shell {host} -- readlink /proc/self/ns/net"));
    let networks = [network("client")?, network("web")?].map(|text| text.trim().to_owned());
    let hosts = Hosts { labs, path, networks };
    let tested = test(&hosts);
    hosts.labs.down(lab)?;
    tested
}

#[test]
fn inventory_nothing_is_left_on_a_remote_host_when_the_command_is_killed() -> Result<()> {
    with_lab(|hosts| {
        let processes = || [hosts.processes(0), hosts.processes(1)].into_iter().flatten();
        // sshd may be done with the first look at it only later, and says in its title what it does.
        let before: BTreeSet<i32> = processes().map(|(pid, _)| pid).collect();
        let left = || -> BTreeMap<_, _> { processes().filter(|(pid, _)| !before.contains(pid)).collect() };
        let words = format!("lab shell client -- {} {OBSERVED} -d 1h", binary()?.display());
        let mut command = hosts.labs.command(&words)?.env("PATH", &hosts.path).start()?;
        hosts.shell()?;
        hosts.signal_load(Signal::KILL)?;
        command.wait(PATIENCE)?.context("it goes on")?;
        ensure!(find(PATIENCE, || left().is_empty().then_some(())).is_some(), "{:#?}", left());
        Ok(())
    })
}

#[test]
fn inventory_a_remote_host_that_falls_silent_costs_its_counters_and_not_the_trial() -> Result<()> {
    with_lab(|hosts| {
        let words = format!("lab shell client -- {} {OBSERVED} -d 1h", binary()?.display());
        let command = hosts.labs.command(&words)?.env("PATH", &hosts.path).start()?;
        let shell = hosts.shell()?;
        // The trial has begun once the target has connections.
        let sockets = || fs::read_to_string(format!("/proc/{shell}/net/tcp")).unwrap_or_default();
        until("the target is connected to", || {
            sockets().lines().any(|line| line.contains(":1F90 ") && line.contains(" 01 "))
        });
        signal(shell, Signal::STOP)?;
        hosts.signal_load(Signal::INT)?;
        let finished = command.finish(PATIENCE)?;
        signal(shell, Signal::CONT)?;
        let trial: Value = serde_json::from_str(&finished.stdout).with_context(|| finished.stderr.clone())?;
        let warnings = trial["warnings"].to_string();
        ensure!(warnings.contains("web (no answer for 5 s)") && finished.code == Some(130), "{trial:#}");
        ensure!(trial["verdict"]["missing"][0] == "web: no answer for 5 s", "{:#}", trial["verdict"]);
        Ok(())
    })
}

#[test]
fn inventory_a_remote_host_needs_only_a_shell_and_cat() -> Result<()> {
    with_lab(|hosts| {
        let tools = hosts.labs.path("tools");
        fs::create_dir(&tools)?;
        symlink("/bin/cat", format!("{tools}/cat"))?;
        // The shell there adds the folders of system programs, where Debian has no ss.
        let path = hosts.labs.with_ssh(&format!("PATH={tools} exec /bin/sh"))?;
        // A second at the least: two looks at a queue tell whether it is there for long.
        let load = "--think-time 5ms -n 400 --timeout 5m";
        let words = format!("lab shell client -- {} {OBSERVED} {load}", binary()?.display());
        let finished = hosts.labs.command(&words)?.env("PATH", &path).run(PATIENCE)?;
        let trial: Value = serde_json::from_str(&finished.stdout).with_context(|| finished.stderr.clone())?;
        let [missing, excluded] = ["missing", "excluded"].map(|key| trial["verdict"][key].to_string());
        ensure!(
            missing.contains("no process of the target could be examined (ss is not installed there"),
            "{missing}"
        );
        ensure!(excluded.contains("accept_queue") && excluded.contains("packet_queue"), "{excluded}");
        Ok(())
    })
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
        "two observed hosts are called one".to_owned(),
    ] {
        ensure!(refused.stderr.contains(&part) && refused.code == Some(2), "{part}: {}", refused.stderr);
    }
    // What the tests themselves start programs with.
    let tools = labs.path("tools");
    fs::create_dir(&tools)?;
    symlink("/usr/bin/setpriv", format!("{tools}/setpriv"))?;
    let none = labs.command("http http://192.0.2.1/ --observe admin@a")?.env("PATH", &tools).run(PATIENCE)?;
    ensure!(
        none.stderr.contains("cannot run ssh") && none.stderr.contains("openssh-client"),
        "{}",
        none.stderr
    );
    let text = "observe = [\"a@b\", \"a@b:x\", 3]\n[workload.http]\nurl = \"http://192.0.2.1/\"\nusers = 1\nduration = \"1s\"\n";
    let refused = labs.run(&format!("run {}", labs.file("study.toml", text)?))?;
    ensure!(
        refused.stderr.contains(":1:19: 'a@b:x' is not a host") && refused.stderr.contains(":1:28: "),
        "{}",
        refused.stderr
    );
    Ok(())
}

#[test]
fn inventory_what_is_left_on_a_remote_host_is_waited_for() -> Result<()> {
    with_lab(|hosts| {
        // Beyond it, the kernel keeps no socket in TIME_WAIT: more than half of them are left.
        let few = "echo 100 > /proc/sys/net/ipv4/tcp_max_tw_buckets\n";
        hosts.labs.done(&format!("lab shell web -- sh {}", hosts.labs.file("few.sh", few)?))?;
        let study = "title = \"left\"\nobserve = [\"web=root@web\"]\n[workload.http]\nurl = \"http://10.1.0.2:8080/\"\nrate = 1200\n\
                     requests = 1200\ndrain = \"5m\"\ntimeout = \"5m\"\nkeepalive = false\n[trial]\nrepeats = 2\nvoid_attempts = 0\nsettle = \"1s\"\n";
        let file = hosts.labs.file("study.toml", study)?;
        let words = format!(
            "lab shell client -- {} run {file} --out {}",
            binary()?.display(),
            hosts.labs.path("result")
        );
        let finished = hosts.labs.command(&words)?.env("PATH", &hosts.path).run(PATIENCE)?;
        let told = "waiting at most 1 s before trial 2: ";
        ensure!(finished.stderr.contains(told), "{}", finished.stderr);
        ensure!(finished.stderr.contains("sockets in TIME_WAIT on web (up to 50 do"), "{}", finished.stderr);
        Ok(())
    })
}
