//! The rules, in the order in which causes hide each other.

mod inside;
mod load;
mod network;
mod programs;
mod target;
mod work;

use std::net::{IpAddr, SocketAddr};

use record::{Cause, Certainty, Counters, HostCounters, ListenerUse};

use crate::{Finding, Observed, Role, percent};

pub(crate) use inside::{INSIDE, parts};
pub(crate) use load::carried;
pub(crate) use network::{lost, window_share};
pub(crate) use programs::target_programs;
pub(crate) use target::{
    blocked_share, delayed_ack_share, disk_share, fails_to_connect, mean_waiting, stopped_share,
    throttled_share,
};
pub(crate) use work::{RequestsAt, busy_share};
use work::{busiest_target, have_time, in_flight};

/// A core works mainly for the network if the network's interrupts take at least this share of its time.
const SOFTIRQ_SHARE: f64 = 0.5;
/// A core that is busy for this share has no time left.
const FULL_CORE_SHARE: f64 = 0.97;

type Rule = fn(&Observed<'_>) -> Finding;

/// An earlier cause can produce the signs of later ones: a program without descriptors lets its accept queue overflow, and
/// a full link looks like a small congestion window.
pub(crate) const RULES: [(Cause, Rule); 23] = [
    (Cause::Generator, load::generator),
    (Cause::SourcePorts, load::source_ports),
    (Cause::Descriptors, target::descriptors),
    (Cause::RateLimiter, target::rate_limiter),
    (Cause::CpuQuota, target::cpu_quota),
    (Cause::Conntrack, network::conntrack),
    (Cause::Stopped, target::stopped),
    (Cause::HotCore, target::hot_core),
    (Cause::LacksProcessor, target::lacks_processor),
    (Cause::ConnectionLimit, target::connection_limit),
    (Cause::AcceptQueue, target::accept_queue),
    (Cause::SynQueue, target::syn_queue),
    (Cause::LinkRate, network::link_rate),
    (Cause::LinkQueue, network::link_queue),
    (Cause::PacketQueue, network::packet_queue),
    (Cause::ReceiveWindow, network::receive_window),
    (Cause::SendBuffer, network::send_buffer),
    (Cause::PacketLoss, network::packet_loss),
    (Cause::SshWindow, network::ssh_window),
    (Cause::CongestionWindow, network::congestion_window),
    (Cause::DelayedAck, target::delayed_ack),
    (Cause::Disk, target::disk),
    // The service itself takes what the other causes leave.
    (Cause::SlowHandler, target::slow_handler),
];

/// The hosts of the targets.
fn targets<'a>(observed: &'a Observed<'_>) -> impl Iterator<Item = &'a HostCounters> + Clone {
    target_hosts(observed).map(|(host, _)| host)
}

fn counted(place: &str, evidence: String) -> Finding {
    Finding::Bound { place: place.to_owned(), evidence, certainty: Certainty::Counted }
}

fn likely(place: &str, evidence: String) -> Finding {
    Finding::Bound { place: place.to_owned(), evidence, certainty: Certainty::Likely }
}

/// A core that was fully busy, mostly with the network's interrupts.
fn core_full_of_interrupts(observed: &Observed<'_>, place: &str, machine: &Counters) -> Option<String> {
    let cores = machine.online_cpus().into_iter().filter_map(|core| {
        let of = |what: &str| {
            let ms = machine.get(&format!("cpu{core}.{what}_ms"))?;
            Some(share_at(observed, place, ms as f64 / 1e3))
        };
        // Steal time is neither work nor idle.
        Some((core, 1.0 - of("idle")? - of("steal").unwrap_or(0.0), of("softirq")?))
    });
    let full = cores.filter(|(_, busy, softirq)| *busy >= FULL_CORE_SHARE && *softirq >= SOFTIRQ_SHARE);
    full.max_by(|a, b| a.2.total_cmp(&b.2)).map(|(core, busy, softirq)| {
        format!(
            "core {core} was busy {} of the time, {} with the network's interrupts",
            percent(busy),
            percent(softirq)
        )
    })
}

/// Share of a machine's processor time that the hypervisor took away for other virtual machines.
fn stolen_share(observed: &Observed<'_>, place: &str, machine: &Counters) -> f64 {
    let cpus = machine.online_cpus();
    share_at(observed, place, machine.processors_s(&cpus, "steal")) / cpus.len().max(1) as f64
}

/// A time as a share of the trial.
fn share_of_trial(observed: &Observed<'_>, time_s: f64) -> f64 {
    time_s / observed.counters.elapsed_s.max(f64::MIN_POSITIVE)
}

/// A time as a share of the trial at a host, whose counters may cover another period.
fn share_at(observed: &Observed<'_>, host: &str, time_s: f64) -> f64 {
    time_s / observed.counters.elapsed_s_at(host)
}

/// Why a host has no counters although proofload should have watched it; none if it has some.
pub(crate) fn is_lost(host: &HostCounters) -> Option<&str> {
    host.counters.missing.get("ssh").filter(|_| host.counters.values.is_empty()).map(String::as_str)
}

/// The counters of these hosts' machines, with names. Each remote host has its own; all other hosts share this machine, which comes once,
/// with an empty name.
fn machines<'a>(
    observed: &'a Observed<'_>,
    hosts: impl Iterator<Item = &'a HostCounters> + Clone,
) -> impl Iterator<Item = (&'a str, &'a Counters)> {
    let is_here = hosts.clone().any(|host| host.machine.is_none() && is_lost(host).is_none());
    let here = is_here.then_some(("", &observed.counters.machine));
    here.into_iter().chain(hosts.filter_map(|host| Some((host.host.as_str(), host.machine.as_ref()?))))
}

/// The hosts of the targets, each with whether it has other programs as well: it generates the load, or is this machine without a lab, which
/// has no name.
fn target_hosts<'a>(observed: &'a Observed<'_>) -> impl Iterator<Item = (&'a HostCounters, bool)> + Clone {
    let with_role = observed.counters.hosts.iter().zip(observed.roles);
    with_role
        .filter(|(host, role)| role.is_target() && is_lost(host).is_none() && is_reached(observed, host))
        .map(|(host, role)| (host, *role == Role::Both || host.host.is_empty()))
}

/// Whether the load of a trial may have reached a host: a host that received fewer segments than a connection needs was not.
fn is_reached(observed: &Observed<'_>, host: &HostCounters) -> bool {
    const SEGMENTS_OF_A_CONNECTION: u64 = 3;
    let received = host.counters.get("Tcp.InSegs");
    observed.trial.http().is_none() || received.is_none_or(|segments| segments >= SEGMENTS_OF_A_CONNECTION)
}

/// Whether requests go to this address of a listening socket. The port decides if no socket listens at the addresses of the requests: a NAT
/// changes them.
fn is_asked(observed: &Observed<'_>, address: &str) -> bool {
    let targets = observed.trial.http().map_or(&[][..], |http| &http.plan.targets);
    let asked = |address: &str, by_port: bool| {
        let Ok(at) = address.parse::<SocketAddr>() else { return false };
        let ip = at.ip().to_canonical();
        let is_at = |ip_asked: IpAddr| by_port || ip.is_unspecified() || ip == ip_asked;
        targets.iter().any(|target| at.port() == target.port() && is_at(target.ip().to_canonical()))
    };
    let mut listeners = observed.counters.hosts.iter().flat_map(|host| host.listeners.keys());
    asked(address, false) || asked(address, true) && !listeners.any(|known| asked(known, false))
}

/// Why proofload could not look at some processes of the targets, or only at the start and the end: there were too many, or this user may
/// not see them. If all sockets that receive requests belong to visible processes, the hidden processes are not the target's. `sampled`
/// says whether the rule needs a sample of each second.
fn hidden_programs<'a>(observed: &'a Observed<'_>, sampled: bool) -> Option<&'a str> {
    let is_seen = |host: &HostCounters, address: &String| {
        host.programs.iter().any(|program| program.listens.contains(address))
    };
    targets(observed).find_map(|host| {
        let missing = &host.counters.missing;
        let asked = || host.listeners.keys().filter(|address| is_asked(observed, address));
        let is_another = asked().next().is_some() && asked().all(|address| is_seen(host, address));
        let hidden = missing.get("programs").filter(|_| !is_another);
        // There were too many processes to sample each second. On this machine, proofload looked at all of them at the start and the end.
        let more = missing.get("more programs").filter(|_| sampled || host.machine.is_some());
        more.or(hidden).map(String::as_str)
    })
}

/// The listening sockets of the targets with their hosts and addresses.
fn listeners<'a>(
    observed: &'a Observed<'_>,
) -> impl Iterator<Item = (&'a HostCounters, &'a str, &'a ListenerUse)> {
    target_hosts(observed).flat_map(move |(host, is_both)| {
        let is_target = move |(address, _): &(&String, _)| !is_both || is_asked(observed, address);
        host.listeners.iter().filter(is_target).map(move |(address, queue)| (host, address.as_str(), queue))
    })
}
