//! One flow in each direction fills a link with a high rate and a long delay.

use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use super::{Bar, By, Outcome, Scale};
use crate::link::{LinkedHosts, cores_per_gbit, steady_mbit_per_s};

pub(super) const BAR: Bar = Bar {
    name: "link-rate",
    what: "1 Gbit/s, 114 ms each way: one iperf3 flow carries 930 Mbit/s, both ways at once",
    full_seconds: 50,
    decided_by: By::Times,
    run,
};

const SLOW_START_S: u64 = 5;

fn run(scale: Scale) -> Result<Outcome> {
    // A sample ends before CUBIC has filled the path, so its bound is lower.
    let (seconds, least) = scale.pick((4, 850.0), (30, 930.0));
    let mut outcome = Outcome::default();
    let link = LinkedHosts::start("--rate 1gbit --delay 114ms --queue 2bdp")?;
    link.tune()?;
    // Slow start takes 15 round trips. The flow uses CUBIC, because BBR empties the path on purpose every 10 s to measure the round trip
    // (PROBE_RTT), and then takes a second to fill it again. That would not measure the link.
    let options = format!("--bidir --congestion cubic --time {}", SLOW_START_S + seconds);
    let result = link.iperf3(&options, Duration::from_secs(seconds + 40))?;
    let report = link.stop()?;
    let rates = steady_mbit_per_s(&result, SLOW_START_S as f64);
    for (name, rate) in ["there_mbit_per_s", "back_mbit_per_s"].into_iter().zip(rates) {
        // The upper bound is less than 1 % above the 941 Mbit/s that TCP can reach on 1 Gbit/s Ethernet.
        let bound = format!("{least} to 950");
        outcome.time().figure(name, format!("{rate:.1}"), bound, (least..=950.0).contains(&rate));
    }
    for (name, counters) in ["there", "back"].into_iter().zip(counters(&report)) {
        let faults = ["overrun_packets", "dropped_memory_packets", "refused_writes"];
        let faults = faults.iter().map(|fault| counters[*fault].as_u64().unwrap_or(1)).sum();
        outcome.time().equal(&format!("not_emulated_{name}"), faults, 0, "packets");
        outcome.note(format!("{name}: the emulator took {:.3} cores per Gbit/s", cores_per_gbit(counters)));
    }
    Ok(outcome)
}

fn counters(report: &Value) -> [&Value; 2] {
    [&report["counters"][0], &report["counters"][1]]
}
