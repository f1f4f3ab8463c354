//! `proofload limit` against targets with a known capacity.

use std::ops::RangeInclusive;

use anyhow::{Context, Result};
use record::{BoundKind, GoalOutcome, ResultFolder};

use super::{Bar, By, Outcome, Runs, Scale, is_wanted};
use crate::{
    Nginx, NginxOptions, Proofload, Serve, disturbance::Witness, machine::Cores, process::Process,
    temporary::TemporaryFolder,
};

pub(super) const BAR: Bar = Bar {
    name: "limit-capacity",
    what: "known capacities of 500 to 20,000/s are bracketed in 19 of 20 runs of 90 s; 128 connections are 128 users",
    full_seconds: 3_700,
    decided_by: By::Times,
    run,
};

/// The bound of the goal at the 99th percentile, in seconds.
const BOUND_S: f64 = 0.05;
/// Longest allowed time of a run, in seconds.
const RUN_S: f64 = 90.0;
/// A generator counts as disturbed if it has no processor for more than this share of a trial.
const DISTURBED: f64 = 0.05;

fn run(scale: Scale) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    // `PROVE_CASES` can name `users`, `connections`, `constant` and `exponential`.
    if is_wanted("users") {
        users(&mut outcome, scale)?;
    }
    // A sample of the search for a rate is in `limit-short-trials`.
    if scale == Scale::Sample {
        return Ok(outcome);
    }
    let (runs, most_misses) = (20, 1);
    if is_wanted("connections") {
        connections(&mut outcome)?;
    }
    let kinds = [
        ("constant", "fixed", "constant", "--width 2% --budget 80s"),
        // The results of trials of a noisy service are random; five repeats let the search weigh them instead of only counting them.
        ("exponential", "exp", "poisson", "--width 2% --trial 4s --repeats 5 --budget 80s"),
    ];
    for (kind, service, arrivals, words) in kinds.into_iter().filter(|(kind, ..)| is_wanted(kind)) {
        let (mut misses, mut excused, mut widths, mut times) = (0, 0, Runs::default(), Runs::default());
        for index in 0..runs {
            let capacity_per_s = capacity(index, runs);
            // In an M/M/1 system, the time is exponential with the rate (capacity - load). Its 99th percentile is at the bound if that rate
            // is ln(100) / bound.
            let truth_per_s = match kind {
                "exponential" => capacity_per_s - 100.0f64.ln() / BOUND_S,
                _ => capacity_per_s,
            };
            let found = Search { capacity_per_s, service, arrivals, words }.run(index, |_| ())?;
            let (lower, upper) = (found.lower(), found.upper());
            let is_bracketed = lower.is_some_and(|load| load <= truth_per_s)
                && upper.is_some_and(|load| load >= truth_per_s)
                && found.wall_s <= RUN_S;
            let excuse = found.excuse(truth_per_s, truth_per_s);
            misses += u64::from(!is_bracketed);
            excused += u64::from(!is_bracketed && excuse.is_some());
            if let (Some(lower), Some(upper)) = (lower, upper) {
                widths.push((1.0 - lower / upper) * 100.0);
            }
            times.push(found.wall_s);
            outcome.note(format!(
                "{kind} {truth_per_s:.1}/s: {}{}",
                found.shown(),
                if is_bracketed { "" } else { "  MISSED" }
            ));
        }
        let (name, bound) =
            (format!("{kind}_missed"), format!("<= {most_misses}, bracketed within {RUN_S} s"));
        match misses > most_misses && misses - excused <= most_misses {
            true => {
                let why = format!("{misses} of {runs} ended without bounds, {excused} while disturbed");
                outcome.undecided(&name, bound, why);
            }
            false => {
                outcome.time().figure(&name, format!("{misses} of {runs}"), bound, misses <= most_misses)
            }
        }
        outcome.note(format!(
            "{kind}: width {:.2} % (median), {:.0} s (median)",
            widths.median(),
            times.median()
        ));
    }
    Ok(outcome)
}

/// Capacities that are log-uniform between 500 and 20,000: all magnitudes occur equally often, and none twice.
pub(super) fn capacity(index: u64, runs: u64) -> f64 {
    let jitter = (index.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as f64 / (1u64 << 24) as f64;
    let place = (index as f64 + jitter) / runs as f64;
    (500.0 * 40.0f64.powf(place)).round()
}

/// A search for the capacity of a `serve`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Search<'a> {
    /// Number of requests that it can answer per second.
    pub capacity_per_s: f64,
    /// Distribution of the service times.
    pub service: &'a str,
    /// Distribution of the requests' arrivals.
    pub arrivals: &'a str,
    /// Other options of `limit`.
    pub words: &'a str,
}

impl Search<'_> {
    /// Runs the search. Calls `meanwhile` with the generator while it runs.
    pub(super) fn run(self, seed: u64, meanwhile: impl FnOnce(&mut Process)) -> Result<Answer> {
        let Self { capacity_per_s, service, arrivals, words } = self;
        let (service_ns, seed) = ((1e9 / capacity_per_s).round(), seed + 1);
        let serve = format!("--capacity 1 --service-time {service}:{service_ns}ns --seed {seed}");
        let words = format!("limit rate --p99 50ms {words} --arrivals {arrivals} --seed {seed}");
        searched(&serve, &words, meanwhile)
    }
}

/// `serve` accepts 128 connections and resets the 129th, so the limit is exactly 128 users.
fn users(outcome: &mut Outcome, scale: Scale) -> Result<()> {
    let words = format!("limit users --errors 0 --trial {}", scale.pick("500ms", "1s"));
    let found = searched("--max-connections 128 --delay 50ms", &words, |_| ())?;
    found.figure(outcome, "users", "lower 128, upper 129", [128.0..=128.0, 129.0..=129.0]);
    Ok(())
}

/// Searches for the limit of open connections. `serve` resets surplus connections at once; nginx accepts one too many and then closes idle
/// ones.
fn connections(outcome: &mut Outcome) -> Result<()> {
    let words = "limit connections --rate 200 --errors 0 --trial 1s --max 2000";
    let found = searched("--max-connections 128", words, |_| ())?;
    found.figure(outcome, "connections", "lower 128, upper 129", [128.0..=128.0, 129.0..=129.0]);
    let cores = Cores::of_this_process()?;
    let options = NginxOptions { core: Some(cores.server), connections: 256, ..NginxOptions::default() };
    let nginx = Nginx::start(&options)?;
    let found = searched_at(&nginx.url("/"), cores, words, |_| ())?;
    let bound = "within 220 to 256, for worker_connections 256";
    // nginx begins to close idle connections when a sixteenth of them is left (ngx_drain_connections).
    found.figure(outcome, "connections_nginx", bound, [220.0..=256.0, 220.0..=256.0]);
    Ok(())
}

/// The result of a search, and what independent programs observed meanwhile.
pub(super) struct Answer {
    /// The result for the only goal.
    pub goal: GoalOutcome,
    /// The time of the search, in seconds.
    pub wall_s: f64,
    trials: u64,
    code: Option<i32>,
    /// What kept the generator from its processor, if anything did for long.
    disturbed: Option<String>,
}

impl Answer {
    /// The largest load that met the goal.
    pub(super) fn lower(&self) -> Option<f64> {
        self.goal.lower.as_ref().map(|bound| bound.load)
    }

    /// The smallest load that missed the goal.
    pub(super) fn upper(&self) -> Option<f64> {
        self.goal.upper.as_ref().map(|bound| bound.load)
    }

    /// The reason why bounds may be missing or wide. There is no excuse for a wrong bound.
    pub(super) fn excuse(&self, most_lower: f64, least_upper: f64) -> Option<&str> {
        let is_wrong = self.lower().is_some_and(|load| load > most_lower)
            || self.upper().is_some_and(|load| load < least_upper);
        let is_given_up = matches!(self.goal.kind, BoundKind::Unfinished | BoundKind::GeneratorBound { .. });
        self.disturbed.as_deref().filter(|_| is_given_up && !is_wrong)
    }

    pub(super) fn shown(&self) -> String {
        let bound = |load: Option<f64>| load.map_or_else(|| "none".to_owned(), |load| format!("{load:.1}"));
        let Self { goal, trials, wall_s, .. } = self;
        let (lower, upper) = (bound(self.lower()), bound(self.upper()));
        format!("{lower} to {upper} {:?}, {trials} trials in {wall_s:.0} s", goal.kind)
    }

    /// Adds a figure that requires both bounds to be in their ranges.
    fn figure(
        &self,
        outcome: &mut Outcome,
        name: &str,
        bound: &str,
        [lower, upper]: [RangeInclusive<f64>; 2],
    ) {
        let is_exact = self.goal.kind == BoundKind::Regular
            && self.code == Some(0)
            && self.lower().is_some_and(|load| lower.contains(&load))
            && self.upper().is_some_and(|load| upper.contains(&load));
        match self.excuse(*lower.end(), *upper.start()) {
            Some(why) if !is_exact => outcome.undecided(name, bound, format!("{}: {why}", self.shown())),
            _ => outcome.time().figure(name, self.shown(), bound, is_exact),
        }
    }
}

/// Runs a search against a `serve`; each has its own processor.
fn searched(serve: &str, words: &str, meanwhile: impl FnOnce(&mut Process)) -> Result<Answer> {
    let cores = Cores::of_this_process()?;
    let serve = Serve::start_on(serve, cores.server)?;
    let found = searched_at(&serve.url(), cores, words, meanwhile)?;
    serve.stop()?;
    Ok(found)
}

fn searched_at(url: &str, cores: Cores, words: &str, meanwhile: impl FnOnce(&mut Process)) -> Result<Answer> {
    let folder = TemporaryFolder::new()?;
    let place = format!("--cpus {} --out {}", cores.generator, folder.file("result"));
    let witness = Witness::on(cores.generator)?;
    let mut running = Proofload::new(words)?.arg(url).with(|launch| launch.words(&place)).start()?;
    meanwhile(&mut running.process);
    let output = running.finish()?;
    let gaps = witness.end()?;
    let folder = ResultFolder::open(&folder.path().join("result")).with_context(|| output.described())?;
    let result =
        folder.result()?.with_context(|| format!("no result was written by {}", output.described()))?;
    let waits = folder.read()?.trials.into_iter().filter_map(|entry| {
        let http = entry.trial.http()?;
        Some(http.cpu.runqueue_wait_s? / entry.trial.elapsed_s)
    });
    let waited = waits.fold(0.0, f64::max);
    let is_disturbed = waited > DISTURBED || gaps.share > DISTURBED;
    let disturbed = is_disturbed.then(|| {
        format!(
            "something else had the processor for {:.0} % of a trial, of a witness's for {gaps}",
            waited * 100.0
        )
    });
    Ok(Answer {
        goal: result.outcomes[0].searches[0].goals[0].clone(),
        wall_s: output.wall.as_secs_f64(),
        trials: result.trials,
        code: output.code,
        disturbed,
    })
}
