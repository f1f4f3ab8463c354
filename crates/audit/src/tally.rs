//! Compares stored events with sent events.

use std::path::{Path, PathBuf};

use memchr::memchr;
use record::{
    AckLevel, AuditFinding, AuditResult, EventCounts, EventOutcome, ReadCounts,
    audit::{MAX_EXAMPLES, SCHEMA},
    receipt::{EventId, Marker},
};

use crate::{
    event::{Examiner, FoundEvent},
    files::{Line, plain_name},
    findings::Findings,
    positions::ClaimedPositions,
    receipts::{Highest, OutcomeRange, Receipts, Run},
};

/// The reason reported for a line with NUL bytes.
const NUL_BYTES: &str = "there are NUL bytes in the line";

/// Compares stored events with the receipts and keeps the counts.
#[derive(Debug)]
pub(crate) struct Tally {
    runs: Vec<Run>,
    level: Option<AckLevel>,
    result: AuditResult,
    findings: Findings,
    positions: ClaimedPositions,
    file: PathBuf,
    /// Number of the current file, starting at 1.
    file_index: u32,
    /// Number of events of known runs in the current file.
    events_in_file: u64,
}

impl Tally {
    pub(crate) fn new(receipts: Receipts, level: Option<AckLevel>) -> Self {
        let Receipts { mut runs, incomplete } = receipts;
        let mut positions = ClaimedPositions::default();
        for run in &mut runs {
            let mut claimed = std::mem::take(&mut run.claims);
            // Ignores a claimed position if its event was not acknowledged at the required level, because it is not a
            // promise.
            claimed.retain(|claim| {
                let client = run.clients.get(&claim.client);
                let end = client.and_then(|client| client.outcome_of(claim.number));
                end.is_some_and(|end| is_promised(end.outcome, level))
            });
            positions.claim(run.numbering.run(), claimed);
        }
        let result = AuditResult {
            schema: SCHEMA.to_owned(),
            level,
            runs: runs.len() as u64,
            incomplete,
            ..AuditResult::default()
        };
        let (findings, file) = (Findings::default(), PathBuf::new());
        Self { runs, level, result, findings, positions, file, file_index: 0, events_in_file: 0 }
    }

    pub(crate) fn begin_file(&mut self, path: &Path) {
        self.file = path.to_owned();
        self.file_index += 1;
        self.events_in_file = 0;
        self.positions.begin_file(&plain_name(path).0);
    }

    /// Counts the rest of the current file as corrupt, because it cannot be read.
    pub(crate) fn count_broken_file(&mut self, why: &str) {
        self.result.corrupt += 1;
        let file = &self.file;
        self.findings.add(AuditFinding::Corrupt, || {
            (
                None,
                Some(file.display().to_string()),
                None,
                format!("the file cannot be read to its end: {why}"),
            )
        });
    }

    /// Compares the events in the next line with the receipts and counts them.
    pub(crate) fn count_line(&mut self, line: &Line<'_>, examiner: &Examiner) {
        let claimed = self.positions.advance_to(line.offset);
        let (mut events, mut altered, mut foreign) = (0, 0, 0);
        examiner.examine(line.bytes, |found| match found {
            FoundEvent::Event { run, marker } => {
                events += 1;
                if claimed && events == 1 {
                    self.positions.confirm(line.offset, marker.id);
                }
                self.count_event(run, marker, line.number);
            }
            FoundEvent::Foreign => foreign += 1,
            FoundEvent::Altered { marker, why } => {
                altered += 1;
                self.count_corrupt(marker, line.number, why);
            }
        });
        self.events_in_file += events;
        self.result.foreign_events += foreign;
        if altered > 0 {
            self.result.torn += u64::from(!line.is_ended);
            return;
        }
        if events + foreign == 0 {
            self.line_without_events(line, examiner);
        } else if events > 0 && memchr(0, line.bytes).is_some() {
            self.count_corrupt(None, line.number, NUL_BYTES);
        }
    }

    /// Counts a line without events: as corrupt if it contains a fragment of an event, otherwise as foreign.
    fn line_without_events(&mut self, line: &Line<'_>, examiner: &Examiner) {
        if line.bytes.is_empty() {
            return;
        }
        if line.bytes.iter().all(|&byte| byte == 0) {
            self.count_corrupt(None, line.number, NUL_BYTES);
        } else if !line.is_ended && (self.events_in_file > 0 || examiner.is_fragment(line.bytes)) {
            self.result.torn += 1;
            self.count_corrupt(None, line.number, "the last line ends in the middle of an event");
        } else if examiner.ends_early(line.bytes) {
            self.count_corrupt(None, line.number, "the line ends in the middle of an event");
        } else {
            self.result.other_lines += 1;
        }
    }

    fn count_corrupt(&mut self, marker: Option<Marker>, line: u64, why: &str) {
        self.result.corrupt += 1;
        self.add_finding(AuditFinding::Corrupt, marker.map(|marker| marker.id), line, || why.to_owned());
    }

    fn count_event(&mut self, run: usize, marker: Marker, line: u64) {
        let id = marker.id;
        let client = self.runs[run].clients.get_mut(&id.client);
        let known = client.and_then(|client| Some((client.outcome_of(id.number)?, client)));
        let Some((end, client)) = known else {
            let complete = self.runs[run].has_all_of(id.client);
            return self.count_unknown(id, complete, line);
        };
        let before = client.copies.count(id.number);
        if end.outcome == EventOutcome::Unsent {
            self.result.never_sent += 1;
            return self.add_finding(AuditFinding::NeverSent, Some(id), line, || {
                "the client sent no byte of this event".to_owned()
            });
        }
        if before == 0 {
            let (highest, file) = (client.highest, self.file_index);
            if highest.file != file || highest.number < id.number {
                client.highest = Highest { file, number: id.number };
            }
            self.count_first_copy(id, end, highest, line);
        } else if before >= end.attempts {
            self.result.duplicated += 1;
            let copy = u32::from(before) + 1;
            let detail = || format!("copy {copy} of an event that was sent {}", times(end.attempts));
            self.add_finding(AuditFinding::Duplicated, Some(id), line, detail);
        } else {
            self.result.repeated += 1;
        }
    }

    /// Counts the first copy of an event. `highest` is its client's value before this copy.
    fn count_first_copy(&mut self, id: EventId, end: OutcomeRange, highest: Highest, line: u64) {
        self.result.stored += 1;
        match end.outcome {
            EventOutcome::Refused => {
                self.result.refused_stored += 1;
                self.add_finding(AuditFinding::RefusedStored, Some(id), line, || {
                    "the listener refused the request that carried this event".to_owned()
                });
            }
            EventOutcome::Unknown => self.result.unknown_stored += 1,
            _ => {}
        }
        let is_behind = highest.file == self.file_index && highest.number >= id.number;
        if is_behind && end.outcome.is_acknowledged() {
            self.result.out_of_order += 1;
            let before = highest.number;
            let detail = || format!("the later event {before:08x} of the same client precedes it");
            self.add_finding(AuditFinding::OutOfOrder, Some(id), line, detail);
        }
    }

    /// Counts an event that is not in the receipts. If these are complete, it was never sent.
    fn count_unknown(&mut self, id: EventId, complete: bool, line: u64) {
        if complete {
            self.result.never_sent += 1;
            let detail = || "its client sent no event with this number".to_owned();
            self.add_finding(AuditFinding::NeverSent, Some(id), line, detail);
        } else {
            self.result.unaccounted += 1;
        }
    }

    fn add_finding(
        &mut self,
        finding: AuditFinding,
        id: Option<EventId>,
        line: u64,
        detail: impl FnOnce() -> String,
    ) {
        let file = &self.file;
        self.findings.add(finding, || (id, Some(file.display().to_string()), Some(line), detail()));
    }

    /// Counts the missing events and returns the final result.
    pub(crate) fn finish(mut self, read: ReadCounts) -> AuditResult {
        self.result.read = read;
        let (mut sent, mut missing) = (EventCounts::default(), EventCounts::default());
        for run in &self.runs {
            for (&client, events) in &run.clients {
                let mut from = 0;
                for end in &events.outcomes {
                    sent.add(end.outcome, u64::from(end.until - from));
                    let held = is_promised(end.outcome, self.level);
                    for absent in events.copies.absent(from..end.until) {
                        let count = u64::from(absent.end - absent.start);
                        missing.add(end.outcome, count);
                        if !held {
                            continue;
                        }
                        self.result.lost += count;
                        for number in absent.take(MAX_EXAMPLES) {
                            let id = EventId { run: run.numbering.run(), client, number };
                            self.findings.add(AuditFinding::Lost, || {
                                let detail = format!("{}, sent {}", end.outcome.name(), times(end.attempts));
                                (Some(id), None, None, detail)
                            });
                        }
                    }
                    from = end.until;
                }
            }
        }
        (self.result.sent, self.result.missing) = (sent, missing);
        let findings = &mut self.findings;
        self.result.places = self.positions.count(|id, segment, offset| {
            findings.add(AuditFinding::WrongPlace, || {
                let detail = format!("the event is not at byte {offset}, where its receipt places it");
                (Some(id), Some(segment.display().to_string()), None, detail)
            });
        });
        self.result.examples = self.findings.into_examples();
        self.result
    }
}

fn is_promised(outcome: EventOutcome, level: Option<AckLevel>) -> bool {
    level.map_or(outcome.is_acknowledged(), |level| outcome.promises(level))
}

fn times(n: u8) -> String {
    match n {
        1 => "once".to_owned(),
        u8::MAX => "255 times or more".to_owned(),
        n => format!("{n} times"),
    }
}
