//! One probe of a server: a TCP connection and the exchange on it ([`Talk`]). The module does no input or output.
//!
//! The kernel knows nothing of these connections. The caller passes received packets to the probe and sends the packets
//! that it returns.

mod talk;

use std::{
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use etherparse::{LaxNetSlice, LaxSlicedPacket, PacketBuilder, TcpHeader, TcpOptionElement, TransportSlice};
use record::units::show_nominal_time_ns;

use self::talk::{Heard, Talk};
use crate::{CheckKind, layout::mapped};

/// Maximum segment size of probes: one that every IPv6 path carries.
const SEGMENT: u16 = 1_220;
/// The receive window: one segment. The kernel might merge several segments into one packet, whose end would be cut
/// off.
const WINDOW: u16 = SEGMENT;
/// Hop limit of probes. Servers are on the same segment, and a server that has lost the VIP but forwards packets must
/// not pass a probe on to another server.
const HOPS: u8 = 1;
/// Maximum number of times that the request is sent.
const REQUESTS: u32 = 3;

/// A TCP segment.
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

/// A probe in progress.
#[derive(Debug)]
pub(crate) struct Probe {
    own: SocketAddr,
    vip: SocketAddr,
    /// Sequence number of the first byte that the server has not acknowledged; at first, the byte after the SYN.
    next: u32,
    phase: Phase,
    /// The exchange on the connection; none if the check ends with the connection.
    talk: Option<Talk>,
    resend: Option<Instant>,
    deadline: Instant,
    timeout: Duration,
}

#[derive(Debug)]
enum Phase {
    /// The SYN has been sent.
    Connecting,
    /// The connection is established.
    Connected {
        /// Sequence number of the next byte from the server.
        expected: u32,
        /// Sent bytes that are not acknowledged yet.
        said: Vec<u8>,
        /// Number of times that the request has been sent.
        requests: u32,
    },
}

/// The result of a probe: success or a fault.
pub(crate) type Outcome = Result<(), Fault>;

/// A fault of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) why: String,
    /// Whether the server did not answer at all. A server with any answer may still serve its connections.
    pub(crate) is_silent: bool,
    /// Whether the balancer is at fault. Such a fault says nothing about the server.
    pub(crate) is_own: bool,
}

impl Fault {
    /// A fault of a server that answers.
    pub(crate) fn answered(why: String) -> Self {
        Self { why, is_silent: false, is_own: false }
    }

    /// A fault of the balancer: it could not probe the server or has not done so yet.
    pub(crate) fn own(why: impl Into<String>) -> Self {
        Self { is_own: true, ..Self::answered(why.into()) }
    }

    /// The fault of a server of unknown health. The caller decides whether the server counts as silent.
    pub(crate) fn unknown(why: &str, is_silent: bool) -> Self {
        Self { is_silent, ..Self::own(why) }
    }

    /// A fault of a server that does not answer.
    pub(crate) fn silent(why: impl Into<String>) -> Self {
        Self { why: why.into(), is_silent: true, is_own: false }
    }
}

impl<'b> Segment<'b> {
    /// The TCP segment in an IP packet, whose end may be cut off; none if the packet contains no valid segment. The
    /// checksum is not verified, because packets between virtual devices do not have it yet.
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
    /// Begins a probe from `source`, an address and port of the balancer. Returns the probe and the SYN to send.
    ///
    /// # Errors
    /// If the exchange cannot be prepared, for example because TLS is not available.
    pub(crate) fn begin(
        source: SocketAddr,
        vip: SocketAddr,
        kind: &CheckKind,
        timeout: Duration,
        first: u32,
        now: Instant,
    ) -> Result<(Self, Vec<u8>), String> {
        let talk = Talk::of(kind, vip)?;
        let (resend, deadline) = (Some(now + timeout / 2), now + timeout);
        let next = first.wrapping_add(1);
        let probe =
            Self { own: source, vip, next, phase: Phase::Connecting, talk, resend, deadline, timeout };
        let syn = probe.syn();
        Ok((probe, syn))
    }

    /// Time at which [`Self::wake`] must be called.
    pub(crate) fn wakes(&self) -> Instant {
        self.resend.unwrap_or(self.deadline)
    }

    /// Processes a received segment. Adds packets to send to `out`. Returns the outcome if the probe has ended.
    pub(crate) fn receive(&mut self, segment: &Segment<'_>, out: &mut Vec<Vec<u8>>) -> Option<Outcome> {
        if (segment.from, segment.to) != (self.vip, self.own) {
            return None;
        }
        let port = self.vip.port();
        let Phase::Connected { expected, said, requests } = &mut self.phase else {
            return self.connecting(segment, out);
        };
        if segment.is_reset {
            // A reset with another sequence number may be forged, so it is ignored (RFC 9293, 3.10.7.4).
            let is_reset = segment.sequence == *expected;
            let hint = self.talk.as_ref().map_or("", Talk::hint);
            let why = format!("resets the connection to port {port} instead of answering{hint}");
            return is_reset.then_some(Err(Fault::answered(why)));
        }
        if segment.is_syn {
            // The server repeats its SYN, so the request was lost.
            if *requests < REQUESTS && segment.sequence.wrapping_add(1) == *expected {
                *requests += 1;
                out.extend(self.said_again());
            }
            return None;
        }
        let heard = segment.acknowledged.map_or(0, |byte| byte.wrapping_sub(self.next) as usize);
        if heard <= said.len() {
            said.drain(..heard);
            self.next = self.next.wrapping_add(heard as u32);
        }
        // Bytes that came before are cut off. A segment that begins after the next expected byte is dropped, so that
        // the server sends it again.
        let known = expected.wrapping_sub(segment.sequence) as usize;
        let fresh = segment.payload.get(known..);
        let ends = segment.is_fin && known <= segment.payload.len();
        *expected = expected.wrapping_add(fresh.map_or(0, <[u8]>::len) as u32);
        let heard = self.talk.as_mut().map(|talk| talk.hear(fresh.unwrap_or_default(), ends));
        match heard.unwrap_or(Heard::Says(Vec::new())) {
            Heard::Found(found) => {
                out.push(self.reset());
                return Some(found.map_err(Fault::answered));
            }
            Heard::Says(bytes) if !bytes.is_empty() => out.push(self.say(&bytes)),
            Heard::Says(_) if segment.payload.is_empty() => {}
            Heard::Says(_) => out.push(self.empty(|_| ())),
        }
        None
    }

    /// Sends the unanswered segment again, or ends the probe at the deadline.
    pub(crate) fn wake(&mut self, now: Instant, out: &mut Vec<Vec<u8>>) -> Option<Outcome> {
        if now >= self.deadline {
            // The server may have answered although the answer was lost, so its connection is reset.
            out.push(self.reset());
            let is_silent = matches!(self.phase, Phase::Connecting);
            let what = if is_silent { "a SYN" } else { self.talk.as_ref().map_or("", Talk::awaited) };
            let timeout = show_nominal_time_ns(self.timeout.as_nanos() as u64);
            let why = format!("does not answer {what} to port {} within {timeout}", self.vip.port());
            return Some(Err(Fault { is_silent, ..Fault::answered(why) }));
        }
        if self.resend.is_some_and(|at| now >= at) {
            self.resend = None;
            match &self.phase {
                Phase::Connecting => out.push(self.syn()),
                Phase::Connected { .. } => out.extend(self.said_again()),
            }
        }
        None
    }

    fn connecting(&mut self, segment: &Segment<'_>, out: &mut Vec<Vec<u8>>) -> Option<Outcome> {
        let acknowledged = segment.acknowledged?;
        if acknowledged != self.next {
            // The server still has an earlier connection from this port, which the segment belongs to.
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
        self.phase = Phase::Connected { expected, said: Vec::new(), requests: 1 };
        let found = match self.talk.as_mut().map(|talk| talk.hear(&[], false)) {
            Some(Heard::Says(bytes)) => {
                out.push(self.say(&bytes));
                return None;
            }
            Some(Heard::Found(found)) => found.map_err(Fault::answered),
            None => Ok(()),
        };
        out.push(self.reset());
        Some(found)
    }

    /// A segment with new bytes.
    fn say(&mut self, bytes: &[u8]) -> Vec<u8> {
        let Phase::Connected { expected, said, .. } = &mut self.phase else { return Vec::new() };
        let (expected, at) = (*expected, self.next.wrapping_add(said.len() as u32));
        said.extend(bytes);
        self.data(expected, at, bytes)
    }

    /// A segment with the sent bytes that are not acknowledged yet.
    fn said_again(&self) -> Option<Vec<u8>> {
        let Phase::Connected { expected, said, .. } = &self.phase else { return None };
        (!said.is_empty()).then(|| self.data(*expected, self.next, said))
    }

    fn data(&self, expected: u32, at: u32, bytes: &[u8]) -> Vec<u8> {
        let set = |tcp: &mut TcpHeader| {
            (tcp.psh, tcp.ack, tcp.acknowledgment_number) = (true, true, expected);
        };
        packet(self.own, self.vip, at, set, &[], bytes)
    }

    fn syn(&self) -> Vec<u8> {
        let options = [TcpOptionElement::MaximumSegmentSize(SEGMENT)];
        packet(self.own, self.vip, self.next.wrapping_sub(1), |tcp| tcp.syn = true, &options, &[])
    }

    /// A reset, so that the server ends the connection at once and keeps no state of it.
    fn reset(&self) -> Vec<u8> {
        self.empty(|tcp| tcp.rst = true)
    }

    /// A segment without data. It has the sequence number that the server expects, because the server ignores a reset
    /// with another one.
    fn empty(&self, set: impl FnOnce(&mut TcpHeader)) -> Vec<u8> {
        let expected = match &self.phase {
            Phase::Connecting => None,
            Phase::Connected { expected, .. } => Some(*expected),
        };
        let set = |tcp: &mut TcpHeader| {
            set(tcp);
            (tcp.ack, tcp.acknowledgment_number) = (expected.is_some(), expected.unwrap_or_default());
        };
        packet(self.own, self.vip, self.next, set, &[], &[])
    }
}

/// An IP packet with a TCP segment and its checksums.
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
    // This cannot fail: there is at most one option, and a TCP header has room for 40 bytes of options.
    let fit = tcp.set_options(options);
    debug_assert!(fit.is_ok());
    let ip = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => PacketBuilder::ipv4(from.octets(), to.octets(), HOPS),
        // Both addresses are IPv6 here, because `Prober` uses an own address of the VIP's family.
        (from, to) => PacketBuilder::ipv6(mapped(from), mapped(to), HOPS),
    };
    let mut bytes = Vec::new();
    // This cannot fail: only a payload over 64 KiB would not fit, and a request is one line of a file.
    let written = ip.tcp_header(tcp).write_to_vec(&mut bytes, payload);
    debug_assert!(written.is_ok());
    bytes
}

#[cfg(test)]
mod tests;
