//! TLS 1.3 in which both sides show a raw public key (RFC 7250) that the other was given: no certificates, no names,
//! no expiry. There is no resumption and no early data, so a recorded session cannot be replayed.

use std::sync::Arc;

use rustls::{
    CertificateError, ClientConfig, ClientConnection, Connection, DigitallySignedStruct, DistinguishedName,
    Error, PeerIncompatible, ServerConfig, ServerConnection, SignatureScheme,
    client::{
        AlwaysResolvesClientRawPublicKeys, Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring::default_provider, verify_tls13_signature_with_raw_key},
    pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime},
    server::{
        AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    version::TLS13,
};

use crate::keys::{Key, PublicKey};

/// The controller's side of a handshake with an agent that must have the key `its`.
///
/// # Errors
/// None is expected.
pub(crate) fn controller(own: &Key, its: PublicKey) -> Result<Connection, Error> {
    let provider = Arc::new(default_provider());
    let mut config = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(OneOf { keys: vec![its], provider }))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(own.certified.clone())));
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    // rustls requires a name; it is neither sent nor checked.
    let name = ServerName::try_from("agent").map_err(|error| Error::General(error.to_string()))?;
    ClientConnection::new(Arc::new(config), name).map(Connection::from)
}

/// The configuration of an agent's side of a handshake, which accepts these controllers.
///
/// # Errors
/// None is expected.
pub(crate) fn agent(own: &Key, controllers: &[PublicKey]) -> Result<Arc<ServerConfig>, Error> {
    let provider = Arc::new(default_provider());
    let mut config = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(Arc::new(OneOf { keys: controllers.to_vec(), provider }))
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(own.certified.clone())));
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// An agent's side of one handshake.
///
/// # Errors
/// None is expected.
pub(crate) fn accept(config: &Arc<ServerConfig>) -> Result<Connection, Error> {
    ServerConnection::new(config.clone()).map(Connection::from)
}

/// The key whose possession the other side has proved.
pub(crate) fn proved(tls: &Connection) -> Option<PublicKey> {
    PublicKey::of_spki(tls.peer_certificates()?.first()?)
}

/// Accepts these keys and no others.
#[derive(Debug)]
struct OneOf {
    keys: Vec<PublicKey>,
    provider: Arc<CryptoProvider>,
}

impl OneOf {
    fn judge(&self, spki: &CertificateDer<'_>, others: &[CertificateDer<'_>]) -> Result<(), Error> {
        let is_known = PublicKey::of_spki(spki).is_some_and(|key| self.keys.contains(&key));
        if is_known && others.is_empty() {
            Ok(())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify(
        &self,
        message: &[u8],
        spki: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let spki = SubjectPublicKeyInfoDer::from(spki.as_ref());
        verify_tls13_signature_with_raw_key(
            message,
            &spki,
            signed,
            &self.provider.signature_verification_algorithms,
        )
    }
}

impl ServerCertVerifier for OneOf {
    fn verify_server_cert(
        &self,
        spki: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.judge(spki, others).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _spki: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        spki: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, spki, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for OneOf {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        spki: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.judge(spki, others).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _spki: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        spki: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, spki, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
