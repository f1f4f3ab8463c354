//! The configuration of a listener.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use segments::Level;

use crate::tag_pattern::TagPattern;

/// The configuration of a listener. By default it listens on a free port of the loopback interface with one thread,
/// answers with 204 after events are `written`, and stores them by tag and day, like Fluentd's `out_file`.
#[derive(Debug, Clone)]
pub struct Config {
    /// Addresses to listen on; port 0 stands for any free port. May be empty if listening sockets are passed in.
    pub listen: Vec<SocketAddr>,
    /// An additional address for `/health` and `/metrics`, which the data addresses serve too.
    pub admin: Option<SocketAddr>,
    /// How connections are distributed over the threads.
    pub accept: Accept,
    /// Length of the accept queue requested for each listening socket. The kernel caps it at `net.core.somaxconn`.
    pub backlog: u32,
    /// Number of threads, each with its own event loop; at least 1.
    pub threads: u32,
    /// Processors to pin the threads to, round-robin. If empty, threads are not pinned.
    pub cpus: Vec<u32>,
    /// The storage: path, rotation, compression and syncs of the files.
    pub store: segments::Config,
    /// How bodies are parsed.
    pub rules: events::Rules,
    /// How a record is rendered as a line.
    pub format: events::LineFormat,
    /// Prefix of every tag, joined by a dot.
    pub tag_prefix: Option<String>,
    /// Tags to store, including the prefix; `None` stores all. Requests with other tags get a 404 before their body is
    /// read.
    pub tags: Option<TagPattern>,
    /// The level at which a request is answered, unless its route or the request itself names another.
    pub level: Level,
    /// Levels by path. The longest route whose segments are a prefix of the path applies.
    pub routes: Vec<Route>,
    /// The dialect of the answers.
    pub compat: Compat,
    /// Parts of a request that are added to its records; only with [`Compat::Fluentd`].
    pub request_fields: RequestFields,
    /// Limits on sizes and counts.
    pub limits: Limits,
    /// Time limits.
    pub timeouts: Timeouts,
    /// TLS for the data addresses. The admin address never uses TLS.
    pub tls: Option<Tls>,
    /// Accepted credentials; if empty, every client may post.
    pub credentials: Vec<Credential>,
    /// Whether answers have a `Date` header.
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

/// How connections are distributed over the threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Accept {
    /// Each thread has an accept queue (SO_REUSEPORT), and the kernel distributes connections by a hash.
    #[default]
    ReusePort,
    /// All threads share one accept queue (EPOLLEXCLUSIVE). Passed-in sockets are always shared.
    Shared,
}

/// The level for all paths below a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The first segments of the paths, such as `/audit`. Whole segments are compared, after percent-decoding both
    /// sides.
    pub path: String,
    /// The level at which requests to these paths are answered.
    pub level: Level,
}

/// The dialect of the answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Compat {
    /// proofload's dialect: the status tells the outcome, error bodies are JSON, and receipts tell where the events are
    /// stored.
    #[default]
    None,
    /// Answers equal those of Fluentd's `in_http` byte for byte, in all cases that Fluentd has.
    Fluentd {
        /// `cors_allow_origins`: origins from which browsers may post; `*` stands for any.
        cors_allow_origins: Vec<String>,
        /// `cors_allow_credentials`: whether browsers may send credentials.
        cors_allow_credentials: bool,
        /// `respond_with_empty_img`: the answer to success is a GIF of one pixel.
        empty_img: bool,
        /// `use_204_response`: the answer to success is a 204.
        use_204: bool,
    },
}

impl Compat {
    /// Fluentd's dialect with the defaults of `in_http`.
    pub fn fluentd() -> Self {
        Self::Fluentd {
            cors_allow_origins: Vec::new(),
            cors_allow_credentials: false,
            empty_img: false,
            use_204: false,
        }
    }
}

/// Parts of a request that are added to its records, as in Fluentd's `in_http`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestFields {
    /// `add_http_headers`: headers as members `HTTP_NAME`.
    pub http_headers: bool,
    /// `add_query_params`: query parameters as members `QUERY_NAME`.
    pub query_params: bool,
    /// `add_remote_addr`: the client's address as member `REMOTE_ADDR`, or the first address of `X-Forwarded-For` if
    /// the request has that header.
    pub remote_addr: bool,
}

/// Limits on sizes and counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Memory for all requests in flight together: bodies, lines not yet written, the bookkeeping of each request and
    /// the state of its decompressor. A request that exceeds the budget is refused, before its body is read or while its
    /// lines are rendered. During rendering, a body and its lines count only once, so each thread may briefly exceed the
    /// budget by one request.
    pub budget_bytes: u64,
    /// Maximum bytes of a body as sent, without chunk framing.
    pub body_bytes: u64,
    /// Maximum bytes of a compressed body after decompression.
    pub inflated_bytes: u64,
    /// Maximum bytes of a request's head.
    pub head_bytes: u32,
    /// Maximum number of open connections. A further connection is accepted, answered with 503 and closed; with TLS it
    /// is closed without an answer. The admin address has 16 connections in addition. `None` applies the process's
    /// descriptor limit, minus twice [`segments::Config::max_open`] and minus 64 per thread; both subtractions together
    /// take at most half of the descriptors.
    pub connections: Option<u64>,
    /// Maximum number of requests per connection. The last answer has `Connection: close`.
    pub requests_per_connection: Option<u64>,
    /// The status of requests that are refused because the budget is used up: 503 or 429.
    pub overload_status: u16,
    /// The value of `Retry-After`, in seconds. It is in the answers to refusals that may be tried again: 409, 429, 500, 503
    /// and 507, except a 500 for an internal error.
    pub retry_after_s: u32,
    /// Minimum number of idempotency keys to remember; 0 ignores the header.
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

/// Time limits. Zero is invalid for all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    /// Maximum time from a request's first byte to the end of its head. [`Timeouts::idle`] applies before the first
    /// byte.
    pub head: Duration,
    /// Time after which [`Timeouts::body_bytes_per_s`] applies to a body.
    pub body: Duration,
    /// Minimum average rate of a body after [`Timeouts::body`], measured from the body's start.
    pub body_bytes_per_s: u64,
    /// Maximum time without a request, or without progress in sending an answer.
    pub idle: Duration,
    /// Maximum time for storing. After it, the client gets a 503, and its events may or may not be stored.
    pub store: Duration,
    /// Maximum wait of a stopping listener for requests in flight.
    pub drain: Duration,
    /// Maximum time for which received bytes are discarded after the listener has closed a connection.
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

/// PEM files with the server's certificate and key. [`crate::Handle::reload`] reads them again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// The certificate chain, the server's certificate first.
    pub certificates: PathBuf,
    /// The certificate's private key.
    pub key: PathBuf,
}

/// A credential of a client. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub enum Credential {
    /// `Authorization: Bearer TOKEN`.
    Bearer(String),
    /// `Authorization: Basic`, with user and password.
    Basic {
        /// The user's name, without a colon.
        user: String,
        /// The user's password.
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
