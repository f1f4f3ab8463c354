//! The TLS configuration of a plan.

use std::{
    env,
    path::{Path, PathBuf},
    sync::Arc,
};

use record::TlsPlan;
use rustls::{ClientConfig, Error, RootCertStore, client::Resumption, pki_types::ServerName};
use tls::{AnyCertificate, ConfigError, Identity, Offer, certificate_fault, identity_fault};

use crate::FieldMistake;

/// Files of trusted authorities on common systems: Debian and Alpine, Fedora, openSUSE, the BSDs.
const SYSTEM_AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The TLS configuration that all connections of a trial share.
#[derive(Debug, Clone)]
pub(crate) struct TlsConfig {
    /// The client's configuration, without resumption.
    pub client: Arc<ClientConfig>,
    /// The name of the target.
    pub name: ServerName<'static>,
    /// Whether slots resume their sessions.
    pub resumes: bool,
}

impl TlsConfig {
    /// The TLS configuration of a plan.
    ///
    /// # Errors
    /// The mistake in a field that cannot be used.
    pub(crate) fn new(plan: &TlsPlan) -> Result<Self, FieldMistake> {
        let name = ServerName::try_from(plan.server_name.clone())
            .map_err(|_| mistake("sni", format!("'{}' is not a host name or address", plan.server_name)))?;
        let offer = Offer {
            min: plan.min_version.parse().map_err(|error| mistake("tls_min", error))?,
            max: plan.max_version.parse().map_err(|error| mistake("tls_max", error))?,
            ciphers: plan
                .ciphers
                .iter()
                .map(|name| name.parse())
                .collect::<Result<_, _>>()
                .map_err(|error| mistake("ciphers", error))?,
        };
        let field = if plan.ciphers.is_empty() { "tls_min" } else { "ciphers" };
        let builder = offer.client_builder().map_err(|error| mistake(field, error.to_string()))?;
        let builder = if plan.verify {
            builder.with_root_certificates(authorities(plan.authorities.as_deref())?)
        } else {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate::default()))
        };
        let mut client = match (&plan.certificate, &plan.key) {
            (Some(certificate), key) => {
                // One file may hold both the certificate and the key.
                let key = key.as_ref().unwrap_or(certificate);
                let identity = Identity::read(certificate, key).map_err(|error| {
                    let is_of_key =
                        matches!(&error, ConfigError::File { path, .. } if plan.key.as_ref() == Some(path));
                    mistake(if is_of_key { "key" } else { "cert" }, error.to_string())
                })?;
                builder.with_client_auth_cert(identity.chain, identity.key).map_err(|error| match error {
                    Error::InvalidCertificate(error) => {
                        let why = certificate_fault(&error);
                        mistake("cert", format!("{}: it cannot be used: {why}", certificate.display()))
                    }
                    error => mistake("key", format!("{}: {}", key.display(), identity_fault(&error))),
                })?
            }
            (None, Some(_)) => {
                return Err(mistake("key", "it needs its certificate: give it with --cert".to_owned()));
            }
            (None, None) => builder.with_no_client_auth(),
        };
        client.alpn_protocols = plan.alpn.iter().map(|name| name.clone().into_bytes()).collect();
        client.resumption = Resumption::disabled();
        Ok(Self { client: Arc::new(client), name, resumes: plan.resumption })
    }
}

/// The authorities in a file, or those that the system trusts.
fn authorities(file: Option<&Path>) -> Result<RootCertStore, FieldMistake> {
    if let Some(file) = file {
        return tls::read_roots(file).map_err(|error| mistake("cacert", error.to_string()));
    }
    let named = env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let found = || SYSTEM_AUTHORITIES.iter().map(PathBuf::from).find(|file| file.exists());
    let Some(file) = named.or_else(found) else {
        let message = "this machine has no file of trusted authorities (such as /etc/ssl/certs/ca-certificates.crt, of the \
                       package ca-certificates); give one with --cacert FILE, or do not check certificates (--insecure)";
        return Err(mistake("cacert", message.to_owned()));
    };
    let roots = tls::read_system_roots(&file).map_err(|error| mistake("cacert", error.to_string()))?;
    if roots.is_empty() {
        let message =
            format!("{} has no certificate that can be used; give a file with --cacert", file.display());
        return Err(mistake("cacert", message));
    }
    Ok(roots)
}

fn mistake(field: &'static str, message: String) -> FieldMistake {
    FieldMistake { field, message }
}
