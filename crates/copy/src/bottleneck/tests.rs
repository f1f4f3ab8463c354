use super::*;

/// An upload over nine connections. Each has as much in flight as its congestion window allows, and the path has no
/// queue.
fn senders() -> SenderUse {
    SenderUse {
        samples: 180,
        samples_sending: 170,
        in_flight_bytes: 170 * 1_000_000,
        congestion_window_bytes: 170 * 4_000_000,
        send_buffer_used_bytes: 170 * 1_200_000,
        send_buffer_bytes: 170 * 9_000_000,
        rtt_us: 170 * 228_500,
        least_rtt_us: 170 * 228_000,
        busy_us: Some(90_000_000),
        ..SenderUse::default()
    }
}

fn shown(senders: SenderUse) -> HostUse {
    HostUse {
        steady_s: 10.0,
        busy_share: Some(0.3),
        busiest: Some(("ssh".to_owned(), 0.2)),
        disk_share: Some(0.01),
        blocked_share: 0.0,
        senders,
    }
}

fn of(here: &HostUse, there: Option<&HostUse>, change: impl Fn(&mut Seen<'_>)) -> Cause {
    verdict(here, there, change).cause
}

fn verdict(here: &HostUse, there: Option<&HostUse>, change: impl Fn(&mut Seen<'_>)) -> Bottleneck {
    let mut seen = Seen {
        direction: Direction::Up,
        machine: "far",
        here,
        there,
        rate: 50e6,
        limit: None,
        in_flight: None,
        full_channels_share: 0.9,
        channels: 18,
        connections: 9,
        round_trip_s: 0.228,
        are_files_small: false,
        has_files: true,
        is_direct: true,
        sums_share: 0.0,
        has_fast_cipher: false,
    };
    change(&mut seen);
    judge(&seen)
}

#[test]
fn each_cause_is_named_by_what_shows_it() {
    let there = shown(SenderUse::default());
    let sends = |change: fn(&mut SenderUse)| {
        let mut senders = senders();
        change(&mut senders);
        of(&shown(senders), Some(&there), |_| {})
    };
    assert_eq!(sends(|_| {}), Cause::SshWindow);
    assert_eq!(sends(|senders| senders.receive_window_limited_us = 60_000_000), Cause::SocketBuffer);
    assert_eq!(sends(|senders| senders.send_buffer_bytes = 170 * 1_300_000), Cause::SocketBuffer);
    assert_eq!(sends(|senders| senders.rtt_us += 170 * 30_000), Cause::Path);
    // Delay that retransmissions cause is not a queue.
    assert_eq!(
        sends(|senders| {
            senders.rtt_us += 170 * 30_000;
            senders.retransmits = 3_000;
            senders.congestion_window_bytes = 170 * 1_100_000;
        }),
        Cause::CongestionWindow
    );
    assert_eq!(sends(|senders| senders.congestion_window_bytes = 170 * 1_100_000), Cause::CongestionWindow);
    // BBR's window is twice the bytes in flight. Segments wait because BBR paces them.
    assert_eq!(sends(|senders| senders.samples_unsent = 150), Cause::CongestionWindow);
    let roomy = |senders: &mut SenderUse| {
        (senders.samples_unsent, senders.congestion_window_bytes) = (150, 170 * 9_000_000);
    };
    assert_ne!(sends(roomy), Cause::CongestionWindow, "a ninth of it is used");
    let idle = shown(SenderUse { samples: 180, samples_sending: 10, ..senders() });
    let blocked = HostUse { disk_share: Some(0.2), blocked_share: 0.7, ..there.clone() };
    assert_eq!(of(&idle, Some(&blocked), |_| {}), Cause::TargetDisk);
    assert_eq!(of(&idle, Some(&blocked), |seen| seen.direction = Direction::Down), Cause::SourceDisk);
    let hot = HostUse { busiest: Some(("sshd".to_owned(), 0.95)), ..there.clone() };
    assert_eq!(of(&idle, Some(&hot), |_| {}), Cause::Processor);
    assert_eq!(of(&HostUse { busy_share: Some(0.98), ..idle.clone() }, None, |_| {}), Cause::Processor);
    // Programs that wait for each other are the cause, unless each channel carries 2 MiB per round trip: then the
    // window is.
    let chain = HostUse { busiest: Some(("sshd".to_owned(), 0.5)), ..there.clone() };
    let short = |seen: &mut Seen<'_>| (seen.channels, seen.round_trip_s) = (6, 0.0003);
    assert_eq!(of(&idle, Some(&chain), short), Cause::Processor);
    assert_eq!(of(&idle, Some(&chain), |seen| (seen.channels, seen.rate) = (6, 50e6)), Cause::SshWindow);
    // Work of other programs on all processors does not make a window smaller.
    let busy = HostUse {
        busy_share: Some(1.0),
        ..shown(SenderUse { receive_window_limited_us: 60_000_000, ..senders() })
    };
    assert_eq!(of(&busy, Some(&there), |_| {}), Cause::SocketBuffer);
    // On a busy machine, delays on loopback are waits for a processor.
    let near = SenderUse { rtt_us: 170 * 2_500, least_rtt_us: 170 * 3, ..senders() };
    let full = HostUse { busy_share: Some(0.98), ..shown(near) };
    assert_eq!(of(&full, Some(&there), |_| {}), Cause::Processor);
    assert_eq!(of(&shown(near), Some(&there), |_| {}), Cause::Path);
    let small = |seen: &mut Seen<'_>| (seen.are_files_small, seen.full_channels_share) = (true, 0.1);
    assert_eq!(of(&idle, Some(&there), small), Cause::SmallFiles);
    assert_eq!(of(&idle, Some(&there), |seen| seen.limit = Some(51_000_000)), Cause::Asked);
    assert_eq!(of(&idle, Some(&there), |seen| seen.in_flight = Some((1 << 20, 0.9))), Cause::Asked);
}

#[test]
fn what_is_not_shown_is_not_named() {
    let there = shown(SenderUse::default());
    let idle = shown(SenderUse { samples: 180, samples_sending: 10, ..senders() });
    assert_eq!(of(&idle, Some(&there), |seen| seen.full_channels_share = 0.1), Cause::Unknown);
    assert_eq!(of(&HostUse { steady_s: 1.0, ..idle.clone() }, Some(&there), |_| {}), Cause::Unknown);
    // For a download, only the sender on the other machine could show this.
    assert_eq!(
        of(&idle, None, |seen| (seen.direction, seen.full_channels_share) = (Direction::Down, 0.1)),
        Cause::Unknown
    );
    // A limit that was not reached is not the cause.
    assert_eq!(of(&idle, Some(&there), |seen| seen.limit = Some(100_000_000)), Cause::SshWindow);
}

#[test]
fn advice_is_something_that_was_not_tried() {
    let there = shown(SenderUse::default());
    let full = HostUse { busy_share: Some(0.98), ..there.clone() };
    let advice = |change: fn(&mut Seen<'_>)| verdict(&full, Some(&there), change).advice.unwrap();
    assert!(advice(|_| {}).contains(FAST_CIPHER));
    assert!(!advice(|seen| seen.has_fast_cipher = true).contains(FAST_CIPHER));
    let sums = |seen: &mut Seen<'_>| {
        (seen.are_files_small, seen.round_trip_s, seen.sums_share) = (true, 0.0002, 0.86);
    };
    assert!(advice(sums).contains("--no-verify, which saves up to 86 %"));
    assert!(!advice(|seen| (seen.are_files_small, seen.sums_share) = (true, 0.86)).contains("--no-verify"));
}
