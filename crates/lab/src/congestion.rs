//! The congestion control algorithm of TCP in hosts.
//!
//! A namespace may choose only algorithms that the machine allows (`net.ipv4.tcp_allowed_congestion_control`,
//! ip-sysctl). The machine's list is extended only while the hosts choose: a choice stays valid when the list shrinks
//! again.

use std::{collections::BTreeSet, fs, io};

use rustix::fs::{FlockOperation, flock};
use undo::{Change, Journal};

use crate::{error::Error, plan::Plan};

/// The setting that chooses the algorithm.
pub(crate) const SETTING: &str = "net.ipv4.tcp_congestion_control";
/// The default algorithm of hosts, as on most users' machines.
pub(crate) const DEFAULT: &str = "cubic";
/// The setting that lists the algorithms that namespaces may choose.
pub(crate) const ALLOWED: &str = "net.ipv4.tcp_allowed_congestion_control";

const AVAILABLE: &str = "net.ipv4.tcp_available_congestion_control";

/// Runs `choose` while the machine allows the algorithms of all hosts. Without the right to change the list, leaves it
/// as it is.
pub(crate) fn while_allowed(
    plan: &Plan,
    journal: Option<&Journal>,
    choose: impl FnOnce() -> Result<(), Error>,
) -> Result<(), Error> {
    let path = kernel::sysctl_path(ALLOWED);
    let (Some(journal), Ok(list)) = (journal, fs::OpenOptions::new().write(true).open(&path)) else {
        return choose();
    };
    let failed = |cause: io::Error| Error::failed("choose the hosts' congestion control", cause);
    // The lock keeps labs that start at the same time from undoing each other's changes.
    flock(&list, FlockOperation::LockExclusive).map_err(|errno| failed(errno.into()))?;
    let read = |name| kernel::read(kernel::sysctl_path(name)).map_err(failed);
    let (allowed, available) = (read(ALLOWED)?, read(AVAILABLE)?);
    let has = |list: &str, word: &str| list.split_whitespace().any(|name| name == word);
    let chosen = plan.hosts.iter().map(|host| host.sysctls.get(SETTING).map_or(DEFAULT, String::as_str));
    let missing: BTreeSet<&str> =
        chosen.filter(|name| has(&available, name) && !has(&allowed, name)).collect();
    let mut added = Vec::new();
    for &word in &missing {
        added.push(journal.record(Change::Word { path: path.clone(), word: word.to_owned() })?);
    }
    if !missing.is_empty() {
        let words: Vec<&str> = allowed.split_whitespace().chain(missing).collect();
        fs::write(&path, words.join(" ")).map_err(failed)?;
    }
    let chosen = choose();
    added.into_iter().try_for_each(|entry| journal.undo(entry))?;
    chosen
}

/// The available algorithms, for an error message.
pub(crate) fn available() -> String {
    let list = kernel::read(kernel::sysctl_path(AVAILABLE)).unwrap_or_default();
    list.split_whitespace().collect::<Vec<_>>().join(", ")
}
