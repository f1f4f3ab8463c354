//! Why requests of a trial were not completed, in words.

use crate::{
    errors::{ErrorClass, ErrorCounts, Origin},
    trial::{HttpTrial, Measured, Trial},
    units::{show_count, show_time_ns},
};

impl Trial {
    /// What most of the requests that the target did not complete came to: `nothing listens at 127.0.0.1:1 (connection
    /// refused)`. None if there are none, or if this machine is to blame.
    pub fn main_failure(&self) -> Option<String> {
        match &self.measured {
            Measured::Http(http) => http.main_failure(self.elapsed_s),
            Measured::Command(command) => command.failure(),
        }
    }
}

impl HttpTrial {
    /// The same of requests, answers to which were waited for until `elapsed_s`.
    pub fn main_failure(&self, elapsed_s: f64) -> Option<String> {
        let at = self.address();
        let timeout = show_time_ns(self.plan.timeout_ns);
        let Some(class) = most_frequent(&self.errors).or_else(|| most_frequent(&self.connection_errors))
        else {
            let waited = show_time_ns((elapsed_s * 1e9) as u64);
            let unanswered = self.counts.in_flight + self.counts.never_sent_busy > 0;
            return unanswered.then(|| match self.counts.connections_opened {
                0 => format!("no connection to {at} came about within {waited}"),
                _ => format!("{at} left requests unanswered for up to {waited}"),
            });
        };
        Some(match class {
            ErrorClass::ConnectRefused => format!("nothing listens at {at} (connection refused)"),
            ErrorClass::ConnectTimeout => {
                format!(
                    "no connection to {at} came about within {timeout}: nothing answers there, or its accept queue is full"
                )
            }
            ErrorClass::ConnectReset | ErrorClass::Reset => format!("{at} reset its connections"),
            ErrorClass::Unreachable => format!("there is no route to {at}"),
            ErrorClass::ClosedEarly => format!("{at} closed its connections without an answer"),
            ErrorClass::ClosedUnused => format!("{at} closed connections before they carried a request"),
            ErrorClass::Truncated => format!("{at} closed its connections within an answer"),
            ErrorClass::Timeout => format!("{at} gave no whole answer within {timeout}"),
            ErrorClass::Malformed | ErrorClass::Framing | ErrorClass::TooLarge | ErrorClass::Unsolicited => {
                format!("{at} does not answer in sound HTTP/1.1 ({})", class.meaning())
            }
            ErrorClass::Status => {
                format!("{at} answered {}, not {} (--expect)", self.unexpected(), self.plan.expect)
            }
            ErrorClass::Descriptors | ErrorClass::Ports | ErrorClass::Buffers | ErrorClass::LocalOther => {
                return None;
            }
        })
    }

    /// The unexpected statuses; with their counts if there are several.
    fn unexpected(&self) -> String {
        let unexpected = self.statuses.iter().filter(|(status, _)| !self.plan.expect.contains(**status));
        let unexpected: Vec<(u16, u64)> = unexpected.map(|(&status, &n)| (status, n)).collect();
        match &unexpected[..] {
            [(status, _)] => status.to_string(),
            several => {
                let each = several.iter().map(|(status, n)| format!("{status} ({} times)", show_count(*n)));
                each.collect::<Vec<_>>().join(", ")
            }
        }
    }

    fn address(&self) -> String {
        match &self.plan.targets[..] {
            [] => self.plan.url.clone(),
            [only] => only.to_string(),
            [first, others @ ..] => format!("{first} and {} more", others.len()),
        }
    }
}

/// The most frequent class of failure that is not this machine's.
fn most_frequent(errors: &ErrorCounts) -> Option<ErrorClass> {
    let foreign = errors.iter().filter(|(class, n)| *n > 0 && class.origin() != Origin::Local);
    foreign.max_by_key(|(_, n)| *n).map(|(class, _)| class)
}
