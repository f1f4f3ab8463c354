//! Whether and when a failed request is retried.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use record::ErrorClass;

/// Wait before the first retry, in nanoseconds. It doubles with each further retry.
const FIRST_WAIT_NS: u64 = 50_000_000;
/// Longest wait, in nanoseconds, even if the receiver asks for a longer one.
const MAX_WAIT_NS: u64 = 10_000_000_000;

/// Statuses of transient failures: a timeout, too many requests, and servers or proxies that are overloaded, restarting or
/// out of space (RFC 9110, RFC 6585, RFC 4918).
const TRANSIENT: [u16; 7] = [408, 429, 500, 502, 503, 504, 507];
/// The server still processes the first request with the same idempotency key
/// (draft-ietf-httpapi-idempotency-key-header).
const KEY_IN_USE: u16 = 409;
/// A gateway got no answer, or no valid one, from the server behind it.
const GATEWAY: [u16; 2] = [502, 504];

/// Exponential backoff. Each wait is drawn from its upper half, so that clients that failed together do not retry together.
#[derive(Debug)]
pub(super) struct Backoff {
    rng: Pcg64Mcg,
}

impl Backoff {
    /// A backoff whose random numbers depend on `seed` alone.
    pub(super) fn new(seed: u64) -> Self {
        Self { rng: Pcg64Mcg::seed_from_u64(seed ^ 0x7265_7472_6965_7321) }
    }

    /// Time to wait before retry `n` (from 1), in nanoseconds: at least the time that the receiver asks for, at most
    /// `MAX_WAIT_NS`.
    pub(super) fn wait_ns(&mut self, n: u8, retry_after_s: Option<u32>) -> u64 {
        let doublings = u32::from(n.saturating_sub(1)).min(20);
        let max_ns = FIRST_WAIT_NS.saturating_mul(1 << doublings).min(MAX_WAIT_NS);
        let drawn_ns = self.rng.random_range(max_ns / 2..=max_ns);
        let asked_ns = retry_after_s.map_or(0, |s| u64::from(s).saturating_mul(1_000_000_000));
        drawn_ns.max(asked_ns.min(MAX_WAIT_NS))
    }
}

/// Whether a retry may succeed: after a connection error, a timeout, or a transient status. A retry cannot help if the
/// answer is not HTTP, or the request is rejected as invalid. `has_key`: the request has an idempotency key.
pub(super) fn is_transient(class: ErrorClass, status: Option<u16>, has_key: bool) -> bool {
    match class {
        ErrorClass::Status => {
            status.is_some_and(|status| TRANSIENT.contains(&status) || (has_key && status == KEY_IN_USE))
        }
        ErrorClass::ConnectRefused
        | ErrorClass::ConnectTimeout
        | ErrorClass::ConnectReset
        | ErrorClass::Unreachable
        | ErrorClass::ProxyLogin
        | ErrorClass::ProxyMalformed
        | ErrorClass::ProxyRefused
        | ErrorClass::ProxyUnreachable
        | ErrorClass::ProxyTimeout
        | ErrorClass::Reset
        | ErrorClass::ClosedEarly
        | ErrorClass::ClosedUnused
        | ErrorClass::Truncated
        | ErrorClass::TlsClosed
        | ErrorClass::TlsTimeout
        | ErrorClass::Timeout => true,
        ErrorClass::Descriptors
        | ErrorClass::Ports
        | ErrorClass::Buffers
        | ErrorClass::LocalOther
        | ErrorClass::TlsExpired
        | ErrorClass::TlsNotYetValid
        | ErrorClass::TlsWrongName
        | ErrorClass::TlsUnknownIssuer
        | ErrorClass::TlsBadCertificate
        | ErrorClass::TlsIsAuthority
        | ErrorClass::TlsVersion
        | ErrorClass::TlsCipher
        | ErrorClass::TlsClientRequired
        | ErrorClass::TlsClientRefused
        | ErrorClass::NotTls
        | ErrorClass::TlsDecrypt
        | ErrorClass::TlsOther
        | ErrorClass::Malformed
        | ErrorClass::Framing
        | ErrorClass::TooLarge
        | ErrorClass::Unsolicited
        | ErrorClass::Check
        | ErrorClass::Value => false,
    }
}

/// Whether the receiver may have stored the events although this status is not a success.
pub(super) fn may_be_stored(status: u16, has_key: bool) -> bool {
    GATEWAY.contains(&status) || (has_key && status == KEY_IN_USE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_a_bound_and_differ() {
        let mut backoff = Backoff::new(1);
        for (n, max_ns) in
            [(1, FIRST_WAIT_NS), (2, 2 * FIRST_WAIT_NS), (5, 16 * FIRST_WAIT_NS), (250, MAX_WAIT_NS)]
        {
            let waits: Vec<u64> = (0..100).map(|_| backoff.wait_ns(n, None)).collect();
            assert!(waits.iter().all(|wait| (max_ns / 2..=max_ns).contains(wait)), "{n}: {waits:?}");
            assert!(waits.windows(2).any(|pair| pair[0] != pair[1]));
        }
        assert_eq!(backoff.wait_ns(1, Some(3)), 3_000_000_000);
        assert_eq!(backoff.wait_ns(1, Some(86_400)), MAX_WAIT_NS);
    }

    #[test]
    fn refusals_as_wrong_are_final() {
        for status in [400, 401, 404, 409, 413, 415, 501] {
            assert!(!is_transient(ErrorClass::Status, Some(status), false), "{status}");
        }
        assert!(!is_transient(ErrorClass::Status, Some(422), true));
        assert!(is_transient(ErrorClass::Status, Some(409), true), "its first request is still being stored");
        assert!(
            is_transient(ErrorClass::Status, Some(503), false)
                && is_transient(ErrorClass::Reset, None, false)
        );
        assert!(
            !is_transient(ErrorClass::Malformed, None, true) && !is_transient(ErrorClass::Ports, None, true)
        );
    }
}
