//! The address that curl connects to: `--connect-to`, `--resolve` and `--proxy`.

use std::net::{IpAddr, SocketAddr};

use url::Url;

use super::{
    super::table::{Given, Translated},
    options::SOCKS,
};

type End = (String, u16);

/// Sets the addresses to connect to if the options match the URL's host and port. curl uses the first `--connect-to`
/// that matches. For the resulting host and port, it then uses the last `--resolve`, or else the last one for `*`.
pub(super) fn set(url: &str, given: &Given, translated: &mut Translated) {
    let Ok(url) = Url::parse(url) else { return };
    let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else { return };
    let url_end = (host.to_owned(), port);
    let redirected = fitting("connect-to", &url_end, redirected, given, translated);
    let redirected = redirected.into_iter().next();
    let resolved = fitting("resolve", redirected.as_ref().unwrap_or(&url_end), resolved, given, translated);
    let addresses =
        resolved.into_iter().max_by_key(|(is_for_all, _)| !is_for_all).map(|(_, addresses)| addresses);
    if let Some(target) = addresses.or_else(|| redirected.map(|(host, port)| format!("{host}:{port}"))) {
        translated.set("connect-to", target);
    }
}

/// Sets the proxy. As in curl, an empty value means no proxy.
pub(super) fn set_proxy(url: &str, given: &Given, translated: &mut Translated) {
    let Some(proxy) = given.last("-x").filter(|proxy| !proxy.is_empty()) else { return };
    let mut refuse = |why: &str| translated.mistakes.push(why.to_owned());
    if proxy.starts_with("socks") {
        return refuse(&format!("--proxy: {SOCKS}"));
    }
    if given.has("--resolve") || given.has("--connect-to") {
        refuse("-x: the proxy resolves the host's name: leave out --resolve and --connect-to");
    }
    if given.last("--noproxy").is_some_and(|hosts| !hosts.is_empty()) {
        refuse("-x: --noproxy may disable the proxy: leave out one of them");
    }
    if !given.has("-p") && url.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://")) {
        refuse(
            "-x: curl would send each request to the proxy, but proofload only makes tunnels (CONNECT): add -p, or give an https:// URL",
        );
    }
    let proxy = proxy.trim_end_matches('/');
    let has_scheme = secrets::mask::authority(proxy) > 0;
    let proxy = if has_scheme { proxy.to_owned() } else { format!("http://{proxy}") };
    // curl's default port for a proxy is 1080.
    let port = proxy.rsplit(['@', '/']).next().and_then(|authority| authority.rsplit_once(':'));
    let has_port = port.is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    translated.set("proxy", if has_port { proxy } else { format!("{proxy}:1080") });
}

/// Parses an option's values in order. Keeps those for this host and port and adds a note for each of the others.
fn fitting<T>(
    option: &str,
    end: &End,
    read: fn(&str, &End) -> Result<Option<T>, String>,
    given: &Given,
    translated: &mut Translated,
) -> Vec<T> {
    let mut fitting = Vec::new();
    for (_, value) in given.iter().filter(|(row, _)| row.long == option) {
        match read(value, end) {
            Ok(Some(found)) => fitting.push(found),
            Ok(None) => {
                translated.notes.push(format!("--{option} {value} does not apply to {}:{}", end.0, end.1))
            }
            Err(why) => translated.mistakes.push(format!("--{option}: '{value}' {why}")),
        }
    }
    fitting
}

/// Parses `HOST:PORT:ADDRESS[,ADDRESS]…`. Returns the addresses if it matches the host and port, and whether its host is
/// `*`. curl tries the addresses in order, like those of a name.
fn resolved(value: &str, (host, port): &End) -> Result<Option<(bool, String)>, String> {
    let refuse = || "is not HOST:PORT:ADDRESS".to_owned();
    let mut parts = value.trim_start_matches('+').splitn(3, ':');
    let (Some(own_host), Some(own_port), Some(addresses)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(refuse());
    };
    let own_port: u16 = own_port.parse().map_err(|_| refuse())?;
    if !(own_host == "*" || own_host.eq_ignore_ascii_case(host)) || own_port != *port {
        return Ok(None);
    }
    let address = |text: &str| {
        let address = text.trim_matches(['[', ']']).parse::<IpAddr>().map_err(|_| refuse())?;
        Ok(SocketAddr::from((address, *port)).to_string())
    };
    let addresses = addresses.split(',').map(address).collect::<Result<Vec<_>, String>>()?;
    Ok(Some((own_host == "*", addresses.join("|"))))
}

/// Parses `HOST1:PORT1:HOST2:PORT2`. Returns the second pair if the first matches; an empty HOST1 or PORT1 matches any,
/// and an empty HOST2 or PORT2 keeps the original.
fn redirected(value: &str, (host, port): &End) -> Result<Option<End>, String> {
    let parts = fields(value);
    let [own_host, own_port, to_host, to_port] = parts[..] else {
        return Err("is not HOST1:PORT1:HOST2:PORT2".to_owned());
    };
    let number = |text: &str| match text {
        "" => Ok(*port),
        text => text.parse::<u16>().map_err(|_| format!("has '{text}' in place of a port")),
    };
    let is_host = own_host.is_empty()
        || own_host.trim_matches(['[', ']']).eq_ignore_ascii_case(host.trim_matches(['[', ']']));
    if !is_host || number(own_port)? != *port {
        return Ok(None);
    }
    let to_host = if to_host.is_empty() { host } else { to_host };
    Ok(Some((to_host.to_owned(), number(to_port)?)))
}

/// Splits a text at the colons outside brackets.
fn fields(text: &str) -> Vec<&str> {
    let mut depth = 0;
    text.split(|c| {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        c == ':' && depth == 0
    })
    .collect()
}
