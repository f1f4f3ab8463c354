//! Events for the unit tests of this crate.

use record::receipt::Numbering;

/// An event as it is sent.
pub fn event(numbering: &Numbering, client: u32, number: u32) -> String {
    let mut event = Vec::new();
    numbering.append(&mut event);
    let at = numbering.front().len();
    numbering.number(&mut event[at..at + 24], client, number);
    String::from_utf8(event).expect("a template is text")
}
