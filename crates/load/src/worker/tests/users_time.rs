//! Where the users' time went, against targets that take known times.

use record::UsersTime;

use super::*;

/// Sends the head of each answer after `head_ns`, and its body `body_ns` later. Connecting takes `connect_ns`.
struct InParts {
    connect_ns: u64,
    head_ns: u64,
    body_ns: u64,
}

impl Target for InParts {
    fn attempt(&mut self, _: u64, _: SlotId) -> Attempt {
        Attempt::Opens(self.connect_ns)
    }

    fn request(&mut self, _: u64, now_ns: u64) -> Vec<(u64, Action)> {
        let (head, body) = OK.split_at(OK.len() - 5);
        let at_ns = now_ns + self.head_ns;
        vec![(at_ns, Action::Send(head.to_vec())), (at_ns + self.body_ns, Action::Send(body.to_vec()))]
    }
}

fn assert_near(users: UsersTime, wanted: [f64; 7]) {
    for ((state, s), wanted) in users.states().into_iter().zip(wanted) {
        assert!(
            (s - wanted).abs() <= 0.002 * users.total_s(),
            "{state}: {s} s, wanted {wanted} s: {users:?}"
        );
    }
}

#[test]
fn each_state_of_a_user_takes_the_time_that_the_target_takes() {
    let think_time = Distribution::Fixed { ns: 70 * MS };
    let load = LoadModel::Closed { users: 8, loops: None, ramp_up_ns: 0, think_time };
    let plan = HttpPlan { load, duration_ns: Some(10 * S), ..testing::closed(8) };
    let target = || InParts { connect_ns: 30 * MS, head_ns: 20 * MS, body_ns: 10 * MS };
    // The connection is kept: 30 ms once, then 99.7 cycles of 100 ms.
    let (result, _) = run(plan.clone(), target());
    assert_near(result.http.users_time, [55.8, 0.0, 0.0, 0.24, 0.0, 16.0, 7.97]);
    // With a connection for each request, cycles take 130 ms.
    let (result, _) = run(HttpPlan { keepalive: false, ..plan }, target());
    assert_near(result.http.users_time, [43.1, 0.0, 0.0, 18.48, 0.0, 12.3, 6.16]);
}

#[test]
fn a_request_of_an_open_load_is_a_user_while_it_is_due() {
    // Two connections carry 20/s each, and 60/s are due: in 10 s, 200 more than were answered.
    let plan = HttpPlan { drain_ns: 20 * S, ..testing::open(60.0, 10, 2) };
    let (result, _) = run(plan, Steady { after_ns: 50 * MS });
    let users = result.http.users_time;
    assert_near(UsersTime { no_free_connection_s: 0.0, ..users }, [0.0, 0.0, 0.0, 0.0, 0.0, 30.0, 0.0]);
    let (due_s, answered_s) = (1.0 / 60.0, 1.0 / 40.0);
    let waited: f64 = (0..600).map(|n| f64::from(n) * (answered_s - due_s)).sum();
    assert!((users.no_free_connection_s / waited - 1.0).abs() < 0.02, "{users:?}, wanted {waited} s");
}

#[test]
fn requests_that_time_out_are_marked() {
    /// Answers every other request.
    struct EveryOther;
    impl Target for EveryOther {
        fn request(&mut self, n: u64, now_ns: u64) -> Vec<(u64, Action)> {
            if n.is_multiple_of(2) { vec![(now_ns + MS, Action::Send(OK.to_vec()))] } else { Vec::new() }
        }
    }
    let plan = HttpPlan { duration_ns: Some(10 * S), timeout_ns: 99 * MS, ..testing::closed(1) };
    let (result, _) = run(plan, EveryOther);
    let users = result.http.users_time;
    assert!((users.unanswered_s - 9.9).abs() < 0.1 && (users.waiting_s - 10.0).abs() < 0.01, "{users:?}");
}

#[test]
fn time_in_which_the_generator_was_away_is_its_own() {
    let plan = HttpPlan { duration_ns: Some(10 * S), ..testing::closed(4) };
    let (result, _) = run_stopped(plan, Steady { after_ns: 10 * MS }, &[(2 * S, S), (6 * S, S)], false);
    let users = result.http.users_time;
    // Each stop begins while answers are on their way.
    assert!((users.own_s - 8.0).abs() < 0.1 && (users.total_s() - 40.0).abs() < 0.01, "{users:?}");
}
