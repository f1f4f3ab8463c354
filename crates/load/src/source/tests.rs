use super::*;
use crate::testing;
use record::{Arrivals, Stage};

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
