//! Events stored, held against events sent.

use std::path::{Path, PathBuf};

use memchr::memchr;
use record::{
    AckLevel, AuditFinding, AuditResult, EventCounts, EventOutcome, ReadCounts,
    audit::SCHEMA,
    receipt::{EventId, Marker},
};

use crate::{
    event::{Examiner, Seen},
    files::{Line, plain_name},
    findings::Findings,
    places::Places,
    receipts::{End, Receipts, Run},
};

/// What is wrong with a line that was to hold something else.
const NULS: &str = "there are NUL bytes in the line";

/// Counts while files are read.
#[derive(Debug)]
pub(crate) struct Tally {
    runs: Vec<Run>,
    level: Option<AckLevel>,
    result: AuditResult,
    findings: Findings,
    places: Places,
    /// Of each client of each run, the highest number in the file that it was last seen in.
    highest: Vec<Vec<Highest>>,
    file: PathBuf,
    /// Counts files, from 1.
    file_index: u32,
    /// Events of known runs in the file.
    events_in_file: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Highest {
    file: u32,
    number: u32,
}

/// Where a finding is.
#[derive(Debug, Clone, Copy)]
struct At {
    line: u64,
}

impl Tally {
    /// Nothing counted yet.
    pub(crate) fn new(receipts: Receipts, level: Option<AckLevel>) -> Self {
        let Receipts { mut runs, incomplete } = receipts;
        let mut places = Places::default();
        for run in &mut runs {
            let mut claimed = std::mem::take(&mut run.places);
            // What was not acknowledged, or at too low a level, is not held to its place either.
            claimed.retain(|place| {
                let client = run.clients.get_mut(place.client as usize);
                let end = client.and_then(|client| client.end_of(place.number));
                end.is_some_and(|end| held_to_its_promise(end.outcome, level))
            });
            places.claim(run.numbering.run(), claimed);
        }
        let result = AuditResult {
            schema: SCHEMA.to_owned(),
            level,
            runs: runs.len() as u64,
            incomplete,
            ..AuditResult::default()
        };
        let highest = runs.iter().map(|run| vec![Highest::default(); run.clients.len()]).collect();
        let (findings, file) = (Findings::default(), PathBuf::new());
        Self { runs, level, result, findings, places, highest, file, file_index: 0, events_in_file: 0 }
    }

    /// The lines that follow are of this file.
    pub(crate) fn begin_file(&mut self, path: &Path) {
        self.file = path.to_owned();
        self.file_index += 1;
        self.events_in_file = 0;
        self.places.begin_file(&plain_name(path).0);
    }

    /// The file cannot be read any further, although it goes on.
    pub(crate) fn broken_file(&mut self, why: &str) {
        self.result.corrupt += 1;
        let file = &self.file;
        self.findings.add(AuditFinding::Corrupt, || {
            (None, Some(file.display().to_string()), None, format!("it cannot be read to its end: {why}"))
        });
    }

    /// The next line.
    pub(crate) fn line(&mut self, line: &Line<'_>, examiner: &Examiner) {
        let at = At { line: line.number };
        let claimed = self.places.awaits(line.offset);
        let (mut events, mut altered, mut foreign) = (0, 0, 0);
        examiner.examine(line.bytes, |seen| match seen {
            Seen::Event { run, marker } => {
                events += 1;
                if claimed && events == 1 {
                    self.places.holds(line.offset, marker.id);
                }
                self.event(run, marker, at);
            }
            Seen::Foreign => foreign += 1,
            Seen::Altered { marker, why } => {
                altered += 1;
                self.corrupt(marker, at, why);
            }
        });
        self.events_in_file += events;
        self.result.foreign_events += foreign;
        if altered > 0 {
            self.result.torn += u64::from(!line.is_ended);
            return;
        }
        if events + foreign == 0 {
            self.line_without_events(line, at, examiner);
        } else if events > 0 && memchr(0, line.bytes).is_some() {
            self.corrupt(None, at, NULS);
        }
    }

    /// Somebody else's line, unless it shows that it was to be one of ours.
    fn line_without_events(&mut self, line: &Line<'_>, at: At, examiner: &Examiner) {
        if line.bytes.is_empty() {
            return;
        }
        if line.bytes.iter().all(|&byte| byte == 0) {
            self.corrupt(None, at, NULS);
        } else if !line.is_ended && (self.events_in_file > 0 || examiner.is_fragment(line.bytes)) {
            self.result.torn += 1;
            self.corrupt(None, at, "the last line ends before its event does");
        } else if examiner.ends_early(line.bytes) {
            self.corrupt(None, at, "the line ends before its event does");
        } else {
            self.result.other_lines += 1;
        }
    }

    fn corrupt(&mut self, marker: Option<Marker>, at: At, why: &str) {
        self.result.corrupt += 1;
        self.find(AuditFinding::Corrupt, marker.map(|marker| marker.id), at, || why.to_owned());
    }

    fn event(&mut self, run: usize, marker: Marker, at: At) {
        let id = marker.id;
        let run_is_complete = self.runs[run].is_complete();
        let Some(client) = self.runs[run].clients.get_mut(id.client as usize) else {
            return self.unknown_to_receipts(id, run_is_complete, at);
        };
        let Some(end) = client.end_of(id.number) else {
            let complete = client.complete;
            return self.unknown_to_receipts(id, complete, at);
        };
        let copies = &mut client.copies[id.number as usize];
        let before = *copies;
        *copies = before.saturating_add(1);
        if end.outcome == EventOutcome::Unsent {
            self.result.never_sent += 1;
            return self
                .find(AuditFinding::NeverSent, Some(id), at, || "not one byte of it was sent".to_owned());
        }
        if before == 0 {
            self.first_copy(run, id, end, at);
        } else if before >= end.attempts {
            self.result.duplicated += 1;
            let copy = u32::from(before) + 1;
            let detail = || format!("copy {copy} of an event that was sent {}", times(end.attempts));
            self.find(AuditFinding::Duplicated, Some(id), at, detail);
        } else {
            self.result.repeated += 1;
        }
    }

    fn first_copy(&mut self, run: usize, id: EventId, end: End, at: At) {
        self.result.stored += 1;
        match end.outcome {
            EventOutcome::Refused => {
                self.result.refused_stored += 1;
                self.find(AuditFinding::RefusedStored, Some(id), at, || "its sender was refused".to_owned());
            }
            EventOutcome::Unknown => self.result.unknown_stored += 1,
            _ => {}
        }
        let highest = &mut self.highest[run][id.client as usize];
        if highest.file != self.file_index || highest.number < id.number {
            *highest = Highest { file: self.file_index, number: id.number };
        } else if end.outcome.is_acknowledged() {
            self.result.out_of_order += 1;
            let before = highest.number;
            let detail = || format!("event {before:08x} of the same client stands before it");
            self.find(AuditFinding::OutOfOrder, Some(id), at, detail);
        }
    }

    /// Receipts that are complete know every event that was sent.
    fn unknown_to_receipts(&mut self, id: EventId, complete: bool, at: At) {
        if complete {
            self.result.never_sent += 1;
            let detail = || "its client sent no event of that number".to_owned();
            self.find(AuditFinding::NeverSent, Some(id), at, detail);
        } else {
            self.result.unaccounted += 1;
        }
    }

    fn find(&mut self, finding: AuditFinding, id: Option<EventId>, at: At, detail: impl FnOnce() -> String) {
        let file = &self.file;
        self.findings.add(finding, || (id, Some(file.display().to_string()), Some(at.line), detail()));
    }

    /// All files are read: what is missing, and all that was counted.
    pub(crate) fn conclude(mut self, read: ReadCounts) -> AuditResult {
        self.result.read = read;
        let (mut sent, mut missing) = (EventCounts::default(), EventCounts::default());
        for run in &self.runs {
            for (client, events) in (0..).zip(&run.clients) {
                let mut from = 0;
                for end in &events.ends {
                    sent.add(end.outcome, u64::from(end.until - from));
                    let copies = &events.copies[from as usize..end.until as usize];
                    let absent = (from..).zip(copies).filter(|&(_, &copies)| copies == 0);
                    let held = held_to_its_promise(end.outcome, self.level);
                    for (number, _) in absent {
                        missing.add(end.outcome, 1);
                        if held {
                            self.result.lost += 1;
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
        self.result.places = self.places.conclude(|id, segment, offset| {
            findings.add(AuditFinding::WrongPlace, || {
                let detail = format!("the receipt says that it begins at byte {offset}");
                (Some(id), Some(segment.display().to_string()), None, detail)
            });
        });
        self.result.examples = self.findings.into_examples();
        self.result
    }
}

fn held_to_its_promise(outcome: EventOutcome, level: Option<AckLevel>) -> bool {
    level.map_or(outcome.is_acknowledged(), |level| outcome.promises(level))
}

fn times(n: u8) -> String {
    match n {
        1 => "once".to_owned(),
        u8::MAX => "255 times or more".to_owned(),
        n => format!("{n} times"),
    }
}
