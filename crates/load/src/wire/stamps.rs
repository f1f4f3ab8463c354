//! When the kernel received what is read: its software receive stamps (SO_TIMESTAMPNS), on the loop's clock.
//!
//! The kernel stamps a segment when it comes in, by CLOCK_REALTIME; of what one call reads, it tells the stamp of the
//! last byte. The loop counts by CLOCK_MONOTONIC, so the distance of the two is taken whenever something is to be read.

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

/// Reading both clocks takes longer only where the processor was lost in between, in nanoseconds.
const LONGEST_READING_NS: u64 = 2_000;
/// A larger change of the distance between two readings is a step of the real-time clock, in nanoseconds.
const STEP_NS: i64 = 100_000;

/// Reads sockets with the kernel's stamps.
#[derive(Debug)]
pub(super) struct Stamps {
    /// CLOCK_REALTIME less CLOCK_MONOTONIC, in nanoseconds.
    distance_ns: i64,
    /// The real-time clock was not set since the last reading but one.
    is_steady: bool,
    control: Vec<u8>,
    /// The kernel stamps everything as long as one socket asks for stamps, and begins a moment after the first did:
    /// this one asks before there is a connection.
    _asking: Option<OwnedFd>,
}

impl Stamps {
    /// Has the kernel begin to stamp what comes in.
    pub(super) fn new() -> Self {
        let asking = net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
        let asking = asking.ok().inspect(|socket| Self::ask(socket.as_fd()));
        let mut stamps =
            Self { distance_ns: 0, is_steady: false, control: nix::cmsg_space!(TimeSpec), _asking: asking };
        stamps.look_at_clocks();
        stamps.look_at_clocks();
        stamps
    }

    /// Has the kernel tell a socket's stamps.
    pub(super) fn ask(socket: BorrowedFd<'_>) {
        // Without them, what is read counts as received when it was read, and that is noted as uncertain.
        let _ = setsockopt(&socket, ReceiveTimestampns, &true);
    }

    /// Takes the distance of the clocks. Called before anything is read that was received since the last call.
    pub(super) fn look_at_clocks(&mut self) {
        for _ in 0..3 {
            let before_ns = monotonic_ns();
            let real = clock_gettime(ClockId::Realtime);
            let took_ns = monotonic_ns() - before_ns;
            if took_ns <= LONGEST_READING_NS {
                let real_ns = real.tv_sec * 1_000_000_000 + real.tv_nsec;
                let distance_ns = real_ns - (before_ns + took_ns / 2) as i64;
                // What was received before a step is not told from what was received after it.
                self.is_steady = (distance_ns - self.distance_ns).abs() <= STEP_NS;
                self.distance_ns = distance_ns;
                return;
            }
        }
        // A step may have come meanwhile.
        self.is_steady = false;
    }

    /// Receives what there is, or drops it unread, with the time at which its last byte came in.
    ///
    /// # Errors
    /// Those of recvmsg(2).
    #[inline]
    pub(super) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        buffer: &mut [u8],
        is_dropped: bool,
    ) -> Result<Received, Errno> {
        // On a stream socket MSG_TRUNC frees the bytes without copying them (tcp(7)).
        let flags = if is_dropped { MsgFlags::MSG_TRUNC } else { MsgFlags::empty() };
        let mut parts = [std::io::IoSliceMut::new(buffer)];
        let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut self.control), flags)
            .map_err(|errno| Errno::from_raw_os_error(errno as i32))?;
        let stamp = message.cmsgs().into_iter().flatten().find_map(|control| match control {
            ControlMessageOwned::ScmTimestampns(stamp) => Some(stamp),
            _ => None,
        });
        let on_loops_clock = |stamp: TimeSpec| {
            let real_ns = stamp.tv_sec() * 1_000_000_000 + stamp.tv_nsec();
            u64::try_from(real_ns - self.distance_ns).ok()
        };
        let arrived_ns = stamp.filter(|_| self.is_steady).and_then(on_loops_clock);
        Ok(Received { bytes: message.bytes, arrived_ns })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        net::{TcpListener, TcpStream},
        time::{Duration, Instant},
    };

    use super::*;

    #[test]
    fn what_lay_unread_is_dated_when_it_came() {
        let mut stamps = Stamps::new();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let reader = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut writer = listener.accept().unwrap().0;
        Stamps::ask(reader.as_fd());
        // The first bytes may come before the kernel has begun to stamp.
        let deadline = Instant::now() + Duration::from_secs(5);
        let mut receive = |is_dropped| loop {
            let before_ns = monotonic_ns();
            writer.write_all(b"abc").unwrap();
            let sent_ns = monotonic_ns();
            std::thread::sleep(Duration::from_millis(20));
            stamps.look_at_clocks();
            let received = stamps.receive(reader.as_fd(), &mut [0; 16], is_dropped).unwrap();
            assert_eq!(received.bytes, 3);
            match received.arrived_ns {
                // The clocks are compared to a few microseconds.
                Some(arrived_ns) => return (before_ns - 10_000..sent_ns + 10_000).contains(&arrived_ns),
                None => assert!(Instant::now() < deadline, "no stamp"),
            }
        };
        assert!(receive(false) && receive(true));
    }
}
