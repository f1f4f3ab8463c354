//! The job of a supervisor, and the report that it writes.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    time::Duration,
};

use files::{Folder, Trust};
use record::CommandRun;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

/// Placeholder for the number of a copy. Its private-use characters do not occur in users' texts.
pub const COPY_MARKER: &str = "\u{e000}copy\u{e001}";
/// Environment variable that holds a supervisor's job. Other users can read arguments, but not the environment.
pub const JOB_VARIABLE: &str = "PROOFLOAD_JOB";

/// Only this user may read the output of programs before secrets in it are masked.
const MODE: u32 = 0o600;

/// A wall time counts as unknown if its error may exceed both this share of it and `MAX_AWAY_S`.
const MAX_AWAY_RATIO: f64 = 0.01;
const MAX_AWAY_S: f64 = 0.005;

/// The programs that a supervisor runs, and how it runs them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    /// The program with its arguments. [`COPY_MARKER`] stands for the number of the copy.
    pub command: Vec<String>,
    /// Environment variables, in addition to those of this process.
    pub environment: BTreeMap<String, String>,
    /// Working directory; this process's own if none.
    pub directory: Option<PathBuf>,
    /// Numbers of the copies that run concurrently.
    pub copies: Vec<u32>,
    /// Exit statuses that count as success.
    pub expect: Vec<i32>,
    /// Time after which the supervisor ends a running copy and counts it as failed.
    pub timeout: Option<Duration>,
    /// Time after which the supervisor ends the copies. This is not a failure.
    pub stop_after: Option<Duration>,
    /// Maximum time that the supervisor waits, after the copies have ended, until the peers have acknowledged the data that the host still
    /// sends for them. If none, the supervisor does not check.
    pub settle: Option<Duration>,
    /// Files (`cgroup.procs`) of the control groups that the supervisor joins with all its descendants.
    pub groups: Vec<PathBuf>,
    /// Folder of the copies' output (see [`Job::output`]) and of the report. Other users cannot access it.
    pub folder: PathBuf,
    /// Prefix of these files' names: `command`, `prepare`.
    pub name: String,
    /// Process id of the supervisor's parent; none if processes of the host cannot see it.
    pub parent: Option<u32>,
}

/// The report of a supervisor.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Report {
    /// The runs of the copies, in the order of [`Job::copies`].
    pub runs: Vec<CommandRun>,
    /// When the first copy was started, in seconds of CLOCK_MONOTONIC.
    pub began_s: f64,
    /// When the last copy ended, by the same clock.
    pub ended_s: f64,
    /// Data that the host still sent after `ended_s`.
    pub rest: Rest,
    /// Upper bound of the time, in seconds, for which the supervisor was stopped or without a processor at the two moments that decide the
    /// wall time: when it started the copies and when the last one ended.
    pub away_s: f64,
    /// Why the supervisor and its copies did not join [`Job::groups`], if they did not.
    pub outside: Option<String>,
    /// User time of all processes, in seconds.
    pub user_s: f64,
    /// System time of all processes, in seconds.
    pub system_s: f64,
    /// Peak memory of the largest process, in bytes.
    pub largest_process_bytes: u64,
    /// Whether the supervisor was stopped before the copies had ended.
    pub interrupted: bool,
    /// The resource that this machine lacked to start all copies, if any.
    #[serde(rename = "wants")]
    pub shortage: Option<String>,
}

/// Data that a host still sent after its programs had ended. Times are seconds of CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Rest {
    /// When the supervisor first read the tables of sockets.
    pub looked_s: f64,
    /// Bytes of TCP that the other sides had not acknowledged at `looked_s`.
    pub bytes: u64,
    /// The last two times at which the supervisor read the tables. If `is_acknowledged`, the last byte was acknowledged
    /// between them.
    pub between_s: (f64, f64),
    /// Whether all bytes were acknowledged in time.
    pub is_acknowledged: bool,
    /// Counters of the data that the host has sent since the copies were started.
    pub sent: Sent,
}

/// Counters of a host's network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Datagrams of UDP.
    pub datagrams: u64,
    /// Segments of TCP.
    pub segments: u64,
    /// TCP connections that either side reset while they were open, or that this side reset later.
    pub resets: u64,
    /// MPTCP connections that the host opened. The tables of sockets do not show the bytes that wait in them.
    pub mptcp_connections: u64,
}

impl Job {
    /// File of a copy's standard output.
    pub fn output(&self, copy: u32) -> PathBuf {
        self.folder.join(format!("{}-{copy}.out", self.name))
    }

    /// File of a copy's standard error.
    pub fn errors(&self, copy: u32) -> PathBuf {
        self.folder.join(format!("{}-{copy}.err", self.name))
    }

    /// Opens the folder.
    ///
    /// # Errors
    /// If other users can access it.
    pub(crate) fn held(&self) -> io::Result<Folder> {
        Folder::open(&self.folder, Trust::Private)
    }

    /// Creates a file in the folder, in place of any file with this name. Only this user can read it.
    pub(crate) fn create(&self, path: &Path) -> io::Result<File> {
        let (folder, name) = (self.held()?, path.file_name().unwrap_or_default());
        match folder.remove(name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => folder.create(name, MODE),
        }
    }

    /// Writes the report atomically, so a reader never finds a part of it.
    pub(crate) fn write_report(&self, report: &Report) -> io::Result<()> {
        self.held()?.replace(self.report(), MODE, &serde_json::to_vec(report)?)
    }

    /// Reads and removes the report; none if it is missing or unreadable.
    pub fn take_report(&self) -> Option<Report> {
        let (folder, mut text) = (self.held().ok()?, Vec::new());
        folder.kept(self.report(), OFlags::RDONLY).ok()?.read_to_end(&mut text).ok()?;
        folder.remove(self.report()).ok()?;
        serde_json::from_slice(&text).ok()
    }

    fn report(&self) -> String {
        format!("{}-{}.json", self.name, self.copies.first().copied().unwrap_or(0))
    }

    /// Replaces the marker by a copy's number.
    pub(crate) fn with_copy_number(text: &str, copy: u32) -> String {
        text.replace(COPY_MARKER, &copy.to_string())
    }
}

impl Report {
    /// Time from the start of the first copy to the end of the last, in seconds; none if it may be wrong by more than 1 % and 5 ms.
    pub fn wall_s(&self) -> Option<f64> {
        wall_s(self.ended_s - self.began_s, self.away_s)
    }

    /// Merges the report of another supervisor of the same trial.
    pub fn merge(&mut self, other: Self) {
        self.began_s = if self.runs.is_empty() { other.began_s } else { self.began_s.min(other.began_s) };
        self.away_s = self.away_s.max(other.away_s);
        self.rest = if self.runs.is_empty() { other.rest } else { self.rest.merged(other.rest) };
        self.outside = self.outside.take().or(other.outside);
        self.ended_s = self.ended_s.max(other.ended_s);
        self.runs.extend(other.runs);
        self.shortage = self.shortage.take().or(other.shortage);
        self.user_s += other.user_s;
        self.system_s += other.system_s;
        self.largest_process_bytes = self.largest_process_bytes.max(other.largest_process_bytes);
        self.interrupted |= other.interrupted;
    }
}

impl Rest {
    /// The value for a host that is not watched: it sent nothing after `ended_s`.
    pub(crate) fn none(ended_s: f64) -> Self {
        Self { looked_s: ended_s, between_s: (ended_s, ended_s), is_acknowledged: true, ..Self::default() }
    }

    fn merged(self, other: Self) -> Self {
        Self {
            looked_s: self.looked_s.max(other.looked_s),
            bytes: self.bytes + other.bytes,
            between_s: if self.between_s.1 > other.between_s.1 { self.between_s } else { other.between_s },
            is_acknowledged: self.is_acknowledged && other.is_acknowledged,
            sent: Sent {
                datagrams: self.sent.datagrams + other.sent.datagrams,
                segments: self.sent.segments + other.sent.segments,
                resets: self.sent.resets + other.sent.resets,
                mptcp_connections: self.sent.mptcp_connections + other.sent.mptcp_connections,
            },
        }
    }
}

/// Returns the wall time; none if `away_s` is too large a part of it.
pub(crate) fn wall_s(wall_s: f64, away_s: f64) -> Option<f64> {
    (away_s <= (MAX_AWAY_RATIO * wall_s).max(MAX_AWAY_S)).then_some(wall_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_programs_write_is_this_users_alone_and_follows_no_link() {
        use std::os::unix::fs::{PermissionsExt, symlink};

        let place = tempfile::tempdir().unwrap();
        let (folder, outside) = (place.path().join("output"), place.path().join("outside"));
        std::fs::write(&outside, "secret").unwrap();
        drop(Folder::make(&folder, Trust::Private).unwrap());
        let job = Job {
            command: Vec::new(),
            environment: BTreeMap::new(),
            directory: None,
            copies: vec![3],
            expect: Vec::new(),
            timeout: None,
            stop_after: None,
            settle: None,
            groups: Vec::new(),
            folder: folder.clone(),
            name: "command".to_owned(),
            parent: None,
        };
        for path in [job.output(3), folder.join(job.report())] {
            symlink(&outside, path).unwrap();
        }
        drop(job.create(&job.output(3)).unwrap());
        assert_eq!(std::fs::metadata(job.output(3)).unwrap().permissions().mode() & 0o7777, 0o600);
        assert!(job.take_report().is_none(), "a link is no report");
        job.write_report(&Report { interrupted: true, ..Report::default() }).unwrap();
        assert!(job.take_report().unwrap().interrupted && job.take_report().is_none());
        assert_eq!(std::fs::read(&outside).unwrap(), b"secret");
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(job.create(&job.output(3)).is_err(), "others can look into it");
    }

    #[test]
    fn a_trial_lasts_from_the_first_start_to_the_last_end() {
        let report = |began_s, ended_s, away_s| Report {
            runs: vec![CommandRun::default()],
            began_s,
            ended_s,
            away_s,
            ..Report::default()
        };
        let merged = |first: Report, second: Report| {
            let mut all = Report::default();
            [first, second].into_iter().for_each(|report| all.merge(report));
            all.wall_s()
        };
        assert_eq!(merged(report(5.0, 5.5, 0.06), report(4.0, 104.0, 0.0)), Some(100.0), "60 ms of 100 s");
        assert_eq!(merged(report(4.0, 6.0, 0.0), report(5.0, 7.0, 0.06)), None, "2 % of 3 s");
        assert_eq!(report(1.0, 1.25, 0.005).wall_s(), Some(0.25), "5 ms are tolerated");
    }
}
