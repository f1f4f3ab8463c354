//! The entries of the tables, as types and as bytes. `bpf/layout.h` defines the same bytes.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::BitOr,
    time::Duration,
};

use crate::{
    Ring,
    maglev::{PLACES, TURNS},
};

/// Upper limits of the numbers of VIPs and servers, exclusive; the number 0 stands for none.
pub(crate) const VIPS: usize = 1_024;
pub(crate) const SERVERS: usize = 8_192;
/// Size of the table of services. Each address and each of its balanced ports has an entry.
pub(crate) const SERVICES: usize = 16_384;

/// Number of the reasons why frames are dropped, or are sent without being remembered.
pub(crate) const REASONS: usize = 8;

/// The address of an Ethernet device.
pub type Mac = [u8; 6];

pub(crate) type SettingsBytes = [u8; 32];
pub(crate) type ServiceKeyBytes = [u8; 20];
pub(crate) type ServiceBytes = [u8; 16];
pub(crate) type ServerBytes = [u8; 16];
pub(crate) type ServerCountsOfCore = [u64; 5];
pub(crate) type FlowKeyBytes = [u8; 36];
pub(crate) type FlowBytes = [u8; 12];
pub(crate) type RecentBytes = [u8; 16];
pub(crate) const RING_BYTES: usize = PLACES_AT + 4 * PLACES;
pub(crate) type RingBytes = [u8; RING_BYTES];

const TURNS_AT: usize = 12;
const SERVERS_AT: usize = TURNS_AT + 2 * TURNS;
const PLACES_AT: usize = SERVERS_AT + 2 * SERVERS;

/// The tables, with the sizes of their keys and values in bytes.
pub(crate) const TABLES: [(&str, usize, usize); 12] = [
    ("settings", 4, size_of::<SettingsBytes>()),
    ("services", size_of::<ServiceKeyBytes>(), size_of::<ServiceBytes>()),
    ("servers", 4, size_of::<ServerBytes>()),
    ("server_counts", 4, size_of::<ServerCountsOfCore>()),
    ("vip_counts", 4, size_of::<[u64; REASONS]>()),
    ("next_turns", 4, size_of::<u64>()),
    ("budgets", 4, size_of::<[u64; 2]>()),
    ("rings", 4, 4),
    ("flows", size_of::<FlowKeyBytes>(), size_of::<FlowBytes>()),
    ("pending", size_of::<FlowKeyBytes>(), size_of::<RecentBytes>()),
    ("sources", 20, size_of::<RecentBytes>()),
    ("fragments", 40, size_of::<RecentBytes>()),
];

/// The settings for all VIPs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The MAC address of the device. Frames to other addresses go to the kernel's own stack.
    pub mac: Mac,
    /// Maximum number of flows that may be remembered, in about a second (2^30 ns), before they have continued after
    /// the handshake: half of them by a SYN, half by an ACK. In the same time, the same number of flows may be
    /// remembered as established.
    pub inserts_per_second: u32,
    /// Number of the next sweep of the flows. The program marks a flow with it whenever the flow sends a packet.
    pub sweep: u32,
    /// Maximum duration of a handshake.
    pub handshake: Duration,
    /// The seed of all hashes. The balancers of a failover pair need the same seed.
    pub seed: u64,
}

/// The way in which servers are chosen for new flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schedule {
    /// By a hash of addresses and ports.
    Ring,
    /// Round robin.
    RoundRobin,
}

/// A port of a VIP, or all of its ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceEntry {
    /// Number of the VIP, above 0. Ports with the same number share servers and counts.
    pub vip: u32,
    /// The way in which servers are chosen for new flows.
    pub schedule: Schedule,
    /// Whether all flows of a source address go to one server. With round robin, this holds for the given time after
    /// its last new flow.
    pub persistence: Option<Duration>,
}

/// The frames that a server can take: those of new flows, those of its own flows, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State(u8);

/// A server of a VIP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerEntry {
    /// Its MAC address.
    pub mac: Mac,
    /// The frames that it gets.
    pub state: State,
    /// Generation: differs from those of all other servers that have had the same number.
    pub generation: u32,
    /// Number of its VIP.
    pub vip: u32,
}

/// A TCP connection from a client to a VIP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// Address and port of the client.
    pub client: (IpAddr, u16),
    /// Address and port of the VIP.
    pub vip: (IpAddr, u16),
}

/// The entry of an established connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    /// Number of its server.
    pub server: u16,
    /// Generation of the server.
    pub generation: u32,
    /// Whether the client has sent FIN or RST.
    pub is_closing: bool,
    /// Number of the next sweep at the time of the flow's last packet.
    pub sweep: u32,
}

/// The counts of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerCounts {
    /// Number of frames as the kernel counts them: segments merged on receipt count as one.
    pub packets: u64,
    /// Bytes of the frames, with Ethernet headers.
    pub bytes: u64,
    /// New flows: SYNs, except those that the program recognizes as repeated.
    pub flows: u64,
    /// Flows that continued after the handshake and are remembered.
    pub established: u64,
    /// Those of `flows` whose address and port had ended another flow less than 1.07 s before. They got that flow's
    /// server and took no turn of round robin.
    pub kept: u64,
}

/// Reason why frames were dropped, or were sent without being remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Dropped: a header is cut off, too short or too long, or a SYN has FIN or RST set. For VIP 0: passed to the
    /// kernel, because no VIP could be read.
    Malformed,
    /// Dropped: no server of the VIP is alive; for a SYN, no server passes its checks.
    NoServer,
    /// Dropped: all servers whose checks succeed have reached their thresholds or are drained.
    AllFull,
    /// Dropped: the flow waits for a dead server.
    Waits,
    /// Dropped: a later fragment of a TCP segment came before the first one, or without it.
    NoFirstFragment,
    /// Dropped: a SYN whose server in the ring gets no new flows, while no more flows may be remembered.
    OverBudget,
    /// A SYN was sent to the server to which the ring will also send the ACK, because no more flows may be remembered.
    SynNotRemembered,
    /// An ACK was sent, but the flow was not remembered, or not as established.
    AckNotRemembered,
}

/// Count of each reason for a VIP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VipCounts(pub [u64; REASONS]);

impl Schedule {
    /// Its name in files.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ring => "maglev",
            Self::RoundRobin => "round-robin",
        }
    }
}

impl State {
    /// Gets new flows.
    pub const UP: Self = Self(1);
    /// Gets no frames; its flows go to other servers.
    pub const DEAD: Self = Self(1 | 2);
    /// Gets no new flows, because it has reached a threshold.
    pub const FULL: Self = Self(1 | 4);
    /// Gets no new flows, because it will be removed.
    pub const DRAINING: Self = Self(1 | 8);
    /// Gets no frames; its flows wait for it.
    pub const HELD: Self = Self(1 | 2 | 16);
    /// Gets no new flows, because its checks fail. Its own flows stay, because it still answers.
    pub const FAILING: Self = Self(1 | 32);
}

impl BitOr for State {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl VipCounts {
    /// The count of a reason.
    pub fn of(&self, reason: Reason) -> u64 {
        self.0[reason as usize]
    }
}

impl Settings {
    pub(crate) fn bytes(&self) -> SettingsBytes {
        let mut bytes = [0; size_of::<SettingsBytes>()];
        bytes[..6].copy_from_slice(&self.mac);
        bytes[8..12].copy_from_slice(&self.inserts_per_second.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.sweep.to_ne_bytes());
        bytes[16..24].copy_from_slice(&nanoseconds(self.handshake).to_ne_bytes());
        bytes[24..].copy_from_slice(&self.seed.to_ne_bytes());
        bytes
    }
}

impl ServiceEntry {
    pub(crate) fn bytes(&self) -> ServiceBytes {
        let round_robin = if self.schedule == Schedule::RoundRobin { 2 } else { 0 };
        let persistent = if self.persistence.is_some() { 4 } else { 0 };
        service_bytes(self.vip, round_robin | persistent, self.persistence.unwrap_or_default())
    }
}

impl ServerEntry {
    pub(crate) fn bytes(&self) -> ServerBytes {
        let mut bytes = [0; size_of::<ServerBytes>()];
        bytes[..6].copy_from_slice(&self.mac);
        bytes[6] = self.state.0;
        bytes[8..12].copy_from_slice(&self.generation.to_ne_bytes());
        bytes[12..].copy_from_slice(&self.vip.to_ne_bytes());
        bytes
    }
}

impl FlowKey {
    pub(crate) fn bytes(&self) -> FlowKeyBytes {
        let mut bytes = [0; size_of::<FlowKeyBytes>()];
        bytes[..16].copy_from_slice(&mapped(self.client.0));
        bytes[16..32].copy_from_slice(&mapped(self.vip.0));
        bytes[32..34].copy_from_slice(&self.client.1.to_be_bytes());
        bytes[34..].copy_from_slice(&self.vip.1.to_be_bytes());
        bytes
    }

    pub(crate) fn of(bytes: &FlowKeyBytes) -> Self {
        let address = |at| IpAddr::from(Ipv6Addr::from(part::<16>(bytes, at))).to_canonical();
        let port = |at| u16::from_be_bytes(part(bytes, at));
        Self { client: (address(0), port(32)), vip: (address(16), port(34)) }
    }
}

impl Flow {
    pub(crate) fn of(bytes: &FlowBytes) -> Self {
        Self {
            generation: u32::from_ne_bytes(part(bytes, 0)),
            server: u16::from_ne_bytes(part(bytes, 4)),
            is_closing: u16::from_ne_bytes(part(bytes, 6)) != 0,
            sweep: u32::from_ne_bytes(part(bytes, 8)),
        }
    }
}

impl ServerCounts {
    pub(crate) fn add(&mut self, of_core: &ServerCountsOfCore) {
        let [packets, bytes, flows, established, kept] = of_core;
        self.packets += packets;
        self.bytes += bytes;
        self.flows += flows;
        self.established += established;
        self.kept += kept;
    }
}

/// An entry of port 0 that only marks the address as that of a VIP.
pub(crate) fn address_bytes(vip: u32) -> ServiceBytes {
    service_bytes(vip, 1, Duration::ZERO)
}

fn service_bytes(vip: u32, flags: u32, persistence: Duration) -> ServiceBytes {
    let mut bytes = [0; size_of::<ServiceBytes>()];
    bytes[..4].copy_from_slice(&vip.to_ne_bytes());
    bytes[4..8].copy_from_slice(&flags.to_ne_bytes());
    bytes[8..].copy_from_slice(&nanoseconds(persistence).to_ne_bytes());
    bytes
}

/// Bytes of the key; port 0 stands for all ports without an entry.
pub(crate) fn service_key_bytes(address: IpAddr, port: u16) -> ServiceKeyBytes {
    let mut bytes = [0; size_of::<ServiceKeyBytes>()];
    bytes[..16].copy_from_slice(&mapped(address));
    bytes[16..18].copy_from_slice(&port.to_be_bytes());
    bytes
}

/// Bytes of a ring, the former ring and the time of the change.
pub(crate) fn ring_bytes(ring: &Ring, former: &Ring, changed_ns: u64) -> Box<RingBytes> {
    let mut bytes = zeros();
    bytes[..8].copy_from_slice(&changed_ns.to_ne_bytes());
    let mut servers = ring.turns.clone();
    servers.sort_unstable();
    servers.dedup();
    for (length_at, at, numbers) in [(8, TURNS_AT, &ring.turns), (10, SERVERS_AT, &servers)] {
        bytes[length_at..length_at + 2].copy_from_slice(&(numbers.len() as u16).to_ne_bytes());
        for (into, number) in bytes[at..].chunks_exact_mut(2).zip(numbers) {
            into.copy_from_slice(&number.to_ne_bytes());
        }
    }
    let places = &mut bytes[PLACES_AT..];
    for (into, (present, former)) in places.chunks_exact_mut(4).zip(ring.places.iter().zip(&former.places)) {
        into[..2].copy_from_slice(&present.to_ne_bytes());
        into[2..].copy_from_slice(&former.to_ne_bytes());
    }
    bytes
}

/// Reads a ring from the bytes of its entry, without the former one.
pub(crate) fn ring_of(bytes: &RingBytes) -> Ring {
    let (turns, places) = (&bytes[TURNS_AT..SERVERS_AT], &bytes[PLACES_AT..]);
    let length = u16::from_ne_bytes(part(bytes, 8)).into();
    let turns = turns.chunks_exact(2).take(length).map(|turn| u16::from_ne_bytes(part(turn, 0)));
    let places = places.chunks_exact(4).map(|place| u16::from_ne_bytes(part(place, 0)));
    Ring { places: places.collect(), turns: turns.collect() }
}

fn zeros() -> Box<RingBytes> {
    // The bytes are allocated on the heap, because the stack may be too small for them.
    vec![0; RING_BYTES].into_boxed_slice().try_into().unwrap_or_else(|_| Box::new([0; RING_BYTES]))
}

pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A MAC address in the usual notation with colons.
pub(crate) fn mac_text(mac: &Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// The bytes of an address; an IPv4 address is written as ::ffff:a.b.c.d.
pub(crate) fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => Ipv4Addr::to_ipv6_mapped(&address).octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}
