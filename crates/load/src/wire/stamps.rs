//! The kernel's software receive timestamps (SO_TIMESTAMPNS), converted to the loop's clock.
//!
//! The kernel stamps each segment on CLOCK_REALTIME when it arrives. One receive call returns the stamp of its last byte. The
//! loop uses CLOCK_MONOTONIC, so the offset of the two clocks is measured before each round of reads.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use clock::monotonic_ns;
use nix::sys::{
    socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt::ReceiveTimestampns},
    time::TimeSpec,
};
use rustix::{
    io::Errno,
    net::{self, AddressFamily, SocketFlags, SocketType},
    time::{ClockId, clock_gettime},
};

use super::Received;

/// Time limit for reading both clocks, in nanoseconds. A longer reading means that the thread lost its processor in between.
const MAX_READING_NS: u64 = 2_000;
/// Largest change of the offset between two readings, in nanoseconds. A larger one is a step of the real-time clock.
const MAX_DRIFT_NS: i64 = 100_000;

/// Reads from sockets and converts the kernel's timestamps.
#[derive(Debug)]
pub(super) struct Stamps {
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC, in nanoseconds.
    offset_ns: i64,
    /// The real-time clock did not step between the last two readings.
    is_steady: bool,
    control: Vec<u8>,
    /// The kernel stamps packets only while at least one socket wants timestamps, and begins with a delay. This socket makes
    /// it begin before the first connection.
    _enabling_socket: Option<OwnedFd>,
}

impl Stamps {
    /// Makes the kernel stamp incoming packets.
    pub(super) fn new() -> Self {
        let socket = net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
        let socket = socket.ok().inspect(|socket| Self::enable(socket.as_fd()));
        let control = nix::cmsg_space!(TimeSpec);
        let mut stamps = Self { offset_ns: 0, is_steady: false, control, _enabling_socket: socket };
        stamps.compare_clocks();
        stamps.compare_clocks();
        stamps
    }

    /// Makes the kernel return timestamps with the bytes that are read from a socket.
    pub(super) fn enable(socket: BorrowedFd<'_>) {
        // Without timestamps, bytes count as received when they were read, with the uncertainty that this implies.
        let _ = setsockopt(&socket, ReceiveTimestampns, &true);
    }

    /// Measures the offset of the clocks. Call it before reading the bytes that have arrived since the last call.
    pub(super) fn compare_clocks(&mut self) {
        for _ in 0..3 {
            let before_ns = monotonic_ns();
            let real = clock_gettime(ClockId::Realtime);
            let took_ns = monotonic_ns() - before_ns;
            if took_ns <= MAX_READING_NS {
                let real_ns = real.tv_sec * 1_000_000_000 + real.tv_nsec;
                let offset_ns = real_ns - (before_ns + took_ns / 2) as i64;
                // After a step it is unknown which offset holds for a timestamp.
                self.is_steady = (offset_ns - self.offset_ns).abs() <= MAX_DRIFT_NS;
                self.offset_ns = offset_ns;
                return;
            }
        }
        // Without a reading, a step cannot be ruled out.
        self.is_steady = false;
    }

    /// Receives bytes, or drops them with `discard`, and returns the arrival time of the last byte.
    ///
    /// # Errors
    /// Those of recvmsg(2).
    #[inline]
    pub(super) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        buffer: &mut [u8],
        discard: bool,
    ) -> Result<Received, Errno> {
        // On a stream socket MSG_TRUNC frees the bytes without copying them (tcp(7)).
        let flags = if discard { MsgFlags::MSG_TRUNC } else { MsgFlags::empty() };
        let room = buffer.len();
        let mut parts = [std::io::IoSliceMut::new(buffer)];
        let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut self.control), flags)
            .map_err(|errno| Errno::from_raw_os_error(errno as i32))?;
        let stamp = message.cmsgs().into_iter().flatten().find_map(|control| match control {
            ControlMessageOwned::ScmTimestampns(stamp) => Some(stamp),
            _ => None,
        });
        let to_monotonic = |stamp: TimeSpec| {
            let real_ns = stamp.tv_sec() * 1_000_000_000 + stamp.tv_nsec();
            u64::try_from(real_ns - self.offset_ns).ok()
        };
        let received_ns = stamp.filter(|_| self.is_steady).and_then(to_monotonic);
        Ok(Received { bytes: message.bytes, may_have_more: message.bytes == room, received_ns })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        net::{TcpListener, TcpStream},
        thread,
        time::Duration,
    };

    use ::testing::{PATIENCE, find};

    use super::*;

    #[test]
    fn unread_bytes_have_the_time_of_their_arrival() {
        let mut stamps = Stamps::new();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let reader = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut writer = listener.accept().unwrap().0;
        Stamps::enable(reader.as_fd());
        // The first bytes may arrive before the kernel begins to stamp, and the comparison of the clocks may be interrupted.
        let mut receive = |discard| {
            let before_ns = monotonic_ns();
            writer.write_all(b"abc").unwrap();
            reader.peek(&mut [0; 3]).unwrap();
            let readable_ns = monotonic_ns();
            thread::sleep(Duration::from_millis(20));
            stamps.compare_clocks();
            let received = stamps.receive(reader.as_fd(), &mut [0; 16], discard).unwrap();
            assert_eq!(received.bytes, 3);
            received
                .received_ns
                .map(|at_ns| (before_ns - 1_000_000..=readable_ns + 1_000_000).contains(&at_ns))
        };
        for discard in [false, true] {
            assert_eq!(find(PATIENCE, || receive(discard)), Some(true));
        }
    }
}
