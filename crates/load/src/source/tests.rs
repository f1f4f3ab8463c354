use super::*;
use crate::testing;
use record::{Arrivals, Connections, Distribution, Stage};

#[test]
fn exactly_the_retired_slots_share_of_the_schedule_is_lost() {
    let stage = Stage { duration_ns: 1_000_000_000, from_rate_per_s: 1e3, to_rate_per_s: 1e3 };
    let mut pool = Pool {
        schedule: Schedule::new(
            Arrivals::Constant,
            &[stage],
            Bounds { requests: None, timed: true },
            1,
            ArrivalShare::new(Share::WHOLE, 400),
        ),
        idle: (0..255).collect(),
        pipelinable: VecDeque::new(),
        vacant: Vec::new(),
        unused: 400,
        is_full: false,
        holds: false,
        last_held_ns: 0,
        held_at: None,
        initial: 400,
        retired: 145,
        busy_at_ns: 0,
        retired_carry: 0,
    };
    let mut slots: Vec<Slot> = (0..400).map(|_| Slot::new(u64::MAX)).collect();
    let mut lost = 0;
    for arrival in 0..10_000 {
        match pool.choose_slot(&mut slots, 1) {
            Placement::Lost => lost += 1,
            Placement::Slot(slot) => pool.idle.push_back(slot),
            Placement::Busy => panic!("arrival {arrival} found no slot"),
        }
    }
    assert_eq!(lost, 10_000 * 145 / 400);
}

#[test]
fn requests_follow_the_users() {
    // Three users on two workers: one has twice as many users, and twice as many requests.
    let plan = HttpPlan { requests: Some(300), ..testing::closed(3) };
    let quotas: Vec<u64> = (0..2)
        .map(|index| match RequestSource::new(&plan, Share { index, of: 2 }).0 {
            RequestSource::Closed(users) => users.quota,
            RequestSource::Open(_) => panic!("a closed load"),
        })
        .collect();
    assert_eq!(quotas, [200, 100]);
}

/// The numbers of the iterations that a worker begins.
fn numbers(plan: &HttpPlan, share: Share, rows: Option<u64>) -> Vec<u64> {
    let begun = match RequestSource::new(plan, share).0 {
        RequestSource::Closed(users) => users.quota.min(users.loops.saturating_mul(users.users)),
        RequestSource::Open(pool) => pool.schedule.planned().unwrap(),
    };
    let mut numbers = numbering(plan, share, rows);
    (0..begun).map(|_| numbers.take()).collect()
}

proptest::proptest! {
    /// Any number of workers begins the same iterations: each number below their count once.
    #[test]
    fn workers_number_the_iterations_of_a_plan(
        of in 1u64..9, users in 1u64..40, requests in 1u64..500, kind in 0..4,
        rows in proptest::option::of(1_u64..500),
    ) {
        let stage = Stage { duration_ns: 1_000_000_000, from_rate_per_s: 300.0, to_rate_per_s: 100.0 };
        let connections = Connections { initial: 0, most: users };
        let open = |arrivals| LoadModel::Open { arrivals, stages: vec![stage], connections };
        let mut plan = testing::closed(users);
        match kind {
            0 => plan.requests = Some(requests),
            1 => plan.load = open(Arrivals::Constant),
            2 => (plan.load, plan.requests) = (open(Arrivals::Poisson), Some(requests)),
            _ => {
                let think_time = Distribution::Fixed { ns: 0 };
                plan.load = LoadModel::Closed { users, loops: Some(requests / 10 + 1), ramp_up_ns: 0, think_time };
            }
        }
        let mut all: Vec<u64> = (0..of).flat_map(|index| numbers(&plan, Share { index, of }, rows)).collect();
        all.sort_unstable();
        let count = all.len() as u64;
        proptest::prop_assert_eq!(all, (0..count).collect::<Vec<_>>());
        proptest::prop_assert!(count > 0);
    }
}

#[test]
fn rows_that_run_out_are_divided_by_turns() {
    let plan = HttpPlan { requests: Some(300), ..testing::closed(3) };
    let share = Share { index: 1, of: 3 };
    assert_eq!(numbering(&plan, share, Some(300)), Numbering::new(100, 1));
    assert_eq!(numbers(&plan, share, Some(299))[..3], [1, 4, 7]);
    // Two users begin 133 of 200 requests, one 67: it is left out of the last turns.
    let plan = HttpPlan { requests: Some(200), ..testing::closed(3) };
    let first = numbers(&plan, Share { index: 0, of: 2 }, Some(10));
    assert_eq!((first.len(), first[65], first[66], first[67], first[132]), (133, 130, 132, 134, 199));
}
