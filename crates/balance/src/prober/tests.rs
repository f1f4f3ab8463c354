use std::time::Duration;

use proptest::prelude::*;

use super::*;

const MAC: Mac = [2, 0, 0, 0, 0, 9];

fn own() -> Vec<(IpAddr, u8)> {
    [("192.0.2.100", 32), ("192.0.2.1", 24), ("fe80::1", 64), ("2001:db8::1", 64)]
        .map(|(address, prefix)| (address.parse().unwrap(), prefix))
        .into()
}

fn target(id: u64, check: &Check, is_up: bool) -> Target {
    let (vip, server) = (IpAddr::from([192, 0, 2, 100]), IpAddr::from([192, 0, 2, 10 + id as u8]));
    let health = if is_up { Ok(()) } else { Err(Fault::unknown("not checked", true)) };
    Target { id, vip, port: 80, server, check: check.clone(), health }
}

fn known() -> Neighbour {
    Neighbour::Known { mac: MAC, is_set: false }
}

/// The server's answer: a SYN-ACK or a reset.
fn answer(packet: &[u8], accepts: bool) -> Vec<u8> {
    let sliced = etherparse::SlicedPacket::from_ip(packet).unwrap();
    let Some(etherparse::NetSlice::Ipv4(ip)) = &sliced.net else { panic!("{sliced:?}") };
    let Some(etherparse::TransportSlice::Tcp(tcp)) = &sliced.transport else { panic!("{sliced:?}") };
    let back = etherparse::PacketBuilder::ipv4(ip.header().destination(), ip.header().source(), 64);
    let back = back.tcp(tcp.destination_port(), tcp.source_port(), 7, 100).ack(tcp.sequence_number() + 1);
    let mut bytes = Vec::new();
    if accepts { back.syn() } else { back.rst() }.write_to_vec(&mut bytes, &[]).unwrap();
    bytes
}

fn is_syn(packet: &[u8]) -> bool {
    let sliced = etherparse::SlicedPacket::from_ip(packet).unwrap();
    matches!(&sliced.transport, Some(etherparse::TransportSlice::Tcp(tcp)) if tcp.syn())
}

/// Simulates servers on virtual time. `alive` tells for a time which servers accept connections, refuse them or are
/// silent.
fn run(
    prober: &mut Prober,
    from: Instant,
    time: Duration,
    alive: impl Fn(u64, Duration) -> Option<bool>,
) -> Vec<(Duration, Event)> {
    let mut events = Vec::new();
    for _ in 0..1_000_000 {
        let Some(now) = prober.wakes().filter(|now| *now < from + time) else { return events };
        let mut actions = prober.wake(now);
        let syns: Vec<Vec<u8>> =
            std::mem::take(&mut actions.packets).into_iter().map(|(packet, _)| packet).collect();
        events.extend(actions.events.into_iter().map(|event| (now - from, event)));
        for syn in syns.iter().filter(|packet| is_syn(packet)) {
            let port = u16::from_be_bytes([syn[20], syn[21]]);
            let Some(accepts) = prober.ports.get(&port).and_then(|id| alive(*id, now - from)) else {
                continue;
            };
            let actions = prober.receive(&answer(syn, accepts), now);
            events.extend(actions.events.into_iter().map(|event| (now - from, event)));
        }
    }
    panic!("probes without an end");
}

#[test]
fn a_server_is_found_probed_and_lost() {
    let check = Check::default();
    let (mut prober, start) = (Prober::new(own(), 1), Instant::now());
    prober.set_targets(vec![target(1, &check, false)], start);
    let server = IpAddr::from([192, 0, 2, 11]);
    let found = prober.neighbour(server, known(), start);
    assert_eq!(found.events, [Event::Mac { server, mac: Some(MAC) }]);
    assert!(prober.neighbour(server, Neighbour::Unknown, start).events.is_empty(), "asked again, not lost");
    let events = run(&mut prober, start, Duration::from_secs(60), |_, at| {
        if at < Duration::from_secs(30) { Some(true) } else { Some(false) }
    });
    let [(up, Event::Health { id: 1, health: Ok(()) }), (down, Event::Health { id: 1, health: Err(fault) })] =
        &events[..]
    else {
        panic!("{events:?}")
    };
    assert!(*up < Duration::from_millis(200), "{up:?}");
    assert_eq!(*fault, Fault::answered("refuses connections to port 80".to_owned()));
    // The first bad probe comes within one interval, and the others within two thirds of an interval.
    let late = *down - Duration::from_secs(30);
    assert!(late < check.interval.mul_f64(1.05 * (1.0 + 2.0 / 3.0)), "{late:?}");
    let lost = prober.neighbour(server, Neighbour::Failed, start);
    assert_eq!(lost.events, [Event::Mac { server, mac: None }]);
}

#[test]
fn a_server_that_never_answers_is_down_for_a_reason() {
    let check = Check::default();
    let why_no_arp = "does not answer ARP or neighbour discovery for its own address";
    for (is_there, why) in [(true, "does not answer a SYN to port 80 within 1 s"), (false, why_no_arp)] {
        let (mut prober, start) = (Prober::new(own(), 1), Instant::now());
        prober.set_targets(vec![target(1, &check, false)], start);
        if is_there {
            prober.neighbour(IpAddr::from([192, 0, 2, 11]), known(), start);
        }
        let events = run(&mut prober, start, Duration::from_secs(60), |_, _| None);
        let [(_, Event::Health { id: 1, health: Err(fault) })] = &events[..] else { panic!("{events:?}") };
        assert_eq!(*fault, Fault::silent(why));
    }
    // The balancer has no address to probe from, which is not the server's fault.
    let (mut prober, start) = (Prober::new(Vec::new(), 1), Instant::now());
    prober.set_targets(vec![target(1, &check, false)], start);
    prober.neighbour(IpAddr::from([192, 0, 2, 11]), known(), start);
    let events = run(&mut prober, start, Duration::from_secs(60), |_, _| None);
    let [(_, Event::Health { id: 1, health: Err(fault) })] = &events[..] else { panic!("{events:?}") };
    assert!(fault.is_own && fault.why.contains("no IPv4 address of its own"), "{fault:?}");
    let server = "fd00::9".parse().unwrap();
    let is_own = |own: &[(IpAddr, u8)]| unresolved(own, server).is_own;
    assert!(is_own(&[("fd00::1".parse().unwrap(), 64)]) && !is_own(&own()));
}

#[test]
fn probes_are_spread_over_the_interval() {
    for is_alive in [true, false] {
        let (mut prober, start) = (Prober::new(own(), 1), Instant::now());
        prober.set_targets((1..=80).map(|id| target(id, &Check::default(), false)).collect(), start);
        (1..=80).for_each(|id| {
            prober.neighbour(IpAddr::from([192, 0, 2, 10 + id as u8]), known(), start);
        });
        // Number of probes that begin in each tenth of the interval of 2 s, from the fourth second on.
        let mut begun = [0_u32; 10];
        let counted = std::cell::RefCell::new(&mut begun);
        run(&mut prober, start, Duration::from_secs(6), |_, at| {
            if let Some(at) = at.checked_sub(Duration::from_secs(4)) {
                counted.borrow_mut()[(at.as_millis() / 200) as usize] += 1;
            }
            is_alive.then_some(true)
        });
        // A SYN without an answer is sent twice.
        let each = if is_alive { 8 } else { 16 };
        assert!(begun.iter().all(|count| (1..=2 * each).contains(count)), "{is_alive}: {begun:?}");
    }
}

#[test]
fn each_vip_is_checked_on_a_server_that_is_found_once() {
    let (mut prober, start) = (Prober::new(own(), 1), Instant::now());
    let check = Check { jitter: 0.0, ..Check::default() };
    let second = Target { id: 2, vip: IpAddr::from([192, 0, 2, 101]), ..target(1, &check, false) };
    prober.set_targets(vec![target(1, &check, false), second], start);
    assert_eq!(prober.servers().count(), 1);
    let found = prober.neighbour(IpAddr::from([192, 0, 2, 11]), known(), start);
    assert_eq!(found.events.len(), 1);
    let asked: BTreeSet<Vec<u8>> =
        prober.wake(start).packets.iter().map(|(syn, _)| syn[16..20].to_vec()).collect();
    assert_eq!(asked, [vec![192, 0, 2, 100], vec![192, 0, 2, 101]].into());
}

#[test]
fn a_server_without_an_address_is_down() {
    let check = Check { fall: 2, ..Check::default() };
    let (mut prober, start) = (Prober::new(own(), 1), Instant::now());
    prober.set_targets(vec![target(1, &check, true)], start);
    let events = run(&mut prober, start, Duration::from_secs(20), |_, _| Some(true));
    let [(at, Event::Health { id: 1, health: Err(fault) })] = &events[..] else { panic!("{events:?}") };
    assert_eq!(*fault, Fault::silent("does not answer ARP or neighbour discovery for its own address"));
    assert!(*at > check.timeout * 2, "{at:?}");
    // The probe that waits for the MAC address begins as soon as the address is known.
    while !matches!(prober.targets[&1].state, State::Unaddressed { .. }) {
        prober.wake(prober.wakes().unwrap());
    }
    let actions = prober.neighbour(IpAddr::from([192, 0, 2, 11]), known(), start + Duration::from_secs(21));
    assert_eq!(actions.packets.len(), 1);
}

#[test]
fn other_targets_leave_the_rest_alone() {
    let check = Check { rise: 1, ..Check::default() };
    let (mut prober, start) = (Prober::new(own(), 1), Instant::now());
    let none = Check { kind: CheckKind::None, ..check.clone() };
    prober
        .set_targets(vec![target(1, &check, false), target(2, &check, false), target(3, &none, true)], start);
    assert_eq!(prober.due.len(), 2, "who is not checked is not due");
    for id in 1..=3 {
        prober.neighbour(IpAddr::from([192, 0, 2, 10 + id]), known(), start);
    }
    let events = run(&mut prober, start, Duration::from_secs(10), |_, _| Some(true));
    assert_eq!(events.len(), 2);
    // The same server in another VIP. Its MAC address is already known.
    let again = Target { id: 4, vip: IpAddr::from([192, 0, 2, 101]), ..target(1, &none, true) };
    let all = vec![target(1, &check, false), target(2, &check, false), target(3, &none, true), again.clone()];
    let told = prober.set_targets(all, start);
    assert_eq!(told.events, [Event::Mac { server: again.server, mac: Some(MAC) }]);
    let due = prober.targets[&1].due;
    let slower = Check { interval: Duration::from_secs(9), ..check.clone() };
    prober.set_targets(
        vec![target(1, &check, false), target(2, &slower, false)],
        start + Duration::from_secs(10),
    );
    assert_eq!((prober.targets[&1].due, prober.targets[&2].health.now().is_ok()), (due, true));
    assert_eq!(prober.servers().count(), 2);
    prober.set_targets(Vec::new(), start);
    assert_eq!((prober.wakes(), prober.ports.len()), (None, 0));
}

#[test]
fn a_dead_server_is_found_down_after_its_checks_were_off() {
    let check = Check { fall: 2, ..Check::default() };
    let off = Check { kind: CheckKind::None, ..check.clone() };
    let (mut prober, start) = (Prober::new(own(), 1), Instant::now());
    prober.set_targets(vec![target(1, &check, true)], start);
    prober.neighbour(IpAddr::from([192, 0, 2, 11]), known(), start);
    let part = Duration::from_secs(20);
    for at in 0..2 {
        let now = start + part * at;
        prober.set_targets(vec![target(1, &check, true)], now);
        let events = run(&mut prober, now, part, |_, _| Some(false));
        assert!(matches!(events[..], [(_, Event::Health { id: 1, health: Err(_) })]), "{at}: {events:?}");
        // A server without checks counts as up.
        prober.set_targets(vec![target(1, &off, true)], now + part);
    }
}

#[test]
fn probes_come_from_an_address_of_the_servers_network() {
    let vips = ["192.0.2.100", "192.0.2.1", "2001:db8::100"].map(|vip| vip.parse().unwrap());
    let own = || own().into_iter().chain([("192.0.2.2".parse().unwrap(), 24)]).collect::<Vec<_>>();
    let from =
        |server: &str, vip: &str| source(&own(), server.parse().unwrap(), vip.parse().unwrap(), &vips.into());
    let is = |address: &str| Some(address.parse().unwrap());
    assert_eq!(from("192.0.2.9", "192.0.2.100"), is("192.0.2.2"));
    assert_eq!(from("198.51.100.9", "192.0.2.100"), is("192.0.2.2"));
    assert_eq!(from("fe80::9", "2001:db8::100"), is("fe80::1"));
    assert_eq!(from("2001:db8:1::9", "2001:db8::100"), is("2001:db8::1"));
    assert_eq!(
        source(&own()[..2], "2001:db8::9".parse().unwrap(), "2001:db8::100".parse().unwrap(), &vips.into()),
        None
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Probes of many servers keep their interval, within the jitter. A server never has two probes at once, and each
    /// probe has its own port.
    #[test]
    fn probes_keep_their_interval(seed: u64, count in 1_u64..40, jitter in 0.0..1.0_f64) {
        let check = Check { jitter, ..Check::default() };
        let (mut prober, start) = (Prober::new(own(), seed), Instant::now());
        prober.set_targets((1..=count).map(|id| target(id, &check, true)).collect(), start);
        for id in 1..=count {
            prober.neighbour(IpAddr::from([192, 0, 2, 10 + id as u8]), known(), start);
        }
        let (mut last, mut syns) = (HashMap::new(), 0_u64);
        let end = start + Duration::from_secs(60);
        while let Some(now) = prober.wakes().filter(|now| *now < end) {
            for (syn, mac) in prober.wake(now).packets {
                prop_assert_eq!(mac, MAC);
                let port = u16::from_be_bytes([syn[20], syn[21]]);
                let id = prober.ports[&port];
                syns += 1;
                if let Some((before, is_first)) = last.insert(id, (now, !last.contains_key(&id))) {
                    let gap = (now - before).as_secs_f64() / check.interval.as_secs_f64();
                    let is_as_long = (gap - 1.0).abs() <= jitter / 2.0 + 1e-6;
                    // The second probe comes at an individual time within the interval.
                    prop_assert!(is_as_long || is_first && gap < 1.0 + jitter / 2.0, "{gap}");
                }
                let reset = prober.receive(&answer(&syn, true), now);
                prop_assert_eq!(reset.packets.len(), 1);
                prop_assert!(!prober.ports.contains_key(&port));
            }
        }
        prop_assert!(syns >= count * 19 && syns <= count * 62, "{syns} probes of {count} servers");
    }
}
