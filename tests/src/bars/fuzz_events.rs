//! The readers of bodies under a fuzzer that knows which branches it has seen.

use anyhow::Result;

use super::{Bar, Outcome, Scale, fuzz_http1};

/// The bar.
pub(super) const BAR: Bar = Bar {
    name: "fuzz-events",
    what: "the readers of bodies, all kinds and encodings, under libFuzzer for 600 s (sample: 10 s), no finding",
    full_seconds: 660,
    run,
};

fn run(scale: Scale) -> Result<Outcome> {
    fuzz_http1::fuzz("events", scale.pick(10, 600))
}
