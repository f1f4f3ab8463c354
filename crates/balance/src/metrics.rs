//! Serves `/metrics` over HTTP to a few clients at the same time.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use crate::{Error, control::serve};

/// Maximum time for a client to send the whole request, and to read each part of the answer.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum time for the whole answer: the default timeout of Prometheus.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum bytes of a request.
const MAX_REQUEST: usize = 16 << 10;

/// Listens on the address.
///
/// # Errors
/// If the address cannot be used.
pub(crate) fn bind(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).map_err(|error| Error::new(format!("answer /metrics on {address}"), &error))
}

/// Answers requests until the process ends. `metrics` returns the text of an answer; none if the daemon does not
/// answer.
///
/// # Errors
/// When the thread cannot be started.
pub(crate) fn answer_on(
    listener: TcpListener,
    metrics: impl Fn() -> Option<String> + Clone + Send + 'static,
) -> Result<(), Error> {
    // A client that has disconnected gets no answer.
    let answer = move |stream: TcpStream| drop(answer(&stream, &metrics));
    let run = move || serve(listener.incoming().flatten(), answer);
    let started = thread::Builder::new().name("metrics".to_owned()).spawn(run);
    started.map(drop).map_err(|error| Error::new("start a thread", &error))
}

fn answer(stream: &TcpStream, metrics: &impl Fn() -> Option<String>) -> io::Result<()> {
    let (mut request, mut part, deadline) = (Vec::new(), [0; 4_096], Instant::now() + TIMEOUT);
    // Closing a socket with unread bytes would reset the connection before the answer arrives, so the whole request is
    // read.
    while !request.ends_with(b"\r\n\r\n") && !request.ends_with(b"\n\n") {
        stream.set_read_timeout(Some(left(deadline)?))?;
        let read = (&*stream).read(&mut part)?;
        request.extend(&part[..read]);
        if read == 0 || request.len() > MAX_REQUEST {
            break;
        }
    }
    let first = String::from_utf8_lossy(&request);
    let path = first.lines().next().unwrap_or_default().split_whitespace().nth(1).unwrap_or_default();
    let text = if path == "/metrics" { metrics() } else { None };
    let head = match (&text, path) {
        (Some(_), _) => "200 OK",
        (None, "/metrics") => "503 Service Unavailable",
        _ => "404 Not Found",
    };
    let body = text.unwrap_or_default();
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let length = body.len();
    let whole = format!(
        "HTTP/1.0 {head}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    let (mut whole, deadline) = (whole.as_bytes(), Instant::now() + ANSWER_TIMEOUT);
    while !whole.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?.min(TIMEOUT)))?;
        whole = &whole[(&*stream).write(whole)?..];
    }
    Ok(())
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    use testing::{PATIENCE, until};

    use super::*;
    use crate::control::MAX_CLIENTS;

    fn client(address: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    #[test]
    fn clients_that_say_nothing_or_little_keep_nobody_out() {
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        answer_on(listener, || Some("x\n# EOF\n".to_owned())).unwrap();
        let silent: Vec<TcpStream> = (0..2 * MAX_CLIENTS).map(|_| client(address)).collect();
        for pieces in
            [&["GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"][..], &["GET /met", "rics HTTP/1.1\r\n\r\n"]]
        {
            let mut asks = client(address);
            pieces.iter().for_each(|piece| asks.write_all(piece.as_bytes()).unwrap());
            let mut text = String::new();
            asks.read_to_string(&mut text).unwrap();
            assert!(
                text.starts_with("HTTP/1.0 200 OK\r\n") && text.ends_with("\r\n\r\nx\n# EOF\n"),
                "{text}"
            );
        }
        drop(silent);
        // The server does not wait beyond the deadline for a client that keeps sending.
        let mut slow = client(address);
        until("it is given up", || slow.write_all(b"a").is_err());
        let mut other = client(address);
        other.write_all(b"GET /other HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        other.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.0 404 "), "{text}");
    }
}
