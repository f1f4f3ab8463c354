//! Chooses the addresses of a name for connections: those that accept a connection before the load begins.

use std::{
    io,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use record::{HttpPlan, NamePlan};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{self, AddressFamily, SocketFlags, SocketType, sockopt},
};

use crate::failure::connect_failure;

/// Time from the start of one attempt to the start of the next (RFC 8305, section 5).
const APART: Duration = Duration::from_millis(250);
/// Time limit for all attempts at a name.
const PATIENCE: Duration = Duration::from_secs(2);

/// The addresses of a host and a port, from the system's resolver.
pub(crate) fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in (host, port).to_socket_addrs()? {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok(addresses)
}

/// Sets a plan's targets to the addresses of each name that accept a connection: those in `known`, or those found now, which
/// are added to `known`. Returns a note for each name. If no address accepts, the plan keeps the first one, at which the trial
/// will fail. Every connection made here is reset.
pub fn choose(plan: &mut HttpPlan, known: &mut Vec<NamePlan>) -> Vec<String> {
    let source = plan.sources.first().copied();
    let mut notes = Vec::new();
    for name in &mut plan.connection.names {
        let at = plan.targets.iter().position(|target| Some(target) == name.addresses.first());
        match known.iter().find(|known| (&known.name, known.all) == (&name.name, name.all)) {
            Some(known) => name.clone_from(known),
            None => {
                try_addresses(name, source);
                if !name.used.is_empty() {
                    known.push(name.clone());
                }
            }
        }
        if let (Some(at), false) = (at, name.used.is_empty()) {
            plan.targets.splice(at..=at, name.used.iter().copied());
            notes.push(name.in_words());
        }
    }
    notes
}

/// Tries the addresses of a name. A slow address delays the next attempt by at most `APART`.
fn try_addresses(name: &mut NamePlan, source: Option<IpAddr>) {
    let until = Instant::now() + PATIENCE;
    let mut waiting = alternating(&name.addresses).into_iter().peekable();
    let mut due = Instant::now();
    let (mut open, mut accepted): (Vec<(SocketAddr, OwnedFd)>, Vec<SocketAddr>) = Default::default();
    while (name.all || accepted.is_empty()) && (waiting.peek().is_some() || !open.is_empty()) {
        let now = Instant::now();
        if let Some(address) = waiting.next_if(|_| now >= due || open.is_empty()) {
            due = now + APART;
            match begin(address, source) {
                Ok(socket) => open.push((address, socket)),
                Err(errno) => drop(name.errors.insert(address, why(errno))),
            }
            continue;
        }
        let wake = if waiting.peek().is_some() { due.min(until) } else { until };
        let mut ended = wait(&open, wake.saturating_duration_since(now)).into_iter();
        open.retain(|(address, socket)| {
            let has_ended = ended.next().unwrap_or(false);
            match sockopt::socket_error(socket).and_then(|error| error) {
                _ if !has_ended => {}
                Ok(()) => accepted.push(*address),
                Err(errno) => drop(name.errors.insert(*address, why(errno))),
            }
            !has_ended
        });
        if now >= until {
            break;
        }
    }
    if accepted.is_empty() || name.all {
        let silent = open.iter().map(|(address, _)| *address).chain(waiting);
        name.errors
            .extend(silent.map(|address| (address, format!("no answer within {} s", PATIENCE.as_secs()))));
    }
    name.used = name.addresses.iter().copied().filter(|address| accepted.contains(address)).collect();
    if !name.all {
        name.used.truncate(1);
    }
}

/// The addresses, alternating between IPv4 and IPv6 (RFC 8305, section 4), so that an unreachable family delays little.
fn alternating(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let (six, four): (Vec<_>, Vec<_>) =
        addresses.iter().enumerate().partition(|(_, address)| address.is_ipv6());
    let mut ranked: Vec<_> =
        [six, four].into_iter().flat_map(|family| family.into_iter().enumerate()).collect();
    ranked.sort_by_key(|(rank, (at, _))| (*rank, *at));
    ranked.into_iter().map(|(_, (_, address))| *address).collect()
}

/// Begins a connection that is reset when it is closed.
fn begin(address: SocketAddr, source: Option<IpAddr>) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
    if let Some(source) = source {
        net::bind(&socket, &SocketAddr::new(source, 0))?;
    }
    match net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(errno) => Err(errno),
    }
}

/// Waits until an attempt ends, at most for `longest`; returns for each attempt whether it has ended.
fn wait(open: &[(SocketAddr, OwnedFd)], longest: Duration) -> Vec<bool> {
    let mut polled: Vec<PollFd<'_>> =
        open.iter().map(|(_, socket)| PollFd::new(socket, PollFlags::OUT)).collect();
    let longest = Timespec { tv_sec: longest.as_secs() as i64, tv_nsec: longest.subsec_nanos().into() };
    // A signal may end the wait early; the caller then waits again.
    let _ = poll(&mut polled, Some(&longest));
    polled.iter().map(|polled| !polled.revents().is_empty()).collect()
}

fn why(errno: Errno) -> String {
    connect_failure(errno).meaning().to_owned()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::testing;

    /// The plan for a name with these addresses after `choose`.
    fn chosen(addresses: &[SocketAddr], all: bool) -> HttpPlan {
        let name =
            NamePlan { name: "web:80".to_owned(), addresses: addresses.to_vec(), all, ..NamePlan::default() };
        let mut plan = testing::closed(1);
        let other = "192.0.2.1:80".parse().unwrap();
        plan.targets = vec![other, addresses[0]];
        plan.connection.names = vec![name];
        let (mut known, before) = (Vec::new(), plan.clone());
        let notes = choose(&mut plan, &mut known);
        assert_eq!(plan.targets[0], other);
        assert_eq!(notes.len(), known.len());
        // Known addresses are not tried again.
        let mut again = before;
        choose(&mut again, &mut known);
        assert!(known.is_empty() || again == plan);
        plan
    }

    fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    /// An address without a listener.
    fn closed() -> SocketAddr {
        listener().1
    }

    #[test]
    fn connections_lead_to_the_first_address_that_accepts() {
        let (one, first) = listener();
        let (_two, second) = listener();
        let down = SocketAddr::new("::1".parse().unwrap(), closed().port());
        let plan = chosen(&[down, first, second], false);
        assert_eq!(plan.targets[1..], [first]);
        let words = plan.connection.names[0].in_words();
        let expected = format!("{first} for web:80, which also resolves to {down} (");
        assert!(words.starts_with(&expected) && words.ends_with(&format!(", {second}")), "{words}");
        // The connection that `choose` made is reset before the load begins.
        one.set_nonblocking(true).unwrap();
        if let Ok((mut stream, _)) = one.accept() {
            let read = io::Read::read(&mut stream, &mut [0]);
            assert_eq!(read.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        }
    }

    #[test]
    fn all_addresses_that_accept_can_be_used() {
        let ((_one, first), (_two, second), down) = (listener(), listener(), closed());
        let plan = chosen(&[first, down, second], true);
        assert_eq!(plan.targets[1..], [first, second]);
        assert_eq!(plan.connection.names[0].errors[&down], "connection refused");
    }

    #[test]
    fn a_name_of_which_no_address_accepts_says_why_of_each() {
        let (one, other) = (closed(), closed());
        for all in [false, true] {
            let plan = chosen(&[one, other], all);
            assert_eq!(plan.targets[1..], [one]);
            let told = format!(
                "no address of web:80 accepts a connection: {one} (connection refused), {other} (connection refused)"
            );
            assert_eq!(plan.connection.names[0].in_words(), told);
        }
    }

    #[test]
    fn families_alternate() {
        let addresses = ["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1"].map(|text| text.parse().unwrap());
        let expected = ["[::1]:1", "1.1.1.1:1", "[::2]:1", "[::3]:1"].map(|text| text.parse().unwrap());
        assert_eq!(alternating(&addresses), expected);
    }
}
