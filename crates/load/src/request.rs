//! The bytes of a request, built once.

use record::{HttpPlan, Request};

/// A request as it goes on the wire, repeated as often as it may be pipelined, so that several can
/// leave in one system call.
#[derive(Debug, Clone)]
pub struct RequestBytes {
    bytes: Box<[u8]>,
    length: usize,
}

impl RequestBytes {
    /// Builds the plan's request.
    pub fn new(plan: &HttpPlan) -> Self {
        let one = encode(&plan.request, plan.keepalive);
        let copies = plan.pipeline.max(1) as usize;
        Self { length: one.len(), bytes: one.repeat(copies).into_boxed_slice() }
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
}
