//! One probe of a server: an exchange of TCP, and what is said in it ([`Talk`]), without input or output.
//!
//! The kernel knows nothing of these connections. The probe takes packets, and gives the packets to be sent.

mod talk;

use std::{
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use etherparse::{LaxNetSlice, LaxSlicedPacket, PacketBuilder, TcpHeader, TcpOptionElement, TransportSlice};
use record::units::show_nominal_time_ns;

use self::talk::{Heard, Talk};
use crate::{CheckKind, layout::mapped};

/// Fits on every path that IPv6 may take.
const SEGMENT: u16 = 1_220;
/// What a server may send before it must wait: one segment. Several may come as one packet, of which the end would be cut off.
const WINDOW: u16 = SEGMENT;
/// To a server of the segment. One that has lost the VIP, and forwards, must not hand a probe to another one.
const HOPS: u8 = 1;
/// How often what was said first is sent at most.
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
    /// Number of the first byte that the server has not acknowledged: at first, of that after the SYN.
    next: u32,
    phase: Phase,
    /// What is said; none if a connection is enough.
    talk: Option<Talk>,
    resend: Option<Instant>,
    deadline: Instant,
    timeout: Duration,
}

#[derive(Debug)]
enum Phase {
    /// SYN is sent.
    Connecting,
    /// The connection is there.
    Connected {
        /// Number of the next byte of the server.
        expected: u32,
        /// What was said, and is not acknowledged.
        said: Vec<u8>,
        /// How often what was said first has been sent.
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

    /// Of a balancer that could not ask, or has not asked yet.
    pub(crate) fn own(why: impl Into<String>) -> Self {
        Self { is_own: true, ..Self::answered(why.into()) }
    }

    /// Of a server of which nothing is known, and which counts as silent or not.
    pub(crate) fn unknown(why: &str, is_silent: bool) -> Self {
        Self { is_silent, ..Self::own(why) }
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
    ///
    /// # Errors
    /// When nothing can be said.
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
        let Phase::Connected { expected, said, requests } = &mut self.phase else {
            return self.connecting(segment, out);
        };
        if segment.is_reset {
            // One with another number may be anybody's (RFC 9293, 3.10.7.4).
            let is_reset = segment.sequence == *expected;
            let hint = self.talk.as_ref().map_or("", Talk::hint);
            let why = format!("resets the connection to port {port} instead of answering{hint}");
            return is_reset.then_some(Err(Fault::answered(why)));
        }
        if segment.is_syn {
            // The server has not heard what was said.
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
        // What has come before is cut off; what comes too early is left to be sent again.
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

    /// Sends again what has not been answered, or gives up.
    pub(crate) fn wake(&mut self, now: Instant, out: &mut Vec<Vec<u8>>) -> Option<Outcome> {
        if now >= self.deadline {
            // The server may have answered, and the answer may be lost.
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

    /// A segment with what was not said before.
    fn say(&mut self, bytes: &[u8]) -> Vec<u8> {
        let Phase::Connected { expected, said, .. } = &mut self.phase else { return Vec::new() };
        let (expected, at) = (*expected, self.next.wrapping_add(said.len() as u32));
        said.extend(bytes);
        self.data(expected, at, bytes)
    }

    /// A segment with what was said, and is not acknowledged.
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

    /// Ends the connection at the server at once, so that nothing of it stays there.
    fn reset(&self) -> Vec<u8> {
        self.empty(|tcp| tcp.rst = true)
    }

    /// A segment without data. Its number is what the server expects: it takes a reset with no other.
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
