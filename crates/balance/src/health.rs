//! How servers are checked, and when a server counts as up or down.

use std::{ops::RangeInclusive, time::Duration};

use crate::probe::Fault;

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
    /// Whether it is down and has been silent for as many results in a row as make a server down; one answer ends that.
    is_silent: bool,
    /// Nothing is known of a server that has just been added and counts as down.
    is_new: bool,
    /// Results in a row that speak against what it counts as.
    against: u32,
    /// Silent results in a row.
    silences: u32,
}

impl Health {
    /// A server that counts as up or down before its first probe.
    pub(crate) fn new(is_up: bool, is_silent: bool) -> Self {
        Self { is_up, is_silent, is_new: !is_up, against: 0, silences: 0 }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.is_up
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// Counts a result. Says whether what the server counts as has changed.
    pub(crate) fn count(&mut self, check: &Check, result: Result<(), &Fault>) -> bool {
        // What keeps the balancer from asking is no fault of the server.
        if result.is_err_and(|fault| fault.is_own) {
            return false;
        }
        let before = (self.is_up, self.is_silent);
        let is_new = std::mem::take(&mut self.is_new);
        self.against = if result.is_ok() == self.is_up { 0 } else { self.against + 1 };
        // What nothing bad is known of need not prove itself.
        let needed = if is_new { 1 } else { self.needed(check) };
        if self.against >= needed {
            (self.is_up, self.against) = (result.is_ok(), 0);
        }
        let is_answered = matches!(result, Err(fault) if !fault.is_silent);
        self.silences = if result.is_err() && !is_answered { self.silences.saturating_add(1) } else { 0 };
        // A server that has just begun to answer well stays silent until it is up: a change needs a reason.
        let is_still = self.is_silent && !is_answered;
        self.is_silent = !self.is_up && (is_still || self.silences >= check.fall.max(1));
        before != (self.is_up, self.is_silent)
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

    /// `+` is a good result, `-` a bad answer, `0` silence. Gives `U` for up, `D` for down, `S` for down and silent.
    fn after(health: &mut Health, check: &Check, results: &str) -> String {
        let mut change = |result| {
            let fault = Fault { is_silent: result == '0', ..Fault::answered(String::new()) };
            let result = if result == '+' { Ok(()) } else { Err(&fault) };
            match (health.count(check, result), health.is_up(), health.is_silent()) {
                (false, ..) => '.',
                (true, true, _) => 'U',
                (true, false, true) => 'S',
                (true, false, false) => 'D',
            }
        };
        results.chars().map(&mut change).collect()
    }

    #[test]
    fn what_the_balancer_cannot_ask_is_no_fault_of_the_server() {
        let check = Check { fall: 1, ..Check::default() };
        let mut health = Health::new(true, false);
        assert!(!health.count(&check, Err(&Fault::own("no port is free".to_owned()))) && health.is_up());
        assert!(health.count(&check, Err(&Fault::answered("refuses".to_owned()))) && !health.is_up());
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
            assert_eq!(after(&mut Health::new(is_up, false), &check, results), changes, "{is_up} {results}");
        }
    }

    #[test]
    fn only_silence_for_as_long_as_a_fall_counts_as_silent() {
        let check = Check { rise: 2, fall: 3, ..Check::default() };
        for (results, changes) in [
            ("000", "..S"),
            ("00-000", "..D..S"),
            ("-0000", "..DS."),
            // One bad answer shows that the server is there, and good ones wait until it is up.
            ("000-", "..SD"),
            ("0000+0++", "..S....U"),
            ("000+-", "..S.D"),
        ] {
            assert_eq!(after(&mut Health::new(true, false), &check, results), changes, "{results}");
        }
        assert_eq!(after(&mut Health::new(false, true), &check, "00-"), "..D", "of a server that is new");
        assert_eq!(after(&mut Health::new(false, false), &check, "-000"), "...S", "after another start");
    }

    #[test]
    fn doubts_are_settled_within_an_interval() {
        let check = Check { interval: Duration::from_secs(3), jitter: 0.2, fall: 3, ..Check::default() };
        let mut health = Health::new(true, false);
        assert_eq!(health.wait(&check, 0.5), Duration::from_secs(3));
        assert_eq!(health.wait(&check, 0.0), Duration::from_millis(2_700));
        assert_eq!(health.wait(&check, 1.0), Duration::from_millis(3_300));
        health.count(&check, Err(&Fault::answered(String::new())));
        assert_eq!(health.wait(&check, 0.5), Duration::from_secs(1));
    }

    proptest! {
        /// Against a model that looks at all results so far.
        #[test]
        fn a_server_changes_after_as_many_results_as_asked(
            rise in 1_u32..5, fall in 1_u32..5, results in proptest::collection::vec(any::<bool>(), 0..60)
        ) {
            let check = Check { rise, fall, ..Check::default() };
            let (mut health, mut is_up, mut since) = (Health::new(true, false), true, 0);
            for (at, result) in results.iter().enumerate() {
                let needed = if is_up { fall } else { rise } as usize;
                let last = &results[since.max((at + 1).saturating_sub(needed))..=at];
                let changes = last.len() == needed && last.iter().all(|result| *result != is_up);
                if changes {
                    is_up = !is_up;
                    since = at + 1;
                }
                let fault = Fault::answered(String::new());
                prop_assert_eq!(health.count(&check, if *result { Ok(()) } else { Err(&fault) }), changes);
                prop_assert_eq!(health.is_up(), is_up);
            }
        }
    }
}
