//! Profiles: the values that settings should have for a purpose, with the reasons.

use std::collections::BTreeSet;

use serde::Serialize;

use super::{Justification, Machine, interfaces, known, path_of, table::Scope};
use crate::{netlink::Netlink, sysctl_path};

/// A path through a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LongPath {
    /// Rate, in bits per second.
    pub rate_bits_per_s: u64,
    /// Round-trip time, in nanoseconds.
    pub rtt_ns: u64,
}

impl LongPath {
    /// Bandwidth-delay product: the bytes in flight when the path is full.
    pub fn bdp_bytes(self) -> u64 {
        (u128::from(self.rate_bits_per_s) * u128::from(self.rtt_ns) / 8_000_000_000) as u64
    }
}

/// A condition for the value of a setting.
#[derive(Debug, Clone, Copy)]
enum Value<'a> {
    Is(&'a str),
    AtLeast(u64),
    AtMost(u64),
    /// The last of its numbers is at least twice the path's bandwidth-delay product: a buffer holds the data in flight
    /// and the data that the other end has not acknowledged yet.
    TwoBdp,
    /// At least this many packets, on every interface that is up, except lo.
    QueueAtLeast(u64),
    /// All processors, on every interface that is up and has fewer receive queues than there are processors, except lo.
    AllProcessors,
}

/// A setting, its value in a profile, and the reason.
struct Want(&'static str, Value<'static>, &'static str);

/// The values that settings should have for a purpose.
pub struct Profile {
    /// Its name.
    pub name: &'static str,
    /// Its purpose, in words.
    pub purpose: &'static str,
    /// Default path for the size of buffers; none if the profile has no default or no buffers.
    pub path: Option<LongPath>,
    wants: &'static [&'static [Want]],
}

/// A setting with its current value and the one in the profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Wanted {
    /// The setting.
    pub name: String,
    /// Its current value; none if this network namespace does not have the setting.
    pub now: Option<String>,
    /// The value in the profile, in words.
    pub wants: String,
    /// The reason.
    pub why: &'static str,
    /// The counter that justifies the change; none if the kernel has no such counter.
    pub justification: Option<Justification>,
    /// The value to write; none if the current value is right or the setting is not applied here.
    pub to_write: Option<String>,
    /// Reason why the setting is not applied here; none if it is.
    pub not_applied: Option<&'static str>,
    /// Whether `/sys` may show the interfaces of another network namespace, so that the current value is unknown.
    pub is_unseen: bool,
}

macro_rules! wants {
    ($($group:ident { $($name:literal, $value:expr, $why:literal;)* })*) => {
        $(const $group: &[Want] = &[$(Want($name, $value, $why)),*];)*
    };
}

wants! {
    CONNECTING {
        "net.ipv4.ip_local_port_range", Value::Is("10240 65535"),
            "55,296 source ports for each remote address, above the ports on which most services listen";
        "net.ipv4.tcp_tw_reuse", Value::Is("1"),
            "the connecting side may use a port again after a second in TIME_WAIT";
        "net.ipv4.tcp_timestamps", Value::Is("1"), "without them, tcp_tw_reuse does nothing";
    }
    LISTENING {
        "net.core.somaxconn", Value::AtLeast(65_535),
            "lets a program have an accept queue for many connections at once";
        "net.ipv4.tcp_syncookies", Value::Is("1"),
            "a full SYN queue still answers, with cookies, and TcpExt.TCPReqQFullDoCookies counts this";
        "net.ipv4.tcp_abort_on_overflow", Value::Is("0"), "a client may try again at a full accept queue";
    }
    MANY {
        "net.ipv4.tcp_max_tw_buckets", Value::AtLeast(1_000_000),
            "a million closed connections may wait for late packets";
        "net.netfilter.nf_conntrack_max", Value::AtLeast(1_048_576),
            "if connections are tracked, a million of them have room";
        "net.core.netdev_max_backlog", Value::AtLeast(10_000),
            "bursts on veth, lo and RPS find room for 10 ms at a million packets a second";
        "fs.file-max", Value::AtLeast(2_000_000), "each connection is an open file";
        "vm.swappiness", Value::AtMost(10), "programs stay in memory";
    }
    LONG_FAT {
        "net.ipv4.tcp_rmem", Value::TwoBdp, "the receiver's window may cover the path";
        "net.ipv4.tcp_wmem", Value::TwoBdp, "the sender may keep all unacknowledged data";
        "net.core.rmem_max", Value::TwoBdp, "programs that set their own receive buffer may cover the path";
        "net.core.wmem_max", Value::TwoBdp, "programs that set their own send buffer may cover the path";
        "net.ipv4.tcp_window_scaling", Value::Is("1"), "windows above 64 KiB";
        "net.ipv4.tcp_moderate_rcvbuf", Value::Is("1"), "the receive buffer grows by itself";
        "net.ipv4.tcp_sack", Value::Is("1"), "losses in one window are repaired in one round trip";
        "net.ipv4.tcp_timestamps", Value::Is("1"), "sequence numbers wrap within seconds at high rates";
        "net.ipv4.tcp_slow_start_after_idle", Value::Is("0"), "a pause does not cost the window";
        "net.ipv4.tcp_no_metrics_save", Value::Is("1"),
            "a trial does not begin with the metrics of an earlier one";
    }
    SPREAD {
        "rps_cpus", Value::AllProcessors,
            "one receive queue is served by one processor; RPS spreads its connections over all";
        "txqueuelen", Value::QueueAtLeast(10_000), "answers of many servers in one burst are not dropped";
        "kernel.numa_balancing", Value::Is("0"), "threads do not pause while memory moves";
    }
}

/// All profiles.
pub static PROFILES: &[Profile] = &[
    Profile {
        name: "listen-many",
        purpose: "a program that listens to very many connections",
        path: None,
        wants: &[LISTENING, MANY],
    },
    Profile {
        name: "long-fat",
        purpose: "few connections over a path of high rate and long delay; give --rate and --rtt",
        path: None,
        wants: &[LONG_FAT],
    },
    Profile {
        name: "http-listener",
        purpose: "users that open a connection for each post, on one machine",
        path: None,
        wants: &[LISTENING, CONNECTING],
    },
    Profile {
        name: "ocean-copy",
        purpose: "secure copy over 1 Gbit/s and 228 ms, unless --rate and --rtt say otherwise",
        path: Some(LongPath { rate_bits_per_s: 1_000_000_000, rtt_ns: 228_000_000 }),
        wants: &[LONG_FAT],
    },
    Profile {
        name: "l2dsr-vs-proxy",
        purpose: "200,000 connections through a balancer",
        path: None,
        wants: &[LISTENING, CONNECTING, MANY, SPREAD],
    },
    Profile {
        name: "max-rps",
        purpose: "the highest rate of a small service, on one machine",
        path: None,
        wants: &[
            LISTENING,
            CONNECTING,
            &[Want("fs.file-max", Value::AtLeast(2_000_000), "each connection is an open file")],
        ],
    },
];

impl Profile {
    /// The profile of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        PROFILES.iter().find(|profile| profile.name == name)
    }

    /// Whether the profile contains buffers whose size depends on a path.
    pub fn needs_path(&self) -> bool {
        self.wants.iter().copied().flatten().any(|want| matches!(want.1, Value::TwoBdp))
    }

    /// The settings of the profile with their values on this machine. `path` must be given if the profile needs one.
    /// The check whether `/sys` shows this network namespace is made only if it matters.
    pub fn wanted(&self, path: Option<LongPath>, machine: &Machine<'_>) -> Vec<Wanted> {
        let mut all = Vec::new();
        let two_bdp = path.map_or(0, |path| path.bdp_bytes() * 2);
        for Want(name, value, why) in self.wants.iter().copied().flatten() {
            match value {
                Value::QueueAtLeast(_) | Value::AllProcessors => {
                    let is_shown = (machine.sys_is_own)();
                    for name in interface_settings(*value) {
                        all.push(wanted(&name, *value, why, two_bdp, machine, is_shown));
                    }
                }
                _ => all.push(wanted(name, *value, why, two_bdp, machine, true)),
            }
        }
        all
    }
}

impl Wanted {
    /// A value that the user requests.
    pub fn asked(name: &str, value: &str, machine: &Machine<'_>) -> Self {
        let is_shown = sysctl_path(name).exists() || (machine.sys_is_own)();
        wanted(name, Value::Is(value), "asked for", 0, machine, is_shown)
    }
}

fn wanted(
    name: &str,
    value: Value<'_>,
    why: &'static str,
    two_bdp: u64,
    machine: &Machine<'_>,
    is_shown: bool,
) -> Wanted {
    let now = (machine.read)(name).filter(|_| is_shown);
    let last = |now: &str| now.split(' ').next_back()?.parse::<u64>().ok();
    let with_last = |now: &str, number: u64| match now.rsplit_once(' ') {
        Some((before, _)) => format!("{before} {number}"),
        None => number.to_string(),
    };
    let at_least = |number: u64| {
        let too_small = now.as_deref().filter(|now| last(now).is_none_or(|last| last < number));
        too_small.map(|now| with_last(now, number))
    };
    let is = |text: &str| now.as_deref().filter(|now| !is_same_value(now, text)).map(|_| text.to_owned());
    let (wants, to_write) = match value {
        Value::Is(text) => (text.to_owned(), is(text)),
        Value::AtLeast(number) | Value::QueueAtLeast(number) => {
            (format!("at least {number}"), at_least(number))
        }
        Value::AtMost(number) => {
            let is_above = now.as_deref().and_then(last).is_some_and(|last| last > number);
            (format!("at most {number}"), is_above.then(|| number.to_string()))
        }
        Value::TwoBdp => {
            (format!("at least {two_bdp}, twice the bandwidth-delay product"), at_least(two_bdp))
        }
        Value::AllProcessors => {
            let mask = mask(&processors());
            (format!("{mask}, all processors"), is(&mask))
        }
    };
    let is_elsewhere = known(name).is_some_and(|known| known.scope == Scope::Machine) && !machine.is_initial;
    let not_applied = match &now {
        _ if is_elsewhere => {
            Some("it belongs to the whole machine, and this is a network namespace of its own")
        }
        _ if !is_shown => Some(
            "/sys may show another network namespace's interfaces; run this as root where it does not, as under ip netns exec",
        ),
        None => Some("this kernel does not have it, or has not loaded its module"),
        Some(_) => None,
    };
    let to_write = to_write.filter(|_| not_applied.is_none());
    let justification = machine.justification(name);
    let is_unseen = !is_shown && !is_elsewhere;
    Wanted { name: name.to_owned(), now, wants, why, justification, to_write, not_applied, is_unseen }
}

/// Whether the interfaces in `/sys` have the names, indexes and addresses of those in this network namespace. Every
/// user can check this. It is no proof, but it suffices for reading.
pub fn sys_looks_own() -> bool {
    let shown = |name: &str, what: &str| {
        crate::read(format!("/sys/class/net/{name}/{what}")).map(|text| text.trim().to_owned()).ok()
    };
    let links = Netlink::open().and_then(|mut netlink| netlink.links()).unwrap_or_default();
    let is_same = |link: &crate::netlink::Link| {
        let mac = link.mac.map(|mac| mac.map(|byte| format!("{byte:02x}")).join(":"));
        shown(&link.name, "ifindex") == Some(link.index.to_string())
            && mac.is_none_or(|mac| shown(&link.name, "address") == Some(mac))
    };
    let all_shown = interfaces().into_iter().filter(|name| shown(name, "ifindex").is_some()).count();
    links.len() == all_shown && links.iter().all(is_same)
}

/// The settings of interfaces to which a value applies.
fn interface_settings(value: Value<'_>) -> Vec<String> {
    let processors = processors().len();
    let queues = |interface: &String| {
        let mut names = crate::names(format!("/sys/class/net/{interface}/queues"));
        names.retain(|name| name.starts_with("rx-"));
        names
    };
    let is_up = |interface: &String| {
        let state = crate::read(format!("/sys/class/net/{interface}/operstate")).unwrap_or_default();
        interface != "lo" && state.trim() != "down"
    };
    let of_interface = |interface: String| match value {
        Value::AllProcessors => {
            let queues = queues(&interface);
            let few = if queues.len() < processors { queues } else { Vec::new() };
            few.into_iter().map(|queue| format!("{interface}.{queue}.rps_cpus")).collect()
        }
        _ => vec![format!("{interface}.txqueuelen")],
    };
    let names = interfaces().into_iter().filter(is_up).flat_map(of_interface);
    names.filter(|name| path_of(name).is_some_and(|path| path.exists())).collect()
}

/// The numbers of the online processors. There may be gaps between them.
fn processors() -> BTreeSet<u32> {
    let stat = crate::read("/proc/stat").unwrap_or_default();
    stat.lines().filter_map(|line| line.strip_prefix("cpu")?.split(' ').next()?.parse().ok()).collect()
}

/// A mask of processors in the kernel's form: groups of 32 bits, the highest first.
fn mask(processors: &BTreeSet<u32>) -> String {
    let last = processors.last().map_or(0, |last| last / 32);
    let bits = |group: u32| processors.iter().filter(move |number| *number / 32 == group);
    let group = |group: u32| format!("{:x}", bits(group).map(|number| 1_u32 << (number % 32)).sum::<u32>());
    (0..=last).rev().map(group).collect::<Vec<_>>().join(",")
}

/// Whether two values of a setting mean the same. Blanks and the leading zeros of masks do not matter.
pub(super) fn is_same_value(one: &str, other: &str) -> bool {
    let parts = |text: &str| -> Vec<String> {
        let words = text.split(|c: char| c.is_whitespace() || c == ',').filter(|word| !word.is_empty());
        let number = |word: &str| match word.trim_start_matches('0') {
            "" => "0".to_owned(),
            number => number.to_owned(),
        };
        words.map(number).collect()
    };
    parts(one) == parts(other)
}

#[cfg(test)]
mod tests;
