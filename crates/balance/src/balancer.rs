//! Computes the wanted contents of the tables from the configuration, the servers' health and connections, and the
//! time. It does no input or output: the caller reports events to a [`Balancer`] and carries out the changes of the
//! tables that [`Balancer::step`] returns.
//!
//! A server that was removed from the configuration is *leaving*: it no longer has places in the ring, gets no new
//! flows, and stays in the tables until its flows have ended. Established flows end early only if their server dies.

mod numbers;
mod state;
mod step;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

pub(crate) use state::SavedState;
pub(crate) use step::Operation;

use self::{numbers::Numbers, step::Written};
use crate::{
    Config, Error, Mac, Member, Ring, ServerEntry,
    checker::Target,
    config::{Server, Vip, WhenAllDown},
    health::CheckKind,
    layout::{SERVICES, nanoseconds},
    probe::{Fault, Outcome},
    sweeps::Swept,
};

/// The current and the wanted contents of one balancer's tables.
#[derive(Debug)]
pub(crate) struct Balancer {
    vips: Vec<VipState>,
    numbers: Numbers,
    handshake_ns: u64,
    /// The entries of the table of services, by key. None if the contents of the entry are unknown.
    services: BTreeMap<(IpAddr, u16), Option<Written>>,
    /// The entries that the last step removes.
    removed: Vec<(IpAddr, u16)>,
    /// Whether the last step left work for the next one.
    is_unfinished: bool,
}

/// The state of a VIP.
#[derive(Debug)]
pub(crate) struct VipState {
    pub number: u32,
    /// Its configuration; while the VIP is leaving, the last one.
    pub vip: Vip,
    pub is_leaving: bool,
    pub servers: Vec<ServerState>,
    /// None until the ring is made.
    ring: Option<Arc<Ring>>,
    former: Option<Arc<Ring>>,
    is_ring_written: bool,
    /// The members from which the ring was made; none if they are unknown.
    members: Option<Vec<Member>>,
    /// Time of the ring's last change, on the monotonic clock.
    changed_ns: u64,
}

/// The state of a server of a VIP.
#[derive(Debug)]
pub(crate) struct ServerState {
    pub number: u16,
    pub generation: u32,
    /// Its configuration; while the server is leaving, the last one.
    pub server: Server,
    pub is_leaving: bool,
    /// Its last known MAC address.
    pub mac: Option<Mac>,
    /// Whether it answers ARP or neighbour discovery for its own address.
    pub is_resolved: bool,
    /// Whether its VIP has health checks.
    pub is_checked: bool,
    /// The result of its health checks. A server that is silent or not checked yet counts as not answering, so its
    /// flows are lost. A server that answers with an error may still serve its flows.
    pub health: Outcome,
    /// Whether it reached its maximum of connections and has not yet fallen below the number at which it gets new ones
    /// again.
    pub is_full: bool,
    /// Its flows in the last sweep.
    pub flows: Flows,
    /// Time at which a leaving server was taken out of the ring, after which it gets no new flows.
    out_ns: Option<u64>,
    /// Whether the counters of its number may still contain counts of the number's previous server.
    is_new: bool,
    /// Its entry in the table; none until it is written.
    written: Option<ServerEntry>,
}

/// Flows of a server, as counted by a sweep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Flows {
    /// Established flows that are not closing. Thresholds limit their number.
    pub active: u64,
    /// Flows after FIN or RST.
    pub closing: u64,
    /// Start of the sweep, on the monotonic clock; 0 before the first one.
    pub begun_ns: u64,
}

impl Balancer {
    /// A balancer whose tables are empty.
    pub(crate) fn new() -> Self {
        Self::of(Vec::new(), Numbers::default(), BTreeMap::new())
    }

    fn of(vips: Vec<VipState>, numbers: Numbers, services: BTreeMap<(IpAddr, u16), Option<Written>>) -> Self {
        Self { vips, numbers, handshake_ns: 0, services, removed: Vec::new(), is_unfinished: false }
    }

    /// Adopts a configuration. Entries that are already in the tables stay unchanged if possible.
    ///
    /// # Errors
    /// If no number is free for a server or a VIP, for example while many are leaving. Nothing has changed then.
    pub(crate) fn configure(&mut self, config: &Config) -> Result<(), Error> {
        let partners = partners(&self.vips, &config.vips);
        self.check_places(&partners, config)?;
        self.handshake_ns = nanoseconds(config.handshake);
        for state in &mut self.vips {
            if state.is_leaving {
                // The VIP is wanted again, and its ring still contains all of its servers, so none of them counts as
                // out of the ring.
                state.servers.iter_mut().for_each(|server| server.out_ns = None);
            }
            state.is_leaving = true;
        }
        for (partner, vip) in partners.into_iter().zip(&config.vips) {
            let at = match partner {
                Some(at) => at,
                None => {
                    let used = self.vips.iter().map(|state| state.number);
                    let number = numbers::free_vip(used)?;
                    self.vips.push(VipState::new(number, vip.clone()));
                    self.vips.len() - 1
                }
            };
            self.vips[at].configure(vip, &mut self.numbers)?;
        }
        for state in self.vips.iter_mut().filter(|state| state.is_leaving) {
            state.servers.iter_mut().for_each(|server| server.is_leaving = true);
        }
        Ok(())
    }

    /// All VIPs, leaving ones included.
    pub(crate) fn vips(&self) -> &[VipState] {
        &self.vips
    }

    /// The addresses of the VIPs that have a ring, without repetition. Clients must reach this balancer at these
    /// addresses.
    pub(crate) fn addresses(&self) -> Vec<IpAddr> {
        let ready = self.vips.iter().filter(|state| state.ring.is_some());
        let mut addresses: Vec<IpAddr> = ready.map(|state| state.vip.address).collect();
        addresses.sort();
        addresses.dedup();
        addresses
    }

    /// The servers to check, and the servers of which only the MAC address is needed.
    pub(crate) fn targets(&self) -> Vec<Target> {
        let of_vip = |state: &VipState| {
            let vip = state.vip.clone();
            let port = vip.check.port.or_else(|| vip.ports.first().copied()).unwrap_or_default();
            let target = move |server: &ServerState| Target {
                id: server.id(),
                vip: vip.address,
                port,
                server: server.server.address,
                check: vip.check.clone(),
                health: server.health.clone(),
            };
            state.servers.iter().map(target).collect::<Vec<_>>()
        };
        self.vips.iter().flat_map(of_vip).collect()
    }

    /// Records the MAC address of a server. If the server does not answer, its last known address is kept.
    pub(crate) fn set_neighbour(&mut self, address: IpAddr, mac: Option<Mac>) {
        for server in self.servers_mut().filter(|server| server.server.address == address) {
            server.is_resolved = mac.is_some();
            server.mac = mac.or(server.mac);
        }
    }

    /// Records the new result of a server's checks. Returns the names of the VIP and the server if the target is known
    /// and still checked, and its health has changed or was unknown before.
    pub(crate) fn set_health(&mut self, id: u64, health: Outcome) -> Option<(String, String)> {
        for state in self.vips.iter_mut().filter(|state| state.vip.check.kind != CheckKind::None) {
            if let Some(server) = state.servers.iter_mut().find(|server| server.id() == id) {
                let is_news = match (&server.health, &health) {
                    (Err(before), Err(now)) => before.is_own || before.is_silent != now.is_silent,
                    (before, now) => before != now,
                };
                server.health = health;
                let server = server.server.name.clone();
                return is_news.then(|| (state.vip.name(), server));
            }
        }
        None
    }

    /// Records the counts of a sweep, unless the sweep did not see each flow exactly once.
    pub(crate) fn apply_sweep(&mut self, swept: &Swept) {
        let &Swept { begun_ns, ref counted, is_whole, .. } = swept;
        for server in self.servers_mut().filter(|_| is_whole) {
            let (active, closing) =
                counted.get(&(server.number, server.generation)).copied().unwrap_or_default();
            server.flows = Flows { active, closing, begun_ns };
            server.decide_full();
        }
    }

    /// Whether a server would be full if no flow had ended since the last sweep; a new sweep should then count the
    /// flows. `established_since` returns the number of flows that were established since then, by the server's number.
    pub(crate) fn may_be_full(&self, established_since: impl Fn(u16) -> u64) -> bool {
        self.vips.iter().flat_map(|state| &state.servers).any(|server| {
            let most = server.server.max_connections.filter(|_| !server.is_full);
            most.is_some_and(|most| server.flows.active + established_since(server.number) >= most.into())
        })
    }

    /// Whether a server is leaving, drained or limited, so that the balancer must notice the end of its flows.
    pub(crate) fn waits_for_flows(&self) -> bool {
        let mut servers = self.vips.iter().flat_map(|state| &state.servers);
        servers.any(|state| state.is_leaving || state.server.drain || state.server.max_connections.is_some())
    }

    /// Numbers of the servers that have a maximum of connections.
    pub(crate) fn with_thresholds(&self) -> impl Iterator<Item = u16> {
        let servers = self.vips.iter().flat_map(|state| &state.servers);
        servers.filter(|state| state.server.max_connections.is_some()).map(|state| state.number)
    }

    fn servers_mut(&mut self) -> impl Iterator<Item = &mut ServerState> {
        self.vips.iter_mut().flat_map(|state| &mut state.servers)
    }

    /// Fails if the tables have no room for the additional entries of a configuration.
    fn check_places(&self, partners: &[Option<usize>], config: &Config) -> Result<(), Error> {
        let new_vips = partners.iter().filter(|partner| partner.is_none()).count();
        let is_new = |partner: &Option<usize>, server: &Server| {
            let servers = partner.map_or(&[][..], |at| &self.vips[at].servers);
            !servers.iter().any(|state| state.server.address == server.address)
        };
        let new = partners.iter().zip(&config.vips);
        let new: usize = new
            .map(|(partner, vip)| vip.servers.iter().filter(|server| is_new(partner, server)).count())
            .sum();
        let present: usize = self.vips.iter().map(|state| state.servers.len()).sum();
        // New services are added before old ones are removed, so the table must have room for both.
        let services = config.services();
        let gone = self.services.keys().filter(|service| !services.contains(service)).count();
        if services.len() + gone > SERVICES {
            return Err(Error::TooMany { what: "ports of VIPs", most: SERVICES });
        }
        numbers::check(self.vips.len() + new_vips, present + new)
    }
}

impl VipState {
    fn new(number: u32, vip: Vip) -> Self {
        Self {
            number,
            vip,
            is_leaving: false,
            servers: Vec::new(),
            ring: None,
            former: None,
            is_ring_written: false,
            members: None,
            changed_ns: 0,
        }
    }

    fn configure(&mut self, vip: &Vip, numbers: &mut Numbers) -> Result<(), Error> {
        let has_checks = vip.check.kind != CheckKind::None;
        self.is_leaving = false;
        self.vip = vip.clone();
        self.servers.iter_mut().for_each(|state| state.is_leaving = true);
        for server in &vip.servers {
            let known = self.servers.iter_mut().find(|state| state.server.address == server.address);
            if let Some(state) = known {
                state.server = server.clone();
                state.is_leaving = false;
                state.out_ns = None;
                state.decide_full();
                continue;
            }
            let (number, generation) = numbers.take()?;
            self.servers.push(ServerState {
                number,
                generation,
                server: server.clone(),
                is_leaving: false,
                mac: None,
                is_resolved: false,
                is_checked: has_checks,
                health: if has_checks {
                    Err(Fault::unknown("it has not been checked yet", true))
                } else {
                    Ok(())
                },
                is_full: false,
                flows: Flows::default(),
                out_ns: None,
                is_new: true,
                written: None,
            });
        }
        self.servers.iter_mut().for_each(|state| state.is_checked = has_checks);
        if !has_checks {
            self.servers.iter_mut().for_each(|state| state.health = Ok(()));
        }
        Ok(())
    }

    /// The ring; none until it is made.
    pub(crate) fn ring(&self) -> Option<&Ring> {
        self.ring.as_deref()
    }

    /// Whether health is ignored: all servers are down, and the VIP is configured to use all of them in this case.
    pub(crate) fn ignores_health(&self) -> bool {
        let takes_new = |state: &&ServerState| {
            !state.is_leaving && state.is_resolved && !state.server.drain && state.server.weight > 0
        };
        let mut takers = self.servers.iter().filter(takes_new);
        self.vip.when_all_down == WhenAllDown::All && !takers.any(|state| state.health.is_ok())
    }
}

impl ServerState {
    /// The identity of the server for the checker.
    pub(crate) fn id(&self) -> u64 {
        u64::from(self.number) << 32 | u64::from(self.generation)
    }

    /// Decides whether the server is full. As in ipvs, it is full from its maximum of connections on, until it has
    /// fewer than the number at which it resumes. The decision of an earlier daemon holds until the first sweep.
    fn decide_full(&mut self) {
        let Flows { active, begun_ns, .. } = self.flows;
        self.is_full = match self.server.max_connections {
            None => false,
            Some(_) if begun_ns == 0 => self.is_full,
            Some(most) if active >= most.into() => true,
            Some(_) => self.is_full && active >= self.server.resumes_below().into(),
        };
    }
}

/// For each wanted VIP, the existing VIP of the same address that it continues: one with the same ports, otherwise one
/// with a common port, otherwise any.
fn partners(present: &[VipState], wanted: &[Vip]) -> Vec<Option<usize>> {
    let mut partners: Vec<Option<usize>> = vec![None; wanted.len()];
    let same: fn(&Vip, &Vip) -> bool = |one, other| one.ports == other.ports;
    let some = |one: &Vip, other: &Vip| one.ports.iter().any(|port| other.ports.contains(port));
    for fits in [same, some, |_, _| true] {
        for (at, vip) in wanted.iter().enumerate() {
            if partners[at].is_some() {
                continue;
            }
            let is_free = |index: &usize| !partners.contains(&Some(*index));
            let is_its = |index: &usize| {
                let there = &present[*index].vip;
                there.address == vip.address && fits(there, vip)
            };
            partners[at] = (0..present.len()).filter(is_its).find(is_free);
        }
    }
    partners
}
