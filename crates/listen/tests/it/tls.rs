//! Tests of connections with TLS.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    sync::Arc,
};

use listen::{Config, Error, Server, Tls};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, ServerName},
};
use testing::http::{Client, post_json};

use crate::testbed::Testbed;

/// Writes a new certificate for `localhost` and returns it.
fn certify(folder: &Path) -> (Tls, CertificateDer<'static>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let tls = Tls { certificates: folder.join("cert.pem"), key: folder.join("key.pem") };
    fs::write(&tls.certificates, made.cert.pem()).unwrap();
    fs::write(&tls.key, made.signing_key.serialize_pem()).unwrap();
    (tls, made.cert.der().clone())
}

/// Connects with TLS as a client that trusts only this certificate.
fn connect(testbed: &Testbed, trusted: &CertificateDer<'static>) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    StreamOwned::new(connection, testbed.connect().socket)
}

fn answer(stream: &mut impl Read) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

#[test]
fn events_come_encrypted_and_the_admin_port_stays_plain() {
    let folder = tempfile::TempDir::new().unwrap();
    let (tls, certificate) = certify(folder.path());
    let testbed = Testbed::with(|config| {
        config.tls = Some(tls);
        config.admin = Some("127.0.0.1:0".parse().unwrap());
    });
    let mut stream = connect(&testbed, &certificate);
    // Sends bodies larger than a TLS record, and several requests on one connection.
    for bytes in [2, 100_000, 10] {
        let event = format!("{{\"a\":\"{}\"}}", "x".repeat(bytes));
        stream.write_all(&post_json("/a", "", event.as_bytes())).unwrap();
        let head = answer(&mut stream);
        assert!(head.starts_with("HTTP/1.1 204"), "{head}");
        assert!(testbed.stored("a").ends_with(&format!("{event}\n")));
    }
    assert_eq!(stream.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
    stream.write_all(&post_json("/a", "Connection: close\r\n", b"{}")).unwrap();
    answer(&mut stream);
    let mut rest = Vec::new();
    // This read would fail without a close_notify.
    assert_eq!(stream.read_to_end(&mut rest).unwrap(), 0);
    assert_eq!(Client::connect(testbed.admin.unwrap()).unwrap().get("/health").status, 200);
}

#[test]
fn plain_text_to_the_encrypted_port_is_not_answered_with_events_stored() {
    let folder = tempfile::TempDir::new().unwrap();
    let (tls, certificate) = certify(folder.path());
    let testbed = Testbed::with(|config| config.tls = Some(tls));
    let mut plain = testbed.connect();
    plain.send(post_json("/a", "", b"{}"));
    let mut alert = Vec::new();
    let _ = plain.socket.read_to_end(&mut alert);
    assert!(!alert.starts_with(b"HTTP"), "{alert:?}");
    let mut stream = connect(&testbed, &certificate);
    stream.write_all(&post_json("/a", "", b"{\"n\":1}")).unwrap();
    answer(&mut stream);
    assert_eq!(testbed.stored("a"), "{\"n\":1}\n");
}

#[test]
fn a_new_certificate_is_read_on_reload_and_a_broken_one_is_not_taken() {
    let folder = tempfile::TempDir::new().unwrap();
    let (tls, first) = certify(folder.path());
    let testbed = Testbed::with(|config| config.tls = Some(tls.clone()));
    let mut old = connect(&testbed, &first);
    let post = |stream: &mut StreamOwned<ClientConnection, TcpStream>| {
        stream.write_all(&post_json("/a", "", b"{}"))?;
        let mut byte = [0];
        stream.read_exact(&mut byte).map(|()| assert_eq!(byte, *b"H"))
    };
    post(&mut old).unwrap();
    fs::write(&tls.certificates, "nonsense").unwrap();
    let error = testbed.handle.reload().unwrap_err();
    assert!(matches!(&error, Error::Tls { path, .. } if *path == tls.certificates), "{error}");
    post(&mut connect(&testbed, &first)).unwrap();
    let (_, second) = certify(folder.path());
    testbed.handle.reload().unwrap();
    assert!(post(&mut connect(&testbed, &first)).is_err());
    post(&mut connect(&testbed, &second)).unwrap();
}

#[test]
fn a_check_reads_the_identity_and_starts_nothing() {
    let folder = tempfile::TempDir::new().unwrap();
    let (tls, _) = certify(folder.path());
    let other = tempfile::TempDir::new().unwrap();
    let (others, _) = certify(other.path());
    let files = folder.path().join("files");
    let mut config = Config::new(crate::testbed::store(&files));
    config.tls = Some(tls.clone());
    Server::check(&config, 0).unwrap();
    config.tls = Some(Tls { key: others.key.clone(), ..tls.clone() });
    let error = Server::check(&config, 0).unwrap_err().to_string();
    assert!(error.contains("must belong together") && error.contains("key.pem"), "{error}");
    config.tls = Some(Tls { key: tls.certificates.clone(), ..tls });
    assert!(matches!(Server::check(&config, 0), Err(Error::Tls { .. })));
    config.tls = None;
    config.limits.budget_bytes = 1;
    assert!(matches!(Server::check(&config, 0), Err(Error::Config(_))));
    assert!(!files.exists());
}
