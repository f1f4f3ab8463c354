//! Processes of this machine.

use std::fs;

/// A process and its descendants, except those that a thread other than its parent's first one has started.
pub(crate) fn with_descendants(pid: u32) -> Vec<u32> {
    let (mut pids, mut at) = (vec![pid], 0);
    while let Some(&pid) = pids.get(at) {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        pids.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        at += 1;
    }
    pids
}
