//! The door of a loop: its listening sockets, and when nobody is let in.

use std::os::fd::{AsFd, OwnedFd};

use rustix::{
    event::epoll::{self, EventData, EventFlags},
    io::Errno,
    net::{SocketFlags, accept_with},
};

/// How long nothing is accepted when descriptors or memory have run out.
const PAUSE_NS: u64 = 10_000_000;

/// Listening sockets of a loop, whose events bear numbers of their own. Shut when new.
#[derive(Debug)]
pub struct Door<L> {
    listeners: Vec<L>,
    /// The number of the first socket's events; the others follow.
    first: u64,
    paused_until_ns: Option<u64>,
}

impl<L: AsFd> Door<L> {
    /// Connections to accept before others get their turn.
    pub const AT_ONCE: usize = 64;

    /// A door of nonblocking listening sockets, whose events bear `first` and the numbers after it.
    pub fn new(listeners: Vec<L>, first: u64) -> Self {
        Self { listeners, first, paused_until_ns: None }
    }

    /// Asks epoll to tell of those who knock.
    ///
    /// # Errors
    /// As epoll_ctl(2), when memory or the limit of watches has run out; then it is shut.
    pub fn open(&self, epoll: impl AsFd) -> Result<(), Errno> {
        for (number, listener) in self.listeners.iter().enumerate() {
            let data = EventData::new_u64(self.first + number as u64);
            // Of the loops that share an accept queue, one is woken for a connection.
            let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
            epoll::add(&epoll, listener, data, flags).inspect_err(|_| self.shut(&epoll))?;
        }
        Ok(())
    }

    /// The socket whose events bear that number, unless the door is closed for good.
    pub fn listener(&self, number: u64) -> Option<&L> {
        self.listeners.get(number.checked_sub(self.first)? as usize)
    }

    /// The sockets' numbers.
    pub fn numbers(&self) -> std::ops::Range<u64> {
        self.first..self.first + self.listeners.len() as u64
    }

    /// Lets one in who waits at the socket of that number: nobody if none waits, or while there is a pause.
    ///
    /// # Errors
    /// As accept4(2); to be answered by [`Door::failed`].
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

    /// Somebody could not be let in. Begins a pause if descriptors or memory have run out: the connection stays
    /// in the queue, and to ask again at once would be to ask for ever.
    pub fn failed(&mut self, epoll: impl AsFd, error: Errno, now_ns: u64) {
        if matches!(error, Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::NOSPC) {
            self.paused_until_ns = Some(now_ns + PAUSE_NS);
            self.shut(epoll);
        }
    }

    /// When a pause ends.
    pub fn paused_until_ns(&self) -> Option<u64> {
        self.paused_until_ns
    }

    /// Ends a pause that is over, or begins another if what had run out is still wanting.
    pub fn go_on(&mut self, epoll: impl AsFd, now_ns: u64) {
        if self.paused_until_ns.is_some_and(|until_ns| until_ns <= now_ns) {
            self.paused_until_ns = self.open(epoll).is_err().then_some(now_ns + PAUSE_NS);
        }
    }

    /// Ends a pause at once, without asking for events.
    pub fn end_pause(&mut self) {
        self.paused_until_ns = None;
    }

    /// Closes for good: who has connected and was not let in is reset, unless other loops have the socket too.
    pub fn close(&mut self, epoll: impl AsFd) {
        self.shut(epoll);
        self.listeners.clear();
    }

    /// Asks for no more events. Taken out rather than changed: what is exclusive cannot be changed.
    fn shut(&self, epoll: impl AsFd) {
        for listener in &self.listeners {
            // One that is not in is just as well.
            let _ = epoll::delete(&epoll, listener);
        }
    }
}

/// Has epoll tell everything that happens on a connection, as edges, once and for all.
///
/// # Errors
/// As epoll_ctl(2): memory, or the limit of watches, has run out.
pub fn watch(epoll: impl AsFd, socket: impl AsFd, data: u64) -> Result<(), Errno> {
    let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
    epoll::add(epoll, socket, EventData::new_u64(data), flags)
}

/// An error's name as in errno(3), of those that accept4(2) and epoll_ctl(2) give.
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
    use std::net::{SocketAddr, TcpStream};

    use rustix::{event::epoll::CreateFlags, time::Timespec};

    use super::*;
    use crate::{listening::listening, local_address};

    const FIRST: u64 = 1 << 40;

    struct Hall {
        epoll: OwnedFd,
        door: Door<OwnedFd>,
        address: SocketAddr,
    }

    impl Hall {
        fn new() -> Self {
            let epoll = epoll::create(CreateFlags::CLOEXEC).unwrap();
            let socket = listening(SocketAddr::from(([127, 0, 0, 1], 0)), false, 8).unwrap();
            let address = local_address(&socket).unwrap();
            let door = Door::new(vec![socket], FIRST);
            door.open(&epoll).unwrap();
            Self { epoll, door, address }
        }

        fn told(&self) -> Vec<u64> {
            let mut events = Vec::with_capacity(4);
            let sleep = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
            epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&sleep)).unwrap();
            events.iter().map(|event| event.data.u64()).collect()
        }
    }

    #[test]
    fn who_knocks_is_told_and_let_in_once() {
        let hall = Hall::new();
        let _client = TcpStream::connect(hall.address).unwrap();
        assert_eq!(hall.told(), [FIRST]);
        assert!(hall.door.accept(FIRST).unwrap().is_some());
        assert!(hall.door.accept(FIRST).unwrap().is_none());
        assert!(hall.door.accept(FIRST + 1).unwrap().is_none());
        assert_eq!(hall.door.numbers(), FIRST..FIRST + 1);
    }

    #[test]
    fn nobody_is_told_of_or_let_in_during_a_pause_and_all_after_it() {
        let mut hall = Hall::new();
        hall.door.failed(&hall.epoll, Errno::CONNABORTED, 0);
        assert_eq!(hall.door.paused_until_ns(), None);
        hall.door.failed(&hall.epoll, Errno::MFILE, 5);
        let _client = TcpStream::connect(hall.address).unwrap();
        assert_eq!(hall.told(), []);
        assert!(hall.door.accept(FIRST).unwrap().is_none());
        let until_ns = hall.door.paused_until_ns().unwrap();
        hall.door.go_on(&hall.epoll, until_ns - 1);
        assert!(hall.door.accept(FIRST).unwrap().is_none());
        hall.door.go_on(&hall.epoll, until_ns);
        assert_eq!(hall.told(), [FIRST]);
        assert!(hall.door.accept(FIRST).unwrap().is_some());
    }

    #[test]
    fn a_closed_door_has_no_sockets() {
        let mut hall = Hall::new();
        hall.door.close(&hall.epoll);
        assert!(hall.door.listener(FIRST).is_none());
        assert!(hall.door.accept(FIRST).unwrap().is_none());
        assert!(TcpStream::connect(hall.address).is_err());
    }
}
