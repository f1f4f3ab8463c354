//! What changes while the listener runs, and should be told: states of the storage, losses, refusals.

use std::time::{Duration, Instant};

use listen::Statistics;
use record::units::show_count;
use tracing::{Level, error, info, warn};

/// Refusals are told together, at most so often.
const PAUSE: Duration = Duration::from_secs(10);

/// Compares counters as time goes on.
#[derive(Debug)]
pub(super) struct Watch {
    /// As last looked at.
    seen: Statistics,
    /// As last told, for what is told together.
    told: Statistics,
    told_at: Option<Instant>,
}

/// Something that should be told.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Change {
    level: Level,
    message: String,
}

impl Change {
    fn new(level: Level, message: String) -> Self {
        Self { level, message }
    }

    /// Tells it in the log.
    pub(super) fn tell(&self) {
        let message = &self.message;
        match self.level {
            Level::ERROR => error!("{message}"),
            Level::WARN => warn!("{message}"),
            _ => info!("{message}"),
        }
    }
}

impl Watch {
    /// From these counters on.
    pub(super) fn new(now: Statistics) -> Self {
        Self { told: now.clone(), seen: now, told_at: None }
    }

    /// What has changed.
    pub(super) fn look(&mut self, now: Statistics) -> Vec<Change> {
        let mut changes = Vec::new();
        if now.storage != self.seen.storage {
            changes.push(match now.storage.as_str() {
                "ok" => Change::new(Level::INFO, "the storage takes lines again".into()),
                why => Change::new(
                    Level::ERROR,
                    format!("nothing can be stored: {why}; requests are refused until it can"),
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
        if self.told_at.is_none_or(|told_at| told_at.elapsed() >= PAUSE)
            && let Some(message) = self.refusals()
        {
            changes.push(Change::new(Level::WARN, message));
            self.told_at = Some(Instant::now());
            self.told = self.seen.clone();
        }
        changes
    }

    /// What was refused since it was last told.
    fn refusals(&self) -> Option<String> {
        let more = |now: u64, before: u64| now.saturating_sub(before);
        let mut parts: Vec<String> = self
            .seen
            .refused
            .iter()
            .map(|(reason, &now)| (reason, more(now, self.told.refused.get(reason).copied().unwrap_or(0))))
            .filter(|(_, count)| *count > 0)
            .map(|(reason, count)| format!("{} requests ({})", show_count(count), reason.replace('_', " ")))
            .collect();
        let connections = more(self.seen.connections_refused, self.told.connections_refused);
        if connections > 0 {
            parts.push(format!("{} connections (--max-connections)", show_count(connections)));
        }
        let accepts = more(self.seen.accept_errors, self.told.accept_errors);
        if accepts > 0 {
            parts.push(format!("{} accepts that failed (see ulimit -n)", show_count(accepts)));
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
    fn nothing_is_told_while_nothing_changes() {
        let mut watch = Watch::new(calm());
        let busy = Statistics { received_bytes: 5, requests: [(204, 7)].into(), ..calm() };
        assert_eq!(watch.look(busy), []);
    }

    #[test]
    fn states_of_the_storage_are_told_once_each() {
        let mut watch = Watch::new(calm());
        let full = Statistics { storage: "full".into(), accepted_events_lost: 3, ..calm() };
        assert_eq!(
            messages(&watch.look(full.clone())),
            [
                (Level::ERROR, "nothing can be stored: full; requests are refused until it can"),
                (Level::ERROR, "3 events that were acknowledged as accepted could not be stored")
            ]
        );
        assert_eq!(watch.look(full.clone()), []);
        let again = Statistics { storage: "ok".into(), ..full };
        assert_eq!(messages(&watch.look(again)), [(Level::INFO, "the storage takes lines again")]);
    }

    #[test]
    fn refusals_are_told_together_and_not_too_often() {
        let mut watch = Watch::new(calm());
        let refused = |count| Statistics {
            refused: [("budget".to_owned(), count), ("storage_full".to_owned(), 2)].into(),
            connections_refused: 1,
            accept_errors: 4,
            ..calm()
        };
        assert_eq!(
            messages(&watch.look(refused(5))),
            [(
                Level::WARN,
                "refused: 5 requests (budget), 2 requests (storage full), 1 connections (--max-connections), 4 accepts \
                 that failed (see ulimit -n)"
            )]
        );
        assert_eq!(watch.look(refused(9)), []);
        watch.told_at = Instant::now().checked_sub(PAUSE);
        assert_eq!(messages(&watch.look(refused(10))), [(Level::WARN, "refused: 5 requests (budget)")]);
    }
}
