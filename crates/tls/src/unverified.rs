//! Servers that are not verified: every certificate is accepted.

use std::sync::LazyLock;

use rustls::{
    CertificateError, CipherSuiteCommon, DigitallySignedStruct, Error, SignatureScheme, SupportedCipherSuite,
    Tls12CipherSuite,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{WebPkiSupportedAlgorithms, ring},
    pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime},
};

/// Signature schemes that cannot be checked here: those of P-521 keys, of Ed448 keys, and of RSA keys that are
/// restricted to PSS (`rsa_pss_pss_…`, RFC 8446, 4.2.3).
const UNCHECKED_SCHEMES: [SignatureScheme; 5] = [
    SignatureScheme::ECDSA_NISTP521_SHA512,
    SignatureScheme::ED448,
    SignatureScheme::Unknown(0x0809),
    SignatureScheme::Unknown(0x080a),
    SignatureScheme::Unknown(0x080b),
];
/// The object identifier `rsaEncryption` (RFC 8017, A.1), with its tag and length.
const RSA: &[u8] = &[6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 13, 1, 1, 1];
/// Sizes in bytes of the RSA keys whose signatures can be checked: 2048 to 8192 bits.
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;

/// Accepts every certificate of any form. The server must still prove that it has the certificate's key, if this
/// program can check signatures of such a key.
#[derive(Debug)]
pub struct AnyCertificate {
    signatures: WebPkiSupportedAlgorithms,
}

impl Default for AnyCertificate {
    fn default() -> Self {
        Self { signatures: ring::default_provider().signature_verification_algorithms }
    }
}

impl AnyCertificate {
    fn check(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = self.signatures.mapping.iter().find(|(scheme, _)| *scheme == signed.scheme);
        let key = public_key(certificate).map(SubjectPublicKeyInfoDer::from);
        let entity = key.as_ref().and_then(|key| webpki::RawPublicKeyEntity::try_from(key).ok());
        let mut is_wrong = false;
        if let (Some((_, algorithms)), Some(entity)) = (known, entity) {
            for algorithm in *algorithms {
                match entity.verify_signature(*algorithm, message, signed.signature()) {
                    Ok(()) => return Ok(HandshakeSignatureValid::assertion()),
                    // Other errors mean only that the algorithm does not fit the key.
                    Err(error) => is_wrong |= matches!(error, webpki::Error::InvalidSignatureForPublicKey),
                }
            }
        }
        let is_checkable =
            key.is_some_and(|key| rsa_bytes(&key).is_none_or(|bytes| RSA_BYTES.contains(&bytes)));
        match is_wrong && is_checkable {
            true => Err(Error::InvalidCertificate(CertificateError::BadSignature)),
            false => Ok(HandshakeSignatureValid::assertion()),
        }
    }
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signatures.supported_schemes().into_iter().chain(UNCHECKED_SCHEMES).collect()
    }
}

/// A suite whose servers may also sign with Ed448 if the verifier accepts it. In TLS 1.2, clients accept only the
/// signature schemes of the suite.
pub(crate) fn signed_by_any_key(suite: SupportedCipherSuite) -> SupportedCipherSuite {
    use SignatureScheme as Scheme;
    const KINDS: &[Scheme] = &[Scheme::ED25519, Scheme::ED448, Scheme::ECDSA_NISTP256_SHA256];
    static SUITES: LazyLock<Vec<Tls12CipherSuite>> = LazyLock::new(|| {
        let extended = |suite: &SupportedCipherSuite| match suite {
            SupportedCipherSuite::Tls12(known) if known.sign.contains(&Scheme::ED25519) => {
                let common = CipherSuiteCommon { ..known.common };
                Some(Tls12CipherSuite { common, sign: KINDS, ..**known })
            }
            _ => None,
        };
        ring::ALL_CIPHER_SUITES.iter().filter_map(extended).collect()
    });
    SUITES.iter().find(|known| known.common.suite == suite.suite()).map_or(suite, SupportedCipherSuite::from)
}

/// The public key, including its algorithm, in a certificate of any version (RFC 5280, 4.1). It follows version, serial
/// number, signature, issuer, validity and subject.
fn public_key(certificate: &[u8]) -> Option<&[u8]> {
    let mut fields = element(element(certificate)?.1)?.1;
    // Certificates of version 1 have no version field.
    let before = if fields.first() == Some(&0xa0) { 6 } else { 5 };
    for _ in 0..before {
        fields = element(fields)?.2;
    }
    Some(element(fields)?.0)
}

/// The length of an RSA key's modulus in bytes; none for other keys.
fn rsa_bytes(key: &[u8]) -> Option<usize> {
    let (_, algorithm, bits) = element(element(key)?.1)?;
    let modulus = element(element(element(bits)?.1.get(1..)?)?.1)?.1;
    let zeros = modulus.iter().take_while(|&&byte| byte == 0).count();
    algorithm.starts_with(RSA).then_some(modulus.len() - zeros)
}

/// The first element of DER: the whole element, its content, and the bytes that follow it.
fn element(der: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let first = usize::from(*der.get(1)?);
    let long =
        if first < 0x80 { &[] } else { der.get(2..2 + (first & 0x7f)).filter(|long| long.len() <= 4)? };
    let length =
        if first < 0x80 { first } else { long.iter().fold(0, |sum, &byte| sum << 8 | usize::from(byte)) };
    let (whole, rest) = der.split_at_checked(2 + long.len() + length)?;
    Some((whole, &whole[2 + long.len()..], rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Authority, Validity};

    #[test]
    fn a_suite_for_keys_of_curves_is_also_for_those_of_ed448() {
        for suite in ring::ALL_CIPHER_SUITES {
            let SupportedCipherSuite::Tls12(known) = suite else { continue };
            let SupportedCipherSuite::Tls12(any) = signed_by_any_key(*suite) else { unreachable!() };
            let is_of_curves = known.sign.contains(&SignatureScheme::ED25519);
            assert_eq!(any.sign.contains(&SignatureScheme::ED448), is_of_curves, "{suite:?}");
        }
    }

    #[test]
    fn keys_are_found_in_certificates_of_every_version() {
        let identity = Authority::new("a").unwrap().certify(&["localhost"], Validity::default()).unwrap();
        let third = identity.chain[0].to_vec();
        let key = public_key(&third).unwrap();
        assert!(webpki::RawPublicKeyEntity::try_from(&SubjectPublicKeyInfoDer::from(key)).is_ok());
        assert_eq!((key.len(), rsa_bytes(key)), (91, None), "a key of P-256");
        // The same fields, without the version and without the fields that follow the key.
        let fields = element(element(&third).unwrap().1).unwrap().1;
        let old = &fields[element(fields).unwrap().0.len()..];
        let long =
            |tag: u8, bytes: &[u8]| [&[tag, 0x82][..], &(bytes.len() as u16).to_be_bytes(), bytes].concat();
        assert_eq!(public_key(&long(0x30, &long(0x30, old))), Some(key));
        for length in 0..third.len() {
            assert!(public_key(&third[..length]).is_none(), "cut off after {length} bytes");
        }
        let rsa = [&[0x30, 13][..], RSA, &[5, 0]].concat();
        let modulus = long(2, &[&[0, 0x80][..], &[1; 127]].concat());
        let bits = long(3, &[&[0][..], &long(0x30, &[&modulus[..], &[2, 1, 3]].concat())].concat());
        assert_eq!(rsa_bytes(&long(0x30, &[rsa, bits].concat())), Some(128));
    }
}
