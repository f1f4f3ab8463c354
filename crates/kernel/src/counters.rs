//! The kernel's counters, by name, of a network namespace and of the machine.
//!
//! Counters have the kernel's names where these exist, such as `TcpExt.ListenOverflows`; other names end in their unit.
//! Counters that this version does not know are kept. Files that cannot be read are listed by name.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use record::Counters;

use crate::programs::TICK_NS;

/// Length of a tick of `/proc/stat`, in milliseconds.
const TICK_MS: u64 = TICK_NS / 1_000_000;

/// Reads a file below `/proc`, of this machine or of a saved copy. `net/…` stands for the files of one network
/// namespace.
pub type ReadFile<'a> = &'a dyn Fn(&str) -> io::Result<String>;

type Values = BTreeMap<String, u64>;
/// Parses a file; `None` if it does not have the expected form.
type Parse = fn(&str, &mut Values) -> Option<()>;

const NETWORK: [(&str, Parse); 7] = [
    ("net/snmp", tables),
    ("net/netstat", tables),
    ("net/dev", interfaces),
    ("net/sockstat", sockets),
    ("net/stat/nf_conntrack", conntrack_events),
    ("sys/net/netfilter/nf_conntrack_count", |text, values| number("conntrack.entries", text, values)),
    ("sys/net/netfilter/nf_conntrack_max", |text, values| number("conntrack.max_entries", text, values)),
];

/// Number of files, from the first one, that are read each second. With 30 hosts, each further file costs about a
/// thousandth of a processor.
const READ_EACH_SECOND: usize = 3;

const MACHINE: [(&str, Parse); 6] = [
    ("stat", processors),
    ("net/softnet_stat", softnet),
    ("pressure/cpu", |text, values| pressure("cpu", text, values)),
    ("pressure/io", |text, values| pressure("io", text, values)),
    ("pressure/memory", |text, values| pressure("memory", text, values)),
    ("sys/fs/file-nr", open_files),
];

/// Names, or prefixes of names, of values that rise and fall. All other values only rise.
const LEVELS: [&str; 10] = [
    "Ip.Forwarding",
    "Ip.DefaultTTL",
    "Tcp.RtoAlgorithm",
    "Tcp.RtoM",
    "Tcp.MaxConn",
    "Tcp.CurrEstab",
    "sockstat.",
    "files.",
    "conntrack.entries",
    "conntrack.max_entries",
];
/// The suffix of the names of ring sizes, which rise and fall too.
pub(crate) const RING: &str = "_ring_packets";

/// Reads the counters of a network namespace.
pub fn of_network(read: ReadFile<'_>) -> Counters {
    parse(&NETWORK, read)
}

/// Reads those counters of a network namespace that are needed each second. `read` returns an empty text for an
/// unchanged file. If the first file is unchanged, no packet was sent or received, and the other files are not read.
pub(crate) fn of_network_in_brief(read: ReadFile<'_>) -> Counters {
    let mut counters = Counters::default();
    for (at, file) in NETWORK[..READ_EACH_SECOND].iter().enumerate() {
        let text = read(file.0);
        if at == 0 && text.as_ref().is_ok_and(String::is_empty) {
            break;
        }
        add(&mut counters, file, text);
    }
    counters
}

/// Reads the counters that all network namespaces of a machine share: processors, their packet queues, pressure.
pub fn of_machine(read: ReadFile<'_>) -> Counters {
    parse(&MACHINE, read)
}

/// The names of the files with the counters of a network namespace.
pub(crate) fn network_files() -> impl Iterator<Item = &'static str> {
    NETWORK.iter().map(|(name, _)| *name)
}

/// The names of the files with the counters of the machine.
pub(crate) fn machine_files() -> impl Iterator<Item = &'static str> {
    MACHINE.iter().map(|(name, _)| *name)
}

fn parse(files: &[(&str, Parse)], read: ReadFile<'_>) -> Counters {
    let mut counters = Counters::default();
    files.iter().for_each(|file| add(&mut counters, file, read(file.0)));
    counters
}

fn add(counters: &mut Counters, (name, parse): &(&str, Parse), text: io::Result<String>) {
    let unknown = || io::Error::other("its format is unknown");
    let parsed = text.and_then(|text| parse(&text, &mut counters.values).ok_or_else(unknown));
    if let Err(error) = parsed {
        counters.missing.insert((*name).to_owned(), error.to_string());
    }
}

/// Prefixes of counters that only rise and are sums of 32-bit numbers, one per processor.
const OF_32_BITS: [&str; 2] = ["softnet.", "conntrack."];

/// The changes since `before`: the difference for counters that only rise, the later value for those that rise and
/// fall. A counter that is missing in `before` started at 0, for example that of a new interface. If an interface's
/// counter fell, another interface has taken its name, and the later value counts. Any other counter that fell, for
/// example because a processor was removed, counts as unchanged, because its later value may have grown over months.
pub fn since(mut now: Counters, before: &Counters) -> Counters {
    for (name, value) in &mut now.values {
        *value = change(name, before.get(name), *value);
    }
    now.missing.extend(before.missing.clone());
    now
}

/// The change of one counter by the rules of [`since`].
pub(crate) fn change(name: &str, was: Option<u64>, now: u64) -> u64 {
    let Some(was) = was.filter(|_| !is_level(name)) else { return now };
    let fell_by = was.saturating_sub(now);
    if name.starts_with("interface.") && fell_by > 0 {
        return now;
    }
    let has_wrapped = fell_by > 1 << 31 && OF_32_BITS.iter().any(|begin| name.starts_with(begin));
    (now + if has_wrapped { 1 << 32 } else { 0 }).saturating_sub(was)
}

/// Whether a counter's value rises and falls.
pub(crate) fn is_level(name: &str) -> bool {
    LEVELS.iter().any(|level| name.starts_with(level)) || name.ends_with(RING)
}

/// Reads a file of this machine; `net/…` stands for the files of the calling thread's network namespace.
///
/// # Errors
/// If it cannot be read.
pub fn read_own(name: &str) -> io::Result<String> {
    crate::read(own_path(name))
}

/// The path of a file of this machine from the calling thread's view.
pub(crate) fn own_path(name: &str) -> PathBuf {
    Path::new(if name.starts_with("net/") { "/proc/thread-self" } else { "/proc" }).join(name)
}

/// Parses alternating lines of names and of their values, both after the same prefix.
fn tables(text: &str, values: &mut Values) -> Option<()> {
    let mut lines = text.lines();
    while let Some((prefix, names)) = lines.next().and_then(|line| line.split_once(": ")) {
        let numbers = lines.next()?.strip_prefix(prefix)?.strip_prefix(": ")?;
        for (name, number) in names.split_whitespace().zip(numbers.split_whitespace()) {
            // Tcp.MaxConn is -1 for "no limit", which does not parse and is left out.
            if let Ok(number) = number.parse() {
                values.insert(format!("{prefix}.{name}"), number);
            }
        }
    }
    Some(())
}

/// Parses `TCP: inuse 5 orphan 0 tw 0 alloc 7 mem 1`.
fn sockets(text: &str, values: &mut Values) -> Option<()> {
    for line in text.lines() {
        let (protocol, fields) = line.split_once(": ")?;
        let mut fields = fields.split_whitespace();
        while let (Some(name), Some(number)) = (fields.next(), fields.next()) {
            values.insert(format!("sockstat.{protocol}.{name}"), number.parse().ok()?);
        }
    }
    Some(())
}

/// Parses two lines of headings, then `name: ` and 16 numbers per line.
fn interfaces(text: &str, values: &mut Values) -> Option<()> {
    const FIELDS: [(usize, &str); 8] = [
        (0, "received_bytes"),
        (1, "received_packets"),
        (2, "receive_errors"),
        (3, "receive_drops"),
        (8, "sent_bytes"),
        (9, "sent_packets"),
        (10, "send_errors"),
        (11, "send_drops"),
    ];
    for line in text.lines().skip(2) {
        let (name, numbers) = line.trim_start().split_once(':')?;
        let numbers: Vec<u64> = numbers.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
        for (index, field) in FIELDS {
            values.insert(format!("interface.{name}.{field}"), *numbers.get(index)?);
        }
    }
    Some(())
}

/// Parses a line of names and then a line of hexadecimal numbers for each processor. Leaves out the number of entries,
/// which every line repeats.
fn conntrack_events(text: &str, values: &mut Values) -> Option<()> {
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next()?.split_whitespace().collect();
    for line in lines {
        for (name, number) in
            names.iter().zip(line.split_whitespace()).filter(|(name, _)| **name != "entries")
        {
            *values.entry(format!("conntrack.{name}")).or_default() +=
                u64::from_str_radix(number, 16).ok()?;
        }
    }
    Some(())
}

fn number(name: &str, text: &str, values: &mut Values) -> Option<()> {
    values.insert(name.to_owned(), text.trim().parse().ok()?);
    Some(())
}

/// Parses the times of each processor. The kernel counts idle time exactly but only samples busy time. For exact busy
/// time, subtract the idle time from the elapsed time.
pub(crate) fn processors(text: &str, values: &mut BTreeMap<String, u64>) -> Option<()> {
    // Fields, proc_stat(5): user nice system idle iowait irq softirq steal. Nice counts as busy, iowait as idle.
    const FIELDS: [(&[usize], &str); 6] = [
        (&[0, 1], "user_ms"),
        (&[2], "system_ms"),
        (&[5], "interrupt_ms"),
        (&[6], "softirq_ms"),
        (&[7], "steal_ms"),
        (&[3, 4], "idle_ms"),
    ];
    for line in text.lines() {
        let Some((name, ticks)) = line.split_once(' ') else { continue };
        let Some(number) = name.strip_prefix("cpu").and_then(|number| number.parse::<u32>().ok()) else {
            continue;
        };
        let ticks: Vec<u64> = ticks.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
        for (indices, field) in FIELDS {
            let ticks = indices.iter().map(|index| ticks.get(*index)).sum::<Option<u64>>()?;
            values.insert(format!("cpu{number}.{field}"), ticks * TICK_MS);
        }
    }
    Some(())
}

/// Parses a line of hexadecimal numbers for each processor: packets, drops at a full queue, number of times that the
/// budget was used up, ….
fn softnet(text: &str, values: &mut Values) -> Option<()> {
    for line in text.lines() {
        let numbers: Vec<u64> = line
            .split_whitespace()
            .map(|word| u64::from_str_radix(word, 16))
            .collect::<Result<_, _>>()
            .ok()?;
        for (index, field) in ["packets", "drops", "squeezes"].into_iter().enumerate() {
            *values.entry(format!("softnet.{field}")).or_default() += *numbers.get(index)?;
        }
    }
    Some(())
}

/// Parses `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`, then the same for `full`.
fn pressure(what: &str, text: &str, values: &mut Values) -> Option<()> {
    for line in text.lines() {
        let (share, total_us) = (line.split(' ').next()?, line.rsplit_once("total=")?.1);
        values.insert(format!("pressure.{what}.{share}_us"), total_us.parse().ok()?);
    }
    Some(())
}

/// Parses the numbers of open files, of unused files and of files allowed.
fn open_files(text: &str, values: &mut Values) -> Option<()> {
    let mut numbers = text.split_whitespace();
    values.insert("files.open".to_owned(), numbers.next()?.parse().ok()?);
    values.insert("files.max".to_owned(), numbers.nth(1)?.parse().ok()?);
    Some(())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn this_machine_has_what_verdicts_need() {
        let network = of_network(&read_own);
        for name in
            ["Tcp.RetransSegs", "TcpExt.ListenOverflows", "TcpExt.TCPReqQFullDrop", "sockstat.TCP.inuse"]
        {
            assert!(network.get(name).is_some(), "{name}: {network:?}");
        }
        let machine = of_machine(&read_own);
        for name in ["cpu0.idle_ms", "softnet.drops", "files.open"] {
            assert!(machine.get(name).is_some(), "{name}: {machine:?}");
        }
    }

    #[test]
    fn the_times_of_a_processor_are_summed_as_work_or_no_work() {
        let mut values = Values::new();
        processors("cpu  9 9 9 9 9 9 9 9\ncpu4 1 2 3 4 5 6 7 8 9 10\nintr 5\n", &mut values).unwrap();
        let of = |what: &str| values[&format!("cpu4.{what}_ms")];
        let all = ["user", "system", "idle", "interrupt", "softirq", "steal"].map(of);
        assert_eq!(all, [30, 30, 90, 60, 70, 80]);
    }

    #[test]
    fn changes_are_differences_of_what_only_rises() {
        let at = |values: &[(&str, u64)]| Counters {
            values: values.iter().map(|&(name, value)| (name.to_owned(), value)).collect(),
            ..Counters::default()
        };
        let before = at(&[("Tcp.InSegs", 5), ("Tcp.CurrEstab", 9), ("interface.a.sent_bytes", 70)]);
        let now = at(&[("Tcp.InSegs", 8), ("Tcp.CurrEstab", 4), ("interface.a.sent_bytes", 20), ("new", 3)]);
        let change =
            at(&[("Tcp.InSegs", 3), ("Tcp.CurrEstab", 4), ("interface.a.sent_bytes", 20), ("new", 3)]);
        assert_eq!(since(now, &before), change);
    }

    #[test]
    fn what_only_rises_and_fell_has_not_changed_unless_it_is_another() {
        for (name, was, now, expected) in [
            ("cpu0.idle_ms", 90_000_010, 90_000_000, 0),
            ("cgroup.throttled_us", 5_000_000, 4_000_000, 0),
            ("softnet.drops", 900, 600, 0),
            ("softnet.packets", (1 << 32) + 2, 5, 3),
            ("interface.a.sent_bytes", 70, 20, 20),
            ("softnet.packets", 5, 9, 4),
        ] {
            assert_eq!(change(name, Some(was), now), expected, "{name}");
        }
    }

    #[test]
    fn files_that_cannot_be_used_are_named() {
        let read = |name: &str| match name {
            "net/snmp" => Ok("Tcp: A B\nTcp: 1 -1\nNew: C\nNew: 3\n".to_owned()),
            "net/netstat" => Ok("TcpExt: A\nUdp: 1\n".to_owned()),
            _ => Err(io::Error::other("not here")),
        };
        let counters = of_network(&read);
        let values = [("New.C".to_owned(), 3), ("Tcp.A".to_owned(), 1)];
        assert_eq!(counters.values, Values::from(values));
        assert_eq!(counters.missing["net/netstat"], "its format is unknown");
        assert_eq!(counters.missing["net/dev"], "not here");
        assert_eq!(counters.missing.len(), NETWORK.len() - 1);
    }

    #[test]
    fn where_no_packet_has_passed_nothing_else_is_read() {
        for (snmp, files) in [("", 1), ("Tcp: A\nTcp: 1\n", READ_EACH_SECOND)] {
            let asked = RefCell::new(Vec::new());
            let counters = of_network_in_brief(&|name| {
                asked.borrow_mut().push(name.to_owned());
                Ok(if name == "net/snmp" { snmp.to_owned() } else { String::new() })
            });
            assert_eq!(asked.take(), NETWORK[..files].iter().map(|(name, _)| *name).collect::<Vec<_>>());
            assert_eq!(counters.values.is_empty(), snmp.is_empty());
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_a_parser_fail(text: String, lines in "((some|Tcp:|cpu1|[a-z]+) ?[0-9a-f:= -]{0,30}\n){0,6}") {
            for (_, parse) in NETWORK.iter().chain(&MACHINE) {
                for text in [&text, &lines] {
                    let _ = parse(text, &mut Values::new());
                }
            }
        }
    }
}
