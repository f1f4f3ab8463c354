//! The configuration of a target.

use std::{net::SocketAddr, path::PathBuf};

use record::{Distribution, text::encoding};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{misbehave::Misbehaviour, security::Tls};

/// The configuration of a target. The default is the embedded target: status `200` with 13 bytes at once, one thread,
/// a free port of the loopback interface.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Addresses to listen on; port 0 means any free port.
    pub listen: Vec<SocketAddr>,
    /// Whether other processes may listen on the same addresses (SO_REUSEPORT); the kernel spreads connections over them.
    pub reuse_port: bool,
    /// The body of an answer.
    pub body: Body,
    /// Size of the chunks in which the body is sent, in bytes; without it, the body has a Content-Length. HTTP/1.0
    /// clients always get a Content-Length, because they do not know chunks.
    pub chunk_bytes: Option<u64>,
    /// Status of an answer, 200 to 599. With 204 and 304 there is no body.
    pub status: u16,
    /// Delay from the last byte of a request, or from the end of its service, to the answer.
    pub delay: Distribution,
    /// Limited servers behind a queue; without it, every request is served at once.
    pub capacity: Option<Capacity>,
    /// Times at which the target stalls.
    pub stall: Option<Stall>,
    /// Share of the requests (0 to 1) that get each kind of misbehaviour; the sum is at most 1.
    pub misbehave: Vec<(Misbehaviour, f64)>,
    /// Status of the misbehaviour `error`, 200 to 599.
    pub error_status: u16,
    /// Time over which the head of an answer is sent in small pieces, in nanoseconds; 0 sends it at once.
    pub slow_head_ns: u64,
    /// Maximum number of open connections in this process; further ones are accepted and reset.
    pub max_connections: Option<u64>,
    /// Length of the accept queue requested for each listener; every thread has one listener per address. The kernel
    /// caps it at `net.core.somaxconn`.
    pub backlog: u32,
    /// Requests per connection; the last answer says `Connection: close`.
    pub keepalive_requests: Option<u64>,
    /// A connection that waits for a request, or for more of one, is closed after this time without a byte, in nanoseconds.
    pub keepalive_timeout_ns: Option<u64>,
    /// Number of threads, each with its own listeners and event loop.
    pub threads: u32,
    /// Processors to pin the threads to, round-robin; if empty, the kernel chooses.
    pub cpus: Vec<u32>,
    /// Seed of all random numbers. Processes that run together need different seeds.
    pub seed: u64,
    /// Time after which the target stops, in nanoseconds.
    pub duration_ns: Option<u64>,
    /// Encrypts all addresses.
    pub tls: Option<Tls>,
    /// Pages at known paths, which answer what they are asked; other paths get the configured answer.
    pub pages: Option<Pages>,
    /// Writes down every complete request.
    pub record: Option<Record>,
}

/// Pages at known paths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Pages {
    /// Time from a login to the end of its token, in nanoseconds.
    pub token_lifetime_ns: u64,
}

/// Where requests are written down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The file; what it held is lost.
    pub file: PathBuf,
    /// Maximum number of bytes of a body that are written down.
    pub body_bytes: u64,
}

impl Default for Pages {
    fn default() -> Self {
        Self { token_lifetime_ns: 60_000_000_000 }
    }
}

/// The body of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    /// This number of bytes: `proofload-serve` and a line feed, repeated.
    Size(u64),
    /// These bytes, serialized as base64, because they need not be text.
    Bytes(
        #[serde(with = "encoding")]
        #[schemars(with = "String")]
        Vec<u8>,
    ),
}

/// Limited servers behind a queue; the queue is shared by all threads of the process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Capacity {
    /// Number of servers: requests served at the same time.
    pub servers: u32,
    /// Service time of a request.
    pub service_time: Distribution,
    /// Maximum number of waiting requests; unbounded if not given.
    pub queue: Option<u64>,
    /// What happens to a request that finds the queue full.
    pub when_full: WhenFull,
}

/// What becomes of a request that finds the queue full.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhenFull {
    /// It is answered with 503 at once.
    #[default]
    Reject,
    /// Its connection is closed (FIN).
    Close,
    /// Its connection is reset (RST).
    Reset,
    /// It is never answered; its connection stays open.
    Ignore,
}

/// A repeated stall: nothing is accepted, read or written in the last `for_ns` of each `every_ns`. Periods count from
/// the start of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stall {
    /// Length of a period, in nanoseconds.
    pub every_ns: u64,
    /// Length of the stall at the end of each period, in nanoseconds; less than the period.
    pub for_ns: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
            reuse_port: false,
            body: Body::Size(13),
            chunk_bytes: None,
            status: 200,
            delay: Distribution::Fixed { ns: 0 },
            capacity: None,
            stall: None,
            misbehave: Vec::new(),
            error_status: 503,
            slow_head_ns: 0,
            max_connections: None,
            backlog: 4096,
            keepalive_requests: None,
            keepalive_timeout_ns: None,
            threads: 1,
            cpus: Vec::new(),
            seed: 1,
            duration_ns: None,
            tls: None,
            pages: None,
            record: None,
        }
    }
}

impl Body {
    /// Size of the body in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Size(bytes) => *bytes,
            Self::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// Whether the body is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_is_written_and_read_back() {
        let config = Config {
            body: Body::Bytes(vec![0, 255, 10]),
            misbehave: vec![(Misbehaviour::HugeHead, 0.25)],
            stall: Some(Stall { every_ns: 10, for_ns: 1 }),
            ..Config::default()
        };
        let json = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<Config>(&json).unwrap(), config);
        assert_eq!(serde_json::from_str::<Config>("{\"status\":404}").unwrap().status, 404);
        assert!(serde_json::from_str::<Config>("{\"satus\":404}").is_err());
    }
}
