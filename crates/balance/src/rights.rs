//! The capabilities that the process of a balancer needs.

use kernel::namespaces::{Kind, own_identity};
use rustix::thread::{CapabilitySet, capabilities};

/// The inode of the first user namespace (PROC_USER_INIT_INO in linux/proc_ns.h). In any other one, the kernel grants
/// BPF to no process.
const FIRST_USER_NAMESPACE: u64 = 0xeff_ffffd;

/// The capabilities that a balancer needs, with their names.
const RIGHTS: [(CapabilitySet, &str); 4] = [
    (CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN"),
    (CapabilitySet::NET_RAW, "CAP_NET_RAW"),
    (CapabilitySet::BPF, "CAP_BPF"),
    // The verifier accepts the program's pointer arithmetic only with this capability.
    (CapabilitySet::PERFMON, "CAP_PERFMON"),
];

/// Names of the capabilities that this thread lacks; all of them if its capabilities cannot be read.
pub(crate) fn lacking() -> Vec<&'static str> {
    let is_first = own_identity(Kind::User).is_ok_and(|(_, inode)| inode == FIRST_USER_NAMESPACE);
    if !is_first {
        return vec!["CAP_BPF and CAP_PERFMON outside of this user namespace"];
    }
    lacking_of(capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective))
}

fn lacking_of(held: CapabilitySet) -> Vec<&'static str> {
    // CAP_SYS_ADMIN includes the newer capabilities for BPF.
    let is_of_bpf = |right| right == CapabilitySet::BPF || right == CapabilitySet::PERFMON;
    let has = |right| held.contains(right) || is_of_bpf(right) && held.contains(CapabilitySet::SYS_ADMIN);
    RIGHTS.iter().filter(|(right, _)| !has(*right)).map(|(_, name)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lacking_is_named() {
        assert_eq!(lacking_of(CapabilitySet::NET_ADMIN | CapabilitySet::BPF), ["CAP_NET_RAW", "CAP_PERFMON"]);
        let old = CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW | CapabilitySet::SYS_ADMIN;
        assert_eq!(lacking_of(old), [""; 0]);
    }
}
