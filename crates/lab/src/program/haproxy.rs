//! HAProxy, a load balancer.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use rustix::{
    process::{Resource, getrlimit},
    thread::sched_getaffinity,
};
use settings::schema;
use tls::{Authority, Validity};

use super::{Haproxy, KnownProgram, ProgramContext, words};
use crate::keys::{Key, KeyType, key_table};

/// Values of HAProxy's `http-reuse`, which decides when requests share connections to the backends.
const REUSE: [&str; 4] = ["safe", "always", "aggressive", "never"];

/// Default maximum number of concurrent client connections.
const MAX_CONNECTIONS: u32 = 10_000;
/// Number of descriptors that HAProxy needs for listeners, checks and threads.
const OTHER_DESCRIPTORS: u64 = 200;

impl Haproxy {
    /// Maximum number of concurrent client connections for a process with this many descriptors: each connection takes
    /// two. If `descriptors` is none, the limit of this process applies.
    pub(crate) fn most_connections(descriptors: Option<u64>) -> u32 {
        let descriptors = descriptors.or(getrlimit(Resource::Nofile).maximum).unwrap_or(1 << 20);
        u32::try_from(descriptors.saturating_sub(OTHER_DESCRIPTORS) / 2).unwrap_or(u32::MAX)
    }

    /// The keys of HAProxy in a lab file.
    pub(crate) fn keys() -> &'static [Key<Self>] {
        Self::KEYS
    }

    /// The name of the abstract socket for HAProxy's statistics, in its host's network. It contains the name of the
    /// process.
    pub fn statistics_socket(process: &str) -> String {
        format!("proofload-{process}")
    }

    /// The configuration lines that pin HAProxy's threads.
    fn pinning(&self, context: &ProgramContext<'_>) -> io::Result<String> {
        let threads = self.workers.unwrap_or(1) as usize;
        let cpus = match &context.plan.hosts[context.process.host].cpus {
            Some(cpus) => cpus.clone(),
            None => {
                let allowed = sched_getaffinity(None)?;
                (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect()
            }
        };
        let cpus: Vec<String> = cpus.iter().rev().take(threads).rev().map(usize::to_string).collect();
        match self.pin && cpus.len() == threads {
            true => Ok(format!("  cpu-map auto:1/1-{threads} {}\n", cpus.join(" "))),
            false => Ok(String::new()),
        }
    }

    /// The options that follow the port in a `bind` line.
    fn bind_options(&self, context: &ProgramContext<'_>) -> io::Result<String> {
        let mut options = String::new();
        if let Some(backlog) = self.backlog {
            options += &format!(" backlog {backlog}");
        }
        if self.tls {
            let address = context.plan.address_of(context.process.host);
            let names: Vec<String> = self.names.iter().chain(&address).map(IpAddr::to_string).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let identity = Authority::new("proofload")
                .and_then(|authority| authority.certify(&names, Validity::default()))
                .map_err(io::Error::other)?;
            let file = context.write("haproxy.pem", &identity.pem())?;
            // With shared keys, processes accept each other's session tickets, as threads do. HAProxy requires three
            // keys of 48 bytes.
            let keys: String = ["A", "B", "C"].map(|letter| letter.repeat(64) + "\n").concat();
            let tickets = context.write("tickets", &keys)?;
            options += &format!(" ssl crt {file} tls-ticket-keys {tickets} alpn http/1.1");
        }
        Ok(options)
    }
}

impl KnownProgram for Haproxy {
    const NAME: &'static str = "haproxy";
    const PORT: u16 = 80;
    const KEYS: &'static [Key<Self>] = key_table! {
        /// threads
        "workers", KeyType::Whole(1..65, 1, |proxy, n| proxy.workers = Some(n as u32));
        /// the hosts that requests go to
        "backends", KeyType::Other(
            |what| schema::one_or_more(what, "web"),
            |proxy, reader, value, names| {
                for host in names.groups.read_hosts(reader, value) {
                    let name = names.plan.hosts[host].name.clone();
                    match names.plan.address_of(host) {
                        Some(address) => proxy.backends.push((name, address)),
                        None => reader.mistake(value.span(), format!("'{name}' has no address")),
                    }
                }
            },
        );
        /// the port of the backends
        "backend_port", KeyType::Whole(1..65_536, 80, |proxy, n| proxy.backend_port = Some(n as u16));
        /// whether each thread has a processor of its own (cpu-map)
        "pin", KeyType::Flag(|proxy, is| proxy.pin = is);
        /// whether it forwards requests or connections
        "mode", KeyType::Choice(&["http", "tcp"], |proxy, index| proxy.is_tcp = index == 1);
        /// whether it checks that the servers accept connections
        "check", KeyType::Flag(|proxy, is| proxy.check = is);
        /// time between two checks of a server
        "check_interval", KeyType::Time("2s", |proxy, time| proxy.check_interval = Some(time));
        /// how often it tries again to connect to a server
        "retries", KeyType::Whole(0..101, 3, |proxy, n| proxy.retries = Some(n as u32));
        /// whether the last attempt may go to another server
        "redispatch", KeyType::Flag(|proxy, is| proxy.redispatch = is);
        /// most connections of clients at once; 10,000 unless given, or as many as its descriptors allow
        "maxconn", KeyType::Whole(1..1 << 31, 10_000, |proxy, n| proxy.maxconn = Some(n as u32));
        /// length of the queue of connections not yet accepted
        "backlog", KeyType::Whole(1..1 << 31, 4096, |proxy, n| proxy.backlog = Some(n as u32));
        /// when requests share connections to the servers (http-reuse)
        "reuse", KeyType::Choice(&REUSE, |proxy, index| proxy.reuse = Some(REUSE[index].to_owned()));
        /// whether clients must use TLS; the certificate is made for it
        "tls", KeyType::Flag(|proxy, is| proxy.tls = is);
    };
    const REQUIRED_KEYS: &'static [&'static str] = &["backends"];

    fn set_up(&self, context: &ProgramContext<'_>) -> io::Result<Vec<String>> {
        let most = Self::most_connections(context.process.descriptors);
        let maxconn = self.maxconn.unwrap_or(MAX_CONNECTIONS.min(most));
        if maxconn > most {
            let text =
                format!("maxconn = {maxconn} needs more descriptors than HAProxy has; give at most {most}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let port = context.known.port;
        let bind = if context.has_ipv6() { format!(":::{port} v4v6") } else { format!(":{port}") };
        let mode = if self.is_tcp { "tcp" } else { "http" };
        let mut text = format!(
            "global\n  nbthread {threads}\n{pinning}  maxconn {maxconn}\n  log stderr format raw local0 warning\n  \
             stats socket abns@{statistics} level admin\n\
             defaults\n  mode {mode}\n  maxconn {maxconn}\n  log global\n  option dontlog-normal\n  \
             retries {retries}\n  timeout connect 30s\n  timeout client 150s\n  timeout server 150s\n\
             frontend all\n  bind {bind}{options}\n  default_backend servers\n\
             backend servers\n  balance roundrobin\n",
            threads = self.workers.unwrap_or(1),
            pinning = self.pinning(context)?,
            statistics = Self::statistics_socket(&context.process.name),
            retries = self.retries.unwrap_or(3),
            options = self.bind_options(context)?,
        );
        if self.redispatch {
            text += "  option redispatch\n";
        }
        if let (Some(reuse), false) = (&self.reuse, self.is_tcp) {
            text += &format!("  http-reuse {reuse}\n");
        }
        let check = match (self.check, self.check_interval) {
            (false, _) => String::new(),
            (true, None) => " check".to_owned(),
            (true, Some(interval)) => format!(" check inter {}ms", interval.as_millis()),
        };
        for (name, address) in &self.backends {
            let backend = SocketAddr::new(*address, self.backend_port.unwrap_or(80));
            text += &format!("  server {name} {backend}{check}\n");
        }
        Ok(words(&["haproxy", "-db", "-f", &context.write("haproxy.cfg", &text)?]))
    }
}
