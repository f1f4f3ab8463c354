//! A study measures its idle links. Its trials are void if this machine cannot emulate the requested link.

use std::{fs, thread, time::Duration};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testing::PATIENCE;

use super::{Bar, By, Outcome, Scale};
use crate::{
    Proofload,
    disturbance::Witness,
    link::{LinkedHosts, distance_from_uniform},
    machine::Cores,
    process::{Launch, child_with},
    temporary::TemporaryFolder,
};

pub(super) const BAR: Bar = Bar {
    name: "link-certified",
    what: "a study on a 50 ms link has its certificate and counters; an emulator without a processor and a link of \
           20 Gbit/s void it, and so does an emulator that is stopped or crowded out in the trial; free jitter has the distribution asked for",
    full_seconds: 75,
    decided_by: By::Both,
    run,
};

/// A wrong figure is undecided if a processor was gone for more than this share of the time (0 to 1).
const MOST_GAPS: f64 = 0.01;

const STUDY: &str = r#"
title = "link"
[hosts]
client = { CLIENT }
web = {}
[[links]]
name = "wan"
between = ["client", "web"]
rate = "RATE"
delay = "50ms"
[targets.web]
on = "web"
run = "serve"
[workload.http]
from = "client"
target = "web"
rate = 100
connections = 20
duration = "1s"
[trial]
void_attempts = 0
[[goals]]
name = "fast"
p99 = "1s"
"#;

fn run(scale: Scale) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let folder = TemporaryFolder::new()?;
    let allowed = kernel::noise::allowed_cpus()?;
    let [first, second, ..] = allowed[..] else { bail!("two processors are needed") };
    let (all, two) = (format!("cpus = {allowed:?}"), format!("{first},{second}"));
    let one = format!("cpus = {first}");
    let cases = [
        ("sound_on_two", Some(&two), &*one, "100mbit", None),
        ("too_fast", None, "", "20gbit", Some("it carries")),
        ("sound", None, "", "100mbit", None),
        ("all_pinned", None, &*all, "100mbit", Some("no processor of its own")),
    ];
    let chosen = match scale {
        // A link without its own processor is refused without a measurement.
        Scale::Counts => &cases[3..],
        Scale::Sample => &cases[..2],
        Scale::Full => &cases[..],
    };
    for &(name, processors, client, rate, reason) in chosen {
        let (file, out) = (folder.file(&format!("{name}.toml")), folder.file(name));
        fs::write(&file, STUDY.replace("CLIENT", client).replace("RATE", rate))?;
        let call = Proofload::new("run")?.arg(&file).with(|launch| launch.args(["--out", &out, "-q"]));
        let call = call.with(|launch| match processors {
            Some(processors) => launch.under(["taskset", "-c", processors.as_str()]),
            None => launch,
        });
        let (output, gaps) = Witness::of_all(|| call.run())?;
        let lines = fs::read_to_string(format!("{out}/links.jsonl")).with_context(|| output.described())?;
        let records: Vec<Value> = lines.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        let trial = fs::read_to_string(format!("{out}/trials.jsonl"))?;
        let trial: Value = serde_json::from_str(trial.lines().next().context("a trial")?)?;
        let validity = &trial["trial"]["validity"];
        let void: Vec<&Value> = validity["reasons"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|why| why["rule"] == "link")
            .collect();
        match reason {
            None if !void.is_empty() && gaps.share > MOST_GAPS => {
                outcome.undecided(name, "valid, goals met", format!("a processor was gone for {gaps}"));
            }
            None => {
                let is_met = output.code == Some(0) && validity["verdict"] == "valid";
                outcome.time().figure(name, validity, "valid, goals met", is_met);
                let is_certified = records[0]["kind"] == "certificate" && records[0]["certified"] == true;
                outcome.time().holds(
                    &format!("{name}_certificate"),
                    is_certified,
                    &records[0]["reasons"].to_string(),
                );
                let carried = &records[1]["a_to_b"]["delivered_packets"];
                let is_counted = records[1]["trial"] == 1 && carried.as_u64() >= Some(100);
                let bound = ">= 100 packets in trial 1";
                outcome.time().figure(&format!("{name}_carried"), carried, bound, is_counted);
            }
            Some(reason) => {
                let told = |why: &&Value| why["evidence"].as_str().is_some_and(|text| text.contains(reason));
                let is_void = output.code == Some(3) && void.iter().any(told);
                let outcome = if name == "too_fast" { outcome.time() } else { &mut outcome };
                outcome.figure(name, validity, format!("void: {reason}"), is_void);
            }
        }
    }
    if scale.is_timed() {
        take_the_emulator_away(&folder, &mut outcome)?;
        measure_jitter(scale, &mut outcome)?;
    }
    Ok(outcome)
}

/// A study that misses its goal only if something disturbs it.
const CLOSED: &str = r#"
title = "away"
[hosts]
client = { cpus = "GENERATOR" }
web = { cpus = "GENERATOR" }
[[links]]
between = ["client", "web"]
rate = "100mbit"
delay = "5ms"
[targets.web]
on = "web"
run = "serve"
[workload.http]
users = 20
think_time = "exp:50ms"
duration = "2s"
cpus = "GENERATOR"
threads = 1
[trial]
void_attempts = 0
[[goals]]
p99 = "60ms"
"#;

/// A workload of a program that sends packets over the link.
const PROGRAM: &str = r#"
[workload.command]
from = "web"
run = "ping -q -c 10 -i 0.2 {client}"
[trial]
void_attempts = 0
[[goals]]
errors = 0
"#;

/// Occupies the emulator's processor for 100 ms of every 800, at most 10 times.
const CROWD: &str = "exec chrt --fifo 90 python3 -c '
import time
for _ in range(10):
    until = time.monotonic() + 0.1
    while time.monotonic() < until: pass
    time.sleep(0.7)
'";

/// If the emulator stalls during a trial, the service must not get the blame.
fn take_the_emulator_away(folder: &TemporaryFolder, outcome: &mut Outcome) -> Result<()> {
    let Cores { generator, server: emulator, .. } = Cores::of_this_process()?;
    let lab = CLOSED.split("[workload.http]").next().context("a lab")?;
    for (name, study) in
        [("stopped", CLOSED), ("crowded_out", CLOSED), ("stopped_in_program", &format!("{lab}{PROGRAM}"))]
    {
        let (file, out) = (folder.file(&format!("{name}.toml")), folder.file(name));
        fs::write(&file, study.replace("GENERATOR", &generator.to_string()))?;
        let on = format!("{generator},{emulator}");
        let call = Proofload::new("run")?.arg(&file).with(|launch| launch.args(["--out", &out]));
        let mut running = call.with(|launch| launch.under(["taskset", "-c", &on])).start()?;
        running.process.says("certified", PATIENCE)?;
        // A link that fails its first certification is made again, with another emulator process.
        let mut is_replaced = false;
        let crowd = match name {
            "stopped" | "stopped_in_program" => {
                let worker = emulator_of(running.process.pid())?;
                for (signal, pause_ms) in [(Signal::CONT, 400), (Signal::STOP, 150)].repeat(2) {
                    is_replaced |= kill_process(worker, signal).is_err();
                    thread::sleep(Duration::from_millis(pause_ms));
                }
                is_replaced |= kill_process(worker, Signal::CONT).is_err();
                None
            }
            _ => Some(Launch::new("sh").args(["-c", CROWD]).on_core(emulator).start()?),
        };
        let output = running.finish()?;
        drop(crowd);
        let trials = fs::read_to_string(format!("{out}/trials.jsonl")).with_context(|| output.described())?;
        let trial: Value = serde_json::from_str(trials.lines().next().context("a trial")?)?;
        let validity = &trial["trial"]["validity"];
        let is_told = |told: &Value| told.to_string().contains("its emulator stalled");
        let warnings = &trial["trial"]["warnings"];
        // The trials of requests miss their goal only because of the stalls, so they are void. The program has no error despite the stalls,
        // so its trial is valid.
        let (bound, is_right) = match name {
            "stopped_in_program" => ("valid, and told of", output.code == Some(0) && is_told(warnings)),
            _ => ("void: its emulator stalled", output.code == Some(3) && is_told(validity)),
        };
        match is_replaced || validity.to_string().contains("is not certified") {
            true => outcome.undecided(name, bound, "the machine was too busy to certify the link"),
            false => outcome.time().figure(name, validity, bound, is_right),
        }
    }
    Ok(())
}

/// The process that moves the packets of a study's only link.
fn emulator_of(parent: u32) -> Result<Pid> {
    let worker = child_with("link-worker", parent).and_then(|worker| Pid::from_raw(worker.cast_signed()));
    worker.with_context(|| format!("process {parent} runs no link"))
}

/// Free jitter has the requested distribution at any rate of packets.
fn measure_jitter(scale: Scale, outcome: &mut Outcome) -> Result<()> {
    // By chance, the distance exceeds its bound once in 500 times with the first number of samples, and once in 4,000 times with the
    // second.
    let rates = [("fast", (5_000, 5_000, 0.03)), ("slow", (1_000, 30, 0.06))];
    for &(name, (count, per_s, most)) in &rates[..scale.pick(1, rates.len())] {
        let link = LinkedHosts::start("--delay 1ms --jitter uniform:0ms..20ms --jitter-order free")?;
        let (delays, gaps) = Witness::of_all(|| link.one_way_delays(count, Duration::from_secs(1) / per_s))?;
        link.stop()?;
        outcome.time().equal(
            &format!("jitter_{name}_arrived"),
            delays.len() as u64,
            u64::from(count),
            "sent",
        );
        let distance = distance_from_uniform(&delays, 20e6);
        let (name, bound) = (format!("jitter_{name}_distance"), format!("<= {most}"));
        if distance > most && gaps.share > MOST_GAPS {
            outcome.undecided(&name, bound, format!("{distance:.3}, while a processor was gone for {gaps}"));
        } else {
            outcome.time().figure(&name, format!("{distance:.3}"), bound, distance <= most);
        }
    }
    Ok(())
}
