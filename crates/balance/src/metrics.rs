//! Answers `/metrics` over HTTP, to one client after another.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use crate::Error;

/// How long a client may take for its request, and for the answer.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(2);
/// Longest request, in bytes.
const MAX_REQUEST: u64 = 16 << 10;

/// Takes the address.
///
/// # Errors
/// When it cannot be used.
pub(crate) fn bind(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).map_err(|error| Error::new(format!("answer /metrics on {address}"), &error))
}

/// Answers until the process ends. `metrics` makes the text of an answer; none when there is none any more.
///
/// # Errors
/// When there is no thread for it.
pub(crate) fn answer_on(
    listener: TcpListener,
    metrics: impl Fn() -> Option<String> + Send + 'static,
) -> Result<(), Error> {
    let run = move || {
        for stream in listener.incoming().flatten() {
            // A client that goes away has no answer.
            let _ = answer(&stream, &metrics);
        }
    };
    let started = thread::Builder::new().name("metrics".to_owned()).spawn(run);
    started.map(drop).map_err(|error| Error::new("start a thread", &error))
}

fn answer(stream: &TcpStream, metrics: &impl Fn() -> Option<String>) -> io::Result<()> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut reader = BufReader::new(stream).take(MAX_REQUEST);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    // The rest is read, since closing on unread bytes would reset the answer.
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    let path = first.split_whitespace().nth(1).unwrap_or_default();
    let text = if path == "/metrics" { metrics() } else { None };
    let head = match (&text, path) {
        (Some(_), _) => "200 OK",
        (None, "/metrics") => "503 Service Unavailable",
        _ => "404 Not Found",
    };
    let body = text.unwrap_or_default();
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let length = body.len();
    write!(
        &*stream,
        "HTTP/1.0 {head}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}
