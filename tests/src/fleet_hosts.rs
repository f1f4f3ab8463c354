//! What runs on the hosts of a lab that make load together.

use std::{
    collections::BTreeMap,
    fs::{self, File},
};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::process::{Finished, children_of};

/// The processes in a network namespace, by their ids, with their words.
pub fn processes_in(network: &str) -> BTreeMap<i32, String> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let own = all.filter_map(|entry| {
        let found = fs::read_link(entry.path().join("ns/net")).ok()?;
        let words = fs::read(entry.path().join("cmdline")).ok()?;
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        let is_own = found.to_str() == Some(network) && !words.is_empty();
        is_own.then_some((entry.file_name().to_str()?.parse().ok()?, words))
    });
    own.collect()
}

/// A network namespace, by its name.
///
/// # Errors
/// If nothing runs in it.
pub fn network_of(network: &str) -> Result<File> {
    let (pid, _) = processes_in(network).pop_first().with_context(|| format!("nothing runs in {network}"))?;
    Ok(File::open(format!("/proc/{pid}/ns/net"))?)
}

/// A process and all that it has started.
pub fn tree(pid: u32) -> Vec<u32> {
    let (mut all, mut next) = (vec![pid], 0);
    while next < all.len() {
        all.extend(children_of(all[next]));
        next += 1;
    }
    all
}

/// Sends a signal to a process.
///
/// # Errors
/// If there is no such process.
pub fn signal(pid: i32, signal: Signal) -> Result<()> {
    Ok(kill_process(Pid::from_raw(pid).context("no process")?, signal)?)
}

/// Names and states in a list of agents, whose lines begin with the name.
pub fn listed(list: &Finished) -> Vec<(String, String)> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next()?.to_owned();
        let state = words.find(|word| ["idle", "busy", "draining"].contains(word))?.to_owned();
        Some((name, state))
    };
    let mut listed: Vec<_> = list.stdout.lines().filter_map(line).collect();
    listed.sort();
    listed
}
