//! A TLS server with a choice of correct and faulty behaviours. It has one thread for each connection.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, atomic::AtomicBool},
    thread,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use load::{HttpWorkload, MachineLimits, Share};
use record::HttpTrial;
use rustls::{ServerConfig, pki_types::PrivateKeyDer};
use tls::{Identity, Session};

/// What the server does with every connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// Answers with five bytes.
    Answers,
    /// Answers with 64 KiB.
    Large,
    /// Answers with 64 KiB in chunks.
    Chunked,
    /// Answers with a body that ends with the connection, and ends it by close_notify.
    EndsBody,
    /// Same as `EndsBody`, but without a close_notify.
    CutOffBody,
    /// Answers, and closes without a close_notify.
    CutOffAfterAnswer,
    /// Closes without a close_notify instead of an answer.
    CutOffBeforeAnswer,
    /// Answers with bytes that cannot be decrypted.
    Garbage,
    /// Answers the handshake in plain HTTP.
    PlainHttp,
    /// Closes the connection in the handshake.
    Closes,
    /// Resets the connection in the handshake.
    Resets,
    /// Never answers.
    Silent,
}

/// A server that serves until the test's process ends.
pub(crate) struct Server {
    address: SocketAddr,
}

impl Server {
    pub(crate) fn start(behaviour: Behaviour, config: Option<ServerConfig>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let config = config.map(Arc::new);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, config) = (stream.unwrap(), config.clone());
                thread::spawn(move || serve(behaviour, stream, config));
            }
        });
        Self { address }
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}/", self.address)
    }
}

/// Runs a workload on one thread.
pub(crate) fn run(workload: &HttpWorkload) -> HttpTrial {
    let workload = HttpWorkload { threads: Some("1".into()), ..workload.clone() };
    let plan = workload.plan(&MachineLimits::read().unwrap()).unwrap();
    let plan = Arc::new(plan);
    let stop = Arc::new(AtomicBool::new(false));
    let result = load::run(&plan, Share::WHOLE, &stop, None, || Some(clock::monotonic_ns()), |_| ()).unwrap();
    HttpTrial { plan: (*plan).clone(), ..result.http }
}

pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", BASE64.encode(der))
}

/// A self-signed certificate for clients only.
pub(crate) fn certificate_for_clients() -> Identity {
    let mut params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    Identity { chain: vec![certificate.der().clone()], key }
}

fn serve(behaviour: Behaviour, mut stream: TcpStream, config: Option<Arc<ServerConfig>>) {
    stream.set_nodelay(true).unwrap();
    match behaviour {
        Behaviour::PlainHttp => {
            let _ = stream.read(&mut [0; 1_000]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
            let _ = stream.read(&mut [0; 1_000]);
        }
        Behaviour::Closes => {
            let _ = stream.read(&mut [0; 4_096]);
        }
        Behaviour::Resets => {
            // Closing a socket with unread bytes resets the connection.
            let _ = stream.read(&mut [0; 1]);
        }
        Behaviour::Silent => thread::sleep(Duration::from_secs(3_600)),
        _ => serve_securely(behaviour, &mut stream, config.unwrap()),
    }
}

fn serve_securely(behaviour: Behaviour, stream: &mut TcpStream, config: Arc<ServerConfig>) {
    let mut session = Session::server(config).unwrap();
    if !session.handshake(stream).is_ok_and(|done| done) {
        return;
    }
    let mut buffer = vec![0; 1 << 16];
    let mut request = Vec::new();
    loop {
        match session.receive(stream, &mut buffer) {
            Ok(received @ 1..) => request.extend_from_slice(&buffer[..received]),
            _ => return,
        }
        while let Some(length) = length_of(&request).filter(|length| *length <= request.len()) {
            request.drain(..length);
            if !answer(behaviour, &mut session, stream) {
                return;
            }
        }
    }
}

/// The length of the first request with its body, if its head is complete.
fn length_of(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
    let body = text
        .split_once("content-length: ")
        .map_or(0, |(_, rest)| rest.split_once('\r').unwrap().0.parse::<usize>().unwrap());
    Some(head + body)
}

/// Answers a request; returns whether the connection stays open.
fn answer(behaviour: Behaviour, session: &mut Session, stream: &mut TcpStream) -> bool {
    let mut send = |bytes: &[u8]| {
        let mut sent = 0;
        while sent < bytes.len() {
            match session.send(stream, &bytes[sent..]) {
                Ok(taken) => sent += taken,
                Err(_) => return,
            }
        }
    };
    let body = vec![b'x'; 65_536];
    match behaviour {
        Behaviour::Large => {
            send(b"HTTP/1.1 200 OK\r\nContent-Length: 65536\r\n\r\n");
            send(&body);
        }
        Behaviour::Chunked => {
            send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            for chunk in body.chunks(4_096) {
                send(b"1000\r\n");
                send(chunk);
                send(b"\r\n");
            }
            send(b"0\r\n\r\n");
        }
        Behaviour::EndsBody | Behaviour::CutOffBody => {
            send(b"HTTP/1.1 200 OK\r\n\r\nhello");
            if behaviour == Behaviour::EndsBody {
                let _ = session.send_close_notify(stream);
            }
            return false;
        }
        Behaviour::CutOffBeforeAnswer => return false,
        Behaviour::Garbage => {
            let _ = stream.write_all(&[&[0x17, 3, 3, 0, 64][..], &[7; 64]].concat());
            // Waits until the client has closed the connection.
            let _ = stream.read(&mut [0; 1_000]);
            return false;
        }
        _ => {
            send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
            return behaviour != Behaviour::CutOffAfterAnswer;
        }
    }
    true
}
