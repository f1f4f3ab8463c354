//! The configuration of a balancer, from a file and from the changes of commands.

mod file;
mod keys;
#[cfg(test)]
mod tests;
mod text;

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use crate::{
    Hook, Schedule, Sizes,
    health::Check,
    layout::{SERVERS, SERVICES, VIPS},
};

/// In the tables, port 0 stands for all ports that have no entry.
pub(crate) const ALL_PORTS: u16 = 0;

/// The configuration of one balancer.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The device that receives clients' frames. All servers are on its Ethernet segment.
    pub device: String,
    /// Where the program processes frames; chosen by the kind of the device if none.
    pub hook: Option<Hook>,
    /// Whether the VIPs are added to the device and announced. Otherwise they are added to `lo`, and the device does
    /// not answer ARP requests for them.
    pub answer_arp: bool,
    /// The seed of all hashes. The balancers of a failover pair need the same seed.
    pub seed: u64,
    /// Maximum duration of a handshake. For this time after a change of a ring, unknown flows follow the former ring.
    pub handshake: Duration,
    /// Maximum number of flows per second that are remembered before they have continued after the handshake.
    pub remember_per_second: u32,
    /// Time without packets after which an established flow is forgotten.
    pub idle_timeout: Duration,
    /// Time without packets after which a flow that has sent FIN or RST is forgotten.
    pub closing_timeout: Duration,
    /// Address on which `/metrics` is served in the OpenMetrics format; no such server if none.
    pub metrics: Option<SocketAddr>,
    /// Sizes of the tables.
    pub sizes: Sizes,
    /// The VIPs, in the order of the file.
    pub vips: Vec<Vip>,
}

/// A mistake in a configuration, with the positions of its VIP and server in the lists, if it belongs to one.
#[derive(Debug)]
pub(crate) struct Problem {
    vip: Option<usize>,
    server: Option<usize>,
    pub why: String,
}

/// An address, the ports of it that clients connect to, and the servers behind them. Its ports share servers, ring and
/// counts.
#[derive(Debug, Clone, PartialEq)]
pub struct Vip {
    /// The address.
    pub address: IpAddr,
    /// The TCP ports. 0 alone stands for all ports that no other VIP of this address has.
    pub ports: Vec<u16>,
    /// How the server of a new flow is chosen.
    pub schedule: Schedule,
    /// Whether flows of a source address go to the same server.
    pub persistence: Persistence,
    /// Treatment of frames while all servers are down.
    pub when_all_down: WhenAllDown,
    /// Treatment of the flows of a dead server.
    pub when_server_dies: WhenServerDies,
    /// The health check of the servers.
    pub check: Check,
    /// The servers.
    pub servers: Vec<Server>,
}

/// Whether flows of a source address go to the same server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Persistence {
    /// Each flow is scheduled separately.
    #[default]
    Off,
    /// Flows with the same hash of the source address go to the same server. Only with the schedule of the ring.
    Source,
    /// New flows of a source address go to the same server until this time has passed since the last one. Only with
    /// round robin.
    For(Duration),
}

/// Treatment of frames while all servers of a VIP are down.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WhenAllDown {
    /// Clients' frames are dropped and counted.
    #[default]
    Drop,
    /// Frames are sent as if all servers were up.
    All,
}

/// Treatment of the flows of a dead server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WhenServerDies {
    /// They go to other servers, whose kernels reset them, so that clients can connect again.
    #[default]
    Move,
    /// They wait for the server to return.
    Hold,
}

/// A server of a VIP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Its name, unique in the VIP. The name determines the order in which the server takes places in the ring.
    pub name: String,
    /// Its own address on the device's segment.
    pub address: IpAddr,
    /// Its weight: its share of new flows is weight / sum of all weights. With 0, it gets none.
    pub weight: u32,
    /// From this number of connections on, the server gets no new ones (`ipvsadm -x`); no limit if none.
    pub max_connections: Option<u32>,
    /// Below this number, a full server gets new connections again (`ipvsadm -y`); three quarters of the maximum if
    /// none.
    pub resume_connections: Option<u32>,
    /// Whether it gets no new flows, so that it can be removed later.
    pub drain: bool,
}

/// Maximum weight, as in ipvs.
pub(crate) const MAX_WEIGHT: u32 = 65_535;

impl Config {
    /// A configuration without VIPs, with the defaults of a file.
    pub fn new(device: impl Into<String>) -> Self {
        Self {
            device: device.into(),
            hook: None,
            answer_arp: true,
            seed: 0,
            handshake: Duration::from_secs(3),
            remember_per_second: 50_000,
            idle_timeout: Duration::from_secs(15 * 60),
            closing_timeout: Duration::from_secs(2 * 60),
            metrics: None,
            sizes: Sizes::default(),
            vips: Vec::new(),
        }
    }

    /// The changed keys that need a restart, each with the stop command to run first. Some can change while the tables
    /// are kept; others need new tables.
    pub(crate) fn fixed_changes(&self, was: &Self) -> Vec<(&'static str, &'static str)> {
        let (kept, anew) =
            ("`proofload balance stop --keep`", "`proofload balance stop`, which ends its connections");
        let fixed = [
            ("device", self.device != was.device, anew),
            ("hook", self.hook != was.hook, kept),
            ("answer_arp", self.answer_arp != was.answer_arp, kept),
            // The same hash looks up the former ring, so with another seed, handshakes would not find their server.
            ("seed", self.seed != was.seed, kept),
            ("metrics", self.metrics != was.metrics, kept),
            ("tables", self.sizes != was.sizes, anew),
        ];
        let changed = fixed.into_iter().filter(|(_, is_changed, _)| *is_changed);
        changed.map(|(key, _, stop)| (key, stop)).collect()
    }

    /// Mistakes that concern several values of the configuration together.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let mut wrong = Vec::new();
        let mut push = |why: String| wrong.push(Problem { vip: None, server: None, why });
        if self.vips.is_empty() {
            push("there is no VIP: add a table [[vips]] with its address and servers".to_owned());
        }
        let servers: usize = self.vips.iter().map(|vip| vip.servers.len()).sum();
        for (count, most, what) in [
            (self.vips.len(), VIPS - 1, "VIPs"),
            (servers, SERVERS - 1, "servers"),
            (self.services().len(), SERVICES, "ports of VIPs"),
        ] {
            if count > most {
                push(format!("{count} {what}: a balancer holds at most {most}"));
            }
        }
        for (at, vip) in self.vips.iter().enumerate() {
            for (at_port, port) in vip.ports.iter().enumerate() {
                let same = |other: &Vip| other.address == vip.address && other.ports.contains(port);
                if self.vips[..at].iter().any(same) || vip.ports[..at_port].contains(port) {
                    let why = format!("{} is listed twice", service_name(vip.address, *port));
                    wrong.push(Problem { vip: Some(at), server: None, why });
                }
            }
            let of_vip = |(server, why)| Problem { vip: Some(at), server, why };
            wrong.extend(vip.problems().into_iter().map(of_vip));
        }
        wrong
    }

    /// The entries of the table of services: each VIP's ports, and each address.
    pub(crate) fn services(&self) -> BTreeSet<(IpAddr, u16)> {
        let of_vip = |vip: &Vip| {
            let address = vip.address;
            vip.ports.iter().copied().chain([ALL_PORTS]).map(move |port| (address, port)).collect::<Vec<_>>()
        };
        self.vips.iter().flat_map(of_vip).collect()
    }

    /// The VIP with an address, and with a port if one is given.
    ///
    /// # Errors
    /// If no VIP, or more than one, matches.
    pub(crate) fn vip_mut(&mut self, address: IpAddr, port: Option<u16>) -> Result<&mut Vip, String> {
        let known: Vec<String> = self.vips.iter().map(Vip::name).collect();
        let has = |vip: &Vip| vip.address == address && port.is_none_or(|port| vip.ports.contains(&port));
        let mut found = self.vips.iter_mut().filter(|vip| has(vip));
        match (found.next(), found.next()) {
            (Some(vip), None) => Ok(vip),
            (Some(_), Some(_)) => Err(format!(
                "several VIPs have the address {address}: name one with its port, as in {}",
                service_name(address, 80)
            )),
            _ => {
                let asked = port.map_or_else(|| address.to_string(), |port| service_name(address, port));
                Err(format!("there is no VIP {asked}; the VIPs are {}", known.join(", ")))
            }
        }
    }
}

impl Vip {
    /// The address and the ports, such as `192.168.16.100:80,443`.
    pub fn name(&self) -> String {
        let ports: Vec<String> = self.ports.iter().map(u16::to_string).collect();
        match (self.ports[..] == [ALL_PORTS], self.address) {
            (true, address) => address.to_string(),
            (false, IpAddr::V4(address)) => format!("{address}:{}", ports.join(",")),
            (false, IpAddr::V6(address)) => format!("[{address}]:{}", ports.join(",")),
        }
    }

    /// The mistakes of this VIP, each with the position of its server in the list, if it belongs to one.
    fn problems(&self) -> Vec<(Option<usize>, String)> {
        let (name, mut wrong) = (self.name(), Vec::new());
        wrong.extend(unusable(self.address).map(|kind| {
            let address = self.address;
            let why = "give an address that only the balancer and its servers have";
            (None, format!("{name}: {address} is {kind}: {why}"))
        }));
        for (at, server) in self.servers.iter().enumerate() {
            let earlier = &self.servers[..at];
            if earlier.iter().any(|other| other.name == server.name) {
                wrong.push((Some(at), format!("{name}: two servers have the name '{}'", server.name)));
            }
            if earlier.iter().any(|other| other.address == server.address) {
                wrong.push((Some(at), format!("{name}: two servers have the address {}", server.address)));
            }
            if server.address == self.address {
                let why = "a server has the address of the VIP; give the server's own address";
                wrong.push((Some(at), format!("{name}: {why}")));
            }
            wrong.extend(server.problem().map(|why| (Some(at), format!("{name}, {}: {why}", server.name))));
        }
        wrong.extend(match (self.schedule, self.persistence) {
            (Schedule::Ring, Persistence::For(_)) => Some((None, format!(
                "{name}: a persistence time needs schedule = \"round-robin\"; with schedule = \"maglev\", set persistence = \"source\""
            ))),
            (Schedule::RoundRobin, Persistence::Source) => Some((None, format!(
                "{name}: persistence = \"source\" needs schedule = \"maglev\"; with round robin, set a time, such as persistence = \"300s\""
            ))),
            _ => None,
        });
        wrong
    }
}

impl Server {
    /// A server of weight 1 whose name is its address.
    pub fn new(address: IpAddr) -> Self {
        let name = address.to_string();
        Self { name, address, weight: 1, max_connections: None, resume_connections: None, drain: false }
    }

    /// A full server with fewer connections than this gets new ones again. As in ipvs, the default is three quarters of
    /// the maximum.
    pub(crate) fn resumes_below(&self) -> u32 {
        let default = self.max_connections.map(|most| most - most / 4);
        self.resume_connections.or(default).unwrap_or(u32::MAX)
    }

    fn problem(&self) -> Option<String> {
        if let Some(kind) = unusable(self.address) {
            return Some(format!("{} is {kind}: give the server's own address on the segment", self.address));
        }
        match (self.max_connections, self.resume_connections) {
            (None, Some(_)) => Some("resume_connections needs max_connections".to_owned()),
            (Some(most), Some(resume)) if resume > most => {
                Some(format!("resume_connections ({resume}) is above max_connections ({most})"))
            }
            _ if self.weight > MAX_WEIGHT => {
                Some(format!("the weight {} is above the maximum, {MAX_WEIGHT}", self.weight))
            }
            _ => checked_name(&self.name).err(),
        }
    }
}

/// Maximum bytes of a server's name: as long as a host name may be.
const MAX_NAME: usize = 253;

/// The name, if it is allowed in lines of text and in labels of metrics; otherwise the mistake.
pub(crate) fn checked_name(name: &str) -> Result<&str, String> {
    let is_unfit = |c: char| c.is_control() || c.is_whitespace();
    if (1..=MAX_NAME).contains(&name.len()) && !name.contains(is_unfit) {
        return Ok(name);
    }
    let shown: String = name.chars().take(MAX_NAME).collect();
    Err(format!("{shown:?} is not a name: use 1 to {MAX_NAME} bytes without white space"))
}

/// The kind of this address, if it cannot be a host's address.
pub(crate) fn unusable(address: IpAddr) -> Option<String> {
    let kind = match address {
        _ if address.is_unspecified() => "the unspecified address",
        _ if address.is_loopback() => "a loopback address",
        _ if address.is_multicast() || address == Ipv4Addr::BROADCAST => "a multicast or broadcast address",
        IpAddr::V6(address) => {
            return Some(format!("IPv4-mapped IPv6 (write {})", address.to_ipv4_mapped()?));
        }
        IpAddr::V4(_) => return None,
    };
    Some(kind.to_owned())
}

/// An address and a port in the usual notation.
pub(crate) fn service_name(address: IpAddr, port: u16) -> String {
    if port == ALL_PORTS { address.to_string() } else { SocketAddr::new(address, port).to_string() }
}
