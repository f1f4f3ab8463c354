//! Counters and ring sizes from the drivers of network interfaces. The only module of this crate with `unsafe` code:
//! netlink does not report the drivers' own counters, and no library wraps the request that does.

use std::{collections::BTreeMap, os::fd::OwnedFd};

use record::Counters;
use rustix::{
    io::Errno,
    ioctl::{Opcode, Updater, ioctl},
    net::{AddressFamily, SocketType, socket},
};

use crate::counters::RING;

const SIOCETHTOOL: Opcode = 0x8946;
/// The requests `ETHTOOL_GRINGPARAM`, `GSTRINGS`, `GSTATS` and `GSSET_INFO`, and the set of names `ETH_SS_STATS` (linux/ethtool.h).
const RINGS: u32 = 0x10;
const NAMES: u32 = 0x1b;
const VALUES: u32 = 0x1d;
const SETS: u32 = 0x37;
const COUNTERS: u32 = 1;
/// Length of a counter's name, in words of 4 bytes.
const NAME_WORDS: usize = 8;
/// Maximum number of counters of a driver; the counters of other drivers are not read. Large cards have some thousands.
const MAX_COUNTERS: usize = 32_768;

/// Drivers have no common names for counters. The name of a counter of lost packets contains one of these words.
const LOST: [&str; 9] =
    ["drop", "discard", "miss", "error", "fifo", "no_buf", "out_of_buf", "no_dma", "allowance_exceeded"];

/// `struct ifreq` with a pointer (linux/if.h), 40 bytes.
#[repr(C)]
struct Request {
    name: [u8; 16],
    data: *mut u32,
    rest: [u8; 16],
}

const _: () = assert!(size_of::<Request>() == 40);

/// Adds the driver counters of the interfaces in `counters`, in the calling thread's network namespace.
pub(crate) fn add(counters: &mut Counters) {
    let Counters { values, missing, .. } = counters;
    let socket = match socket(AddressFamily::INET, SocketType::DGRAM, None) {
        Ok(socket) => socket,
        Err(error) => {
            missing.insert("ethtool".to_owned(), error.to_string());
            return;
        }
    };
    let interface =
        |name: &String| Some(name.strip_prefix("interface.")?.strip_suffix(".received_packets")?.to_owned());
    let interfaces: Vec<String> = values.keys().filter_map(interface).filter(|name| name != "lo").collect();
    for interface in interfaces {
        match add_driver(&socket, &interface, values) {
            // Virtual interfaces rarely have driver counters, and an interface may have been removed meanwhile.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NODEV) => {}
            Err(error) => _ = missing.insert(format!("ethtool {interface}"), error.to_string()),
        }
    }
}

/// Adds the counters in the output of `ethtool -S` for an interface.
pub(crate) fn add_printed(interface: &str, text: &str, values: &mut BTreeMap<String, u64>) {
    let counter = |line: &'_ str| {
        let (name, value) = line.rsplit_once(": ")?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    keep(interface, text.lines().filter_map(counter), values);
}

/// Adds the counters of lost packets. Counters with the same name are summed, because a driver may use one name for all
/// queues.
fn keep(interface: &str, counters: impl Iterator<Item = (String, u64)>, values: &mut BTreeMap<String, u64>) {
    for (name, value) in counters.filter(|(name, _)| LOST.iter().any(|word| name.contains(word))) {
        let sum = values.entry(format!("interface.{interface}.ethtool.{}", name.trim())).or_default();
        *sum = sum.saturating_add(value);
    }
}

fn add_driver(socket: &OwnedFd, interface: &str, values: &mut BTreeMap<String, u64>) -> Result<(), Errno> {
    // struct ethtool_sset_info: request, reserved, 64-bit mask of sets, the number of counters.
    let count = ask(socket, interface, &[SETS, 0, 1 << COUNTERS, 0], 5)?[4] as usize;
    if count == 0 || count > MAX_COUNTERS {
        return Ok(());
    }
    // struct ethtool_gstrings: request, set, length, names. struct ethtool_stats: request, length, numbers.
    let names = ask(socket, interface, &[NAMES, COUNTERS, count as u32], 3 + count * NAME_WORDS)?;
    let numbers = ask(socket, interface, &[VALUES, count as u32], 2 + count * 2)?;
    let names = names[3..].chunks_exact(NAME_WORDS).map(|words| {
        let bytes: Vec<u8> =
            words.iter().flat_map(|word| word.to_ne_bytes()).take_while(|byte| *byte != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let number = |words: &[u32]| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        bytes.try_into().map_or(0, u64::from_ne_bytes)
    };
    keep(interface, names.zip(numbers[2..].chunks_exact(2).map(number)), values);
    // struct ethtool_ringparam: request, four maximum sizes, four current sizes; each group begins with that of
    // receiving.
    let answer = ask(socket, interface, &[RINGS], 9)?;
    for (name, packets) in [("receive", answer[5]), ("largest_receive", answer[1])] {
        values.insert(format!("interface.{interface}.{name}{RING}"), packets.into());
    }
    Ok(())
}

/// Returns the first words of the structure that begins with `request`, as filled in by the kernel.
fn ask(socket: &OwnedFd, interface: &str, request: &[u32], words: usize) -> Result<Vec<u32>, Errno> {
    let mut answer = Vec::with_capacity(16 + 2 * MAX_COUNTERS * NAME_WORDS);
    answer.extend(request);
    answer.resize(words, 0);
    let mut name = [0; 16];
    name.iter_mut().zip(interface.bytes().take(15)).for_each(|(to, byte)| *to = byte);
    let mut to = Request { name, data: answer.as_mut_ptr(), rest: [0; 16] };
    // SAFETY: SIOCETHTOOL reads a `struct ifreq`, 40 bytes, which `Request` is, and which outlives the call. Through `data` it
    // reads and writes the structure of the request. The kernel is told no length: it writes at most 36 bytes, and 8 or 32 for each
    // counter that the driver has now, while `answer` has room for twice as many as drivers are asked for. Any bytes are valid there.
    unsafe { ioctl(socket, Updater::<SIOCETHTOOL, Request>::new(&mut to)) }?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::{BufRead, BufReader},
        net::UdpSocket,
        process::{Command, Stdio},
        thread,
    };

    use super::*;
    use crate::{
        counters::{of_network, read_own},
        namespaces::{self, Kind},
    };

    /// An XDP program that drops all packets, at one end of a veth pair in a new network namespace. `ip` leaves its
    /// files in a new BPF file system. The namespaces end when the standard input is closed.
    const DROP: &str = "__attribute__((section(\"xdp\"), used)) int drop(void *packet) { return 1; }";
    const SETUP: &str = "mount -t bpf bpf /sys/fs/bpf; ip link add name va type veth peer name vb; ip link set dev vb xdp obj drop.o sec xdp; \
         for f in all default; do echo 1 >/proc/sys/net/ipv6/conf/$f/disable_ipv6; done; \
         ip link set va up; ip link set vb up; ip addr add 10.9.9.1/24 dev va; \
         ip neigh add 10.9.9.2 lladdr 02:00:00:00:00:01 dev va; echo ready; exec cat";

    #[test]
    fn as_root_drops_of_a_driver_are_counted_by_their_names() {
        crate::testing::need_root();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("drop.c"), DROP).unwrap();
        let mut clang = Command::new("clang");
        clang.args(["-O2", "-target", "bpf", "-c", "drop.c"]).current_dir(folder.path());
        assert!(clang.status().unwrap().success(), "`make setup-test` installs clang");
        let mut child = Command::new("unshare")
            .args(["--net", "--mount", "sh", "-ec", SETUP])
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines().next();
        assert_eq!(said.unwrap().unwrap(), "ready");
        let network = File::open(namespaces::path_of(child.id(), Kind::Network)).unwrap();
        let look = move || {
            namespaces::enter(&network, Kind::Network).unwrap();
            let socket = UdpSocket::bind("10.9.9.1:0").unwrap();
            (0..37).for_each(|_| _ = socket.send_to(b"lost", "10.9.9.2:9").unwrap());
            // The kernel may need a moment to receive the packets.
            let all_dropped = || {
                let mut counters = of_network(&read_own);
                add(&mut counters);
                let dropped = counters.get("interface.vb.ethtool.rx_queue_0_xdp_drops");
                (dropped == Some(37)).then_some(counters)
            };
            testing::find(testing::PATIENCE, all_dropped).expect("all are dropped")
        };
        let counters = thread::spawn(look).join().unwrap();
        child.kill().and_then(|()| child.wait()).unwrap();
        let get = |name: &str| counters.get(&format!("interface.{name}"));
        assert_eq!(get("va.sent_packets"), Some(37));
        assert_eq!(
            (get("vb.ethtool.rx_queue_0_drops"), get("va.ethtool.rx_queue_0_drops")),
            (Some(0), Some(0))
        );
        assert_eq!((get("vb.ethtool.peer_ifindex"), get("vb.ethtool.rx_queue_0_xdp_packets")), (None, None));
        let noise = counters.missing.keys().filter(|name| name.starts_with("ethtool"));
        assert_eq!(noise.count(), 0, "{counters:?}");
    }

    #[test]
    fn what_ethtool_prints_is_read() {
        let text = "NIC statistics:\n     rx_packets: 9\n     [0]: rx_discards: 4\n     rx_dropped: 3\n     rx_dropped: 5\n";
        let mut values = BTreeMap::new();
        add_printed("eth0", text, &mut values);
        let kept = [("interface.eth0.ethtool.[0]: rx_discards", 4), ("interface.eth0.ethtool.rx_dropped", 8)];
        assert_eq!(values, kept.map(|(name, value)| (name.to_owned(), value)).into());
    }
}
