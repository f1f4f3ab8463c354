//! haproxy: a load balancer.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use serde::{Deserialize, Serialize};
use settings::schema;

use super::{KnownProgram, ProgramContext, words};
use crate::file::keys::{Key, KeyType};

/// A load balancer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Haproxy {
    /// Names and addresses of the hosts that requests are forwarded to.
    pub backends: Vec<(String, IpAddr)>,
    /// Port of the backends; 80 if none.
    pub backend_port: Option<u16>,
    /// Threads; 1 if none.
    pub workers: Option<u32>,
}

impl KnownProgram for Haproxy {
    const NAME: &'static str = "haproxy";
    const PORT: u16 = 80;
    const KEYS: &'static [Key<Self>] = &[
        Key::new("workers", "threads", KeyType::Whole(1..1_025, 1, |own, n| own.workers = Some(n as u32))),
        Key::new(
            "backends",
            "the hosts that requests go to",
            KeyType::Other(
                |what| schema::one_or_more(what, "web"),
                |own, reader, value, names| {
                    for host in names.groups.read_hosts(reader, value) {
                        let name = names.plan.hosts[host].name.clone();
                        match names.plan.address_of(host) {
                            Some(address) => own.backends.push((name, address)),
                            None => reader.mistake(value.span(), format!("'{name}' has no address")),
                        }
                    }
                },
            ),
        ),
        Key::new(
            "backend_port",
            "the port of the backends",
            KeyType::Whole(1..65_536, 80, |own, n| own.backend_port = Some(n as u16)),
        ),
    ];
    const REQUIRED_KEYS: &'static [&'static str] = &["backends"];

    fn set_up(&self, context: &ProgramContext<'_>) -> io::Result<Vec<String>> {
        let mut text = format!(
            "global\n  nbthread {}\n  log stderr format raw local0 warning\n\
             defaults\n  mode http\n  log global\n  option dontlog-normal\n  timeout connect 5s\n  \
             timeout client 60s\n  timeout server 60s\n\
             frontend all\n  bind {}\n  default_backend servers\n\
             backend servers\n  balance roundrobin\n",
            self.workers.unwrap_or(1),
            match context.has_ipv6() {
                true => format!(":::{} v4v6", context.known.port),
                false => format!(":{}", context.known.port),
            }
        );
        for (name, address) in &self.backends {
            let backend = SocketAddr::new(*address, self.backend_port.unwrap_or(80));
            text += &format!("  server {name} {backend}\n");
        }
        Ok(words(&["haproxy", "-db", "-f", &context.write("haproxy.cfg", &text)?]))
    }
}
