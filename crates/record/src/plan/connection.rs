//! How connections are opened, and how long they are used.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::HttpPlan;

/// How connections are made, and how long they are used. By default they lead to an address, and nothing ends them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ConnectionPlan {
    /// The names among the targets that have several addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<NamePlan>,
    /// The target's Unix socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unix_socket: Option<PathBuf>,
    /// The tunnel to the target, if there is a proxy before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<TunnelPlan>,
    /// Whether each connection begins with a line of the PROXY protocol, version 1, which names its own addresses.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub proxy_protocol: bool,
    /// Longest time until TCP's connection is made, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect_timeout_ns: Option<u64>,
    /// Longest time of TLS's handshake, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handshake_timeout_ns: Option<u64>,
    /// Longest time from sending a request to the end of its answer, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer_timeout_ns: Option<u64>,
    /// Largest number of requests on a connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_requests: Option<u64>,
    /// Age of a connection from which on it takes no further request, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_age_ns: Option<u64>,
}

/// A tunnel through an HTTP proxy, which the method CONNECT opens (RFC 9110, section 9.3.6).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TunnelPlan {
    /// Where the tunnel leads: the target's name or address, and its port.
    pub to: String,
    /// Header fields for the proxy, in order, beside `Host`.
    pub headers: Vec<(String, String)>,
}

/// A name with several addresses, and those that connections lead to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NamePlan {
    /// The name and the port, such as `localhost:80`.
    pub name: String,
    /// Its addresses, in the resolver's order.
    pub addresses: Vec<SocketAddr>,
    /// Whether every address that accepts a connection is used, not only the first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// The addresses that accepted a connection before the load, and are used; none if none did, or if none was tried.
    #[serde(default)]
    pub used: Vec<SocketAddr>,
    /// Why others did not.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub errors: BTreeMap<SocketAddr, String>,
}

impl NamePlan {
    /// The name and its addresses for people: `127.0.0.1:80 for localhost:80, which also resolves to [::1]:80 (connection
    /// refused)`. If no address accepts, the reasons.
    pub fn in_words(&self) -> String {
        let list = |addresses: Vec<String>| addresses.join(", ");
        let used = list(self.used.iter().map(SocketAddr::to_string).collect());
        let others = self.addresses.iter().filter(|address| !self.used.contains(address));
        let others = others.map(|address| match self.errors.get(address) {
            Some(why) => format!("{address} ({why})"),
            None => address.to_string(),
        });
        let (name, others) = (&self.name, list(others.collect()));
        match (used.is_empty(), others.is_empty()) {
            (true, _) => format!("no address of {name} accepts a connection: {others}"),
            (false, true) => format!("{used} for {name}"),
            (false, false) => format!("{used} for {name}, which also resolves to {others}"),
        }
    }
}

impl ConnectionPlan {
    /// Whether no option of the connections is set.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }
}

impl HttpPlan {
    /// The longest wait for an answer, in nanoseconds.
    pub fn longest_answer_ns(&self) -> u64 {
        self.timeout_ns.min(self.connection.answer_timeout_ns.unwrap_or(u64::MAX))
    }
}
