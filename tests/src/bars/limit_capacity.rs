//! `proofload limit` against targets whose capacity is known.

use std::ops::RangeInclusive;

use anyhow::{Context, Result};
use record::{BoundKind, GoalOutcome, ResultFolder, StudyResult};

use super::{Bar, Outcome, Runs, Scale, seconds};
use crate::{
    Nginx, NginxOptions, Output, Proofload, Serve, machine::Cores, process::Process,
    temporary::TemporaryFolder,
};

/// The bar.
pub const BAR: Bar = Bar {
    name: "limit-capacity",
    what: "known capacities of 500 to 20,000/s are bracketed in 19 of 20 runs of 90 s; 128 connections are 128 users",
    full_seconds: 3_700,
    run,
};

/// A goal of the 99th percentile at this bound.
const BOUND_S: f64 = 0.05;
/// Longest time of a run.
const RUN_S: f64 = 90.0;

fn run(scale: Scale) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    users(&mut outcome)?;
    connections(&mut outcome, scale)?;
    let (runs, most_misses) = scale.pick((1, 0), (20, 1));
    let kinds = [
        (
            "constant",
            "fixed",
            "constant",
            scale
                .pick("--width 10% --trial 4s --repeats 1 --min 100 --budget 60s", "--width 2% --budget 80s"),
        ),
        // Trials of a noisy service are draws: with more than three repeats they are weighed, not counted.
        ("exponential", "exp", "poisson", "--width 2% --trial 4s --repeats 5 --budget 80s"),
    ];
    for (kind, service, arrivals, words) in &kinds[..scale.pick(1, 2)] {
        let (mut misses, mut widths, mut times) = (0, Runs::default(), Runs::default());
        for index in 0..runs {
            let capacity_per_s = capacity(index, runs);
            // The time in an M/M/1 system is exponential with the rate (capacity - load): its 99th percentile is
            // the bound where that rate is ln(100) / bound.
            let truth_per_s = match *kind {
                "exponential" => capacity_per_s - 100.0f64.ln() / BOUND_S,
                _ => capacity_per_s,
            };
            let (goal, wall_s) = Search { capacity_per_s, service, arrivals, words }.run(index, |_| ())?;
            let (lower, upper) = (goal.lower.as_ref().map(|b| b.load), goal.upper.as_ref().map(|b| b.load));
            let bracketed = lower.is_some_and(|load| load <= truth_per_s)
                && upper.is_some_and(|load| load >= truth_per_s)
                && wall_s <= RUN_S;
            misses += u64::from(!bracketed);
            if let (Some(lower), Some(upper)) = (lower, upper) {
                widths.push((1.0 - lower / upper) * 100.0);
            }
            times.push(wall_s);
            outcome.note(format!(
                "{kind} {truth_per_s:.1}/s: {lower:.1?} to {upper:.1?} ({:?}) in {wall_s:.0} s{}",
                goal.kind,
                if bracketed { "" } else { "  MISSED" }
            ));
        }
        outcome.figure(
            &format!("{kind}_missed"),
            format!("{misses} of {runs}"),
            format!("<= {most_misses}, bracketed within {RUN_S} s"),
            misses <= most_misses,
        );
        outcome.note(format!(
            "{kind}: width {:.2} % (median), {:.0} s (median)",
            widths.median(),
            times.median()
        ));
    }
    Ok(outcome)
}

/// Log-uniform between 500 and 20,000: every size alike, none twice.
pub(super) fn capacity(index: u64, runs: u64) -> f64 {
    let jitter = (index.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as f64 / (1u64 << 24) as f64;
    let place = (index as f64 + jitter) / runs as f64;
    (500.0 * 40.0f64.powf(place)).round()
}

/// A search for the capacity of a `serve`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Search<'a> {
    /// What it can do per second.
    pub capacity_per_s: f64,
    /// How its service times are distributed.
    pub service: &'a str,
    /// How the requests come.
    pub arrivals: &'a str,
    /// Other options of `limit`.
    pub words: &'a str,
}

impl Search<'_> {
    /// Makes it, doing something to the generator meanwhile; gives the answer, and how long it took in seconds.
    pub fn run(self, seed: u64, meanwhile: impl FnOnce(&mut Process)) -> Result<(GoalOutcome, f64)> {
        let Self { capacity_per_s, service, arrivals, words } = self;
        let (service_ns, seed) = ((1e9 / capacity_per_s).round(), seed + 1);
        let serve = format!("--capacity 1 --service-time {service}:{service_ns}ns --seed {seed}");
        let words = format!("limit rate --p99 50ms {words} --arrivals {arrivals} --seed {seed}");
        let (result, output) = searched(&serve, &words, meanwhile)?;
        let goal = result.outcomes[0].searches[0].goals[0].clone();
        Ok((goal, output.wall.as_secs_f64()))
    }
}

/// 128 connections are served, the 129th is reset: 128 users, exactly.
fn users(outcome: &mut Outcome) -> Result<()> {
    let found = searched("--max-connections 128 --delay 50ms", "limit users --errors 0 --trial 1s", |_| ())
        .map(exactly)?;
    outcome.figure("users", &found.shown, "lower 128, upper 129", found.is(128.0..=128.0, 129.0..=129.0));
    outcome.note(format!("{} trials in {:.0} s", found.trials, found.wall_s));
    Ok(())
}

/// Connections that are held open: of `serve`, which resets one too many at once, and of nginx, which accepts
/// one too many and then closes others that have been idle.
fn connections(outcome: &mut Outcome, scale: Scale) -> Result<()> {
    let words = "limit connections --rate 200 --errors 0 --trial 1s --max 2000";
    // In a sample the users above have shown as much.
    if scale.pick(false, true) {
        let found = searched("--max-connections 128", words, |_| ()).map(exactly)?;
        outcome.figure(
            "connections",
            &found.shown,
            "lower 128, upper 129",
            found.is(128.0..=128.0, 129.0..=129.0),
        );
    }
    let cores = Cores::of_this_process()?;
    let options = NginxOptions { core: Some(cores.server), connections: 256, ..NginxOptions::default() };
    let nginx = Nginx::start(&options)?;
    let found = searched_at(&nginx.url("/"), cores.generator, words, |_| ()).map(exactly)?;
    outcome.figure(
        "connections_nginx",
        &found.shown,
        "within 220 to 256, for worker_connections 256",
        // It begins to close idle ones when a sixteenth of its connections is left (ngx_drain_connections).
        found.is(220.0..=256.0, 220.0..=256.0),
    );
    Ok(())
}

/// The answer of a search that finds both bounds.
struct Exact {
    loads: (Option<f64>, Option<f64>),
    is_regular: bool,
    shown: String,
    trials: u64,
    wall_s: f64,
}

impl Exact {
    fn is(&self, lower: RangeInclusive<f64>, upper: RangeInclusive<f64>) -> bool {
        let within =
            |range: RangeInclusive<f64>, load: Option<f64>| load.is_some_and(|load| range.contains(&load));
        self.is_regular && within(lower, self.loads.0) && within(upper, self.loads.1)
    }
}

fn exactly((result, output): (StudyResult, Output)) -> Exact {
    let goal = &result.outcomes[0].searches[0].goals[0];
    let loads = (goal.lower.as_ref().map(|b| b.load), goal.upper.as_ref().map(|b| b.load));
    Exact {
        loads,
        is_regular: goal.kind == BoundKind::Regular && output.code == Some(0),
        shown: format!("{loads:?} {:?}", goal.kind),
        trials: result.trials,
        wall_s: output.wall.as_secs_f64(),
    }
}

/// What a search of a `serve` found, each on a processor of its own.
fn searched(serve: &str, words: &str, meanwhile: impl FnOnce(&mut Process)) -> Result<(StudyResult, Output)> {
    let cores = Cores::of_this_process()?;
    let serve = Serve::start_on(serve, cores.server)?;
    let found = searched_at(&serve.url(), cores.generator, words, meanwhile)?;
    serve.stop()?;
    Ok(found)
}

fn searched_at(
    url: &str,
    core: u32,
    words: &str,
    meanwhile: impl FnOnce(&mut Process),
) -> Result<(StudyResult, Output)> {
    let folder = TemporaryFolder::new()?;
    let place = format!("--cpus {core} --out {}", folder.file("result"));
    let mut running =
        Proofload::new(words)?.arg(url).with(|launch| launch.words(&place)).timeout(seconds(150)).start()?;
    meanwhile(&mut running.process);
    let output = running.finish()?;
    let result = ResultFolder::open(&folder.path().join("result")).and_then(|folder| folder.result());
    let result = result.with_context(|| output.described())?;
    Ok((result.with_context(|| format!("no result was written by {}", output.described()))?, output))
}
