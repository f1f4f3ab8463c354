//! What a machine is asked as a host of a study. Each question names the type of its answer.

use std::net::IpAddr;

use lab::{Balancer, ProcessFailure, plan::Plan};
use serde::{Deserialize, Serialize};

use crate::study::ActionKind;

/// Stands for the program's path on the machine in words of commands.
pub(crate) const OWN_PROGRAM: &str = "{proofload}";

/// A question to a machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Question {
    /// What the machine is: [`Facts`].
    Facts,
    /// To undo what killed runs left, and to bring up the plan's only host, without processes: `()`.
    Up {
        plan: Box<Plan>,
        /// Texts to mask in logs and files, each with its replacement.
        secrets: Vec<(String, String)>,
    },
    /// To start the processes of a stage, and to wait until they are ready: `()`.
    Stage(usize),
    /// Which processes have failed since the last question: `Vec<Failure>`.
    Failures,
    /// What ended connections left: `Vec<kernel::leftovers::Leftover>`.
    Leftovers,
    /// To begin to watch the kernel: `()`.
    Watch { books_time: bool },
    /// What the kernel counted since then: `record::TrialCounters`.
    Count,
    /// To perform an action: `()`.
    Act(ActionKind),
    /// Something about the balancer on this host: its statistics.
    Balancer(Box<Balancer>, BalancerQuestion),
    /// To take the host down: [`Farewell`].
    Down,
}

/// What a balancer's host is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BalancerQuestion {
    /// To wait until the balancer considers all its servers healthy.
    WaitUntilReady,
    /// To reset what can be reset.
    Clear,
    /// The balancer's own statistics.
    Values,
}

/// What a machine is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Facts {
    /// Equal for two agents only if they run on the same machine and in the same network.
    pub(crate) identity: String,
    pub(crate) is_root: bool,
    /// Its addresses, each with the name of its interface; without those of the loopback interface.
    pub(crate) addresses: Vec<(String, IpAddr)>,
    /// The address that ssh has reached; none if the agent was started in another way.
    pub(crate) reached: Option<IpAddr>,
}

/// A process that failed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) name: String,
    pub(crate) why: String,
    pub(crate) last_lines: Vec<String>,
}

impl From<ProcessFailure> for Failure {
    fn from(ProcessFailure { name, why, last_lines }: ProcessFailure) -> Self {
        Self { name, why, last_lines }
    }
}

impl From<Failure> for ProcessFailure {
    fn from(Failure { name, why, last_lines }: Failure) -> Self {
        Self { name, why, last_lines }
    }
}

/// What remains after a host was taken down.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Farewell {
    /// The logs that are not empty, by the names of their files.
    pub(crate) logs: Vec<(String, String)>,
    /// What could not be undone.
    pub(crate) failures: Vec<String>,
}
