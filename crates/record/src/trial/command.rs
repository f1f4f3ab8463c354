//! The measurements of a trial that runs programs.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::LinkStall;

/// The programs of a trial: everything that decides what is run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CommandPlan {
    /// The program with its arguments; a shell line is `sh -c LINE`. Secrets are masked.
    pub command: Vec<String>,
    /// The hosts of the copies, in rotation; empty for this machine itself.
    pub hosts: Vec<String>,
    /// Number of copies that run at once.
    pub copies: u32,
    /// The exit statuses that mean success.
    pub expect: Vec<i32>,
    /// A copy that takes longer than this has failed, in seconds; none means no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<f64>,
    /// Time after which the copies are stopped, in seconds; this is not a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_after_s: Option<f64>,
    /// How the number of moved bytes is determined, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<ByteSource>,
    /// The numbers to read from the output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<OutputNumber>,
}

/// How the number of bytes that the programs move is determined.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "MovedBytes")]
pub enum ByteSource {
    /// The user states the number for each copy.
    Declared(u64),
    /// The size of a new file, or of the new files in a folder.
    Path(String),
    /// The bytes that arrived from the hosts of the load or at them, whichever is more.
    Link,
}

/// A number to read from a program's output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "NumberRead")]
pub struct OutputNumber {
    /// The JSON Pointer (RFC 6901) of the number in the JSON on standard output: `/end/sum_received/bits_per_second`.
    pub json: String,
    /// The quantity's name with its unit: `goodput_bit_per_s`. Its value is the sum over the copies if more is better, else
    /// the largest.
    pub quantity: String,
    /// Whether more is better.
    pub more_is_better: bool,
    /// Whether the number may be missing without a warning.
    #[serde(default)]
    pub optional: bool,
}

/// The measurements of a trial that runs programs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CommandTrial {
    /// The plan as run.
    pub plan: CommandPlan,
    /// One entry per copy.
    pub runs: Vec<CommandRun>,
    /// From the start of the first copy to the end of the last, in seconds; none if start or end were not seen in time.
    pub wall_s: Option<f64>,
    /// User CPU time of all processes of the copies, in seconds.
    pub user_s: f64,
    /// System CPU time of all processes of the copies, in seconds.
    pub system_s: f64,
    /// Peak memory of all processes of the copies together, in bytes; none if the kernel does not count memory for groups
    /// of processes.
    pub peak_memory_bytes: Option<u64>,
    /// Peak memory of the largest single process, in bytes.
    pub largest_process_bytes: u64,
    /// Bytes moved by all copies, if known.
    pub moved_bytes: Option<u64>,
    /// The traffic of the load's hosts by interface and direction, and that of the emulated links.
    pub flows: BTreeMap<String, Flow>,
    /// Length of the flows' bins, in seconds.
    pub bin_s: f64,
    /// Stalls of emulated links that may have slowed the programs down; none if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalled: Option<LinkStall>,
}

/// How one copy of a program ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CommandRun {
    /// The host of the copy; empty for this machine itself.
    pub host: String,
    /// The exit status; none if a signal ended the copy.
    pub status: Option<i32>,
    /// The signal that ended the copy, if one did.
    pub signal: Option<i32>,
    /// Time from start to end, in seconds; none if the end was not seen in time.
    pub wall_s: Option<f64>,
    /// Whether the copy exceeded the timeout.
    pub timed_out: bool,
    /// Whether the copy was stopped after `stop_after_s`.
    pub stopped: bool,
    /// Whether the copy ended as expected.
    pub succeeded: bool,
    /// Why the copy failed, if its exit does not say that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The last lines of standard error, if the copy failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_lines: String,
}

/// The traffic over an interface or over one direction of a link.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Flow {
    /// Bytes including headers: on the wire for an emulated link, as the kernel counts them for an interface.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
    /// Bytes in each bin, from the start of the trial.
    pub bins: Vec<u64>,
}

impl Flow {
    /// The last word in the names of an interface's two flows.
    pub const INTERFACE_DIRECTIONS: [&str; 2] = ["sent", "received"];

    /// Names of the flows of an interface, in the order of [`Self::INTERFACE_DIRECTIONS`].
    pub fn names_of_interface(host: &str, interface: &str) -> [String; 2] {
        Self::INTERFACE_DIRECTIONS.map(|direction| format!("{host} {interface} {direction}"))
    }

    /// Names of the flows of an emulated link: from its first to its second host, and back.
    pub fn names_of_link(link: &str) -> [String; 2] {
        ["a to b", "b to a"].map(|direction| format!("link {link} {direction}"))
    }
}

impl CommandTrial {
    /// Marks all copies as failed for a reason that was found after they ended.
    pub fn fail(&mut self, why: &str) {
        for run in self.runs.iter_mut().filter(|run| run.succeeded) {
            run.succeeded = false;
            run.reason = Some(format!("ended as expected, but {why}"));
        }
    }

    /// The share of the copies that failed (0 to 1); 1 if none ran.
    pub fn failed_ratio(&self) -> f64 {
        let failed = self.runs.iter().filter(|run| !run.succeeded).count();
        if self.runs.is_empty() { 1.0 } else { failed as f64 / self.runs.len() as f64 }
    }

    /// Describes the first failed copy; `None` if all copies succeeded.
    pub fn failure(&self) -> Option<String> {
        let failed = self.runs.iter().find(|run| !run.succeeded)?;
        let program = self.plan.command.first().map_or("the program", String::as_str);
        let at = if failed.host.is_empty() { String::new() } else { format!(" on {}", failed.host) };
        let how = match (failed.timed_out, failed.status, failed.signal) {
            _ if failed.reason.is_some() => failed.reason.clone().unwrap_or_default(),
            (true, ..) => format!("ran longer than its timeout of {} s", self.plan.timeout_s.unwrap_or(0.0)),
            (_, Some(status), _) => format!("ended with status {status}"),
            (_, _, Some(signal)) => format!("was ended by signal {signal}"),
            _ => "did not end".to_owned(),
        };
        let lines = failed.last_lines.trim();
        let lines = if lines.is_empty() { String::new() } else { format!("; it wrote: {lines}") };
        Some(format!("{program}{at} {how}{lines}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_copy_is_told_with_its_host_and_end() {
        let run = CommandRun { host: "a".to_owned(), ..CommandRun::default() };
        let told = |run: CommandRun| {
            let plan = CommandPlan {
                command: vec!["cp".to_owned()],
                timeout_s: Some(3.0),
                ..CommandPlan::default()
            };
            let sound = CommandRun { succeeded: true, ..CommandRun::default() };
            CommandTrial { plan, runs: vec![sound, run], ..CommandTrial::default() }.failure()
        };
        let late = CommandRun { timed_out: true, signal: Some(9), ..run.clone() };
        assert_eq!(told(late).unwrap(), "cp on a ran longer than its timeout of 3 s");
        let status = CommandRun { status: Some(2), last_lines: " no space\n".to_owned(), ..run.clone() };
        assert_eq!(told(status).unwrap(), "cp on a ended with status 2; it wrote: no space");
        let killed = CommandRun { signal: Some(9), host: String::new(), ..run.clone() };
        assert_eq!(told(killed).unwrap(), "cp was ended by signal 9");
        assert_eq!(told(run.clone()).unwrap(), "cp on a did not end");
        assert_eq!(told(CommandRun { succeeded: true, ..run }), None);
    }

    #[test]
    fn figures_that_are_wrong_fail_every_copy() {
        let run = CommandRun { succeeded: true, ..CommandRun::default() };
        let mut trial = CommandTrial { runs: vec![run.clone(), run], ..CommandTrial::default() };
        assert_eq!((trial.failed_ratio(), CommandTrial::default().failed_ratio()), (0.0, 1.0));
        trial.runs[0].succeeded = false;
        assert_eq!(trial.failed_ratio(), 0.5);
        trial.fail("wrong");
        assert_eq!(trial.failed_ratio(), 1.0);
        assert_eq!(trial.failure().unwrap(), "the program did not end", "its own failure came first");
        trial.runs.remove(0);
        assert_eq!(trial.failure().unwrap(), "the program ended as expected, but wrong");
    }
}
