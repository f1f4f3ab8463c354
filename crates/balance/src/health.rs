//! Health checks of servers, and the decision whether a server is up or down.

use std::{ops::RangeInclusive, time::Duration};

use crate::probe::{Fault, Outcome};

/// The health check of a VIP's servers.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    /// The request of a probe.
    pub kind: CheckKind,
    /// Port of the VIP that is probed; the first port of the VIP if none.
    pub port: Option<u16>,
    /// Time from the start of a probe to the start of the next one.
    pub interval: Duration,
    /// Maximum time until the answer.
    pub timeout: Duration,
    /// Random variation of the time between probes, as a share of the interval, from 0 to 1.
    pub jitter: f64,
    /// Number of good probes in a row, at least 1, after which a server that was down is up.
    pub rise: u32,
    /// Number of bad probes in a row, at least 1, after which a server that was up is down.
    pub fall: u32,
}

/// The request of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckKind {
    /// Servers are not checked.
    None,
    /// The server must accept connections.
    Tcp,
    /// The server must answer an HTTP/1.1 request.
    Http {
        /// Whether the request uses TLS. Any certificate is accepted.
        tls: bool,
        /// Path of the request, with a leading slash.
        path: String,
        /// Host header of the request; the address of the VIP if none.
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

/// Decides from the results of its probes whether a server is up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Health {
    /// The current verdict. If the server is down, it contains the fault of the last bad probe. After `fall` silent
    /// results in a row, the server counts as silent until it answers once.
    now: Outcome,
    /// Whether the server counts as down only because no probe has ended yet.
    is_new: bool,
    /// Number of results in a row that contradict the current verdict.
    against: u32,
    /// Number of silent results in a row.
    silences: u32,
}

impl Health {
    /// The health of a server with this verdict before its first probe.
    pub(crate) fn new(now: Outcome) -> Self {
        Self { is_new: now.is_err(), now, against: 0, silences: 0 }
    }

    /// The current verdict.
    pub(crate) fn now(&self) -> &Outcome {
        &self.now
    }

    /// Counts a result. Returns whether the verdict or its reason has changed.
    pub(crate) fn count(&mut self, check: &Check, result: Outcome) -> bool {
        let is_own = |outcome: &Outcome| matches!(outcome, Err(fault) if fault.is_own);
        let (was_up, was_silent) = (self.now.is_ok(), matches!(&self.now, Err(fault) if fault.is_silent));
        let now = match result {
            // A fault of the balancer says nothing about the server. But for a server that was never probed, it is the
            // only known reason.
            Err(fault) if fault.is_own && is_own(&self.now) => Err(Fault { is_silent: was_silent, ..fault }),
            Err(fault) if fault.is_own => self.now.clone(),
            result => {
                let is_new = std::mem::take(&mut self.is_new);
                self.against = if result.is_ok() == was_up { 0 } else { self.against + 1 };
                // A server that has not failed a probe yet counts as up after its first good one.
                let is_other = self.against >= if is_new { 1 } else { self.needed(check) };
                self.against = if is_other { 0 } else { self.against };
                let is_answered = matches!(&result, Err(fault) if !fault.is_silent);
                self.silences =
                    if result.is_err() && !is_answered { self.silences.saturating_add(1) } else { 0 };
                let is_silent = was_silent && !is_answered || self.silences >= check.fall.max(1);
                match result {
                    _ if was_up != is_other => Ok(()),
                    // While a server is still down, a good result changes neither the reason nor the silence.
                    Ok(()) => self.now.clone(),
                    Err(fault) => Err(Fault { is_silent, ..fault }),
                }
            }
        };
        std::mem::replace(&mut self.now, now) != self.now
    }

    /// Time until the next probe; `chance` is a random number from 0 to 1. While results contradict the current
    /// verdict, probes come faster: one interval has as many as are needed to change the verdict, so that a dead server
    /// is noticed soon.
    pub(crate) fn wait(&self, check: &Check, chance: f64) -> Duration {
        let interval = if self.against == 0 { check.interval } else { check.interval / self.needed(check) };
        interval.mul_f64(1.0 + check.jitter.clamp(0.0, 1.0) * (chance - 0.5))
    }

    fn needed(&self, check: &Check) -> u32 {
        if self.now.is_ok() { check.fall } else { check.rise }.max(1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A server without any result yet.
    fn unknown(is_silent: bool) -> Health {
        Health::new(Err(Fault { is_silent, ..Fault::own("it has not been checked yet") }))
    }

    /// In `results`, `+` is a good result, `-` a bad answer, `0` silence. Each result gives `U` if the server is up,
    /// `D` if it is down, `S` if it is down and silent, `.` if nothing changed.
    fn after(health: &mut Health, check: &Check, results: &str) -> String {
        let mut change = |result| {
            let fault = Fault { is_silent: result == '0', ..Fault::answered(String::new()) };
            let result = if result == '+' { Ok(()) } else { Err(fault) };
            match (health.count(check, result), health.now()) {
                (false, _) => '.',
                (true, Ok(())) => 'U',
                (true, Err(fault)) if fault.is_silent => 'S',
                (true, Err(_)) => 'D',
            }
        };
        results.chars().map(&mut change).collect()
    }

    #[test]
    fn what_the_balancer_cannot_ask_is_no_fault_of_the_server() {
        let check = Check { fall: 1, ..Check::default() };
        let mut health = Health::new(Ok(()));
        assert!(!health.count(&check, Err(Fault::own("no port is free"))) && health.now().is_ok());
        let refuses = Err(Fault::answered("refuses".to_owned()));
        assert!(health.count(&check, refuses.clone()) && *health.now() == refuses);
        assert!(!health.count(&check, Err(Fault::own("no port is free"))) && *health.now() == refuses);
        // If the server was never probed, the balancer's fault is the only known reason.
        let mut health = unknown(true);
        assert!(health.count(&check, Err(Fault::own("no port is free"))));
        let why = |health: &Health| health.now().clone().unwrap_err();
        assert_eq!((why(&health).why.as_str(), why(&health).is_silent), ("no port is free", true));
    }

    #[test]
    fn results_in_a_row_count() {
        let check = Check { rise: 2, fall: 3, ..Check::default() };
        for (is_up, results, changes) in [
            (true, "+--+---+", "......D."),
            (true, "---+-++-", "..D...U."),
            (false, "+", "U"),
            (false, "-+-++", "D...U"),
            (true, "--", ".."),
        ] {
            let mut health = if is_up { Health::new(Ok(())) } else { unknown(false) };
            assert_eq!(after(&mut health, &check, results), changes, "{is_up} {results}");
        }
    }

    #[test]
    fn only_silence_for_as_long_as_a_fall_counts_as_silent() {
        let check = Check { rise: 2, fall: 3, ..Check::default() };
        for (results, changes) in [
            ("000", "..S"),
            ("00-000", "..D..S"),
            ("-0000", "..DS."),
            // One bad answer ends the silence. Good answers change nothing until the server is up.
            ("000-", "..SD"),
            ("0000+0++", "..S....U"),
            ("000+-", "..S.D"),
        ] {
            assert_eq!(after(&mut Health::new(Ok(())), &check, results), changes, "{results}");
        }
        assert_eq!(after(&mut unknown(true), &check, "00-"), "S.D", "of a server that is new");
        assert_eq!(after(&mut unknown(false), &check, "-000"), "D..S", "after another start");
    }

    #[test]
    fn a_server_that_is_down_is_so_for_what_its_last_probe_has_found() {
        let (check, mut health) = (Check::default(), unknown(true));
        let mut told = Vec::new();
        for why in ["no answer", "no answer", "no ARP", "no answer"] {
            if health.count(&check, Err(Fault::silent(why))) {
                told.push(health.now().clone());
            }
        }
        let silent = |why| Err(Fault::silent(why));
        assert_eq!(told, [silent("no answer"), silent("no ARP"), silent("no answer")]);
    }

    #[test]
    fn doubts_are_settled_within_an_interval() {
        let check = Check { interval: Duration::from_secs(3), jitter: 0.2, fall: 3, ..Check::default() };
        let mut health = Health::new(Ok(()));
        assert_eq!(health.wait(&check, 0.5), Duration::from_secs(3));
        assert_eq!(health.wait(&check, 0.0), Duration::from_millis(2_700));
        assert_eq!(health.wait(&check, 1.0), Duration::from_millis(3_300));
        health.count(&check, Err(Fault::answered(String::new())));
        assert_eq!(health.wait(&check, 0.5), Duration::from_secs(1));
    }

    proptest! {
        /// Compares the result with a model that uses all results so far.
        #[test]
        fn a_server_changes_after_as_many_results_as_asked(
            rise in 1_u32..5, fall in 1_u32..5, results in proptest::collection::vec(any::<bool>(), 0..60)
        ) {
            let check = Check { rise, fall, ..Check::default() };
            let (mut health, mut is_up, mut since) = (Health::new(Ok(())), true, 0);
            for (at, result) in results.iter().enumerate() {
                let needed = if is_up { fall } else { rise } as usize;
                let last = &results[since.max((at + 1).saturating_sub(needed))..=at];
                let changes = last.len() == needed && last.iter().all(|result| *result != is_up);
                if changes {
                    is_up = !is_up;
                    since = at + 1;
                }
                let fault = Fault::answered(String::new());
                prop_assert_eq!(health.count(&check, if *result { Ok(()) } else { Err(fault) }), changes);
                prop_assert_eq!(health.now().is_ok(), is_up);
            }
        }
    }
}
