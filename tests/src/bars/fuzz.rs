//! Parsers of foreign bytes, tested by a fuzzer that measures which branches it has covered.

use anyhow::{Result, bail};

use super::{Bar, By, Outcome, Scale, seconds};
use crate::{process::Launch, repository};

/// The bar of the HTTP/1.1 parser.
pub(super) const HTTP1: Bar = Bar {
    name: "fuzz-http1",
    what: "the HTTP/1.1 parsers under libFuzzer for 600 s, no finding",
    full_seconds: 660,
    decided_by: By::Counts,
    run: |scale| fuzz("http1", scale),
};

/// The bar of the parser that takes values from answers.
pub(super) const ANSWERS: Bar = Bar {
    name: "fuzz-answers",
    what: "values taken from answers (JSON path, header, cookie, expression, redirects, gzip) under libFuzzer \
           for 600 s, no finding",
    full_seconds: 660,
    decided_by: By::Counts,
    run: |scale| fuzz("answers", scale),
};

/// The bar of the parser of bodies.
pub(super) const EVENTS: Bar = Bar {
    name: "fuzz-events",
    what: "the readers of bodies, all kinds and encodings, under libFuzzer for 600 s, no finding",
    full_seconds: 660,
    decided_by: By::Counts,
    run: |scale| fuzz("events", scale),
};

/// The bar of the SFTP parser.
pub(super) const SFTP: Bar = Bar {
    name: "fuzz-sftp",
    what: "the decoder of SFTP under libFuzzer for 600 s, no finding",
    full_seconds: 660,
    decided_by: By::Counts,
    run: |scale| fuzz("sftp", scale),
};

/// Maximum time to build the fuzzer, in seconds.
const BUILD_S: u64 = 900;

/// Runs one of the fuzzers, and counts what it finds.
fn fuzz(target: &str, scale: Scale) -> Result<Outcome> {
    let fuzz_s = scale.pick(5, 600);
    let script = repository().join("fuzz/run.sh");
    if !script.is_file() {
        bail!("{} is missing: run this from a whole checkout", script.display());
    }
    let finished = Launch::new("bash")
        .arg(script.display().to_string())
        .args([target, &fuzz_s.to_string()])
        // These flags are for the build of this program, not of the fuzzer.
        .without_env("RUSTFLAGS")
        .without_env("CARGO_ENCODED_RUSTFLAGS")
        .without_env("CARGO_TARGET_DIR")
        .run(seconds(fuzz_s + BUILD_S))?;
    let log = finished.stdout + &finished.stderr;
    let mut outcome = Outcome::default();
    let status = finished.code.map_or_else(|| "signal".to_owned(), |code| code.to_string());
    outcome.figure("exit_status", status, "0: no finding", finished.code == Some(0));
    let tail: Vec<&str> = log.lines().rev().take(if finished.code == Some(0) { 2 } else { 40 }).collect();
    tail.iter().rev().for_each(|line| outcome.note(*line));
    Ok(outcome)
}
