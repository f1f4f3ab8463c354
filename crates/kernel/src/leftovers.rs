//! Resources in a network namespace that connections still occupy after their end, with the limits of these resources.

use std::io;

use serde::{Deserialize, Serialize};

use crate::{
    counters::{ReadFile, of_network, read_own},
    number, tcp,
};

const PORTS: &str = "sys/net/ipv4/ip_local_port_range";
const MOST_IN_TIME_WAIT: &str = "sys/net/ipv4/tcp_max_tw_buckets";
const SOCKETS_IPV6: &str = "net/sockstat6";
/// The files that [`of`] reads in addition to those with the network's counters.
pub(crate) const FILES: [&str; 3] = [PORTS, MOST_IN_TIME_WAIT, SOCKETS_IPV6];

/// A kind of leftover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    /// TCP sockets in use: listening sockets count, sockets in TIME_WAIT do not.
    Open,
    /// Local ports that cannot be used towards the same target, because sockets in TIME_WAIT keep them.
    Port,
    /// Sockets in TIME_WAIT.
    TimeWait,
    /// Entries of connection tracking.
    Tracked,
}

/// The number of leftovers of a kind, and the limit beyond which the kernel behaves differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leftover {
    /// The kind of leftover.
    pub kind: Kind,
    /// Number of leftovers.
    pub count: u64,
    /// Maximum number of leftovers.
    pub room: u64,
}

impl Leftover {
    /// Number of leftovers beyond `before` that do not affect a trial: half of the room that was left. The other half
    /// is for the trial.
    pub fn harmless(&self, before: u64) -> u64 {
        self.room.saturating_sub(before) / 2
    }

    /// Whether there are more leftovers than are [`harmless`](Self::harmless).
    pub fn is_in_the_way(&self, before: u64) -> bool {
        self.count.saturating_sub(before) > self.harmless(before)
    }
}

/// Number of local ports in the text of `net.ipv4.ip_local_port_range`.
pub fn ports(range: &str) -> Option<u64> {
    let mut bounds = range.split_whitespace().map(str::parse);
    let (low, high): (u64, u64) = (bounds.next()?.ok()?, bounds.next()?.ok()?);
    Some((high + 1).saturating_sub(low))
}

/// Counts the leftovers in the calling thread's network namespace.
///
/// # Errors
/// If `/proc` lacks a counter, or the kernel does not list its sockets.
pub fn here() -> io::Result<Vec<Leftover>> {
    let mut all = of(&read_own)?;
    let mut ports = Leftover { kind: Kind::Port, room: all[0].room, ..all[1] };
    // tcp_tw_reuse: with 1, every port can be used again after one second; with 2, only those of loopback. Both need
    // timestamps.
    let setting = |name: &str| read_own(&format!("sys/net/ipv4/{name}")).map(|text| text.trim().to_owned());
    let reused = if setting("tcp_timestamps")? == "0" { "0".to_owned() } else { setting("tcp_tw_reuse")? };
    // Each socket in TIME_WAIT keeps at most one port. Listing these sockets takes long, so it is done only if their
    // number would matter.
    let may_keep = reused != "1" && ports.is_in_the_way(0);
    ports.count = if may_keep { tcp::ports_in_time_wait(reused == "0")? } else { 0 };
    all.push(ports);
    Ok(all)
}

/// Counts leftovers from files: first open sockets, then those in TIME_WAIT, then tracked connections if connection
/// tracking is on.
pub(crate) fn of(read: ReadFile<'_>) -> io::Result<Vec<Leftover>> {
    let counters = of_network(read);
    let count = |name: &str| {
        let unknown = || io::Error::other(format!("the kernel does not report {name}"));
        counters.get(name).ok_or_else(unknown)
    };
    let open_ipv6 = read(SOCKETS_IPV6).ok().and_then(|text| number(&text, "TCP6: inuse")).unwrap_or(0);
    // connect() tries the ports of one parity before the others, and an open connection keeps a port at both ends, so
    // only half of the ports count.
    let room = ports(&read(PORTS)?).ok_or_else(|| io::Error::other("the range of ports is unknown"))? / 2;
    let open = Leftover { kind: Kind::Open, count: count("sockstat.TCP.inuse")? + open_ipv6, room };
    // Beyond this limit, sockets skip TIME_WAIT.
    let room = read(MOST_IN_TIME_WAIT).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(u64::MAX);
    let time_wait = Leftover { kind: Kind::TimeWait, count: count("sockstat.TCP.tw")?, room };
    let tracked = counters.get("conntrack.entries").zip(counters.get("conntrack.max_entries"));
    let tracked = tracked.map(|(count, room)| Leftover { kind: Kind::Tracked, count, room });
    Ok([open, time_wait].into_iter().chain(tracked).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_more_than_half_of_the_room_is_in_the_way() {
        let read = |name: &str| {
            Ok(match name {
                "net/sockstat" => "TCP: inuse 30 orphan 0 tw 500 alloc 7 mem 1\n",
                SOCKETS_IPV6 => "TCP6: inuse 12\n",
                PORTS => "1000\t1399\n",
                MOST_IN_TIME_WAIT => "1000\n",
                "sys/net/netfilter/nf_conntrack_count" => "60\n",
                "sys/net/netfilter/nf_conntrack_max" => "100\n",
                _ => return Err(io::Error::other("not here")),
            }
            .to_owned())
        };
        let all = of(&read).unwrap();
        let shown: Vec<_> = all.iter().map(|left| (left.kind, left.count, left.room)).collect();
        assert_eq!(shown, [(Kind::Open, 42, 200), (Kind::TimeWait, 500, 1000), (Kind::Tracked, 60, 100)]);
        assert_eq!(all.iter().map(|left| left.is_in_the_way(0)).collect::<Vec<_>>(), [false, false, true]);
        // 40 of the 100 entries are always there, so 30 of the remaining 60 may be left.
        let tracked = |count| Leftover { count, ..all[2] }.is_in_the_way(40);
        assert_eq!([60, 70, 71].map(tracked), [false, false, true]);
    }

    #[test]
    fn this_machine_tells_what_is_left() {
        let _listener =
            std::net::TcpListener::bind("[::]:0").or_else(|_| std::net::TcpListener::bind("127.0.0.1:0"));
        let all = here().unwrap();
        assert!(all[0].count > 0 && all[0].room > 0 && all[1].room > 0, "{all:?}");
    }
}
