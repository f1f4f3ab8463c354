//! How TLS is used.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How TLS is used. Files are those of the machine that the command runs on; no result has their content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TlsPlan {
    /// The name that the handshake asks for (SNI) and the target's certificate must have: a host name or an IP address.
    pub server_name: String,
    /// Whether the target's certificate is checked.
    pub verify: bool,
    /// File with the certificates of the authorities to trust, as PEM; the system's if none.
    pub authorities: Option<PathBuf>,
    /// File with the client's certificate chain, as PEM.
    pub certificate: Option<PathBuf>,
    /// File with the private key of the client's certificate, as PEM.
    pub key: Option<PathBuf>,
    /// The earliest version to offer: `1.2` or `1.3`.
    pub min_version: String,
    /// The latest version to offer.
    pub max_version: String,
    /// The cipher suites to offer, the most preferred first; all that are known if empty.
    pub ciphers: Vec<String>,
    /// Whether a new connection of a user, or of a slot of the pool, resumes its earlier session if the target allows it.
    pub resumption: bool,
    /// The protocols to offer (ALPN); none are offered if empty.
    pub alpn: Vec<String>,
}
