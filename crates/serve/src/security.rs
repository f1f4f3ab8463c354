//! TLS of the target: its certificate, and deliberate faults in the handshake.

use std::{
    collections::BTreeSet,
    fmt,
    io::Write as _,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    str::FromStr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use rustls::ServerConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tls::{Authority, ConfigError, Identity, Offer, Session, Validity};

const DAY: Duration = Duration::from_secs(86_400);
/// Fatal alerts as TLS records, in a form that all versions share: protocol_version and handshake_failure.
const ALERT_PROTOCOL_VERSION: &[u8] = &[21, 3, 1, 0, 2, 2, 70];
const ALERT_HANDSHAKE_FAILURE: &[u8] = &[21, 3, 3, 0, 2, 2, 40];

/// TLS of a target. The default is a certificate made at the start, and every version and client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// PEM files of the certificate chain, the target's own first, and of its key. Without them, an authority is made,
    /// and a certificate for localhost, 127.0.0.1, ::1 and the addresses listened on.
    pub files: Option<TlsFiles>,
    /// File to which the certificate of the authority that was made is written, as PEM.
    pub ca_out: Option<PathBuf>,
    /// PEM file of the authorities of which one must have issued every client's certificate.
    pub client_ca: Option<PathBuf>,
    /// Earliest version.
    #[schemars(with = "String")]
    pub min: tls::Version,
    /// Latest version.
    #[schemars(with = "String")]
    pub max: tls::Version,
    /// What is wrong with every handshake.
    pub fault: Option<TlsFault>,
}

/// A certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// The certificate chain, the target's own certificate first.
    pub certificates: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl Default for Tls {
    fn default() -> Self {
        let Offer { min, max, .. } = Offer::default();
        Self { files: None, ca_out: None, client_ca: None, min, max, fault: None }
    }
}

record::named_enum! {
    /// What is wrong with every handshake.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum TlsFault {
        /// The certificate ended yesterday.
        Expired "expired",
        /// The certificate begins tomorrow.
        NotYetValid "not-yet-valid",
        /// The certificate is for `wrong.invalid`.
        WrongName "wrong-name",
        /// The certificate is of another authority than the one that is written to [`Tls::ca_out`].
        UnknownCa "unknown-ca",
        /// Every client is told that its versions are not spoken here, as a server of TLS 1.0 tells it.
        OldProtocol "old-protocol",
        /// Every client is told that there is no cipher in common.
        NoCommonCipher "no-common-cipher",
        /// A certificate of the client is required that no client has.
        ClientCert "client-cert",
        /// The connection is reset when the client's first bytes have come.
        ResetInHandshake "reset-in-handshake",
        /// The target does not speak TLS.
        PlainHttp "plain-http",
    }
    /// The name in options.
    pub fn name;
}

impl TlsFault {
    /// Whether the fault is in the certificate. If so, the target must create the certificate itself.
    pub(crate) fn is_of_certificate(self) -> bool {
        matches!(self, Self::Expired | Self::NotYetValid | Self::WrongName | Self::UnknownCa)
    }
}

impl fmt::Display for TlsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for TlsFault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|fault| fault.name() == text).ok_or_else(|| {
            format!("'{text}' is not a TLS fault; use one of {}", Self::ALL.map(Self::name).join(", "))
        })
    }
}

/// What happens to the TLS handshake of a connection.
#[derive(Debug, Clone)]
pub(crate) enum Security {
    /// The handshake starts a TLS session.
    Session(Arc<ServerConfig>),
    /// After the client's first bytes, the target sends these bytes and closes the connection.
    Refuse(&'static [u8]),
    /// After the client's first bytes, the target resets the connection.
    Reset,
}

impl Security {
    /// Reads or creates the certificate; `None` if the target does not use TLS.
    pub(crate) fn new(tls: &Tls, listen: &[SocketAddr]) -> Result<Option<Self>, ConfigError> {
        let authority = Authority::new("proofload serve")?;
        let identity = match &tls.files {
            Some(files) => Identity::read(&files.certificates, &files.key)?,
            None => made(&authority, tls.fault, listen)?,
        };
        if let Some(file) = &tls.ca_out {
            let opened = files::written("--tls-ca-out", file, false, 0o644);
            let written = opened.and_then(|mut out| out.write_all(authority.pem().as_bytes()));
            written.map_err(|error| ConfigError::File {
                path: file.clone(),
                cause: format!("cannot be written: {error}"),
            })?;
        }
        let client_roots = match (&tls.client_ca, tls.fault) {
            (_, Some(TlsFault::ClientCert)) => Some(Authority::new("nobody's authority")?.roots()?),
            (Some(file), _) => Some(tls::read_roots(file)?),
            (None, _) => None,
        };
        let offer = Offer { min: tls.min, max: tls.max, ..Offer::default() };
        let mut config = offer.server(identity, client_roots)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(match tls.fault {
            Some(TlsFault::PlainHttp) => None,
            Some(TlsFault::ResetInHandshake) => Some(Self::Reset),
            Some(TlsFault::OldProtocol) => Some(Self::Refuse(ALERT_PROTOCOL_VERSION)),
            Some(TlsFault::NoCommonCipher) => Some(Self::Refuse(ALERT_HANDSHAKE_FAILURE)),
            _ => Some(Self::Session(Arc::new(config))),
        })
    }

    /// A session for a new connection; `None` if the target refuses the handshake without one.
    pub(crate) fn session(&self) -> Option<Session> {
        match self {
            Self::Session(config) => {
                Some(Session::server(Arc::clone(config)).expect("a configuration with its key has sessions"))
            }
            Self::Refuse(_) | Self::Reset => None,
        }
    }
}

/// Creates a certificate issued by `authority`, with `fault` if it is a fault of certificates.
fn made(
    authority: &Authority,
    fault: Option<TlsFault>,
    listen: &[SocketAddr],
) -> Result<Identity, ConfigError> {
    let unspecified = |address: &IpAddr| address.is_unspecified();
    let addresses = listen.iter().map(SocketAddr::ip).filter(|address| !unspecified(address));
    let mut names: BTreeSet<String> = addresses.map(|address| address.to_string()).collect();
    names.extend(["127.0.0.1".to_owned(), "::1".to_owned()]);
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.insert(0, "localhost");
    let now = SystemTime::now();
    match fault {
        Some(TlsFault::Expired) => {
            authority.certify(&names, Validity { from: now - 30 * DAY, until: now - DAY })
        }
        Some(TlsFault::NotYetValid) => {
            authority.certify(&names, Validity { from: now + DAY, until: now + 30 * DAY })
        }
        Some(TlsFault::WrongName) => authority.certify(&["wrong.invalid"], Validity::default()),
        Some(TlsFault::UnknownCa) => {
            Authority::new("unknown authority")?.certify(&names, Validity::default())
        }
        _ => authority.certify(&names, Validity::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_faults_are_read_back() {
        for fault in TlsFault::ALL {
            let name = fault.name();
            assert_eq!((fault.to_string().as_str(), name.parse()), (name, Ok(fault)));
            assert_eq!(serde_json::to_string(&fault).unwrap(), format!("\"{name}\""));
        }
        assert!("moon".parse::<TlsFault>().unwrap_err().contains("reset-in-handshake"));
    }
}
