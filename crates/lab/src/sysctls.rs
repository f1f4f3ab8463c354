//! Kernel settings of a host.
//!
//! A new namespace inherits many IPv4 settings from the machine (`devconf_inherit_init_net`, TCP's buffers and
//! congestion control). The lab therefore sets every setting that decides how packets travel, to the kernel's
//! documented default or to the value that a host in a lab needs, and reads it back.

use std::{fs, io};

use crate::{congestion, plan::Host};

/// Settings of all present and future interfaces.
const INTERFACES: &[(&str, &str)] = &[
    ("accept_local", "0"),
    ("accept_redirects", "0"),
    ("accept_source_route", "0"),
    ("arp_accept", "0"),
    ("arp_announce", "0"),
    ("arp_filter", "0"),
    ("arp_ignore", "0"),
    ("arp_notify", "0"),
    ("log_martians", "0"),
    ("proxy_arp", "0"),
    ("route_localnet", "0"),
    // With direct server return, a reply leaves through another interface than the one that received the request.
    ("rp_filter", "0"),
    ("secure_redirects", "0"),
    ("send_redirects", "0"),
    ("src_valid_mark", "0"),
];

const HOST: &[(&str, &str)] = &[
    ("net.ipv4.icmp_ratelimit", "1000"),
    ("net.ipv4.ip_default_ttl", "64"),
    ("net.ipv4.ip_local_port_range", "32768 60999"),
    ("net.ipv4.ip_no_pmtu_disc", "0"),
    ("net.ipv4.ip_nonlocal_bind", "0"),
    // Processes without root may listen on port 80.
    ("net.ipv4.ip_unprivileged_port_start", "0"),
    ("net.ipv4.tcp_ecn", "2"),
    ("net.ipv4.tcp_fin_timeout", "60"),
    ("net.ipv4.tcp_max_syn_backlog", "4096"),
    ("net.ipv4.tcp_max_tw_buckets", "262144"),
    ("net.ipv4.tcp_moderate_rcvbuf", "1"),
    ("net.ipv4.tcp_no_metrics_save", "1"),
    ("net.ipv4.tcp_rmem", "4096 131072 6291456"),
    ("net.ipv4.tcp_sack", "1"),
    ("net.ipv4.tcp_slow_start_after_idle", "1"),
    ("net.ipv4.tcp_syncookies", "1"),
    ("net.ipv4.tcp_timestamps", "1"),
    ("net.ipv4.tcp_tw_reuse", "2"),
    ("net.ipv4.tcp_window_scaling", "1"),
    ("net.ipv4.tcp_wmem", "4096 16384 4194304"),
    ("net.core.somaxconn", "4096"),
];

/// Settings of a host without an IPv6 address: no router solicitations and no duplicate address detection.
const WITHOUT_IPV6: &[(&str, &str)] =
    &[("net.ipv6.conf.all.disable_ipv6", "1"), ("net.ipv6.conf.default.disable_ipv6", "1")];

/// Settings of a host with an IPv6 address: the host has only the addresses and routes of the plan.
const WITH_IPV6: &[(&str, &str)] = &[
    ("net.ipv6.conf.all.disable_ipv6", "0"),
    ("net.ipv6.conf.default.disable_ipv6", "0"),
    ("net.ipv6.conf.default.accept_dad", "0"),
    ("net.ipv6.conf.default.accept_ra", "0"),
    ("net.ipv6.conf.default.accept_redirects", "0"),
    ("net.ipv6.conf.default.addr_gen_mode", "1"),
    ("net.ipv6.conf.default.router_solicitations", "0"),
    ("net.ipv6.bindv6only", "0"),
];

const SEGMENT: &[(&str, &str)] = &[
    ("net.bridge.bridge-nf-call-arptables", "0"),
    ("net.bridge.bridge-nf-call-ip6tables", "0"),
    ("net.bridge.bridge-nf-call-iptables", "0"),
    ("net.ipv6.conf.all.disable_ipv6", "1"),
    ("net.ipv6.conf.default.disable_ipv6", "1"),
];

/// Sets all settings that do not belong to a single interface. Call this inside the host's namespace.
pub(crate) fn set_for_host(host: &Host, has_ipv6: bool) -> io::Result<()> {
    let forward = if host.forward { "1" } else { "0" };
    set_if_present("net.ipv4.ip_forward", forward)?;
    if has_ipv6 {
        set_if_present("net.ipv6.conf.all.forwarding", forward)?;
    }
    for (name, value) in INTERFACES {
        for scope in ["all", "default"] {
            set_if_present(&format!("net.ipv4.conf.{scope}.{name}"), value)?;
        }
    }
    for (name, value) in HOST.iter().chain(if has_ipv6 { WITH_IPV6 } else { WITHOUT_IPV6 }) {
        set_if_present(name, value)?;
    }
    // A machine that does not allow the algorithm refuses this setting; the host then keeps the machine's algorithm.
    let _ = set(congestion::SETTING, congestion::DEFAULT);
    let given = host.sysctls.iter().filter(|(name, _)| interface_of(name).is_none());
    given.into_iter().try_for_each(|(name, value)| set(name, value))
}

/// Sets the settings that a segment's namespace needs. Call this inside that namespace.
pub(crate) fn set_for_segment() -> io::Result<()> {
    SEGMENT.iter().try_for_each(|(name, value)| set_if_present(name, value))
}

/// Sets the settings of single interfaces. Call this when all interfaces exist.
pub(crate) fn set_for_interfaces(host: &Host) -> io::Result<()> {
    let given = host.sysctls.iter().filter(|(name, _)| interface_of(name).is_some());
    given.into_iter().try_for_each(|(name, value)| set(name, value))
}

/// The interface in a name such as `net.ipv4.conf.eth0.arp_ignore`.
fn interface_of(name: &str) -> Option<&str> {
    let mut parts = name.split('.').skip(2);
    let section = parts.next()?;
    let interface = parts.next().filter(|_| matches!(section, "conf" | "neigh"))?;
    (!matches!(interface, "all" | "default" | "lo")).then_some(interface)
}

/// Sets one of the lab's own settings if the kernel has it.
fn set_if_present(name: &str, value: &str) -> io::Result<()> {
    match set(name, value) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

fn set(name: &str, value: &str) -> io::Result<()> {
    let path = kernel::sysctl_path(name);
    let explain = |error: io::Error| {
        let hint = match name {
            congestion::SETTING if error.kind() == io::ErrorKind::PermissionDenied => {
                "; the machine does not allow hosts to use it: outside of the lab, root can add it to \
                 net.ipv4.tcp_allowed_congestion_control"
                    .to_owned()
            }
            congestion::SETTING => format!("; this kernel has {}", congestion::available()),
            _ => String::new(),
        };
        io::Error::new(error.kind(), format!("{name} = {value}: {error}{hint}"))
    };
    let same = |now: &str| now.split_whitespace().eq(value.split_whitespace());
    // A write may pause the network, so a setting that already has its value is not written.
    if same(&fs::read_to_string(&path).map_err(explain)?) {
        return Ok(());
    }
    fs::write(&path, value).map_err(explain)?;
    let now = fs::read_to_string(&path).map_err(explain)?;
    if same(&now) {
        return Ok(());
    }
    Err(io::Error::other(format!("{name} = {value}: the kernel changed the value to {}", now.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_one_interface_are_known_by_their_names() {
        assert_eq!(interface_of("net.ipv4.conf.eth0.arp_ignore"), Some("eth0"));
        for general in ["net.ipv4.conf.all.rp_filter", "net.ipv4.tcp_rmem", "net.ipv4.conf.lo.arp_ignore"] {
            assert_eq!(interface_of(general), None, "{general}");
        }
    }
}
