//! The configuration of a balancer, as read from a file and as changed by commands.

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

/// Port 0 of the tables stands for all ports without their own entry.
pub(crate) const ALL_PORTS: u16 = 0;

/// The configuration of one balancer.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The device that receives clients' frames, and on whose Ethernet segment all servers are.
    pub device: String,
    /// Where the program sees frames; chosen by the kind of the device if none.
    pub hook: Option<Hook>,
    /// Whether the VIPs are put on the device, and announced. Otherwise they are put on `lo`, and the device answers no ARP for them.
    pub answer_arp: bool,
    /// The seed of all hashes. Balancers of a failover pair have the same one.
    pub seed: u64,
    /// How long a handshake may take: for this long after a change of a ring, unknown flows follow the former ring.
    pub handshake: Duration,
    /// How many flows per second may be remembered before they have continued after the handshake.
    pub remember_per_second: u32,
    /// How long an established flow may send nothing before it is forgotten.
    pub idle_timeout: Duration,
    /// How long a flow may send nothing after FIN or RST before it is forgotten.
    pub closing_timeout: Duration,
    /// Where `/metrics` is answered in the OpenMetrics format; nowhere if none.
    pub metrics: Option<SocketAddr>,
    /// How much is remembered.
    pub sizes: Sizes,
    /// The VIPs, in the order of the file.
    pub vips: Vec<Vip>,
}

/// A mistake in a configuration, with the numbers of the VIP and the server that have it, if it belongs to one.
#[derive(Debug)]
pub(crate) struct Problem {
    vip: Option<usize>,
    server: Option<usize>,
    pub why: String,
}

/// Ports of an address that clients connect to, and the servers behind them. Its ports share servers, ring and counts.
#[derive(Debug, Clone, PartialEq)]
pub struct Vip {
    /// The address.
    pub address: IpAddr,
    /// The TCP ports; 0 alone is all ports that no other VIP of this address has.
    pub ports: Vec<u16>,
    /// How servers are chosen for new flows.
    pub schedule: Schedule,
    /// Whether flows of a source address go to the same server.
    pub persistence: Persistence,
    /// What happens while every server is down.
    pub when_all_down: WhenAllDown,
    /// How the flows of a dead server are treated.
    pub when_server_dies: WhenServerDies,
    /// How servers are checked.
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
    /// By a hash of the source address; only with the schedule of the ring.
    Source,
    /// For this long after the last new flow of the source address; only with round robin.
    For(Duration),
}

/// What happens while every server of a VIP is down.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WhenAllDown {
    /// Clients' frames are dropped, and counted.
    #[default]
    Drop,
    /// Frames are sent as if all were up.
    All,
}

/// How the flows of a dead server are treated.
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
    /// Its name, unique in the VIP. The order in which it takes places in the ring is derived from the name.
    pub name: String,
    /// Its own address on the device's segment.
    pub address: IpAddr,
    /// Its share of new flows is its part of the sum of all weights; 0 gets none.
    pub weight: u32,
    /// From this number of connections on, it gets no new ones (`ipvsadm -x`); no limit if none.
    pub max_connections: Option<u32>,
    /// Below this number, it gets new ones again (`ipvsadm -y`); three quarters of the maximum if none.
    pub resume_connections: Option<u32>,
    /// Whether it gets no new flows, because it will be taken out.
    pub drain: bool,
}

/// Largest weight, the same as in ipvs.
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

    /// The changed keys that need a restart, each with the stop command to run first: some may change while the tables are kept, and the
    /// others need new tables.
    pub(crate) fn fixed_changes(&self, was: &Self) -> Vec<(&'static str, &'static str)> {
        let (kept, anew) =
            ("`proofload balance stop --keep`", "`proofload balance stop`, which ends its connections");
        let fixed = [
            ("device", self.device != was.device, anew),
            ("hook", self.hook != was.hook, kept),
            ("answer_arp", self.answer_arp != was.answer_arp, kept),
            // The former ring is looked up by the same hash, so with another seed, handshakes would not find their server.
            ("seed", self.seed != was.seed, kept),
            ("metrics", self.metrics != was.metrics, kept),
            ("tables", self.sizes != was.sizes, anew),
        ];
        let changed = fixed.into_iter().filter(|(_, is_changed, _)| *is_changed);
        changed.map(|(key, _, stop)| (key, stop)).collect()
    }

    /// Mistakes of the configuration as a whole, which no single value shows.
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

    /// The entries that the table of services has: ports of addresses, and each address.
    pub(crate) fn services(&self) -> BTreeSet<(IpAddr, u16)> {
        let of_vip = |vip: &Vip| {
            let address = vip.address;
            vip.ports.iter().copied().chain([ALL_PORTS]).map(move |port| (address, port)).collect::<Vec<_>>()
        };
        self.vips.iter().flat_map(of_vip).collect()
    }

    /// The VIP of an address, and of one of its ports if it is given.
    ///
    /// # Errors
    /// When there is no such VIP, or more than one.
    pub(crate) fn vip_mut(&mut self, address: IpAddr, port: Option<u16>) -> Result<&mut Vip, String> {
        let known: Vec<String> = self.vips.iter().map(Vip::name).collect();
        let has = |vip: &Vip| vip.address == address && port.is_none_or(|port| vip.ports.contains(&port));
        let mut found = self.vips.iter_mut().filter(|vip| has(vip));
        match (found.next(), found.next()) {
            (Some(vip), None) => Ok(vip),
            (Some(_), Some(_)) => Err(format!(
                "several VIPs have the address {address}: say which by a port, as in {}",
                service_name(address, 80)
            )),
            _ => {
                let asked = port.map_or_else(|| address.to_string(), |port| service_name(address, port));
                Err(format!("there is no VIP {asked}; there are {}", known.join(", ")))
            }
        }
    }
}

impl Vip {
    /// The address and the ports, as `192.168.16.100:80,443`.
    pub fn name(&self) -> String {
        let ports: Vec<String> = self.ports.iter().map(u16::to_string).collect();
        match (self.ports[..] == [ALL_PORTS], self.address) {
            (true, address) => address.to_string(),
            (false, IpAddr::V4(address)) => format!("{address}:{}", ports.join(",")),
            (false, IpAddr::V6(address)) => format!("[{address}]:{}", ports.join(",")),
        }
    }

    /// The mistakes of this VIP, each with the number of the server that has it, if any.
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
                let why = "a server has the address of the VIP; give its own address on the segment";
                wrong.push((Some(at), format!("{name}: {why}")));
            }
            wrong.extend(server.problem().map(|why| (Some(at), format!("{name}, {}: {why}", server.name))));
        }
        wrong.extend(match (self.schedule, self.persistence) {
            (Schedule::Ring, Persistence::For(_)) => Some((None, format!(
                "{name}: a time of persistence needs schedule = \"round-robin\"; the ring has persistence = \"source\", without a time"
            ))),
            (Schedule::RoundRobin, Persistence::Source) => Some((None, format!(
                "{name}: persistence = \"source\" needs schedule = \"maglev\"; round robin has a time, such as persistence = \"300s\""
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

    /// A full server with fewer connections than this gets new ones again: as in ipvs, three quarters of the maximum by default.
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
                Some(format!("resume_connections is {resume}, above max_connections, which is {most}"))
            }
            _ if self.weight > MAX_WEIGHT => {
                Some(format!("the weight {} is above the largest one, {MAX_WEIGHT}", self.weight))
            }
            _ => checked_name(&self.name).err(),
        }
    }
}

/// Longest name of a server, in bytes: as long as a host name may be.
const MAX_NAME: usize = 253;

/// The name, if it can stand in lines of text and in labels; otherwise the mistake.
pub(crate) fn checked_name(name: &str) -> Result<&str, String> {
    let is_unfit = |c: char| c.is_control() || c.is_whitespace();
    if (1..=MAX_NAME).contains(&name.len()) && !name.contains(is_unfit) {
        return Ok(name);
    }
    let shown: String = name.chars().take(MAX_NAME).collect();
    Err(format!("{shown:?} is not a name: it is empty, has spaces, or more than {MAX_NAME} bytes"))
}

/// The kind of this address, if it cannot be the address of a host.
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
