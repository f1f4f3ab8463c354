//! A long link adds the requested delay and no other delay.

use std::time::Duration;

use anyhow::Result;

use super::{Bar, By, Outcome, Scale};
use crate::link::LinkedHosts;

pub(super) const BAR: Bar = Bar {
    name: "link-delay",
    what: "1 Gbit/s, 114 ms each way, idle: the round trip is 228 ms, p99.9 within 1 ms",
    full_seconds: 65,
    decided_by: By::Times,
    run,
};

fn run(scale: Scale) -> Result<Outcome> {
    // An odd interval keeps the packets from running in step with the kernel's ticks.
    let (count, interval_us) = scale.pick((2_000, 2_537), (12_000, 5_037));
    let mut outcome = Outcome::default();
    let link = LinkedHosts::start("--rate 1gbit --delay 114ms")?;
    let trips = link.round_trips(count, Duration::from_micros(interval_us))?;
    link.stop()?;
    let all = (trips.quiet_ns.len() + trips.stolen_ns.len()) as u64;
    outcome.time().equal("answered", all, u64::from(count), "probes");
    let quiet = trips.quiet_ns.len() as f64 / all.max(1) as f64;
    if quiet < 0.5 {
        let why = format!("a processor was gone for {:.0} % of the probes", (1.0 - quiet) * 100.0);
        outcome.undecided("round_trip", "p50 228 ± 0.3 ms, p99.9 <= 229 ms", why);
    } else {
        outcome.time().near("p50_ms", trips.percentile_ms(0.5), 228.0, 0.3, "");
        let tail_ms = trips.percentile_ms(0.999);
        outcome.time().figure(
            "p99.9_ms",
            format!("{tail_ms:.3}"),
            "<= 229",
            tail_ms > 0.0 && tail_ms <= 229.0,
        );
    }
    outcome.note(format!(
        "p99 {:.3} ms, largest {:.3} ms; {} probes apart, for which a processor was gone (largest {:.3} ms)",
        trips.percentile_ms(0.99),
        trips.percentile_ms(1.0),
        trips.stolen_ns.len(),
        trips.stolen_ns.last().map_or(0.0, |&ns| ns as f64 / 1e6),
    ));
    Ok(outcome)
}
