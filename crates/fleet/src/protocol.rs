//! The messages between the controller of a trial and its members: worker processes on this machine, or agents on other
//! machines, which have worker processes of their own.

use std::path::PathBuf;

use load::{MachineLimits, Share, Tick, WorkerResult};
use record::HttpPlan;
use serde::{Deserialize, Serialize};

/// A message to a member.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToMember {
    /// Set up a trial.
    Prepare(Box<Order>),
    /// Start the load at this time of the member's CLOCK_MONOTONIC, in nanoseconds.
    Start { t0_ns: u64 },
    /// The member may send until this time of its CLOCK_BOOTTIME, in nanoseconds.
    Lease { until_ns: u64 },
    /// End the trial early, or do not start it. (The input of worker processes is closed instead.)
    Stop,
    /// Tell the time.
    Clock { number: u64 },
    /// Forget the files that were sent.
    ForgetFiles,
    /// A part of a file of the controller's machine, in base64: the parts of a file follow each other.
    FilePart { name: String, part: String },
    /// The controller is there.
    Alive,
    /// A question to the machine as a host of a study. Only the caller of the agent knows its format.
    Host { number: u64, question: serde_json::Value },
}

/// A trial that a member sets up.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    pub plan: HttpPlan,
    /// The share of the member's first worker process.
    pub first: Share,
    /// Number of the member's worker processes; their shares are consecutive.
    pub processes: u64,
    /// Texts to mask in all output, each with its replacement.
    pub secrets: Vec<(String, String)>,
    /// The end of the first lease, in nanoseconds of the member's CLOCK_BOOTTIME; none if the member ends with the controller.
    pub lease_until_ns: Option<u64>,
    /// Whether the plan's files are those of the controller's machine, which has sent those that the plan reads.
    pub elsewhere: bool,
}

/// A message from a member.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FromMember {
    /// An agent has started.
    Hello(Box<Hello>),
    /// The member's time, in nanoseconds.
    Clock {
        number: u64,
        monotonic_ns: u64,
        boottime_ns: u64,
    },
    /// All connections to open before the start are open, or have failed.
    Ready,
    Tick(Tick),
    /// Lines that the member wrote to a file of the controller's machine.
    Written {
        path: PathBuf,
        lines: String,
    },
    Done(Box<WorkerResult>),
    Failed(String),
    #[serde(rename = "lacking")]
    OutOfResources(String),
    /// The answer to a question to the host, or why there is none.
    Host {
        number: u64,
        answer: Result<serde_json::Value, String>,
    },
}

/// What an agent says first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// Version of the program.
    pub version: String,
    pub limits: MachineLimits,
}

/// A message with the number of its trial, so that a late message is not taken for one of the next trial.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Numbered<M> {
    pub trial: u64,
    pub message: M,
}
