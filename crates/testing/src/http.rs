//! An HTTP/1.1 client that distinguishes all outcomes: the answer, the bytes in place of an answer, and the end of the
//! connection. It shares no code with the tested program.

use std::{
    fmt,
    io::{self, ErrorKind, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    num::ParseIntError,
    time::Duration,
};

use serde_json::Value;

use crate::PATIENCE;

/// Maximum size of an answer's head, in bytes. A longer head is not an answer.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// An answer as received.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// Its status; 0 if there was no answer.
    pub status: u16,
    /// The bytes from the status line to the empty line.
    pub head: String,
    /// The bytes after the head, without the framing of chunks.
    pub body: Vec<u8>,
    /// Number of bytes in the framing of chunks.
    pub framing_bytes: usize,
}

impl Answer {
    /// An answer with this head and this body.
    pub fn new(head: String, body: Vec<u8>) -> Self {
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        Self { status, head, body, framing_bytes: 0 }
    }

    /// The value of a header field; ignores the case of its name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Head and body as text.
    pub fn whole(&self) -> String {
        self.head.clone() + &self.text()
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// When the body is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The places at which a listener says that it stored the events.
    ///
    /// # Panics
    /// When the answer has no receipt.
    pub fn receipts(&self) -> Vec<Receipt> {
        let value = self.header("proofload-receipt").unwrap_or_else(|| panic!("a receipt in {self:?}"));
        let read = |receipt: &str| {
            let field = |name: &str| {
                let mut fields = receipt.split("; ").filter_map(|field| field.split_once('='));
                let found = fields.find(|(found, _)| *found == name);
                found.map_or_else(String::new, |(_, value)| value.trim_matches('"').to_owned())
            };
            let number = |name: &str| field(name).parse().unwrap_or(0);
            Receipt {
                segment: field("segment"),
                offset: number("offset"),
                bytes: number("bytes"),
                level: field("level"),
            }
        };
        value.split(", ").map(read).collect()
    }
}

/// A receipt as in its header. Missing members are empty or 0.
#[derive(Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the header")]
pub struct Receipt {
    pub segment: String,
    pub offset: usize,
    pub bytes: usize,
    pub level: String,
}

/// What arrived in place of a whole answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoAnswer {
    /// FIN, after this number of bytes since the last answer.
    Fin(usize),
    /// RST.
    Reset,
    /// No more bytes within the timeout.
    Nothing,
    /// Bytes that cannot be the beginning of an answer.
    Wrong(Vec<u8>),
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no whole answer: {self:?}")
    }
}

impl std::error::Error for NoAnswer {}

/// A client's connection.
#[derive(Debug)]
pub struct Client {
    /// The connection, for bytes that are neither a request nor an answer.
    pub socket: TcpStream,
    unread: Vec<u8>,
    is_head: bool,
}

impl Client {
    /// Opens a connection. Each of its operations may take up to [`PATIENCE`].
    ///
    /// # Errors
    /// When the connection is not accepted.
    pub fn connect(to: impl ToSocketAddrs) -> io::Result<Self> {
        let mut client = Self { socket: TcpStream::connect(to)?, unread: Vec::new(), is_head: false };
        client.socket.set_nodelay(true)?;
        client.timeout(PATIENCE);
        Ok(client)
    }

    /// Sets the longest wait of all later operations.
    pub fn timeout(&mut self, timeout: Duration) -> &mut Self {
        self.socket.set_read_timeout(Some(timeout)).expect("a time above 0");
        self.socket.set_write_timeout(Some(timeout)).expect("a time above 0");
        self
    }

    /// Sends bytes. Panics if they cannot be sent.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.is_head = bytes.as_ref().starts_with(b"HEAD ");
        self.socket.write_all(bytes.as_ref()).expect("the server takes what is sent");
        self
    }

    /// The next answer, or what arrived in its place. An answer without a length ends with the connection.
    pub fn try_answer(&mut self) -> Result<Answer, NoAnswer> {
        let (mut buffer, mut has_ended) = ([0; 64 << 10], false);
        loop {
            if let Some((answer, used)) = parse(&self.unread, self.is_head, has_ended)? {
                self.unread.drain(..used);
                return Ok(answer);
            }
            match self.socket.read(&mut buffer) {
                Ok(0) if has_ended => return Err(NoAnswer::Fin(self.unread.len())),
                Ok(received) => {
                    has_ended = received == 0;
                    self.unread.extend_from_slice(&buffer[..received]);
                }
                Err(error) => match error.kind() {
                    ErrorKind::ConnectionReset => return Err(NoAnswer::Reset),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => return Err(NoAnswer::Nothing),
                    ErrorKind::Interrupted => {}
                    _ => panic!("{error}"),
                },
            }
        }
    }

    /// The next answer.
    ///
    /// # Panics
    /// When something else arrives.
    #[track_caller]
    pub fn answer(&mut self) -> Answer {
        self.try_answer()
            .unwrap_or_else(|instead| panic!("{instead}; {}", String::from_utf8_lossy(&self.unread)))
    }

    /// Sends a request and returns the answer, or an empty answer if the server closes the connection instead. The
    /// request need not be sent completely, because a server may answer earlier.
    ///
    /// # Errors
    /// When the server neither answers nor closes the connection.
    pub fn ask(&mut self, request: &[u8]) -> io::Result<Answer> {
        self.is_head = request.starts_with(b"HEAD ");
        let _ = self.socket.write_all(request);
        match self.try_answer() {
            Ok(answer) => Ok(answer),
            Err(NoAnswer::Fin(0) | NoAnswer::Reset) => Ok(Answer::default()),
            Err(instead) => Err(io::Error::other(instead)),
        }
    }

    /// Posts JSON and returns the answer.
    #[track_caller]
    pub fn post(&mut self, path: &str, body: impl AsRef<[u8]>) -> Answer {
        self.post_with(path, "", body)
    }

    /// Posts with further header fields, each with its line break, and returns the answer.
    #[track_caller]
    pub fn post_with(&mut self, path: &str, headers: &str, body: impl AsRef<[u8]>) -> Answer {
        self.send(post_json(path, headers, body.as_ref())).answer()
    }

    /// Sends a GET request for a path and returns the answer.
    #[track_caller]
    pub fn get(&mut self, path: &str) -> Answer {
        self.send(get(path)).answer()
    }

    /// Whether the server closes the connection within the timeout, without a reset and without further bytes.
    pub fn is_closed(&mut self) -> bool {
        self.try_answer() == Err(NoAnswer::Fin(0))
    }
}

/// Sends a request on a new connection, like [`Client::ask`].
///
/// # Errors
/// When the connection is not accepted, or when the server neither answers nor closes it in time.
pub fn exchange(to: impl ToSocketAddrs, request: &[u8]) -> io::Result<Answer> {
    Client::connect(to)?.ask(request)
}

/// The bytes of a GET request.
pub fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").into_bytes()
}

/// The bytes of a POST request with further header fields, each with its line break.
pub fn post(path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n{headers}\r\n");
    [head.as_bytes(), body].concat()
}

/// Like [`post`], with JSON as the content type unless the header fields contain another one.
pub fn post_json(path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let has_type = headers.to_ascii_lowercase().contains("content-type:");
    post(
        path,
        &format!("{headers}{}", if has_type { "" } else { "Content-Type: application/json\r\n" }),
        body,
    )
}

/// The answer at the beginning of these bytes, and its length; `None` while the answer is incomplete.
fn parse(bytes: &[u8], is_head: bool, has_ended: bool) -> Result<Option<(Answer, usize)>, NoAnswer> {
    const START: &[u8] = b"HTTP/1.";
    let wrong = || NoAnswer::Wrong(bytes.to_vec());
    let end = bytes.windows(4).take(MAX_HEAD_BYTES).position(|four| four == b"\r\n\r\n");
    let is_start = bytes.iter().zip(START).all(|(byte, expected)| byte == expected);
    if !is_start || (end.is_none() && bytes.len() > MAX_HEAD_BYTES) {
        return Err(wrong());
    }
    let Some(end) = end else { return Ok(None) };
    let (head, rest) = bytes.split_at(end + 4);
    let answer = Answer::new(String::from_utf8_lossy(head).into_owned(), Vec::new());
    let length = answer.header("content-length").map(|length| length.parse().map_err(|_| wrong()));
    let length = length.transpose()?.or(has_ended.then_some(rest.len()));
    let found = if is_head || matches!(answer.status, 100..200 | 204 | 304) {
        Some((Vec::new(), 0))
    } else if answer.header("transfer-encoding") == Some("chunked") {
        chunks(rest).map_err(|_| wrong())?
    } else {
        length.and_then(|length| Some((rest.get(..length)?.to_vec(), length)))
    };
    Ok(found.map(|(body, used)| {
        let framing_bytes = used - body.len();
        (Answer { body, framing_bytes, ..answer }, head.len() + used)
    }))
}

/// The content of these chunks, and their length with the framing; `None` while they are incomplete.
fn chunks(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, ParseIntError> {
    let (mut parts, mut at) = (Vec::new(), 0);
    while let Some(line) = bytes[at..].windows(2).position(|two| two == b"\r\n") {
        let size = usize::from_str_radix(&String::from_utf8_lossy(&bytes[at..at + line]), 16)?;
        let begin = at + line + 2;
        at = begin + size + 2;
        if at > bytes.len() {
            break;
        }
        parts.push(&bytes[begin..begin + size]);
        if size == 0 {
            return Ok(Some((parts.concat(), at)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A client that has sent a request to a server, which sent these bytes and then closed the connection.
    fn told(answer: &'static [u8]) -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = Client::connect(listener.local_addr().unwrap()).unwrap();
        client.send(get("/"));
        let (mut server, _) = listener.accept().unwrap();
        server.read_exact(&mut vec![0; get("/").len()]).unwrap();
        server.write_all(answer).unwrap();
        client
    }

    #[test]
    fn answers_are_taken_apart() {
        let mut client =
            told(b"HTTP/1.1 503 No\r\nretry-after: 7\r\nContent-Length: 2\r\n\r\nabHTTP/1.1 204 \r\n\r\n");
        let answer = client.answer();
        assert_eq!(
            (answer.status, answer.header("Retry-After"), answer.text().as_str()),
            (503, Some("7"), "ab")
        );
        assert_eq!((client.answer().status, client.is_closed()), (204, true));
        assert_eq!(told(b"HTTP/1.1 200 OK\r\n\r\nto the end").answer().text(), "to the end");
        let chunked = told(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n1\r\n\n\r\n0\r\n\r\n",
        );
        assert_eq!({ chunked }.answer().framing_bytes, 15);
    }

    #[test]
    fn what_comes_instead_is_named() {
        for (bytes, instead) in [
            (&b""[..], NoAnswer::Fin(0)),
            (b"HTTP/1.1 200 OK\r\n", NoAnswer::Fin(17)),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na", NoAnswer::Fin(39)),
            (b"HTTP/2", NoAnswer::Wrong(b"HTTP/2".to_vec())),
        ] {
            assert_eq!(told(bytes).try_answer(), Err(instead));
        }
        assert_eq!(told(b"").ask(&get("/")).unwrap(), Answer::default());
    }
}
