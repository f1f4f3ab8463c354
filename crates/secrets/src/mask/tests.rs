use serde::{Deserialize, Serialize};

use super::*;

#[test]
fn names_tell_secrets_in_any_text() {
    for (text, masked) in [
        ("GET http://ann:pw@h:80/x?page=2", "GET http://***@h:80/x?page=2"),
        ("http://ann:p@ss@h/a@b", "http://***@h/a@b"),
        ("see http://h/me@x and me@example.com", "see http://h/me@x and me@example.com"),
        ("\"http://a\", \"http://b@c\"", "\"http://a\", \"http://***@c\""),
        ("http://h/?page=2&api_key=x1&q=3#sig=4", "http://h/?page=2&api_key=***&q=3#sig=***"),
        ("GET http://h/?sig=1, (http://h/?sig=2), x", "GET http://h/?sig=***, (http://h/?sig=***), x"),
        ("'h/?sig=a%2Fb' x", "'h/?sig=***' x"),
        ("Authorization: Bearer abc", "Authorization: ***"),
        ("-HX-Api-Key:abc", "-HX-Api-Key:***"),
        ("X-Api-Key;abc", "X-Api-Key;***"),
        ("no value for X-Api-Key; give one", "no value for X-Api-Key; give one"),
        ("headers = [\"Cookie: a=\\\"b\\\"\", \"Accept: y\"]", "headers = [\"Cookie: ***\", \"Accept: y\"]"),
        ("X-Auth-Token: abc\nHost: h", "X-Auth-Token: ***\nHost: h"),
        ("Authorization: Bearer ${TOKEN}", "Authorization: Bearer ${TOKEN}"),
        ("http://ann:${PW}@h/?api_key=${KEY}", "http://ann:${PW}@h/?api_key=${KEY}"),
        ("unexpected token: x, key: y, at 10:30", "unexpected token: x, key: y, at 10:30"),
        ("X-Request-Id: 7", "X-Request-Id: 7"),
        ("--auth-key: no number, bearer_token_file: none", "--auth-key: no number, bearer_token_file: none"),
    ] {
        assert_eq!(mask(text), masked);
        assert_eq!(mask(masked), masked, "masked once more");
    }
    assert_eq!(mask_url("ann:pw@h:80/?token=1"), "***@h:80/?token=***");
    assert_eq!(mask_url("ann:pw@h/?n=http://u:p@h/&m=http://h/a@b"), "***@h/?n=http://***@h/&m=http://h/a@b");
    assert_eq!(mask_header("X-Api-Key", "k"), MASK);
    assert_eq!(mask_header("Accept", "text/html"), "text/html");
    assert_eq!(mask_header("Referer", "http://a:b@h/?page=2&token=1"), "http://***@h/?page=2&token=***");
}

#[test]
fn what_was_learned_is_masked_in_every_form() {
    learn_url("http://learned:lea/rned%40pw@h/");
    learn_header("Authorization", "Basic bWFzazp0ZXN0IHBhc3M/");
    let text = |text: &str| mask_learned_text(text);
    assert_eq!(text("x=mask:test pass? y"), "x=*** y");
    assert_eq!(text("test%20pass%3F test%20pass%3f dGVzdCBwYXNzPw=="), "*** *** ***");
    assert_eq!(text("got bWFzazp0ZXN0IHBhc3M/, Basic bWFzazp0ZXN0IHBhc3M/"), "got ***, ***");
    learn("five5");
    assert_eq!(text("five5 (five5) five55 xfive5"), "*** (***) five55 xfive5");
    learn("abc");
    assert_eq!(text("abc"), "abc", "it would stand everywhere");
    learn_text("X-Tenant-Value-1", "X-${T}");
    assert_eq!(mask_header("X-Tenant", "X-Tenant-Value-1"), "X-${T}");
    learn("sent a/b%41é");
    assert_eq!(text("sent%20a/b%41%C3%A9 sent a/bAé sent%20a%2fb%2541%c3%a9"), "*** *** ***");
    learn("form+value%21");
    assert_eq!(text("form value! form+value!"), "*** ***");
    learn("++++++++");
    assert_eq!(text("a        b"), "a        b", "what it stands for is everywhere");
    learn_header("Authorization", "Token id=open-12345, token=\"token-12345\"");
    assert_eq!(text("token-12345 open-12345"), "*** open-12345");
    learn("-- begin --\nmany/lines\r\nend");
    assert_eq!(text("-- begin --\nmany/lines\nend"), "***\n***\nend");
}

#[test]
fn what_is_no_escape_of_a_url_ends() {
    let nested = format!("http://a/?{}", "%25".repeat(2_000));
    for url in ["http://a/%zz/%zz?n:o#z", "http://a/?u=http://b/%?%25", "%?%?", "http://a/?%ff%fe?x", &nested]
    {
        learn_url(url);
        assert!(!mask_url(url).is_empty());
    }
}

#[test]
fn urls_within_a_query_tell_their_secrets() {
    learn_url("http://h/?next=http://ann:within-1@h/&page=2");
    learn_url("h/?next=http%3A%2F%2Fann%3Awithin-2%40h%2F&mail=ann%40within-3.example&page=2");
    learn_url("/?next=%2fback%3Fpage%3D2%26token%3Dwithin-4");
    learn_variable("Referer", "http://h/?to=http%3A%2F%2Fh%2F%3Fapi_key%3Dwithin-5");
    learn_url("/?next=http%253A%252F%252Fann%253Awithin-6%2540h%252F&to=//ann:within-7@h/");
    learn_url("/?next=%2F%2Fann%3Awithin-8%40h%2F");
    assert_eq!(mask_learned_text("within-6 within-7 within-8"), "*** *** ***");
    assert_eq!(mask_learned_text("within-1 within-2 within-3 within-4 within-5"), "*** *** within-3 *** ***");
    assert_eq!(
        mask_learned_text("x?next=http%3A%2F%2Fann%3Awithin-2%40h%2F&page=2"),
        "x?next=http%3A%2F%2F***%40h%2F&page=2"
    );
    assert_eq!(mask("ann@within-3.example /back?page=2"), "ann@within-3.example /back?page=2");
}

#[test]
fn variables_of_a_process_tell_their_secrets() {
    learn_variable("DB_PASSWORD", "variable1");
    learn_variable("DB_URL", "db://ann:variable2@h/x");
    learn_variable("NO_PASSWORD", "true");
    learn_variable("LANG", "variable3");
    let log = "variable1 variable2 true variable3 db://ann:variable2@h/x";
    assert_eq!(mask_learned_text(log), "*** *** true variable3 db://***@h/x");
}

#[test]
fn what_a_text_is_replaced_by_holds_no_other_value() {
    learn_text("http://h/replaced-1?x=typed", "http://h/replaced-1?x=${X}");
    learn("replaced-1");
    assert_eq!(mask("see http://h/replaced-1?x=typed"), "see http://h/***?x=${X}");
    learn("replaced-2");
    assert_eq!(
        mask("http://h/?token=replaced-2rest"),
        "http://h/?token=***",
        "a value of which a part was learned"
    );
}

#[test]
fn path_and_query_of_a_value_are_secrets_of_their_own() {
    learn_place("", "http://place.example/hooks/place-1?tok=place-2");
    learn_place("http://", "place.example:80/");
    learn_place("", "place.example");
    learn_place("", "http://place.example/place-3#top");
    // The variable may hold any part of the URL up to the host.
    learn_place("http:", "//place.example/place-4?q=place-5");
    learn_place("http:/", "/place.example/place-6?q=place-7");
    learn_place("http://place.example", "/place-8/x?q=place-9#part-9");
    learn_place("http://place.example/a/", "place-10?q=place-11");
    assert_eq!(mask("GET /place-4 q=place-5 /place-6 q=place-7 /place-8/x"), "GET *** *** *** *** ***");
    assert_eq!(mask("q=place-9 q=place-9#part-9 place-10 q=place-11"), "*** *** *** ***");
    assert_eq!(mask("GET /hooks/place-1?tok=place-2&n=1"), "GET ***&n=1");
    assert_eq!(mask("/hooks/place-1 - tok=place-2"), "*** - ***");
    assert_eq!(mask("GET /place-3"), "GET ***");
    assert_eq!(mask("GET / ?x http://place.example/"), "GET / ?x http://place.example/");
}

#[test]
fn a_record_is_masked_but_for_the_words_of_ours() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(tag = "kind", rename_all = "snake_case")]
    enum Kind {
        RecordKind { words: Vec<String>, code: String, by_name: BTreeMap<String, f64> },
    }
    let record = |words: &str| Kind::RecordKind {
        words: vec![words.to_owned(), "GET 1 a".to_owned()],
        code: "record_kind".to_owned(),
        by_name: [("record_kind".to_owned(), 0.1)].into(),
    };
    for value in ["record_kind", "GET", "1", "a"] {
        learn(value);
    }
    let masked = mask_record(record("a record_kind/~ of 1"), &["code"]);
    assert_eq!(masked, record("a ***/~ of 1"));
    assert_eq!(mask_record(record("open"), &["code"]), record("open"));
}
