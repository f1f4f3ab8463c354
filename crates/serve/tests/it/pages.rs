//! Tests of pages with curl, with and without TLS.

use serde_json::{Value, json};
use serve::{Config, Pages, Tls};

use super::{
    curl::{text, url},
    target::Target,
};

/// The JSON content of a page.
fn json_of(arguments: &[&str]) -> Value {
    serde_json::from_str(&text(arguments)).unwrap()
}

fn start(lifetime_ns: u64, tls: Option<Tls>) -> Target {
    Target::start(Config { pages: Some(Pages { token_lifetime_ns: lifetime_ns }), tls, ..Config::default() })
}

#[test]
fn cookies_echo_redirects_and_gzip_work_plain_and_encrypted() {
    for (scheme, tls) in [("http", None), ("https", Some(Tls::default()))] {
        let target = start(1, tls);
        let to = |path: &str| url(scheme, target.address, path);
        // A single curl process with a cookie jar returns the cookie that it received.
        let (set, came) = (to("/cookies/set?a=1&b=two"), to("/cookies"));
        let both = text(&["-k", "-c", "/dev/null", &set, &came]);
        assert_eq!(both.lines().last().unwrap(), r#"{"cookies":{"a":"1","b":"two"}}"#, "{both}");
        let echo = json_of(&["-k", "-H", "X-Own: 5", "--data-binary", "a=b&c", &to("/echo?q=1")]);
        assert_eq!(
            (&echo["method"], &echo["query"], &echo["body"]),
            (&json!("POST"), &json!("q=1"), &json!("a=b&c"))
        );
        assert!(echo["headers"].as_array().unwrap().contains(&json!(["X-Own", "5"])), "{echo}");
        assert_eq!(json_of(&["-k", "-L", &to("/redirect/5")]), json!({"redirects_left": 0}));
        let packed = ["-k", "--compressed", "-D", "/dev/stderr", &to("/items/7%2F8?x")];
        let output = super::curl::curl(&packed);
        assert!(String::from_utf8_lossy(&output.stderr).contains("Content-Encoding: gzip"), "{output:?}");
        let item: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(item, json!({"id": "7/8", "method": "GET", "query": "x"}));
        assert_eq!(text(&["-k", "-o", "/dev/null", "-w", "%{http_code}", &to("/status/418")]), "418");
        assert_eq!(text(&["-k", "-I", "-o", "/dev/null", "-w", "%{http_code}", &to("/items/1")]), "200");
        assert_eq!(text(&["-k", &to("/elsewhere")]), "proofload-ser");
        let report = target.stop();
        assert_eq!(report.answers_by_status[&302], 5, "{report}");
        assert_eq!(report.answers_by_status[&418], 1, "{report}");
    }
}

/// A target, the header with the token of a login, and the login's number.
fn logged_in(lifetime_ns: u64) -> (Target, String, Value) {
    let target = start(lifetime_ns, None);
    let login =
        json_of(&["--json", r#"{"user": "ann", "password": "p"}"#, &url("http", target.address, "/login")]);
    let bearer = format!("Authorization: Bearer {}", login["token"].as_str().unwrap());
    (target, bearer, login["login"].clone())
}

#[test]
fn a_token_opens_private_pages_until_it_expires() {
    let (target, bearer, login) = logged_in(3_600_000_000_000);
    let to = url("http", target.address, "/private/report");
    let status =
        |words: &[&str]| text(&[&["-o", "/dev/null", "-w", "%{http_code}"][..], words, &[&to]].concat());
    let private = json_of(&["-H", &bearer, &to]);
    assert_eq!((&private["user"], &private["login"]), (&json!("ann"), &login));
    assert_eq!(status(&[]), "401");
    assert_eq!(status(&["-H", "Authorization: Bearer none"]), "401");
    target.stop();

    let (target, bearer, _) = logged_in(1);
    let to = url("http", target.address, "/private/report");
    let answer = text(&["-H", &bearer, "-w", "%{http_code}", &to]);
    assert_eq!(answer, "{\"error\":\"token expired\"}\n401");
    target.stop();
}
