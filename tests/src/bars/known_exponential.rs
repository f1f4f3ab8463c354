//! A target with exponentially distributed delays: each percentile that the client reports must lie in the range that the target's own
//! record of the same requests allows.

use anyhow::Result;

use super::{Bar, By, Outcome, Scale, ms};
use crate::{Proofload, Serve, stats::quantile_ranks};

pub(super) const BAR: Bar = Bar {
    name: "known-exponential",
    what: "exponential delays: every percentile to p99.9 inside the 95 % interval of serve's own record",
    full_seconds: 42,
    decided_by: By::Times,
    run,
};

/// Most that the way to the target and back may add: two wake-ups and two passes through the loopback, on processors that other programs
/// use, too.
const LOOPBACK_NS: f64 = 100_000.0;
/// Relative step of the histograms on both sides: three digits each.
const RESOLUTION: f64 = 0.002;

fn run(scale: Scale) -> Result<Outcome> {
    let (seconds, rate) = scale.pick((5, 1_000), (40, 500));
    let serve = Serve::start("--delay exp:20ms --seed 1")?;
    let words = format!("-R {rate} --arrivals poisson -c 256 -d {seconds}s --seed 1 -q");
    let output = Proofload::http(&serve.url(), &words)?.run()?;
    let trial = output.counted(0)?;
    let report = serve.stop()?;
    let (client, truth) = (&trial.service_time.observed, &report.delay_applied);
    let mut outcome = Outcome::default();
    outcome.equal("samples", client.count(), truth.count(), "serve's");
    let mut outside = Vec::new();
    let percentiles: Vec<f64> =
        (1..=99).map(|percent| f64::from(percent) / 100.0).chain([0.995, 0.999]).collect();
    for &quantile in &percentiles {
        let (lower, upper) = quantile_ranks(truth.count(), quantile, 0.95);
        let at_rank = |rank: u64| truth.quantile_ns(rank as f64 / truth.count() as f64) as f64;
        let (low, high) = (at_rank(lower) * (1.0 - RESOLUTION), at_rank(upper) * (1.0 + RESOLUTION));
        let measured = client.quantile_ns(quantile) as f64;
        if measured < low || measured > high + LOOPBACK_NS {
            outside.push(format!(
                "p{:.1}: {:.3} ms outside {:.3} to {:.3} ms",
                quantile * 100.0,
                measured / 1e6,
                low / 1e6,
                high / 1e6
            ));
        }
    }
    let bound = format!("0 of {}; loopback allowed {} ms", percentiles.len(), LOOPBACK_NS / 1e6);
    outcome.time().figure("percentiles_outside", outside.len(), bound, outside.is_empty());
    outside.into_iter().for_each(|line| outcome.note(line));
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
        outcome.note(format!(
            "{name}: client {:.3} ms, serve {:.3} ms, drawn {:.3} ms",
            ms(client.quantile_ns(quantile)),
            ms(truth.quantile_ns(quantile)),
            ms(report.delay_drawn.quantile_ns(quantile))
        ));
    }
    Ok(outcome)
}
