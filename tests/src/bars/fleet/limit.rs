//! A search by many machines: its counts and times are those of the target's own log, and all machines start together.

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use record::{Histogram, HttpTrial, nearest_rank};
use rustix::time::{ClockId, clock_gettime};
use testing::PATIENCE;

use super::{DELAY, FAR, Machines, NEAR, PORT, WEB, address, finished, http, trials};
use crate::{
    bars::{Bar, By, Outcome, Scale, generator_away::wrong_times, is_wanted},
    disturbance::Witness,
    random::Random,
    witnessed_target::{Delay, Served, WitnessedTarget},
};

pub(super) const BAR: Bar = Bar {
    name: "fleet-limit",
    what: "`limit rate --on` 8 machines: counts are those of the target's log, histograms the union of the machines', percentiles within \
           their error; 100 starts within 5 ms (p99); the second login over 50 ms takes at most 15 round trips",
    full_seconds: 220,
    decided_by: By::Both,
    run,
};

/// Service time of the target: exponential, with this mean.
const SERVICE: Duration = Duration::from_millis(5);
/// Requests by which each machine looks whether the target answers, before the first trial (docs/limit.md).
const LOOKS: u64 = 1;
/// Largest time between the first requests of the machines (99th percentile).
const MAX_SKEW_MS: f64 = 5.0;
const MAX_ROUND_TRIPS: f64 = 15.0;

fn run(scale: Scale) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let count = match scale {
        Scale::Counts => 2,
        Scale::Sample => 3,
        Scale::Full => 8,
    };
    Machines::with(count, &[], |machines| {
        if is_wanted("search") {
            search(&mut outcome, machines, scale).context("search")?;
        }
        if is_wanted("starts") && scale.is_timed() {
            starts(&mut outcome, machines, scale.pick(10, 100)).context("starts")?;
        }
        if is_wanted("logins") && scale.is_timed() {
            logins(&mut outcome, machines).context("logins")?;
        }
        Ok(())
    })?;
    Ok(outcome)
}

fn search(outcome: &mut Outcome, machines: &Machines, scale: Scale) -> Result<()> {
    let (count, out) = (machines.count, machines.labs.path("search"));
    let delay = Delay::Exponential(SERVICE, Random::new(39));
    let target = WitnessedTarget::start_in(&machines.network(WEB)?, PORT, delay)?;
    let shape = scale.pick(
        "--min 50 --max 400 --trial 500ms --repeats 1 --width 50% --budget 15s",
        "--min 100 --max 2k --trial 3s --width 10% --budget 90s",
    );
    let words = format!(
        "limit rate {} --p99 100ms {shape} --drain 5m --timeout 5m -q --out {out} {}",
        machines.url(""),
        machines.on(count)
    );
    let done = finished(&machines.command(NEAR, &words)?)?;
    ensure!(matches!(done.code, Some(0 | 1 | 3)), "{done:?}");
    let mut log = target.stop()?;
    log.sort_unstable_by_key(|served| served.came_ns);
    let entries = trials(&out)?;
    let https: Vec<&HttpTrial> = entries.iter().map(http).collect::<Result<_>>()?;
    ensure!(!https.is_empty(), "no trials: {done:?}");

    let incomplete = https.iter().filter(|http| http.machines.len() != count).count() as u64;
    outcome.equal("incomplete", incomplete, 0, "trials without one of the machines");
    ensure!(incomplete == 0, "machines are missing: {done:?}");
    let mut other = 0;
    for number in 1..=count {
        let own = log.iter().filter(|served| served.from == address(number)).count() as u64;
        let counted: u64 = https.iter().map(|http| http.machines[number - 1].counts.completed).sum();
        other += u64::from(own != counted + LOOKS);
    }
    // The looks come before all trials.
    for number in 1..=count {
        let look = log.iter().position(|served| served.from == address(number));
        look.map(|look| log.remove(look));
    }
    let completed: u64 = https.iter().map(|http| http.counts.completed).sum();
    outcome.equal(
        "completed",
        completed,
        log.len() as u64,
        "the target's log, without a look by each machine",
    );
    outcome.equal("other_machines", other, 0, "machines with another count than in the target's log");
    let unequal = https.iter().filter(|http| !is_union(http)).count() as u64;
    outcome.equal("other_histograms", unequal, 0, "trials that are not the union of their machines");
    outcome.note(format!("{} trials of {count} machines, {completed} requests", https.len()));
    if !scale.is_timed() || completed != log.len() as u64 {
        return Ok(());
    }

    let (mut wrong, mut judged, mut rest) = (0_u64, 0_u64, &log[..]);
    for (entry, http) in entries.iter().zip(https) {
        // Trials follow each other, and none begins before all requests of the last one are answered.
        let (own, later) = rest.split_at(http.counts.completed as usize);
        rest = later;
        if entry.trial.validity.is_void() {
            continue;
        }
        judged += 1;
        let faults = wrong_times(http, own.iter().map(|served| served.times_ns()[0]).collect());
        wrong += u64::from(!faults.is_empty());
        if !faults.is_empty() {
            outcome.note(format!("trial {}: {}", entry.index, faults.join("; ")));
        }
    }
    let bound = format!("0 of {judged} valid trials");
    outcome.time().figure("wrong_percentiles", wrong, bound, wrong == 0);
    Ok(())
}

/// Whether a trial's counts and response times are those of all its machines together, bin by bin.
fn is_union(http: &HttpTrial) -> bool {
    let mut union = Histogram::empty();
    http.machines.iter().for_each(|machine| union.merge(&machine.response_time));
    let sums = http.machines.iter().fold([0; 3], |[sent, completed, failed], machine| {
        let counts = &machine.counts;
        [sent + counts.sent, completed + counts.completed, failed + counts.failed]
    });
    let counts = &http.counts;
    union == http.response_time.observed && sums == [counts.sent, counts.completed, counts.failed]
}

/// Trials in which each machine sends one request, at the common start.
fn starts(outcome: &mut Outcome, machines: &Machines, repeats: usize) -> Result<()> {
    let (count, out) = (machines.count, machines.labs.path("starts"));
    let target = WitnessedTarget::start_in(&machines.network(WEB)?, PORT, Duration::ZERO)?;
    let text = format!(
        "title = \"starts\"\n[targets.web]\nurl = \"{}\"\n[workload.http]\nusers = {count}\nloops = 1\n\
         [trial]\nrepeats = {repeats}\npause = \"0s\"\n",
        machines.url("")
    );
    let study = machines.labs.file("starts.toml", &text)?;
    let words = format!("run {study} --out {out} -q {}", machines.on(count));
    let witnesses: Vec<Witness> =
        kernel::noise::allowed_cpus()?.into_iter().map(Witness::on).collect::<Result<_>>()?;
    // The stamps of the log are those of CLOCK_REALTIME.
    let now = (Instant::now(), clock_gettime(ClockId::Realtime));
    let at_ns = |instant: Instant| {
        let since_ns = match instant.checked_duration_since(now.0) {
            Some(since) => since.as_nanos() as i64,
            None => -(now.0.duration_since(instant).as_nanos() as i64),
        };
        now.1.tv_sec * 1_000_000_000 + now.1.tv_nsec + since_ns
    };
    let done = finished(&machines.command(NEAR, &words)?)?;
    let gaps: Vec<_> = witnesses.into_iter().map(Witness::end).collect::<Result<_>>()?;
    let stalls: Vec<[i64; 2]> =
        gaps.iter().flat_map(|gaps| gaps.spans.iter().map(|&(from, to)| [at_ns(from), at_ns(to)])).collect();
    let log = target.stop()?;
    ensure!(matches!(done.code, Some(0 | 3)), "{done:?}");
    let firsts: Vec<Vec<i64>> = (1..=count).map(|number| came_from(&log, address(number))).collect();
    let counted = firsts.iter().map(Vec::len).min().unwrap_or(0);
    let is_whole = firsts.iter().all(|times| times.len() == counted) && counted >= repeats;
    outcome.holds("one_request_each", is_whole, "each machine sends one request in each trial");
    if !is_whole {
        let sent: Vec<usize> = firsts.iter().map(Vec::len).collect();
        outcome.note(format!("{sent:?} requests in {repeats} trials: {done:?}"));
        return Ok(());
    }
    let (mut skews, mut raw) = (Vec::new(), Vec::new());
    for start in 0..counted {
        let times = firsts.iter().map(|times| times[start]);
        let (first, last) =
            times.fold((i64::MAX, i64::MIN), |(first, last), at| (first.min(at), last.max(at)));
        raw.push((last - first) as u64);
        skews.push((last - first - covered_ns(&stalls, [first, last])).max(0) as u64);
    }
    [&mut skews, &mut raw].into_iter().for_each(|times| times.sort_unstable());
    let ms = |sorted: &[u64], quantile| nearest_rank(sorted, quantile).map_or(f64::NAN, super::super::ms);
    let bounds = trials(&out)?;
    let bounds = bounds.iter().filter_map(|entry| entry.trial.http());
    let widest_s =
        bounds.flat_map(|http| &http.machines).map(|machine| machine.clock_bound_s).fold(0.0, f64::max);
    outcome.note(format!(
        "{counted} starts of {count} machines: skew p50 {:.2} ms, p99 {:.2} ms, {:.2} ms with the witness's stalls; clocks known to \
         ± {:.2} ms",
        ms(&skews, 0.5),
        ms(&skews, 0.99),
        ms(&raw, 0.99),
        widest_s * 1e3
    ));
    let p99 = ms(&skews, 0.99);
    let bound = format!("<= {MAX_SKEW_MS} ms");
    outcome.time().figure("start_skew_p99", format!("{p99:.2} ms"), bound, p99 <= MAX_SKEW_MS);
    Ok(())
}

/// When the requests from an address came.
fn came_from(log: &[Served], from: IpAddr) -> Vec<i64> {
    let mut times: Vec<i64> =
        log.iter().filter(|served| served.from == from).map(|served| served.came_ns).collect();
    times.sort_unstable();
    times
}

/// How much of a time these spans cover together.
fn covered_ns(spans: &[[i64; 2]], [from, to]: [i64; 2]) -> i64 {
    let mut within: Vec<[i64; 2]> = spans
        .iter()
        .map(|[begin, end]| [*begin.max(&from), *end.min(&to)])
        .filter(|[begin, end]| begin < end)
        .collect();
    within.sort_unstable();
    let mut covered = (0, from);
    for [begin, end] in within {
        covered = (covered.0 + (end - begin.max(covered.1)).max(0), covered.1.max(end));
    }
    covered.0
}

/// The second command over a slow path: nothing is copied any more.
fn logins(outcome: &mut Outcome, machines: &Machines) -> Result<()> {
    let target = WitnessedTarget::start_in(&machines.network(WEB)?, PORT, Duration::ZERO)?;
    let count = machines.count;
    let ready = |from: &str| -> Result<Duration> {
        let words = format!("http {} -u {count} -n {} {}", machines.url(""), 10 * count, machines.on(count));
        let began = Instant::now();
        let mut load = machines.command(from, &words)?.start()?;
        let names = machines.names(count);
        let is_told = |said: &str| names.iter().all(|name| said.contains(&format!("proofload: {name}: ")));
        load.find("all machines are ready", PATIENCE, |load| is_told(&load.stderr()).then_some(()))?;
        let took = began.elapsed();
        let done = load.finish(PATIENCE)?;
        ensure!(matches!(done.code, Some(0 | 3)), "{done:?}");
        Ok(took)
    };
    let first = ready(FAR)?;
    let (second, near) = (ready(FAR)?, ready(NEAR)?);
    target.stop()?;
    let round_trip_s = 2.0 * DELAY.as_secs_f64();
    // Without the delay, it takes as long only because all machines share the processors of this one.
    let trips = (second.as_secs_f64() - near.as_secs_f64()) / round_trip_s;
    outcome.note(format!(
        "ready after {first:.2?} (with copies, if there were none), {second:.2?}, and {near:.2?} without the delay"
    ));
    let bound = format!("<= {MAX_ROUND_TRIPS}");
    outcome.time().figure("second_login_round_trips", format!("{trips:.1}"), bound, trips <= MAX_ROUND_TRIPS);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_are_counted_once_and_only_within_the_time() {
        let spans = [[0, 10], [5, 15], [18, 30], [40, 50]];
        assert_eq!(covered_ns(&spans, [8, 20]), 9);
        assert_eq!(covered_ns(&spans, [30, 40]), 0);
        assert_eq!(covered_ns(&[], [0, 5]), 0);
    }
}
