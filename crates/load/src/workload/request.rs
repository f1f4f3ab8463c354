//! The request of a workload.

use record::{Text, TextRequest};

use super::{
    HttpWorkload,
    headers::basic_auth_field,
    text::{Mistakes, ParsedUrl, is_token, read_body},
};

impl HttpWorkload {
    /// The request that every user sends.
    pub(super) fn request(&self, parsed: Option<&ParsedUrl>, mistakes: &mut Mistakes) -> TextRequest {
        let url = parsed.map(|parsed| &parsed.url);
        let body = match &self.raw_body {
            Some(bytes) => Text::literal(bytes.clone()),
            None => mistakes.read("body", self.body.as_deref().map_or(Ok(Text::default()), read_body)),
        };
        let method = self.method().to_owned();
        if !is_token(&method) {
            mistakes.add("method", format!("'{method}' is not a method such as GET"));
        } else if method == "CONNECT" {
            mistakes.add(
                "method",
                "CONNECT opens a tunnel and has no answer to measure; give a method such as GET",
            );
        }
        let fields = self.header_fields(mistakes).into_iter();
        let mut headers: Vec<_> = fields.map(|field| (field.name, field.value)).collect();
        repeated(&headers).into_iter().for_each(|message| mistakes.add("headers", message));
        let has = |name: &str| headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
        let mut all_headers = Vec::new();
        if let Some(url) = url
            && !has("host")
        {
            let host = parsed.map_or("", |parsed| &parsed.host);
            let host = url.port().map_or(host.to_owned(), |port| format!("{host}:{port}"));
            all_headers.push(("Host".to_owned(), Text::literal(host)));
        }
        if !has("user-agent") {
            let agent = concat!("proofload/", env!("CARGO_PKG_VERSION"));
            all_headers.push(("User-Agent".to_owned(), Text::literal(agent)));
        }
        if let Some((name, value)) = url.and_then(|url| mistakes.read("url", basic_auth_field(url))) {
            if has("authorization") {
                let message = "its user info is sent as Basic authentication, and there is also an Authorization header: leave \
                               out one of them";
                mistakes.add("url", message);
            }
            all_headers.push((name, Text::literal(value)));
        }
        if self.compressed && !has("accept-encoding") {
            all_headers.push(("Accept-Encoding".to_owned(), Text::literal("gzip")));
        }
        all_headers.append(&mut headers);
        // The bodies of steps are checked with the steps.
        if self.steps.is_empty() {
            let body_bytes = (self.events.is_none() && !body.is_template()).then(|| body.bytes().len());
            let wrong = all_headers
                .iter()
                .filter_map(|(name, value)| wrong_framing(name, &value.shown(), body_bytes));
            wrong.for_each(|message| mistakes.add("headers", message));
        }
        let target = parsed.map_or_else(|| Text::literal("/"), |parsed| parsed.target.clone());
        TextRequest { method, target, headers: all_headers, body }
    }
}

/// Fields that may occur only once in a request (RFC 9110, 5.3; a server answers 400 to two Host fields).
const ONLY_ONCE: [&str; 4] = ["Host", "User-Agent", "Authorization", "Content-Type"];

/// The reason why these fields are refused, if one that may occur only once is repeated.
pub(super) fn repeated(headers: &[(String, Text)]) -> Option<String> {
    let count = |name: &str| headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).count();
    let name = ONLY_ONCE.into_iter().find(|name| count(name) > 1)?;
    Some(format!("{} headers {name} are given, but a request has one: leave out the others", count(name)))
}

/// The reason why a field must not be sent with a body: it states a length that differs from the body's, so the target would
/// wait for more. The length of a body with templates is not known in advance.
pub(super) fn wrong_framing(name: &str, value: &str, body_bytes: Option<usize>) -> Option<String> {
    let is = |known: &str| name.eq_ignore_ascii_case(known);
    let is_wrong = is("transfer-encoding")
        || (is("content-length") && body_bytes.is_none_or(|bytes| value.trim() != bytes.to_string()));
    is_wrong.then(|| format!("{name}: the body is sent whole, with its own length: leave the field out"))
}
