//! The preface at the start of a connection: the tunnel of an HTTP proxy (CONNECT, RFC 9110, section 9.3.6), then a line of the
//! [PROXY protocol](https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt), version 1.

use std::{
    fmt::Write as _,
    io::{self, ErrorKind, Read, Write},
    net::SocketAddr,
};

use record::{ConnectionPlan, TunnelPlan};
use rustix::io::Errno;

use super::{ConnectionError, PrefaceStep, Result, layer::Io};

/// Maximum size of the head of a proxy's answer, in bytes.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// The preface of each connection of a wire.
#[derive(Debug, Clone)]
pub(crate) struct Preface {
    /// The request for a tunnel, if there is a proxy.
    connect: Option<Vec<u8>>,
    proxy_protocol: bool,
}

/// The progress of a connection's preface.
#[derive(Debug)]
pub(super) struct PrefaceState {
    /// Unsent bytes: the request for a tunnel, or the line of the PROXY protocol.
    unsent: Vec<u8>,
    /// The part of the head of the proxy's answer that has arrived.
    answer: Option<Vec<u8>>,
    /// The line of the PROXY protocol to send once the tunnel is open; empty if there is none.
    line: Vec<u8>,
}

impl Preface {
    /// The preface of a plan's connections, if they have one.
    pub(crate) fn of(plan: &ConnectionPlan) -> Option<Self> {
        let connect = plan.tunnel.as_ref().map(request_for);
        (connect.is_some() || plan.proxy_protocol)
            .then_some(Self { connect, proxy_protocol: plan.proxy_protocol })
    }

    /// The state of an established connection with these addresses; `None` for a Unix socket.
    pub(super) fn begin(&self, addresses: Option<(SocketAddr, SocketAddr)>) -> PrefaceState {
        let line = if self.proxy_protocol { proxy_line(addresses) } else { Vec::new() };
        match &self.connect {
            Some(connect) => PrefaceState { unsent: connect.clone(), answer: Some(Vec::new()), line },
            None => PrefaceState { unsent: line, answer: None, line: Vec::new() },
        }
    }
}

impl PrefaceState {
    /// Advances as far as possible without waiting.
    ///
    /// # Errors
    /// [`ConnectionError::Proxy`] if a proxy refuses the tunnel or ends the connection; the kernel's other errors.
    pub(super) fn advance(&mut self, io: &mut Io<'_>) -> Result<PrefaceStep> {
        let is_done = self.send(io)? && self.read_answer(io)? && self.send(io)?;
        Ok(PrefaceStep { is_done, unread_ns: io.unread_ns })
    }

    /// Sends the unsent bytes. Returns whether none are left.
    fn send(&mut self, io: &mut Io<'_>) -> Result<bool> {
        while !self.unsent.is_empty() {
            match io.write(&self.unsent) {
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(self.failure(&error)),
            }
        }
        Ok(true)
    }

    /// Converts an error. Until the tunnel is open, the proxy is the peer that ended the connection.
    fn failure(&self, error: &io::Error) -> ConnectionError {
        match Errno::from_io_error(error) {
            Some(Errno::CONNRESET | Errno::PIPE | Errno::CONNABORTED) if self.answer.is_some() => {
                ConnectionError::Proxy(None)
            }
            errno => ConnectionError::Kernel(errno.unwrap_or(Errno::IO)),
        }
    }

    /// Reads the answer to the request for a tunnel, if there is one. Returns whether it is complete.
    fn read_answer(&mut self, io: &mut Io<'_>) -> Result<bool> {
        let Some(answer) = &mut self.answer else { return Ok(true) };
        let mut buffer = [0; 1024];
        loop {
            match io.read(&mut buffer) {
                Ok(0) => return Err(ConnectionError::Proxy(None)),
                Ok(bytes) => answer.extend_from_slice(&buffer[..bytes]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(self.failure(&error)),
            }
            match status_of(answer) {
                None if answer.len() <= MAX_HEAD_BYTES => {}
                Some(200..300) => {
                    self.answer = None;
                    self.unsent = std::mem::take(&mut self.line);
                    return Ok(true);
                }
                status => return Err(ConnectionError::Proxy(Some(status.unwrap_or(0)))),
            }
        }
    }
}

/// The status of a proxy's answer; 2xx opens the tunnel. `None` while the head is incomplete, 0 if the answer is not HTTP. Bytes after
/// the head of an open tunnel are not HTTP either, because the target does not speak first.
fn status_of(answer: &[u8]) -> Option<u16> {
    let start = b"HTTP/1.";
    if !answer.starts_with(&start[..answer.len().min(start.len())]) {
        return Some(0);
    }
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    let status = match &answer[start.len()..end] {
        [b'0' | b'1', b' ', status @ ..] => status,
        _ => &[],
    };
    let status = match status {
        [a, b, c] | [a, b, c, b' ' | b'\r', ..] => number_of([*a, *b, *c]),
        _ => 0,
    };
    let speaks_first = (200..300).contains(&status) && end + 4 < answer.len();
    Some(if speaks_first { 0 } else { status })
}

/// The number that these three digits form; 0 if one is not a digit.
fn number_of(digits: [u8; 3]) -> u16 {
    if !digits.iter().all(u8::is_ascii_digit) {
        return 0;
    }
    digits.iter().fold(0, |number, digit| 10 * number + u16::from(digit - b'0'))
}

fn request_for(tunnel: &TunnelPlan) -> Vec<u8> {
    let TunnelPlan { to, headers } = tunnel;
    let mut request = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n");
    for (name, value) in headers {
        // Writing to a String cannot fail.
        let _ = write!(request, "{name}: {value}\r\n");
    }
    request.push_str("\r\n");
    request.into_bytes()
}

fn proxy_line(addresses: Option<(SocketAddr, SocketAddr)>) -> Vec<u8> {
    let line = match addresses {
        Some((from, to)) if from.is_ipv4() == to.is_ipv4() => {
            let family = if from.is_ipv4() { "TCP4" } else { "TCP6" };
            format!("PROXY {family} {} {} {} {}\r\n", from.ip(), to.ip(), from.port(), to.port())
        }
        _ => "PROXY UNKNOWN\r\n".to_owned(),
    };
    line.into_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_status_of_a_complete_answer_is_read() {
        for (answer, status) in [
            ("HTTP/1.1 200 Connection established\r\n\r\n", Some(200)),
            ("HTTP/1.0 200 OK\r\nVia: 1.0 x\r\n\r\n", Some(200)),
            ("HTTP/1.1 204\r\n\r\n", Some(204)),
            ("HTTP/1.1 200 OK\r\nVia: x\r\n", None),
            ("", None),
            ("HTTP/1.1 407 Proxy Authentication Required\r\n\r\nsome page", Some(407)),
            ("HTTP/1.1 2000\r\n\r\n", Some(0)),
            ("HTTP/1.1 +20\r\n\r\n", Some(0)),
            ("HTTP/2 200\r\n\r\n", Some(0)),
            ("\r\n\r\n", Some(0)),
            ("HTTP/1.1 200 OK\r\n\r\nhello", Some(0)),
        ] {
            assert_eq!(status_of(answer.as_bytes()), status, "{answer:?}");
        }
    }

    #[test]
    fn the_request_names_the_target_twice() {
        let tunnel = TunnelPlan {
            to: "a.example:443".to_owned(),
            headers: vec![("Proxy-Authorization".to_owned(), "Basic eDp5".to_owned())],
        };
        let request = String::from_utf8(request_for(&tunnel)).unwrap();
        assert_eq!(
            request,
            "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\nProxy-Authorization: Basic eDp5\r\n\r\n"
        );
    }

    #[test]
    fn the_line_has_the_form_of_the_specification() {
        let addresses = |from: &str, to: &str| Some((from.parse().unwrap(), to.parse().unwrap()));
        let line = |addresses| String::from_utf8(proxy_line(addresses)).unwrap();
        let four = addresses("192.0.2.1:5", "192.0.2.2:80");
        assert_eq!(line(four), "PROXY TCP4 192.0.2.1 192.0.2.2 5 80\r\n");
        let six = addresses("[2001:db8::1]:5", "[2001:db8::2]:80");
        assert_eq!(line(six), "PROXY TCP6 2001:db8::1 2001:db8::2 5 80\r\n");
        assert_eq!(line(None), "PROXY UNKNOWN\r\n");
    }

    proptest! {
        #[test]
        fn no_answer_makes_the_reader_fail(answer in proptest::collection::vec(any::<u8>(), 0..64), status in 0..1000_u16) {
            let _ = status_of(&answer);
            let head = format!("HTTP/1.1 {status:03} x\r\n\r\n");
            prop_assert_eq!(status_of(head.as_bytes()), Some(status));
        }
    }
}
