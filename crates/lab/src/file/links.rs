//! The tables `[[links]]`.

use std::{collections::BTreeMap, net::IpAddr, ops::Range};

use settings::{Network, Reader, Table, Value, network::address_after};
use toml::de::DeValue;

use super::hosts::{NAME_RULE, is_name};
use crate::{
    host_names::{HostGroups, HostNames},
    link::{
        netem,
        spec::{Driver, Layer, LinkSpec, Shape},
        text::{KEYS, ShapeText},
    },
    plan::{End, Link, LinkKind, Plan},
};

pub(super) fn read(reader: &mut Reader<'_>, table: &mut Table<'_, '_>, names: &HostNames<'_>) -> Vec<Link> {
    let mut links: Vec<Link> = Vec::new();
    let Some(value) = table.take("links") else { return links };
    for value in reader.array(value, "tables [[links]]") {
        let link = read_one(reader, value, names, &links);
        links.extend(link);
    }
    links
}

fn read_one(
    reader: &mut Reader<'_>,
    value: &Value<'_>,
    HostNames { plan, groups }: &HostNames<'_>,
    others: &[Link],
) -> Option<Link> {
    let mut table = reader.table(value, "a table [[links]]");
    let between = table.require(reader, "between", "the hosts that it joins, such as [\"a\", \"b\"]");
    let hosts = between.map(|value| {
        if !matches!(value.get_ref(), DeValue::Array(_)) {
            reader.mistake(value.span(), "expected a list of hosts such as [\"a\", \"b\"]");
            return Vec::new();
        }
        let mistakes_before = reader.mistake_count();
        let hosts = groups.read_hosts(reader, value);
        // An unknown host has already been reported; it may be the missing second host.
        if hosts.len() < 2 && reader.mistake_count() == mistakes_before {
            reader.mistake(value.span(), "a link joins at least two hosts");
        }
        hosts
    });
    let segment = table.take("segment").and_then(|value| reader.flag(value));
    let mtu = table.take("mtu").and_then(|value| reader.whole(value, 576..65_536)).unwrap_or(1_500);
    let name = read_name(reader, &mut table, others);
    let network = read_network(reader, &mut table, others);
    let addresses = read_addresses(reader, &mut table, groups);
    let shape_keys = read_shape_keys(reader, &mut table, others.len());
    let span = table.span();
    table.finish(reader);
    let hosts = hosts.filter(|hosts| hosts.len() >= 2)?;
    let is_segment = segment.unwrap_or(hosts.len() > 2);
    if segment == Some(false) && hosts.len() > 2 {
        reader.mistake(span.clone(), format!("{} hosts can only be joined by a segment", hosts.len()));
    }
    let kind = match shape_keys {
        shape_keys if is_segment => read_segment(reader, shape_keys),
        Some(ShapeKeys { spec, given_keys, is_emulated: true }) => {
            // The check is here, because only the reader knows the line and the column.
            let driver = given_keys.into_iter().find(|(key, _)| *key == "driver");
            if let (Driver::Netem, Some((_, span))) = (spec.driver, driver) {
                netem::mistakes(&spec).into_iter().for_each(|mistake| reader.mistake(span.clone(), mistake));
            }
            LinkKind::Emulated(Box::new(spec))
        }
        _ => LinkKind::Pair,
    };
    let network = network?;
    let ends = assign_addresses(reader, span, plan, &hosts, network, &addresses, others)?;
    let Network { address: network, prefix } = network;
    Some(Link { name, kind, network, prefix, mtu: mtu as u32, ends })
}

fn read_name(reader: &mut Reader<'_>, table: &mut Table<'_, '_>, others: &[Link]) -> String {
    let automatic = format!("link{}", others.len() + 1);
    let Some(value) = table.take("name") else { return automatic };
    let Some(name) = reader.text(value) else { return automatic };
    if !is_name(name) {
        reader.mistake(value.span(), format!("'{name}' is not a name: {NAME_RULE}"));
    }
    if others.iter().any(|other| other.name == name) {
        reader.mistake(value.span(), format!("the name '{name}' is given twice"));
    }
    name.to_owned()
}

/// The network in the file, otherwise the next free one of 10.0.0.0/8.
fn read_network(reader: &mut Reader<'_>, table: &mut Table<'_, '_>, others: &[Link]) -> Option<Network> {
    let Some(value) = table.take("network") else {
        // The automatic network of the Nth link is 10.N.0.0/16, or the next one that overlaps with no earlier network.
        let numbered = |second| Network { address: IpAddr::from([10, second, 0, 0]), prefix: 16 };
        let mut automatic = (1..=255).skip(others.len()).map(numbered);
        let free = automatic.find(|network| !others.iter().any(|other| network.overlaps(&other.network())));
        if free.is_none() {
            reader.mistake(table.span(), "no automatic network is left; give 'network'");
        }
        return free;
    };
    let network = reader.network(value)?;
    let longest = Network::max_prefix(network.address) - 2;
    if network.prefix > longest {
        let message = format!("a network needs room for two hosts: a prefix of at most {longest}");
        return reader.refuse(value.span(), message);
    }
    if let Some(other) = others.iter().find(|other| network.overlaps(&other.network())) {
        reader.mistake(value.span(), format!("this network overlaps with that of '{}'", other.name));
    }
    Some(network)
}

type GivenAddresses = BTreeMap<usize, (IpAddr, Range<usize>)>;

/// Reads the addresses in the file. The address of a group is that of its first host; the other hosts get the next
/// addresses.
fn read_addresses(reader: &mut Reader<'_>, table: &mut Table<'_, '_>, groups: &HostGroups) -> GivenAddresses {
    let mut given = GivenAddresses::new();
    let Some(value) = table.take("addresses") else { return given };
    let list = reader.table(value, "a table such as { web = \"10.1.0.10\" }");
    for (span, name, value) in list.entries() {
        let Some(hosts) = groups.members_of(name) else {
            reader.mistake(span, groups.unknown_host(name));
            continue;
        };
        let Some(first) = reader.address(value) else { continue };
        for (offset, host) in hosts.into_iter().enumerate() {
            given.insert(host, (address_after(first, offset as u32), value.span()));
        }
    }
    given
}

/// Assigns an interface and an address to every host.
fn assign_addresses(
    reader: &mut Reader<'_>,
    span: Range<usize>,
    plan: &Plan,
    hosts: &[usize],
    network: Network,
    given: &GivenAddresses,
    others: &[Link],
) -> Option<Vec<End>> {
    let mut taken: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for (&host, (address, span)) in given {
        let name = &plan.hosts[host].name;
        if !hosts.contains(&host) {
            reader.mistake(span.clone(), format!("'{name}' is not on this link"));
        } else if !network.has_host(*address) {
            reader.mistake(span.clone(), format!("{address} is not a host address of {network}"));
        } else if let Some(other) = taken.insert(*address, host) {
            let other = &plan.hosts[other].name;
            reader.mistake(span.clone(), format!("{address} is given to both '{other}' and '{name}'"));
        }
    }
    let mut next = address_after(network.address, 1);
    let mut ends = Vec::new();
    for &host in hosts {
        let address = if let Some((address, _)) = given.get(&host) {
            *address
        } else {
            while taken.contains_key(&next) {
                next = address_after(next, 1);
            }
            if !network.has_host(next) {
                return reader.refuse(span, format!("{network} has no room for {} hosts", hosts.len()));
            }
            let address = next;
            next = address_after(next, 1);
            address
        };
        let earlier = others.iter().filter(|link| link.ends.iter().any(|end| end.host == host)).count();
        ends.push(End { host, device: format!("eth{earlier}"), address });
    }
    Some(ends)
}

/// Reads a segment. Of the keys of the shape, a segment supports only the rate.
fn read_segment(reader: &mut Reader<'_>, shape_keys: Option<ShapeKeys>) -> LinkKind {
    let Some(ShapeKeys { spec, given_keys, .. }) = shape_keys else {
        return LinkKind::Segment { port_rate_bits_per_s: None };
    };
    for (key, span) in given_keys {
        let message = match key {
            "rate" => continue,
            "layer" if spec.a_to_b.layer == Layer::Frame => continue,
            "layer" => "a segment's rate counts Ethernet frames: layer = \"frame\"".to_owned(),
            _ => format!(
                "a segment does not support '{key}', only a rate; give '{key}' to a link between two hosts, one of which may \
                 be a router (forward = true) on the segment"
            ),
        };
        reader.mistake(span, message);
    }
    LinkKind::Segment { port_rate_bits_per_s: spec.a_to_b.rate_bits_per_s }
}

/// The shape of a link in the file.
struct ShapeKeys {
    spec: LinkSpec,
    given_keys: Vec<(&'static str, Range<usize>)>,
    /// Whether a key other than the seed is given; the link must then be emulated.
    is_emulated: bool,
}

fn read_shape_keys(reader: &mut Reader<'_>, table: &mut Table<'_, '_>, number: usize) -> Option<ShapeKeys> {
    let mut given_keys = Vec::new();
    let driver = table.take("driver").and_then(|value| {
        given_keys.push(("driver", value.span()));
        let text = reader.text(value)?;
        let driver = match text {
            "emulator" => Ok(Driver::Emulator),
            "netem" => Ok(Driver::Netem),
            _ => Err(format!("'{text}' is not a driver; one of emulator, netem")),
        };
        reader.checked(value, driver)
    });
    let text = read_text(reader, table);
    given_keys.extend(text.1.iter().map(|(key, span)| (*key, span.clone())));
    let directions = [(0, "a_to_b"), (1, "b_to_a")].map(|(offset, key)| (offset, key, table.take(key)));
    given_keys.extend(directions.iter().filter_map(|(_, key, value)| Some((*key, (*value)?.span()))));
    let is_emulated = !given_keys.is_empty();
    let seed = table.take("seed").and_then(|value| {
        given_keys.push(("seed", value.span()));
        reader.whole(value, 0..1 << 32)
    });
    let base = Shape { seed: seed.unwrap_or(2 * number as u64 + 1), ..Shape::default() };
    let common = read_shape(reader, &text, &base);
    let [a_to_b, b_to_a] = directions.map(|(offset, _, value)| {
        let base = Shape { seed: common.seed.wrapping_add(offset), ..common.clone() };
        let Some(value) = value else { return base };
        let mut table = reader.table(value, "a table such as { rate = \"20mbit\" }");
        let text = read_text(reader, &mut table);
        table.finish(reader);
        read_shape(reader, &text, &base)
    });
    let spec = LinkSpec { driver: driver.unwrap_or_default(), a_to_b, b_to_a };
    (!given_keys.is_empty()).then_some(ShapeKeys { spec, given_keys, is_emulated })
}

type WrittenShape = (ShapeText, BTreeMap<&'static str, Range<usize>>);

/// Reads the shape of a direction as text, with the position of each key.
fn read_text(reader: &mut Reader<'_>, table: &mut Table<'_, '_>) -> WrittenShape {
    let (mut text, mut spans) = (ShapeText::default(), BTreeMap::new());
    for row in KEYS {
        let Some(value) = table.take(row.key) else { continue };
        spans.insert(row.key, value.span());
        reader.text(value).into_iter().for_each(|given| text.insert(row, given));
    }
    (text, spans)
}

fn read_shape(reader: &mut Reader<'_>, (text, spans): &WrittenShape, base: &Shape) -> Shape {
    match text.read(base) {
        Ok(shape) => shape,
        Err(mistakes) => {
            for mistake in mistakes {
                let span = spans.get(mistake.key).cloned().or_else(|| spans.values().next().cloned());
                reader.mistake(span.unwrap_or(0..0), mistake.message);
            }
            base.clone()
        }
    }
}
