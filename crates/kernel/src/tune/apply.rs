//! Changes settings. The former value of each is first recorded in a journal.

use std::io;

use serde::Serialize;
use undo::{Change, Folder, Journal, Network, Setting};

use super::{known, name_of, path_of, profiles::is_same_value};
use crate::sysctl_path;

/// Kind of the journals of tunings.
const KIND: &str = "tuning";

/// A setting that was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Applied {
    /// Its name.
    pub name: String,
    /// Its value before.
    pub before: String,
    /// The written value.
    pub asked: String,
    /// The resulting value in the kernel.
    pub after: String,
}

impl Applied {
    /// Whether the kernel accepted the value without changing it.
    pub fn is_as_asked(&self) -> bool {
        is_same_value(&self.after, &self.asked)
    }
}

/// Writes settings, given as names and values, and leaves them changed. `folder` is the folder of tunings, which the
/// caller must have locked.
///
/// # Errors
/// If a setting cannot be recorded, written or read back. All settings have then been restored.
pub fn apply(settings: &[(String, String)], title: &str, folder: &Folder) -> Result<Vec<Applied>, String> {
    let journal = Journal::open(folder, KIND, title).map_err(|error| error.to_string())?;
    let applied = apply_in(&journal, settings)?;
    journal.keep();
    Ok(applied)
}

/// Writes settings, given as names and values, which are put back with the other changes of the journal.
///
/// # Errors
/// If a setting cannot be recorded, written or read back.
pub fn apply_in(journal: &Journal, settings: &[(String, String)]) -> Result<Vec<Applied>, String> {
    let network =
        Network::own().map_err(|error| format!("cannot determine the network namespace: {error}"))?;
    let mut recorded: Vec<Setting> = Vec::new();
    for name in with_coupled(settings) {
        let path = path_of(name).unwrap_or_default();
        let before = Setting::read(&path).map_err(|error| format!("cannot read {name}: {error}"))?;
        recorded.push(Setting { path, before, after: None, interface: None, network });
    }
    let message = |error: undo::Error| error.to_string();
    let entries = journal.record_all(recorded.iter().cloned().map(Change::Setting)).map_err(message)?;
    for (setting, (name, value)) in recorded.iter().zip(settings) {
        let failed = |error: io::Error| {
            let is_refused = error.kind() == io::ErrorKind::PermissionDenied;
            let advice = if is_refused { "; run this as root" } else { "" };
            format!("cannot write '{value}' to {name}: {error}; all settings were restored{advice}")
        };
        Setting::write(&setting.path, value).map_err(failed)?;
    }
    // Settings are read back only after all have been written, because the kernel may change one setting together with
    // another.
    let mut applied = Vec::new();
    for (at, setting) in recorded.iter_mut().enumerate() {
        let name = name_of(&setting.path);
        let after =
            Setting::read(&setting.path).map_err(|error| format!("cannot read {name} back: {error}"))?;
        setting.after = Some(after.clone());
        if let Some((_, asked)) = settings.get(at) {
            applied.push(Applied { name, before: setting.before.clone(), asked: asked.clone(), after });
        }
    }
    journal.revise(entries.into_iter().zip(recorded.into_iter().map(Change::Setting))).map_err(message)?;
    Ok(applied)
}

/// The kernel changes the second setting together with the first, and restoring the first does not undo that: once a
/// congestion control algorithm has been the default, every user may choose it (tcp_cong.c).
const CHANGED_WITH: (&str, &str) =
    ("net.ipv4.tcp_congestion_control", "net.ipv4.tcp_allowed_congestion_control");

/// The names of these settings, followed by those of settings that the kernel changes with them.
pub(super) fn with_coupled(settings: &[(String, String)]) -> impl Iterator<Item = &str> {
    let (cause, effect) = CHANGED_WITH;
    let has = |name: &str| settings.iter().any(|(setting, _)| setting == name);
    let coupled = (has(cause) && !has(effect) && sysctl_path(effect).exists()).then_some(effect);
    settings.iter().map(|(name, _)| name.as_str()).chain(coupled)
}

/// Reason why a setting must not be changed: it could not be restored exactly. None if it could.
pub fn refusal(name: &str) -> Option<String> {
    // Settings whose change also changes others (devinet.c, addrconf.c; vm.rst).
    const COUPLED: [&str; 4] = ["net.ipv4.ip_forward", "net.ipv6.conf.all.", "vm.dirty_", "vm.overcommit_"];
    let is_coupled = COUPLED.iter().any(|coupled| name.starts_with(coupled))
        || [".forwarding", ".disable_ipv6"].iter().any(|end| name.ends_with(end));
    if is_coupled {
        return Some(format!(
            "a change of {name} also changes other settings or addresses, which could not be restored exactly"
        ));
    }
    // A known setting that this kernel lacks is not refused but listed as not applied.
    let path = path_of(name).filter(|path| path.starts_with("/proc/sys/net") || path.starts_with("/sys"));
    match path {
        _ if known(name).is_some() => None,
        None => Some(format!(
            "'{name}' is not a setting that can be tuned, such as net.core.somaxconn or eth0.txqueuelen"
        )),
        Some(path) => {
            Setting::read(&path).err().map(|error| format!("cannot read {name}: {error}; check its name"))
        }
    }
}
