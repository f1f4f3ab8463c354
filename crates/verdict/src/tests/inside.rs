//! What the target's threads did while requests were inside.

use record::{ListenerUse, ProgramUse, TimePart, TimeState, WorkingThreads};

use super::{
    accounts::{closed, first},
    *,
};

/// 16 users whose only time is 10 s of waiting in a program with these working threads, each with its time on a processor, ready for one, and
/// waiting for a device, in seconds.
fn inside(count: u32, [running_s, waiting_s, blocked_s]: [f64; 3]) -> Case {
    let mut case = closed(&[(1_000, 160)]);
    let all = |s: f64| s * f64::from(count);
    case.web().working = Some(WorkingThreads {
        count,
        running_s: all(running_s),
        waiting_s: all(waiting_s),
        blocked_s: all(blocked_s),
    });
    wait(&mut case, 0, 0);
    (case.web().running_s, case.web().busiest_thread_s) = (all(running_s), Some(running_s));
    case.web().busiest_thread_waiting_s = Some(waiting_s);
    case
}

/// The share of a state in percent, in this program.
fn share_in(case: &Case, wanted: TimeState, program: &str) -> f64 {
    let is_it = |part: &&TimePart| part.state == wanted && part.program == program;
    case.verdict().account.iter().filter(is_it).map(|part| (part.share * 100.0).round()).sum()
}

fn share(case: &Case, wanted: TimeState) -> f64 {
    let name = case.counters.hosts[1].programs[0].name.clone();
    share_in(case, wanted, &name)
}

#[test]
fn threads_that_take_turns_at_a_lock_sleep() {
    let case = inside(16, [0.05, 0.0, 0.0]);
    assert!(share(&case, TimeState::Asleep) >= 99.0, "{:?}", case.verdict().account);
    assert_eq!(first(&case), Some(Cause::SlowHandler));
}

#[test]
fn an_event_loop_that_runs_all_the_time_holds_all_requests() {
    let case = inside(1, [9.9, 0.1, 0.0]);
    assert_eq!(share(&case, TimeState::Running), 99.0, "{:?}", case.verdict().account);
    assert_eq!(first(&case), Some(Cause::HotCore));
}

#[test]
fn threads_that_compute_in_turn_and_fill_their_processor_wait_for_it() {
    let mut case = inside(8, [1.2, 0.0, 0.0]);
    case.web().cpus = Some("0".to_owned());
    assert_eq!(case.named(), [(Cause::HotCore, "web".to_owned())], "{:?}", case.verdict());
    // A background thread that fills it leaves the others asleep.
    case.web().busiest_thread_s = Some(9.5);
    assert_eq!(first(&case), Some(Cause::SlowHandler));
}

#[test]
fn an_event_loop_that_sleeps_waits_for_something_else() {
    assert_eq!(share(&inside(1, [1.0, 0.0, 0.0]), TimeState::Asleep), 90.0);
}

#[test]
fn no_more_threads_than_requests_work_for_them() {
    // Of 64 threads, each ran for an eighth of the time: 8 of the 16 requests inside had one that ran.
    let case = inside(64, [1.25, 0.0, 0.0]);
    assert_eq!(share(&case, TimeState::Running), 50.0, "{:?}", case.verdict().account);
    assert_eq!(share(&case, TimeState::Asleep), 50.0);
}

#[test]
fn what_threads_wait_for_is_told_apart() {
    let case = inside(4, [2.0, 3.0, 1.0]);
    let states = [TimeState::Running, TimeState::Ready, TimeState::Blocked, TimeState::Asleep];
    assert_eq!(states.map(|state| share(&case, state)), [20.0, 30.0, 10.0, 40.0]);
    let mut case = inside(4, [1.0, 8.5, 0.0]);
    case.count(1, "cgroup.throttled_us", 8_000_000);
    let states = [TimeState::Running, TimeState::Throttled, TimeState::Ready];
    assert_eq!(
        states.map(|state| share(&case, state)),
        [10.0, 80.0, 5.0],
        "throttled threads are ready, too"
    );
    let mut case = inside(4, [1.0, 0.0, 0.0]);
    (case.web().samples, case.web().samples_stopped) = (10, 6);
    assert_eq!(share(&case, TimeState::Stopped), 60.0);
}

#[test]
fn what_threads_that_ended_did_beside_running_is_unknown() {
    let mut case = inside(1, [0.1, 0.0, 0.0]);
    (case.web().ended_s, case.web().running_s) = (4.0, 4.1);
    assert_eq!(share(&case, TimeState::Asleep), 0.0);
    assert!(share(&case, TimeState::Unknown) >= 95.0, "{:?}", case.verdict().account);
    let mut case = inside(1, [0.0; 3]);
    case.web().working = None;
    assert_eq!(share(&case, TimeState::Unknown), 100.0);
}

#[test]
fn requests_that_were_passed_on_are_in_the_program_behind() {
    // The front polls all the time; 12 of the 16 requests are in the program behind, whose only thread sleeps.
    let mut case = inside(1, [9.9, 0.0, 0.0]);
    case.web().asked = [("10.0.0.3:90".to_owned(), 12.0)].into();
    let mut behind = host("behind");
    behind.listeners = [("10.0.0.3:90".to_owned(), ListenerUse::default())].into();
    behind.programs = vec![ProgramUse {
        pid: 9,
        name: "store".to_owned(),
        listens: vec!["10.0.0.3:90".to_owned()],
        working: Some(WorkingThreads { count: 1, running_s: 0.5, ..WorkingThreads::default() }),
        ..ProgramUse::default()
    }];
    case.counters.hosts.push(behind);
    case.roles.push(Role::Target);
    assert_eq!(share(&case, TimeState::Running), 25.0);
    let [asleep, running] =
        [TimeState::Asleep, TimeState::Running].map(|state| share_in(&case, state, "store"));
    assert_eq!([asleep, running], [71.0, 4.0], "{:?}", case.verdict().account);
    let causes: Vec<(Cause, Certainty)> =
        case.verdict().bottlenecks.into_iter().map(|named| (named.cause, named.certainty)).collect();
    assert_eq!(causes, [(Cause::SlowHandler, Certainty::Likely), (Cause::HotCore, Certainty::Likely)]);
    // Nobody sees what is at that address.
    case.counters.hosts.truncate(2);
    case.roles.truncate(2);
    assert_eq!(share_in(&case, TimeState::Unknown, "10.0.0.3:90"), 75.0);
}

#[test]
fn connections_that_wait_to_be_accepted_are_not_inside() {
    let mut case = inside(4, [0.1, 0.0, 0.0]);
    wait(&mut case, 12, 10);
    case.counters.hosts[1].listeners.get_mut("10.0.0.2:80").unwrap().samples = 12;
    assert_eq!(share_in(&case, TimeState::AcceptQueue, ""), 75.0, "{:?}", case.verdict().account);
    assert_eq!(first(&case), Some(Cause::ConnectionLimit));
    // If new connections are dropped meanwhile, the limit keeps them out, too.
    case.count(1, "TcpExt.ListenOverflows", 60);
    case.http().users_time.connecting_s = 100.0;
    assert_eq!(first(&case), Some(Cause::ConnectionLimit));
}

#[test]
fn the_parts_add_up() {
    for case in [inside(16, [0.05, 1.0, 0.0]), inside(1, [9.9, 0.1, 0.0]), inside(64, [1.25, 3.0, 2.0])] {
        let sum: f64 = case.verdict().account.iter().map(|part| part.share).sum();
        assert!((0.97..=1.001).contains(&sum), "{sum}: {:?}", case.verdict().account);
    }
}

#[test]
fn a_generator_that_takes_most_of_the_users_time_bounds_the_load() {
    let mut case = closed(&[(1_000_000, 0)]);
    case.http().users_time = record::UsersTime { own_s: 140.0, waiting_s: 20.0, ..Default::default() };
    assert_eq!(first(&case), Some(Cause::Generator));
    case.http().users_time = record::UsersTime { own_s: 20.0, waiting_s: 140.0, ..Default::default() };
    assert_ne!(first(&case), Some(Cause::Generator));
}

#[test]
fn a_program_that_nobody_is_connected_to_is_not_the_target() {
    let mut case = inside(16, [0.05, 0.0, 0.0]);
    let mut other = case.web().clone();
    (other.pid, other.running_s, other.busiest_thread_s) = (8, 9.9, Some(9.9));
    other.listens = vec!["0.0.0.0:9000".to_owned()];
    case.counters.hosts[1].programs.push(other);
    let mut queue = ListenerUse { most_connections: 3, ..Default::default() };
    case.counters.hosts[1].listeners.insert("0.0.0.0:9000".to_owned(), queue.clone());
    assert_eq!(first(&case), Some(Cause::HotCore), "it may be asked");
    queue.most_connections = 0;
    case.counters.hosts[1].listeners.insert("0.0.0.0:9000".to_owned(), queue);
    assert_eq!(first(&case), Some(Cause::SlowHandler));
}

#[test]
fn lost_packets_take_no_more_than_the_longest_answers() {
    let mut case = closed(&[(20_000, 8)]);
    case.works(9.9);
    case.count(0, "Tcp.RetransSegs", 40);
    case.count(0, "TcpExt.TCPOrigDataSent", 20_000);
    assert_eq!(first(&case), Some(Cause::HotCore), "40 of 20,000 answers");
    // What is sent again to open connections is no lost data.
    let mut case = closed(&[(400, 400)]);
    case.works(0.1);
    case.count(0, "Tcp.RetransSegs", 386);
    case.count(0, "TcpExt.TCPOrigDataSent", 13_000);
    assert_eq!(first(&case), Some(Cause::PacketLoss));
    case.count(0, "TcpExt.TCPSynRetrans", 370);
    assert_eq!(first(&case), Some(Cause::SlowHandler));
}

#[test]
fn a_quota_stops_requests_and_not_the_idle_threads_of_a_pool() {
    let mut case = inside(200, [0.01, 0.0, 0.0]);
    case.count(1, "cgroup.throttled_us", 800_000);
    assert_eq!(share(&case, TimeState::Throttled), 8.0, "{:?}", case.verdict().account);
    assert_eq!(first(&case), Some(Cause::SlowHandler));
}

#[test]
fn one_thread_that_writes_for_all_waits_for_the_disk() {
    let mut case = inside(16, [0.05, 0.0, 0.0]);
    case.counters.machine.values.insert("pressure.io.some_us".to_owned(), 9_500_000);
    assert_eq!(first(&case), Some(Cause::SlowHandler), "another program waits");
    (case.web().samples, case.web().samples_blocked) = (100, 94);
    assert_eq!(first(&case), Some(Cause::Disk));
}

#[test]
fn a_full_program_behind_a_small_pool_is_waited_for() {
    let mut case = inside(1, [1.0, 0.0, 0.0]);
    case.web().asked = [("10.0.0.3:90".to_owned(), 1.0)].into();
    let mut behind = host("behind");
    behind.listeners = [("10.0.0.3:90".to_owned(), ListenerUse::default())].into();
    let working = WorkingThreads { count: 1, running_s: 9.5, ..WorkingThreads::default() };
    behind.programs = vec![ProgramUse {
        pid: 9,
        name: "store".to_owned(),
        listens: vec!["10.0.0.3:90".to_owned()],
        working: Some(working),
        running_s: 9.5,
        busiest_thread_s: Some(9.5),
        ..ProgramUse::default()
    }];
    case.counters.hosts.push(behind);
    case.roles.push(Role::Target);
    assert_eq!(first(&case), Some(Cause::HotCore), "{:?}", case.verdict());
}

#[test]
fn replicas_that_listen_at_all_addresses_are_told_apart_by_where_they_were_reached() {
    let mut case = inside(1, [0.0, 0.0, 0.0]);
    for (number, running_s) in [(3, 10.0), (4, 0.0)] {
        let mut replica = host(&format!("replica{number}"));
        let queue = ListenerUse { reached_at: [format!("10.0.0.{number}")].into(), ..Default::default() };
        replica.listeners = [("0.0.0.0:90".to_owned(), queue)].into();
        replica.programs = vec![ProgramUse {
            pid: 9,
            name: format!("store{number}"),
            listens: vec!["0.0.0.0:90".to_owned()],
            working: Some(WorkingThreads { count: 1, running_s, ..WorkingThreads::default() }),
            ..ProgramUse::default()
        }];
        case.web().asked.insert(format!("10.0.0.{number}:90"), 8.0);
        case.counters.hosts.push(replica);
        case.roles.push(Role::Target);
    }
    let parts = [(TimeState::Running, "store3"), (TimeState::Asleep, "store4")];
    assert_eq!(parts.map(|(state, name)| share_in(&case, state, name)), [50.0, 50.0], "{:?}", case.verdict());
}

#[test]
fn a_full_window_costs_no_more_than_its_round_trips() {
    let mut case = inside(1, [9.7, 0.0, 0.0]);
    let senders = |rtt_us| record::SenderUse {
        samples: 10,
        samples_sending: 10,
        in_flight_bytes: 8_000_000,
        congestion_window_bytes: 10_000_000,
        rtt_us,
        ..Default::default()
    };
    case.http().counts.received_bytes = 16_000_000_000;
    // 800 kB for each round trip of 100 us: 20,000 round trips, which took 2 of 160 s.
    case.counters.hosts[1].senders = senders(1_000);
    let first = |case: &Case| case.verdict().first_cause();
    assert_eq!(first(&case), Some(Cause::HotCore));
    case.counters.hosts[1].senders = senders(80_000);
    case.works(1.0);
    assert_eq!(first(&case), Some(Cause::CongestionWindow));
}
