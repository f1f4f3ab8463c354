//! The plan of a lab, with every address assigned: plain data. A lab file or a study gives the plan, and the folder of
//! a running lab holds a copy.

pub(crate) mod known;

use std::{collections::BTreeMap, fmt, net::IpAddr, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};
use settings::Network;

pub use known::{Known, KnownKind};

use crate::link::LinkSpec;

/// The plan of a lab.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Title of the lab.
    pub title: String,
    /// The hosts.
    pub hosts: Vec<Host>,
    /// The links between the hosts.
    pub links: Vec<Link>,
    /// The processes on the hosts, in the order of their start.
    pub processes: Vec<Process>,
}

impl Plan {
    /// The index of the host with this name.
    pub fn host(&self, name: &str) -> Option<usize> {
        self.hosts.iter().position(|host| host.name == name)
    }

    /// The links of a host with the host's end of each, in the order of the links.
    pub fn ends_of(&self, host: usize) -> impl Iterator<Item = (&Link, &End)> {
        let of_link = move |link: &Link| link.ends.iter().position(|end| end.host == host);
        self.links.iter().filter_map(move |link| of_link(link).map(|end| (link, &link.ends[end])))
    }

    /// The main address of a host: the address of its first interface, otherwise the first address on its loopback
    /// interface.
    pub fn address_of(&self, host: usize) -> Option<IpAddr> {
        let first = self.ends_of(host).next().map(|(_, end)| end.address);
        first.or_else(|| self.hosts.get(host)?.loopback.first().copied())
    }

    /// An address of the host `other` on a link that both hosts share and for which `fits` holds. None if there is no
    /// such address or both are the same host.
    pub fn shared_address(&self, host: usize, other: usize, fits: &dyn Fn(IpAddr) -> bool) -> Option<IpAddr> {
        let is_usable = |end: &&End| end.host == other && host != other && fits(end.address);
        self.ends_of(host).find_map(|(link, _)| link.ends.iter().find(is_usable)).map(|end| end.address)
    }

    /// Whether a host has an IPv6 address.
    pub(crate) fn has_ipv6(&self, host: usize) -> bool {
        let loopback = self.hosts.get(host).into_iter().flat_map(|host| &host.loopback);
        self.ends_of(host).map(|(_, end)| &end.address).chain(loopback).any(IpAddr::is_ipv6)
    }
}

/// A network namespace, and a mount namespace if it has private folders.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Name, unique in the lab.
    pub name: String,
    /// Addresses on the loopback interface, each with the longest prefix. The host accepts packets for them but does
    /// not answer ARP requests for them.
    pub loopback: Vec<IpAddr>,
    /// Routes in addition to those of the links.
    pub routes: Vec<Route>,
    /// Kernel settings in addition to the lab's own, by dotted name.
    pub sysctls: BTreeMap<String, String>,
    /// Whether the host forwards packets.
    pub forward: bool,
    /// Processors that the host's processes may run on; all available ones if none.
    pub cpus: Option<Vec<usize>>,
    /// Processor time of all the host's processes together, in processors; unlimited if none.
    pub cpu_quota: Option<f64>,
    /// Folders that are the host's own, and empty at first. None contains another.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub private: Vec<PathBuf>,
}

/// A route through one or more gateways.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Address of the destination network.
    pub to: IpAddr,
    /// Length of the network's prefix, in bits.
    pub prefix: u8,
    /// The gateways, at least one. Several gateways share the flows evenly (ECMP).
    pub via: Vec<IpAddr>,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} via ", self.to, self.prefix)?;
        let mut gateways = self.via.iter();
        gateways.next().map_or(Ok(()), |first| write!(f, "{first}"))?;
        gateways.try_for_each(|gateway| write!(f, ", {gateway}"))
    }
}

/// A link between hosts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// Name, unique in the lab.
    pub name: String,
    /// How the link is built.
    pub kind: LinkKind,
    /// The network's address.
    pub network: IpAddr,
    /// Length of the network's prefix, in bits.
    pub prefix: u8,
    /// The largest packet, in bytes.
    pub mtu: u32,
    /// The ends of the link, one for each host.
    pub ends: Vec<End>,
}

/// How a link is built.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum LinkKind {
    /// A bridge in a separate namespace, with a pair of interfaces (veth) for each host.
    Segment {
        /// Maximum rate of every port in each direction, in bits of Ethernet frames (without FCS) per second;
        /// unlimited if none.
        port_rate_bits_per_s: Option<u64>,
    },
    /// A pair of interfaces (veth) between two hosts.
    Pair,
    /// An emulated link between two hosts.
    Emulated(Box<LinkSpec>),
}

impl Link {
    /// The link's network.
    pub fn network(&self) -> Network {
        Network { address: self.network, prefix: self.prefix }
    }
}

/// A host's end of a link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// Index of the host in the plan.
    pub host: usize,
    /// Name of the host's interface.
    pub device: String,
    /// Address of the interface.
    pub address: IpAddr,
}

/// A process on a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Name, unique in the lab.
    pub name: String,
    /// Index of the host in the plan.
    pub host: usize,
    /// The program.
    pub program: Program,
    /// Environment variables in addition to those of this process.
    pub environment: BTreeMap<String, String>,
    /// Working directory, created if missing; the working directory of this process if none.
    pub directory: Option<PathBuf>,
    /// Condition for the process to be ready; without one, the process is ready at once.
    pub ready: Option<Ready>,
    /// Time that the process may take to become ready.
    pub ready_timeout: Duration,
    /// Maximum bytes of output that are kept.
    pub log_limit_bytes: u64,
    /// Action when the output exceeds `log_limit_bytes`.
    pub flood: Flood,
    /// Maximum number of open file descriptors; the limit of this process if none.
    #[serde(default)]
    pub descriptors: Option<u64>,
    /// Whether the process may end with status 0 while the lab is up.
    pub may_end: bool,
    /// Start stage. Processes of one stage start together; the next stage starts when all of them are ready.
    pub stage: usize,
}

/// The program of a process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Program {
    /// Words of a command line. Placeholders: `{NAME}` stands for the main address of the host NAME, `{self}` for the
    /// main address of the process's own host, `{ssh_config}` for a file that an sshd of the lab
    /// [writes](KnownKind::written_files).
    Command(Vec<String>),
    /// A program that proofload configures.
    Known(Known),
}

/// Condition for a process to be ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ready {
    /// An address, by default the host's own, accepts TCP connections on this port.
    Tcp(Option<IpAddr>, u16),
    /// An HTTP request is answered with a 2xx status.
    Http {
        /// Address of the server; the host's own address if none.
        address: Option<IpAddr>,
        /// The port.
        port: u16,
        /// The path, with the leading slash.
        path: String,
    },
    /// The output contains this text.
    Log(String),
    /// A file exists.
    File(PathBuf),
    /// The process has ended with status 0.
    Exit,
}

/// Action when the output exceeds its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Flood {
    /// The process counts as failed, and the lab is taken down.
    Fail,
    /// The log keeps the first and the last bytes.
    Truncate,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_known_by_its_first_interface() {
        let host = |name: &str| Host { name: name.into(), ..Host::default() };
        let end = |host, last| End { host, device: "eth0".into(), address: IpAddr::from([10, 1, 0, last]) };
        let link = Link {
            name: "lan".into(),
            kind: LinkKind::Segment { port_rate_bits_per_s: None },
            network: IpAddr::from([10, 1, 0, 0]),
            prefix: 16,
            mtu: 1500,
            ends: vec![end(0, 1), end(1, 2)],
        };
        let alone = Host { loopback: vec![IpAddr::from([9, 9, 9, 9])], ..host("c") };
        let plan = Plan {
            hosts: vec![host("a"), host("b"), alone, host("d")],
            links: vec![link],
            ..Plan::default()
        };
        assert_eq!(plan.host("b"), Some(1));
        assert_eq!(plan.address_of(1), Some(IpAddr::from([10, 1, 0, 2])));
        assert_eq!(plan.address_of(2), Some(IpAddr::from([9, 9, 9, 9])));
        assert_eq!(plan.address_of(3), None);
        assert_eq!(plan.ends_of(0).count(), 1);
    }
}
