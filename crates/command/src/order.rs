//! What a runner is to do, and what it tells.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use record::CommandRun;
use serde::{Deserialize, Serialize};

/// What a runner is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Order {
    /// The program with its arguments. `{copy}` stands for the number of the copy.
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
    /// From the start of the first copy to the end of the last, in seconds.
    pub wall_s: f64,
    /// User time of all processes, in seconds.
    pub user_s: f64,
    /// System time of all processes, in seconds.
    pub system_s: f64,
    /// Most memory that one process had, in bytes.
    pub largest_process_bytes: u64,
    /// It was told to stop before the copies had ended.
    pub interrupted: bool,
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
        text.replace("{copy}", &copy.to_string())
    }
}

impl Report {
    /// Reads what a runner wrote; none if it wrote nothing.
    pub fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(path).ok()?).ok()
    }

    /// Takes in what another runner of the same trial found.
    pub fn merge(&mut self, other: Self) {
        self.runs.extend(other.runs);
        self.wall_s = self.wall_s.max(other.wall_s);
        self.user_s += other.user_s;
        self.system_s += other.system_s;
        self.largest_process_bytes = self.largest_process_bytes.max(other.largest_process_bytes);
        self.interrupted |= other.interrupted;
    }
}
