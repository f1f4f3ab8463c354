//! Plans the next changes of the tables.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use super::{Balancer, ServerState, VipState};
use crate::{
    Mac, Member, Ring, ServerEntry, ServiceEntry, State,
    config::{ALL_PORTS, Persistence, Vip, WhenServerDies},
};

/// One change of the tables. Operations are carried out in the order of the list.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Operation {
    SetServer {
        number: u16,
        entry: ServerEntry,
    },
    /// Precedes the assignment of the number to another server.
    ClearServerCounts {
        number: u16,
    },
    FreeServer {
        number: u16,
    },
    ClearVipCounts {
        vip: u32,
    },
    SetRing {
        vip: u32,
        ring: Arc<Ring>,
        former: Arc<Ring>,
        changed_ns: u64,
    },
    SetService {
        address: IpAddr,
        port: u16,
        entry: ServiceEntry,
    },
    /// Marks an address as that of a VIP, although the VIP does not balance all of its ports.
    SetAddress {
        address: IpAddr,
        vip: u32,
    },
    RemoveService {
        address: IpAddr,
        port: u16,
    },
}

/// The contents of an entry in the table of services.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Written {
    Service(ServiceEntry),
    Address(u32),
}

/// Progress of making rings within one step.
struct Making {
    /// Number of rings that this step may still make.
    left: usize,
    /// The last new ring and its members, for reuse: many VIPs have the same servers.
    last: Option<(Vec<Member>, Ring)>,
}

impl Making {
    fn new_ring(&mut self, members: &[Member]) -> Ring {
        let alike = self.last.as_ref().and_then(|(from, ring)| ring.renumbered(from, members));
        let ring = alike.unwrap_or_else(|| Ring::new(members));
        self.last = Some((members.to_vec(), ring.clone()));
        ring
    }
}

impl Balancer {
    /// The operations to carry out now, in this order: servers before rings that name them, rings before services that
    /// use them, and removals last. The caller carries out all of them or calls [`Self::distrust_tables`]. At most
    /// `most_rings` rings are made, because each takes time, and servers may die meanwhile. [`Self::is_unfinished`]
    /// tells whether another step should follow at once.
    pub(crate) fn step(&mut self, now_ns: u64, most_rings: usize) -> Vec<Operation> {
        let (mut operations, mut rings) = (Vec::new(), Vec::new());
        let mut making = Making { left: most_rings, last: None };
        self.is_unfinished = false;
        for state in &mut self.vips {
            state.write_servers(true, &mut operations);
            self.is_unfinished |= !state.change_ring(now_ns, self.handshake_ns, &mut making, &mut rings);
        }
        // Counts of VIPs must be cleared before rings are set.
        operations.extend(rings.extract_if(.., |ring| !matches!(ring, Operation::SetRing { .. })));
        operations.append(&mut rings);
        let wanted = self.wanted_services(|state| state.ring.is_some());
        for (key @ (address, port), written) in &wanted {
            if self.services.get(key) != Some(&Some(written.clone())) {
                operations.push(match written.clone() {
                    Written::Service(entry) => {
                        Operation::SetService { address: *address, port: *port, entry }
                    }
                    Written::Address(vip) => Operation::SetAddress { address: *address, vip },
                });
            }
        }
        if self.is_unfinished {
            // Services are not removed yet, because a VIP whose new ring is missing may still use them.
            self.services.extend(wanted.into_iter().map(|(key, written)| (key, Some(written))));
            return operations;
        }
        self.removed = self.services.keys().filter(|key| !wanted.contains_key(key)).copied().collect();
        let gone = self.removed.iter();
        operations.extend(gone.map(|&(address, port)| Operation::RemoveService { address, port }));
        self.services = wanted.into_iter().map(|(key, written)| (key, Some(written))).collect();
        self.free(now_ns, &mut operations);
        operations
    }

    /// Whether work is left after the last step. The next step may follow at once.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.is_unfinished
    }

    /// The operations that may be carried out before [`Self::saved`] is on disk: state changes of servers that are
    /// already saved.
    pub(crate) fn step_of_known_servers(&mut self) -> Vec<Operation> {
        let mut operations = Vec::new();
        self.vips.iter_mut().for_each(|state| state.write_servers(false, &mut operations));
        operations
    }

    /// Time of the next step even if no event occurs, on the monotonic clock.
    pub(crate) fn next_step_ns(&self) -> Option<u64> {
        if self.is_unfinished {
            return Some(0);
        }
        let waiting =
            |state: &&VipState| !state.is_leaving && state.members.as_ref() != Some(&state.wanted_members());
        let rings = self.vips.iter().filter(waiting).map(|state| state.changed_ns);
        let leaving = |server: &ServerState| server.out_ns.filter(|_| server.is_leaving && server.is_dead());
        let leaving = self.vips.iter().flat_map(|state| &state.servers).filter_map(leaving);
        rings.chain(leaving).min().map(|since| since.saturating_add(self.handshake_ns))
    }

    /// Forgets the contents of the tables after a failed write. The next steps write all entries and make all removals
    /// again.
    pub(crate) fn distrust_tables(&mut self) {
        self.services.extend(self.removed.drain(..).map(|key| (key, None)));
        self.services.values_mut().for_each(|written| *written = None);
        for state in &mut self.vips {
            state.is_ring_written = false;
            state.servers.iter_mut().for_each(|server| server.written = None);
        }
    }

    /// All entries of the table of services that are needed for the VIPs for which `holds` is true.
    pub(super) fn wanted_services(
        &self,
        holds: impl Fn(&VipState) -> bool,
    ) -> BTreeMap<(IpAddr, u16), Written> {
        let mut wanted = BTreeMap::new();
        let staying = || self.vips.iter().filter(|state| !state.is_leaving && holds(state));
        for state in staying() {
            for port in &state.vip.ports {
                let entry = Written::Service(service_entry(state.number, &state.vip));
                wanted.insert((state.vip.address, *port), entry);
            }
        }
        for state in staying() {
            let address = Written::Address(state.number);
            wanted.entry((state.vip.address, ALL_PORTS)).or_insert(address);
        }
        wanted
    }

    /// Frees leaving servers without flows and leaving VIPs without servers.
    fn free(&mut self, now_ns: u64, operations: &mut Vec<Operation>) {
        let handshake_ns = self.handshake_ns;
        for state in &mut self.vips {
            let gone = |server: &mut ServerState| {
                let Some(out_ns) = server.out_ns.filter(|_| server.is_leaving) else { return false };
                // All handshakes of the former ring are over, and a later sweep has found no flow.
                let over_ns = out_ns.saturating_add(handshake_ns);
                let flows = server.flows;
                let is_swept = flows.begun_ns >= over_ns && flows.active + flows.closing == 0;
                now_ns >= over_ns && (is_swept || server.is_dead())
            };
            for server in state.servers.extract_if(.., gone) {
                operations.push(Operation::FreeServer { number: server.number });
                self.numbers.free(server.number);
            }
        }
        self.vips.retain(|state| !state.is_leaving || !state.servers.is_empty());
    }
}

impl VipState {
    fn write_servers(&mut self, with_new: bool, operations: &mut Vec<Operation>) {
        let (vip, ignores_health, dies) = (self.number, self.ignores_health(), self.vip.when_server_dies);
        for server in self.servers.iter_mut().filter(|server| with_new || !server.is_new) {
            let entry = ServerEntry {
                mac: server.mac.unwrap_or_default(),
                state: server.state(ignores_health, dies),
                generation: server.generation,
                vip,
            };
            if std::mem::take(&mut server.is_new) {
                operations.push(Operation::ClearServerCounts { number: server.number });
            }
            let set =
                |entry: &ServerEntry| Operation::SetServer { number: server.number, entry: entry.clone() };
            match &server.written {
                Some(written) if *written == entry => continue,
                Some(written) if written.mac != entry.mac => {
                    // Entries are written byte by byte, so the server is held while its MAC address changes: its flows
                    // wait, and no frame goes to a half-written address.
                    let waiting = |mac: Mac| ServerEntry { mac, state: State::HELD, ..entry.clone() };
                    operations
                        .extend([waiting(written.mac), waiting(entry.mac), entry.clone()].iter().map(set));
                }
                _ => operations.push(set(&entry)),
            }
            server.written = Some(entry);
        }
    }

    /// Gives the VIP its wanted ring, but only when the last change is older than the longest handshake. Returns false
    /// if this step may make no more rings.
    fn change_ring(
        &mut self,
        now_ns: u64,
        handshake_ns: u64,
        making: &mut Making,
        operations: &mut Vec<Operation>,
    ) -> bool {
        if self.is_leaving {
            // No service uses the ring any more.
            self.mark_out(now_ns);
            return true;
        }
        let wanted = self.wanted_members();
        let is_made = self.members.as_ref() == Some(&wanted);
        let waits = self.members.is_some() && now_ns < self.changed_ns.saturating_add(handshake_ns);
        if !(is_made && self.is_ring_written || !is_made && waits) {
            if making.left == 0 {
                return false;
            }
            making.left -= 1;
        }
        if is_made {
            if !self.is_ring_written {
                operations.extend(self.ring_operation());
                self.is_ring_written = true;
            }
            // The servers of a configuration that was undone may be leaving without ever having been in a ring.
            self.mark_out(now_ns);
            return true;
        }
        let Some(present) = self.ring.clone() else {
            let ring = Arc::new(making.new_ring(&wanted));
            operations.push(Operation::ClearVipCounts { vip: self.number });
            self.set_ring(now_ns, (Arc::clone(&ring), ring), wanted);
            operations.extend(self.ring_operation());
            return true;
        };
        if waits {
            return true;
        }
        let ring = present.changed(&wanted);
        if ring == *present && self.members.is_none() {
            // The ring of the earlier daemon is already the wanted one.
            self.members = Some(wanted);
            self.mark_out(now_ns);
        } else if now_ns >= self.changed_ns.saturating_add(handshake_ns) {
            self.set_ring(now_ns, (Arc::new(ring), present), wanted);
            operations.extend(self.ring_operation());
        }
        true
    }

    fn set_ring(&mut self, now_ns: u64, (ring, former): (Arc<Ring>, Arc<Ring>), members: Vec<Member>) {
        (self.ring, self.former, self.members) = (Some(ring), Some(former), Some(members));
        (self.is_ring_written, self.changed_ns) = (true, now_ns);
        self.mark_out(now_ns);
    }

    fn ring_operation(&self) -> Option<Operation> {
        let (ring, former) = (self.ring.clone()?, self.former.clone()?);
        Some(Operation::SetRing { vip: self.number, ring, former, changed_ns: self.changed_ns })
    }

    /// Records that leaving servers no longer have places in the ring.
    fn mark_out(&mut self, now_ns: u64) {
        for server in self.servers.iter_mut().filter(|server| server.is_leaving) {
            server.out_ns.get_or_insert(now_ns);
        }
    }

    pub(super) fn wanted_members(&self) -> Vec<Member> {
        let member = |state: &ServerState| Member {
            number: state.number,
            name: state.server.name.clone(),
            weight: state.server.weight,
        };
        self.servers.iter().filter(|state| !state.is_leaving).map(member).collect()
    }
}

impl ServerState {
    /// The state of the server for its table entry.
    pub(crate) fn state(&self, ignores_health: bool, dies: WhenServerDies) -> State {
        let mut state = State::UP;
        if self.is_unreachable() || self.is_silent() && !ignores_health {
            state = state | if dies == WhenServerDies::Hold { State::HELD } else { State::DEAD };
        } else if !self.is_resolved || self.health.is_err() && !ignores_health {
            state = state | State::FAILING;
        }
        if self.is_leaving || self.server.drain || self.server.weight == 0 {
            state = state | State::DRAINING;
        }
        if self.is_full {
            state = state | State::FULL;
        }
        state
    }

    /// Whether its checks succeed and it answers ARP or neighbour discovery for its address.
    pub(crate) fn lives(&self) -> bool {
        self.health.is_ok() && self.is_resolved
    }

    /// Whether it does not answer its checks at all, or has not been checked yet.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(&self.health, Err(fault) if fault.is_silent)
    }

    /// Whether its flows count as lost.
    fn is_dead(&self) -> bool {
        self.is_silent() || self.is_unreachable()
    }

    /// Whether no frame can be sent to it. Because answers to ARP or neighbour discovery may get lost, the last MAC
    /// address of a checked server is used until its checks show that it is dead.
    fn is_unreachable(&self) -> bool {
        self.mac.is_none() || !self.is_resolved && (!self.is_checked || self.is_silent())
    }
}

fn service_entry(vip: u32, wanted: &Vip) -> ServiceEntry {
    let persistence = match wanted.persistence {
        Persistence::Off => None,
        Persistence::Source => Some(std::time::Duration::ZERO),
        Persistence::For(time) => Some(time),
    };
    ServiceEntry { vip, schedule: wanted.schedule, persistence }
}
