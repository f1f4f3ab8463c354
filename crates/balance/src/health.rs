//! How servers are checked, and when a server counts as up or down.

use std::{ops::RangeInclusive, time::Duration};

/// How the servers of a VIP are checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    /// What is asked of a server.
    pub kind: CheckKind,
    /// Port of the VIP that is asked; none: the first one of the VIP.
    pub port: Option<u16>,
    /// Time from the begin of a probe to that of the next one.
    pub interval: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
    /// How much the time between probes differs by chance, as a part of the interval, from 0 to 1.
    pub jitter: f64,
    /// Good probes in a row after which a server that was down is up, from 1.
    pub rise: u32,
    /// Bad probes in a row after which a server that was up is down, from 1.
    pub fall: u32,
}

/// What is asked of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckKind {
    /// Nothing.
    None,
    /// That it accepts connections.
    Tcp,
    /// That it answers a request of HTTP/1.1.
    Http {
        /// Path of the request, with a slash in front.
        path: String,
        /// Host of the request; none: the address of the VIP.
        host: Option<String>,
        /// Statuses that are good.
        status: RangeInclusive<u16>,
    },
}

impl Default for Check {
    fn default() -> Self {
        Self {
            kind: CheckKind::Tcp,
            port: None,
            interval: Duration::from_secs(2),
            timeout: Duration::from_secs(1),
            jitter: 0.1,
            rise: 2,
            fall: 3,
        }
    }
}

/// Whether a server is up, by the results of its probes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Health {
    is_up: bool,
    /// Nothing is known of a server that has just been added and counts as down.
    is_new: bool,
    /// Results in a row that speak against what it counts as.
    against: u32,
}

impl Health {
    /// A server that counts as up or down before its first probe.
    pub(crate) fn new(is_up: bool) -> Self {
        Self { is_up, is_new: !is_up, against: 0 }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.is_up
    }

    /// Counts a result. Says whether the server is now up or down, if that has changed.
    pub(crate) fn count(&mut self, check: &Check, is_good: bool) -> Option<bool> {
        let is_new = std::mem::take(&mut self.is_new);
        if is_good == self.is_up {
            self.against = 0;
            return None;
        }
        self.against += 1;
        // What nothing bad is known of need not prove itself.
        let needed = if is_new { 1 } else { self.needed(check) };
        if self.against < needed {
            return None;
        }
        self.is_up = is_good;
        self.against = 0;
        Some(is_good)
    }

    /// Time until the next probe; `chance` is from 0 to 1. While results speak against what the server counts as, as many probes as
    /// that takes go into one interval: a server that is down is noticed soon.
    pub(crate) fn wait(&self, check: &Check, chance: f64) -> Duration {
        let interval = if self.against == 0 { check.interval } else { check.interval / self.needed(check) };
        interval.mul_f64(1.0 + check.jitter.clamp(0.0, 1.0) * (chance - 0.5))
    }

    fn needed(&self, check: &Check) -> u32 {
        if self.is_up { check.fall } else { check.rise }.max(1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn after(health: &mut Health, check: &Check, results: &str) -> String {
        let change = |result| match health.count(check, result == '+') {
            None => '.',
            Some(true) => 'U',
            Some(false) => 'D',
        };
        results.chars().map(change).collect()
    }

    #[test]
    fn results_in_a_row_count() {
        let check = Check { rise: 2, fall: 3, ..Check::default() };
        for (is_up, results, changes) in [
            (true, "+--+---+", "......D."),
            (true, "---+-++-", "..D...U."),
            (false, "+", "U"),
            (false, "-+-++", "....U"),
            (true, "--", ".."),
        ] {
            assert_eq!(after(&mut Health::new(is_up), &check, results), changes, "{is_up} {results}");
        }
    }

    #[test]
    fn doubts_are_settled_within_an_interval() {
        let check = Check { interval: Duration::from_secs(3), jitter: 0.2, fall: 3, ..Check::default() };
        let mut health = Health::new(true);
        assert_eq!(health.wait(&check, 0.5), Duration::from_secs(3));
        assert_eq!(health.wait(&check, 0.0), Duration::from_millis(2_700));
        assert_eq!(health.wait(&check, 1.0), Duration::from_millis(3_300));
        health.count(&check, false);
        assert_eq!(health.wait(&check, 0.5), Duration::from_secs(1));
    }

    proptest! {
        /// Against a model that looks at all results so far.
        #[test]
        fn a_server_changes_after_as_many_results_as_asked(
            rise in 1_u32..5, fall in 1_u32..5, results in proptest::collection::vec(any::<bool>(), 0..60)
        ) {
            let check = Check { rise, fall, ..Check::default() };
            let (mut health, mut is_up, mut since) = (Health::new(true), true, 0);
            for (at, result) in results.iter().enumerate() {
                let needed = if is_up { fall } else { rise } as usize;
                let last = &results[since.max((at + 1).saturating_sub(needed))..=at];
                let changes = last.len() == needed && last.iter().all(|result| *result != is_up);
                if changes {
                    is_up = !is_up;
                    since = at + 1;
                }
                prop_assert_eq!(health.count(&check, *result), changes.then_some(is_up));
                prop_assert_eq!(health.is_up(), is_up);
            }
        }
    }
}
