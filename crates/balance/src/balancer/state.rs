//! The state with which a later daemon continues to use the same tables.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{Balancer, Flows, ServerState, VipState, numbers::Numbers};
use crate::{
    Error, Mac, Ring, Schedule,
    config::{Persistence, Server, Vip, WhenAllDown, WhenServerDies},
    health::{Check, CheckKind},
    probe::Fault,
};

/// The numbers of VIPs and servers. Their settings come from the configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SavedState {
    vips: Vec<SavedVip>,
    /// Addresses and ports that are in the table of services, or will be soon.
    services: Vec<(IpAddr, u16)>,
    /// The last generation of each number of a server.
    generations: BTreeMap<u16, u32>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct SavedVip {
    number: u32,
    address: IpAddr,
    ports: Vec<u16>,
    ring_changed_ns: u64,
    servers: Vec<SavedServer>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct SavedServer {
    number: u16,
    generation: u32,
    name: String,
    address: IpAddr,
    mac: Option<Mac>,
    is_resolved: bool,
    is_up: bool,
    is_silent: bool,
    is_full: bool,
}

impl Balancer {
    /// The state that must be on disk before the operations of [`Self::step`] are carried out.
    pub(crate) fn saved(&self) -> SavedState {
        let mut services: Vec<(IpAddr, u16)> = self.services.keys().copied().collect();
        services.extend(self.wanted_services(|_| true).into_keys());
        services.sort_unstable();
        services.dedup();
        let vips = self.vips.iter().map(VipState::saved).collect();
        SavedState { vips, services, generations: self.numbers.last().clone() }
    }

    /// Continues with the tables of an earlier daemon. All VIPs and servers count as leaving until a configuration
    /// wants them. `ring_of` reads the ring of a VIP by its number.
    ///
    /// # Errors
    /// Those of `ring_of`.
    pub(crate) fn taken_over(
        saved: SavedState,
        ring_of: impl Fn(u32) -> Result<Option<Ring>, Error>,
    ) -> Result<Self, Error> {
        let mut used = Vec::new();
        let mut vips = Vec::new();
        for vip in saved.vips {
            // Before the VIP's first ring is written, the table may still contain the ring of an earlier VIP with the
            // same number.
            let ring = if vip.ring_changed_ns == 0 { None } else { ring_of(vip.number)? };
            used.extend(vip.servers.iter().map(|server| server.number));
            vips.push(vip.restored(ring));
        }
        let numbers = Numbers::of(saved.generations, used);
        let services = saved.services.into_iter().map(|key| (key, None)).collect();
        Ok(Self::of(vips, numbers, services))
    }
}

impl VipState {
    fn saved(&self) -> SavedVip {
        let saved = |state: &ServerState| SavedServer {
            number: state.number,
            generation: state.generation,
            name: state.server.name.clone(),
            address: state.server.address,
            mac: state.mac,
            is_resolved: state.is_resolved,
            is_up: state.health.is_ok(),
            is_silent: state.is_silent(),
            is_full: state.is_full,
        };
        SavedVip {
            number: self.number,
            address: self.vip.address,
            ports: self.vip.ports.clone(),
            ring_changed_ns: self.changed_ns,
            servers: self.servers.iter().map(saved).collect(),
        }
    }
}

impl SavedVip {
    fn restored(self, ring: Option<Ring>) -> VipState {
        let servers = self.servers.into_iter().map(SavedServer::restored).collect();
        let vip = Vip {
            address: self.address,
            ports: self.ports,
            schedule: Schedule::Ring,
            persistence: Persistence::Off,
            when_all_down: WhenAllDown::Drop,
            when_server_dies: WhenServerDies::Move,
            // The saved state does not contain the former check, and no other check could tell whether a server is up.
            check: Check { kind: CheckKind::None, ..Check::default() },
            servers: Vec::new(),
        };
        let ring = ring.map(Arc::new);
        let changed_ns = self.ring_changed_ns;
        let mut restored = VipState::new(self.number, vip);
        (restored.is_leaving, restored.servers, restored.changed_ns) = (true, servers, changed_ns);
        restored.former.clone_from(&ring);
        (restored.is_ring_written, restored.ring) = (ring.is_some(), ring);
        restored
    }
}

impl SavedServer {
    fn restored(self) -> ServerState {
        ServerState {
            number: self.number,
            generation: self.generation,
            server: Server { name: self.name, ..Server::new(self.address) },
            is_leaving: true,
            mac: self.mac,
            is_resolved: self.is_resolved,
            is_checked: false,
            health: match self.is_up {
                true => Ok(()),
                false => Err(Fault::unknown("it was down before the balancer restarted", self.is_silent)),
            },
            is_full: self.is_full,
            flows: Flows::default(),
            out_ns: None,
            is_new: false,
            written: None,
        }
    }
}
