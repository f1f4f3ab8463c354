//! What a run of tests tells of those that passed although the machine, or what is installed, kept them from a part.

use std::{env, fs::OpenOptions, io::Write};

/// The variable of the environment that names the file for it.
const FILE: &str = "PROOFLOAD_TEST_NOTES";

/// Notes that a test took what a void trial counted: which trial, and why it is void.
pub fn accepted_void(what: &str) {
    note(&format!("void accepted: {what}"));
}

/// Notes that a part of a test was left out, and why.
pub fn skipped(what: &str, why: &str) {
    note(&format!("skipped: {what}: {why}"));
}

/// Adds a line in one write: tests of several processes write to the file.
fn note(text: &str) {
    let Some(path) = env::var_os(FILE) else { return };
    let line = text.replace('\n', " ") + "\n";
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the file of notes can be written");
}
