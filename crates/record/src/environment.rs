//! What a result was measured on.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The form of environments written by this version.
pub const SCHEMA: &str = "proofload/environment/1";

/// The machine, its kernel and the settings that decide what a load may reach. No names or addresses: a result
/// can be handed on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    /// The form of this record, [`SCHEMA`].
    pub schema: String,
    /// Version of proofload.
    pub proofload_version: String,
    /// The processor, as the kernel names it.
    pub cpu_model: String,
    /// Processors that proofload may run on.
    pub cpus: u32,
    /// Memory of the machine, in bytes.
    pub memory_bytes: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The system, as `/etc/os-release` names it.
    pub system: String,
    /// Most descriptors of a process (hard limit).
    pub hard_descriptors: u64,
    /// What virtualisation the processor flags tell of: `hypervisor` or empty.
    pub virtualisation: String,
    /// Kernel settings by their dotted names: `net.core.somaxconn`.
    pub sysctls: BTreeMap<String, String>,
    /// Mean number of processes that wanted to run in the minute before (load average).
    pub load_average: f64,
}
