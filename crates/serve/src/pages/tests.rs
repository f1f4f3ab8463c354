use std::io::Read as _;

use http1::{Limits, ResponseHead, ResponseReader, ResponseSink};
use proptest::prelude::*;

use super::*;

const SHAPE: Shape = Shape { http10: false, close: false };

/// An answer as parsed by the client.
#[derive(Debug, Default)]
struct Seen {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl ResponseSink for Seen {
    fn head(&mut self, head: &ResponseHead<'_>) {
        self.status = head.status;
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        self.headers = head.headers.iter().map(|h| (h.name.to_owned(), text(h.value))).collect();
    }

    fn body(&mut self, bytes: &[u8]) {
        self.body.extend_from_slice(bytes);
    }
}

impl Seen {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

fn asked(method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Asked {
    let headers = headers.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    let (method, target) = (method.to_owned(), target.to_owned());
    Asked {
        method,
        target,
        headers,
        body: body.to_vec(),
        body_bytes: body.len() as u64,
        limit: MAX_BODY_BYTES,
    }
}

fn seen(pages: &Pages, asked: &Asked, now_ns: u64) -> Option<Seen> {
    let page = pages.answer(asked, SHAPE, now_ns)?;
    let (pieces, count) = page.wire.pieces(0, page.wire.total_bytes());
    let bytes: Vec<u8> = pieces[..count].iter().flat_map(|piece| piece.to_vec()).collect();
    let mut seen = Seen::default();
    let fed = ResponseReader::new(Limits::default()).feed(&bytes, false, &mut seen).unwrap();
    assert!(fed.done.is_some() && fed.used == bytes.len());
    assert_eq!(seen.status, page.status);
    Some(seen)
}

fn get(target: &str) -> Option<Seen> {
    seen(&Pages::new(100), &asked("GET", target, &[], b""), 7)
}

#[test]
fn unknown_paths_get_the_configured_answer() {
    for target in
        ["/", "/index.html", "/items", "/items/", "/items/1/2", "/cookie", "*", "/loginx", "/private"]
    {
        assert!(get(target).is_none(), "{target}");
    }
}

#[test]
fn echo_tells_what_came() {
    let headers = [("Host", "a"), ("X-Two", "1"), ("x-two", "2")];
    let echo = |body: &[u8]| seen(&Pages::new(1), &asked("PUT", "/echo?a=b", &headers, body), 7).unwrap();
    let expected = json!({
        "method": "PUT", "target": "/echo?a=b", "path": "/echo", "query": "a=b",
        "headers": headers, "body_bytes": 3, "body": "é\n",
    });
    assert_eq!(echo("é\n".as_bytes()).json(), expected);
    let binary = echo(&[255, 0]).json();
    assert_eq!((&binary["body_base64"], binary.get("body")), (&json!("/wA="), None));
    let mut large = asked("PUT", "/echo", &[], b"abc");
    large.body_bytes = 4;
    assert_eq!(seen(&Pages::new(1), &large, 7).unwrap().status, 413);
}

#[test]
fn cookies_are_set_and_come_back() {
    let set = get("/cookies/set?a=1&b=x%2By").unwrap();
    let lines: Vec<_> = set.headers.iter().filter(|(name, _)| name == "Set-Cookie").map(|(_, v)| v).collect();
    assert_eq!(lines, ["a=1; Path=/", "b=x+y; Path=/"]);
    let came = asked("GET", "/cookies", &[("Cookie", "a=1; b=x+y"), ("cookie", "c=")], b"");
    assert_eq!(
        seen(&Pages::new(1), &came, 7).unwrap().json(),
        json!({"cookies": {"a": "1", "b": "x+y", "c": ""}})
    );
    assert_eq!(get("/cookies/set?a=1%0D%0AX:y").unwrap().status, 400);
}

#[test]
fn tokens_open_private_pages_until_they_expire() {
    let pages = Pages::new(100);
    let login = |user: &str| {
        let body = format!("user={user}&password=p");
        seen(&pages, &asked("POST", "/login", &[], body.as_bytes()), 1_000).unwrap().json()
    };
    let (ann, bob) = (login("ann"), login("bob"));
    assert_eq!((&ann["login"], &bob["login"], &ann["user"]), (&json!(1), &json!(2), &json!("ann")));
    let private = |authorization: Option<&str>, now_ns: u64| {
        let headers: Vec<_> = authorization.iter().map(|value| ("Authorization", *value)).collect();
        seen(&pages, &asked("GET", "/private/a", &headers, b""), now_ns).unwrap()
    };
    let bearer = format!("Bearer {}", bob["token"].as_str().unwrap());
    let open = private(Some(&bearer), 1_099);
    assert_eq!((open.status, &open.json()["user"], &open.json()["login"]), (200, &json!("bob"), &json!(2)));
    for (authorization, now_ns, error) in [
        (Some(bearer.as_str()), 1_100, "token expired"),
        (Some("Bearer 1.2.3.4"), 1_000, "token invalid"),
        (Some("Basic YTpi"), 1_000, "token missing"),
        (None, 1_000, "token missing"),
    ] {
        let refused = private(authorization, now_ns);
        assert_eq!((refused.status, refused.json()), (401, json!({"error": error})));
        assert!(refused.header("WWW-Authenticate").unwrap().starts_with("Bearer realm"));
    }
    for (method, body, status) in [
        ("GET", "", 405),
        ("POST", "", 400),
        ("POST", "user=a&password=wrong", 401),
        ("POST", "{\"user\":\"a\"}", 200),
    ] {
        let answer = seen(&pages, &asked(method, "/login", &[], body.as_bytes()), 7).unwrap();
        assert_eq!(answer.status, status, "{method} {body}");
    }
}

#[test]
fn items_statuses_and_redirects_answer_by_their_path() {
    assert_eq!(
        get("/items/a%20b?x=1").unwrap().json(),
        json!({"id": "a b", "method": "GET", "query": "x=1"})
    );
    for (path, status) in [("204", 204), ("404", 404), ("599", 599), ("199", 400), ("x", 400), ("-1", 400)] {
        assert_eq!(get(&format!("/status/{path}")).unwrap().status, status, "{path}");
    }
    assert!(get("/status/204").unwrap().body.is_empty());
    let redirect = get("/redirect/2").unwrap();
    assert_eq!((redirect.status, redirect.header("Location")), (302, Some("/redirect/1")));
    assert_eq!(get("/redirect/0").unwrap().status, 200);
    assert_eq!(get("/redirect/1001").unwrap().status, 400);
}

#[test]
fn gzip_holds_the_same_answer() {
    let packed =
        seen(&Pages::new(1), &asked("GET", "/items/7", &[("Accept-Encoding", "br, gzip")], b""), 7).unwrap();
    assert_eq!(packed.header("Content-Encoding"), Some("gzip"));
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(&packed.body[..]).read_to_end(&mut text).unwrap();
    assert_eq!(text, get("/items/7").unwrap().body);
}

proptest! {
    #[test]
    fn whatever_is_asked_is_answered_in_one_sound_message(
        start in prop::sample::select(vec!["/echo", "/cookies", "/cookies/set?", "/login", "/private/", "/items/", "/status/", "/redirect/"]),
        rest in "[!-~]{0,30}", header in ".{0,30}", body in prop::collection::vec(any::<u8>(), 0..99), method in "[A-Z]{1,7}"
    ) {
        let headers = [("Cookie", header.as_str()), ("Authorization", &header), ("Accept-Encoding", &header)];
        let asked = asked(&method, &format!("{start}{rest}"), &headers, &body);
        if let Some(seen) = seen(&Pages::new(9), &asked, 7) {
            prop_assert!(seen.headers.len() < 40);
        }
    }
}
