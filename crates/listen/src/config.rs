//! The configuration of a listener.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use segments::Level;

use crate::tag_pattern::TagPattern;

/// The configuration of a listener. The default listens on a free port of the loopback interface with one thread,
/// answers `written` events with 204, and stores them by tag and day, as Fluentd's `out_file` does.
#[derive(Debug, Clone)]
pub struct Config {
    /// Addresses to listen on; port 0 means any free port. May be empty if listening sockets are handed in.
    pub listen: Vec<SocketAddr>,
    /// A separate address for `/health` and `/metrics`. The data addresses answer them too.
    pub admin: Option<SocketAddr>,
    /// How connections are spread over the threads.
    pub accept: Accept,
    /// Length of the accept queue requested for each listening socket. The kernel caps it at `net.core.somaxconn`.
    pub backlog: u32,
    /// Number of threads, each with its own event loop; at least 1.
    pub threads: u32,
    /// Processors to pin the threads to, round-robin; if empty, the kernel chooses.
    pub cpus: Vec<u32>,
    /// Where and how lines are stored.
    pub store: segments::Config,
    /// How bodies are read.
    pub rules: events::Rules,
    /// How a record becomes a line.
    pub format: events::LineFormat,
    /// Prefix of every tag, joined by a dot.
    pub tag_prefix: Option<String>,
    /// Tags to store, including the prefix; None stores all. A request with another tag is answered 404 before its
    /// body is read.
    pub tags: Option<TagPattern>,
    /// The level at which a request is answered, unless its route or the request itself names another.
    pub level: Level,
    /// Levels by path. The longest route that is a prefix of the path, compared by segments, applies.
    pub routes: Vec<Route>,
    /// The dialect of the answers.
    pub compat: Compat,
    /// Parts of a request to add to its records; only with [`Compat::Fluentd`].
    pub request_fields: RequestFields,
    /// Limits of sizes and counts.
    pub limits: Limits,
    /// Time limits.
    pub timeouts: Timeouts,
    /// Encrypts the data port; the admin address stays plain.
    pub tls: Option<Tls>,
    /// Credentials that allow posting; if empty, every client may post.
    pub credentials: Vec<Credential>,
    /// Whether answers carry a `Date` header.
    pub date: bool,
}

impl Config {
    /// The defaults, with the given storage.
    pub fn new(store: segments::Config) -> Self {
        Self {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
            admin: None,
            accept: Accept::default(),
            backlog: 4096,
            threads: 1,
            cpus: Vec::new(),
            store,
            rules: events::Rules::default(),
            format: events::LineFormat::OutFile { time: true, tag: true },
            tag_prefix: None,
            tags: None,
            level: Level::Written,
            routes: Vec::new(),
            compat: Compat::None,
            request_fields: RequestFields::default(),
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            tls: None,
            credentials: Vec::new(),
            date: false,
        }
    }
}

/// How connections are spread over the threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Accept {
    /// Every thread has its own accept queue (SO_REUSEPORT); the kernel spreads connections by a hash.
    #[default]
    ReusePort,
    /// All threads share one accept queue (EPOLLEXCLUSIVE). Sockets handed in are always shared.
    Shared,
}

/// The level of all paths below one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The first segments of a path, such as `/audit`. Whole segments are compared, percent-decoded on both sides.
    pub path: String,
    /// The level at which requests to these paths are answered.
    pub level: Level,
}

/// The dialect of the answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Compat {
    /// proofload's own: the status tells the outcome, error bodies are JSON, and receipts tell where the events are stored.
    #[default]
    None,
    /// Answers of Fluentd's `in_http`, byte for byte if Fluentd has the same case.
    Fluentd {
        /// `cors_allow_origins`: origins from which browsers may post; `*` is any origin.
        cors_allow_origins: Vec<String>,
        /// `cors_allow_credentials`.
        cors_allow_credentials: bool,
        /// `respond_with_empty_img`: success is answered with a GIF of one pixel.
        empty_img: bool,
        /// `use_204_response`: success is answered with 204.
        use_204: bool,
    },
}

impl Compat {
    /// Fluentd with its defaults.
    pub fn fluentd() -> Self {
        Self::Fluentd {
            cors_allow_origins: Vec::new(),
            cors_allow_credentials: false,
            empty_img: false,
            use_204: false,
        }
    }
}

/// Parts of a request to add to its records, as Fluentd's `in_http` adds them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestFields {
    /// `add_http_headers`: headers as members `HTTP_NAME`.
    pub http_headers: bool,
    /// `add_query_params`: parameters of the query as members `QUERY_NAME`.
    pub query_params: bool,
    /// `add_remote_addr`: the client's address as member `REMOTE_ADDR`, or the first address of `X-Forwarded-For` if
    /// the request has that header.
    pub remote_addr: bool,
}

/// Limits of sizes and counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Memory that all requests in flight may use together: their bodies, the lines not yet written, the bookkeeping
    /// of each request and the state of its decompressor. A request beyond the budget is refused before its body is
    /// read, or while its lines are made. While lines are made and sorted, a body counts as much as its lines, so
    /// each thread may exceed the budget by one request for a moment.
    pub budget_bytes: u64,
    /// Bytes of a body as sent, without the framing of chunks.
    pub body_bytes: u64,
    /// Bytes of a compressed body after decompression.
    pub inflated_bytes: u64,
    /// Bytes of the head of a request.
    pub head_bytes: u32,
    /// Connections open at the same time. A further connection is accepted, answered 503 and closed; with TLS it is
    /// closed without an answer. The admin address has 16 connections of its own. Without a limit, the process's limit
    /// of descriptors applies, minus twice [`segments::Config::max_open`] and minus 64 per thread; both together take
    /// at most half of the descriptors.
    pub connections: Option<u64>,
    /// Requests per connection; the last answer says `Connection: close`.
    pub requests_per_connection: Option<u64>,
    /// The status of requests refused because the budget is used up: 503 or 429.
    pub overload_status: u16,
    /// The value of `Retry-After` with 429, 503 and 507, in seconds.
    pub retry_after_s: u32,
    /// Number of idempotency keys remembered; 0 ignores the header.
    pub idempotency_keys: usize,
    /// How long an idempotency key is remembered after its request was answered.
    pub idempotency_window: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            budget_bytes: 256 << 20,
            body_bytes: 32 << 20,
            inflated_bytes: 64 << 20,
            head_bytes: 32 << 10,
            connections: None,
            requests_per_connection: None,
            overload_status: 503,
            retry_after_s: 1,
            idempotency_keys: 100_000,
            idempotency_window: Duration::from_secs(300),
        }
    }
}

/// Time limits. None may be zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    /// From a request's first byte to the end of its head. [`Timeouts::idle`] applies until the first byte arrives.
    pub head: Duration,
    /// Time before [`Timeouts::body_bytes_per_s`] applies to a body.
    pub body: Duration,
    /// Minimum average rate of a body after [`Timeouts::body`], measured from the body's start.
    pub body_bytes_per_s: u64,
    /// How long a connection may have no request, or a client may accept no bytes of an answer.
    pub idle: Duration,
    /// How long storing may take. After that, the client is answered 503: its events may or may not be stored.
    pub store: Duration,
    /// How long a stopping listener waits for requests in flight.
    pub drain: Duration,
    /// How long received bytes are discarded after the listener has closed a connection.
    #[doc(hidden)]
    pub linger: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            body: Duration::from_secs(10),
            body_bytes_per_s: 1024,
            idle: Duration::from_secs(75),
            store: Duration::from_secs(30),
            drain: Duration::from_secs(10),
            linger: Duration::from_secs(2),
        }
    }
}

/// PEM files of the server's certificate and key; [`crate::Handle::reload`] reads them again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// The certificate chain, the server's certificate first.
    pub certificates: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// A credential of a client. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub enum Credential {
    /// `Authorization: Bearer TOKEN`.
    Bearer(String),
    /// `Authorization: Basic …`.
    Basic {
        /// The user's name, without a colon.
        user: String,
        /// The password.
        password: String,
    },
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bearer(_) => f.write_str("Bearer(…)"),
            Self::Basic { user, .. } => f.debug_struct("Basic").field("user", user).finish_non_exhaustive(),
        }
    }
}
