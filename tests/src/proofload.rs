//! Calls of the binary under test, and their results.

use std::{
    fs,
    ops::Deref,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use record::{ErrorClass, HttpTrial, Validity, Verdict, VoidReason, VoidRule, Warning};
use testing::PATIENCE;

use crate::{
    process::{Finished, Launch, Process},
    temporary::TemporaryFolder,
};

/// The path of the binary: `PROOFLOAD_BIN`, or else the one built beside this test, preferring a release build.
///
/// # Errors
/// If there is no binary. The error says how to build it.
pub fn binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("PROOFLOAD_BIN") {
        let path = PathBuf::from(path);
        if path.is_file() {
            return Ok(path);
        }
        bail!("PROOFLOAD_BIN names {}, which is no file; `make build` builds the binary", path.display());
    }
    let own = std::env::current_exe().context("cannot tell where this test lies")?;
    own.ancestors()
        .skip(1)
        .take(3)
        .flat_map(|folder| [folder.join("proofload"), folder.join("../release/proofload")])
        .find(|path| path.is_file())
        .with_context(|| format!("no proofload binary near {}: run `make build`", own.display()))
}

/// Adds timeouts to a load's arguments, unless they have some, so that it waits for every answer even on a slow machine. The load still
/// ends as soon as no request is in progress.
pub fn patient(words: &str) -> String {
    let missing = ["--drain", "--timeout"]
        .into_iter()
        .filter(|&option| words.split_whitespace().all(|word| word != option));
    missing.map(|option| format!("{option} {}s ", PATIENCE.as_secs())).collect::<String>() + words
}

/// A call of the binary.
#[derive(Debug)]
pub struct Proofload {
    launch: Launch,
    timeout: Duration,
}

impl Proofload {
    /// `proofload` with these arguments, separated by white space.
    ///
    /// # Errors
    /// If there is no binary.
    pub fn new(words: &str) -> Result<Self> {
        let launch = Launch::new(binary()?.display().to_string()).words(words);
        Ok(Self { launch, timeout: PATIENCE })
    }

    /// `proofload http URL` with these arguments, separated by white space, after [`patient`].
    ///
    /// # Errors
    /// If there is no binary.
    pub fn http(url: &str, words: &str) -> Result<Self> {
        Ok(Self::new("http")?.with(|launch| launch.arg(url).words(&patient(words))))
    }

    /// Changes the launch of the binary.
    pub fn with(mut self, change: impl FnOnce(Launch) -> Launch) -> Self {
        self.launch = change(self.launch);
        self
    }

    /// Adds an argument, which may contain blanks.
    pub fn arg(self, argument: &str) -> Self {
        self.with(|launch| launch.arg(argument))
    }

    /// Sets the time limit, which is [`PATIENCE`] by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Starts the call and leaves it running. A load's trial goes to a separate file.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(self) -> Result<Running> {
        let folder = TemporaryFolder::new()?;
        let mut launch = self.launch;
        let is_load = ["http", "wrk", "wrk2", "ab"].iter().any(|load| launch.has(load));
        if is_load && !launch.has("--json") {
            launch = launch.args(["--json", &folder.file("trial.json")]);
        }
        Ok(Running { process: launch.start()?, line: launch.shown(), folder, timeout: self.timeout })
    }

    /// Runs the call until it ends.
    ///
    /// # Errors
    /// If it cannot be started, hangs, panics, or leaves JSON that is not a trial.
    pub fn run(self) -> Result<Output> {
        self.start()?.finish()
    }
}

/// A running call.
#[derive(Debug)]
pub struct Running {
    /// The process.
    pub process: Process,
    line: String,
    folder: TemporaryFolder,
    timeout: Duration,
}

impl Running {
    /// Waits until the call ends.
    ///
    /// # Errors
    /// If it hangs, panics, or leaves JSON that is not a trial.
    pub fn finish(self) -> Result<Output> {
        let Finished { code, signal, stdout, stderr, wall } = self.process.finish(self.timeout)?;
        let line = self.line;
        if stderr.contains("panicked at") || signal.is_some() {
            bail!("`{line}` broke down (signal {signal:?}); standard error:\n{stderr}");
        }
        let trial =
            read_trial(&self.folder.path().join("trial.json")).with_context(|| format!("`{line}`"))?;
        Ok(Output { line, code, trial, stdout, stderr, wall })
    }
}

/// The results of a call.
#[derive(Debug)]
pub struct Output {
    /// The command line of the call.
    pub line: String,
    /// The exit status; none if a signal ended the call.
    pub code: Option<i32>,
    /// The trial, if the harness requested a file for it and the call wrote one.
    pub trial: Option<Trial>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// Time from the start to the end of the call.
    pub wall: Duration,
}

impl Output {
    /// The trial.
    ///
    /// # Errors
    /// If there is none. The error has all output of the call.
    pub fn trial(&self) -> Result<&Trial> {
        self.trial.as_ref().with_context(|| format!("no trial was written by {}", self.described()))
    }

    /// The trial of a call with this exit status.
    ///
    /// # Errors
    /// If the status differs, or there is no trial.
    pub fn trial_with_code(&self, code: i32) -> Result<&Trial> {
        if self.code != Some(code) {
            bail!("expected exit status {code} from {}", self.described());
        }
        self.trial()
    }

    /// The trial of a call with this exit status, or a trial that is void only for lack of processor time. For checks of counts, which a
    /// slow machine does not change.
    ///
    /// # Errors
    /// If the call ended differently, or there is no trial.
    pub fn counted(&self, code: i32) -> Result<&Trial> {
        let is_void = self.trial.as_ref().is_some_and(|trial| accepts_void(&self.line, &trial.validity));
        self.trial_with_code(if is_void { 3 } else { code })
    }

    /// The trial of a call whose requests all stayed unanswered. The call must report only that.
    ///
    /// # Errors
    /// If something was answered or explained, or there is no trial.
    pub fn unanswered(&self) -> Result<&Trial> {
        let trial = self.trial_with_code(2)?;
        // On a slow machine, the call also shows its progress: `5 s  0.00/s …`.
        let is_progress =
            |line: &str| line.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with(" s  ");
        let said = self.stderr.lines().filter(|line| !line.starts_with("proofload: using "));
        let is_told = self.stdout.is_empty() && said.filter(|line| !is_progress(line)).count() == 1;
        let is_void = trial.validity.reasons().iter().any(|reason| reason.rule == VoidRule::NoAnswer);
        if !(is_told && is_void && trial.counts.completed == 0) {
            bail!("something answered, or is explained: {}", self.described());
        }
        Ok(trial)
    }

    /// Command line, status, verdict, counts and both outputs, for the message of a failed test.
    pub fn described(&self) -> String {
        let trial = self.trial.as_ref().map_or_else(String::new, |trial| {
            format!(
                "\n{:?}\n{:?}\nrequests: {:?}\nconnections: {:?}",
                trial.validity, trial.counts, trial.errors, trial.connection_errors
            )
        });
        let Self { line, code, stdout, stderr, .. } = self;
        format!(
            "`{line}` (exit status {code:?}){trial}\nstandard output:\n{stdout}\nstandard error:\n{stderr}"
        )
    }
}

/// A trial of HTTP requests. The measurements of the requests can be used like its own fields.
#[derive(Debug, Clone)]
pub struct Trial {
    /// Time from the start to the last answer that was awaited, in seconds.
    pub elapsed_s: f64,
    /// Whether it was interrupted. All figures are then those of the completed part.
    pub interrupted: bool,
    /// Whether its figures can be trusted.
    pub validity: Validity,
    /// Warnings for the user.
    pub warnings: Vec<Warning>,
    /// The cause that bounded it; none if nothing can be concluded.
    pub verdict: Option<Verdict>,
    http: HttpTrial,
}

impl Deref for Trial {
    type Target = HttpTrial;

    fn deref(&self) -> &HttpTrial {
        &self.http
    }
}

/// Whether every planned request is in exactly one of the four counts.
pub fn adds_up(trial: &Trial) -> bool {
    let counts = &trial.counts;
    counts.scheduled == counts.completed + counts.failed + counts.in_flight + counts.never_sent
        && counts.failed == trial.errors.total()
}

/// Whether a trial is void only because the generator got too little processor time.
pub fn is_crowded(validity: &Validity) -> bool {
    use VoidRule::{CpuExhausted, Late, ProcessorShared, RateNotReached};
    let of_time =
        |reason: &VoidReason| matches!(reason.rule, Late | CpuExhausted | ProcessorShared | RateNotReached);
    validity.is_void() && validity.reasons().iter().all(of_time)
}

/// Like [`is_crowded`]; also records that a test accepts this void trial, because its counts are still right.
pub fn accepts_void(trial: &str, validity: &Validity) -> bool {
    if is_crowded(validity) {
        let reasons: Vec<_> = validity.reasons().iter().map(|reason| reason.rule.words()).collect();
        testing::accepted_void(&format!("{trial}: {}", reasons.join(", ")));
    }
    is_crowded(validity)
}

/// Number of failures of these classes, of requests and of connections.
pub fn failures(trial: &Trial, classes: &[ErrorClass]) -> u64 {
    classes.iter().map(|&class| trial.errors.of(class) + trial.connection_errors.of(class)).sum()
}

/// Reads a trial from a file that the binary wrote; none if the file does not exist.
///
/// # Errors
/// If it is not a trial in the form that `record` defines.
pub fn read_trial(path: &Path) -> Result<Option<Trial>> {
    let Ok(text) = fs::read_to_string(path) else { return Ok(None) };
    parse_trial(&text).map(Some)
}

/// Parses a trial's JSON.
///
/// # Errors
/// If it is not a trial in the form that `record` defines.
pub fn parse_trial(text: &str) -> Result<Trial> {
    let trial: record::Trial = serde_json::from_str(text).context("the JSON is not a trial")?;
    let http = trial.http().context("it is no trial of HTTP requests")?.clone();
    let record::Trial { elapsed_s, interrupted, validity, warnings, verdict, .. } = trial;
    Ok(Trial { elapsed_s, interrupted, validity, warnings, verdict, http })
}
