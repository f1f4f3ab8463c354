//! Tests of a client with a server over a stream in memory.

use std::{cell::RefCell, collections::VecDeque, rc::Rc};

use super::*;
use crate::{Authority, Identity, Offer, Validity};
use proptest::prelude::*;

mod failures;

/// One direction of a stream.
#[derive(Default)]
struct Channel {
    bytes: VecDeque<u8>,
    closed: bool,
}

/// One end of a stream that transfers at most `step` bytes per call and stores at most `room` bytes.
struct End {
    incoming: Rc<RefCell<Channel>>,
    outgoing: Rc<RefCell<Channel>>,
    step: usize,
    room: usize,
}

impl Read for End {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut incoming = self.incoming.borrow_mut();
        if incoming.bytes.is_empty() {
            return if incoming.closed { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) };
        }
        let most = buffer.len().min(self.step);
        incoming.bytes.read(&mut buffer[..most])
    }
}

impl Write for End {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.incoming.borrow().closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut outgoing = self.outgoing.borrow_mut();
        let taken = bytes.len().min(self.step).min(self.room.saturating_sub(outgoing.bytes.len()));
        outgoing.bytes.extend(&bytes[..taken]);
        if taken == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(taken) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn stream(step: usize) -> (End, End) {
    let (there, back) = (Rc::<RefCell<Channel>>::default(), Rc::<RefCell<Channel>>::default());
    let room = usize::MAX;
    let near = End { incoming: back.clone(), outgoing: there.clone(), step, room };
    (near, End { incoming: there, outgoing: back, step, room })
}

impl End {
    fn close(&self) {
        self.outgoing.borrow_mut().closed = true;
    }
}

/// A client and a server with the stream between them.
struct Pair {
    client: Session,
    near: End,
    server: Session,
    far: End,
}

impl Pair {
    fn new(client: ClientConfig, server: ServerConfig) -> Self {
        Self::over(stream(usize::MAX), Arc::new(client), Arc::new(server))
    }

    fn over((near, far): (End, End), client: Arc<ClientConfig>, server: Arc<ServerConfig>) -> Self {
        let name = ServerName::try_from("localhost").unwrap();
        let client = Session::client(client, name).unwrap();
        Self { client, near, server: Session::server(server).unwrap(), far }
    }

    /// The results of both sides' handshakes, first the client's. A side that fails closes its stream.
    fn shake(&mut self) -> (Result<bool, Failure>, Result<bool, Failure>) {
        let (mut near, mut far) = (Ok(false), Ok(false));
        for _ in 0..20_000 {
            if near.is_ok() {
                near = self.client.handshake(&mut self.near);
                near.is_err().then(|| self.near.close());
            }
            if far.is_ok() {
                far = self.server.handshake(&mut self.far);
                far.is_err().then(|| self.far.close());
            }
            if near != Ok(false) && far != Ok(false) {
                break;
            }
        }
        (near, far)
    }

    /// The failures of both sides, including those that a side gets only after its handshake.
    fn failures(&mut self) -> (Failure, Failure) {
        let (near, far) = self.shake();
        let near = near.and_then(|_| self.client.receive(&mut self.near, &mut [0; 4096]));
        let far = far.and_then(|_| self.server.receive(&mut self.far, &mut [0; 4096]));
        (near.unwrap_err(), far.unwrap_err())
    }
}

/// An authority, and configurations that trust it.
struct World {
    authority: Authority,
}

fn world() -> World {
    World { authority: Authority::new("an authority").unwrap() }
}

impl World {
    fn server(&self) -> ServerConfig {
        self.server_of(&Offer::default(), &["localhost"], Validity::default())
    }

    fn server_of(&self, offer: &Offer, names: &[&str], validity: Validity) -> ServerConfig {
        offer.server(self.authority.certify(names, validity).unwrap(), None).unwrap()
    }

    fn client(&self) -> ClientConfig {
        self.client_of(&Offer::default(), None)
    }

    fn client_of(&self, offer: &Offer, identity: Option<Identity>) -> ClientConfig {
        let roots = self.authority.roots().unwrap();
        let builder = offer.client_builder().unwrap().with_root_certificates(roots);
        match identity {
            None => builder.with_no_client_auth(),
            Some(Identity { chain, key }) => builder.with_client_auth_cert(chain, key).unwrap(),
        }
    }
}

fn only(version: Version) -> Offer {
    Offer { min: version, max: version, ..Offer::default() }
}

/// Transfers bytes from one session to the other until no more arrive. Returns the received bytes and the last result.
fn carry(
    from: (&mut Session, &mut End),
    to: (&mut Session, &mut End),
    bytes: &[u8],
    buffer: usize,
) -> Vec<u8> {
    let ((sender, near), (receiver, far)) = (from, to);
    let (mut sent, mut arrived, mut buffer) = (0, Vec::new(), vec![0; buffer]);
    while arrived.len() < bytes.len() {
        if sent < bytes.len() {
            match sender.send(near, &bytes[sent..]) {
                Ok(taken) => sent += taken,
                Err(failure) => assert_eq!(failure, Failure::WouldBlock),
            }
        } else {
            sender.flush(near).unwrap();
        }
        loop {
            match receiver.receive(far, &mut buffer) {
                Ok(received) => arrived.extend_from_slice(&buffer[..received]),
                Err(Failure::Again) => {}
                Err(failure) => break assert_eq!(failure, Failure::WouldBlock),
            }
        }
    }
    assert!(!receiver.has_buffered() && !sender.has_unsent());
    arrived
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| ((i * i) >> 7) as u8).collect()
}

#[test]
fn both_sides_agree_and_carry_bytes_both_ways() {
    for version in [Version::Tls12, Version::Tls13] {
        let world = world();
        let mut pair = Pair::new(world.client_of(&only(version), None), world.server());
        assert!(pair.client.is_handshaking() && pair.client.version().is_none());
        assert_eq!(pair.shake(), (Ok(true), Ok(true)));
        assert_eq!((pair.client.version(), pair.server.version()), (Some(version), Some(version)));
        assert_eq!(pair.client.cipher(), pair.server.cipher());
        assert!(pair.client.cipher().unwrap().name.contains("AES_256_GCM"));
        let Pair { client, near, server, far } = &mut pair;
        let bytes = pattern(200_000);
        assert!(carry((client, near), (server, far), &bytes, 65_536) == bytes);
        assert!(carry((server, far), (client, near), &bytes, 10_000) == bytes);
        assert_eq!(client.tickets(), if version == Version::Tls13 { 2 } else { 0 });
        // First the end that the peer announced, then the end of the stream without a close_notify.
        assert_eq!(client.send_close_notify(near), Ok(true));
        assert_eq!(server.receive(far, &mut [0; 100]), Ok(0));
        assert!(!server.was_cut_off());
        far.close();
        assert_eq!(client.receive(near, &mut [0; 100]), Ok(0));
        assert!(client.was_cut_off());
    }
}

#[test]
fn a_session_knows_whether_more_may_be_there() {
    let world = world();
    let mut pair = Pair::new(world.client(), world.server());
    assert_eq!(pair.shake(), (Ok(true), Ok(true)));
    let mut buffer = [0; 4096];
    let Pair { client, near, server, far } = &mut pair;
    client.send(near, b"one").unwrap();
    assert_eq!((server.receive(far, &mut buffer), server.may_have_more()), (Ok(3), false));
    // Three bytes arrive for a buffer of two, so the last one stays in the session.
    client.send(near, b"two").unwrap();
    let first = loop {
        match server.receive(far, &mut buffer[..2]) {
            Err(Failure::Again) => {}
            received => break received,
        }
    };
    assert_eq!((first, server.may_have_more()), (Ok(2), true));
    // This call took only plaintext from the session, so the stream may have received more bytes.
    assert_eq!((server.receive(far, &mut buffer), server.may_have_more()), (Ok(1), true));
    assert_eq!(server.receive(far, &mut buffer), Err(Failure::WouldBlock));
    // The announced end is reported even if it arrives together with the last bytes.
    client.send(near, b"end").unwrap();
    client.send_close_notify(near).unwrap();
    assert_eq!((server.receive(far, &mut buffer), server.may_have_more()), (Ok(3), true));
    assert_eq!(server.receive(far, &mut buffer), Ok(0));
}

#[test]
fn a_byte_at_a_time_is_enough() {
    let world = world();
    for version in [Version::Tls12, Version::Tls13] {
        let (client, server) = (world.client_of(&only(version), None), world.server());
        let (mut near, mut far) = stream(1);
        // The stream stores a single byte, so each write must wait for a read.
        (near.room, far.room) = (1, 1);
        let mut pair = Pair::over((near, far), Arc::new(client), Arc::new(server));
        assert_eq!(pair.shake(), (Ok(true), Ok(true)));
        let Pair { client, near, server, far } = &mut pair;
        let bytes = pattern(20_000);
        assert!(carry((client, near), (server, far), &bytes, 1) == bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn bytes_arrive_whatever_the_pieces(
        sizes in prop::collection::vec(1_usize..40_000, 1..6), step in 1_usize..70_000, room in 100_usize..200_000,
        buffer in 1_usize..70_000
    ) {
        let world = world();
        let (mut near, mut far) = stream(step);
        (near.room, far.room) = (room, room);
        let mut pair = Pair::over((near, far), Arc::new(world.client()), Arc::new(world.server()));
        prop_assert_eq!(pair.shake(), (Ok(true), Ok(true)));
        let Pair { client, near, server, far } = &mut pair;
        for size in sizes {
            let bytes = pattern(size);
            prop_assert!(carry((client, near), (server, far), &bytes, buffer) == bytes);
        }
    }

    #[test]
    fn no_bytes_of_a_peer_make_a_panic(garbage in prop::collection::vec(any::<u8>(), 0..300), at in 0_usize..3) {
        let world = world();
        let mut pair = Pair::new(world.client(), world.server());
        if at > 0 {
            pair.client.handshake(&mut pair.near).unwrap();
        }
        if at > 1 {
            pair.shake().0.unwrap();
        }
        pair.far.incoming.borrow_mut().bytes.extend(&garbage);
        pair.near.incoming.borrow_mut().bytes.extend(&garbage);
        pair.near.close();
        pair.far.close();
        for _ in 0..10 {
            let near = pair.client.receive(&mut pair.near, &mut [0; 64]);
            let far = pair.server.receive(&mut pair.far, &mut [0; 64]);
            prop_assert!(near != Err(Failure::WouldBlock) && far != Err(Failure::WouldBlock));
        }
    }
}

#[test]
fn a_later_session_resumes_an_earlier_one() {
    let world = world();
    for version in [Version::Tls12, Version::Tls13] {
        let client = Arc::new(world.client_of(&only(version), None));
        let server = Arc::new(world.server());
        for resumed in [false, true, true] {
            let mut pair = Pair::over(stream(usize::MAX), client.clone(), server.clone());
            assert_eq!(pair.shake(), (Ok(true), Ok(true)));
            assert_eq!((pair.client.is_resumed(), pair.server.is_resumed()), (resumed, resumed), "{version}");
            // The server's tickets arrive after the handshake.
            let _ = pair.client.receive(&mut pair.near, &mut [0; 4096]);
        }
    }
}
