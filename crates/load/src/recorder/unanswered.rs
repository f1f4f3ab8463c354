//! Records requests that are unanswered when a trial ends.

use super::{InFlight, Recorder};
use crate::absence::MIN_ABSENCE_NS;

impl Recorder {
    /// Records a sent request that is unanswered when the trial ends. It counts as lost if it hangs or the load is open.
    pub(crate) fn left_in_flight(&mut self, request: &InFlight, (is_open, hangs): (bool, bool), now_ns: u64) {
        self.left(now_ns);
        self.result.http.counts.in_flight += 1;
        self.result.http.counts.hung += u64::from(hangs);
        // The target caused the hang, whatever this program delayed.
        let is_delayed = is_open && !hangs && request.own_ns >= MIN_ABSENCE_NS;
        self.result.http.counts.lost_delayed += u64::from(is_delayed);
        let response_ns = now_ns.saturating_sub(request.intended_ns);
        self.result.http.response_time.record_censored_ns(response_ns, request.own_ns);
        self.result.http.service_time.record_censored_ns(now_ns - request.sent_ns, request.own_queue_ns);
    }

    /// Counts planned requests that this machine could not send.
    pub(crate) fn never_sent(&mut self, n: u64) {
        self.result.http.counts.never_sent += n;
    }

    /// Records a request due at `intended_ns` that was never sent because every connection stayed busy. The generator may have
    /// caused up to `own_ns` of its wait, in nanoseconds.
    pub(crate) fn never_sent_busy(&mut self, intended_ns: u64, own_ns: u64, now_ns: u64) {
        self.result.http.counts.never_sent += 1;
        self.result.http.counts.never_sent_busy += 1;
        self.result.http.counts.lost_delayed += u64::from(own_ns >= MIN_ABSENCE_NS);
        self.result.http.response_time.record_censored_ns(now_ns.saturating_sub(intended_ns), own_ns);
    }
}
