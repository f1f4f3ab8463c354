//! Load from several machines: hosts of a lab with Debian's sshd and folders of their own, which only ssh reaches; and virtual machines.

mod clocks;
mod cost;
mod faults;
mod limit;
mod requests;
mod secrets;
mod thousand;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use record::{HttpTrial, ResultFolder, TrialEntry};
use testing::PATIENCE;

use crate::{
    lab::Labs,
    process::{Finished, Launch, Process},
    proofload::{binary, parse_trial},
};

pub(super) const LIMIT: super::Bar = limit::BAR;
pub(super) const REQUESTS: super::Bar = requests::BAR;
pub(super) const COST: super::Bar = cost::BAR;
pub(super) const SECRETS: super::Bar = secrets::BAR;
pub(super) const FAULTS: super::Bar = faults::BAR;
pub(super) const THOUSAND: super::Bar = thousand::BAR;
pub(super) const CLOCKS: super::Bar = clocks::BAR;

/// The port of the targets of these bars, on the host `web`.
const PORT: u16 = 8081;
/// One way between the controller `far` and the machines; the controller `near` is on their segment.
const DELAY: Duration = Duration::from_millis(50);
/// The hosts that are no machines: two controllers, and the target's.
const NEAR: &str = "near";
const FAR: &str = "far";
const WEB: &str = "web";
/// Folders of which each machine has its own.
const PRIVATE: &str = "private = [\"/root\", \"/tmp\", \"/run\", \"/var\"]";

/// A lab with this many machines, named `c1` and so on.
struct Machines {
    labs: Labs,
    lab: Process,
    count: usize,
    /// The folder of the lab's files and logs.
    folder: String,
    /// The search path on which `ssh` knows the machines.
    path: String,
    /// The network namespace of each host.
    networks: BTreeMap<String, String>,
}

impl Machines {
    /// Brings the lab up, calls `work`, and takes the lab down. `sshd`: further arguments of each sshd.
    fn with<T>(count: usize, sshd: &[&str], work: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        let labs = Labs::new()?;
        let (lab, _) = labs.up(&labs.file("lab.toml", &lab_file(count, sshd))?)?;
        let said = lab.stdout();
        let folder = said.lines().find_map(|line| line.strip_prefix("files and logs in "));
        let folder = folder.with_context(|| format!("no folder is named: {said}"))?.trim().to_owned();
        let path = labs.with_ssh(&format!("exec /usr/bin/ssh -F {folder}/ssh_config \"$@\""))?;
        let mut machines = Self { labs, lab, count, folder, path, networks: BTreeMap::new() };
        for host in [NEAR, FAR, WEB].map(str::to_owned).into_iter().chain(machines.names(count)) {
            let network = machines.labs.done(&format!("lab shell {host} -- readlink /proc/self/ns/net"))?;
            machines.networks.insert(host, network.trim().to_owned());
        }
        let done = work(&machines);
        let is_down = machines.labs.down(machines.lab);
        let done = done?;
        is_down.map(|_| done)
    }

    /// The names of the first so many machines.
    fn names(&self, count: usize) -> Vec<String> {
        (1..=count.min(self.count)).map(|number| format!("c{number}")).collect()
    }

    /// The option for the first so many machines; empty for none.
    fn on(&self, count: usize) -> String {
        let named: Vec<String> = self.names(count).iter().map(|name| format!("{name}=root@{name}")).collect();
        if named.is_empty() { String::new() } else { format!("--on {}", named.join(",")) }
    }

    /// The URL of a target on `web`.
    fn url(&self, path: &str) -> String {
        format!("http://{}:{PORT}/{path}", web())
    }

    /// `proofload` with these words on a host, which knows the machines.
    fn command(&self, host: &str, words: &str) -> Result<Launch> {
        let words = format!("lab shell {host} -- {} {words}", binary()?.display());
        Ok(self.labs.command(&words)?.env("PATH", &self.path))
    }

    /// The network namespace of a host.
    fn network(&self, host: &str) -> Result<File> {
        let pid = *self.processes(host)?.first().with_context(|| format!("nothing runs on {host}"))?;
        Ok(File::open(format!("/proc/{pid}/ns/net"))?)
    }

    /// The processes of a host.
    fn processes(&self, host: &str) -> Result<Vec<u32>> {
        let network = self.networks.get(host).with_context(|| format!("no host {host}"))?;
        let all = fs::read_dir("/proc")?.flatten();
        let own = all.filter_map(|entry| {
            let found = fs::read_link(entry.path().join("ns/net")).ok()?;
            let pid = entry.file_name().to_str()?.parse().ok()?;
            (found.to_str() == Some(network)).then_some(pid)
        });
        Ok(own.collect())
    }
}

/// The text of the lab's file.
fn lab_file(count: usize, sshd: &[&str]) -> String {
    let sshd = sshd.iter().map(|argument| format!("{argument:?}, ")).collect::<String>();
    format!(
        "title = \"fleet\"\n[hosts]\nnear = {{}}\nweb = {{}}\nrouter = {{ forward = true }}\n\
         c = {{ count = {count}, {PRIVATE}, routes = [{{ to = \"10.2.0.0/16\", via = \"router\" }}] }}\n\
         far = {{ routes = [{{ to = \"default\", via = \"router\" }}] }}\n\
         [[links]]\nsegment = true\nbetween = [\"near\", \"web\", \"router\", \"c\"]\n\
         [[links]]\nbetween = [\"far\", \"router\"]\ndelay = \"{}ms\"\n\
         [[processes]]\non = \"c\"\nrun = \"sshd\"\nconfig = \"debian\"\nargs = [{sshd}]\nready_timeout = \"10m\"\n",
        DELAY.as_millis()
    )
}

/// The address of the host `web`.
fn web() -> Ipv4Addr {
    Ipv4Addr::new(10, 1, 0, 2)
}

/// The address of the machine with this number, from 1.
fn address(number: usize) -> IpAddr {
    Ipv4Addr::new(10, 1, 0, 3 + number as u8).into()
}

/// Runs a command to its end.
fn finished(launch: &Launch) -> Result<Finished> {
    let finished = launch.run(PATIENCE)?;
    ensure!(!finished.stderr.contains("panicked at"), "`{}`: {finished:?}", launch.shown());
    Ok(finished)
}

/// Runs a load whose trial goes to its standard output. It ends with one of these statuses.
fn trial(launch: &Launch, codes: &[i32]) -> Result<crate::Trial> {
    let finished = finished(launch)?;
    let is_expected = finished.code.is_some_and(|code| codes.contains(&code));
    ensure!(is_expected, "`{}`: {finished:?}", launch.shown());
    parse_trial(&finished.stdout)
}

/// The trials of a result folder.
fn trials(folder: &str) -> Result<Vec<TrialEntry>> {
    ResultFolder::open(folder.as_ref())?.trials().with_context(|| format!("the trials of {folder}"))
}

fn http(entry: &TrialEntry) -> Result<&HttpTrial> {
    entry.trial.http().context("a trial without requests")
}
