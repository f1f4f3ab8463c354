//! Parts of a request, as bytes.

use crate::template::{MASK, push_hex};

/// Replaces each occurrence of `what` in a text by a mask.
pub(super) fn replace(text: &[u8], what: &[u8]) -> Vec<u8> {
    let mut replaced = Vec::with_capacity(text.len());
    let mut rest = text;
    while !what.is_empty()
        && let Some(at) = memchr::memmem::find(rest, what)
    {
        replaced.extend_from_slice(&rest[..at]);
        replaced.extend_from_slice(MASK);
        rest = &rest[at + what.len()..];
    }
    replaced.extend_from_slice(rest);
    replaced
}

/// Appends a `traceparent` with the sampled flag (W3C Trace Context, version 00). The standard forbids IDs of 0.
pub(super) fn push_traceparent(trace: u128, span: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"00-");
    push_hex(trace.max(1), 32, out);
    out.push(b'-');
    push_hex(span.max(1).into(), 16, out);
    out.extend_from_slice(b"-01");
}

/// Whether a field, with `: ` after its name, describes the body.
pub(super) fn is_of_body(name: &[u8]) -> bool {
    let fields: [&[u8]; 3] = [b"content-type: ", b"content-length: ", b"content-encoding: "];
    fields.iter().any(|field| name.eq_ignore_ascii_case(field))
}
