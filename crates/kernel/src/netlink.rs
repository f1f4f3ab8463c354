//! Configuration through rtnetlink, the routing socket: interfaces, addresses, routes and rates. Each request waits for
//! its acknowledgement.

mod reading;
mod tbf;

use std::{
    io,
    net::{IpAddr, Ipv4Addr},
    os::fd::{AsRawFd, BorrowedFd},
};

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressHeaderFlags, AddressMessage},
    link::{InfoBridge, InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage},
    tc::TcHandle,
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

pub use reading::{Address, Link, Neighbour, NeighbourChange, NeighbourChanges};
pub use tbf::{ETHERNET_HEADER_BYTES, TokenBucket};

/// The index of the loopback interface in every namespace.
pub const LOOPBACK: u32 = 1;

/// A socket in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

/// One end of a veth pair.
#[derive(Debug)]
pub struct VethEnd<'a> {
    /// Network namespace of the interface; that of the socket if none.
    pub namespace: Option<BorrowedFd<'a>>,
    /// Name of the interface.
    pub name: &'a str,
    /// Index of the interface.
    pub index: u32,
    /// MAC address of the interface.
    pub mac: [u8; 6],
    /// Maximum packet size, in bytes.
    pub mtu: u32,
    /// Index of the bridge that the interface belongs to; none if it belongs to no bridge.
    pub bridge: Option<u32>,
}

impl Netlink {
    /// Opens a socket in the network namespace of this thread.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Creates a bridge without spanning tree and without multicast snooping.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn add_bridge(&mut self, name: &str, index: u32, mtu: u32) -> io::Result<()> {
        let settings = vec![InfoBridge::StpState(0.into()), InfoBridge::MulticastSnooping(false)];
        let mut message = LinkMessage::default();
        message.header.index = index;
        mark_up(&mut message);
        message.attributes = vec![
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::Mtu(mtu),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Bridge),
                LinkInfo::Data(InfoData::Bridge(settings)),
            ]),
        ];
        self.create(RouteNetlinkMessage::NewLink(message))
    }

    /// Creates a veth pair, each end directly in its namespace, and switches the first end on.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn add_veth(&mut self, one: &VethEnd<'_>, other: &VethEnd<'_>) -> io::Result<()> {
        let mut message = one.message();
        // The peer cannot be switched on here: the kernel would open it before it has a peer itself (ENOTCONN).
        mark_up(&mut message);
        message.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(other.message()))),
        ]));
        self.create(RouteNetlinkMessage::NewLink(message))
    }

    /// Switches an interface on.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_up(&mut self, index: u32) -> io::Result<()> {
        self.set_link(index, mark_up)
    }

    /// Switches an interface off. It keeps its addresses, but routes through it are removed.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_down(&mut self, index: u32) -> io::Result<()> {
        self.set_link(index, |message| message.header.change_mask = LinkFlags::Up)
    }

    /// Sets the MTU in bytes and the length of the transmit queue in packets.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_limits(&mut self, index: u32, mtu: u32, queue_packets: u32) -> io::Result<()> {
        let limits = vec![LinkAttribute::Mtu(mtu), LinkAttribute::TxQueueLen(queue_packets)];
        self.set_link(index, |message| message.attributes = limits)
    }

    fn set_link(&mut self, index: u32, change: impl FnOnce(&mut LinkMessage)) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        change(&mut message);
        self.request(RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Limits the rate at which an interface sends, in bits of Ethernet frames (without FCS) per second.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn limit_rate(&mut self, index: u32, rate_bits_per_s: u64, mtu: u32) -> io::Result<()> {
        let bucket = TokenBucket::for_port(rate_bits_per_s, mtu);
        self.add_bucket(index, TcHandle::ROOT, &bucket).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => io::Error::new(
                error.kind(),
                "this kernel has no sch_tbf, which limits a segment's rate, and cannot load it; leave the rate out, \
                 or use links between two hosts, which do not need it",
            ),
            _ => error,
        })
    }

    /// Adds a token bucket to an interface, below the queueing discipline `parent`.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn add_bucket(&mut self, index: u32, parent: TcHandle, bucket: &TokenBucket) -> io::Result<()> {
        self.create(RouteNetlinkMessage::NewQueueDiscipline(bucket.message(index, parent)))
    }

    /// Adds an address to an interface. The address is usable at once.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn add_address(&mut self, index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.prefix_len = prefix;
        message.header.index = index;
        message.attributes = vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
        message.header.family = AddressFamily::from(address);
        match address {
            IpAddr::V4(address) if prefix < 31 => {
                let broadcast = Ipv4Addr::from_bits(address.to_bits() | u32::MAX >> prefix);
                message.attributes.push(AddressAttribute::Broadcast(broadcast));
            }
            IpAddr::V4(_) => {}
            // Duplicate address detection would take a second and is not needed, because the addresses are unique.
            IpAddr::V6(_) => message.header.flags = AddressHeaderFlags::Nodad,
        }
        self.create(RouteNetlinkMessage::NewAddress(message))
    }

    /// Adds a route through one or more gateways of the same IP version. Several gateways have the same weight (ECMP).
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn add_route(&mut self, to: IpAddr, prefix: u8, gateways: &[IpAddr]) -> io::Result<()> {
        self.create(RouteNetlinkMessage::NewRoute(undo::route_message(to, prefix, gateways)))
    }

    /// Sends a request that creates an object. Fails if the object exists.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn create(&mut self, message: RouteNetlinkMessage) -> io::Result<()> {
        self.request(message, NLM_F_CREATE | NLM_F_EXCL)
    }

    fn request(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.ask(message, NLM_F_ACK | flags).map(drop)
    }
}

impl VethEnd<'_> {
    fn message(&self) -> LinkMessage {
        let mut message = LinkMessage::default();
        message.header.index = self.index;
        message.attributes = vec![
            LinkAttribute::IfName(self.name.to_owned()),
            LinkAttribute::Address(self.mac.to_vec()),
            LinkAttribute::Mtu(self.mtu),
        ];
        if let Some(namespace) = self.namespace {
            message.attributes.push(LinkAttribute::NetNsFd(namespace.as_raw_fd()));
        }
        if let Some(bridge) = self.bridge {
            message.attributes.push(LinkAttribute::Controller(bridge));
        }
        message
    }
}

fn mark_up(message: &mut LinkMessage) {
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
}
