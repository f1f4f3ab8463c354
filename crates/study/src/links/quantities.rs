//! The quantities of the emulated links of a trial.

use lab::link::{Carried, LinkSpec};
use lab::plan::{End, Link, LinkKind, Plan};
use record::{DeclaredQuantity, Kind};

use crate::study::Setup;

/// Names of the directions within quantities.
pub(super) const DIRECTIONS: [&str; 2] = ["a_to_b", "b_to_a"];

pub(super) type Counter = (&'static str, &'static str, bool, fn(&Carried) -> u64);

/// Counters of each direction of a link: the suffix of the quantity's name, its description for users, whether more is better, and how to
/// read the counter.
pub(super) const COUNTERS: [Counter; 5] = [
    ("bytes", "bytes", true, |carried| carried.delivered_bytes),
    ("packets", "packets", true, |carried| carried.delivered_packets),
    ("dropped_packets", "packets dropped by its full queue", false, |carried| carried.dropped_queue_packets),
    ("lost_packets", "packets lost as asked", false, |carried| carried.dropped_loss_packets),
    ("late_packets", "packets delivered more than 1 ms late", false, |carried| carried.late_packets),
];

pub(super) fn quantity_name(link: &str, direction: &str, counter: &str) -> String {
    format!("link_{}_{direction}_{counter}", normalized(link))
}

/// Replaces the characters of a link's or host's name that names of quantities must not contain.
pub(crate) fn normalized(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// The quantities that the emulated links of a setup yield.
pub(crate) fn quantities(setup: &Setup) -> Vec<DeclaredQuantity> {
    let links = setup.lab.iter().flat_map(|plan| &plan.links);
    let emulated: Vec<_> = links.filter(|link| matches!(link.kind, LinkKind::Emulated(_))).collect();
    let is_main = setup.workload.kind() == Kind::Command;
    let bdp = |link: &&Link| DeclaredQuantity {
        name: bdp_name(&link.name),
        words: "bandwidth × delay".to_owned(),
        more_is_better: true,
        is_main,
    };
    let bdps = emulated.iter().map(bdp);
    let buffer = |link: &&Link| {
        let plan = setup.lab.as_ref()?;
        buffer_bits_per_s(plan, link).map(|_| DeclaredQuantity {
            name: buffer_name(&link.name),
            words: "buffer ÷ round trip".to_owned(),
            more_is_better: true,
            is_main,
        })
    };
    let buffers = emulated.iter().filter_map(buffer);
    let of =
        |(link, direction, (counter, words, more_is_better, _)): (&str, &str, Counter)| DeclaredQuantity {
            name: quantity_name(link, direction, counter),
            words: format!("link {link}, {}, {words}", direction.replace('_', " ")),
            more_is_better,
            is_main: false,
        };
    let counted = emulated.iter().flat_map(|link| {
        DIRECTIONS.map(|direction| COUNTERS.map(|counter| of((&link.name, direction, counter))))
    });
    bdps.chain(buffers).chain(counted.flatten()).collect()
}

/// Name of the bandwidth-delay product: the slower direction's rate times the round-trip delay.
pub(super) fn bdp_name(link: &str) -> String {
    format!("link_{}_bdp_bytes", normalized(link))
}

pub(super) fn bdp_bytes(spec: &LinkSpec) -> Option<f64> {
    let rates = [&spec.a_to_b, &spec.b_to_a].into_iter().filter_map(|shape| shape.rate_bits_per_s);
    Some(rates.min()? as f64 / 8.0 * spec.round_trip_ns() as f64 / 1e9)
}

/// Name of the rate that the socket buffers allow one connection.
pub(super) fn buffer_name(link: &str) -> String {
    format!("link_{}_buffer_bit_per_s", normalized(link))
}

/// The smallest of the largest socket buffers that the study sets on the hosts of a link, divided by the link's round trip: an
/// upper bound for one connection. `None` if the study sets none.
pub(super) fn buffer_bits_per_s(plan: &Plan, link: &Link) -> Option<f64> {
    let LinkKind::Emulated(spec) = &link.kind else { return None };
    let largest = |end: &End, name: &str| {
        plan.hosts[end.host].sysctls.get(name)?.split_whitespace().last()?.parse::<u64>().ok()
    };
    let names = ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"];
    let buffers = link.ends.iter().flat_map(|end| names.map(|name| largest(end, name)));
    let round_trip_s = Some(spec.round_trip_ns() as f64 / 1e9).filter(|seconds| *seconds > 0.0)?;
    Some(buffers.flatten().min()? as f64 * 8.0 / round_trip_s)
}
