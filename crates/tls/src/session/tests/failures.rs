//! Tests of every class of failure on both sides.

use std::time::{Duration, SystemTime};

use super::*;
use crate::offer::CIPHERS;

/// Another authority with another name.
fn stranger() -> World {
    World { authority: Authority::new("another authority").unwrap() }
}

#[test]
fn certificates_that_are_wrong_have_their_classes() {
    let world = world();
    let stranger = stranger();
    let year = Duration::from_secs(366 * 86_400);
    let now = SystemTime::now();
    let (past, future) = (
        Validity { from: now - year, until: now - year / 2 },
        Validity { from: now + year, until: now + 2 * year },
    );
    let default = Offer::default();
    for (server, class) in [
        (world.server_of(&default, &["localhost"], past), Failure::CertificateExpired),
        (world.server_of(&default, &["localhost"], future), Failure::CertificateNotYetValid),
        (world.server_of(&default, &["other.example", "127.0.0.1"], Validity::default()), Failure::WrongName),
        (world.server_of(&default, &[], Validity::default()), Failure::NoNames),
        (stranger.server(), Failure::UnknownIssuer),
    ] {
        let mut pair = Pair::new(world.client(), server);
        assert_eq!(pair.failures(), (class, Failure::CertificateRefused), "{class}");
        // A failed session returns the same failure again.
        assert_eq!(pair.client.receive(&mut pair.near, &mut [0; 10]), Err(class));
        assert_eq!(pair.client.send(&mut pair.near, b"late"), Err(class));
    }
}

#[test]
fn a_client_that_takes_any_certificate_still_asks_for_its_key() {
    let (world, stranger) = (world(), stranger());
    for version in [Version::Tls12, Version::Tls13] {
        let client = || {
            let any = Arc::new(AnyCertificate::default());
            let builder = only(version).client_builder().unwrap().dangerous();
            builder.with_custom_certificate_verifier(any).with_no_client_auth()
        };
        let mut sound = Pair::new(client(), stranger.server());
        assert_eq!(sound.shake(), (Ok(true), Ok(true)), "{version}");
        let identity = |world: &World| world.authority.certify(&["localhost"], Validity::default()).unwrap();
        let key = rustls::crypto::ring::sign::any_supported_type(&identity(&world).key).unwrap();
        let mixed = rustls::sign::CertifiedKey::new(identity(&world).chain, key);
        let mut server = world.server();
        server.cert_resolver = Arc::new(rustls::sign::SingleCertAndKey::from(mixed));
        let mut pair = Pair::new(client(), server);
        let (near, _) = pair.failures();
        let told = "a signature is wrong, or made with an RSA key shorter than 2048 bits";
        assert_eq!(near, Failure::BadCertificate(told), "{version}");
    }
}

#[test]
fn versions_and_ciphers_without_overlap_have_their_classes() {
    let world = world();
    for (ours, theirs) in [(Version::Tls12, Version::Tls13), (Version::Tls13, Version::Tls12)] {
        let server = world.server_of(&only(theirs), &["localhost"], Validity::default());
        let mut pair = Pair::new(world.client_of(&only(ours), None), server);
        assert_eq!(pair.failures(), (Failure::ProtocolVersion, Failure::ProtocolVersion), "{ours}");
    }
    for (version, ours, theirs) in [(Version::Tls13, 0, 1), (Version::Tls12, 3, 4)] {
        let with = |cipher: usize| Offer { ciphers: vec![CIPHERS[cipher]], ..only(version) };
        let server = world.server_of(&with(theirs), &["localhost"], Validity::default());
        let mut pair = Pair::new(world.client_of(&with(ours), None), server);
        assert_eq!(pair.failures(), (Failure::NoCommonCipher, Failure::NoCommonCipher), "{version}");
    }
}

#[test]
fn certificates_of_clients_are_required_and_judged() {
    let (world, stranger) = (world(), stranger());
    for version in [Version::Tls12, Version::Tls13] {
        let offer = only(version);
        let server = || {
            let identity = world.authority.certify(&["localhost"], Validity::default()).unwrap();
            Offer::default().server(identity, Some(world.authority.roots().unwrap())).unwrap()
        };
        let of = |authority: &Authority| Some(authority.certify(&["a client"], Validity::default()).unwrap());
        let mut known = Pair::new(world.client_of(&offer, of(&world.authority)), server());
        assert_eq!(known.shake(), (Ok(true), Ok(true)));
        let mut none = Pair::new(world.client_of(&offer, None), server());
        assert_eq!(
            none.failures(),
            (Failure::CertificateRequired, Failure::CertificateRequired),
            "{version}"
        );
        let mut unknown = Pair::new(world.client_of(&offer, of(&stranger.authority)), server());
        assert_eq!(unknown.failures(), (Failure::CertificateRefused, Failure::UnknownIssuer), "{version}");
    }
}

#[test]
fn a_write_to_a_peer_that_refused_tells_why() {
    let world = world();
    let identity = world.authority.certify(&["localhost"], Validity::default()).unwrap();
    let server = Offer::default().server(identity, Some(world.authority.roots().unwrap())).unwrap();
    let mut pair = Pair::new(world.client(), server);
    assert_eq!(pair.shake(), (Ok(true), Err(Failure::CertificateRequired)));
    // The server has closed its end: a write fails, but the server's alert can still be read.
    assert_eq!(pair.client.send(&mut pair.near, b"GET /"), Err(Failure::CertificateRequired));
}

#[test]
fn peers_without_tls_have_their_classes() {
    let world = world();
    for (answer, class) in [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".as_slice(), Failure::NotTls),
        (b"SSH-2.0-OpenSSH_9.2p1\r\n", Failure::NotTls),
        (&[0; 40], Failure::NotTls),
        (b"", Failure::ClosedInHandshake),
        // Alerts: protocol_version, handshake_failure, unrecognized_name, close_notify, internal_error.
        (&[21, 3, 1, 0, 2, 2, 70], Failure::ProtocolVersion),
        (&[21, 3, 3, 0, 2, 2, 40], Failure::NoCommonCipher),
        (&[21, 3, 3, 0, 2, 2, 112], Failure::WrongName),
        (&[21, 3, 3, 0, 2, 1, 0], Failure::ClosedInHandshake),
        (&[21, 3, 3, 0, 2, 2, 80], Failure::Other),
    ] {
        let mut pair = Pair::new(world.client(), world.server());
        pair.near.incoming.borrow_mut().bytes.extend(answer);
        pair.far.close();
        assert_eq!(pair.client.receive(&mut pair.near, &mut [0; 64]), Err(class), "{answer:?}");
        assert_eq!(pair.client.handshake(&mut pair.near), Err(class), "{answer:?}");
    }
    let mut pair = Pair::new(world.client(), world.server());
    pair.far.incoming.borrow_mut().bytes.extend(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(pair.server.handshake(&mut pair.far), Err(Failure::NotTls));
}

#[test]
fn changed_bytes_are_no_plaintext() {
    let world = world();
    let mut pair = Pair::new(world.client(), world.server());
    assert_eq!(pair.shake(), (Ok(true), Ok(true)));
    pair.client.send(&mut pair.near, b"first").unwrap();
    let sound = pair.far.incoming.borrow().bytes.len();
    pair.client.send(&mut pair.near, b"second").unwrap();
    pair.far.incoming.borrow_mut().bytes[sound + 8] ^= 1;
    let mut buffer = [0; 4096];
    assert_eq!(pair.server.receive(&mut pair.far, &mut buffer), Ok(5));
    assert_eq!(pair.server.receive(&mut pair.far, &mut buffer), Err(Failure::Decrypt));
    let _ = pair.client.receive(&mut pair.near, &mut buffer);
    assert_eq!(pair.client.receive(&mut pair.near, &mut buffer), Err(Failure::Decrypt));
}

#[test]
fn errors_of_the_stream_keep_their_numbers() {
    struct Broken(io::ErrorKind);
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
    }
    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let world = world();
    for (kind, errno) in
        [(io::ErrorKind::ConnectionReset, Errno::CONNRESET), (io::ErrorKind::BrokenPipe, Errno::PIPE)]
    {
        let mut pair = Pair::new(world.client(), world.server());
        assert_eq!(pair.server.handshake(&mut Broken(kind)), Err(Failure::Io(errno)));
        assert_eq!(pair.client.handshake(&mut Broken(kind)), Err(Failure::Io(errno)));
    }
    let error = io::Error::from_raw_os_error(Errno::TIMEDOUT.raw_os_error());
    assert_eq!(Failure::of_stream(&error), Failure::Io(Errno::TIMEDOUT));
}
