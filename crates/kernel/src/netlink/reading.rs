//! Reads interfaces, addresses and neighbours from the routing socket.

use std::{
    io,
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd},
};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressMessage},
    link::{LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage, LinkXdp},
    neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState},
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use super::Netlink;

/// The group of messages about neighbours (linux/rtnetlink.h).
const RTNLGRP_NEIGH: u32 = 3;

/// An interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its index in its namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its Ethernet address; none if it has none.
    pub mac: Option<[u8; 6]>,
    /// Maximum packet size, in bytes.
    pub mtu: u32,
    /// Whether it is switched on.
    pub is_up: bool,
    /// Whether it has a carrier.
    pub has_carrier: bool,
    /// Kind of a virtual interface, such as `veth`; none for a hardware interface.
    pub kind: Option<String>,
    /// Id of the attached XDP program; none if no program is attached.
    pub xdp: Option<u32>,
}

/// An address of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// Index of the interface.
    pub index: u32,
    /// The address.
    pub address: IpAddr,
    /// Length of its prefix, in bits.
    pub prefix: u8,
}

/// The kernel's state of a neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Neighbour {
    /// The kernel does not know its Ethernet address, or not yet.
    Unknown,
    /// Its Ethernet address is known.
    Known {
        /// The address.
        mac: [u8; 6],
        /// Whether an administrator set it, so that the kernel does not verify it.
        is_set: bool,
    },
    /// It does not answer.
    Failed,
}

/// A change of a neighbour's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NeighbourChange {
    /// Index of the interface.
    pub index: u32,
    /// The neighbour.
    pub address: IpAddr,
    /// Its new state.
    pub now: Neighbour,
}

/// A socket that receives each change of a neighbour in its network namespace.
#[derive(Debug)]
pub struct NeighbourChanges {
    socket: Socket,
}

impl Netlink {
    /// All interfaces of the namespace.
    ///
    /// # Errors
    /// If the kernel refuses, as for all functions of this type.
    pub fn links(&mut self) -> io::Result<Vec<Link>> {
        let answers = self.ask(RouteNetlinkMessage::GetLink(LinkMessage::default()), NLM_F_DUMP)?;
        Ok(answers.into_iter().filter_map(link).collect())
    }

    /// All addresses of the namespace.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn addresses(&mut self) -> io::Result<Vec<Address>> {
        let answers = self.ask(RouteNetlinkMessage::GetAddress(AddressMessage::default()), NLM_F_DUMP)?;
        Ok(answers.into_iter().filter_map(address).collect())
    }

    /// The kernel's state of a neighbour.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn neighbour(&mut self, index: u32, address: IpAddr) -> io::Result<Neighbour> {
        match self.ask(RouteNetlinkMessage::GetNeighbour(neighbour_message(index, address)), NLM_F_ACK) {
            Ok(answers) => {
                let known = answers.into_iter().find_map(neighbour_change);
                Ok(known.map_or(Neighbour::Unknown, |change| change.now))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Neighbour::Unknown),
            Err(error) => Err(error),
        }
    }

    /// Makes the kernel resolve a neighbour's address, or verify it if the neighbour has not been heard from lately. Do
    /// not call this for an address that an administrator set: the kernel would then treat it as one that it has
    /// resolved.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn resolve_neighbour(&mut self, index: u32, address: IpAddr) -> io::Result<()> {
        let mut message = neighbour_message(index, address);
        message.header.flags = NeighbourFlags::Use;
        self.request(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE)
    }

    /// Sends a request. Reads all answers up to the acknowledgement or the end of a dump.
    pub(super) fn ask(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut packet = NetlinkMessage::new(header, NetlinkPayload::from(message));
        packet.finalize();
        let mut bytes = vec![0; packet.buffer_len()];
        packet.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let mut answers = Vec::new();
        loop {
            let (bytes, _) = self.socket.recv_from_full()?;
            for answer in messages(&bytes)? {
                if answer.header.sequence_number != self.sequence {
                    continue;
                }
                match answer.payload {
                    NetlinkPayload::InnerMessage(message) => answers.push(message),
                    NetlinkPayload::Done(_) => return Ok(answers),
                    NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
                    NetlinkPayload::Error(_) => return Ok(answers),
                    _ => {}
                }
            }
        }
    }
}

impl NeighbourChanges {
    /// Opens a socket in the network namespace of this thread.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind(&SocketAddr::new(0, 0))?;
        socket.add_membership(RTNLGRP_NEIGH)?;
        socket.set_non_blocking(true)?;
        Ok(Self { socket })
    }

    /// The changes since the last call; empty if there were none.
    ///
    /// # Errors
    /// If the kernel's queue has overflowed. Some changes are lost then, so the state of the neighbours must be queried
    /// again.
    pub fn take(&mut self) -> io::Result<Vec<NeighbourChange>> {
        let mut changes = Vec::new();
        loop {
            let bytes = match self.socket.recv_from_full() {
                Ok((bytes, _)) => bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(changes),
                Err(error) => return Err(error),
            };
            changes.extend(messages(&bytes)?.into_iter().filter_map(|message| match message.payload {
                NetlinkPayload::InnerMessage(message) => neighbour_change(message),
                _ => None,
            }));
        }
    }
}

impl AsFd for NeighbourChanges {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The messages of one datagram.
fn messages(bytes: &[u8]) -> io::Result<Vec<NetlinkMessage<RouteNetlinkMessage>>> {
    let (mut messages, mut rest) = (Vec::new(), bytes);
    while !rest.is_empty() {
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
            .map_err(|error| io::Error::other(format!("cannot read the kernel's answer: {error}")))?;
        // Messages start at multiples of four bytes. Each step is at least four bytes long, so the loop ends.
        let length = (message.header.length as usize).next_multiple_of(4).max(4);
        rest = rest.get(length..).unwrap_or_default();
        messages.push(message);
    }
    Ok(messages)
}

fn link(message: RouteNetlinkMessage) -> Option<Link> {
    let RouteNetlinkMessage::NewLink(message) = message else { return None };
    let flags = message.header.flags;
    let mut link = Link {
        index: message.header.index,
        name: String::new(),
        mac: None,
        mtu: 0,
        is_up: flags.contains(LinkFlags::Up),
        has_carrier: flags.contains(LinkFlags::LowerUp),
        kind: None,
        xdp: None,
    };
    let is_ethernet = message.header.link_layer_type == LinkLayerType::Ether;
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::Address(mac) if is_ethernet => link.mac = mac.try_into().ok(),
            LinkAttribute::Mtu(mtu) => link.mtu = mtu,
            LinkAttribute::Xdp(all) => {
                link.xdp = all.iter().find_map(|of| match of {
                    LinkXdp::ProgId(number) if *number != 0 => Some(*number),
                    _ => None,
                });
            }
            LinkAttribute::LinkInfo(all) => {
                link.kind = all.iter().find_map(|of| match of {
                    LinkInfo::Kind(kind) => Some(kind.to_string()),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    Some(link)
}

fn address(message: RouteNetlinkMessage) -> Option<Address> {
    let RouteNetlinkMessage::NewAddress(message) = message else { return None };
    // On a point-to-point interface, the local address is ours; the other one belongs to the peer.
    let local = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    let other = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Address(address) => Some(*address),
        _ => None,
    });
    Some(Address {
        index: message.header.index,
        address: local.or(other)?,
        prefix: message.header.prefix_len,
    })
}

fn neighbour_message(index: u32, address: IpAddr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = AddressFamily::from(address);
    message.header.ifindex = index;
    message.attributes = vec![NeighbourAttribute::Destination(NeighbourAddress::from(address))];
    message
}

fn neighbour_change(message: RouteNetlinkMessage) -> Option<NeighbourChange> {
    let (message, is_gone) = match message {
        RouteNetlinkMessage::NewNeighbour(message) => (message, false),
        RouteNetlinkMessage::DelNeighbour(message) => (message, true),
        _ => return None,
    };
    let address = message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => Some(IpAddr::V4(*address)),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)) => Some(IpAddr::V6(*address)),
        _ => None,
    });
    let mac = message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(mac) => <[u8; 6]>::try_from(mac.as_slice()).ok(),
        _ => None,
    });
    let now = match (message.header.state, mac) {
        _ if is_gone => Neighbour::Unknown,
        (NeighbourState::Failed, _) => Neighbour::Failed,
        (NeighbourState::Incomplete | NeighbourState::None | NeighbourState::Other(_), _) | (_, None) => {
            Neighbour::Unknown
        }
        (state, Some(mac)) => Neighbour::Known { mac, is_set: state == NeighbourState::Permanent },
    };
    Some(NeighbourChange { index: message.header.ifindex, address: address?, now })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::LOOPBACK;

    #[test]
    fn the_loopback_interface_is_read() {
        let mut netlink = Netlink::open().unwrap();
        let links = netlink.links().unwrap();
        let loopback = links.iter().find(|link| link.index == LOOPBACK).unwrap();
        assert_eq!((loopback.name.as_str(), loopback.mac, loopback.xdp), ("lo", None, None));
        let addresses = netlink.addresses().unwrap();
        let found: Vec<&Address> = addresses.iter().filter(|address| address.index == LOOPBACK).collect();
        assert!(
            !loopback.is_up || found.iter().any(|assigned| assigned.address == IpAddr::from([127, 0, 0, 1])),
            "{found:?}"
        );
        let nobody = netlink.neighbour(LOOPBACK, IpAddr::from([192, 0, 2, 1])).unwrap();
        assert_eq!(nobody, Neighbour::Unknown);
        let mut changes = NeighbourChanges::open().unwrap();
        assert!(changes.take().unwrap().iter().all(|change| change.index > 0));
    }
}
