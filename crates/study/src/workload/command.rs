//! The kind `command`: any program as the load.

use std::{collections::BTreeMap, time::Duration};

use record::{ByteSource, CommandPlan, DeclaredQuantity, OutputNumber};

/// Programs as the load of a trial, and what is run around them.
#[derive(Debug, Clone, PartialEq)]
pub struct CommandWorkload {
    /// The program with its arguments; a shell line is `sh -c LINE`.
    pub run: Vec<String>,
    /// Run once when hosts and target are new, before anything else.
    pub setup: Option<Vec<String>>,
    /// Run before each trial.
    pub prepare: Option<Vec<String>>,
    /// Run after each trial.
    pub conclude: Option<Vec<String>>,
    /// Run once before hosts and target go.
    pub cleanup: Option<Vec<String>>,
    /// Variables of the environment of all of them, beside ours.
    pub environment: BTreeMap<String, String>,
    /// The folder that they are started in, made if it is missing; ours if none.
    pub directory: Option<String>,
    /// How many run at once.
    pub copies: u32,
    /// A copy that takes longer has failed.
    pub timeout: Option<Duration>,
    /// The copies are ended after this time, which is no failure.
    pub stop_after: Option<Duration>,
    /// The exit statuses that are a success.
    pub expect: Vec<i32>,
    /// How many bytes it moves, where that is known or measured.
    pub bytes: Option<ByteSource>,
    /// The numbers that are read from what it writes.
    pub read: Vec<Reading>,
}

/// A number that is read from what a program writes.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// Where it stands, and its quantity.
    pub number: OutputNumber,
    /// What people call it, with its unit where its name has none that is known.
    pub words: String,
}

/// What goes over the interfaces of hosts: without hosts it is not known.
const OF_HOSTS: [&str; 5] =
    ["sent_bytes", "received_bytes", "sent_packets", "received_packets", "last_5_s_bit_per_s"];
/// What is measured of every trial.
const MEASURED: [&str; 5] = ["wall_s", "user_s", "system_s", "peak_memory_bytes", "largest_process_bytes"];

impl CommandWorkload {
    /// The names of the quantities that are measured, whatever is read.
    pub(crate) fn measured() -> impl Iterator<Item = &'static str> {
        MEASURED.into_iter().chain(OF_HOSTS).chain(["moved_bytes"])
    }

    /// The quantities that its trials give.
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
            quantities.push(given("goodput_bit_per_s", "goodput", true, true));
            quantities.push(given("moved_bytes", "bytes moved", true, false));
        }
        quantities.extend([
            // Where time ends it, the time says nothing.
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
        quantities.retain(|given| has_hosts || !OF_HOSTS.contains(&given.name.as_str()));
        quantities
    }

    /// The plan of a trial, on these hosts; secrets are masked.
    pub fn plan(&self, hosts: Vec<String>) -> CommandPlan {
        CommandPlan {
            command: self
                .run
                .iter()
                .map(|word| secrets::mask(&super::shown_words(std::slice::from_ref(word))).into_owned())
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

    /// The program, for people.
    pub fn in_words(&self) -> String {
        super::shown_words(&self.run)
    }
}
