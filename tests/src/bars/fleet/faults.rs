//! Whatever ends or stands still around a load by agents of a broker, a trial ends valid and complete, or void with the reason.
//!
//! The broker is a cluster of three NATS servers with TLS, each on a host of a lab, as are three agents, the controller and a target
//! that keeps its own log. A schedule is drawn from its number: what fails, at which moment, and for how long. Broker and target are in
//! two networks, so that a machine that has lost its controller could go on to load.
//!
//! What the broker carries is stored nowhere, so it has no leader: its servers differ only in who is connected to them. The one of the
//! controller is lost, that of an agent, or any.

mod judge;
mod resumed;
mod site;

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError, mpsc::channel},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use rustix::process::Signal;
use testing::PATIENCE;

use crate::{
    bars::{Bar, By, Outcome, Scale, is_wanted, is_wanted_among},
    fleet_hosts::signal,
    held_target::{ALL, Received},
    random::Random,
};
use judge::Judged;
use site::{BROKERS, Load, MACHINES, Site, address_of, machine_ip, url};

pub(super) const BAR: Bar = Bar {
    name: "fleet-faults",
    what: "9 faults on three NATS servers with TLS, 30 drawn schedules each: every trial ends valid and complete, or void with the \
           reason; nothing is counted twice; no request 1 s after a lease; nothing hangs beyond its bound",
    full_seconds: 1_500,
    decided_by: By::Both,
    run,
};

const SEED: u64 = 0xf1ee_7000;
/// Number of labs that run at the same time.
const LABS: usize = 5;
/// Number of schedules of each fault.
const SCHEDULES: u64 = 30;
/// Number of them that a name in `PROVE_CASES` selects together.
const TOGETHER: u64 = 10;
/// The load of a schedule, and how long it sends.
const LOAD: &str = "-R 240 -c 12 -d 10s --drain 5s --timeout 5s --json -";
const DURATION: Duration = Duration::from_secs(10);
/// Connections of each machine: at most so many requests are under way when it is stopped.
const CONNECTIONS: u64 = 4;
/// A lease (docs/fleet.md), and by how much the last request may come later.
const LEASE: Duration = Duration::from_secs(5);
const AFTER_LEASE: Duration = Duration::from_secs(1);
/// Longest time of a load: a server, and then an agent, that does not answer for 20 s ends it before its start; it sends for 10 s, waits
/// 5 s for answers, and 30 s for the machines' results (docs/fleet.md). Besides, 10 s for all that computes.
const LOAD_BOUND: Duration = Duration::from_secs(20 + 20 + 10 + 5 + 30 + 10);
/// Longest time after the end of load and fault until agents are idle: their sessions break after 20 s. Besides, 10 s to reach a server
/// again, and 10 s for all that computes.
const FREE_BOUND: Duration = Duration::from_secs(20 + 10 + 10);
/// How long the trials of this study take, with what is between them.
const STUDY_TIME: Duration = Duration::from_secs(12);

/// Loads after all, one of which is to be whole.
const NEXT_LOADS: u64 = 5;

/// What fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    BrokerKilled,
    BrokerStopped,
    BrokerCut,
    AgentCut,
    AgentStopped,
    AgentKilled,
    ControllerKilled,
    ControllerResumed,
    DiskFull,
}

/// Each fault with its name.
const FAULTS: [(Fault, &str); 9] = [
    (Fault::BrokerKilled, "broker_killed"),
    (Fault::BrokerStopped, "broker_stopped"),
    (Fault::BrokerCut, "broker_cut"),
    (Fault::AgentCut, "agent_cut"),
    (Fault::AgentStopped, "agent_stopped"),
    (Fault::AgentKilled, "agent_killed"),
    (Fault::ControllerKilled, "controller_killed"),
    (Fault::ControllerResumed, "controller_resumed"),
    (Fault::DiskFull, "disk_full"),
];

/// When it fails.
#[derive(Debug, Clone, Copy)]
enum Moment {
    /// While the machines prepare.
    Prepare,
    Load,
    /// When the results come.
    End,
}

/// Which server of the broker fails.
#[derive(Debug, Clone, Copy)]
enum Server {
    OfController,
    OfFirstAgent,
    Numbered(usize),
}

#[derive(Debug, Clone)]
struct Schedule {
    fault: Fault,
    name: String,
    moment: Moment,
    /// After the start of the controller (`Prepare`), or after the first request.
    offset: Duration,
    server: Server,
    machine: &'static str,
    /// How long the fault lasts, or until the controller is resumed.
    length: Duration,
    /// A killed server is started again after this time; a stopped agent is stopped whole; a controller's server is stopped around its
    /// end; a disk becomes full only then.
    is_second_kind: bool,
}

/// A fault that has been.
struct Strike {
    what: String,
    at: Instant,
    /// The machines that have no controller from then on: without one, a lease ends.
    isolated: Vec<&'static str>,
    /// Requests of each of these that may still come after the lease.
    allowed: u64,
    is_controller_killed: bool,
}

/// How a schedule ended.
struct Ended {
    fault: Fault,
    story: String,
    is_valid: bool,
    /// What no machine excuses.
    wrong: Vec<String>,
    /// What came or ended too late.
    late: Vec<String>,
}

fn run(scale: Scale) -> Result<Outcome> {
    // Schedules of all faults in turn, so that an interrupt leaves some of each.
    let all = (0..SCHEDULES).flat_map(|number| {
        let wanted = FAULTS.iter().filter(move |(_, name)| {
            let of_fault = is_wanted(name) || is_wanted(&format!("{name}_{number}"));
            of_fault || is_wanted_among(number, TOGETHER)
        });
        wanted.map(move |(fault, _)| Schedule::draw(*fault, number))
    });
    let schedules: VecDeque<Schedule> = match scale {
        Scale::Full => all.collect(),
        Scale::Counts | Scale::Sample => {
            [Fault::BrokerKilled, Fault::ControllerKilled].map(|fault| Schedule::draw(fault, 0)).into()
        }
    };
    let planned = schedules.clone();
    let todo = Mutex::new(schedules);
    let next = || todo.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let (mut outcome, (sender, receiver)) = (Outcome::default(), channel());
    let mut ended: Vec<Ended> = Vec::new();
    thread::scope(|scope| {
        for _ in 0..LABS.min(planned.len()) {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                std::iter::from_fn(next).try_for_each(|schedule| sender.send(schedule.play()))
            });
        }
        drop(sender);
        for played in receiver {
            outcome.note(played.story.as_str());
            played.wrong.iter().for_each(|wrong| outcome.note(format!("WRONG: {wrong}")));
            played.late.iter().for_each(|late| outcome.note(format!("LATE: {late}")));
            ended.push(played);
        }
    });
    for (fault, name) in FAULTS {
        let count = planned.iter().filter(|schedule| schedule.fault == fault).count() as u64;
        if count == 0 {
            continue;
        }
        let own: Vec<&Ended> = ended.iter().filter(|ended| ended.fault == fault).collect();
        let number = |holds: fn(&Ended) -> bool| own.iter().filter(|ended| holds(ended)).count() as u64;
        let sound = number(|ended| ended.wrong.is_empty());
        outcome.equal(
            name,
            sound,
            count,
            "valid and complete, or void with the reason; nothing twice, nothing left",
        );
        if scale.is_timed() {
            let figure = format!("{name}_in_time");
            let in_time = number(|ended| ended.late.is_empty());
            outcome.time().equal(&figure, in_time, count, "within leases and bounds");
        }
        outcome.note(format!("{name}: {} of {count} valid", number(|ended| ended.is_valid)));
    }
    Ok(outcome)
}

impl Schedule {
    /// The schedule of a fault with this number: always the same.
    fn draw(fault: Fault, number: u64) -> Self {
        let kind = FAULTS.iter().position(|(known, _)| *known == fault).unwrap_or(0);
        let mut random = Random::new(SEED + 100 * kind as u64 + number);
        let ms = Duration::from_millis;
        let moment = [Moment::Load, Moment::Prepare, Moment::End][number as usize % 3];
        let longest = match fault {
            Fault::AgentStopped => ms(12_000),
            Fault::ControllerResumed => ms(8_000),
            _ => ms(25_000),
        };
        // One is long and early enough for a lease to end within the load, and one is shorter than a lease.
        let (latest, length) = match number % 6 {
            0 => (ms(3_500), random.between(longest / 2, longest)),
            3 => (ms(8_500), random.between(ms(1_000), LEASE - ms(500))),
            _ => (ms(8_500), random.between(ms(1_000), longest)),
        };
        let offset = match moment {
            _ if fault == Fault::ControllerResumed => random.between(ms(1_000), STUDY_TIME),
            Moment::Prepare => random.between(ms(0), ms(1_500)),
            Moment::Load => random.between(ms(500), latest),
            Moment::End => random.between(DURATION - ms(500), DURATION + ms(600)),
        };
        let server = match (kind as u64 / 2 + number / 3 + number) % 3 {
            0 => Server::OfController,
            1 => Server::OfFirstAgent,
            _ => Server::Numbered(1 + random.below(2) as usize),
        };
        Self {
            fault,
            name: format!("{} {number}", FAULTS[kind].1),
            moment,
            offset,
            server,
            machine: MACHINES[random.below(3) as usize],
            length,
            is_second_kind: number % 2 == 1,
        }
    }

    /// Plays it in a lab of its own.
    fn play(&self) -> Ended {
        let begun = Instant::now();
        let played = Site::with(self.disks(), |site| {
            if !self.is_second_kind {
                self.fill_disks(site)?;
            }
            let mut ended = match self.fault {
                Fault::ControllerResumed => self.study(site),
                _ => self.load(site),
            }?;
            self.recovers(site, &mut ended)?;
            if !ended.wrong.is_empty() || !ended.late.is_empty() {
                ended.story += &format!("\n{}", site.said());
            }
            Ok(ended)
        });
        let mut ended = match played {
            Ok((mut ended, agents)) => {
                ended.wrong.extend(agents);
                ended
            }
            Err(why) => Ended {
                fault: self.fault,
                story: format!("{}: {self:?}", self.name),
                is_valid: false,
                wrong: vec![format!("{why:#}")],
                late: Vec::new(),
            },
        };
        ended.story += &format!(" [{:.0} s in all]", begun.elapsed().as_secs_f64());
        ended
    }

    /// The servers whose disks are small: the controller's, the others, or all.
    fn disks(&self) -> &'static [usize] {
        match (self.fault, self.server) {
            (Fault::DiskFull, Server::OfController) => &[0],
            (Fault::DiskFull, Server::OfFirstAgent) => &[1, 2],
            (Fault::DiskFull, Server::Numbered(_)) => &[0, 1, 2],
            _ => &[],
        }
    }

    fn fill_disks(&self, site: &Site) -> Result<()> {
        self.disks().iter().try_for_each(|index| site.fill_disk(*index))
    }

    /// A load of all agents, in which something fails.
    fn load(&self, site: &mut Site) -> Result<Ended> {
        let launch = site.control("http")?.arg(url("{{counter}}")).words(LOAD).words(&site.on(&[0]));
        site.target.begin(ALL);
        let mut load = Load::start(&launch, "http")?;
        let strike = self.strike(site, &mut load)?;
        let (finished, took) = load.finish()?;
        let (mut wrong, mut late) = (Vec::new(), Vec::new());
        if let Some(left) = quiet(site, &mut late) {
            wrong.push(left);
        }
        let received = site.target.received();
        let judged = match strike.is_controller_killed {
            true => Judged { end: "killed".to_owned(), wrong: judge::twice(&received), ..Judged::default() },
            false => judge::of_load(&finished, &received)?,
        };
        if self.fault == Fault::DiskFull && !judged.is_complete {
            wrong.push(format!("a full disk matters: {}", judged.end));
        }
        if took > LOAD_BOUND {
            late.push(format!("the load took {took:.1?}, more than {LOAD_BOUND:?}"));
        }
        let mut latest = None;
        for machine in &strike.isolated {
            latest = latest.max(last_after(&received, machine, strike.at, None));
            if strike.is_controller_killed
                || judged.is_refused
                || judged.lost.contains(&(*machine).to_owned())
            {
                late.extend(after_lease(&received, machine, strike.at, None, strike.allowed));
            }
        }
        wrong.extend(judged.wrong);
        let mut story = format!("{}: {}: {} after {took:.1?}", self.name, strike.what, judged.end);
        if let Some(latest) = latest {
            story +=
                &format!("; the last request of {:?} came {latest:.1?} after the fault", strike.isolated);
        }
        Ok(Ended { fault: self.fault, story, is_valid: judged.is_valid, wrong, late })
    }

    /// Waits for the moment, lets it fail, and puts it right again after its time.
    fn strike(&self, site: &mut Site, load: &mut Load) -> Result<Strike> {
        if !matches!(self.moment, Moment::Prepare) {
            load.until(|| site.received() > 0)?;
        }
        load.pass(self.offset)?;
        let server = match self.server {
            Server::OfController => site.server_of_controller().unwrap_or(0),
            Server::OfFirstAgent => site.server_of("c1").context("c1 is connected to no server")?,
            Server::Numbered(index) => index,
        };
        // Those that have no other way to the controller for as long as it takes to notice that a server is silent.
        let is_long = self.length > LEASE + AFTER_LEASE + Duration::from_millis(500);
        let is_of_controller = site.server_of_controller().unwrap_or(0) == server;
        let behind = MACHINES
            .into_iter()
            .filter(|machine| is_long && (is_of_controller || site.server_of(machine) == Some(server)));
        let (behind, when): (Vec<&'static str>, _) =
            (behind.collect(), format!("{:?} {:.1?}", self.moment, self.offset));
        let (host, length) = (BROKERS[server], self.length);
        let of = if is_of_controller { "the controller's server" } else { "server" };
        let mut strike = Strike {
            what: String::new(),
            at: Instant::now(),
            isolated: Vec::new(),
            allowed: 0,
            is_controller_killed: false,
        };
        let what = match self.fault {
            Fault::BrokerKilled => {
                site.kill_broker(server)?;
                if self.is_second_kind {
                    load.pass(length)?;
                    site.start_broker(server)?;
                }
                let back =
                    if self.is_second_kind { format!("for {length:.1?}") } else { "for good".to_owned() };
                format!("{of} {host} killed {back}")
            }
            Fault::BrokerStopped => {
                site.signal_broker(server, Signal::STOP)?;
                load.pass(length)?;
                site.signal_broker(server, Signal::CONT)?;
                strike.isolated = behind;
                format!("{of} {host} stopped for {length:.1?}")
            }
            Fault::BrokerCut => {
                site.cut(host, true)?;
                strike.at = Instant::now();
                load.pass(length)?;
                site.cut(host, false)?;
                strike.isolated = behind;
                format!("{of} {host} cut off for {length:.1?}")
            }
            Fault::AgentCut => {
                site.cut(self.machine, true)?;
                strike.at = Instant::now();
                load.pass(length)?;
                site.cut(self.machine, false)?;
                strike.isolated = if is_long { vec![self.machine] } else { Vec::new() };
                format!("agent {} cut off for {length:.1?}", self.machine)
            }
            Fault::AgentStopped => {
                let stopped = site.stop_agent(self.machine, self.is_second_kind)?;
                strike.at = Instant::now();
                load.pass(length)?;
                // Some may have ended with others.
                stopped.iter().for_each(|pid| drop(signal(pid.cast_signed(), Signal::CONT)));
                strike.isolated = if is_long { vec![self.machine] } else { Vec::new() };
                strike.allowed = if self.is_second_kind { CONNECTIONS } else { 0 };
                let how = if self.is_second_kind { "with its workers" } else { "without its workers" };
                format!("agent {} stopped {how} for {length:.1?}", self.machine)
            }
            Fault::AgentKilled => {
                site.kill_agent(self.machine)?;
                strike.isolated = vec![self.machine];
                format!("agent {} killed", self.machine)
            }
            Fault::ControllerKilled => return self.kill_controller(site, load, strike, &when),
            Fault::ControllerResumed | Fault::DiskFull => {
                self.fill_disks(site)?;
                let since = if self.is_second_kind { "then" } else { "before the start" };
                let disks: Vec<&str> = self.disks().iter().map(|index| BROKERS[*index]).collect();
                format!("disks of {} full from {since}", disks.join(", "))
            }
        };
        strike.what = format!("{what} at {when}");
        Ok(strike)
    }

    /// Kills the controller. The second kind stops its server before, and lets it go on afterwards: then machines hear from a controller
    /// that is no more.
    fn kill_controller(
        &self,
        site: &Site,
        load: &mut Load,
        mut strike: Strike,
        when: &str,
    ) -> Result<Strike> {
        let (before, after) = (Duration::from_millis(1_200), Duration::from_millis(2_600));
        let server = site.server_of_controller().filter(|_| self.is_second_kind);
        if let Some(server) = server {
            site.signal_broker(server, Signal::STOP)?;
            load.pass(before)?;
        }
        strike.is_controller_killed = load.kill()?;
        strike.at = Instant::now();
        if let Some(server) = server {
            load.pass(after)?;
            site.signal_broker(server, Signal::CONT)?;
        }
        strike.isolated = MACHINES.to_vec();
        let how = if server.is_some() { " while its server was stopped" } else { "" };
        let end = if strike.is_controller_killed { "killed" } else { "had ended before it was killed" };
        strike.what = format!("controller {end}{how} at {when}");
        Ok(strike)
    }

    /// After all, the agents that are left are idle, and make a whole load.
    fn recovers(&self, site: &mut Site, ended: &mut Ended) -> Result<()> {
        let left: Vec<&str> = MACHINES
            .into_iter()
            .filter(|machine| self.fault != Fault::AgentKilled || *machine != self.machine)
            .collect();
        let (servers, begun) = (site.running(), Instant::now());
        if let Some(other) = site.are_idle(&address_of(&servers), &left, PATIENCE)? {
            ended.wrong.push(format!("the agents do not become idle: {other}"));
            return Ok(());
        }
        if begun.elapsed() > FREE_BOUND {
            ended.late.push(format!("the agents were idle {:.1?} after the end", begun.elapsed()));
        }
        // A server that was cut off knows the others' agents only when it has reached the other servers again.
        if let Some(other) = site.are_idle(&address_of(&servers[..1]), &left, PATIENCE)? {
            ended.wrong.push(format!("{} does not know the agents: {other}", BROKERS[servers[0]]));
            return Ok(());
        }
        let words = format!("-n 60 -u 6 --timeout 5m --drain 5m --json - {}", site.on(&servers[..1]));
        let launch = site.control("http")?.arg(url("{{counter}}")).words(&words);
        // On a busy machine, a message may come too late for a start.
        for _ in 0..NEXT_LOADS {
            site.target.begin(ALL);
            let (finished, _) = Load::start(&launch, "http")?.finish()?;
            ended
                .wrong
                .extend(site.is_quiet(PATIENCE).map(|left| format!("left after the next load: {left}")));
            let judged = judge::of_load(&finished, &site.target.received())?;
            let is_whole = judged.is_complete && judged.machines == left;
            ended.wrong.extend(judged.wrong);
            if is_whole {
                return Ok(());
            }
            ended.story += &format!("; the next load: {} by {:?}", judged.end, judged.machines);
        }
        ended.wrong.push(format!("none of {NEXT_LOADS} further loads was whole"));
        Ok(())
    }
}

/// Waits until no part of a load is left. Returns what is left after all.
fn quiet(site: &Site, late: &mut Vec<String>) -> Option<String> {
    let begun = Instant::now();
    let left = site.is_quiet(PATIENCE);
    if begun.elapsed() > FREE_BOUND {
        late.push(format!("a load was over {:.1?} after its end", begun.elapsed()));
    }
    left.map(|left| format!("left: {left}"))
}

/// The requests of a machine that came after its controller was gone.
fn after<'a>(
    received: &'a [Received],
    machine: &str,
    gone: Instant,
    until: Option<Instant>,
) -> impl Iterator<Item = Duration> + use<'a> {
    let address = machine_ip(machine);
    let own = received.iter().filter(move |request| request.from == address && request.at > gone);
    own.filter(move |request| until.is_none_or(|until| request.at < until))
        .map(move |request| request.at - gone)
}

/// When the last of these came.
fn last_after(
    received: &[Received],
    machine: &str,
    gone: Instant,
    until: Option<Instant>,
) -> Option<Duration> {
    after(received, machine, gone, until).max()
}

/// Those that came later than a lease, if there are more than so many.
fn after_lease(
    received: &[Received],
    machine: &str,
    gone: Instant,
    until: Option<Instant>,
    allowed: u64,
) -> Option<String> {
    let late: Vec<Duration> =
        after(received, machine, gone, until).filter(|time| *time > LEASE + AFTER_LEASE).collect();
    let latest = late.iter().max()?;
    (late.len() as u64 > allowed).then(|| {
        format!(
            "{machine} sent {} requests after its lease, the last {latest:.1?} after the fault",
            late.len()
        )
    })
}
