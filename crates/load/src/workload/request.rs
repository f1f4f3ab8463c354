//! The request of a workload.

use record::Request;
use url::Url;

use super::{
    HttpWorkload,
    text::{Mistakes, is_token, read_body},
};

impl HttpWorkload {
    /// The request that every user sends.
    pub(super) fn request(&self, url: Option<&Url>, mistakes: &mut Mistakes) -> Request {
        let body = self.body.as_deref().map_or(Ok(Vec::new()), read_body);
        let body = mistakes.read("body", body);
        let method = match &self.method {
            Some(method) => method.clone(),
            None => if self.body.is_some() || self.events.is_some() { "POST" } else { "GET" }.to_owned(),
        };
        if !is_token(&method) {
            mistakes.add("method", format!("'{method}' is not a method such as GET"));
        } else if method == "CONNECT" {
            mistakes.add("method", "CONNECT asks for a tunnel, which is no request to be answered");
        }
        let mut headers = Vec::new();
        for header in &self.headers {
            match header.split_once(':') {
                Some((name, value)) if is_token(name) && !value.contains(['\r', '\n', '\0']) => {
                    headers.push((name.to_owned(), value.trim().to_owned()));
                }
                _ => {
                    let message = format!("'{header}' is not a field such as 'Accept: text/html'");
                    mistakes.add("headers", message);
                }
            }
        }
        let has = |name: &str| headers.iter().any(|(n, _): &(String, String)| n.eq_ignore_ascii_case(name));
        let mut own = Vec::new();
        if let Some(url) = url
            && !has("host")
        {
            let host = url.host_str().unwrap_or_default();
            own.push((
                "Host".to_owned(),
                url.port().map_or(host.to_owned(), |port| format!("{host}:{port}")),
            ));
        }
        if !has("user-agent") {
            own.push(("User-Agent".to_owned(), concat!("proofload/", env!("CARGO_PKG_VERSION")).to_owned()));
        }
        own.append(&mut headers);
        let target = url.map_or("/".to_owned(), |url| match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        });
        Request { method, target, headers: own, body }
    }
}
