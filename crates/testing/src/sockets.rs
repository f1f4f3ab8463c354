//! The kernel's view of a server's connections, for servers that report nothing while they run.

use std::{fs, net::SocketAddr};

/// The number of unread bytes of each connection that a server on an IPv4 address has not closed, accepted or not.
/// Bytes that a client has sent and the server's kernel has not acknowledged have a separate entry.
pub fn unread_bytes(server: SocketAddr) -> Vec<u64> {
    const ESTABLISHED: &str = "01";
    const CLOSE_WAIT: &str = "08";
    let SocketAddr::V4(server) = server else { panic!("{server} is not of IPv4") };
    let server = format!("{:08X}:{:04X}", u32::from_ne_bytes(server.ip().octets()), server.port());
    let table = fs::read_to_string("/proc/net/tcp").expect("there is a table of connections");
    let unread = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, local, remote, state, queues, ..] = fields[..] else { return None };
        let (sent, received) = queues.split_once(':')?;
        let [sent, received] = [sent, received].map(|bytes| u64::from_str_radix(bytes, 16).unwrap_or(0));
        let is_open = local == server && [ESTABLISHED, CLOSE_WAIT].contains(&state);
        is_open.then_some(received).or((remote == server && sent > 0).then_some(sent))
    };
    table.lines().filter_map(unread).collect()
}
