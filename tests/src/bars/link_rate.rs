//! One flow fills a long fat link, both ways at once.

use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use super::{Bar, By, Outcome, Scale};
use crate::link::{LinkedHosts, cores_per_gbit, steady_mbit_per_s};

/// The bar.
pub(super) const BAR: Bar = Bar {
    name: "link-rate",
    what: "1 Gbit/s, 114 ms each way: one iperf3 flow carries 930 Mbit/s, both ways at once",
    full_seconds: 50,
    decided_by: By::Times,
    run,
};

const SLOW_START_S: u64 = 5;

fn run(scale: Scale) -> Result<Outcome> {
    // A sample is over before CUBIC has filled the path for good.
    let (seconds, least) = scale.pick((4, 850.0), (30, 930.0));
    let mut outcome = Outcome::default();
    let link = LinkedHosts::start("--rate 1gbit --delay 114ms --queue 2bdp")?;
    link.tune()?;
    // Slow start takes 15 round trips. CUBIC, because BBR empties the pipe on purpose every 10 s to measure the
    // round trip (PROBE_RTT) and takes a second of such a path to fill it again: that is not the link's.
    let options = format!("--bidir --congestion cubic --time {}", SLOW_START_S + seconds);
    let result = link.iperf3(&options, Duration::from_secs(seconds + 40))?;
    let report = link.stop()?;
    let rates = steady_mbit_per_s(&result, SLOW_START_S as f64);
    for (name, rate) in ["there_mbit_per_s", "back_mbit_per_s"].into_iter().zip(rates) {
        // Less than 1 % above what TCP can get through 1 Gbit/s of Ethernet: 941.
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
