//! Rules that find missing requirements of a server.

use std::net::IpAddr;

use settings::Network;

use super::{Finding, Findings, ServerFacts, Verdict, link_local};

/// Finds the missing requirements of a server of these VIPs.
pub(super) fn of_server(vips: &[IpAddr], facts: &ServerFacts) -> Vec<Finding> {
    let mut all = Findings::default();
    for vip in vips {
        let full = Network::max_prefix(*vip);
        let setup = format!("proofload balance server-setup {vip}");
        match facts.addresses.iter().find(|assigned| assigned.address == *vip) {
            None => all.add(Verdict::Missing, format!("lo has no {vip}/{full}"), setup),
            Some(assigned) if assigned.interface != "lo" => {
                let next = format!(
                    "only the balancer may answer for it: ip address del {vip} dev {}, then {setup}",
                    assigned.interface
                );
                all.add(Verdict::Missing, format!("{vip} is an address of {}", assigned.interface), next);
            }
            Some(assigned) => all.check(
                assigned.prefix == full,
                format!("lo has {vip}/{}", assigned.prefix),
                "this host treats the whole network as local: give the VIP the longest prefix",
            ),
        }
        let mut ports: Vec<u16> = facts
            .listeners
            .iter()
            .filter(|listener| listener.ip() == *vip || listener.ip().is_unspecified())
            .map(std::net::SocketAddr::port)
            .collect();
        ports.sort_unstable();
        ports.dedup();
        let list: Vec<String> = ports.iter().map(u16::to_string).collect();
        let fact = if list.is_empty() {
            format!("no program listens on {vip}")
        } else {
            format!("programs listen on {vip}, ports {}", list.join(", "))
        };
        all.check(!list.is_empty(), fact, "start the server on the VIP or on all addresses");
    }
    if vips.iter().any(IpAddr::is_ipv6) {
        facts.devices.iter().for_each(|device| link_local(&mut all, &device.name, &facts.addresses));
    }
    if !vips.iter().any(IpAddr::is_ipv4) {
        return all.0;
    }
    for device in &facts.devices {
        let name = &device.name;
        // Linux applies the larger value of the device's and that for all devices.
        let sysctl_name = name.replace('.', "/");
        let of_device = if device.arp_ignore > 2 {
            format!(" and net.ipv4.conf.{sysctl_name}.arp_ignore=1")
        } else {
            String::new()
        };
        let next = format!(
            "set net.ipv4.conf.all.arp_ignore=1{of_device} (sysctl -w), or run `proofload balance server-setup VIP`; otherwise {name} answers ARP \
             for the VIP and takes clients from the balancer"
        );
        all.check(
            [1, 2].contains(&device.arp_ignore),
            format!("arp_ignore of {name} is {}", device.arp_ignore),
            next,
        );
        let next = format!(
            "set net.ipv4.conf.all.arp_announce=2 (sysctl -w), or run `proofload balance server-setup VIP`; otherwise {name} sends ARP \
             requests with the VIP as their source"
        );
        all.check(
            device.arp_announce == 2,
            format!("arp_announce of {name} is {}", device.arp_announce),
            next,
        );
        if device.rp_filter == 1 {
            let next = format!(
                "clients' packets are dropped unless their return route is {name}; set net.ipv4.conf.{}.rp_filter=2 and net.ipv4.conf.all.rp_filter=2",
                name.replace('.', "/")
            );
            all.add(Verdict::Note, format!("rp_filter of {name} is 1"), next);
        } else {
            all.good(format!("rp_filter of {name} is {}", device.rp_filter));
        }
    }
    all.0
}
