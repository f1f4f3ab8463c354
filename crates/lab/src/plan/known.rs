//! The settings of known programs. The module `program` reads them and configures the programs.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

/// A known program and its configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Known {
    /// The program and its own keys.
    pub kind: KnownKind,
    /// Port on which the program listens.
    pub port: u16,
    /// Folder in which a data listener stores events, created if missing. If none, the folder disappears with the lab.
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
    /// Names and addresses of the hosts that receive the requests.
    pub backends: Vec<(String, IpAddr)>,
    /// Port of the backends; 80 if none.
    pub backend_port: Option<u16>,
    /// Threads; 1 if none.
    pub workers: Option<u32>,
    /// Whether each thread gets its own processor. Threads get the last processors that the host may use.
    pub pin: bool,
    /// Whether it forwards TCP connections unchanged instead of HTTP requests.
    pub is_tcp: bool,
    /// Whether it checks that the backends accept connections.
    pub check: bool,
    /// Interval between two checks of a backend; 2 s if none.
    pub check_interval: Option<Duration>,
    /// Number of further attempts to connect to a backend; 3 if none.
    pub retries: Option<u32>,
    /// Whether the last attempt may go to another backend.
    pub redispatch: bool,
    /// Maximum number of concurrent client connections; 10,000 if none, or fewer if its descriptors allow only fewer.
    pub maxconn: Option<u32>,
    /// Length of the queue of connections not yet accepted; the kernel's limit if none.
    pub backlog: Option<u32>,
    /// Value of HAProxy's `http-reuse`: when requests share connections to the backends. HAProxy's default if none.
    pub reuse: Option<String>,
    /// Whether clients must use TLS. The certificate is made for this process, and clients do not know its issuer.
    pub tls: bool,
    /// Addresses in the certificate, in addition to that of the host.
    #[serde(default)]
    pub names: Vec<IpAddr>,
}

/// proofload's own balancer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Balance {
    /// Path of its configuration file; empty if `text` contains the configuration.
    pub config: String,
    /// Its configuration; none if a file contains it.
    #[serde(default)]
    pub text: Option<String>,
}

/// The SSH server of OpenSSH.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sshd {
    /// Limits and authentication.
    pub config: SshdConfig,
}

/// Configuration of an sshd.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SshdConfig {
    /// proofload's configuration: many connections and sessions, its own SFTP server, no PAM.
    #[default]
    Wide,
    /// Debian's default configuration.
    Debian,
}

/// An iperf3 server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Iperf3 {}

/// proofload's own HTTP target.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Serve {}

/// proofload's own data listener.
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
