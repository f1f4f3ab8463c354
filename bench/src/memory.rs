//! User-space memory of an open connection.

use std::{
    fs,
    io::Write,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use proofload_tests::{
    Nginx,
    machine::Cores,
    process::{Finished, Launch},
};

use crate::{
    figure::Figure,
    tool::{Load, Tool},
};

/// The name of the figure.
pub(crate) const NAME: &str = "memory-10k";
/// Most rounds; memory hardly varies.
pub(crate) const MAX_ROUNDS: u32 = 3;

const FEW: u32 = 10;
const MANY: u32 = 10_000;
/// Length of a run: connections that do not fit into the accept queue are accepted at the second attempt after 1 s, or at
/// the third after 3 s.
const SECONDS: u32 = 6;

/// Largest resident memory and number of open descriptors of a tool.
#[derive(Debug, Clone, Copy, Default)]
struct Peak {
    resident_bytes: u64,
    descriptors: usize,
}

/// Runs every tool with few and with many connections, and prints the memory per additional connection. Returns whether
/// all runs are usable.
///
/// # Errors
/// If a tool cannot be started.
pub(crate) fn measure(nginx: &Nginx, cores: Cores, tools: &[Tool], rounds: u32) -> Result<bool> {
    let url = nginx.url("/");
    let load = |connections| Load {
        url: &url,
        body: None,
        connections,
        keepalive: true,
        seconds: SECONDS,
        core: cores.generator,
    };
    println!("\n== {NAME}: resident memory at {MANY} connections less that at {FEW}, per connection");
    for tool in tools {
        if let Some(launch) = tool.launch(&load(MANY)) {
            println!("   {}", launch.shown());
        }
    }
    let mut marginal = Figure::new(NAME, "B");
    let mut absolute = Figure::new(format!("{NAME}-absolute"), "B");
    let mut all_used = true;
    for round in 0..rounds {
        for turn in 0..tools.len() {
            let tool = &tools[(turn + round as usize) % tools.len()];
            print!("   round {} {:<7}", round + 1, tool.name());
            let _ = std::io::stdout().flush();
            let pair = peak(tool, &load(FEW)).and_then(|few| Ok((few, peak(tool, &load(MANY))?)));
            let values = pair.map(|(few, many)| {
                println!(
                    " {:.1} MiB at {FEW}, {:.1} MiB at {MANY}, {} descriptors",
                    few.resident_bytes as f64 / 1_048_576.0,
                    many.resident_bytes as f64 / 1_048_576.0,
                    many.descriptors
                );
                let more = many.resident_bytes.saturating_sub(few.resident_bytes);
                (more as f64 / f64::from(MANY - FEW), many.resident_bytes as f64 / f64::from(MANY))
            });
            let values = values.inspect_err(|error| println!(" void: {error:#}")).ok();
            all_used &= values.is_some();
            marginal.push(tool.name(), values.map(|(marginal, _)| marginal));
            absolute.push(tool.name(), values.map(|(_, absolute)| absolute));
        }
    }
    print!("{}{}", marginal.lines(), absolute.lines());
    Ok(all_used)
}

fn peak(tool: &Tool, load: &Load) -> Result<Peak> {
    let launch = tool.launch(load).context("the tool does not support this load")?;
    let (peak, finished) = run_watched(&launch)?;
    tool.requests(&finished)?;
    ensure!(
        peak.descriptors >= load.connections as usize,
        "only {} descriptors were ever open for {} connections",
        peak.descriptors,
        load.connections
    );
    Ok(peak)
}

/// Runs a tool and reads its memory and descriptors five times a second. `ru_maxrss` is not used: it includes the memory
/// of the parent between fork and exec.
fn run_watched(launch: &Launch) -> Result<(Peak, Finished)> {
    let mut process = launch.start()?;
    let folder = format!("/proc/{}", process.pid());
    let deadline = Instant::now() + Duration::from_secs(90);
    let mut peak = Peak::default();
    while process.wait(Duration::from_millis(200))?.is_none() && Instant::now() < deadline {
        if let Some(resident_bytes) = high_water_mark_bytes(&folder) {
            peak.resident_bytes = peak.resident_bytes.max(resident_bytes);
        }
        let open = fs::read_dir(format!("{folder}/fd")).map_or(0, |files| files.count());
        peak.descriptors = peak.descriptors.max(open);
    }
    Ok((peak, process.finish(Duration::ZERO)?))
}

fn high_water_mark_bytes(folder: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("{folder}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
