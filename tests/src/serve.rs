//! Proofload's own target, and its report of what it really did.

use std::{collections::BTreeMap, fs};

use anyhow::{Context, Result, bail};
use record::Histogram;
use rustix::process::Signal;
use serde::Deserialize;
use testing::PATIENCE;

use crate::{
    process::{Launch, Process},
    proofload::binary,
    temporary::TemporaryFolder,
};

/// A running `proofload serve`.
#[derive(Debug)]
pub struct Serve {
    // Dropped in this order: the server ends before its folder is removed.
    process: Process,
    folder: TemporaryFolder,
    addresses: Vec<String>,
}

/// The fields of the report that the tests read. A missing field is an error, because the names are part of a contract.
#[derive(Debug, Clone, Deserialize)]
#[allow(missing_docs, reason = "the names are those of the report, which documents them")]
pub struct ServeReport {
    pub schema: String,
    pub connections_accepted: u64,
    pub connections_refused: u64,
    pub connections_peak: u64,
    pub requests: u64,
    pub answers: u64,
    pub misbehaved: BTreeMap<String, u64>,
    pub rejected: u64,
    pub request_bytes: u64,
    pub bad_requests: u64,
    pub delay_drawn: Histogram,
    pub delay_applied: Histogram,
    pub stalls: u64,
}

impl ServeReport {
    /// How often it misbehaved in this way, which has the name of its command-line option.
    pub fn misbehaved(&self, kind: &str) -> u64 {
        let same = |name: &str| name.replace('_', "-") == kind;
        self.misbehaved.iter().filter(|(name, _)| same(name)).map(|(_, &count)| count).sum()
    }
}

impl Serve {
    /// Starts the server and waits until it listens. The arguments are separated by white space; unless they give an address, it listens on
    /// any free port of 127.0.0.1.
    ///
    /// # Errors
    /// If it does not listen within 20 s.
    pub fn start(words: &str) -> Result<Self> {
        Self::launch(words, None, &[])
    }

    /// The same, limited to one processor.
    ///
    /// # Errors
    /// If it does not listen within 20 s.
    pub fn start_on(words: &str, core: u32) -> Result<Self> {
        Self::launch(words, Some(core), &[])
    }

    /// The same, started through another command with these words, which must replace itself by the server (exec).
    ///
    /// # Errors
    /// If it does not listen within 20 s.
    pub fn start_under(words: &str, under: &[String]) -> Result<Self> {
        Self::launch(words, None, under)
    }

    /// The addresses that the server listens on.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// The URL of the first address.
    pub fn url(&self) -> String {
        format!("http://{}/", self.addresses[0])
    }

    /// Sends a signal to the server.
    pub fn signal(&mut self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Interrupts the server, and reads its report.
    ///
    /// # Errors
    /// If it does not end within 30 s, fails, or leaves no report.
    pub fn stop(mut self) -> Result<ServeReport> {
        self.process.signal(Signal::INT);
        let finished = self.process.finish(PATIENCE)?;
        if finished.code != Some(0) || finished.stderr.contains("panicked at") {
            bail!(
                "serve ended with status {:?}, signal {:?}; standard error:\n{}",
                finished.code,
                finished.signal,
                finished.stderr
            );
        }
        let text =
            fs::read_to_string(self.folder.path().join("serve.json")).context("serve left no report")?;
        serde_json::from_str(&text).context("serve's report is not as agreed")
    }

    fn launch(words: &str, core: Option<u32>, under: &[String]) -> Result<Self> {
        let folder = TemporaryFolder::new()?;
        let mut launch = Launch::new(binary()?.display().to_string()).arg("serve").words(words);
        if !launch.has("--listen") {
            launch = launch.args(["--listen", "127.0.0.1:0"]);
        }
        launch = launch.args(["--json", &folder.file("serve.json")]);
        launch = launch.under(under.iter().map(String::as_str));
        if let Some(core) = core {
            launch = launch.on_core(core);
        }
        let mut process = launch.start()?;
        let addresses = process.find("it listens", PATIENCE, |process| listening_on(&process.stdout()))?;
        Ok(Self { process, folder, addresses })
    }
}

fn listening_on(stdout: &str) -> Option<Vec<String>> {
    let (line, _rest) = stdout.split_once('\n')?;
    let addresses = line.strip_prefix("listening on ")?;
    Some(addresses.split(',').map(|address| address.trim().to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_only_from_a_whole_line() {
        assert_eq!(listening_on("listening on 127.0.0.1:80"), None);
        let both = vec!["127.0.0.1:8080".to_owned(), "127.0.0.2:8081".to_owned()];
        assert_eq!(listening_on("listening on 127.0.0.1:8080, 127.0.0.2:8081\n"), Some(both));
        assert_eq!(listening_on("warning\n"), None);
    }
}
