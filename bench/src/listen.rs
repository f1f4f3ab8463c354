//! Compares the data listener with nginx, which answers the same requests with 204 and stores nothing.
//!
//! The server has one processor, the generator another. The listener parses, checks, renders and stores events; the
//! difference to nginx is the cost of that. The rate is the server's limit only if its processor was busy, so the processor
//! time of the server's process per event is shown as well.

use std::{fs, io::Write, net::SocketAddr, time::Duration};

use anyhow::{Context, Result, ensure};
use proofload_tests::{
    Nginx,
    listen::{Listen, ListenCall},
    machine::{CoreTime, Cores},
    nginx,
    process::Launch,
    proofload::{binary, parse_trial},
    stats::median,
    temporary::TemporaryFolder,
};

use crate::{consumer::Consumer, figure::Figure, fsync};

/// The event of the reference test, 109 bytes.
const EVENT: &str = r#"{"board_id":10,"playtime":5,"minimum_play":"Y","timestamp":"2019-11-12T10:00:01Z","user_id":1,"interest":100}"#;

/// Share of time from which a processor counts as busy.
const BUSY_RATIO: f64 = 0.95;

/// A workload: what is sent and how it is acknowledged.
#[derive(Debug)]
pub(crate) struct Workload {
    /// The name of the figure.
    pub name: &'static str,
    connections: u32,
    events: u32,
    shape: Shape,
    ack: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    One,
    Lines,
    Array,
}

/// The workloads.
pub(crate) const WORKLOADS: &[Workload] = &[
    Workload { name: "listen-written", connections: 128, events: 1, shape: Shape::One, ack: "written" },
    Workload { name: "listen-synced", connections: 512, events: 1, shape: Shape::One, ack: "synced" },
    Workload { name: "listen-ndjson", connections: 64, events: 100, shape: Shape::Lines, ack: "written" },
    Workload { name: "listen-array", connections: 64, events: 100, shape: Shape::Array, ack: "written" },
];

/// The generators, which take turns, so that the result does not depend on one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Generator {
    Proofload,
    Wrk,
}

impl Generator {
    const ALL: [Self; 2] = [Self::Proofload, Self::Wrk];

    fn name(self) -> &'static str {
        match self {
            Self::Proofload => "proofload",
            Self::Wrk => "wrk",
        }
    }
}

/// The figures of a run.
#[derive(Debug, Clone, Copy)]
struct Run {
    events_per_s: f64,
    server_us: f64,
    server_busy: f64,
    generator_busy: f64,
}

/// Runs every round, prints every run and the comparison. Returns whether all runs are usable.
///
/// # Errors
/// If a server cannot be started or the processor times cannot be read.
pub(crate) fn measure(workload: &Workload, cores: Cores, rounds: u32, seconds: u32) -> Result<bool> {
    let Workload { name, connections, events, .. } = workload;
    println!(
        "\n== {name}: {connections} connections, {events} events a request, acknowledged {}",
        workload.ack
    );
    if workload.ack == "written" {
        println!(
            "   stored data is removed up to 1 MiB before the end of each file, so that memory is reused"
        );
    }
    let mut rates: Vec<Figure> = Vec::new();
    let mut costs: Vec<Figure> = Vec::new();
    for generator in Generator::ALL {
        rates.push(Figure::new(format!("{name}-{}", generator.name()), "/s"));
        costs.push(Figure::new(format!("{name}-{}-cpu", generator.name()), "us"));
    }
    let mut all_used = true;
    let (mut best, mut fsyncs) = (0.0_f64, Vec::new());
    for round in 0..rounds {
        for (index, generator) in Generator::ALL.into_iter().enumerate() {
            let mut sides = [true, false];
            sides.rotate_left(round as usize % 2);
            for ours in sides {
                let folder = TemporaryFolder::new()?;
                if workload.ack == "synced" {
                    fsyncs.push(fsync::median_s(folder.path())?);
                }
                let side = if ours { "ours" } else { "nginx" };
                print!("   round {} {:<9} at {side:<5}", round + 1, generator.name());
                // Shown before the run, which takes seconds.
                let _ = std::io::stdout().flush();
                let run = one_run(workload, ours, generator, cores, seconds, &folder);
                let run = run.inspect(|run| println!("{}", run.shown()));
                let run = run.inspect_err(|error| println!(" void: {error:#}")).ok();
                all_used &= run.is_some();
                if ours {
                    best = best.max(run.map_or(0.0, |run| run.events_per_s));
                }
                rates[index].push(side, run.map(|run| run.events_per_s));
                costs[index].push(side, run.map(|run| run.server_us));
            }
        }
    }
    rates.iter().chain(&costs).for_each(|figure| print!("{}", figure.lines()));
    if workload.ack == "synced" {
        let fsync_s = median(&fsyncs);
        let needed = 2.0 * best * fsync_s;
        let verdict = if f64::from(*connections) >= needed { "enough" } else { "TOO FEW" };
        println!(
            "   fdatasync of 4 KiB takes {:.3} ms (median); {connections} connections are {verdict}: 2 × rate × \
             fdatasync is {needed:.0}",
            fsync_s * 1e3
        );
    }
    Ok(all_used)
}

enum Server {
    Ours(Listen),
    Nginx(Nginx),
}

impl Server {
    fn start(workload: &Workload, ours: bool, core: u32, folder: &TemporaryFolder) -> Result<Self> {
        if !ours {
            let options = nginx::Options { core: Some(core), ..Default::default() };
            return Ok(Self::Nginx(Nginx::start(&options)?));
        }
        let store = folder.path().join("store");
        fs::create_dir(&store)?;
        // All threads of the listener share one processor. The lines are those of the reference test: with the time,
        // without the tag.
        let words = format!("--threads 1 --no-tag --ack {} --log-level warn", workload.ack);
        Ok(Self::Ours(ListenCall::new(&store, &words)?.on_core(core).start()?))
    }

    fn address(&self) -> SocketAddr {
        match self {
            Self::Ours(listen) => listen.address(),
            Self::Nginx(nginx) => nginx.address(),
        }
    }

    fn cpu_s(&self) -> Result<f64> {
        match self {
            Self::Ours(listen) => listen.cpu_s(),
            Self::Nginx(nginx) => nginx.cpu_s(),
        }
    }
}

fn one_run(
    workload: &Workload,
    ours: bool,
    generator: Generator,
    cores: Cores,
    seconds: u32,
    folder: &TemporaryFolder,
) -> Result<Run> {
    let server = Server::start(workload, ours, cores.server, folder)?;
    let url = format!("http://{}/204", server.address());
    let launch = load(workload, generator, &url, seconds, folder)?.on_core(cores.generator);
    // Not with synced lines: punching holes would wait for the disk.
    let consumer = (ours && workload.ack == "written").then(|| Consumer::of(&folder.path().join("store")));
    let (server_before, generator_before) = (CoreTime::of(cores.server)?, CoreTime::of(cores.generator)?);
    let cpu_before = server.cpu_s()?;
    let finished = launch.run(Duration::from_secs(u64::from(seconds) + 60))?;
    let cpu_s = server.cpu_s()? - cpu_before;
    let server_busy = CoreTime::of(cores.server)?.since(server_before).busy_ratio();
    let generator_busy = CoreTime::of(cores.generator)?.since(generator_before).busy_ratio();
    drop(consumer);
    let (requests, elapsed_s) = answered(generator, &finished.stdout)
        .with_context(|| format!("{}: {}{}", launch.shown(), finished.stdout, finished.stderr))?;
    if let Server::Ours(listen) = server {
        let report = listen.stop()?;
        let stored = report.statistics.events.values().sum::<u64>();
        let acknowledged = requests * u64::from(workload.events);
        ensure!(stored >= acknowledged, "{acknowledged} events were acknowledged and {stored} are reported");
    }
    let events = requests as f64 * f64::from(workload.events);
    Ok(Run { events_per_s: events / elapsed_s, server_us: cpu_s * 1e6 / events, server_busy, generator_busy })
}

fn load(
    workload: &Workload,
    generator: Generator,
    url: &str,
    seconds: u32,
    folder: &TemporaryFolder,
) -> Result<Launch> {
    let Workload { connections, events, shape, .. } = *workload;
    match generator {
        Generator::Proofload => {
            let words = format!("http {url} -c {connections} -d {seconds}s --threads 1 -q --json - --events");
            let launch = Launch::new(binary()?.display().to_string()).words(&words);
            Ok(match shape {
                Shape::One => launch,
                Shape::Lines => launch.words(&format!("--events-per-request {events} --as ndjson")),
                Shape::Array => launch.words(&format!("--events-per-request {events} --as array")),
            })
        }
        Generator::Wrk => {
            let all = vec![EVENT; events as usize];
            let (kind, body) = match shape {
                Shape::One => ("application/json", EVENT.to_owned()),
                Shape::Lines => ("application/x-ndjson", all.join("\n") + "\n"),
                Shape::Array => ("application/json", format!("[{}]", all.join(","))),
            };
            let script = folder.file("post.lua");
            let text = format!(
                "wrk.method = \"POST\"\nwrk.headers[\"Content-Type\"] = \"{kind}\"\nwrk.body = [==[{body}]==]\n"
            );
            fs::write(&script, text)?;
            Ok(Launch::new("wrk").words(&format!("-t1 -c{connections} -d{seconds}s -s {script} {url}")))
        }
    }
}

/// The number of correctly answered requests, and the seconds that they took.
fn answered(generator: Generator, stdout: &str) -> Result<(u64, f64)> {
    match generator {
        Generator::Proofload => {
            let trial = parse_trial(stdout)?;
            let errors = trial.errors.total() + trial.connection_errors.total();
            ensure!(errors == 0, "{errors} errors: {:?}", trial.errors);
            Ok((trial.counts.completed, trial.elapsed_s))
        }
        Generator::Wrk => {
            ensure!(!stdout.contains("Socket errors") && !stdout.contains("Non-2xx"), "wrk saw errors");
            let line =
                stdout.lines().find(|line| line.contains(" requests in ")).context("wrk printed no count")?;
            let (requests, rest) = line.trim().split_once(" requests in ").context("wrk's count")?;
            let time = rest.split_once("s,").context("wrk's time")?.0;
            Ok((requests.parse()?, time.parse().with_context(|| format!("time '{time}'"))?))
        }
    }
}

impl Run {
    fn shown(&self) -> String {
        let mut text = format!(
            " {:>9.0} events/s, {:.2} us of the server's process per event, server {:.0} % busy, generator {:.0} %",
            self.events_per_s,
            self.server_us,
            self.server_busy * 100.0,
            self.generator_busy * 100.0
        );
        if self.server_busy < BUSY_RATIO {
            text += if self.generator_busy >= BUSY_RATIO { ", GENERATOR-BOUND" } else { ", server not busy" };
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_wrk_is_parsed() {
        let printed = "Running 2s test\n  308423 requests in 2.10s, 47.36MB read\nRequests/sec: 146951.72\n";
        assert_eq!(answered(Generator::Wrk, printed).unwrap(), (308_423, 2.1));
        assert!(
            answered(Generator::Wrk, "  5 requests in 2.10s, 1MB read\n  Non-2xx or 3xx responses: 5\n")
                .is_err()
        );
    }
}
