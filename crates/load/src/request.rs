//! The bytes of a request. They are built once; for events, only the numbers are rewritten.

use record::{EventPlan, HttpPlan, Request, receipt::Numbering};

/// Length in bytes of an event's number, from the client to the fingerprint.
const NUMBER_BYTES: usize = 24;
/// Length in bytes of the client and the number, the part that is also in the idempotency key.
const KEY_BYTES: usize = 15;

/// A request's bytes, repeated as often as the request may be pipelined, so that one system call can send several.
#[derive(Debug, Clone)]
pub struct RequestBytes {
    bytes: Box<[u8]>,
    length: usize,
    numbers: Option<NumberPositions>,
}

/// The positions of event numbers in the request.
#[derive(Debug, Clone)]
struct NumberPositions {
    numbering: Numbering,
    /// Position of the first event's number.
    first: usize,
    /// Distance from one event's number to the next.
    step: usize,
    /// Number of events.
    events: u32,
    /// Position of the number in the idempotency key.
    key: Option<usize>,
    /// Client and number that were written last.
    written: Option<(u32, u32)>,
}

impl RequestBytes {
    /// Builds the plan's request.
    pub fn new(plan: &HttpPlan) -> Self {
        let (one, numbers) = match &plan.events {
            None => (encode(&plan.request, plan.keepalive), None),
            Some(events) => {
                let (one, numbers) = encode_events(plan, events);
                (one, Some(numbers))
            }
        };
        let copies = plan.pipeline.max(1) as usize;
        Self { length: one.len(), bytes: one.repeat(copies).into_boxed_slice(), numbers }
    }

    /// Writes the numbers of the request's events; `number` is that of the first event.
    #[inline]
    pub(crate) fn write_numbers(&mut self, client: u32, number: u32) {
        let Some(numbers) = &mut self.numbers else { return };
        if numbers.written == Some((client, number)) {
            return;
        }
        numbers.written = Some((client, number));
        for event in 0..numbers.events {
            let at = numbers.first + event as usize * numbers.step;
            let bytes = &mut self.bytes[at..at + NUMBER_BYTES];
            numbers.numbering.number(bytes, client, number.wrapping_add(event));
        }
        if let Some(key) = numbers.key {
            self.bytes.copy_within(numbers.first..numbers.first + KEY_BYTES, key);
        }
    }

    /// Length of one request in bytes.
    #[inline]
    pub fn length(&self) -> usize {
        self.length
    }

    /// The unsent bytes of `count` requests of which `sent` bytes were sent.
    #[inline]
    pub(crate) fn rest(&self, count: usize, sent: usize) -> &[u8] {
        &self.bytes[sent..count * self.length]
    }

    /// Number of requests that one system call can send.
    pub(crate) fn copies(&self) -> usize {
        self.bytes.len() / self.length
    }
}

fn encode_events(plan: &HttpPlan, events: &EventPlan) -> (Vec<u8>, NumberPositions) {
    let numbering = events.numbering();
    let (prefix, separator, suffix) = match events.framing {
        record::EventFraming::Json => ("", "", ""),
        record::EventFraming::Ndjson => ("", "\n", "\n"),
        record::EventFraming::Array => ("[", ",", "]"),
    };
    let mut body = prefix.as_bytes().to_vec();
    for event in 0..events.per_request {
        if event > 0 {
            body.extend_from_slice(separator.as_bytes());
        }
        numbering.append(&mut body);
    }
    body.extend_from_slice(suffix.as_bytes());
    let body_bytes = body.len();

    let mut request = Request { body, ..plan.request.clone() };
    let has = |name: &str| plan.request.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
    if !has("content-type") {
        let media_type = events.framing.content_type();
        request.headers.push(("Content-Type".to_owned(), media_type.to_owned()));
    }
    if let Some(level) = events.ack {
        request.headers.push(("Proofload-Ack".to_owned(), level.to_string()));
    }
    let key_front = format!("\"{}-", numbering.run());
    if events.idempotency {
        let key = format!("{key_front}{}\"", "0".repeat(KEY_BYTES));
        request.headers.push(("Idempotency-Key".to_owned(), key));
    }
    let bytes = encode(&request, plan.keepalive);
    let needle = format!("Idempotency-Key: {key_front}");
    let key = events.idempotency.then(|| {
        let found = bytes.windows(needle.len()).position(|window| window == needle.as_bytes());
        found.expect("the header was just written") + needle.len()
    });
    let numbers = NumberPositions {
        first: bytes.len() - body_bytes + prefix.len() + numbering.front().len(),
        step: numbering.event_bytes() + separator.len(),
        events: events.per_request,
        key,
        written: None,
        numbering,
    };
    (bytes, numbers)
}

fn encode(request: &Request, keepalive: bool) -> Vec<u8> {
    let has = |name: &str| request.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
    let mut head = format!("{} {} HTTP/1.1\r\n", request.method, request.target);
    for (name, value) in &request.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let carries_body =
        !request.body.is_empty() || matches!(request.method.as_str(), "POST" | "PUT" | "PATCH");
    if carries_body && !has("content-length") && !has("transfer-encoding") {
        head.push_str(&format!("Content-Length: {}\r\n", request.body.len()));
    }
    if !keepalive && !has("connection") {
        head.push_str("Connection: close\r\n");
    }
    head.push_str("\r\n");
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(&request.body);
    bytes
}

#[cfg(test)]
mod tests {
    use record::{AckLevel, EventFraming};

    use super::*;

    fn request(method: &str, body: &[u8]) -> Request {
        Request {
            method: method.to_owned(),
            target: "/a?b=c".to_owned(),
            headers: vec![("Host".to_owned(), "example:8080".to_owned())],
            body: body.to_vec(),
        }
    }

    #[test]
    fn framing_fields_are_added_where_needed() {
        let text = |r: &Request, keepalive| String::from_utf8(encode(r, keepalive)).unwrap();
        assert_eq!(text(&request("GET", b""), true), "GET /a?b=c HTTP/1.1\r\nHost: example:8080\r\n\r\n");
        let post = text(&request("POST", b"{}"), false);
        assert!(post.ends_with("Content-Length: 2\r\nConnection: close\r\n\r\n{}"), "{post}");
        let mut framed = request("POST", b"{}");
        framed.headers.push(("content-length".to_owned(), "2".to_owned()));
        assert_eq!(text(&framed, true).matches("ength").count(), 1);
    }

    fn numbered(events: EventPlan, client: u32, number: u32) -> String {
        let plan =
            HttpPlan { request: request("POST", b""), events: Some(events), ..crate::testing::closed(1) };
        let mut bytes = RequestBytes::new(&plan);
        bytes.write_numbers(7, 7);
        bytes.write_numbers(client, number);
        String::from_utf8(bytes.rest(1, 0).to_vec()).unwrap()
    }

    #[test]
    fn events_are_numbered_in_place_in_every_framing() {
        let events = |per_request, framing| EventPlan { per_request, framing, ..crate::testing::events() };
        for (events, prefix, separator, suffix) in [
            (events(1, EventFraming::Json), "", "", ""),
            (events(3, EventFraming::Ndjson), "", "\n", "\n"),
            (events(3, EventFraming::Array), "[", ",", "]"),
        ] {
            let numbering = events.numbering();
            let n = events.per_request;
            let text = numbered(events, 0x12, 0x34);
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
            let expected: Vec<String> = (0..n)
                .map(|i| format!("{{\"a\":1,\"proofload\":\"{}\"}}", numbering.marker(0x12, 0x34 + i)))
                .collect();
            assert_eq!(body, format!("{prefix}{}{suffix}", expected.join(separator)));
        }
    }

    #[test]
    fn the_head_has_the_level_and_the_key() {
        let events = EventPlan { ack: Some(AckLevel::Synced), idempotency: true, ..crate::testing::events() };
        let text = numbered(events, 0x12, 0x34);
        assert!(text.contains("\r\nProofload-Ack: synced\r\n"), "{text}");
        assert!(text.contains("\r\nIdempotency-Key: \"0000abcd-000012-00000034\"\r\n"), "{text}");
        assert!(text.contains("\r\nContent-Type: application/json\r\n"), "{text}");
    }
}
