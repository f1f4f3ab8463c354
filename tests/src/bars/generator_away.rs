//! A generator that is stopped, throttled or crowded, measured with a target that keeps its own log.

use std::time::Duration;

use crate::proofload::Trial;
use anyhow::Result;
use record::{HttpTrial, Span, nearest_rank};

use super::{Bar, By, Outcome, Scale, is_wanted, is_wanted_among};
use crate::{
    Proofload, Serve,
    disturbance::{Awake, Quota, Witness, neighbour, stop_for},
    machine::Cores,
    process::Process,
    random::Random,
    witnessed_target::{Served, WitnessedTarget},
};

pub(super) const BAR: Bar = Bar {
    name: "generator-away",
    what: "200 trials whose generator is stopped, throttled or crowded: no figure is printed as the target's that is not; \
           sound trials stay valid",
    full_seconds: 2_400,
    decided_by: By::Times,
    run,
};

const SECONDS: f64 = 3.0;
/// Number of disturbed trials that one name in `PROVE_CASES` selects: `0-49`. The other names are those in [`run`].
const TOGETHER: u64 = 50;
/// Percentiles that the terminal prints.
const PRINTED: [(f64, &str); 4] = [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99.9")];

#[derive(Debug, Clone, Copy)]
enum Load {
    FixedPool(f64),
    OnDemand(f64),
    Users,
}

#[derive(Debug, Clone, Copy)]
enum Trouble {
    Stop { after: Duration, lasting: Duration },
    Quota,
    Neighbour,
    Nothing,
}

#[derive(Debug, Clone, Copy)]
struct Case {
    load: Load,
    connections: u64,
    delay: Duration,
    trouble: Trouble,
}

impl Case {
    fn drawn(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let delay = random.between(Duration::from_millis(1), Duration::from_millis(50));
        let most = (5_000.0 * delay.as_secs_f64()).min(300.0) as u64;
        let connections = 4 + random.below(most.saturating_sub(3).max(1));
        let capacity_per_s = connections as f64 / delay.as_secs_f64();
        let rate = (capacity_per_s * (0.1 + 0.4 * random.below(1_000) as f64 / 1e3)).max(50.0).round();
        let load = match random.below(3) {
            0 => Load::FixedPool(rate),
            1 => Load::OnDemand(rate),
            _ => Load::Users,
        };
        let millis = Duration::from_millis;
        let trouble = match random.below(4) {
            0 => Trouble::Stop {
                after: random.between(millis(300), millis(2_000)),
                lasting: random.between(millis(50), millis(1_000)),
            },
            1 => Trouble::Quota,
            2 => Trouble::Neighbour,
            _ => Trouble::Nothing,
        };
        Self { load, connections, delay, trouble }
    }

    /// Runs the case. Returns the trial and the time that each request spent with the target.
    fn run(&self, cores: Cores) -> Result<(Trial, Vec<u64>)> {
        let target = WitnessedTarget::start(self.delay, cores.server)?;
        let load = match self.load {
            Load::FixedPool(rate) => format!("-R {rate} -c {}", self.connections),
            Load::OnDemand(rate) => format!("-R {rate}"),
            Load::Users => format!("-u {}", self.connections),
        };
        let words = format!(
            "{load} -d {SECONDS}s --timeout 30s --drain 2s --threads 1 --cpus {} -q",
            cores.generator
        );
        let mut running = Proofload::http(&target.url(), &words)?.start()?;
        let _taken = take(self.trouble, &mut running.process, cores)?;
        let output = running.finish()?;
        let with_target = |served: &Served| served.times_ns()[0];
        Ok((output.trial()?.clone(), target.stop()?.iter().map(with_target).collect()))
    }

    fn shown(&self, seed: u64) -> String {
        format!(
            "case {seed}: {:?}, {} connections, {:?}, {:?}",
            self.load, self.connections, self.delay, self.trouble
        )
    }
}

/// Disturbs a generator. The disturbance lasts until the result is dropped.
fn take(trouble: Trouble, process: &mut Process, cores: Cores) -> Result<(Option<Quota>, Option<Process>)> {
    match trouble {
        Trouble::Stop { after, lasting } => {
            std::thread::sleep(after);
            stop_for(process, lasting);
            Ok((None, None))
        }
        Trouble::Quota => Ok((Some(Quota::half(process.pid())?), None)),
        Trouble::Neighbour => Ok((None, Some(neighbour(cores.generator)?))),
        Trouble::Nothing => Ok((None, None)),
    }
}

fn run(scale: Scale) -> Result<Outcome> {
    let cores = Cores::of_this_process()?;
    let _awake = Awake::keep(cores);
    let mut outcome = Outcome::default();
    let disturbed_seeds =
        (0..scale.pick(1, 200)).filter(|&seed| is_wanted_among(seed, TOGETHER)).collect::<Vec<_>>();
    if !disturbed_seeds.is_empty() {
        disturbed(&mut outcome, cores, &disturbed_seeds)?;
    }
    if is_wanted("pipelined") {
        pipelined(&mut outcome, cores, scale.pick(1, 10))?;
    }
    if is_wanted("shortly-away") {
        shortly_away(&mut outcome, cores, scale.pick(1, 30))?;
    }
    if is_wanted("undisturbed") {
        undisturbed(&mut outcome, cores, scale.pick(1, 100))?;
    }
    Ok(outcome)
}

/// Every printed figure that is wrong must be marked, or the trial must be void.
fn disturbed(outcome: &mut Outcome, cores: Cores, seeds: &[u64]) -> Result<()> {
    let (mut wrong, mut void, mut marked, mut unknown) = (0, 0, 0, 0);
    let cases = seeds.len() as u64;
    for &seed in seeds {
        let case = Case::drawn(seed);
        let is_closed = matches!(case.load, Load::Users);
        let sound = Case { trouble: Trouble::Nothing, ..case };
        let before = if is_closed { Some(sound.run(cores)?.0) } else { None };
        let (trial, truth) = case.run(cores)?;
        void += u64::from(trial.validity.is_void());
        marked += u64::from(!trial.own_percentiles.is_empty());
        if trial.validity.is_void() {
            continue;
        }
        let mut faults = wrong_times(&trial, truth);
        if let Some(before) = before {
            let after = sound.run(cores)?.0;
            let (a, b) = (before.throughput_per_s, after.throughput_per_s);
            if (a / b - 1.0).abs() > 0.05 {
                // The machine itself changed between the two undisturbed trials, so the truth is unknown.
                unknown += 1;
            } else if is_outside(trial.throughput(), f64::midpoint(a, b), 0.1, 0.0) {
                faults.push(format!("{:?}, and {a:.0} and {b:.0}/s undisturbed", trial.throughput()));
            }
        }
        if !faults.is_empty() {
            wrong += 1;
            outcome.note(format!("{}: {}", case.shown(seed), faults.join("; ")));
        }
    }
    outcome.note(format!("of {cases} trials {void} were void, and {marked} had percentiles marked"));
    outcome.equal("wrong", wrong, 0, "valid trials with a figure whose interval does not contain the truth");
    let most = cases / 10;
    if unknown > most {
        let why = format!("in {unknown} of {cases} cases the throughput was another before than afterwards");
        outcome.undecided("throughput_known", format!("in all but {most}"), why);
    }
    Ok(())
}

/// If several answers wait unread on a connection, one read returns them all with one time stamp.
fn pipelined(outcome: &mut Outcome, cores: Cores, cases: u64) -> Result<()> {
    let mut wrong = 0;
    for _ in 0..cases {
        let serve = Serve::start_on("--capacity 1 --service-time 1ms", cores.server)?;
        let words = format!("-u 1 --pipeline 32 -d {SECONDS}s --threads 1 --cpus {} -q", cores.generator);
        let sound = Proofload::http(&serve.url(), &words)?.run()?;
        let mut running = Proofload::http(&serve.url(), &words)?.start()?;
        std::thread::sleep(Duration::from_millis(400));
        for _ in 0..22 {
            stop_for(&mut running.process, Duration::from_millis(30));
            std::thread::sleep(Duration::from_millis(70));
        }
        let stopped = running.finish()?;
        serve.stop()?;
        let (trial, truth) = (stopped.trial()?, sound.trial()?.response_time.percentile(0.9));
        let shown = trial.response_time.percentile(0.9);
        let is_wrong = shown.least > 1.1 * truth.value;
        if is_wrong && !trial.validity.is_void() {
            wrong += 1;
            outcome.note(format!("pipelined: p90 {shown:?}, undisturbed {truth:?}"));
        }
    }
    outcome.equal("pipelined_wrong", wrong, 0, "valid trials with a p90 that is the stops'");
    Ok(())
}

/// Whether the truth lies outside of a figure's interval by more than both this share of the truth and this amount.
pub(super) fn is_outside(shown: Span, truth: f64, share: f64, allowed: f64) -> bool {
    let off = (shown.least - truth).max(if shown.at_least { 0.0 } else { truth - shown.most });
    off > (share * truth).max(allowed)
}

/// Printed percentiles whose interval does not contain the target's percentile.
pub(super) fn wrong_times(trial: &HttpTrial, mut truth: Vec<u64>) -> Vec<String> {
    truth.sort_unstable();
    let mut faults = Vec::new();
    for (name, times) in [("response", &trial.response_time), ("service", &trial.service_time)] {
        let count = times.observed.count() as f64;
        for (quantile, percentile) in PRINTED {
            let beyond = count * (1.0 - quantile);
            let Some(truth_ns) = nearest_rank(&truth, quantile).filter(|_| beyond >= 10.0) else { continue };
            let shown = times.percentile(quantile);
            // A request that opens its connection also waits for that.
            let opening_ns = if trial.counts.connections_opened as f64 >= beyond { 500_000 } else { 0 };
            let allowed_ns = (truth_ns / 10).max(250_000) + opening_ns;
            if is_outside(shown, truth_ns as f64, 0.0, allowed_ns as f64) {
                faults.push(format!("{name} {percentile} {shown:?} ns, in truth {truth_ns}"));
            }
        }
    }
    faults
}

/// Only trials with a smaller share of absences count, including the stop and other programs.
const AWAY_SHARE: f64 = 0.001;
/// The longest stop, as a share of the time.
const STOPPED_SHARE: f64 = 0.0015 / SECONDS;

/// After a stop of less than a thousandth of the time, p50 and p90 are still usable.
fn shortly_away(outcome: &mut Outcome, cores: Cores, cases: u64) -> Result<()> {
    let (mut kept, mut counted) = (0_u64, 0_u64);
    for seed in 1_000..1_000 + cases {
        let mut random = Random::new(seed);
        let micros = Duration::from_micros;
        let trouble = Trouble::Stop {
            after: random.between(micros(300_000), micros(2_000_000)),
            lasting: random.between(micros(300), micros(1_500)),
        };
        let witness = Witness::on(cores.generator)?;
        let (trial, _) = Case { trouble, ..Case::drawn(seed) }.run(cores)?;
        let gaps = witness.end()?;
        if gaps.share + gaps.waited_share(&trial) + STOPPED_SHARE > AWAY_SHARE {
            continue;
        }
        counted += 1;
        let is_kept = [0.5, 0.9].iter().all(|&quantile| !trial.response_time.percentile(quantile).is_wide());
        kept += u64::from(is_kept && !trial.validity.is_void());
    }
    let least = (counted * 8).div_ceil(10);
    match counted {
        0 => outcome.undecided(
            "shortly_away_kept",
            "≥ 8 of 10",
            "other things took the processor as well, every time",
        ),
        _ => {
            outcome.time().figure("shortly_away_kept", kept, format!("≥ {least} of {counted}"), kept >= least)
        }
    }
    Ok(())
}

/// Undisturbed trials are valid, and none of their percentiles up to p99 is marked.
fn undisturbed(outcome: &mut Outcome, cores: Cores, wanted: u64) -> Result<()> {
    let (mut sound, mut void, mut marked, mut tried) = (0, 0, 0, 0);
    while sound < wanted && tried < 4 * wanted {
        let case = Case { trouble: Trouble::Nothing, ..Case::drawn(2_000 + tried) };
        tried += 1;
        let witness = Witness::on(cores.generator)?;
        let (trial, _) = case.run(cores)?;
        let gaps = witness.end()?;
        if gaps.longest > Duration::from_millis(1) || gaps.waited_share(&trial) > 0.001 {
            continue;
        }
        sound += 1;
        let up_to_p99 = [0.5, 0.9, 0.99];
        let is_marked = up_to_p99.iter().any(|&quantile| trial.response_time.percentile(quantile).is_wide());
        void += u64::from(trial.validity.is_void());
        marked += u64::from(is_marked);
        if is_marked || trial.validity.is_void() {
            outcome.note(format!("{}: {:?} {:?}", case.shown(2_000 + tried - 1), trial.validity, trial.away));
        }
    }
    outcome.note(format!("{sound} of {tried} trials were undisturbed"));
    let most = wanted.div_ceil(20);
    let least = wanted.div_ceil(2);
    if sound < least {
        let why = format!("a witness was disturbed in all but {sound} of {tried} trials");
        outcome.undecided("undisturbed_found", format!("≥ {least}"), why);
    }
    outcome.time().figure("undisturbed_void", void, format!("≤ {most}"), void <= most);
    outcome.time().figure("undisturbed_marked", marked, format!("≤ {most}"), marked <= most);
    Ok(())
}
