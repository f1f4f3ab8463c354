//! The kind `command`: any program as the load.

use std::{collections::BTreeMap, time::Duration};

use record::{ByteSource, CommandPlan, DeclaredQuantity, OutputNumber};

/// The name of the goodput's quantity.
pub(crate) const GOODPUT: &str = "goodput_bit_per_s";

/// Programs as the load of a trial, and the hooks that run around trials.
#[derive(Debug, Clone, PartialEq)]
pub struct CommandWorkload {
    /// The program with its arguments; a shell line is `sh -c LINE`.
    pub run: Vec<String>,
    /// Hook that runs first when hosts and target are new.
    pub setup: Option<Vec<String>>,
    /// Hook that runs before each trial.
    pub prepare: Option<Vec<String>>,
    /// Hook that runs after each trial.
    pub conclude: Option<Vec<String>>,
    /// Hook that runs before hosts and target are removed.
    pub cleanup: Option<Vec<String>>,
    /// Environment variables of the program and the hooks, in addition to those of this process.
    pub environment: BTreeMap<String, String>,
    /// Working directory, created if missing; `None` for that of this process.
    pub directory: Option<String>,
    /// Number of copies that run at once.
    pub copies: u32,
    /// Time limit of a copy. A copy that exceeds it is ended and counts as failed.
    pub timeout: Option<Duration>,
    /// Time after which the copies are ended. This does not count as a failure.
    pub stop_after: Option<Duration>,
    /// Exit statuses that count as success.
    pub expect: Vec<i32>,
    /// How the number of moved bytes is determined.
    pub bytes: Option<ByteSource>,
    /// Numbers that are read from the program's output.
    pub read: Vec<Reading>,
}

/// A number that is read from a program's output.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// The number's JSON pointer and its quantity.
    pub number: OutputNumber,
    /// The quantity for users.
    pub words: String,
}

/// Quantities of the hosts' interfaces; unknown without hosts.
const HOST_QUANTITIES: [&str; 5] =
    ["sent_bytes", "received_bytes", "sent_packets", "received_packets", "last_5_s_bit_per_s"];
/// Quantities that every trial yields.
const ALWAYS_MEASURED: [&str; 5] =
    ["wall_s", "user_s", "system_s", "peak_memory_bytes", "largest_process_bytes"];

impl CommandWorkload {
    /// Names of the quantities that are measured, not read from output.
    pub(crate) fn measured() -> impl Iterator<Item = &'static str> {
        ALWAYS_MEASURED.into_iter().chain(HOST_QUANTITIES).chain(["moved_bytes"])
    }

    /// The quantities that trials of this workload yield.
    pub(super) fn quantities(&self, has_hosts: bool) -> Vec<DeclaredQuantity> {
        let given = |name: &str, words: &str, more_is_better, is_main| DeclaredQuantity {
            name: name.to_owned(),
            words: words.to_owned(),
            more_is_better,
            is_main,
        };
        let has_bytes = self.bytes.is_some();
        let read = self
            .read
            .iter()
            .map(|read| given(&read.number.quantity, &read.words, read.number.more_is_better, true));
        let mut quantities: Vec<DeclaredQuantity> = read.collect();
        if has_bytes {
            quantities.push(given(GOODPUT, "goodput", true, true));
            quantities.push(given("moved_bytes", "bytes moved", true, false));
        }
        quantities.extend([
            // If a time limit ends the trial, its wall time is not a result.
            given("wall_s", "wall time", false, self.stop_after.is_none()),
            given("user_s", "user time", false, false),
            given("system_s", "system time", false, false),
            given("peak_memory_bytes", "peak memory, all processes", false, false),
            given("largest_process_bytes", "peak memory, largest process", false, false),
            given("sent_bytes", "bytes sent", false, false),
            given("received_bytes", "bytes received", false, false),
            given("sent_packets", "packets sent", false, false),
            given("received_packets", "packets received", false, false),
            given("last_5_s_bit_per_s", "rate of the last 5 s", true, has_bytes),
        ]);
        quantities.retain(|given| has_hosts || !HOST_QUANTITIES.contains(&given.name.as_str()));
        quantities
    }

    /// The plan of a trial on these hosts, with secrets masked.
    pub(crate) fn plan(&self, hosts: Vec<String>) -> CommandPlan {
        CommandPlan {
            command: self
                .run
                .iter()
                .map(|word| secrets::mask(&super::show_command(std::slice::from_ref(word))).into_owned())
                .collect(),
            hosts,
            copies: self.copies,
            expect: self.expect.clone(),
            timeout_s: self.timeout.map(|time| time.as_secs_f64()),
            stop_after_s: self.stop_after.map(|time| time.as_secs_f64()),
            bytes: self.bytes.clone(),
            read: self.read.iter().map(|read| read.number.clone()).collect(),
        }
    }

    /// The command line for users.
    pub(crate) fn in_words(&self) -> String {
        super::show_command(&self.run)
    }
}
