//! The URL of a command line, as curl interprets it.

use load::{split_port, without_dots};
use url::Host;

use super::super::table::{Given, foreign_in_host};

/// The URL as curl sends it: with a scheme, and without `.` and `..` in its path unless `--path-as-is` is given. Adds a
/// mistake for ranges and lists, which curl would expand unless `-g` is given.
pub(super) fn checked_url(url: &str, given: &Given, mistakes: &mut Vec<String>) -> String {
    // curl accepts one to three slashes before the host.
    let scheme = url.split_once(":/").filter(|(scheme, _)| scheme.bytes().all(|b| b.is_ascii_alphabetic()));
    let (scheme, rest) = match scheme {
        Some((scheme, rest)) => (scheme, rest.trim_start_matches('/')),
        None => ("http", url),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    let single = if given.has("-g") { None } else { without_braces(target) };
    let target = single.as_deref().unwrap_or(target);
    let is_several = |part: &str, marks: &[char]| !given.has("-g") && part.contains(marks);
    if is_several(authority, &['{', '}'])
        || (single.is_none() && is_several(target, &['{', '}']))
        || is_several(target, &['[', ']'])
    {
        mistakes.push("URL: curl expands {} and [] to several URLs: give a single URL, or -g to send these characters as they are".to_owned());
    }
    let target = target.split('#').next().unwrap_or_default();
    let path = target.split('?').next().unwrap_or_default();
    let target = match path.contains("/.") && !given.has("--path-as-is") {
        true => String::from_utf8_lossy(&without_dots(target.as_bytes())).into_owned(),
        false => target.to_owned(),
    };
    // curl percent-encodes non-ASCII bytes in the path but sends the query unchanged.
    let (path, query) = target.split_at(target.find('?').unwrap_or(target.len()));
    let mut encoded = String::new();
    for byte in path.bytes() {
        match byte {
            0..=127 => encoded.push(byte.into()),
            _ => encoded += &format!("%{byte:02x}"),
        }
    }
    // The login ends at the first @, because a host cannot contain one.
    let (login, rest) = authority.split_at(authority.find('@').map_or(0, |at| at + 1));
    let (host, port) = split_port(rest);
    mistakes.extend(foreign_in_host("curl", host, |c| !"\\/:#?!@{}[]$'\"^`*<>=;,+&() ".contains(c)));
    format!("{scheme}://{login}{}{port}{encoded}{query}", sent_host(host))
}

/// The host as curl sends it: an IPv4 address as four numbers, an IPv6 address in its shorter form, and a non-ASCII name
/// in punycode.
fn sent_host(host: &str) -> String {
    match Host::parse(host) {
        Ok(Host::Ipv4(address)) => address.to_string(),
        Ok(Host::Ipv6(address)) if format!("[{address}]").len() < host.len() => format!("[{address}]"),
        Ok(Host::Domain(name)) if !host.is_ascii() => name,
        _ => host.to_owned(),
    }
}

/// Replaces each pair of braces by its only word. `None` if curl would refuse the braces or expand them to several URLs.
fn without_braces(target: &str) -> Option<String> {
    let mut parts = target.split('{');
    let mut joined = parts.next()?.to_owned();
    for part in parts {
        let (word, after) = part.split_once('}')?;
        if word.is_empty() || word.contains(',') {
            return None;
        }
        joined += &format!("{word}{after}");
    }
    (!joined.contains('}')).then_some(joined)
}
