//! Where curl connects to: `--resolve` and `--connect-to`.

use std::net::IpAddr;

use url::Url;

use super::super::table::{Given, Translated};

/// Sets the addresses to connect to, if the options name the URL's host and port.
pub(super) fn set(url: &str, given: &Given, translated: &mut Translated) {
    let Ok(url) = Url::parse(url) else { return };
    let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else { return };
    for (row, value) in given.iter() {
        let addresses = match row.long {
            "resolve" => resolved(value, host, port),
            "connect-to" => redirected(value, host, port),
            _ => continue,
        };
        match addresses {
            Ok(Some(addresses)) => translated.set("connect-to", addresses),
            Ok(None) => translated.notes.push(format!("--{} {value} is not for {host}:{port}", row.long)),
            Err(why) => translated.mistakes.push(format!("--{}: '{value}' {why}", row.long)),
        }
    }
}

/// The addresses of `HOST:PORT:ADDRESS[,ADDRESS]…`, if it is for this host and port.
fn resolved(value: &str, host: &str, port: u16) -> Result<Option<String>, String> {
    let refuse = || "is not HOST:PORT:ADDRESS".to_owned();
    let mut parts = value.trim_start_matches('+').splitn(3, ':');
    let (Some(own_host), Some(own_port), Some(addresses)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(refuse());
    };
    let own_port: u16 = own_port.parse().map_err(|_| refuse())?;
    if !(own_host == "*" || own_host.eq_ignore_ascii_case(host)) || own_port != port {
        return Ok(None);
    }
    let address = |text: &str| text.trim_matches(['[', ']']).parse::<IpAddr>().map_err(|_| refuse());
    let addresses = addresses.split(',').map(address).collect::<Result<Vec<_>, _>>()?;
    let first = addresses.first().ok_or_else(refuse)?;
    // curl takes the first that answers; a trial has one target.
    Ok(Some(std::net::SocketAddr::from((*first, port)).to_string()))
}

/// The address of `HOST1:PORT1:HOST2:PORT2`, if it is for this host and port; an empty part is any, or stays.
fn redirected(value: &str, host: &str, port: u16) -> Result<Option<String>, String> {
    let parts = fields(value);
    let [own_host, own_port, to_host, to_port] = parts[..] else {
        return Err("is not HOST1:PORT1:HOST2:PORT2".to_owned());
    };
    let number = |text: &str, default: u16| match text {
        "" => Ok(default),
        text => text.parse::<u16>().map_err(|_| format!("has '{text}' where a port belongs")),
    };
    let is_host = own_host.is_empty()
        || own_host.trim_matches(['[', ']']).eq_ignore_ascii_case(host.trim_matches(['[', ']']));
    if !is_host || number(own_port, port)? != port {
        return Ok(None);
    }
    let to_host = if to_host.is_empty() { host } else { to_host };
    Ok(Some(format!("{to_host}:{}", number(to_port, port)?)))
}

/// The parts between colons that are outside of brackets.
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
