//! What the listener is told to do.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use segments::Level;

use crate::import::TagPattern;

/// What the listener does. The default listens on any free port of the loopback with one thread, answers
/// `written` events with 204, and stores them as Fluentd's `out_file` does, by tag and day.
#[derive(Debug, Clone)]
pub struct Config {
    /// Addresses to listen on; port 0 is any free one. May be empty if sockets are handed in.
    pub listen: Vec<SocketAddr>,
    /// An address of its own for `/health` and `/metrics`, which the others answer too.
    pub admin: Option<SocketAddr>,
    /// How threads get their connections.
    pub accept: Accept,
    /// Length of the accept queue asked of the kernel, for each listening socket. The kernel caps it at
    /// `net.core.somaxconn`.
    pub backlog: u32,
    /// Threads, each with its own loop; at least 1.
    pub threads: u32,
    /// Processors that the threads are pinned to, in turn; empty leaves it to the kernel.
    pub cpus: Vec<u32>,
    /// Where and how lines are stored.
    pub store: segments::Config,
    /// How bodies are read.
    pub rules: events::Rules,
    /// How a record becomes a line.
    pub format: events::LineFormat,
    /// Goes before every tag, joined by a dot.
    pub tag_prefix: Option<String>,
    /// Tags that are stored, the prefix included; requests with others are answered 404 before their body is
    /// read. None stores all.
    pub tags: Option<TagPattern>,
    /// When a request is answered, unless its route or the request itself says otherwise.
    pub level: Level,
    /// Levels of paths: the longest that is a path's beginning, segment by segment, holds.
    pub routes: Vec<Route>,
    /// Whose answers are given.
    pub compat: Compat,
    /// What of the request goes into its records; only with [`Compat::Fluentd`].
    pub request_fields: RequestFields,
    /// Bounds in bytes and numbers.
    pub limits: Limits,
    /// Bounds in time.
    pub timeouts: Timeouts,
    /// Encrypts the data port; the admin address stays plain.
    pub tls: Option<Tls>,
    /// Who may post; empty is everybody.
    pub credentials: Vec<Credential>,
    /// Answers carry a `Date`.
    pub date: bool,
}

impl Config {
    /// Everything by default, but for where lines are stored.
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

/// How threads get their connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Accept {
    /// Every thread has an accept queue of its own (SO_REUSEPORT); the kernel spreads connections over them
    /// by a hash.
    #[default]
    ReusePort,
    /// All threads share one accept queue (EPOLLEXCLUSIVE). Sockets handed in are always shared.
    Shared,
}

/// The level of the paths under one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The beginning of a path, such as `/audit`; whole segments, percent-decoded on both sides.
    pub path: String,
    /// When requests there are answered.
    pub level: Level,
}

/// Whose answers are given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Compat {
    /// Our own: the status says what happened, bodies of errors are JSON, receipts say where events lie.
    #[default]
    None,
    /// Those of Fluentd's `in_http`, byte for byte where it has the same case.
    Fluentd {
        /// `cors_allow_origins`: origins that browsers may post from; `*` is any.
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

/// What of a request goes into its records, as Fluentd's `in_http` puts it there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestFields {
    /// `add_http_headers`: headers as members `HTTP_NAME`.
    pub http_headers: bool,
    /// `add_query_params`: parameters of the query as members `QUERY_NAME`.
    pub query_params: bool,
    /// `add_remote_addr`: the client's address as member `REMOTE_ADDR`; the first of `X-Forwarded-For` if
    /// that is sent.
    pub remote_addr: bool,
}

/// Bounds in bytes and numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of bodies being read and of lines not yet written, of all threads together, with what is kept of
    /// each request and what undoing compression takes. Requests beyond are refused before their body is read,
    /// or while their lines are made. A body counts as its lines while they are made and put in order, so that
    /// each thread may be beyond it by one request for a moment.
    pub budget_bytes: u64,
    /// A body as sent, without the framing of chunks.
    pub body_bytes: u64,
    /// A compressed body after inflating.
    pub inflated_bytes: u64,
    /// The head of a request.
    pub head_bytes: u32,
    /// Connections open at once; further ones are accepted, told 503 and closed, or only closed where that
    /// would have to be encrypted. The admin address has 16 of its own. Without a limit the descriptors of the
    /// process are one, but for twice [`segments::Config::open_most`] and 64 a thread, though no more than half of
    /// them.
    pub connections: Option<u64>,
    /// Requests that a connection may carry; the last answer says `Connection: close`.
    pub requests_per_connection: Option<u64>,
    /// The status of requests refused for want of budget: 503 or 429.
    pub overload_status: u16,
    /// What `Retry-After` says with 429, 503 and 507, in seconds.
    pub retry_after_s: u32,
    /// Idempotency keys remembered; 0 ignores the header.
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

/// Bounds in time. None may be zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    /// From a request's first byte to the end of its head. A connection that has sent nothing has the time of
    /// [`Timeouts::idle`].
    pub head: Duration,
    /// Grace of a body before [`Timeouts::body_bytes_per_s`] counts.
    pub body: Duration,
    /// The least rate of a body, on average from its start, after the grace.
    pub body_bytes_per_s: u64,
    /// How long a connection may be without a request, and an answer not be taken.
    pub idle: Duration,
    /// How long storing may take before the client is told that it is not known whether its events are
    /// stored (503).
    pub store: Duration,
    /// How long requests in flight are waited for at a stop.
    pub drain: Duration,
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
        }
    }
}

/// Files of the server's identity, in PEM; read anew by [`crate::Handle::reload`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// The certificate and those between it and a trusted one.
    pub certificates: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// What a client proves itself with. Not shown when printed.
#[derive(Clone, PartialEq, Eq)]
pub enum Credential {
    /// `Authorization: Bearer TOKEN`.
    Bearer(String),
    /// `Authorization: Basic …`.
    Basic {
        /// The name; no colon.
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
