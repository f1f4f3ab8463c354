//! Accepts connections: the listening sockets of an event loop, with pauses when resources run out.

use std::os::fd::{AsFd, OwnedFd};

use rustix::{
    event::epoll::{self, EventData, EventFlags},
    io::Errno,
    net::{SocketFlags, accept_with},
};

/// Pause in accepting after descriptors or memory have run out, in nanoseconds.
const PAUSE_NS: u64 = 10_000_000;

/// The listening sockets of an event loop. Each has an event number, which is the user data of its epoll events.
#[derive(Debug)]
pub struct Acceptor<L> {
    listeners: Vec<L>,
    /// The event number of the first socket. The other sockets have the following numbers.
    first_number: u64,
    paused_until_ns: Option<u64>,
}

impl<L: AsFd> Acceptor<L> {
    /// Maximum number of connections to accept before other connections get their turn.
    pub const MAX_ACCEPTS: usize = 64;

    /// An acceptor with nonblocking listening sockets. Their event numbers start at `first_number`. They are not
    /// registered with epoll yet.
    pub fn new(listeners: Vec<L>, first_number: u64) -> Self {
        Self { listeners, first_number, paused_until_ns: None }
    }

    /// Registers the sockets with epoll.
    ///
    /// # Errors
    /// Those of epoll_ctl(2), if memory or the limit of watches has run out. No socket is registered then.
    pub fn register(&self, epoll: impl AsFd) -> Result<(), Errno> {
        for (index, listener) in self.listeners.iter().enumerate() {
            let data = EventData::new_u64(self.first_number + index as u64);
            // If several loops share an accept queue, the kernel wakes only one of them for a connection.
            let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
            epoll::add(&epoll, listener, data, flags).inspect_err(|_| self.unregister(&epoll))?;
        }
        Ok(())
    }

    /// The socket with this event number; none if the acceptor is closed.
    pub fn listener(&self, number: u64) -> Option<&L> {
        self.listeners.get(number.checked_sub(self.first_number)? as usize)
    }

    /// The event numbers of all sockets.
    pub fn event_numbers(&self) -> std::ops::Range<u64> {
        self.first_number..self.first_number + self.listeners.len() as u64
    }

    /// Accepts a connection from the socket with this event number. `None` if no connection is waiting, or during a
    /// pause.
    ///
    /// # Errors
    /// Those of accept4(2); pass them to [`Acceptor::pause_on_shortage`].
    pub fn accept(&self, number: u64) -> Result<Option<OwnedFd>, Errno> {
        let Some(listener) = self.listener(number).filter(|_| self.paused_until_ns.is_none()) else {
            return Ok(None);
        };
        loop {
            match accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(socket) => return Ok(Some(socket)),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Begins a pause if the error means that descriptors or memory have run out. The connection stays in the accept
    /// queue, so accepting again at once would fail in a loop.
    pub fn pause_on_shortage(&mut self, epoll: impl AsFd, error: Errno, now_ns: u64) {
        if matches!(error, Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::NOSPC) {
            self.paused_until_ns = Some(now_ns + PAUSE_NS);
            self.unregister(epoll);
        }
    }

    /// End of the pause; none if there is no pause.
    pub fn paused_until_ns(&self) -> Option<u64> {
        self.paused_until_ns
    }

    /// Ends a pause whose time has passed. Begins another one if the sockets cannot be registered.
    pub fn resume_if_due(&mut self, epoll: impl AsFd, now_ns: u64) {
        if self.paused_until_ns.is_some_and(|until_ns| until_ns <= now_ns) {
            self.paused_until_ns = self.register(epoll).is_err().then_some(now_ns + PAUSE_NS);
        }
    }

    /// Ends a pause at once without registering the sockets.
    pub fn end_pause(&mut self) {
        self.paused_until_ns = None;
    }

    /// Closes the sockets. The kernel resets the connections in the accept queue, unless another loop shares the
    /// socket.
    pub fn close(&mut self, epoll: impl AsFd) {
        self.unregister(epoll);
        self.listeners.clear();
    }

    /// Removes the sockets from epoll. An exclusive registration cannot be changed, so a pause removes it.
    fn unregister(&self, epoll: impl AsFd) {
        for listener in &self.listeners {
            // An error means that the socket is not registered, as wanted.
            let _ = epoll::delete(&epoll, listener);
        }
    }
}

/// Registers a connection with epoll for all its events, edge-triggered.
///
/// # Errors
/// Those of epoll_ctl(2), if memory or the limit of watches has run out.
pub fn watch(epoll: impl AsFd, socket: impl AsFd, data: u64) -> Result<(), Errno> {
    let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
    epoll::add(epoll, socket, EventData::new_u64(data), flags)
}

/// The name in errno(3) of an error of accept4(2) or epoll_ctl(2).
pub fn error_name(error: Errno) -> String {
    let name = match error {
        Errno::MFILE => "EMFILE",
        Errno::NFILE => "ENFILE",
        Errno::NOBUFS => "ENOBUFS",
        Errno::NOMEM => "ENOMEM",
        Errno::NOSPC => "ENOSPC",
        Errno::CONNABORTED => "ECONNABORTED",
        Errno::PROTO => "EPROTO",
        Errno::PERM => "EPERM",
        other => return format!("errno {}", other.raw_os_error()),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use std::{
        net::{SocketAddr, TcpStream},
        time::Duration,
    };

    use rustix::{event::epoll::CreateFlags, time::Timespec};

    use super::*;
    use crate::{listening::listening, local_address};

    const FIRST: u64 = 1 << 40;

    struct Fixture {
        epoll: OwnedFd,
        acceptor: Acceptor<OwnedFd>,
        address: SocketAddr,
    }

    impl Fixture {
        fn new() -> Self {
            let epoll = epoll::create(CreateFlags::CLOEXEC).unwrap();
            let socket = listening(SocketAddr::from(([127, 0, 0, 1], 0)), false, 8).unwrap();
            let address = local_address(&socket).unwrap();
            let acceptor = Acceptor::new(vec![socket], FIRST);
            acceptor.register(&epoll).unwrap();
            Self { epoll, acceptor, address }
        }

        fn wait(&self) -> Vec<u64> {
            self.wait_for(testing::PATIENCE)
        }

        fn wait_for(&self, time: Duration) -> Vec<u64> {
            let mut events = Vec::with_capacity(4);
            let time = Timespec::try_from(time).unwrap();
            epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&time)).unwrap();
            events.iter().map(|event| event.data.u64()).collect()
        }
    }

    #[test]
    fn a_connection_is_reported_and_accepted_once() {
        let fixture = Fixture::new();
        let _client = TcpStream::connect(fixture.address).unwrap();
        assert_eq!(fixture.wait(), [FIRST]);
        assert!(fixture.acceptor.accept(FIRST).unwrap().is_some());
        assert!(fixture.acceptor.accept(FIRST).unwrap().is_none());
        assert!(fixture.acceptor.accept(FIRST + 1).unwrap().is_none());
        assert_eq!(fixture.acceptor.event_numbers(), FIRST..FIRST + 1);
    }

    #[test]
    fn a_pause_reports_and_accepts_nothing_until_it_ends() {
        let mut fixture = Fixture::new();
        fixture.acceptor.pause_on_shortage(&fixture.epoll, Errno::CONNABORTED, 0);
        assert_eq!(fixture.acceptor.paused_until_ns(), None);
        fixture.acceptor.pause_on_shortage(&fixture.epoll, Errno::MFILE, 5);
        let _client = TcpStream::connect(fixture.address).unwrap();
        assert!(fixture.wait_for(Duration::from_millis(50)).is_empty());
        assert!(fixture.acceptor.accept(FIRST).unwrap().is_none());
        let until_ns = fixture.acceptor.paused_until_ns().unwrap();
        fixture.acceptor.resume_if_due(&fixture.epoll, until_ns - 1);
        assert!(fixture.acceptor.accept(FIRST).unwrap().is_none());
        fixture.acceptor.resume_if_due(&fixture.epoll, until_ns);
        assert_eq!(fixture.wait(), [FIRST]);
        assert!(fixture.acceptor.accept(FIRST).unwrap().is_some());
    }

    #[test]
    fn a_closed_acceptor_has_no_sockets() {
        let mut fixture = Fixture::new();
        fixture.acceptor.close(&fixture.epoll);
        assert!(fixture.acceptor.listener(FIRST).is_none());
        assert!(fixture.acceptor.accept(FIRST).unwrap().is_none());
        assert!(TcpStream::connect(fixture.address).is_err());
    }
}
