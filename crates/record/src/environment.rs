//! The environment of a study.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The schema of environments that this version writes.
pub const SCHEMA: &str = "proofload/environment/2";

/// The machine, its kernel and the kernel settings that influence results. Has no names or addresses, so that results can
/// be shared.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    /// The schema of this record, [`SCHEMA`].
    pub schema: String,
    /// Version of proofload.
    pub proofload_version: String,
    /// The processor's name, from the kernel.
    pub cpu_model: String,
    /// Number of processors that proofload may use.
    pub cpus: u32,
    /// Memory of the machine, in bytes.
    pub memory_bytes: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The operating system, from `/etc/os-release`.
    pub system: String,
    /// Hard limit of descriptors per process.
    pub hard_descriptors: u64,
    /// Virtualisation by the processor flags: `hypervisor` or empty.
    pub virtualisation: String,
    /// Kernel settings by their dotted names: `net.core.somaxconn`.
    pub sysctls: BTreeMap<String, String>,
    /// Settings that `proofload host tune` had changed when the study began, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tuning: BTreeMap<String, Tuned>,
    /// Load average over the preceding minute.
    pub load_average: f64,
}

/// A setting that was tuned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tuned {
    /// Its value before the tuning.
    pub before: String,
    /// Its value when the study began.
    pub after: String,
}

impl Environment {
    /// The differences from another environment that may influence results, one line each. Ignores the load average.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut differences = Vec::new();
        let mut compare = |what: &str, this: &dyn ToString, other: &dyn ToString| {
            let (this, other) = (this.to_string(), other.to_string());
            if this != other {
                differences.push(format!("{what}: {this} against {other}"));
            }
        };
        compare("proofload", &self.proofload_version, &other.proofload_version);
        compare("processor", &self.cpu_model, &other.cpu_model);
        compare("processors used", &self.cpus, &other.cpus);
        compare("memory, bytes", &self.memory_bytes, &other.memory_bytes);
        compare("kernel", &self.kernel, &other.kernel);
        compare("system", &self.system, &other.system);
        compare("descriptors of a process", &self.hard_descriptors, &other.hard_descriptors);
        compare("virtualisation", &self.virtualisation, &other.virtualisation);
        let names: BTreeSet<&String> = self.sysctls.keys().chain(other.sysctls.keys()).collect();
        let value =
            |of: &Self, name: &String| of.sysctls.get(name).cloned().unwrap_or_else(|| "none".to_owned());
        for name in names {
            compare(name, &value(self, name), &value(other, name));
        }
        let names: BTreeSet<&String> = self.tuning.keys().chain(other.tuning.keys()).collect();
        let tuned = |of: &Self, name: &String| {
            of.tuning
                .get(name)
                .map_or_else(|| "not tuned".to_owned(), |tuned| format!("tuned to {}", tuned.after))
        };
        for name in names.into_iter().filter(|name| !self.sysctls.contains_key(*name)) {
            compare(name, &tuned(self, name), &tuned(other, name));
        }
        differences
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_influences_results_is_a_difference() {
        let one = Environment { cpus: 2, load_average: 0.1, ..Environment::default() };
        let mut other = Environment { load_average: 7.0, ..one.clone() };
        assert!(one.differences(&other).is_empty());
        other.cpus = 4;
        other.sysctls.insert("net.core.somaxconn".to_owned(), "128".to_owned());
        assert_eq!(
            one.differences(&other),
            ["processors used: 2 against 4", "net.core.somaxconn: none against 128"]
        );
        let tuned = Tuned { before: "1000".to_owned(), after: "9000".to_owned() };
        let other = Environment { tuning: [("eth0.txqueuelen".to_owned(), tuned)].into(), ..one.clone() };
        assert_eq!(one.differences(&other), ["eth0.txqueuelen: not tuned against tuned to 9000"]);
    }
}
