//! What a load must satisfy, and how much of a trial is lost to it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    audit::AuditResult,
    plan::LoadModel,
    trial::{HttpTrial, Measured, Trial},
    units::{plain, plain_time_ns},
};

/// What a load must satisfy: at most `loss_ratio` of what was planned fails, is never sent, or (with a bound on
/// a time) takes longer than the bound.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Goal {
    /// What it is called: `p99 ≤ 10 ms`.
    pub name: String,
    /// What is looked at.
    pub quantity: GoalQuantity,
    /// Largest share of it that may be lost (0 to 1): 0.01 for a 99th percentile.
    pub loss_ratio: f64,
}

/// What a goal looks at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum GoalQuantity {
    /// Requests: lost are the failed and the never sent. Programs: lost are those that failed.
    Errors,
    /// Requests: lost are also those whose response time is above the bound.
    ResponseTime {
        /// The bound, in nanoseconds.
        bound_ns: u64,
    },
    /// Connections: lost are those that could not be opened, and those that took longer.
    ConnectTime {
        /// The bound, in nanoseconds.
        bound_ns: u64,
    },
    /// Acknowledged events: lost are those that an audit did not find.
    Lost,
    /// Stored events: lost to the goal are copies beyond the times that an event was sent.
    Duplicated,
    /// Stored events: lost to the goal are those that are not as they were sent.
    Corrupt,
    /// A quantity that the plan declares: all is lost where it is missing, above `at_most` or below `at_least`.
    Given {
        /// Its name.
        quantity: String,
        /// The largest value that meets the goal, in the quantity's unit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at_most: Option<f64>,
        /// The least value that meets the goal, in the quantity's unit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at_least: Option<f64>,
    },
}

impl GoalQuantity {
    /// Whether an audit tells. What it finds is no matter of chance: such a goal must hold in every trial.
    pub fn is_audited(&self) -> bool {
        matches!(self, Self::Lost | Self::Duplicated | Self::Corrupt)
    }

    /// The longest time that meets such a goal, in nanoseconds, if it bounds one.
    pub fn bound_ns(&self) -> Option<u64> {
        match self {
            Self::ResponseTime { bound_ns } | Self::ConnectTime { bound_ns } => Some(*bound_ns),
            Self::Errors | Self::Lost | Self::Duplicated | Self::Corrupt | Self::Given { .. } => None,
        }
    }
}

impl Goal {
    /// At most this share of the requests may be lost (0 to 1).
    pub fn errors(loss_ratio: f64) -> Self {
        let name = match loss_ratio {
            0.0 => "no errors".to_owned(),
            ratio => format!("errors ≤ {} %", plain(ratio * 100.0)),
        };
        Self { name, quantity: GoalQuantity::Errors, loss_ratio }
    }

    /// A percentile of response time, given as a share (0.99 is the 99th), is at most the bound.
    pub fn response_time(quantile: f64, bound_ns: u64) -> Self {
        let name = format!("p{} ≤ {}", percent(quantile), plain_time_ns(bound_ns));
        Self { name, quantity: GoalQuantity::ResponseTime { bound_ns }, loss_ratio: tail(quantile) }
    }

    /// A percentile of connect time is at most the bound.
    pub fn connect_time(quantile: f64, bound_ns: u64) -> Self {
        let name = format!("connect p{} ≤ {}", percent(quantile), plain_time_ns(bound_ns));
        Self { name, quantity: GoalQuantity::ConnectTime { bound_ns }, loss_ratio: tail(quantile) }
    }

    /// The share of a trial that is lost to this goal (0 to 1). What was censored counts as late: nobody saw it
    /// in time. A trial that planned nothing has lost everything, and so has one without an audit where that is
    /// what tells.
    pub fn loss_ratio_of(&self, trial: &Trial, audit: Option<&AuditResult>) -> f64 {
        self.loss_ratio_bounds(trial, audit).1
    }

    /// Whether the trial shows that the goal is met, or that it is not; none where the generator itself may have made
    /// the difference.
    pub fn is_met_by(&self, trial: &Trial, audit: Option<&AuditResult>) -> Option<bool> {
        let (least, most) = self.loss_ratio_bounds(trial, audit);
        let is_met = |ratio: f64| ratio <= self.loss_ratio;
        (is_met(least) == is_met(most)).then(|| is_met(most))
    }

    /// The share that is lost at the least, were every time shorter by the most that the generator may have added to
    /// it, and the share that is lost as measured.
    fn loss_ratio_bounds(&self, trial: &Trial, audit: Option<&AuditResult>) -> (f64, f64) {
        let both = |ratio: f64| (ratio, ratio);
        match (&self.quantity, &trial.measured) {
            (GoalQuantity::Lost | GoalQuantity::Duplicated | GoalQuantity::Corrupt, _) => {
                both(audit.map_or(1.0, |audit| self.found_by(audit)))
            }
            // What a program took to fail meets nothing.
            (GoalQuantity::Given { .. }, Measured::Command(command)) if command.failed_ratio() > 0.0 => {
                both(1.0)
            }
            (GoalQuantity::Given { quantity, at_most, at_least }, _) => {
                let is_met = trial.quantities.get(quantity).is_some_and(|value| {
                    at_most.is_none_or(|most| *value <= most) && at_least.is_none_or(|least| *value >= least)
                });
                both(if is_met { 0.0 } else { 1.0 })
            }
            (GoalQuantity::Errors, Measured::Command(command)) => both(command.failed_ratio()),
            // A program has no such times.
            (_, Measured::Command(_)) => both(1.0),
            (_, Measured::Http(http)) => self.loss_ratio_of_requests(http),
        }
    }

    /// The same of a goal that HTTP requests decide.
    fn loss_ratio_of_requests(&self, http: &HttpTrial) -> (f64, f64) {
        let counts = &http.counts;
        let ratio = |good: u64, planned: u64| match planned {
            0 => 1.0,
            planned => 1.0 - (good.min(planned) as f64 / planned as f64),
        };
        match self.quantity {
            GoalQuantity::ResponseTime { bound_ns } => {
                let (measured, most) = http.response_time.count_up_to_ns(bound_ns);
                (ratio(most + counts.lost_delayed, counts.scheduled), ratio(measured, counts.scheduled))
            }
            GoalQuantity::ConnectTime { bound_ns } => {
                let refused = http.errors.connect_failures()
                    + http.retried_errors.connect_failures()
                    + http.connection_errors.connect_failures()
                    + counts.connections_unopened;
                let (good, all) =
                    (http.connect_time.count_up_to_ns(bound_ns), http.connect_time.count() + refused);
                (ratio(good + counts.connects_delayed, all), ratio(good, all))
            }
            _ if counts.scheduled == 0 => (1.0, 1.0),
            _ => {
                // A user's last answer may be on its way when the clock stops. An arrival that has no answer
                // after the whole time that answers are waited for is lost.
                let unanswered = if http.plan.load.is_open() { counts.in_flight } else { 0 };
                let lost = counts.failed + counts.never_sent + unanswered;
                let ratio = |lost: u64| {
                    (lost as f64 / counts.scheduled as f64).max(refused_before_the_start(http)).min(1.0)
                };
                (ratio(lost.saturating_sub(counts.lost_delayed)), ratio(lost))
            }
        }
    }

    /// The share that an audit found lost to this goal.
    fn found_by(&self, audit: &AuditResult) -> f64 {
        let (found, of) = match self.quantity {
            GoalQuantity::Duplicated => (audit.duplicated, audit.stored + audit.duplicated),
            GoalQuantity::Corrupt => (audit.corrupt, audit.stored + audit.corrupt),
            _ => (audit.lost, audit.sent.taken_over()),
        };
        if found == 0 { 0.0 } else { (found as f64 / of.max(1) as f64).min(1.0) }
    }
}

/// The share of the connections to be opened before the start that the target did not let come about, or took back.
fn refused_before_the_start(http: &HttpTrial) -> f64 {
    match &http.plan.load {
        LoadModel::Open { connections, .. } if connections.initial > 0 => {
            http.connection_errors.connect_failures() as f64 / connections.initial as f64
        }
        _ => 0.0,
    }
}

/// 0.99 is `99`, 0.999 is `99.9`.
fn percent(quantile: f64) -> f64 {
    (quantile * 1e6).round() / 1e4
}

/// What lies beyond a quantile, without the dust of binary fractions.
fn tail(quantile: f64) -> f64 {
    ((1.0 - quantile) * 1e9).round() / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_named_by_what_they_ask() {
        let goal = Goal::response_time(0.99, 10_000_000);
        assert_eq!((goal.name.as_str(), goal.loss_ratio), ("p99 ≤ 10 ms", 0.01));
        assert_eq!(Goal::connect_time(0.999, 900_000_000).name, "connect p99.9 ≤ 900 ms");
        assert_eq!(Goal::errors(0.0).name, "no errors");
        assert_eq!(Goal::errors(0.001).name, "errors ≤ 0.1 %");
    }

    #[test]
    fn an_audit_s_findings_are_shares_of_what_they_are_about() {
        let mut audit = AuditResult { stored: 900, lost: 100, corrupt: 100, ..AuditResult::default() };
        audit.sent.written = 1_000;
        let of = |quantity| Goal { name: String::new(), quantity, loss_ratio: 0.0 }.found_by(&audit);
        assert_eq!(of(GoalQuantity::Lost), 0.1);
        assert_eq!(of(GoalQuantity::Duplicated), 0.0);
        assert_eq!(of(GoalQuantity::Corrupt), 0.1);
    }
}
