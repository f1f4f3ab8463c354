use super::*;
use crate::share::Share;
use proptest::prelude::*;

fn stage(seconds: f64, from: f64, to: f64) -> Stage {
    Stage { duration_ns: (seconds * 1e9) as u64, from_rate_per_s: from, to_rate_per_s: to }
}

fn alone(arrivals: Arrivals, stages: &[Stage], seed: u64) -> Schedule {
    Schedule::new(arrivals, stages, TIMED, seed, ArrivalShare::new(Share::WHOLE, 1))
}

/// The schedules of all workers.
fn shared(arrivals: Arrivals, stages: &[Stage], bounds: Bounds, connections: u64, of: u64) -> Vec<Schedule> {
    (0..of)
        .map(|index| {
            Schedule::new(arrivals, stages, bounds, 7, ArrivalShare::new(Share { index, of }, connections))
        })
        .collect()
}

fn all(mut schedule: Schedule) -> Vec<u64> {
    std::iter::from_fn(|| schedule.take()).collect()
}

const TIMED: Bounds = Bounds { requests: None, timed: true };

#[test]
fn a_constant_rate_is_evenly_spaced_from_the_start() {
    let times = all(alone(Arrivals::Constant, &[stage(2.0, 1_000.0, 1_000.0)], 1));
    assert_eq!(times.len(), 2_000);
    assert!(times.iter().enumerate().all(|(k, &t)| t == k as u64 * 1_000_000));
}

#[test]
fn a_ramp_has_as_many_arrivals_as_its_area_and_gets_denser() {
    let times = all(alone(Arrivals::Constant, &[stage(10.0, 0.0, 1_000.0)], 1));
    assert_eq!(times.len(), 5_000);
    // Λ(t) = 50·t²: a quarter of the arrivals come in the first half.
    let first_half = times.iter().filter(|&&t| t < 5_000_000_000).count();
    assert_eq!(first_half, 1_250);
}

#[test]
fn steps_follow_each_other_without_a_gap() {
    let stages = [stage(1.0, 100.0, 100.0), stage(1.0, 0.0, 0.0), stage(1.0, 200.0, 200.0)];
    let times = all(alone(Arrivals::Constant, &stages, 1));
    assert_eq!(times.len(), 300);
    assert_eq!(times[99], 990_000_000);
    assert_eq!(times[100], 2_000_000_000);
    assert_eq!(times[101], 2_005_000_000);
}

#[test]
fn poisson_gaps_are_exponential() {
    let mut schedule = alone(Arrivals::Poisson, &[stage(100.0, 1_000.0, 1_000.0)], 7);
    let times = all(schedule.clone());
    assert!((times.len() as f64 - 100_000.0).abs() < 5.0 * 100_000f64.sqrt(), "{}", times.len());
    let mean = 1e6;
    let longer_than_mean = times.windows(2).filter(|w| (w[1] - w[0]) as f64 > mean).count();
    let share = longer_than_mean as f64 / times.len() as f64;
    assert!((share - (-1f64).exp()).abs() < 0.01, "{share}");
    schedule.take();
    assert_eq!((schedule.planned(), schedule.end_ns()), (None, None));
}

#[test]
fn workers_share_a_limit_on_requests() {
    let bounds = Bounds { requests: Some(10), ..TIMED };
    let schedules = shared(Arrivals::Constant, &[stage(10.0, 100.0, 100.0)], bounds, 3, 3);
    assert!(schedules.iter().all(|schedule| schedule.end_ns() == Some(90_000_000)));
    let counts: Vec<_> = schedules.into_iter().map(|schedule| all(schedule).len()).collect();
    assert_eq!(counts, [4, 3, 3]);
}

#[test]
fn workers_have_arrivals_in_proportion_to_their_connections() {
    let stages = [stage(10.0, 5_000.0, 5_000.0)];
    for (arrivals, off) in [(Arrivals::Constant, 1.0), (Arrivals::Poisson, 1_000.0)] {
        let schedules = shared(arrivals, &stages, TIMED, 5, 4);
        let counts: Vec<f64> = schedules.into_iter().map(|schedule| all(schedule).len() as f64).collect();
        for (count, expected) in counts.iter().zip([20_000.0, 10_000.0, 10_000.0, 10_000.0]) {
            assert!((count - expected).abs() <= off, "{counts:?}");
        }
    }
    // With more workers than connections, some workers have no connection and no arrivals.
    for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
        let schedules = shared(arrivals, &stages, TIMED, 2, 3);
        let counts: Vec<usize> = schedules.into_iter().map(|schedule| all(schedule).len()).collect();
        assert!(counts[0] > 0 && counts[1] > 0 && counts[2] == 0, "{counts:?}");
    }
}

#[test]
fn a_poisson_process_without_a_duration_has_the_requests_of_the_plan() {
    // The stage lasts as long as the requests take on average, so half of the runs have fewer requests within it.
    let stages = [stage(1.0, 1_000.0, 1_000.0)];
    for of in [1, 4] {
        let bounds = Bounds { requests: Some(1_000), timed: false };
        let schedules = shared(Arrivals::Poisson, &stages, bounds, 10, of);
        let end_ns = schedules[0].end_ns();
        assert!(schedules.iter().all(|schedule| schedule.end_ns() == end_ns));
        let planned: Option<u64> = schedules.iter().map(Schedule::planned).sum();
        let times: Vec<u64> = schedules.into_iter().flat_map(all).collect();
        assert_eq!((times.len(), planned), (1_000, Some(1_000)));
        assert_eq!(times.iter().max().copied(), end_ns);
    }
    let ends_s: Vec<f64> = (0..40)
        .map(|seed| {
            let bounds = Bounds { requests: Some(1_000), timed: false };
            let share = ArrivalShare::new(Share::WHOLE, 1);
            let end_ns = Schedule::new(Arrivals::Poisson, &stages, bounds, seed, share).end_ns();
            end_ns.unwrap() as f64 / 1e9
        })
        .collect();
    assert!(ends_s.iter().any(|&s| s > 1.01) && ends_s.iter().any(|&s| s < 0.99), "{ends_s:?}");
    let mean_s = ends_s.iter().sum::<f64>() / ends_s.len() as f64;
    assert!((mean_s - 1.0).abs() < 0.02, "{mean_s}");
}

#[test]
fn a_poisson_process_ends_with_its_duration_or_requests_whichever_is_first() {
    let stages = [stage(1.0, 1_000.0, 1_000.0)];
    let schedule = |requests| {
        shared(Arrivals::Poisson, &stages, Bounds { requests: Some(requests), timed: true }, 1, 1).remove(0)
    };
    let few = schedule(100);
    assert!(few.end_ns().is_some_and(|ns| ns < 200_000_000));
    assert_eq!(all(few).len(), 100);
    let many = schedule(10_000);
    assert_eq!(many.end_ns(), None);
    assert!(all(many).len() < 1_200);
}

proptest! {
    #[test]
    fn the_shares_together_are_the_whole_schedule(
        rate in 1.0f64..5_000.0, to in 0.0f64..5_000.0, of in 1u64..7, connections in 1u64..20, seconds in 0.01f64..3.0,
    ) {
        let stages = [stage(seconds, rate, to), stage(seconds / 2.0, to, rate)];
        let whole = all(alone(Arrivals::Constant, &stages, 1));
        let mut parts: Vec<u64> = Vec::new();
        for schedule in shared(Arrivals::Constant, &stages, TIMED, connections, of) {
            let planned = schedule.planned();
            prop_assert_eq!(schedule.end_ns(), whole.last().copied());
            let part = all(schedule);
            prop_assert_eq!(planned, Some(part.len() as u64));
            parts.extend(part);
        }
        parts.sort_unstable();
        prop_assert_eq!(whole, parts);
    }

    #[test]
    fn arrivals_come_in_order_and_inside_the_stages(seed in 0u64..1_000, rate in 1.0f64..2_000.0) {
        let stages = [stage(0.5, rate, 0.0), stage(0.5, 0.0, rate)];
        for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
            let times = all(alone(arrivals, &stages, seed));
            prop_assert!(times.windows(2).all(|w| w[0] <= w[1]));
            prop_assert!(times.iter().all(|&t| t <= 1_000_000_000));
        }
    }
}
