//! The properties of all crates, tested with cases that no earlier run has drawn.

use std::time::SystemTime;

use anyhow::Result;

use super::{Bar, By, Outcome, Scale, seconds};
use crate::process::Launch;

pub(super) const BAR: Bar = Bar {
    name: "properties",
    what: "the properties of every crate hold for 10 new draws; `make test` always draws the same",
    full_seconds: 1_800,
    decided_by: By::Times,
    run,
};

/// Longest time for the tests of one seed, in seconds, including compilation.
const DRAW_S: u64 = 1_200;

fn run(scale: Scale) -> Result<Outcome> {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let first = since_epoch.as_secs();
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut outcome = Outcome::default();
    // A sample runs only the property that has found the most faults.
    let tests = scale.pick(&["--lib", "--", "absences"][..], &["--lib", "--bins", "--test", "[!e]*"]);
    for seed in (first..).take(scale.pick(1, 10)) {
        let finished = Launch::new("cargo")
            .args(["test", "-q", "--workspace", "--no-fail-fast", "--target", &host])
            .args(tests.iter().copied())
            .env("PROPTEST_RNG_SEED", &seed.to_string())
            .run(seconds(DRAW_S))?;
        let failed: Vec<&str> = finished.stdout.lines().filter(|line| line.starts_with("---- ")).collect();
        let holds = finished.code == Some(0);
        outcome.figure(&format!("PROPTEST_RNG_SEED={seed}"), failed.len().to_string(), "0 fail", holds);
        failed.iter().for_each(|line| outcome.note(*line));
    }
    Ok(outcome)
}
