//! Machines that make load together: the controller's side of their agents.

use std::{
    collections::BTreeMap,
    mem,
    ops::Range,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::Duration,
};

use clock::monotonic_ns;
use load::{MachineLimits, RunError, Share, Tick, WorkerResult};
use record::{
    HttpPlan, MachineTrial,
    units::{show_bytes, show_time_ns},
};

use crate::{
    bootstrap::{self, LOGINS_AT_ONCE, Placement, Program},
    connection::Connection,
    drive::{Output, Transport, drive},
    error::FleetError,
    files_of_plan::{Files, files_of, parts_of},
    machine::Machine,
    protocol::{FromMember, Numbered, Order, ToMember},
    remote_agent::{Heard, LEASE_NS, Link, RemoteAgent},
    shares,
    started::Started,
    trial::Trial,
};

/// How long an agent may take to end when its input is closed.
const FAREWELL: Duration = Duration::from_millis(500);
/// Delay between the message to start and the start, besides the time that the message is on its way, in nanoseconds: a busy
/// machine needs some time to pass it on to its workers.
const START_NOTICE_NS: u64 = 200_000_000;
/// How often leases are extended, in nanoseconds.
const EXTENSION_NS: u64 = 1_000_000_000;
/// A machine from which nothing was heard for this time, in nanoseconds, is lost. By then, its lease has ended.
const MACHINE_SILENCE_NS: u64 = LEASE_NS + 1_000_000_000;
/// Number of parts of files that are sent to an agent before it has answered.
const PARTS_ON_THE_WAY: usize = 8;
/// An agent that takes nothing of the files for this time, in nanoseconds, is lost.
const FILES_TIMEOUT_NS: u64 = 30_000_000_000;
/// Before a trial, clocks are compared at this interval, in nanoseconds.
const COMPARISON_NS: u64 = 20_000_000;
/// Up to this number of machines, that interval applies; with more machines, it is longer in proportion.
const MACHINES_AT_ONCE: usize = 8;
/// Number of comparisons of clocks when a machine is connected.
const FIRST_COMPARISONS: u64 = 5;
/// Maximum difference between the starts of two machines, as a share of the time for which requests are sent.
const MAX_SKEW_SHARE: f64 = 0.05;
/// A smaller difference is accepted however short the load is, in nanoseconds.
const MIN_SKEW_NS: u64 = 5_000_000;
/// The largest difference that is accepted if the length of the load is unknown, in nanoseconds.
const SKEW_OF_UNKNOWN_LENGTH_NS: u64 = 250_000_000;

/// Options of [`Machines::connect`].
#[derive(Debug, Clone, Default)]
pub struct FleetOptions {
    /// Folder for the program on the machines, in place of the usual ones.
    pub remote_path: Option<String>,
    /// Weights of machines, by name; those of the others follow from their processors.
    pub shares: Vec<(String, u64)>,
    /// Number of machines that may be lost: later trials run without them.
    pub allow_lost: usize,
}

/// Connected machines.
#[derive(Debug)]
pub struct Machines {
    fleet: Mutex<Fleet>,
}

impl Machines {
    /// Logs in to all machines and starts their agents. Copies this program to machines that do not have it yet.
    ///
    /// # Errors
    /// The reason for each machine that cannot take part.
    pub fn connect(
        machines: Vec<Machine>,
        options: FleetOptions,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, Vec<String>> {
        let mut mistakes = Vec::new();
        for (index, machine) in machines.iter().enumerate() {
            if machines[..index].iter().any(|other| other.name == machine.name) {
                mistakes.push(format!("two machines are called {}; name one: NAME=USER@HOST", machine.name));
            }
        }
        for (name, _) in &options.shares {
            if !machines.iter().any(|machine| machine.name == *name) {
                mistakes.push(format!("--share: no machine is called {name}"));
            }
        }
        if machines.is_empty() {
            mistakes.push("no machine was given".to_owned());
        }
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let program = Program::own().map_err(|why| vec![format!("cannot read this program: {why}")])?;
        let (sender, heard) = mpsc::channel();
        let weight_of =
            |name: &str| options.shares.iter().find(|(of, _)| of == name).map(|(_, weight)| *weight);
        let agents = machines.into_iter().map(|machine| {
            let weight = weight_of(&machine.name);
            RemoteAgent::new(machine, weight)
        });
        let agents = agents.collect();
        let mut fleet =
            Fleet { agents, sender, heard, program, options, files: Arc::default(), trial: 0, links: 0 };
        fleet.log_in(stop);
        let lost = fleet
            .agents
            .iter()
            .filter_map(|agent| Some(format!("{}: {}", agent.machine.name, agent.lost.as_ref()?)));
        let lost: Vec<String> = lost.collect();
        if lost.is_empty() { Ok(Self { fleet: Mutex::new(fleet) }) } else { Err(lost) }
    }

    /// What is known about each machine, for the user.
    pub fn description(&self) -> Vec<String> {
        let fleet = self.lock();
        let whole: u64 = fleet.agents.iter().map(|agent| agent.weight).sum();
        let describe = |agent: &RemoteAgent| {
            let copied = match agent.link.as_ref().is_some_and(|link| link.connection.has_copied) {
                true => format!("; copied {} to it", show_bytes(fleet.program.size_bytes)),
                false => String::new(),
            };
            let now_ns = monotonic_ns();
            format!(
                "{}: {:.0} % of the load, {} processors, round trip {}, clock known to ±{}{copied}",
                agent.machine.name,
                100.0 * agent.weight as f64 / whole.max(1) as f64,
                agent.limits.cpus,
                show_time_ns(agent.clock.round_trip_ns().unwrap_or(0)),
                show_time_ns(agent.clock.bound_ns(now_ns).unwrap_or(0)),
            )
        };
        fleet.agents.iter().map(describe).collect()
    }

    /// Limits for the plan of one unit of weight, and limits of all machines together.
    pub fn limits(&self) -> (MachineLimits, MachineLimits) {
        let fleet = self.lock();
        let limits: Vec<_> = fleet.agents.iter().map(|agent| agent.limits).collect();
        let weights: Vec<_> = fleet.agents.iter().map(|agent| agent.weight).collect();
        let all = shares::together(&limits, &weights);
        let whole: u64 = weights.iter().sum();
        (MachineLimits { cpus: (u64::from(all.cpus) / whole.max(1)).max(1) as u32, ..all }, all)
    }

    /// The sum of the machines' weights: a plan needs at least that many processes.
    pub fn weight(&self) -> u32 {
        self.lock().agents.iter().map(|agent| agent.weight).sum::<u64>() as u32
    }

    /// Names of the machines.
    pub fn names(&self) -> Vec<String> {
        self.lock().agents.iter().map(|agent| agent.machine.name.clone()).collect()
    }

    /// Runs a trial. Machines that were lost are connected again, if that is possible.
    pub(crate) fn run(
        &self,
        plan: &HttpPlan,
        stop: &Arc<AtomicBool>,
        on_tick: &mut impl FnMut(Tick),
        on_written: &mut impl FnMut(PathBuf, String),
    ) -> Result<WorkerResult, FleetError> {
        let mut fleet = self.lock();
        let files = files_of(plan).map_err(|error| FleetError::Run(RunError::Script(error.to_string())))?;
        fleet.log_in(stop);
        fleet.send_files(files, stop);
        if stop.load(Ordering::Relaxed) {
            return Err(FleetError::Run(RunError::Cancelled));
        }
        let allowed = fleet.options.allow_lost;
        let lost = fleet.agents.iter().filter_map(|agent| Some((&agent.machine.name, agent.lost.as_ref()?)));
        let lost: Vec<MachineTrial> = lost
            .map(|(name, why)| MachineTrial {
                name: name.clone(),
                lost: Some(why.clone()),
                ..MachineTrial::default()
            })
            .collect();
        if let Some(first) = lost.first().filter(|_| lost.len() > allowed || lost.len() == fleet.agents.len())
        {
            let why = first.lost.clone().unwrap_or_default();
            return Err(FleetError::Machine { name: first.name.clone(), why });
        }
        let mut result = fleet.run(plan, stop, on_tick, on_written)?;
        result.http.machines.extend(lost);
        Ok(result)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Fleet> {
        // A thread that panics leaves a fleet whose next trial finds out what is lost.
        self.fleet.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Fleet {
    agents: Vec<RemoteAgent>,
    sender: mpsc::Sender<Heard>,
    heard: mpsc::Receiver<Heard>,
    program: Program,
    options: FleetOptions,
    /// The files of the last trial.
    files: Arc<Files>,
    /// Number of the current trial.
    trial: u64,
    /// Number of connections that were made.
    links: u64,
}

impl Drop for Fleet {
    /// Lets all agents end at the same time; each connection then waits for its own.
    fn drop(&mut self) {
        self.agents.iter_mut().flat_map(|agent| &mut agent.link).for_each(|link| link.connection.close());
    }
}

impl Fleet {
    /// Connects the machines without a connection. Those that cannot be connected are lost.
    fn log_in(&mut self, stop: &Arc<AtomicBool>) {
        let absent: Vec<usize> =
            (0..self.agents.len()).filter(|index| self.agents[*index].link.is_none()).collect();
        for some in absent.chunks(LOGINS_AT_ONCE) {
            let machines: Vec<_> = some.iter().map(|index| &self.agents[*index].machine).collect();
            let placement = Placement { remote_path: self.options.remote_path.as_deref() };
            let together = bootstrap::start_together(&machines, &placement, &self.program, stop);
            for (index, started) in some.iter().zip(together) {
                match started.and_then(|started| self.listen_to(*index, started)) {
                    Ok(()) => self.agents[*index].lost = None,
                    Err(why) => self.agents[*index].is_lost(why),
                }
            }
        }
        if !absent.is_empty() {
            self.greet(&absent, stop);
            let limits: Vec<_> = self.agents.iter().map(|agent| agent.limits).collect();
            for (agent, weight) in self.agents.iter_mut().zip(shares::weights_of(&limits)) {
                if !agent.has_own_weight {
                    agent.weight = weight;
                }
            }
        }
    }

    /// Reads an agent's output in a thread of its own.
    fn listen_to(&mut self, index: usize, started: Started) -> Result<(), String> {
        let agent = &mut self.agents[index];
        self.links += 1;
        let (number, sender) = (self.links, self.sender.clone());
        (agent.clock, agent.boot_clock) = Default::default();
        let hear = move |message| {
            sender.send(Heard { agent: index, link: number, at_ns: monotonic_ns(), message }).is_ok()
        };
        agent.link = Some(Link {
            connection: Connection::open(started, FAREWELL, hear)?,
            number,
            asked: BTreeMap::new(),
            next_question: 0,
            heard_ns: monotonic_ns(),
            has_said_hello: false,
            has_files: false,
        });
        Ok(())
    }

    /// Waits until new agents have said hello, and compares clocks.
    fn greet(&mut self, new: &[usize], stop: &AtomicBool) {
        let until_ns = monotonic_ns() + 20_000_000_000;
        let is_greeted = |agent: &RemoteAgent| {
            agent.link.as_ref().is_none_or(|link| {
                link.has_said_hello && link.next_question >= FIRST_COMPARISONS && link.asked.is_empty()
            })
        };
        while !new.iter().all(|index| is_greeted(&self.agents[*index])) {
            for index in new {
                let agent = &mut self.agents[*index];
                // All at once: they take one round trip together.
                let is_new = |link: &Link| link.has_said_hello && link.next_question < FIRST_COMPARISONS;
                while agent.link.as_ref().is_some_and(is_new) {
                    agent.ask_for_time(0);
                }
            }
            if let Ok(heard) = self.heard.recv_timeout(Duration::from_millis(50)) {
                let _ = self.take(heard);
            }
            if monotonic_ns() > until_ns || stop.load(Ordering::Relaxed) {
                for index in new {
                    if !is_greeted(&self.agents[*index]) {
                        let is_stopped = stop.load(Ordering::Relaxed);
                        let why = if is_stopped {
                            "the user stopped it"
                        } else {
                            "its agent did not answer within 20 s"
                        };
                        self.agents[*index].is_lost(why.to_owned());
                    }
                }
            }
        }
    }

    /// Sends the files of the next trial to the agents that do not have them. An agent that takes nothing of them for too long is
    /// lost.
    fn send_files(&mut self, files: Files, stop: &AtomicBool) {
        if *self.files != files {
            self.files = Arc::new(files);
            self.agents.iter_mut().flat_map(|agent| &mut agent.link).for_each(|link| link.has_files = false);
        }
        let lacks = |agent: &RemoteAgent| agent.link.as_ref().is_some_and(|link| !link.has_files);
        let new: Vec<usize> = (0..self.agents.len()).filter(|index| lacks(&self.agents[*index])).collect();
        new.iter().for_each(|index| self.agents[*index].send(0, ToMember::ForgetFiles));
        for (name, bytes) in Arc::clone(&self.files).iter() {
            for part in parts_of(bytes) {
                for index in &new {
                    let message = ToMember::FilePart { name: name.clone(), part: part.clone() };
                    self.agents[*index].send(0, message);
                    // The answer shows that the part has come.
                    self.agents[*index].ask_for_time(0);
                }
                self.await_answers(&new, PARTS_ON_THE_WAY, stop);
                if stop.load(Ordering::Relaxed) {
                    return;
                }
            }
        }
        self.await_answers(&new, 1, stop);
        let have = new
            .iter()
            .filter_map(|index| Some((*index, self.agents[*index].link.as_ref()?.asked.is_empty())));
        for (index, has_files) in have.collect::<Vec<_>>() {
            self.agents[index].link.iter_mut().for_each(|link| link.has_files = has_files);
        }
    }

    /// Waits until each of these agents has fewer than this many unanswered questions, or is lost.
    fn await_answers(&mut self, indexes: &[usize], fewer_than: usize, stop: &AtomicBool) {
        let is_behind =
            |agent: &RemoteAgent| agent.link.as_ref().is_some_and(|link| link.asked.len() >= fewer_than);
        while indexes.iter().any(|index| is_behind(&self.agents[*index])) && !stop.load(Ordering::Relaxed) {
            if let Ok(heard) = self.heard.recv_timeout(Duration::from_millis(50)) {
                let _ = self.take(heard);
                continue;
            }
            for index in indexes {
                let agent = &mut self.agents[*index];
                let oldest_ns = agent.link.as_ref().and_then(|link| link.asked.values().next().copied());
                if oldest_ns
                    .is_some_and(|asked_ns| monotonic_ns().saturating_sub(asked_ns) > FILES_TIMEOUT_NS)
                {
                    agent.is_lost("it took nothing of the plan's files for 30 s".to_owned());
                }
            }
        }
    }

    /// Takes what was heard. Returns a message that belongs to the current trial, or the end of a connection.
    fn take(&mut self, heard: Heard) -> Option<(usize, Output)> {
        let agent = &mut self.agents[heard.agent];
        let link = agent.link.as_mut().filter(|link| link.number == heard.link)?;
        // What was heard before the last pause may be taken late.
        link.heard_ns = link.heard_ns.max(heard.at_ns);
        let Some(Numbered { trial, message }) = heard.message else {
            let why = link.connection.why_ended();
            agent.is_lost(why.clone());
            return Some((heard.agent, Output::Ended(why)));
        };
        match message {
            FromMember::Host { .. } => None,
            FromMember::Hello(hello) => {
                let own = env!("CARGO_PKG_VERSION");
                if hello.version != own {
                    agent.is_lost(format!("its agent has version {}, this program {own}", hello.version));
                    return None;
                }
                link.has_said_hello = true;
                agent.limits = hello.limits;
                None
            }
            FromMember::Clock { number, monotonic_ns, boottime_ns } => {
                if let Some(asked_ns) = link.asked.remove(&number) {
                    agent.clock.exchanged(asked_ns, heard.at_ns, monotonic_ns);
                    agent.boot_clock.exchanged(asked_ns, heard.at_ns, boottime_ns);
                }
                None
            }
            message => (trial == self.trial).then_some((heard.agent, Output::Message(message))),
        }
    }

    fn run(
        &mut self,
        plan: &HttpPlan,
        stop: &AtomicBool,
        on_tick: &mut impl FnMut(Tick),
        on_written: &mut impl FnMut(PathBuf, String),
    ) -> Result<WorkerResult, FleetError> {
        self.trial += 1;
        let weights = self.agents.iter().map(|agent| if agent.link.is_some() { agent.weight } else { 0 });
        let weights: Vec<u64> = weights.collect();
        // A multiple of the weights' sum, so that every remaining machine gets its exact share.
        let count = u64::from(plan.processes.max(1)).next_multiple_of(weights.iter().sum::<u64>().max(1));
        let ranges = shares::ranges(count, &weights);
        let members: Vec<(usize, Range<u64>)> =
            ranges.into_iter().enumerate().filter(|(_, range)| !range.is_empty()).collect();
        let parts = members.iter().map(|(index, range)| MachineTrial {
            name: self.agents[*index].machine.name.clone(),
            share_ratio: (range.end - range.start) as f64 / count as f64,
            processes: (range.end - range.start) as u32,
            ..MachineTrial::default()
        });
        let trial = Trial::of_machines(plan, parts.collect());
        for (index, range) in &members {
            let agent = &mut self.agents[*index];
            // It was asked nothing since the last trial, so it had no reason to answer.
            agent.link.iter_mut().for_each(|link| link.heard_ns = monotonic_ns());
            let order = Order {
                plan: plan.clone(),
                first: Share { index: range.start, of: count },
                processes: range.end - range.start,
                secrets: secrets::mask::learned(),
                lease_until_ns: Some(agent.lease_until_ns()),
                elsewhere: true,
            };
            agent.send(self.trial, ToMember::Prepare(Box::new(order)));
        }
        let sending_ns = plan.sending_ns();
        let mut members = Members {
            indexes: members.into_iter().map(|(index, _)| index).collect(),
            has_started: false,
            length_ns: plan.duration_ns.map(|ns| ns + plan.drain_ns),
            load_until_ns: None,
            extended_ns: 0,
            compared_ns: 0,
            clocks: Vec::new(),
            fleet: self,
        };
        let start = |members: &mut Members<'_>| members.start_time_ns(sending_ns);
        let result = drive(trial, &mut members, stop, start, on_tick, on_written);
        let clocks = mem::take(&mut members.clocks);
        result.map(|mut result| {
            for (machine, (round_trip_ns, bound_ns)) in result.http.machines.iter_mut().zip(clocks) {
                machine.round_trip_s = round_trip_ns as f64 / 1e9;
                machine.clock_bound_s = bound_ns as f64 / 1e9;
            }
            result
        })
    }
}

/// The machines that take part in a trial.
struct Members<'a> {
    fleet: &'a mut Fleet,
    /// The agent of each member.
    indexes: Vec<usize>,
    has_started: bool,
    /// Time from the start to the end of the load, with the drain time, in nanoseconds; `None` if only the requests decide.
    length_ns: Option<u64>,
    /// When the load ends, once it has started.
    load_until_ns: Option<u64>,
    /// When leases were last extended, and clocks last compared.
    extended_ns: u64,
    compared_ns: u64,
    /// Round trip and bound of each member's clock at the start, in nanoseconds.
    clocks: Vec<(u64, u64)>,
}

impl Members<'_> {
    fn agents(&mut self) -> impl Iterator<Item = &mut RemoteAgent> {
        let indexes = &self.indexes;
        let agents = self.fleet.agents.iter_mut().enumerate();
        agents.filter(|(index, _)| indexes.contains(index)).map(|(_, agent)| agent)
    }

    /// A time for the start that every member knows before it comes.
    fn start_time_ns(&mut self, sending_ns: Option<u64>) -> Result<u64, FleetError> {
        let now_ns = monotonic_ns();
        let allowed_ns =
            sending_ns.map_or(SKEW_OF_UNKNOWN_LENGTH_NS, |ns| (ns as f64 * MAX_SKEW_SHARE) as u64);
        let allowed_ns = allowed_ns.max(MIN_SKEW_NS);
        let (mut clocks, mut refused) = (Vec::new(), None);
        for agent in self.agents() {
            let bound_ns = agent.clock.bound_ns(now_ns).unwrap_or(u64::MAX);
            if bound_ns > allowed_ns {
                let why = format!(
                    "its clock is known to ±{} only, but the starts of machines may differ by at most {}; give a longer duration, or use \
                     machines that are nearer",
                    show_time_ns(bound_ns),
                    show_time_ns(allowed_ns)
                );
                refused = Some(FleetError::Machine { name: agent.machine.name.clone(), why });
            }
            clocks.push((agent.clock.round_trip_ns().unwrap_or(0), bound_ns));
        }
        if let Some(refused) = refused {
            return Err(refused);
        }
        let longest = |of: fn(&(u64, u64)) -> u64| clocks.iter().map(of).max().unwrap_or(0);
        let notice_ns = START_NOTICE_NS + 2 * longest(|clock| clock.0) + longest(|clock| clock.1);
        self.clocks = clocks;
        Ok(now_ns + notice_ns)
    }

    fn look_after_clocks(&mut self) {
        let (now_ns, trial) = (monotonic_ns(), self.fleet.trial);
        if now_ns >= self.extended_ns + EXTENSION_NS {
            self.extended_ns = now_ns;
            for agent in self.agents() {
                agent.ask_for_time(trial);
                let until_ns = agent.lease_until_ns();
                agent.send(trial, ToMember::Lease { until_ns });
            }
        }
        let interval_ns = COMPARISON_NS * self.indexes.len().div_ceil(MACHINES_AT_ONCE) as u64;
        if !self.has_started && now_ns >= self.compared_ns + interval_ns {
            self.compared_ns = now_ns;
            self.agents().for_each(|agent| agent.ask_for_time(trial));
        }
    }

    /// A machine from which nothing was heard for too long. Called when nothing waits to be read: after this program itself was stopped,
    /// everything that was sent meanwhile is read first. After the load, many results may take long to arrive, so the trial's own time
    /// limit decides.
    fn silent(&mut self) -> Option<(usize, Output)> {
        let now_ns = monotonic_ns();
        if self.load_until_ns.is_some_and(|until_ns| now_ns > until_ns) {
            return None;
        }
        let agents = &mut self.fleet.agents;
        let is_silent = |agent: &RemoteAgent| {
            agent.link.as_ref().is_some_and(|link| now_ns.saturating_sub(link.heard_ns) > MACHINE_SILENCE_NS)
        };
        let index = self.indexes.iter().copied().find(|index| is_silent(&agents[*index]))?;
        let why = format!("nothing was heard from it for {}", show_time_ns(MACHINE_SILENCE_NS));
        agents[index].is_lost(why.clone());
        Some((index, Output::Ended(why)))
    }
}

impl Transport for Members<'_> {
    fn start(&mut self, t0_ns: u64) {
        self.has_started = true;
        self.load_until_ns = self.length_ns.map(|length_ns| t0_ns + length_ns);
        let trial = self.fleet.trial;
        for agent in self.agents() {
            let there_ns = agent.clock.there_ns(t0_ns).unwrap_or(0);
            agent.send(trial, ToMember::Start { t0_ns: there_ns });
        }
    }

    fn stop(&mut self) {
        let trial = self.fleet.trial;
        self.agents().for_each(|agent| agent.send(trial, ToMember::Stop));
    }

    fn receive(&mut self, wait: Duration) -> Option<(usize, Output)> {
        self.look_after_clocks();
        let wait = if self.has_started { wait } else { wait.min(Duration::from_nanos(COMPARISON_NS)) };
        let (agent, output) = match self.fleet.heard.recv_timeout(wait) {
            Ok(heard) => self.fleet.take(heard)?,
            Err(_) => self.silent()?,
        };
        let member = self.indexes.iter().position(|index| *index == agent)?;
        Some((member, output))
    }
}
