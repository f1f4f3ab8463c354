//! The exchange of a probe on its connection, and the judgement of the answer: HTTP/1.1, with or without TLS.

use std::{
    collections::VecDeque,
    io::{self, Read, Write},
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
};

use tls::{Failure, Session};

use crate::CheckKind;

/// Number of bytes of an answer that must contain the status: `HTTP/1.1 200` and the space after it.
const STATUS_BYTES: usize = 13;
/// Maximum bytes that are kept of interim answers and the final answer.
const MAX_HEADS: usize = 1 << 18;
/// Bytes of plaintext per read.
const READ_BYTES: usize = 4_096;
/// The first two bytes of a TLS alert, which many servers send to a client that does not use TLS.
const ALERT: [u8; 2] = [0x15, 3];
const LOOKS_LIKE_TLS: &str = "; looks like TLS; use check = { kind = \"https\" }";

/// A request and its answer.
#[derive(Debug)]
pub(super) struct Talk {
    port: u16,
    pub(super) request: Vec<u8>,
    is_asked: bool,
    good: RangeInclusive<u16>,
    /// The beginning of the answer, without interim answers.
    answer: Vec<u8>,
    tls: Option<Box<Tls>>,
}

/// The next action of the probe after it has received bytes.
#[derive(Debug)]
pub(super) enum Heard {
    /// There is no result yet. The probe sends these bytes, if there are any.
    Says(Vec<u8>),
    /// The result: success, or the reason for the failure.
    Found(Result<(), String>),
}

#[derive(Debug)]
struct Tls {
    session: Session,
    wire: Wire,
}

/// Received bytes and bytes to send.
#[derive(Debug, Default)]
pub(super) struct Wire {
    pub(super) incoming: VecDeque<u8>,
    pub(super) outgoing: Vec<u8>,
}

impl Talk {
    /// The exchange of a check of this kind; none if the check ends with the connection.
    ///
    /// # Errors
    /// If TLS cannot be used.
    pub(super) fn of(kind: &CheckKind, vip: SocketAddr) -> Result<Option<Self>, String> {
        let CheckKind::Http { path, host, status, tls } = kind else { return Ok(None) };
        let request = request(path, host.as_deref(), vip);
        let tls = match tls {
            false => None,
            true => {
                let address = || Session::to_anybody(&vip.ip().to_string());
                // A host with a port is not a valid server name in TLS; the address replaces it.
                let session = host
                    .as_deref()
                    .map_or_else(address, |host| Session::to_anybody(host).or_else(|_| address()));
                let session = session.map_err(|failure| format!("cannot be probed over TLS: {failure}"))?;
                Some(Box::new(Tls { session, wire: Wire::default() }))
            }
        };
        let (port, good, answer) = (vip.port(), status.clone(), Vec::new());
        Ok(Some(Self { port, request, is_asked: false, good, answer, tls }))
    }

    /// The step for which a silent server owes an answer.
    pub(super) fn awaited(&self) -> &'static str {
        let is_handshaking = self.tls.as_ref().is_some_and(|tls| tls.session.is_handshaking());
        if is_handshaking { "a TLS handshake" } else { "a request" }
    }

    /// A possible cause if the server ends the connection: many TLS servers do so with clients that do not use TLS.
    pub(super) fn hint(&self) -> &'static str {
        if self.tls.is_some() { "" } else { "; if it speaks TLS, use check = { kind = \"https\" }" }
    }

    /// Processes bytes from the server. The first call, when the connection is established, has no bytes.
    pub(super) fn hear(&mut self, fresh: &[u8], ends: bool) -> Heard {
        let port = self.port;
        let (says, plain) = match &mut self.tls {
            None if self.is_asked => (Vec::new(), fresh.to_vec()),
            None => (self.request.clone(), fresh.to_vec()),
            Some(tls) => match tls.exchange(fresh, &self.request) {
                Ok(plain) => (std::mem::take(&mut tls.wire.outgoing), plain),
                Err(Failure::NotTls) => {
                    let next = "if it speaks plain HTTP, use check = { kind = \"http\" }";
                    return Heard::Found(Err(format!("does not speak TLS on port {port}; {next}")));
                }
                Err(failure) => {
                    return Heard::Found(Err(format!("fails the TLS handshake on port {port}: {failure}")));
                }
            },
        };
        self.is_asked = true;
        self.answer.extend(plain.iter().take(MAX_HEADS - self.answer.len()));
        let found = self.final_status(ends);
        let (from, to) = (self.good.start(), self.good.end());
        Heard::Found(Err(match found {
            Ok(Some(status)) if self.good.contains(&status) => return Heard::Found(Ok(())),
            Ok(Some(status)) => {
                let is_tls = self.tls.is_none() && status == 400 && speaks_of_tls(&plain);
                let hint = if is_tls { LOOKS_LIKE_TLS } else { "" };
                format!("answers with status {status} on port {port}; {from} to {to} are good{hint}")
            }
            Ok(None) if ends => {
                format!("closes the connection to port {port} without a status{}", self.hint())
            }
            Ok(None) => return Heard::Says(says),
            Err(()) => {
                let hint = if self.answer.starts_with(&ALERT) { LOOKS_LIKE_TLS } else { "" };
                format!("does not answer with HTTP on port {port}{hint}")
            }
        }))
    }
}

impl Talk {
    /// The status of the final answer; none if it has not arrived yet. A server may send interim answers without a
    /// request (RFC 9110, 15.2).
    fn final_status(&mut self, ends: bool) -> Result<Option<u16>, ()> {
        loop {
            let status = status(&self.answer, ends)?;
            // 101 is not skipped, because another protocol begins after it.
            if !status.is_some_and(|status| matches!(status, 100 | 102..=199) && !self.good.contains(&status))
            {
                return Ok(status);
            }
            let Some(end) = self.answer.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
                return Ok(None);
            };
            self.answer.drain(..end + 4);
        }
    }
}

impl Tls {
    /// Processes received bytes and returns the plaintext in them. Afterwards, `wire.outgoing` contains the bytes to
    /// send.
    fn exchange(&mut self, fresh: &[u8], request: &[u8]) -> Result<Vec<u8>, Failure> {
        let Self { session, wire } = self;
        wire.incoming.extend(fresh);
        if session.is_handshaking() && session.handshake(wire)? {
            session.send(wire, request)?;
        }
        let (mut plain, mut buffer) = (Vec::new(), [0; READ_BYTES]);
        while !session.is_handshaking() {
            match session.receive(wire, &mut buffer) {
                Ok(0) | Err(Failure::WouldBlock) => break,
                Ok(read) => plain.extend(&buffer[..read]),
                Err(Failure::Again) => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(plain)
    }
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.incoming.is_empty() {
            Err(io::ErrorKind::WouldBlock.into())
        } else {
            self.incoming.read(buffer)
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.outgoing.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether the text of a refusal mentions TLS, as those of nginx, Apache and Go do.
fn speaks_of_tls(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    ["HTTPS", "SSL", "TLS"].iter().any(|word| text.contains(word))
}

pub(super) fn request(path: &str, host: Option<&str>, vip: SocketAddr) -> Vec<u8> {
    let address = match vip.ip() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    };
    let host = host.unwrap_or(&address);
    format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: proofload-balance\r\nConnection: close\r\n\r\n"
    )
    .into()
}

/// The status at the beginning of an answer; none if more bytes are needed.
fn status(answer: &[u8], ends: bool) -> Result<Option<u16>, ()> {
    const BEGIN: &[u8; 12] = b"HTTP/1.x 000";
    let fits = |(at, byte): (usize, &u8)| match BEGIN.get(at) {
        Some(b'x' | b'0') => byte.is_ascii_digit(),
        Some(expected) => byte == expected,
        None => byte.is_ascii_whitespace(),
    };
    let begin = &answer[..answer.len().min(STATUS_BYTES)];
    if !begin.iter().enumerate().all(fits) {
        return Err(());
    }
    let is_whole = begin.len() == STATUS_BYTES || ends && begin.len() == BEGIN.len();
    let digits = begin.iter().skip(9).take(3);
    Ok(is_whole.then(|| digits.fold(0, |status, digit| status * 10 + u16::from(digit - b'0'))))
}
