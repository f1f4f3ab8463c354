//! Certificates and keys from PEM files.

use std::{io, path::Path};

use base64::{Engine, prelude::BASE64_STANDARD};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
};

use crate::ConfigError;

/// A certificate chain and its private key.
#[derive(Debug)]
pub struct Identity {
    /// The chain, this side's certificate first.
    pub chain: Vec<CertificateDer<'static>>,
    /// The private key of the first certificate.
    pub key: PrivateKeyDer<'static>,
}

impl Identity {
    /// Reads a chain, which begins with this side's certificate, and its key.
    ///
    /// # Errors
    /// [`ConfigError::File`], with the file that cannot be used.
    pub fn read(certificates: &Path, key: &Path) -> Result<Self, ConfigError> {
        Ok(Self { chain: read_certificates(certificates)?, key: read_key(key)? })
    }

    /// The mistakes in the two files. Each file is checked even if the other has a mistake.
    pub fn mistakes(certificates: &Path, key: &Path) -> impl Iterator<Item = ConfigError> {
        [read_certificates(certificates).err(), read_key(key).err()].into_iter().flatten()
    }

    /// The chain, then the key, as PEM (RFC 7468).
    pub fn pem(&self) -> String {
        let chain = self.chain.iter().map(|certificate| armoured("CERTIFICATE", certificate));
        chain.chain([armoured("PRIVATE KEY", self.key.secret_der())]).collect()
    }
}

/// Bytes as PEM: base64 in lines of 64 characters, between lines that name the kind.
fn armoured(label: &str, der: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(der);
    let mut armoured = format!("-----BEGIN {label}-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(64));
        armoured += &format!("{line}\n");
        rest = after;
    }
    armoured + &format!("-----END {label}-----\n")
}

/// Reads the certificates of trusted authorities.
///
/// # Errors
/// [`ConfigError::File`].
pub fn read_roots(path: &Path) -> Result<RootCertStore, ConfigError> {
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(path)? {
        roots.add(certificate).map_err(|error| ConfigError::File {
            path: path.to_owned(),
            cause: format!("has a certificate that is not valid: {error}"),
        })?;
    }
    Ok(roots)
}

/// Reads the certificates of the authorities that the system trusts. Ignores certificates of obsolete forms, because
/// the system's file may contain them.
///
/// # Errors
/// If the file cannot be read.
pub fn read_system_roots(path: &Path) -> Result<RootCertStore, ConfigError> {
    let pem = ::files::read_here(path, MAX_BYTES).map_err(|error| unreadable(path, &error))?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok));
    Ok(roots)
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let pem = read(path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let certificates = certificates.and_then(|found| match found.is_empty() {
        true => Err(pem::Error::NoItemsFound),
        false => Ok(found),
    });
    certificates
        .map_err(|error| fails(path, &pem, &error, "contains no such PEM section (-----BEGIN …-----)"))
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, ConfigError> {
    let pem = read(path)?;
    PrivateKeyDer::from_pem_slice(&pem).map_err(|error| fails(path, &pem, &error, "has no private key"))
}

/// Maximum size of a file, in bytes.
const MAX_BYTES: u64 = 16 << 20;

fn read(path: &Path) -> Result<Vec<u8>, ConfigError> {
    ::files::read(path, MAX_BYTES).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &io::Error) -> ConfigError {
    ConfigError::File { path: path.to_owned(), cause: format!("cannot be read: {error}") }
}

/// Marks of an encrypted key in PEM: of PKCS#8 (RFC 7468, 11), and of OpenSSL's format for RSA keys.
const ENCRYPTED: [&[u8]; 2] = [b"-----BEGIN ENCRYPTED PRIVATE KEY-----", b"Proc-Type: 4,ENCRYPTED"];

/// The error for an unusable file. `missing` is the message for a file that lacks the requested item.
fn fails(path: &Path, text: &[u8], error: &pem::Error, missing: &str) -> ConfigError {
    let is_encrypted = ENCRYPTED.iter().any(|mark| text.windows(mark.len()).any(|part| part == *mark));
    let cause = match error {
        _ if is_encrypted => format!(
            "the private key is encrypted; decrypt it with `openssl pkey -in {} -out KEY`, and give KEY",
            path.display()
        ),
        pem::Error::NoItemsFound => missing.to_owned(),
        other => format!("is not a valid PEM file: {other:?}"),
    };
    ConfigError::File { path: path.to_owned(), cause }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{Authority, Offer, Validity};

    #[test]
    fn files_that_cannot_be_used_are_named_with_the_cause() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
        let cause = || Identity::read(&certificate, &key).unwrap_err().to_string();
        assert!(cause().contains("cert.pem: cannot be read"), "{}", cause());
        fs::write(&certificate, "nothing").unwrap();
        assert!(cause().contains("cert.pem: contains no such PEM section"), "{}", cause());
        let authority = Authority::new("an authority").unwrap();
        fs::write(&certificate, authority.pem()).unwrap();
        fs::write(&key, "-----BEGIN PRIVATE KEY-----\n!!\n-----END PRIVATE KEY-----\n").unwrap();
        assert!(cause().contains("key.pem: is not a valid PEM file"), "{}", cause());
        assert_eq!(read_roots(&certificate).unwrap().len(), 1);
        assert!(read_roots(&key).unwrap_err().to_string().contains("key.pem"));
    }

    #[test]
    fn an_encrypted_key_is_told_with_the_way_to_decrypt_it() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
        fs::write(&certificate, Authority::new("an authority").unwrap().pem()).unwrap();
        for text in [
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB\n-----END ENCRYPTED PRIVATE KEY-----\n",
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,0A\n\nMIIB\n\
             -----END RSA PRIVATE KEY-----\n",
        ] {
            fs::write(&key, text).unwrap();
            let refused = Identity::read(&certificate, &key).unwrap_err().to_string();
            assert!(refused.contains("key.pem: the private key is encrypted; decrypt it with"), "{refused}");
        }
    }

    #[test]
    fn an_identity_is_read_as_it_was_written() {
        let authority = Authority::new("an authority").unwrap();
        let made = authority.certify(&["localhost"], Validity::default()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("both.pem");
        fs::write(&file, made.pem()).unwrap();
        let read = Identity::read(&file, &file).unwrap();
        assert_eq!((read.chain, read.key), (made.chain, made.key));
    }

    #[test]
    fn a_key_of_another_certificate_is_refused() {
        let authority = Authority::new("an authority").unwrap();
        let make = || authority.certify(&["localhost", "127.0.0.1", "::1"], Validity::default()).unwrap();
        let mixed = Identity { chain: make().chain, key: make().key };
        let refused = Offer::default().server(mixed, None).unwrap_err().to_string();
        assert!(refused.contains("must belong together"), "{refused}");
    }
}
