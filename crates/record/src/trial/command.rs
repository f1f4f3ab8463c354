//! What a trial of programs measured.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Programs that make the load of a trial: everything that decides what is run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CommandPlan {
    /// The program with its arguments; a shell line is `sh -c LINE`. Secrets are masked.
    pub command: Vec<String>,
    /// The hosts it is run on, in turn; none where it is run on this machine itself.
    pub hosts: Vec<String>,
    /// How many of it run at once.
    pub copies: u32,
    /// The exit statuses that are a success.
    pub expect: Vec<i32>,
    /// A copy that takes longer has failed, in seconds; none waits for its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<f64>,
    /// The copies are ended after so many seconds, which is no failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_after_s: Option<f64>,
    /// How many bytes it moves, where that is known or measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<ByteSource>,
    /// The numbers that are read from what it writes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<OutputNumber>,
}

/// Where the number of bytes that the programs move comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "MovedBytes")]
pub enum ByteSource {
    /// It is given, for each copy.
    Declared(u64),
    /// The growth of a file, or of all files in a folder, from before the trial to its end; none is not known.
    Path(String),
    /// What the hosts of the load sent and received on their interfaces, whichever is more.
    Link,
}

/// A number that is read from what a program writes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "NumberRead")]
pub struct OutputNumber {
    /// Where it stands in the JSON on standard output (RFC 6901): `/end/sum_received/bits_per_second`.
    pub json: String,
    /// The quantity's name with its unit: `goodput_bit_per_s`. The copies' numbers are added up if more is better; otherwise
    /// the largest counts.
    pub quantity: String,
    /// Whether more of it is better.
    pub more_is_better: bool,
    /// It may be missing without a word.
    #[serde(default)]
    pub optional: bool,
}

/// What a trial of programs measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CommandTrial {
    /// The plan as run.
    pub plan: CommandPlan,
    /// Each copy.
    pub runs: Vec<CommandRun>,
    /// From the start of the first copy to the end of the last, in seconds.
    pub wall_s: f64,
    /// User time of all their processes, in seconds.
    pub user_s: f64,
    /// System time of all their processes, in seconds.
    pub system_s: f64,
    /// Most memory that all their processes had together, in bytes; none where the kernel does not count it for groups of
    /// processes.
    pub peak_memory_bytes: Option<u64>,
    /// Most memory that one of their processes had, in bytes.
    pub largest_process_bytes: u64,
    /// Bytes moved by all copies; none if that is not known.
    pub moved_bytes: Option<u64>,
    /// What the hosts of the load sent and received, by interface.
    pub flows: BTreeMap<String, Flow>,
    /// Length of the bins of the flows, in seconds.
    pub bin_s: f64,
}

/// How one copy of a program ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CommandRun {
    /// The host it ran on; empty for this machine itself.
    pub host: String,
    /// Its exit status; none if a signal ended it.
    pub status: Option<i32>,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    /// From its start to its end, in seconds.
    pub wall_s: f64,
    /// It ran longer than the timeout.
    pub timed_out: bool,
    /// It was ended because its time was up, as the plan wants it.
    pub stopped: bool,
    /// Whether it did what was expected of it.
    pub succeeded: bool,
    /// The last lines that it wrote to standard error, of a copy that failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_lines: String,
}

/// What went over an interface, or over a direction of a link.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Flow {
    /// Bytes, headers included. Over an emulated link they are bytes on the wire, an interface's are those that the kernel
    /// counts.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
    /// Bytes of each bin, from the start of the trial.
    pub bins: Vec<u64>,
}

impl CommandTrial {
    /// Takes all copies for failed, for a reason that was found after they had ended.
    pub fn fail(&mut self, why: &str) {
        for run in &mut self.runs {
            run.succeeded = false;
            run.last_lines = why.to_owned();
        }
    }

    /// The share of the copies that failed (0 to 1); 1 if none ran.
    pub fn failed_ratio(&self) -> f64 {
        let failed = self.runs.iter().filter(|run| !run.succeeded).count();
        if self.runs.is_empty() { 1.0 } else { failed as f64 / self.runs.len() as f64 }
    }

    /// What became of the first copy that failed, in words; none if none did.
    pub fn failure(&self) -> Option<String> {
        let failed = self.runs.iter().find(|run| !run.succeeded)?;
        let program = self.plan.command.first().map_or("the program", String::as_str);
        let at = if failed.host.is_empty() { String::new() } else { format!(" on {}", failed.host) };
        let how = match (failed.timed_out, failed.status, failed.signal) {
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
