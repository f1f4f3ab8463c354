//! Every seed of a fuzz target, and what is drawn from them: cut, doubled, joined, with other bytes.

use std::{fs, path::Path};

use proptest::{
    collection::vec,
    prelude::*,
    sample::{Index, select},
    test_runner::{Config, TestRunner},
};

/// From where to where bytes are changed, a byte, and how.
type Edit = (Index, Index, u8, u8);

/// Inputs drawn for each target.
const DRAWN: u32 = 20_000;

fn holds(target: &str) {
    let (_, check) = fuzz::TARGETS.into_iter().find(|(name, _)| *name == target).unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
    let entries = fs::read_dir(folder).unwrap();
    let seeds: Vec<Vec<u8>> = entries.map(|entry| fs::read(entry.unwrap().path()).unwrap()).collect();
    // A seed that says nothing is no seed.
    assert!(!seeds.is_empty() && seeds.iter().all(|seed| check(seed)));
    let edit = (any::<Index>(), any::<Index>(), any::<u8>(), 0..4_u8);
    let drawn = (select(seeds.clone()), select(seeds), vec(edit, 1..8));
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(DRAWN) });
    let changed = |(mut bytes, other, edits): (Vec<u8>, Vec<u8>, Vec<Edit>)| {
        for (from, to, byte, kind) in edits {
            let (a, b) = (from.index(bytes.len() + 1), to.index(bytes.len() + 1));
            let (from, to) = (a.min(b), a.max(b));
            match kind {
                0 => bytes[from..to.min(from + 1)].fill(byte),
                1 => drop(bytes.drain(from..to.min(from + usize::from(byte)))),
                2 => bytes.insert(from, byte),
                _ => drop(bytes.splice(to..to, other.iter().copied().skip(from).take(64))),
            }
        }
        check(&bytes);
        Ok(())
    };
    runner.run(&drawn, changed).unwrap();
}

#[test]
fn answers() {
    holds("answers");
}

#[test]
fn bodies_of_events() {
    holds("events");
}

#[test]
fn http1() {
    holds("http1");
}

#[test]
fn sftp() {
    holds("sftp");
}

#[test]
fn study_files() {
    holds("study_file");
}
