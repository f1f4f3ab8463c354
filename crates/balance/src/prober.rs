//! Decides when each server is probed and interprets the results. The caller passes the time and does all input and
//! output.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
    time::{Duration, Instant},
};

use kernel::netlink::Neighbour;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use settings::Network;

use crate::{
    Check, CheckKind, Mac,
    health::Health,
    probe::{Fault, Outcome, Probe, Segment},
};

/// Source ports of probes: above the ports that Linux assigns to connections by default.
pub(crate) const PORTS: RangeInclusive<u16> = 61_000..=65_535;

/// The fractional part of the golden ratio.
const GOLDEN_RATIO: f64 = 0.618_033_988_749_895;

/// The fault of a server with an unknown MAC address.
const UNRESOLVED: &str = "does not answer ARP or neighbour discovery for its own address";

/// A server of a VIP to check.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Target {
    /// The identity of the target in events.
    pub(crate) id: u64,
    /// The VIP that is probed.
    pub(crate) vip: IpAddr,
    /// The port that is probed.
    pub(crate) port: u16,
    /// The server's own address.
    pub(crate) server: IpAddr,
    /// The check. With the kind `None`, only the MAC address is determined.
    pub(crate) check: Check,
    /// Its health until the first results. A server that is down counts as up after its first good probe.
    pub(crate) health: Outcome,
}

impl Target {
    /// Whether both are the same server with the same check. The health may differ.
    pub(crate) fn is_asked_like(&self, other: &Self) -> bool {
        *other == Self { health: other.health.clone(), ..self.clone() }
    }
}

/// A finding of the prober.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// The MAC address of a server; none if the server no longer answers for its own address.
    Mac {
        /// The server's own address.
        server: IpAddr,
        /// Its MAC address.
        mac: Option<Mac>,
    },
    /// A server's health has changed: up, down, or down for another reason.
    Health {
        /// The target.
        id: u64,
        /// Success, or the fault of the last bad probe, including whether the server is silent.
        health: Outcome,
    },
}

/// The actions that the caller must carry out.
#[derive(Debug, Default)]
pub(crate) struct Actions {
    /// Packets, each with the MAC address of its destination.
    pub(crate) packets: Vec<(Vec<u8>, Mac)>,
    pub(crate) events: Vec<Event>,
}

/// All probes of a balancer.
#[derive(Debug)]
pub(crate) struct Prober {
    /// Addresses of the balancer, each with the length of its prefix in bits.
    own: Vec<(IpAddr, u8)>,
    /// The VIPs. Servers have these addresses too, so they must not be the source of probes.
    vips: BTreeSet<IpAddr>,
    targets: BTreeMap<u64, Watched>,
    /// Time of the next action for each target.
    due: BTreeSet<(Instant, u64)>,
    /// Targets with a probe in progress, by the port of the probe.
    ports: HashMap<u16, u64>,
    next_port: u16,
    servers: HashMap<IpAddr, Neighbour>,
    /// The phase of the last target that was added.
    phase: f64,
    random: Pcg64Mcg,
}

#[derive(Debug)]
struct Watched {
    target: Target,
    health: Health,
    due: Instant,
    /// Start of the last probe.
    begun: Instant,
    /// The second probe follows the first after this share of an interval, so that the probes of many servers spread
    /// over the interval.
    phase: Option<f64>,
    state: State,
}

#[derive(Debug)]
enum State {
    Idle,
    /// The probe waits until the server's MAC address is known.
    Unaddressed {
        deadline: Instant,
    },
    Probed(Box<Probe>, u16),
}

impl Prober {
    pub(crate) fn new(addresses: Vec<(IpAddr, u8)>, seed: u64) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let next_port = random.random_range(PORTS);
        Self {
            own: addresses,
            vips: BTreeSet::new(),
            targets: BTreeMap::new(),
            due: BTreeSet::new(),
            ports: HashMap::new(),
            next_port,
            servers: HashMap::new(),
            phase: 0.0,
            random,
        }
    }

    /// Replaces the balancer's own addresses. Only new probes use them.
    pub(crate) fn set_addresses(&mut self, addresses: Vec<(IpAddr, u8)>) {
        self.own = addresses;
    }

    /// Replaces the targets. Unchanged targets keep their state; targets with another address or check keep their
    /// health. Reports the MAC addresses of new targets that are already known.
    pub(crate) fn set_targets(&mut self, targets: Vec<Target>, now: Instant) -> Actions {
        let mut actions = Actions::default();
        self.vips = targets.iter().map(|target| target.vip).collect();
        let mut former = std::mem::take(&mut self.targets);
        let mut servers = HashMap::new();
        for target in targets {
            let known = self.servers.get(&target.server).copied().unwrap_or(Neighbour::Unknown);
            servers.insert(target.server, known);
            let id = target.id;
            let watched = match former.remove(&id) {
                Some(same) if same.target.is_asked_like(&target) => same,
                other => {
                    let (server, mac) = (target.server, mac_of(known));
                    if other.is_none() && mac.is_some() {
                        actions.events.push(Event::Mac { server, mac });
                    }
                    // The health of a target that was not checked before is unknown.
                    let checked = other.as_ref().filter(|other| other.target.check.kind != CheckKind::None);
                    let health =
                        Health::new(checked.map_or(&target.health, |other| other.health.now()).clone());
                    // Multiples of the golden ratio are spread evenly for any number of targets.
                    self.phase = (self.phase + GOLDEN_RATIO).fract();
                    other.into_iter().for_each(|other| self.end(&other));
                    // The first probes are spread, so that they do not all begin at the same time.
                    let spread = target.check.interval.mul_f64(target.check.jitter.clamp(0.0, 1.0));
                    let due = now + spread.mul_f64(self.random.random());
                    if target.check.kind != CheckKind::None {
                        self.due.insert((due, id));
                    }
                    Watched { health, due, begun: now, phase: Some(self.phase), state: State::Idle, target }
                }
            };
            self.targets.insert(id, watched);
        }
        former.values().for_each(|gone| self.end(gone));
        self.servers = servers;
        actions
    }

    /// The servers' own addresses.
    pub(crate) fn servers(&self) -> impl Iterator<Item = (IpAddr, Neighbour)> {
        self.servers.iter().map(|(server, known)| (*server, *known))
    }

    /// Time at which [`Self::wake`] must be called; none if there is nothing to probe.
    pub(crate) fn wakes(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Processes the kernel's neighbour entry of a server.
    pub(crate) fn neighbour(&mut self, server: IpAddr, now_known: Neighbour, now: Instant) -> Actions {
        let mut actions = Actions::default();
        let Some(known) = self.servers.get_mut(&server) else { return actions };
        let (before, after) = (mac_of(*known), mac_of(now_known));
        // While the kernel resolves the server again, its last address stays valid.
        if now_known == Neighbour::Unknown {
            return actions;
        }
        *known = now_known;
        if before != after {
            actions.events.push(Event::Mac { server, mac: after });
        }
        if before.is_some() && after.is_some() {
            // No target waits for the address.
            return actions;
        }
        let waiting = self.targets.iter().filter(|(_, watched)| {
            watched.target.server == server && matches!(watched.state, State::Unaddressed { .. })
        });
        for id in waiting.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.attend(id, now, &mut actions);
        }
        actions
    }

    /// Processes a received packet.
    pub(crate) fn receive(&mut self, packet: &[u8], now: Instant) -> Actions {
        let mut actions = Actions::default();
        let Some(segment) = Segment::parse(packet) else { return actions };
        let Some(id) = self.ports.get(&segment.to.port()).copied() else { return actions };
        let Some(watched) = self.targets.get_mut(&id) else { return actions };
        let State::Probed(probe, _) = &mut watched.state else { return actions };
        let mut packets = Vec::new();
        let outcome = probe.receive(&segment, &mut packets);
        self.finish(id, packets, outcome, now, &mut actions);
        actions
    }

    /// Handles all targets that are due.
    pub(crate) fn wake(&mut self, now: Instant) -> Actions {
        let mut actions = Actions::default();
        // The due targets are collected first, so that a target that is due again at once is not handled twice.
        let due: Vec<u64> = self.due.range(..=(now, u64::MAX)).map(|(_, id)| *id).collect();
        due.into_iter().for_each(|id| self.attend(id, now, &mut actions));
        actions
    }

    fn attend(&mut self, id: u64, now: Instant, actions: &mut Actions) {
        let Some(watched) = self.targets.get_mut(&id) else { return };
        let known = self.servers.get(&watched.target.server).copied().unwrap_or(Neighbour::Unknown);
        let (mut packets, mut outcome) = (Vec::new(), None);
        let timeout = watched.target.check.timeout;
        match &mut watched.state {
            State::Probed(probe, _) => outcome = probe.wake(now, &mut packets),
            State::Idle | State::Unaddressed { .. } => {
                let deadline = match watched.state {
                    State::Unaddressed { deadline } => deadline,
                    _ => now + timeout,
                };
                watched.begun = now;
                match known {
                    Neighbour::Known { .. } => {
                        let begun = self.begin(id, now);
                        outcome = begun
                            .map(|packet| packets.push(packet))
                            .map_err(|why| Err(Fault::own(why)))
                            .err();
                    }
                    Neighbour::Unknown if now < deadline => watched.state = State::Unaddressed { deadline },
                    _ => outcome = Some(Err(unresolved(&self.own, watched.target.server))),
                }
            }
        }
        self.finish(id, packets, outcome, now, actions);
    }

    /// The SYN of a new probe.
    fn begin(&mut self, id: u64, now: Instant) -> Result<Vec<u8>, String> {
        let port = self.free_port().ok_or("cannot be probed: all ports for probes are taken")?;
        let first = self.random.random();
        let Some(watched) = self.targets.get_mut(&id) else { return Err(String::new()) };
        let Target { vip, server, check, .. } = &watched.target;
        let address = source(&self.own, *server, *vip, &self.vips).ok_or_else(|| {
            let family = if vip.is_ipv4() { "IPv4" } else { "IPv6" };
            format!("cannot be probed: the balancer's device has no {family} address of its own")
        })?;
        let vip = SocketAddr::new(*vip, watched.target.port);
        let (probe, syn) =
            Probe::begin(SocketAddr::new(address, port), vip, &check.kind, check.timeout, first, now)?;
        watched.state = State::Probed(Box::new(probe), port);
        self.ports.insert(port, id);
        Ok(syn)
    }

    /// Passes on the packets of a probe, counts its result and decides when the target is due again.
    fn finish(
        &mut self,
        id: u64,
        packets: Vec<Vec<u8>>,
        outcome: Option<Outcome>,
        now: Instant,
        actions: &mut Actions,
    ) {
        let Some(watched) = self.targets.get_mut(&id) else { return };
        let mac = self.servers.get(&watched.target.server).copied().and_then(mac_of);
        if let Some(mac) = mac {
            actions.packets.extend(packets.into_iter().map(|packet| (packet, mac)));
        }
        if let Some(outcome) = outcome {
            if let State::Probed(_, port) = watched.state {
                self.ports.remove(&port);
            }
            watched.state = State::Idle;
            if watched.health.count(&watched.target.check, outcome) {
                actions.events.push(Event::Health { id, health: watched.health.now().clone() });
            }
        }
        let due = match &watched.state {
            State::Idle => {
                let wait = watched.health.wait(&watched.target.check, self.random.random());
                let (wait, again) = match watched.phase.take() {
                    Some(phase) => (wait.mul_f64(phase), wait),
                    None => (wait, Duration::ZERO),
                };
                let due = watched.begun + wait;
                // The first probe may have lasted longer than the phase.
                if due < now { now.max(due + again) } else { due }
            }
            State::Unaddressed { deadline } => *deadline,
            State::Probed(probe, _) => probe.wakes(),
        };
        self.due.remove(&(watched.due, id));
        watched.due = due;
        self.due.insert((due, id));
    }

    fn end(&mut self, watched: &Watched) {
        self.due.remove(&(watched.due, watched.target.id));
        if let State::Probed(_, port) = watched.state {
            self.ports.remove(&port);
        }
    }

    /// The next port without a probe. Ports are used in turn, so that a port is not used again soon.
    fn free_port(&mut self) -> Option<u16> {
        for _ in PORTS {
            let port = self.next_port;
            self.next_port = if port == *PORTS.end() { *PORTS.start() } else { port + 1 };
            if !self.ports.contains_key(&port) {
                return Some(port);
            }
        }
        None
    }
}

/// The MAC address of a single device; none for a broadcast address, for which the kernel also has a neighbour entry.
pub(crate) fn mac_of(known: Neighbour) -> Option<Mac> {
    match known {
        Neighbour::Known { mac, .. } if mac[0] & 1 == 0 => Some(mac),
        _ => None,
    }
}

/// The reason why a server's MAC address is unknown. For IPv6, the kernel resolves addresses only if the device has a
/// link-local address.
fn unresolved(own: &[(IpAddr, u8)], server: IpAddr) -> Fault {
    let is_link_local = |address| matches!(address, IpAddr::V6(ip) if ip.is_unicast_link_local());
    if server.is_ipv4() || own.iter().any(|(address, _)| is_link_local(*address)) {
        return Fault::silent(UNRESOLVED);
    }
    Fault::own(
        "cannot be found: the balancer's device has no link-local address (ip address add fe80::1/64 dev DEVICE)",
    )
}

/// The balancer's address from which a server is probed: preferably one in the server's network.
fn source(
    addresses: &[(IpAddr, u8)],
    server: IpAddr,
    vip: IpAddr,
    vips: &BTreeSet<IpAddr>,
) -> Option<IpAddr> {
    // A VIP cannot be the source: the server has the VIP too and would send its answer to itself.
    let usable = || {
        addresses.iter().filter(|(address, _)| address.is_ipv4() == vip.is_ipv4() && !vips.contains(address))
    };
    let near =
        usable().find(|(address, prefix)| Network { address: *address, prefix: *prefix }.contains(server));
    let global = |entry: &&(IpAddr, u8)| !matches!(entry.0, IpAddr::V6(ip) if ip.is_unicast_link_local());
    near.or_else(|| usable().find(global)).or_else(|| usable().next()).map(|(address, _)| *address)
}

#[cfg(test)]
mod tests;
