//! Aborts a trial if too many requests fail, judged by the intervals of its time series.

use load::Tick;
use record::{AbortRule, Trial, Warning, units::show_time_ns};

/// Watches one trial.
#[derive(Debug)]
pub(crate) struct Guard {
    rule: Option<AbortRule>,
    /// End of the last interval, nanoseconds after the start.
    last_end_ns: u64,
    /// Time for which too many requests have been failing without a break, in nanoseconds.
    failing_ns: u64,
    /// Time at which the guard aborted the trial, in nanoseconds after the start.
    pub(crate) aborted_ns: Option<u64>,
}

impl Guard {
    pub(crate) fn new(rule: Option<AbortRule>) -> Self {
        Self { rule, last_end_ns: 0, failing_ns: 0, aborted_ns: None }
    }

    /// Whether the trial must be aborted after this interval. An interval in which no request ended does not count.
    pub(crate) fn aborts(&mut self, tick: &Tick) -> bool {
        let length_ns = tick.end_ns.saturating_sub(self.last_end_ns);
        self.last_end_ns = tick.end_ns;
        let Some(rule) = self.rule.filter(|_| self.aborted_ns.is_none()) else { return false };
        let ended = tick.completed + tick.failed;
        if ended == 0 {
            return false;
        }
        let fails = tick.failed as f64 > rule.errors_ratio * ended as f64;
        self.failing_ns = if fails { self.failing_ns + length_ns } else { 0 };
        // An interval ends slightly after its time, never before.
        let aborts = self.failing_ns >= rule.for_ns;
        self.aborted_ns = aborts.then_some(tick.end_ns);
        aborts
    }

    /// Marks a trial that the guard aborted. The trial was not interrupted by hand, so a search continues with its result.
    pub(crate) fn mark(&self, trial: &mut Trial) {
        let (Some(at_ns), Some(rule)) = (self.aborted_ns, self.rule) else { return };
        trial.interrupted = false;
        let message = format!(
            "aborted after {} at a load of {}: {rule} (--abort-if); the figures cover this time",
            show_time_ns(at_ns),
            trial.offered_load(),
        );
        trial.warnings.insert(0, Warning::new("aborted", message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Index of the one-second interval after which the guard aborts the trial. An interval is given as completed and failed requests.
    fn aborted_after(rule: &str, intervals: &[(u64, u64)]) -> Option<usize> {
        let mut guard = Guard::new(Some(rule.parse().unwrap()));
        let tick = |(number, (completed, failed)): (usize, &(u64, u64))| {
            let end_ns = (number as u64 + 1) * 1_000_000_000;
            guard.aborts(&Tick { end_ns, completed: *completed, failed: *failed, ..Tick::default() })
        };
        intervals.iter().enumerate().position(tick)
    }

    #[test]
    fn failures_in_a_row_abort() {
        let rule = "errors > 10% for 2s";
        assert_eq!(aborted_after(rule, &[(90, 11), (90, 11), (0, 1)]), Some(1));
        assert_eq!(aborted_after(rule, &[(90, 11), (90, 10), (90, 11), (0, 0), (80, 20)]), Some(4));
        assert_eq!(aborted_after(rule, &[(90, 10); 9]), None, "10 % is not more than 10 %");
        assert_eq!(aborted_after(rule, &[(0, 0); 9]), None);
    }
}
