//! Fragments reach the server of the first fragment.

use balance::Reason;

use crate::{
    frames::{ACK, Ends, Header, SYN, TCP, ethernet, fragment_header, ip, tcp},
    world::{BY_RING, BY_TURNS, Fate, OURS, ROUTER, World, from_v4, from_v6, on_both},
};

/// A segment in fragments of 64 bytes. The first one contains the TCP header.
fn fragments(ends: Ends, identification: u16) -> Vec<Vec<u8>> {
    let segment = tcp(ends, ACK, &[], &[5; 180]);
    let mut frames = Vec::new();
    for (at, part) in segment.chunks(64).enumerate() {
        let (offset, has_more) = (at as u16 * 8, (at + 1) * 64 < segment.len());
        let header = if ends.from.0.is_ipv4() {
            let fragment = offset | if has_more { 0x2000 } else { 0 };
            Header { identification, fragment, ..Header::default() }
        } else {
            let options = fragment_header(TCP, offset, has_more, identification.into());
            Header { next: Some(44), options, ..Header::default() }
        };
        frames.push(ethernet(OURS, ROUTER, &[], &ip(ends, TCP, &header, part)));
    }
    frames
}

#[test]
fn as_root_later_fragments_follow_the_first() {
    on_both(|hook| {
        let world = World::new(hook);
        // These packets use round robin, because the ring alone would send some of them to other servers.
        for (at, ends) in (0..4)
            .flat_map(|port| [from_v4(1, 5000 + port, BY_TURNS), from_v6(1, 5000 + port, BY_TURNS)])
            .enumerate()
        {
            let number = world.open(ends);
            let frames = fragments(ends, at as u16);
            assert_eq!(frames.len(), 4);
            for frame in &frames {
                assert_eq!(world.run(frame), Fate::Sent(number), "{ends:?}");
            }
            for frame in fragments(ends, at as u16 + 100).iter().skip(1) {
                assert_eq!(world.run(frame), Fate::Dropped, "its first fragment has not come");
            }
        }
        assert_eq!(world.reasons(BY_TURNS, Reason::NoFirstFragment), 8 * 3);
    });
}

#[test]
fn as_root_a_first_fragment_chooses_as_a_whole_packet_does() {
    on_both(|hook| {
        let world = World::new(hook);
        for ends in [from_v4(1, 5000, BY_RING), from_v6(1, 5000, BY_RING)] {
            let Fate::Sent(number) = world.segment(ends, SYN) else { panic!("not sent") };
            let frames = fragments(ends, 9);
            assert_eq!(world.run(&frames[1]), Fate::Dropped, "before the first");
            assert_eq!(world.run(&frames[0]), Fate::Sent(number));
            assert_eq!(world.run(&frames[1]), Fate::Sent(number));
        }
    });
}
