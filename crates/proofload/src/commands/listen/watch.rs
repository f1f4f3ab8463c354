//! Detects changes in the statistics that are worth a log line: states of the storage, lost events, refusals.

use std::time::{Duration, Instant};

use listen::Statistics;
use record::units::show_count;
use tracing::{Level, error, info, warn};

/// Shortest time between two log lines about refusals.
const REFUSAL_INTERVAL: Duration = Duration::from_secs(10);

/// Finds changes between successive statistics.
#[derive(Debug)]
pub(super) struct Watch {
    /// The statistics at the last update.
    seen: Statistics,
    /// The statistics at the last log line about refusals.
    logged: Statistics,
    logged_at: Option<Instant>,
}

/// A log message about a change.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Change {
    level: Level,
    message: String,
}

impl Change {
    fn new(level: Level, message: String) -> Self {
        Self { level, message }
    }

    pub(super) fn log(&self) {
        let message = &self.message;
        match self.level {
            Level::ERROR => error!("{message}"),
            Level::WARN => warn!("{message}"),
            _ => info!("{message}"),
        }
    }
}

impl Watch {
    /// Starts with `now` as the baseline.
    pub(super) fn new(now: Statistics) -> Self {
        Self { logged: now.clone(), seen: now, logged_at: None }
    }

    /// Returns the changes since the last update, and makes `now` the new baseline.
    pub(super) fn update(&mut self, now: Statistics, at: Instant) -> Vec<Change> {
        let mut changes = Vec::new();
        if now.storage != self.seen.storage {
            changes.push(match now.storage.as_str() {
                "ok" => Change::new(Level::INFO, "events can be stored again".into()),
                why => Change::new(
                    Level::ERROR,
                    format!("nothing can be stored: {why}; requests are refused until storing works again"),
                ),
            });
        }
        let lost = now.accepted_events_lost.saturating_sub(self.seen.accepted_events_lost);
        if lost > 0 {
            changes.push(Change::new(
                Level::ERROR,
                format!("{} events that were acknowledged as accepted could not be stored", show_count(lost)),
            ));
        }
        self.seen = now;
        if self.logged_at.is_none_or(|logged_at| at - logged_at >= REFUSAL_INTERVAL)
            && let Some(message) = self.refusals()
        {
            changes.push(Change::new(Level::WARN, message));
            self.logged_at = Some(at);
            self.logged = self.seen.clone();
        }
        changes
    }

    /// Describes the refusals since the last log line about them; `None` if there were none.
    fn refusals(&self) -> Option<String> {
        let more = |now: u64, before: u64| now.saturating_sub(before);
        let mut parts: Vec<String> = self
            .seen
            .refused
            .iter()
            .map(|(reason, &now)| (reason, more(now, self.logged.refused.get(reason).copied().unwrap_or(0))))
            .filter(|(_, count)| *count > 0)
            .map(|(reason, count)| format!("{} requests ({})", show_count(count), reason.replace('_', " ")))
            .collect();
        let connections = more(self.seen.connections_refused, self.logged.connections_refused);
        if connections > 0 {
            parts.push(format!("{} connections (--max-connections)", show_count(connections)));
        }
        let accepts = more(self.seen.accept_errors, self.logged.accept_errors);
        if accepts > 0 {
            parts.push(format!("{} failed accepts (see ulimit -n)", show_count(accepts)));
        }
        (!parts.is_empty()).then(|| format!("refused: {}", parts.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calm() -> Statistics {
        Statistics { storage: "ok".into(), ..Statistics::default() }
    }

    fn messages(changes: &[Change]) -> Vec<(Level, &str)> {
        changes.iter().map(|change| (change.level, change.message.as_str())).collect()
    }

    #[test]
    fn nothing_is_logged_while_nothing_changes() {
        let mut watch = Watch::new(calm());
        let busy = Statistics { received_bytes: 5, requests: [(204, 7)].into(), ..calm() };
        assert_eq!(watch.update(busy, Instant::now()), []);
    }

    #[test]
    fn each_state_of_the_storage_is_logged_once() {
        let mut watch = Watch::new(calm());
        let full = Statistics { storage: "full".into(), accepted_events_lost: 3, ..calm() };
        assert_eq!(
            messages(&watch.update(full.clone(), Instant::now())),
            [
                (Level::ERROR, "nothing can be stored: full; requests are refused until storing works again"),
                (Level::ERROR, "3 events that were acknowledged as accepted could not be stored")
            ]
        );
        assert_eq!(watch.update(full.clone(), Instant::now()), []);
        let again = Statistics { storage: "ok".into(), ..full };
        assert_eq!(
            messages(&watch.update(again, Instant::now())),
            [(Level::INFO, "events can be stored again")]
        );
    }

    #[test]
    fn refusals_are_logged_together_and_not_too_often() {
        let mut watch = Watch::new(calm());
        let refused = |count| Statistics {
            refused: [("budget".to_owned(), count), ("storage_full".to_owned(), 2)].into(),
            connections_refused: 1,
            accept_errors: 4,
            ..calm()
        };
        let first = Instant::now();
        let next = first + REFUSAL_INTERVAL;
        assert_eq!(
            messages(&watch.update(refused(5), first)),
            [(
                Level::WARN,
                "refused: 5 requests (budget), 2 requests (storage full), 1 connections (--max-connections), 4 failed \
                 accepts (see ulimit -n)"
            )]
        );
        assert_eq!(watch.update(refused(9), next - Duration::from_nanos(1)), []);
        assert_eq!(
            messages(&watch.update(refused(10), next)),
            [(Level::WARN, "refused: 5 requests (budget)")]
        );
    }
}
