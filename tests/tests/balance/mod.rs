//! `proofload balance` from outside: a segment with a client, a balancer and web hosts that have the VIP, and what breaks when something
//! changes under load: nothing.

mod failover;
mod hosts;

use std::{fs, time::Duration};

use anyhow::{Context, Result, ensure};
use proofload_tests::{
    lab::{Inventory, Labs},
    process::Process,
    proofload::{binary, parse_trial},
};
use serde_json::Value;
use testing::{PATIENCE, until};

const LAB: &str = r#"
title = "balanced"
[hosts]
client = {}
balancer = {}
web = { count = 3, loopback = ["10.1.99.1"], sysctls = { "net.ipv4.conf.all.arp_ignore" = 1, "net.ipv4.conf.all.arp_announce" = 2 } }
[[links]]
between = ["client", "balancer", "web"]
[[processes]]
on = "web1"
run = "nginx"
files = { "/who" = 100 }
[[processes]]
on = "web2"
run = "nginx"
files = { "/who" = 200 }
[[processes]]
on = "web3"
run = "nginx"
files = { "/who" = 300 }
"#;

const VIP: &str = "10.1.99.1";

/// A lab, and the balancer in it.
struct Balanced {
    labs: Labs,
    lab: Process,
    before: Inventory,
    program: String,
    device: String,
    file: String,
}

impl Balanced {
    fn up() -> Result<Self> {
        let labs = Labs::new()?;
        labs.run("clean")?;
        let before = labs.inventory()?;
        let (lab, _) = labs.up(&labs.file("balanced.toml", LAB)?)?;
        let program = binary()?.display().to_string();
        let links = labs.done("lab shell balancer -- ip -o link show type veth")?;
        let device = links.split(": ").nth(1).and_then(|name| name.split('@').next());
        let device = device.with_context(|| format!("no device: {links}"))?.to_owned();
        let file = labs.path("balance.toml");
        Ok(Self { labs, lab, before, program, device, file })
    }

    /// Writes the configuration: settings of the VIP, and the servers by their numbers.
    fn configure(&self, of_vip: &str, servers: &[u8]) -> Result<()> {
        let servers: String = servers
            .iter()
            .map(|n| format!("[[vips.servers]]\nname = \"web{n}\"\naddress = \"10.1.0.{}\"\n", n + 2))
            .collect();
        let text = format!(
            "device = \"{}\"\nhandshake = \"300ms\"\nclosing_timeout = \"1s\"\nmetrics = \"127.0.0.1:9100\"\n[[vips]]\n\
             address = \"{VIP}\"\nport = 80\n{of_vip}\ncheck = {{ kind = \"http\", path = \"/who\", interval = \"200ms\" }}\n{servers}",
            self.device
        );
        Ok(fs::write(&self.file, text)?)
    }

    /// Starts the daemon, and waits until it is ready.
    fn start(&self) -> Result<Process> {
        let line = format!("lab shell balancer -- {} balance --config {}", self.program, self.file);
        let mut daemon = self.labs.command(&line)?.start()?;
        daemon.says("ready: ", PATIENCE)?;
        Ok(daemon)
    }

    /// Runs a command of `proofload balance` beside it.
    fn tell(&self, words: &str) -> Result<String> {
        self.labs.done(&format!("lab shell balancer -- {} balance {words}", self.program))
    }

    fn statistics(&self) -> Result<Value> {
        Ok(serde_json::from_str(&self.tell("stats --json -")?)?)
    }

    fn servers(&self) -> Result<Vec<Value>> {
        Ok(self.statistics()?["vips"][0]["servers"].as_array().cloned().unwrap_or_default())
    }

    /// The state of a server; nothing if it is gone.
    fn state_of(&self, name: &str) -> Option<String> {
        let servers = self.servers().ok()?;
        let server = servers.into_iter().find(|server| server["name"] == name)?;
        server["state"].as_str().map(str::to_owned)
    }

    fn await_state(&self, name: &str, state: Option<&str>) {
        until(&format!("{name} is {state:?}"), || self.state_of(name).as_deref() == state);
    }

    /// Starts requests, each on a connection of its own.
    fn load(&self, seconds: u32) -> Result<Process> {
        self.load_of("--connections 4 --no-keepalive", seconds)
    }

    fn load_of(&self, words: &str, seconds: u32) -> Result<Process> {
        let line = format!(
            "lab shell client -- {} http http://{VIP}/who {words} --duration {seconds}s --json -",
            self.program
        );
        self.labs.command(&line)?.start()
    }

    /// Waits for its end: requests were made, and none has failed.
    fn went_well(load: Process) -> Result<u64> {
        let finished = load.finish(Duration::from_secs(60))?;
        let trial = parse_trial(&finished.stdout).with_context(|| format!("{finished:?}"))?;
        let http = &*trial;
        let errors: Vec<_> = http.errors.iter().chain(http.connection_errors.iter()).collect();
        ensure!(http.counts.failed == 0 && errors.is_empty(), "{errors:?}");
        ensure!(http.counts.completed > 100, "{} requests", http.counts.completed);
        Ok(http.counts.completed)
    }

    /// New flows by server.
    fn flows(&self) -> Result<Vec<u64>> {
        Ok(self.servers()?.iter().map(|server| server["flows"].as_u64().unwrap_or_default()).collect())
    }

    /// What there is in the balancer's host and on the machine that it may have made or changed.
    fn traces(&self) -> Result<String> {
        let looks = "ip -o addr; ip -o link; tc filter show dev DEV ingress; cat /proc/sys/net/ipv4/conf/*/arp_ignore";
        let script = self.labs.file("look.sh", &looks.replace("DEV", &self.device))?;
        let host = self.labs.done(&format!("lab shell balancer -- sh {script}"))?;
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let mounts: Vec<&str> = mounts.lines().filter(|line| line.contains(" - bpf ")).collect();
        let folder = fs::read_dir(self.labs.state().join("balance")).map_or(0, Iterator::count);
        Ok(format!("{host}\n{mounts:?}\n{folder} folders of balancers\n"))
    }

    fn down(self) -> Result<()> {
        self.labs.down(self.lab)?;
        let left = self.labs.difference(&self.before)?;
        ensure!(left.is_empty(), "left or changed: {}", left.join("\n"));
        Ok(())
    }
}

fn may_balance() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("not run: only root may load BPF programs");
    }
    is_root
}

#[test]
fn requests_are_spread_and_every_change_under_load_breaks_none() -> Result<()> {
    if !may_balance() {
        return Ok(());
    }
    let _alone = super::lab::alone();
    let balanced = Balanced::up()?;
    balanced.configure("", &[1, 2, 3])?;
    let traces = balanced.traces()?;
    let daemon = balanced.start()?;
    ["web1", "web2", "web3"].iter().for_each(|web| balanced.await_state(web, Some("up")));
    let load = balanced.load(2)?;
    let requests = Balanced::went_well(load)?;
    let flows = balanced.flows()?;
    ensure!(flows.iter().sum::<u64>() >= requests, "{flows:?} flows of {requests} requests");
    ensure!(flows.iter().all(|own| *own * 6 > requests), "a server got too few: {flows:?} of {requests}");

    // Connections are counted by sweeps, and a server at its maximum gets no new ones.
    let held = balanced.load_of("--connections 30", 12)?;
    let active = |server: &Value| server["active"].as_u64().unwrap_or_default();
    until("30 connections are counted", || {
        balanced.servers().is_ok_and(|servers| servers.iter().map(active).sum::<u64>() == 30)
    });
    balanced.tell(&format!("set {VIP} web1 --max 1"))?;
    balanced.await_state("web1", Some("full"));
    let full = balanced.flows()?[0];
    Balanced::went_well(balanced.load(1)?)?;
    ensure!(balanced.flows()?[0] == full, "a full server gets new connections");
    balanced.tell(&format!("set {VIP} web1 --max 0"))?;
    Balanced::went_well(held)?;

    // Each change under load, and then what it must have done.
    let load = balanced.load(12)?;
    balanced.tell(&format!("drain {VIP}:80 web2 --wait 30s"))?;
    let drained = balanced.flows()?[1];
    balanced.tell(&format!("set {VIP} web1 --weight 3"))?;
    ensure!(balanced.flows()?[1] == drained, "a drained server gets new connections");
    balanced.tell(&format!("remove {VIP} web2"))?;
    balanced.await_state("web2", None);
    balanced.tell(&format!("add {VIP} 10.1.0.4 --server-name web2"))?;
    balanced.await_state("web2", Some("up"));
    // By the file, the weight is 1 again, and web3 is gone.
    balanced.configure("", &[1, 2])?;
    balanced.tell("reload")?;
    balanced.await_state("web3", None);
    Balanced::went_well(load)?;
    let shares: Vec<f64> =
        balanced.servers()?.iter().map(|server| server["ring_ratio"].as_f64().unwrap_or_default()).collect();
    ensure!(shares.len() == 2 && shares.iter().all(|share| (share - 0.5).abs() < 0.001), "{shares:?}");

    let wrong = balanced
        .labs
        .run(&format!("lab shell balancer -- {} balance remove {VIP} web9", balanced.program))?;
    ensure!(wrong.code == Some(2) && wrong.stderr.contains("there are: web1, web2"), "{wrong:?}");
    let metrics = balanced.labs.done("lab shell balancer -- curl -sf http://127.0.0.1:9100/metrics")?;
    ensure!(metrics.ends_with("# EOF\n") && metrics.contains("server=\"web1\"} 1\n"), "{metrics}");
    balanced.tell("stop")?;
    let finished = daemon.finish(PATIENCE)?;
    ensure!(finished.code == Some(0), "{finished:?}");
    ensure!(balanced.traces()? == traces, "{traces}\nis now\n{}", balanced.traces()?);
    balanced.down()
}

#[test]
fn a_daemon_may_die_and_come_back_under_load() -> Result<()> {
    if !may_balance() {
        return Ok(());
    }
    let _alone = super::lab::alone();
    let balanced = Balanced::up()?;
    balanced.configure("schedule = \"round-robin\"", &[1, 2, 3])?;
    let traces = balanced.traces()?;
    let daemon = balanced.start()?;
    ["web1", "web2", "web3"].iter().for_each(|web| balanced.await_state(web, Some("up")));
    balanced.tell(&format!("set {VIP} web1 --weight 7"))?;
    let second = balanced
        .labs
        .run(&format!("lab shell balancer -- {} balance --config {}", balanced.program, balanced.file))?;
    ensure!(second.code == Some(2) && second.stderr.contains("runs already"), "{second:?}");

    let load = balanced.load(6)?;
    let process = balanced.statistics()?["process"].to_string();
    balanced.labs.done(&format!("lab shell balancer -- kill -9 {process}"))?;
    daemon.finish(PATIENCE)?;
    // Cleaning before another command leaves it alone.
    balanced.labs.run("lab down no-such-lab")?;
    let daemon = balanced.start()?;
    ensure!(balanced.servers()?[0]["weight"] == 7, "what a command changed is kept");
    balanced.tell("stop --keep")?;
    let finished = daemon.finish(PATIENCE)?;
    ensure!(finished.code == Some(0), "{finished:?}");
    let daemon = balanced.start()?;
    Balanced::went_well(load)?;

    // A server that has lost the VIP is gone round, though it answers for its own address.
    balanced.labs.done(&format!("lab shell web3 -- ip addr del {VIP}/32 dev lo"))?;
    balanced.await_state("web3", Some("down"));
    Balanced::went_well(balanced.load(1)?)?;
    balanced.labs.done(&format!("lab shell web3 -- ip addr add {VIP}/32 dev lo"))?;
    balanced.await_state("web3", Some("up"));

    let process = balanced.statistics()?["process"].to_string();
    balanced.labs.done(&format!("lab shell balancer -- kill -9 {process}"))?;
    daemon.finish(PATIENCE)?;
    ensure!(balanced.traces()? != traces, "it was undone by nobody");
    let cleaned = balanced.labs.done(&format!("lab shell balancer -- {} clean", balanced.program))?;
    ensure!(cleaned.contains("removed the balancer of "), "{cleaned}");
    ensure!(balanced.traces()? == traces, "{traces}\nis now\n{}", balanced.traces()?);
    balanced.down()
}

#[test]
fn what_is_wrong_with_a_file_is_told_at_once() -> Result<()> {
    let _shared = super::beside_others();
    let labs = Labs::new()?;
    let file = labs.file("wrong.toml", "device = \"no-such-device\"\nvips = 3\nseeed = 1\n")?;
    let refused = labs.run(&format!("balance --config {file} --check"))?;
    for why in ["wrong.toml:2:8: expected", "wrong.toml:3:1: unknown key 'seeed'; did you mean 'seed'?"] {
        ensure!(refused.code == Some(2) && refused.stderr.contains(why), "{refused:?}");
    }
    let alone = labs.run("balance stats")?;
    ensure!(alone.code == Some(2) && alone.stderr.contains("no balancer runs here"), "{alone:?}");
    ensure!(!labs.state().join("balance").exists(), "a refusal leaves a folder");
    Ok(())
}
