//! A wire on the kernel's TCP: non-blocking sockets and one edge-triggered epoll instance. A [`Layer`] above it may encrypt.
//!
//! A request takes two system calls: sockets are registered once, when they open, and never re-armed.

use std::{
    mem,
    net::SocketAddr,
    ops::RangeInclusive,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    ptr,
};

use clock::SpinTail;
pub(crate) use clock::monotonic_ns;
use nix::sys::socket::{setsockopt, sockopt::IpBindAddressNoPort};
use rustix::{
    buffer::spare_capacity,
    event::epoll,
    io::Errno,
    net::{self, AddressFamily, SocketType},
    thread::{NanosleepRelativeResult, nanosleep},
    time::{ClockId, Timespec, clock_getres},
};

use super::{
    Event, HandshakeStep, PrefaceStep, Received, Result, Route, SlotId, Waited, Wake, Wire,
    connect_options::{self, ConnectOptions},
    layer::{Io, Layer, Plain},
    preface::PrefaceState,
    stamps::Stamps,
};

/// The kernel's `TCP_INFO` of a connection (tcp(7)). Fields that an older kernel does not support are 0.
fn tcp_info(socket: BorrowedFd<'_>) -> Option<libc::tcp_info> {
    // SAFETY: the struct consists of integers, for which zero is valid.
    let mut info: libc::tcp_info = unsafe { mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    let (level, to) = (libc::IPPROTO_TCP, ptr::from_mut(&mut info).cast());
    // SAFETY: the kernel writes at most `length` bytes, which `info` has, and the descriptor is open.
    let result = unsafe { libc::getsockopt(socket.as_raw_fd(), level, libc::TCP_INFO, to, &mut length) };
    (result == 0).then_some(info)
}

/// Longest sleep, in nanoseconds: the caller checks between sleeps whether to stop.
const MAX_SLEEP_NS: u64 = 50_000_000;
/// Maximum number of events taken from the kernel at once. With more, the first answers would wait too long for the last.
const MAX_BATCH: usize = 256;
/// Longest time that counts as one poll, in nanoseconds. A poll takes less than a microsecond; in a longer one the thread lost
/// its processor.
const MAX_POLL_NS: u64 = 5_000;

/// The kernel's sockets of one worker.
pub(crate) struct KernelWire<L: Layer = Plain> {
    epoll: OwnedFd,
    layer: L,
    connections: Vec<Option<Connection<L>>>,
    batch: Vec<epoll::Event>,
    /// A signal, or a stop of the process, has interrupted the current wait.
    was_interrupted: bool,
    stamps: Stamps,
    /// Resolution of the kernel's tick-based times, in nanoseconds.
    tick_ns: u64,
    options: ConnectOptions,
    spin: SpinTail,
    waited_ns: u64,
    spun_ns: u64,
}

/// A socket, and the layer's state of the connection.
struct Connection<L: Layer> {
    socket: OwnedFd,
    preface: Option<Box<PrefaceState>>,
    state: L::State,
}

impl<L: Layer> KernelWire<L> {
    /// A wire with `slots` slots. `max_spin_ns`: maximum polling time before a precise wake-up, in nanoseconds.
    ///
    /// # Errors
    /// When the kernel has no descriptor left for the epoll instance.
    pub(crate) fn new(
        layer: L,
        slots: usize,
        options: ConnectOptions,
        max_spin_ns: u64,
    ) -> Result<Self, Errno> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            layer,
            connections: std::iter::repeat_with(|| None).take(slots).collect(),
            batch: Vec::with_capacity(MAX_BATCH),
            was_interrupted: false,
            stamps: Stamps::new(),
            tick_ns: clock_getres(ClockId::MonotonicCoarse).tv_nsec.unsigned_abs(),
            options,
            spin: SpinTail::new(max_spin_ns),
            waited_ns: 0,
            spun_ns: 0,
        })
    }

    /// Makes open connections end with a reset when the wire is dropped, so that their local ports are free immediately.
    pub(crate) fn reset_connections(&self) {
        for connection in self.connections.iter().flatten() {
            // If this fails, the connection closes in the usual way.
            let _ = net::sockopt::set_socket_linger(&connection.socket, Some(std::time::Duration::ZERO));
        }
    }

    fn socket(&self, slot: SlotId) -> Result<BorrowedFd<'_>, Errno> {
        self.connections[slot as usize].as_ref().map(|open| open.socket.as_fd()).ok_or(Errno::NOTCONN)
    }

    fn begin(&mut self, slot: SlotId, socket: OwnedFd) {
        let state = self.layer.begin(slot);
        self.connections[slot as usize] = Some(Connection { socket, preface: None, state });
    }

    /// The age of the last segment in sequence. The kernel rounds it down to its ticks.
    fn last_received_ns(&self, info: &libc::tcp_info) -> RangeInclusive<u64> {
        let for_ns = u64::from(info.tcpi_last_data_recv) * 1_000_000;
        for_ns.saturating_sub(self.tick_ns)..=for_ns + 2 * self.tick_ns
    }

    /// Waits as [`Wire::wait`] does, starting at `now_ns`; returns the time of the end.
    fn wait_from(
        &mut self,
        mut now_ns: u64,
        until_ns: Option<u64>,
        precise: bool,
        events: &mut Vec<Event>,
    ) -> u64 {
        let tail_ns = if precise { self.spin.tail_ns() } else { 0 };
        loop {
            let left_ns = until_ns.map_or(MAX_SLEEP_NS, |until| until.saturating_sub(now_ns));
            let sleep_ns = left_ns.saturating_sub(tail_ns).min(MAX_SLEEP_NS);
            self.poll(sleep_ns, events);
            let after_ns = monotonic_ns();
            if !events.is_empty() || left_ns == 0 {
                return after_ns;
            }
            if sleep_ns == 0 {
                self.spun_ns += (after_ns - now_ns).min(MAX_POLL_NS);
            } else {
                self.spin.woke_late_by(after_ns.saturating_sub(now_ns + sleep_ns));
                if until_ns.is_none() || left_ns > MAX_SLEEP_NS || tail_ns == 0 {
                    return after_ns;
                }
            }
            now_ns = after_ns;
        }
    }

    fn poll(&mut self, timeout_ns: u64, events: &mut Vec<Event>) {
        self.batch.clear();
        if epoll::wait(&self.epoll, spare_capacity(&mut self.batch), Some(&timespec(timeout_ns))).is_err() {
            // After the process was stopped, the wait ends without the events that came meanwhile, so ask for them again.
            self.was_interrupted = true;
            if epoll::wait(&self.epoll, spare_capacity(&mut self.batch), Some(&timespec(0))).is_err() {
                return;
            }
        }
        for event in &self.batch {
            let (data, flags) = (event.data.u64(), event.flags);
            let closed =
                flags.intersects(epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR);
            events.push(Event {
                slot: data as u32,
                generation: (data >> 32) as u32,
                readable: closed || flags.contains(epoll::EventFlags::IN),
                writable: flags
                    .intersects(epoll::EventFlags::OUT | epoll::EventFlags::HUP | epoll::EventFlags::ERR),
                closed,
            });
        }
    }
}

fn timespec(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 }
}

impl<L: Layer> Wire for KernelWire<L> {
    const HAS_HANDSHAKE: bool = L::HAS_HANDSHAKE;
    const DISCARDS: bool = L::DISCARDS;

    #[inline]
    fn now_ns(&self) -> u64 {
        monotonic_ns()
    }

    fn connect(&mut self, slot: SlotId, route: &Route) -> Result<(), Errno> {
        let Some(target) = route.target else {
            let socket = self.options.connect_unix()?;
            self.begin(slot, socket);
            return Ok(());
        };
        let family = if target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = net::socket_with(family, SocketType::STREAM, connect_options::SOCKET_FLAGS, None)?;
        if self.options.nodelay {
            net::sockopt::set_tcp_nodelay(&socket, true)?;
        }
        if let Some(source) = route.source {
            // Lets connect() choose the port, because connect() can use a port for several targets and bind() cannot. It is an
            // IPv4 option, but IPv6 sockets accept it since Linux 4.2.
            let _ = setsockopt(&socket, IpBindAddressNoPort, &true);
            net::bind(&socket, &SocketAddr::new(source, 0))?;
        }
        match net::connect(&socket, &target) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(errno) => return Err(errno),
        }
        Stamps::enable(socket.as_fd());
        self.begin(slot, socket);
        Ok(())
    }

    fn watch(&mut self, slot: SlotId, generation: u32, writable: bool) -> Result<(), Errno> {
        let mut flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        if writable {
            flags |= epoll::EventFlags::OUT;
        }
        let data = epoll::EventData::new_u64(u64::from(generation) << 32 | u64::from(slot));
        let socket = self.socket(slot)?;
        match epoll::add(&self.epoll, socket, data, flags) {
            Err(Errno::EXIST) => epoll::modify(&self.epoll, socket, data, flags),
            result => result,
        }
    }

    fn connect_result(&mut self, slot: SlotId) -> Result<(), Errno> {
        match net::sockopt::socket_error(self.socket(slot)?) {
            Ok(result) => result,
            Err(errno) => Err(errno),
        }
    }

    #[inline]
    fn send(&mut self, slot: SlotId, bytes: &[u8]) -> Result<usize> {
        let open = self.connections[slot as usize].as_mut().ok_or(Errno::NOTCONN)?;
        self.layer.send(&mut open.state, &mut Io::new(&open.socket, &mut self.stamps), bytes)
    }

    #[inline]
    fn receive(&mut self, slot: SlotId, buffer: &mut [u8], discard: bool) -> Result<Received> {
        let open = self.connections[slot as usize].as_mut().ok_or(Errno::NOTCONN)?;
        self.layer.receive(&mut open.state, &mut Io::new(&open.socket, &mut self.stamps), buffer, discard)
    }

    fn handshake(&mut self, slot: SlotId) -> Result<HandshakeStep> {
        let open = self.connections[slot as usize].as_mut().ok_or(Errno::NOTCONN)?;
        self.layer.handshake(slot, &mut open.state, &mut Io::new(&open.socket, &mut self.stamps))
    }

    fn has_preface(&self) -> bool {
        self.options.preface.is_some()
    }

    fn preface(&mut self, slot: SlotId) -> Result<PrefaceStep> {
        let open = self.connections[slot as usize].as_mut().ok_or(Errno::NOTCONN)?;
        let Some(preface) = &self.options.preface else {
            return Ok(PrefaceStep { is_done: true, unread_ns: Some(0) });
        };
        let state = open
            .preface
            .get_or_insert_with(|| Box::new(preface.begin(connect_options::addresses(&open.socket))));
        let step = state.advance(&mut Io::new(&open.socket, &mut self.stamps))?;
        if step.is_done {
            open.preface = None;
        }
        Ok(step)
    }

    fn tickets(&self) -> u64 {
        self.layer.tickets(self.connections.iter().flatten().map(|open| &open.state))
    }

    fn readable_for_ns(&self, slot: SlotId) -> Option<RangeInclusive<u64>> {
        let info = tcp_info(self.socket(slot).ok()?)?;
        // If segments arrived out of sequence, the last segment in sequence may have filled a gap.
        (info.tcpi_rcv_ooopack > 0).then(|| self.last_received_ns(&info))
    }

    fn local_address(&self, slot: SlotId) -> Option<SocketAddr> {
        let open = self.connections[slot as usize].as_ref()?;
        connect_options::addresses(&open.socket).map(|(local, _)| local)
    }

    fn open_for_ns(&self, slot: SlotId) -> Option<RangeInclusive<u64>> {
        // The kernel counts the end of the handshake as the first receive time.
        Some(self.last_received_ns(&tcp_info(self.socket(slot).ok()?)?))
    }

    fn round_trip_ns(&self, slot: SlotId) -> Option<u64> {
        let info = tcp_info(self.socket(slot).ok()?)?;
        // The first round-trip sample is that of the handshake, unless a packet was retransmitted.
        (info.tcpi_total_retrans == 0 && info.tcpi_rtt > 0).then(|| u64::from(info.tcpi_rtt) * 1_000)
    }

    fn close(&mut self, slot: SlotId) {
        // Closing removes the socket from the epoll set, because no other descriptor refers to it.
        if let Some(mut open) = self.connections[slot as usize].take() {
            self.layer.close(&mut open.state, &mut Io::new(&open.socket, &mut self.stamps));
        }
    }

    fn wait(&mut self, until_ns: Option<u64>, wake: Wake, events: &mut Vec<Event>) -> Waited {
        let began_ns = monotonic_ns();
        self.was_interrupted = false;
        let (mut from_ns, mut wait_until_ns, mut overslept_ns) = (began_ns, until_ns, 0);
        if let Wake::Batched(ns) = wake {
            let ns = until_ns.map_or(ns, |until| ns.min(until.saturating_sub(began_ns)));
            self.was_interrupted = !matches!(nanosleep(&timespec(ns)), NanosleepRelativeResult::Ok);
            from_ns = monotonic_ns();
            // An interrupted wait ends at once, because all of it counts as an absence.
            wait_until_ns = if self.was_interrupted { Some(from_ns) } else { until_ns };
            overslept_ns = from_ns.saturating_sub(began_ns + ns);
        }
        let ended_ns = self.wait_from(from_ns, wait_until_ns, wake == Wake::Exactly, events);
        self.waited_ns += ended_ns - began_ns;
        let planned_ns = until_ns.map_or(u64::MAX, |until| until.max(began_ns)).min(began_ns + MAX_SLEEP_NS);
        let late_ns = if self.was_interrupted {
            ended_ns - began_ns
        } else {
            // If the planned time had passed before the wait began, only the wait's own length counts as its lateness.
            ended_ns.saturating_sub(planned_ns).max(overslept_ns)
        };
        if !events.is_empty() {
            self.stamps.compare_clocks();
        }
        Waited { began_ns, ended_ns, late_ns }
    }

    fn waited_ns(&self) -> u64 {
        self.waited_ns
    }

    fn spun_ns(&self) -> u64 {
        self.spun_ns
    }

    fn burn(&mut self, ns: u64) {
        let until = monotonic_ns() + ns;
        while monotonic_ns() < until {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use ::testing::{PATIENCE, until};

    use super::*;

    const PATIENCE_NS: u64 = PATIENCE.as_nanos() as u64;

    #[test]
    fn precise_waits_end_on_time_and_count_their_polling() {
        let mut wire = KernelWire::new(Plain, 1, ConnectOptions::default(), 500_000).unwrap();
        // A single wait may oversleep the deadline and then does not poll.
        until("a wait polls", || {
            let until = wire.now_ns() + 3_000_000;
            wire.wait(Some(until), Wake::Exactly, &mut Vec::new());
            assert!(wire.now_ns() >= until);
            wire.spun_ns() > 0
        });
        assert!(wire.spun_ns() < wire.waited_ns());
    }

    #[test]
    fn loose_waits_do_not_poll() {
        let mut wire = KernelWire::new(Plain, 1, ConnectOptions::default(), 500_000).unwrap();
        let until = wire.now_ns() + 3_000_000;
        wire.wait(Some(until), Wake::Loosely, &mut Vec::new());
        assert_eq!((wire.now_ns() >= until, wire.spun_ns()), (true, 0));
    }

    #[test]
    fn batched_events_come_after_the_batching_delay() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut wire = KernelWire::new(Plain, 1, ConnectOptions::default(), 0).unwrap();
        let began_ns = wire.now_ns();
        wire.connect(0, &Route { target: listener.local_addr().ok(), source: None }).unwrap();
        wire.watch(0, 1, true).unwrap();
        let mut events = Vec::new();
        let waited = wire.wait(Some(began_ns + PATIENCE_NS), Wake::Batched(3_000_000), &mut events);
        let took_ns = waited.ended_ns - waited.began_ns;
        assert!(events.len() == 1 && took_ns >= 3_000_000, "{events:?} after {took_ns} ns");
        assert!(waited.late_ns <= took_ns - 3_000_000, "{waited:?}");
        // The wait ends at the given time, apart from the kernel's own lateness.
        let until_ns = wire.now_ns() + 1_000_000;
        let waited = wire.wait(Some(until_ns), Wake::Batched(2 * PATIENCE_NS), &mut Vec::new());
        assert!(waited.ended_ns >= until_ns && waited.ended_ns < until_ns + PATIENCE_NS);
    }
}
