//! Disturbances of generator and target, compared with the target's own log.
//!
//! # What is true
//!
//! The target answers each request a drawn time after the kernel received it, and never delays a request by a queue. For each answer, its
//! log has the time when the kernel received the request, and the times just before and just after the call that wrote the answer: if the
//! target loses its processor within the call, it does not know when the answer left. So each truth is an interval, too. Disturbances of
//! the target are in the log, and thus in the truth. Delays by the generator are in neither.
//!
//! * *Service time*, each percentile and the mean: those of the log. A request waits nowhere else: the log includes the wait until the
//!   target reads it, and its way is a function call on loopback.
//! * *Response time*: the same. It begins when the request was due, and an undisturbed generator sends it then. Pools are so large that
//!   an undisturbed request never waits for a connection (the delay and every burst together keep fewer than half of them busy).
//!   If a request opens its connection, it also waits for that: at most [`OPENING_NS`] if that many requests opened one.
//! * *Throughput* of a closed load: users ÷ (mean time of the log + the rest of a cycle). The rest is between 0 and its value in
//!   undisturbed trials ([`Cycle`]). Cycles are whole, as docs/throughput.md counts them. Of an open load: the number of logged times that
//!   had ended when the last request was due, if each had begun when it was planned, ÷ that moment. Requests that never came may have
//!   been among them.
//! * *Answers*: the number of log entries. It equals the number of completed requests plus the answers that nobody waited for.
//!
//! # What is compared with it
//!
//! The interval of a figure, as printed. It is right if it has a point in common with the truth. A figure shown as one value has the error
//! that docs/validity.md tolerates; either end has the [resolution](held::Held) of the histograms and of the clocks. A figure is *far* off
//! if the printed ends miss the truth by more than 10 % and 250 µs.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Result;

use super::{Bar, By, Outcome, Runs, Scale, is_wanted_among};
use crate::{disturbance::Awake, machine::Cores};
use case::{Case, Cycle, Ran};
use held::{Held, Kind, Truth};

mod case;
mod held;

pub(super) use case::stopped;

pub(super) const BAR: Bar = Bar {
    name: "disturbances",
    what: "300 drawn disturbances of generator or target: by the target's log, 98 of 100 intervals of each figure hold the \
           truth, and are narrow",
    full_seconds: 2_000,
    decided_by: By::Times,
    run,
};

/// Number of cases, and number of cases that one name in `PROVE_CASES` selects: `0-49`.
const CASES: u64 = 300;
const CASES_TOGETHER: u64 = 50;
/// Longest wait of a request for its connection to open, which takes two calls on loopback.
const OPENING_NS: f64 = 500_000.0;
/// Largest share of figures of a kind that may be outside of their intervals (0 to 1).
const MAX_OUTSIDE: f64 = 0.02;
/// With fewer answers, the width of an interval depends more on their number than on the disturbance.
const MIN_ANSWERS: usize = 1_000;

fn run(scale: Scale) -> Result<Outcome> {
    let cores = Cores::of_this_process()?;
    let _awake = Awake::keep(cores);
    let (mut outcome, mut found) = (Outcome::default(), Found::default());
    let cycle = Cycle::measured(cores)?;
    outcome.note(format!("a user's cycle takes {cycle} beside the target's time"));
    if let Some(fault) = cycle.fault() {
        outcome.undecided("throughput_known", "<= 500 us of a cycle beside the target's time", fault);
    }
    // A sample runs each disturbance once.
    let seeds =
        (0..scale.pick(case::DISTURBANCES, CASES)).filter(|&seed| is_wanted_among(seed, CASES_TOGETHER));
    for seed in seeds {
        let case = Case::drawn(seed);
        let ran = case.run(cores)?;
        found.add(&mut outcome, &case, &ran, cycle);
    }
    found.judge(&mut outcome);
    Ok(outcome)
}

/// The results of all cases.
#[derive(Debug, Default)]
struct Found {
    cases: u64,
    /// For each kind of figure: how many agree with the truth, are outside, and are far outside.
    kinds: BTreeMap<Kind, [u64; 3]>,
    /// Widths relative to the truth, by the largest percentage of time for which the cases were disturbed.
    widths: BTreeMap<(u64, Kind), Runs>,
    /// Number of cases that were disturbed for at most 15 % of the time, and of void trials among them.
    slightly: u64,
    void: u64,
}

impl Found {
    fn add(&mut self, outcome: &mut Outcome, case: &Case, ran: &Ran, cycle: Cycle) {
        self.cases += 1;
        let is_slight = ran.disturbed <= 0.15;
        self.slightly += u64::from(is_slight);
        let described = format!("{case}, disturbed for {:.1} %", ran.disturbed * 100.0);
        if ran.trial.validity.is_void() {
            self.void += u64::from(is_slight);
            let reasons = ran.trial.validity.reasons();
            let reasons: Vec<String> = reasons
                .iter()
                .map(|reason| format!("{}: {}", reason.rule.words(), reason.evidence))
                .collect();
            outcome.note(format!("{described}: void, {}", reasons.join("; ")));
            return;
        }
        for held in ran.held(case, cycle) {
            let [all, outside, far] = self.kinds.entry(held.kind).or_default();
            *all += 1;
            *outside += u64::from(held.is_outside());
            *far += u64::from(held.is_far());
            if held.is_outside() || held.is_far() {
                let far = if held.is_far() { "FAR " } else { "" };
                outcome.note(format!("{described}: {far}OUTSIDE {held}; {}", ran.shown()));
            }
            for percent in [5, 15] {
                if ran.disturbed <= percent as f64 / 100.0 && ran.served.len() >= MIN_ANSWERS {
                    self.widths.entry((percent, held.kind)).or_default().push(held.width() * 100.0);
                }
            }
        }
    }

    fn judge(self, outcome: &mut Outcome) {
        for (kind, [all, outside, far]) in self.kinds {
            let most = (all as f64 * MAX_OUTSIDE) as u64;
            let bound = format!("<= {most}, outside of their intervals");
            outcome.time().figure(
                &format!("{kind}_outside"),
                format!("{outside} of {all}"),
                bound,
                outside <= most,
            );
            let bound = "0, by more than 10 % and 250 us";
            outcome.time().figure(&format!("{kind}_far"), format!("{far} of {all}"), bound, far == 0);
        }
        let bounds = [
            (5, Kind::Response("p50"), 10.0),
            (5, Kind::Service("p50"), 10.0),
            (5, Kind::Response("p99"), 40.0),
            (5, Kind::Service("p99"), 40.0),
            (5, Kind::Throughput, 3.0),
            (15, Kind::Response("p50"), 25.0),
            (15, Kind::Service("p50"), 25.0),
        ];
        for (percent, kind, most) in bounds {
            let name = format!("{kind}_width_to_{percent}");
            match self.widths.get(&(percent, kind)) {
                Some(widths) => outcome.time().at_most(&name, widths, most, " %"),
                None => outcome.undecided(&name, format!("<= {most}"), "no such case was run"),
            }
        }
        let most = self.slightly / 20;
        let value = format!("{} of {}", self.void, self.slightly);
        let bound = format!("<= {most}, disturbed for at most 15 % of the time");
        outcome.time().figure("void", value, bound, self.void <= most);
        outcome.note(format!("{} cases were run", self.cases));
    }
}

impl Ran {
    /// Compares each figure whose truth is known with it.
    fn held(&self, case: &Case, cycle: Cycle) -> Vec<Held> {
        let counts = &self.trial.counts;
        let times = Truth::of_times(&self.served);
        let opening = |beyond: f64| {
            let opens = counts.connections_opened as f64 >= beyond;
            if opens { OPENING_NS } else { 0.0 }
        };
        let mut all = held::times(Kind::Service, &self.trial.service_time, &times, |_| 0.0);
        all.extend(held::times(Kind::Response, &self.trial.response_time, &times, opening));
        let duration = Duration::from_secs(case::SECONDS);
        let rate = match case.open_rate_per_s() {
            Some(rate_per_s) => Truth::of_open_rate(&self.served, rate_per_s, duration),
            None => times.of_closed_rate(case.users(), cycle.of(case)),
        };
        all.push(Held::new(Kind::Throughput, self.trial.throughput(), rate));
        let most = counts.completed + counts.in_flight + counts.failed;
        all.push(Held::counted([counts.completed, most], self.served.len() as u64));
        all
    }
}
