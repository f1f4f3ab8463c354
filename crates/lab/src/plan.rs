//! What a lab consists of, with every address decided: pure data, made from a lab file or by a study, and
//! written into the folder of a lab that is up.

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};
use settings::Network;

use crate::link::LinkSpec;
pub use crate::program::{Known, KnownKind};

/// A whole lab.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// What it is called.
    pub title: String,
    /// Its hosts.
    pub hosts: Vec<Host>,
    /// What joins them.
    pub links: Vec<Link>,
    /// What runs on them, in the order it is started.
    pub processes: Vec<Process>,
}

impl Plan {
    /// The number of the host of this name.
    pub fn host(&self, name: &str) -> Option<usize> {
        self.hosts.iter().position(|host| host.name == name)
    }

    /// A host's interfaces: the link, and the host's end of it, in the order of the links.
    pub fn ends_of(&self, host: usize) -> impl Iterator<Item = (&Link, &End)> {
        let of_link = move |link: &Link| link.ends.iter().position(|end| end.host == host);
        self.links.iter().filter_map(move |link| of_link(link).map(|end| (link, &link.ends[end])))
    }

    /// The address a host is known by: that of its first interface, or else the first on its loopback
    /// interface.
    pub fn address_of(&self, host: usize) -> Option<IpAddr> {
        let first = self.ends_of(host).next().map(|(_, end)| end.address);
        first.or_else(|| self.hosts.get(host)?.loopback.first().copied())
    }

    /// Whether a host has an IPv6 address.
    pub fn has_ipv6(&self, host: usize) -> bool {
        let own = self.hosts.get(host).into_iter().flat_map(|host| &host.loopback);
        self.ends_of(host).map(|(_, end)| &end.address).chain(own).any(IpAddr::is_ipv6)
    }

    /// Whether a program of the lab [writes](KnownKind::written_files) a file of this name for the commands of others.
    pub fn writes_file(&self, file: &str) -> bool {
        let is_written = |process: &Process| match &process.program {
            Program::Known(known) => known.kind.written_files().contains(&file),
            Program::Command(_) => false,
        };
        self.processes.iter().any(is_written)
    }
}

/// A network namespace.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Its name, unique in the lab.
    pub name: String,
    /// Addresses on its loopback interface, each alone in its network: what it serves but does not answer ARP for.
    pub loopback: Vec<IpAddr>,
    /// Routes beyond the links'.
    pub routes: Vec<Route>,
    /// Kernel settings on top of the lab's own, by their dotted names.
    pub sysctls: BTreeMap<String, String>,
    /// Whether it passes packets on.
    pub forward: bool,
    /// The processors that its processes may run on; all that we may use if none.
    pub cpus: Option<Vec<usize>>,
    /// Processor time that its processes may use together, in processors; unlimited if none.
    pub cpu_quota: Option<f64>,
}

/// A route by a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The network's address.
    pub to: IpAddr,
    /// The length of its prefix.
    pub prefix: u8,
    /// The gateway.
    pub via: IpAddr,
}

/// What joins hosts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// Its name, unique in the lab.
    pub name: String,
    /// What it is made of.
    pub kind: LinkKind,
    /// The network's address.
    pub network: IpAddr,
    /// The length of its prefix.
    pub prefix: u8,
    /// The largest packet, in bytes.
    pub mtu: u32,
    /// Who is on it.
    pub ends: Vec<End>,
}

/// What a link is made of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum LinkKind {
    /// A bridge in a namespace of its own, and a pair of interfaces for each host.
    Segment {
        /// What every port carries at the most, each way, in bits of Ethernet frames (without FCS) per second;
        /// as much as the machine can if none.
        port_rate_bits_per_s: Option<u64>,
    },
    /// A pair of interfaces between two hosts.
    Pair,
    /// An emulated link between two hosts.
    Emulated(Box<LinkSpec>),
}

impl Link {
    /// Its network.
    pub fn network(&self) -> Network {
        Network { address: self.network, prefix: self.prefix }
    }
}

/// A host's end of a link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// The number of the host in the plan.
    pub host: usize,
    /// Its interface.
    pub device: String,
    /// Its address.
    pub address: IpAddr,
}

/// A process on a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Its name, unique in the lab.
    pub name: String,
    /// The number of the host in the plan.
    pub host: usize,
    /// What is run.
    pub program: Program,
    /// Variables of its environment, beside ours.
    pub environment: BTreeMap<String, String>,
    /// The folder that it is started in, made if it is missing; ours if none.
    pub directory: Option<PathBuf>,
    /// When it counts as ready; at once if none.
    pub ready: Option<Ready>,
    /// How long it may take to get ready.
    pub ready_timeout: Duration,
    /// Bytes of its output that are kept.
    pub log_limit_bytes: u64,
    /// What happens to more.
    pub flood: Flood,
    /// Whether it may end, with status 0, while the lab is up.
    pub may_end: bool,
    /// Processes with the same stage are started together; the next stage when they are ready.
    pub stage: usize,
}

/// What is run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Program {
    /// Words of a command line. `{NAME}` stands for the first address of the host NAME, `{self}` for that
    /// of the process's own; `{ssh_config}` for a file that an sshd of the lab [writes](KnownKind::written_files).
    Command(Vec<String>),
    /// A program that we know how to set up.
    Known(Known),
}

/// When a process counts as ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ready {
    /// A TCP connection is accepted, at the host's own address if none is given.
    Tcp(Option<IpAddr>, u16),
    /// An HTTP request is answered with a status 2xx.
    Http {
        /// Where; the host's own address if none.
        address: Option<IpAddr>,
        /// The port.
        port: u16,
        /// The path, with its slash.
        path: String,
    },
    /// Its output holds this text.
    Log(String),
    /// A file exists.
    File(PathBuf),
    /// It has ended with status 0.
    Exit,
}

/// What happens to output beyond the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Flood {
    /// It is an error: the lab is taken down.
    Fail,
    /// The first and the last bytes are kept.
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
