//! Classes of failure, grouped by origin.

use std::{collections::BTreeMap, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The origin of a failure: which side has to act.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// This machine ran out of a resource: the instrument's fault, never the target's.
    Local,
    /// The connection was not established, or broke.
    Network,
    /// The response violates the HTTP standards.
    Http,
    /// The response is valid HTTP, but unexpected.
    Expectation,
}

macro_rules! error_classes {
    ($($variant:ident $name:literal $origin:ident $meaning:literal,)*) => {
        /// One class of failure. A request is counted in one class only.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        #[repr(u8)]
        pub enum ErrorClass { $(#[doc = $meaning] $variant,)* }

        impl ErrorClass {
            /// Every class, in the order of presentation.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The class's name in results.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The class's origin.
            pub fn origin(self) -> Origin {
                match self { $(Self::$variant => Origin::$origin,)* }
            }

            /// A description of the failure.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)* }
            }
        }
    };
}

error_classes! {
    Descriptors "descriptors" Local "no file descriptor left (EMFILE, ENFILE)",
    Ports "ports" Local "no local port left towards the target (EADDRNOTAVAIL)",
    Buffers "buffers" Local "no kernel memory left for sockets (ENOBUFS, ENOMEM)",
    LocalOther "local_other" Local "this machine refused the system call",
    ConnectRefused "connect_refused" Network "connection refused",
    ConnectTimeout "connect_timeout" Network "no connection within the timeout",
    ConnectReset "connect_reset" Network "connection reset while it was being made",
    Unreachable "unreachable" Network "no route to the target",
    ProxyLogin "proxy_login" Network "the proxy requires a login, or rejected the one it got (401, 407)",
    ProxyUnreachable "proxy_unreachable" Network "the proxy did not reach the target (5xx)",
    ProxyRefused "proxy_refused" Network "the proxy refused the tunnel, or closed the connection before it answered",
    ProxyMalformed "proxy_malformed" Network "the proxy's answer was not HTTP, or unexpected bytes followed it",
    ProxyTimeout "proxy_timeout" Network "no answer from the proxy within the timeout",
    TlsExpired "tls_expired" Network "certificate of the target has expired",
    TlsNotYetValid "tls_not_yet_valid" Network "certificate of the target is not valid yet",
    TlsWrongName "tls_wrong_name" Network "certificate of the target is for another name",
    TlsUnknownIssuer "tls_unknown_issuer" Network "no trusted authority issued the target's certificate",
    TlsIsAuthority "tls_is_authority" Network "certificate of the target is an authority's own (CA:TRUE)",
    TlsBadCertificate "tls_bad_certificate" Network "certificate of the target is wrong in another way",
    TlsVersion "tls_version" Network "no TLS version in common with the target",
    TlsCipher "tls_cipher" Network "no cipher suite, key exchange or signature scheme in common with the target",
    TlsClientRequired "tls_client_required" Network "the target requires a client certificate, and none was sent",
    TlsClientRefused "tls_client_refused" Network "the target refused the client certificate",
    NotTls "not_tls" Network "the target does not speak TLS on this port",
    TlsClosed "tls_closed" Network "connection closed or reset during the TLS handshake",
    TlsTimeout "tls_timeout" Network "no complete TLS handshake within the timeout",
    TlsDecrypt "tls_decrypt" Network "bytes that cannot be decrypted",
    TlsOther "tls_other" Network "the target broke the TLS protocol, or sent another TLS alert",
    Reset "reset" Network "connection reset by the target",
    ClosedEarly "closed_early" Network "connection closed before the first byte of the answer",
    ClosedUnused "closed_unused" Network "pooled connection closed by the target before it carried a request",
    Truncated "truncated" Network "connection closed before the end of the answer",
    Timeout "timeout" Network "no complete answer within the timeout",
    Malformed "malformed" Http "answer head that is not HTTP/1.1",
    Framing "framing" Http "lengths or chunks of the answer that violate HTTP/1.1",
    TooLarge "too_large" Http "answer head or chunk line longer than the limit",
    Unsolicited "unsolicited" Http "bytes that answer no request",
    Status "status" Expectation "status other than the expected one",
    Check "check" Expectation "answer that fails a check other than its status",
    Value "value" Expectation "answer without a value that a step takes, or a value that no header field can carry",
}

impl ErrorClass {
    /// Whether TLS failed.
    pub fn is_tls(self) -> bool {
        (Self::TlsExpired..=Self::TlsOther).contains(&self)
    }

    /// Whether no connection was established.
    pub fn is_connect(self) -> bool {
        (Self::ConnectRefused..=Self::Unreachable).contains(&self)
    }

    /// Whether a proxy opened no tunnel.
    pub fn is_proxy(self) -> bool {
        (Self::ProxyLogin..=Self::ProxyTimeout).contains(&self)
    }

    /// Whether the request got no answer of the protocol: nothing listens, TLS failed, or the other side speaks another
    /// protocol.
    pub fn is_no_answer(self) -> bool {
        self.is_connect()
            || self.is_proxy()
            || self.is_tls()
            || matches!(
                self,
                Self::Reset | Self::ClosedEarly | Self::ClosedUnused | Self::Malformed | Self::Unsolicited
            )
    }

    /// Whether the request ended by a timeout, so that its time is censored.
    pub fn is_timeout(self) -> bool {
        matches!(self, Self::Timeout | Self::ConnectTimeout | Self::ProxyTimeout | Self::TlsTimeout)
    }
}

impl fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The number of failures of each class.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct ErrorCounts {
    by_class: BTreeMap<ErrorClass, u64>,
}

impl ErrorCounts {
    /// Counts `n` more failures of a class.
    pub fn add(&mut self, class: ErrorClass, n: u64) {
        if n > 0 {
            *self.by_class.entry(class).or_default() += n;
        }
    }

    /// The number of failures of one class.
    pub fn of(&self, class: ErrorClass) -> u64 {
        self.by_class.get(&class).copied().unwrap_or(0)
    }

    /// Connections that the target or the network refused, including those that the target closed unused.
    pub fn connect_failures(&self) -> u64 {
        let is_of_connection = |class: ErrorClass| class.is_connect() || class == ErrorClass::ClosedUnused;
        self.iter().filter(|(class, _)| is_of_connection(*class)).map(|(_, n)| n).sum()
    }

    /// Whether there are no failures.
    pub fn is_empty(&self) -> bool {
        self.by_class.values().all(|&n| n == 0)
    }

    /// The number of all failures.
    pub fn total(&self) -> u64 {
        self.by_class.values().sum()
    }

    /// The classes that occurred, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (ErrorClass, u64)> + '_ {
        self.by_class.iter().map(|(&class, &n)| (class, n))
    }

    /// Adds all counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (class, n) in other.iter() {
            self.add(class, n);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_results_are_the_displayed_names() {
        for &class in ErrorClass::ALL {
            assert_eq!(serde_json::to_value(class).unwrap(), class.name());
        }
    }

    #[test]
    fn a_class_is_of_the_kind_that_its_name_says() {
        for class in ErrorClass::ALL {
            let name = class.name();
            assert_eq!(
                (class.is_proxy(), class.is_tls()),
                (name.starts_with("proxy_"), name.contains("tls")),
                "{class}"
            );
            assert_eq!(class.is_timeout(), name.ends_with("timeout"), "{class}");
        }
    }

    #[test]
    fn counts_merge_by_class() {
        let mut a = ErrorCounts::default();
        a.add(ErrorClass::Reset, 2);
        let mut b = ErrorCounts::default();
        b.add(ErrorClass::Reset, 3);
        b.add(ErrorClass::Descriptors, 1);
        a.merge(&b);
        assert_eq!((a.of(ErrorClass::Reset), a.of(ErrorClass::Descriptors), a.total()), (5, 1, 6));
    }
}
