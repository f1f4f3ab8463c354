//! A running `proofload listen`, and clients of it.

use std::fs;

use anyhow::{Context, Result, ensure};
use proofload_tests::{
    process::{Finished, Launch, Process},
    proofload::binary,
    temporary::TemporaryFolder,
};
use rustix::process::Signal;
use serde_json::Value;
use testing::{PATIENCE, http::Answer};

/// A listener that runs in a folder of its own.
pub(super) struct Running {
    // Dropped in this order: the listener ends before its folder goes.
    pub(super) process: Process,
    pub(super) folder: TemporaryFolder,
    pub(super) address: String,
}

/// `proofload listen` in a folder.
pub(super) fn command(folder: &TemporaryFolder, words: &str) -> Result<Launch> {
    let binary = binary()?.canonicalize()?.display().to_string();
    let folder = folder.path().display().to_string();
    Ok(Launch::new("env").args(["-C", &folder, &binary, "listen"]).words(words))
}

impl Running {
    /// Starts it on any free port of 127.0.0.1, unless the words say where, and waits until it listens.
    pub(super) fn start(words: &str) -> Result<Self> {
        Self::start_in(TemporaryFolder::new()?, words)
    }

    /// The same in a folder that is there.
    pub(super) fn start_in(folder: TemporaryFolder, words: &str) -> Result<Self> {
        Self::start_as(folder, words, |launch| launch)
    }

    /// The same, started otherwise.
    pub(super) fn start_as(
        folder: TemporaryFolder,
        words: &str,
        change: impl FnOnce(Launch) -> Launch,
    ) -> Result<Self> {
        let mut launch = change(command(&folder, words)?.args(["--report", "report.json"]));
        if !launch.has("--listen") && !launch.has("--config") {
            launch = launch.args(["--listen", "127.0.0.1:0"]);
        }
        let process = launch.start()?;
        let mut running = Self { process, folder, address: String::new() };
        running.address = running.wait_for("listening on ")?;
        Ok(running)
    }

    /// Waits until it tells something; the word behind it.
    pub(super) fn wait_for(&mut self, what: &str) -> Result<String> {
        let word = |process: &Process| {
            let stderr = process.stderr();
            // Only whole lines: the word may still grow.
            let (_, behind) = stderr[..stderr.rfind('\n')?].split_once(what)?;
            let end = behind.find([' ', ';', ',', '"', '\n']).unwrap_or(behind.len());
            Some(behind[..end].to_owned())
        };
        self.process.find(&format!("it says '{what}'"), PATIENCE, word)
    }

    /// A URL on it.
    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Posts JSON by curl.
    pub(super) fn post(&self, path: &str, body: &str, words: &str) -> Result<Answer> {
        curl(&self.url(path), &["-H", "Content-Type: application/json", "--data-binary", body], words)
    }

    /// The only file below the folder whose name ends so, and its content.
    pub(super) fn stored(&self, end: &str) -> Result<(String, String)> {
        let mut found = Vec::new();
        files(self.folder.path(), &mut found)?;
        found.retain(|name| name.ends_with(end));
        ensure!(found.len() == 1, "files that end in {end}: {found:?}");
        let text = fs::read_to_string(&found[0])?;
        Ok((found.remove(0), text))
    }

    /// Asks it to stop and waits for its end; its report with it.
    pub(super) fn stop(mut self) -> Result<(Finished, Value)> {
        self.process.signal(Signal::TERM);
        let finished = self.process.finish(PATIENCE)?;
        let report = fs::read_to_string(self.folder.path().join("report.json")).context("no report")?;
        let report = serde_json::from_str(&report).with_context(|| format!("the report: {report}"))?;
        Ok((finished, report))
    }
}

/// Asks with curl.
pub(super) fn curl(url: &str, arguments: &[&str], words: &str) -> Result<Answer> {
    let launch = Launch::new("curl").words("-sS -i --max-time 300").args(arguments.iter().copied());
    let finished = launch.words(words).arg(url).run(PATIENCE)?;
    ensure!(finished.code == Some(0), "curl {url}: {finished:?}");
    let (head, body) =
        finished.stdout.split_once("\r\n\r\n").context("an answer without an end of its head")?;
    Ok(Answer::new(format!("{head}\r\n\r\n"), body.into()))
}

fn files(folder: &std::path::Path, found: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files(&path, found)?;
        } else {
            found.push(path.display().to_string());
        }
    }
    Ok(())
}
