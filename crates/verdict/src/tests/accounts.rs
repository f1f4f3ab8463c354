//! Causes are ranked by the users' time that they took.

use record::{ListenerUse, UsersTime};

use super::*;

/// A closed load of 16 users for 10 s, all of whose time is waiting; `answers`: how many took how many milliseconds each.
pub(super) fn closed(answers: &[(u64, u64)]) -> Case {
    let mut case = Case { goals_met: true, ..Case::sound() };
    case.works(0.1);
    let http = case.http();
    http.plan = plans::closed(16);
    http.plan.targets = vec!["10.0.0.2:80".parse().unwrap()];
    http.service_time = Default::default();
    for (count, ms) in answers {
        (0..*count).for_each(|_| http.service_time.record_ns(ms * 1_000_000 + 50_000, 0));
        (http.counts.scheduled, http.counts.completed) =
            (http.counts.scheduled + count, http.counts.completed + count);
    }
    http.users_time = UsersTime { waiting_s: 160.0, ..UsersTime::default() };
    case
}

pub(super) fn first(case: &Case) -> Option<Cause> {
    case.verdict().first_cause()
}

#[test]
fn few_slow_answers_among_many_quick_ones_take_the_users_time() {
    // 5 % of the answers take 500 ms.
    let case = closed(&[(6_000, 0), (315, 500)]);
    assert_eq!(first(&case), Some(Cause::SlowHandler));
    let words = case.verdict().in_words().unwrap();
    assert!(words.contains("for 5.0 % of the answers, which is 98 % of the users' time"), "{words}");
    assert_eq!(first(&closed(&[(1_000_000, 0), (10, 500)])), Some(Cause::OfferedLoad), "3 % of their time");
}

#[test]
fn users_without_an_answer_are_not_carried() {
    let mut case = closed(&[(100_000, 0)]);
    assert_eq!(first(&case), Some(Cause::OfferedLoad));
    case.http().users_time.unanswered_s = 120.0;
    assert_ne!(first(&case), Some(Cause::OfferedLoad));
    // They were never accepted, and the target is 60 % busy with the others.
    case.works(6.0);
    wait(&mut case, 12, 10);
    case.counters.hosts[1].listeners.get_mut("10.0.0.2:80").unwrap().samples = 12;
    assert_eq!(first(&case), Some(Cause::ConnectionLimit));
}

#[test]
fn users_who_pause_are_the_offered_load() {
    let mut case = closed(&[(100, 5)]);
    case.http().users_time = UsersTime { paused_s: 159.5, waiting_s: 0.5, ..UsersTime::default() };
    let words = case.verdict().in_words().unwrap();
    assert!(
        words.starts_with("bound by the offered load: 16 users, who paused for 100 % of their time"),
        "{words}"
    );
}

#[test]
fn connections_that_came_late_are_not_the_path() {
    // Each connection took a second or more, the shortest 100 us; then answers took 160 ms.
    let mut case = closed(&[(900, 160)]);
    (0..16).for_each(|_| case.http().connect_time.record_ns(1_020_000_000));
    case.count(1, "TcpExt.ListenOverflows", 16);
    case.http().users_time = UsersTime { connecting_s: 16.4, waiting_s: 143.6, ..UsersTime::default() };
    let causes: Vec<Cause> = case.named().into_iter().map(|(cause, _)| cause).collect();
    assert_eq!(causes, [Cause::SlowHandler, Cause::AcceptQueue]);
}

#[test]
fn a_quota_that_stops_little_explains_little() {
    let mut case = closed(&[(500, 320)]);
    case.works(0.8);
    case.count(1, "cgroup.throttled_us", 800_000);
    let causes: Vec<Cause> = case.named().into_iter().map(|(cause, _)| cause).collect();
    assert_eq!(causes, [Cause::SlowHandler, Cause::CpuQuota]);
    let above = [("throttled_us", 9_000_000), ("periods", 100), ("throttled_periods", 95)];
    case.web().quota = above.map(|(name, value)| (format!("cgroup_above1.{name}"), value)).into();
    assert_eq!(first(&case), Some(Cause::CpuQuota), "the group above");
}

#[test]
fn a_thread_that_ran_as_much_before_the_load_does_not_work_for_it() {
    let mut case = closed(&[(1_000, 160)]);
    case.works(9.9);
    assert_eq!(first(&case), Some(Cause::HotCore));
    case.web().busy_before_share = Some(0.97);
    assert_eq!(first(&case), Some(Cause::SlowHandler));
    case.web().busy_before_share = Some(0.3);
    assert_eq!(first(&case), Some(Cause::HotCore));
}

#[test]
fn programs_that_no_request_reaches_are_not_the_target() {
    let mut case = closed(&[(1_000, 160)]);
    // The same port at another address of this machine.
    (case.counters.hosts, case.roles) = (vec![host("")], vec![Role::Both]);
    let other = ProgramUse {
        pid: 8,
        listens: vec!["10.0.0.3:80".to_owned()],
        busiest_thread_s: Some(9.9),
        running_s: 9.9,
        ..case.counters.hosts[0].programs[0].clone()
    };
    case.counters.hosts[0].listeners.insert("10.0.0.3:80".to_owned(), ListenerUse::default());
    case.counters.hosts[0].programs.push(other);
    let web = &mut case.counters.hosts[0].programs[0];
    (web.busiest_thread_s, web.running_s) = (Some(0.1), 0.1);
    assert_eq!(first(&case), Some(Cause::SlowHandler));
    // A host of the lab to which the load sends nothing.
    let mut case = closed(&[(1_000, 160)]);
    let mut monitor = host("monitor");
    monitor.listeners.clear();
    (monitor.programs[0].busiest_thread_s, monitor.programs[0].running_s) = (Some(9.9), 9.9);
    case.counters.hosts.push(monitor);
    case.roles.push(Role::Target);
    assert_eq!(first(&case), Some(Cause::HotCore), "whether it is reached is not known");
    case.count(2, "Tcp.InSegs", 0);
    assert_eq!(first(&case), Some(Cause::SlowHandler));
}

/// The times of the target's only processor, and the generator's part of it.
fn processor(case: &mut Case, idle_ms: u64, generator_s: f64) {
    case.web().cpus = Some("0".to_owned());
    case.counters.machine.values.insert("cpu0.idle_ms".to_owned(), idle_ms);
    case.counters.machine.values.insert("cpu0.softirq_ms".to_owned(), 0);
    case.http().cpu.user_s = generator_s;
}

#[test]
fn others_on_the_processors_of_the_target_keep_it_waiting() {
    // Its threads end with their connections, so nobody knows how long they waited.
    let mut case = closed(&[(23_000, 6)]);
    (case.web().busiest_thread_s, case.web().running_s) = (None, 4.9);
    processor(&mut case, 50, 0.1);
    assert_eq!(first(&case), Some(Cause::LacksProcessor), "{:#?}", case.verdict());
    processor(&mut case, 6_000, 0.1);
    assert_eq!(first(&case), Some(Cause::SlowHandler));
    // The generator itself takes the time of the processor.
    let mut case = closed(&[(1_000_000, 0)]);
    case.works(5.3);
    case.web().busiest_thread_waiting_s = Some(4.2);
    processor(&mut case, 30, 4.5);
    assert_eq!(first(&case), Some(Cause::Generator), "{:#?}", case.verdict());
}

#[test]
fn a_stopped_process_and_a_late_acknowledgement_are_seen() {
    let mut case = closed(&[(200, 800)]);
    (case.web().samples, case.web().samples_stopped) = (10, 8);
    assert_eq!(first(&case), Some(Cause::Stopped));
    let mut case = closed(&[(3_600, 44)]);
    case.http().users_time = UsersTime { waiting_s: 8.0, receiving_s: 152.0, ..UsersTime::default() };
    assert_eq!(first(&case), Some(Cause::SlowHandler));
    case.count(0, "TcpExt.DelayedACKs", 3_600);
    assert_eq!(first(&case), Some(Cause::DelayedAck));
}

#[test]
fn answers_that_refuse_show_a_rate_limit() {
    let mut case = Case { goals_met: false, ..closed(&[(1_000, 0)]) };
    case.http().statuses = [(200, 1_000), (429, 9_000)].into();
    (case.http().counts.failed, case.http().counts.scheduled) = (9_000, 10_000);
    assert_eq!(first(&case), Some(Cause::RateLimiter));
    case.http().statuses = [(200, 1_000), (503, 9_000)].into();
    assert_ne!(first(&case), Some(Cause::RateLimiter), "they may be those of an overloaded program");
    (0..9_000).for_each(|_| case.http().failure_time.record_ns(90_000));
    assert_eq!(first(&case), Some(Cause::RateLimiter));
}
