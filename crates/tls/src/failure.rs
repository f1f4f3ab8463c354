//! Reasons why a session cannot continue.

use std::{fmt, io};

use rustix::io::Errno;
use rustls::{AlertDescription, CertificateError, Error, OtherError, PeerIncompatible, PeerMisbehaved};

/// Reason why a session cannot continue, permanently or for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Failure {
    /// The stream has no bytes to read or no room for bytes to write. The session stays usable: wait for the stream.
    WouldBlock,
    /// Several reads have given no plaintext, and the stream may have more bytes. The session stays usable: call again
    /// after other streams have had their turn.
    Again,
    /// The stream failed.
    Io(Errno),
    /// A certificate of the peer's chain has expired.
    CertificateExpired,
    /// A certificate of the peer's chain is not valid yet.
    CertificateNotYetValid,
    /// The peer's certificate is for other names, or the peer reports that it has no certificate for the requested
    /// name.
    WrongName,
    /// The peer's certificate contains no host name.
    NoNames,
    /// No trusted authority issued the peer's certificate.
    UnknownIssuer,
    /// The peer's certificate belongs to an authority, like certificates made by `openssl req -x509`.
    IsAuthority,
    /// The peer's certificate has another fault, described in words.
    BadCertificate(&'static str),
    /// The two sides have no TLS version in common, or the peer supports no version from TLS 1.2 on.
    ProtocolVersion,
    /// The two sides have no cipher, key exchange or signature scheme in common.
    NoCommonCipher,
    /// The server requires a client certificate, but the client sent none. With TLS 1.3, the client learns this only
    /// after its handshake.
    CertificateRequired,
    /// The peer refused this side's certificate.
    CertificateRefused,
    /// The peer's first bytes are not TLS, but for example plain HTTP.
    NotTls,
    /// The peer closed the stream before the end of the handshake.
    ClosedInHandshake,
    /// Bytes were changed in transit, or the two sides use different keys.
    Decrypt,
    /// Any other failure: the peer broke the protocol, or sent another alert.
    Other,
}

/// The fault of a certificate in words, from an error of the library.
pub fn certificate_fault(error: &CertificateError) -> &'static str {
    const EXTENSION: &str = "it has a critical extension that is not supported";
    match error {
        CertificateError::BadEncoding => "it is not an X.509 certificate",
        CertificateError::BadSignature => {
            "a signature is wrong, or made with an RSA key shorter than 2048 bits"
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. } => {
            "it is signed with an algorithm that is not supported, such as SHA-1"
        }
        CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "its key, or its issuer's, is not supported: RSA, P-256, P-384 and Ed25519 are"
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "its extendedKeyUsage does not allow this use"
        }
        CertificateError::UnhandledCriticalExtension => EXTENSION,
        CertificateError::Revoked => "it was revoked",
        CertificateError::Other(other) => match other.0.downcast_ref() {
            Some(webpki::Error::UnsupportedCertVersion) => {
                "it is of X.509 version 1 or 2, but version 3 is needed, which states its use"
            }
            Some(webpki::Error::UnsupportedCriticalExtension) => EXTENSION,
            _ => "it breaks a rule of RFC 5280",
        },
        _ => "it breaks a rule of RFC 5280",
    }
}

/// The fault of a certificate and its key in words, from an error of the library.
pub fn identity_fault(error: &Error) -> String {
    match error {
        // For a key that it cannot read, the library gives no further reason.
        Error::General(_) => "keys of this kind or length are not supported: RSA of 2048 to 4096 bits, P-256, P-384 and Ed25519 are".to_owned(),
        error => format!("{error}; certificate and key must belong together"),
    }
}

/// Whether a certificate was rejected because it belongs to an authority and not to a server.
fn is_of_authority(error: &OtherError) -> bool {
    matches!(error.0.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
}

impl Failure {
    /// Whether the session stays usable, so that the caller may repeat the call.
    #[inline]
    pub fn is_temporary(self) -> bool {
        matches!(self, Self::WouldBlock | Self::Again)
    }

    /// The failure's name in JSON. All failures of the stream share one name.
    pub fn name(self) -> &'static str {
        match self {
            Self::WouldBlock => "would_block",
            Self::Again => "again",
            Self::Io(_) => "io",
            Self::CertificateExpired => "certificate_expired",
            Self::CertificateNotYetValid => "certificate_not_yet_valid",
            Self::WrongName | Self::NoNames => "wrong_name",
            Self::UnknownIssuer => "unknown_issuer",
            Self::IsAuthority => "is_authority",
            Self::BadCertificate(_) => "bad_certificate",
            Self::ProtocolVersion => "protocol_version",
            Self::NoCommonCipher => "no_common_cipher",
            Self::CertificateRequired => "certificate_required",
            Self::CertificateRefused => "certificate_refused",
            Self::NotTls => "not_tls",
            Self::ClosedInHandshake => "closed_in_handshake",
            Self::Decrypt => "decrypt",
            Self::Other => "other",
        }
    }

    /// The cause, if it is known; `None` if only the kind of failure is known.
    pub fn cause(self) -> Option<&'static str> {
        match self {
            Self::NoNames => Some("it has no subjectAltName"),
            Self::BadCertificate(fault) => Some(fault),
            _ => None,
        }
    }

    /// The failure for an error of a read or write of the stream.
    pub(crate) fn of_stream(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::WouldBlock {
            return Self::WouldBlock;
        }
        // Streams other than sockets report only the kind of error.
        Self::Io(Errno::from_io_error(error).unwrap_or(match error.kind() {
            io::ErrorKind::ConnectionReset => Errno::CONNRESET,
            io::ErrorKind::ConnectionAborted => Errno::CONNABORTED,
            io::ErrorKind::BrokenPipe => Errno::PIPE,
            io::ErrorKind::NotConnected => Errno::NOTCONN,
            io::ErrorKind::TimedOut => Errno::TIMEDOUT,
            _ => Errno::IO,
        }))
    }

    /// The failure for an error of the protocol. `chosen` tells whether the two sides had agreed on a cipher.
    pub(crate) fn of_protocol(error: &Error, handshaking: bool, chosen: bool) -> Self {
        match error {
            Error::InvalidCertificate(error) => Self::of_certificate(error),
            Error::NoCertificatesPresented => Self::CertificateRequired,
            Error::AlertReceived(alert) => Self::of_alert(*alert, handshaking, chosen),
            Error::PeerIncompatible(why) => Self::of_incompatibility(why),
            // In TLS 1.2, the library does not support signatures of RSA-PSS keys.
            Error::PeerMisbehaved(PeerMisbehaved::SignedKxWithWrongAlgorithm) => Self::NoCommonCipher,
            Error::InvalidMessage(_) if handshaking && !chosen => Self::NotTls,
            Error::DecryptError => Self::Decrypt,
            _ => Self::Other,
        }
    }

    fn of_certificate(error: &CertificateError) -> Self {
        match error {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::CertificateExpired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                Self::CertificateNotYetValid
            }
            CertificateError::NotValidForNameContext { presented, .. } if presented.is_empty() => {
                Self::NoNames
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                Self::WrongName
            }
            CertificateError::UnknownIssuer => Self::UnknownIssuer,
            CertificateError::Other(other) if is_of_authority(other) => Self::IsAuthority,
            error => Self::BadCertificate(certificate_fault(error)),
        }
    }

    fn of_incompatibility(why: &PeerIncompatible) -> Self {
        match why {
            PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled
            | PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
            | PeerIncompatible::SupportedVersionsExtensionRequired => Self::ProtocolVersion,
            PeerIncompatible::NoCipherSuitesInCommon
            | PeerIncompatible::NoKxGroupsInCommon
            | PeerIncompatible::NoSignatureSchemesInCommon
            | PeerIncompatible::NoEcPointFormatsInCommon
            | PeerIncompatible::NoCertificateRequestSignatureSchemesInCommon => Self::NoCommonCipher,
            _ => Self::Other,
        }
    }

    /// The failure of this side that the peer's alert reports. TLS 1.2 has no alert for a missing certificate: servers
    /// send `handshake_failure` after the cipher was chosen (RFC 5246, 7.4.6).
    fn of_alert(alert: AlertDescription, handshaking: bool, chosen: bool) -> Self {
        match alert {
            AlertDescription::CloseNotify | AlertDescription::UserCanceled if handshaking => {
                Self::ClosedInHandshake
            }
            AlertDescription::CertificateRequired | AlertDescription::NoCertificate => {
                Self::CertificateRequired
            }
            AlertDescription::HandshakeFailure if chosen => Self::CertificateRequired,
            AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied => Self::CertificateRefused,
            AlertDescription::ProtocolVersion | AlertDescription::InappropriateFallback => {
                Self::ProtocolVersion
            }
            AlertDescription::HandshakeFailure | AlertDescription::InsufficientSecurity => {
                Self::NoCommonCipher
            }
            AlertDescription::UnrecognisedName => Self::WrongName,
            AlertDescription::BadRecordMac
            | AlertDescription::DecryptError
            | AlertDescription::DecryptionFailed => Self::Decrypt,
            _ => Self::Other,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WouldBlock => "the stream is not ready",
            Self::Again => "no data yet; more may have arrived",
            Self::Io(errno) => return io::Error::from(*errno).fmt(f),
            Self::CertificateExpired => "the peer's certificate has expired",
            Self::CertificateNotYetValid => "the peer's certificate is not valid yet",
            Self::WrongName => "the peer's certificate is for another name",
            Self::UnknownIssuer => "no trusted authority issued the peer's certificate",
            Self::IsAuthority => "the peer's certificate is an authority's own",
            Self::NoNames => "the peer's certificate has no subjectAltName",
            Self::BadCertificate(fault) => return write!(f, "the peer's certificate is not valid: {fault}"),
            Self::ProtocolVersion => "the two sides have no TLS version in common",
            Self::NoCommonCipher => {
                "the two sides have no cipher, key exchange or signature scheme in common"
            }
            Self::CertificateRequired => "a client certificate is required, and none was sent",
            Self::CertificateRefused => "the peer refused the certificate of this side",
            Self::NotTls => "the peer does not speak TLS",
            Self::ClosedInHandshake => "the peer closed the connection during the TLS handshake",
            Self::Decrypt => "bytes of the peer cannot be decrypted",
            Self::Other => "the peer broke the TLS protocol",
        })
    }
}

impl std::error::Error for Failure {}
