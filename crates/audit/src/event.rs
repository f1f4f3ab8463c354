//! Finds the events in a line and checks that they are unchanged.
//!
//! If the receiver stores events verbatim, their bytes are compared. If it parses and rewrites them (reordered members,
//! an enclosing object, JSON inside JSON, nginx's `\x22`), the line is parsed and the members are compared.

mod reading;
mod same;

use memchr::memmem;
use record::receipt::{EVENT_KEY, Marker, Numbering};
use serde_json::{Map, Value};

use reading::{Numbers, read_events};
use same::is_same;

/// Maximum bytes between the key and its number: quotes, a colon and blanks, which may be escaped several times.
const MAX_NUMBER_DISTANCE: usize = 24;
/// Length of a run's identifier and the dash after it, in bytes.
const RUN_BYTES: usize = 9;
/// Number of bytes at an event's start that identify a fragment of it.
const FRAGMENT_BYTES: usize = 16;
/// Forms of quotes around a name, including escaped and percent-encoded ones, and of escape characters.
const QUOTES: [&[u8]; 7] = [b"\"", b"\\", b"x22", b"u0022", b"%22", b"%5C", b"&quot;"];
/// Forms of the colon between a member's name and its value, including percent-encoded ones.
const COLONS: [&[u8]; 3] = [b":", b"%3A", b"%3a"];

/// The reason reported for two joined lines.
const JOINED: &str = "two JSON texts with events share this line: the newline between them is missing";

/// An event in a line of the receiver's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FoundEvent {
    /// An unchanged event of a known run.
    Event {
        run: usize,
        marker: Marker,
    },
    Foreign,
    /// An event that is not as it was sent.
    Altered {
        /// The event's marker; `None` if it is unreadable.
        marker: Option<Marker>,
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

/// What identifies the events of a run in a line.
#[derive(Debug)]
struct RunMatcher {
    numbering: Numbering,
    members: Map<String, Value>,
    /// The run's identifier with a dash.
    run_text: memmem::Finder<'static>,
    /// The bytes that every event starts with.
    beginning: memmem::Finder<'static>,
}

impl Examiner {
    /// Creates an examiner for events of these runs.
    pub(crate) fn new<'a>(runs: impl Iterator<Item = &'a Numbering>) -> Self {
        let runs: Vec<&Numbering> = runs.collect();
        let values = runs.iter().flat_map(|run| members_of(run, Numbers::Values)).map(|(_, value)| value);
        let numbers = Numbers::needed_for(&values.collect());
        let runs = runs.into_iter().map(|run| RunMatcher::new(run, numbers)).collect();
        Self { key: memmem::Finder::new(EVENT_KEY.as_bytes()), runs, numbers }
    }

    /// Reports all events in a line, intact or altered.
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
                    report(FoundEvent::Altered { marker: None, why: "the event's number cannot be read" });
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
                    why: "its fingerprint does not match its number",
                });
            } else if let Some(start) = known.verbatim_start(line, at) {
                let between = &line[since.min(start)..start];
                if known.beginning.find(between).is_some() {
                    report(FoundEvent::Altered {
                        marker: None,
                        why: "an incomplete event precedes another one on the same line",
                    });
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
                    false => {
                        FoundEvent::Altered { marker: Some(marker), why: "it differs from the event sent" }
                    }
                });
            }
        }
        if !found_any && self.runs.iter().any(|known| known.run_text.find(line).is_some()) {
            let why =
                "a run ID has no readable key `proofload` before it (CSV has no keys and cannot be audited)";
            report(FoundEvent::Altered { marker: None, why });
        }
    }

    /// Whether a line without a line end is a fragment of an event.
    pub(crate) fn is_fragment(&self, line: &[u8]) -> bool {
        self.runs.iter().any(|known| known.beginning.find(line).is_some())
    }

    /// Whether a line ends in the middle of an event, possibly followed by NUL bytes. An event that lacks only its
    /// number counts as complete.
    pub(crate) fn ends_early(&self, line: &[u8]) -> bool {
        let end = line.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        let line = &line[..end];
        self.runs.iter().filter(|known| known.beginning.find(line).is_some()).any(|known| {
            let last = memmem::rfind(line, known.beginning.needle());
            last.is_some_and(|start| known.numbering.front().starts_with(&line[start..]))
        })
    }

    /// Classifies an event of an unknown run. If its fingerprint belongs to a known run, its run identifier was altered.
    fn classify_unknown_run(&self, line: &[u8], at: usize, marker: Marker) -> FoundEvent {
        let ours = self.runs.iter().any(|known| {
            let expected = known.numbering.marker(marker.id.client, marker.id.number);
            expected.fingerprint == marker.fingerprint && known.verbatim_start(line, at).is_some()
        });
        match ours {
            true => {
                FoundEvent::Altered { marker: Some(marker), why: "its run ID was changed after it was sent" }
            }
            false => FoundEvent::Foreign,
        }
    }
}

/// Whether two events with this text between them were originally on two lines. Within one JSON text, a comma separates
/// events.
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

    /// The start of the event whose marker is at `at`; `None` if its bytes have changed.
    #[inline]
    fn verbatim_start(&self, line: &[u8], at: usize) -> Option<usize> {
        let front = self.numbering.front();
        let front = &front[..front.len() - RUN_BYTES];
        let start = at.checked_sub(front.len())?;
        (&line[start..at] == front && line[at + Marker::BYTES..].starts_with(b"\"}")).then_some(start)
    }

    /// Whether an event has all members of the template. Additional members are allowed, because a receiver may add
    /// them.
    fn has_members(&self, members: &Map<String, Value>) -> bool {
        self.members.iter().all(|(name, value)| members.get(name).is_some_and(|other| is_same(value, other)))
    }
}

/// The members that all events of a run have in common: all but the number.
fn members_of(numbering: &Numbering, numbers: Numbers) -> Map<String, Value> {
    let whole = [numbering.front(), b"\"}"].concat();
    let Some(Value::Object(mut members)) = numbers.read(&whole) else {
        unreachable!("a numbered template is a JSON object")
    };
    members.remove(EVENT_KEY);
    members
}

/// The position and value of the marker that follows the key.
#[inline]
fn marker_after(line: &[u8], after_key: usize) -> Option<(usize, Marker)> {
    let positions = after_key + 1..after_key + MAX_NUMBER_DISTANCE;
    positions.into_iter().find_map(|at| Some((at, Marker::parse(line.get(at..)?)?)))
}

/// Whether the word before `rest` is a member's name: a quote and a colon must follow.
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
