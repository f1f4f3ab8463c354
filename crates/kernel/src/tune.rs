//! Settings of the kernel: their effects, wrong values, the values in profiles, and changes.

mod apply;
mod file;
mod profiles;
mod table;

use std::{
    num::ParseIntError,
    path::{Path, PathBuf},
};

pub use apply::{Applied, apply, apply_in, refusal};
pub use file::{Line, parse};
pub use profiles::{LongPath, PROFILES, Profile, Wanted, sys_looks_own};
use record::Counters;
use serde::Serialize;
pub use table::{KNOWN, Known};
use table::{Rule, Scope};

use crate::{
    counters::{of_machine, of_network, read_own},
    sysctl_path,
};

/// The kind of a setting's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// The kernel has removed the setting, or never had it.
    Obsolete,
    /// The value assumes another unit than the kernel's.
    WrongUnit,
    /// The setting has no effect on this machine.
    NoEffect,
    /// The setting does not have the effect that is commonly expected of it.
    Misunderstood,
    /// The value is harmful.
    Harmful,
    /// The text does not have the form of a setting.
    Malformed,
}

/// A fault of a setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Kind of the fault.
    pub kind: FaultKind,
    /// The reason.
    pub reason: String,
}

/// The properties of a machine that decide which values are wrong.
pub struct Machine<'a> {
    /// Memory in pages.
    pub memory_pages: u64,
    /// Whether this is the machine's own network namespace.
    pub is_initial: bool,
    /// Whether at least one interface has a queue.
    pub has_queue: bool,
    /// The kernel's counters since the boot.
    pub counters: Counters,
    /// Whether `/sys` shows this network namespace.
    pub sys_is_own: fn() -> bool,
    /// Reads the current value of a setting; none if this network namespace does not have it.
    pub read: &'a dyn Fn(&str) -> Option<String>,
}

impl Machine<'static> {
    /// This machine and the network namespace of the calling thread.
    pub fn own() -> Self {
        let mut counters = of_network(&read_own);
        counters.values.extend(of_machine(&read_own).values);
        let memory = crate::read("/proc/meminfo").unwrap_or_default();
        let memory_kib = crate::number(&memory, "MemTotal:").unwrap_or(u64::MAX);
        let has_queue = |name: &String| Path::new("/sys/class/net").join(name).join("device").exists();
        Self {
            memory_pages: memory_kib / (rustix::param::page_size() as u64 / 1024),
            // Only the initial network namespace has this setting.
            is_initial: sysctl_path("net.core.netdev_max_backlog").exists(),
            has_queue: interfaces().iter().any(has_queue),
            counters,
            sys_is_own: undo::sys_is_own,
            read: &present,
        }
    }
}

/// The setting of this name, if it is known.
pub fn known(name: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.name == name)
}

/// The faults of a setting's value. `others` contains the new values of other settings.
pub fn faults(
    name: &str,
    value: &str,
    machine: &Machine<'_>,
    others: &dyn Fn(&str) -> Option<String>,
) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut add = |kind, reason: String| faults.push(Fault { kind, reason });
    // A pattern stands for several settings. The table contains no patterns.
    if name.contains('*') {
        return faults;
    }
    let is_missing = || (machine.read)(name).is_none();
    let Some(Known { scope, rule, remark, .. }) = known(name).copied() else {
        if is_missing() {
            let reason = "this network namespace does not have it: its name is misspelt, its module is not loaded, or it \
                          belongs to the whole machine";
            add(FaultKind::NoEffect, reason.to_owned());
        }
        return faults;
    };
    if rule == Rule::Obsolete {
        add(FaultKind::Obsolete, remark.to_owned());
        return faults;
    }
    if scope == Scope::Machine && !machine.is_initial {
        let reason = "it belongs to the whole machine, and a separate network namespace does not have it";
        add(FaultKind::NoEffect, reason.to_owned());
    } else if is_missing() {
        add(
            FaultKind::NoEffect,
            "this kernel does not have it; it may belong to a module that is not loaded".to_owned(),
        );
    }
    if matches!(rule, Rule::Word | Rule::WithQueue) {
        if rule == Rule::WithQueue && !machine.has_queue {
            add(FaultKind::NoEffect, format!("no interface here has a queue; {remark}"));
        }
        return faults;
    }
    let numbers: Result<Vec<u64>, _> = value.split_whitespace().map(number).collect();
    let Some((numbers, &last)) = numbers.as_ref().ok().and_then(|numbers| Some((numbers, numbers.last()?)))
    else {
        add(FaultKind::Malformed, format!("'{value}' is not a number"));
        return faults;
    };
    if matches!(rule, Rule::Rising | Rule::Pages) && !numbers.is_sorted() {
        add(FaultKind::Harmful, format!("the numbers of '{value}' must rise: {remark}"));
    }
    match rule {
        Rule::AtLeast(least) if last < least => add(FaultKind::Harmful, remark.to_owned()),
        Rule::AtMost(most) if last > most => add(FaultKind::Harmful, format!("more than {most}: {remark}")),
        Rule::NotLowered => {
            let floor = machine.own_number(name);
            if last < floor {
                add(FaultKind::Harmful, format!("less than the {floor} of this machine: {remark}"));
            }
        }
        Rule::Pages if last > machine.memory_pages / 4 => add(
            FaultKind::WrongUnit,
            format!(
                "{last} pages are more than a quarter of the memory of {} pages, so this limits nothing: {remark}",
                machine.memory_pages
            ),
        ),
        Rule::Misunderstood(usual) if last != usual => add(FaultKind::Misunderstood, remark.to_owned()),
        Rule::WithoutSyncookies if others("net.ipv4.tcp_syncookies").is_some_and(|value| value != "0") => {
            add(FaultKind::NoEffect, remark.to_owned());
        }
        _ => {}
    }
    faults
}

/// A number in the forms that the kernel accepts: decimal, or hexadecimal after `0x`.
fn number(text: &str) -> Result<u64, ParseIntError> {
    text.strip_prefix("0x").map_or_else(|| text.parse(), |digits| u64::from_str_radix(digits, 16))
}

/// The counter whose rise justifies changing a setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Justification {
    /// Its name.
    pub counter: &'static str,
    /// Its current value; none if the kernel does not count it.
    pub now: Option<u64>,
}

impl Machine<'_> {
    /// The counter that justifies the change of a setting; none if the kernel has no such counter.
    pub fn justification(&self, name: &str) -> Option<Justification> {
        let counter = known(name)?.counter;
        (!counter.is_empty()).then(|| Justification { counter, now: self.counters.get(counter) })
    }

    /// The number that the kernel chose for a setting by the machine's size: the current value, or the default if the
    /// value was lowered.
    fn own_number(&self, name: &str) -> u64 {
        let number = |name| (self.read)(name)?.split_whitespace().last()?.parse::<i64>().ok();
        // tcp_init() in net/ipv4/tcp.c: half of the entries of the connection hash table. A namespace shows this number
        // as negative.
        let of_table = name.starts_with("net.ipv4.tcp_max_");
        let of_table = of_table.then(|| Some(number("net.ipv4.tcp_ehash_entries")?.unsigned_abs() / 2));
        let present = number(name).map_or(0, |present| present.max(0) as u64);
        present.max(of_table.flatten().unwrap_or(0))
    }
}

/// The file of a setting: a sysctl such as `net.ipv4.tcp_rmem`, or an interface's `eth0.txqueuelen` or
/// `eth0.rx-0.rps_cpus`. None if this cannot be the name of a setting.
pub(crate) fn path_of(name: &str) -> Option<PathBuf> {
    let interface = |name: &str| Path::new("/sys/class/net").join(name);
    let path = if let Some(name) = name.strip_suffix(".txqueuelen") {
        interface(name).join("tx_queue_len")
    } else if let Some((name, queue)) = name.strip_suffix(".rps_cpus").and_then(|name| name.rsplit_once('.'))
    {
        interface(name).join("queues").join(queue).join("rps_cpus")
    } else {
        sysctl_path(name)
    };
    let is_plain = path.to_str()?.split('/').skip(1).all(|part| !matches!(part, "" | "." | ".."));
    (is_plain && path.iter().count() > 4).then_some(path)
}

/// The name of a file's setting, in the form that [`path_of`] accepts.
pub fn name_of(path: &Path) -> String {
    let parts = |path: &Path| -> Vec<String> {
        path.iter().map(|part| part.to_string_lossy().into_owned()).collect()
    };
    if let Ok(inside) = path.strip_prefix("/proc/sys") {
        return parts(inside).into_iter().map(|part| part.replace('.', "/")).collect::<Vec<_>>().join(".");
    }
    let inside = parts(path.strip_prefix("/sys/class/net").unwrap_or(path));
    match &inside[..] {
        [interface, _] => format!("{interface}.txqueuelen"),
        [interface, _, queue, _] => format!("{interface}.{queue}.rps_cpus"),
        _ => path.display().to_string(),
    }
}

/// The current value of a setting, with single blanks between its parts; none if it cannot be read.
pub fn present(name: &str) -> Option<String> {
    let text = crate::read(path_of(name)?).ok()?;
    Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// The network interfaces that `/sys` shows.
pub(crate) fn interfaces() -> Vec<String> {
    crate::names("/sys/class/net")
}

#[cfg(test)]
mod tests;
