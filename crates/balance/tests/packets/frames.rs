//! Frames, built byte by byte according to the standards, independently of the program's parser.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use balance::Mac;

pub(crate) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;
pub(crate) const ACK: u8 = 16;

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMP: u8 = 1;
pub(crate) const ICMPV6: u8 = 58;

/// Sender and receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) from: (IpAddr, u16),
    pub(crate) to: (IpAddr, u16),
}

impl Ends {
    pub(crate) fn reversed(self) -> Self {
        Self { from: self.to, to: self.from }
    }
}

/// The fields of an IP header that do not follow from its payload.
#[derive(Debug, Clone, Default)]
pub(crate) struct Header {
    /// Options of IPv4, or extension headers of IPv6 that lead to the protocol.
    pub(crate) options: Vec<u8>,
    /// The next header field of IPv6; the protocol if none.
    pub(crate) next: Option<u8>,
    pub(crate) identification: u16,
    /// Flags and fragment offset of IPv4.
    pub(crate) fragment: u16,
    /// The length field; the true length if none.
    pub(crate) length: Option<u16>,
}

pub(crate) fn ethernet(to: Mac, from: Mac, tags: &[(u16, u16)], payload: &[u8]) -> Vec<u8> {
    let kind = match payload.first().map(|byte| byte >> 4) {
        Some(6) => 0x86dd_u16,
        _ => 0x0800,
    };
    framed(to, from, tags, kind, payload)
}

pub(crate) fn framed(to: Mac, from: Mac, tags: &[(u16, u16)], kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = [to, from].concat();
    for (tag, identifier) in tags {
        frame.extend(tag.to_be_bytes());
        frame.extend(identifier.to_be_bytes());
    }
    frame.extend(kind.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A packet of either family.
pub(crate) fn ip(ends: Ends, protocol: u8, header: &Header, payload: &[u8]) -> Vec<u8> {
    match (ends.from.0, ends.to.0) {
        (IpAddr::V4(from), IpAddr::V4(to)) => ipv4(from, to, protocol, header, payload),
        (IpAddr::V6(from), IpAddr::V6(to)) => ipv6(from, to, protocol, header, payload),
        mixed => panic!("{mixed:?}"),
    }
}

fn ipv4(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, header: &Header, payload: &[u8]) -> Vec<u8> {
    let size = 20 + header.options.len();
    let total = header.length.unwrap_or((size + payload.len()) as u16);
    let mut packet = vec![0x40 | (size / 4) as u8, 0];
    packet.extend(total.to_be_bytes());
    packet.extend(header.identification.to_be_bytes());
    packet.extend(header.fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0]);
    packet.extend(from.octets());
    packet.extend(to.octets());
    packet.extend(&header.options);
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(payload);
    packet
}

fn ipv6(from: Ipv6Addr, to: Ipv6Addr, protocol: u8, header: &Header, payload: &[u8]) -> Vec<u8> {
    let length = header.length.unwrap_or((header.options.len() + payload.len()) as u16);
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([header.next.unwrap_or(protocol), 64]);
    packet.extend(from.octets());
    packet.extend(to.octets());
    packet.extend(&header.options);
    packet.extend(payload);
    packet
}

/// A fragment header of IPv6.
pub(crate) fn fragment_header(next: u8, offset: u16, has_more: bool, identification: u32) -> Vec<u8> {
    let mut header = vec![next, 0];
    header.extend((offset << 3 | u16::from(has_more)).to_be_bytes());
    header.extend(identification.to_be_bytes());
    header
}

/// A TCP segment with a correct checksum.
pub(crate) fn tcp(ends: Ends, flags: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut segment = ends.from.1.to_be_bytes().to_vec();
    segment.extend(ends.to.1.to_be_bytes());
    segment.extend(0x0102_0304_u32.to_be_bytes());
    segment.extend(0x0506_0708_u32.to_be_bytes());
    segment.extend([((20 + options.len()) as u8 / 4) << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
    segment.extend(options);
    segment.extend(payload);
    let sum = checksum(&[pseudo_header(ends, TCP, segment.len()), segment.clone()].concat());
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    segment
}

pub(crate) fn udp(ends: Ends, payload: &[u8]) -> Vec<u8> {
    let mut datagram = ends.from.1.to_be_bytes().to_vec();
    datagram.extend(ends.to.1.to_be_bytes());
    datagram.extend((8 + payload.len() as u16).to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(payload);
    datagram
}

/// An ICMP message of either family, from a router to `to`, that quotes the beginning of a packet.
pub(crate) fn icmp(kind: u8, code: u8, quoted: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, code, 0, 0, 0, 0, 5, 0xdc];
    message.extend(quoted);
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

fn pseudo_header(ends: Ends, protocol: u8, length: usize) -> Vec<u8> {
    let address = |address: IpAddr| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let mut header = [address(ends.from.0), address(ends.to.0)].concat();
    header.extend((length as u32).to_be_bytes());
    header.extend([0, 0, 0, protocol]);
    header
}

/// The sum of RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
