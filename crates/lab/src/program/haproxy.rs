//! haproxy: a load balancer.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use serde::{Deserialize, Serialize};
use settings::schema;

use super::{KnownProgram, Place, words};
use crate::file::keys::{Key, Takes};

/// A load balancer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Haproxy {
    /// Where requests go: names and addresses of hosts.
    pub backends: Vec<(String, IpAddr)>,
    /// Their port; 80 if none.
    pub backend_port: Option<u16>,
    /// Threads; 1 if none.
    pub workers: Option<u32>,
}

impl KnownProgram for Haproxy {
    const NAME: &'static str = "haproxy";
    const PORT: u16 = 80;
    const KEYS: &'static [Key<Self>] = &[
        Key::new("workers", "threads", Takes::Whole(1..1_025, 1, |own, n| own.workers = Some(n as u32))),
        Key::new(
            "backends",
            "the hosts that requests go to",
            Takes::Other(
                |what| schema::one_or_more(what, "web"),
                |own, reader, value, scene| {
                    for host in scene.groups.list(reader, value) {
                        let name = scene.plan.hosts[host].name.clone();
                        match scene.plan.address_of(host) {
                            Some(address) => own.backends.push((name, address)),
                            None => reader.mistake(value.span(), format!("'{name}' has no address")),
                        }
                    }
                },
            ),
        ),
        Key::new(
            "backend_port",
            "their port",
            Takes::Whole(1..65_536, 80, |own, n| own.backend_port = Some(n as u16)),
        ),
    ];
    const NEEDS: &'static [&'static str] = &["backends"];

    fn set_up(&self, place: &Place<'_>) -> io::Result<Vec<String>> {
        let mut text = format!(
            "global\n  nbthread {}\n  log stderr format raw local0 warning\n\
             defaults\n  mode http\n  log global\n  option dontlog-normal\n  timeout connect 5s\n  \
             timeout client 60s\n  timeout server 60s\n\
             frontend all\n  bind {}\n  default_backend servers\n\
             backend servers\n  balance roundrobin\n",
            self.workers.unwrap_or(1),
            match place.has_ipv6() {
                true => format!(":::{} v4v6", place.known.port),
                false => format!(":{}", place.known.port),
            }
        );
        for (name, address) in &self.backends {
            let backend = SocketAddr::new(*address, self.backend_port.unwrap_or(80));
            text += &format!("  server {name} {backend}\n");
        }
        Ok(words(&["haproxy", "-db", "-f", &place.write("haproxy.cfg", &text)?]))
    }
}
