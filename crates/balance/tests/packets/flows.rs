//! The frames of a connection while servers and rings change, and during a flood.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use balance::{FlowKey, Reason, ServerEntry, State};
use clock::monotonic_ns;
use testing::{PATIENCE, find};

use crate::{
    frames::{ACK, Ends, FIN, Header, ICMP, RST, SYN, TCP, ethernet, icmp, ip, tcp},
    world::{
        BY_RING, BY_RING_PERSISTENT, BY_TURNS, BY_TURNS_PERSISTENT, Fate, OURS, ROUTER, World, from_v4,
        from_v6, mac, on_both, servers_of, v4,
    },
};

/// Whether a ring changed less than the duration of a handshake ago.
const WITHIN: bool = true;
const AFTER: bool = false;

fn key(ends: Ends) -> FlowKey {
    FlowKey { client: ends.from, vip: ends.to }
}

fn on_both_worlds(test: impl Fn(World)) {
    on_both(|hook| test(World::new(hook)));
}

#[test]
fn as_root_a_flow_of_the_ring_is_remembered_once_it_goes_on() {
    on_both_worlds(|world| {
        for ends in [from_v4(1, 5000, BY_RING), from_v6(1, 5000, BY_RING)] {
            let Fate::Sent(number) = world.segment(ends, SYN) else { panic!("not sent") };
            assert_eq!(world.table.pending(&key(ends)).unwrap(), None, "a SYN leaves no trace");
            assert_eq!(world.segment(ends, ACK), Fate::Sent(number));
            assert_eq!(world.table.pending(&key(ends)).unwrap(), Some(number));
            assert_eq!(world.table.flow(&key(ends)).unwrap(), None);
            let before = world.table.server_counts(number).unwrap();
            assert_eq!(world.segment(ends, ACK), Fate::Sent(number));
            assert_eq!(world.table.pending(&key(ends)).unwrap(), None);
            let flow = world.table.flow(&key(ends)).unwrap().unwrap();
            assert_eq!((flow.server, flow.generation, flow.is_closing, flow.sweep), (number, 1, false, 1));
            let counts = world.table.server_counts(number).unwrap();
            assert_eq!(counts.established, before.established + 1);

            world.close(ends);
            assert!(world.table.flow(&key(ends)).unwrap().unwrap().is_closing);
            assert_eq!(world.segment(ends, ACK), Fate::Sent(number), "the last ACK follows");
            assert_eq!(world.segment(ends, SYN), Fate::Sent(number), "a new connection of the same port");
            assert_eq!(world.table.flow(&key(ends)).unwrap(), None, "the end of the first is forgotten");
            assert_eq!(world.table.server_counts(number).unwrap().flows, counts.flows + 1);
        }
        let all: BTreeSet<_> = (0..50).map(|port| world.open(from_v4(2, 6000 + port, BY_RING))).collect();
        assert_eq!(all.len(), servers_of(BY_RING).len(), "the ring has all servers");
        assert_eq!(world.table.flows().count(), 50);
    });
}

#[test]
fn as_root_turns_are_taken_by_connections_and_kept_by_handshakes() {
    on_both_worlds(|world| {
        let servers: Vec<u16> = servers_of(BY_TURNS).collect();
        for at in 0..6_u16 {
            let ends = from_v4(1, 5000 + at, BY_TURNS);
            let number = servers[usize::from(at) % servers.len()];
            let before = world.table.server_counts(number).unwrap();
            assert_eq!(world.segment(ends, SYN), Fate::Sent(number));
            assert_eq!(world.table.pending(&key(ends)).unwrap(), Some(number));
            assert_eq!(world.segment(ends, SYN), Fate::Sent(number), "a repeated SYN takes no turn");
            assert_eq!(world.table.server_counts(number).unwrap().flows, before.flows + 1);
            assert_eq!(world.segment(ends, ACK), Fate::Sent(number));
            assert_eq!(
                world.table.flow(&key(ends)).unwrap().unwrap().server,
                number,
                "the first ACK is enough"
            );
            assert_eq!(world.table.pending(&key(ends)).unwrap(), None);
        }
        let reset = from_v4(1, 5000, BY_TURNS);
        world.reset(reset);
        assert_eq!(
            world.segment(reset, SYN),
            Fate::Sent(servers[0]),
            "after a reset, the next turn: all had two"
        );
    });
}

#[test]
fn as_root_a_forged_end_moves_no_connection_that_goes_on() {
    on_both_worlds(|world| {
        let data = |ends| {
            let tcp = tcp(ends, ACK, &[], b"GET");
            world.run(&ethernet(OURS, ROUTER, &[], &ip(ends, TCP, &Header::default(), &tcp)))
        };
        let is_closing = |ends| world.table.flow(&key(ends)).unwrap().map(|flow| flow.is_closing);
        // The outcome is certain only within a second of the end, so a slower run proves nothing.
        let mut ports = 5000..;
        let soon = || {
            let ends = from_v4(1, ports.next().unwrap(), BY_TURNS);
            let number = world.open(ends);
            let begun = Instant::now();
            world.reset(ends);
            let mut kept = is_closing(ends) == Some(true);
            // Data that was sent before the reset may arrive after it.
            kept &= data(ends) == Fate::Sent(number) && is_closing(ends) == Some(true);
            // The repeated SYN takes no turn of round robin. The flow is established again.
            let counted = || world.table.server_counts(number).unwrap().kept;
            let before = counted();
            kept &= world.segment(ends, SYN) == Fate::Sent(number) && counted() == before + 1;
            kept &= data(ends) == Fate::Sent(number) && is_closing(ends) == Some(false);
            (begun.elapsed() < Duration::from_millis(700)).then_some(kept)
        };
        assert_eq!(find(PATIENCE, soon), Some(true), "a reset connection has moved at once");

        // From here on, packets come more than one second after the reset.
        let all @ [late, silent, ended] = [1, 2, 3].map(|more| from_v4(2, 5000 + more, BY_TURNS));
        let numbers = all.map(|ends| world.open(ends));
        all.iter().for_each(|ends| world.reset(*ends));
        std::thread::sleep(Duration::from_millis(1_300));
        assert_eq!(data(late), Fate::Sent(numbers[0]));
        assert_eq!(is_closing(late), Some(true), "it may have been lost before");
        std::thread::sleep(Duration::from_millis(1_300));
        assert_eq!(data(late), Fate::Sent(numbers[0]));
        assert_eq!(is_closing(late), Some(false), "who has ended sends nothing");
        assert_eq!(world.segment(late, SYN), Fate::Sent(numbers[0]));
        assert_eq!(world.segment(silent, ACK), Fate::Sent(numbers[1]));
        assert_eq!(is_closing(silent), Some(true), "the last ACK is no data");
        let Fate::Sent(next) = world.segment(ended, SYN) else { panic!("not sent") };
        let Fate::Sent(after) = world.segment(silent, SYN) else { panic!("not sent") };
        assert_ne!(next, after, "new connections take turns");
    });
}

#[test]
fn as_root_handshakes_under_way_keep_the_former_ring() {
    on_both_worlds(|mut world| {
        let old = from_v4(1, 5000, BY_RING);
        world.change(BY_RING, 1, 1, AFTER);
        assert_eq!(world.open(old), 1);
        world.change(BY_RING, 1, 2, WITHIN);
        assert_eq!(world.segment(old, ACK), Fate::Sent(1), "an established flow stays");
        for ends in [from_v4(1, 5001, BY_RING), from_v6(1, 5001, BY_RING)] {
            assert_eq!(world.segment(ends, ACK), Fate::Sent(1), "its SYN went before the change");
        }
        let new = from_v4(1, 5002, BY_RING);
        assert_eq!(world.segment(new, SYN), Fate::Sent(2), "a new flow goes by the new ring");
        assert_eq!(world.table.pending(&key(new)).unwrap(), Some(2));
        assert_eq!(world.segment(new, ACK), Fate::Sent(2), "and so does its ACK");

        world.change(BY_RING, 1, 2, AFTER);
        assert_eq!(world.segment(old, ACK), Fate::Sent(1), "an established flow stays");
        assert_eq!(
            world.segment(from_v4(1, 5003, BY_RING), ACK),
            Fate::Sent(2),
            "no handshake takes that long"
        );
        let later = from_v4(1, 5004, BY_RING);
        assert_eq!(world.segment(later, SYN), Fate::Sent(2));
        assert_eq!(world.table.pending(&key(later)).unwrap(), None);

        world.change(BY_RING, 1, 2, WITHIN);
        world.set_state(1, State::DEAD);
        assert_eq!(world.segment(from_v4(1, 5005, BY_RING), ACK), Fate::Sent(2), "the former server is dead");
    });
}

#[test]
fn as_root_a_server_that_takes_no_new_flows_keeps_its_own() {
    on_both_worlds(|mut world| {
        let mut port = 5000;
        for (vip, state, reason) in [
            (BY_RING, State::FULL, Reason::AllFull),
            (BY_RING, State::DRAINING, Reason::AllFull),
            (BY_TURNS, State::FULL | State::DRAINING, Reason::AllFull),
            (BY_RING, State::FAILING, Reason::NoServer),
            (BY_TURNS, State::FAILING | State::FULL, Reason::NoServer),
        ] {
            for number in servers_of(vip) {
                world.set_state(number, State::UP);
            }
            port += 100;
            let first = from_v4(1, port, vip);
            let number = world.open(first);
            world.set_state(number, state);
            assert_eq!(world.segment(first, ACK), Fate::Sent(number), "an established flow stays");
            for at in 1..60 {
                let ends = from_v4(2, port + at, vip);
                let Fate::Sent(other) = world.segment(ends, SYN) else { panic!("not sent") };
                assert_ne!(other, number);
                assert_eq!(world.segment(ends, ACK), Fate::Sent(other), "the ACK goes where the SYN went");
            }
            let unknown: BTreeSet<_> = (1..60)
                .map(|at| world.segment(from_v4(3, port + at, BY_RING), ACK) == Fate::Sent(number))
                .collect();
            assert!(vip != BY_RING || unknown.contains(&true), "flows that are not remembered stay, too");

            servers_of(vip).for_each(|number| world.set_state(number, state));
            let before = world.reasons(vip, reason);
            assert_eq!(world.segment(from_v4(4, port, vip), SYN), Fate::Dropped);
            assert_eq!(world.reasons(vip, reason), before + 1);
            assert_eq!(world.segment(first, ACK), Fate::Sent(number), "still");
        }
    });
}

#[test]
fn as_root_flows_of_a_dead_server_go_on_elsewhere_or_wait() {
    on_both_worlds(|mut world| {
        let ends = from_v4(1, 5000, BY_RING);
        let number = world.open(ends);
        assert!(!world.table.flow(&key(ends)).unwrap().unwrap().is_closing);
        world.set_state(number, State::DEAD);
        let Fate::Sent(other) = world.segment(ends, ACK) else { panic!("not sent") };
        assert_ne!(other, number);
        let flow = world.table.flow(&key(ends)).unwrap().unwrap();
        assert_eq!((flow.server, flow.is_closing), (number, true), "the dead server has lost it");
        assert_eq!(world.segment(ends, ACK), Fate::Sent(other));
        let flow = world.table.flow(&key(ends)).unwrap().unwrap();
        assert_eq!((flow.server, flow.is_closing), (other, false));
        for at in 1..60 {
            let sent = world.segment(from_v4(1, 5000 + at, BY_RING), SYN);
            assert!(matches!(sent, Fate::Sent(new) if new != number), "{sent:?}");
        }

        let waiting = from_v4(1, 6000, BY_TURNS);
        let number = world.open(waiting);
        world.set_state(number, State::HELD);
        assert_eq!(world.segment(waiting, ACK), Fate::Dropped);
        assert_eq!(world.reasons(BY_TURNS, Reason::Waits), 1);
        let new = world.segment(from_v4(1, 6001, BY_TURNS), SYN);
        assert!(matches!(new, Fate::Sent(new) if new != number), "{new:?}");
        world.set_state(number, State::UP);
        assert_eq!(world.segment(waiting, ACK), Fate::Sent(number), "it has waited");

        servers_of(BY_TURNS).for_each(|number| world.set_state(number, State::DEAD));
        assert_eq!(world.segment(from_v4(1, 6002, BY_TURNS), SYN), Fate::Dropped);
        assert_eq!(world.segment(waiting, ACK), Fate::Dropped);
        assert_eq!(world.reasons(BY_TURNS, Reason::NoServer), 2);
    });
}

#[test]
fn as_root_the_last_server_that_lives_is_found_however_few_turns_are_its_own() {
    on_both_worlds(|mut world| {
        let all = |count: u16| (1..=count).map(|number| (number, 1)).collect::<Vec<_>>();
        for (servers, last) in [(vec![(1, 100), (2, 1)], 2), (all(25), 17), (all(3_000), 2_500)] {
            for vip in [BY_RING, BY_TURNS] {
                world.set_servers(vip, &servers);
                for (number, _) in servers.iter().filter(|(number, _)| *number != last) {
                    world.set_state(*number, State::DEAD);
                }
                for at in 0..100 {
                    let ends = from_v4(1, 5_000 + at, vip);
                    for flags in [SYN, ACK] {
                        assert_eq!(world.segment(ends, flags), Fate::Sent(last), "{} servers", servers.len());
                    }
                    world.reset(ends);
                    let unknown = from_v4(2, 5_000 + at, vip);
                    assert_eq!(world.segment(unknown, ACK), Fate::Sent(last), "{} servers", servers.len());
                }
                world.set_state(last, State::DEAD);
                let before = world.reasons(vip, Reason::NoServer);
                assert_eq!(world.segment(from_v4(3, 5_000, vip), SYN), Fate::Dropped);
                assert_eq!(world.reasons(vip, Reason::NoServer), before + 1);
            }
        }
    });
}

#[test]
fn as_root_a_number_given_to_another_server_does_not_inherit_flows() {
    on_both_worlds(|mut world| {
        let ends = from_v4(1, 5000, BY_TURNS);
        let number = world.open(ends);
        world.table.set_server(number, None).unwrap();
        let Fate::Sent(other) = world.segment(ends, ACK) else { panic!("not sent") };
        assert_ne!(other, number);
        let entry = ServerEntry { mac: mac(number), state: State::UP, generation: 2, vip: BY_TURNS };
        world.table.set_server(number, Some(&entry)).unwrap();
        assert_eq!(world.segment(ends, ACK), Fate::Sent(other), "it has got another server meanwhile");
    });
}

/// Number of packets of a flood, each of another connection.
const FLOOD: u64 = 1_000;

/// Sends a flood. Returns the maximum number of budget periods that it may have touched.
fn flood(world: &World, from: u8, vip: u32, flags: u8) -> u64 {
    let period = || monotonic_ns() >> 30;
    let begun = period();
    for port in 1..=FLOOD as u16 {
        let sent = world.segment(from_v4(from, port, vip), flags);
        assert!(matches!(sent, Fate::Sent(_)), "{sent:?}");
    }
    // At the beginning, the program's clock may be a tick behind.
    period() - begun + 2
}

fn remembered(world: &World, from: u8, vip: u32) -> u64 {
    let is_remembered = |port: &u16| world.table.pending(&key(from_v4(from, *port, vip))).unwrap().is_some();
    (1..=FLOOD as u16).filter(is_remembered).count() as u64
}

#[test]
fn as_root_a_flood_leaves_established_flows_whole_and_is_counted() {
    on_both_worlds(|mut world| {
        let kept: Vec<_> = (0..20).map(|at| from_v4(1, 5000 + at, BY_TURNS)).collect();
        let servers: Vec<u16> = kept.iter().map(|ends| world.open(*ends)).collect();
        world.set_budget(100);
        let periods = flood(&world, 9, BY_TURNS, SYN);
        let kept_syns = remembered(&world, 9, BY_TURNS);
        assert!((1..=50 * periods).contains(&kept_syns), "{kept_syns} in {periods} periods");
        assert_eq!(world.reasons(BY_TURNS, Reason::SynNotRemembered), FLOOD - kept_syns);
        let during = from_v4(2, 5000, BY_TURNS);
        let Fate::Sent(number) = world.segment(during, SYN) else { panic!("not sent") };
        assert_eq!(
            world.segment(during, ACK),
            Fate::Sent(number),
            "a connection opens while the flood goes on"
        );

        let periods = flood(&world, 10, BY_RING, ACK);
        let kept_acks = remembered(&world, 10, BY_RING);
        assert!((1..=50 * periods).contains(&kept_acks), "{kept_acks} in {periods} periods");
        assert_eq!(world.reasons(BY_RING, Reason::AckNotRemembered), FLOOD - kept_acks);
        flood(&world, 11, BY_RING, SYN);
        assert_eq!(world.reasons(BY_RING, Reason::SynNotRemembered), 0, "the ring remembers no SYN");

        for (ends, number) in kept.iter().zip(servers) {
            assert_eq!(world.segment(*ends, ACK), Fate::Sent(number));
        }
        let strange = world.table.flows().filter(|(flow, _)| !kept.iter().any(|ends| key(*ends) == *flow));
        assert!(strange.count() <= 1, "nothing of a flood is established");
    });
}

#[test]
fn as_root_a_flood_of_acks_leaves_handshakes_their_budget_and_is_held_up() {
    on_both_worlds(|mut world| {
        world.set_budget(100);
        flood(&world, 9, BY_RING, ACK);
        for port in 5_000..5_010 {
            let ends = from_v4(1, port, BY_TURNS);
            let Fate::Sent(number) = world.segment(ends, SYN) else { panic!("not sent") };
            assert_eq!(world.table.pending(&key(ends)).unwrap(), Some(number));
        }
        // Entries of one second; all of them must be moved in the next second.
        world.set_budget(1_000_000);
        flood(&world, 10, BY_RING, ACK);
        world.set_budget(100);
        let before = world.reasons(BY_RING, Reason::AckNotRemembered);
        let periods = flood(&world, 10, BY_RING, ACK);
        let moved = world.table.flows().count() as u64;
        assert!((1..=100 * periods).contains(&moved), "{moved} in {periods} periods");
        assert_eq!(world.reasons(BY_RING, Reason::AckNotRemembered), before + FLOOD - moved);
        world.set_budget(1_000_000);
        flood(&world, 10, BY_RING, ACK);
        assert_eq!(world.table.flows().count() as u64, FLOOD, "what is held up is moved later");
    });
}

#[test]
fn as_root_a_drained_server_gets_nothing_new_during_a_flood() {
    on_both_worlds(|mut world| {
        let drained = servers_of(BY_RING).start;
        let all: Vec<_> = (0..60).map(|port| from_v4(1, 5_000 + port, BY_RING)).collect();
        let of_drained: Vec<bool> =
            all.iter().map(|ends| world.segment(*ends, SYN) == Fate::Sent(drained)).collect();
        for state in [State::DRAINING, State::FULL, State::FAILING] {
            world.set_state(drained, state);
            world.set_budget(0);
            let before = world.table.server_counts(drained).unwrap().flows;
            let dropped = world.reasons(BY_RING, Reason::OverBudget);
            for (ends, was_of_drained) in all.iter().zip(&of_drained) {
                let sent = world.segment(*ends, SYN);
                assert_eq!(sent == Fate::Dropped, *was_of_drained, "others open: {sent:?}");
            }
            assert_eq!(world.table.server_counts(drained).unwrap().flows, before);
            let count = of_drained.iter().filter(|was| **was).count() as u64;
            assert_eq!(world.reasons(BY_RING, Reason::OverBudget), dropped + count);
            assert_eq!(world.reasons(BY_RING, Reason::AllFull), 0);
        }
        assert!(of_drained.contains(&true));
    });
}

#[test]
fn as_root_a_source_persists() {
    on_both_worlds(|mut world| {
        let of = |world: &World, client: u8, vip| -> BTreeSet<u16> {
            (0..20).map(|port| world.open(from_v4(client, 5000 + port, vip))).collect()
        };
        let turns: Vec<_> = (1..=6).map(|client| of(&world, client, BY_TURNS_PERSISTENT)).collect();
        assert!(turns.iter().all(|servers| servers.len() == 1), "{turns:?}");
        let servers = servers_of(BY_TURNS_PERSISTENT);
        assert_eq!(turns.iter().flatten().copied().collect::<BTreeSet<_>>(), servers.collect());
        let ring: Vec<_> = (1..=40).map(|client| of(&world, client, BY_RING_PERSISTENT)).collect();
        assert!(ring.iter().all(|servers| servers.len() == 1), "{ring:?}");
        assert_eq!(ring.into_iter().flatten().collect::<BTreeSet<_>>().len(), 3);

        let number = *turns[0].first().unwrap();
        world.set_state(number, State::DRAINING);
        let Fate::Sent(other) = world.segment(from_v4(1, 6000, BY_TURNS_PERSISTENT), SYN) else {
            panic!("not sent")
        };
        assert_ne!(other, number, "a server that is drained does not keep its sources");
        assert_eq!(world.segment(from_v4(1, 6001, BY_TURNS_PERSISTENT), SYN), Fate::Sent(other));
    });
}

#[test]
fn as_root_errors_and_ends_reach_the_server_of_the_flow() {
    on_both_worlds(|world| {
        let router = |to| Ends { from: ([10, 0, 9, 9].into(), 0), to };
        // The ring alone would send at least one of three flows in turn to another server.
        for port in 5000..5003 {
            let ends = from_v4(1, port, BY_TURNS);
            let number = world.open(ends);
            let quoted = ip(ends.reversed(), TCP, &Header::default(), &tcp(ends.reversed(), ACK, &[], &[]));
            let packet = ip(router(ends.to), ICMP, &Header::default(), &icmp(3, 4, &quoted[..28]));
            assert_eq!(world.run(&ethernet(OURS, ROUTER, &[], &packet)), Fate::Sent(number));
            assert_eq!(world.segment(ends, FIN | ACK), Fate::Sent(number));
            assert_eq!(world.segment(ends, RST), Fate::Sent(number));
        }
        let begun = from_v4(1, 6000, BY_TURNS);
        let Fate::Sent(number) = world.segment(begun, SYN) else { panic!("not sent") };
        let quoted =
            ip(begun.reversed(), TCP, &Header::default(), &tcp(begun.reversed(), SYN | ACK, &[], &[]));
        let packet = ip(router(begun.to), ICMP, &Header::default(), &icmp(3, 1, &quoted[..28]));
        assert_eq!(world.run(&ethernet(OURS, ROUTER, &[], &packet)), Fate::Sent(number));
        assert_eq!(world.table.pending(&key(begun)).unwrap(), Some(number), "an error ends no handshake");
    });
}

#[test]
fn as_root_all_ports_are_balanced_and_can_be_taken_back() {
    on_both_worlds(|mut world| {
        let at = |port| Ends { to: (v4(BY_TURNS), port), ..from_v4(1, 5000 + port % 100, BY_TURNS) };
        let numbers: BTreeSet<u16> = [1, 80, 443, 65_535].map(|port| world.open(at(port))).into();
        assert_eq!(numbers, servers_of(BY_TURNS).collect());
        world.table.remove_service(v4(BY_TURNS), 0).unwrap();
        world.table.remove_service(v4(BY_TURNS), 0).unwrap();
        assert_eq!(world.segment(at(22), SYN), Fate::Passed);
        assert!(matches!(world.segment(at(80), ACK), Fate::Sent(_)), "an established flow goes on");
    });
}
