//! The events in a line, and whether they are as they were sent.
//!
//! A receiver that stores what it got has the event's own bytes in the line: those are compared. One that reads it and
//! writes it anew (members reordered, an object around it, JSON inside JSON, nginx's `\x22`) has the same members:
//! then the line is read, and those are compared.

mod reading;
mod same;

use memchr::memmem;
use record::receipt::{EVENT_KEY, Marker, Numbering};
use serde_json::{Map, Value};

use reading::{Numbers, read_events};
use same::is_same;

/// How far behind the key its number may begin: quotes, a colon, blanks, all of it escaped more than once.
const MAX_NUMBER_DISTANCE: usize = 24;
/// Bytes of a run and the dash behind it.
const RUN_BYTES: usize = 9;
/// So many bytes of an event's beginning tell a fragment of it from other text.
const FRAGMENT_BYTES: usize = 16;
/// Quotes around a name, escaped or percent-encoded, and what escapes them.
const QUOTES: [&[u8]; 7] = [b"\"", b"\\", b"x22", b"u0022", b"%22", b"%5C", b"&quot;"];
/// What stands between the name of a member and its value.
const COLONS: [&[u8]; 3] = [b":", b"%3A", b"%3a"];

/// What is wrong with lines that became one.
const JOINED: &str = "another event stands before it in its line, and is no part of the same JSON text";

/// What stands in a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FoundEvent {
    /// An event of a known run, as it was sent.
    Event {
        /// Index of the run.
        run: usize,
        /// Its number.
        marker: Marker,
    },
    /// An event of another run.
    Foreign,
    /// An event that is not as it was sent.
    Altered {
        /// What it says that it is, if that can be read.
        marker: Option<Marker>,
        /// What is wrong.
        why: &'static str,
    },
}

/// Finds events in lines.
#[derive(Debug)]
pub(crate) struct Examiner {
    key: memmem::Finder<'static>,
    runs: Vec<RunMatcher>,
    numbers: Numbers,
}

/// What an event of a run must be.
#[derive(Debug)]
struct RunMatcher {
    numbering: Numbering,
    members: Map<String, Value>,
    /// The run and a dash.
    run_text: memmem::Finder<'static>,
    /// How every event begins.
    beginning: memmem::Finder<'static>,
}

impl Examiner {
    /// For events of these runs.
    pub(crate) fn new<'a>(runs: impl Iterator<Item = &'a Numbering>) -> Self {
        let runs: Vec<&Numbering> = runs.collect();
        let values = runs.iter().flat_map(|run| members_of(run, Numbers::Values)).map(|(_, value)| value);
        let numbers = Numbers::needed_for(&values.collect());
        let runs = runs.into_iter().map(|run| RunMatcher::new(run, numbers)).collect();
        Self { key: memmem::Finder::new(EVENT_KEY.as_bytes()), runs, numbers }
    }

    /// Gives everything in a line that is, or was, an event.
    pub(crate) fn examine(&self, line: &[u8], mut report: impl FnMut(FoundEvent)) {
        let mut found_any = false;
        let mut from = 0;
        let mut previous_end = 0;
        let (mut parsed_line, mut whole_end) = (None, None);
        while let Some(at) = self.key.find(&line[from..]) {
            let after_key = from + at + EVENT_KEY.len();
            from = after_key;
            let Some((at, marker)) = marker_after(line, after_key) else {
                if is_name(&line[after_key..]) {
                    found_any = true;
                    previous_end = after_key;
                    report(FoundEvent::Altered { marker: None, why: "its number cannot be read" });
                }
                continue;
            };
            found_any = true;
            from = at + Marker::BYTES;
            let since = std::mem::replace(&mut previous_end, from);
            let Some(run) = self.runs.iter().position(|known| known.numbering.run() == marker.id.run) else {
                report(self.classify_unknown_run(line, at, marker));
                continue;
            };
            let known = &self.runs[run];
            if known.numbering.marker(marker.id.client, marker.id.number) != marker {
                report(FoundEvent::Altered {
                    marker: Some(marker),
                    why: "its fingerprint is of another event",
                });
            } else if let Some(start) = known.verbatim_start(line, at) {
                let between = &line[since.min(start)..start];
                if known.beginning.find(between).is_some() {
                    report(FoundEvent::Altered { marker: None, why: "a torn event stands before another" });
                } else if whole_end == Some(since) && is_joined(between) {
                    report(FoundEvent::Altered { marker: None, why: JOINED });
                }
                whole_end = Some(from);
                report(FoundEvent::Event { run, marker });
            } else {
                let events = parsed_line.get_or_insert_with(|| {
                    let read = read_events(line, self.numbers);
                    if read.is_joined {
                        report(FoundEvent::Altered { marker: None, why: JOINED });
                    }
                    read.events
                });
                let same = |(other, members): &(Marker, Map<String, Value>)| {
                    *other == marker && known.has_members(members)
                };
                report(match events.iter().any(same) {
                    true => FoundEvent::Event { run, marker },
                    false => FoundEvent::Altered { marker: Some(marker), why: "it is not as it was sent" },
                });
            }
        }
        if !found_any && self.runs.iter().any(|known| known.run_text.find(line).is_some()) {
            let why = "the key of its number cannot be read (lines of csv have none, and cannot be audited)";
            report(FoundEvent::Altered { marker: None, why });
        }
    }

    /// Whether a line without its end was going to be an event.
    pub(crate) fn is_fragment(&self, line: &[u8]) -> bool {
        self.runs.iter().any(|known| known.beginning.find(line).is_some())
    }

    /// Whether a line ends in the middle of an event, with NUL bytes behind that or without. An event of the same
    /// members that was never numbered is none.
    pub(crate) fn ends_early(&self, line: &[u8]) -> bool {
        let end = line.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        let line = &line[..end];
        self.runs.iter().filter(|known| known.beginning.find(line).is_some()).any(|known| {
            let last = memmem::rfind(line, known.beginning.needle());
            last.is_some_and(|start| known.numbering.front().starts_with(&line[start..]))
        })
    }

    /// An event whose run nobody knows may be one of ours with a broken run: its fingerprint is still of ours.
    fn classify_unknown_run(&self, line: &[u8], at: usize, marker: Marker) -> FoundEvent {
        let ours = self.runs.iter().any(|known| {
            let own = known.numbering.marker(marker.id.client, marker.id.number);
            own.fingerprint == marker.fingerprint && known.verbatim_start(line, at).is_some()
        });
        match ours {
            true => {
                FoundEvent::Altered { marker: Some(marker), why: "its run is not the one it was sent in" }
            }
            false => FoundEvent::Foreign,
        }
    }
}

/// Whether an event and the next one, with this between them, were two lines: in one JSON text a comma parts them.
fn is_joined(between: &[u8]) -> bool {
    let rest = between.strip_prefix(b"\"}").unwrap_or(between);
    let is_end = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'}' | b']');
    rest.iter().find(|byte| !is_end(byte)) != Some(&b',')
}

impl RunMatcher {
    fn new(numbering: &Numbering, numbers: Numbers) -> Self {
        let front = numbering.front();
        let before_run = front.len() - RUN_BYTES;
        Self {
            members: members_of(numbering, numbers),
            run_text: memmem::Finder::new(&front[before_run..]).into_owned(),
            beginning: memmem::Finder::new(&front[..before_run.min(FRAGMENT_BYTES)]).into_owned(),
            numbering: numbering.clone(),
        }
    }

    /// Where the event whose marker is `at` begins, if its own bytes are there as they were sent.
    #[inline]
    fn verbatim_start(&self, line: &[u8], at: usize) -> Option<usize> {
        let front = self.numbering.front();
        let front = &front[..front.len() - RUN_BYTES];
        let start = at.checked_sub(front.len())?;
        (&line[start..at] == front && line[at + Marker::BYTES..].starts_with(b"\"}")).then_some(start)
    }

    /// Whether an event has all members of the template; a receiver may have added some.
    fn has_members(&self, members: &Map<String, Value>) -> bool {
        self.members.iter().all(|(name, value)| members.get(name).is_some_and(|other| is_same(value, other)))
    }
}

/// What every event of a run has, but for its number.
fn members_of(numbering: &Numbering, numbers: Numbers) -> Map<String, Value> {
    let whole = [numbering.front(), b"\"}"].concat();
    let Some(Value::Object(mut members)) = numbers.read(&whole) else {
        unreachable!("a numbered template is a JSON object")
    };
    members.remove(EVENT_KEY);
    members
}

/// The marker that begins soon behind the key, and where.
#[inline]
fn marker_after(line: &[u8], after_key: usize) -> Option<(usize, Marker)> {
    let positions = after_key + 1..after_key + MAX_NUMBER_DISTANCE;
    positions.into_iter().find_map(|at| Some((at, Marker::parse(line.get(at..)?)?)))
}

/// Whether the word before `rest` is the name of a member: its quotes end, and a colon follows.
fn is_name(mut rest: &[u8]) -> bool {
    let mut is_quoted = false;
    while let Some(length) = QUOTES.iter().find(|quote| rest.starts_with(quote)).map(|quote| quote.len()) {
        rest = &rest[length..];
        is_quoted = true;
    }
    is_quoted && COLONS.iter().any(|colon| rest.trim_ascii_start().starts_with(colon))
}

#[cfg(test)]
mod tests;
