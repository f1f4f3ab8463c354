//! Parses the output of `ss` (iproute2). Its columns and words differ between versions, so unknown words are ignored.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv6Addr, SocketAddr},
};

use crate::tcp::{Connection, Listener, TcpInfo, UNKNOWN_INODE};

/// A socket: its queues, its two addresses and the words that follow.
struct Entry<'a> {
    receive_queue: u32,
    send_queue: u32,
    local: SocketAddr,
    remote: SocketAddr,
    words: Vec<&'a str>,
}

/// The listening sockets in the output of `ss -ltn`. The output does not contain their inodes.
pub(crate) fn listeners(text: &str) -> Vec<Listener> {
    let listener = |entry: Entry<'_>| Listener {
        address: entry.local,
        waiting: entry.receive_queue,
        backlog: entry.send_queue,
        inode: UNKNOWN_INODE,
    };
    entries(text).into_iter().map(listener).collect()
}

/// The processes that listen, with their addresses, in the output of `ss -ltnp`. Also the number of sockets whose
/// processes this user may not see.
pub(crate) fn owners(text: &str) -> (BTreeMap<u32, BTreeSet<String>>, usize) {
    let (mut owners, mut hidden): (BTreeMap<_, BTreeSet<_>>, usize) = Default::default();
    for entry in entries(text) {
        // The text has the form users:(("nginx",pid=7,fd=6),("nginx",pid=8,fd=6)).
        let all = entry.words.join(" ");
        let pids = all.split("pid=").skip(1).filter_map(|rest| rest.split(',').next()?.parse().ok());
        let pids: Vec<u32> = pids.collect();
        hidden += usize::from(pids.is_empty());
        pids.into_iter().for_each(|pid| _ = owners.entry(pid).or_default().insert(entry.local.to_string()));
    }
    (owners, hidden)
}

/// The connections in the output of `ss -tinm state established`.
pub fn connections(text: &str) -> Vec<Connection> {
    let connection = |entry: Entry<'_>| {
        let (info, [send_buffer_used_bytes, send_buffer_bytes]) = info(&entry.words);
        Connection {
            local: entry.local,
            remote: entry.remote,
            inode: UNKNOWN_INODE,
            unread_bytes: entry.receive_queue,
            unacknowledged_bytes: entry.send_queue,
            send_buffer_used_bytes,
            send_buffer_bytes,
            info,
        }
    };
    entries(text).into_iter().map(connection).collect()
}

/// A socket begins with its queues and its two addresses, possibly after its state. All other lines belong to the
/// socket before them or to the heading.
fn entries(text: &str) -> Vec<Entry<'_>> {
    let mut all: Vec<Entry<'_>> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match (entry(&words), all.last_mut()) {
            (Some(entry), _) => all.push(entry),
            (None, Some(last)) => last.words.extend(words),
            (None, None) => {}
        }
    }
    all
}

fn entry<'a>(words: &[&'a str]) -> Option<Entry<'a>> {
    let has_state = words.first()?.parse::<u32>().is_err();
    let words = words.get(usize::from(has_state)..)?;
    Some(Entry {
        receive_queue: words.first()?.parse().ok()?,
        send_queue: words.get(1)?.parse().ok()?,
        local: address(words.get(2)?)?,
        remote: address(words.get(3)?)?,
        words: words.get(4..)?.to_vec(),
    })
}

/// Parses `10.0.0.1:80`, `127.0.0.53%lo:53` or `[fe80::1]%eth0:22`. `*:80` stands for all addresses, a port `*` for any
/// port.
fn address(word: &str) -> Option<SocketAddr> {
    let (host, port) = word.rsplit_once(':')?;
    let host = host.split('%').next()?.trim_start_matches('[').trim_end_matches(']');
    let address: IpAddr = if host == "*" { Ipv6Addr::UNSPECIFIED.into() } else { host.parse().ok()? };
    Some(SocketAddr::new(address, if port == "*" { 0 } else { port.parse().ok()? }))
}

/// The kernel's information about a connection, and the used part and the size of its send buffer.
fn info(words: &[&str]) -> (TcpInfo, [u32; 2]) {
    let (mut info, mut buffer) = (TcpInfo::default(), [0, 0]);
    for (key, value) in words.iter().filter_map(|word| word.split_once(':')) {
        // Times are in milliseconds: 4ms or 4ms(50.0%).
        let us = || Some(leading(value)?.saturating_mul(1_000));
        let number = || leading(value).and_then(|number| u32::try_from(number).ok()).unwrap_or_default();
        match key {
            "rtt" => info.rtt_us = milliseconds(value),
            "minrtt" => info.least_rtt_us = milliseconds(value),
            "notsent" => info.unsent_bytes = number(),
            "mss" => info.segment_bytes = number(),
            "cwnd" => info.congestion_window = number(),
            "unacked" => info.in_flight = number(),
            // retrans:segments retransmitted in flight/all retransmissions
            "retrans" => {
                info.retransmits =
                    value.split('/').nth(1).and_then(|all| all.parse().ok()).unwrap_or_default();
            }
            "bytes_acked" => info.acknowledged_bytes = leading(value).unwrap_or_default(),
            "bytes_received" => info.received_bytes = leading(value).unwrap_or_default(),
            "busy" => info.busy_us = us(),
            "rwnd_limited" => info.receive_window_limited_us = us(),
            "sndbuf_limited" => info.send_buffer_limited_us = us(),
            "skmem" => {
                // The field has the form skmem:(r0,rb131072,t0,tb87040,f0,w0,o0,bl0,d0).
                let field = |name: &str| {
                    let fields = value.trim_matches(['(', ')']).split(',');
                    fields
                        .filter_map(|field| field.strip_prefix(name)?.parse().ok())
                        .next()
                        .unwrap_or_default()
                };
                buffer = [field("w"), field("tb")];
            }
            _ => {}
        }
    }
    (info, buffer)
}

/// Parses the milliseconds before a slash. Returns microseconds.
fn milliseconds(value: &str) -> u32 {
    let ms = value.split('/').next().and_then(|ms| ms.parse::<f64>().ok());
    ms.map_or(0, |ms| (ms * 1e3) as u32)
}

/// The number at the beginning of a word.
fn leading(word: &str) -> Option<u64> {
    let end = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
    word[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn addresses_of_all_versions_are_read() {
        for (word, expected) in [
            ("10.0.0.1:80", "10.0.0.1:80"),
            ("127.0.0.53%lo:53", "127.0.0.53:53"),
            ("[fe80::1]%eth0:22", "[fe80::1]:22"),
            ("*:80", "[::]:80"),
            (":::80", "[::]:80"),
            ("0.0.0.0:*", "0.0.0.0:0"),
        ] {
            assert_eq!(address(word), Some(expected.parse().unwrap()), "{word}");
        }
        assert_eq!(address("Port"), None);
    }

    #[test]
    fn connections_have_what_verdicts_need() {
        let text = "Recv-Q Send-Q Local Address:Port Peer Address:Port Process\n\
            5 1448 10.0.0.1:80 10.0.0.2:4711 timer:(on,200ms,0)\n\
            \t skmem:(r0,rb131072,t0,tb87040,f256,w2304,o0,bl0,d0) new_word cubic wscale:7,7 rto:204 rtt:1.5/0.75 minrtt:1.25 notsent:77 mss:1448 \
            cwnd:10 bytes_acked:9 bytes_received:8 unacked:3 retrans:1/5 busy:44ms rwnd_limited:40ms(90.9%) later:x\n\
            0 0 [::ffff:10.0.0.1]:80 [::ffff:10.0.0.3]:4712\n\t cubic\n";
        let all = connections(text);
        assert_eq!(all.len(), 2, "{all:?}");
        let expected = TcpInfo {
            rtt_us: 1_500,
            least_rtt_us: 1_250,
            unsent_bytes: 77,
            segment_bytes: 1_448,
            congestion_window: 10,
            in_flight: 3,
            retransmits: 5,
            acknowledged_bytes: 9,
            received_bytes: 8,
            busy_us: Some(44_000),
            receive_window_limited_us: Some(40_000),
            send_buffer_limited_us: None,
            ..TcpInfo::default()
        };
        assert_eq!(all[0].info, expected);
        let queues = (all[0].unread_bytes, all[0].unacknowledged_bytes);
        assert_eq!(
            (queues, all[0].send_buffer_used_bytes, all[0].send_buffer_bytes),
            ((5, 1_448), 2_304, 87_040)
        );
        assert_eq!((all[1].local.port(), &all[1].info), (80, &TcpInfo::default()));
    }

    #[test]
    fn owners_of_listening_sockets_are_found_or_counted_as_hidden() {
        let text = "State Recv-Q Send-Q Local Address:Port Peer Address:Port Process\n\
            LISTEN 3 511 0.0.0.0:80 0.0.0.0:* users:((\"a b\",pid=7,fd=6),(\"c\",pid=8,fd=6))\n\
            LISTEN 0 128 *:22 *:*\n";
        let (owners, hidden) = owners(text);
        assert_eq!((owners.keys().copied().collect::<Vec<_>>(), hidden), (vec![7, 8], 1));
        assert!(owners[&7].contains("0.0.0.0:80"));
        let all = listeners(text);
        assert_eq!((all[0].waiting, all[0].backlog, all.len()), (3, 511, 2));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_fail(
            text: String,
            lines in "((LISTEN |ESTAB )?[0-9*]{1,12} [0-9]{1,3} [0-9a-f*.:%]{0,12} \\*:[0-9*]{1,6} ?((rtt|busy|skmem|retrans|users|pid=|cwnd):?[(0-9a-z/.,é]{0,14} ){0,4}\n){0,5}",
        ) {
            for text in [&text, &lines] {
                _ = (listeners(text), owners(text), connections(text));
            }
        }
    }
}
