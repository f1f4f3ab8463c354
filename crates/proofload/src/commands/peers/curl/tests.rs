use load::MachineLimits;
use proptest::prelude::*;

use super::*;

/// The workload of a command line, and the notes on it.
fn read(line: &str) -> Result<(HttpWorkload, Vec<String>), Vec<String>> {
    let line = CurlLine::read(line)?;
    let mut workload = HttpWorkload::default();
    line.apply(&mut workload);
    Ok((workload, line.notes().to_vec()))
}

/// What the request contains: method, target, header fields except User-Agent, and body.
fn sent(line: &str) -> String {
    let (workload, _) = read(line).unwrap_or_else(|why| panic!("{line}: {why:?}"));
    let request =
        workload.plan(&MachineLimits::EXAMPLE).unwrap_or_else(|why| panic!("{line}: {why:?}")).request;
    let fields = request.headers.iter().filter(|(name, _)| name != "User-Agent" && name != "Host");
    let fields: Vec<String> = fields.map(|(name, value)| format!("{name}: {value}")).collect();
    format!(
        "{} {} [{}] {}",
        request.method,
        request.target,
        fields.join("; "),
        String::from_utf8_lossy(&request.body)
    )
}

fn why(line: &str) -> String {
    read(line).map_or_else(|mistakes| mistakes.join("\n"), |(workload, _)| panic!("{line}: {workload:?}"))
}

#[test]
fn fields_of_the_line_come_instead_of_curls_own() {
    for (line, expected) in [
        ("curl 127.0.0.1", "GET / [Accept: */*] "),
        ("curl -H 'accept: text/html' 127.0.0.1", "GET / [accept: text/html] "),
        ("curl -H 'Accept:' 127.0.0.1", "GET / [] "),
        ("curl -H 'X-Empty;' 127.0.0.1", "GET / [X-Empty: ; Accept: */*] "),
        ("curl -d a -H 'Content-Type:' 127.0.0.1", "POST / [Accept: */*] a"),
        ("curl -H 'Content-Length:' -r abc 127.0.0.1", "GET / [Range: bytes=abc; Accept: */*] "),
        (
            "curl -d '{}' -H 'content-type: application/json' 127.0.0.1",
            "POST / [content-type: application/json; Accept: */*] {}",
        ),
        ("curl -b a=1 -b 'b=2; c=3' 127.0.0.1", "GET / [Accept: */*; Cookie: a=1;b=2; c=3] "),
        ("curl -A a -e b -e c -r 5 -H X-F 127.0.0.1", "GET / [Referer: c; Range: bytes=5-; Accept: */*] "),
        ("curl -b 'c=${HOME}{{counter}}' 127.0.0.1", "GET / [Accept: */*; Cookie: c=${HOME}{{counter}}] "),
        ("curl -r '${HOME}-{{x}}' 127.0.0.1", "GET / [Range: bytes=${HOME}-{{x}}; Accept: */*] "),
        (
            "curl -g '127.0.0.1/a/../%2e%2e/{{x}}\\y?q=../<z>#f'",
            "GET /%2e%2e/{{x}}\\y?q=../<z> [Accept: */*] ",
        ),
        ("curl --path-as-is 127.0.0.1/a/../b/.", "GET /a/../b/. [Accept: */*] "),
        ("curl 127.0.0.1/login?next=http://a.test/x", "GET /login?next=http://a.test/x [Accept: */*] "),
        ("curl '127.0.0.1/a{b}c?{d}'", "GET /abc?d [Accept: */*] "),
        ("curl http:/127.0.0.1/\u{e9}", "GET /%c3%a9 [Accept: */*] "),
        ("curl -XDELETE -r 0-9 127.0.0.1/x", "DELETE /x [Range: bytes=0-9; Accept: */*] "),
        (
            "curl -H 'X: ${HOME}' -d '${HOME}' 127.0.0.1/",
            "POST / [X: ${HOME}; Accept: */*; Content-Type: application/x-www-form-urlencoded] ${HOME}",
        ),
        (
            "curl --data-raw @a 127.0.0.1/",
            "POST / [Accept: */*; Content-Type: application/x-www-form-urlencoded] @a",
        ),
    ] {
        assert_eq!(sent(line), expected, "{line}");
    }
}

#[test]
fn a_host_is_sent_as_curl_sends_it() {
    let host = |url: &str| {
        let workload = read(&format!("curl '{url}'")).unwrap_or_else(|why| panic!("{url}: {why:?}")).0;
        workload.url.split('/').nth(2).unwrap().to_owned()
    };
    for (url, sent) in [
        ("http://127.1:81/x", "127.0.0.1:81"),
        ("u:p@0x7f.1", "u:p@127.0.0.1"),
        ("LocalHost", "LocalHost"),
        ("[0:0::1]:81", "[::1]:81"),
        ("[::FFFF:127.0.0.1]", "[::FFFF:127.0.0.1]"),
        ("b\u{fc}cher.test", "xn--bcher-kva.test"),
        ("under_score~", "under_score~"),
    ] {
        assert_eq!(host(url), sent);
    }
    for (url, wrong) in [("a@b@c", "takes no @"), ("s1*/", "takes no *"), ("a=b", "takes no =")] {
        assert!(why(&format!("curl '{url}'")).contains(wrong), "{url}");
    }
}

#[test]
fn data_is_joined_and_encoded_as_curl_does() {
    let body =
        |options: &str| sent(&format!("curl {options} 127.0.0.1")).rsplit_once("] ").unwrap().1.to_owned();
    assert_eq!(
        body("-d a=1 --data-raw b=2 --data-binary c=3 --data-urlencode 'd=x y/ä'"),
        "a=1&b=2&c=3&d=x+y%2F%C3%A4"
    );
    assert_eq!(body("--data-urlencode '=a b' --data-urlencode 'c d'"), "a+b&c+d");
    assert_eq!(body("-d ''"), "");
    assert_eq!(body("-d '' -d x -d '' -d y"), "&x&&y");
    assert_eq!(
        sent("curl -G -d a=1 --data-urlencode 'b= ' '127.0.0.1/x?y=2#z'"),
        "GET /x?y=2&a=1&b=+ [Accept: */*] "
    );
    assert_eq!(sent("curl --url-query 'a=b c' 127.0.0.1"), "GET /?a=b+c [Accept: */*] ");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "a\r\nb\n").unwrap();
    let path = file.path().display();
    assert_eq!(body(&format!("-d @{path} -d @{path}")), "ab&ab");
    assert_eq!(body(&format!("--data-binary @{path}")), "a\r\nb\n");
    let name = file.path().file_name().unwrap().to_str().unwrap();
    assert_eq!(
        sent(&format!("curl -T {path} 127.0.0.1/up/")),
        format!("PUT /up/{name} [Accept: */*] a\r\nb\n")
    );
    let typed = sent("curl -F =x -H 'content-type: multipart/form-data; a=b' 127.0.0.1");
    let (head, form) = typed.split_once("] --").unwrap();
    let boundary = form.lines().next().unwrap();
    let expected =
        format!("POST / [Accept: */*; content-type: multipart/form-data; a=b; boundary={boundary}");
    assert_eq!(head, expected);
    assert_eq!(form.lines().nth(1), Some("Content-Disposition: form-data"));
    for content_type in ["multipart/mixed", "multipart/form-data; boundary=q"] {
        let line = format!("curl -F a=b -H 'Content-Type: {content_type}' 127.0.0.1");
        assert!(why(&line).contains("-F sets multipart/form-data with a boundary of its own"), "{line}");
    }
    let form = body(&format!("-F 'a=\"x;y\";type=text/x' -F 'f=@{path};filename=q\"' -F 't=<{path}'"));
    let boundary = form.lines().next().unwrap().strip_prefix("--").unwrap().to_owned();
    let parts: Vec<&str> = form.split(&format!("--{boundary}\r\n")).collect();
    assert_eq!(parts[1], "Content-Disposition: form-data; name=\"a\"\r\nContent-Type: text/x\r\n\r\nx;y\r\n");
    let head = "Content-Disposition: form-data; name=\"f\"; filename=\"q%22\"\r\nContent-Type: application/octet-stream\r\n\r\n";
    assert_eq!(parts[2], format!("{head}a\r\nb\n\r\n"));
    assert!(
        parts[3].starts_with("Content-Disposition: form-data; name=\"t\"\r\n\r\na\r\nb\n\r\n--"),
        "{}",
        parts[3]
    );
}

#[test]
fn an_option_that_is_not_known_hides_no_other_mistake() {
    let told = why("curl --foo -K x --http2 --digest -b c.txt --bar=1 http://a/");
    for part in ["--foo is not", "--bar is not", "-K", "--http2", "--digest", "cookie files"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let told = why("curl --digest http://a/ http://b/");
    assert!(told.contains("--digest") && told.contains("has 2 URLs"), "{told}");
}

#[test]
fn the_way_to_the_target_is_that_of_curl() {
    let address = |options: &str| read(&format!("curl {options} http://a.example:81/")).unwrap().0.connect_to;
    assert_eq!(address("--resolve a.example:81:127.0.0.1").as_deref(), Some("127.0.0.1:81"));
    assert_eq!(address("--resolve '*:81:[::1]'").as_deref(), Some("[::1]:81"));
    assert_eq!(address("--resolve b.example:81:127.0.0.1"), None);
    assert_eq!(address("--connect-to a.example:81:127.0.0.2:82").as_deref(), Some("127.0.0.2:82"));
    assert_eq!(address("--connect-to ::127.0.0.2:").as_deref(), Some("127.0.0.2:81"));
    assert_eq!(address("--connect-to b.example::127.0.0.2:"), None);
    // Of several addresses, curl uses the first that answers. Of several --connect-to options, the first match counts,
    // and --resolve then gives the addresses of its host.
    let several = address("--resolve a.example:81:127.0.0.4,127.0.0.2,[::1]");
    assert_eq!(several.as_deref(), Some("127.0.0.4:81|127.0.0.2:81|[::1]:81"));
    let options =
        "--connect-to b.example::127.0.0.9: --connect-to ::127.0.0.3:82 --connect-to ::127.0.0.2:82";
    assert_eq!(address(options).as_deref(), Some("127.0.0.3:82"));
    let options = "--resolve b.test:82:127.0.0.3 --resolve '*:82:127.0.0.8' --connect-to ::b.test:82";
    assert_eq!(address(options).as_deref(), Some("127.0.0.3:82"));
    let options =
        "--resolve a.example:81:127.0.0.3 --resolve a.example:81:127.0.0.4 --resolve a.example:82:::1";
    assert_eq!(address(options).as_deref(), Some("127.0.0.4:81"));
    let source = |options: &str| read(&format!("curl {options} http://a.example:81/")).unwrap().0.source;
    assert_eq!(source("-4").as_deref(), Some("0.0.0.0"));
    assert_eq!(source("-6").as_deref(), Some("::"));
    assert_eq!(source("-4 -6").as_deref(), Some("::"), "the last one counts");
    assert_eq!(source("-64").as_deref(), Some("0.0.0.0"));
    assert_eq!(source("-4 --interface 127.0.0.9").as_deref(), Some("127.0.0.9"));
    assert_eq!(source("--interface 127.0.0.9 -4").as_deref(), Some("127.0.0.9"));
    let noproxy = "curl -p -x 127.0.0.1:3128 --noproxy '*' http://a.example:81/";
    assert!(why(noproxy).contains("--noproxy may disable the proxy"));
    assert!(why("curl --resolve a:b http://a.example:81/").contains("HOST:PORT:ADDRESS"));
    let line = "curl -p -x u:p@127.0.0.1:3128 --haproxy-protocol --connect-timeout 3 http://a.example:81/";
    let workload = read(line).unwrap().0;
    assert_eq!(workload.proxy.as_deref(), Some("http://u:p@127.0.0.1:3128"));
    assert_eq!(read("curl -p -x [::1] http://a/").unwrap().0.proxy.as_deref(), Some("http://[::1]:1080"));
    assert_eq!((workload.proxy_protocol, workload.connect_timeout.as_deref()), (true, Some("3")));
    let workload = read("curl --unix-socket /run/docker.sock http://localhost/info").unwrap().0;
    assert_eq!(workload.unix_socket.as_deref(), Some("/run/docker.sock"));
    assert!(
        why("curl -x 127.0.0.1:3128 http://a.example:81/")
            .contains("-x: curl would send each request to the proxy")
    );
}

#[test]
fn what_is_ignored_is_said() {
    let (workload, notes) =
        read("curl -sSL -o /dev/null -w '%{http_code}' --connect-timeout 3 -m 5 127.0.0.1").unwrap();
    assert_eq!((workload.timeout.as_deref(), workload.expect.join(" ").as_str()), (Some("5"), "2xx"));
    for name in ["-L", "-o", "-w"] {
        assert!(notes.iter().any(|note| note.starts_with(name)), "{name}: {notes:?}");
    }
}

#[test]
fn a_flag_is_off_again_where_curl_takes_no_before_it() {
    let plain = sent("curl 127.0.0.1");
    for flags in [
        "--compressed --no-compressed",
        "--no-get --no-head --no-path-as-is --no-globoff --no-proxytunnel --no-fail --no-include --no-silent",
        "-I --no-head -sS --no-silent --no-show-error --no-verbose",
        "--digest --no-digest --no-anyauth --no-netrc",
        "-k --no-insecure --sessionid --alpn --keepalive --buffer --no-tcp-nodelay",
    ] {
        assert_eq!(sent(&format!("curl {flags} 127.0.0.1")), plain, "{flags}");
    }
    assert_ne!(sent("curl --no-compressed --compressed 127.0.0.1"), plain, "the last counts");
    let insecure = |flags: &str| read(&format!("curl {flags} https://127.0.0.1/")).unwrap().0.insecure;
    assert_eq!(["-k --no-insecure", "--no-insecure -k"].map(insecure), [false, true]);
    for flags in ["-L --no-location", "--location-trusted --no-location", "-L --no-location-trusted"] {
        let (workload, notes) = read(&format!("curl {flags} 127.0.0.1")).unwrap();
        assert!(workload.redirects.is_none() && notes.is_empty(), "{flags}: {workload:?} {notes:?}");
    }
    let secure = read("curl --no-alpn --alpn --no-sessionid --sessionid https://127.0.0.1/").unwrap().0;
    assert_eq!((secure.alpn, secure.no_resumption), (None, false));
    for flag in ["--no-http1.1", "--no-tlsv1.2", "--no-ipv4", "--no-data", "--no-no-alpn"] {
        assert!(why(&format!("curl {flag} 127.0.0.1")).contains("is not a known option of curl"), "{flag}");
    }
}

#[test]
fn all_refusals_come_at_once() {
    let all = why("curl -x p --http2 -K file -u name 'http://127.0.0.1/[1-3]'");
    for words in [
        "-x: curl would send",
        "--http2: only HTTP/1.1 is supported",
        "-K: ",
        "--user: curl would ask",
        "URL: curl expands",
    ] {
        assert!(all.contains(words), "{words}: {all}");
    }
    for (line, words) in [
        ("curl", "no URL"),
        ("curl a b", "2 URLs"),
        ("wget a", "does not begin with curl"),
        ("curl --no-such-option a", "--no-such-option"),
        ("curl --compresed a", "--compressed"),
        ("curl 'a/{b,c}'", "curl expands {} and [] to several URLs"),
        ("curl -d a -r 5 a", "Content-Range"),
        ("curl 'a/b c'", "is not allowed in a request line"),
        ("curl --digest a", "give the field Authorization with -H"),
        ("curl --cert a.pem:secret https://a", "encrypted keys are not read"),
        ("curl -b cookies.txt a", "cookie files"),
        ("curl -d a -F b=c a", "different bodies"),
        ("curl -I -d a a", "HEAD has no body"),
        ("curl -d @/no/such/file a", "/no/such/file"),
    ] {
        assert!(why(line).contains(words), "{line}: {}", why(line));
    }
}

#[test]
fn own_options_that_say_the_same_are_conflicts() {
    let line = CurlLine::read("curl -X PUT -m 5 -d a -H 'X-A: b' 127.0.0.1").unwrap();
    let own = ["method", "body", "timeout", "users"].map(str::to_owned);
    let headers = ["x-a: c", "Y: d"].map(str::to_owned);
    let conflicts = line.conflicts(true, &own, &headers);
    let names: Vec<&str> = conflicts.iter().filter_map(|why| why.split(':').next()).collect();
    assert_eq!(names, ["URL", "--timeout", "--method", "--body", "--header"]);
    assert!(line.conflicts(false, &["rate".to_owned()], &[]).is_empty());
}

proptest! {
    #[test]
    fn no_words_break_the_translation(
        words in prop::collection::vec("-[a-zA-Z0-9#:]{1,3}|--[a-z-]{2,12}|[a-z@=;:\"<\\[{/?#%,.é-]{0,12}", 0..8),
        url in "[a-z:/?#\\[\\]{}@.=&%]{0,16}",
    ) {
        // Excludes words that would read standard input, because the test would wait there.
        prop_assume!(!words.iter().any(|word| word.ends_with('-') || word.ends_with('.') || word.starts_with("@")));
        let words: Vec<String> = ["curl".to_owned()].into_iter().chain(words).chain([url]).collect();
        if let Ok(line) = CurlLine::parse(&words) {
            line.apply(&mut HttpWorkload::default());
        }
    }
}

#[test]
fn every_option_of_curl_is_answered_by_its_name() {
    for option in [
        "--noproxy *",
        "--pass x",
        "--capath x",
        "--proto =http",
        "--cert-type PEM",
        "--tls13-ciphers x",
        "--create-dirs",
        "--output-dir x",
        "--stderr x",
        "--trace x",
        "--no-alpn",
        "--curves x",
        "--hsts x",
        "-P x",
        "-Q x",
        "--proxy-header x",
    ] {
        let name = option.split(' ').next().unwrap();
        let line = format!("curl {} http://127.0.0.1/", option.replace('*', "'*'"));
        let said = match read(&line) {
            Ok((_, notes)) => notes.join("\n"),
            Err(mistakes) => mistakes.join("\n"),
        };
        assert!(!said.contains("tip") && !said.contains("is not a known option of curl"), "{said}");
        assert!(said.contains(name) || name == "--no-alpn", "{line}: {said}");
    }
    let secure = read("curl --no-alpn --no-sessionid https://127.0.0.1/").unwrap().0;
    assert_eq!((secure.alpn.as_deref(), secure.no_resumption), (Some("none"), true));
}
