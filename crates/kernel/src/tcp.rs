//! TCP sockets of the calling thread's network namespace, from sock_diag(7).

use std::{
    cmp::Ordering,
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use netlink_sys::{Socket, SocketAddr as Kernel, protocols::NETLINK_SOCK_DIAG};

/// States of sockets (include/net/tcp_states.h).
const ESTABLISHED: u32 = 1;
const SYN_RECEIVED: u32 = 3;
const FIN_WAIT_1: u32 = 4;
const FIN_WAIT_2: u32 = 5;
const TIME_WAIT: u32 = 6;
const CLOSE_WAIT: u32 = 8;
const LISTEN: u32 = 10;
/// The inode of a socket whose inode is unknown.
pub(crate) const UNKNOWN_INODE: u32 = 0;
/// A request that lists the sockets of both IP versions. For each request, the kernel walks all listening sockets of
/// the machine, so two requests would take twice as long.
const TCPDIAG_GETSOCK: u16 = 18;
const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_SKMEMINFO: u16 = 7;
/// Files and keys with the number of sockets of each IP version in the calling thread's network namespace, including
/// listening ones.
const COUNTED_IN: [(&str, &str); 2] =
    [("/proc/thread-self/net/sockstat", "TCP: inuse"), ("/proc/thread-self/net/sockstat6", "TCP6: inuse")];
/// `NLM_F_REQUEST` and `NLM_F_DUMP`.
const DUMP: u16 = 0x301;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const HEADER_BYTES: usize = 16;
/// Size of `struct inet_diag_msg`.
const MESSAGE_BYTES: usize = 72;
/// Size of the buffer for answers. The kernel fills at most 32 KiB at a time.
const BUFFER_BYTES: usize = 64 << 10;

/// A listening socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// The address at which it listens.
    pub address: SocketAddr,
    /// Number of connections that wait to be accepted.
    pub waiting: u32,
    /// Size of the accept queue. The queue is full if one more connection than this is waiting.
    pub backlog: u32,
    /// The inode of the socket, with which its owners can be found in `/proc`.
    pub inode: u32,
}

/// An established connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// The end in this network namespace.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// The inode of the socket, with which its owners can be found in `/proc`; 0 if unknown.
    pub inode: u32,
    /// Bytes that have arrived but that the program has not read.
    pub unread_bytes: u32,
    /// Bytes that the program has written but that the other end has not acknowledged.
    pub unacknowledged_bytes: u32,
    /// Used memory of the send buffer, in bytes, including the kernel's overhead.
    pub send_buffer_used_bytes: u32,
    /// Size of the send buffer, in bytes, including the kernel's overhead. 0 if the kernel does not report it.
    pub send_buffer_bytes: u32,
    /// The kernel's information about the connection.
    pub info: TcpInfo,
}

/// The fields of `struct tcp_info` (linux/tcp.h) that explain a rate. A field that the kernel lacks is 0, or none if 0
/// could be a measured value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Smoothed round-trip time, in microseconds.
    pub rtt_us: u32,
    /// Minimum round-trip time of the last minutes, in microseconds.
    pub least_rtt_us: u32,
    /// Maximum payload of a sent segment, in bytes.
    pub segment_bytes: u32,
    /// The congestion window, in segments.
    pub congestion_window: u32,
    /// Number of segments in flight.
    pub in_flight: u32,
    /// Payload that has not been sent yet, in bytes.
    pub unsent_bytes: u32,
    /// Number of retransmitted segments.
    pub retransmits: u32,
    /// Payload that the other end has acknowledged, in bytes. The connecting side counts one more byte, for its SYN.
    pub acknowledged_bytes: u64,
    /// Payload that has arrived, in bytes.
    pub received_bytes: u64,
    /// Time since data was last sent, in milliseconds, in whole ticks of the kernel.
    pub last_sent_ms: u32,
    /// Time since data last arrived, in milliseconds, in whole ticks of the kernel.
    pub last_received_ms: u32,
    /// Time since an acknowledgement last arrived, with or without data, in milliseconds, in whole ticks of the kernel.
    pub last_acknowledged_ms: u32,
    /// Number of segments with data that arrived.
    pub received_segments: u32,
    /// Number of segments with data that were sent.
    pub sent_segments: u32,
    /// Time with data to send, in microseconds. It includes the two times below.
    pub busy_us: Option<u64>,
    /// Time for which the other end's receive window stopped the sender, in microseconds.
    pub receive_window_limited_us: Option<u64>,
    /// Time for which this end's send buffer stopped the sender, in microseconds.
    pub send_buffer_limited_us: Option<u64>,
}

/// All listening sockets.
///
/// # Errors
/// If the kernel refuses the request or answers in an unknown form.
pub fn listeners() -> io::Result<Vec<Listener>> {
    let mut all = Vec::new();
    dump(LISTEN, usize::MAX, |entry| {
        all.push(Listener {
            address: entry.local,
            waiting: entry.receive_queue,
            backlog: entry.send_queue,
            inode: entry.inode,
        });
    })?;
    Ok(all)
}

/// Established connections, at most `limit`. `listeners` must contain all listening sockets.
///
/// The kernel walks the sockets of all namespaces, which takes hundreds of microseconds. It is therefore asked only if
/// this namespace has sockets that do not listen.
///
/// # Errors
/// Those of [`listeners`].
pub fn connections(limit: usize, listeners: &[Listener]) -> io::Result<Vec<Connection>> {
    let mut all = Vec::new();
    let has_more = |((file, name), is_ipv4): ((&str, &str), bool)| {
        let listening = listeners.iter().filter(|listener| listener.address.is_ipv4() == is_ipv4);
        let used = crate::read(file).ok().and_then(|text| crate::number(&text, name));
        used.is_none_or(|used| used > listening.count() as u64)
    };
    if !COUNTED_IN.into_iter().zip([true, false]).any(has_more) {
        return Ok(all);
    }
    dump(ESTABLISHED, limit, |entry| {
        all.push(Connection {
            local: entry.local,
            remote: entry.remote,
            inode: entry.inode,
            unread_bytes: entry.receive_queue,
            unacknowledged_bytes: entry.send_queue,
            send_buffer_used_bytes: entry.send_buffer[0],
            send_buffer_bytes: entry.send_buffer[1],
            info: entry.info,
        });
    })?;
    Ok(all)
}

/// Numbers of connections that are being opened or closed. In each state, at most a limit is counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Passing {
    /// Half open: the last part of the handshake is missing.
    pub syn_received: u64,
    /// Closed on this side, but not yet by the other end.
    pub fin_wait: u64,
    /// Closed by the other end, but not yet by the program on this side.
    pub close_wait: u64,
}

/// Counts connections that are being opened or closed, at most `limit` in each state.
///
/// # Errors
/// Those of [`listeners`].
pub fn passing(limit: usize) -> io::Result<Passing> {
    let count = |state| {
        let mut count = 0;
        dump(state, limit, |_| count += 1).map(|()| count)
    };
    Ok(Passing {
        syn_received: count(SYN_RECEIVED)?,
        fin_wait: count(FIN_WAIT_1)? + count(FIN_WAIT_2)?,
        close_wait: count(CLOSE_WAIT)?,
    })
}

/// Maximum number of local ports, over all targets, that ended connections keep from being used. A target is one local
/// address with one remote address and port. At the accepting end the number is 1, because each client connects from a
/// different port.
///
/// # Errors
/// Those of [`listeners`].
pub(crate) fn ports_in_time_wait(counts_loopback: bool) -> io::Result<u64> {
    let mut kept: BTreeMap<(IpAddr, SocketAddr), u64> = BTreeMap::new();
    // The kernel also turns sockets in FIN_WAIT_2 into timewait sockets.
    for state in [TIME_WAIT, FIN_WAIT_2] {
        dump(state, usize::MAX, |entry| {
            if counts_loopback || !entry.remote.ip().to_canonical().is_loopback() {
                *kept.entry((entry.local.ip(), entry.remote)).or_default() += 1;
            }
        })?;
    }
    Ok(kept.into_values().max().unwrap_or(0))
}

/// A socket of a dump.
struct Entry {
    local: SocketAddr,
    remote: SocketAddr,
    receive_queue: u32,
    send_queue: u32,
    inode: u32,
    /// The used part of the send buffer, and its size.
    send_buffer: [u32; 2],
    info: TcpInfo,
}

/// Calls `take` for the sockets in a state, at most `limit`.
fn dump(state: u32, limit: usize, mut take: impl FnMut(Entry)) -> io::Result<()> {
    let mut left = limit;
    let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
    socket.bind_auto()?;
    socket.connect(&Kernel::new(0, 0))?;
    socket.send(&request(state), 0)?;
    let mut buffer = Vec::with_capacity(BUFFER_BYTES);
    while left > 0 {
        buffer.clear();
        socket.recv(&mut buffer, 0)?;
        for (kind, message) in messages(&buffer) {
            match kind {
                NLMSG_DONE => return Ok(()),
                NLMSG_ERROR => return Err(refused(message)),
                TCPDIAG_GETSOCK if left > 0 => {
                    take(parse(message).ok_or_else(unknown)?);
                    left -= 1;
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn request(state: u32) -> Vec<u8> {
    // struct nlmsghdr, then struct inet_diag_req with zeros for families, prefixes and addresses.
    let length = HEADER_BYTES + 60;
    let mut request = Vec::with_capacity(length);
    request.extend((length as u32).to_ne_bytes());
    request.extend(TCPDIAG_GETSOCK.to_ne_bytes());
    request.extend(DUMP.to_ne_bytes());
    request.extend([0; 11]);
    request.push(1 << (INET_DIAG_INFO - 1) | 1 << (INET_DIAG_SKMEMINFO - 1));
    request.extend([0; 48]);
    request.extend((1_u32 << state).to_ne_bytes());
    request.resize(length, 0);
    request
}

/// The messages in a buffer with their kinds, up to the first truncated one.
fn messages(mut buffer: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = u32_at(buffer, 0)? as usize;
        let kind = u16_at(buffer, 4)?;
        let message = buffer.get(HEADER_BYTES..length)?;
        buffer = buffer.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, message))
    })
}

fn refused(message: &[u8]) -> io::Error {
    u32_at(message, 0)
        .map_or_else(unknown, |errno| io::Error::from_raw_os_error((errno as i32).wrapping_neg()))
}

fn unknown() -> io::Error {
    io::Error::other("the kernel lists sockets in an unknown form")
}

/// Parses `struct inet_diag_msg` and the attributes that follow it.
fn parse(message: &[u8]) -> Option<Entry> {
    let address = |at: usize| -> Option<IpAddr> {
        let bytes: [u8; 16] = message.get(at..at + 16)?.try_into().ok()?;
        let [a, b, c, d, ..] = bytes;
        Some(match i32::from(message[0]) {
            libc::AF_INET => Ipv4Addr::new(a, b, c, d).into(),
            _ => Ipv6Addr::from(bytes).into(),
        })
    };
    let attributes = message.get(MESSAGE_BYTES..)?;
    let memory = attribute(attributes, INET_DIAG_SKMEMINFO).unwrap_or_default();
    let port = |at| u16_at(message, at).map(u16::from_be);
    Some(Entry {
        local: SocketAddr::new(address(8)?, port(4)?),
        remote: SocketAddr::new(address(24)?, port(6)?),
        receive_queue: u32_at(message, 56)?,
        send_queue: u32_at(message, 60)?,
        inode: u32_at(message, 68)?,
        // SK_MEMINFO_WMEM_QUEUED and SK_MEMINFO_SNDBUF (linux/sock_diag.h).
        send_buffer: [5, 3].map(|index| u32_at(memory, 4 * index).unwrap_or_default()),
        info: attribute(attributes, INET_DIAG_INFO).map(TcpInfo::parse).unwrap_or_default(),
    })
}

/// The value of an attribute; none if it is missing.
fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let (length, kind) = (usize::from(u16_at(attributes, 0)?), u16_at(attributes, 2)?);
        let value = attributes.get(4..length)?;
        if kind == wanted {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

impl Listener {
    /// Whether a connection belongs to this socket: it was not opened at this end.
    pub(crate) fn has(&self, connection: &Connection) -> bool {
        let (ip, listens) = (connection.local.ip().to_canonical(), self.address.ip().to_canonical());
        self.address.port() == connection.local.port() && (listens.is_unspecified() || listens == ip)
    }
}

impl TcpInfo {
    /// Whether the end that asks waits for an answer: it sent data after the last data arrived. If both happened in the same tick of the
    /// kernel, what was sent has not been acknowledged yet, or was acknowledged later and without data, or more segments were sent than
    /// arrived: a request is one segment, and an answer one or more.
    pub(crate) fn awaits(&self) -> bool {
        match self.last_sent_ms.cmp(&self.last_received_ms) {
            Ordering::Less => true,
            Ordering::Equal => {
                self.in_flight > 0
                    || self.last_acknowledged_ms < self.last_received_ms
                    || self.sent_segments > self.received_segments
            }
            Ordering::Greater => false,
        }
    }

    /// Parses `struct tcp_info`. New kernel versions append fields to it.
    fn parse(info: &[u8]) -> Self {
        let number = |at| u32_at(info, at).unwrap_or_default();
        Self {
            segment_bytes: number(16),
            in_flight: number(24),
            rtt_us: number(68),
            least_rtt_us: number(148),
            unsent_bytes: number(144),
            congestion_window: number(80),
            retransmits: number(100),
            acknowledged_bytes: u64_at(info, 120).unwrap_or_default(),
            received_bytes: u64_at(info, 128).unwrap_or_default(),
            last_sent_ms: number(44),
            last_received_ms: number(52),
            last_acknowledged_ms: number(56),
            received_segments: number(152),
            sent_segments: number(156),
            busy_us: u64_at(info, 168),
            receive_window_limited_us: u64_at(info, 176),
            send_buffer_limited_us: u64_at(info, 184),
        }
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|number| u16::from_ne_bytes(*number))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|number| u32::from_ne_bytes(*number))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|number| u64::from_ne_bytes(*number))
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
    };

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_queue_of_a_listener_is_seen() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(any).unwrap();
            let address = listener.local_addr().unwrap();
            let find = || listeners().unwrap().into_iter().find(|seen| seen.address == address).unwrap();
            let empty = find();
            assert!(empty.waiting == 0 && empty.backlog > 0, "{empty:?}");
            let _waiting = [TcpStream::connect(address).unwrap(), TcpStream::connect(address).unwrap()];
            testing::until("two wait", || find() == Listener { waiting: 2, ..empty });
        }
    }

    #[test]
    fn both_ends_of_a_connection_are_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[7; 1000]).unwrap();
        server.read_exact(&mut [0; 400]).unwrap();
        let local = client.local_addr().unwrap();
        let all = || connections(usize::MAX, &listeners().unwrap()).unwrap().into_iter();
        let is_done = |seen: Connection| seen.local == local && seen.info.acknowledged_bytes == 1001;
        testing::until("all is acknowledged", || all().any(is_done));
        let sent = all().find(|seen| seen.local == local).unwrap();
        let received = all().find(|seen| seen.remote == local).unwrap();
        assert_eq!((sent.info.acknowledged_bytes, sent.info.busy_us.is_some()), (1001, true));
        assert_eq!((received.info.received_bytes, received.unread_bytes), (1000, 600));
        assert!(sent.send_buffer_bytes > 1000 && sent.send_buffer_used_bytes == 0, "{sent:?}");
        assert!(sent.info.congestion_window > 0 && sent.info.segment_bytes > 500, "{sent:?}");
        assert_eq!(connections(1, &[]).unwrap().len(), 1);
    }

    #[test]
    fn the_end_that_asked_waits_until_the_answer_comes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let local = client.local_addr().unwrap();
        let awaits = || {
            let all = connections(usize::MAX, &listeners().unwrap()).unwrap();
            all.into_iter().find(|seen| seen.local == local).map(|seen| seen.info.awaits())
        };
        let pause = || std::thread::sleep(std::time::Duration::from_millis(30));
        pause();
        client.write_all(b"?").unwrap();
        testing::until("it waits", || awaits() == Some(true));
        pause();
        assert_eq!(awaits(), Some(true));
        server.write_all(b"!").unwrap();
        testing::until("it has its answer", || awaits() == Some(false));
        // The next request comes at once, so that the kernel may note the same times for it and for the answer.
        client.write_all(b"?").unwrap();
        testing::until("it waits again", || awaits() == Some(true));
        pause();
        assert_eq!(awaits(), Some(true));
    }

    #[test]
    fn what_an_older_kernel_does_not_tell_is_unknown() {
        let mut info = [0; 232];
        info[168] = 9;
        assert_eq!(TcpInfo::parse(&info).busy_us, Some(9));
        let older = TcpInfo::parse(&info[..160]);
        assert_eq!((older.busy_us, older.receive_window_limited_us), (None, None));
        assert_eq!(TcpInfo::parse(&[]), TcpInfo::default());
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_fail(bytes: Vec<u8>, cut in 0..200_usize) {
            for (_, message) in messages(&bytes).take(100) {
                let _ = parse(message);
            }
            let _ = parse(&bytes[..cut.min(bytes.len())]);
        }
    }
}
