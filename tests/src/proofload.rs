//! The binary under test.

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

/// The binary: `PROOFLOAD_BIN`, or the one built beside this test, a release before a debug build.
///
/// # Errors
/// When there is none; says how to build it.
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

/// Arguments of a load that waits for every answer, however slow the machine is, unless they say how long: it ends as soon as
/// nothing is under way.
pub fn patient(words: &str) -> String {
    let missing = ["--drain", "--timeout"]
        .into_iter()
        .filter(|&option| words.split_whitespace().all(|word| word != option));
    missing.map(|option| format!("{option} {}s ", PATIENCE.as_secs())).collect::<String>() + words
}

/// One call of the binary.
#[derive(Debug)]
pub struct Proofload {
    launch: Launch,
    timeout: Duration,
}

impl Proofload {
    /// `proofload` with these arguments, parted by blanks.
    ///
    /// # Errors
    /// When there is no binary.
    pub fn new(words: &str) -> Result<Self> {
        let launch = Launch::new(binary()?.display().to_string()).words(words);
        Ok(Self { launch, timeout: PATIENCE })
    }

    /// `proofload http URL` with these arguments, parted by blanks, made [`patient`].
    ///
    /// # Errors
    /// When there is no binary.
    pub fn http(url: &str, words: &str) -> Result<Self> {
        Ok(Self::new("http")?.with(|launch| launch.arg(url).words(&patient(words))))
    }

    /// Changes how it is started.
    pub fn with(mut self, change: impl FnOnce(Launch) -> Launch) -> Self {
        self.launch = change(self.launch);
        self
    }

    /// One more argument, which may hold blanks.
    pub fn arg(self, argument: &str) -> Self {
        self.with(|launch| launch.arg(argument))
    }

    /// Ends it after this time, [`PATIENCE`] unless said.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Starts it and leaves it running; its trial, if it is to leave one, goes to a file of its own.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(self) -> Result<Running> {
        let folder = TemporaryFolder::new()?;
        let mut launch = self.launch;
        let is_load = ["http", "wrk", "wrk2", "ab"].iter().any(|load| launch.has(load));
        if is_load && !launch.has("--json") {
            launch = launch.args(["--json", &folder.file("trial.json")]);
        }
        Ok(Running { process: launch.start()?, line: launch.shown(), folder, timeout: self.timeout })
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// When it cannot be started, hangs, panics, or leaves JSON that is no trial.
    pub fn run(self) -> Result<Output> {
        self.start()?.finish()
    }
}

/// A call that runs.
#[derive(Debug)]
pub struct Running {
    /// The process.
    pub process: Process,
    line: String,
    folder: TemporaryFolder,
    timeout: Duration,
}

impl Running {
    /// Waits for its end.
    ///
    /// # Errors
    /// When it hangs, panics, or leaves JSON that is no trial.
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

/// What a call left.
#[derive(Debug)]
pub struct Output {
    /// The command line.
    pub line: String,
    /// Exit status.
    pub code: Option<i32>,
    /// The trial, when one was written to the file that the harness asked for.
    pub trial: Option<Trial>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// How long it took.
    pub wall: Duration,
}

impl Output {
    /// The trial.
    ///
    /// # Errors
    /// When there is none; with all that was said instead.
    pub fn trial(&self) -> Result<&Trial> {
        self.trial.as_ref().with_context(|| format!("no trial was written by {}", self.described()))
    }

    /// The trial of a run that ended with this exit status.
    ///
    /// # Errors
    /// When it ended otherwise or left no trial.
    pub fn trial_with_code(&self, code: i32) -> Result<&Trial> {
        if self.code != Some(code) {
            bail!("expected exit status {code} from {}", self.described());
        }
        self.trial()
    }

    /// The trial of a run that ended with this exit status, or one that is void for nothing but want of time: for checks of what
    /// was counted, which a slow machine does not touch.
    ///
    /// # Errors
    /// When it ended otherwise or left no trial.
    pub fn counted(&self, code: i32) -> Result<&Trial> {
        let is_void = self.trial.as_ref().is_some_and(|trial| accepts_void(&self.line, &trial.validity));
        self.trial_with_code(if is_void { 3 } else { code })
    }

    /// The trial of a run that nothing answered: that is all it says.
    ///
    /// # Errors
    /// When something answered, or it left no trial.
    pub fn unanswered(&self) -> Result<&Trial> {
        let trial = self.trial_with_code(2)?;
        // A slow machine also shows its progress: `5 s  0.00/s …`.
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

    /// Call, status, verdict, counts and both outputs, for a failure's message.
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

/// A trial of HTTP requests: its envelope, and what the requests measured as if these were fields of its own.
#[derive(Debug, Clone)]
pub struct Trial {
    /// From the start to the last answer awaited, in seconds.
    pub elapsed_s: f64,
    /// All figures are of the part that ran.
    pub interrupted: bool,
    /// Whether it may be believed.
    pub validity: Validity,
    /// What a careful reader should know.
    pub warnings: Vec<Warning>,
    /// What bounded it; none if nothing may be concluded.
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

/// Whether a trial is void, but only because the generator did not get the processor time it wanted.
pub fn is_crowded(validity: &Validity) -> bool {
    use VoidRule::{CpuExhausted, Late, ProcessorShared, RateNotReached};
    let of_time =
        |reason: &VoidReason| matches!(reason.rule, Late | CpuExhausted | ProcessorShared | RateNotReached);
    validity.is_void() && validity.reasons().iter().all(of_time)
}

/// The same. Who asks takes what the trial counted all the same, and this is noted.
pub fn accepts_void(trial: &str, validity: &Validity) -> bool {
    if is_crowded(validity) {
        let reasons: Vec<_> = validity.reasons().iter().map(|reason| reason.rule.words()).collect();
        testing::accepted_void(&format!("{trial}: {}", reasons.join(", ")));
    }
    is_crowded(validity)
}

/// Failures of some classes together, of requests and of connections.
pub fn failures(trial: &Trial, classes: &[ErrorClass]) -> u64 {
    classes.iter().map(|&class| trial.errors.of(class) + trial.connection_errors.of(class)).sum()
}

/// Reads a trial as the binary writes it; none if the file does not exist.
///
/// # Errors
/// When it is not a trial of the form that `record` describes.
pub fn read_trial(path: &Path) -> Result<Option<Trial>> {
    let Ok(text) = fs::read_to_string(path) else { return Ok(None) };
    parse_trial(&text).map(Some)
}

/// Reads a trial's JSON.
///
/// # Errors
/// When it is not a trial of the form that `record` describes.
pub fn parse_trial(text: &str) -> Result<Trial> {
    let trial: record::Trial = serde_json::from_str(text).context("the JSON is not a trial")?;
    let http = trial.http().context("it is no trial of HTTP requests")?.clone();
    let record::Trial { elapsed_s, interrupted, validity, warnings, verdict, .. } = trial;
    Ok(Trial { elapsed_s, interrupted, validity, warnings, verdict, http })
}
