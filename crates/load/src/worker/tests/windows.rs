//! Sound windows on virtual time: compares a disturbed load with the same load without stops.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use record::{Distribution, HttpPlan, HttpTrial, LoadModel};

use crate::{
    testing,
    wire::simulated::{Action, Target},
    worker::tests::{OK, Steady, run_stopped},
};

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
const LASTS_S: u64 = 40;

/// One server with random answer times that pauses for a part of each second.
#[derive(Clone)]
struct Server {
    times: Distribution,
    /// Additional time of one answer in fifty. With one in a hundred, p99 could fall on either side.
    slow_ns: u64,
    pause_ns: u64,
    free_ns: u64,
    rng: Pcg64Mcg,
}

impl Server {
    fn new(mean_ns: u64, slow_ns: u64, pause_ns: u64) -> Self {
        let times = Distribution::Exponential { mean_ns };
        Self { times, slow_ns, pause_ns, free_ns: 0, rng: Pcg64Mcg::seed_from_u64(7) }
    }
}

impl Target for Server {
    fn request(&mut self, _: u64, now_ns: u64) -> Vec<(u64, Action)> {
        let mut begins_ns = self.free_ns.max(now_ns);
        if begins_ns % S < self.pause_ns {
            begins_ns += self.pause_ns - begins_ns % S;
        }
        self.free_ns = begins_ns + self.times.sample_ns(&mut self.rng);
        let slow_ns = if self.rng.random_bool(0.02) { self.slow_ns } else { 0 };
        vec![(self.free_ns + slow_ns, Action::Send(OK.to_vec()))]
    }
}

fn open(rate_per_s: f64, initial: u64) -> HttpPlan {
    let mut plan = testing::open(rate_per_s, LASTS_S, 400);
    if let LoadModel::Open { connections, .. } = &mut plan.load {
        connections.initial = initial;
    }
    plan
}

fn users(n: u64) -> HttpPlan {
    HttpPlan { duration_ns: Some(LASTS_S * S), ..testing::closed(n) }
}

/// Stops of `by_ns`, at random intervals around `every_ns`.
fn stops(every_ns: u64, by_ns: u64) -> Vec<(u64, u64)> {
    let (distances, mut rng) = (Distribution::Exponential { mean_ns: every_ns }, Pcg64Mcg::seed_from_u64(7));
    let mut at_ns = S;
    std::iter::from_fn(|| {
        at_ns += by_ns + distances.sample_ns(&mut rng);
        (at_ns < LASTS_S * S).then_some((at_ns, by_ns))
    })
    .collect()
}

fn run(plan: &HttpPlan, target: &(impl Target + Clone), stops: &[(u64, u64)]) -> HttpTrial {
    run_stopped(plan.clone(), target.clone(), stops, false).0.http
}

/// Checks the percentiles of the sound windows against those without stops, and returns the windows' share of the time.
fn sound_share(plan: &HttpPlan, target: &(impl Target + Clone), stops: &[(u64, u64)]) -> f64 {
    let truth = run(plan, target, &[]);
    assert_eq!(truth.sound, None, "all of it is sound");
    let sound = run(plan, target, stops).sound.expect("there are sound windows");
    for quantile in [0.5, 0.9, 0.99] {
        let of = |ns: u64| ns as f64 / 1e6;
        let (own, true_ms) = (
            of(sound.response_time.quantile_ns(quantile)),
            truth.response_time.percentile(quantile).value / 1e6,
        );
        let off = (own - true_ms).abs();
        assert!(off <= 0.1 * true_ms + 0.1, "{quantile}: {own} ms and not {true_ms} ms");
    }
    sound.total_s / LASTS_S as f64
}

#[test]
fn sound_windows_have_the_percentiles_of_the_load_without_stops() {
    let quick = Server::new(250_000, 0, 0);
    for (plan, target) in [
        (open(2_000.0, 400), quick.clone()),
        (open(2_000.0, 0), quick.clone()),
        (users(16), quick),
        (open(1_000.0, 400), Server::new(200_000, 50 * MS, 0)),
    ] {
        let share = sound_share(&plan, &target, &stops(150 * MS, 5 * MS));
        assert!(share > 0.24, "{share}");
        let share = sound_share(&plan, &target, &stops(S, 40 * MS));
        assert!(share > 0.6, "{share}");
    }
}

#[test]
fn what_a_target_does_by_itself_is_not_cut_out() {
    // The pause of 60 ms in each second is longer than the first windows, and a queue follows it.
    let pauses = Server::new(200_000, 0, 60 * MS);
    let share = sound_share(&open(1_000.0, 400), &pauses, &stops(S, 10 * MS));
    assert!(share > 0.3, "{share}");
    // Answers that take a sixteenth of the trial leave no window.
    let hangs = Server::new(200_000, 3 * S, 0);
    assert_eq!(run(&open(1_000.0, 400), &hangs, &stops(S, 10 * MS)).sound, None);
}

#[test]
fn loads_that_change_or_have_several_workers_have_no_sound_windows() {
    let stops = stops(S, 10 * MS);
    let mut rising = open(1_000.0, 400);
    if let LoadModel::Open { stages, .. } = &mut rising.load {
        stages[0].from_rate_per_s = 10.0;
    }
    let of_two = HttpPlan { threads: 2, ..open(1_000.0, 400) };
    for plan in [rising, of_two] {
        assert_eq!(run(&plan, &Steady { after_ns: MS }, &stops).sound, None);
    }
}

#[test]
fn a_steady_load_recovers_soon_after_each_absence() {
    // Stops for 4 % of the time, and a few requests in flight: 2, 8, 10 and 30 of them.
    for (rate_per_s, delay_ns) in [(433.0, 4 * MS), (500.0, 15 * MS), (2_000.0, 5 * MS), (1_500.0, 20 * MS)] {
        let http = run(&open(rate_per_s, 400), &Steady { after_ns: delay_ns }, &stops(200 * MS, 8 * MS));
        let delayed = http.response_time.lengthened.count() as f64 / http.counts.completed as f64;
        assert!(delayed < 0.18, "{rate_per_s}: {delayed} of the requests");
    }
}
