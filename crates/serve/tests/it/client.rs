//! A target under test, and a client that notices everything.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use http1::{Error, Limits, Response, ResponseHead, ResponseReader, ResponseSink};
use serve::{Config, Report, Server};

pub(crate) const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: target\r\n\r\n";
pub(crate) const GET_CLOSE: &[u8] = b"GET / HTTP/1.1\r\nHost: target\r\nConnection: close\r\n\r\n";

/// How long a client waits for what should come at once.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A target that runs.
pub(crate) struct Target {
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Report>,
}

impl Target {
    pub(crate) fn start(config: Config) -> Self {
        let server = Server::bind(config).unwrap();
        let address = server.local_addrs()[0];
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let stop = stop.clone();
            move || server.run(stop)
        });
        Self { address, stop, thread }
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// Stops it and takes its report, in which every request must be in one class.
    pub(crate) fn stop(self) -> Report {
        let asked = Instant::now();
        self.stop.store(true, Ordering::Relaxed);
        let report = self.thread.join().unwrap();
        assert!(asked.elapsed() < Duration::from_millis(500), "stopped after {:?}", asked.elapsed());
        assert_eq!(report.unaccounted(), 0, "{report}");
        assert_eq!(report.answers, report.answers_by_status.values().sum::<u64>());
        report
    }
}

/// An answer as it came.
#[derive(Debug)]
pub(crate) struct Answer {
    pub response: Response,
    pub head: Head,
}

/// What is kept of an answer's parts.
#[derive(Debug, Default)]
pub(crate) struct Head {
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Head {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

impl ResponseSink for Head {
    fn head(&mut self, head: &ResponseHead<'_>) {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        self.headers = head.headers.iter().map(|h| (h.name.to_owned(), text(h.value))).collect();
    }

    fn body(&mut self, bytes: &[u8]) {
        self.body.extend_from_slice(bytes);
    }
}

/// What came instead of a whole answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// FIN, after so many bytes since the last answer.
    Fin(usize),
    /// RST.
    Reset,
    /// Nothing within the time.
    Nothing,
    /// Bytes that are no answer.
    Wrong(Error),
}

/// A connection of a client.
pub(crate) struct Client {
    pub stream: TcpStream,
    reader: ResponseReader,
    bytes: Vec<u8>,
    is_head: bool,
    timeout: Duration,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        let reader = ResponseReader::new(Limits::default());
        Self { stream, reader, bytes: Vec::new(), is_head: false, timeout: TIMEOUT }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> &mut Self {
        self.is_head = bytes.starts_with(b"HEAD ");
        self.stream.write_all(bytes).unwrap();
        self
    }

    /// Waits no longer than this from now on.
    pub(crate) fn timeout(&mut self, timeout: Duration) -> &mut Self {
        self.timeout = timeout;
        self
    }

    /// The next answer, or what came instead.
    pub(crate) fn answer(&mut self) -> Result<Answer, NoAnswer> {
        let mut head = Head::default();
        let mut taken = 0;
        self.stream.set_read_timeout(Some(self.timeout)).unwrap();
        loop {
            if !self.bytes.is_empty() {
                let fed = self.reader.feed(&self.bytes, self.is_head, &mut head).map_err(NoAnswer::Wrong)?;
                taken += fed.used;
                self.bytes.drain(..fed.used);
                if let Some(response) = fed.done {
                    return Ok(Answer { response, head });
                }
            }
            let mut buffer = [0; 65_536];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(NoAnswer::Fin(taken)),
                Ok(received) => self.bytes.extend_from_slice(&buffer[..received]),
                Err(e) if e.kind() == ErrorKind::ConnectionReset => return Err(NoAnswer::Reset),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Err(NoAnswer::Nothing);
                }
                Err(e) => panic!("{e}"),
            }
        }
    }

    /// Sends a request and awaits a whole answer.
    pub(crate) fn get(&mut self, request: &[u8]) -> Answer {
        self.send(request).answer().unwrap()
    }

    /// Closes with a reset.
    pub(crate) fn reset(self) {
        rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO)).unwrap();
    }
}

/// Waits until something is so, for it will be.
pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < TIMEOUT, "{what} did not come about");
        std::thread::sleep(Duration::from_millis(2));
    }
}
