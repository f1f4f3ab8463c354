//! Which window stopped a sender, and how drops affect this.

use super::*;

/// A host that sends: in each of 10 samples, this many bytes of a congestion window of a million are in flight.
fn sending(case: &mut Case, in_flight_bytes: u64, receive_ms: u64, buffer_ms: u64) {
    let http = case.http();
    http.service_time = Default::default();
    case.counters.hosts[1].senders = record::SenderUse {
        samples: 11,
        samples_sending: 10,
        in_flight_bytes: 10 * in_flight_bytes,
        typical_in_flight_bytes: in_flight_bytes,
        congestion_window_bytes: 10_000_000,
        send_buffer_used_bytes: 10 * 300_000,
        send_buffer_bytes: 10_000_000,
        rtt_us: 1_000_000,
        busy_us: Some(9_900_000),
        receive_window_limited_us: receive_ms * 1_000,
        send_buffer_limited_us: buffer_ms * 1_000,
        ..Default::default()
    };
}

#[test]
fn windows_are_told_apart() {
    let named = |in_flight, receive_ms, buffer_ms, program: &str| {
        let mut case = Case::slow();
        case.web().name = program.to_owned();
        if program == "sshd" {
            case.web().listens.clear();
        }
        sending(&mut case, in_flight, receive_ms, buffer_ms);
        case.named().into_iter().map(|(cause, _)| cause).collect::<Vec<_>>()
    };
    assert_eq!(named(950_000, 9_000, 0, "nginx"), [Cause::ReceiveWindow]);
    assert_eq!(named(950_000, 0, 9_000, "nginx"), [Cause::SendBuffer]);
    assert_eq!(named(950_000, 0, 0, "nginx"), [Cause::CongestionWindow]);
    assert_eq!(named(200_000, 0, 0, "sshd"), [], "a pipe that is paced");
    assert_eq!(named(200_000, 0, 0, "nginx"), []);
    let mut full = Case::slow();
    sending(&mut full, 200_000, 0, 0);
    full.counters.hosts[1].senders.send_buffer_used_bytes = 8_000_000;
    assert_eq!(full.named(), [(Cause::SendBuffer, "web".to_owned())], "the kernel does not count that time");
    let mut refused = Case::slow();
    sending(&mut refused, 950_000, 0, 0);
    refused.count(1, "TcpExt.ListenOverflows", 9);
    let causes: Vec<Cause> = refused.named().into_iter().map(|(cause, _)| cause).collect();
    assert_eq!(causes, [Cause::AcceptQueue], "what was refused is sent again");
    let mut lossy = Case::slow();
    sending(&mut lossy, 950_000, 0, 0);
    lossy.links[0].lost_packets = 100;
    let causes: Vec<Cause> = lossy.named().into_iter().map(|(cause, _)| cause).collect();
    assert_eq!(causes, [Cause::PacketLoss, Cause::CongestionWindow]);
}

/// An SSH program that sends with this many bytes typically in flight.
fn ssh(typical_bytes: u64) -> Case {
    let mut case = Case::slow();
    case.web().name = "ssh".to_owned();
    case.web().listens.clear();
    sending(&mut case, 950_000, 0, 0);
    case.counters.hosts[1].senders.typical_in_flight_bytes = typical_bytes;
    case
}

fn causes(case: &Case) -> Vec<Cause> {
    case.named().into_iter().map(|(cause, _)| cause).collect()
}

#[test]
fn ssh_waits_for_its_window_if_the_window_is_on_the_way() {
    // While ssh logged in, little was in flight, and the congestion window does not grow beyond what is used.
    assert_eq!(causes(&ssh(1_950_000)), [Cause::SshWindow]);
    assert_eq!(causes(&ssh(1_300_000)), [Cause::CongestionWindow]);
    assert_eq!(causes(&ssh(3_000_000)), [Cause::CongestionWindow], "several channels");
    let mut others = ssh(1_950_000);
    others.web().listens.push("10.0.0.2:22".to_owned());
    assert_eq!(causes(&others), [Cause::CongestionWindow], "others log in meanwhile");
}

#[test]
fn a_link_that_is_full_most_of_the_time_bounds_a_program_that_began_slowly() {
    let mut case = ssh(1_950_000);
    (case.links[0].carried_bits_per_s, case.links[0].full_s) = (8e6, 4.0);
    assert_eq!(causes(&case), [Cause::SshWindow]);
    case.links[0].full_s = 6.0;
    assert_eq!(causes(&case), [Cause::LinkRate]);
    let evidence = "it carried 8.0 of 10.0 Mbit/s, and was full for 60 % of the time";
    assert_eq!(case.verdict().bottlenecks[0].evidence, evidence);
    case.links[0].dropped_packets = 170;
    assert_eq!(causes(&case), [Cause::LinkRate, Cause::LinkQueue]);
}

#[test]
fn drops_do_not_bound_a_sender_that_another_window_stops() {
    let dropping = |mut case: Case| {
        case.links[0].dropped_packets = 170;
        causes(&case)
    };
    let sender = |receive_ms| {
        let mut case = Case::slow();
        sending(&mut case, 950_000, receive_ms, 0);
        case
    };
    assert_eq!(dropping(ssh(1_950_000)), [Cause::SshWindow]);
    let mut lossy = ssh(1_950_000);
    lossy.links[0].lost_packets = 100;
    assert_eq!(causes(&lossy), [Cause::SshWindow]);
    assert_eq!(dropping(sender(9_000)), [Cause::ReceiveWindow]);
    assert_eq!(dropping(sender(0)), [Cause::LinkQueue, Cause::CongestionWindow]);
}

#[test]
fn what_was_sent_again_is_a_share_of_the_data() {
    let lossy = |again, data, change: Change| {
        let mut case = Case::slow();
        sending(&mut case, 950_000, 0, 0);
        case.count(1, "Tcp.OutSegs", 100 * data);
        case.count(1, "TcpExt.TCPOrigDataSent", data);
        case.count(1, "Tcp.RetransSegs", again);
        // The other end only acknowledges.
        case.count(0, "TcpExt.TCPOrigDataSent", 100_000);
        change(&mut case);
        causes(&case).contains(&Cause::PacketLoss)
    };
    assert!(lossy(359, 14_683, |_| {}), "no link of the lab lost it");
    assert!(!lossy(9, 300, |_| {}) && !lossy(49, 100_000, |_| {}));
    assert!(!lossy(359, 14_683, |case| case.links[0].dropped_packets = 359), "a queue dropped it");
    let two_links: Change = |case| {
        let way_back = LinkUse { name: "back".to_owned(), ..case.links[0].clone() };
        case.links.push(way_back);
        case.links[0].lost_packets = 60;
    };
    assert!(lossy(0, 1_000, two_links), "60 of 100,000 in one direction");
}

#[test]
fn without_samples_nothing_is_known_of_windows() {
    let missing = Case::slow().verdict().missing;
    for cause in [Cause::ReceiveWindow, Cause::SendBuffer, Cause::CongestionWindow] {
        assert!(missing.iter().any(|why| why.starts_with(cause.words())), "{cause:?}: {missing:?}");
    }
    let mut idle = Case::slow();
    idle.counters.hosts[1].senders.samples = 11;
    assert_eq!(idle.verdict().missing, [""; 0]);
}
