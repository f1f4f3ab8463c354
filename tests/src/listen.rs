//! proofload's data listener, what it says it did, and the audit of what it stored.

use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use record::{AckLevel, AuditResult};
use rustix::process::Signal;
use serde::Deserialize;
use testing::PATIENCE;
use testing::http::{exchange, get};

use crate::{
    faulty_disk::files_below,
    machine,
    nginx::free_address,
    process::{Finished, Launch, Process},
    proofload::{Proofload, Running, binary},
    temporary::TemporaryFolder,
};

/// One call of the listener, which can be repeated on the same address and folder.
#[derive(Debug, Clone)]
pub struct ListenCall {
    address: SocketAddr,
    folder: PathBuf,
    words: String,
    core: Option<u32>,
}

/// A running listener.
#[derive(Debug)]
pub struct Listen {
    process: Process,
    address: SocketAddr,
    // Dropped after the process, which writes its report into it.
    report: TemporaryFolder,
}

/// What the harness reads of the report. A name that is missing is an error: the names are a
/// contract.
#[derive(Debug, Clone, Deserialize)]
#[allow(missing_docs, reason = "the names are those of the report, which documents them")]
pub struct ListenReport {
    pub schema: String,
    pub connections_per_thread: Vec<u64>,
    pub close_error: Option<String>,
    pub statistics: ListenStatistics,
}

/// Its counters.
#[derive(Debug, Clone, Deserialize)]
#[allow(missing_docs, reason = "the names are those of the report, which documents them")]
pub struct ListenStatistics {
    pub requests: BTreeMap<String, u64>,
    pub events: BTreeMap<String, u64>,
    pub refused: BTreeMap<String, u64>,
    pub accepted_events_lost: u64,
    pub connections_accepted: u64,
    pub connections_peak: u64,
    pub connections_timed_out: u64,
}

impl ListenCall {
    /// A listener on a free port of 127.0.0.1 that stores below a folder, with further arguments.
    ///
    /// # Errors
    /// When there is no free port.
    pub fn new(folder: &Path, words: &str) -> Result<Self> {
        Ok(Self { address: free_address()?, folder: folder.to_owned(), words: words.to_owned(), core: None })
    }

    /// Runs on this processor only.
    pub fn on_core(mut self, core: u32) -> Self {
        self.core = Some(core);
        self
    }

    /// Where it will listen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A URL on it.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Starts it and waits until it answers.
    ///
    /// # Errors
    /// When it does not.
    pub fn start(&self) -> Result<Listen> {
        self.start_by(|launch| launch.start())
    }

    /// The same, started by somebody else.
    ///
    /// # Errors
    /// When it cannot be started or does not answer.
    pub fn start_by(&self, start: impl FnOnce(Launch) -> Result<Process>) -> Result<Listen> {
        let mut listen = self.begin_by(start)?;
        listen.wait_until_ready()?;
        Ok(listen)
    }

    /// Starts it and does not wait.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn begin(&self) -> Result<Listen> {
        self.begin_by(|launch| launch.start())
    }

    fn begin_by(&self, start: impl FnOnce(Launch) -> Result<Process>) -> Result<Listen> {
        let report = TemporaryFolder::new()?;
        let mut launch = Launch::new(binary()?.display().to_string()).arg("listen").words(&self.words);
        launch = launch.args(["--listen", &self.address.to_string()]);
        if !launch.has("--path") {
            launch = launch.args(["--path", &format!("{}/${{tag}}.log", self.folder.display())]);
        }
        launch = launch.args(["--report", &report.file("report.json")]);
        if let Some(core) = self.core {
            launch = launch.on_core(core);
        }
        Ok(Listen { process: start(launch)?, address: self.address, report })
    }
}

impl Listen {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A URL on it.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Its process number.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// What it said on standard error so far.
    pub fn stderr(&self) -> String {
        self.process.stderr()
    }

    /// Waits until it answers.
    ///
    /// # Errors
    /// When it ends instead, or does not answer in time.
    pub fn wait_until_ready(&mut self) -> Result<()> {
        let address = self.address;
        let is_ready = || exchange(address, &get("/health")).is_ok_and(|answer| answer.status == 200);
        self.process.find("it answers", PATIENCE, |_| is_ready().then_some(()))
    }

    /// Kills it at once.
    ///
    /// # Errors
    /// When it does not go, or had ended before.
    pub fn kill(mut self) -> Result<()> {
        if !self.process.is_running() {
            bail!("the listener ended by itself:\n{}", self.process.stderr());
        }
        self.process.signal(Signal::KILL);
        self.process.wait(PATIENCE)?.context("the killed listener does not go")?;
        Ok(())
    }

    /// Asks it to stop and reads what it says it did.
    ///
    /// # Errors
    /// When it does not end in time, fails, or leaves no report.
    pub fn stop(mut self) -> Result<ListenReport> {
        self.process.signal(Signal::TERM);
        let Finished { code, signal, stderr, .. } = self.process.finish(PATIENCE)?;
        // 1: not all that was accepted could be stored. That is the audit's question.
        if !matches!(code, Some(0 | 1)) || stderr.contains("panicked at") {
            bail!("the listener ended with status {code:?}, signal {signal:?}:\n{stderr}");
        }
        let text = fs::read_to_string(self.report.path().join("report.json"))
            .context("the listener left no report")?;
        serde_json::from_str(&text).with_context(|| format!("its report is not as agreed:\n{text}"))
    }

    /// What it has counted by this name of its metrics, with labels in which this stands.
    pub fn counted(&self, name: &str, label: &str) -> Option<u64> {
        counted_at(self.address, name, label)
    }

    /// Memory that it has in use, in bytes.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn resident_bytes(&self) -> Result<u64> {
        machine::resident_bytes(self.process.pid())
    }

    /// Processor time that it has used, in seconds, to a hundredth.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn cpu_s(&self) -> Result<f64> {
        machine::process_cpu_s(self.process.pid())
    }
}

/// What the listener at an address has counted by this name of its metrics, with labels in which this stands.
pub fn counted_at(address: SocketAddr, name: &str, label: &str) -> Option<u64> {
    let text = exchange(address, &get("/metrics")).ok()?.text();
    let is_own =
        |line: &&str| line.starts_with(&format!("proofload_listen_{name}{{")) && line.contains(label);
    text.lines().filter(is_own).map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
}

/// Numbered events on their way to a listener, with receipts in a folder of their own.
#[derive(Debug)]
pub struct EventLoad {
    running: Running,
    receipts: PathBuf,
}

impl EventLoad {
    /// Starts `proofload http` with these arguments, asking for a level.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(url: &str, receipts: &Path, level: AckLevel, words: &str) -> Result<Self> {
        let call = Proofload::http(url, &format!("--ack {level} {words} -q"))?
            .arg("--events")
            .with(|launch| launch.args(["--receipts", &receipts.display().to_string()]))
            .timeout(Duration::from_secs(900));
        Ok(Self { running: call.start()?, receipts: receipts.to_owned() })
    }

    /// Where its receipts will be.
    pub fn receipts(&self) -> &Path {
        &self.receipts
    }

    /// Ends it; what it knows by then is in its receipts.
    ///
    /// # Errors
    /// When it does not end, breaks down or leaves no receipts.
    pub fn interrupt(mut self) -> Result<crate::Output> {
        self.running.process.signal(Signal::INT);
        self.finish()
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it does not end, breaks down or leaves no receipts.
    pub fn finish(self) -> Result<crate::Output> {
        let output = self.running.finish()?;
        if files_below(&self.receipts).unwrap_or_default().is_empty() {
            bail!("no receipts were left by {}", output.described());
        }
        Ok(output)
    }
}

/// Holds receipts against all files below a folder, journals and the like (hidden ones) aside.
///
/// # Errors
/// When the audit cannot be made or concludes nothing.
pub fn audit(receipts: &[&Path], folder: &Path, level: AckLevel) -> Result<AuditResult> {
    let json = TemporaryFolder::new()?;
    let mut call = Proofload::new("audit")?;
    for receipts in receipts {
        call = call.arg("--receipts").arg(&receipts.display().to_string());
    }
    call = call.arg("--level").arg(level.name()).arg("--json").arg(&json.file("audit.json"));
    let mut files = stored_files(folder)?;
    if files.is_empty() {
        // Nothing is stored. The audit wants to hear that from a file.
        files.push(json.path().join("empty.log"));
        fs::write(&files[0], "")?;
    }
    for file in files {
        call = call.arg(&file.display().to_string());
    }
    let output = call.run()?;
    let text = fs::read_to_string(json.path().join("audit.json"))
        .with_context(|| format!("no audit was written by {}", output.described()))?;
    let result: AuditResult = serde_json::from_str(&text).context("the audit is not as agreed")?;
    if !result.is_conclusive() {
        bail!("the audit concludes nothing: {:?}; {}", result.incomplete, output.described());
    }
    Ok(result)
}

/// The listener's files below a folder, without hidden files and folders.
///
/// # Errors
/// When the folder cannot be read.
pub fn stored_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let is_hidden = |path: &PathBuf| {
        path.strip_prefix(folder)
            .is_ok_and(|rest| rest.iter().any(|part| part.as_encoded_bytes().starts_with(b".")))
    };
    Ok(files_below(folder)?.into_iter().filter(|path| !is_hidden(path)).collect())
}
