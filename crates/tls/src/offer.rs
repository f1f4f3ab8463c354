//! The versions and ciphers that a side offers.

use std::{fmt, path::PathBuf, str::FromStr, sync::Arc};

use rustls::{
    ClientConfig, ConfigBuilder, ProtocolVersion, RootCertStore, ServerConfig, SupportedCipherSuite,
    SupportedProtocolVersion, WantsVerifier,
    crypto::{CryptoProvider, ring},
    server::WebPkiClientVerifier,
    version::{TLS12, TLS13},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Identity, identity_fault, unverified::signed_by_any_key};

/// Reason why a configuration cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file cannot be used.
    #[error("{}: {cause}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The fault of the file, and advice for the user.
        cause: String,
    },
    /// No version or no cipher is left to offer.
    #[error("{0}")]
    Offer(String),
    /// A certificate cannot be created or used.
    #[error("certificate: {0}")]
    Certificate(String),
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Version {
    /// TLS 1.2 (RFC 5246).
    #[serde(rename = "1.2")]
    Tls12,
    /// TLS 1.3 (RFC 8446).
    #[serde(rename = "1.3")]
    Tls13,
}

impl Version {
    pub(crate) fn of(version: ProtocolVersion) -> Option<Self> {
        match version {
            ProtocolVersion::TLSv1_2 => Some(Self::Tls12),
            ProtocolVersion::TLSv1_3 => Some(Self::Tls13),
            _ => None,
        }
    }

    fn supported(self) -> &'static SupportedProtocolVersion {
        match self {
            Self::Tls12 => &TLS12,
            Self::Tls13 => &TLS13,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Tls12 => "1.2",
            Self::Tls13 => "1.3",
        })
    }
}

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "1.2" => Ok(Self::Tls12),
            "1.3" => Ok(Self::Tls13),
            _ => Err(format!("'{text}' is not a version of TLS known here (known: 1.2, 1.3)")),
        }
    }
}

/// A cipher suite, by its name in IANA's registry.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cipher {
    /// Its name, such as `TLS_AES_128_GCM_SHA256`.
    pub name: &'static str,
    suite: SupportedCipherSuite,
}

/// All supported ciphers: first those of TLS 1.3, then those of TLS 1.2, each group in order of preference.
pub static CIPHERS: [Cipher; 9] = {
    use ring::cipher_suite as suites;
    [
        Cipher { name: "TLS_AES_256_GCM_SHA384", suite: suites::TLS13_AES_256_GCM_SHA384 },
        Cipher { name: "TLS_AES_128_GCM_SHA256", suite: suites::TLS13_AES_128_GCM_SHA256 },
        Cipher { name: "TLS_CHACHA20_POLY1305_SHA256", suite: suites::TLS13_CHACHA20_POLY1305_SHA256 },
        Cipher {
            name: "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
            suite: suites::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        },
        Cipher {
            name: "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
            suite: suites::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        },
        Cipher {
            name: "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
            suite: suites::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        },
        Cipher {
            name: "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
            suite: suites::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        },
        Cipher {
            name: "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            suite: suites::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        },
        Cipher {
            name: "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
            suite: suites::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        },
    ]
};

impl Cipher {
    pub(crate) fn of(suite: SupportedCipherSuite) -> Option<Self> {
        CIPHERS.iter().copied().find(|cipher| cipher.suite == suite)
    }
}

impl FromStr for Cipher {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        CIPHERS.iter().copied().find(|cipher| cipher.name == text).ok_or_else(|| {
            let known: Vec<&str> = CIPHERS.iter().map(|cipher| cipher.name).collect();
            format!("'{text}' is not a cipher known here (known: {})", known.join(", "))
        })
    }
}

/// The versions and ciphers that a side offers; by default all supported ones.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    /// The earliest version.
    pub min: Version,
    /// The latest version.
    pub max: Version,
    /// The ciphers in order of preference. If empty, all supported ones.
    pub ciphers: Vec<Cipher>,
}

impl Default for Offer {
    fn default() -> Self {
        Self { min: Version::Tls12, max: Version::Tls13, ciphers: Vec::new() }
    }
}

impl Offer {
    /// A client's configuration with neither trusted authorities nor a client certificate.
    ///
    /// # Errors
    /// [`ConfigError::Offer`].
    pub fn client_builder(&self) -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, ConfigError> {
        let mut provider = self.provider();
        let suites = &mut Arc::make_mut(&mut provider).cipher_suites;
        suites.iter_mut().for_each(|suite| *suite = signed_by_any_key(*suite));
        let builder = ClientConfig::builder_with_provider(provider);
        builder.with_protocol_versions(&self.versions()?).map_err(|_| self.nothing())
    }

    /// A server's configuration. With `client_roots`, every client must have a certificate from one of these
    /// authorities. Tickets allow clients to resume sessions for 6 to 12 hours; with TLS 1.3, each handshake gives two
    /// tickets.
    ///
    /// # Errors
    /// [`ConfigError::Offer`], or [`ConfigError::Certificate`] if certificate and key do not belong together.
    pub fn server(
        &self,
        identity: Identity,
        client_roots: Option<RootCertStore>,
    ) -> Result<ServerConfig, ConfigError> {
        let provider = self.provider();
        let builder = ServerConfig::builder_with_provider(provider.clone());
        let builder = builder.with_protocol_versions(&self.versions()?).map_err(|_| self.nothing())?;
        let builder = match client_roots {
            None => builder.with_no_client_auth(),
            Some(roots) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                let verifier = verifier
                    .map_err(|error| ConfigError::Certificate(format!("of clients' authority: {error}")))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let config = builder.with_single_cert(identity.chain, identity.key);
        let mut config = config.map_err(|error| ConfigError::Certificate(identity_fault(&error)))?;
        // Clients keep their sessions in sealed tickets, so that thousands of sessions take no memory here.
        config.ticketer = ring::Ticketer::new()
            .map_err(|error| ConfigError::Certificate(format!("no key for tickets: {error}")))?;
        Ok(config)
    }

    fn provider(&self) -> Arc<CryptoProvider> {
        let mut provider = ring::default_provider();
        if !self.ciphers.is_empty() {
            provider.cipher_suites = self.ciphers.iter().map(|cipher| cipher.suite).collect();
        }
        Arc::new(provider)
    }

    fn versions(&self) -> Result<Vec<&'static SupportedProtocolVersion>, ConfigError> {
        let offered = [Version::Tls13, Version::Tls12].into_iter();
        let offered = offered.filter(|version| (self.min..=self.max).contains(version));
        let offered: Vec<_> = offered.map(Version::supported).collect();
        if offered.is_empty() { Err(self.nothing()) } else { Ok(offered) }
    }

    fn nothing(&self) -> ConfigError {
        let Self { min, max, .. } = self;
        ConfigError::Offer(if min > max {
            format!("the earliest TLS version {min} is later than the latest {max}; swap them")
        } else {
            format!("none of the ciphers is of TLS {min} to {max}; give one that is, or other versions")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_ciphers_and_versions_are_read_back() {
        for cipher in CIPHERS {
            assert_eq!(cipher.name.parse(), Ok(cipher));
            assert_eq!(Cipher::of(cipher.suite), Some(cipher));
        }
        assert_eq!(CIPHERS.len(), ring::ALL_CIPHER_SUITES.len());
        assert!("TLS_NULL".parse::<Cipher>().unwrap_err().contains("TLS_AES_128_GCM_SHA256"));
        for version in [Version::Tls12, Version::Tls13] {
            assert_eq!(version.to_string().parse(), Ok(version));
        }
        assert!("1.1".parse::<Version>().is_err());
    }

    #[test]
    fn an_empty_offer_is_refused_with_its_cause() {
        let offer = Offer { min: Version::Tls13, max: Version::Tls12, ..Offer::default() };
        assert!(offer.client_builder().unwrap_err().to_string().contains("swap them"));
        let offer = Offer { max: Version::Tls12, ciphers: vec![CIPHERS[0]], ..Offer::default() };
        assert!(offer.client_builder().unwrap_err().to_string().contains("none of the ciphers"));
    }
}
