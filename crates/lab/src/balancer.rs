//! A load balancer between clients and servers. The table lists what each kind needs on the hosts of a lab.
//!
//! | kind | on the balancer's host | on the servers | on the clients |
//! |---|---|---|---|
//! | direct | nothing | the virtual address on loopback | a route to the virtual address through all servers |
//! | l2dsr | `proofload balance` | the virtual address on loopback | a route through the balancer |
//! | lvs | `ipvsadm`; the virtual address on loopback | the virtual address on loopback | a route through the balancer |
//! | haproxy | HAProxy; the virtual address on loopback | nothing | a route through the balancer |

mod programs;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use settings::Network;

use crate::{
    plan::{Host, Plan, Route},
    program::Haproxy,
};

/// Kinds of balancers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BalancerKind {
    /// No balancer: clients spread their connections over the servers themselves (ECMP).
    Direct,
    /// `proofload balance`: direct server return by rewriting the destination of frames.
    L2dsr,
    /// HAProxy, which forwards connections or requests as a proxy.
    Haproxy,
    /// The kernel's balancer (IPVS) with direct routing.
    Lvs,
}

impl BalancerKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Direct, Self::L2dsr, Self::Haproxy, Self::Lvs];

    /// The name of the kind in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::L2dsr => "l2dsr",
            Self::Haproxy => "haproxy",
            Self::Lvs => "lvs",
        }
    }

    /// Whether servers send their answers directly to clients, with the virtual address as the source.
    pub fn answers_directly(self) -> bool {
        self != Self::Haproxy
    }
}

/// Rule for the choice of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Schedule {
    Maglev,
    RoundRobin,
}

/// A load balancer of a lab.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Balancer {
    /// Index of the balancer's host in the plan.
    pub host: usize,
    /// Kind of the balancer.
    pub kind: BalancerKind,
    /// The virtual address, which clients connect to.
    pub vip: IpAddr,
    /// The port that clients connect to.
    pub port: u16,
    /// Whether clients must use TLS. Clients cannot verify the balancer's certificate, because they do not know its
    /// issuer.
    pub is_tls: bool,
    /// Indices of the servers in the plan.
    pub servers: Vec<usize>,
    /// Names of the balancer's processes; empty with IPVS, which runs in the kernel.
    pub processes: Vec<String>,
    /// Number of processors that the balancer keeps busy under load.
    pub threads: u32,
}

/// Settings of a balancer. Some apply only to certain kinds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Details {
    /// The port of the servers.
    pub server_port: u16,
    /// Hosts that may become servers later.
    pub later_servers: Vec<usize>,
    /// Rule for the choice of a server; the kind's default if none.
    pub schedule: Option<Schedule>,
    /// Maximum number of connections per server.
    pub max_connections: Option<u64>,
    /// A full server gets new connections again below this number of connections.
    pub resume_connections: Option<u64>,
    /// Number of HAProxy processes.
    pub processes: u32,
    /// HAProxy's settings; l2dsr also uses `check` and `check_interval`.
    pub haproxy: Haproxy,
}

impl Balancer {
    /// Adds what the balancer needs to the hosts of a plan. `clients` are the hosts that connect to it.
    ///
    /// # Errors
    /// If the plan lacks something that the balancer needs, such as a link, or contradicts the balancer's settings. The
    /// message gives the reason.
    pub(crate) fn apply(
        &mut self,
        plan: &mut Plan,
        clients: &[usize],
        details: &Details,
    ) -> Result<(), String> {
        let via = match self.kind {
            BalancerKind::Direct => self.servers.clone(),
            _ => vec![self.host],
        };
        self.check(plan, clients, details)?;
        for &client in clients {
            let gateways = via.iter().map(|&gateway| self.neighbour(plan, client, gateway));
            let via = gateways.collect::<Result<Vec<_>, _>>()?;
            let host = &mut plan.hosts[client];
            host.routes.push(Route { to: self.vip, prefix: Network::max_prefix(self.vip), via });
            // The ECMP hash covers ports too, so that the connections of one client spread over the servers. Every kind
            // of balancer gets this setting.
            let version = if self.vip.is_ipv4() { "ipv4" } else { "ipv6" };
            set(host, &format!("net.{version}.fib_multipath_hash_policy"), "1");
        }
        for &server in self.servers.iter().chain(&details.later_servers) {
            let host = &mut plan.hosts[server];
            if self.kind.answers_directly() {
                add_own_address(host, self.vip);
            }
            // Servers must not answer ARP requests for the virtual address: only the balancer may.
            set(host, "net.ipv4.conf.all.arp_ignore", "1");
            set(host, "net.ipv4.conf.all.arp_announce", "2");
        }
        if matches!(self.kind, BalancerKind::Haproxy | BalancerKind::Lvs) {
            add_own_address(&mut plan.hosts[self.host], self.vip);
        }
        let processes = self.make_processes(plan, details)?;
        for process in &processes {
            if plan.processes.iter().any(|other| other.name == process.name) {
                return Err(format!("another process has the name '{}'", process.name));
            }
        }
        // The commands that set up the kernel's balancer end at once, so it has no processes.
        self.processes = match self.kind {
            BalancerKind::Lvs => Vec::new(),
            _ => processes.iter().map(|process| process.name.clone()).collect(),
        };
        plan.processes.extend(processes);
        Ok(())
    }

    fn check(&self, plan: &Plan, clients: &[usize], details: &Details) -> Result<(), String> {
        let name = |host: usize| &plan.hosts[host].name;
        if let Some(&both) = self.servers.iter().chain(clients).find(|&&host| host == self.host) {
            let what = if clients.contains(&both) { "generates the load" } else { "is a server" };
            return Err(format!("'{}' {what}; a balancer needs a host of its own", name(both)));
        }
        let mut ends = plan.links.iter().flat_map(|link| &link.ends);
        if let Some(taken) = ends.find(|end| end.address == self.vip) {
            return Err(format!("the VIP {} is already the address of '{}'", self.vip, name(taken.host)));
        }
        if self.kind.answers_directly() && details.server_port != self.port {
            return Err(format!(
                "with direct server return, servers must listen on the balancer's port: {} is not the servers' port {}",
                self.port, details.server_port
            ));
        }
        if matches!(self.kind, BalancerKind::L2dsr | BalancerKind::Lvs) {
            let devices: Result<Vec<&str>, String> =
                self.servers.iter().map(|&server| self.device(plan, server)).collect();
            if devices?.windows(2).any(|pair| pair[0] != pair[1]) {
                return Err(
                    "with direct server return, all servers must be on one link with the balancer".to_owned()
                );
            }
        }
        Ok(())
    }

    /// The address of the host `to` on a link that it shares with the host `from`, of the virtual address's IP version.
    fn neighbour(&self, plan: &Plan, from: usize, to: usize) -> Result<IpAddr, String> {
        let fits = |address: IpAddr| address.is_ipv4() == self.vip.is_ipv4();
        plan.shared_address(from, to, &fits).ok_or_else(|| {
            let [from, to] = [from, to].map(|host| &plan.hosts[host].name);
            format!("'{from}' has no link to '{to}' with addresses of the IP version of {}", self.vip)
        })
    }

    /// The balancer's interface on its link to a server.
    fn device<'p>(&self, plan: &'p Plan, server: usize) -> Result<&'p str, String> {
        let address = self.neighbour(plan, self.host, server)?;
        let found =
            plan.ends_of(self.host).find(|(link, _)| link.ends.iter().any(|end| end.address == address));
        found.map(|(_, end)| end.device.as_str()).ok_or_else(|| format!("no link leads to {address}"))
    }
}

fn set(host: &mut Host, name: &str, value: &str) {
    // A setting from the lab file takes precedence.
    host.sysctls.entry(name.to_owned()).or_insert_with(|| value.to_owned());
}

fn add_own_address(host: &mut Host, address: IpAddr) {
    if !host.loopback.contains(&address) {
        host.loopback.push(address);
    }
}
