//! What a runner is to do, and what it tells.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use record::CommandRun;
use serde::{Deserialize, Serialize};

/// Stands for the number of a copy. No text that people write holds these characters, which are for private use.
pub const COPY: &str = "\u{e000}copy\u{e001}";
/// The variable of the environment that a runner has its order from: other users cannot read it, as they could its arguments.
pub const VARIABLE: &str = "PROOFLOAD_ORDER";

/// What a runner is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Order {
    /// The program with its arguments. [`COPY`] stands for the number of the copy.
    pub command: Vec<String>,
    /// Variables of its environment, beside ours.
    pub environment: BTreeMap<String, String>,
    /// The folder that it is started in; ours if none.
    pub directory: Option<PathBuf>,
    /// The numbers of the copies that run here, at once.
    pub copies: Vec<u32>,
    /// The exit statuses that are a success.
    pub expect: Vec<i32>,
    /// A copy that takes longer is ended, and has failed.
    pub timeout: Option<Duration>,
    /// The copies are ended after this time, which is no failure.
    pub stop_after: Option<Duration>,
    /// The files of a control group, to which the copies and all that they start belong.
    pub groups: Vec<PathBuf>,
    /// Where the copies' output goes, see [`Order::output`], and the report.
    pub folder: PathBuf,
    /// What these files' names begin with: `command`, `prepare`.
    pub name: String,
    /// The process that the runner belongs to; none where processes of the host cannot see its number.
    pub parent: Option<u32>,
}

/// What a runner found.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Report {
    /// Each copy, in the order of [`Order::copies`].
    pub runs: Vec<CommandRun>,
    /// When the first copy was started, in seconds of CLOCK_MONOTONIC.
    pub began_s: f64,
    /// When the last copy had ended, by the same clock.
    pub ended_s: f64,
    /// User time of all processes, in seconds.
    pub user_s: f64,
    /// System time of all processes, in seconds.
    pub system_s: f64,
    /// Most memory that one process had, in bytes.
    pub largest_process_bytes: u64,
    /// It was told to stop before the copies had ended.
    pub interrupted: bool,
    /// What this machine has too little of to start all copies, if that is so.
    pub wants: Option<String>,
}

impl Order {
    /// Where a copy's standard output goes.
    pub fn output(&self, copy: u32) -> PathBuf {
        self.folder.join(format!("{}-{copy}.out", self.name))
    }

    /// Where a copy's standard error goes.
    pub fn errors(&self, copy: u32) -> PathBuf {
        self.folder.join(format!("{}-{copy}.err", self.name))
    }

    /// Where the runner writes its report: whole, or not at all.
    pub fn report(&self) -> PathBuf {
        self.folder.join(format!("{}-{}.json", self.name, self.copies.first().copied().unwrap_or(0)))
    }

    /// Everything that has a copy's number in its place.
    pub(crate) fn numbered(text: &str, copy: u32) -> String {
        text.replace(COPY, &copy.to_string())
    }
}

impl Report {
    /// Reads what a runner wrote; none if it wrote nothing.
    pub fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(path).ok()?).ok()
    }

    /// Takes in what another runner of the same trial found.
    pub fn merge(&mut self, other: Self) {
        self.began_s = if self.runs.is_empty() { other.began_s } else { self.began_s.min(other.began_s) };
        self.ended_s = self.ended_s.max(other.ended_s);
        self.runs.extend(other.runs);
        self.wants = self.wants.take().or(other.wants);
        self.user_s += other.user_s;
        self.system_s += other.system_s;
        self.largest_process_bytes = self.largest_process_bytes.max(other.largest_process_bytes);
        self.interrupted |= other.interrupted;
    }
}
