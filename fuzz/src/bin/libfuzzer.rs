//! The target that FUZZ_TARGET names, under libFuzzer.

#![no_main]

use std::sync::LazyLock;

use fuzz::{TARGETS, Target};
use libfuzzer_sys::{Corpus, fuzz_target};

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let wanted = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let found = TARGETS.into_iter().find(|(name, _)| *name == wanted);
    found.unwrap_or_else(|| panic!("no target is called '{wanted}'")).1
});

fuzz_target!(|data: &[u8]| -> Corpus { if TARGET(data) { Corpus::Keep } else { Corpus::Reject } });
