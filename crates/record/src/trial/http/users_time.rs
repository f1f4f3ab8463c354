//! Where the users' time went.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The time of all users by the state that each of them was in, in seconds, as the generator saw it. The states add up to the
/// users' time. A user of a closed load counts from its start to the end of the duration; a request of an open load counts as a user from
/// when it is due to its answer. See `docs/verdict.md`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UsersTime {
    /// Planned pauses.
    pub paused_s: f64,
    /// The generator was late: it had not read the last answer yet, or had not sent the next request.
    pub own_s: f64,
    /// A request was due, and every connection was busy.
    pub no_free_connection_s: f64,
    /// The connection was being opened, with TLS and proxies; pauses after refused attempts count, too.
    pub connecting_s: f64,
    /// The kernel took the request's bytes.
    pub sending_s: f64,
    /// From the last byte of the request to the first byte of the answer.
    pub waiting_s: f64,
    /// From the first byte of the answer to its last byte.
    pub receiving_s: f64,
    /// The part of the time above that belongs to requests that timed out, or hung at the end.
    pub unanswered_s: f64,
}

impl UsersTime {
    /// The time of all users, in seconds.
    pub fn total_s(&self) -> f64 {
        self.states().iter().map(|(_, s)| s).sum()
    }

    /// The states by their names, with their times in seconds.
    pub fn states(&self) -> [(&'static str, f64); 7] {
        [
            ("paused", self.paused_s),
            ("own", self.own_s),
            ("no free connection", self.no_free_connection_s),
            ("connecting", self.connecting_s),
            ("sending", self.sending_s),
            ("waiting", self.waiting_s),
            ("receiving", self.receiving_s),
        ]
    }

    /// The states that took at least a hundredth of the time: `97 % waiting, 2 % receiving`; nothing if there was none.
    pub fn in_words(&self) -> String {
        let total_s = self.total_s().max(f64::MIN_POSITIVE);
        let shares = self.states().into_iter().map(|(state, s)| (state, s / total_s));
        let mut shares: Vec<_> = shares.filter(|(_, share)| *share >= 0.01).collect();
        shares.sort_by(|a, b| b.1.total_cmp(&a.1));
        let words = shares.into_iter().map(|(state, share)| format!("{:.0} % {state}", share * 100.0));
        words.collect::<Vec<_>>().join(", ")
    }

    /// Adds the time of other users.
    pub fn merge(&mut self, other: &Self) {
        self.paused_s += other.paused_s;
        self.own_s += other.own_s;
        self.no_free_connection_s += other.no_free_connection_s;
        self.connecting_s += other.connecting_s;
        self.sending_s += other.sending_s;
        self.waiting_s += other.waiting_s;
        self.receiving_s += other.receiving_s;
        self.unanswered_s += other.unanswered_s;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_states_add_up_and_the_longest_comes_first() {
        let mut users = UsersTime { waiting_s: 9.0, receiving_s: 0.2, ..UsersTime::default() };
        users.merge(&UsersTime {
            paused_s: 10.0,
            sending_s: 0.05,
            unanswered_s: 3.0,
            ..UsersTime::default()
        });
        assert_eq!(users.in_words(), "52 % paused, 47 % waiting, 1 % receiving");
        assert!((users.total_s() - 19.25).abs() < 1e-9, "the mark belongs to the other states");
        assert_eq!(UsersTime::default().in_words(), "");
    }
}
