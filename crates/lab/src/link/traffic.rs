//! UDP streams from one end of a link to the other, for measurements.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use clock::monotonic_ns;
use nix::sys::socket::{
    setsockopt,
    sockopt::{UdpGroSegment, UdpGsoSegment},
};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};

use super::{LinkError, forward::set_realtime_priority, namespace::End};

/// Receive buffer in bytes. It holds the datagrams of a tenth of a second at 1 Gbit/s, in case the receiving thread
/// does not run for that long.
const RECEIVE_BUFFER_BYTES: usize = 32 << 20;
/// Maximum number of segments that the kernel makes of one buffer (UDP_MAX_SEGMENTS before Linux 6.9).
const MAX_SEGMENTS: usize = 64;
const MAX_PAYLOAD_BYTES: usize = 65_000;

/// The plan of a stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stream {
    /// Payload of a datagram, in bytes. The first 16 bytes contain its number and its time of sending.
    pub payload_bytes: usize,
    /// Number of datagrams that are sent at once.
    pub burst: usize,
    /// Time between two bursts, in nanoseconds.
    pub interval_ns: f64,
    /// Total number of datagrams.
    pub packets: u64,
    /// Whether the threads of the stream have real-time priority. A stream of few packets whose times are measured needs it;
    /// a stream that makes load must not have it, because it must leave processor time to the link.
    pub is_probe: bool,
}

impl Stream {
    /// Size of a burst: as many datagrams as the kernel accepts at once, at most `max`.
    pub(super) fn burst_of(payload_bytes: usize, max: usize) -> usize {
        max.min(MAX_SEGMENTS).min(MAX_PAYLOAD_BYTES / payload_bytes).max(1)
    }

    /// Planned duration of sending, in nanoseconds.
    pub(super) fn duration_ns(&self) -> u64 {
        (self.packets as f64 / self.burst as f64 * self.interval_ns) as u64
    }
}

/// The datagrams that arrived.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    pub sent: u64,
    /// Datagrams that arrived, without duplicates.
    pub unique: u64,
    /// Datagrams that arrived more than once.
    pub duplicates: u64,
    /// Datagrams that arrived together: time in nanoseconds, number of datagrams.
    pub batches: Vec<(u64, u32)>,
    /// For the first datagram of each batch, the times of sending and of arrival, in nanoseconds.
    pub times: Vec<(u64, u64)>,
}

/// A running stream. Dropping it ends the receiver.
#[derive(Debug)]
pub(super) struct StreamRun {
    stop: StopOnDrop,
    sender: JoinHandle<io::Result<u64>>,
    receiver: JoinHandle<io::Result<Arrivals>>,
}

#[derive(Debug)]
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl StreamRun {
    /// Starts sending.
    ///
    /// # Errors
    /// When a socket cannot be created.
    pub(super) fn start(from: &End, to: &End, stream: Stream) -> Result<Self, LinkError> {
        let refuse = |what| move |cause| LinkError::Traffic { what, cause };
        let bind = |end: &End, peer: Option<&End>| {
            // The source address must have the family of the destination.
            let family = |end: &End| end.addresses.first().is_some_and(|address| address.ip.is_ipv4());
            let address = end
                .addresses
                .iter()
                .find(|address| peer.is_none_or(|peer| address.ip.is_ipv4() == family(peer)))
                .ok_or_else(|| LinkError::Spec(vec![format!("{} has no address", end.device)]))?;
            end.namespace.run(|| UdpSocket::bind((address.ip, 0)).map_err(refuse("bind a socket")))
        };
        let receiving = bind(to, None)?;
        let sending = bind(from, Some(to))?;
        let target: SocketAddr = receiving.local_addr().map_err(refuse("find an address"))?;
        sending.connect(target).map_err(refuse("connect"))?;
        if stream.burst > 1 {
            setsockopt(&sending, UdpGsoSegment, &(stream.payload_bytes as i32))
                .map_err(|error| refuse("send many at once")(error.into()))?;
        }
        // Without GRO, datagrams arrive one by one: no less exact, but at the cost of more processor time.
        let _ = setsockopt(&receiving, UdpGroSegment, &true);
        let _ = set_socket_recv_buffer_size_force(&receiving, RECEIVE_BUFFER_BYTES)
            .or_else(|_| set_socket_recv_buffer_size(&receiving, RECEIVE_BUFFER_BYTES));
        receiving.set_read_timeout(Some(Duration::from_millis(20))).map_err(refuse("set a time-out"))?;

        let stop = StopOnDrop(Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop.0);
        let receiver =
            spawn("link-receiver", stream.is_probe, move || receive(&receiving, stream, &stopped))?;
        let sender = spawn("link-sender", stream.is_probe, move || send(&sending, stream))?;
        Ok(Self { stop, sender, receiver })
    }

    /// Whether sending has ended.
    pub(super) fn is_sent(&self) -> bool {
        self.sender.is_finished()
    }

    /// Waits until all datagrams are sent. Returns the datagrams that have arrived by then.
    ///
    /// # Errors
    /// If sending or receiving failed.
    pub(super) fn finish(self) -> Result<Arrivals, LinkError> {
        let refuse = |what| move |cause| LinkError::Traffic { what, cause };
        let sent = self.sender.join().unwrap_or_else(|_| Err(io::Error::other("the sender panicked")));
        drop(self.stop);
        let arrived = self.receiver.join().unwrap_or_else(|_| Err(io::Error::other("the receiver panicked")));
        let sent = sent.map_err(refuse("send"))?;
        Ok(Arrivals { sent, ..arrived.map_err(refuse("receive"))? })
    }
}

fn spawn<T: Send + 'static>(
    name: &str,
    is_realtime: bool,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, LinkError> {
    let prepared = move || {
        if is_realtime {
            set_realtime_priority();
        }
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        work()
    };
    thread::Builder::new().name(name.to_owned()).spawn(prepared).map_err(LinkError::Start)
}

fn send(socket: &UdpSocket, stream: Stream) -> io::Result<u64> {
    let mut buffer = vec![0; stream.burst * stream.payload_bytes];
    let started_ns = monotonic_ns();
    // A machine that needs twice the planned time plus a second is too slow. Sending stops then, and the results show
    // it.
    let max_ns = stream.duration_ns() * 2 + 1_000_000_000;
    let mut sent = 0;
    for index in 0_u64.. {
        let due_ns = started_ns + (index as f64 * stream.interval_ns) as u64;
        let mut now = monotonic_ns();
        if due_ns > now {
            thread::sleep(Duration::from_nanos(due_ns - now));
            now = monotonic_ns();
        }
        if sent >= stream.packets || now - started_ns > max_ns {
            break;
        }
        let burst = stream.burst.min((stream.packets - sent) as usize);
        for (datagram, number) in buffer.chunks_mut(stream.payload_bytes).zip(sent..).take(burst) {
            datagram[..8].copy_from_slice(&number.to_ne_bytes());
            datagram[8..16].copy_from_slice(&now.to_ne_bytes());
        }
        match socket.send(&buffer[..burst * stream.payload_bytes]) {
            Ok(_) => sent += burst as u64,
            // The queue is full for a moment. The next burst is sent as planned.
            Err(error) if error.raw_os_error() == Some(nix::libc::ENOBUFS) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}

fn receive(socket: &UdpSocket, stream: Stream, stop: &AtomicBool) -> io::Result<Arrivals> {
    let mut arrivals = Arrivals::default();
    let mut seen = vec![false; stream.packets as usize];
    let mut buffer = vec![0; 1 << 16];
    loop {
        let bytes = match socket.recv(&mut buffer) {
            Ok(bytes) => bytes,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                if stop.load(Ordering::Relaxed) {
                    return Ok(arrivals);
                }
                continue;
            }
            Err(error) => return Err(error),
        };
        let at_ns = monotonic_ns();
        let mut count = 0;
        for datagram in buffer[..bytes].chunks(stream.payload_bytes) {
            let Some((head, _)) = datagram.split_first_chunk::<16>() else { continue };
            let (number, sent_ns) = split(head);
            let Some(seen) = seen.get_mut(number as usize) else { continue };
            if count == 0 {
                arrivals.times.push((sent_ns, at_ns));
            }
            count += 1;
            if std::mem::replace(seen, true) {
                arrivals.duplicates += 1;
            } else {
                arrivals.unique += 1;
            }
        }
        arrivals.batches.push((at_ns, count));
    }
}

fn split(head: &[u8; 16]) -> (u64, u64) {
    let whole = u128::from_ne_bytes(*head);
    let [low, high] = [whole as u64, (whole >> 64) as u64];
    if cfg!(target_endian = "little") { (low, high) } else { (high, low) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_come_back() {
        let mut head = [0; 16];
        head[..8].copy_from_slice(&7_u64.to_ne_bytes());
        head[8..].copy_from_slice(&9_u64.to_ne_bytes());
        assert_eq!(split(&head), (7, 9));
    }

    #[test]
    fn bursts_fit_a_packet() {
        assert_eq!(Stream::burst_of(1_472, 1_000), 44);
        assert_eq!(Stream::burst_of(64, 1_000), 64);
        assert_eq!(Stream::burst_of(64, 0), 1);
    }
}
