//! Converts errors of the kernel and the parser to error classes.

use http1::{Error, ErrorKind};
use record::ErrorClass;
use rustix::io::Errno;
use tls::Failure;

use crate::wire::ConnectionError;

/// The class of an error while connecting.
pub(crate) fn connect_failure(error: impl Into<ConnectionError>) -> ErrorClass {
    let errno = match error.into() {
        ConnectionError::Kernel(errno) => errno,
        other => return stream_failure(other),
    };
    match errno {
        Errno::CONNREFUSED => ErrorClass::ConnectRefused,
        Errno::TIMEDOUT => ErrorClass::ConnectTimeout,
        Errno::CONNRESET | Errno::CONNABORTED | Errno::PIPE => ErrorClass::ConnectReset,
        Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::HOSTDOWN | Errno::NETDOWN => ErrorClass::Unreachable,
        other => local_failure(other),
    }
}

/// The class of an error on an open connection.
pub(crate) fn stream_failure(error: impl Into<ConnectionError>) -> ErrorClass {
    let errno = match error.into() {
        ConnectionError::Kernel(errno) => errno,
        ConnectionError::Tls(failure) => return tls_failure(failure),
        ConnectionError::CutOff => return ErrorClass::Truncated,
        ConnectionError::Proxy(status) => return proxy_failure(status),
    };
    match errno {
        Errno::CONNRESET | Errno::PIPE | Errno::CONNABORTED => ErrorClass::Reset,
        Errno::TIMEDOUT => ErrorClass::Timeout,
        Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::HOSTDOWN | Errno::NETDOWN => ErrorClass::Unreachable,
        other => local_failure(other),
    }
}

/// The class of an error during the handshake of an established connection.
pub(crate) fn handshake_failure(error: ConnectionError) -> ErrorClass {
    match stream_failure(error) {
        ErrorClass::Reset | ErrorClass::Truncated => ErrorClass::TlsClosed,
        ErrorClass::Timeout => ErrorClass::TlsTimeout,
        other => other,
    }
}

/// The cause of a handshake error, if more than its class is known.
pub(crate) fn handshake_cause(error: ConnectionError) -> Option<&'static str> {
    if let ConnectionError::Tls(failure) = error { failure.cause() } else { None }
}

fn proxy_failure(status: Option<u16>) -> ErrorClass {
    match status {
        Some(401 | 407) => ErrorClass::ProxyLogin,
        Some(500..600) => ErrorClass::ProxyUnreachable,
        Some(0) => ErrorClass::ProxyMalformed,
        _ => ErrorClass::ProxyRefused,
    }
}

fn tls_failure(failure: Failure) -> ErrorClass {
    match failure {
        Failure::CertificateExpired => ErrorClass::TlsExpired,
        Failure::CertificateNotYetValid => ErrorClass::TlsNotYetValid,
        Failure::WrongName | Failure::NoNames => ErrorClass::TlsWrongName,
        Failure::UnknownIssuer => ErrorClass::TlsUnknownIssuer,
        Failure::IsAuthority => ErrorClass::TlsIsAuthority,
        Failure::BadCertificate(_) => ErrorClass::TlsBadCertificate,
        Failure::ProtocolVersion => ErrorClass::TlsVersion,
        Failure::NoCommonCipher => ErrorClass::TlsCipher,
        Failure::CertificateRequired => ErrorClass::TlsClientRequired,
        Failure::CertificateRefused => ErrorClass::TlsClientRefused,
        Failure::NotTls => ErrorClass::NotTls,
        Failure::ClosedInHandshake => ErrorClass::TlsClosed,
        Failure::Decrypt => ErrorClass::TlsDecrypt,
        _ => ErrorClass::TlsOther,
    }
}

/// The class of an error in an answer.
pub(crate) fn parse_failure(error: &Error) -> ErrorClass {
    match error.kind() {
        ErrorKind::Malformed => ErrorClass::Malformed,
        ErrorKind::Framing => ErrorClass::Framing,
        ErrorKind::TooLarge => ErrorClass::TooLarge,
        ErrorKind::Truncated => ErrorClass::Truncated,
    }
}

/// The first bytes of other protocols.
const OTHERS: [(&[u8], &str); 3] =
    [(b"\x15\x03", "TLS: https://?"), (b"\x16\x03", "TLS: https://?"), (b"SSH-", "SSH")];

/// The cause of this error in an answer that began with `bytes`.
pub(crate) fn parse_cause(error: &Error, bytes: &[u8]) -> String {
    let other = OTHERS.into_iter().find(|(start, _)| bytes.starts_with(start));
    match (error, other) {
        (Error::NotHttp { at: 0 }, Some((_, name))) => format!("it looks like {name}"),
        _ => error.to_string(),
    }
}

fn local_failure(errno: Errno) -> ErrorClass {
    match errno {
        Errno::MFILE | Errno::NFILE => ErrorClass::Descriptors,
        // connect(2) also returns EAGAIN when no local port is free.
        Errno::ADDRNOTAVAIL | Errno::ADDRINUSE | Errno::AGAIN => ErrorClass::Ports,
        Errno::NOBUFS | Errno::NOMEM => ErrorClass::Buffers,
        _ => ErrorClass::LocalOther,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::Origin;

    #[test]
    fn other_protocols_are_recognised_by_their_first_bytes() {
        let cause = |bytes: &[u8], at| parse_cause(&Error::NotHttp { at }, bytes);
        assert_eq!(cause(&[21, 3, 1, 0, 2, 2, 70], 0), "it looks like TLS: https://?");
        assert_eq!(cause(b"SSH-2.0-OpenSSH_9.2p1\r\n", 0), "it looks like SSH");
        assert!(cause(b"220 mail.example", 0).starts_with("not an HTTP/1 answer"));
        assert!(cause(b"SSH-", 3).contains("byte 3"), "not its first bytes");
    }

    #[test]
    fn errors_of_this_machine_are_never_the_targets() {
        for errno in
            [Errno::MFILE, Errno::NFILE, Errno::ADDRNOTAVAIL, Errno::NOBUFS, Errno::NOMEM, Errno::PERM]
        {
            assert_eq!(connect_failure(errno).origin(), Origin::Local, "{errno:?}");
        }
        for errno in [Errno::CONNREFUSED, Errno::CONNRESET, Errno::TIMEDOUT, Errno::NETUNREACH] {
            assert_eq!(connect_failure(errno).origin(), Origin::Network, "{errno:?}");
            if errno != Errno::CONNREFUSED {
                assert_eq!(stream_failure(errno).origin(), Origin::Network, "{errno:?}");
            }
        }
    }
}
