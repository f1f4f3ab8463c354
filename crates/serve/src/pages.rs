//! Pages at known paths, whose answers depend on the request.

mod fields;

use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};
use serde_json::{Map, Value, json};

use crate::{
    answer::{self, Shape},
    asked::{Asked, put_body},
    tokens::{TokenError, Tokens},
    wire::Wire,
};

/// Maximum number of body bytes that a page reads.
const MAX_BODY_BYTES: usize = 1 << 20;
/// Maximum number of redirects in a row.
const MAX_REDIRECTS: u32 = 1_000;
/// The only password with which a login fails.
const WRONG_PASSWORD: &str = "wrong";

/// The pages of a target and the tokens of its logins.
#[derive(Debug)]
pub(crate) struct Pages {
    tokens: Tokens,
}

/// A page's answer, ready to be sent.
#[derive(Debug)]
pub(crate) struct Page {
    pub status: u16,
    pub wire: Wire,
}

/// The content from which a page's answer is built.
#[derive(Debug)]
struct Content {
    status: u16,
    /// Header lines, each with its line end.
    headers: String,
    json: Value,
}

impl Pages {
    /// Creates the pages. Login tokens expire after `token_lifetime_ns`.
    pub(crate) fn new(token_lifetime_ns: u64) -> Self {
        Self { tokens: Tokens::new(token_lifetime_ns) }
    }

    /// Number of body bytes that the requested page needs.
    pub(crate) fn body_limit(asked: &Asked) -> usize {
        match asked.path_and_query().0 {
            "/echo" | "/login" => MAX_BODY_BYTES,
            _ => 0,
        }
    }

    /// The page for a request; `None` if the request gets the configured answer.
    pub(crate) fn answer(&self, asked: &Asked, shape: Shape, now_ns: u64) -> Option<Page> {
        let content = self.content(asked, now_ns)?;
        let mut body = content.json.to_string().into_bytes();
        body.push(b'\n');
        let mut headers = content.headers + "Content-Type: application/json\r\nVary: Accept-Encoding\r\n";
        if asked.values("accept-encoding").any(fields::accepts_gzip) {
            headers += "Content-Encoding: gzip\r\n";
            body = gzip(&body);
        }
        Some(Page { status: content.status, wire: answer::page(content.status, &headers, body, shape) })
    }

    fn content(&self, asked: &Asked, now_ns: u64) -> Option<Content> {
        let (path, query) = asked.path_and_query();
        let known = match path {
            "/echo" => echo(asked, path, query),
            "/cookies" => cookies(asked),
            "/cookies/set" => set_cookies(query),
            "/login" => self.log_in(asked, now_ns),
            _ => match path.strip_prefix('/')?.split_once('/')? {
                ("private", _) => self.private(asked, path, now_ns),
                ("items", id) if !id.is_empty() && !id.contains('/') => item(asked, id, query),
                ("status", status) => chosen_status(status),
                ("redirect", left) => redirect(left),
                _ => return None,
            },
        };
        Some(known)
    }

    /// Logs in any user whose password is not `WRONG_PASSWORD`. The credentials are JSON or a form.
    fn log_in(&self, asked: &Asked, now_ns: u64) -> Content {
        if asked.method != "POST" {
            return Content { headers: "Allow: POST\r\n".to_owned(), ..refused(405, "log in with a POST") };
        }
        if asked.is_cut() {
            return too_large();
        }
        let Some((user, password)) = fields::credentials(&asked.body) else {
            return refused(
                400,
                "the body has no user: send {\"user\": \"NAME\", \"password\": \"…\"} or a form",
            );
        };
        if password == WRONG_PASSWORD {
            return refused(401, "wrong password");
        }
        let (login, token) = self.tokens.log_in(&user, now_ns);
        let expires_in_ms = login.expires_ns.saturating_sub(now_ns) / 1_000_000;
        let headers = "Cache-Control: no-store\r\n".to_owned();
        let json =
            json!({"token": token, "user": user, "login": login.number, "expires_in_ms": expires_in_ms});
        Content { headers, ..said(json) }
    }

    /// A page that requires a valid login token.
    fn private(&self, asked: &Asked, path: &str, now_ns: u64) -> Content {
        let token = asked.values("authorization").find_map(fields::bearer);
        let (why, error) = match token.map(|token| self.tokens.check(token, now_ns)) {
            Some(Ok(login)) => {
                let expires_in_ms = (login.expires_ns - now_ns) / 1_000_000;
                return said(json!({
                    "path": path, "user": login.user, "login": login.number, "expires_in_ms": expires_in_ms,
                }));
            }
            Some(Err(TokenError::Expired)) => ("expired", ", error=\"invalid_token\""),
            Some(Err(TokenError::Invalid)) => ("invalid", ", error=\"invalid_token\""),
            None => ("missing", ""),
        };
        let headers = format!("WWW-Authenticate: Bearer realm=\"proofload\"{error}\r\n");
        Content { headers, ..refused(401, &format!("token {why}")) }
    }
}

fn echo(asked: &Asked, path: &str, query: &str) -> Content {
    if asked.is_cut() {
        return too_large();
    }
    let mut map = Map::new();
    map.insert("method".to_owned(), asked.method.as_str().into());
    map.insert("target".to_owned(), asked.target.as_str().into());
    map.insert("path".to_owned(), path.into());
    map.insert("query".to_owned(), query.into());
    map.insert("headers".to_owned(), json!(asked.headers));
    map.insert("body_bytes".to_owned(), asked.body_bytes.into());
    put_body(&mut map, &asked.body);
    said(Value::Object(map))
}

fn cookies(asked: &Asked) -> Content {
    let mut map = Map::new();
    for (name, value) in asked.values("cookie").flat_map(fields::cookies) {
        map.insert(name.to_owned(), value.into());
    }
    said(json!({"cookies": map}))
}

fn set_cookies(query: &str) -> Content {
    let (mut headers, mut map) = (String::new(), Map::new());
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        if !fields::is_cookie(&name, &value) {
            return refused(400, "a cookie's name or value has characters that a cookie cannot have");
        }
        headers += &format!("Set-Cookie: {name}={value}; Path=/\r\n");
        map.insert(name.into_owned(), value.into());
    }
    Content { headers, ..said(json!({"set": map})) }
}

fn item(asked: &Asked, id: &str, query: &str) -> Content {
    said(json!({"id": fields::percent_decoded(id), "method": asked.method, "query": query}))
}

fn chosen_status(status: &str) -> Content {
    match status.parse() {
        Ok(status @ 200..=599) => Content { status, ..said(json!({"status": status})) },
        _ => refused(400, "not the status of a final answer: ask for 200 to 599"),
    }
}

fn redirect(left: &str) -> Content {
    match left.parse::<u32>() {
        Ok(0) => said(json!({"redirects_left": 0})),
        Ok(left @ 1..=MAX_REDIRECTS) => Content {
            status: 302,
            headers: format!("Location: /redirect/{}\r\n", left - 1),
            json: json!({"redirects_left": left}),
        },
        _ => refused(400, "not a number of redirects: ask for 0 to 1000"),
    }
}

fn said(json: Value) -> Content {
    Content { status: 200, headers: String::new(), json }
}

fn refused(status: u16, error: &str) -> Content {
    Content { status, headers: String::new(), json: json!({"error": error}) }
}

fn too_large() -> Content {
    refused(413, "the body is larger than 1 MiB")
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
    written.expect("a vector takes all bytes")
}

#[cfg(test)]
mod tests;
