//! Labs from outside: what runs in them, who may have them, and how they are left to themselves.

mod private;
mod programs;
mod remote;

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use anyhow::{Context, Result, ensure};
use proofload_tests::{
    lab::Labs,
    process::{child_with, children_of},
};
use rustix::process::Signal;
use testing::{PATIENCE, until};

fn is_left(labs: &Labs, before: &proofload_tests::lab::Inventory) -> Result<()> {
    let left = labs.difference(before)?;
    ensure!(left.is_empty(), "left or changed: {}", left.join("\n"));
    Ok(())
}

/// The folder that a lab's announcement names.
fn run_folder(announced: &str) -> Result<String> {
    let line = announced.lines().find_map(|line| line.strip_prefix("files and logs in "));
    Ok(line.with_context(|| format!("no folder is named: {announced}"))?.to_owned())
}

const CONGESTION: &str = r#"
title = "congestion"
[hosts]
plain = {}
own = { congestion = "reno", tcp_rmem = "64MB" }
"#;

#[test]
fn inventory_hosts_choose_their_congestion_control_and_the_machine_keeps_its_own() -> Result<()> {
    let _lock = crate::without_other_labs();
    let labs = Labs::new()?;
    let allowed = || fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control");
    let (before, allowed_before) = (labs.inventory()?, allowed()?);
    let (lab, _) = labs.up(&labs.file("congestion.toml", CONGESTION)?)?;
    for (host, setting, value) in [
        ("plain", "tcp_congestion_control", "cubic"),
        ("own", "tcp_congestion_control", "reno"),
        ("own", "tcp_rmem", "4096\t131072\t64000000"),
    ] {
        let found = labs.done(&format!("lab shell {host} -- cat /proc/sys/net/ipv4/{setting}"))?;
        ensure!(found.trim() == value, "{host}: {setting} is {found}");
    }
    ensure!(allowed()? == allowed_before, "the machine allows {}", allowed()?);
    labs.down(lab)?;
    is_left(&labs, &before)
}

const PAIR: &str = r#"
title = "pair"
[hosts]
a = {}
b = {}
[[links]]
between = ["a", "b"]
[[processes]]
ready_timeout = "10m"
on = "a"
run = "nginx"
files = { "/5k" = "5KiB" }
[[processes]]
ready_timeout = "10m"
on = "a"
run = "serve"
"#;

#[test]
fn inventory_a_user_without_root_has_a_lab() -> Result<()> {
    let _lock = crate::without_other_labs();
    let refusal = Labs::refusal_for_nobody()?;
    ensure!(refusal.is_none(), "this kernel refuses user namespaces to ordinary users: {refusal:?}");
    let labs = Labs::of_nobody()?;
    labs.run("clean")?;
    let before = labs.inventory()?;
    let (lab, _) = labs.up(&labs.file("pair.toml", PAIR)?)?;
    let owner = fs::read_to_string(format!("/proc/{}/status", lab.pid()))?;
    ensure!(owner.contains("\nUid:\t65534\t65534\t65534\t65534\n"), "not that user's: {owner}");
    let size = labs.done("lab shell b -- curl -sf -o /dev/null -w %{size_download} http://10.1.0.1/5k")?;
    let status = labs.done("lab shell b -- curl -sf -o /dev/null -w %{http_code} http://10.1.0.1:8080/")?;
    ensure!(size == "5120" && status == "200", "{size} {status}");
    labs.down(lab)?;

    // Emulated links need a device that the machine may keep to root.
    let text = "[hosts]\na = {}\nb = {}\n[[links]]\nbetween = [\"a\", \"b\"]\ndelay = \"1ms\"\n";
    let wan = labs.run(&format!("lab up --detach {}", labs.file("wan.toml", text)?))?;
    if fs::metadata("/dev/net/tun")?.permissions().mode() & 0o006 == 0o006 {
        ensure!(wan.code == Some(0), "{wan:?}");
        labs.done("lab down")?;
    } else {
        ensure!(wan.code == Some(2) && wan.stderr.contains("/dev/net/tun must be open"), "{wan:?}");
    }
    is_left(&labs, &before)
}

#[test]
fn a_kernel_that_forbids_user_namespaces_is_named() -> Result<()> {
    let _shared = super::beside_others();
    let labs = Labs::of_nobody()?;
    let file = labs.file("pair.toml", PAIR)?;
    // A namespace of users in which there may be no further one: the setting is its own. The shell gets its
    // rights by becoming another one when its users are known.
    let forbidding = "while ! grep -q . /proc/self/gid_map; do sleep 0.01; done; \
                      exec sh -c 'echo 0 >/proc/sys/user/max_user_namespaces && exec \"$@\"' sh \"$@\"";
    let launch =
        labs.command(&format!("lab up {file}"))?.under(["unshare", "--user", "sh", "-c", forbidding, "sh"]);
    let mut process = launch.start()?;
    let proc = format!("/proc/{}", process.pid());
    let own = fs::read_link("/proc/self/ns/user")?;
    let is_apart = || fs::read_link(format!("{proc}/ns/user")).is_ok_and(|namespace| namespace != own);
    process.find("a namespace of users", PATIENCE, |_| is_apart().then_some(()))?;
    for map in ["uid_map", "gid_map"] {
        fs::write(format!("{proc}/{map}"), "0 0 65536")?;
    }
    let finished = process.finish(PATIENCE)?;
    ensure!(finished.code == Some(2), "{finished:?}");
    for part in ["need root or user namespaces", "user.max_user_namespaces"] {
        ensure!(finished.stderr.contains(part), "'{part}' is not said: {}", finished.stderr);
    }
    Ok(())
}

#[test]
fn inventory_a_detached_lab_stays_until_it_is_taken_down() -> Result<()> {
    let _lock = crate::without_other_labs();
    let labs = Labs::new()?;
    labs.run("clean")?;
    let before = labs.inventory()?;
    let file = labs.file("pair.toml", PAIR)?;
    let announced = labs.done(&format!("lab up --detach {file}"))?;
    ensure!(announced.contains("\nready in "), "{announced}");
    let owner = announced.split("process ").nth(1).and_then(|rest| rest.split(' ').next());
    let owner = owner.with_context(|| format!("no process is named: {announced}"))?;
    let stat = fs::read_to_string(format!("/proc/{owner}/stat"))?;
    // Session and controlling terminal are the fourth and fifth field after the name.
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    ensure!(fields[3] == owner && fields[4] == "0", "no session of its own: {stat}");
    ensure!(labs.done("lab shell b -- curl -sf -o /dev/null -w %{http_code} http://10.1.0.1/5k")? == "200");

    let drawn = labs.done(&format!("lab graph {file}"))?;
    ensure!(labs.done("lab graph")? == drawn && drawn.contains("nginx"), "{drawn}");
    let other = labs.file("other.toml", "title = \"other\"\n[hosts]\nc = {}\n")?;
    labs.done(&format!("lab up --detach {other}"))?;
    let several = labs.run("lab graph")?;
    ensure!(several.code == Some(2) && several.stderr.contains("several labs are up"), "{several:?}");
    ensure!(labs.done("lab graph --lab pair")? == drawn);
    ensure!(labs.done("lab graph --lab other --dot")?.contains("label=\"c\""));

    labs.done("lab down --all")?;
    is_left(&labs, &before)
}

#[test]
fn inventory_what_fails_in_the_background_is_told_in_the_foreground() -> Result<()> {
    let _lock = crate::without_other_labs();
    let labs = Labs::new()?;
    labs.run("clean")?;
    let before = labs.inventory()?;
    let mistaken = labs.file("mistaken.toml", "[hosts]\na = { cuont = 1 }\n")?;
    let refused = labs.run(&format!("lab up --detach {mistaken}"))?;
    ensure!(refused.code == Some(2) && refused.stderr.contains("did you mean 'count'?"), "{refused:?}");
    let broken = "[hosts]\na = {}\n[[processes]]\non = \"a\"\nready = \"exit\"\nready_timeout = \"10m\"\n\
                  command = [\"sh\", \"-c\", \"echo out of luck; exit 7\"]\n";
    let failed = labs.run(&format!("lab up --detach {}", labs.file("broken.toml", broken)?))?;
    ensure!(failed.code == Some(2) && failed.stdout.is_empty(), "{failed:?}");
    ensure!(
        failed.stderr.contains("ended with status 7") && failed.stderr.contains("| out of luck"),
        "{failed:?}"
    );
    is_left(&labs, &before)?;

    // Called off, and killed, before the lab is ready: in both cases nothing of it stays.
    let endless = "[hosts]\na = {}\n[[processes]]\non = \"a\"\nready = \"log:never\"\nready_timeout = \"1h\"\n\
                   command = [\"sh\", \"-c\", \"echo started; sleep infinity\"]\n";
    let endless = labs.file("endless.toml", endless)?;
    for (signal, code) in [(Signal::INT, Some(130)), (Signal::KILL, None)] {
        let mut foreground = labs.command(&format!("lab up --detach {endless}"))?.start()?;
        await_line(&labs.state(), "a-sh.log", "started");
        foreground.signal(signal);
        let finished = foreground.finish(PATIENCE)?;
        ensure!(finished.code == code, "{signal:?}: {finished:?}");
        is_left(&labs, &before)?;
    }
    Ok(())
}

/// Waits until a log of the one lab that is coming up holds a text.
fn await_line(state: &Path, log: &str, text: &str) {
    until(&format!("a {log} in {} holds '{text}'", state.display()), || {
        let folders = fs::read_dir(state).into_iter().flatten().flatten().map(|entry| entry.path().join(log));
        folders.filter_map(|log| fs::read_to_string(log).ok()).any(|said| said.contains(text))
    });
}

#[test]
fn inventory_a_lab_whose_link_dies_says_so_and_goes_down() -> Result<()> {
    let _lock = crate::without_other_labs();
    let labs = Labs::new()?;
    labs.run("clean")?;
    let before = labs.inventory()?;
    let text =
        "[hosts]\na = {}\nb = {}\n[[links]]\nname = \"wan\"\nbetween = [\"a\", \"b\"]\ndelay = \"1ms\"\n";
    let (lab, _) = labs.up(&labs.file("link.toml", text)?)?;
    let worker = child_with("link-worker", lab.pid());
    super::kill(worker.context("the lab has no process for its link")?)?;
    let finished = lab.finish(PATIENCE)?;
    ensure!(
        finished.code == Some(2) && finished.stderr.contains("link wan has lost its process"),
        "{finished:?}"
    );
    is_left(&labs, &before)
}

/// The processors that the threads of the links run on, and those of all other processes of a lab, as `taskset` names them.
fn mover_processors(lab: u32) -> Vec<String> {
    let read = |path: String| fs::read_to_string(path).unwrap_or_default();
    let mut movers = Vec::new();
    for child in children_of(lab) {
        for thread in fs::read_dir(format!("/proc/{child}/task")).into_iter().flatten().flatten() {
            let status = read(format!("{}/status", thread.path().display()));
            let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            if status.starts_with("Name:\tlink-mover") {
                movers.extend(allowed.map(|list| list.trim().to_owned()));
            }
        }
    }
    movers
}

#[test]
fn a_link_stays_off_the_processors_of_hosts_and_says_where_it_cannot() -> Result<()> {
    let _shared = super::beside_others();
    let cores = kernel::noise::allowed_cpus()?;
    let [first, second] = *cores.first_chunk().context("this test needs two processors")?;
    let both = if second == first + 1 { format!("{first}-{second}") } else { format!("{first},{second}") };
    for (a, command, movers, crowded) in [
        (String::new(), String::new(), both.clone(), false),
        (format!("cpus = {second}"), String::new(), first.to_string(), false),
        (String::new(), format!("\"taskset\", \"-c\", \"{first}\", "), second.to_string(), false),
        (format!("cpus = \"{first},{second}\""), String::new(), both.clone(), true),
    ] {
        let labs = Labs::new()?;
        let text = format!(
            "[hosts]\na = {{ {a} }}\nb = {{}}\n[[links]]\nbetween = [\"a\", \"b\"]\ndelay = \"1ms\"\n\
             [[processes]]\non = \"b\"\nready = \"log:up\"\nready_timeout = \"10m\"\n\
             command = [{command}\"sh\", \"-c\", \"echo up; sleep infinity\"]\n"
        );
        let file = labs.file("pinned.toml", &text)?;
        let own = format!("{first},{second}");
        let mut lab = labs.command(&format!("lab up {file}"))?.under(["taskset", "-c", &own]).start()?;
        lab.says("\nready in ", PATIENCE)?;
        if crowded {
            lab.says("no processor of its own", PATIENCE)?;
        }
        let pid = lab.pid();
        until(&format!("the link of {a} {command} is moved by {movers}"), || {
            mover_processors(pid) == [&*movers]
        });
        ensure!(crowded == lab.stderr().contains("no processor of its own"), "{}", lab.stderr());
        labs.down(lab)?;
    }
    Ok(())
}

#[test]
fn a_second_lab_of_one_title_is_refused() -> Result<()> {
    let _shared = super::beside_others();
    let labs = Labs::new()?;
    let file = labs.file("one.toml", "title = \"one\"\n[hosts]\na = {}\n")?;
    let (lab, _) = labs.up(&file)?;
    let refused = labs.run(&format!("lab up {file}"))?;
    ensure!(refused.code == Some(2) && refused.stderr.contains("a lab 'one' is up already"), "{refused:?}");
    labs.down(lab)?;
    let (lab, _) = labs.up(&file)?;
    labs.down(lab)?;
    Ok(())
}

#[test]
fn what_init_writes_runs_and_replaces_nothing() -> Result<()> {
    let _shared = super::beside_others();
    let labs = Labs::new()?;
    let file = labs.file("kept.toml", "mine")?;
    let refused = labs.run(&format!("lab init {file}"))?;
    ensure!(refused.code == Some(2) && fs::read_to_string(&file)? == "mine", "{refused:?}");
    fs::remove_file(&file)?;
    labs.run(&format!("lab init {file}"))?;
    let (lab, _) = labs.up(&file)?;
    labs.down(lab)?;
    Ok(())
}

#[test]
fn what_outlives_its_parent_may_go_on_writing() -> Result<()> {
    let _shared = super::beside_others();
    let labs = Labs::new()?;
    let text = "[hosts]\na = {}\n[[processes]]\non = \"a\"\nready = \"exit\"\nready_timeout = \"10m\"\n\
                command = [\"sh\", \"-c\", \"(sleep 0.2; echo one; sleep 0.2; echo two; sleep infinity) &\"]\n";
    let (lab, _) = labs.up(&labs.file("daemon.toml", text)?)?;
    await_line(&labs.state(), "a-sh.log", "one\ntwo\n");
    labs.down(lab)?;
    Ok(())
}

#[test]
fn the_process_that_ended_is_blamed_not_the_one_that_waits_for_it() -> Result<()> {
    let _shared = super::beside_others();
    let labs = Labs::new()?;
    let text = "[hosts]\na = {}\nb = {}\n[[links]]\nbetween = [\"a\", \"b\"]\n\
                [[processes]]\non = \"a\"\nname = \"server\"\nready = \"log:well\"\nready_timeout = \"10m\"\n\
                command = [\"sh\", \"-c\", \"echo all is well; sleep 0.3; echo no more; exit 3\"]\n\
                [[processes]]\non = \"b\"\nname = \"client\"\nready = \"tcp:a:80\"\nready_timeout = \"10m\"\n\
                command = [\"sleep\", \"infinity\"]\n";
    let failed = labs.run(&format!("lab up {}", labs.file("blame.toml", text)?))?;
    ensure!(failed.code == Some(2), "{failed:?}");
    ensure!(failed.stderr.contains("a-server ended with status 3") && failed.stderr.contains("| no more"));
    ensure!(!failed.stderr.contains("b-client"), "{}", failed.stderr);
    Ok(())
}
