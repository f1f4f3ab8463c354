use record::Decision;

use super::*;
use crate::testing;

const LIMITS: MachineLimits =
    MachineLimits { hard_descriptors: 256, available_memory_bytes: 1 << 30, ..MachineLimits::EXAMPLE };

#[test]
fn more_processes_are_chosen_when_one_has_too_few_descriptors() {
    let mut plan = testing::closed(400);
    let notes = fit(&mut plan, &LIMITS, FixedByUser::default()).unwrap();
    assert_eq!(plan.processes, 3);
    assert!(notes[0].contains("256"), "{notes:?}");
}

#[test]
fn a_fixed_number_of_processes_is_refused_with_the_numbers() {
    let mut plan = testing::closed(400);
    let refusals =
        fit(&mut plan, &LIMITS, FixedByUser { processes: true, ..FixedByUser::default() }).unwrap_err();
    assert!(refusals[0].contains("464") && refusals[0].contains("256"), "{refusals:?}");
}

#[test]
fn a_pool_on_demand_gets_what_the_load_needs_and_is_never_refused() {
    let decides = Decision { response_time_ns: 500_000_000, longest_ns: 500_000_000, loss_ratio: 0.01 };
    let plan =
        |rate_per_s: f64| HttpPlan { decides: Some(decides), ..testing::on_demand(rate_per_s, 5, 10_000) };
    let fitted = |rate_per_s: f64, limits: MachineLimits, asked: FixedByUser| {
        let mut plan = plan(rate_per_s);
        fit(&mut plan, &limits, asked).unwrap();
        plan
    };
    let free = FixedByUser::default();
    let ordinary = fitted(100.0, LIMITS, free);
    assert_eq!((ordinary.processes, ordinary.connections(), ordinary.pool_limit), (1, 192, None));
    let fast = fitted(1_000.0, LIMITS, free);
    assert_eq!((fast.processes, fast.connections(), fast.pool_limit), (4, 768, None));
    let roomy = fitted(1_000.0, MachineLimits { hard_descriptors: 20_000, ..LIMITS }, free);
    assert_eq!((roomy.processes, roomy.connections(), roomy.pool_limit), (1, 10_000, None));

    let one = fitted(1_000.0, LIMITS, FixedByUser { processes: true, ..free });
    assert_eq!((one.processes, one.connections()), (1, 192));
    assert!(one.pool_limit.unwrap().contains("--processes 4"));
    let poor = fitted(1_000.0, MachineLimits { tasks: 9, ..LIMITS }, free);
    assert_eq!((poor.processes, poor.connections()), (2, 384));
    assert!(poor.pool_limit.unwrap().contains("2 can be started (ulimit -u"));
    let ports = fitted(1_000.0, MachineLimits { ports: 100, ..LIMITS }, free);
    assert_eq!((ports.sources.len(), ports.connections(), ports.pool_limit), (14, 768, None));
    let memory = fitted(
        1_000.0,
        MachineLimits {
            available_memory_bytes: (12 << 20) + (400 << 10),
            hard_descriptors: 20_000,
            ..LIMITS
        },
        free,
    );
    assert!(memory.connections() == 100 && memory.pool_limit.unwrap().starts_with("memory: 683"));
}

#[test]
fn the_maximum_of_connections_fits_and_one_more_does_not() {
    let far = vec!["192.0.2.1:80".parse().unwrap()];
    for (limits, targets, asked) in [
        (MachineLimits { tasks: 40, ..LIMITS }, testing::closed(1).targets, FixedByUser::default()),
        (LIMITS, testing::closed(1).targets, FixedByUser { processes: true, sources: false }),
        (MachineLimits { ports: 100, ..LIMITS }, far, FixedByUser::default()),
    ] {
        let with = |users| HttpPlan { targets: targets.clone(), ..testing::closed(users) };
        let most = max_connections(&with(1 << 40), &limits, asked).unwrap();
        fit(&mut with(most), &limits, asked).unwrap();
        let refused = fit_or_advise(&mut with(most + 1), &limits, asked, "--users").unwrap_err();
        assert!(refused[0].ends_with(&format!("; or give --users {most}, which fits")), "{refused:?}");
    }
}

#[test]
fn users_that_cannot_all_connect_in_time_are_refused() {
    let limits = MachineLimits { available_memory_bytes: 1 << 40, ..MachineLimits::EXAMPLE };
    let fitted = |users, sending_ns| {
        let mut plan = HttpPlan { duration_ns: sending_ns, ..testing::closed(users) };
        fit_or_advise(&mut plan, &limits, FixedByUser::default(), "--users")
            .err()
            .unwrap_or_default()
            .join("\n")
    };
    let refused = fitted(1_000_000, Some(1_000_000_000));
    let why = "time: 1000000 users cannot all connect within 1 s: a processor opens at most 50000 connections a second, and 2 can be used;";
    assert!(
        refused.starts_with(why) && refused.ends_with("; or give --users 100000, which fits"),
        "{refused}"
    );
    for sound in
        [(100_000, Some(1_000_000_000)), (1_000_000, Some(10_000_000_000)), (1_000_000, None), (1, Some(1))]
    {
        assert_eq!(fitted(sound.0, sound.1), "", "{sound:?}");
    }
}

#[test]
fn with_little_memory_the_advice_has_a_margin() {
    let limits = MachineLimits { available_memory_bytes: 13 << 20, hard_descriptors: 20_000, ..LIMITS };
    let most = max_connections(&testing::closed(1_000), &limits, FixedByUser::default()).unwrap();
    assert_eq!(most, 256 - 32);
    let nothing = MachineLimits { available_memory_bytes: 1 << 20, ..LIMITS };
    let refusals = fit(&mut testing::open(10.0, 1, 1), &nothing, FixedByUser::default()).unwrap_err();
    assert!(refusals[0].starts_with("memory: 1 connections"), "{refusals:?}");
}

/// If processes took all the memory, none would be left for connections.
#[test]
fn the_advice_takes_no_more_processes_than_connections_need() {
    let plan = HttpPlan { targets: vec!["192.0.2.1:80".parse().unwrap()], ..testing::closed(1_000) };
    for whole in 0..50 {
        let memory = 60 * process_memory_bytes(&plan) + whole * (process_memory_bytes(&plan) / 50);
        let limits = MachineLimits { ports: 100, available_memory_bytes: memory, ..MachineLimits::EXAMPLE };
        let most = max_connections(&plan, &limits, FixedByUser::default());
        assert_eq!(most, Some(100), "{memory}");
    }
}

#[test]
fn every_worker_has_a_connection() {
    for (users, asked, fitted) in [
        (1, (1, 8), (1, 1)),
        (3, (1, 8), (1, 3)),
        (3, (2, 2), (2, 2)),
        (15, (8, 2), (8, 2)),
        (9, (4, 8), (4, 3)),
        (3, (4, 2), (3, 1)),
        (16, (2, 8), (2, 8)),
    ] {
        let (processes, threads) = asked;
        let mut plan = HttpPlan { processes, threads, ..testing::closed(users) };
        let notes = fit(&mut plan, &LIMITS, FixedByUser::default()).unwrap();
        assert_eq!((plan.processes, plan.threads), fitted, "{users}");
        assert_eq!(notes.len(), usize::from(asked != fitted), "{notes:?}");
        let mut open = HttpPlan { processes, threads, ..testing::open(1e3, 1, users) };
        fit(&mut open, &LIMITS, FixedByUser::default()).unwrap();
        assert_eq!((open.processes, open.threads), fitted, "{users}");
    }
}

#[test]
fn loopback_gets_more_source_addresses_and_other_targets_a_refusal() {
    let limits = MachineLimits { hard_descriptors: 20_000, available_memory_bytes: 1 << 34, ..LIMITS };
    let mut plan = testing::closed(200_000);
    fit(&mut plan, &limits, FixedByUser::default()).unwrap();
    assert_eq!((plan.processes, plan.sources.len()), (11, 15));

    let mut many = testing::closed(18_000);
    fit(&mut many, &limits, FixedByUser::default()).unwrap();
    assert_eq!((many.processes, many.sources.len()), (1, 2));

    let mut far = testing::closed(30_000);
    far.targets = vec!["192.0.2.1:80".parse().unwrap()];
    let refusals = fit(&mut far, &limits, FixedByUser::default()).unwrap_err();
    assert!(refusals[0].contains("--source"), "{refusals:?}");
}

#[test]
fn missing_addresses_and_processors_are_mistakes_of_their_fields() {
    let mut plan = testing::closed(1);
    plan.sources = vec!["127.0.0.9".parse().unwrap()];
    assert!(missing_here(&plan).is_empty());
    // Addresses that are reserved for documentation (RFC 5737).
    plan.sources.push("192.0.2.9".parse().unwrap());
    plan.cpus = vec![4_095];
    let messages: Vec<_> = missing_here(&plan).into_iter().map(|m| (m.field, m.message)).collect();
    assert_eq!(messages[0].0, "source");
    assert_eq!(messages[0].1, "192.0.2.9 is not an address of this machine; see `ip addr`");
    assert!(messages[1].0 == "cpus" && messages[1].1.contains("pinned to 4095"), "{messages:?}");
    plan.sources.push("192.0.2.10".parse().unwrap());
    assert!(missing_here(&plan)[0].message.starts_with("192.0.2.9 and 1 more are not addresses"));
}

#[test]
fn everything_that_does_not_fit_is_reported_together() {
    let limits = MachineLimits { available_memory_bytes: 1 << 20, ..LIMITS };
    let mut plan = testing::closed(30_000);
    let asked = FixedByUser { processes: true, sources: true };
    assert_eq!(fit(&mut plan, &limits, asked).unwrap_err().len(), 3);
}
