//! Checks that files saved from other kernels (`tests/fixtures/save.sh`) are read like those of this kernel.

use std::{collections::BTreeMap, io};

use record::Counters;

use crate::{cgroups, counters, programs, remote};

/// Versions of kernels, each with the files saved from it.
const SAVED: [(&str, &str); 4] = [
    ("5.10.", include_str!("../tests/fixtures/linux-5.10.txt")),
    ("6.1.", include_str!("../tests/fixtures/linux-6.1.txt")),
    ("6.12.", include_str!("../tests/fixtures/linux-6.12.txt")),
    ("6.18.", include_str!("../tests/fixtures/linux-6.18.txt")),
];

/// The saved texts by name.
fn parts(saved: &str) -> BTreeMap<&str, &str> {
    saved.split("== ").skip(1).filter_map(|part| part.split_once('\n')).collect()
}

fn read(parts: &BTreeMap<&str, &str>) -> (Counters, Counters) {
    let file = |name: &str| {
        parts.get(name).map(|text| (*text).to_owned()).ok_or_else(|| io::Error::other("no such file"))
    };
    (counters::of_network(&file), counters::of_machine(&file))
}

#[test]
fn counters_of_all_kernels_are_read() {
    for (version, saved) in SAVED {
        let parts = parts(saved);
        assert!(parts["kernel"].starts_with(version));
        let (network, machine) = read(&parts);
        for name in [
            "Tcp.RetransSegs",
            "Tcp.CurrEstab",
            "TcpExt.ListenOverflows",
            "TcpExt.TCPReqQFullDrop",
            "TcpExt.TCPReqQFullDoCookies",
            "sockstat.TCP.inuse",
            "interface.lo.receive_drops",
        ] {
            assert!(network.get(name).is_some(), "{version}: {name}");
        }
        for name in ["cpu0.idle_ms", "cpu0.softirq_ms", "softnet.drops", "pressure.io.some_us", "files.max"] {
            assert!(machine.get(name).is_some(), "{version}: {name}");
        }
        for name in ["drop", "early_drop", "entries", "max_entries"] {
            assert!(network.get(&format!("conntrack.{name}")).is_some(), "{version}: {name}");
        }
        assert!(network.missing.is_empty() && machine.missing.is_empty(), "{version}");
        assert!(network.get("TcpExt.TCPDelivered") > Some(10) && machine.get("softnet.packets") > Some(10));
    }
}

#[test]
fn a_file_that_a_kernel_lacks_is_named_and_takes_nothing_else_along() {
    for (version, saved) in SAVED {
        let all = parts(saved);
        let (network, machine) = read(&all);
        for lacks in counters::network_files().chain(counters::machine_files()) {
            let mut some = all.clone();
            some.remove(lacks).unwrap();
            let (less_network, less_machine) = read(&some);
            let missing: Vec<_> = less_network.missing.keys().chain(less_machine.missing.keys()).collect();
            assert_eq!(missing, [lacks], "{version}");
            let (before, after) = (network.values.len(), less_network.values.len());
            let (before, after) = (before + machine.values.len(), after + less_machine.values.len());
            assert!(after < before && after > before / 10, "{version}: {before} {after} without {lacks}");
        }
    }
}

#[test]
fn fields_that_only_some_kernels_have_are_kept() {
    for (version, saved) in SAVED {
        let parts = parts(saved);
        let (network, _) = read(&parts);
        for line in parts["net/netstat"].lines().step_by(2) {
            let (protocol, names) = line.split_once(": ").unwrap();
            for name in names.split_whitespace() {
                assert!(network.get(&format!("{protocol}.{name}")).is_some(), "{version}: {name}");
            }
        }
        // Linux 5.15 added the first counter, Linux 6.7 the second.
        let later =
            ["TcpExt.TCPMigrateReqSuccess", "TcpExt.TCPAORequired"].map(|name| network.get(name).is_some());
        let expected = [version != "5.10.", ["6.12.", "6.18."].contains(&version)];
        assert_eq!(later, expected, "{version}");
    }
}

#[test]
fn sockets_processes_and_groups_of_all_kernels_are_read() {
    for (version, saved) in SAVED {
        let parts = parts(saved);
        let listening = remote::ss::listeners(parts["ss -ltnp"]);
        let addresses: Vec<_> =
            listening.iter().map(|seen| (seen.address.to_string(), seen.backlog)).collect();
        assert_eq!(addresses, [("[::]:8080".to_owned(), 2)], "{version}");
        let (owners, hidden) = remote::ss::owners(parts["ss -ltnp"]);
        let (pid, _) = parts["PID/stat"].split_once(' ').unwrap();
        assert_eq!((owners.keys().copied().collect::<Vec<_>>(), hidden), (vec![pid.parse().unwrap()], 0));

        let connections = remote::ss::connections(parts["ss -tinm state established"]);
        assert_eq!(connections.len(), 2, "{version}: {connections:#?}");
        let sender = connections.iter().find(|seen| seen.remote.port() == 8080).unwrap();
        let (busy_us, limited_us) =
            (sender.info.busy_us.unwrap(), sender.info.receive_window_limited_us.unwrap());
        assert!(busy_us > 1_000_000 && limited_us > busy_us * 9 / 10, "{version}: {sender:?}");
        assert!(sender.send_buffer_used_bytes > sender.unacknowledged_bytes, "{version}: {sender:?}");
        assert!(
            sender.send_buffer_bytes > 1 << 20 && sender.info.segment_bytes > 10_000,
            "{version}: {sender:?}"
        );
        assert!(
            sender.info.congestion_window >= 10 && sender.info.acknowledged_bytes > 10_000,
            "{version}: {sender:?}"
        );

        let threads = [(1, programs::parse_times(parts["PID/schedstat"]).unwrap())];
        let program =
            programs::parse(7, parts["PID/stat"], parts["PID/limits"], threads.into(), None).unwrap();
        assert!(["nc", "busybox"].contains(&program.name.as_str()), "{version}: {program:?}");
        assert!(program.threads[&1].running_ns > 0 && program.max_descriptors >= Some(1_024), "{program:?}");

        let group = cgroups::group_of(parts["mountinfo"], parts["PID/cgroup"], "cpu").unwrap();
        assert!(group.starts_with("/sys/fs/cgroup") && group.components().count() > 4, "{group:?}");
        let mut throttled = BTreeMap::new();
        cgroups::add_throttling(parts["cpu.stat"], "cgroup", &mut throttled);
        assert!(throttled["cgroup.throttled_periods"] > 5 && throttled["cgroup.throttled_us"] > 100_000);
    }
}
