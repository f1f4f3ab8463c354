use record::{Cause, ErrorClass, HostCounters, ProgramUse, Validity, VoidReason, VoidRule};
use testing::plans;

use super::*;

mod accounts;
mod doubts;
mod inside;
mod targets;
mod windows;

/// A trial of 10 s without any bottleneck: 100 requests a second, answered in 2 ms, against `web`, from `client`.
struct Case {
    trial: Trial,
    goals_met: bool,
    counters: TrialCounters,
    links: Vec<LinkUse>,
    roles: Vec<Role>,
}

impl Case {
    fn sound() -> Self {
        let mut http = record::HttpTrial { plan: plans::open(100.0, 10, 8), ..Default::default() };
        (http.counts.scheduled, http.counts.completed, http.measured_s) = (1_000, 1_000, 10.0);
        (0..1_000).for_each(|_| http.service_time.record_ns(2_000_000, 0));
        http.connect_time.record_ns(100_000);
        let mut counters = TrialCounters { elapsed_s: 10.0, ..TrialCounters::default() };
        counters.hosts = vec![host("client"), host("web")];
        for (name, value) in
            [("softnet.drops", 0), ("softnet.packets", 100_000), ("pressure.io.some_us", 9_000)]
        {
            counters.machine.values.insert(name.to_owned(), value);
        }
        let links = vec![LinkUse {
            name: "link sea a to b".to_owned(),
            rate_bits_per_s: Some(10e6),
            carried_bits_per_s: 4e6,
            offered_packets: 100_000,
            ..LinkUse::default()
        }];
        let (trial, roles) = (plans::trial(http), vec![Role::Load, Role::Target]);
        Self { trial, goals_met: true, counters, links, roles }
    }

    /// A trial that completes 400 of 1000 requests and misses a goal.
    fn slow() -> Self {
        let mut case = Self { goals_met: false, ..Self::sound() };
        case.http().counts.completed = 400;
        case
    }

    fn http(&mut self) -> &mut record::HttpTrial {
        self.trial.http_mut().unwrap()
    }

    fn count(&mut self, host: usize, name: &str, value: u64) {
        self.counters.hosts[host].counters.values.insert(name.to_owned(), value);
    }

    fn web(&mut self) -> &mut ProgramUse {
        &mut self.counters.hosts[1].programs[0]
    }

    /// Sets the time that the users spent in connecting, in seconds.
    fn connects_for(&mut self, seconds: f64) {
        self.http().users_time.connecting_s = seconds;
    }

    /// Sets the work of the target's only thread, in seconds.
    fn works(&mut self, seconds: f64) {
        (self.web().busiest_thread_s, self.web().running_s) = (Some(seconds), seconds);
    }

    /// The verdict. Users wait for their answers, unless the case says what else they do.
    fn verdict(&self) -> Verdict {
        let mut trial = self.trial.clone();
        let http = trial.http_mut().unwrap();
        let times = [&http.service_time.observed, &http.service_time.censored];
        if http.users_time.waiting_s + http.users_time.receiving_s == 0.0 {
            http.users_time.waiting_s =
                times.map(|times| times.mean_ns() * times.count() as f64 / 1e9).iter().sum();
        }
        judge(&Observed {
            trial: &trial,
            goals_met: self.goals_met,
            counters: &self.counters,
            roles: &self.roles,
            links: &self.links,
        })
    }

    /// The causes that are named, with their places.
    fn named(&self) -> Vec<(Cause, String)> {
        self.verdict().bottlenecks.into_iter().map(|named| (named.cause, named.place)).collect()
    }
}

/// Lets so many connections wait to be accepted in so many samples.
fn wait(case: &mut Case, waiting: u32, samples: u32) {
    let queue = case.counters.hosts[1].listeners.get_mut("10.0.0.2:80").unwrap();
    (queue.samples_waiting, queue.most_waiting) = (samples, waiting);
    queue.sum_waiting = u64::from(waiting * samples);
}

fn host(name: &str) -> HostCounters {
    let mut host = HostCounters { host: name.to_owned(), ..HostCounters::default() };
    for counter in ["TcpExt.ListenOverflows", "TcpExt.TCPReqQFullDrop", "TcpExt.TCPReqQFullDoCookies"] {
        host.counters.values.insert(counter.to_owned(), 0);
    }
    let queue = record::ListenerUse {
        backlog: 128,
        most_waiting: 3,
        samples: 11,
        samples_waiting: 1,
        sum_waiting: 3,
        ..Default::default()
    };
    host.listeners.insert("10.0.0.2:80".to_owned(), queue);
    host.programs.push(ProgramUse {
        pid: 7,
        name: "nginx".to_owned(),
        listens: vec!["10.0.0.2:80".to_owned()],
        busiest_thread_s: Some(7.0),
        running_s: 8.0,
        most_descriptors: Some(40),
        max_descriptors: Some(1_024),
        ..ProgramUse::default()
    });
    host
}

#[test]
fn a_load_that_is_carried_bounds_itself() {
    let mut case = Case::sound();
    assert_eq!(case.named(), [(Cause::OfferedLoad, String::new())]);
    // The target carried the load, so neither likely nor counted causes have limited it yet.
    case.counters.machine.values.insert("pressure.io.some_us".to_owned(), 9_000_000);
    case.count(1, "TcpExt.ListenOverflows", 4);
    case.connects_for(4.0);
    case.links[0].dropped_packets = 900;
    assert_eq!(case.named(), [(Cause::OfferedLoad, String::new())]);
    let excluded = case.verdict().excluded;
    for (cause, evidence) in [
        (Cause::AcceptQueue, "web: a queue of 128 overflowed 4 times"),
        (Cause::LinkQueue, "link sea a to b: its queue dropped 900 of 100,000 packets"),
        (Cause::Disk, "some process waited for a disk 90 % of the time"),
    ] {
        let of = |one: &&Excluded| one.cause == cause && one.evidence.starts_with(evidence);
        let one = excluded.iter().find(of).unwrap_or_else(|| panic!("{cause:?}: {excluded:#?}"));
        assert!(one.evidence.ends_with("; the load was carried anyway"), "{one:?}");
    }
    case.http().counts.completed = 980;
    assert_eq!(case.named()[0], (Cause::AcceptQueue, "web".to_owned()));
}

#[test]
fn what_nothing_explains_is_not_determined() {
    let verdict = Case::slow().verdict();
    assert_eq!((&verdict.bottlenecks[..], verdict.in_words()), (&[][..], None));
    let excluded: Vec<Cause> = verdict.excluded.iter().map(|excluded| excluded.cause).collect();
    for cause in [
        Cause::HotCore,
        Cause::AcceptQueue,
        Cause::SynQueue,
        Cause::LinkRate,
        Cause::PacketQueue,
        Cause::Disk,
    ] {
        assert!(excluded.contains(&cause), "{cause:?} is not among {excluded:?}");
    }
}

type Change = fn(&mut Case);

#[test]
fn each_cause_is_named_where_it_is() {
    let cases: [(Cause, &str, Change); 15] = [
        (Cause::AcceptQueue, "web", |case| {
            case.count(1, "TcpExt.ListenOverflows", 412);
            case.connects_for(412.0);
        }),
        (Cause::SynQueue, "web", |case| {
            case.count(1, "TcpExt.TCPReqQFullDrop", 9);
            case.connects_for(9.0);
        }),
        (Cause::HotCore, "web", |case| case.works(9.9)),
        (Cause::HotCore, "", |case| {
            for (name, ms) in [("cpu0.idle_ms", 100), ("cpu0.softirq_ms", 8_000)] {
                case.counters.machine.values.insert(name.to_owned(), ms);
            }
        }),
        (Cause::Descriptors, "web", |case| case.web().most_descriptors = Some(1_022)),
        (Cause::CpuQuota, "web", |case| case.count(1, "cgroup.throttled_us", 6_000_000)),
        (Cause::Conntrack, "web", |case| {
            case.count(1, "conntrack.drop", 3);
            case.count(1, "conntrack.entries", 990);
            case.count(1, "conntrack.max_entries", 1_000);
        }),
        (Cause::ConnectionLimit, "web", |case| {
            case.works(1.0);
            wait(case, 3, 11);
        }),
        (Cause::LinkRate, "link sea a to b", |case| case.links[0].carried_bits_per_s = 9.7e6),
        (Cause::LinkQueue, "link sea a to b", |case| case.links[0].dropped_packets = 900),
        (Cause::PacketQueue, "", |case| {
            case.counters.machine.values.insert("softnet.drops".to_owned(), 5_000);
        }),
        (Cause::PacketQueue, "client", |case| {
            case.count(0, "interface.eth0.receive_drops", 50);
            case.count(0, "interface.eth0.received_packets", 10_000);
        }),
        (Cause::PacketLoss, "", |case| case.links[0].lost_packets = 100),
        (Cause::Disk, "", |case| {
            case.counters.machine.values.insert("pressure.io.some_us".to_owned(), 6_000_000);
        }),
        (Cause::SlowHandler, "web", |case| case.works(0.5)),
    ];
    for (cause, place, change) in cases {
        let mut case = Case::slow();
        change(&mut case);
        assert_eq!(case.named(), [(cause, place.to_owned())], "{:#?}", case.verdict());
    }
}

#[test]
fn drops_that_only_a_driver_counts_are_named_by_its_counter() {
    let with = |counter: &str, drops| {
        let mut case = Case::slow();
        case.count(1, "interface.eth0.1.received_packets", 10_000);
        case.count(1, "interface.eth0.1.receive_drops", 0);
        case.count(1, "interface.eth0.1.receive_ring_packets", 256);
        case.count(1, "interface.eth0.1.largest_receive_ring_packets", 4_096);
        case.count(1, &format!("interface.eth0.1.ethtool.{counter}"), drops);
        case
    };
    let case = with("rx_queue_0_drops", 50);
    assert_eq!(case.named(), [(Cause::PacketQueue, "web".to_owned())]);
    let evidence =
        "eth0.1 dropped 50 of 10000 packets (rx_queue_0_drops; its ring has room for 256, at most 4096)";
    assert_eq!(case.verdict().bottlenecks[0].evidence, evidence);
    assert_eq!(with("rx_out_of_buffer", 20_000).named(), [(Cause::PacketQueue, "web".to_owned())]);
    for (counter, drops) in
        [("rx_queue_0_drops", 4), ("rx_queue_0_xdp_drops", 50), ("fdir_miss", 50), ("rx_crc_errors", 50)]
    {
        assert_eq!(with(counter, drops).named(), [], "{counter}");
    }
}

/// The target is on another machine, which has separate counters.
fn remote() -> Case {
    let mut case = Case::slow();
    let own = case.counters.machine.clone();
    case.counters.hosts[1].machine = Some(own);
    case
}

#[test]
fn a_remote_machine_has_its_own_disk_cores_and_queues() {
    let changes: [(Cause, &[(&str, u64)]); 3] = [
        (Cause::Disk, &[("pressure.io.some_us", 6_000_000)]),
        (Cause::HotCore, &[("cpu0.idle_ms", 100), ("cpu0.softirq_ms", 8_000)]),
        (Cause::PacketQueue, &[("softnet.drops", 5_000)]),
    ];
    for (cause, values) in changes {
        let mut case = remote();
        for (name, value) in values {
            let machine = case.counters.hosts[1].machine.as_mut().unwrap();
            machine.values.insert((*name).to_owned(), *value);
        }
        assert_eq!(case.named(), [(cause, "web".to_owned())], "{:#?}", case.verdict());
    }
    // The disk of the machine that generates the load is not the target's.
    let mut case = remote();
    case.counters.machine.values.insert("pressure.io.some_us".to_owned(), 6_000_000);
    assert_eq!(case.named(), []);
}

#[test]
fn what_a_lost_host_would_have_shown_is_missing() {
    let mut case = Case::slow();
    let missing = [("ssh".to_owned(), "no answer for 5 s".to_owned())];
    let counters = record::Counters { missing: missing.into(), ..record::Counters::default() };
    case.counters.hosts[1] = HostCounters { host: "web".to_owned(), counters, ..HostCounters::default() };
    let verdict = case.verdict();
    assert_eq!((verdict.in_words(), &*verdict.missing[0]), (None, "web: no answer for 5 s"));
    assert!(!verdict.missing.iter().any(|missing| missing.contains("does not count")), "{verdict:#?}");
}

#[test]
fn what_hides_others_comes_first() {
    let mut case = Case::slow();
    case.count(1, "TcpExt.ListenOverflows", 3);
    case.connects_for(3.0);
    case.links[0].carried_bits_per_s = 9.7e6;
    case.web().most_descriptors = Some(1_024);
    let causes: Vec<Cause> = case.named().into_iter().map(|(cause, _)| cause).collect();
    assert_eq!(causes, [Cause::Descriptors, Cause::AcceptQueue, Cause::LinkRate]);
}

#[test]
fn a_quota_costs_nothing_before_a_full_link() {
    let mut case = Case::slow();
    case.count(1, "cgroup.throttled_us", 2_800_000);
    case.links[0].carried_bits_per_s = 9.4e6;
    assert_eq!(case.named(), [(Cause::LinkRate, "link sea a to b".to_owned())]);
    assert!(case.verdict().excluded.iter().any(|excluded| excluded.cause == Cause::CpuQuota));
}

#[test]
fn a_process_that_shut_itself_in_does_not_lack_descriptors() {
    let mut case = Case::slow();
    (case.web().most_descriptors, case.web().max_descriptors) = (Some(7), Some(1));
    assert!(!case.named().iter().any(|(cause, _)| *cause == Cause::Descriptors), "{:?}", case.named());
}

#[test]
fn a_load_of_which_requests_fail_is_not_carried() {
    let mut case = Case::sound();
    case.http().counts.failed = 1;
    assert_eq!(case.named()[0].0, Cause::OfferedLoad);
    case.http().counts.failed = 9;
    assert_eq!(case.named(), []);
}

#[test]
fn connections_that_wait_under_load_show_a_limit() {
    let mut case = Case::slow();
    let queue = case.counters.hosts[1].listeners.values_mut().next().unwrap();
    (queue.samples, queue.samples_waiting, queue.sum_waiting) = (8, 4, 12);
    case.works(2.0);
    assert_eq!(
        case.named()[0].0,
        Cause::ConnectionLimit,
        "two of the eight are before the load and after it"
    );
}

#[test]
fn the_generator_is_named_before_the_target() {
    let mut case = Case::slow();
    case.works(9.9);
    let evidence = "a thread of the generator had no time left".to_owned();
    case.trial.validity =
        Validity::from_reasons(vec![VoidReason { rule: VoidRule::CpuExhausted, evidence: evidence.clone() }]);
    assert_eq!(case.verdict().bottlenecks[0].evidence, evidence);
    case.http().errors.add(ErrorClass::Ports, 5);
    assert_eq!(case.named()[0].0, Cause::SourcePorts);
}

#[test]
fn on_one_machine_only_the_program_that_is_asked_is_the_target() {
    let mut case = Case::slow();
    case.counters.hosts = vec![host("")];
    case.roles = vec![Role::Both];
    case.counters.hosts[0].programs[0].busiest_thread_s = Some(9.9);
    assert_eq!(case.named(), [], "it listens on another port");
    let plan = &mut case.http().plan;
    plan.targets = vec!["10.0.0.2:80".parse().unwrap()];
    assert_eq!(case.named(), [(Cause::HotCore, String::new())]);
    let words = case.verdict().in_words().unwrap();
    assert_eq!(words, "bound by a busy core: the busiest thread of nginx was 99 % busy");
}

#[test]
fn of_a_target_elsewhere_this_machine_knows_nothing() {
    let mut case = Case::slow();
    (case.roles[1], case.links) = (Role::Load, Vec::new());
    case.count(1, "TcpExt.ListenOverflows", 412);
    case.works(9.9);
    case.counters.machine.values.insert("pressure.io.some_us".to_owned(), 9_000_000);
    let verdict = case.verdict();
    assert_eq!(verdict.bottlenecks, []);
    assert!(verdict.missing.iter().any(|why| why.contains("no process of the target")), "{verdict:?}");
}

#[test]
fn counters_that_are_missing_are_named() {
    let mut case = Case::slow();
    case.counters.machine.values.clear();
    for host in &mut case.counters.hosts {
        host.counters.values.clear();
        host.programs.clear();
    }
    let missing = case.verdict().missing;
    for name in ["softnet_stat", "/proc/pressure/io", "ListenOverflows", "TCPReqQFullDrop", "no process"] {
        assert!(missing.iter().any(|why| why.contains(name)), "{name}: {missing:?}");
    }
}
