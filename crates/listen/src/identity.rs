//! The server's certificate and key, which can be reloaded at run time.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use tls::{ConfigError, Offer};

use crate::{Error, Tls};

/// The server's certificate and key as a TLS configuration.
#[derive(Debug)]
pub(crate) struct Identity {
    files: Tls,
    config: RwLock<Arc<ServerConfig>>,
}

impl Identity {
    /// Reads the certificate and the key.
    pub(crate) fn read(files: &Tls) -> Result<Self, Error> {
        Ok(Self { files: files.clone(), config: RwLock::new(Arc::new(load(files)?)) })
    }

    /// Reads the files again. On an error, keeps the old certificate and key.
    pub(crate) fn reload(&self) -> Result<(), Error> {
        let config = Arc::new(load(&self.files)?);
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    /// The TLS configuration for a new connection.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Tls {
    /// Mistakes in the files, each checked separately.
    pub fn mistakes(&self) -> Vec<String> {
        let mistakes = tls::Identity::mistakes(&self.certificates, &self.key);
        mistakes.map(|mistake| mistake.to_string()).collect()
    }
}

fn load(files: &Tls) -> Result<ServerConfig, Error> {
    let identity = tls::Identity::read(&files.certificates, &files.key);
    let config = identity.and_then(|identity| Offer::default().server(identity, None));
    let mut config = config.map_err(|error| match error {
        ConfigError::File { path, cause } => Error::Tls { path, cause },
        ConfigError::Certificate(cause) | ConfigError::Offer(cause) => {
            Error::Tls { path: files.key.clone(), cause }
        }
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
