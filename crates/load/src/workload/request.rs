//! The request of a workload.

use record::Request;
use script::is_template;
use url::Url;

use super::{
    HttpWorkload,
    headers::basic_auth_field,
    text::{Mistakes, ParsedUrl, is_token, read_body},
};

impl HttpWorkload {
    /// The request that every user sends.
    pub(super) fn request(&self, parsed: Option<&ParsedUrl>, mistakes: &mut Mistakes) -> Request {
        let url = parsed.map(|parsed| &parsed.url);
        let body = match &self.raw_body {
            Some(bytes) => bytes.clone(),
            None => mistakes.read("body", self.body.as_deref().map_or(Ok(Vec::new()), read_body)),
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
        let has = |name: &str| headers.iter().any(|(n, _): &(String, String)| n.eq_ignore_ascii_case(name));
        let mut all_headers = Vec::new();
        if let Some(url) = url
            && !has("host")
        {
            let host = url.host_str().unwrap_or_default();
            all_headers.push((
                "Host".to_owned(),
                url.port().map_or(host.to_owned(), |port| format!("{host}:{port}")),
            ));
        }
        if !has("user-agent") {
            all_headers
                .push(("User-Agent".to_owned(), concat!("proofload/", env!("CARGO_PKG_VERSION")).to_owned()));
        }
        if let Some(field) = url.and_then(|url| mistakes.read("url", basic_auth_field(url))) {
            if has("authorization") {
                let message = "its user info is sent as Basic authentication, and there is also an Authorization header: leave \
                               out one of them";
                mistakes.add("url", message);
            }
            all_headers.push(field);
        }
        if self.compressed && !has("accept-encoding") {
            all_headers.push(("Accept-Encoding".to_owned(), "gzip".to_owned()));
        }
        all_headers.append(&mut headers);
        // Those of steps are checked with the bodies of steps.
        if self.steps.is_empty() {
            let is_made_later = self.events.is_some() || self.body.as_deref().is_some_and(is_template);
            let wrong = all_headers
                .iter()
                .filter_map(|(name, value)| wrong_framing(name, value, &body, is_made_later));
            wrong.for_each(|message| mistakes.add("headers", message));
        }
        let target = parsed.map_or("/".to_owned(), |parsed| parsed.shielded.restore(&target(&parsed.url)));
        Request { method, target, headers: all_headers, body }
    }
}

/// Why a field must not be sent with a body: it says another length than is sent, and the target would wait for the rest. Of a
/// body of templates, the length is not known before.
pub(super) fn wrong_framing(name: &str, value: &str, body: &[u8], is_template: bool) -> Option<String> {
    let is = |known: &str| name.eq_ignore_ascii_case(known);
    let is_wrong = is("transfer-encoding")
        || (is("content-length") && (is_template || value.trim() != body.len().to_string()));
    is_wrong.then(|| format!("{name}: the body is sent whole, with its own length: leave the field out"))
}

/// Path and query of a URL.
pub(super) fn target(url: &Url) -> String {
    match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    }
}
