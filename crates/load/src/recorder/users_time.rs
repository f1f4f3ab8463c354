//! Sums the time of the users by the state that each was in.

use record::UsersTime;

use super::InFlight;

/// The states' times in nanoseconds. Times after `until_ns` count for nothing.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct UsersNs {
    /// When the users' time ends: at the end of the duration in a closed load, never in an open one.
    pub(super) until_ns: u64,
    /// Before the end of sending, a user has no next request because it has sent all of them.
    pub(super) is_sending_over: bool,
    paused: u64,
    own: u64,
    no_free_connection: u64,
    connecting: u64,
    sending: u64,
    waiting: u64,
    receiving: u64,
    unanswered: u64,
}

impl UsersNs {
    /// Adds the time from when a request was due to its assignment to a connection at `now_ns`. For the last `own_ns` of it, the generator
    /// was late; before that, every connection was busy.
    #[inline]
    pub(crate) fn was_due(&mut self, due_ns: u64, own_ns: u64, now_ns: u64) {
        let late_from_ns = now_ns - own_ns;
        if now_ns <= self.until_ns {
            self.own += own_ns;
            self.no_free_connection += late_from_ns.saturating_sub(due_ns);
        } else {
            self.own += self.span(late_from_ns, now_ns);
            self.no_free_connection += self.span(due_ns, late_from_ns);
        }
    }

    /// Adds the time from when a user was ready to the end of the users' time, if the end came before the generator noticed.
    pub(crate) fn late_to_the_end(&mut self, ready_ns: u64) {
        if self.is_sending_over && self.until_ns < u64::MAX {
            self.own += self.span(ready_ns, self.until_ns);
        }
    }

    /// Adds a planned pause of a user.
    pub(crate) fn paused(&mut self, from_ns: u64, to_ns: u64) {
        self.paused += self.span(from_ns, to_ns);
    }

    /// Adds a pause of a user after a refused connection attempt.
    pub(crate) fn refused_for(&mut self, from_ns: u64, to_ns: u64) {
        self.connecting += self.span(from_ns, to_ns);
    }

    /// Adds the time of a request from its assignment to a connection to its end at `end_ns`. `first_byte_ns`: when the first byte of its
    /// answer came; later than `end_ns` if none came.
    #[inline]
    pub(crate) fn served(&mut self, request: &InFlight, first_byte_ns: u64, end_ns: u64) {
        // Most requests are sent at once on an open connection, and their answers come in one piece.
        let is_simple = request.started_ns == request.sent_whole_ns && first_byte_ns >= end_ns;
        if is_simple && end_ns <= self.until_ns {
            self.waiting += end_ns - request.started_ns;
        } else {
            self.served_in_parts(request, first_byte_ns, end_ns);
        }
    }

    #[inline(never)]
    fn served_in_parts(&mut self, request: &InFlight, first_byte_ns: u64, end_ns: u64) {
        if request.sent_ns == 0 {
            self.connecting += self.span(request.started_ns, end_ns);
            return;
        }
        // An answer may come before the request is completely sent.
        let first_byte_ns = first_byte_ns.min(end_ns);
        let sent_ns =
            if request.sent_whole_ns == 0 { first_byte_ns } else { request.sent_whole_ns.min(first_byte_ns) };
        self.connecting += self.span(request.started_ns, request.sent_ns);
        self.sending += self.span(request.sent_ns, sent_ns);
        self.waiting += self.span(sent_ns, first_byte_ns);
        self.receiving += self.span(first_byte_ns, end_ns);
    }

    /// Adds the time of a request that got no answer until `end_ns`.
    pub(crate) fn unanswered(&mut self, request: &InFlight, end_ns: u64) {
        self.unanswered += self.span(request.started_ns, end_ns);
    }

    pub(super) fn total(&self) -> UsersTime {
        let s = |ns: u64| ns as f64 / 1e9;
        UsersTime {
            paused_s: s(self.paused),
            own_s: s(self.own),
            no_free_connection_s: s(self.no_free_connection),
            connecting_s: s(self.connecting),
            sending_s: s(self.sending),
            waiting_s: s(self.waiting),
            receiving_s: s(self.receiving),
            unanswered_s: s(self.unanswered),
        }
    }

    fn span(&self, from_ns: u64, to_ns: u64) -> u64 {
        to_ns.min(self.until_ns).saturating_sub(from_ns)
    }
}
