//! Load from machines that dial out to a NATS server, from outside. The machines are hosts of a lab, each with keys of its own, which
//! nothing logs in to; what they sent is known from the target's own log, and what the broker carried from one who listens to all of it.
//!
//! What is expected:
//!
//! 1. All idle agents of a pool make the load of `--on nats://BROKER/POOL`, and no others. The target's own log agrees with the merged
//!    counts, each machine has its row, and merged response times are all that the machines have. The same for `run` and `ab`, with
//!    `--share`, for longer than a lease, and with TLS to the broker. A feeder and a log are files of the controller, of which nothing
//!    lies on a machine. (`loads`)
//! 2. A broker that is killed and at once back in the middle of a trial: the trial is valid and complete, or void by machines that are
//!    named. Nothing is sent or counted twice. One of five such trials is valid. (`faults`)
//! 3. A broker that stays away: the trial ends as void, naming the machines, although target and plan would let it last for an hour;
//!    the machines end their part without hearing from anybody. Each of this within `PATIENCE` (300 s), our longest wait for anything;
//!    the product's own bounds are 6 s of silence at the controller, 5 s of a lease and 20 s of a link. With the broker back, the
//!    agents are idle again, and make a load. (`faults`)
//! 4. A machine that is stopped for 8 s (all of it, or the agent's main process alone), killed, or told to end with SIGTERM, voids the
//!    trial with its name and share. It sends nothing after its lease of 5 s, at most what each connection had under way; a killed
//!    agent leaves no worker. The others finish, and their counts are kept. (`faults`)
//! 5. A controller that is killed: 2 s + the lease later, no machine sends any more, at most what each connection had under way; also
//!    while users wait for answers, all parts of the load end. An interrupted controller has the result so far. Agents are idle
//!    afterwards. (`faults`)
//! 6. Refused with exit status 2, before any request, with a sentence that has the agent's name and the next step: a controller whose
//!    key the agent does not have, an agent whose key is not in the file, an agent with the key of another name, two agents of one
//!    name, no agent at all, a target outside of `--allow` (by address, by name, by `--connect-to`, by a proxy, on one machine of two),
//!    an agent without `--allow`, agents that are busy or drain, a broker that is not reached or wants a login. A sound case beside
//!    each rule passes. (`refusals`, `pool`)
//! 7. Refused without a connection: a login in the broker's address, in every command that takes one, without showing it; missing or
//!    wrong options; keys that other users can read. (`refusals`)
//! 8. What is secret in a plan, or only its path, is in nothing that the broker carries; a secret is in no log and no file of an agent
//!    or the broker, and in no words or environment of their processes. It reaches the target. What was carried once and is carried
//!    again makes no load. (`secrets`)
//! 9. `fleet key` makes a key of mode 0600 once, and prints its public half each time. `fleet list` has a line for each agent of the
//!    pool, with name, state, version and key. `fleet drain` of an idle agent ends it with status 0, of a busy one after its trial,
//!    which is complete; drained by another key it stays. SIGTERM ends an agent with status 0, with or without a broker. (`pool`, and
//!    after each part of all tests)
//!
//! A test that needs a trial in its middle lets the target hold answers back, so that no machine is too slow or too fast for it.

mod faults;
mod loads;
mod pool;
mod refusals;
mod secrets;
mod spy;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use anyhow::{Context, Result, ensure};
use proofload_tests::{
    Output,
    fleet_hosts::{listed, network_of, processes_in, signal, tree},
    held_target::{ALL, PORT, Target},
    lab::Labs,
    process::{Finished, Launch, Process, child_with},
    proofload::{binary, parse_trial, patient},
};
use record::{Counts, Histogram, HttpTrial};
use rustix::process::Signal;
use testing::{PATIENCE, find};

/// The hosts, in the order of their addresses.
const HOSTS: [&str; 6] = ["control", "broker", "c1", "c2", "c3", "web"];
const ALL_MACHINES: [&str; 3] = ["c1", "c2", "c3"];
const BOTH: [&str; 2] = ["c1", "c2"];
/// Where a load may leave something running.
const LOADED: [&str; 4] = ["control", "c1", "c2", "c3"];
const BROKER_PORT: u16 = 4222;
/// The pool of most tests.
const POOL: &str = "load";
/// The key of a machine, in a folder of its own.
const KEY: &str = "/root/agent.key";
/// The network of all hosts.
const ALLOWED: &str = "--allow 10.1.0.0/24";
/// So that a trial whose answers are held back is not ended by itself.
const ENDLESS: &str = "--timeout 1h --drain 1h";

/// The lab's hosts, with what runs on them during a part of a test.
struct Site {
    labs: Labs,
    /// The network namespace of each host.
    networks: BTreeMap<&'static str, String>,
    target: Target,
    /// The public keys of the controller and of the machines.
    controller: String,
    keys: BTreeMap<&'static str, String>,
    /// What runs on the hosts without broker, agents and load.
    before: BTreeSet<i32>,
    broker: Option<Process>,
    agents: Vec<Agent>,
}

/// A running agent.
struct Agent {
    host: &'static str,
    process: Process,
}

/// A running command on the host `control`.
struct Load {
    process: Process,
    line: String,
    /// A word of its command line.
    word: &'static str,
}

/// A part of a test, in a lab that it shares with others. It begins without agents.
type Part = fn(&mut Site) -> Result<()>;

/// Brings the lab up and tries all parts of a test in turn. Each must leave nothing running but agents, which must end when told to.
fn try_all(parts: &[(&str, Part)]) -> Result<()> {
    let _lock = crate::without_other_labs();
    let labs = Labs::new()?;
    let (lab, _) = labs.up(&labs.file("lab.toml", &lab_file())?)?;
    let mut site = Site::of(labs)?;
    let mut wrong = Vec::new();
    for (name, part) in parts {
        let tried = part(&mut site).and_then(|()| site.is_quiet()).and_then(|()| site.end_agents());
        site.target.answer_all();
        if let Err(why) = tried {
            wrong.push(format!("{name}: {why:#}"));
            site.clear()?;
        }
    }
    let ended = site.kill_broker();
    // The sockets of a target would keep the host's network.
    let Site { labs, target, agents, .. } = site;
    drop((target, agents));
    let is_down = labs.down(lab);
    ensure!(wrong.is_empty(), "{} of {} parts:\n{}", wrong.len(), parts.len(), wrong.join("\n\n"));
    ended?;
    is_down.map(drop)
}

/// The machines have folders of their own, so that each has a key that no other can read.
fn lab_file() -> String {
    let hosts = HOSTS.map(|host| match ALL_MACHINES.contains(&host) {
        true => format!("{host} = {{ private = [\"/root\", \"/tmp\", \"/run\", \"/var\"] }}\n"),
        false => format!("{host} = {{}}\n"),
    });
    let between = HOSTS.map(|host| format!("\"{host}\"")).join(", ");
    format!("title = \"dialled out\"\n[hosts]\n{}[[links]]\nbetween = [{between}]\n", hosts.concat())
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

/// The broker's address, with a pool.
fn nats(pool: &str) -> String {
    format!("nats://{}:{BROKER_PORT}/{pool}", address("broker"))
}

impl Site {
    /// The hosts of a lab that is up, with keys and a broker.
    fn of(labs: Labs) -> Result<Self> {
        let mut networks = BTreeMap::new();
        for host in HOSTS {
            let network = labs.done(&format!("lab shell {host} -- readlink /proc/self/ns/net"))?;
            networks.insert(host, network.trim().to_owned());
        }
        let program = binary()?.display().to_string();
        let mut keys = BTreeMap::new();
        for machine in ALL_MACHINES {
            let key = labs.done(&format!("lab shell {machine} -- {program} fleet key {KEY}"))?;
            keys.insert(machine, key.trim().to_owned());
        }
        let controller = labs.done(&format!("fleet key {}", labs.path("control.key")))?.trim().to_owned();
        let lines: Vec<String> = keys.iter().map(|(name, key)| format!("{name} {key}\n")).collect();
        labs.file("agent-keys", &lines.concat())?;
        let target = Target::start(network_of(&networks["web"])?)?;
        let before = HOSTS.iter().flat_map(|host| processes_in(&networks[host]).into_keys()).collect();
        let mut site =
            Self { labs, networks, target, controller, keys, before, broker: None, agents: Vec::new() };
        site.start_broker()?;
        Ok(site)
    }

    fn start_broker(&mut self) -> Result<()> {
        let process = self.server(&format!("--port {BROKER_PORT}"))?;
        self.broker = Some(process);
        Ok(())
    }

    /// Starts a NATS server on the host `broker`, and waits until it is ready.
    fn server(&self, words: &str) -> Result<Process> {
        let words = format!("lab shell broker -- nats-server --addr 0.0.0.0 {words}");
        let mut process = self.labs.command(&words)?.start()?;
        process.says("Server is ready", PATIENCE)?;
        Ok(process)
    }

    /// Kills the broker as a power cut would.
    fn kill_broker(&mut self) -> Result<()> {
        self.broker.take().map_or(Ok(()), kill_server)
    }

    /// Starts an agent. These words have at least `--name`.
    fn agent(&mut self, host: &'static str, pool: &str, words: &str) -> Result<()> {
        let process = self.agent_of(host, &nats(pool), words)?.start()?;
        self.agents.push(Agent { host, process });
        Ok(())
    }

    /// The command line of an agent that obeys the controller.
    fn agent_of(&self, host: &str, broker: &str, words: &str) -> Result<Launch> {
        let line = format!(
            "lab shell {host} -- {} agent --nats {broker} --key {KEY} --controller-key {} {words}",
            binary()?.display(),
            self.controller
        );
        self.labs.command(&line)
    }

    /// Starts an agent of its host's name on each of these machines, and waits until all are idle.
    fn agents_on(&mut self, machines: &[&'static str]) -> Result<()> {
        for machine in machines {
            self.agent(machine, POOL, &format!("--name {machine} {ALLOWED}"))?;
        }
        self.are_idle(machines)
    }

    /// Takes an agent out of those that have to end when they are told to.
    fn take(&mut self, host: &str) -> Result<Agent> {
        let index = self.agents.iter().position(|agent| agent.host == host);
        Ok(self.agents.remove(index.with_context(|| format!("no agent was started on {host}"))?))
    }

    /// The running agent on a host.
    fn agent_on(&self, host: &str) -> Result<&Agent> {
        self.agents.iter().find(|agent| agent.host == host).with_context(|| format!("no agent on {host}"))
    }

    /// Ends all agents with SIGTERM.
    fn end_agents(&mut self) -> Result<()> {
        for agent in &self.agents {
            signal(agent.pid()?, Signal::TERM)?;
        }
        self.agents.drain(..).try_for_each(Agent::ends)
    }

    /// The agents of a pool with their states, by `fleet list`.
    fn list(&self, pool: &str) -> Result<Vec<(String, String)>> {
        let finished = self.control(&format!("fleet list {}", nats(pool)))?.run(PATIENCE)?;
        ensure!(finished.code == Some(0) && !finished.stderr.contains("panicked at"), "{finished:?}");
        Ok(listed(&finished))
    }

    /// Waits until these agents are in a pool, with these states, and no others.
    fn are(&self, pool: &str, expected: &[(&str, &str)]) -> Result<()> {
        let expected: Vec<(String, String)> =
            expected.iter().map(|(name, state)| ((*name).to_owned(), (*state).to_owned())).collect();
        let mut last = None;
        let found = find(PATIENCE, || {
            let list = last.insert(self.list(pool));
            list.as_ref().is_ok_and(|list| *list == expected).then_some(())
        });
        ensure!(found.is_some(), "the pool {pool} is {last:?} in place of {expected:?}");
        Ok(())
    }

    /// Waits until these agents and no others are in the usual pool, all idle.
    fn are_idle(&self, names: &[&str]) -> Result<()> {
        let idle: Vec<(&str, &str)> = names.iter().map(|name| (*name, "idle")).collect();
        self.are(POOL, &idle)
    }

    /// The processes of these hosts, by their ids, with their words.
    fn processes(&self, hosts: &[&str]) -> BTreeMap<i32, String> {
        hosts.iter().flat_map(|host| processes_in(&self.networks[*host])).collect()
    }

    /// What runs because of a load: neither the agents themselves, nor what started them.
    fn left(&self) -> BTreeMap<i32, String> {
        let of_agent = |agent: &Agent| {
            let shell = agent.process.pid();
            [Some(shell), child_with("agent", shell)]
        };
        let agents: BTreeSet<i32> =
            self.agents.iter().flat_map(of_agent).flatten().map(u32::cast_signed).collect();
        let mut left = self.processes(&LOADED);
        left.retain(|pid, _| !self.before.contains(pid) && !agents.contains(pid));
        left
    }

    /// The workers on a machine.
    fn workers(&self, machine: &str) -> Vec<i32> {
        let mut processes = self.processes(&[machine]);
        processes.retain(|_, words| words.split_whitespace().last() == Some("worker"));
        processes.into_keys().collect()
    }

    /// Waits until no part of a load is left: no process but the agents, and the target has read all that was sent. The answers that
    /// the target holds back stay so.
    fn is_quiet(&self) -> Result<()> {
        let is_quiet =
            || self.left().is_empty() && HOSTS.iter().all(|host| self.target.open(address(host)) == 0);
        let found = find(PATIENCE, || is_quiet().then_some(()));
        ensure!(found.is_some(), "still running: {:#?}", self.left());
        Ok(())
    }

    /// Kills what a part of a test has left, so that the next one begins as if it were the first.
    fn clear(&mut self) -> Result<()> {
        for pid in self.processes(&LOADED).into_keys().filter(|pid| !self.before.contains(pid)) {
            // It may have ended with another one.
            let _ = signal(pid, Signal::KILL);
        }
        self.agents.clear();
        self.is_quiet()?;
        self.kill_broker()?;
        self.start_broker()
    }

    /// The numbers of requests that the target received from these machines.
    fn counts<const N: usize>(&self, machines: [&str; N]) -> [u64; N] {
        machines.map(|machine| self.target.count(address(machine)))
    }

    /// The options for the agents of a pool.
    fn on(&self, pool: &str) -> String {
        self.on_with(&nats(pool), "control.key", "agent-keys")
    }

    /// The same with these files.
    fn on_with(&self, broker: &str, key: &str, agent_keys: &str) -> String {
        let [key, agent_keys] = [key, agent_keys].map(|name| self.labs.path(name));
        format!("--on {broker} --fleet-key {key} --agent-keys {agent_keys}")
    }

    /// `proofload` with these words on the host `control`.
    fn control(&self, words: &str) -> Result<Launch> {
        self.labs.command(&format!("lab shell control -- {} {words}", binary()?.display()))
    }

    /// `proofload http` there, whose trial goes to its standard output.
    fn http(&self, url: &str, words: &str) -> Result<Launch> {
        Ok(self.control("http")?.arg(url).words(&patient(words)).words("--json -"))
    }

    /// Starts a command for a target that answers the first so many requests of each machine, and that has forgotten all earlier ones.
    fn start(&self, launch: &Launch, word: &'static str, answered_each: u64) -> Result<Load> {
        self.target.begin(answered_each);
        self.beside(launch, word)
    }

    /// Starts a command beside others: the target forgets nothing, and holds back what it was told to.
    fn beside(&self, launch: &Launch, word: &'static str) -> Result<Load> {
        Ok(Load { process: launch.start()?, line: launch.shown(), word })
    }

    /// Runs a load of the usual pool to its end.
    fn run(&self, words: &str) -> Result<Output> {
        let launch = self.http(&url(""), &format!("{words} {}", self.on(POOL)))?;
        self.start(&launch, "http", ALL)?.finish()
    }

    /// Starts a load of 4 users on each of two machines, and waits until all of them wait for answers that the target holds back. Each
    /// machine has sent 54 requests of 200 then.
    fn held(&self) -> Result<Load> {
        let launch = self.http(&url(""), &format!("-u 8 -n 400 {ENDLESS} {}", self.on(POOL)))?;
        let mut load = self.start(&launch, "http", 50)?;
        load.until("all users wait", || self.counts(BOTH) == [54, 54])?;
        for machine in BOTH {
            ensure!(!self.workers(machine).is_empty(), "{machine} has no worker: {:#?}", self.left());
        }
        Ok(load)
    }

    /// What a shell on a host says, with this input.
    fn said(&self, host: &str, line: &str, input: &str) -> Result<String> {
        let launch = self.labs.command(&format!("lab shell {host} -- sh -c"))?.arg(line).input(input);
        let finished = launch.run(PATIENCE)?;
        ensure!(finished.code == Some(0), "{host}: {line}: {finished:?}");
        Ok(finished.stdout)
    }
}

impl Agent {
    /// Its main process.
    fn pid(&self) -> Result<i32> {
        let own = child_with("agent", self.process.pid());
        let own =
            own.with_context(|| format!("the agent on {} has ended; {}", self.host, self.process.said()));
        Ok(own?.cast_signed())
    }

    /// Its main process, and all that it has started.
    fn tree(&self) -> Result<Vec<i32>> {
        let all = tree(self.pid()?.cast_unsigned());
        Ok(all.into_iter().map(u32::cast_signed).collect())
    }

    /// Waits for its end, which has status 0.
    fn ends(self) -> Result<()> {
        let finished = self.process.finish(PATIENCE)?;
        let is_sound = finished.code == Some(0) && !finished.stderr.contains("panicked at");
        ensure!(is_sound, "the agent on {}: {finished:?}", self.host);
        Ok(())
    }
}

impl Load {
    /// Waits until something holds while the command runs.
    fn until(&mut self, what: &str, holds: impl Fn() -> bool) -> Result<()> {
        self.process.find(what, PATIENCE, |_| holds().then_some(()))
    }

    /// Sends a signal to the controller, which `lab shell` would not pass on.
    fn signal(&self, which: Signal) -> Result<()> {
        let controller = child_with(self.word, self.process.pid()).context("there is no controller")?;
        signal(controller.cast_signed(), which)
    }

    /// Kills the controller.
    fn kill(mut self) -> Result<()> {
        self.signal(Signal::KILL)?;
        self.process.wait(PATIENCE)?.context("it goes on").map(drop)
    }

    /// Waits for the end. What begins as a trial on standard output must be one.
    fn finish(self) -> Result<Output> {
        let Finished { code, stdout, stderr, wall, .. } = self.process.finish(PATIENCE)?;
        ensure!(!stderr.contains("panicked at"), "`{}` panicked:\n{stderr}", self.line);
        let trial = if stdout.starts_with('{') { Some(parse_trial(&stdout)?) } else { None };
        Ok(Output { line: self.line, code, trial, stdout, stderr, wall })
    }
}

fn kill_server(mut server: Process) -> Result<()> {
    let own = child_with("nats-server", server.pid());
    let own = own.with_context(|| format!("the broker has ended; {}", server.said()))?;
    signal(own.cast_signed(), Signal::KILL)?;
    server.wait(PATIENCE)?.context("the broker goes on").map(drop)
}

/// The names of a trial's machines.
fn names(http: &HttpTrial) -> Vec<&str> {
    http.machines.iter().map(|machine| machine.name.as_str()).collect()
}

/// The trial's counts are the sums of its machines' counts, and its response times are all that they have.
fn is_their_sum(http: &HttpTrial) -> Result<()> {
    let figures = |counts: &Counts| {
        let Counts { scheduled, sent, never_sent, completed, failed, in_flight, .. } = *counts;
        [scheduled, sent, never_sent, completed, failed, in_flight, counts.sent_bytes, counts.received_bytes]
    };
    let (mut sums, mut union) = ([0_u64; 8], Histogram::empty());
    for machine in &http.machines {
        sums.iter_mut().zip(figures(&machine.counts)).for_each(|(sum, figure)| *sum += figure);
        union.merge(&machine.response_time);
    }
    ensure!(sums == figures(&http.counts), "{sums:?} over all machines, {:?}", http.counts);
    let observed = &http.response_time.observed;
    ensure!(union == *observed, "{} and {} response times", union.count(), observed.count());
    ensure!(union.count() == http.counts.completed, "{} of {:?}", union.count(), http.counts);
    Ok(())
}

/// A trial in which each machine has made its whole part: its name, its share of the load (0 to 1), its requests.
fn is_whole(site: &Site, output: &Output, shares: &[(&str, f64, u64)]) -> Result<()> {
    let trial = output.counted(0)?;
    is_their_sum(trial).with_context(|| output.described())?;
    ensure!(trial.machines.len() == shares.len(), "{:?}: {}", names(trial), output.described());
    for (machine, (name, share_ratio, requests)) in trial.machines.iter().zip(shares) {
        let counts = &machine.counts;
        let counted = [counts.scheduled, counts.sent, counts.completed, machine.response_time.count()];
        ensure!(machine.name == *name && counted == [*requests; 4], "{}: {counts:?}", machine.name);
        ensure!(counts.failed == 0 && machine.lost.is_none(), "{name}: {counts:?} {:?}", machine.lost);
        let share = machine.share_ratio;
        ensure!((share - share_ratio).abs() < 1e-9, "{name} has {share} of the load, not {share_ratio}");
        ensure!(machine.round_trip_s > 0.0 && machine.clock_bound_s > 0.0, "{name}: no clock was compared");
        let received = site.target.count(address(name));
        ensure!(received == *requests, "{received} of {requests} requests came from {name}");
    }
    let all: u64 = shares.iter().map(|(_, _, requests)| requests).sum();
    // This also holds for the hosts of controller and broker: they send nothing.
    let received = site.target.received().len() as u64;
    ensure!(received == all && trial.counts.completed == all, "{received} of {all}: {}", output.described());
    Ok(())
}

/// The address of the broker, for who connects to it from here.
fn broker_socket() -> SocketAddr {
    (address("broker"), BROKER_PORT).into()
}
