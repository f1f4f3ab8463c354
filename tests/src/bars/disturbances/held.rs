//! A figure and the truth about it.

use std::{fmt, time::Duration};

use record::{CensoredTimes, Span, nearest_rank};

use crate::witnessed_target::Served;

/// Percentiles to compare with the log, if at least [`MIN_BEYOND`] times lie beyond them.
const PERCENTILES: [(f64, &str); 4] = [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99.9")];
const MIN_BEYOND: f64 = 10.0;

/// The kind of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A percentile or the mean of the response time, in nanoseconds.
    Response(&'static str),
    /// The same of the service time.
    Service(&'static str),
    /// Number of answers per second.
    Throughput,
    /// Number of answers.
    Answers,
}

impl Kind {
    fn is_time(self) -> bool {
        matches!(self, Self::Response(_) | Self::Service(_))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Response(name) => write!(f, "response_{name}"),
            Self::Service(name) => write!(f, "service_{name}"),
            Self::Throughput => f.write_str("throughput"),
            Self::Answers => f.write_str("answers"),
        }
    }
}

/// The times in the target's log, sorted, in nanoseconds: the shortest and the longest that each may have been.
#[derive(Debug)]
pub(super) struct Truth {
    sorted_ns: [Vec<u64>; 2],
}

impl Truth {
    /// The truth about these requests, which are all requests of a trial or some of them.
    pub(super) fn of_times(served: &[Served]) -> Self {
        let sorted_ns = [0, 1].map(|end: usize| {
            let mut times_ns: Vec<u64> = served.iter().map(|served| served.times_ns()[end]).collect();
            times_ns.sort_unstable();
            times_ns
        });
        Self { sorted_ns }
    }

    fn percentile_ns(&self, quantile: f64) -> [f64; 2] {
        let of = |sorted_ns: &Vec<u64>| nearest_rank(sorted_ns, quantile).expect("a request") as f64;
        self.sorted_ns.each_ref().map(of)
    }

    fn mean_ns(&self) -> [f64; 2] {
        let of = |sorted_ns: &Vec<u64>| sorted_ns.iter().sum::<u64>() as f64 / sorted_ns.len() as f64;
        self.sorted_ns.each_ref().map(of)
    }

    /// Answers per second of users who wait only for the target, and at most `beside` for their generator.
    pub(super) fn of_closed_rate(&self, users: u64, beside: Duration) -> [f64; 2] {
        let [least_ns, most_ns] = self.mean_ns();
        let per_s = |cycle_ns: f64| users as f64 * 1e9 / cycle_ns;
        [per_s(most_ns + beside.as_nanos() as f64), per_s(least_ns)]
    }

    /// Answers per second until the last request is due, if each request comes when it is due.
    pub(super) fn of_open_rate(served: &[Served], rate_per_s: f64, duration: Duration) -> [f64; 2] {
        let mut served = served.to_vec();
        served.sort_unstable_by_key(|served| served.came_ns);
        let planned = rate_per_s * duration.as_secs_f64();
        let sending_s = (planned - 1.0) / rate_per_s;
        let ended = |end: usize| {
            let has_ended = |(index, served): &(usize, &Served)| {
                *index as f64 / rate_per_s + served.times_ns()[end] as f64 / 1e9 <= sending_s
            };
            served.iter().enumerate().filter(has_ended).count() as f64
        };
        let missing = (planned - served.len() as f64).max(0.0);
        [ended(1) / sending_s, (ended(0) + missing) / sending_s]
    }
}

/// The percentiles and the mean of a trial with those of the log. `longer_ns` widens the upper end of the truth, depending on the number of
/// times beyond the percentile.
pub(super) fn times(
    kind: fn(&'static str) -> Kind,
    times: &CensoredTimes,
    truth: &Truth,
    longer_ns: impl Fn(f64) -> f64,
) -> Vec<Held> {
    let count = times.observed.count() as f64;
    let held = |name, figure, [least_ns, most_ns]: [f64; 2], beyond| {
        Held::new(kind(name), figure, [least_ns, most_ns + longer_ns(beyond)])
    };
    if truth.sorted_ns[0].is_empty() {
        return Vec::new();
    }
    let mut all = vec![held("mean", times.mean(), truth.mean_ns(), 1.0)];
    for (quantile, name) in PERCENTILES {
        let beyond = count * (1.0 - quantile);
        if beyond >= MIN_BEYOND {
            all.push(held(name, times.percentile(quantile), truth.percentile_ns(quantile), beyond));
        }
    }
    all
}

/// A figure and its truth, as intervals in the same unit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    pub(super) kind: Kind,
    figure: Span,
    truth: [f64; 2],
}

/// Tolerance for what neither clock sees: the way over loopback, and the width of a histogram's bins.
const RESOLUTION_NS: f64 = 50_000.0;
const RESOLUTION: f64 = 0.01;
/// Tolerance if a figure is shown as one value: the true time may be shorter, the true rate higher.
const VALUE_NS: f64 = 200_000.0;
const VALUE_TIME: f64 = 0.08;
const VALUE_RATE: f64 = 0.03;
/// A figure is far from the truth if it exceeds both of these.
const FAR: f64 = 0.1;
const FAR_NS: f64 = 250_000.0;

impl Held {
    pub(super) fn new(kind: Kind, figure: Span, truth: [f64; 2]) -> Self {
        Self { kind, figure, truth }
    }

    /// A count that lies between these two numbers.
    pub(super) fn counted([least, most]: [u64; 2], truth: u64) -> Self {
        let figure = Span { value: least as f64, least: least as f64, most: most as f64, at_least: false };
        Self { kind: Kind::Answers, figure, truth: [truth as f64; 2] }
    }

    /// Whether the interval misses the truth by more than the tolerance.
    pub(super) fn is_outside(&self) -> bool {
        let [above, below] = self.off();
        let Span { least, most, .. } = self.figure;
        let is_value = !self.figure.is_wide();
        let resolution = |end: f64| match self.kind {
            Kind::Answers => 0.0,
            Kind::Throughput => RESOLUTION * end,
            Kind::Response(_) | Kind::Service(_) => RESOLUTION * end + RESOLUTION_NS,
        };
        let [value_above, value_below] = match self.kind {
            Kind::Throughput if is_value => [0.0, VALUE_RATE * most],
            kind if kind.is_time() && is_value => [VALUE_NS.max(VALUE_TIME * self.truth[1]), 0.0],
            _ => [0.0; 2],
        };
        above > value_above + resolution(least) || below > value_below + resolution(most)
    }

    /// Whether the printed ends are far from the truth.
    pub(super) fn is_far(&self) -> bool {
        let least = if self.kind.is_time() { FAR_NS } else { 0.0 };
        self.off().into_iter().any(|off| off > least.max(FAR * self.truth[0]))
    }

    /// The width of the interval relative to the truth; infinite if there is no upper end.
    pub(super) fn width(&self) -> f64 {
        let Span { least, most, at_least, .. } = self.figure;
        if at_least { f64::INFINITY } else { (most - least) / f64::midpoint(self.truth[0], self.truth[1]) }
    }

    /// How far the figure lies above the truth, and how far below it; negative if it does not.
    fn off(&self) -> [f64; 2] {
        let Span { least, most, at_least, .. } = self.figure;
        let below = if at_least { f64::NEG_INFINITY } else { self.truth[0] - most };
        [least - self.truth[1], below]
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, per) = if self.kind.is_time() { (" us", 1e3) } else { ("", 1.0) };
        let shown = |value: f64| format!("{:.0}", value / per);
        let Span { least, most, at_least, .. } = self.figure;
        let open = if at_least { ">= " } else { "" };
        let [truth_least, truth_most] = self.truth.map(shown);
        let (kind, least, most) = (self.kind, shown(least), shown(most));
        write!(f, "{kind} {open}{least} to {most}{unit}, in truth {truth_least} to {truth_most}{unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(kind: Kind, [least, most]: [f64; 2], truth: [f64; 2]) -> Held {
        Held::new(kind, Span { value: most, least, most, at_least: false }, truth)
    }

    #[test]
    fn an_interval_holds_the_truth_within_what_is_tolerated() {
        let time = |figure: [f64; 2], truth: f64| {
            let held = held(Kind::Service("p50"), figure.map(|us| us * 1e3), [truth * 1e3; 2]);
            (held.is_outside(), held.is_far())
        };
        assert_eq!(time([1_000.0, 3_000.0], 2_000.0), (false, false));
        assert_eq!(time([1_000.0, 3_000.0], 950.0), (false, false), "by the resolution");
        assert_eq!(time([1_000.0, 3_000.0], 900.0), (true, false));
        assert_eq!(time([1_000.0, 3_000.0], 700.0), (true, true));
        assert_eq!(time([1_000.0, 1_000.0], 800.0), (false, false), "a value has an error");
        assert_eq!(time([1_000.0, 1_000.0], 1_100.0), (true, false), "which only makes times longer");
        assert_eq!(time([1_000.0, 1_000.0], 1_300.0), (true, true));
        let rate = |figure: [f64; 2], truth| held(Kind::Throughput, figure, truth).is_outside();
        assert!(
            !rate([1_000.0, 1_000.0], [1_035.0, 1_050.0]) && rate([1_000.0, 1_000.0], [1_045.0, 1_050.0])
        );
        assert!(rate([1_000.0, 1_200.0], [950.0, 980.0]) && !rate([1_000.0, 1_200.0], [950.0, 1_001.0]));
        assert!(!Held::counted([9, 11], 10).is_outside() && Held::counted([9, 9], 10).is_outside());
    }

    #[test]
    fn truths_are_those_of_the_log() {
        let served = |index: i64, [least, most]: [i64; 2]| {
            let came_ns = index * 10_000_000;
            let from = std::net::Ipv4Addr::LOCALHOST.into();
            Served { from, came_ns, left_ns: [came_ns + least * 1_000_000, came_ns + most * 1_000_000] }
        };
        // At the end, the last of a hundred requests, sent every 10 ms, has no answer yet. In the worse case, the one before has none
        // either.
        let log: Vec<Served> =
            (0..100).map(|index| served(index, if index == 98 { [9, 11] } else { [5, 5] })).collect();
        let truth = Truth::of_times(&log);
        assert_eq!(truth.percentile_ns(0.5), [5e6; 2]);
        assert_eq!(truth.percentile_ns(1.0), [9e6, 11e6]);
        let [least, most] = Truth::of_open_rate(&log, 100.0, Duration::from_secs(1));
        assert_eq!(((least * 0.99).round(), (most * 0.99).round()), (98.0, 99.0));
        let [least, most] = truth.of_closed_rate(10, Duration::from_millis(5));
        assert!((least - 994.0).abs() < 1.0 && (most - 1_984.0).abs() < 1.0, "{least} {most}");
    }
}
