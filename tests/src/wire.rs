//! Bytes to a server and back, as they are.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

/// How long an answer is waited for.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// One answer, byte for byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// From the status line to the empty line.
    pub head: String,
    /// What follows it.
    pub body: Vec<u8>,
    /// From the last byte of the request to the last of the answer.
    pub took: Duration,
    /// The server closed the connection after it.
    pub closed: bool,
}

impl Answer {
    /// The status; 0 if there was no answer.
    pub fn status(&self) -> u16 {
        self.head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
    }

    /// A header's value, whatever the case of its name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// Head and body as text.
    pub fn text(&self) -> String {
        format!("{}{}", self.head, String::from_utf8_lossy(&self.body))
    }
}

/// Sends bytes on a connection of its own and reads one answer. An answer without a length ends with the
/// connection; no answer at all is an empty one.
///
/// # Errors
/// When nobody listens there or no answer is complete in time.
pub fn exchange(address: SocketAddr, request: &[u8]) -> Result<Answer> {
    let mut stream = TcpStream::connect(address).with_context(|| format!("nobody listens on {address}"))?;
    exchange_on(&mut stream, request)
}

/// The same on a connection that is there already.
///
/// # Errors
/// When no answer is complete in time.
pub fn exchange_on(stream: &mut TcpStream, request: &[u8]) -> Result<Answer> {
    stream.set_write_timeout(Some(PATIENCE))?;
    // A server that has answered already need not take the rest.
    let _ = stream.write_all(request);
    read_answer(stream)
}

/// Reads one answer.
///
/// # Errors
/// When none is complete in time.
pub fn read_answer(stream: &mut TcpStream) -> Result<Answer> {
    let begun = Instant::now();
    let mut bytes = Vec::new();
    let mut buffer = [0; 16_384];
    let mut closed = false;
    loop {
        if let Some((head_length, length)) = framing(&bytes)
            && length.is_some_and(|length| bytes.len() >= head_length + length)
        {
            break;
        }
        let left = PATIENCE.saturating_sub(begun.elapsed());
        if left.is_zero() {
            bail!("no whole answer within {PATIENCE:?}: {}", String::from_utf8_lossy(&bytes));
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer) {
            Ok(0) => {
                closed = true;
                break;
            }
            Ok(n) => bytes.extend_from_slice(&buffer[..n]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                closed = true;
                break;
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error).context("the answer cannot be read"),
        }
    }
    let took = begun.elapsed();
    let head_length = framing(&bytes).map_or(bytes.len(), |(head_length, _)| head_length);
    let body = bytes.split_off(head_length);
    let closed = closed || is_closed(stream);
    Ok(Answer { head: String::from_utf8_lossy(&bytes).into_owned(), body, took, closed })
}

/// Whether the other side has ended the connection; it is given a moment for it.
pub fn is_closed(stream: &mut TcpStream) -> bool {
    let _ = stream.set_read_timeout(Some(Duration::from_millis(100)));
    match stream.peek(&mut [0]) {
        Ok(n) => n == 0,
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    }
}

/// `POST` of a body to a path, with further header lines (each ending in CR LF).
pub fn post(path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut request =
        format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n{headers}\r\n", body.len())
            .into_bytes();
    request.extend_from_slice(body);
    request
}

/// Length of the head with its empty line and of the body, if it says one.
fn framing(bytes: &[u8]) -> Option<(usize, Option<usize>)> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let value = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let bodyless = head.starts_with("http/1.1 204") || head.starts_with("http/1.1 100");
    let length = value.and_then(|value| value.trim().parse().ok()).or(bodyless.then_some(0));
    Some((end, length))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn told(answer: &'static [u8]) -> Answer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1024]);
            stream.write_all(answer).unwrap();
        });
        let answer = exchange(address, b"x").unwrap();
        server.join().unwrap();
        answer
    }

    #[test]
    fn answers_are_taken_apart() {
        let answer = told(b"HTTP/1.1 503 No\r\nretry-after: 7\r\nContent-Length: 2\r\n\r\nab");
        assert_eq!(
            (answer.status(), answer.header("Retry-After"), answer.body.as_slice()),
            (503, Some("7"), &b"ab"[..])
        );
        assert!(answer.closed && told(b"").head.is_empty());
        assert_eq!(told(b"HTTP/1.1 200 OK\r\n\r\nto the end").body, b"to the end");
    }
}
