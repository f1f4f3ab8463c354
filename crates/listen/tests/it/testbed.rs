//! A listener under test with a folder of its own, and a client that notices everything.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use listen::{Config, Handle, Report, Server};
use tempfile::TempDir;

/// How long a client waits for what should come soon.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Stores by tag below that folder, times in UTC.
pub(crate) fn store(folder: &Path) -> segments::Config {
    let template = format!("{}/${{tag}}", folder.display()).parse().unwrap();
    segments::Config { utc: true, ..segments::Config::new(template) }
}

/// A listener that runs.
pub(crate) struct Testbed {
    pub address: SocketAddr,
    pub admin: Option<SocketAddr>,
    pub handle: Handle,
    thread: Option<JoinHandle<Report>>,
    folder: Option<TempDir>,
}

impl Testbed {
    /// By default: JSON lines, no compat, one thread.
    pub(crate) fn start() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Config)) -> Self {
        Self::at(TempDir::new().unwrap(), change)
    }

    pub(crate) fn at(folder: TempDir, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::new(store(folder.path()));
        config.format = events::LineFormat::Json;
        change(&mut config);
        let server = Server::bind(config, Vec::new()).unwrap();
        Self::run(server, folder)
    }

    pub(crate) fn run(server: Server, folder: TempDir) -> Self {
        let (address, admin, handle) = (server.local_addrs()[0], server.admin_addr(), server.handle());
        let thread = Some(std::thread::spawn(move || server.run()));
        Self { address, admin, handle, thread, folder: Some(folder) }
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.as_ref().expect("only taken when it stops").path()
    }

    /// What is stored of a tag.
    pub(crate) fn stored(&self, tag: &str) -> String {
        std::fs::read_to_string(self.folder().join(format!("{tag}.log"))).unwrap_or_default()
    }

    /// Stops it; the report, and the folder for what is left there.
    pub(crate) fn stop(mut self) -> (Report, TempDir) {
        let report = self.join().expect("it ran");
        (report, self.folder.take().expect("only taken here"))
    }

    fn join(&mut self) -> Option<Report> {
        self.handle.stop();
        let thread = self.thread.take()?;
        Some(thread.join().expect("the listener does not panic"))
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.join();
        }
    }
}

/// An answer as it came.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Head and body.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        [self.head.as_bytes(), &self.body].concat()
    }
}

/// A client that reads byte by byte what it is told.
pub(crate) struct Client {
    pub socket: TcpStream,
    unread: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        socket.set_write_timeout(Some(TIMEOUT)).unwrap();
        Self { socket, unread: Vec::new() }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.socket.write_all(bytes.as_ref()).unwrap();
    }

    /// Posts JSON and takes the answer.
    pub(crate) fn post(&mut self, path: &str, body: impl AsRef<[u8]>) -> Answer {
        self.post_with(path, "", body)
    }

    /// Posts with more headers, each with its line end.
    pub(crate) fn post_with(&mut self, path: &str, headers: &str, body: impl AsRef<[u8]>) -> Answer {
        self.send(request(path, headers, body.as_ref()));
        self.answer()
    }

    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
        self.answer()
    }

    /// The next answer; it must come whole.
    pub(crate) fn answer(&mut self) -> Answer {
        let end = loop {
            if let Some(at) = self.unread.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            assert!(
                self.more(),
                "closed in the head of an answer: {:?}",
                String::from_utf8_lossy(&self.unread)
            );
        };
        let head = String::from_utf8(self.unread.drain(..end).collect()).unwrap();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
        let mut answer = Answer { status, head, body: Vec::new() };
        let length: usize = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
        let length = if status == 100 || status == 204 { 0 } else { length };
        while self.unread.len() < length {
            assert!(self.more(), "closed in the body of {answer:?}");
        }
        answer.body = self.unread.drain(..length).collect();
        answer
    }

    /// Whether the listener closes, without a reset and without another byte.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.unread.is_empty() && !self.more()
    }

    fn more(&mut self) -> bool {
        let mut buffer = [0; 16 * 1024];
        let received =
            self.socket.read(&mut buffer).expect("the listener answers, and closes without a reset");
        self.unread.extend_from_slice(&buffer[..received]);
        received > 0
    }
}

/// A POST of JSON.
pub(crate) fn request(path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut head = format!("POST {path} HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {}\r\n", body.len());
    if !headers.to_ascii_lowercase().contains("content-type:") {
        head.push_str("Content-Type: application/json\r\n");
    }
    head.push_str("\r\n");
    [head.as_bytes(), body].concat()
}

/// Waits for something that should come soon.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < TIMEOUT, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A receipt as its header says it.
#[derive(Debug, PartialEq)]
pub(crate) struct Receipt {
    pub segment: String,
    pub offset: usize,
    pub bytes: usize,
    pub level: String,
}

/// The receipts of an answer.
pub(crate) fn receipts(answer: &Answer) -> Vec<Receipt> {
    let value = answer.header("proofload-receipt").unwrap_or_else(|| panic!("a receipt in {answer:?}"));
    let read = |receipt: &str| {
        let field = |name: &str| {
            let fields = receipt.split("; ").filter_map(|field| field.split_once('='));
            let mut found = fields.filter(|(found, _)| *found == name).map(|(_, value)| value);
            found.next().unwrap_or_else(|| panic!("{name} in {receipt}")).trim_matches('"').to_owned()
        };
        let number = |name: &str| field(name).parse().unwrap();
        Receipt {
            segment: field("segment"),
            offset: number("offset"),
            bytes: number("bytes"),
            level: field("level"),
        }
    };
    value.split(", ").map(read).collect()
}
