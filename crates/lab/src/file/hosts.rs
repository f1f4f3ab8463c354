//! The table `[hosts]`.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::Range,
};

use record::units::parse_cpus;
use serde_json::{Map, Value as Json, json};
use settings::{Network, Reader, Table, Value, schema, values_of};
use toml::de::DeValue;

use crate::{
    congestion,
    host_names::{HostGroups, HostNames},
    keys::{self, Key, KeyType, key_table},
    plan::{Host, Plan, Route},
    private,
};

/// Maximum number of hosts in a lab: a bridge has at most 1023 ports.
const MAX_HOSTS: u64 = 1_000;

/// Routes by hosts. Gateways can be resolved only when all addresses are known.
pub(super) type UnresolvedRoutes = Vec<(Vec<usize>, Vec<UnresolvedRoute>)>;

pub(super) struct UnresolvedRoute {
    /// The destination; the default route if none.
    to: Option<Network>,
    via: Vec<(String, Range<usize>)>,
}

pub(super) fn read(
    reader: &mut Reader<'_>,
    table: &mut Table<'_, '_>,
) -> (Vec<Host>, HostGroups, UnresolvedRoutes) {
    let (mut hosts, mut groups, mut all_routes) = (Vec::new(), HostGroups::default(), Vec::new());
    let Some(value) = table.require(reader, "hosts", "a table such as web = { count = 2 }") else {
        return (hosts, groups, all_routes);
    };
    let entries = reader.table(value, "a table of hosts");
    if entries.entries().next().is_none() {
        reader.mistake(value.span(), "a lab needs at least one host");
    }
    let mut declared: Vec<_> = entries.entries().collect();
    // The table is sorted by name; hosts are numbered in the order of the file.
    declared.sort_by_key(|(span, ..)| span.start);
    for (span, name, value) in declared {
        if !is_name(name) {
            reader.mistake(span.clone(), format!("'{name}' is not a name: {NAME_RULE}"));
        }
        let mut table = reader.table(value, "a table such as { count = 2 } or {}");
        let mut entry = HostEntry::default();
        let names = HostNames { plan: &Plan::default(), groups: &HostGroups::default() };
        keys::read(KEYS, &mut entry, reader, &mut table, &names);
        table.finish(reader);
        let HostEntry { host, count, routes } = entry;
        let first = hosts.len();
        let names: Vec<String> = match count {
            Some(count) => (1..=count).map(|number| format!("{name}{number}")).collect(),
            None => vec![name.to_owned()],
        };
        for name in names {
            if groups.members.insert(name.clone(), vec![hosts.len()]).is_some() {
                reader.mistake(span.clone(), format!("the name '{name}' is given twice"));
            }
            hosts.push(Host { name, ..host.clone() });
        }
        let members: Vec<usize> = (first..hosts.len()).collect();
        if count.is_some() && groups.members.insert(name.to_owned(), members.clone()).is_some() {
            reader.mistake(span, format!("the name '{name}' is given twice"));
        }
        all_routes.push((members, routes));
    }
    if hosts.len() as u64 > MAX_HOSTS {
        reader.mistake(value.span(), format!("{} hosts; at most {MAX_HOSTS} are possible", hosts.len()));
    }
    (hosts, groups, all_routes)
}

/// Resolves the gateways of the routes and adds the routes to the plan.
pub(super) fn read_routes(
    reader: &mut Reader<'_>,
    plan: &mut Plan,
    groups: &HostGroups,
    routes: &UnresolvedRoutes,
) {
    for (members, routes) in routes {
        for (&host, route) in members.iter().flat_map(|host| routes.iter().map(move |route| (host, route))) {
            let mut via: Vec<IpAddr> = Vec::new();
            for (text, span) in &route.via {
                match gateways(plan, groups, host, route.to, text) {
                    Ok(found) if found.iter().any(|gateway| via.contains(gateway)) => {
                        reader.mistake(span.clone(), "a gateway is named twice here");
                    }
                    Ok(found) if found.iter().chain(&via).any(|one| one.is_ipv4() != found[0].is_ipv4()) => {
                        reader.mistake(span.clone(), "the gateways of a route must have the same IP version");
                    }
                    Ok(found) => via.extend(found),
                    Err(mistake) => reader.mistake(span.clone(), mistake),
                }
            }
            let Some(first) = via.first() else { continue };
            let any = match first {
                IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            };
            let to = route.to.unwrap_or(Network { address: any, prefix: 0 });
            plan.hosts[host].routes.push(Route { to: to.address, prefix: to.prefix, via });
        }
    }
}

/// The addresses of the gateways in a text, at least one. Each address is on a link of the host and has the route's IP
/// version.
fn gateways(
    plan: &Plan,
    groups: &HostGroups,
    host: usize,
    to: Option<Network>,
    via: &str,
) -> Result<Vec<IpAddr>, String> {
    let name = &plan.hosts[host].name;
    let fits = |address: IpAddr| to.is_none_or(|to| to.address.is_ipv4() == address.is_ipv4());
    if let Ok(address) = via.parse() {
        let reaches = plan.ends_of(host).any(|(link, _)| link.network().contains(address));
        return match reaches && fits(address) {
            true => Ok(vec![address]),
            false if reaches => Err(format!("{address} and the network are of different IP versions")),
            false => Err(format!("{name} has no link whose network contains {address}")),
        };
    }
    let members = groups.members_of(via).ok_or_else(|| groups.unknown_host(via))?;
    let found: Option<Vec<IpAddr>> =
        members.into_iter().map(|member| plan.shared_address(host, member, &fits)).collect();
    found.filter(|found| !found.is_empty()).ok_or_else(|| format!("{name} has no link to '{via}'"))
}

/// A table of `[hosts]`.
#[derive(Default)]
struct HostEntry {
    host: Host,
    count: Option<u64>,
    routes: Vec<UnresolvedRoute>,
}

const KEYS: &[Key<HostEntry>] = key_table! {
    /// makes NAME1 … NAMEn; the name alone means all of them
    "count", KeyType::Whole(1..MAX_HOSTS + 1, 25, |entry, n| entry.count = Some(n));
    /// whether it forwards packets
    "forward", KeyType::Flag(|entry, is| entry.host.forward = is);
    /// addresses on its loopback interface, each alone in its network
    "loopback", KeyType::Other(
        |what| schema::texts(what, "192.168.16.100"),
        |entry, reader, value, _| {
            let values = reader.array(value, "a list of addresses such as [\"192.168.16.100\"]");
            entry.host.loopback = values.iter().filter_map(|value| reader.address(value)).collect();
        },
    );
    /// processors that its processes may use
    "cpus", KeyType::Other(
        |what| {
            let types = ["string", "integer", "array"];
            json!({ "description": what, "examples": ["0-3", [0, 1]], "type": types })
        },
        |entry, reader, value, _| entry.host.cpus = read_cpus(reader, value),
    );
    /// processor time that its processes may use together, in processors
    "cpu_quota", KeyType::Other(
        |what| json!({ "type": ["number", "string"], "description": what, "examples": [0.5] }),
        |entry, reader, value, _| {
            let quota = reader.positive(value, "a number of processors above 0, such as 0.5");
            entry.host.cpu_quota = quota;
        },
    );
    /// TCP's congestion control; cubic unless given
    "congestion", KeyType::Other(
        |what| schema::text(what, "bbr"),
        |entry, reader, value, _| {
            let name = read_congestion(reader, value);
            entry.host.sysctls.extend(name.map(|name| (congestion::SETTING.to_owned(), name)));
        },
    );
    /// maximum bytes of a socket's receive buffer
    "tcp_rmem", KeyType::Other(
        |what| schema::size(what, "64MB"),
        |entry, reader, value, _| {
            read_buffer(&mut entry.host, reader, value, "net.ipv4.tcp_rmem", 131_072)
        },
    );
    /// maximum bytes of a socket's send buffer
    "tcp_wmem", KeyType::Other(
        |what| schema::size(what, "64MB"),
        |entry, reader, value, _| {
            read_buffer(&mut entry.host, reader, value, "net.ipv4.tcp_wmem", 16_384)
        },
    );
    /// settings of the host's network, by their whole names
    "sysctls", KeyType::Other(
        |what| {
            let value = json!({ "type": ["string", "integer", "boolean"] });
            json!({ "type": "object", "description": what, "additionalProperties": value })
        },
        |entry, reader, value, _| read_sysctls(&mut entry.host, reader, value),
    );
    /// folders that are its own, and empty at first
    "private", KeyType::Other(
        |what| schema::texts(what, "/tmp"),
        |entry, reader, value, _| read_private(&mut entry.host, reader, value),
    );
    /// routes beyond those of its links
    "routes", KeyType::Other(
        |what| {
            let keys = json!({
                "to": schema::text("A network, or \"default\".", "10.2.0.0/16"),
                "via": schema::one_or_more("A host, or an address on a link of this host; flows are spread over several.", "router"),
            });
            let route = schema::table(keys, &["to", "via"]);
            json!({ "type": "array", "description": what, "items": route })
        },
        |entry, reader, value, _| entry.routes = read_route_texts(reader, value),
    );
};

/// The schema of a host's keys.
pub fn host_schema() -> Map<String, Json> {
    keys::schema(KEYS)
}

fn read_sysctls(host: &mut Host, reader: &mut Reader<'_>, value: &Value<'_>) {
    let sysctls = reader.table(value, "a table such as { \"net.ipv4.tcp_rmem\" = \"4096 87380 67108864\" }");
    for (span, name, value) in sysctls.entries() {
        if !is_network_sysctl(name) {
            let message = "only settings of the host's network are possible, such as \"net.ipv4.ip_forward\"; write \
                           the whole name in quotes";
            reader.mistake(span, format!("'{name}': {message}"));
        } else if let Some(text) = sysctl_value(reader, value) {
            host.sysctls.insert(name.to_owned(), text);
        }
    }
}

fn read_private(host: &mut Host, reader: &mut Reader<'_>, value: &Value<'_>) {
    for value in reader.array(value, "a list of folders such as [\"/root\", \"/tmp\"]") {
        if let Some(text) = reader.text_such_as(value, "a folder in quotes, such as \"/tmp\"") {
            let folder = private::parse(text, &host.private);
            host.private.extend(reader.checked(value, folder));
        }
    }
}

fn read_congestion(reader: &mut Reader<'_>, value: &Value<'_>) -> Option<String> {
    let name = reader.text_such_as(value, "an algorithm in quotes, such as \"cubic\" or \"bbr\"")?;
    let is_name =
        !name.is_empty() && name.len() < 16 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let refuse = || format!("'{name}' is not the name of an algorithm such as cubic or bbr");
    reader.checked(value, is_name.then(|| name.to_owned()).ok_or_else(refuse))
}

/// Reads the maximum size of a socket buffer. `initial` is the initial size in bytes.
fn read_buffer(host: &mut Host, reader: &mut Reader<'_>, value: &Value<'_>, sysctl: &str, initial: u64) {
    let Some(max_bytes) = reader.size(value) else { return };
    if !(4_096..1 << 31).contains(&max_bytes) {
        reader.mistake(value.span(), "a socket buffer must have 4KiB to 2047MiB");
    }
    host.sysctls.insert(sysctl.to_owned(), format!("4096 {} {max_bytes}", initial.min(max_bytes)));
}

fn read_route_texts(reader: &mut Reader<'_>, value: &Value<'_>) -> Vec<UnresolvedRoute> {
    let what = "a list of routes such as [{ to = \"default\", via = \"router\" }]";
    let mut routes = Vec::new();
    for value in reader.array(value, what) {
        let mut table = reader.table(value, "a route such as { to = \"default\", via = \"router\" }");
        let to = table.require(reader, "to", "a network such as \"10.2.0.0/16\", or \"default\"");
        let to = to.and_then(|value| {
            let text = reader.text_such_as(value, "a network in quotes, or \"default\"")?;
            let network = if text == "default" { Ok(None) } else { text.parse().map(Some) };
            reader.checked(value, network)
        });
        let via = table.require(reader, "via", "the gateway: a host or an address, or a list of them");
        let values = via.map_or(&[][..], values_of);
        if let (Some(value), []) = (via, values) {
            reader.mistake(value.span(), "a route needs at least one gateway");
        }
        let via = values.iter().filter_map(|via| Some((reader.text(via)?.to_owned(), via.span()))).collect();
        table.finish(reader);
        if let Some(to) = to {
            routes.push(UnresolvedRoute { to, via });
        }
    }
    routes
}

/// Number of processors in the kernel's processor sets (`cpu_set_t`).
const MAX_CPUS: u32 = 1_024;

/// Reads processors: `0`, `"0-3,6"` or `[0, 1]`.
fn read_cpus(reader: &mut Reader<'_>, value: &Value<'_>) -> Option<Vec<usize>> {
    const WHAT: &str = "processors such as \"0-3\", \"0,2\" or [0, 1]";
    let cpu = |reader: &mut Reader<'_>, value: &Value<'_>| {
        reader.whole(value, 0..MAX_CPUS.into()).map(|cpu| cpu as usize)
    };
    match value.get_ref() {
        DeValue::Integer(_) => cpu(reader, value).map(|cpu| vec![cpu]),
        DeValue::Array(values) if !values.is_empty() => {
            values.iter().map(|value| cpu(reader, value)).collect()
        }
        DeValue::String(text) => match parse_cpus(text) {
            Ok(cpus) if cpus.iter().all(|&cpu| cpu < MAX_CPUS) => {
                Some(cpus.into_iter().map(|cpu| cpu as usize).collect())
            }
            _ => reader.refuse(value.span(), format!("'{text}' does not name {WHAT}")),
        },
        _ => reader.refuse(value.span(), format!("expected {WHAT}")),
    }
}

fn is_network_sysctl(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    name.starts_with("net.")
        && name.chars().all(plain)
        && !name.split('.').any(|part| part.is_empty())
        && !name.contains("..")
        && !name.contains("//")
}

fn sysctl_value(reader: &mut Reader<'_>, value: &Value<'_>) -> Option<String> {
    match value.get_ref() {
        DeValue::String(text) => Some(text.as_ref().to_owned()),
        DeValue::Integer(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(flag) => Some(u8::from(*flag).to_string()),
        _ => reader.refuse(value.span(), "expected the setting's value: text, a whole number, true or false"),
    }
}

pub(super) const NAME_RULE: &str = "1 to 15 of a-z, 0-9 and '-', beginning with a letter";

/// Whether a text is a valid name of a host. A bridge port has the same name, and the kernel limits that to 15
/// characters.
pub(super) fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    name.len() <= 15 && name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(plain)
}
