//! `proofload balance` from outside: a segment with a client, a balancer and web hosts that have the VIP, and what breaks when something
//! changes under load: nothing.

mod failover;
mod hosts;

use std::{fs, time::Duration};

use anyhow::{Result, ensure};
use proofload_tests::{
    Trial,
    balanced::{Balanced, VIP},
    lab::Labs,
    process::Process,
};
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
ready_timeout = "10m"
on = "web1"
run = "nginx"
files = { "/file" = 100 }
[[processes]]
ready_timeout = "10m"
on = "web2"
run = "nginx"
files = { "/file" = 200 }
[[processes]]
ready_timeout = "10m"
on = "web3"
run = "nginx"
files = { "/file" = 300 }
"#;

/// Checks that take no machine that stands still for a dead one: three in a row must fail.
const CHECK: &str = "check = { kind = \"http\", path = \"/file\", interval = \"250ms\", timeout = \"10s\" }";

fn configure(balanced: &Balanced, of_vip: &str, servers: usize) -> Result<()> {
    let brief = "handshake = \"10s\"\nclosing_timeout = \"1s\"\nmetrics = \"127.0.0.1:9100\"";
    balanced.configure(brief, &format!("{CHECK}\n{of_vip}"), servers)
}

/// Starts requests, each on a connection of its own, until they are ended.
fn load(balanced: &Balanced) -> Result<Process> {
    balanced.load("--rate 200 --no-keepalive --duration 1h")
}

/// Makes requests, each on a connection of its own.
fn make_requests(balanced: &Balanced) -> Result<Trial> {
    none_failed(Balanced::trial(balanced.load("--connections 4 --no-keepalive -n 500")?, Duration::ZERO)?)
}

/// Ends a load some 500 requests later, none of which may have failed.
fn went_well(balanced: &Balanced, load: Process) -> Result<Trial> {
    let flows = || Ok::<f64, anyhow::Error>(balanced.of_servers("flows")?.iter().sum());
    let before = flows()?;
    until("what was changed has had its load", || flows().is_ok_and(|now| now > before + 500.0));
    none_failed(Balanced::ended(load)?)
}

fn none_failed(trial: Trial) -> Result<Trial> {
    let errors: Vec<_> = trial.errors.iter().chain(trial.connection_errors.iter()).collect();
    ensure!(trial.counts.failed == 0 && errors.is_empty(), "{errors:?}");
    ensure!(trial.counts.completed > 100, "{} requests", trial.counts.completed);
    Ok(trial)
}

/// What there is in the balancer's host that it may have made or changed, and the folders of its own.
fn traces(balanced: &Balanced) -> Result<String> {
    let looks =
        "ip -o addr; ip -o link; tc filter show dev eth0 ingress; cat /proc/sys/net/ipv4/conf/*/arp_ignore";
    let script = balanced.labs.file("look.sh", looks)?;
    let host = balanced.on("balancer", &format!("sh {script}"))?;
    let folders = fs::read_dir(balanced.labs.state().join("balance")).map_or(0, Iterator::count);
    Ok(format!("{host}\n{folders} folders of balancers\n"))
}

#[test]
fn requests_are_spread_and_every_change_under_load_breaks_none() -> Result<()> {
    crate::need_root()?;
    let _lock = crate::without_other_balancers();
    let balanced = Balanced::of(LAB)?;
    configure(&balanced, "", 3)?;
    let as_it_was = traces(&balanced)?;
    let daemon = balanced.start()?;
    ["web1", "web2", "web3"].iter().for_each(|web| balanced.await_state(web, "up"));
    let requests = make_requests(&balanced)?.counts.completed as f64;
    let flows = balanced.of_servers("flows")?;
    ensure!(flows.iter().sum::<f64>() >= requests, "{flows:?} flows of {requests} requests");
    ensure!(flows.iter().all(|own| own * 6.0 > requests), "a server got too few: {flows:?} of {requests}");

    // Connections are counted by sweeps, and a server at its maximum gets no new ones.
    let held = balanced.load("--connections 30 --think-time 100ms --duration 1h")?;
    until("30 connections are counted", || {
        balanced.of_servers("active").is_ok_and(|active| active.iter().sum::<f64>() == 30.0)
    });
    balanced.tell(&format!("set {VIP} web1 --max 1"))?;
    balanced.await_state("web1", "full");
    let full = balanced.of_servers("flows")?[0];
    make_requests(&balanced)?;
    ensure!(balanced.of_servers("flows")?[0] == full, "a full server gets new connections");
    balanced.tell(&format!("set {VIP} web1 --max 0"))?;
    none_failed(Balanced::ended(held)?)?;

    // Each change under load, and then what it must have done.
    let under = load(&balanced)?;
    balanced.tell(&format!("drain {VIP}:80 web2 --wait 10m"))?;
    let drained = balanced.of_servers("flows")?[1];
    balanced.tell(&format!("set {VIP} web1 --weight 3"))?;
    ensure!(balanced.of_servers("flows")?[1] == drained, "a drained server gets new connections");
    balanced.tell(&format!("remove {VIP} web2"))?;
    balanced.await_state("web2", None);
    balanced.tell(&format!("add {VIP} 10.1.0.4 --server-name web2"))?;
    balanced.await_state("web2", "up");
    // By the file, the weight is 1 again, and web3 is gone.
    configure(&balanced, "", 2)?;
    balanced.tell("reload")?;
    balanced.await_state("web3", None);
    went_well(&balanced, under)?;
    let shares = balanced.of_servers("ring_ratio")?;
    ensure!(shares.len() == 2 && shares.iter().all(|share| (share - 0.5).abs() < 0.001), "{shares:?}");

    let wrong = balanced
        .labs
        .run(&format!("lab shell balancer -- {} balance remove {VIP} web9", balanced.program))?;
    ensure!(wrong.code == Some(2) && wrong.stderr.contains("web1, web2"), "{wrong:?}");
    let metrics = balanced.on("balancer", "curl -sf http://127.0.0.1:9100/metrics")?;
    ensure!(metrics.ends_with("# EOF\n") && metrics.contains("server=\"web1\"} 1\n"), "{metrics}");
    let (shown, program) = (balanced.labs.path("top"), &balanced.program);
    let script = format!(
        "{program} balance top > {shown} &\nuntil grep -q web1 {shown}; do sleep 0.1; done\nkill $!\nwait $!\necho ended with $?\n"
    );
    let script = balanced.labs.file("top.sh", &script)?;
    let ended = balanced.on("balancer", &format!("sh {script}"))?;
    ensure!(ended.contains("ended with 130"), "{ended}");
    balanced.tell("stop")?;
    let finished = daemon.finish(PATIENCE)?;
    ensure!(finished.code == Some(0), "{finished:?}");
    ensure!(traces(&balanced)? == as_it_was, "{as_it_was}\nis now\n{}", traces(&balanced)?);
    balanced.down()
}

#[test]
fn a_daemon_may_die_and_come_back_under_load() -> Result<()> {
    crate::need_root()?;
    let _lock = crate::without_other_balancers();
    let balanced = Balanced::of(LAB)?;
    configure(&balanced, "schedule = \"round-robin\"", 3)?;
    let as_it_was = traces(&balanced)?;
    let daemon = balanced.start_in_own_mounts()?;
    ["web1", "web2", "web3"].iter().for_each(|web| balanced.await_state(web, "up"));
    balanced.tell(&format!("set {VIP} web1 --weight 7"))?;
    let second = balanced
        .labs
        .run(&format!("lab shell balancer -- {} balance --config {}", balanced.program, balanced.file))?;
    ensure!(second.code == Some(2) && second.stderr.contains("runs already"), "{second:?}");

    let under = load(&balanced)?;
    balanced.kill(daemon)?;
    // Cleaning before another command leaves it alone.
    balanced.labs.run("lab down no-such-lab")?;
    let daemon = balanced.start()?;
    ensure!(balanced.servers()?[0]["weight"] == 7, "what a command changed is kept");
    balanced.tell("stop --keep")?;
    let finished = daemon.finish(PATIENCE)?;
    ensure!(finished.code == Some(0), "{finished:?}");
    let daemon = balanced.start_in_own_mounts()?;
    went_well(&balanced, under)?;

    // A server that has lost the VIP is gone round, though it answers for its own address.
    balanced.on("web3", &format!("ip addr del {VIP}/32 dev lo"))?;
    balanced.await_state("web3", "down");
    make_requests(&balanced)?;
    balanced.on("web3", &format!("ip addr add {VIP}/32 dev lo"))?;
    balanced.await_state("web3", "up");

    balanced.kill(daemon)?;
    ensure!(traces(&balanced)? != as_it_was, "it was undone by nobody");
    let cleaned = balanced.on("balancer", &format!("{} clean", balanced.program))?;
    ensure!(cleaned.contains("removed the balancer of "), "{cleaned}");
    ensure!(traces(&balanced)? == as_it_was, "{as_it_was}\nis now\n{}", traces(&balanced)?);
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
