//! Two balancers that stand in for each other: Debian's keepalived says who has the VIP.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use proofload_tests::{
    lab::Labs,
    process::Process,
    proofload::{binary, parse_trial},
};
use testing::{PATIENCE, until};

use super::{LAB, VIP};

/// In the place of the one balancer of the lab.
const BALANCERS: &str =
    "balancer = { count = 2, loopback = [], sysctls = { \"net.ipv4.conf.all.arp_ignore\" = 0 } }";

/// As in docs/balance.md, but that it notices a loss sooner.
const KEEPALIVED: &str = "
global_defs {
    vrrp_version 3
    script_user root
}
vrrp_instance balancers {
    state BACKUP
    interface DEVICE
    virtual_router_id 51
    priority PRIORITY
    advert_int 0.1
    nopreempt
    virtual_ipaddress {
        10.1.99.1/32 dev DEVICE
    }
}
";

/// Longest time without an answer on an established connection: three adverts and a part of one until keepalived notices, and the next
/// try of a TCP that has doubled its waits meanwhile, on a machine that does other things, too.
const LONGEST_GAP: Duration = Duration::from_secs(3);

struct Pair {
    labs: Labs,
    lab: Process,
    program: String,
}

impl Pair {
    fn in_host(&self, host: &str, command: &str) -> Result<String> {
        self.labs.done(&format!("lab shell {host} -- {command}"))
    }

    fn device(&self, host: &str) -> Result<String> {
        let links = self.in_host(host, "ip -o link show type veth")?;
        let device = links.split(": ").nth(1).and_then(|name| name.split('@').next());
        Ok(device.with_context(|| format!("no device: {links}"))?.to_owned())
    }

    /// Starts a balancer, and keepalived beside it.
    fn start(&self, host: &str, priority: u8) -> Result<[Process; 2]> {
        let device = self.device(host)?;
        let mut text = format!(
            "device = \"{device}\"\nanswer_arp = false\nseed = 42\n[[vips]]\naddress = \"{VIP}\"\nport = 80\n\
             check = {{ kind = \"http\", path = \"/who\", interval = \"200ms\" }}\n"
        );
        for web in 1..=3 {
            text += &format!("[[vips.servers]]\nname = \"web{web}\"\naddress = \"10.1.0.{}\"\n", web + 3);
        }
        let file = self.labs.file(&format!("{host}.toml"), &text)?;
        let line = format!("lab shell {host} -- {} balance --config {file}", self.program);
        let mut balancer = self.labs.command(&line)?.start()?;
        balancer.says("ready: ", PATIENCE)?;
        until(&format!("the servers of {host} are up"), || {
            let stats = self.in_host(host, &format!("{} balance stats --json -", self.program));
            stats.is_ok_and(|stats| stats.matches("\"state\": \"up\"").count() == 3)
        });
        let rules = KEEPALIVED.replace("DEVICE", &device).replace("PRIORITY", &priority.to_string());
        let file = self.labs.file(&format!("{host}.conf"), &rules)?;
        let pids = self.labs.path(host);
        let line = format!(
            "keepalived --dont-fork --log-console --vrrp --use-file {file} --pid {pids}.pid --vrrp_pid {pids}.vrrp"
        );
        let keepalived = self.labs.command(&format!("lab shell {host} -- {line}"))?.start()?;
        Ok([balancer, keepalived])
    }

    /// Takes a host away: its processes are killed before they can say anything, and its link is down.
    fn lose(&self, host: &str) -> Result<()> {
        let (device, pids) = (self.device(host)?, self.labs.path(host));
        let stats = self.in_host(host, &format!("{} balance stats --json -", self.program))?;
        let stats: serde_json::Value = serde_json::from_str(&stats)?;
        let process = stats["process"].as_u64().context("no process")?;
        let script =
            format!("ip link set {device} down; kill -9 $(cat {pids}.pid) $(cat {pids}.vrrp) {process}\n");
        let script = self.labs.file(&format!("lose-{host}.sh"), &script)?;
        self.in_host(host, &format!("sh {script}")).map(drop)
    }

    fn has_vip(&self, host: &str) -> bool {
        let shown = self
            .device(host)
            .and_then(|device| self.in_host(host, &format!("ip -o -4 address show dev {device}")));
        shown.is_ok_and(|shown| shown.contains(&format!("{VIP}/32")))
    }

    /// Number of new flows, and of segments, that a balancer has sent to servers.
    fn sent(&self, host: &str) -> Result<(u64, u64)> {
        let stats: serde_json::Value =
            serde_json::from_str(&self.in_host(host, &format!("{} balance stats --json -", self.program))?)?;
        let servers = stats["vips"][0]["servers"].as_array().cloned().unwrap_or_default();
        let sum = |key: &str| servers.iter().filter_map(|server| server[key].as_u64()).sum();
        Ok((sum("flows"), sum("packets")))
    }
}

#[test]
fn a_lost_balancer_is_stood_in_for_and_connections_survive() -> Result<()> {
    if !super::may_balance() {
        return Ok(());
    }
    let _alone = crate::lab::alone();
    let labs = Labs::new()?;
    labs.run("clean")?;
    let before = labs.inventory()?;
    let (lab, _) = labs.up(&labs.file("failover.toml", &LAB.replace("balancer = {}", BALANCERS))?)?;
    let pair = Pair { labs, lab, program: binary()?.display().to_string() };
    let first = pair.start("balancer1", 200)?;
    until("balancer1 has the VIP", || pair.has_vip("balancer1"));
    let second = pair.start("balancer2", 100)?;
    ensure!(!pair.has_vip("balancer2"), "the second one waits");

    let load = |words: &str| {
        let line = format!(
            "lab shell client -- {} http http://{VIP}/who {words} --duration 8s --json -",
            pair.program
        );
        pair.labs.command(&line)?.start()
    };
    let established = load("--rate 200 --connections 8")?;
    let new = load("--connections 4 --no-keepalive")?;
    until("requests pass balancer1", || pair.sent("balancer1").is_ok_and(|(flows, _)| flows > 300));
    ensure!(pair.sent("balancer2")?.0 == 0, "the second one has nothing to do yet");
    // The first machine is lost: nothing of it runs, and nobody hears of it.
    pair.lose("balancer1")?;
    until("balancer2 has the VIP", || pair.has_vip("balancer2"));

    let results = [established, new].map(|load| {
        let finished = load.finish(Duration::from_secs(60))?;
        let trial = parse_trial(&finished.stdout).with_context(|| format!("{finished:?}"))?;
        let errors: Vec<_> = trial.errors.iter().chain(trial.connection_errors.iter()).collect();
        ensure!(trial.counts.failed == 0 && errors.is_empty(), "{errors:?}");
        Ok(trial)
    });
    let [established, new] = results;
    let (established, new) =
        (established.context("established connections")?, new.context("new connections")?);
    ensure!(established.counts.connections_opened == 8, "{:?}", established.counts);
    let longest = |http: &record::HttpTrial| Duration::from_nanos(http.response_time.observed.max_ns());
    let gap = longest(&established);
    println!(
        "longest wait of an established connection: {gap:.0?}; of {} new connections: {:.0?}",
        new.counts.completed,
        longest(&new)
    );
    ensure!(gap > Duration::from_millis(100), "nobody noticed that the first balancer was lost: {gap:?}");
    ensure!(gap < LONGEST_GAP, "a gap of {gap:?}");
    let (flows, packets) = pair.sent("balancer2")?;
    ensure!(flows > 100 && packets > flows, "{flows} new flows, {packets} segments");
    drop((first, second));
    let Pair { labs, lab, .. } = pair;
    labs.down(lab)?;
    labs.run("clean")?;
    let left = labs.difference(&before)?;
    ensure!(left.is_empty(), "left or changed: {}", left.join("\n"));
    Ok(())
}
