//! When a request that failed is made again, if at all.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use record::ErrorClass;

/// Wait before the first retry, in nanoseconds; each further one waits twice as long.
const FIRST_NS: u64 = 50_000_000;
/// Longest wait, in nanoseconds, also when the receiver asks for a longer one.
const LONGEST_NS: u64 = 10_000_000_000;

/// Statuses of failures that pass: a timeout, too many requests, and what servers and proxies say when they are
/// overloaded, restarting or out of space (RFC 9110, RFC 6585, RFC 4918).
const PASSING: [u16; 7] = [408, 429, 500, 502, 503, 504, 507];
/// The first request under the same idempotency key is still being worked on
/// (draft-ietf-httpapi-idempotency-key-header).
const IN_FLIGHT: u16 = 409;
/// A gateway had no answer, or none that it understood, from the one behind it.
const GATEWAY: [u16; 2] = [502, 504];

/// Waits that grow, each drawn from its upper half so that clients that failed together do not return together.
#[derive(Debug)]
pub(super) struct Backoff {
    rng: Pcg64Mcg,
}

impl Backoff {
    /// Draws from a stream of its own.
    pub(super) fn new(seed: u64) -> Self {
        Self { rng: Pcg64Mcg::seed_from_u64(seed ^ 0x7265_7472_6965_7321) }
    }

    /// How long to wait before retry `n` (from 1), at least as long as the receiver asked for.
    pub(super) fn wait_ns(&mut self, n: u8, retry_after_s: Option<u32>) -> u64 {
        let most_ns = FIRST_NS.saturating_mul(1 << u32::from(n.saturating_sub(1)).min(20)).min(LONGEST_NS);
        let own_ns = self.rng.random_range(most_ns / 2..=most_ns);
        let asked_ns = retry_after_s.map_or(0, |s| u64::from(s).saturating_mul(1_000_000_000));
        own_ns.max(asked_ns.min(LONGEST_NS))
    }
}

/// Whether a failure may be gone the next time: the connection, the time, or a status that says so. An answer that is
/// no HTTP will not get better, and neither will a request that is refused as wrong. `keyed`: it carries an idempotency
/// key.
pub(super) fn is_passing(class: ErrorClass, status: Option<u16>, keyed: bool) -> bool {
    match class {
        ErrorClass::Status => {
            status.is_some_and(|status| PASSING.contains(&status) || (keyed && status == IN_FLIGHT))
        }
        ErrorClass::ConnectRefused
        | ErrorClass::ConnectTimeout
        | ErrorClass::ConnectReset
        | ErrorClass::Unreachable
        | ErrorClass::Reset
        | ErrorClass::ClosedEarly
        | ErrorClass::ClosedUnused
        | ErrorClass::Truncated
        | ErrorClass::Timeout => true,
        ErrorClass::Descriptors
        | ErrorClass::Ports
        | ErrorClass::Buffers
        | ErrorClass::LocalOther
        | ErrorClass::Malformed
        | ErrorClass::Framing
        | ErrorClass::TooLarge
        | ErrorClass::Unsolicited => false,
    }
}

/// Whether an answer with this status, although no success, leaves open whether the events are stored.
pub(super) fn leaves_open(status: u16, keyed: bool) -> bool {
    GATEWAY.contains(&status) || (keyed && status == IN_FLIGHT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_a_bound_and_differ() {
        let mut backoff = Backoff::new(1);
        for (n, most_ns) in [(1, FIRST_NS), (2, 2 * FIRST_NS), (5, 16 * FIRST_NS), (250, LONGEST_NS)] {
            let waits: Vec<u64> = (0..100).map(|_| backoff.wait_ns(n, None)).collect();
            assert!(waits.iter().all(|wait| (most_ns / 2..=most_ns).contains(wait)), "{n}: {waits:?}");
            assert!(waits.windows(2).any(|pair| pair[0] != pair[1]));
        }
        assert_eq!(backoff.wait_ns(1, Some(3)), 3_000_000_000);
        assert_eq!(backoff.wait_ns(1, Some(86_400)), LONGEST_NS);
    }

    #[test]
    fn refusals_as_wrong_are_final() {
        for status in [400, 401, 404, 409, 413, 415, 501] {
            assert!(!is_passing(ErrorClass::Status, Some(status), false), "{status}");
        }
        assert!(!is_passing(ErrorClass::Status, Some(422), true));
        assert!(is_passing(ErrorClass::Status, Some(409), true), "its first request is still being stored");
        assert!(
            is_passing(ErrorClass::Status, Some(503), false) && is_passing(ErrorClass::Reset, None, false)
        );
        assert!(!is_passing(ErrorClass::Malformed, None, true) && !is_passing(ErrorClass::Ports, None, true));
    }
}
