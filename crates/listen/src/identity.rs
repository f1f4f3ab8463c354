//! The server's certificate and key, which can be reloaded while it runs.

use std::{
    path::Path,
    sync::{Arc, PoisonError, RwLock},
};

use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
};

use crate::{Error, Tls};

/// The server's certificate and key.
#[derive(Debug)]
pub(crate) struct Identity {
    files: Tls,
    config: RwLock<Arc<ServerConfig>>,
}

impl Identity {
    /// Reads the files.
    pub(crate) fn read(files: &Tls) -> Result<Self, Error> {
        Ok(Self { files: files.clone(), config: RwLock::new(Arc::new(load(files)?)) })
    }

    /// Reads the files again; on an error, the old certificate and key stay in use.
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

fn load(files: &Tls) -> Result<ServerConfig, Error> {
    let certificates = CertificateDer::pem_file_iter(&files.certificates)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| fails(&files.certificates, &error))?;
    if certificates.is_empty() {
        return Err(fails(&files.certificates, &pem::Error::NoItemsFound));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| fails(&files.key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has suites for all default versions")
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .map_err(|error| Error::Tls {
            path: files.key.clone(),
            cause: format!("{error}; certificate and key must belong together"),
        })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn fails(path: &Path, error: &pem::Error) -> Error {
    let cause = match error {
        pem::Error::Io(error) => format!("cannot be read: {error}"),
        pem::Error::NoItemsFound => "contains no such PEM section (-----BEGIN …-----)".to_owned(),
        other => format!("is not a valid PEM file: {other:?}"),
    };
    Error::Tls { path: path.to_owned(), cause }
}
