//! What the emulated links of a trial give by name.

use lab::link::{Carried, LinkSpec};
use lab::plan::LinkKind;
use record::{DeclaredQuantity, Kind};

use crate::study::Setup;

/// The directions of a link, as its quantities call them.
pub(super) const WAYS: [&str; 2] = ["a_to_b", "b_to_a"];

pub(super) type Counter = (&'static str, &'static str, bool, fn(&Carried) -> u64);

/// What is told of each direction of a link: the end of the quantity's name, its words, whether more of it is better, and how
/// it is read.
pub(super) const COUNTED: [Counter; 4] = [
    ("bytes", "bytes", true, |carried| carried.delivered_bytes),
    ("packets", "packets", true, |carried| carried.delivered_packets),
    ("dropped_packets", "packets dropped by its full queue", false, |carried| carried.dropped_queue_packets),
    ("lost_packets", "packets lost as asked", false, |carried| carried.dropped_loss_packets),
];

pub(super) fn quantity(link: &str, way: &str, counter: &str) -> String {
    format!("link_{}_{way}_{counter}", plain(link))
}

/// A link's name as names of quantities have it.
fn plain(link: &str) -> String {
    link.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// The quantities that the emulated links of a setup give.
pub(crate) fn quantities(setup: &Setup) -> Vec<DeclaredQuantity> {
    let links = setup.lab.iter().flat_map(|plan| &plan.links);
    let emulated: Vec<_> = links.filter(|link| matches!(link.kind, LinkKind::Emulated(_))).collect();
    let is_main = setup.workload.kind() == Kind::Command;
    let product = |link: &&lab::plan::Link| DeclaredQuantity {
        name: product_name(&link.name),
        words: "bandwidth × delay".to_owned(),
        more_is_better: true,
        is_main,
    };
    let products = emulated.iter().map(product);
    let of = |(link, way, (counter, words, more_is_better, _)): (&str, &str, Counter)| DeclaredQuantity {
        name: quantity(link, way, counter),
        words: format!("link {link}, {}, {words}", way.replace('_', " ")),
        more_is_better,
        is_main: false,
    };
    let counted = emulated
        .iter()
        .flat_map(|link| WAYS.map(|way| COUNTED.map(|counter| of((&link.name, way, counter)))));
    products.chain(counted.flatten()).collect()
}

/// The bytes that fill a link for a round trip: the slower direction's rate times both delays.
pub(super) fn product_name(link: &str) -> String {
    format!("link_{}_bdp_bytes", plain(link))
}

pub(super) fn product_bytes(spec: &LinkSpec) -> Option<f64> {
    let rates = [&spec.a_to_b, &spec.b_to_a].into_iter().filter_map(|shape| shape.rate_bits_per_s);
    Some(rates.min()? as f64 / 8.0 * spec.round_trip_ns() as f64 / 1e9)
}
