//! Detects whether the generator sent the planned load.

use record::HttpTrial;

/// If the generator sends at 0.9 of the planned rate, the median request is late by this share of the sending time.
const MAX_LATE_SHARE: f64 = 0.05;

/// Whether the generator sent an open load so late that the load was smaller than planned: half of the requests were later than they would
/// be at 0.9 of the planned rate.
pub(crate) fn is_sent_late(http: &HttpTrial) -> bool {
    let sending_ns = http.plan.sending_ns().filter(|_| http.plan.load.is_open());
    let late_ns = http.own_lateness.quantile_ns(0.5) as f64;
    sending_ns.is_some_and(|sending_ns| late_ns > MAX_LATE_SHARE * sending_ns as f64)
}
