//! Where the users' time of a trial went, as shares, and what each cause took of it.

use record::{Cause, HttpTrial, TimePart, TimeState, Verdict, units::show_time_ns};

use crate::{
    Observed,
    inside::INSIDE,
    rules::{self, RequestsAt, percent},
};

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
    fn lost(&self, packets: Option<u64>) -> f64 {
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

/// What a cause took, as shares of the users' time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    /// All that it took. The causes of failures come first, whatever time they took.
    pub(crate) all: f64,
    /// The part of it that belongs to requests on their connections.
    pub(crate) served: f64,
}

/// What each of the named causes took; all of the time if the trial has no account.
pub(crate) fn costs(observed: &Observed<'_>, verdict: &Verdict) -> Vec<Cost> {
    let causes: Vec<Cause> = verdict.bottlenecks.iter().map(|named| named.cause).collect();
    let all = |_| Cost { all: f64::INFINITY, served: f64::INFINITY };
    Account::of(observed).map_or_else(
        || causes.iter().map(all).collect(),
        |account| {
            causes.iter().map(|cause| account.cost(observed, &verdict.account, &causes, *cause)).collect()
        },
    )
}

impl Account<'_> {
    fn cost(&self, observed: &Observed<'_>, parts: &[TimePart], named: &[Cause], cause: Cause) -> Cost {
        let served = self.served();
        let of = |is_it: &dyn Fn(&TimePart) -> bool| -> f64 {
            parts.iter().filter(|part| is_it(part)).map(|part| part.share).sum()
        };
        let state = |state| of(&|part| part.state == state);
        let queue = state(TimeState::AcceptQueue);
        // Requests that wait to be accepted wait for those inside, unless a limit of connections keeps them out.
        let held = if named.contains(&Cause::ConnectionLimit) { served - queue } else { served };
        let (inside, unknown) = (of(&|part| INSIDE.contains(&part.state)), state(TimeState::Unknown));
        // What nobody could see divides as the times of whole programs.
        let took = |seen: f64, share_if_unseen: f64| match inside > 0.0 {
            true => held * (seen + unknown * share_if_unseen) / inside,
            false => held * share_if_unseen,
        };
        let runs = |part: &TimePart| matches!(part.state, TimeState::Running | TimeState::Ready);
        let is_asleep = |part: &TimePart| part.state == TimeState::Asleep;
        let share = match cause {
            Cause::Generator
            | Cause::SourcePorts
            | Cause::Descriptors
            | Cause::Conntrack
            | Cause::RateLimiter
            | Cause::OfferedLoad => f64::INFINITY,
            Cause::AcceptQueue | Cause::SynQueue if rules::fails_to_connect(self.http) => f64::INFINITY,
            Cause::AcceptQueue | Cause::SynQueue if named.contains(&Cause::ConnectionLimit) => 0.0,
            Cause::AcceptQueue | Cause::SynQueue => return Cost { all: self.slow_connects(), served: 0.0 },
            // While the queue before the limit is full, other connections cannot be opened.
            Cause::ConnectionLimit => {
                let behind = self.share(rules::mean_waiting(observed, false) * observed.counters.elapsed_s);
                let queue = queue.max(behind.min(served));
                return Cost { all: queue + self.slow_connects(), served: queue };
            }
            Cause::CpuQuota => took(state(TimeState::Throttled), rules::throttled_share(observed)),
            Cause::HotCore | Cause::LacksProcessor => match rules::busy_share(observed, cause) {
                (share, RequestsAt::Elsewhere) => served * share,
                (share, _) if cause == Cause::LacksProcessor => took(state(TimeState::Ready), share),
                // Its own threads wait for each other.
                (share, RequestsAt::Program(host, program)) => {
                    took(of(&|part| part.is_in(host, program) && runs(part)), share)
                }
                (share, RequestsAt::Turns(host, program)) => {
                    took(of(&|part| part.is_in(host, program) && (runs(part) || is_asleep(part))), share)
                }
                (share, RequestsAt::Behind) => took(of(&|part| runs(part) || is_asleep(part)), share),
            },
            Cause::Stopped => took(state(TimeState::Stopped), rules::stopped_share(observed)),
            Cause::DelayedAck => served * rules::delayed_ack_share(observed),
            // One thread may write for all others, who sleep meanwhile.
            Cause::Disk => {
                let written = (state(TimeState::Asleep) * rules::blocked_share(observed)).min(rules::disk_share(observed));
                took(state(TimeState::Blocked).max(written), rules::disk_share(observed))
            }
            Cause::PacketLoss | Cause::PacketQueue | Cause::LinkQueue => self.lost(rules::lost(observed)),
            Cause::CongestionWindow => served * rules::window_share(observed),
            Cause::LinkRate
            | Cause::ReceiveWindow
            | Cause::SendBuffer
            | Cause::SshWindow
            // What no other cause explains.
            | Cause::SlowHandler => served,
        };
        Cost { all: share, served: share }
    }
}
