//! Proofload's data listener, its reports, and the audit of the stored data.

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

/// A call of the listener, which can be repeated with the same address and folder.
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
    // Dropped after the process, which writes its report into this folder.
    report: TemporaryFolder,
}

/// The fields of the report that the tests read. A missing field is an error, because the names are part of a contract.
#[derive(Debug, Clone, Deserialize)]
#[allow(missing_docs, reason = "the names are those of the report, which documents them")]
pub struct ListenReport {
    pub schema: String,
    pub connections_per_thread: Vec<u64>,
    pub close_error: Option<String>,
    pub statistics: ListenStatistics,
}

/// The counters in the report.
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
    /// If there is no free port.
    pub fn new(folder: &Path, words: &str) -> Result<Self> {
        Ok(Self { address: free_address()?, folder: folder.to_owned(), words: words.to_owned(), core: None })
    }

    /// Limits the listener to this processor.
    pub fn on_core(mut self, core: u32) -> Self {
        self.core = Some(core);
        self
    }

    /// The address of the listener.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of a path on the listener.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Starts the listener and waits until it answers.
    ///
    /// # Errors
    /// If it does not answer in time.
    pub fn start(&self) -> Result<Listen> {
        self.start_by(|launch| launch.start())
    }

    /// Like [`start`](Self::start), but `start` launches the process.
    ///
    /// # Errors
    /// If it cannot be started or does not answer.
    pub fn start_by(&self, start: impl FnOnce(Launch) -> Result<Process>) -> Result<Listen> {
        let mut listen = self.begin_by(start)?;
        listen.wait_until_ready()?;
        Ok(listen)
    }

    /// Starts the listener without waiting for it.
    ///
    /// # Errors
    /// If it cannot be started.
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
    /// The address of the listener.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of a path on the listener.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Its standard error so far.
    pub fn stderr(&self) -> String {
        self.process.stderr()
    }

    /// Waits until it answers.
    ///
    /// # Errors
    /// If it ends instead, or does not answer in time.
    pub fn wait_until_ready(&mut self) -> Result<()> {
        let address = self.address;
        let is_ready = || exchange(address, &get("/health")).is_ok_and(|answer| answer.status == 200);
        self.process.find("it answers", PATIENCE, |_| is_ready().then_some(()))
    }

    /// Kills it with SIGKILL.
    ///
    /// # Errors
    /// If it does not end, or had already ended.
    pub fn kill(mut self) -> Result<()> {
        if !self.process.is_running() {
            bail!("the listener ended by itself:\n{}", self.process.stderr());
        }
        self.process.signal(Signal::KILL);
        self.process.wait(PATIENCE)?.context("the killed listener does not go")?;
        Ok(())
    }

    /// Stops it with SIGTERM, and returns its report.
    ///
    /// # Errors
    /// If it does not end in time, fails, or leaves no report.
    pub fn stop(mut self) -> Result<ListenReport> {
        self.process.signal(Signal::TERM);
        let Finished { code, signal, stderr, .. } = self.process.finish(PATIENCE)?;
        // Status 1 means that some accepted data could not be stored. The audit judges that.
        if !matches!(code, Some(0 | 1)) || stderr.contains("panicked at") {
            bail!("the listener ended with status {code:?}, signal {signal:?}:\n{stderr}");
        }
        let text = fs::read_to_string(self.report.path().join("report.json"))
            .context("the listener left no report")?;
        serde_json::from_str(&text).with_context(|| format!("its report is not as agreed:\n{text}"))
    }

    /// The sum of its metric with this name over the label sets that contain `label`.
    pub fn counted(&self, name: &str, label: &str) -> Option<u64> {
        counted_at(self.address, name, label)
    }

    /// Its resident memory, in bytes.
    ///
    /// # Errors
    /// If the kernel does not report it.
    pub fn resident_bytes(&self) -> Result<u64> {
        machine::resident_bytes(self.process.pid())
    }

    /// Processor time that it has used, in seconds, with a resolution of 10 ms.
    ///
    /// # Errors
    /// If the kernel does not report it.
    pub fn cpu_s(&self) -> Result<f64> {
        machine::process_cpu_s(self.process.pid())
    }
}

/// The sum of a listener's metric with this name over the label sets that contain `label`.
pub fn counted_at(address: SocketAddr, name: &str, label: &str) -> Option<u64> {
    let text = exchange(address, &get("/metrics")).ok()?.text();
    let is_own =
        |line: &&str| line.starts_with(&format!("proofload_listen_{name}{{")) && line.contains(label);
    text.lines().filter(is_own).map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
}

/// A load of numbered events for a listener, with its own folder of receipts.
#[derive(Debug)]
pub struct EventLoad {
    running: Running,
    receipts: PathBuf,
}

impl EventLoad {
    /// Starts `proofload http` with these arguments, requesting an acknowledgement level.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(url: &str, receipts: &Path, level: AckLevel, words: &str) -> Result<Self> {
        let call = Proofload::http(url, &format!("--ack {level} {words} -q"))?
            .arg("--events")
            .with(|launch| launch.args(["--receipts", &receipts.display().to_string()]))
            .timeout(Duration::from_secs(900));
        Ok(Self { running: call.start()?, receipts: receipts.to_owned() })
    }

    /// The folder of its receipts.
    pub fn receipts(&self) -> &Path {
        &self.receipts
    }

    /// Interrupts the load. The receipts then have everything that it knows.
    ///
    /// # Errors
    /// If it does not end, crashes, or leaves no receipts.
    pub fn interrupt(mut self) -> Result<crate::Output> {
        self.running.process.signal(Signal::INT);
        self.finish()
    }

    /// Waits until the load ends.
    ///
    /// # Errors
    /// If it does not end, crashes, or leaves no receipts.
    pub fn finish(self) -> Result<crate::Output> {
        let output = self.running.finish()?;
        if files_below(&self.receipts).unwrap_or_default().is_empty() {
            bail!("no receipts were left by {}", output.described());
        }
        Ok(output)
    }
}

/// Compares receipts with all files below a folder, except hidden ones such as journals.
///
/// # Errors
/// If the audit cannot be made or is not conclusive.
pub fn audit(receipts: &[&Path], folder: &Path, level: AckLevel) -> Result<AuditResult> {
    let json = TemporaryFolder::new()?;
    let mut call = Proofload::new("audit")?;
    for receipts in receipts {
        call = call.arg("--receipts").arg(&receipts.display().to_string());
    }
    call = call.arg("--level").arg(level.name()).arg("--json").arg(&json.file("audit.json"));
    let mut files = stored_files(folder)?;
    if files.is_empty() {
        // Nothing is stored, but the audit needs at least one file.
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
/// If the folder cannot be read.
pub fn stored_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let is_hidden = |path: &PathBuf| {
        path.strip_prefix(folder)
            .is_ok_and(|rest| rest.iter().any(|part| part.as_encoded_bytes().starts_with(b".")))
    };
    Ok(files_below(folder)?.into_iter().filter(|path| !is_hidden(path)).collect())
}
