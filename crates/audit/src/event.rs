//! The events in a line, and whether they are as they were sent.
//!
//! A receiver that stores what it got has the event's own bytes in the line: those are compared. One that reads it and
//! writes it anew (members reordered, an object around it, JSON inside JSON, nginx's `\x22`) has the same members:
//! then the line is read, and those are compared.

use memchr::{memchr, memmem};
use record::receipt::{EVENT_KEY, Marker, Numbering};
use serde_json::{Map, Value};

/// How far behind the key its number may begin: quotes, a colon, blanks, all of it escaped more than once.
const FARTHEST: usize = 24;
/// Bytes of a run and the dash behind it.
const RUN_BYTES: usize = 9;
/// How often a line may be escaped as a whole.
const MOST_ESCAPED: usize = 3;
/// So many bytes of an event's beginning tell a fragment of it from other text.
const FRAGMENT_BYTES: usize = 16;

/// What stands in a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
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
pub struct Examiner {
    key: memmem::Finder<'static>,
    runs: Vec<Known>,
}

/// What an event of a run must be.
#[derive(Debug)]
struct Known {
    numbering: Numbering,
    members: Map<String, Value>,
    /// The run and a dash.
    run_text: memmem::Finder<'static>,
    /// How every event begins.
    beginning: memmem::Finder<'static>,
}

impl Examiner {
    /// For events of these runs.
    pub fn new<'a>(runs: impl Iterator<Item = &'a Numbering>) -> Self {
        let known = |numbering: &Numbering| {
            let front = numbering.front();
            let before_run = front.len() - RUN_BYTES;
            let whole = [front, b"\"}"].concat();
            let mut members = match serde_json::from_slice(&whole) {
                Ok(Value::Object(members)) => members,
                _ => unreachable!("a numbered template is a JSON object"),
            };
            members.remove(EVENT_KEY);
            Known {
                members,
                run_text: memmem::Finder::new(&front[before_run..]).into_owned(),
                beginning: memmem::Finder::new(&front[..before_run.min(FRAGMENT_BYTES)]).into_owned(),
                numbering: numbering.clone(),
            }
        };
        Self { key: memmem::Finder::new(EVENT_KEY.as_bytes()), runs: runs.map(known).collect() }
    }

    /// Gives everything in a line that is, or was, an event.
    pub fn examine(&self, line: &[u8], mut give: impl FnMut(Seen)) {
        let mut found_any = false;
        let mut from = 0;
        let mut previous_end = 0;
        let mut read_anew = None;
        while let Some(at) = self.key.find(&line[from..]) {
            let behind_key = from + at + EVENT_KEY.len();
            from = behind_key;
            let Some((at, marker)) = marker_behind(line, behind_key) else {
                if matches!(line.get(behind_key), Some(b'"' | b'\\' | b'%' | b'&')) {
                    found_any = true;
                    give(Seen::Altered { marker: None, why: "its number cannot be read" });
                }
                continue;
            };
            found_any = true;
            from = at + Marker::BYTES;
            match self.runs.iter().position(|known| known.numbering.run() == marker.id.run) {
                None => give(self.of_another_run(line, at, marker)),
                Some(run) => {
                    let known = &self.runs[run];
                    if known.numbering.marker(marker.id.client, marker.id.number) != marker {
                        give(Seen::Altered {
                            marker: Some(marker),
                            why: "its fingerprint is of another event",
                        });
                    } else if let Some(start) = known.verbatim_start(line, at) {
                        if known.beginning.find(&line[previous_end.min(start)..start]).is_some() {
                            give(Seen::Altered { marker: None, why: "a torn event stands before another" });
                        }
                        previous_end = from + 2;
                        give(Seen::Event { run, marker });
                    } else {
                        let events = read_anew.get_or_insert_with(|| read_events(line));
                        let same = |(other, members): &(Marker, Map<String, Value>)| {
                            *other == marker && known.has_members(members)
                        };
                        give(match events.iter().any(same) {
                            true => Seen::Event { run, marker },
                            false => Seen::Altered { marker: Some(marker), why: "it is not as it was sent" },
                        });
                    }
                }
            }
        }
        if !found_any && self.runs.iter().any(|known| known.run_text.find(line).is_some()) {
            give(Seen::Altered { marker: None, why: "the key of its number cannot be read" });
        }
    }

    /// Whether a line without its end was going to be an event.
    pub fn is_fragment(&self, line: &[u8]) -> bool {
        self.runs.iter().any(|known| known.beginning.find(line).is_some())
    }

    /// An event whose run nobody knows may be one of ours with a broken run: its fingerprint is still of ours.
    fn of_another_run(&self, line: &[u8], at: usize, marker: Marker) -> Seen {
        let ours = self.runs.iter().any(|known| {
            let own = known.numbering.marker(marker.id.client, marker.id.number);
            own.fingerprint == marker.fingerprint && known.verbatim_start(line, at).is_some()
        });
        match ours {
            true => Seen::Altered { marker: Some(marker), why: "its run is not the one it was sent in" },
            false => Seen::Foreign,
        }
    }
}

impl Known {
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

/// The marker that begins soon behind the key, and where.
#[inline]
fn marker_behind(line: &[u8], behind_key: usize) -> Option<(usize, Marker)> {
    let places = behind_key + 1..behind_key + FARTHEST;
    places.into_iter().find_map(|at| Some((at, Marker::parse(line.get(at..)?)?)))
}

/// Numbers may be written in another form.
fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| is_same(a, b)))
        }
        (a, b) => a == b,
    }
}

/// Every JSON object with a number in a line that holds JSON somewhere, escaped or not.
fn read_events(line: &[u8]) -> Vec<(Marker, Map<String, Value>)> {
    let mut events = Vec::new();
    let mut text = line.to_vec();
    for _ in 0..=MOST_ESCAPED {
        collect_from_text(&text, 0, &mut events);
        let plain = unescaped(&text);
        if !events.is_empty() || plain.len() == text.len() {
            break;
        }
        text = plain;
    }
    events
}

fn collect_from_text(text: &[u8], depth: usize, events: &mut Vec<(Marker, Map<String, Value>)>) {
    let mut from = 0;
    while let Some(at) = text[from..].iter().position(|byte| matches!(byte, b'{' | b'[')) {
        let start = from + at;
        let mut values = serde_json::Deserializer::from_slice(&text[start..]).into_iter::<Value>();
        match values.next() {
            Some(Ok(value)) => {
                from = start + values.byte_offset();
                collect(value, depth, events);
            }
            _ => from = start + 1,
        }
        if memmem::find(&text[from..], EVENT_KEY.as_bytes()).is_none() {
            return;
        }
    }
}

fn collect(value: Value, depth: usize, events: &mut Vec<(Marker, Map<String, Value>)>) {
    match value {
        Value::Array(values) => values.into_iter().for_each(|value| collect(value, depth, events)),
        Value::Object(members) => {
            let marker = members.get(EVENT_KEY).and_then(Value::as_str);
            let marker = marker.filter(|text| text.len() == Marker::BYTES);
            match marker.and_then(|text| Marker::parse(text.as_bytes())) {
                Some(marker) => events.push((marker, members)),
                None => members.into_iter().for_each(|(_, value)| collect(value, depth, events)),
            }
        }
        Value::String(text) if depth < MOST_ESCAPED && text.contains(EVENT_KEY) => {
            collect_from_text(text.as_bytes(), depth + 1, events);
        }
        _ => {}
    }
}

/// One layer of escapes less: `\"`, `\\` and nginx's `\x22`.
fn unescaped(text: &[u8]) -> Vec<u8> {
    if memchr(b'\\', text).is_none() {
        return text.to_vec();
    }
    let mut plain = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let (byte, taken) = match (byte, text.get(at + 1)) {
            (b'\\', Some(&escaped @ (b'"' | b'\\' | b'/'))) => (escaped, 2),
            (b'\\', Some(b'x')) => {
                let digits = text.get(at + 2..at + 4).and_then(|digits| std::str::from_utf8(digits).ok());
                match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
                    Some(byte) => (byte, 4),
                    None => (byte, 1),
                }
            }
            _ => (byte, 1),
        };
        plain.push(byte);
        at += taken;
    }
    plain
}

#[cfg(test)]
mod tests;
