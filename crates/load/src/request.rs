//! The bytes of a request, built once; of events, only their numbers are written anew.

use record::{EventPlan, HttpPlan, Request, receipt::Numbering};

/// Bytes of an event's number, from the client to the fingerprint.
const NUMBER_BYTES: usize = 24;
/// The part of a number that an idempotency key has, too: client and number.
const KEY_BYTES: usize = 15;

/// A request as it goes on the wire, repeated as often as it may be pipelined, so that several can
/// leave in one system call.
#[derive(Debug, Clone)]
pub struct RequestBytes {
    bytes: Box<[u8]>,
    length: usize,
    numbers: Option<Numbers>,
}

/// Where numbers stand in the request.
#[derive(Debug, Clone)]
struct Numbers {
    numbering: Numbering,
    /// Of the first event.
    first: usize,
    /// From one event to the next.
    step: usize,
    /// How many events there are.
    events: u32,
    /// In the idempotency key.
    key: Option<usize>,
    /// What was written last.
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

    /// Numbers the request's events, `number` the first of them.
    #[inline]
    pub fn number(&mut self, client: u32, number: u32) {
        let Some(numbers) = &mut self.numbers else { return };
        if numbers.written == Some((client, number)) {
            return;
        }
        numbers.written = Some((client, number));
        for event in 0..numbers.events {
            let at = numbers.first + event as usize * numbers.step;
            let place = &mut self.bytes[at..at + NUMBER_BYTES];
            numbers.numbering.number(place, client, number.wrapping_add(event));
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

    /// The rest of `count` requests of which `sent` bytes have gone.
    #[inline]
    pub fn rest(&self, count: usize, sent: usize) -> &[u8] {
        &self.bytes[sent..count * self.length]
    }

    /// How many requests are kept side by side.
    pub fn copies(&self) -> usize {
        self.bytes.len() / self.length
    }
}

fn encode_events(plan: &HttpPlan, events: &EventPlan) -> (Vec<u8>, Numbers) {
    let numbering = events.numbering();
    let (opens, parts, closes) = match events.framing {
        record::EventFraming::Json => ("", "", ""),
        record::EventFraming::Ndjson => ("", "\n", "\n"),
        record::EventFraming::Array => ("[", ",", "]"),
    };
    let mut body = opens.as_bytes().to_vec();
    for event in 0..events.per_request {
        if event > 0 {
            body.extend_from_slice(parts.as_bytes());
        }
        numbering.append(&mut body);
    }
    body.extend_from_slice(closes.as_bytes());
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
    let numbers = Numbers {
        first: bytes.len() - body_bytes + opens.len() + numbering.front().len(),
        step: numbering.event_bytes() + parts.len(),
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
        let mut own = request("POST", b"{}");
        own.headers.push(("content-length".to_owned(), "2".to_owned()));
        assert_eq!(text(&own, true).matches("ength").count(), 1);
    }

    fn numbered(events: EventPlan, client: u32, number: u32) -> String {
        let plan =
            HttpPlan { request: request("POST", b""), events: Some(events), ..crate::testing::closed(1) };
        let mut bytes = RequestBytes::new(&plan);
        bytes.number(7, 7);
        bytes.number(client, number);
        String::from_utf8(bytes.rest(1, 0).to_vec()).unwrap()
    }

    #[test]
    fn events_are_numbered_in_place_in_every_framing() {
        let events = |per_request, framing| EventPlan { per_request, framing, ..crate::testing::events() };
        for (events, opens, parts, closes) in [
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
            assert_eq!(body, format!("{opens}{}{closes}", expected.join(parts)));
        }
    }

    #[test]
    fn level_and_key_are_asked_for_in_the_head() {
        let events = EventPlan { ack: Some(AckLevel::Synced), idempotency: true, ..crate::testing::events() };
        let text = numbered(events, 0x12, 0x34);
        assert!(text.contains("\r\nProofload-Ack: synced\r\n"), "{text}");
        assert!(text.contains("\r\nIdempotency-Key: \"0000abcd-000012-00000034\"\r\n"), "{text}");
        assert!(text.contains("\r\nContent-Type: application/json\r\n"), "{text}");
    }
}
