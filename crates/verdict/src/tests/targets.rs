//! Tests that assign queues, descriptors and processors to the right programs.

use record::ListenerUse;

use super::*;

/// What the verdict says about a cause that it excludes or cannot judge.
fn said(case: &Case, cause: Cause) -> String {
    let verdict = case.verdict();
    let excluded = verdict.excluded.into_iter().find(|one| one.cause == cause).map(|one| one.evidence);
    let missing = verdict.missing.into_iter().find(|why| why.starts_with(cause.words()));
    excluded.or(missing).unwrap_or_else(|| panic!("nothing on {cause:?}"))
}

/// Two queues. Requests go to port 80, whose queue has 128 places and at most `own` waiting connections. Another program's queue has 4
/// places and at most `other`.
fn two_queues(own: u32, other: u32) -> Case {
    let mut case = Case::slow();
    case.http().plan.targets = vec!["10.0.0.2:80".parse().unwrap()];
    case.count(1, "TcpExt.ListenOverflows", 35);
    case.connects_for(35.0);
    let queue = |backlog, most_waiting| ListenerUse {
        backlog,
        most_waiting,
        samples: 11,
        samples_waiting: 1,
        ..Default::default()
    };
    let listeners = &mut case.counters.hosts[1].listeners;
    *listeners = [("10.0.0.2:80", queue(128, own)), ("10.0.0.2:9399", queue(4, other))]
        .map(|(address, queue)| (address.to_owned(), queue))
        .into();
    case
}

#[test]
fn the_queue_of_another_program_is_not_the_targets() {
    let certainty = |case: &Case| {
        let named = case.verdict().bottlenecks;
        assert!(named.iter().all(|named| named.cause == Cause::AcceptQueue), "{named:?}");
        named.first().map(|named| named.certainty)
    };
    assert_eq!(certainty(&two_queues(0, 0)), None);
    assert_eq!(certainty(&two_queues(64, 1)), None);
    assert_eq!(certainty(&two_queues(100, 5)), None);
    assert_eq!(certainty(&two_queues(100, 1)), Some(Certainty::Likely));
    assert_eq!(certainty(&two_queues(129, 5)), Some(Certainty::Counted));
    let words = said(&two_queues(0, 5), Cause::AcceptQueue);
    assert!(words.contains("but probably that of 10.0.0.2:9399, not the target's"), "{words}");
    let mut dropping = two_queues(0, 1);
    dropping.http().connect_time.record_ns(1_000_000_000);
    assert_eq!(certainty(&dropping), Some(Certainty::Likely), "a SYN to the target was sent again");
    (0..9).for_each(|_| dropping.http().connect_time.record_ns(1_000_000_000));
    assert_eq!(
        certainty(&dropping),
        Some(Certainty::Counted),
        "many SYNs to the target were sent again, and no other queue was full"
    );
    let mut alone = two_queues(0, 0);
    alone.counters.hosts[1].listeners.remove("10.0.0.2:9399");
    assert_eq!(certainty(&alone), Some(Certainty::Counted), "nobody else listens");
}

#[test]
fn processors_that_are_full_are_seen_however_many_share_them() {
    let full = |change: Change| {
        let mut case = Case::slow();
        case.works(0.5);
        case.web().cpus = Some("1".to_owned());
        wait(&mut case, 3, 11);
        change(&mut case);
        case
    };
    let cases: [(Cause, &str, Change); 4] = [
        (Cause::HotCore, "the busiest thread of nginx was 5.0 % busy (all processes", |case| {
            case.web().running_s = 9.6;
        }),
        (Cause::HotCore, "nginx and the programs on its processors worked 96 % of the time", |case| {
            (case.web().busiest_thread_s, case.web().running_s) = (None, 9.6);
        }),
        (Cause::HotCore, "(all processes of the target 96 %)", |case| {
            let worker = ProgramUse { running_s: 1.2, ..case.web().clone() };
            case.counters.hosts[1].programs =
                (0..8).map(|pid| ProgramUse { pid, ..worker.clone() }).collect();
        }),
        (Cause::LacksProcessor, "and waited 74 % of the time for a processor", |case| {
            case.web().busiest_thread_waiting_s = Some(7.4);
        }),
    ];
    for (cause, words, change) in cases {
        let verdict = full(change).verdict();
        let [named] = &verdict.bottlenecks[..] else { panic!("{words}: {:#?}", verdict.bottlenecks) };
        let certainty = if cause == Cause::HotCore { Certainty::Counted } else { Certainty::Likely };
        assert_eq!((named.cause, &*named.place, named.certainty), (cause, "web", certainty));
        assert!(named.evidence.contains(words), "{}", named.evidence);
    }
    assert_eq!(full(|_| {}).named()[0].0, Cause::ConnectionLimit);
    // The program waits because of its quota.
    let throttled = full(|case| {
        case.web().busiest_thread_waiting_s = Some(7.4);
        case.count(1, "cgroup.throttled_us", 7_000_000);
    });
    assert_eq!(throttled.named()[0].0, Cause::CpuQuota);
    assert!(!throttled.named().iter().any(|(cause, _)| *cause == Cause::HotCore));
    // The target may use two processors. Nothing shows that they were full, and nothing shows that it had time.
    let undetermined = full(|case| (case.web().running_s, case.web().cpus) = (9.6, Some("0-1".to_owned())));
    assert_eq!(undetermined.named(), []);
    assert!(said(&undetermined, Cause::ConnectionLimit).contains("96 %"));
}

#[test]
fn a_process_that_does_not_serve_lacks_no_descriptors() {
    let named = |change: Change| {
        let mut case = Case::slow();
        case.web().most_descriptors = Some(1_022);
        change(&mut case);
        case.named().contains(&(Cause::Descriptors, "web".to_owned()))
    };
    assert!(named(|_| {}));
    assert!(!named(|case| case.web().listens.clear()), "a bystander");
    let none_waits: Change =
        |case| case.counters.hosts[1].listeners.values_mut().for_each(|queue| queue.samples_waiting = 0);
    assert!(!named(none_waits), "nobody had to wait");
    assert!(named(|case| {
        case.counters.hosts[1].listeners.clear();
        case.http().counts.failed = 3;
    }));
    assert!(named(|case| {
        case.counters.hosts[1].listeners.clear();
        case.web().most_descriptors = Some(1_024);
    }));
}

#[test]
fn a_disk_that_the_target_never_waited_for_is_not_its_own() {
    let mut case = Case::slow();
    case.works(0.5);
    case.counters.machine.values.insert("pressure.io.some_us".to_owned(), 5_000_000);
    (case.web().samples, case.web().samples_blocked) = (5, 0);
    assert_eq!(case.named(), [(Cause::SlowHandler, "web".to_owned())]);
    case.web().samples_blocked = 1;
    assert_eq!(case.named(), [(Cause::Disk, String::new())]);
}

#[test]
fn of_processes_that_were_not_looked_at_nothing_is_known() {
    let missing = |key: &str, change: Change| {
        let mut case = Case::slow();
        case.works(0.5);
        case.http().plan.targets = vec!["10.0.0.2:80".parse().unwrap()];
        case.counters.machine.values.insert("pressure.io.some_us".to_owned(), 2_000_000);
        let why = "of the 70 listening processes, only 64 are observed".to_owned();
        case.counters.hosts[1].counters.missing.insert(key.to_owned(), why);
        change(&mut case);
        let is_unknown = |cause| said(&case, cause).contains("not all processes could be examined (of");
        (is_unknown(Cause::Descriptors), is_unknown(Cause::Disk))
    };
    assert_eq!(missing("more programs", |_| {}), (true, true));
    assert_eq!(missing("listeners", |_| {}), (false, false));
    assert_eq!(missing("programs", |_| {}), (false, false), "who is asked was seen");
    let is_hidden: Change = |case| case.web().listens = vec!["10.0.0.2:443".to_owned()];
    assert_eq!(missing("programs", is_hidden), (true, true));
    assert_eq!(missing("listeners", is_hidden), (false, false));
    let is_idle: Change = |case| {
        case.counters.machine.values.insert("pressure.io.some_us".to_owned(), 9_000);
    };
    assert_eq!(missing("more programs", is_idle), (true, false), "nobody waited for a disk");
    let mut case = Case::slow();
    case.counters.hosts[1].counters.missing.insert("more programs".to_owned(), "why".to_owned());
    case.web().most_descriptors = Some(1_024);
    assert_eq!(case.named(), [(Cause::Descriptors, "web".to_owned())], "what was seen counts");
}

#[test]
fn a_quota_stops_a_group_for_no_longer_than_its_periods() {
    let named = |stopped_periods, stopped_us| {
        let mut case = Case::slow();
        let counts = [("periods", 100), ("throttled_periods", stopped_periods), ("throttled_us", stopped_us)];
        counts.into_iter().for_each(|(name, value)| case.count(1, &format!("cgroup.{name}"), value));
        (case.named().first().map(|(cause, _)| *cause), said_of_quota(&case))
    };
    fn said_of_quota(case: &Case) -> String {
        let verdict = case.verdict();
        let named = verdict.bottlenecks.into_iter().find(|one| one.cause == Cause::CpuQuota);
        named.map_or_else(|| said(case, Cause::CpuQuota), |one| one.evidence)
    }
    // Four threads, each of which was throttled.
    let (cause, evidence) = named(90, 28_000_000);
    assert_eq!(
        (cause, &*evidence),
        (Some(Cause::CpuQuota), "the target's control group was throttled for up to 90 % of the time")
    );
    assert_eq!(named(4, 28_000_000).0, None, "64 processors, in four periods");
    assert_eq!(named(100, 400_000).0, None, "shortly in each period");
}

#[test]
fn on_one_machine_the_quota_of_the_program_that_is_asked_counts() {
    let mut case = Case::slow();
    case.counters.hosts = vec![host("")];
    case.roles = vec![Role::Both];
    let counts = [("periods", 100), ("throttled_periods", 90), ("throttled_us", 6_000_000)];
    let quota = counts.map(|(name, value)| (format!("cgroup.{name}"), value));
    case.counters.hosts[0].programs[0].quota = quota.into();
    assert_eq!(case.named(), [], "it listens on another port");
    case.http().plan.targets = vec!["10.0.0.2:80".parse().unwrap()];
    assert_eq!(case.named(), [(Cause::CpuQuota, String::new())]);
}

#[test]
fn processors_are_those_that_are_online() {
    let mut case = Case::slow();
    for core in [0, 2, 4, 6] {
        for (what, ms) in
            [("idle", if core == 6 { 100 } else { 9_000 }), ("softirq", if core == 6 { 8_000 } else { 0 })]
        {
            case.counters.machine.values.insert(format!("cpu{core}.{what}_ms"), ms);
        }
    }
    assert_eq!(case.named(), [(Cause::HotCore, String::new())]);
    assert!(case.verdict().bottlenecks[0].evidence.starts_with("core 6 "));
    case.counters.machine.values.insert("cpu6.idle_ms".to_owned(), 9_000);
    assert_eq!(case.named(), []);
    // A process that may use 128 processors, of which four are online.
    case.web().cpus = Some("0-127".to_owned());
    let worker = ProgramUse { busiest_thread_s: Some(8.0), running_s: 37.0, ..case.web().clone() };
    case.counters.hosts[1].programs = vec![worker];
    assert_eq!(case.named(), [(Cause::HotCore, "web".to_owned())]);
    case.web().running_s = 30.0;
    assert_eq!(case.named(), []);
}

#[test]
fn shares_of_a_remote_host_are_those_of_its_own_time() {
    let named = |elapsed_s| {
        let mut case = Case::slow();
        let mut machine = case.counters.machine.clone();
        machine.values.insert("pressure.io.some_us".to_owned(), 3_200_000);
        let web = &mut case.counters.hosts[1];
        (web.machine, web.elapsed_s) = (Some(machine), elapsed_s);
        case.named()
    };
    assert_eq!(named(Some(11.0)), []);
    assert_eq!(named(None), [(Cause::Disk, "web".to_owned())]);
}

#[test]
fn slow_answers_come_from_who_is_asked_or_from_behind() {
    let mut case = Case::slow();
    case.works(0.2);
    case.http().plan.targets = vec!["10.0.0.2:80".parse().unwrap()];
    let mut behind = host("app");
    behind.listeners.clear();
    (behind.programs[0].busiest_thread_s, behind.programs[0].running_s) = (Some(1.0), 1.0);
    case.counters.hosts.push(behind);
    case.roles.push(Role::Target);
    assert_eq!(case.named(), [(Cause::SlowHandler, "web".to_owned())]);
    let evidence = &case.verdict().bottlenecks[0].evidence;
    assert!(
        evidence.starts_with("it, or a service that it waits for, took 2.00 ms (median), while at app, "),
        "{evidence}"
    );
    case.counters.hosts[2].programs[0].running_s = 6.0;
    assert_eq!(case.named(), [], "what it waits for has no time");
}

#[test]
fn many_processes_have_time_if_they_leave_half_of_the_processors() {
    let named = |change: Change| {
        let mut case = Case::slow();
        case.web().cpus = Some("0-3".to_owned());
        let worker = ProgramUse { busiest_thread_s: Some(0.9), running_s: 0.9, ..case.web().clone() };
        case.counters.hosts[1].programs = (0..16).map(|pid| ProgramUse { pid, ..worker.clone() }).collect();
        // 16 requests were under way.
        (0..1_000).for_each(|_| case.http().service_time.record_ns(158_000_000, 0));
        change(&mut case);
        case.named().first().map(|(cause, _)| *cause)
    };
    assert_eq!(named(|_| {}), Some(Cause::SlowHandler), "1.44 of 4 processors");
    let on_two: Change = |case| {
        let programs = &mut case.counters.hosts[1].programs;
        programs.iter_mut().for_each(|program| program.cpus = Some("0-1".to_owned()));
    };
    assert_eq!(named(on_two), None, "1.44 of 2");
    assert_eq!(named(|case| case.web().running_s = 6.0), None, "one may be held by a lock");
    let one_by_one: Change = |case| {
        case.http().service_time = Default::default();
        (0..1_000).for_each(|_| case.http().service_time.record_ns(10_000_000, 0));
    };
    assert_eq!(named(one_by_one), None, "one request at a time");
}

#[test]
fn connections_that_have_just_come_wait_for_no_limit() {
    let named = |most_waiting| {
        let mut case = Case::slow();
        case.works(0.5);
        // 16 requests were under way.
        (0..1_000).for_each(|_| case.http().service_time.record_ns(158_000_000, 0));
        wait(&mut case, most_waiting, 11);
        case.named()[0].0
    };
    assert_eq!(
        (named(1), named(2)),
        (Cause::SlowHandler, Cause::SlowHandler),
        "two of 16 wait to be accepted"
    );
    assert_eq!(named(9), Cause::ConnectionLimit);
}

#[test]
fn what_could_not_be_looked_at_is_missing() {
    let mut case = Case::slow();
    let why = "ss is not installed there (Debian: iproute2)".to_owned();
    let web = &mut case.counters.hosts[1];
    web.programs.clear();
    web.listeners.clear();
    for what in ["listeners", "connections", "programs"] {
        web.counters.missing.insert(what.to_owned(), why.clone());
    }
    for cause in [
        Cause::Descriptors,
        Cause::HotCore,
        Cause::ConnectionLimit,
        Cause::ReceiveWindow,
        Cause::SendBuffer,
        Cause::CongestionWindow,
        Cause::SlowHandler,
    ] {
        let words = said(&case, cause);
        assert!(words.contains(&why), "{cause:?}: {words}");
    }
}
