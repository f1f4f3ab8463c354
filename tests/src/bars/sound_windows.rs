//! Sound windows must be offered if a disturbance is independent of the target, and must never hide the target's own behaviour.
//!
//! *Independent* disturbances occur beside `serve`, which logs the delays that it applied: a hog on the generator's processor, hogs on both
//! processors that generator and target share, and stops. The percentiles of the sound time must be those of the log.
//!
//! *Dependent* targets disturb the generator by their own work. Their own log has all of it and is the truth: the sound time must not be
//! offered, or must have the same p99.

use std::time::Duration;

use anyhow::Result;
use record::{SoundTime, nearest_rank};

use super::{Bar, By, Outcome, Scale, disturbances::stopped, seconds};
use crate::{
    Proofload, Serve, Trial,
    hog::{Bursts, Hog},
    machine::{Confined, Cores},
    process::{Launch, Process},
    random::Random,
    stats::quantile_ranks,
    witnessed_target::{Delay, Served, WitnessedTarget},
};

pub(super) const BAR: Bar = Bar {
    name: "sound-windows",
    what: "24 disturbances that know nothing of the target: sound windows in 80 %, as the target's log says; 12 targets that \
           disturb the generator themselves: none is hidden",
    full_seconds: 300,
    decided_by: By::Times,
    run,
};

const SECONDS: u64 = 5;
const SHARES: [f64; 2] = [0.02, 0.15];
const BURSTS_MS: [f64; 2] = [0.5, 30.0];
/// Largest difference between a percentile and the log's: this share of it, or these nanoseconds.
const MAX_BIAS: f64 = 0.1;
const MAX_BIAS_NS: f64 = 250_000.0;
/// The share of the independent cases that must offer sound windows.
const MIN_OFFERED: f64 = 0.8;

const INDEPENDENT: [&str; 3] = ["hog of the generator", "hogs of both, shared", "stops"];
const DEPENDENT: [&str; 4] =
    ["works long, rarely", "works a little each time", "works long, a hog elsewhere", "works long, shared"];

fn run(scale: Scale) -> Result<Outcome> {
    let cores = Cores::of_this_process()?;
    let mut outcome = Outcome::default();
    let rounds = scale.pick(1, 8);
    let (mut offered, mut biased, mut all) = (0, 0, 0);
    for seed in 0..rounds * INDEPENDENT.len() as u64 {
        let (shown, sound, off) = independent(seed, cores)?;
        all += 1;
        offered += u64::from(sound);
        biased += u64::from(!off.is_empty());
        outcome.note(format!("{shown}{}{}", if sound { "" } else { "  NOT OFFERED" }, marked(&off)));
    }
    let least = (all as f64 * MIN_OFFERED).ceil() as u64;
    outcome.time().figure("offered", format!("{offered} of {all}"), format!(">= {least}"), offered >= least);
    outcome.time().figure(
        "biased",
        format!("{biased} of {offered}"),
        "0, by more than 10 % and 250 us",
        biased == 0,
    );
    let (mut hidden, mut all) = (0, 0);
    for seed in 0..scale.pick(1, 3) * DEPENDENT.len() as u64 {
        let (shown, off) = dependent(seed, cores)?;
        all += 1;
        hidden += u64::from(!off.is_empty());
        outcome.note(format!("{shown}{}", marked(&off)));
    }
    let bound = "0, p99 by more than 10 % and 250 us";
    outcome.time().figure("hidden", format!("{hidden} of {all}"), bound, hidden == 0);
    Ok(outcome)
}

fn marked(off: &[String]) -> String {
    if off.is_empty() { String::new() } else { format!("  OFF: {}", off.join(", ")) }
}

/// Runs an independent case. Returns its description, whether sound windows were offered, and which of their percentiles are wrong.
fn independent(seed: u64, cores: Cores) -> Result<(String, bool, Vec<String>)> {
    let kind = (seed % INDEPENDENT.len() as u64) as usize;
    let mut random = Random::new(seed);
    let share = random.log_uniform(SHARES[0], SHARES[1]);
    let rate_per_s = random.log_uniform(500.0, 2_000.0).round();
    let mut bursts = || Bursts::new(random.any(), share, BURSTS_MS);
    let shared = kind == 1;
    let _confined = shared.then(|| Confined::to(&[cores.server, cores.generator])).transpose()?;
    let words = format!("--delay exp:1ms --seed {}", seed + 1);
    let serve = if shared { Serve::start(&words)? } else { Serve::start_on(&words, cores.server)? };
    let hogs = match kind {
        0 => vec![(cores.generator, bursts())],
        1 => vec![(cores.generator, bursts()), (cores.server, bursts())],
        _ => Vec::new(),
    };
    let hog = Hog::start(hogs)?;
    let mut running = load(&serve.url(), rate_per_s, (!shared).then_some(cores.generator))?.start()?;
    if kind == 2 {
        stopped(&mut running, bursts(), seconds(SECONDS));
    }
    let output = running.finish()?;
    hog.end()?;
    let (trial, report) = (output.trial()?.clone(), serve.stop()?);
    let truth = |quantile: f64| report.delay_applied.quantile_ns(quantile) as f64;
    let sound = trial.sound.as_ref();
    let off = sound.map(|sound| off(sound, &[0.5, 0.9, 0.99], 0.999, !shared, truth)).unwrap_or_default();
    let name = INDEPENDENT[kind];
    Ok((shown(&format!("{name}, {:.0} %", share * 100.0), rate_per_s, &trial), sound.is_some(), off))
}

/// Runs a dependent case. Returns its description, and the percentiles that its sound windows hide.
fn dependent(seed: u64, cores: Cores) -> Result<(String, Vec<String>)> {
    let kind = (seed % DEPENDENT.len() as u64) as usize;
    let mut random = Random::new(100 + seed);
    let (ms, share, rate_per_s) = match kind {
        1 => (random.log_uniform(0.05, 0.15), 1.0, 2_000.0),
        // The share is far above one in a hundred, so that the 99th percentile is certainly among the slow requests.
        _ => (random.log_uniform(3.0, 12.0), 0.04, 500.0),
    };
    let work = Delay::Work(Duration::from_secs_f64(ms / 1e3), share, Random::new(random.any()));
    let shared = kind == 3;
    let _confined = shared.then(|| Confined::to(&[cores.server, cores.generator])).transpose()?;
    let target = match shared {
        true => WitnessedTarget::start_anywhere(work)?,
        false => WitnessedTarget::start(work, cores.generator)?,
    };
    // This hog takes nothing from the generator, so it explains none of its waits.
    let elsewhere = (kind == 2).then(|| busy_on(cores.server)).transpose()?;
    let output = load(&target.url(), rate_per_s, (!shared).then_some(cores.generator))?.run()?;
    drop(elsewhere);
    let (trial, served) = (output.trial()?.clone(), target.stop()?);
    let mut times_ns: Vec<u64> = served.iter().map(|served: &Served| served.times_ns()[0]).collect();
    times_ns.sort_unstable();
    let truth = |quantile: f64| nearest_rank(&times_ns, quantile).unwrap_or(0) as f64;
    // Higher percentiles than the truth are possible, because requests also waited for the generator.
    let off =
        trial.sound.as_ref().map(|sound| off(sound, &[0.9, 0.99], 0.0, true, truth)).unwrap_or_default();
    Ok((shown(&format!("target {}, {ms:.2} ms", DEPENDENT[kind]), rate_per_s, &trial), off))
}

/// A program that keeps a processor busy until it is dropped.
fn busy_on(core: u32) -> Result<Process> {
    Launch::new("sh").args(["-c", "while :; do :; done"]).on_core(core).start()
}

fn load(url: &str, rate_per_s: f64, core: Option<u32>) -> Result<Proofload> {
    let cpus = core.map_or_else(String::new, |core| format!("--cpus {core}"));
    Proofload::http(url, &format!("-R {rate_per_s} -c 256 -d {SECONDS}s --threads 1 {cpus} -q"))
}

/// The percentiles of the sound time that are wrong by more than chance at this confidence (0 to 1). `has_all` says whether the truth has
/// all of the target's time.
fn off(
    sound: &SoundTime,
    quantiles: &[f64],
    confidence: f64,
    has_all: bool,
    truth_ns: impl Fn(f64) -> f64,
) -> Vec<String> {
    let times = &sound.response_time;
    // Fewer than ten times lie beyond the other percentiles, so these are not shown.
    let is_told = |quantile: &&f64| times.count() as f64 * (1.0 - **quantile) >= 10.0;
    let off = |&quantile: &f64| {
        let (shown, truth) = (times.quantile_ns(quantile) as f64, truth_ns(quantile));
        let (lower, upper) = quantile_ranks(times.count(), quantile, confidence);
        let at_rank = |rank: u64| times.quantile_ns(rank as f64 / times.count() as f64) as f64;
        let allowed = (MAX_BIAS * truth).max(MAX_BIAS_NS);
        // If other programs delay a target before it reads a request, its log shows too little time.
        let is_longer = has_all && truth < at_rank(lower) - allowed;
        let is_off = is_longer || truth > at_rank(upper) + allowed;
        is_off.then(|| format!("{quantile}: {:.2} ms, in truth {:.2} ms", shown / 1e6, truth / 1e6))
    };
    quantiles.iter().filter(is_told).filter_map(off).collect()
}

fn shown(case: &str, rate_per_s: f64, trial: &Trial) -> String {
    let sound = trial.sound.as_ref().map_or_else(
        || "no sound windows".to_owned(),
        |sound| format!("sound for {:.2} s in windows of {:.0} ms", sound.total_s, sound.window_s * 1e3),
    );
    let away_ms = trial.away.total_s * 1e3;
    format!("{case}, {rate_per_s}/s: away for {away_ms:.0} ms, {sound}")
}
