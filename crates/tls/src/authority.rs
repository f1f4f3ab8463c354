//! Generated certificates.

use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use rustls::{RootCertStore, pki_types::PrivateKeyDer};

use crate::{ConfigError, Identity};

const DAY: Duration = Duration::from_secs(86_400);

/// An authority that signs certificates. All keys are new P-256 keys.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// The period of a certificate's validity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// Start of the validity.
    pub from: SystemTime,
    /// End of the validity.
    pub until: SystemTime,
}

impl Default for Validity {
    /// From yesterday, because clocks differ, until a year later.
    fn default() -> Self {
        let from = SystemTime::now() - DAY;
        Self { from, until: from + 366 * DAY }
    }
}

impl Authority {
    /// A new authority with this name.
    ///
    /// # Errors
    /// [`ConfigError::Certificate`], if the machine cannot provide random bytes.
    pub fn new(name: &str) -> Result<Self, ConfigError> {
        let mut params = params(&[], name, Validity::default())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, key()?).map_err(|error| cannot(&error))?;
        Ok(Self { issuer })
    }

    /// The authority's certificate as PEM, for clients that must trust it.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A certificate store that trusts only this authority.
    ///
    /// # Errors
    /// [`ConfigError::Certificate`].
    pub fn roots(&self) -> Result<RootCertStore, ConfigError> {
        let mut roots = RootCertStore::empty();
        let added = roots.add(self.issuer.der().clone());
        added.map_err(|error| ConfigError::Certificate(error.to_string()))?;
        Ok(roots)
    }

    /// A new key and a certificate for these host names and IP addresses. Both servers and clients can use it.
    ///
    /// # Errors
    /// [`ConfigError::Certificate`], for example for a name that is not ASCII.
    pub fn certify(&self, names: &[&str], validity: Validity) -> Result<Identity, ConfigError> {
        let mut params = params(names, names.first().unwrap_or(&"proofload"), validity)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let key = key()?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(|error| cannot(&error))?;
        let key = PrivateKeyDer::try_from(key.serialize_der());
        let key = key.map_err(|error| ConfigError::Certificate(error.to_owned()))?;
        Ok(Identity { chain: vec![certificate.der().clone()], key })
    }
}

fn params(names: &[&str], name: &str, validity: Validity) -> Result<CertificateParams, ConfigError> {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names).map_err(|error| cannot(&error))?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    (params.not_before, params.not_after) = (validity.from.into(), validity.until.into());
    Ok(params)
}

fn key() -> Result<KeyPair, ConfigError> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|error| cannot(&error))
}

fn cannot(error: &rcgen::Error) -> ConfigError {
    ConfigError::Certificate(format!("it cannot be made: {error}"))
}
