//! Finds missing requirements of a balancer or of one of its servers on this host: reads facts and applies rules to
//! them.

mod facts;
mod server;

use std::{fmt, net::IpAddr};

use settings::Network;

use self::facts::OwnAddress;
pub(crate) use self::facts::{BalancerFacts, ServerFacts, rivals};
use self::server::of_server;
use crate::{Config, Error, Hook, Mac, addresses::is_silent, attach::LINKS_SINCE, layout::mac_text};

/// Oldest version of Linux with the features that the program needs.
const OLDEST: (u8, u8) = (5, 15);
/// Oldest version of Linux with the features that the program needs for XDP.
const OLDEST_FOR_XDP: (u8, u8) = (5, 18);
/// Maximum MTU for XDP: drivers keep an XDP packet in one page, with room before and after it (drivers/net/veth.c and
/// others).
const MAX_XDP_MTU: u32 = 3_498;
/// Requirement of XDP on veth.
pub(crate) const XDP_ON_VETH: &str =
    "XDP on veth sends frames back only if the other end has an XDP program and no checksum offload";

/// Advice for a user without the right to pin tables.
const OWN_BPF: &str =
    "run this as root, or mount a BPF file system that this user owns at /sys/fs/bpf (see docs/balance.md)";

/// The verdict on a fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The fact is as it should be.
    Good,
    /// It works but could be better.
    Note,
    /// It does not work until this changes.
    Missing,
}

/// A fact and the next step for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The verdict on the fact.
    pub verdict: Verdict,
    /// The fact as a text.
    pub fact: String,
    /// The next step; empty if there is none.
    pub next: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.verdict {
            Verdict::Good => "ok",
            Verdict::Note => "note",
            Verdict::Missing => "missing",
        };
        let next = if self.next.is_empty() { String::new() } else { format!(": {}", self.next) };
        write!(f, "{word:8} {}{next}", self.fact)
    }
}

/// Finds the requirements of a balancer with this configuration that this host does not meet. Waits up to one second
/// for the MAC addresses of the servers.
///
/// # Errors
/// If the kernel does not report a fact.
pub fn explain_balancer(config: &Config) -> Result<Vec<Finding>, Error> {
    BalancerFacts::read(config).map(|facts| of_balancer(config, &facts))
}

/// Finds the requirements of a server of these VIPs that this host does not meet.
///
/// # Errors
/// If the kernel does not report a fact.
pub fn explain_server(vips: &[IpAddr]) -> Result<Vec<Finding>, Error> {
    ServerFacts::read().map(|facts| of_server(vips, &facts))
}

/// Findings in the order of the checks.
#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, verdict: Verdict, fact: impl Into<String>, next: impl Into<String>) {
        self.0.push(Finding { verdict, fact: fact.into(), next: next.into() });
    }

    fn good(&mut self, fact: impl Into<String>) {
        self.add(Verdict::Good, fact, "");
    }

    /// Adds a fact: good if it holds; otherwise missing, with the next step.
    fn check(&mut self, holds: bool, fact: impl Into<String>, next: impl Into<String>) {
        if holds { self.good(fact) } else { self.add(Verdict::Missing, fact, next) }
    }
}

fn of_balancer(config: &Config, facts: &BalancerFacts) -> Vec<Finding> {
    let mut all = Findings::default();
    let (major, minor, patch) = facts.kernel;
    let kernel = format!("Linux {major}.{minor}.{patch}");
    all.check(
        (major, minor) >= OLDEST,
        kernel,
        format!("the program needs {}.{} or later", OLDEST.0, OLDEST.1),
    );
    let rights = facts.lacking_rights.join(", ");
    let fact = if rights.is_empty() {
        "this user has the capabilities".to_owned()
    } else {
        format!("this user lacks {rights}")
    };
    all.check(rights.is_empty(), fact, "run this as root, or give this user these capabilities");
    match (facts.has_bpf_file_system, facts.may_pin, facts.may_mount) {
        (true, true, _) => all.good("a BPF file system is at /sys/fs/bpf"),
        (true, false, _) => all.add(Verdict::Missing, "this user may not write to /sys/fs/bpf", OWN_BPF),
        (false, _, true) => all.add(
            Verdict::Note,
            "no BPF file system is at /sys/fs/bpf",
            "the balancer mounts one in the folder of its state",
        ),
        (false, _, false) => all.add(
            Verdict::Missing,
            "no BPF file system is at /sys/fs/bpf, and this user may not mount one",
            OWN_BPF,
        ),
    }
    let Some(link) = &facts.link else {
        let next = format!("there are {}", facts.devices.join(", "));
        all.add(Verdict::Missing, format!("there is no device {}", config.device), next);
        return all.0;
    };
    device(&mut all, config, facts, link);
    addresses(&mut all, config, facts);
    servers(&mut all, config, facts);
    all.0
}

fn device(all: &mut Findings, config: &Config, facts: &BalancerFacts, link: &kernel::netlink::Link) {
    let name = &config.device;
    let kind = link.kind.as_deref().map_or("hardware".to_owned(), |kind| format!("of the kind {kind}"));
    let driver = facts.driver.as_deref().map_or(String::new(), |driver| format!(" with the driver {driver}"));
    let next = "it has no MAC address for the balancer to use: name an Ethernet device";
    all.check(link.mac.is_some(), format!("{name} is {kind}{driver}"), next);
    all.check(
        link.is_up,
        format!("{name} is set {}", if link.is_up { "up" } else { "down" }),
        format!("ip link set {name} up"),
    );
    if link.is_up {
        let fact = if link.has_carrier { "has a carrier" } else { "has no carrier" };
        all.check(link.has_carrier, format!("{name} {fact}"), "connect it, or set its other end up");
    }
    let (major, minor, patch) = facts.kernel;
    let has_xdp = (major, minor) >= OLDEST_FOR_XDP;
    let hook = config.hook.unwrap_or(if link.kind.is_none() && has_xdp { Hook::Xdp } else { Hook::Cls });
    let has_links = aya::util::KernelVersion::new(major, minor, patch) >= LINKS_SINCE;
    let why = match (config.hook, link.kind.is_none()) {
        (Some(_), _) => "as the file says",
        (None, true) if !has_xdp => "because XDP needs Linux 5.18",
        (None, true) => "because it is hardware; cls if its driver refuses",
        (None, false) => "the best hook for virtual devices",
    };
    match hook {
        Hook::Cls => {
            let how = if has_links {
                "a link (tcx)"
            } else {
                "a filter on the clsact qdisc, because this kernel is older than Linux 6.6, which added BPF links (tcx)"
            };
            all.good(format!("frames are seen at the hook cls, {why}, by {how}"));
        }
        Hook::Xdp => {
            let fact = format!("frames are seen at the hook xdp, {why}");
            all.check(has_xdp, fact, "that needs Linux 5.18 or later: set hook = \"cls\"");
        }
    }
    if hook == Hook::Xdp {
        if link.kind.as_deref() == Some("veth") {
            all.add(
                Verdict::Note,
                XDP_ON_VETH,
                "set hook = \"cls\", which needs neither and costs less on veth; or attach an XDP program that passes all frames to the \
                 other end, and turn its checksum offload off (ethtool -K DEVICE tx off)",
            );
        } else if link.kind.is_some() {
            all.add(
                Verdict::Note,
                format!("XDP on a device {kind} gets packets only after the kernel has built them"),
                "cls costs less there",
            );
        }
        let mut check = |holds: bool, fact: String, next: String| match (holds, config.hook) {
            (true, _) => all.good(fact),
            (false, Some(_)) => all.add(Verdict::Missing, fact, next),
            (false, None) => all.add(Verdict::Note, fact, format!("cls is used instead; for xdp: {next}")),
        };
        let next = format!("ip link set {name} mtu {MAX_XDP_MTU}, or hook = \"cls\"");
        check(link.mtu <= MAX_XDP_MTU, format!("the MTU of {name} is {}", link.mtu), next);
        check(
            link.xdp.is_none() || facts.is_running,
            xdp_fact(name, facts, link.xdp.is_some()),
            format!("ip link set dev {name} xdp off, if it is not needed"),
        );
    } else if link.xdp.is_some() {
        all.add(
            Verdict::Note,
            format!("an XDP program is attached to {name}"),
            "it sees frames first; the balancer does not get those that it drops or redirects",
        );
    }
    let others: Vec<&str> = facts
        .programs
        .iter()
        .map(String::as_str)
        .filter(|program| *program != undo::BALANCER_PROGRAM)
        .collect();
    if !others.is_empty() {
        let next = "programs before the balancer's in `bpftool net` see frames first; those after it do not see frames to VIPs";
        all.add(Verdict::Note, format!("other programs are attached to {name}: {}", others.join(", ")), next);
    }
}

/// Without a link-local address, the kernel resolves a neighbour only while a packet from another of its addresses
/// waits for it.
fn link_local(all: &mut Findings, device: &str, addresses: &[OwnAddress]) {
    let has = has_link_local(device, addresses);
    let fact = if has { "has a link-local address" } else { "has no link-local address" };
    let next = format!(
        "ip address add fe80::1/64 dev {device}, with an address that no other host has; neighbour discovery needs it"
    );
    all.check(has, format!("{device} {fact}"), next);
}

fn has_link_local(device: &str, addresses: &[OwnAddress]) -> bool {
    let is_link_local = |address| matches!(address, IpAddr::V6(ip) if ip.is_unicast_link_local());
    addresses.iter().any(|assigned| assigned.interface == device && is_link_local(assigned.address))
}

/// The fact that another host answers for a VIP.
pub(crate) fn rival_fact(vip: IpAddr, mac: Mac, device: &str) -> String {
    format!("another host ({}) answers for {vip} on {device}: clients may reach it instead", mac_text(&mac))
}

fn xdp_fact(name: &str, facts: &BalancerFacts, has_xdp: bool) -> String {
    match (has_xdp, facts.is_running) {
        (false, _) => format!("no other XDP program is attached to {name}"),
        (true, true) => format!("the XDP program of {name} is that of a balancer"),
        (true, false) => format!("another XDP program is attached to {name}, which takes only one"),
    }
}

fn addresses(all: &mut Findings, config: &Config, facts: &BalancerFacts) {
    let name = &config.device;
    for is_v4 in [true, false] {
        let family = if is_v4 { "IPv4" } else { "IPv6" };
        if !config.vips.iter().any(|vip| vip.address.is_ipv4() == is_v4) {
            continue;
        }
        let is_vip = |address: IpAddr| config.vips.iter().any(|vip| vip.address == address);
        let source = facts.addresses.iter().find(|assigned| {
            assigned.interface == *name && assigned.address.is_ipv4() == is_v4 && !is_vip(assigned.address)
        });
        let fact = source.map_or_else(
            || format!("{name} has no {family} address of its own"),
            |source| format!("servers are probed and looked up from {}", source.address),
        );
        all.check(
            source.is_some(),
            fact,
            "give it one in the servers' network: health checks and ARP need it",
        );
        if !is_v4 {
            link_local(all, name, &facts.addresses);
        }
    }
    if !config.vips.is_empty() {
        all.good("clients must be other hosts: this host cannot reach its own VIPs, because its packets to them do not leave it");
    }
    for vip in &config.vips {
        let address = vip.address;
        let assigned = facts.addresses.iter().find(|assigned| assigned.address == address);
        let on = assigned.map(|assigned| assigned.interface.as_str());
        match (on, config.answer_arp) {
            (None, true) if facts.rivals.contains_key(&address) => all.add(
                Verdict::Missing,
                rival_fact(address, facts.rivals[&address], name),
                "choose another VIP, or remove it from that host; on a server, run `proofload balance server-setup`",
            ),
            (None, true) => all.good(format!(
                "{address} is not assigned yet: the balancer adds it to {name}, and announces it"
            )),
            (None, false) => all.good(format!("{address} is not assigned yet: the balancer adds it to lo")),
            (Some(on), true) if on != name => all.add(
                Verdict::Missing,
                format!("{address} is an address of {on}"),
                format!(
                    "remove the VIP from {on} (ip address del {address} dev {on}); otherwise the balancer cannot announce the VIP on {name}"
                ),
            ),
            (Some(on), _) => all.good(format!("{address} is an address of {on}")),
        }
        let is_near = facts.addresses.iter().any(|assigned| {
            assigned.interface == *name
                && Network { address: assigned.address, prefix: assigned.prefix }.contains(address)
                && assigned.address != address
        });
        if is_near {
            all.good(format!(
                "{address} is in a network of {name}: the other hosts of that network find it by ARP or neighbour discovery"
            ));
        } else {
            let next = format!("a router must send packets for {address} to an address of {name}");
            all.add(Verdict::Note, format!("{address} is in no network of {name}"), next);
        }
    }
    if config.vips.iter().any(|vip| vip.address.is_ipv4()) {
        if !config.answer_arp {
            let is_silent = is_silent(facts.arp_ignore);
            let fact = format!("arp_ignore of {name} is {}", facts.arp_ignore);
            if is_silent {
                all.good(fact)
            } else {
                all.add(Verdict::Note, fact, "the balancer sets it to 1 while it runs")
            }
        }
        if facts.log_martians {
            let name = name.replace('.', "/");
            let next = format!("sysctl net.ipv4.conf.{name}.log_martians=0 keeps them out of the log");
            all.add(Verdict::Note, "the kernel logs answers to health checks as martians", next);
        }
        let forwards = if facts.forwards { "forwards packets" } else { "does not forward packets" };
        all.good(format!("this host {forwards}; this is not needed: the program sends frames itself"));
        if facts.forwards && facts.sends_redirects {
            let name = name.replace('.', "/");
            let next =
                format!("sysctl net.ipv4.conf.{name}.send_redirects=0 net.ipv4.conf.all.send_redirects=0");
            all.add(Verdict::Note, "this host sends ICMP redirects to clients (send_redirects)", next);
        }
    }
}

fn servers(all: &mut Findings, config: &Config, facts: &BalancerFacts) {
    for (server, mac) in &facts.servers {
        let name = &config.device;
        let is_near = facts.addresses.iter().any(|assigned| {
            assigned.interface == *name
                && Network { address: assigned.address, prefix: assigned.prefix }.contains(*server)
        });
        match mac {
            Some(mac) => {
                all.good(format!("the server {server} has the MAC address {} on {name}", mac_text(mac)));
            }
            None if !is_near => {
                let next =
                    "servers must be on the balancer's segment: give the device an address in their network";
                all.add(Verdict::Missing, format!("the server {server} is in no network of {name}"), next);
            }
            None => {
                let next = match server {
                    IpAddr::V6(_) if !has_link_local(name, &facts.addresses) => {
                        "asking it takes a link-local address: give the device one first"
                    }
                    _ => "check that it is up, on this segment, and that its arp_ignore is not 8",
                };
                all.add(
                    Verdict::Missing,
                    format!("the server {server} does not answer ARP or neighbour discovery on {name}"),
                    next,
                );
            }
        }
    }
}

#[cfg(test)]
mod tests;
