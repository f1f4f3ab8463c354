//! A target that keeps every request as it arrived, and answers each with 200. It shares no code with the code under test.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use anyhow::{Context, Result};
use kernel::namespaces::{self, Kind};
use testing::{foreign_lines::SentRequest, until};

/// Maximum length of a body, in bytes.
const MAX_BODY_BYTES: u64 = 1 << 20;

/// A running target. Its threads end with the process.
#[derive(Debug)]
pub struct Recorder {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<SentRequest>>>,
    /// The network namespace that it listens in.
    network: File,
}

/// Number of references to the requests while no connection is open: those of the recorder and of the accepting thread.
const IDLE_HOLDERS: usize = 2;

impl Recorder {
    /// Starts the recorder on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// If it cannot listen.
    pub fn start() -> Result<Self> {
        Self::start_in(namespaces::own(Kind::Network)?, (Ipv4Addr::LOCALHOST, 0).into())
    }

    /// Starts the recorder at an address of a host, which has this network namespace.
    ///
    /// # Errors
    /// If it cannot listen there.
    pub fn start_in(network: File, address: SocketAddr) -> Result<Self> {
        let bound = namespaces::run_in_network(&network, || TcpListener::bind(address));
        let listener = bound.context("the recorder cannot listen")?;
        let (address, requests) = (listener.local_addr()?, Arc::new(Mutex::new(Vec::new())));
        let kept = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let kept = Arc::clone(&kept);
                // Ignore errors: a connection that breaks has not sent a complete request.
                thread::spawn(move || answer(&stream, &kept));
            }
        });
        Ok(Self { address, requests, network })
    }

    /// The address and port of the recorder.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// Number of requests since the last call of [`take`](Self::take), so far.
    pub fn count(&self) -> usize {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The requests of programs that have ended since the last call, in a normal form for comparisons.
    pub fn take(&self) -> Vec<SentRequest> {
        // Connections are accepted in order, so all earlier ones are accepted once this one is.
        let last = namespaces::run_in_network(&self.network, || TcpStream::connect(self.address));
        let mut last = last.expect("the recorder listens");
        let ended = last.shutdown(Shutdown::Write).and_then(|()| last.read(&mut [0]));
        ended.expect("the recorder closes what ends");
        until("every connection is read to its end", || Arc::strong_count(&self.requests) == IDLE_HOLDERS);
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *requests).into_iter().map(SentRequest::normal).collect()
    }
}

/// Answers the requests of a connection until it ends.
fn answer(stream: &TcpStream, kept: &Mutex<Vec<SentRequest>>) -> Result<()> {
    let (mut reader, mut writer) = (BufReader::new(stream), stream);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let [method, target, version] = words[..] else { anyhow::bail!("no request line: {line:?}") };
        let mut request =
            SentRequest { method: method.to_owned(), target: target.to_owned(), ..SentRequest::default() };
        let mut is_kept = version == "HTTP/1.1";
        let mut body_bytes = 0;
        loop {
            let mut field = String::new();
            reader.read_line(&mut field)?;
            let Some((name, value)) = field.trim_end().split_once(':') else { break };
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => body_bytes = value.parse::<u64>()?.min(MAX_BODY_BYTES),
                "connection" => is_kept = value.eq_ignore_ascii_case("keep-alive"),
                "expect" => writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?,
                _ => {}
            }
            request.headers.push((name.to_owned(), value.to_owned()));
        }
        (&mut reader).take(body_bytes).read_to_end(&mut request.body)?;
        let body = if method == "HEAD" { "" } else { "ok" };
        kept.lock().unwrap_or_else(PoisonError::into_inner).push(request);
        let connection = if is_kept { "keep-alive" } else { "close" };
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: {connection}\r\n\r\n{body}");
        writer.write_all(head.as_bytes())?;
        if !is_kept {
            return Ok(());
        }
    }
}
