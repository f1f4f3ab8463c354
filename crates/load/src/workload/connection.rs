//! The connection options of a workload: addresses, timeouts and lifetimes.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use record::{ConnectionPlan, HttpPlan, NamePlan, Text, TunnelPlan, units::show_time_ns};
use rustix::net::SocketAddrUnix;
use url::Url;

use super::{
    HttpWorkload,
    headers::basic_auth_field,
    text::{Mistakes, ParsedUrl, parse_url},
};

/// Resolves a host and a port to addresses.
pub(super) type Lookup<'a> = &'a dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

/// A host and a port, and the addresses to which they resolve.
type Named = (String, Vec<SocketAddr>);

impl HttpWorkload {
    /// The addresses to connect to from these sources, and the connection options. A name gets its first address, until
    /// [`crate::addresses::choose`] has tried all of them.
    pub(super) fn connection(
        &self,
        url: Option<&Url>,
        sources: &[IpAddr],
        lookup: Lookup<'_>,
        mistakes: &mut Mistakes,
    ) -> (Vec<SocketAddr>, ConnectionPlan) {
        let mut plan = ConnectionPlan {
            names: Vec::new(),
            unix_socket: self.unix_socket.as_ref().map(Into::into),
            tunnel: None,
            proxy_protocol: self.proxy_protocol,
            connect_timeout_ns: mistakes.limit_ns("connect_timeout", &self.connect_timeout),
            handshake_timeout_ns: mistakes.limit_ns("handshake_timeout", &self.handshake_timeout),
            answer_timeout_ns: mistakes.limit_ns("answer_timeout", &self.answer_timeout),
            max_requests: mistakes.count("connection_requests", &self.connection_requests),
            max_age_ns: mistakes.limit_ns("connection_lifetime", &self.connection_lifetime),
        };
        self.check_connection(mistakes);
        let mut found: Vec<Named> = match (&self.unix_socket, &self.proxy, &self.connect_to) {
            (Some(_), ..) => Vec::new(),
            (None, Some(proxy), _) => {
                let found = mistakes.read("proxy", proxy_of(proxy, url, lookup).map(Some));
                let (address, tunnel) = found.unzip();
                plan.tunnel = tunnel;
                address.into_iter().collect()
            }
            (None, None, Some(list)) => mistakes.read("connect_to", addresses_of(list, lookup)),
            (None, None, None) => url.map_or_else(Vec::new, |url| {
                mistakes.read("url", address_of(url, NO_ADDRESS, lookup).map(|named| vec![named]))
            }),
        };
        keep_family_of(sources, &mut found, mistakes);
        let targets = found.iter().filter_map(|(_, addresses)| addresses.first().copied()).collect();
        let all = self.address.as_deref() == Some("all");
        let several = found.into_iter().filter(|(_, addresses)| addresses.len() > 1);
        plan.names = several
            .map(|(name, addresses)| NamePlan { name, addresses, all, ..NamePlan::default() })
            .collect();
        (targets, plan)
    }

    fn check_connection(&self, mistakes: &mut Mistakes) {
        let ways = [
            ("unix_socket", "the Unix socket", self.unix_socket.is_some()),
            ("proxy", "the proxy", self.proxy.is_some()),
            ("connect_to", "the address to connect to", self.connect_to.is_some()),
        ];
        let mut given = ways.iter().filter(|(.., is_given)| *is_given);
        if let (Some((_, first, _)), Some((second, ..))) = (given.next(), given.next()) {
            mistakes.add(second, format!("{first} already sets the address to use: leave out one of them"));
        }
        let path = self.unix_socket.as_deref();
        if path.is_some_and(|path| path.is_empty() || SocketAddrUnix::new(path).is_err()) {
            mistakes.add("unix_socket", "the kernel takes paths of 1 to 107 bytes");
        }
        if self.unix_socket.is_some() && self.source.is_some() {
            mistakes.add("source", "a Unix socket has no addresses: leave out one of them");
        }
        let lives = [
            ("connection_requests", self.connection_requests.is_some()),
            ("connection_lifetime", self.connection_lifetime.is_some()),
        ];
        for (field, _) in lives.into_iter().filter(|(_, is_given)| self.no_keepalive && *is_given) {
            mistakes.add(field, "every request has a connection of its own: leave out one of them");
        }
        if self.unix_socket.is_some() && self.connect_timeout.is_some() {
            mistakes.add("connect_timeout", "a Unix socket connects at once or not at all: leave it out");
        }
    }
}

/// Refuses timeouts of parts that exceed the timeout of the whole request and so would never apply.
pub(super) fn check_timeouts(plan: &HttpPlan, mistakes: &mut Mistakes) {
    let ConnectionPlan { connect_timeout_ns, handshake_timeout_ns, answer_timeout_ns, .. } = plan.connection;
    let parts = [
        ("connect_timeout", connect_timeout_ns),
        ("handshake_timeout", handshake_timeout_ns),
        ("answer_timeout", answer_timeout_ns),
    ];
    for (field, part_ns) in parts {
        if part_ns.is_some_and(|part_ns| part_ns > plan.timeout_ns) {
            let whole = show_time_ns(plan.timeout_ns);
            mistakes.add(field, format!("it has no effect, because a whole request fails after {whole} (timeout): raise the timeout"));
        }
    }
}

/// The remedy if the URL's host has no address.
const NO_ADDRESS: &str =
    "check the name, or give an address with --connect-to ADDRESS:PORT, in a study with connect_to";

/// Keeps only the addresses that can be reached from the sources, which are those of the same family.
fn keep_family_of(sources: &[IpAddr], found: &mut [Named], mistakes: &mut Mistakes) {
    let family = |is_v4: bool| if is_v4 { "IPv4" } else { "IPv6" };
    let Some(source) = sources.first() else { return };
    if sources.iter().any(|other| other.is_ipv4() != source.is_ipv4()) {
        mistakes.add("source", "the addresses are of both IPv4 and IPv6: give addresses of one family");
    }
    for (name, addresses) in found {
        let had_any = !addresses.is_empty();
        addresses.retain(|address| address.is_ipv4() == source.is_ipv4());
        if had_any && addresses.is_empty() {
            let (theirs, ours) = (family(!source.is_ipv4()), family(source.is_ipv4()));
            mistakes.add(
                "source",
                format!("{name} has only addresses of {theirs}, which {source} cannot reach: give addresses of {theirs}, or a target of {ours}"),
            );
        }
    }
}

/// The addresses of a URL's host.
fn address_of(url: &Url, remedy: &str, lookup: Lookup<'_>) -> Result<Named, String> {
    let (host, port) = (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or(80));
    let bare = host.trim_matches(['[', ']']);
    let fail = |why: String| format!("cannot find the address of '{bare}': {why}; {remedy}");
    match lookup(bare, port) {
        Ok(addresses) if addresses.is_empty() => Err(fail("it has none".to_owned())),
        Ok(addresses) => Ok((format!("{host}:{port}"), addresses)),
        Err(error) => Err(fail(error.to_string())),
    }
}

/// The addresses of a list such as `10.0.0.3:80,[::1]:81,web:80`. Addresses separated by `|` belong to one element, like those of a
/// name.
fn addresses_of(list: &str, lookup: Lookup<'_>) -> Result<Vec<Named>, String> {
    let found = |text: &str| {
        let mut addresses = Vec::new();
        for end in text.split('|') {
            let (host, port) = end.rsplit_once(':')?;
            let found = lookup(host.trim_matches(['[', ']']), port.parse().ok()?).ok();
            addresses.extend(found.filter(|found| !found.is_empty())?);
        }
        Some((text.to_owned(), addresses))
    };
    let address = |text: &str| {
        found(text).ok_or_else(|| {
            format!("'{text}' is not an ADDRESS:PORT such as 10.0.0.3:80, or a NAME:PORT that has an address")
        })
    };
    list.split(',').map(|text| address(text.trim())).collect()
}

/// The addresses of a proxy, and the tunnel through it to the host of `url`.
fn proxy_of(written: &str, url: Option<&Url>, lookup: Lookup<'_>) -> Result<(Named, TunnelPlan), String> {
    if written.starts_with("socks") {
        return Err("SOCKS is not supported: give a proxy of HTTP, http://ADDRESS:PORT".to_owned());
    }
    let ParsedUrl { url: proxy, target, .. } = parse_url(written)?;
    if proxy.scheme() != "http" {
        return Err("TLS to a proxy is not supported: give http://ADDRESS:PORT".to_owned());
    }
    if target != Text::literal("/") {
        return Err("a proxy has no path: give http://ADDRESS:PORT".to_owned());
    }
    let address = address_of(&proxy, "check the proxy's name", lookup)?;
    let host = url.and_then(Url::host_str).unwrap_or_default();
    let port = url.and_then(Url::port_or_known_default).unwrap_or(80);
    let login = basic_auth_field(&proxy)?.map(|(_, value)| ("Proxy-Authorization".to_owned(), value));
    Ok((address, TunnelPlan { to: format!("{host}:{port}"), headers: login.into_iter().collect() }))
}
