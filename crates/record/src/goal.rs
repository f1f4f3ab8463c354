//! The goals that a load must meet, and the share of a trial that is lost to a goal.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    audit::AuditResult,
    quantity,
    span::Span,
    trial::{Measured, Trial},
    units::{show_nominal_time_ns, show_number, show_time_ns},
};

/// What a load must satisfy: at most the share `loss_ratio` of the planned requests fails, is never sent, or (for a time)
/// exceeds the bound.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Goal {
    /// The goal's name: `p99 ≤ 10 ms`.
    pub name: String,
    /// What the goal is about.
    pub quantity: GoalQuantity,
    /// Largest share that may be lost (0 to 1): 0.01 for a 99th percentile.
    pub loss_ratio: f64,
}

/// What a goal is about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum GoalQuantity {
    /// Requests: those that failed or were never sent are lost. Programs: those that failed are lost.
    Errors,
    /// Requests: those whose response time exceeds the bound are lost too.
    ResponseTime {
        /// The bound, in nanoseconds.
        bound_ns: u64,
    },
    /// Connections: those that could not be opened in time are lost.
    ConnectTime {
        /// The bound, in nanoseconds.
        bound_ns: u64,
    },
    /// Acknowledged events: those that an audit did not find are lost.
    Lost,
    /// Stored events: copies beyond the number of times that an event was sent are lost to the goal.
    Duplicated,
    /// Stored events: those that differ from what was sent are lost to the goal.
    Corrupt,
    /// A quantity by its name: everything is lost if it is missing, above `at_most` or below `at_least`.
    #[serde(rename = "given")]
    Declared {
        /// The quantity's name.
        quantity: String,
        /// The largest value that meets the goal, in the quantity's unit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at_most: Option<f64>,
        /// The smallest value that meets the goal, in the quantity's unit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at_least: Option<f64>,
    },
}

impl GoalQuantity {
    /// Whether an audit decides. Such a goal must be met in every trial, because an audit's findings are not random.
    pub fn is_audited(&self) -> bool {
        matches!(self, Self::Lost | Self::Duplicated | Self::Corrupt)
    }

    /// Whether the answers to requests decide.
    pub fn is_of_requests(&self) -> bool {
        matches!(self, Self::Errors | Self::ResponseTime { .. } | Self::ConnectTime { .. })
    }

    /// Whether a load that meets the goal in a short trial may miss it in a longer one, because queues grow.
    pub fn depends_on_growth(&self) -> bool {
        matches!(self, Self::Errors | Self::ResponseTime { .. })
    }

    /// The bound on a time in nanoseconds, if the goal has one.
    pub fn bound_ns(&self) -> Option<u64> {
        match self {
            Self::ResponseTime { bound_ns } | Self::ConnectTime { bound_ns } => Some(*bound_ns),
            Self::Errors | Self::Lost | Self::Duplicated | Self::Corrupt | Self::Declared { .. } => None,
        }
    }
}

impl Goal {
    /// A goal that allows this share of errors (0 to 1).
    pub fn errors(loss_ratio: f64) -> Self {
        let name = match loss_ratio {
            0.0 => "no errors".to_owned(),
            ratio => format!("errors ≤ {} %", show_number(ratio * 100.0)),
        };
        Self { name, quantity: GoalQuantity::Errors, loss_ratio }
    }

    /// A goal that bounds a quantile of the response time (0.99 is the 99th percentile).
    pub fn response_time(quantile: f64, bound_ns: u64) -> Self {
        let name = format!("p{} ≤ {}", as_percentile(quantile), show_nominal_time_ns(bound_ns));
        Self { name, quantity: GoalQuantity::ResponseTime { bound_ns }, loss_ratio: share_beyond(quantile) }
    }

    /// A goal that bounds a quantile of the connect time.
    pub fn connect_time(quantile: f64, bound_ns: u64) -> Self {
        let name = format!("connect p{} ≤ {}", as_percentile(quantile), show_nominal_time_ns(bound_ns));
        Self { name, quantity: GoalQuantity::ConnectTime { bound_ns }, loss_ratio: share_beyond(quantile) }
    }

    /// The share of a trial that is lost to this goal (0 to 1). Censored times count as late. The share is 1 if nothing
    /// was planned, or if the goal needs an audit and there is none.
    pub fn loss_ratio_of(&self, trial: &Trial, audit: Option<&AuditResult>) -> f64 {
        self.loss_ratio_bounds(trial, audit).1
    }

    /// The share of a trial that is lost to this goal even without the largest possible share of the generator in each time and loss
    /// (0 to 1).
    pub fn least_loss_ratio_of(&self, trial: &Trial, audit: Option<&AuditResult>) -> f64 {
        self.loss_ratio_bounds(trial, audit).0
    }

    /// The figure that the goal bounds, as an interval: a percentile of the response time in nanoseconds, a quantity of
    /// requests in its unit, or otherwise the lost share.
    pub fn bounded(&self, trial: &Trial, audit: Option<&AuditResult>) -> Span {
        match (&self.quantity, trial.http()) {
            (GoalQuantity::ResponseTime { .. }, Some(http)) => {
                http.response_time.percentile(1.0 - self.loss_ratio)
            }
            (GoalQuantity::Declared { quantity, .. }, Some(_)) => {
                quantity::of_trial(quantity, trial, audit).unwrap_or_else(|| self.lost(trial, audit))
            }
            _ => self.lost(trial, audit),
        }
    }

    /// The lost share, as an interval.
    fn lost(&self, trial: &Trial, audit: Option<&AuditResult>) -> Span {
        let (least, most) = self.loss_ratio_bounds(trial, audit);
        Span { least, ..Span::exact(most) }
    }

    /// The figure that the goal bounds, for people: `p99 8.20–12.1 ms`, `≤ 0.2 % lost`.
    pub fn bounded_in_words(&self, trial: &Trial, audit: Option<&AuditResult>) -> String {
        let bounded = self.bounded(trial, audit);
        match &self.quantity {
            GoalQuantity::Declared { quantity, .. } if trial.http().is_some() => {
                format!("{quantity} {}", bounded.in_words(show_number))
            }
            GoalQuantity::ResponseTime { .. } => {
                let percentile = as_percentile(1.0 - self.loss_ratio);
                format!("p{percentile} {}", bounded.in_words(|ns| show_time_ns(ns as u64)))
            }
            _ => format!(
                "{} lost",
                bounded.in_words(|ratio| format!("{} %", show_number((ratio * 1e5).round() / 1e3)))
            ),
        }
    }

    /// Whether the trial meets the goal. `None` if the measured values and the same values without the largest possible
    /// share of the generator give different answers.
    pub fn is_met_by(&self, trial: &Trial, audit: Option<&AuditResult>) -> Option<bool> {
        let (min, max) = self.loss_ratio_bounds(trial, audit);
        let is_met = |ratio: f64| ratio <= self.loss_ratio;
        (is_met(min) == is_met(max)).then(|| is_met(max))
    }

    /// The smallest possible and the measured loss ratio. The smallest possible one subtracts the largest possible
    /// share of the generator from each time and loss.
    fn loss_ratio_bounds(&self, trial: &Trial, audit: Option<&AuditResult>) -> (f64, f64) {
        let both = |ratio: f64| (ratio, ratio);
        match (&self.quantity, &trial.measured) {
            (GoalQuantity::Lost, _) => {
                both(lost_in_audit(audit, |audit| (audit.lost, audit.sent.all_acknowledged())))
            }
            (GoalQuantity::Duplicated, _) => {
                both(lost_in_audit(audit, |audit| (audit.duplicated, audit.stored + audit.duplicated)))
            }
            (GoalQuantity::Corrupt, _) => {
                both(lost_in_audit(audit, |audit| (audit.corrupt, audit.stored + audit.corrupt)))
            }
            // The figures of a failed program meet no goal. If a link stalled, the program might have succeeded without
            // the stall.
            (GoalQuantity::Declared { .. }, Measured::Command(command)) if command.failed_ratio() > 0.0 => {
                (if command.stalled.is_some() { 0.0 } else { 1.0 }, 1.0)
            }
            (GoalQuantity::Errors, _) => trial.error_ratio(),
            (GoalQuantity::Declared { quantity, at_most, at_least }, _) => {
                let is_within = |lowest: f64, highest: f64| {
                    at_most.is_none_or(|max| highest <= max) && at_least.is_none_or(|min| lowest >= min)
                };
                let of_requests = || {
                    let span = quantity::of_trial(quantity, trial, audit)?;
                    Some([span.least, if span.at_least { f64::INFINITY } else { span.most }])
                };
                match trial.range_of(quantity).or_else(of_requests) {
                    Some([least, most]) if is_within(least, most) => both(0.0),
                    Some([least, most]) if !is_within(most, least) => both(1.0),
                    // The interval contains the bound, or the value is unknown.
                    Some(_) | None => (0.0, 1.0),
                }
            }
            // Programs have no response or connect times.
            (GoalQuantity::ResponseTime { .. } | GoalQuantity::ConnectTime { .. }, Measured::Command(_)) => {
                both(1.0)
            }
            (GoalQuantity::ResponseTime { bound_ns }, Measured::Http(http)) => {
                let counts = &http.counts;
                let scheduled = counts.scheduled.saturating_sub(http.cut_off(trial.interrupted));
                let (measured, possible) = http.response_time.count_up_to_ns(*bound_ns);
                let own = counts.lost_delayed + counts.never_sent_own();
                (missed(possible + own, scheduled), missed(measured, scheduled))
            }
            (GoalQuantity::ConnectTime { bound_ns }, Measured::Http(http)) => {
                let counts = &http.counts;
                let refused = http.errors.connect_failures()
                    + http.retried_errors.connect_failures()
                    + http.connection_errors.connect_failures()
                    + counts.connections_unopened;
                let (good, all) =
                    (http.connect_time.count_up_to_ns(*bound_ns), http.connect_time.count() + refused);
                (missed(good + counts.connects_delayed, all), missed(good, all))
            }
        }
    }
}

/// The share of `planned` that is not `good`; 1 if nothing was planned.
fn missed(good: u64, planned: u64) -> f64 {
    match planned {
        0 => 1.0,
        // One division is exact at a goal's bound: 1 − 495/500 is above 0.01, but 5/500 is not.
        planned => planned.saturating_sub(good) as f64 / planned as f64,
    }
}

/// The share of faulty events among the events that an audit counted; 1 without an audit.
fn lost_in_audit(audit: Option<&AuditResult>, found_of: fn(&AuditResult) -> (u64, u64)) -> f64 {
    match audit.map(found_of) {
        None => 1.0,
        Some((0, _)) => 0.0,
        Some((found, of)) => (found as f64 / of.max(1) as f64).min(1.0),
    }
}

/// The quantile as a percentage: 0.99 is `99`, 0.999 is `99.9`.
fn as_percentile(quantile: f64) -> f64 {
    (quantile * 1e6).round() / 1e4
}

/// The share beyond a quantile, rounded to remove binary fractions.
fn share_beyond(quantile: f64) -> f64 {
    ((1.0 - quantile) * 1e9).round() / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Arrivals, CommandRun, CommandTrial, Connections, ErrorClass, plan::LoadModel, testing::trial_of,
        trial::HttpTrial,
    };

    #[test]
    fn goals_are_named_by_their_bounds() {
        let goal = Goal::response_time(0.99, 10_000_000);
        assert_eq!((goal.name.as_str(), goal.loss_ratio), ("p99 ≤ 10 ms", 0.01));
        assert_eq!(Goal::connect_time(0.999, 900_000_000).name, "connect p99.9 ≤ 900 ms");
        assert_eq!(Goal::errors(0.0).name, "no errors");
        assert_eq!(Goal::errors(0.001).name, "errors ≤ 0.1 %");
    }

    #[test]
    fn audit_findings_are_shares() {
        let mut audit =
            AuditResult { stored: 900, lost: 100, corrupt: 100, duplicated: 300, ..AuditResult::default() };
        audit.sent.written = 1_000;
        let trial = trial_of(Measured::Http(Box::default()));
        let goal = |quantity| Goal { name: String::new(), quantity, loss_ratio: 0.0 };
        let of = |quantity| goal(quantity).loss_ratio_of(&trial, Some(&audit));
        assert_eq!(of(GoalQuantity::Lost), 0.1);
        assert_eq!(of(GoalQuantity::Duplicated), 0.25);
        assert_eq!(of(GoalQuantity::Corrupt), 0.1);
    }

    /// An open load of 1,000 requests. Each was lost in one way, or took one of two times.
    fn trial() -> HttpTrial {
        let mut http = HttpTrial::default();
        http.plan.load = LoadModel::Open {
            arrivals: Arrivals::Constant,
            stages: Vec::new(),
            connections: Connections { initial: 0, most: 10 },
        };
        let counts = &mut http.counts;
        (counts.scheduled, counts.completed) = (1_000, 900);
        (counts.failed, counts.never_sent, counts.never_sent_busy, counts.in_flight) = (50, 20, 20, 30);
        (counts.lost_delayed, counts.connects_delayed, counts.connections_unopened) = (40, 4, 1);
        http.response_time.observed.record_n_ns(1_000_000, 800);
        http.response_time.observed.record_n_ns(100_000_000, 100);
        http.connect_time.record_n_ns(1_000_000, 85);
        http.connect_time.record_n_ns(100_000_000, 5);
        http.errors.add(ErrorClass::ConnectRefused, 5);
        http.retried_errors.add(ErrorClass::ConnectReset, 3);
        http.connection_errors.add(ErrorClass::ConnectTimeout, 1);
        http
    }

    /// The smallest possible and the measured loss ratio, in thousandths.
    fn lost(goal: &Goal, http: &HttpTrial) -> (f64, f64) {
        let trial = trial_of(Measured::Http(Box::new(http.clone())));
        let (min, max) = goal.loss_ratio_bounds(&trial, None);
        ((min * 1e6).round() / 1e3, (max * 1e6).round() / 1e3)
    }

    #[test]
    fn a_request_is_lost_to_a_goal_as_measured_and_perhaps_without_the_generator() {
        let (errors, times) = (Goal::errors(0.01), Goal::response_time(0.99, 10_000_000));
        assert_eq!(lost(&times, &trial()), (160.0, 200.0));
        let whole = trial_of(Measured::Http(Box::new(trial())));
        assert_eq!(errors.bounded_in_words(&whole, None), "6–10 % lost");
        assert!(times.bounded_in_words(&whole, None).starts_with("p99 "));
        assert_eq!(lost(&Goal::response_time(0.99, 200_000_000), &trial()), (60.0, 100.0));
        assert_eq!(lost(&errors, &trial()), (60.0, 100.0));
        let closed = HttpTrial { plan: Default::default(), ..trial() };
        assert_eq!(lost(&errors, &closed), (30.0, 70.0), "the last request of a user may be in flight");
        assert_eq!(lost(&Goal::connect_time(0.99, 10_000_000), &trial()), (110.0, 150.0));
        let mut unsent = trial();
        unsent.counts.never_sent_busy = 15;
        assert_eq!(lost(&times, &unsent), (155.0, 200.0), "five were unsent through no fault of the target");
        assert_eq!(lost(&errors, &unsent), (55.0, 100.0));
        let unplanned = HttpTrial::default();
        for goal in [&errors, &times, &Goal::connect_time(0.99, 10_000_000)] {
            assert_eq!(lost(goal, &unplanned), (1_000.0, 1_000.0), "{}", goal.name);
        }
    }

    #[test]
    fn a_share_of_exactly_the_bound_meets_the_goal() {
        let goal = Goal::response_time(0.99, 10_000_000);
        for hundreds in 1..=50 {
            let mut http = HttpTrial::default();
            http.counts.scheduled = 100 * hundreds;
            http.response_time.observed.record_n_ns(1_000_000, 99 * hundreds);
            http.response_time.observed.record_n_ns(100_000_000, hundreds);
            let trial = trial_of(Measured::Http(Box::new(http)));
            assert_eq!(goal.is_met_by(&trial, None), Some(true), "{hundreds} of {hundreds}00");
        }
    }

    #[test]
    fn an_interrupt_loses_no_request() {
        let mut interrupted = trial_of(Measured::Http(Box::new(trial())));
        interrupted.interrupted = true;
        let ratio = Goal::errors(0.01).loss_ratio_of(&interrupted, None);
        assert_eq!((ratio * 970.0).round(), 70.0, "failed and never sent, of what was not cut off");
    }

    #[test]
    fn refused_connections_at_the_start_are_lost_even_if_others_carried_the_requests() {
        let mut http = trial();
        let LoadModel::Open { connections, .. } = &mut http.plan.load else { unreachable!() };
        connections.initial = 4;
        assert_eq!(lost(&Goal::errors(0.01), &http), (250.0, 250.0));
    }

    #[test]
    fn a_goal_is_undecided_only_if_the_generator_may_have_decided() {
        let trial = trial_of(Measured::Http(Box::new(trial())));
        for (loss_ratio, met) in [(0.059, Some(false)), (0.06, None), (0.099, None), (0.1, Some(true))] {
            assert_eq!(Goal::errors(loss_ratio).is_met_by(&trial, None), met, "{loss_ratio}");
        }
        assert_eq!(Goal::errors(0.0).loss_ratio_of(&trial, None), 0.1);
    }

    #[test]
    fn what_was_not_measured_is_lost() {
        let of = |quantity, trial: &Trial| {
            Goal { name: String::new(), quantity, loss_ratio: 0.0 }.loss_ratio_of(trial, None)
        };
        let run = |succeeded| CommandRun { succeeded, ..CommandRun::default() };
        let program =
            |runs| trial_of(Measured::Command(Box::new(CommandTrial { runs, ..Default::default() })));
        let mut half = program(vec![run(true), run(false)]);
        assert_eq!(of(GoalQuantity::Errors, &half), 0.5);
        assert_eq!(of(GoalQuantity::Errors, &program(Vec::new())), 1.0);
        assert_eq!(of(GoalQuantity::ResponseTime { bound_ns: u64::MAX }, &half), 1.0);
        assert_eq!(of(GoalQuantity::Lost, &half), 1.0, "there was no audit");
        let within =
            |at_least, at_most| GoalQuantity::Declared { quantity: "bytes".to_owned(), at_least, at_most };
        half.quantities.insert("bytes".to_owned(), 5.0);
        assert_eq!(of(within(None, None), &half), 1.0, "a program failed");
        let mut whole = program(vec![run(true)]);
        assert_eq!(of(within(None, None), &whole), 1.0, "it is missing");
        let unmeasured = Goal { name: String::new(), quantity: within(None, Some(1.0)), loss_ratio: 0.0 };
        assert_eq!(unmeasured.is_met_by(&whole, None), None, "nobody knows");
        whole.quantities.insert("bytes".to_owned(), 5.0);
        for (at_least, at_most, lost) in
            [(Some(5.0), Some(5.0), 0.0), (Some(5.1), None, 1.0), (None, Some(4.9), 1.0)]
        {
            assert_eq!(of(within(at_least, at_most), &whole), lost, "{at_least:?} {at_most:?}");
        }
    }
}
