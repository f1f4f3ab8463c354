//! What the link emulator costs, and how fast it gets. It has no peer here: the kernel's netem is not
//! in every kernel, and user-space ones end below a gigabit.

use std::time::Duration;

use anyhow::Result;
use proofload_tests::{
    link::{LinkedHosts, cores_per_gbit},
    stats::{median, spread},
};

/// The figure of 1 Gbit/s both ways over 228 ms: cores per Gbit/s and direction.
pub const CPU: &str = "link-cpu";
/// The figure of 10 Gbit/s at 0.1 ms: Gbit/s of one flow, all on this machine.
pub const FAST: &str = "link-10g";

const MOST_CORES: f64 = 0.35;
const LEAST_GBIT_PER_S: f64 = 4.0;

/// Measures the processor time; whether it is within its bound.
///
/// # Errors
/// When a link or iperf3 cannot be run.
pub fn measure_cpu(rounds: u32) -> Result<bool> {
    println!("\n== {CPU}: 1 Gbit/s, 114 ms, iperf3 --bidir, processor time of the emulator");
    let mut cores = Vec::new();
    for round in 0..rounds {
        let link = LinkedHosts::start("--rate 1gbit --delay 114ms --queue 2bdp")?;
        link.tune()?;
        link.iperf3("--bidir --time 14", Duration::from_secs(60))?;
        let report = link.stop()?;
        let each = [0, 1].map(|index| cores_per_gbit(&report["counters"][index]));
        println!("   round {} there {:.3} back {:.3} cores per Gbit/s", round + 1, each[0], each[1]);
        cores.extend(each);
    }
    let (low, high) = spread(&cores);
    let value = median(&cores);
    println!("bench {CPU} ours={value:.3}cores/Gbit/s bound={MOST_CORES} spread={low:.3}-{high:.3}");
    Ok(value <= MOST_CORES)
}

/// Measures the fastest flow; whether it is within its bound.
///
/// # Errors
/// When a link or iperf3 cannot be run.
pub fn measure_fast(rounds: u32) -> Result<bool> {
    println!("\n== {FAST}: 10 Gbit/s, 0.1 ms, one iperf3 flow");
    let mut rates = Vec::new();
    for round in 0..rounds {
        let link = LinkedHosts::start("--rate 10gbit --delay 0.1ms")?;
        link.tune()?;
        let result = link.iperf3("--time 6", Duration::from_secs(30))?;
        let report = link.stop()?;
        let rate = result["end"]["sum_received"]["bits_per_second"].as_f64().unwrap_or(0.0) / 1e9;
        let counters = &report["counters"][0];
        println!(
            "   round {} {rate:.2} Gbit/s, {:.3} cores per Gbit/s, {} packets not emulated",
            round + 1,
            cores_per_gbit(counters),
            counters["overrun_packets"]
        );
        rates.push(rate);
    }
    let (low, high) = spread(&rates);
    let value = median(&rates);
    println!("bench {FAST} ours={value:.2}Gbit/s bound={LEAST_GBIT_PER_S} spread={low:.2}-{high:.2}");
    Ok(value >= LEAST_GBIT_PER_S)
}
