//! Packets with a virtio-net header: counts their segments and extracts some of them.
//!
//! With offloads on, the kernel passes super-packets: one header, up to 64 KiB of payload, and the size of the segments
//! that a network card would make of it (struct virtio_net_hdr, virtio 1.3, 5.1.6). A link loses, queues and delays
//! single segments, so this module splits super-packets as a network card does.

use std::ops::Range;

/// Bytes of the virtio-net header of every packet, without `num_buffers`.
pub(super) const VIRTIO_BYTES: usize = 10;
/// Maximum bytes of one read or write: the virtio-net header and the largest IP packet.
pub(super) const MAX_PACKET_BYTES: usize = VIRTIO_BYTES + 65_535;
/// Maximum bytes of a packet's headers: virtio-net, IPv6 with some extensions, TCP with all options.
pub(super) const MAX_HEADER_BYTES: usize = 256;

const NEEDS_CHECKSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_UDP: u8 = 5;
const GSO_ECN: u8 = 0x80;

const TCP_FIN_PSH: u8 = 0x09;
const TCP_CWR: u8 = 0x80;

/// The layout of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// Bytes of the IP and transport headers, which every segment repeats; 0 for an ordinary packet.
    header_bytes: u16,
    /// Payload bytes of every segment except the last; 0 for an ordinary packet.
    segment_bytes: u16,
    /// Offset of the transport header in the IP packet.
    transport_at: u16,
    /// Number of segments, at least 1.
    pub segments: u16,
    pub ip_bytes: u32,
    is_tcp: bool,
}

impl Layout {
    /// Reads the headers of a packet from the device; none if they are incomplete.
    pub(super) fn of(packet: &[u8]) -> Option<Self> {
        let (virtio, ip) = packet.split_first_chunk::<VIRTIO_BYTES>()?;
        if ip.is_empty() {
            return None;
        }
        let field = |at: usize| u16::from_le_bytes([virtio[at], virtio[at + 1]]);
        let single = Self::single(ip.len() as u32);
        let gso_bytes = field(4);
        let transport_at = field(6);
        let at = usize::from(transport_at);
        let header = match virtio[1] & !GSO_ECN {
            GSO_TCP4 | GSO_TCP6 => at + usize::from(ip.get(at + 12)? >> 4) * 4,
            GSO_UDP => at + 8,
            // No other offload is enabled.
            _ => return Some(single),
        };
        let is_tcp = virtio[1] & !GSO_ECN != GSO_UDP;
        let min_header = at + if is_tcp { 20 } else { 8 };
        let ip_header = if ip[0] >> 4 == 4 { usize::from(ip[0] & 15) * 4 } else { 40 };
        let is_sound = (20..=at).contains(&ip_header) && header >= min_header && header < ip.len();
        if gso_bytes == 0 || !is_sound || header + VIRTIO_BYTES > MAX_HEADER_BYTES {
            return Some(single);
        }
        let payload = ip.len() - header;
        Some(Self {
            header_bytes: header as u16,
            segment_bytes: gso_bytes,
            transport_at,
            segments: payload.div_ceil(usize::from(gso_bytes)) as u16,
            ip_bytes: ip.len() as u32,
            is_tcp,
        })
    }

    /// The layout of an ordinary packet.
    pub(super) fn single(ip_bytes: u32) -> Self {
        Self { header_bytes: 0, segment_bytes: 0, transport_at: 0, segments: 1, ip_bytes, is_tcp: false }
    }

    /// IP bytes of one segment, headers included.
    pub(super) fn segment_ip_bytes(&self, index: u16) -> u32 {
        if self.segments == 1 {
            return self.ip_bytes;
        }
        u32::from(self.header_bytes) + self.payload_of(index, 1).len() as u32
    }

    /// Sum of `bytes(n)` over `count` segments, starting with `first`; `n` is the number of IP bytes of a segment.
    pub(super) fn sum(&self, first: u16, count: u16, bytes: impl Fn(u64) -> u64) -> u64 {
        if count == 0 {
            return 0;
        }
        // All segments except the last have the same size.
        let full = u64::from(count - 1) * bytes(u64::from(self.segment_ip_bytes(first)));
        full + bytes(u64::from(self.segment_ip_bytes(first + count - 1)))
    }

    /// Range of the payload of `count` segments, starting with `first`, in the IP packet.
    fn payload_of(&self, first: u16, count: u16) -> Range<usize> {
        let at = |segment: u16| {
            let bytes = usize::from(segment) * usize::from(self.segment_bytes);
            (usize::from(self.header_bytes) + bytes).min(self.ip_bytes as usize)
        };
        at(first)..at(first + count)
    }

    /// Extracts `count` segments, starting with `first`. Writes their virtio-net, IP and transport headers to the start
    /// of `header_buffer`. Returns the number of bytes written and the range of the payload in `packet`. If all
    /// segments are requested, writes nothing and returns the whole packet.
    pub(super) fn cut(
        &self,
        packet: &[u8],
        first: u16,
        count: u16,
        header_buffer: &mut [u8; MAX_HEADER_BYTES],
    ) -> (usize, Range<usize>) {
        if count == self.segments {
            return (0, 0..packet.len());
        }
        let header_bytes = usize::from(self.header_bytes);
        let payload = self.payload_of(first, count);
        let head = VIRTIO_BYTES + header_bytes;
        header_buffer[..head].copy_from_slice(&packet[..head]);
        let (virtio, ip) = header_buffer[..head].split_at_mut(VIRTIO_BYTES);
        if count == 1 {
            virtio[1] = GSO_NONE;
            virtio[4..6].copy_from_slice(&[0, 0]);
        }
        virtio[2..4].copy_from_slice(&self.header_bytes.to_le_bytes());

        let ip_bytes = header_bytes + payload.len();
        self.rewrite_ip(ip, first, ip_bytes);
        let transport = usize::from(self.transport_at);
        let old_length = self.ip_bytes as usize - transport;
        let new_length = ip_bytes - transport;
        let checksum_at = if self.is_tcp { 16 } else { 6 };
        if self.is_tcp {
            let sequence = read_u32(ip, transport + 4);
            let skipped = u32::from(first) * u32::from(self.segment_bytes);
            ip[transport + 4..transport + 8].copy_from_slice(&sequence.wrapping_add(skipped).to_be_bytes());
            if first + count < self.segments {
                ip[transport + 13] &= !TCP_FIN_PSH;
            }
            if first > 0 {
                ip[transport + 13] &= !TCP_CWR;
            }
        } else {
            ip[transport + 4..transport + 6].copy_from_slice(&(new_length as u16).to_be_bytes());
        }
        if virtio[0] & NEEDS_CHECKSUM != 0 {
            // The field contains only the sum over the pseudo-header, in which only the length changes.
            let at = transport + checksum_at;
            let sum = u32::from(read_u16(ip, at)) + u32::from(!(old_length as u16)) + new_length as u32;
            ip[at..at + 2].copy_from_slice(&fold(sum).to_be_bytes());
        }
        (head, payload.start + VIRTIO_BYTES..payload.end + VIRTIO_BYTES)
    }

    fn rewrite_ip(&self, ip: &mut [u8], first: u16, ip_bytes: usize) {
        if ip[0] >> 4 == 4 {
            let header = usize::from(ip[0] & 15) * 4;
            let identification = read_u16(ip, 4).wrapping_add(first);
            ip[2..4].copy_from_slice(&(ip_bytes as u16).to_be_bytes());
            ip[4..6].copy_from_slice(&identification.to_be_bytes());
            ip[10..12].copy_from_slice(&[0, 0]);
            let checksum = !checksum(&ip[..header]);
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        } else {
            ip[4..6].copy_from_slice(&((ip_bytes - 40) as u16).to_be_bytes());
        }
    }
}

fn read_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The ones' complement sum of RFC 1071, before the final complement.
fn checksum(bytes: &[u8]) -> u16 {
    let pairs = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    fold(pairs.sum())
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TCP: u8 = 6;
    const UDP: u8 = 17;

    fn pseudo_sum(ip: &[u8], protocol: u8, length: usize) -> u32 {
        let addresses = if ip[0] >> 4 == 4 { &ip[12..20] } else { &ip[8..40] };
        u32::from(checksum(addresses)) + u32::from(protocol) + length as u32
    }

    /// A super-packet from the kernel, whose checksum is incomplete.
    fn super_packet(is_v6: bool, protocol: u8, payload: usize, segment: u16, flags: u8) -> Vec<u8> {
        let ip_header = if is_v6 { 40 } else { 20 };
        let transport_header = if protocol == TCP { 32 } else { 8 };
        let length = transport_header + payload;
        let mut ip = vec![0; ip_header + length];
        let total = ip.len();
        if is_v6 {
            ip[0] = 0x60;
            ip[4..6].copy_from_slice(&(length as u16).to_be_bytes());
            ip[6] = protocol;
            ip[8..40].iter_mut().enumerate().for_each(|(i, byte)| *byte = i as u8 + 1);
        } else {
            ip[..10].copy_from_slice(&[
                0x45,
                0,
                (total >> 8) as u8,
                total as u8,
                0xff,
                0xfe,
                0x40,
                0,
                64,
                protocol,
            ]);
            ip[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 200, 0, 2]);
            let sum = !checksum(&ip[..20]);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        let sum = fold(pseudo_sum(&ip, protocol, length));
        let transport = &mut ip[ip_header..];
        if protocol == TCP {
            transport[4..8].copy_from_slice(&0xffff_fff0_u32.to_be_bytes());
            transport[12] = 8 << 4;
            transport[13] = flags;
            transport[16..18].copy_from_slice(&sum.to_be_bytes());
        } else {
            transport[4..6].copy_from_slice(&(length as u16).to_be_bytes());
            transport[6..8].copy_from_slice(&sum.to_be_bytes());
        }
        let body = &mut transport[transport_header..];
        body.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * 7 + i / 251) as u8);
        let gso = match protocol {
            UDP => GSO_UDP,
            _ if is_v6 => GSO_TCP6,
            _ => GSO_TCP4,
        };
        let at = ip_header as u16;
        let mut packet = vec![NEEDS_CHECKSUM, gso];
        for field in [at + transport_header as u16, segment, at, if protocol == TCP { 16 } else { 6 }] {
            packet.extend(field.to_le_bytes());
        }
        packet.extend(ip);
        packet
    }

    fn cut(packet: &[u8], layout: Layout, first: u16, count: u16) -> Vec<u8> {
        let mut header_buffer = [0; MAX_HEADER_BYTES];
        let (head, payload) = layout.cut(packet, first, count, &mut header_buffer);
        [&header_buffer[..head], &packet[payload]].concat()
    }

    /// Completes the checksum of the packet and verifies it as a receiver does.
    fn is_sound(packet: &[u8], protocol: u8) -> bool {
        let field = |at: usize| usize::from(u16::from_le_bytes([packet[at], packet[at + 1]]));
        let (start, offset) = (field(6), field(8));
        let mut ip = packet[VIRTIO_BYTES..].to_vec();
        let sum = !checksum(&ip[start..]);
        ip[start + offset..start + offset + 2].copy_from_slice(&sum.to_be_bytes());
        let length = ip.len() - start;
        let whole = pseudo_sum(&ip, protocol, length) + u32::from(checksum(&ip[start..]));
        let stated =
            if ip[0] >> 4 == 4 { usize::from(read_u16(&ip, 2)) } else { 40 + usize::from(read_u16(&ip, 4)) };
        let header_is_sound = ip[0] >> 4 == 6 || checksum(&ip[..20]) == 0xffff;
        fold(whole) == 0xffff && stated == ip.len() && header_is_sound
    }

    #[test]
    fn an_ordinary_packet_is_one_segment_and_stays_as_it_is() {
        let mut packet = vec![0; VIRTIO_BYTES];
        packet.extend([0x45; 60]);
        let layout = Layout::of(&packet).unwrap();
        assert_eq!((layout.segments, layout.ip_bytes, layout.segment_ip_bytes(0)), (1, 60, 60));
        assert_eq!(cut(&packet, layout, 0, 1), packet);
        assert_eq!(Layout::of(&packet[..VIRTIO_BYTES]), None);
        assert_eq!(Layout::of(&[]), None);
    }

    #[test]
    fn wire_bytes_are_those_of_the_segments() {
        // A network card would send 44 segments with 1,448 bytes of payload and a last one with 100 bytes.
        let packet = super_packet(false, TCP, 44 * 1_448 + 100, 1_448, 0x18);
        let layout = Layout::of(&packet).unwrap();
        assert_eq!(layout.segments, 45);
        let wire = |ip: u64| ip.max(46) + 38;
        assert_eq!(layout.sum(0, 45, wire), 44 * 1_538 + 100 + 52 + 38);
        assert_eq!(layout.sum(43, 2, wire), 1_538 + 190);
        assert_eq!(layout.sum(3, 0, wire), 0);
    }

    #[test]
    fn flags_stay_where_a_card_would_put_them() {
        let packet = super_packet(false, TCP, 3_000, 1_000, 0x99); // CWR, ACK, PSH, FIN
        let layout = Layout::of(&packet).unwrap();
        let flags = |first| cut(&packet, layout, first, 1)[VIRTIO_BYTES + 20 + 13];
        assert_eq!((flags(0), flags(1), flags(2)), (0x90, 0x10, 0x19));
        let middle = cut(&packet, layout, 1, 1);
        assert_eq!(read_u32(&middle[VIRTIO_BYTES..], 24), 0xffff_fff0_u32.wrapping_add(1_000));
        assert_eq!(read_u16(&middle[VIRTIO_BYTES..], 4), 0xffff);
        assert_eq!((middle[1], middle[4], middle[5]), (GSO_NONE, 0, 0));
    }

    proptest! {
        #[test]
        fn cuts_are_sound_and_hold_the_payload(
            is_v6: bool, is_tcp: bool, payload in 1_usize..60_000, segment in 64_u16..9_000,
            first: prop::sample::Index, count: prop::sample::Index,
        ) {
            let protocol = if is_tcp { TCP } else { UDP };
            let packet = super_packet(is_v6, protocol, payload, segment, 0x18);
            let layout = Layout::of(&packet).unwrap();
            prop_assume!(layout.segments > 1);
            let first = first.index(usize::from(layout.segments)) as u16;
            let count = count.index(usize::from(layout.segments - first)) as u16 + 1;
            let part = cut(&packet, layout, first, count);
            prop_assert!(is_sound(&part, protocol));
            let again = Layout::of(&part).unwrap();
            prop_assert_eq!(again.segments, count);
            prop_assert_eq!(u64::from(again.ip_bytes) + u64::from(count - 1) * u64::from(layout.header_bytes),
                layout.sum(first, count, |ip| ip));
            let head = VIRTIO_BYTES + usize::from(layout.header_bytes);
            let from = usize::from(first) * usize::from(segment);
            let to = (from + usize::from(count) * usize::from(segment)).min(payload);
            prop_assert_eq!(&part[head..], &packet[head..][from..to]);
        }

        #[test]
        fn no_bytes_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..200),
            gso in prop::sample::select(vec![GSO_TCP4, GSO_TCP6, GSO_UDP, 0x81, 9]), at in 0_u8..70,
        ) {
            if let Some(virtio) = bytes.first_chunk_mut::<VIRTIO_BYTES>() {
                (virtio[1], virtio[5], virtio[6], virtio[7]) = (gso, 0, at, 0);
            }
            if let Some(layout) = Layout::of(&bytes) {
                let mut header_buffer = [0; MAX_HEADER_BYTES];
                for first in 0..layout.segments.min(4) {
                    let _ = layout.cut(&bytes, first, 1, &mut header_buffer);
                }
            }
        }
    }
}
