//! One probe of a server: an exchange of TCP, and of HTTP in it, without input or output.
//!
//! The kernel knows nothing of these connections. The probe takes packets, and gives the packets to be sent.

use std::{
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
    time::{Duration, Instant},
};

use etherparse::{LaxNetSlice, LaxSlicedPacket, PacketBuilder, TcpHeader, TcpOptionElement, TransportSlice};
use record::units::show_nominal_time_ns;

use crate::{CheckKind, layout::mapped};

/// Fits on every path that IPv6 may take.
const SEGMENT: u16 = 1_220;
/// What a server may send before it must wait: one segment. Several may come as one packet, of which the end would be cut off.
const WINDOW: u16 = SEGMENT;
/// To a server of the segment. One that has lost the VIP, and forwards, must not hand a probe to another one.
const HOPS: u8 = 1;
/// Bytes of an answer in which its status must stand: `HTTP/1.1 200`.
const STATUS_BYTES: usize = 12;
/// How often a request is sent at most.
const REQUESTS: u32 = 3;

/// A segment of TCP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segment<'b> {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    sequence: u32,
    /// The next byte that the sender expects.
    acknowledged: Option<u32>,
    is_syn: bool,
    is_fin: bool,
    is_reset: bool,
    payload: &'b [u8],
}

/// A probe under way.
#[derive(Debug)]
pub(crate) struct Probe {
    own: SocketAddr,
    vip: SocketAddr,
    /// Number of the next byte to be sent: that after the SYN.
    next: u32,
    phase: Phase,
    /// The request, and the statuses that are good; none if a connection is enough.
    http: Option<(Vec<u8>, RangeInclusive<u16>)>,
    resend: Option<Instant>,
    deadline: Instant,
    timeout: Duration,
}

#[derive(Debug)]
enum Phase {
    /// SYN is sent.
    Connecting,
    /// The request is sent.
    Asked {
        /// Number of the next byte of the server.
        expected: u32,
        /// Number of our byte that the server expects.
        acknowledged: u32,
        /// The begin of the answer.
        answer: Vec<u8>,
        /// How often the request has been sent.
        requests: u32,
    },
}

/// What a probe found: that all is well, or what is not.
pub(crate) type Outcome = Result<(), Fault>;

/// What is wrong with a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) why: String,
    /// Whether nothing at all has come from it. A server that answers, however badly, may still serve its connections.
    pub(crate) is_silent: bool,
    /// Whether it says something of the balancer, and nothing of the server.
    pub(crate) is_own: bool,
}

impl Fault {
    /// Of a server that answers.
    pub(crate) fn answered(why: String) -> Self {
        Self { why, is_silent: false, is_own: false }
    }

    /// Of a balancer that could not ask.
    pub(crate) fn own(why: String) -> Self {
        Self { is_own: true, ..Self::answered(why) }
    }

    /// Of a server that does not.
    pub(crate) fn silent(why: impl Into<String>) -> Self {
        Self { why: why.into(), is_silent: true, is_own: false }
    }
}

impl<'b> Segment<'b> {
    /// The segment in a packet of IP, whose end may be cut off; none if it is none, or is broken. The checksum is not looked at: between
    /// virtual devices there is none yet.
    pub(crate) fn parse(packet: &'b [u8]) -> Option<Self> {
        let packet = LaxSlicedPacket::from_ip(packet).ok()?;
        let (from, to): (IpAddr, IpAddr) = match packet.net.as_ref()? {
            LaxNetSlice::Ipv4(ip) => {
                (ip.header().source_addr().into(), ip.header().destination_addr().into())
            }
            LaxNetSlice::Ipv6(ip) => {
                (ip.header().source_addr().into(), ip.header().destination_addr().into())
            }
            LaxNetSlice::Arp(_) => return None,
        };
        let Some(TransportSlice::Tcp(tcp)) = &packet.transport else { return None };
        Some(Self {
            from: SocketAddr::new(from, tcp.source_port()),
            to: SocketAddr::new(to, tcp.destination_port()),
            sequence: tcp.sequence_number(),
            acknowledged: tcp.ack().then(|| tcp.acknowledgment_number()),
            is_syn: tcp.syn(),
            is_fin: tcp.fin(),
            is_reset: tcp.rst(),
            payload: tcp.payload(),
        })
    }
}

impl Probe {
    /// Begins a probe from an own address and port, with a random number of its first byte. Returns the SYN, too.
    pub(crate) fn begin(
        source: SocketAddr,
        vip: SocketAddr,
        kind: &CheckKind,
        timeout: Duration,
        first: u32,
        now: Instant,
    ) -> (Self, Vec<u8>) {
        let http = match kind {
            CheckKind::None | CheckKind::Tcp => None,
            CheckKind::Http { path, host, status } => {
                Some((request(path, host.as_deref(), vip), status.clone()))
            }
        };
        let (resend, deadline) = (Some(now + timeout / 2), now + timeout);
        let next = first.wrapping_add(1);
        let probe =
            Self { own: source, vip, next, phase: Phase::Connecting, http, resend, deadline, timeout };
        let syn = probe.syn();
        (probe, syn)
    }

    /// When [`Self::wake`] wants to be called.
    pub(crate) fn wakes(&self) -> Instant {
        self.resend.unwrap_or(self.deadline)
    }

    /// Takes a segment. What is to be sent goes to `out`. Returns what was found, when it was.
    pub(crate) fn receive(&mut self, segment: &Segment<'_>, out: &mut Vec<Vec<u8>>) -> Option<Outcome> {
        if (segment.from, segment.to) != (self.vip, self.own) {
            return None;
        }
        let port = self.vip.port();
        let Phase::Asked { expected, acknowledged, answer, requests } = &mut self.phase else {
            return self.connecting(segment, out);
        };
        if segment.is_reset {
            // One with another number may be anybody's (RFC 9293, 3.10.7.4).
            let is_reset = segment.sequence == *expected;
            let why = format!("resets the connection to port {port} instead of answering");
            return is_reset.then_some(Err(Fault::answered(why)));
        }
        if segment.is_syn {
            // The server has not heard of the request.
            if *requests < REQUESTS && segment.sequence.wrapping_add(1) == *expected {
                *requests += 1;
                out.extend(self.request_segment());
            }
            return None;
        }
        *acknowledged = segment.acknowledged.unwrap_or(*acknowledged);
        // What has come before is cut off; what comes too early is left to be sent again.
        let known = expected.wrapping_sub(segment.sequence) as usize;
        let fresh = segment.payload.get(known..);
        let ends = segment.is_fin && known <= segment.payload.len();
        if let Some(fresh) = fresh {
            let taken = fresh.len().min(STATUS_BYTES.saturating_sub(answer.len()));
            answer.extend(&fresh[..taken]);
            *expected = expected.wrapping_add(fresh.len() as u32);
        }
        let found = match status(answer) {
            Ok(Some(status)) => Some(self.judge(status)),
            Ok(None) if ends => Some(Err(format!("closes the connection to port {port} without a status"))),
            Ok(None) => None,
            Err(()) => Some(Err(format!("does not answer in HTTP on port {port}"))),
        };
        let found = found.map(|found| found.map_err(Fault::answered));
        match found {
            Some(_) => out.push(self.reset()),
            None if segment.payload.is_empty() => {}
            None => out.push(self.empty(|_| ())),
        }
        found
    }

    /// Sends again what has not been answered, or gives up.
    pub(crate) fn wake(&mut self, now: Instant, out: &mut Vec<Vec<u8>>) -> Option<Outcome> {
        if now >= self.deadline {
            // The server may have answered, and the answer may be lost.
            out.push(self.reset());
            let is_silent = matches!(self.phase, Phase::Connecting);
            let what = if is_silent { "a SYN" } else { "a request" };
            let timeout = show_nominal_time_ns(self.timeout.as_nanos() as u64);
            let why = format!("does not answer {what} to port {} within {timeout}", self.vip.port());
            return Some(Err(Fault { is_silent, ..Fault::answered(why) }));
        }
        if self.resend.is_some_and(|at| now >= at) {
            self.resend = None;
            match &self.phase {
                Phase::Connecting => out.push(self.syn()),
                Phase::Asked { answer, .. } if answer.is_empty() => out.extend(self.request_segment()),
                Phase::Asked { .. } => {}
            }
        }
        None
    }

    fn connecting(&mut self, segment: &Segment<'_>, out: &mut Vec<Vec<u8>>) -> Option<Outcome> {
        let acknowledged = segment.acknowledged?;
        if acknowledged != self.next {
            // Of a connection that the server had from this port before.
            if !segment.is_reset {
                out.push(packet(self.own, self.vip, acknowledged, |tcp| tcp.rst = true, &[], &[]));
            }
            return None;
        }
        if segment.is_reset {
            let why = format!("refuses connections to port {}", self.vip.port());
            return Some(Err(Fault::answered(why)));
        }
        if !segment.is_syn {
            return None;
        }
        let expected = segment.sequence.wrapping_add(1);
        self.phase = Phase::Asked { expected, acknowledged, answer: Vec::new(), requests: 1 };
        match self.request_segment() {
            Some(request) => {
                out.push(request);
                None
            }
            None => {
                out.push(self.reset());
                Some(Ok(()))
            }
        }
    }

    fn judge(&self, status: u16) -> Result<(), String> {
        let Some((_, good)) = &self.http else { return Ok(()) };
        if good.contains(&status) {
            return Ok(());
        }
        let (from, to) = (good.start(), good.end());
        Err(format!("answers with status {status} on port {}; {from} to {to} are good", self.vip.port()))
    }

    fn syn(&self) -> Vec<u8> {
        let options = [TcpOptionElement::MaximumSegmentSize(SEGMENT)];
        packet(self.own, self.vip, self.next.wrapping_sub(1), |tcp| tcp.syn = true, &options, &[])
    }

    fn request_segment(&self) -> Option<Vec<u8>> {
        let (request, _) = self.http.as_ref()?;
        let Phase::Asked { expected, .. } = self.phase else { return None };
        let set = |tcp: &mut TcpHeader| {
            (tcp.psh, tcp.ack, tcp.acknowledgment_number) = (true, true, expected);
        };
        Some(packet(self.own, self.vip, self.next, set, &[], request))
    }

    /// Ends the connection at the server at once, so that nothing of it stays there.
    fn reset(&self) -> Vec<u8> {
        self.empty(|tcp| tcp.rst = true)
    }

    /// A segment without data. Its number is what the server expects: it takes a reset with no other.
    fn empty(&self, set: impl FnOnce(&mut TcpHeader)) -> Vec<u8> {
        let (sequence, expected) = match &self.phase {
            Phase::Connecting => (self.next, None),
            Phase::Asked { expected, acknowledged, .. } => (*acknowledged, Some(*expected)),
        };
        let set = |tcp: &mut TcpHeader| {
            set(tcp);
            (tcp.ack, tcp.acknowledgment_number) = (expected.is_some(), expected.unwrap_or_default());
        };
        packet(self.own, self.vip, sequence, set, &[], &[])
    }
}

fn request(path: &str, host: Option<&str>, vip: SocketAddr) -> Vec<u8> {
    let address = match vip.ip() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    };
    let host = host.unwrap_or(&address);
    format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: proofload-balance\r\nConnection: close\r\n\r\n"
    )
    .into()
}

/// The status that an answer begins with; none if too little of it has come.
fn status(answer: &[u8]) -> Result<Option<u16>, ()> {
    const BEGIN: &[u8; 9] = b"HTTP/1.x ";
    let fits = |(at, byte): (usize, &u8)| match BEGIN.get(at) {
        Some(b'x') | None => byte.is_ascii_digit(),
        Some(expected) => byte == expected,
    };
    let begin = &answer[..answer.len().min(STATUS_BYTES)];
    if !begin.iter().enumerate().all(fits) {
        return Err(());
    }
    let digits = begin.get(BEGIN.len()..STATUS_BYTES);
    Ok(digits.map(|digits| digits.iter().fold(0, |status, digit| status * 10 + u16::from(digit - b'0'))))
}

/// A segment in a packet of IP, with its checksums.
fn packet(
    from: SocketAddr,
    to: SocketAddr,
    sequence: u32,
    set: impl FnOnce(&mut TcpHeader),
    options: &[TcpOptionElement],
    payload: &[u8],
) -> Vec<u8> {
    let mut tcp = TcpHeader::new(from.port(), to.port(), sequence, WINDOW);
    set(&mut tcp);
    // There is one option at most, and forty bytes for them.
    let fit = tcp.set_options(options);
    debug_assert!(fit.is_ok());
    let ip = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => PacketBuilder::ipv4(from.octets(), to.octets(), HOPS),
        // An address of IPv4 in a probe of IPv6 is refused before.
        (from, to) => PacketBuilder::ipv6(mapped(from), mapped(to), HOPS),
    };
    let mut bytes = Vec::new();
    // Only a payload beyond 64 KiB does not fit, and a request is one line of a file.
    let written = ip.tcp_header(tcp).write_to_vec(&mut bytes, payload);
    debug_assert!(written.is_ok());
    bytes
}

#[cfg(test)]
mod tests;
