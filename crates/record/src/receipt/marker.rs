//! The marker in every event: its number, and a checksum that shows whether the event is intact.
//!
//! An event is a JSON object on one line. Its last member is `"proofload":"RRRRRRRR-CCCCCC-NNNNNNNN-FFFFFFFF"`, all
//! hexadecimal: run, client, number of that client's event from 0, and the CRC-32C (Castagnoli, RFC 3720) of all
//! bytes of the event before it. The marker has a fixed width, so that a prepared request can be numbered in place.

use std::{fmt, str::FromStr};

use crc32c::{crc32c, crc32c_append};
use serde::{Deserialize, Serialize, de};

/// The name of the member that holds the marker.
pub const EVENT_KEY: &str = "proofload";

/// Length of a marker in bytes: run, client, number, fingerprint, and the dashes between them.
const MARKER_BYTES: usize = 33;
/// Length of the variable part of a marker in bytes: everything after the run and its dash.
const VARIABLE_BYTES: usize = 24;
/// Length in bytes of the beginning of the variable part that the fingerprint covers.
const COVERED_BYTES: usize = 16;
const HEX: &[u8; 16] = b"0123456789abcdef";

/// The random identifier of a run, which distinguishes the events of several runs in one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(pub u32);

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl FromStr for RunId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        hex(text.as_bytes(), 8)
            .map(Self)
            .ok_or_else(|| format!("'{text}' is not the identity of a run: eight hexadecimal digits"))
    }
}

impl Serialize for RunId {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RunId {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(de::Error::custom)
    }
}

schemars::by_hand!(RunId, |_| schemars::json_schema!({
    "description": "One run of a load: eight hexadecimal digits.",
    "type": "string",
    "pattern": "^[0-9a-f]{8}$"
}));

/// The identity of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId {
    /// The run.
    pub run: RunId,
    /// The client, below 2²⁴.
    pub client: u32,
    /// The number of the client's event, from 0.
    pub number: u32,
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:06x}-{:08x}", self.run, self.client, self.number)
    }
}

/// The marker of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marker {
    /// The identity of the event.
    pub id: EventId,
    /// CRC-32C of the sent event's bytes before the fingerprint.
    pub fingerprint: u32,
}

impl Marker {
    /// Length of a marker in bytes.
    pub const BYTES: usize = MARKER_BYTES;

    /// The marker at the front of `bytes`, if there is one.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..MARKER_BYTES)?;
        if bytes[8] != b'-' || bytes[15] != b'-' || bytes[24] != b'-' {
            return None;
        }
        Some(Self {
            id: EventId {
                run: RunId(hex(bytes, 8)?),
                client: hex(&bytes[9..], 6)?,
                number: hex(&bytes[16..], 8)?,
            },
            fingerprint: hex(&bytes[25..], 8)?,
        })
    }
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:08x}", self.id, self.fingerprint)
    }
}

/// Why a text cannot be the template of an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The text is not valid JSON.
    #[error("the event is not JSON: {0}")]
    NotJson(String),
    /// The JSON value is not an object.
    #[error("the event must be a JSON object such as {{\"board_id\":10}}")]
    NotObject,
    /// The text contains the name of the marker's member.
    #[error("the event contains the word \"{EVENT_KEY}\", which marks its number; use another word")]
    ContainsKey,
}

/// Makes the numbered events of a run: the template with a marker as its last member.
#[derive(Debug, Clone)]
pub struct Numbering {
    run: RunId,
    /// The bytes of an event up to and including the dash after the run.
    front: Vec<u8>,
    /// CRC-32C of `front`.
    front_crc: u32,
}

impl Numbering {
    /// Prepares events from a template, which must be a JSON object.
    ///
    /// # Errors
    /// When the template is no JSON object, or contains [`EVENT_KEY`] anywhere, with or without escapes.
    pub fn new(template: &str, run: RunId) -> Result<Self, TemplateError> {
        let value: serde_json::Value =
            serde_json::from_str(template).map_err(|error| TemplateError::NotJson(error.to_string()))?;
        let members = value.as_object().ok_or(TemplateError::NotObject)?;
        // Refuses the name in values too: a receiver that rewrites the event may not keep names and strings apart.
        if template.contains(EVENT_KEY) || value.to_string().contains(EVENT_KEY) {
            return Err(TemplateError::ContainsKey);
        }
        // JSON strings contain no raw line breaks, so all line breaks here are whitespace.
        let line = template.replace(['\n', '\r'], "");
        let open = line.trim().strip_suffix('}').ok_or(TemplateError::NotObject)?.trim_end();
        let comma = if members.is_empty() { "" } else { "," };
        let front = format!("{open}{comma}\"{EVENT_KEY}\":\"{run}-").into_bytes();
        Ok(Self { run, front_crc: crc32c(&front), front })
    }

    /// The run.
    pub fn run(&self) -> RunId {
        self.run
    }

    /// The bytes of an event up to and including the dash after the run. They are the same for all events of the run.
    pub fn front(&self) -> &[u8] {
        &self.front
    }

    /// Length of an event in bytes.
    pub fn event_bytes(&self) -> usize {
        self.front.len() + VARIABLE_BYTES + 2
    }

    /// Appends event 0 of client 0, which [`Self::number`] then numbers in place.
    pub fn append(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.front);
        let at = out.len();
        out.resize(at + VARIABLE_BYTES, b'0');
        self.number(&mut out[at..], 0, 0);
        out.extend_from_slice(b"\"}");
    }

    /// Numbers an event in place. `variable` holds the event's bytes after [`Self::front`].
    #[inline]
    pub fn number(&self, variable: &mut [u8], client: u32, number: u32) {
        let fingerprint = self.write_covered(variable, client, number);
        write_hex(&mut variable[COVERED_BYTES..VARIABLE_BYTES], fingerprint);
    }

    /// The marker that an event of this run must have.
    pub fn marker(&self, client: u32, number: u32) -> Marker {
        let fingerprint = self.write_covered(&mut [0; COVERED_BYTES], client, number);
        Marker { id: EventId { run: self.run, client, number }, fingerprint }
    }

    /// Writes the client and the number, and returns the fingerprint.
    #[inline]
    fn write_covered(&self, variable: &mut [u8], client: u32, number: u32) -> u32 {
        write_hex(&mut variable[..6], client);
        variable[6] = b'-';
        write_hex(&mut variable[7..15], number);
        variable[15] = b'-';
        crc32c_append(self.front_crc, &variable[..COVERED_BYTES])
    }
}

fn hex(bytes: &[u8], digits: usize) -> Option<u32> {
    bytes.get(..digits)?.iter().try_fold(0u32, |value, &byte| {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        Some(value << 4 | u32::from(digit))
    })
}

#[inline]
fn write_hex(out: &mut [u8], value: u32) {
    let digits = out.len();
    for (i, byte) in out.iter_mut().enumerate() {
        *byte = HEX[(value >> (4 * (digits - 1 - i)) & 15) as usize];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn event(numbering: &Numbering, client: u32, number: u32) -> Vec<u8> {
        let mut event = Vec::new();
        numbering.append(&mut event);
        let at = numbering.front().len();
        numbering.number(&mut event[at..at + VARIABLE_BYTES], client, number);
        event
    }

    #[test]
    fn an_event_is_its_template_and_a_marker() {
        let numbering = Numbering::new("{\"a\":1}\n", RunId(0xab)).unwrap();
        let event = String::from_utf8(event(&numbering, 0x12_3456, 7)).unwrap();
        let front = "{\"a\":1,\"proofload\":\"000000ab-123456-00000007-";
        assert_eq!(event, format!("{front}{:08x}\"}}", crc32c(front.as_bytes())));
        assert_eq!(event.len(), numbering.event_bytes());
        let empty = Numbering::new("{}", RunId(1)).unwrap();
        assert!(empty.front().starts_with(b"{\"proofload\":"));
    }

    #[test]
    fn invalid_templates_are_refused() {
        for bad in ["", "[1]", "5", "{\"a\":}", "{} {}"] {
            assert!(Numbering::new(bad, RunId(1)).is_err(), "{bad}");
        }
        for numbered in [
            r#"{"proofload":1}"#,
            r#"{"app":"proofload"}"#,
            r#"{"a":{"proofload":1}}"#,
            r#"{"path":"/proofload/x"}"#,
            r#"{"app":"\u0070roofload"}"#,
            r#"{"app":"proofload","app":""}"#,
        ] {
            assert_eq!(
                Numbering::new(numbered, RunId(1)).unwrap_err(),
                TemplateError::ContainsKey,
                "{numbered}"
            );
        }
        let pretty = Numbering::new("{\n  \"a\": 1\r\n}", RunId(1)).unwrap();
        assert!(!pretty.front().contains(&b'\n'));
    }

    proptest! {
        #[test]
        fn markers_survive_formatting_and_parsing(
            run: u32, client in 0u32..1 << 24, number: u32, name in "[a-z]{1,9}", text in "\\PC{0,30}",
        ) {
            let template = serde_json::json!({ name: text }).to_string();
            prop_assume!(!template.contains(EVENT_KEY));
            let numbering = Numbering::new(&template, RunId(run)).unwrap();
            let event = event(&numbering, client, number);
            serde_json::from_slice::<serde_json::Value>(&event).unwrap();
            let at = event.len() - 2 - MARKER_BYTES;
            let marker = Marker::parse(&event[at..]).unwrap();
            prop_assert_eq!(marker.id, EventId { run: RunId(run), client, number });
            prop_assert_eq!(marker.fingerprint, crc32c(&event[..event.len() - 10]));
            prop_assert_eq!(marker, numbering.marker(client, number));
            prop_assert_eq!(marker.to_string().into_bytes(), &event[at..at + MARKER_BYTES]);
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..50)) {
            if let Some(marker) = Marker::parse(&bytes) {
                prop_assert_eq!(marker.to_string().into_bytes(), &bytes[..MARKER_BYTES]);
            }
        }
    }
}
