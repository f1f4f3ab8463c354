//! Waiting for what other processes write.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};

use crate::{bars::seconds, process::Process};

/// An nginx that writes down what it is sent.
pub(super) struct Listening {
    pub(super) _process: Process,
    pub(super) authority: String,
}

impl Listening {
    pub(super) fn open_url(&self) -> String {
        format!("http://{}/x?page=2", self.authority)
    }
}

/// Whether a file within a folder whose name ends so holds a text.
pub(super) fn holds(folder: &Path, end: &str, text: &str) -> bool {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).any(|path| {
        holds(&path, end, text)
            || path.display().to_string().ends_with(end)
                && fs::read(&path).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(text))
    })
}

pub(super) fn wait(what: &str, is_so: impl Fn() -> bool) -> Result<()> {
    let deadline = Instant::now() + seconds(20);
    while !is_so() {
        ensure!(Instant::now() < deadline, "within 20 s it did not come to this: {what}");
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
