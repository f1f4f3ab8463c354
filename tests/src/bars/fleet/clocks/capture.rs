//! Requests in a file of captured frames, in pcap's format.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
};

use anyhow::{Context, Result, ensure};

/// The first bytes of a file with times in microseconds, whose machine has the least significant byte first.
const MAGIC: [u8; 4] = 0xa1b2_c3d4_u32.to_le_bytes();
const FILE_HEAD: usize = 24;
const FRAME_HEAD: usize = 16;
const ETHERNET_HEAD: usize = 14;
const TCP: u8 = 6;
const SYN: u8 = 2;

/// A frame with a part of TCP.
struct Segment {
    at_ns: u64,
    from: (Ipv4Addr, u16),
    to: (Ipv4Addr, u16),
    is_syn: bool,
    has_data: bool,
}

/// When the first data of each connection to `to` came, by the address that they came from, in order, in nanoseconds.
pub(super) fn first_data(capture: &[u8], to: (Ipv4Addr, u16)) -> Result<BTreeMap<Ipv4Addr, Vec<u64>>> {
    ensure!(capture.starts_with(&MAGIC), "it is no capture: {:?}", capture.get(..FILE_HEAD));
    let (mut rest, mut begun) = (capture.get(FILE_HEAD..).unwrap_or_default(), BTreeSet::new());
    let mut all: BTreeMap<Ipv4Addr, Vec<u64>> = BTreeMap::new();
    while !rest.is_empty() {
        let (head, after) = rest.split_at_checked(FRAME_HEAD).context("half a frame")?;
        let [seconds, micros, length] = [0, 4, 8].map(|at| number(head, at));
        let (frame, after) = after.split_at_checked(length as usize).context("half a frame")?;
        rest = after;
        let at_ns = u64::from(seconds) * 1_000_000_000 + u64::from(micros) * 1_000;
        let Some(segment) = segment(frame, at_ns).filter(|segment| segment.to == to) else { continue };
        if segment.is_syn {
            // The port may have been that of an earlier connection.
            begun.remove(&segment.from);
        } else if segment.has_data && begun.insert(segment.from) {
            all.entry(segment.from.0).or_default().push(segment.at_ns);
        }
    }
    Ok(all)
}

/// The part of TCP in a frame; none if it has none.
fn segment(frame: &[u8], at_ns: u64) -> Option<Segment> {
    let packet = frame.strip_prefix(frame.get(..ETHERNET_HEAD)?).filter(|_| frame[12..14] == [8, 0])?;
    let ip_head = usize::from(packet.first()? & 15) * 4;
    let tcp = packet.get(ip_head..).filter(|_| packet.get(9) == Some(&TCP))?;
    let short = |bytes: &[u8], at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    let address = |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?));
    let tcp_head = usize::from(tcp.get(12)? >> 4) * 4;
    Some(Segment {
        at_ns,
        from: (address(12)?, short(tcp, 0)?),
        to: (address(16)?, short(tcp, 2)?),
        is_syn: tcp.get(13)? & SYN != 0,
        has_data: usize::from(short(packet, 2)?) > ip_head + tcp_head,
    })
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame from 10.9.0.NUMBER:PORT to 10.9.0.3:80 with these flags and so many bytes of data, of which none was kept.
    fn frame(at_us: u32, number: u8, port: u8, flags: u8, data: u8) -> Vec<u8> {
        let mut frame = vec![0; ETHERNET_HEAD];
        frame[12] = 8;
        frame.extend([0x45, 0, 0, 40 + data, 0, 0, 0, 0, 64, TCP, 0, 0, 10, 9, 0, number, 10, 9, 0, 3]);
        frame.extend([0, port, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0]);
        let length = frame.len() as u32;
        let head = [1, at_us, length, length + u32::from(data)].map(u32::to_le_bytes).concat();
        [head, frame].concat()
    }

    #[test]
    fn only_the_first_data_of_a_connection_counts() {
        let mut capture = MAGIC.to_vec();
        capture.resize(FILE_HEAD, 0);
        for (at_us, number, port, flags, data) in [
            (1, 1, 7, SYN, 0),
            (2, 1, 7, 16, 0),
            (3, 1, 7, 24, 50),
            (4, 2, 9, 24, 50),
            // Sent again, and then a connection with the same port.
            (5, 1, 7, 24, 50),
            (6, 1, 7, SYN, 0),
            (7, 1, 7, 24, 50),
        ] {
            capture.extend(frame(at_us, number, port, flags, data));
        }
        let to = (Ipv4Addr::new(10, 9, 0, 3), 80);
        let found = first_data(&capture, to).unwrap();
        let at = |number, times: &[u64]| {
            let times = times.iter().map(|us| 1_000_000_000 + us * 1_000).collect();
            (Ipv4Addr::new(10, 9, 0, number), times)
        };
        assert_eq!(found, BTreeMap::from([at(1, &[3, 7]), at(2, &[4])]));
        assert!(first_data(&capture, (to.0, 81)).unwrap().is_empty());
        assert!(first_data(&capture[..capture.len() - 1], to).is_err());
        assert!(first_data(b"text", to).is_err());
    }
}
