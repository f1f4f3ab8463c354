//! Three NATS servers that make a cluster with TLS, three agents and a target, in a lab of its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::{IpAddr, Ipv4Addr},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use testing::{PATIENCE, find};

use crate::{
    fleet_hosts::{listed, network_of, processes_in, signal, tree},
    held_target::{PORT, Target},
    lab::Labs,
    nginx::pem,
    process::{Finished, Launch, Process, child_with},
    proofload::binary,
};

/// The hosts of the broker's servers, and of the agents, which have the same names.
pub(super) const BROKERS: [&str; 3] = ["b1", "b2", "b3"];
pub(super) const MACHINES: [&str; 3] = ["c1", "c2", "c3"];
/// The host of the controller, and that of the target.
const CONTROL: &str = "control";
const WEB: &str = "web";
/// Where a load may leave something running.
const LOADED: [&str; 4] = [CONTROL, "c1", "c2", "c3"];
/// The ports of a server of the broker: for its users, and for the other servers.
const BROKER_PORT: u16 = 4222;
const ROUTE_PORT: u16 = 6222;
/// Where a server of the broker has its JetStream: in a folder of its own.
const STORE: &str = "/var/jetstream";
/// The network of the target, which no fault touches. The other one leads to the broker and to nothing else.
const LOADED_NETWORK: &str = "10.2.0.0/16";

/// The lab's hosts, with what runs on them.
pub(super) struct Site {
    labs: Labs,
    /// The network namespace of each host.
    networks: BTreeMap<&'static str, String>,
    pub(super) target: Target,
    /// The controller's public key.
    controller: String,
    /// What runs on the hosts without agents and load.
    before: BTreeSet<i32>,
    brokers: [Option<Process>; 3],
    agents: BTreeMap<&'static str, Process>,
}

/// A running command on the host of the controller.
pub(super) struct Load {
    process: Process,
    /// A word of its command line.
    word: &'static str,
    started: Instant,
    /// When it was seen to have ended.
    ended: Option<Instant>,
}

impl Site {
    /// Brings everything up, calls `work`, and takes everything down. These servers of the broker have a small disk. Also returns what was wrong with how the agents ended.
    pub(super) fn with<T>(
        small: &[usize],
        work: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<(T, Vec<String>)> {
        let labs = Labs::new()?;
        let (lab, _) = labs.up(&labs.file("lab.toml", &lab_file())?)?;
        let mut site = Self::of(labs, small)?;
        let done = work(&mut site);
        if done.is_err() {
            site.kill_all();
        }
        let ended = site.end_agents();
        for index in site.running() {
            site.kill_broker(index)?;
        }
        // The sockets of a target would keep the host's network.
        let Self { labs, target, agents, brokers, .. } = site;
        drop((target, agents, brokers));
        let is_down = labs.down(lab);
        let (done, ended) = (done?, ended?);
        is_down.map(|_| (done, ended))
    }

    fn of(labs: Labs, small: &[usize]) -> Result<Self> {
        let mut networks = BTreeMap::new();
        for host in [CONTROL, WEB].iter().chain(&BROKERS).chain(&MACHINES) {
            let network = labs.done(&format!("lab shell {host} -- readlink /proc/self/ns/net"))?;
            networks.insert(*host, network.trim().to_owned());
        }
        let controller = labs.done(&format!("fleet key {}", labs.path("control.key")))?.trim().to_owned();
        let target = Target::start(network_of(&networks[WEB])?)?;
        let before = LOADED.iter().flat_map(|host| processes_in(&networks[*host]).into_keys()).collect();
        let brokers = [const { None }; 3];
        let mut site = Self { labs, networks, target, controller, before, brokers, agents: BTreeMap::new() };
        site.write_settings()?;
        for (index, host) in BROKERS.iter().enumerate() {
            if small.contains(&index) {
                let line = format!("mkdir {STORE} && mount -t tmpfs -o size=1m none {STORE}");
                site.shell(host, &line, "")?;
            }
            site.start_broker(index)?;
        }
        for machine in MACHINES {
            site.start_agent(machine)?;
        }
        // That every server knows all agents shows that they are a cluster.
        for index in 0..BROKERS.len() {
            let found = site.are_idle(&address_of(&[index]), &MACHINES, PATIENCE)?;
            ensure!(found.is_none(), "the agents do not come: {found:?}");
        }
        Ok(site)
    }

    /// Writes keys, certificates and settings of agents and servers.
    fn write_settings(&self) -> Result<()> {
        let mut lines = String::new();
        for machine in MACHINES {
            let key =
                self.shell(machine, &format!("{} fleet key /root/agent.key", binary()?.display()), "")?;
            lines += &format!("{machine} {}\n", key.trim());
        }
        self.labs.file("agent-keys", &lines)?;
        let authority = tls::Authority::new("of the broker")?;
        let addresses = [0, 1, 2].map(|index| broker_ip(index).to_string());
        let names = [0, 1, 2].map(|index| addresses[index].as_str());
        let identity = authority.certify(&names, tls::Validity::default())?;
        let certificate = self.labs.file("broker.pem", &pem("CERTIFICATE", &identity.chain[0]))?;
        let key = self.labs.file("broker.key", &pem("PRIVATE KEY", identity.key.secret_der()))?;
        let ca = self.labs.file("ca.pem", &authority.pem())?;
        for machine in MACHINES {
            self.shell(machine, "cat >/root/ca.pem", &authority.pem())?;
        }
        let routes = addresses.map(|ip| format!("\"nats://{ip}:{ROUTE_PORT}\"")).join(", ");
        for host in BROKERS {
            let settings = format!(
                "server_name: {host}\nlisten: \"0.0.0.0:{BROKER_PORT}\"\n\
                 tls {{ cert_file: \"{certificate}\", key_file: \"{key}\" }}\n\
                 jetstream {{ store_dir: \"{STORE}\" }}\n\
                 cluster {{\n  name: lab\n  listen: \"0.0.0.0:{ROUTE_PORT}\"\n  routes: [{routes}]\n\
                 \x20 tls {{ cert_file: \"{certificate}\", key_file: \"{key}\", ca_file: \"{ca}\" }}\n}}\n"
            );
            self.labs.file(&format!("{host}.conf"), &settings)?;
        }
        Ok(())
    }

    /// What a shell on a host says, with this input.
    fn shell(&self, host: &str, line: &str, input: &str) -> Result<String> {
        let launch = self.labs.command(&format!("lab shell {host} -- sh -c"))?.arg(line).input(input);
        let finished = launch.run(PATIENCE)?;
        ensure!(finished.code == Some(0), "{host}: {line}: {finished:?}");
        Ok(finished.stdout)
    }

    /// Leaves a server no byte on its small disk. At its start it would end at once then.
    pub(super) fn fill_disk(&self, index: usize) -> Result<()> {
        let line = format!("! cat /dev/zero 2>/dev/null >{STORE}/full && ! echo 2>/dev/null >>{STORE}/full");
        self.shell(BROKERS[index], &line, "").map(drop)
    }

    /// Starts a server of the broker, and waits until it is ready.
    pub(super) fn start_broker(&mut self, index: usize) -> Result<()> {
        let settings = self.labs.path(&format!("{}.conf", BROKERS[index]));
        let words = format!("lab shell {} -- nats-server -c {settings}", BROKERS[index]);
        let mut process = self.labs.command(&words)?.start()?;
        process.says("Server is ready", PATIENCE)?;
        self.brokers[index] = Some(process);
        Ok(())
    }

    /// Kills a server as a power cut would.
    pub(super) fn kill_broker(&mut self, index: usize) -> Result<()> {
        self.signal_broker(index, Signal::KILL)?;
        let mut server = self.brokers[index].take().context("no server")?;
        server.wait(PATIENCE)?.context("the server goes on").map(drop)
    }

    pub(super) fn signal_broker(&self, index: usize, which: Signal) -> Result<()> {
        let server = self.brokers[index].as_ref().context("no server")?;
        let own = child_with("nats-server", server.pid());
        let own = own.with_context(|| format!("{} has ended; {}", BROKERS[index], server.said()))?;
        signal(own.cast_signed(), which)
    }

    /// The servers that run.
    pub(super) fn running(&self) -> Vec<usize> {
        (0..BROKERS.len()).filter(|index| self.brokers[*index].is_some()).collect()
    }

    fn start_agent(&mut self, machine: &'static str) -> Result<()> {
        let line = format!(
            "lab shell {machine} -- {} agent --nats {} --nats-ca /root/ca.pem --key /root/agent.key \
             --controller-key {} --name {machine} --allow {LOADED_NETWORK}",
            binary()?.display(),
            address_of(&[0, 1, 2]),
            self.controller
        );
        self.agents.insert(machine, self.labs.command(&line)?.start()?);
        Ok(())
    }

    /// The main process of an agent.
    fn agent(&self, machine: &str) -> Result<u32> {
        let shell = self.agents.get(machine).with_context(|| format!("no agent on {machine}"))?;
        let own = child_with("agent", shell.pid());
        own.with_context(|| format!("the agent on {machine} has ended; {}", shell.said()))
    }

    /// Stops an agent: its main process alone, or with all that it has started. Returns what is stopped.
    pub(super) fn stop_agent(&self, machine: &str, is_whole: bool) -> Result<Vec<u32>> {
        let all = if is_whole { tree(self.agent(machine)?) } else { vec![self.agent(machine)?] };
        // A worker may end meanwhile.
        all.iter().for_each(|pid| drop(signal(pid.cast_signed(), Signal::STOP)));
        Ok(all)
    }

    /// Kills the main process of an agent.
    pub(super) fn kill_agent(&mut self, machine: &str) -> Result<()> {
        signal(self.agent(machine)?.cast_signed(), Signal::KILL)?;
        let mut shell = self.agents.remove(machine).context("no agent")?;
        shell.wait(PATIENCE)?.context("the agent goes on").map(drop)
    }

    /// Kills what runs on the machines, whatever state it is in.
    fn kill_all(&mut self) {
        for pid in LOADED.iter().flat_map(|host| processes_in(&self.networks[*host]).into_keys()) {
            if !self.before.contains(&pid) {
                // It may have ended with another one.
                let _ = signal(pid, Signal::KILL);
            }
        }
        self.agents.clear();
    }

    /// Ends all agents with SIGTERM. Returns those that did not end with status 0.
    fn end_agents(&mut self) -> Result<Vec<String>> {
        for machine in self.agents.keys() {
            if let Ok(pid) = self.agent(machine) {
                signal(pid.cast_signed(), Signal::TERM)?;
            }
        }
        let mut wrong = Vec::new();
        for (machine, process) in std::mem::take(&mut self.agents) {
            let finished = process.finish(PATIENCE)?;
            if finished.code != Some(0) || finished.stderr.contains("panicked at") {
                wrong.push(format!("the agent on {machine}, told to end: {finished:?}"));
            }
        }
        Ok(wrong)
    }

    /// What the agents and servers said, for the story of a schedule that failed.
    pub(super) fn said(&self) -> String {
        let agents = self.agents.iter().map(|(machine, process)| (*machine, process));
        let brokers = BROKERS.iter().zip(&self.brokers);
        let brokers = brokers.filter_map(|(host, process)| Some((*host, process.as_ref()?)));
        agents.chain(brokers).map(|(host, process)| format!("{host}: {}\n", process.said())).collect()
    }

    /// Cuts a host off from all servers and users of the broker, as if nothing that it sends or is sent there arrived, or ends that.
    pub(super) fn cut(&self, host: &str, is_cut: bool) -> Result<()> {
        let rules = "nft 'table inet cut { chain in { type filter hook input priority 0; iifname eth0 drop; }; \
                     chain out { type filter hook output priority 0; oifname eth0 drop; }; }'";
        self.shell(host, if is_cut { rules } else { "nft delete table inet cut" }, "").map(drop)
    }

    /// The server of the broker that a host is connected to, by the kernel's list of connections.
    pub(super) fn server_of(&self, host: &str) -> Option<usize> {
        let (pid, _) = processes_in(&self.networks[host]).pop_first()?;
        let list = fs::read_to_string(format!("/proc/{pid}/net/tcp")).ok()?;
        let mut servers = list.lines().skip(1).filter_map(|line| {
            let mut words = line.split_whitespace().skip(2);
            let (peer, state) = (words.next()?, words.next()?);
            let number = |index: &usize| {
                let ip = u32::from_le_bytes(broker_ip(*index).octets());
                (peer == format!("{ip:08X}:{BROKER_PORT:04X}") && state == "01").then_some(*index)
            };
            [0, 1, 2].iter().find_map(number)
        });
        servers.next()
    }

    /// The server that the controller is connected to.
    pub(super) fn server_of_controller(&self) -> Option<usize> {
        self.server_of(CONTROL)
    }

    /// Waits until these agents and no others are in the pool, all idle. Returns what is there instead.
    pub(super) fn are_idle(
        &self,
        broker: &str,
        machines: &[&str],
        within: Duration,
    ) -> Result<Option<String>> {
        let idle: Vec<(String, String)> =
            machines.iter().map(|name| ((*name).to_owned(), "idle".to_owned())).collect();
        let list = self.control(&format!("fleet list {broker} --nats-ca {}", self.labs.path("ca.pem")))?;
        let mut last = String::new();
        let found = find(within, || {
            let finished = list.run(PATIENCE).ok()?;
            last = format!("{finished:?}");
            (listed(&finished) == idle).then_some(())
        });
        Ok(found.is_none().then_some(last))
    }

    /// Waits until nothing runs on the machines but agents, and the target has read all that was sent. Returns what is left.
    pub(super) fn is_quiet(&self, within: Duration) -> Option<String> {
        let is_quiet = || {
            self.left().is_empty()
                && MACHINES.iter().all(|machine| self.target.open(machine_ip(machine)) == 0)
        };
        find(within, || is_quiet().then_some(())).is_none().then(|| format!("{:?}", self.left()))
    }

    /// What runs because of a load: neither the agents themselves, nor what started them.
    fn left(&self) -> BTreeMap<i32, String> {
        let of_agent = |process: &Process| [Some(process.pid()), child_with("agent", process.pid())];
        let agents: BTreeSet<i32> =
            self.agents.values().flat_map(of_agent).flatten().map(u32::cast_signed).collect();
        let mut left: BTreeMap<i32, String> =
            LOADED.iter().flat_map(|host| processes_in(&self.networks[*host])).collect();
        left.retain(|pid, _| !self.before.contains(pid) && !agents.contains(pid));
        left
    }

    /// `proofload` with these words on the host of the controller.
    pub(super) fn control(&self, words: &str) -> Result<Launch> {
        self.labs.command(&format!("lab shell {CONTROL} -- {} {words}", binary()?.display()))
    }

    /// The options for the agents, through these servers of the broker.
    pub(super) fn on(&self, servers: &[usize]) -> String {
        let [key, keys, ca] = ["control.key", "agent-keys", "ca.pem"].map(|name| self.labs.path(name));
        format!("--on {} --fleet-key {key} --agent-keys {keys} --nats-ca {ca}", address_of(servers))
    }

    /// The number of requests that the target received.
    pub(super) fn received(&self) -> u64 {
        MACHINES.iter().map(|machine| self.target.count(machine_ip(machine))).sum()
    }

    /// The path of a file in the folder of the lab.
    pub(super) fn path(&self, name: &str) -> String {
        self.labs.path(name)
    }

    /// Writes a file there.
    pub(super) fn file(&self, name: &str, text: &str) -> Result<String> {
        self.labs.file(name, text)
    }
}

impl Load {
    pub(super) fn start(launch: &Launch, word: &'static str) -> Result<Self> {
        let started = Instant::now();
        Ok(Self { process: launch.start()?, word, started, ended: None })
    }

    /// Waits for this long, and notes if the command ends meanwhile.
    pub(super) fn pass(&mut self, time: Duration) -> Result<()> {
        let until = Instant::now() + time;
        if self.ended.is_none() && self.process.wait(time)?.is_some() {
            self.ended = Some(Instant::now());
        }
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
        Ok(())
    }

    /// Waits until something holds, or the command has ended.
    pub(super) fn until(&mut self, holds: impl Fn() -> bool) -> Result<()> {
        while !holds() && self.ended.is_none() {
            self.pass(Duration::from_millis(2))?;
        }
        Ok(())
    }

    /// Kills the controller, unless it has ended. Returns whether that was before its end.
    pub(super) fn kill(&mut self) -> Result<bool> {
        let controller = child_with(self.word, self.process.pid());
        if let Some(controller) = controller {
            signal(controller.cast_signed(), Signal::KILL)?;
        }
        self.pass(Duration::ZERO)?;
        Ok(controller.is_some())
    }

    /// Waits for the end. Also returns how long it took from the start.
    pub(super) fn finish(mut self) -> Result<(Finished, Duration)> {
        if self.ended.is_none() && self.process.wait(PATIENCE)?.is_some() {
            self.ended = Some(Instant::now());
        }
        let (finished, ended) = (self.process.finish(Duration::ZERO)?, self.ended.unwrap_or(self.started));
        ensure!(!finished.stderr.contains("panicked at"), "the controller panicked: {finished:?}");
        Ok((finished, ended - self.started))
    }
}

fn lab_file() -> String {
    let hosts = |hosts: &[&str], settings: &str| -> String {
        hosts.iter().map(|host| format!("{host} = {{ {settings} }}\n")).collect()
    };
    let list = |hosts: &[&str]| hosts.iter().map(|host| format!("\"{host}\"")).collect::<Vec<_>>().join(", ");
    format!(
        "title = \"faults of a fleet\"\n[hosts]\n{}{}{}\
         [[links]]\nsegment = true\nnetwork = \"10.1.0.0/16\"\nbetween = [{}]\n\
         [[links]]\nsegment = true\nnetwork = \"{LOADED_NETWORK}\"\nbetween = [{}]\n",
        hosts(&[CONTROL, WEB], ""),
        hosts(&BROKERS, "private = [\"/var\"]"),
        hosts(&MACHINES, "private = [\"/root\", \"/tmp\", \"/run\", \"/var\"]"),
        list(&[&[CONTROL], &BROKERS[..], &MACHINES].concat()),
        list(&[&[CONTROL], &MACHINES[..], &[WEB]].concat()),
    )
}

/// The address of a server of the broker.
fn broker_ip(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 1, 0, 2 + index as u8)
}

/// The address from which a machine loads the target.
pub(super) fn machine_ip(machine: &str) -> IpAddr {
    let number = MACHINES.iter().position(|known| *known == machine).map_or(0, |index| index as u8);
    Ipv4Addr::new(10, 2, 0, 2 + number).into()
}

/// The URL of the target.
pub(super) fn url(path: &str) -> String {
    format!("http://10.2.0.5:{PORT}/{path}")
}

/// These servers of the broker, and the pool.
pub(super) fn address_of(servers: &[usize]) -> String {
    let servers: Vec<String> =
        servers.iter().map(|index| format!("{}:{BROKER_PORT}", broker_ip(*index))).collect();
    format!("nats://{}/load", servers.join(","))
}
