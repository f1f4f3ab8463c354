//! The settings of known programs. The module `program` reads them and acts on them.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

/// A known program and its configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Known {
    /// The program and its own keys.
    pub kind: KnownKind,
    /// Port on which the program listens.
    pub port: u16,
    /// Folder in which a data listener stores events, created if missing. If none, the listener uses a folder that disappears with the lab.
    pub store: Option<PathBuf>,
    /// Arguments appended to the command line.
    pub args: Vec<String>,
}

/// A known program with its own keys.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "their types say what they are")]
pub enum KnownKind {
    Nginx(Nginx),
    Haproxy(Haproxy),
    Balance(Balance),
    Sshd(Sshd),
    Iperf3(Iperf3),
    Serve(Serve),
    Listen(Listen),
    Socat(Socat),
}

/// A web server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Nginx {
    /// Files to serve, by path and size in bytes.
    pub files: Vec<(String, u64)>,
    /// Whether nginx is a data listener, which logs the body of every request as a line and answers 204.
    pub log_bodies: bool,
    /// Length of the queue of connections not yet accepted; 4096 if none.
    pub backlog: Option<u32>,
    /// Worker processes; 1 if none.
    pub workers: Option<u32>,
}

/// A load balancer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Haproxy {
    /// Names and addresses of the hosts that requests are forwarded to.
    pub backends: Vec<(String, IpAddr)>,
    /// Port of the backends; 80 if none.
    pub backend_port: Option<u16>,
    /// Threads; 1 if none.
    pub workers: Option<u32>,
    /// Whether each thread gets its own processor, from the last ones that the host may use.
    pub pin: bool,
    /// Whether it forwards TCP connections unchanged, instead of requests.
    pub is_tcp: bool,
    /// Whether it checks that the backends accept connections.
    pub check: bool,
    /// Interval between two checks of a backend; 2 s if none.
    pub check_interval: Option<Duration>,
    /// Number of further attempts to connect to a backend; 3 if none.
    pub retries: Option<u32>,
    /// Whether the last attempt may go to another backend.
    pub redispatch: bool,
    /// Maximum number of client connections at once; 10,000 if none, or as many as its descriptors allow.
    pub maxconn: Option<u32>,
    /// Length of the queue of connections not yet accepted; that of the kernel if none.
    pub backlog: Option<u32>,
    /// When requests share connections to the backends, as a value of HAProxy's `http-reuse`; HAProxy's default if none.
    pub reuse: Option<String>,
    /// Whether clients must use TLS. The certificate is made for this process; clients do not know the authority that signs it.
    pub tls: bool,
    /// Addresses that the certificate is for, in addition to that of the host.
    #[serde(default)]
    pub names: Vec<IpAddr>,
}

/// Our own balancer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Balance {
    /// Path of its configuration file; empty if `text` is the configuration.
    pub config: String,
    /// Its configuration; none if it is in a file.
    #[serde(default)]
    pub text: Option<String>,
}

/// The server of OpenSSH.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sshd {
    /// Limits and authentication.
    pub config: SshdConfig,
}

/// How an sshd is configured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SshdConfig {
    /// Our configuration: many connections and sessions, its own SFTP server, no PAM.
    #[default]
    Wide,
    /// Debian's default configuration.
    Debian,
}

/// A server of iperf3.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Iperf3 {}

/// Our own target.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Serve {}

/// Our own data listener.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Listen {
    /// Length of the queue of connections not yet accepted; the listener's default if none.
    pub backlog: Option<u32>,
}

/// A sink that discards bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Socat {
    /// Bytes per read; 8 KiB if none.
    pub block: Option<u64>,
}
