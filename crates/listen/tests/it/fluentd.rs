//! Tests that answers and lines equal those of Fluentd's `in_http` and `out_file` byte for byte.

use listen::{Compat, RequestFields};
use testing::http::post_json;

use crate::testbed::Testbed;

const OK: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n";
const EVENT: &str = r#"{"board_id":10,"playtime":5,"minimum_play":"Y","timestamp":"2019-11-12T10:00:01Z","user_id":1,"interest":100}"#;

fn fluentd() -> Testbed {
    with(Compat::fluentd())
}

fn with(compat: Compat) -> Testbed {
    Testbed::with(|config| {
        config.compat = compat;
        config.rules = events::Rules::fluentd();
        config.limits.body_bytes = 10_000;
        config.limits.inflated_bytes = 20_000;
    })
}

fn bad(message: &str) -> String {
    let body = format!("400 Bad Request\n{message}\n");
    let head = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: Keep-Alive";
    format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

#[test]
fn a_success_is_88_bytes() {
    let testbed = fluentd();
    let mut client = testbed.connect();
    assert_eq!(OK.len(), 88);
    assert_eq!(client.post("/a/b", EVENT).whole(), OK);
    assert_eq!(client.post("/a//b/", EVENT).whole(), OK);
    let ndjson = "Content-Type: application/x-ndjson\r\n";
    assert_eq!(client.post_with("/a/b", ndjson, "{\"b\":1}\n{\"b\":2}\n").whole(), OK);
    // If one record of a body is invalid, none is stored.
    for (headers, body) in
        [("", "{\"a\":"), ("", "[1,{\"a\":1}]"), ("", "{}\n{}"), (ndjson, "{}\nx\n"), (ndjson, "{}\n\n{}")]
    {
        assert_eq!(client.post_with("/a/b", headers, body).status, 400, "{body}");
    }
    assert_eq!(client.post("/a/b", "").whole(), OK);
    assert_eq!(testbed.stored("a.b"), format!("{EVENT}\n{{\"b\":1}}\n{{\"b\":2}}\n"));
    assert_eq!(testbed.stored("a..b"), format!("{EVENT}\n"));
    let answer = client.post_with("/a/b", "Connection: close\r\n", "{}");
    assert_eq!(answer.whole(), "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n\r\n");
    assert!(client.is_closed());
}

#[test]
fn parameters_hold_records_too() {
    let testbed = fluentd();
    let mut client = testbed.connect();
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    assert_eq!(client.post_with("/a", form, "json=%7B%22n%22%3A1%7D").whole(), OK);
    let plain = "Content-Type: text/plain\r\n";
    assert_eq!(client.post_with("/a?json=%7B%22n%22%3A2%7D", plain, "").whole(), OK);
    let missing = bad("'json' or 'ndjson' parameter is required");
    assert_eq!(client.post_with("/a", plain, EVENT).whole(), missing);
    assert_eq!(client.post_with("/a", form, "x=1").whole(), missing);
    assert_eq!(testbed.stored("a"), "{\"n\":1}\n{\"n\":2}\n");
}

#[test]
fn what_fluentd_refuses_is_refused_in_its_words() {
    let testbed = fluentd();
    let closing = |status: &str, body: &str| {
        format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\nContent-Type: text/plain\r\n\r\n{body}",
            body.len()
        )
    };
    let too_large = closing("413 Request Entity Too Large", "Too large");
    for (request, expected) in [
        (&b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"[..], closing("200 OK", "")),
        (b"OPTIONS /a HTTP/1.1\r\nHost: x\r\n\r\n", closing("403 Forbidden", "")),
        (b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 10001\r\n\r\n", too_large.clone()),
        (b"POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 10001\r\n\r\n", too_large),
        (b"POST /a HTTP/1.1\r\nHost: x\r\nExpect: x\r\n\r\n", closing("417 Expectation Failed", "")),
        (&post_json("/a", "Content-Encoding: gzip\r\n", b"{}"), closing("400 Bad Request", "")),
    ] {
        let mut client = testbed.connect();
        client.send(request);
        assert_eq!(client.answer().whole(), expected, "{}", String::from_utf8_lossy(request));
        assert!(client.is_closed());
    }
    // Bytes that are not HTTP close the connection without an answer.
    let mut client = testbed.connect();
    client.send("nonsense\r\n\r\n");
    assert!(client.is_closed());
    // Fluentd treats every method except GET and OPTIONS like POST.
    let mut client = testbed.connect();
    client.send("DELETE /a HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n{\"d\":1}");
    assert_eq!(client.answer().whole(), OK);
    assert_eq!(testbed.stored("a"), "{\"d\":1}\n");
}

#[test]
fn successes_can_be_a_pixel_or_204() {
    let testbed = with(Compat::Fluentd {
        cors_allow_origins: Vec::new(),
        cors_allow_credentials: false,
        empty_img: false,
        use_204: true,
    });
    let no_content = "HTTP/1.1 204 No Content\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\nContent-Type: text/plain\r\n\r\n";
    assert_eq!(testbed.connect().post("/a", "{}").whole(), no_content);
    let testbed = with(Compat::Fluentd {
        cors_allow_origins: Vec::new(),
        cors_allow_credentials: false,
        empty_img: true,
        use_204: true,
    });
    let answer = testbed.connect().post("/a", "{}");
    let head = "HTTP/1.1 200 OK\r\nContent-Type: image/gif; charset=utf-8\r\nConnection: Keep-Alive\r\nContent-Length: 35\r\n\r\n";
    assert_eq!(answer.head, head);
    assert_eq!(&answer.body[..6], b"GIF89a");
}

#[test]
fn browsers_may_post_from_origins_that_are_allowed() {
    let testbed = with(Compat::Fluentd {
        cors_allow_origins: vec!["http://*.example".into()],
        cors_allow_credentials: true,
        empty_img: false,
        use_204: false,
    });
    let preflight = |origin: &str| {
        let mut client = testbed.connect();
        client.send(format!(
            "OPTIONS /a HTTP/1.1\r\nHost: x\r\nOrigin: {origin}\r\nAccess-Control-Request-Method: POST\r\n\
             Access-Control-Request-Headers: X-A\r\n\r\n"
        ));
        let answer = client.answer().whole();
        assert!(client.is_closed());
        answer
    };
    let allow = "Access-Control-Allow-Origin: http://a.example\r\nAccess-Control-Allow-Credentials: true\r\n";
    assert_eq!(
        preflight("http://a.example"),
        format!(
            "HTTP/1.1 200 OK\r\nAccess-Control-Allow-Methods: POST\r\nAccess-Control-Allow-Headers: X-A\r\n{allow}\
             Content-Length: 0\r\nContent-Type: text/plain\r\n\r\n"
        )
    );
    assert!(preflight("http://b.test").starts_with("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n"));
    let mut client = testbed.connect();
    assert_eq!(
        client.post_with("/a", "Origin: http://a.example\r\n", "{}").whole(),
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n{allow}Connection: Keep-Alive\r\nContent-Length: 0\r\n\r\n"
        )
    );
    let refused = client.post_with("/a", "Origin: http://b.test\r\n", "{}");
    assert_eq!(
        refused.whole(),
        "HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 0\r\nContent-Type: text/plain\r\n\r\n"
    );
    assert!(client.is_closed());
}

#[test]
fn records_get_what_the_request_says() {
    let testbed = Testbed::with(|config| {
        config.compat = Compat::fluentd();
        config.rules = events::Rules::fluentd();
        config.request_fields = RequestFields { http_headers: true, query_params: true, remote_addr: true };
    });
    let mut client = testbed.connect();
    client.send("POST /a?q-x=1 HTTP/1.1\r\nHost: h\"\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n{\"n\":1}");
    assert_eq!(client.answer().whole(), OK);
    let stored: serde_json::Value = serde_json::from_str(&testbed.stored("a")).unwrap();
    let expected = serde_json::json!({
        "n": 1, "HTTP_HOST": "h\"", "HTTP_CONTENT_TYPE": "application/json", "HTTP_CONTENT_LENGTH": "7",
        "QUERY_Q_X": "1", "REMOTE_ADDR": "127.0.0.1",
    });
    assert_eq!(stored, expected);
}

/// The expected lines are those that Fluentd 1.16.11 stored.
#[test]
fn what_comes_twice_and_what_a_client_has_forged_is_as_in_fluentd() {
    let testbed = Testbed::with(|config| {
        config.compat = Compat::fluentd();
        config.rules = events::Rules::fluentd();
        config.request_fields = RequestFields { http_headers: true, query_params: true, remote_addr: true };
    });
    let head = "\"HTTP_CONTENT_TYPE\":\"application/json\",\"HTTP_CONTENT_LENGTH\":\"@\"";
    let peer = "\"REMOTE_ADDR\":\"127.0.0.1\"";
    for (number, (query, headers, body, expected)) in [
        (
            "",
            "X-Forwarded-For: 1.1.1.1 ,3.3.3.3\r\nX-Forwarded-For: 2.2.2.2\r\n",
            "{\"a\":1}",
            "{\"a\":1,HEAD,\"HTTP_X_FORWARDED_FOR\":[\"1.1.1.1 ,3.3.3.3\",\"2.2.2.2\"],\"REMOTE_ADDR\":\"1.1.1.1 \"}",
        ),
        (
            "",
            "X-Forwarded-For: \r\n",
            "{\"a\":1}",
            "{\"a\":1,HEAD,\"HTTP_X_FORWARDED_FOR\":\"\",\"REMOTE_ADDR\":null}",
        ),
        (
            "",
            "X-Foo: a\r\nx-foo: b\r\nX_Foo: c\r\nX-Foo: d\r\n",
            "{\"a\":1}",
            "{\"a\":1,HEAD,\"HTTP_X_FOO\":\"c\",PEER}",
        ),
        ("?a=1&a=2&b=3&A=4&b=", "", "{\"a\":1}", "{\"a\":1,HEAD,\"QUERY_A\":\"4\",\"QUERY_B\":\"3\",PEER}"),
        (
            "",
            "Http-A: z\r\n",
            "{\"HTTP_X_FOO\":1,\"REMOTE_ADDR\":\"me\",\"HTTP_CONTENT_TYPE\":{\"a\":2}}",
            "{\"HTTP_X_FOO\":1,PEER,\"HTTP_CONTENT_TYPE\":\"application/json\",\"HTTP_CONTENT_LENGTH\":\"@\",\"HTTP_HTTP_A\":\"z\"}",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let mut client = testbed.connect();
        let length = body.len();
        client.send(format!(
            "POST /r{number}{query} HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        ));
        assert_eq!(client.answer().whole(), OK);
        let expected = expected.replace("HEAD", head).replace("PEER", peer).replace('@', &length.to_string());
        assert_eq!(testbed.stored(&format!("r{number}")), expected + "\n");
    }
}

#[test]
fn methods_that_fluentd_does_not_know_are_refused() {
    let testbed = fluentd();
    for (method, is_known) in [("PATCH", true), ("DELETE", true), ("FOO", false), ("post", false)] {
        let mut client = testbed.connect();
        client.send(format!(
            "{method} /{method} HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"
        ));
        if is_known {
            assert_eq!(client.answer().whole(), OK);
        } else {
            assert!(client.is_closed(), "{method}");
        }
        assert_eq!(testbed.stored(method), if is_known { "{}\n" } else { "" });
    }
}

#[test]
fn a_client_that_names_a_level_gets_a_receipt() {
    let testbed = fluentd();
    let answer = testbed.connect().post_with("/a", "Proofload-Ack: synced\r\n", "{}");
    let receipt = answer.header("proofload-receipt");
    assert_eq!((answer.status, receipt), (200, Some("segment=\"a.log\"; offset=0; bytes=3; level=synced")));
}

#[test]
fn too_many_records_are_too_large() {
    let testbed = Testbed::with(|config| {
        config.compat = Compat::fluentd();
        config.rules = events::Rules { max_records: 2, ..events::Rules::fluentd() };
    });
    let mut client = testbed.connect();
    assert_eq!(client.post("/a", "[{},{}]").whole(), OK);
    let too_large = "HTTP/1.1 413 Request Entity Too Large\r\nContent-Length: 9\r\nContent-Type: text/plain\r\n\r\nToo large";
    assert_eq!(client.post("/a", "[{},{},{}]").whole(), too_large);
    assert!(client.is_closed());
    assert_eq!(testbed.stored("a"), "{}\n{}\n");
}

#[test]
fn the_line_is_the_one_of_the_reference() {
    let testbed = Testbed::with(|config| {
        config.compat = Compat::fluentd();
        config.rules = events::Rules::fluentd();
        config.format = events::LineFormat::OutFile { time: true, tag: false };
        let template = format!("{}/${{tag}}_%Y-%m-%d", config.store.template.folder().display());
        config.store.template = template.parse().unwrap();
    });
    assert_eq!(testbed.connect().post("/http_listener_test?time=1578905529", EVENT).whole(), OK);
    assert_eq!(testbed.stored("http_listener_test_2020-01-13"), format!("2020-01-13T08:52:09Z\t{EVENT}\n"));
}
