//! Two balancers that stand in for each other: Debian's keepalived says who has the VIP.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use proofload_tests::{
    balanced::{Balanced, VIP, configuration},
    process::Process,
};
use testing::until;

use super::{CHECK, LAB, none_failed};

/// In the place of the one balancer of the lab.
const BALANCERS: &str =
    "balancer = { count = 2, loopback = [], sysctls = { \"net.ipv4.conf.all.arp_ignore\" = 0 } }";

/// As in docs/balance.md. It notices a loss after three adverts and a part of one: longer than a machine stands still.
const KEEPALIVED: &str = "
global_defs {
    vrrp_version 3
    script_user root
}
vrrp_instance balancers {
    state BACKUP
    interface eth0
    virtual_router_id 51
    priority PRIORITY
    advert_int 2
    nopreempt
    virtual_ipaddress {
        10.1.99.1/32 dev eth0
    }
}
";

/// Starts a balancer, and keepalived beside it.
fn start(pair: &Balanced, host: &str, priority: u8) -> Result<[Process; 2]> {
    let servers = [1, 2, 3].map(|n| (Balanced::web(n), Balanced::address(n + 1)));
    let file = pair
        .labs
        .file(&format!("{host}.toml"), &configuration("answer_arp = false\nseed = 42", CHECK, &servers))?;
    let balancer = pair.start_on(host, &file)?;
    until(&format!("the servers of {host} are up"), || {
        pair.statistics(host).is_ok_and(|stats| stats.to_string().matches("\"state\":\"up\"").count() == 3)
    });
    let rules = KEEPALIVED.replace("PRIORITY", &priority.to_string());
    let file = pair.labs.file(&format!("{host}.conf"), &rules)?;
    let pids = pair.labs.path(host);
    let line = format!(
        "keepalived --dont-fork --log-console --vrrp --use-file {file} --pid {pids}.pid --vrrp_pid {pids}.vrrp"
    );
    let keepalived = pair.labs.command(&format!("lab shell {host} -- {line}"))?.start()?;
    Ok([balancer, keepalived])
}

/// Takes a host away: its processes are killed before they can say anything, and its link is down.
fn lose(pair: &Balanced, host: &str) -> Result<()> {
    let pids = pair.labs.path(host);
    let process = pair.statistics(host)?["process"].as_u64().context("no process")?;
    let script = format!("ip link set eth0 down; kill -9 $(cat {pids}.pid) $(cat {pids}.vrrp) {process}\n");
    let script = pair.labs.file(&format!("lose-{host}.sh"), &script)?;
    pair.on(host, &format!("sh {script}")).map(drop)
}

fn has_vip(pair: &Balanced, host: &str) -> bool {
    let shown = pair.on(host, "ip -o -4 address show dev eth0");
    shown.is_ok_and(|shown| shown.contains(&format!("{VIP}/32")))
}

/// Number of new flows, and of segments, that a balancer has sent to servers.
fn sent(pair: &Balanced, host: &str) -> Result<(u64, u64)> {
    let stats = pair.statistics(host)?;
    let servers = stats["vips"][0]["servers"].as_array().cloned().unwrap_or_default();
    let sum = |key: &str| servers.iter().filter_map(|server| server[key].as_u64()).sum();
    Ok((sum("flows"), sum("packets")))
}

/// Whether no connection of the client to the VIP has bytes that nobody has acknowledged.
fn is_acknowledged(pair: &Balanced) -> bool {
    // 10.1.99.1:80, in state 01, which is established, with so many bytes to send.
    let open = |table: &str| {
        let lines = table.lines().filter_map(|line| line.split_once(" 0163010A:0050 01 "));
        lines.map(|(_, queues)| queues.starts_with("00000000:")).collect::<Vec<_>>()
    };
    let table = pair.on("client", "cat /proc/net/tcp").unwrap_or_default();
    open(&table).len() >= 8 && open(&table).iter().all(|&is_empty| is_empty)
}

#[test]
fn a_lost_balancer_is_stood_in_for_and_connections_survive() -> Result<()> {
    crate::need_root()?;
    let _lock = crate::without_other_balancers();
    let pair = Balanced::of(&LAB.replace("balancer = {}", BALANCERS))?;
    let first = start(&pair, "balancer1", 200)?;
    until("balancer1 has the VIP", || has_vip(&pair, "balancer1"));
    let second = start(&pair, "balancer2", 100)?;
    ensure!(!has_vip(&pair, "balancer2"), "the second one waits");

    let established = pair.load("--rate 200 --connections 8 --duration 1h")?;
    let new = pair.load("--connections 4 --no-keepalive --think-time 4ms --duration 1h")?;
    until("requests pass balancer1", || sent(&pair, "balancer1").is_ok_and(|(flows, _)| flows > 300));
    ensure!(sent(&pair, "balancer2")?.0 == 0, "the second one has nothing to do yet");
    // The first machine is lost: nothing of it runs, and nobody hears of it.
    lose(&pair, "balancer1")?;
    until("balancer2 has the VIP", || has_vip(&pair, "balancer2"));
    until("new requests pass balancer2", || sent(&pair, "balancer2").is_ok_and(|(flows, _)| flows > 100));
    // Each of them has had a request under way when the first balancer was lost.
    until("all that was sent is acknowledged", || is_acknowledged(&pair));

    // Both loads end before either is judged.
    let [established, new] = [established, new].map(|load| none_failed(Balanced::ended(load)?));
    let established = established.context("established connections")?;
    new.context("new connections")?;
    ensure!(established.counts.connections_opened == 8, "{:?}", established.counts);
    let gap = Duration::from_nanos(established.response_time.observed.max_ns());
    ensure!(gap > Duration::from_millis(100), "nobody noticed that the first balancer was lost: {gap:?}");
    let (flows, packets) = sent(&pair, "balancer2")?;
    ensure!(flows > 100 && packets > flows, "{flows} new flows, {packets} segments");
    drop((first, second));
    pair.down()
}
