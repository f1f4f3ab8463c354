//! Bad clients of the listener do not harm the good ones.

use crate::proofload::Trial;
use anyhow::{Context, Result, ensure};
use record::AckLevel;

use super::{Bar, By, Outcome, Runs, Scale, listen_bodies::p99_ms, us};
use crate::{
    disturbance::{Awake, Witness},
    listen::{EventLoad, ListenCall, audit},
    machine::{Cores, most_descriptors, raise_descriptor_limit},
    siege::Siege,
    temporary::TemporaryFolder,
};

pub(super) const BAR: Bar = Bar {
    name: "listen-hostile",
    what: "10,000 idle connections, slow heads and bodies, endless chunks, compressed bombs and garbage beside \
           good clients: their p99 at most doubles or stays within 1 ms, nothing of theirs fails, memory stays bounded",
    full_seconds: 130,
    decided_by: By::Both,
    run,
};

/// Requests per second of the good clients, whose connections exist before the siege.
const RATE_PER_S: u64 = 2_000;
const MOST_RATIO: f64 = 2.0;
/// Times up to this one always pass, in microseconds, because a ratio to a fifth of a millisecond would mean nothing to users.
const UNNOTICED_US: f64 = 1_000.0;
/// Largest own lateness (p99) of the generator in a round that counts, in microseconds.
const MOST_LATE_US: f64 = 300.0;
/// Largest share of a round that counts (0 to 1) for which the listener's processor was gone even for real-time priority: a fifth of the 1
/// % that a p99 leaves out.
const MOST_GAPS: f64 = 0.002;
/// Budget of bodies and lines, and the memory allowed in addition: 10,000 idle connections of 4 KiB each, and buffers.
const BUDGET_MIB: u64 = 64;
const BESIDE_MIB: u64 = 40 + 32;

fn run(scale: Scale) -> Result<Outcome> {
    let _most = most_descriptors();
    let limit = raise_descriptor_limit();
    ensure!(limit > 11_000, "11,000 connections need a limit of open files above {limit}");
    let (rounds, seconds) = if scale.is_timed() { scale.pick((3, 1), (7, 7)) } else { (1, 1) };
    let cores = Cores::of_this_process()?;
    // Store in memory, because on a disk a write waits for a sync: `listen-disk` tests that.
    let folder = TemporaryFolder::in_memory(1 << 30)?;
    let store = folder.path().join("store");
    std::fs::create_dir(&store)?;
    let words = format!("--threads 1 --budget {BUDGET_MIB}MiB --max-inflated 8MiB --max-body 4MiB");
    let listen = ListenCall::new(&store, &words)?.on_core(cores.server).start()?;
    let (mut outcome, mut receipts) = (Outcome::default(), Vec::new());
    let (mut calm, mut hostile, mut of_allowed) = (Runs::default(), Runs::default(), Runs::default());
    let mut failed = 0;
    let mut peak = 0;
    let _awake = scale.is_timed().then(|| Awake::keep_all(&[cores.server]));
    for round in 0..rounds {
        let mut good = |name: &str| -> Result<Trial> {
            let path = folder.path().join(format!("receipts-{name}-{round}"));
            // If only counts matter, send a fixed number of requests, however long they take.
            let length = match scale.is_timed() {
                true => format!("-d {seconds}s"),
                false => format!("-n {}", RATE_PER_S * seconds),
            };
            let words = format!(
                "-R {RATE_PER_S} -c 32 {length} --threads 1 --cpus {} --timeout 120s",
                cores.generator
            );
            let output =
                EventLoad::start(&listen.url("/good"), &path, AckLevel::Written, &words)?.finish()?;
            receipts.push(path);
            output.trial.clone().with_context(|| output.described())
        };
        let without = good("calm")?;
        let siege = Siege::begin(listen.address(), cores.other)?;
        let witness = Witness::on(cores.server)?;
        let with = good("hostile")?;
        let gaps = witness.end()?;
        peak = peak.max(listen.resident_bytes()?);
        let deeds = siege.end()?;
        let p99 = |trial: &Trial| p99_ms(trial) * 1_000.0;
        failed += without.errors.total() + with.errors.total();
        // A round does not measure the listener if the generator had no processor when it had to send, or if another guest of the host had
        // the listener's processor.
        let late_us = us(with.own_lateness.quantile_ns(0.99));
        let is_measure = late_us <= MOST_LATE_US && gaps.share <= MOST_GAPS;
        if is_measure || p99(&with) <= UNNOTICED_US {
            of_allowed.push(p99(&with) / (MOST_RATIO * p99(&without)).max(UNNOTICED_US));
        }
        calm.push(p99(&without));
        hostile.push(p99(&with));
        outcome.note(format!(
            "p99 {:.0} us without, {:.0} us with; own lateness p99 {:.0} and {:.0} us; no processor for {gaps}; {deeds:?}",
            p99(&without),
            p99(&with),
            us(without.own_lateness.quantile_ns(0.99)),
            us(with.own_lateness.quantile_ns(0.99)),
        ));
    }
    if !scale.is_timed() {
        // Only the counts below are judged.
    } else if of_allowed.count() * 2 > rounds {
        outcome.time().at_most("p99_of_allowed", &of_allowed, 1.0, "");
    } else {
        let why = format!(
            "the generator was late, or the listener had no processor, in all but {} of {rounds} rounds",
            of_allowed.count()
        );
        outcome.undecided("p99_of_allowed", "<= 1", why);
    }
    outcome.equal("failed", failed, 0, "requests of good clients");
    let most = BUDGET_MIB + BESIDE_MIB;
    let value = format!("{:.1} MiB", peak as f64 / 1_048_576.0);
    outcome.figure("memory", value, format!("<= {most} MiB"), peak <= most << 20);
    let report = listen.stop()?;
    outcome.note(format!(
        "p99 {:.0} us without and {:.0} us with; the listener answered {:?}, timed out {}",
        calm.median(),
        hostile.median(),
        report.statistics.requests,
        report.statistics.connections_timed_out
    ));
    let receipts: Vec<_> = receipts.iter().map(|path| path.as_path()).collect();
    let result = audit(&receipts, &store, AckLevel::Written)?;
    outcome.equal("lost", result.lost + result.corrupt, 0, "events of good clients");
    Ok(outcome)
}
