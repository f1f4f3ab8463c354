//! What is done on hosts before a balancer works: its file from a table of LVS, web hosts as servers, and what is missing.

use anyhow::{Result, ensure};
use proofload_tests::{lab::Labs, proofload::binary};
use testing::PATIENCE;

const LAB: &str = r#"
title = "servers"
[hosts]
balancer = {}
web = { sysctls = { "net.ipv4.conf.all.arp_ignore" = 0, "net.ipv4.conf.all.arp_announce" = 0 } }
[[links]]
between = ["balancer", "web"]
[[links]]
between = ["balancer", "web"]
network = "fd00:77::/64"
[[processes]]
ready_timeout = "10m"
on = "web"
run = "nginx"
"#;

const VIP: &str = "10.1.99.1";

#[test]
fn tables_of_lvs_become_files_of_balancers() -> Result<()> {
    let _shared = crate::beside_others();
    let labs = Labs::new()?;
    let table =
        labs.file("table", "-A -t 10.0.0.1:80 -s wrr\n-a -t 10.0.0.1:80 -r 10.0.0.11:80 -g -w 3\n")?;
    let output = labs.path("balance.toml");
    labs.done(&format!("balance --import {table} --device lo --output {output}"))?;
    let shown = labs.done(&format!("balance --import {table} --device lo"))?;
    ensure!(shown == std::fs::read_to_string(&output)? && shown.contains("weight = 3"), "{shown}");
    let wrong = labs.file("wrong", "-A -u 10.0.0.1:53 -s rr\n-A -t 10.0.0.1:80 -s wlc\n")?;
    let refused = labs.run(&format!("balance --import {wrong}"))?;
    for part in ["wrong:1:7: only TCP is supported", "wrong:2:22: the scheduler wlc"] {
        ensure!(refused.code == Some(2) && refused.stderr.contains(part), "{refused:?}");
    }
    Ok(())
}

#[test]
fn a_web_host_becomes_a_server_and_is_explained() -> Result<()> {
    crate::need_root()?;
    let _lock = crate::without_other_balancers();
    let labs = Labs::new()?;
    let (lab, _) = labs.up(&labs.file("servers.toml", LAB)?)?;
    let program = binary()?.display().to_string();
    let on_web = |words: &str| labs.run(&format!("lab shell web -- {program} balance {words}"));
    let look = labs.file(
        "look.sh",
        "ip -o addr; cat /proc/sys/net/ipv4/conf/*/arp_ignore /proc/sys/net/ipv4/conf/*/arp_announce\n",
    )?;
    let traces = || labs.done(&format!("lab shell web -- sh {look}"));
    let (explain, as_it_was) = (format!("explain --server {VIP}"), traces()?);
    let missing = on_web(&explain)?;
    ensure!(
        missing.code == Some(1) && missing.stdout.contains(&format!("missing  lo has no {VIP}/32")),
        "{missing:?}"
    );

    let number = labs.path("number");
    let script = format!("{program} balance server-setup {VIP} &\necho $! > {number}\nwait $!\n");
    let line = format!("lab shell web -- sh {}", labs.file("setup.sh", &script)?);
    let mut setup = labs.command(&line)?.start()?;
    setup.says("ready; ", PATIENCE)?;
    let good = on_web(&explain)?;
    ensure!(good.code == Some(0) && !good.stdout.contains("missing "), "{good:?}");
    labs.done(&format!("lab shell web -- kill {}", std::fs::read_to_string(&number)?.trim()))?;
    let ended = setup.finish(PATIENCE)?;
    ensure!(ended.code == Some(0), "{ended:?}");
    ensure!(traces()? == as_it_was, "{as_it_was}\nis now\n{}", traces()?);
    let refused = on_web("server-setup 127.0.0.1")?;
    ensure!(refused.code == Some(2) && refused.stderr.contains("cannot be a VIP"), "{refused:?}");

    let text = format!(
        "device = \"eth0\"\n[[vips]]\naddress = \"{VIP}\"\nport = 80\n[[vips.servers]]\naddress = \"10.1.0.2\"\n\
         [[vips.servers]]\naddress = \"10.1.0.77\"\n"
    );
    let file = labs.file("balance.toml", &text)?;
    let facts = labs.run(&format!("lab shell balancer -- {program} balance explain --config {file}"))?;
    for line in
        ["ok       the server 10.1.0.2 has the MAC address ", "missing  the server 10.1.0.77 does not answer"]
    {
        ensure!(facts.code == Some(1) && facts.stdout.contains(line), "{facts:?}");
    }
    // Without an address of the link alone, the kernel would ask for no server.
    let file = labs.file("balance6.toml", "device = \"eth1\"\n[[vips]]\naddress = \"fd00:77::100\"\nport = 80\n[[vips.servers]]\naddress = \"fd00:77::2\"\n")?;
    let facts = labs.run(&format!("lab shell balancer -- {program} balance explain --config {file}"))?;
    ensure!(facts.stdout.contains("ok       the server fd00:77::2 has the MAC address "), "{facts:?}");
    labs.down(lab).map(drop)
}
