//! Compares what a request costs the generator's machine, for proofload and its peers.
//!
//! nginx with one worker has one processor, the generator another. All tools take turns within a round, and the order
//! changes with each round. The median of the rounds' ratios is compared, so that a slow phase of the machine affects all
//! tools alike.

use std::{
    path::Path,
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, bail};
use clap::Parser;
use proofload_tests::{
    Nginx,
    machine::{Cores, description, raise_descriptor_limit},
    nginx,
};

mod consumer;
mod copy;
mod cost;
mod figure;
mod fsync;
mod link;
mod listen;
mod listen_accept;
mod memory;
mod tool;
mod wrk2;

use tool::Tool;

/// Compares the costs of proofload, wrk, ab, h2load and oha.
#[derive(Parser)]
struct Arguments {
    /// Rounds; every tool runs once in each [default: 15 with other generators, else 5].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// Length of a run in seconds [default: 2 with other generators, else 5].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: Option<u32>,
    /// Measure only this figure.
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(names()))]
    only: Option<String>,
}

/// The figure of the instructions that the measuring loop executes per request.
const LOOP_COST: &str = "loop-cost";

/// All figures, in the order in which they are measured.
fn names() -> impl Iterator<Item = &'static str> {
    let first = cost::WORKLOADS.iter().map(|workload| workload.name);
    let first = first.chain([memory::NAME, wrk2::NAME, link::CPU, link::FAST]);
    let listen = listen::WORKLOADS.iter().map(|workload| workload.name).chain([listen_accept::NAME]);
    first.chain(listen).chain(copy::NAMES).chain([LOOP_COST])
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the benchmarks. Returns whether every run is usable.
fn run(arguments: &Arguments) -> Result<bool> {
    let limit = raise_descriptor_limit();
    let cores = Cores::of_this_process()?;
    println!("machine: {}, open files {limit}", description());
    println!("nginx on processor {}, generator on processor {}", cores.server, cores.generator);
    if cores.server == cores.generator {
        bail!("two processors are needed: one for nginx, one for the generator");
    }
    let (tools, missing) = Tool::find_all();
    for tool in &tools {
        println!("{}: {} ({})", tool.name(), tool.version(), tool.path.display());
    }
    for (name, remedy) in &missing {
        println!("{name}: MISSING, not measured; {remedy}");
    }
    let (rounds, seconds) = (arguments.rounds.unwrap_or(5), arguments.seconds.unwrap_or(5));
    let nginx = Nginx::start(&nginx::Options {
        core: Some(cores.server),
        secure: Some(nginx::Secure::Fixed),
        ..Default::default()
    })?;
    let mut all_used = missing.is_empty();
    let is_selected = |name: &str| arguments.only.as_deref().is_none_or(|only| only == name);
    for workload in cost::WORKLOADS {
        if is_selected(workload.name) {
            let rounds = arguments.rounds.unwrap_or(15);
            let session = cost::Session { nginx: &nginx, cores, tools: &tools, rounds };
            all_used &= session.measure(workload, arguments.seconds.unwrap_or(2))?;
        }
    }
    if is_selected(memory::NAME) {
        all_used &= memory::measure(&nginx, cores, &tools, rounds.min(memory::MAX_ROUNDS))?;
    }
    drop(nginx);
    if is_selected(wrk2::NAME) {
        all_used &= wrk2::measure(cores, rounds.min(5))?;
    }
    if is_selected(link::CPU) {
        all_used &= link::measure_cpu(rounds.min(5))?;
    }
    if is_selected(link::FAST) {
        all_used &= link::measure_fast(rounds.min(3))?;
    }
    for workload in listen::WORKLOADS {
        if is_selected(workload.name) {
            all_used &= listen::measure(workload, cores, rounds, seconds)?;
        }
    }
    if is_selected(listen_accept::NAME) {
        all_used &= listen_accept::measure(rounds.min(3), seconds)?;
    }
    for name in copy::NAMES {
        if is_selected(name) {
            all_used &= copy::measure(name, rounds.min(3))?;
        }
    }
    if is_selected(LOOP_COST) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/loop-cost.sh");
        all_used &= Command::new(script).status().context("cannot run scripts/loop-cost.sh")?.success();
    }
    Ok(all_used)
}
