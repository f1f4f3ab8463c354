//! Programs that a lab knows, used from its other hosts.

use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt};

use anyhow::{Context, Result, ensure};
use proofload_tests::lab::{Labs, SshdFolder};
use testing::until;

use super::{is_left, run_folder};

const PROGRAMS: &str = r#"
title = "programs"
[hosts]
client = {}
balancer = {}
web = { count = 2 }
[[links]]
between = ["client", "balancer", "web"]
[[processes]]
ready_timeout = "10m"
on = "web1"
run = "nginx"
files = { "/who" = 100 }
[[processes]]
ready_timeout = "10m"
on = "web2"
run = "nginx"
files = { "/who" = 200 }
[[processes]]
ready_timeout = "10m"
on = "balancer"
run = "haproxy"
backends = ["web"]
[[processes]]
ready_timeout = "10m"
on = "web1"
run = "sshd"
[[processes]]
ready_timeout = "10m"
on = "web2"
run = "iperf3"
[[processes]]
ready_timeout = "10m"
on = "balancer"
run = "serve"
[[processes]]
ready_timeout = "10m"
on = "web2"
run = "socat"
"#;

#[test]
fn inventory_known_programs_answer_other_hosts_and_are_gone_after() -> Result<()> {
    let _lock = crate::without_other_labs();
    let _sshd = SshdFolder::made()?;
    let labs = Labs::new()?;
    labs.run("clean")?;
    let before = labs.inventory()?;
    let (lab, _) = labs.up(&labs.file("programs.toml", PROGRAMS)?)?;
    let folder = run_folder(&lab.stdout())?;
    let at_client = |command: &str| labs.done(&format!("lab shell client -- {command}"));

    let bytes = |url: &str| at_client(&format!("curl -sf -o /dev/null -w %{{size_download}} {url}"));
    ensure!(bytes("http://10.1.0.3/who")? == "100" && bytes("http://10.1.0.4/who")? == "200");
    // A check of a server that found it too slow puts it aside for a while.
    for size in ["100", "200"] {
        until(&format!("haproxy uses the server of {size} bytes"), || {
            bytes("http://10.1.0.2/who").is_ok_and(|found| found == size)
        });
    }
    ensure!(at_client("curl -sf -o /dev/null -w %{http_code} http://10.1.0.2:8080/")? == "200");

    let key = format!("{folder}/web1-sshd/client_key");
    let ssh = format!(
        "ssh -F /dev/null -i {key} -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
         root@10.1.0.3 cat /proc/net/fib_trie"
    );
    let addresses = at_client(&ssh)?;
    ensure!(addresses.contains("10.1.0.3") && !addresses.contains("10.1.0.1\n"), "elsewhere: {addresses}");

    let flow: serde_json::Value = serde_json::from_str(&at_client("iperf3 -c 10.1.0.4 -n 1M -J")?)?;
    // What is on its way at the end is sent and not received.
    let bytes = |of: &str| flow.pointer(&format!("/end/{of}/bytes")).and_then(serde_json::Value::as_u64);
    ensure!(bytes("sum_sent") >= Some(1 << 20) && bytes("sum_received") > Some(0), "{flow}");

    // In one network with the sink, where the bytes that came in are counted.
    let received = || {
        let counters = labs.done("lab shell web2 -- cat /proc/net/dev")?;
        let of_eth0 = counters.lines().find_map(|line| line.trim_start().strip_prefix("eth0:"));
        let bytes = of_eth0.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        bytes.context("no eth0")
    };
    let before_sink = received()?;
    at_client("socat -u OPEN:/dev/zero,readbytes=3000000 TCP:10.1.0.4:5001")?;
    // socat at the client ends once its kernel has all of them.
    until("socat has taken what it was sent", || {
        received().is_ok_and(|bytes| bytes >= before_sink + 3_000_000)
    });
    labs.down(lab)?;
    is_left(&labs, &before)
}

const COPIES: &str = r#"
title = "copies"
[hosts]
client = {}
far = {}
[[links]]
between = ["client", "far"]
rate = "100mbit"
delay = "5ms"
[[processes]]
ready_timeout = "10m"
on = "far"
run = "sshd"
config = "debian"
[[processes]]
ready_timeout = "10m"
on = "client"
name = "scp"
command = ["scp", "-q", "-F", "{ssh_config}", "FOLDER/data", "far:FOLDER/by-scp"]
ready = "exit"
[[processes]]
ready_timeout = "10m"
on = "client"
name = "sftp"
command = ["sh", "-c", "echo put FOLDER/data FOLDER/by-sftp | sftp -b - -F {ssh_config} {far}"]
ready = "exit"
[[processes]]
ready_timeout = "10m"
on = "client"
name = "rsync"
command = ["rsync", "-e", "ssh -F {ssh_config}", "FOLDER/data", "far-sshd:FOLDER/by-rsync"]
ready = "exit"
"#;

/// What lies in the folder that ssh has for each user, and when it was changed.
fn own_ssh_files() -> Result<BTreeMap<String, (i64, i64)>> {
    let user = rustix::process::getuid().as_raw().to_string();
    let users = fs::read_to_string("/etc/passwd")?;
    let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let home = fields.into_iter().find(|fields| fields.get(2) == Some(&user.as_str()));
    let home = home.and_then(|fields| Some(fields.get(5)?.to_owned())).context("this user has no home")?;
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(format!("{home}/.ssh")).into_iter().flatten().flatten() {
        let file = entry.metadata()?;
        files.insert(entry.path().display().to_string(), (file.mtime(), file.mtime_nsec()));
    }
    Ok(files)
}

#[test]
fn inventory_an_sshd_like_debian_s_takes_files_and_the_user_s_own_keys_are_left_alone() -> Result<()> {
    let _lock = crate::without_other_labs();
    let _sshd = SshdFolder::made()?;
    let labs = Labs::new()?;
    let own = own_ssh_files()?;
    let data: Vec<u8> = (0..3_000_000_u32).map(|number| (number ^ number >> 8) as u8).collect();
    fs::write(labs.path("data"), &data)?;
    let folder = labs.path("");
    let text = COPIES.replace("FOLDER", folder.trim_end_matches('/'));
    let (lab, _) = labs.up(&labs.file("copies.toml", &text)?)?;
    for program in ["scp", "sftp", "rsync"] {
        let copy = labs.path(&format!("by-{program}"));
        ensure!(fs::read(&copy)? == data, "{copy} is not what was copied");
    }
    let config = format!("{}/far-sshd/sshd_config", run_folder(&lab.stdout())?);
    let effective = labs.done(&format!("lab shell far -- /usr/sbin/sshd -T -f {config}"))?;
    for line in [
        "maxstartups 10:30:100",
        "maxsessions 10",
        "usepam yes",
        "passwordauthentication yes",
        "subsystem sftp /usr/lib/openssh/sftp-server",
    ] {
        ensure!(effective.lines().any(|other| other == line), "no {line} in {effective}");
    }
    labs.down(lab)?;
    ensure!(own_ssh_files()? == own, "the user's own folder of ssh was changed");
    Ok(())
}

#[test]
fn a_command_that_no_sshd_writes_for_is_refused() -> Result<()> {
    let _shared = super::super::beside_others();
    let labs = Labs::new()?;
    let text = "[hosts]\na = {}\n[[processes]]\non = \"a\"\ncommand = [\"scp\", \"-F\", \"{ssh_config}\"]\n";
    let refused = labs.run(&format!("lab up {}", labs.file("lonely.toml", text)?))?;
    ensure!(
        refused.code == Some(2)
            && refused.stderr.contains(":5:25: no program of this lab writes the file {ssh_config}"),
        "{refused:?}"
    );
    Ok(())
}

const IPV6: &str = r#"
title = "version six"
[hosts]
client = { routes = [{ to = "default", via = "router" }] }
router = { forward = true }
web = { routes = [{ to = "fd00:1::/64", via = "router" }] }
[[links]]
between = ["client", "router"]
segment = true
network = "fd00:1::/64"
[[links]]
between = ["router", "web"]
network = "fd00:2::/64"
addresses = { web = "fd00:2::10" }
rate = "100mbit"
delay = "5ms"
[[processes]]
ready_timeout = "10m"
on = "web"
run = "nginx"
files = { "/5k" = "5KiB" }
[[processes]]
ready_timeout = "10m"
on = "web"
run = "sshd"
[[processes]]
ready_timeout = "10m"
on = "client"
run = "serve"
[[processes]]
ready_timeout = "10m"
on = "router"
run = "haproxy"
backends = ["web"]
[[processes]]
ready_timeout = "10m"
on = "client"
name = "look"
command = ["sh", "-c", """
ping -q -c 2 -i 0.01 {web} && curl -sf -o FOLDER/direct http://{web}/5k && curl -sf -o FOLDER/balanced http://{router}/5k &&
scp -q -F {ssh_config} {web}:FOLDER/direct FOLDER/copied
"""]
ready = "exit"
[[processes]]
ready_timeout = "10m"
on = "web"
name = "back"
command = ["curl", "-sf", "-o", "FOLDER/answer", "http://{client}:8080/"]
ready = "exit"
"#;

#[test]
fn inventory_hosts_with_ipv6_networks_reach_each_other_by_all_that_runs_on_them() -> Result<()> {
    let _lock = crate::without_other_labs();
    let _sshd = SshdFolder::made()?;
    let labs = Labs::new()?;
    let folder = labs.path("");
    let text = IPV6.replace("FOLDER", folder.trim_end_matches('/'));
    let (lab, _) = labs.up(&labs.file("six.toml", &text)?)?;
    for file in ["direct", "balanced", "copied"] {
        ensure!(fs::metadata(labs.path(file))?.len() == 5_120, "{file} is not what nginx serves");
    }
    ensure!(fs::exists(labs.path("answer"))?, "serve did not answer");
    let addresses = labs.done("lab shell client -- cat /proc/net/if_inet6")?;
    let of_the_link = addresses.lines().filter(|line| line.starts_with("fe80")).count();
    ensure!(
        (addresses.lines().count(), of_the_link) == (3, 1),
        "other than was given, one of the link, and the loopback's: {addresses}"
    );
    labs.down(lab)?;
    Ok(())
}
