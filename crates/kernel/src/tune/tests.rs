use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{profiles::is_same_value, *};
use crate::counters::{of_machine, of_network, read_own};

/// The settings of the web hosts in reference test 3, with the client's larger backlog.
const PUBLISHED: &str = "
net.core.somaxconn = 500000
net.ipv4.tcp_max_orphans = 30000
net.ipv4.tcp_max_tw_buckets = 1500000
net.ipv4.tcp_fin_timeout = 120
net.ipv4.tcp_mem = 185688 247584 6291456
net.core.netdev_max_backlog=1000000
net.core.netdev_weight = 10000
net.ipv4.tcp_syncookies = 1
net.ipv4.tcp_max_syn_backlog = 1000000
vm.swappiness = 100
net.ipv4.tcp_keepalive_time = 30
net.ipv4.ip_local_port_range = 1024 65535
";

fn values(known: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> + use<> {
    let known: BTreeMap<String, String> =
        known.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    move |name| Some(known.get(name).cloned().unwrap_or_else(|| "1".to_owned()))
}

fn kinds(text: &str, machine: &Machine<'_>) -> Vec<(usize, FaultKind)> {
    let lines = parse(text);
    let others = |name: &str| {
        let given = lines.iter().filter_map(|line| line.setting.as_ref().ok()).find(|given| given.0 == name);
        given.map(|given| given.1.clone()).or_else(|| (machine.read)(name))
    };
    let of_line = |line: &Line| {
        let (name, value) = line.setting.as_ref().unwrap();
        let found = faults(name, value, machine, &others);
        found.into_iter().map(|fault| (line.number, fault.kind)).collect::<Vec<_>>()
    };
    lines.iter().flat_map(of_line).collect()
}

#[test]
fn the_published_settings_are_judged_line_by_line() {
    use FaultKind::{Harmful, Misunderstood, NoEffect, Obsolete, WrongUnit};
    let read = values(&[("net.ipv4.tcp_max_orphans", "131072")]);
    let mut machine = Machine {
        memory_pages: 6 << 20,
        is_initial: true,
        has_queue: true,
        counters: Counters::default(),
        sys_is_own: || true,
        read: &read,
    };
    assert_eq!(
        kinds(PUBLISHED, &machine),
        [
            (3, Harmful),
            (5, Misunderstood),
            (6, WrongUnit),
            (7, Harmful),
            (8, Obsolete),
            (10, NoEffect),
            (11, Harmful)
        ]
    );
    // With much memory, the same number of pages is a reasonable limit.
    machine.memory_pages = 64 << 20;
    assert_eq!(kinds("net.ipv4.tcp_mem = 185688 247584 6291456", &machine), []);
    machine.is_initial = false;
    assert_eq!(kinds("net.ipv4.tcp_mem = 1 2 3\nnet.core.somaxconn = 5", &machine), [(1, NoEffect)]);
    assert_eq!(kinds("net.ipv4.tcp_max_syn_backlog = 9\nnet.ipv4.tcp_syncookies = 0", &machine), []);
}

#[test]
fn each_kind_of_fault_is_seen_and_sound_neighbours_are_not() {
    let read = values(&[("net.ipv4.tcp_ehash_entries", "-262144"), ("net.ipv4.tcp_max_tw_buckets", "5")]);
    let machine = Machine {
        memory_pages: 1 << 20,
        is_initial: true,
        has_queue: false,
        counters: Counters::default(),
        sys_is_own: || true,
        read: &read,
    };
    for (wrong, sound) in [
        ("net.ipv4.tcp_tw_recycle = 1", "net.ipv4.tcp_tw_reuse = 1"),
        ("net.ipv4.tcp_syncookies = 2", "net.ipv4.tcp_syncookies = 1"),
        ("net.ipv4.tcp_rmem = 4096 99 12", "net.ipv4.tcp_rmem = 4096 4096 8192"),
        ("net.ipv4.ip_local_port_range = 65535 1024", "net.ipv4.ip_local_port_range = 1024 65535"),
        ("net.ipv4.tcp_fin_timeout = 15", "net.ipv4.tcp_fin_timeout = 60"),
        // The current value was lowered. The kernel's default is half of the table's entries.
        ("net.ipv4.tcp_max_tw_buckets = 131071", "net.ipv4.tcp_max_tw_buckets = 131072"),
        ("net.core.default_qdisc = fq", "net.ipv4.tcp_congestion_control = bbr"),
        ("net.core.somaxconn = many", "net.core.somaxconn = 128"),
        ("net.ipv4.tcp_window_scaling = 0", "net.ipv4.tcp_window_scaling = 1"),
    ] {
        assert_eq!((kinds(wrong, &machine).len(), kinds(sound, &machine).len()), (1, 0), "{wrong}");
    }
    let absent = Machine { read: &|_| None, ..machine };
    assert_eq!(kinds("net.ipv4.tcp_quick = 1", &absent), [(1, FaultKind::NoEffect)]);
}

#[test]
fn the_table_is_in_order_and_its_counters_are_those_of_the_kernel() {
    assert!(KNOWN.is_sorted_by_key(|known| known.name));
    let (network, machine) = (of_network(&read_own), of_machine(&read_own));
    for Known { name, counter, .. } in KNOWN.iter().filter(|known| !known.counter.is_empty()) {
        let is_read = network.get(counter).or(machine.get(counter)).is_some();
        if !is_read && counter.starts_with("conntrack.") {
            testing::skipped(counter, "the kernel follows no connections");
        } else {
            assert!(is_read, "{name}: {counter}");
        }
    }
}

#[test]
fn a_namespace_of_its_own_has_what_the_table_says() {
    if crate::testing::is_run_again("tune::tests::a_namespace_of_its_own_has_what_the_table_says", &["-Urn"])
    {
        return;
    }
    for known in KNOWN.iter().filter(|known| known.rule != Rule::Obsolete && known.name.starts_with("net.")) {
        let path = path_of(known.name).unwrap();
        let mode = std::fs::metadata(&path).map(|file| std::os::unix::fs::MetadataExt::mode(&file));
        let is_writable = mode.is_ok_and(|mode| mode & 0o200 > 0);
        assert_eq!(is_writable, known.scope == Scope::Namespace, "{}", known.name);
    }
}

#[test]
fn profiles_know_what_they_want() {
    let read = values(&[
        ("net.ipv4.tcp_rmem", "4096 131072 6291456"),
        ("net.core.somaxconn", "70000"),
        ("net.ipv4.ip_local_port_range", "32768 60999"),
        ("vm.swappiness", "60"),
    ]);
    let machine = Machine {
        memory_pages: 1 << 22,
        is_initial: false,
        has_queue: true,
        counters: Counters::default(),
        sys_is_own: || true,
        read: &read,
    };
    let path = LongPath { rate_bits_per_s: 1_000_000_000, rtt_ns: 228_000_000 };
    assert_eq!(path.bdp_bytes(), 28_500_000);
    let written = |profile: &str, name: &str| {
        let profile = Profile::named(profile).unwrap();
        let wanted = profile.wanted(profile.needs_path().then_some(path), &machine);
        let wanted = wanted.into_iter().find(|wanted| wanted.name == name).unwrap();
        (wanted.to_write, wanted.not_applied.is_some())
    };
    assert_eq!(written("ocean-copy", "net.ipv4.tcp_rmem"), (Some("4096 131072 57000000".to_owned()), false));
    assert_eq!(written("ocean-copy", "net.core.rmem_max"), (None, true), "a namespace does not have it");
    assert_eq!(written("listen-many", "net.core.somaxconn"), (None, false), "it is larger already");
    assert_eq!(written("listen-many", "vm.swappiness"), (None, true));
    assert_eq!(written("max-rps", "net.ipv4.ip_local_port_range"), (Some("10240 65535".to_owned()), false));
}

#[test]
fn no_profile_wants_what_is_faulty() {
    let read = |name: &str| present(name).or_else(|| Some("1 1 1".to_owned()));
    let machine = Machine {
        memory_pages: 4 << 20,
        is_initial: true,
        has_queue: true,
        counters: Counters::default(),
        sys_is_own: || true,
        read: &read,
    };
    let path = LongPath { rate_bits_per_s: 10_000_000_000, rtt_ns: 100_000_000 };
    for profile in PROFILES {
        for wanted in profile.wanted(Some(path), &machine) {
            let Some(value) = wanted.to_write else { continue };
            assert_eq!(
                faults(&wanted.name, &value, &machine, &read),
                [],
                "{}: {}",
                profile.name,
                wanted.name
            );
        }
    }
}

#[test]
fn masks_and_blanks_do_not_matter() {
    assert!(is_same_value("1024\t65535", "1024 65535") && is_same_value("00000000,0000000f", "0,f"));
    assert!(!is_same_value("10", "1") && is_same_value("0", "00"));
}

#[test]
fn what_the_kernel_changes_with_a_setting_is_restored_with_it() {
    let settings = |names: &[&str]| {
        let given: Vec<(String, String)> =
            names.iter().map(|name| ((*name).to_owned(), String::new())).collect();
        apply::with_coupled(&given).map(str::to_owned).collect::<Vec<_>>()
    };
    let (choice, list) = ("net.ipv4.tcp_congestion_control", "net.ipv4.tcp_allowed_congestion_control");
    assert_eq!(settings(&["net.core.somaxconn", choice]), ["net.core.somaxconn", choice, list]);
    assert_eq!(settings(&[list, choice]), [list, choice]);
    assert_eq!(settings(&["net.core.somaxconn"]), ["net.core.somaxconn"]);
}

#[test]
fn what_cannot_be_restored_exactly_is_refused() {
    for name in [
        "net.ipv4.ip_forward",
        "net.ipv6.conf.eth0.forwarding",
        "vm.dirty_ratio",
        "net.ipv6.conf.all.mtu",
        "",
        "a",
    ] {
        assert!(refusal(name).is_some(), "{name}");
    }
    assert_eq!(refusal("net.core.somaxconn"), None);
    assert!(refusal("net.core.somaxcon").unwrap().contains("check its name"));
    assert_eq!(path_of("net.//.//.//.//etc.passwd"), None, "it would leave /proc/sys");
}

proptest! {
    #[test]
    fn no_file_makes_the_parser_fail(text: String, lines in "(-?[a-z_./]{0,12} ?=? ?[a-z0-9 #;]{0,9}\n){0,6}") {
        let machine = Machine { memory_pages: 1 << 20, is_initial: true, has_queue: true, counters: Counters::default(), sys_is_own: || true, read: &|_| None };
        for text in [&text, &lines] {
            for line in parse(text) {
                let original = text.lines().nth(line.number - 1).unwrap();
                prop_assert!(!original.trim().is_empty());
                if let Ok((name, value)) = line.setting {
                    prop_assert!(original.contains('=') && !name.is_empty());
                    faults(&name, &value, &machine, &|_| None);
                }
            }
        }
    }

    #[test]
    fn names_and_files_belong_to_each_other(
        name in "(net|vm)(\\.[a-z0-9_/]{1,8}){1,4}|[a-z0-9.]{1,8}\\.txqueuelen|[a-z0-9.]{1,8}\\.rx-[0-9]\\.rps_cpus",
    ) {
        if let Some(path) = path_of(&name) {
            prop_assert!(path.starts_with("/proc/sys") || path.starts_with("/sys/class/net"));
            prop_assert_eq!(path_of(&name_of(&path)), Some(path));
        }
    }
}

#[test]
fn lines_are_read_as_sysctl_does() {
    let text = "# a\n; b\n\n-net/ipv4/conf/eth0.1/rp_filter=  1\nnet.ipv4.tcp_rmem\t=\t1  2\t3 \nnonsense\n";
    let lines = parse(text);
    let settings: Vec<_> = lines.iter().map(|line| (line.number, line.setting.clone())).collect();
    let ok = |name: &str, value: &str| Ok((name.to_owned(), value.to_owned()));
    assert_eq!(
        settings,
        [
            (4, ok("net.ipv4.conf.eth0/1.rp_filter", "1")),
            (5, ok("net.ipv4.tcp_rmem", "1 2 3")),
            (6, Err("nonsense".to_owned())),
        ]
    );
}
