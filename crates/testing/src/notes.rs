//! Notes of passing tests that could not check everything, because of the machine or a missing program.

use std::{env, fs::OpenOptions, io::Write};

/// The environment variable with the path of the file for the notes.
const FILE: &str = "PROOFLOAD_TEST_NOTES";

/// Notes that a test used the counts of a void trial: which trial, and why it is void.
pub fn accepted_void(what: &str) {
    note(&format!("void accepted: {what}"));
}

/// Notes that a test skipped a part, and why.
pub fn skipped(what: &str, why: &str) {
    note(&format!("skipped: {what}: {why}"));
}

/// Appends a line in a single write, because tests of several processes write to the file.
fn note(text: &str) {
    let Some(path) = env::var_os(FILE) else { return };
    let line = text.replace('\n', " ") + "\n";
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the file of notes can be written");
}
