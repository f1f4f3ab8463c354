//! What ended connections leave, and whether the next trial waits for it: in networks with few local ports.

use std::fs;

use anyhow::{Context, Result, ensure};
use proofload_tests::{
    Serve,
    link::host,
    process::{Finished, Launch, Process},
    proofload::binary,
    temporary::TemporaryFolder,
};
use record::{ResultFolder, TrialEntry, VoidRule};
use rustix::process::Signal;
use testing::{PATIENCE, find, until};

use super::super::beside_others;

/// An address that is no loopback address, of a block for documentation (RFC 5737).
const FAR: &str = "192.0.2.1";
const PORTS: u64 = 2_000;
/// The state of a connection whose port is kept, as the kernel has it.
const TIME_WAIT: &str = "06";

/// A network with 2,000 local ports, and a target in it.
struct Network {
    process: Process,
    serve: Serve,
    folder: TemporaryFolder,
}

impl Network {
    fn new() -> Result<Self> {
        let process = host()?;
        let under = vec!["nsenter".to_owned(), format!("--net=/proc/{}/ns/net", process.pid())];
        let script = format!(
            "ip link set lo up && ip address add {FAR}/32 dev lo && \
             echo 20000 21999 > /proc/sys/net/ipv4/ip_local_port_range"
        );
        let done = Launch::new("sh").args(["-c", &script]).under(under.iter().map(String::as_str));
        let done = done.run(PATIENCE)?;
        ensure!(done.code == Some(0), "cannot set the network up: {}", done.stderr);
        let serve = Serve::start_under(&format!("--listen {FAR}:8080 --listen 127.0.0.1:8080"), &under)?;
        Ok(Self { process, serve, folder: TemporaryFolder::new()? })
    }

    fn within(&self, program: String) -> Launch {
        let network = format!("--net=/proc/{}/ns/net", self.process.pid());
        Launch::new(program).under(["nsenter", &network])
    }

    /// Trials with this load and these keys of `[trial]`.
    fn study(&self, address: &str, load: &str, trial: &str) -> Result<Launch> {
        let file = self.folder.file("study.toml");
        let text = format!(
            "title = \"leftovers\"\n[workload.http]\nurl = \"http://{address}:8080/\"\n{load}\ndrain = \"5m\"\ntimeout = \"5m\"\n\
             [trial]\nrepeats = 2\nvoid_attempts = 0\n{trial}\n"
        );
        fs::write(&file, text)?;
        let _ = fs::remove_dir_all(self.folder.file("result"));
        let words = format!("run {file} --out {}", self.folder.file("result"));
        Ok(self.within(binary()?.display().to_string()).words(&words))
    }

    /// Opens so many connections to the target and closes them first, without proofload: each keeps a port for 60 s.
    fn leave(&self, count: u64) -> Result<()> {
        let before = self.kept_ports()?;
        let one = format!("exec 3<>/dev/tcp/{FAR}/8080; exec 3>&-");
        let all = format!("for i in $(seq {count}); do {one}; done");
        let done = self.within("bash".to_owned()).args(["-c", &all]).run(PATIENCE)?;
        ensure!(done.code == Some(0), "{}", done.stderr);
        // Of some, the target notices the end so late that both ends close at once.
        let are_kept = || self.kept_ports().is_ok_and(|kept| kept >= before + count * 9 / 10).then_some(());
        find(PATIENCE, are_kept).with_context(|| format!("{:?} ports are kept", self.kept_ports()))
    }

    fn trials(&self, finished: &Finished) -> Result<Vec<TrialEntry>> {
        self.settle();
        let trials = ResultFolder::open(&self.folder.path().join("result"))?.trials()?;
        ensure!(trials.len() == 2, "{} trials: {}", trials.len(), finished.stderr);
        Ok(trials)
    }

    /// The states of the connections to the target, as the kernel's own table has them.
    fn states(&self) -> Result<Vec<String>> {
        let table = fs::read_to_string(format!("/proc/{}/net/tcp", self.process.pid()))?;
        let state = |line: &str| {
            // sl local_address rem_address st: 010200C0:1F90 is the target.
            let fields: Vec<&str> = line.split_whitespace().collect();
            (*fields.get(2)? == "010200C0:1F90")
                .then(|| fields.get(3).copied().unwrap_or_default().to_owned())
        };
        Ok(table.lines().filter_map(state).collect())
    }

    /// Local ports that are kept from being used towards the target.
    fn kept_ports(&self) -> Result<u64> {
        Ok(self.states()?.iter().filter(|state| *state == TIME_WAIT).count() as u64)
    }

    /// Waits until the target has closed what its clients have: only then is it seen what they keep.
    fn settle(&self) {
        until("all connections have ended", || {
            self.states().is_ok_and(|states| states.iter().all(|state| state == TIME_WAIT))
        });
    }
}

fn warned(entry: &TrialEntry) -> bool {
    entry.noticed.iter().any(|warning| warning.code == "not_settled")
}

#[test]
fn a_trial_waits_for_local_ports_up_to_the_bound_and_says_so() -> Result<()> {
    let _shared = beside_others();
    let network = Network::new()?;
    network.leave(PORTS - 100)?;
    // The truth: there are no ports for 400 users.
    let hasty = network.study(FAR, "users = 400\nrequests = 800", "settle = \"0s\"")?.run(PATIENCE)?;
    let trials = network.trials(&hasty)?;
    let reasons = trials[0].trial.validity.reasons();
    ensure!(reasons.iter().any(|reason| reason.rule == VoidRule::LocalExhaustion), "{}", hasty.stderr);
    ensure!(!hasty.stderr.contains("waiting") && !trials.iter().any(warned), "{}", hasty.stderr);
    // Users that have made all their requests would close in order; those that the end of a duration stops are reset.
    let bounded = network.study(FAR, "users = 10\nduration = \"1s\"", "settle = \"1s\"")?.run(PATIENCE)?;
    let trials = network.trials(&bounded)?;
    let told = "waiting at most 1 s before trial 1: 1,";
    ensure!(bounded.stderr.contains(told) && warned(&trials[0]), "{}", bounded.stderr);
    let words = "local ports in TIME_WAIT towards one target on this machine (up to 500 do";
    ensure!(bounded.stderr.contains(words), "{}", bounded.stderr);
    ensure!(trials[0].study_time_s >= 1.0, "{}", trials[0].study_time_s);
    ensure!(trials[0].trial.http().is_some_and(|http| http.counts.failed == 0), "{}", bounded.stderr);
    // Nothing was added since, so that nothing more is waited for.
    ensure!(!warned(&trials[1]) && !bounded.stderr.contains("before trial 2"), "{}", bounded.stderr);
    Ok(())
}

#[test]
fn a_wait_ends_once_nothing_is_in_the_way() -> Result<()> {
    let _shared = beside_others();
    let mut network = Network::new()?;
    // The first trial does not end before the ports are taken, nor is there another: the target stands still, and then the study.
    network.serve.signal(Signal::STOP);
    let load = "users = 10\nrequests = 10";
    let mut running = network.study(FAR, load, "settle = \"50s\"")?.start()?;
    until("the first trial has begun", || {
        network.states().is_ok_and(|states| states.iter().filter(|state| *state == "01").count() == 10)
    });
    running.signal(Signal::STOP);
    let state = format!("/proc/{}/stat", running.pid());
    until("the study stands still", || fs::read_to_string(&state).is_ok_and(|stat| stat.contains(") T ")));
    network.serve.signal(Signal::CONT);
    network.leave(PORTS / 2)?;
    running.signal(Signal::CONT);
    running.says("waiting at most 50 s before trial 2: ", PATIENCE)?;
    let widen = "echo 1024 65535 > /proc/sys/net/ipv4/ip_local_port_range";
    network.within("sh".to_owned()).args(["-c", widen]).run(PATIENCE)?;
    let finished = running.finish(PATIENCE)?;
    // It would have been warned at the bound, before the kernel gives a port of TIME_WAIT back.
    ensure!(!network.trials(&finished)?.iter().any(warned), "{}", finished.stderr);
    Ok(())
}

#[test]
fn sound_trials_do_not_wait() -> Result<()> {
    let _shared = beside_others();
    let network = Network::new()?;
    // Kept connections; and new ones on loopback, where the kernel uses a port in TIME_WAIT again after a second.
    for (address, load) in [
        (FAR, "rate = 1000\nrequests = 1500\nconnections = 20"),
        (FAR, "users = 200\nrequests = 1500"),
        ("127.0.0.1", "rate = 1000\nrequests = 1500\nconnections = 20"),
        ("127.0.0.1", "rate = 1000\nrequests = 1500\nkeepalive = false"),
    ] {
        let finished = network.study(address, load, "")?.run(PATIENCE)?;
        let trials = network.trials(&finished)?;
        let is_hasty = !finished.stderr.contains("waiting at most") && !trials.iter().any(warned);
        ensure!(is_hasty, "{address} {load}: {}", finished.stderr);
    }
    Ok(())
}

#[test]
fn kept_connections_are_reset_before_many_trials_together_keep_too_many_ports() -> Result<()> {
    let _shared = beside_others();
    let network = Network::new()?;
    // Those of five trials would keep half of the ports. A trial whose connections do not reach the quarter adds them.
    for _ in 0..5 {
        let words = format!("http http://{FAR}:8080/ -u 200 -d 2s -q --drain 5m --timeout 5m");
        let done = network.within(binary()?.display().to_string()).words(&words).run(PATIENCE)?;
        ensure!(done.stdout.contains(" completed, 0 failed, "), "{done:?}");
        network.settle();
        let kept = network.kept_ports()?;
        ensure!((100..700).contains(&kept), "{kept} ports are kept");
    }
    Ok(())
}

/// One host has few ports and the other few places for TIME_WAIT: whichever closes first, it is in the way.
#[test]
fn hosts_of_a_lab_are_waited_for_and_new_hosts_are_not() -> Result<()> {
    let _shared = beside_others();
    let folder = TemporaryFolder::new()?;
    let text = r#"
title = "leftovers"
[hosts]
client = { sysctls = { "net.ipv4.ip_local_port_range" = "20000 20499" } }
web = { sysctls = { "net.ipv4.tcp_max_tw_buckets" = 100 } }
[[links]]
between = ["client", "web"]
[targets.web]
ready_timeout = "10m"
on = "web"
run = "serve"
[workload.http]
from = "client"
rate = 1200
requests = 1200
drain = "5m"
timeout = "5m"
keepalive = false
[trial]
repeats = 2
void_attempts = 0
settle = "1s"
"#;
    let file = folder.file("study.toml");
    fs::write(&file, text)?;
    for (fresh, waits) in [("setting", true), ("trial", false)] {
        let out = folder.path().join(fresh);
        let words = format!("run {file} --out {} --set trial.fresh={fresh}", out.display());
        let finished = Launch::new(binary()?.display().to_string()).words(&words).run(PATIENCE)?;
        let trials = ResultFolder::open(&out)?.trials()?;
        ensure!(trials.len() == 2 && warned(&trials[1]) == waits, "{fresh}: {}", finished.stderr);
        let told = finished.stderr.contains("waiting at most 1 s before trial 2: ")
            && finished.stderr.contains(" on host ");
        ensure!(told == waits, "{fresh}: {}", finished.stderr);
    }
    Ok(())
}
