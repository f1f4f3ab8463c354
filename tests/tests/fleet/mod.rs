//! Load from other machines over ssh, from outside. The machines are hosts of a lab with an sshd and a home each; what they
//! sent is known from the target's own log.
//!
//! A test that needs a trial in its middle lets the target hold answers back, so that no machine is too slow or too fast for it.

mod ends;
mod files;
mod losses;
mod refusals;
mod shares;
mod studies;
mod uses;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
};

use anyhow::{Context, Result, ensure};
use proofload_tests::{
    Output, Trial,
    fleet_hosts::{processes_in, signal},
    held_target::{ALL, PORT, Target},
    lab::{Labs, SshdFolder},
    process::{Finished, Launch, Process, child_with},
    proofload::{binary, parse_trial, patient},
};
use record::{Counts, Histogram, HttpTrial, VoidRule};
use rustix::process::Signal;
use testing::{PATIENCE, find};

/// The hosts, in the order of their addresses.
const HOSTS: [&str; 5] = ["control", "c1", "c2", "c3", "web"];
/// The hosts that others log in to, and the ports for that.
const MACHINES: [(&str, u16); 3] = [("c1", 22), ("c2", 2222), ("c3", 22)];
const ALL_MACHINES: [&str; 3] = ["c1", "c2", "c3"];
const BOTH: [&str; 2] = ["c1", "c2"];
/// A target of a known capacity, in requests per second.
const CAPACITY_URL: &str = "http://10.1.0.5:8080/";

/// The same machines in both forms of an inventory.
const INVENTORIES: [(&str, &str); 2] = [("inventory.ini", INI), ("inventory.yml", YAML)];
const INI: &str = "
c2 ansible_user=root ansible_port=2222

[clients]
c1 ansible_host=10.1.0.2 ansible_user=root
c2

[spare]
c3 ansible_user=root

[every:children]
clients
spare
";
const YAML: &str = "
all:
  children:
    clients:
      hosts:
        c1:
          ansible_host: 10.1.0.2
          ansible_user: root
        c2: { ansible_user: root, ansible_port: 2222 }
    spare:
      hosts:
        c3:
      vars:
        ansible_user: root
    every:
      children:
        clients:
        spare:
";

/// The lab's hosts.
struct Fleet {
    labs: Labs,
    /// The search path on which `ssh` knows the machines.
    path: String,
    /// The network namespace of each host.
    networks: BTreeMap<&'static str, String>,
    target: Target,
    /// What runs on the hosts without a load.
    before: BTreeSet<i32>,
}

/// A running command on the host `control`.
struct Command {
    process: Process,
    line: String,
}

/// A part of a test, in a lab that it shares with others.
type Part = fn(&Fleet) -> Result<()>;

/// Brings the lab up and tries all parts of a test in turn. Each must leave nothing running.
fn try_all(parts: &[(&str, Part)]) -> Result<()> {
    try_all_in(lab_file, parts)
}

/// The same in another lab, which has the text of its file.
fn try_all_in(lab_file: fn(&Labs) -> Result<String>, parts: &[(&str, Part)]) -> Result<()> {
    with_fleet_in(lab_file, |fleet| {
        let mut wrong = Vec::new();
        for (name, part) in parts {
            if let Err(why) = part(fleet).and_then(|()| fleet.is_quiet()) {
                wrong.push(format!("{name}: {why:#}"));
            }
            fleet.target.answer_all();
        }
        ensure!(wrong.is_empty(), "{} of {} parts:\n{}", wrong.len(), parts.len(), wrong.join("\n\n"));
        Ok(())
    })
}

/// Brings the lab up and calls `test`.
fn with_fleet(test: impl FnOnce(&Fleet) -> Result<()>) -> Result<()> {
    with_fleet_in(lab_file, test)
}

fn with_fleet_in(
    lab_file: fn(&Labs) -> Result<String>,
    test: impl FnOnce(&Fleet) -> Result<()>,
) -> Result<()> {
    let _lock = crate::without_other_labs();
    let _sshd = SshdFolder::made()?;
    let labs = Labs::new()?;
    let (lab, _) = labs.up(&labs.file("lab.toml", &lab_file(&labs)?)?)?;
    let fleet = Fleet::of(labs, &lab.stdout())?;
    let tested = test(&fleet);
    let Fleet { labs, target, .. } = fleet;
    // Its sockets would keep the host's network.
    drop(target);
    let is_down = labs.down(lab);
    tested?;
    is_down.map(drop)
}

/// The text of the lab's file. Hosts share the machine's files, so each machine gets a home of its own, which is made here.
fn lab_file(labs: &Labs) -> Result<String> {
    let hosts = HOSTS.map(|host| format!("{host} = {{}}\n")).concat();
    let between = HOSTS.map(|host| format!("\"{host}\"")).join(", ");
    let mut text = format!("title = \"fleet\"\n[hosts]\n{hosts}[[links]]\nbetween = [{between}]\n");
    for (machine, port) in MACHINES {
        fs::create_dir(labs.path(machine))?;
        text += &format!(
            "[[processes]]\non = \"{machine}\"\nrun = \"sshd\"\nport = {port}\nready_timeout = \"10m\"\nmay_end = true\n\
             args = [\"-o\", \"SetEnv=HOME={}\"]\n",
            labs.path(machine)
        );
    }
    text += "[[processes]]\non = \"web\"\nrun = \"serve\"\nready_timeout = \"10m\"\n\
             args = [\"--capacity\", \"1\", \"--service-time\", \"2ms\"]\n";
    Ok(text)
}

/// The address of a host.
fn address(host: &str) -> IpAddr {
    let number = HOSTS.iter().position(|known| *known == host).map_or(0, |index| index as u8 + 1);
    Ipv4Addr::new(10, 1, 0, number).into()
}

/// The URL of the target with its own log.
fn url(path: &str) -> String {
    format!("http://{}:{PORT}/{path}", address("web"))
}

/// The option for these machines.
fn on(machines: &[&str]) -> String {
    let named: Vec<String> = machines.iter().map(|machine| format!("{machine}=root@{machine}")).collect();
    format!("--on {}", named.join(","))
}

impl Fleet {
    /// The hosts of a lab that is up, and said this.
    fn of(labs: Labs, announced: &str) -> Result<Self> {
        let folder = announced.lines().find_map(|line| line.strip_prefix("files and logs in "));
        let folder = folder.with_context(|| format!("no folder is named: {announced}"))?;
        let path = labs.with_ssh(&format!("exec /usr/bin/ssh -F {folder}/ssh_config \"$@\""))?;
        let mut networks = BTreeMap::new();
        for host in HOSTS {
            let network = labs.done(&format!("lab shell {host} -- readlink /proc/self/ns/net"))?;
            networks.insert(host, network.trim().to_owned());
        }
        let on_web = processes_in(&networks["web"]);
        let (pid, _) = on_web.first_key_value().context("nothing runs on the host web")?;
        let target = Target::start(File::open(format!("/proc/{pid}/ns/net"))?)?;
        let mut fleet = Self { labs, path, networks, target, before: BTreeSet::new() };
        fleet.before = fleet.processes(&HOSTS).into_keys().collect();
        Ok(fleet)
    }

    /// The processes of these hosts, by their ids, with their words.
    fn processes(&self, hosts: &[&str]) -> BTreeMap<i32, String> {
        hosts.iter().flat_map(|host| processes_in(&self.networks[*host])).collect()
    }

    /// What runs on these hosts because of a load.
    fn left(&self, hosts: &[&str]) -> BTreeMap<i32, String> {
        let mut left = self.processes(hosts);
        left.retain(|pid, _| !self.before.contains(pid));
        left
    }

    /// The agents on a machine.
    fn agents(&self, machine: &str) -> Vec<i32> {
        self.with_words(machine, |words| words.contains(&"agent") && words.ends_with(&["--stdio"]))
    }

    /// The workers on a machine.
    fn workers(&self, machine: &str) -> Vec<i32> {
        self.with_words(machine, |words| words.ends_with(&["worker"]))
    }

    fn with_words(&self, machine: &str, is_meant: impl Fn(&[&str]) -> bool) -> Vec<i32> {
        let processes = self.left(&[machine]).into_iter();
        let own = processes.filter(|(_, words)| is_meant(&words.split_whitespace().collect::<Vec<_>>()));
        own.map(|(pid, _)| pid).collect()
    }

    /// The numbers of requests that the target received from these machines.
    fn counts<const N: usize>(&self, machines: [&str; N]) -> [u64; N] {
        machines.map(|machine| self.target.count(address(machine)))
    }

    /// Whether all processes of ours on a machine have ended, and the target has read all that they sent.
    fn has_ended(&self, machine: &str) -> bool {
        self.agents(machine).is_empty()
            && self.workers(machine).is_empty()
            && self.target.open(address(machine)) == 0
    }

    /// Waits until nothing runs on the hosts but what ran before, and the target has read all that was sent.
    fn is_quiet(&self) -> Result<()> {
        let is_quiet =
            || self.left(&HOSTS).is_empty() && HOSTS.iter().all(|host| self.target.open(address(host)) == 0);
        let found = find(PATIENCE, || is_quiet().then_some(()));
        ensure!(found.is_some(), "still running: {:#?}", self.left(&HOSTS));
        Ok(())
    }

    /// `proofload` with these words on the host `control`.
    fn control(&self, words: &str) -> Result<Launch> {
        let words = format!("lab shell control -- {} {words}", binary()?.display());
        Ok(self.labs.command(&words)?.env("PATH", &self.path))
    }

    /// `proofload http` there, whose trial goes to its standard output.
    fn http(&self, path: &str, words: &str) -> Result<Launch> {
        Ok(self.control("http")?.arg(url(path)).words(&patient(words)).words("--json -"))
    }

    /// Starts a command for a target that answers the first so many requests of each machine, and that has forgotten all earlier ones.
    fn start(&self, launch: &Launch, answered_each: u64) -> Result<Command> {
        self.target.begin(answered_each);
        Ok(Command { process: launch.start()?, line: launch.shown() })
    }

    /// Runs a load to its end.
    fn run(&self, words: &str) -> Result<Output> {
        self.start(&self.http("", words)?, ALL)?.finish()
    }

    /// Starts a load of 4 users on each of two machines, and waits until all of them wait for answers that the target holds back. Each
    /// machine has sent 54 requests of 200 then.
    fn held(&self) -> Result<Command> {
        let mut load = self.start(&self.http("", &format!("-u 8 -n 400 {}", on(&BOTH)))?, 50)?;
        load.until("all users wait", || self.counts(BOTH) == [54, 54])?;
        for machine in BOTH {
            let [agents, workers] = [self.agents(machine), self.workers(machine)];
            ensure!(agents.len() == 1 && !workers.is_empty(), "{:#?}", self.left(&[machine]));
            for pid in agents.into_iter().chain(workers) {
                let program = fs::read_link(format!("/proc/{pid}/exe"))?;
                ensure!(program == self.copy(machine)?, "{machine} runs {}", program.display());
            }
        }
        Ok(load)
    }

    /// Where the program lies on a machine.
    fn copy(&self, machine: &str) -> Result<PathBuf> {
        let folder = PathBuf::from(self.labs.path(machine)).join(".cache/proofload");
        Ok(folder.join(checksum()?).join("proofload"))
    }
}

impl Command {
    /// Waits until something holds while the command runs.
    fn until(&mut self, what: &str, holds: impl Fn() -> bool) -> Result<()> {
        self.process.find(what, PATIENCE, |_| holds().then_some(()))
    }

    /// Sends a signal to the controller, which `lab shell` would not pass on.
    fn signal(&self, which: Signal) -> Result<()> {
        let controller = child_with("http", self.process.pid()).context("there is no controller")?;
        signal(controller.cast_signed(), which)
    }

    /// Waits for the end. What begins as a trial on standard output must be one.
    fn finish(self) -> Result<Output> {
        let Finished { code, stdout, stderr, wall, .. } = self.process.finish(PATIENCE)?;
        ensure!(!stderr.contains("panicked at"), "`{}` panicked:\n{stderr}", self.line);
        let trial = if stdout.starts_with('{') { Some(parse_trial(&stdout)?) } else { None };
        Ok(Output { line: self.line, code, trial, stdout, stderr, wall })
    }
}

/// The checksum of the program, from a program of its own.
fn checksum() -> Result<String> {
    let finished = Launch::new("sha256sum").arg(binary()?.display().to_string()).run(PATIENCE)?;
    let sum = finished.stdout.split_whitespace().next().context("sha256sum says nothing")?;
    Ok(sum.to_owned())
}

/// The names of a trial's machines.
fn names(http: &HttpTrial) -> Vec<&str> {
    http.machines.iter().map(|machine| machine.name.as_str()).collect()
}

/// The name of a count, and how it is read.
type Sum = (&'static str, fn(&Counts) -> u64);

/// Counts that are sums.
const SUMS: [Sum; 8] = [
    ("scheduled", |counts| counts.scheduled),
    ("sent", |counts| counts.sent),
    ("never_sent", |counts| counts.never_sent),
    ("completed", |counts| counts.completed),
    ("failed", |counts| counts.failed),
    ("in_flight", |counts| counts.in_flight),
    ("sent_bytes", |counts| counts.sent_bytes),
    ("received_bytes", |counts| counts.received_bytes),
];

/// The trial's counts are the sums of its machines' counts, and its response times are all that they have.
fn is_their_sum(http: &HttpTrial) -> Result<()> {
    for (name, of) in SUMS {
        let sum: u64 = http.machines.iter().map(|machine| of(&machine.counts)).sum();
        ensure!(sum == of(&http.counts), "{name} is {}, and {sum} over all machines", of(&http.counts));
    }
    let mut union = Histogram::empty();
    http.machines.iter().for_each(|machine| union.merge(&machine.response_time));
    let observed = &http.response_time.observed;
    ensure!(union == *observed, "{} and {} response times", union.count(), observed.count());
    ensure!(union.count() == http.counts.completed, "{} of {:?}", union.count(), http.counts);
    Ok(())
}

/// The trial of a call that is void because a machine was lost. The evidence contains its name.
fn void_by_loss<'a>(output: &'a Output, machine: &str) -> Result<(&'a Trial, &'a str)> {
    let trial = output.trial_with_code(3)?;
    let mut reasons = trial.validity.reasons().iter();
    let lost = reasons.find(|reason| reason.rule == VoidRule::WorkerLost);
    let evidence = lost.with_context(|| output.described())?.evidence.as_str();
    ensure!(evidence.contains(machine), "'{machine}' is not in '{evidence}'");
    ensure!(names(trial) == BOTH, "{:?}", names(trial));
    Ok((trial, evidence))
}
