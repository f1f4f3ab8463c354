//! Signs that resemble a cause but are not one, or not the one that matters.

use record::Interval;

use super::*;

/// An open load whose requests are all answered, `answered_in_time` of them while it is sent, with the median of each second in ms.
fn open(answered_in_time: f64, medians_ms: [f64; 10]) -> Case {
    let mut case = Case::sound();
    let http = case.http();
    http.throughput_per_s = answered_in_time / 10.0;
    let second = |(number, p50_ms)| Interval {
        end_s: 1.0 + f64::from(number),
        completed: 100,
        p50_us: Some(p50_ms * 1e3),
        ..Interval::default()
    };
    http.series = (0..).zip(medians_ms).map(second).collect();
    case.works(10.0);
    case
}

#[test]
fn answers_that_pile_up_and_come_after_the_load_are_not_carried() {
    let growing = [50.0, 190.0, 330.0, 470.0, 610.0, 750.0, 890.0, 1_030.0, 1_170.0, 1_310.0];
    assert_eq!(open(860.0, growing).named(), [(Cause::HotCore, "web".to_owned())]);
    // A load with slow answers is carried, and so is one whose answers are late once.
    let carried = [(Cause::OfferedLoad, String::new())];
    assert_eq!(open(970.0, [300.0; 10]).named(), carried);
    let mut stall = [2.0; 10];
    stall[9] = 400.0;
    assert_eq!(open(960.0, stall).named(), carried);
    assert_eq!(open(999.0, growing).named(), carried, "nothing was left when the last request was due");
}

#[test]
fn packets_dropped_beside_a_table_with_room_have_another_reason() {
    let named = |dropped: Option<u64>, entries| {
        let mut case = Case::slow();
        for (name, value) in [("entries", entries), ("max_entries", 262_144)] {
            case.count(1, &format!("conntrack.{name}"), value);
        }
        dropped.into_iter().for_each(|dropped| case.count(1, "conntrack.drop", dropped));
        let missing = case.verdict().missing.iter().any(|why| why.contains("full table"));
        (case.named().iter().any(|(cause, _)| *cause == Cause::Conntrack), missing)
    };
    assert_eq!(named(Some(5), 40), (false, false), "two packets of one connection at once");
    assert_eq!(named(Some(5), 262_000), (true, false));
    assert_eq!(named(None, 262_000), (false, true));
    assert_eq!(named(None, 40), (false, false));
    // A host with more drops for other reasons does not hide the full table of another host.
    let mut both = Case::slow();
    for (host, dropped, entries) in [(0, 50, 40), (1, 30, 1_000)] {
        both.count(host, "conntrack.drop", dropped);
        both.count(host, "conntrack.entries", entries);
        both.count(host, "conntrack.max_entries", 1_000);
    }
    assert_eq!(both.named(), [(Cause::Conntrack, "web".to_owned())]);
}

/// A target whose answers take 300 ms although it works for only 1 % of the time.
fn slow_handler() -> Case {
    let mut case = Case::slow();
    case.works(0.1);
    case.http().counts.completed = 1_000;
    case.http().service_time = Default::default();
    (0..1_000).for_each(|_| case.http().service_time.record_ns(300_000_000, 0));
    case
}

#[test]
fn what_meets_few_requests_does_not_hide_a_slow_handler() {
    let handler = (Cause::SlowHandler, "web".to_owned());
    let named = |change: Change| {
        let mut case = slow_handler();
        change(&mut case);
        case.named()
    };
    let overflows = |times: u16| {
        let mut case = slow_handler();
        case.count(1, "TcpExt.ListenOverflows", times.into());
        // Each SYN is sent again after a second.
        case.connects_for(times.into());
        case.named()
    };
    assert_eq!(overflows(1), std::slice::from_ref(&handler));
    assert_eq!(overflows(90), [handler.clone(), (Cause::AcceptQueue, "web".to_owned())]);
    assert_eq!(overflows(900), [(Cause::AcceptQueue, "web".to_owned())]);
    let lossy: Change = |case| {
        case.count(1, "Tcp.RetransSegs", 12);
        case.count(1, "TcpExt.TCPOrigDataSent", 20_000);
    };
    assert_eq!(named(lossy), [handler.clone(), (Cause::PacketLoss, String::new())]);
    // The overflow is not cheap if one request in a hundred fails.
    let failing: Change = |case| {
        case.count(1, "TcpExt.ListenOverflows", 1);
        case.http().counts.failed = 10;
        case.http().errors.add(ErrorClass::ConnectTimeout, 10);
    };
    assert_eq!(named(failing)[0].0, Cause::AcceptQueue);
}

#[test]
fn cookies_are_only_likely_to_cost_anything() {
    let certainty = |dropped, cookies, connecting_s| {
        let mut case = Case::slow();
        case.connects_for(connecting_s);
        case.count(1, "TcpExt.TCPReqQFullDrop", dropped);
        case.count(1, "TcpExt.TCPReqQFullDoCookies", cookies);
        case.verdict().bottlenecks.first().map(|named| (named.cause, named.certainty))
    };
    assert_eq!(certainty(0, 500, 9.0), Some((Cause::SynQueue, Certainty::Likely)));
    assert_eq!(certainty(9, 500, 9.0), Some((Cause::SynQueue, Certainty::Counted)));
    assert_eq!(certainty(9, 500, 0.0), None, "those of another program");
}

#[test]
fn few_drops_and_those_of_idle_interfaces_are_nothing() {
    let named = |drops, received| {
        let mut case = Case::slow();
        case.count(1, "interface.eth0.received_packets", 100_000);
        case.count(1, "interface.eth1.received_packets", received);
        case.count(1, "interface.eth1.receive_drops", drops);
        case.verdict().bottlenecks.first().map(|named| (named.cause, named.certainty))
    };
    assert_eq!(named(1, 1_000), None, "one packet");
    assert_eq!(named(100, 1_000), None, "not where the load is");
    assert_eq!(named(100, 90_000), Some((Cause::PacketQueue, Certainty::Likely)));
}

/// Sets the times of a machine's core, in milliseconds of 10 s.
fn core(machine: &mut record::Counters, number: u32, idle_ms: u64, softirq_ms: u64, steal_ms: u64) {
    for (name, ms) in [("idle", idle_ms), ("softirq", softirq_ms), ("steal", steal_ms)] {
        machine.values.insert(format!("cpu{number}.{name}_ms"), ms);
    }
}

#[test]
fn a_core_full_of_interrupts_is_found_wherever_it_is() {
    // Some processors are offline, so there are gaps between the numbers.
    let mut case = Case::slow();
    core(&mut case.counters.machine, 0, 9_000, 0, 0);
    core(&mut case.counters.machine, 4, 100, 8_000, 0);
    let named = case.verdict().bottlenecks;
    assert_eq!(named[0].cause, Cause::HotCore);
    assert!(named[0].evidence.starts_with("core 4 was busy 99 %"), "{named:?}");
    // Without a target on this machine, the full core bounds the generator.
    let mut case = remote();
    core(&mut case.counters.machine, 4, 100, 8_000, 0);
    assert_eq!(case.named()[0], (Cause::Generator, String::new()));
    // Steal time is neither work nor idle.
    let mut case = Case::slow();
    core(&mut case.counters.machine, 0, 100, 5_500, 3_000);
    assert_eq!(case.named(), []);
}

#[test]
fn a_machine_whose_processors_others_had_is_not_a_slow_handler() {
    let mut case = slow_handler();
    core(&mut case.counters.machine, 0, 1_000, 0, 6_000);
    assert_eq!(case.named(), []);
    core(&mut case.counters.machine, 0, 9_000, 0, 500);
    assert_eq!(case.named(), [(Cause::SlowHandler, "web".to_owned())]);
}

#[test]
fn a_trial_that_its_link_voids_shows_nothing_of_the_target() {
    let mut case = Case::slow();
    case.works(9.9);
    let evidence = "link sea delayed packets by 80 ms instead of 50 ms".to_owned();
    case.trial.validity = Validity::from_reasons(vec![VoidReason { rule: VoidRule::Link, evidence }]);
    let verdict = case.verdict();
    assert_eq!(verdict.bottlenecks, []);
    assert!(verdict.missing.iter().any(|why| why.starts_with("the trial is void: link sea")), "{verdict:?}");
    assert!(verdict.excluded.iter().any(|one| one.cause == Cause::HotCore), "{verdict:?}");
}
