//! How much of a path a copy leaves to others, and how precisely it keeps a limit.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use testing::PATIENCE;

use super::{Bar, By, Outcome, Runs, Scale};
use crate::copying::{CopyPath, Way};

pub(super) const BAR: Bar = Bar {
    name: "copy-manners",
    what: "`copy -l` holds its rate within 2 %, up and down; one TCP flow of somebody else beside `copy --polite` keeps ≥ 0.35 of the \
           path, and what it keeps beside the default is printed: 100 Mbit/s, 40 ms, medians of 3",
    full_seconds: 240,
    decided_by: By::Times,
    run,
};

const RATE_MBIT: u32 = 100;

/// A flow of another program, which begins before a copy.
#[derive(Clone, Copy)]
struct Beside {
    flow_s: u32,
    file_bytes: u64,
    /// First and last second of the flow in which both send, after all connections of the copy have started.
    shared: (usize, usize),
}

fn run(scale: Scale) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let hosts = "tcp_rmem = \"64MB\", tcp_wmem = \"64MB\"";
    let path = CopyPath::up(Some(RATE_MBIT), hosts, "delay = \"20ms\"", 1 << 30)?;
    let short = Beside { flow_s: 12, file_bytes: 100_000_000, shared: (5, 11) };
    let long = Beside { flow_s: 26, file_bytes: 300_000_000, shared: (10, 24) };
    let beside = scale.pick(short, long);
    path.make("file", beside.file_bytes)?;
    for (way, name) in scale.pick(&[(Way::Up, "up")][..], &[(Way::Up, "up"), (Way::Down, "down")]) {
        for kbit in scale.pick(&[40_000_u32][..], &[5_000, 40_000, 80_000]) {
            limited(&mut outcome, &path, (*way, name), (*kbit, scale.pick(11, 24)))?;
        }
    }
    let shapes = [("polite", "--polite"), ("default", "")];
    for (name, options) in scale.pick(&shapes[..1], &shapes) {
        let mut shares = Runs::default();
        for _ in 0..scale.pick(1, 3) {
            shares.push(left_to_another(&path, options, beside)?);
        }
        let share = format!("{:.3}", shares.median());
        let (bound, reached) = match *name {
            "polite" => (">= 0.35 of the path", shares.median() >= 0.35),
            _ => ("printed: the share of one of ten would be 0.1", true),
        };
        outcome.time().figure(&format!("{name}_leaves"), share, bound, reached);
    }
    path.down()?;
    Ok(outcome)
}

/// Seconds at the start to leave out: connections are still starting, and data that waits for them is carried later.
const STARTING_S: usize = 3;

/// Checks the rate under a limit: the slope of the received bytes over time, because a single second may cut a request in two.
fn limited(
    outcome: &mut Outcome,
    path: &CopyPath,
    (way, name): (Way, &str),
    (kbit, seconds): (u32, u64),
) -> Result<()> {
    path.make("limited", u64::from(kbit) * 125 * seconds)?;
    let copied = path.copy(&format!("-l {kbit} --no-verify"), way, "limited", "copy")?;
    let rates = copied.report["rate_bytes_per_s"].as_array().cloned().unwrap_or_default();
    let rates: Vec<f64> = rates.iter().filter_map(Value::as_f64).collect();
    let steady = rates.get(STARTING_S..rates.len().saturating_sub(1)).unwrap_or_default();
    let share = slope(steady) * 8.0 / (f64::from(kbit) * 1e3);
    outcome.time().figure(
        &format!("limit_{name}_{kbit}_kbit"),
        format!("{share:.4}"),
        "0.98 to 1.02 of what was asked for",
        (0.98..=1.02).contains(&share),
    );
    Ok(())
}

/// The slope of the running sum of these values, by least squares.
fn slope(values: &[f64]) -> f64 {
    let mut sum = 0.0;
    let sums = std::iter::once(0.0).chain(values.iter().map(|value| {
        sum += value;
        sum
    }));
    let middle = values.len() as f64 / 2.0;
    let (mut above, mut below) = (0.0, 0.0);
    for (number, sum) in sums.enumerate() {
        let x = number as f64 - middle;
        above += x * sum;
        below += x * x;
    }
    above / below
}

/// The share of TCP's goodput that one flow keeps beside a copy.
fn left_to_another(path: &CopyPath, options: &str, beside: Beside) -> Result<f64> {
    let flow = path.flow(beside.flow_s)?;
    std::thread::sleep(Duration::from_secs(1));
    path.copy(&format!("{options} --no-verify"), Way::Up, "file", "copy")?;
    let finished = flow.finish(PATIENCE)?;
    let report: Value = serde_json::from_str(&finished.stdout)?;
    let intervals = report["intervals"].as_array().context("iperf3 has no intervals")?;
    let rates: Vec<f64> = intervals
        .iter()
        .filter_map(|interval| interval["sum"]["bits_per_second"].as_f64())
        .map(|rate| rate / 8.0 / path.goodput)
        .collect();
    let shared = rates.get(beside.shared.0..beside.shared.1).context("iperf3 ended early")?;
    Ok(shared.iter().sum::<f64>() / shared.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slope_is_that_of_the_sums() {
        assert!((slope(&[5.0; 8]) - 5.0).abs() < 1e-9);
        // If a second lacks bytes, the next one has them, so the slope is nearly unchanged. The values at the ends have no extra weight.
        assert!((slope(&[4.0, 6.0, 5.0, 5.0, 5.0, 5.0, 6.0, 4.0]) - 5.0).abs() < 0.2);
    }
}
