//! What a balancer balances, as a file, a line of ipvsadm or a command says it.

use std::{net::IpAddr, net::SocketAddr, time::Duration};

use crate::{Hook, Mac, Schedule, Sizes};

/// What one balancer does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The device on which clients' frames arrive, and on whose Ethernet segment all servers are.
    pub device: String,
    /// Where the program sees frames; chosen by the kind of the device if none.
    pub hook: Option<Hook>,
    /// What is balanced, in the order of the file.
    pub vips: Vec<Vip>,
    /// How much is remembered.
    pub sizes: Sizes,
    /// Part of all hashes. Balancers that stand in for each other have the same.
    pub seed: u64,
    /// Longest time of a handshake: for so long after a change, unknown connections go on by the former ring.
    pub handshake: Duration,
    /// How many flows may be remembered per second before their handshakes are over; bounds what a SYN flood can take.
    pub new_flows_per_s: u32,
    /// How long a connection may send nothing before it is forgotten.
    pub idle_timeout: Duration,
    /// Address that answers `/metrics` in the OpenMetrics format; none if not asked for.
    pub metrics: Option<SocketAddr>,
}

/// An address that clients connect to, and the servers behind it. All its ports share servers, ring and counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vip {
    /// Its name, unique in the balancer; the address unless given.
    pub name: String,
    /// The address.
    pub address: IpAddr,
    /// The TCP ports that are balanced; all if empty.
    pub ports: Vec<u16>,
    /// How servers are chosen for new flows.
    pub schedule: Schedule,
    /// How long a client's address stays with its server; none if each flow is on its own.
    pub persistence: Option<Duration>,
    /// How servers are checked; never if none.
    pub check: Option<Check>,
    /// What happens while every server is down.
    pub all_down: AllDown,
    /// The servers.
    pub servers: Vec<Server>,
}

/// A server of a VIP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Its name, unique in the VIP.
    pub name: String,
    /// Its own address on the device's segment. The address of its device is asked for by ARP or NDP, unless given.
    pub address: IpAddr,
    /// The address of its device.
    pub mac: Option<Mac>,
    /// Its share of new flows is its part of the sum of all weights; 0 gets none.
    pub weight: u32,
    /// From so many connections on, it gets no new ones (`ipvsadm -x`); never if none.
    pub upper_connections: Option<u32>,
    /// Below so many, it gets new ones again (`ipvsadm -y`); three quarters of the upper threshold if none.
    pub lower_connections: Option<u32>,
}

/// How servers are checked: through the VIP, so a server that has lost the VIP fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What must succeed.
    pub kind: CheckKind,
    /// The port; the VIP's first one if none.
    pub port: Option<u16>,
    /// Time from one check of a server to the next.
    pub interval: Duration,
    /// Share of the interval, in percent, by which each wait is drawn longer or shorter.
    pub jitter_percent: u8,
    /// How long a check may take.
    pub timeout: Duration,
    /// So many successes in a row bring a server up.
    pub rise: u32,
    /// So many failures in a row take it down.
    pub fall: u32,
}

/// What must succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckKind {
    /// A TCP connection.
    Tcp,
    /// `GET` of this path, with this field `Host` (the VIP if none); the answer must have a status from 200 to 399.
    Http {
        /// The path, with its leading slash.
        path: String,
        /// The host's name.
        host: Option<String>,
    },
}

/// What happens while every server of a VIP is down.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AllDown {
    /// Clients' frames are dropped, and counted.
    #[default]
    Drop,
    /// Health is ignored: flows are spread as if all servers were up.
    Ignore,
}
