//! Sends and receives packets on a device without the kernel's protocols.

use std::{
    io::{self, Read},
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd},
};

use etherparse::{
    ArpHardwareId, ArpOperation, ArpPacket, EtherType, Icmpv6Type, PacketBuilder,
    icmpv6::NeighborAdvertisementHeader,
};
use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, SockFilter, Socket, Type};

use crate::{Device, Error, Mac, prober::PORTS};

/// Size of the receive buffer in bytes: room for the packets of all servers if they answer at the same time.
const RECEIVE_BYTES: usize = 4 << 20;
/// Maximum bytes of a packet that are read. Longer packets are cut off.
pub(crate) const SNAP_BYTES: usize = 2_048;

const BROADCAST: Mac = [0xff; 6];
/// The multicast group of all IPv6 nodes, as an Ethernet address (RFC 2464) and as an IPv6 address.
const ALL_NODES: Mac = [0x33, 0x33, 0, 0, 0, 1];
const ALL_NODES_ADDRESS: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// A socket for probes of one IP version.
#[derive(Debug)]
pub(crate) struct ProbeSocket {
    socket: Socket,
    index: u32,
    protocol: EtherType,
}

impl ProbeSocket {
    /// Opens a socket that receives TCP segments to the ports of probes. It sees only frames that the kernel passes to
    /// IP, so the frames that the balancer's program forwards cost nothing here.
    pub(crate) fn open(device: &Device, protocol: EtherType) -> io::Result<Self> {
        // Without a protocol, the socket receives nothing until the filter is set.
        let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(Protocol::from(0)))?;
        socket.set_nonblocking(true)?;
        let filter = if protocol == EtherType::IPV4 { filter_v4() } else { filter_v6() };
        socket.attach_filter(&filter)?;
        socket.set_recv_buffer_size(RECEIVE_BYTES)?;
        socket.bind(&address(device.index, protocol, [0; 6]))?;
        Ok(Self { socket, index: device.index, protocol })
    }

    pub(crate) fn send(&self, packet: &[u8], to: Mac) -> io::Result<()> {
        self.socket.send_to(packet, &address(self.index, self.protocol, to)).map(drop)
    }

    /// Reads a packet; none if no packet is waiting.
    pub(crate) fn receive<'b>(&self, buffer: &'b mut [u8]) -> io::Result<Option<&'b [u8]>> {
        match (&self.socket).read(buffer) {
            Ok(length) => Ok(Some(&buffer[..length])),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for ProbeSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Announces to all neighbours that a device has an address, so that they replace the address's former host: by an ARP
/// request for the own address, or by an unsolicited neighbour advertisement.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn announce(device: &Device, address_of_vip: IpAddr) -> Result<(), Error> {
    let announced = || {
        let (packet, protocol, to) = match address_of_vip {
            IpAddr::V4(vip) => (gratuitous_arp(device.mac, vip.octets())?, EtherType::ARP, BROADCAST),
            IpAddr::V6(vip) => (advertisement(device.mac, vip.octets())?, EtherType::IPV6, ALL_NODES),
        };
        let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(Protocol::from(0)))?;
        socket.send_to(&packet, &address(device.index, protocol, to)).map(drop)
    };
    announced().map_err(|error: io::Error| {
        Error::new(format!("announce {address_of_vip} on {}", device.name), &error)
    })
}

/// A gratuitous ARP request as in [RFC 5227](https://www.rfc-editor.org/rfc/rfc5227), section 3.
fn gratuitous_arp(mac: Mac, vip: [u8; 4]) -> io::Result<Vec<u8>> {
    let (hardware, protocol) = (ArpHardwareId::ETHERNET, EtherType::IPV4);
    let packet = ArpPacket::new(hardware, protocol, ArpOperation::REQUEST, &mac, &vip, &[0; 6], &vip);
    packet.map(|packet| packet.to_bytes().to_vec()).map_err(io::Error::other)
}

/// A neighbour advertisement as in [RFC 4861](https://www.rfc-editor.org/rfc/rfc4861), section 7.2.6. Its option
/// contains our MAC address.
fn advertisement(mac: Mac, vip: [u8; 16]) -> io::Result<Vec<u8>> {
    const TARGET_LINK_LAYER_ADDRESS: u8 = 2;
    let header = NeighborAdvertisementHeader { router: false, solicited: false, r#override: true };
    let mut payload = vip.to_vec();
    payload.extend([TARGET_LINK_LAYER_ADDRESS, 1]);
    payload.extend(mac);
    let mut packet = Vec::new();
    // Receivers require a hop limit of 255, so that no advertisement can have passed a router.
    let builder = PacketBuilder::ipv6(vip, ALL_NODES_ADDRESS, 255);
    let builder = builder.icmpv6(Icmpv6Type::NeighborAdvertisement(header));
    builder.write_to_vec(&mut packet, &payload).map_err(io::Error::other)?;
    Ok(packet)
}

/// The socket address of packet(7).
fn address(index: u32, protocol: EtherType, mac: Mac) -> SockAddr {
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: `sockaddr_ll` is plain numbers, one of the kernel's socket addresses, and smaller than the storage.
    let link = unsafe { storage.view_as::<libc::sockaddr_ll>() };
    link.sll_family = libc::AF_PACKET as libc::sa_family_t;
    link.sll_protocol = protocol.0.to_be();
    link.sll_ifindex = index as libc::c_int;
    link.sll_halen = mac.len() as u8;
    link.sll_addr[..mac.len()].copy_from_slice(&mac);
    // SAFETY: the storage holds a valid `sockaddr_ll`, and this is its length.
    unsafe { SockAddr::new(storage, size_of::<libc::sockaddr_ll>() as libc::socklen_t) }
}

/// Accepts IPv4 packets that contain TCP to a port of probes, except later fragments. The IP header is at offset 0.
fn filter_v4() -> Vec<SockFilter> {
    const PROTOCOL_AT: u32 = 9;
    const FRAGMENT_AT: u32 = 6;
    const FRAGMENT_OFFSET: u32 = 0x1fff;
    let mut filter = vec![
        statement(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, PROTOCOL_AT),
        jump(libc::BPF_JEQ, TCP, 0, 7),
        statement(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, FRAGMENT_AT),
        jump(libc::BPF_JSET, FRAGMENT_OFFSET, 5, 0),
        // Loads the length of the IP header.
        statement(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, 0),
        statement(libc::BPF_LD | libc::BPF_H | libc::BPF_IND, TCP_TO_AT),
    ];
    filter.extend(port_is_ours());
    filter
}

/// The same filter for IPv6 without extension headers, which answers to probes do not have.
fn filter_v6() -> Vec<SockFilter> {
    const NEXT_HEADER_AT: u32 = 6;
    const HEADER_BYTES: u32 = 40;
    let mut filter = vec![
        statement(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, NEXT_HEADER_AT),
        jump(libc::BPF_JEQ, TCP, 0, 4),
        statement(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, HEADER_BYTES + TCP_TO_AT),
    ];
    filter.extend(port_is_ours());
    filter
}

const TCP: u32 = 6;
/// The offset of the destination port in a TCP header.
const TCP_TO_AT: u32 = 2;

fn port_is_ours() -> [SockFilter; 4] {
    [
        jump(libc::BPF_JGE, u32::from(*PORTS.start()), 0, 2),
        jump(libc::BPF_JGT, u32::from(*PORTS.end()), 1, 0),
        statement(libc::BPF_RET | libc::BPF_K, SNAP_BYTES as u32),
        statement(libc::BPF_RET | libc::BPF_K, 0),
    ]
}

fn statement(code: u32, k: u32) -> SockFilter {
    SockFilter::new(code as u16, 0, 0, k)
}

/// Skips `yes` statements if the comparison holds, otherwise `no` statements.
fn jump(comparison: u32, k: u32, yes: u8, no: u8) -> SockFilter {
    SockFilter::new((libc::BPF_JMP | comparison | libc::BPF_K) as u16, yes, no, k)
}

#[cfg(test)]
mod tests {
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};

    use super::*;

    #[test]
    fn an_address_announces_itself() {
        let mac = [2, 0, 0, 0, 0, 7];
        let arp = gratuitous_arp(mac, [192, 0, 2, 100]).unwrap();
        assert_eq!(arp.len(), 28);
        assert_eq!((&arp[..8], &arp[8..14]), (&[0, 1, 8, 0, 6, 4, 0, 1][..], &mac[..]));
        assert_eq!((&arp[14..18], &arp[24..]), (&[192, 0, 2, 100][..], &[192, 0, 2, 100][..]));

        let vip: std::net::Ipv6Addr = "2001:db8::100".parse().unwrap();
        let packet = advertisement(mac, vip.octets()).unwrap();
        let sliced = SlicedPacket::from_ip(&packet).unwrap();
        let Some(NetSlice::Ipv6(ip)) = &sliced.net else { panic!("{sliced:?}") };
        assert_eq!((ip.header().source_addr(), ip.header().hop_limit()), (vip, 255));
        let Some(TransportSlice::Icmpv6(icmp)) = &sliced.transport else { panic!("{sliced:?}") };
        assert!(icmp.is_checksum_valid(ip.header().source(), ip.header().destination()));
        assert_eq!(&icmp.payload()[16..], [2, 1, 2, 0, 0, 0, 0, 7]);
    }
}
