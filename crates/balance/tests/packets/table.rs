//! Frames whose treatment does not depend on earlier frames.

use std::{collections::BTreeSet, net::Ipv4Addr};

use balance::{Hook, Mac, Reason};

use crate::{
    frames::{
        ACK, Ends, FIN, Header, ICMP, ICMPV6, RST, SYN, TCP, UDP, ethernet, fragment_header, framed, icmp,
        ip, tcp, udp,
    },
    world::{BY_RING, BY_TURNS, Fate, OURS, ROUTER, World, from_v4, from_v6, on_both, segment, v4},
};

const TAG: (u16, u16) = (0x8100, 5);
const OUTER_TAG: (u16, u16) = (0x88a8, 7);
/// Hop-by-hop options, 8 bytes of padding.
const HOP_BY_HOP: u8 = 0;
const DESTINATION: u8 = 60;
const ROUTING: u8 = 43;
const AUTHENTICATION: u8 = 51;
const NO_NEXT: u8 = 59;

struct Case {
    name: &'static str,
    frame: Vec<u8>,
    fate: Fate,
    /// Whether it begins a flow.
    is_new: bool,
    /// The VIP and the reason that are counted.
    reason: Option<(u32, Reason)>,
}

/// A SYN that the program forwards.
fn syn(name: &'static str, frame: Vec<u8>) -> Case {
    Case { is_new: true, ..sent(name, frame) }
}

fn sent(name: &'static str, frame: Vec<u8>) -> Case {
    Case { name, frame, fate: Fate::Sent(1), is_new: false, reason: None }
}

fn passed(name: &'static str, frame: Vec<u8>) -> Case {
    Case { fate: Fate::Passed, ..sent(name, frame) }
}

fn dropped(name: &'static str, frame: Vec<u8>, reason: Reason) -> Case {
    Case { fate: Fate::Dropped, reason: Some((BY_RING, reason)), ..sent(name, frame) }
}

fn malformed(name: &'static str, frame: Vec<u8>) -> Case {
    dropped(name, frame, Reason::Malformed)
}

/// A frame that is malformed before its VIP can be read.
fn unreadable(name: &'static str, frame: Vec<u8>) -> Case {
    Case { fate: Fate::Passed, reason: Some((0, Reason::Malformed)), ..sent(name, frame) }
}

fn to_us(payload: &[u8]) -> Vec<u8> {
    ethernet(OURS, ROUTER, &[], payload)
}

fn with(ends: Ends, header: &Header) -> Vec<u8> {
    to_us(&ip(ends, TCP, header, &tcp(ends, SYN, &[], &[])))
}

fn options(next: u8, options: Vec<u8>) -> Header {
    Header { next: Some(next), options, ..Header::default() }
}

/// A chain of extension headers, each with the number of the next one.
fn extensions(numbers: &[u8]) -> Header {
    let header = |(at, number): (usize, &u8)| {
        let next = *numbers.get(at + 1).unwrap_or(&TCP);
        match *number {
            ROUTING => vec![next, 2, 4, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8],
            // The length field of this header counts words of four bytes, minus two.
            AUTHENTICATION => vec![next, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9],
            _ => vec![next, 0, 1, 4, 0, 0, 0, 0],
        }
    };
    options(numbers[0], numbers.iter().enumerate().flat_map(header).collect())
}

fn well_formed() -> Vec<Case> {
    let (four, six) = (from_v4(9, 1000, BY_RING), from_v6(9, 1000, BY_RING));
    let plain = |ends: Ends| ip(ends, TCP, &Header::default(), &tcp(ends, SYN, &[2, 4, 5, 0xb4], &[]));
    let mut padded = segment(four, SYN);
    padded.resize(60, 0xee);
    // These frames do not begin a flow, so each has a separate port.
    let other = |port, flags| segment(from_v4(9, port, BY_RING), flags);
    let data = from_v4(9, 1001, BY_RING);
    let all_headers = extensions(&[HOP_BY_HOP, DESTINATION, ROUTING, AUTHENTICATION]);
    vec![
        syn("IPv4", to_us(&plain(four))),
        syn("IPv6", to_us(&plain(six))),
        syn("IPv4, padded", padded),
        syn("IPv4, 40 bytes of options", with(four, &Header { options: vec![1; 40], ..Header::default() })),
        syn("IPv4, 4 bytes of options", with(four, &Header { options: vec![1; 4], ..Header::default() })),
        syn("IPv4, do not fragment", with(four, &Header { fragment: 0x4000, ..Header::default() })),
        syn("IPv6, hop by hop", with(six, &extensions(&[HOP_BY_HOP]))),
        syn("IPv6, routing", with(six, &extensions(&[ROUTING]))),
        syn("IPv6, destination", with(six, &extensions(&[DESTINATION]))),
        syn("IPv6, authentication", with(six, &extensions(&[AUTHENTICATION]))),
        syn("IPv6, four extension headers", with(six, &all_headers)),
        syn("IPv6, a fragment that is whole", with(six, &options(44, fragment_header(TCP, 0, false, 3)))),
        passed("IPv6, seven extension headers", with(six, &extensions(&[DESTINATION; 7]))),
        syn("VLAN, IPv4", ethernet(OURS, ROUTER, &[TAG], &plain(four))),
        syn("VLAN, IPv6", ethernet(OURS, ROUTER, &[TAG], &plain(six))),
        syn("VLAN in VLAN", ethernet(OURS, ROUTER, &[OUTER_TAG, TAG], &plain(four))),
        passed("three VLAN tags", ethernet(OURS, ROUTER, &[OUTER_TAG, TAG, TAG], &plain(four))),
        sent("data", to_us(&ip(data, TCP, &Header::default(), &tcp(data, ACK, &[], &[7; 1400])))),
        sent("RST", other(1002, RST)),
        sent("RST and ACK", other(1003, RST | ACK)),
        sent("FIN and ACK", other(1004, FIN | ACK)),
        sent("no flags", other(1005, 0)),
        sent("SYN and ACK", other(1006, SYN | ACK)),
    ]
}

fn of_others() -> Vec<Case> {
    let (four, six) = (from_v4(9, 1000, BY_RING), from_v6(9, 1000, BY_RING));
    let elsewhere = Ends { to: (Ipv4Addr::new(10, 9, 9, 9).into(), 80), ..four };
    let plain = |ends: Ends| ip(ends, TCP, &Header::default(), &tcp(ends, SYN, &[], &[]));
    let other: Mac = [2, 0, 0, 0, 0, 9];
    let arp = framed([0xff; 6], ROUTER, &[], 0x0806, &[0; 28]);
    let datagram = |ends: Ends| to_us(&ip(ends, UDP, &Header::default(), &udp(ends, b"question")));
    let echo = |ends: Ends, protocol, kind| {
        to_us(&ip(ends, protocol, &Header::default(), &icmp(kind, 0, b"payload of an echo")))
    };
    vec![
        passed("to another address", to_us(&plain(elsewhere))),
        passed("to a wrong port, IPv4", to_us(&plain(Ends { to: (four.to.0, 81), ..four }))),
        passed("to a wrong port, IPv6", to_us(&plain(Ends { to: (six.to.0, 81), ..six }))),
        passed("to another station", ethernet(other, ROUTER, &[], &plain(four))),
        passed("to all stations", ethernet([0xff; 6], ROUTER, &[], &plain(four))),
        passed("ARP", arp),
        passed("ARP to us", framed(OURS, ROUTER, &[], 0x0806, &[0; 28])),
        passed("UDP, IPv4", datagram(four)),
        passed("UDP, IPv6", datagram(six)),
        passed("ICMP echo", echo(four, ICMP, 8)),
        passed("ICMPv6 echo", echo(six, ICMPV6, 128)),
        passed("IPv6, nothing next", with(six, &extensions(&[DESTINATION, NO_NEXT]))),
        passed("a later fragment of UDP", to_us(&ip(four, UDP, &later(), b"rest"))),
        passed("a later fragment to another address", to_us(&ip(elsewhere, TCP, &later(), b"rest"))),
        dropped(
            "a later fragment without the first",
            to_us(&ip(four, TCP, &later(), b"rest")),
            Reason::NoFirstFragment,
        ),
    ]
}

fn later() -> Header {
    Header { fragment: 5, identification: 77, ..Header::default() }
}

/// ICMP errors of routers about packets that the VIP has sent to a client.
fn errors() -> Vec<Case> {
    let mut cases = Vec::new();
    let router = |to| Ends { from: (Ipv4Addr::new(10, 0, 9, 9).into(), 0), to };
    let router_six = |to| Ends { from: ("fd00:9::9".parse().unwrap(), 0), to };
    for (name, kind, code) in [
        ("fragmentation needed", 3, 4),
        ("host unreachable", 3, 1),
        ("time exceeded", 11, 0),
        ("parameter problem", 12, 0),
    ] {
        let ends = from_v4(9, 1000, BY_RING);
        let quoted = ip(ends.reversed(), TCP, &Header::default(), &tcp(ends.reversed(), ACK, &[], &[1; 600]));
        let message = icmp(kind, code, &quoted[..28]);
        let packet = ip(router(ends.to), ICMP, &Header::default(), &message);
        cases.push(sent(name, to_us(&packet)));
        if kind == 11 {
            cases.push(sent("time exceeded, VLAN", ethernet(OURS, ROUTER, &[TAG], &packet)));
        }
    }
    for (name, kind) in [("packet too big", 2), ("destination unreachable", 1), ("time exceeded, IPv6", 3)] {
        let ends = from_v6(9, 1000, BY_RING);
        let quoted = ip(ends.reversed(), TCP, &Header::default(), &tcp(ends.reversed(), ACK, &[], &[1; 900]));
        let packet = ip(router_six(ends.to), ICMPV6, &Header::default(), &icmp(kind, 0, &quoted));
        cases.push(sent(name, to_us(&packet)));
    }
    let six = from_v6(9, 1000, BY_RING);
    let quoted = ip(six.reversed(), TCP, &extensions(&[DESTINATION]), &tcp(six.reversed(), ACK, &[], &[]));
    let packet = ip(router_six(six.to), ICMPV6, &Header::default(), &icmp(2, 0, &quoted));
    cases.push(sent("packet too big, quoting extension headers", to_us(&packet)));

    let ends = from_v4(9, 1000, BY_RING);
    let about = |name, kind, quoted: &[u8], to| {
        passed(name, to_us(&ip(router(to), ICMP, &Header::default(), &icmp(kind, 4, quoted))))
    };
    let back = ends.reversed();
    let quoted = ip(back, TCP, &Header::default(), &tcp(back, ACK, &[], &[]));
    let with_options = Header { options: vec![1; 12], ..Header::default() };
    let optional = ip(back, TCP, &with_options, &tcp(back, ACK, &[], &[]));
    cases.push(Case {
        fate: Fate::Sent(1),
        ..about("an error that quotes options", 3, &optional[..40], ends.to)
    });
    cases.push(about("an error of another address", 3, &quoted, (v4(BY_TURNS), 0)));
    cases.push(about("a redirect", 5, &quoted, ends.to));
    cases.push(about("an error that quotes 7 bytes of TCP", 3, &quoted[..27], ends.to));
    let of_udp = ip(back, UDP, &Header::default(), &udp(back, b"answer"));
    cases.push(about("an error about UDP", 3, &of_udp, ends.to));
    cases.push(about("an error about a later fragment", 3, &ip(back, TCP, &later(), &[0; 8]), ends.to));
    let other_port = Ends { from: (ends.to.0, 81), ..back };
    let of_other_port = ip(other_port, TCP, &Header::default(), &tcp(other_port, ACK, &[], &[]));
    cases.push(about("an error about another port", 3, &of_other_port, ends.to));
    cases
}

fn broken() -> Vec<Case> {
    let (four, six) = (from_v4(9, 1000, BY_RING), from_v6(9, 1000, BY_RING));
    let elsewhere = Ends { to: (Ipv4Addr::new(10, 9, 9, 9).into(), 80), ..four };
    let packet = |ends: Ends, header: &Header, flags| ip(ends, TCP, header, &tcp(ends, flags, &[], &[]));
    let plain = |ends| packet(ends, &Header::default(), SYN);
    let changed = |ends: Ends, at: usize, byte: u8| {
        let mut packet = plain(ends);
        packet[at] = byte;
        to_us(&packet)
    };
    let told =
        |ends, length| to_us(&packet(ends, &Header { length: Some(length), ..Header::default() }, SYN));
    let short_segment = |ends: Ends, size: usize, header: &Header| {
        let mut frame = to_us(&ip(ends, TCP, header, &tcp(ends, SYN, &[], &[])[..size]));
        frame.resize(frame.len().max(60), 0);
        frame
    };
    let tiny = Header { fragment: 0x2000, identification: 5, ..Header::default() };
    vec![
        unreadable("IPv4, version 5", changed(four, 0, 0x55)),
        unreadable("IPv4, header of 16 bytes", changed(four, 0, 0x44)),
        unreadable("IPv4, header longer than the packet", changed(four, 0, 0x4f)),
        unreadable("IPv4, longer than the frame", told(four, 200)),
        unreadable("IPv4, shorter than its header", told(four, 19)),
        unreadable("IPv6, longer than the frame", told(six, 200)),
        unreadable("IPv6, an extension header longer than the packet", with(six, &long_extension())),
        malformed("TCP, header of 16 bytes", changed(four, 32, 0x40)),
        malformed("TCP, header longer than the packet", changed(four, 32, 0x60)),
        malformed("TCP, header of 16 bytes, IPv6", changed(six, 52, 0x40)),
        passed("TCP, header of 16 bytes, of others", changed(elsewhere, 32, 0x40)),
        malformed("TCP, 19 bytes and padding", short_segment(four, 19, &Header::default())),
        malformed("TCP, 3 bytes and padding", short_segment(four, 3, &Header::default())),
        malformed("TCP, nothing but padding", short_segment(four, 0, &Header::default())),
        malformed("TCP, 19 bytes of IPv6", short_segment(six, 19, &Header::default())),
        malformed("a first fragment with 8 bytes", short_segment(four, 8, &tiny)),
        malformed("SYN and FIN", to_us(&packet(four, &Header::default(), SYN | FIN))),
        malformed("SYN and RST", to_us(&packet(six, &Header::default(), SYN | RST))),
        unreadable("VLAN, cut off", [&OURS[..], &ROUTER, &[0x81, 0, 0]].concat()),
        unreadable(
            "VLAN in VLAN, cut off",
            [&OURS[..], &ROUTER, &[0x88, 0xa8, 0, 1, 0x81, 0, 0, 5, 8]].concat(),
        ),
    ]
}

fn long_extension() -> Header {
    options(DESTINATION, vec![TCP, 9, 1, 4, 0, 0, 0, 0])
}

/// Frames of each family, cut off after each byte, so that the header announces more bytes than the frame has.
fn cut_off() -> Vec<Case> {
    let (four, six) = (from_v4(9, 1000, BY_RING), from_v6(9, 1000, BY_RING));
    let frames = [
        with(four, &Header::default()),
        with(six, &Header::default()),
        with(six, &extensions(&[HOP_BY_HOP, ROUTING])),
    ];
    let cut =
        |frame: Vec<u8>| (14..frame.len()).map(move |size| unreadable("cut off", frame[..size].to_vec()));
    frames.into_iter().flat_map(cut).collect()
}

/// The kernel builds no packet from an IP frame that is shorter than its IP header.
fn may_come(hook: Hook, frame: &[u8]) -> bool {
    let smallest = match frame[12..] {
        [8, 0, ..] => 14 + 20,
        [0x86, 0xdd, ..] => 14 + 40,
        _ => 15,
    };
    hook == Hook::Xdp || frame.len() >= smallest
}

#[test]
fn as_root_each_frame_alone_has_its_fate() {
    on_both(|hook| {
        let world = World::with_one(hook);
        let cases: Vec<Case> =
            [well_formed(), of_others(), errors(), broken(), cut_off()].into_iter().flatten().collect();
        let kinds: BTreeSet<&str> = cases.iter().map(|case| case.name).collect();
        assert!(kinds.len() > 70, "{}", kinds.len());
        for Case { name, frame, fate, is_new, reason } in cases {
            if !may_come(hook, &frame) {
                continue;
            }
            let mut expected = world.counts();
            let met = world.run(&frame);
            assert_eq!(met, fate, "{hook:?}, {name}, {} bytes", frame.len());
            if let Fate::Sent(number) = met {
                let counts = &mut expected.servers[usize::from(number)];
                counts.packets += 1;
                counts.bytes += frame.len() as u64;
                counts.flows += u64::from(is_new);
            }
            if let Some((vip, reason)) = reason {
                expected.vips[vip as usize].0[reason as usize] += 1;
            }
            assert_eq!(world.counts(), expected, "{hook:?}, {name}");
        }
    });
}
