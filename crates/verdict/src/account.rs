//! Where the users' time of a trial went, as shares.

use record::{HttpTrial, units::show_time_ns};

use crate::{Observed, percent};

/// Answers that take at most this time in addition to the network's need no explanation, in nanoseconds.
const SHORT_ANSWER_NS: u64 = 1_000_000;
/// A smaller share of the users' time needs no explanation.
pub(crate) const LITTLE_SHARE: f64 = 0.1;
/// A cause that took a smaller share of the users' time did not bound the trial.
pub(crate) const MIN_SHARE: f64 = 0.01;

/// The users' time of a trial. All shares are parts of it (0 to 1).
pub(crate) struct Account<'a> {
    http: &'a HttpTrial,
    total_s: f64,
}

impl<'a> Account<'a> {
    /// The account of a trial; none for programs, and for records of earlier versions.
    pub(crate) fn of(observed: &Observed<'a>) -> Option<Self> {
        let http = observed.trial.http()?;
        let total_s = http.users_time.total_s();
        (total_s > 0.0).then_some(Self { http, total_s })
    }

    /// The trial.
    pub(crate) fn http(&self) -> &'a HttpTrial {
        self.http
    }

    /// The time of a round trip to the target, in nanoseconds: the shortest handshake or first byte. The usual one would include lost SYNs and
    /// waits in the target.
    pub(crate) fn round_trip_ns(&self) -> u64 {
        let times = [&self.http.connect_time, &self.http.first_byte_time].into_iter();
        times.filter(|times| !times.is_empty()).map(record::Histogram::min_ns).min().unwrap_or(0)
    }

    /// The longest time of an answer that needs no explanation, in nanoseconds.
    fn short_ns(&self) -> u64 {
        SHORT_ANSWER_NS + 3 * self.round_trip_ns()
    }

    /// A time of users as a share of all their time.
    pub(crate) fn share(&self, s: f64) -> f64 {
        (s / self.total_s).clamp(0.0, 1.0)
    }

    /// Time that the generator itself took.
    pub(crate) fn own(&self) -> f64 {
        self.share(self.http.users_time.own_s)
    }

    /// Planned pauses.
    pub(crate) fn paused(&self) -> f64 {
        self.share(self.http.users_time.paused_s)
    }

    /// Round trips of requests and answers.
    pub(crate) fn round_trips(&self) -> f64 {
        let s = self.http.counts.completed as f64 * self.round_trip_ns() as f64 / 1e9;
        self.share(s.min(self.http.users_time.waiting_s))
    }

    /// Requests and their answers, without the round trips.
    pub(crate) fn served(&self) -> f64 {
        let time = &self.http.users_time;
        self.share(time.sending_s + time.waiting_s + time.receiving_s) - self.round_trips()
    }

    /// Connections that took longer to open than connections need.
    pub(crate) fn slow_connects(&self) -> f64 {
        let needed_s = self.http.counts.connections_opened as f64 * self.short_ns() as f64 / 1e9;
        self.share(self.http.users_time.connecting_s - needed_s)
    }

    /// Requests without an answer.
    fn unanswered(&self) -> f64 {
        self.share(self.http.users_time.unanswered_s)
    }

    /// Answers that took longer than answers need: their share of the users' time, their share of the answers, and their mean time in
    /// nanoseconds. Time that may be the generator's is left out.
    fn long_answers(&self) -> (f64, f64, f64) {
        let times = &self.http.service_time;
        let (mut sum_ns, mut long, mut all) = (0.0, 0.0, 0.0);
        let parts = [
            (&times.observed, 1.0),
            (&times.censored, 1.0),
            (&times.lengthened, -1.0),
            (&times.lengthened_less_own, 1.0),
        ];
        for (times, sign) in parts {
            for bin in times.to_hdr().iter_recorded() {
                let (ns, count) = (bin.value_iterated_to(), sign * bin.count_since_last_iteration() as f64);
                all += count;
                if ns > self.short_ns() {
                    sum_ns += ns as f64 * count;
                    long += count;
                }
            }
        }
        (self.share(sum_ns / 1e9), long / f64::max(all, 1.0), sum_ns / f64::max(long, 1.0))
    }

    /// The time that lost packets may have taken. A lost packet delays one answer by at most that answer's time, so n lost packets took at most
    /// the n longest answers. Without a number: all of the target's time.
    pub(crate) fn lost(&self, packets: Option<u64>) -> f64 {
        let Some(mut left) = packets else { return self.served() };
        let mut sum_ns = 0.0;
        let times = &self.http.service_time;
        let mut longest: Vec<(u64, u64)> = [&times.observed, &times.censored]
            .into_iter()
            .flat_map(|times| {
                let bins = times.to_hdr();
                let all = bins
                    .iter_recorded()
                    .map(|bin| (bin.value_iterated_to(), bin.count_since_last_iteration()));
                all.collect::<Vec<_>>()
            })
            .collect();
        longest.sort_by_key(|(ns, _)| std::cmp::Reverse(*ns));
        for (ns, count) in longest {
            sum_ns += ns as f64 * count.min(left) as f64;
            left = left.saturating_sub(count);
        }
        self.share(sum_ns / 1e9).min(self.served())
    }

    /// Whether most failures came as quickly as short answers do.
    pub(crate) fn refuses_quickly(&self) -> bool {
        let times = &self.http.failure_time;
        !times.is_empty() && times.quantile_ns(0.5) <= self.short_ns()
    }

    /// Whether the users spent nearly all their time in pauses, on the way to the target, and in short answers: nothing that the target does
    /// would bring them more.
    pub(crate) fn rests(&self) -> bool {
        let lost = self.long_answers().0
            + self.slow_connects()
            + self.unanswered()
            + self.share(self.http.users_time.no_free_connection_s);
        lost <= LITTLE_SHARE
    }

    /// What the users of a carried closed load did most of their time.
    pub(crate) fn rests_in_words(&self) -> String {
        if self.paused() >= 0.5 {
            return format!("who paused for {} of their time", percent(self.paused()));
        }
        let median = self.http.service_time.percentile(0.5).in_words(|ns| show_time_ns(ns as u64));
        format!("with a median answer after {median}")
    }

    /// How long the answers took: the usual one if that is long, else the long ones.
    pub(crate) fn answers_in_words(&self) -> String {
        let median = self.http.service_time.percentile(0.5);
        if median.least as u64 > self.short_ns() {
            return format!("{} (median)", median.in_words(|ns| show_time_ns(ns as u64)));
        }
        let (of_time, of_answers, mean_ns) = self.long_answers();
        let (of_time, of_answers) = (percent(of_time.max(self.unanswered())), percent(of_answers));
        format!(
            "{} on average for {of_answers} of the answers, which is {of_time} of the users' time",
            show_time_ns(mean_ns as u64)
        )
    }
}
