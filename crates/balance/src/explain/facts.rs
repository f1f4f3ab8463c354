//! Facts about this host, from rtnetlink and `/proc`.

use std::{
    collections::BTreeMap,
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
    time::{Duration, Instant},
};

use aya::programs::{SchedClassifier, TcAttachType};
use kernel::netlink::{Link, Neighbour, NeighbourChanges, Netlink};
use rustix::{
    fs::{Access, access},
    thread::{CapabilitySet, capabilities},
};

use crate::{Config, Error, Mac, instance, prober::mac_of, rights};

/// Time that other hosts may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time that another host may take to answer for a VIP. It is short, because usually no host answers, so that the whole
/// time passes.
const RIVAL_PATIENCE: Duration = Duration::from_millis(300);

/// An address and the name of its interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnAddress {
    pub(crate) interface: String,
    pub(crate) address: IpAddr,
    pub(crate) prefix: u8,
}

/// The facts that matter for a balancer.
#[derive(Debug, Clone)]
pub(crate) struct BalancerFacts {
    pub(crate) kernel: (u8, u8, u16),
    pub(crate) lacking_rights: Vec<&'static str>,
    pub(crate) has_bpf_file_system: bool,
    /// Whether this user may write to the BPF file system and may mount one.
    pub(crate) may_pin: bool,
    pub(crate) may_mount: bool,
    /// Names of all devices except `lo`.
    pub(crate) devices: Vec<String>,
    pub(crate) link: Option<Link>,
    pub(crate) driver: Option<String>,
    /// Names of the cls_bpf programs attached by links, in the order in which they run.
    pub(crate) programs: Vec<String>,
    /// Whether the XDP program of the device belongs to a balancer.
    pub(crate) is_running: bool,
    pub(crate) addresses: Vec<OwnAddress>,
    pub(crate) servers: BTreeMap<IpAddr, Option<Mac>>,
    /// The other hosts that answer for VIPs which this host will get but does not have yet.
    pub(crate) rivals: BTreeMap<IpAddr, Mac>,
    pub(crate) arp_ignore: u32,
    pub(crate) log_martians: bool,
    pub(crate) forwards: bool,
    pub(crate) sends_redirects: bool,
}

/// The facts that matter for a server.
#[derive(Debug, Clone)]
pub(crate) struct ServerFacts {
    pub(crate) addresses: Vec<OwnAddress>,
    pub(crate) devices: Vec<DeviceFacts>,
    /// The addresses and ports on which programs listen for TCP connections.
    pub(crate) listeners: Vec<SocketAddr>,
}

/// The effective settings of an Ethernet device that is up. Of each setting, the larger value of the device's and that
/// for all devices is effective.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeviceFacts {
    pub(crate) name: String,
    pub(crate) arp_ignore: u32,
    pub(crate) arp_announce: u32,
    pub(crate) rp_filter: u32,
}

impl BalancerFacts {
    pub(crate) fn read(config: &Config) -> Result<Self, Error> {
        let failed = |error: io::Error| Error::new("read the network settings of this host", &error);
        let mut netlink = Netlink::open().map_err(failed)?;
        let links = netlink.links().map_err(failed)?;
        let link = links.iter().find(|link| link.name == config.device).cloned();
        let addresses = own_addresses(&mut netlink, &links).map_err(failed)?;
        let (mut servers, mut rivals) = (BTreeMap::new(), BTreeMap::new());
        if let Some(link) = &link {
            let named = config.vips.iter().flat_map(|vip| &vip.servers).map(|server| server.address);
            let named: Vec<IpAddr> = named.collect();
            servers = neighbours(&mut netlink, link.index, &named, PATIENCE).map_err(failed)?;
            rivals = self::rivals(link, config).map_err(failed)?;
        }
        let (device, version) = (&config.device, kernel_version());
        let attached = SchedClassifier::query_tcx(device, TcAttachType::Ingress);
        let programs = attached.map_or_else(|_| Vec::new(), |(_, programs)| programs);
        Ok(Self {
            kernel: version,
            lacking_rights: rights::lacking(),
            has_bpf_file_system: instance::is_bpf(Path::new(instance::BPF_FILE_SYSTEM)),
            may_pin: access(instance::BPF_FILE_SYSTEM, Access::WRITE_OK | Access::EXEC_OK).is_ok(),
            may_mount: capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN)),
            devices: links.iter().filter(|link| link.name != "lo").map(|link| link.name.clone()).collect(),
            driver: driver(device),
            programs: programs
                .iter()
                .map(|program| program.name_as_str().unwrap_or("?").to_owned())
                .collect(),
            is_running: link.as_ref().is_some_and(|link| has_xdp_pin(link.index)),
            addresses,
            servers,
            rivals,
            arp_ignore: setting(device, "arp_ignore"),
            log_martians: setting(device, "log_martians") > 0,
            forwards: number("net.ipv4.ip_forward") > 0,
            sends_redirects: setting(device, "send_redirects") > 0,
            link,
        })
    }
}

impl ServerFacts {
    pub(crate) fn read() -> Result<Self, Error> {
        let failed = |error: io::Error| Error::new("read the network settings of this host", &error);
        let mut netlink = Netlink::open().map_err(failed)?;
        let links = netlink.links().map_err(failed)?;
        let devices = links.iter().filter(|link| link.is_up && link.mac.is_some()).map(|link| DeviceFacts {
            name: link.name.clone(),
            arp_ignore: setting(&link.name, "arp_ignore"),
            arp_announce: setting(&link.name, "arp_announce"),
            rp_filter: setting(&link.name, "rp_filter"),
        });
        let listeners =
            ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| kernel::read(path).unwrap_or_default());
        Ok(Self {
            addresses: own_addresses(&mut netlink, &links).map_err(failed)?,
            devices: devices.collect(),
            listeners: listeners.iter().flat_map(|table| listening(table)).collect(),
        })
    }
}

fn own_addresses(netlink: &mut Netlink, links: &[Link]) -> io::Result<Vec<OwnAddress>> {
    let addresses = netlink.addresses()?.into_iter().filter_map(|assigned| {
        let interface = links.iter().find(|link| link.index == assigned.index)?.name.clone();
        Some(OwnAddress { interface, address: assigned.address, prefix: assigned.prefix })
    });
    Ok(addresses.collect())
}

/// Maximum number of VIPs to ask for at once, because each takes an entry in the kernel's neighbour table.
const MOST_ASKED: usize = 64;

/// The other hosts that answer for the VIPs that the device will get, without VIPs that this host already has. Entries
/// that the kernel already had do not count, because they may be out of date.
pub(crate) fn rivals(link: &Link, config: &Config) -> io::Result<BTreeMap<IpAddr, Mac>> {
    if !config.answer_arp {
        return Ok(BTreeMap::new());
    }
    let mut netlink = Netlink::open()?;
    let present = netlink.addresses()?;
    let mut wanted = Vec::new();
    for address in config.vips.iter().map(|vip| vip.address).take(MOST_ASKED) {
        let is_own = present.iter().any(|assigned| assigned.address == address);
        // An address of this host needs no query.
        if !is_own && !matches!(netlink.neighbour(link.index, address), Ok(Neighbour::Known { .. })) {
            wanted.push(address);
        }
    }
    let found = neighbours(&mut netlink, link.index, &wanted, RIVAL_PATIENCE)?;
    let others = found.into_iter().filter_map(|(address, mac)| Some((address, mac?)));
    Ok(others.filter(|(_, mac)| Some(*mac) != link.mac).collect())
}

/// Asks the kernel to resolve these addresses and waits for the answers.
fn neighbours(
    netlink: &mut Netlink,
    index: u32,
    addresses: &[IpAddr],
    patience: Duration,
) -> io::Result<BTreeMap<IpAddr, Option<Mac>>> {
    let mut changes = NeighbourChanges::open()?;
    let mut found = BTreeMap::new();
    for &address in addresses {
        let known = netlink.neighbour(index, address)?;
        if known == Neighbour::Unknown || known == Neighbour::Failed {
            // The kernel refuses this while the device is down. The address then stays unknown.
            let _ = netlink.resolve_neighbour(index, address);
        }
        found.insert(address, mac_of(known));
    }
    let end = Instant::now() + patience;
    while found.values().any(Option::is_none) {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || !undo::readable_within(&changes, left)? {
            break;
        }
        for change in changes.take()?.into_iter().filter(|change| change.index == index) {
            found.entry(change.address).and_modify(|mac| *mac = mac_of(change.now).or(*mac));
        }
    }
    Ok(found)
}

fn kernel_version() -> (u8, u8, u16) {
    let release = kernel::release();
    let mut numbers =
        release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse::<u16>().unwrap_or_default());
    let mut next = || numbers.next().unwrap_or_default();
    (next() as u8, next() as u8, next())
}

/// The driver of a hardware device; none if `/sys` belongs to another network namespace.
fn driver(device: &str) -> Option<String> {
    if !undo::sys_is_own() {
        return None;
    }
    let driver = fs::read_link(Path::new("/sys/class/net").join(device).join("device/driver")).ok()?;
    Some(driver.file_name()?.to_string_lossy().into_owned())
}

/// Whether a balancer in this network namespace has attached XDP to the device.
fn has_xdp_pin(index: u32) -> bool {
    let entries = fs::read_dir(instance::BPF_FILE_SYSTEM).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let label = name.strip_prefix(undo::PINS_PREFIX);
        label.is_some_and(|label| instance::is_of_this_network(label).unwrap_or(false))
            && entry.path().join(format!("{}{index}", undo::XDP_LINK)).exists()
    })
}

/// The effective value of a setting: the larger value of the device's and that for all devices, which is the rule for
/// the settings read here.
fn setting(device: &str, name: &str) -> u32 {
    let of = |device: &str| number(&format!("net.ipv4.conf.{}.{name}", device.replace('.', "/")));
    of("all").max(of(device))
}

fn number(name: &str) -> u32 {
    let text = kernel::read(kernel::sysctl_path(name)).unwrap_or_default();
    text.trim().parse().unwrap_or_default()
}

/// The addresses in state LISTEN in `/proc/net/tcp` or `tcp6`. The files contain addresses as 32-bit words in the
/// host's byte order.
fn listening(table: &str) -> Vec<SocketAddr> {
    let of = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let (address, port) = fields.next()?.split_once(':')?;
        (fields.nth(1)? == "0A").then_some(())?;
        let words =
            address.as_bytes().chunks(8).map(|word| u32::from_str_radix(str::from_utf8(word).ok()?, 16).ok());
        let bytes: Vec<u8> =
            words.collect::<Option<Vec<u32>>>()?.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let ip: IpAddr = match <[u8; 4]>::try_from(bytes.as_slice()) {
            Ok(bytes) => Ipv4Addr::from(bytes).into(),
            Err(_) => Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into(),
        };
        Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
    };
    table.lines().skip(1).filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_read() {
        let table = "  sl  local_address rem_address   st\n   0: 6410A8C0:0050 00000000:0000 0A 0\n   1: 0100007F:1F90 0100007F:9C40 01 0\n";
        assert_eq!(listening(table), ["192.168.16.100:80".parse().unwrap()]);
        let table =
            "sl\n 0: 000000FD000000000000000000010000:0050 00000000000000000000000000000000:0000 0A 0\n";
        assert_eq!(listening(table), ["[fd00::100]:80".parse().unwrap()]);
    }

    #[test]
    fn this_host_is_read() {
        assert!(kernel_version() >= (5, 0, 0), "{:?}", kernel_version());
        let facts = BalancerFacts::read(&Config::new("nowhere")).unwrap();
        assert!(facts.link.is_none() && facts.servers.is_empty());
        assert!(ServerFacts::read().unwrap().addresses.len() < 10_000);
    }
}
