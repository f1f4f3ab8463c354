use std::net::SocketAddr;

use record::text::written_literally;

use super::*;
use crate::testing;

const LIMITS: MachineLimits = MachineLimits::EXAMPLE;

#[test]
fn the_plans_of_tests_are_those_of_workloads() {
    let of_tests = testing::closed(1);
    let made =
        HttpWorkload { url: of_tests.url.clone(), seed: 1, ..HttpWorkload::default() }.plan(&LIMITS).unwrap();
    let HttpPlan { request, load, duration_ns, threads, .. } = of_tests.clone();
    assert_eq!(HttpPlan { request, load, duration_ns, threads, ..made }, of_tests);
}

#[test]
fn all_mistakes_are_reported_together_with_their_fields() {
    let workload = HttpWorkload {
        url: "ftp://x".to_owned(),
        users: Some("0".into()),
        timeout: Some("soon".into()),
        expect: vec!["ok".to_owned()],
        cpus: Some("x".into()),
        headers: vec!["nonsense".to_owned()],
        duration: Some("never".into()),
        ..HttpWorkload::default()
    };
    let fields: Vec<_> = workload.plan(&LIMITS).unwrap_err().into_iter().map(|m| m.field).collect();
    assert_eq!(fields, ["url", "headers", "duration", "users", "timeout", "cpus", "expect"]);
}

#[test]
fn every_option_is_unique_and_accepts_its_example() {
    let plain = HttpWorkload { url: "127.0.0.1:1".to_owned(), ..HttpWorkload::default() };
    let secure = HttpWorkload { url: "https://127.0.0.1:1".to_owned(), insecure: true, ..plain.clone() };
    let mut keys = std::collections::BTreeSet::new();
    for HttpOption { spec, names_files, written, .. } in OPTIONS {
        assert!(keys.insert(spec.key), "{} is there twice", spec.key);
        assert!(!spec.help.ends_with('.') && !spec.help.is_empty(), "{}", spec.key);
        let events = (spec.heading == EVENTS).then(|| "default".to_owned());
        let base = if spec.heading == TLS { &secure } else { &plain };
        let mut workload = HttpWorkload { events, ..base.clone() };
        assert_eq!((spec.apply)(&mut workload, &spec.examples()), Ok(()), "{}", spec.key);
        assert_ne!(workload, plain, "{}", spec.key);
        let flag = matches!(spec.kind, Kind::Flag | Kind::On).then(|| vec!["true"]);
        assert_eq!(written(&workload), flag.unwrap_or_else(|| spec.examples()), "{}", spec.key);
        // Examples that name files cannot be planned, because the files do not exist.
        if !names_files && !["cacert", "cert", "key", "feeders"].contains(&spec.key) {
            let mistakes = workload.plan(&LIMITS).err();
            assert_eq!(mistakes, None, "{} {}", spec.key, spec.example);
        }
    }
}

#[test]
fn defaults_are_those_of_the_comments() {
    let plan =
        HttpWorkload { url: "127.0.0.1:8080".to_owned(), ..HttpWorkload::default() }.plan(&LIMITS).unwrap();
    assert!(matches!(plan.load, LoadModel::Closed { users: 10, loops: None, .. }));
    assert_eq!((plan.duration_ns, plan.timeout_ns), (Some(10_000_000_000), 30_000_000_000));
    assert_eq!((plan.request.method.as_str(), plan.keepalive, plan.pipeline), ("GET", true, 1));
}

#[test]
fn source_ranges() {
    assert_eq!(parse_addresses("127.0.0.1-127.0.0.3,::1").unwrap().len(), 4);
    for bad in ["", "x", "127.0.0.3-127.0.0.1", "10.0.0.0-10.255.0.0"] {
        assert!(parse_addresses(bad).is_err(), "{bad}");
    }
}

#[test]
fn an_invalid_rate_is_one_mistake() {
    let messages = |rate: &str| {
        let workload = HttpWorkload {
            url: "127.0.0.1:1".to_owned(),
            rate: Some(rate.into()),
            duration: Some("5s".into()),
            ..HttpWorkload::default()
        };
        let mistakes = workload.plan(&LIMITS).unwrap_err();
        mistakes.into_iter().map(|m| format!("{}: {}", m.field, m.message)).collect::<Vec<_>>()
    };
    assert_eq!(messages("fast"), ["rate: 'fast' is not a rate per second such as 500, 5k or 1.5M"]);
    for zero in ["0", "0k", "0.0/s"] {
        let found = messages(zero);
        assert!(found.len() == 1 && found[0].contains("must be above 0"), "{found:?}");
    }
}

#[test]
fn a_host_that_is_not_found_can_be_given_an_address() {
    // A label of 64 bytes is invalid, so no name server is asked.
    let url = format!("http://{}.invalid/", "a".repeat(64));
    let workload = HttpWorkload { url, ..HttpWorkload::default() };
    let mistakes = workload.plan(&LIMITS).unwrap_err();
    assert!(mistakes[0].message.contains("with --connect-to ADDRESS:PORT"), "{mistakes:?}");
}

fn closed(workload: HttpWorkload) -> Result<HttpPlan, Vec<String>> {
    let workload = HttpWorkload { url: "127.0.0.1:1".to_owned(), ..workload };
    let messages = |mistake: FieldMistake| format!("{}: {}", mistake.field, mistake.message);
    workload.plan(&LIMITS).map_err(|mistakes| mistakes.into_iter().map(messages).collect())
}

#[test]
fn all_users_start_within_the_duration() {
    let with = |ramp_up: &str, duration: Option<&str>, loops: Option<&str>| {
        closed(HttpWorkload {
            ramp_up: Some(ramp_up.into()),
            duration: duration.map(Into::into),
            loops: loops.map(Into::into),
            ..HttpWorkload::default()
        })
    };
    assert_eq!(with("20s", None, None).unwrap().duration_ns, Some(30_000_000_000));
    assert_eq!(with("20s", None, Some("5")).unwrap().duration_ns, None);
    assert_eq!(with("2s", Some("3s"), None).unwrap().duration_ns, Some(3_000_000_000));
    assert!(with("0s", Some("3s"), None).is_ok());
    for duration in ["20s", "5s"] {
        let messages = with("20s", Some(duration), Some("5")).unwrap_err();
        assert_eq!(messages.len(), 1, "{messages:?}");
        assert!(messages[0].starts_with("ramp_up: the users start over 20.0 s, "), "{messages:?}");
    }
}

#[test]
fn a_number_of_random_arrivals_has_no_duration() {
    let with = |arrivals: &str, duration: Option<&str>| {
        let plan = closed(HttpWorkload {
            rate: Some("100".into()),
            requests: Some("50".into()),
            arrivals: Some(arrivals.into()),
            duration: duration.map(Into::into),
            ..HttpWorkload::default()
        });
        plan.unwrap().duration_ns
    };
    assert_eq!(with("poisson", None), None);
    assert_eq!(with("poisson", Some("3s")), Some(3_000_000_000));
    assert_eq!(with("constant", None), Some(500_000_000));
}

#[test]
fn secrets_of_a_url_a_file_and_a_field_are_sent_and_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, "# note\n\nX-Colour: red-4711\nbroken secret-line\n").unwrap();
    let workload = |url: &str, headers: &[&str]| HttpWorkload {
        url: url.to_owned(),
        headers: headers.iter().map(|header| (*header).to_owned()).collect(),
        ..HttpWorkload::default()
    };
    let messages = |workload: HttpWorkload| {
        let mistakes = workload.plan(&LIMITS).unwrap_err();
        mistakes.into_iter().map(|m| format!("{}: {}", m.field, m.message)).collect::<Vec<_>>()
    };
    let file = format!("@{}", file.path().display());
    let broken = messages(workload("http://ann:p@127.0.0.1:1/", &[&file, "Authorization: x", "secret"]));
    assert_eq!(broken.len(), 3, "{broken:?}");
    assert!(broken[0].contains(":4: not a name, a colon and a value"), "{broken:?}");
    assert!(
        broken[1].starts_with("headers: field 3: not a name") && !broken.concat().contains("secret"),
        "{broken:?}"
    );
    assert!(broken[2].contains("leave out one of them"), "{broken:?}");
    assert!(messages(workload("http://a%3Ab:c@127.0.0.1:1/", &[]))[0].contains("with a colon"));
    assert!(
        messages(workload("127.0.0.1:1", &["@/no/such"]))[0].starts_with("headers: cannot read /no/such: ")
    );

    let sound =
        workload("http://ann@127.0.0.1:1/?page=2&sig=x", &["Accept: y", "X-Api-Key: k", "X-T: $${T}"]);
    let secrets = sound.secrets();
    let what: Vec<&str> = secrets.iter().map(|(what, _)| what.as_str()).collect();
    assert_eq!(what, ["the header X-Api-Key", "the URL's user info", "the query parameter sig"]);
    let headers = sound.plan(&LIMITS).unwrap().request.headers;
    assert!(headers.contains(&("Authorization".to_owned(), "Basic YW5uOg==".to_owned())), "{headers:?}");
    assert!(headers.contains(&("X-T".to_owned(), "${T}".to_owned())), "{headers:?}");
}

#[test]
fn a_content_type_is_sent_once() {
    let workload = |content_type: &str, header: &str| HttpWorkload {
        url: "http://127.0.0.1:1/".to_owned(),
        headers: vec![header.to_owned()],
        content_type: Some(content_type.to_owned()),
        ..HttpWorkload::default()
    };
    let headers = workload("text/csv", "Accept: y").plan(&LIMITS).unwrap().request.headers;
    assert!(headers.contains(&("Content-Type".to_owned(), "text/csv".to_owned())), "{headers:?}");
    for (content_type, header) in [("text/csv", "content-type: x"), ("a\r\nB: c", "Accept: y")] {
        let mistakes = workload(content_type, header).plan(&LIMITS).unwrap_err();
        assert!(mistakes.len() == 1 && mistakes[0].field == "content_type", "{mistakes:?}");
    }
}

#[test]
fn a_target_is_kept_as_it_was_given() {
    let plan = |url: &str| HttpWorkload { url: url.to_owned(), ..HttpWorkload::default() }.plan(&LIMITS);
    for (rest, target) in [
        ("/a/../b?q='x'", "/a/../b?q='x'"),
        ("/%2e%2e/x", "/%2e%2e/x"),
        ("/a\\b", "/a\\b"),
        ("/a?b=<c>\"^`|{}", "/a?b=<c>\"^`|{}"),
        ("/x?y#z", "/x?y"),
        ("#z", "/"),
        ("?q", "/?q"),
        ("/login?next=http://a.test/x", "/login?next=http://a.test/x"),
        ("/http://a.test/x", "/http://a.test/x"),
        ("/a b\tc", "/a%20b%09c"),
        ("/\u{e9}", "/%C3%A9"),
        ("/{{\"{{\"}}x}}{{\"#\"}}y", "/{{x}}#y"),
    ] {
        for scheme in ["", "http://", "HTTP://"] {
            let plan = plan(&format!("{scheme}127.0.0.1:1{rest}")).unwrap();
            assert_eq!(plan.request.target, target);
            assert!(plan.script.is_none(), "{rest}");
        }
    }
    let host = plan("http://LocalHost:1/").unwrap().request.headers.remove(0);
    assert_eq!(host, ("Host".to_owned(), "LocalHost:1".to_owned()));
    for wrong in [
        "http://127.0.0.1\\a/",
        "ftp://127.0.0.1/",
        "http:///x",
        "{{x}}/",
        "127.0.0.1:{{x}}/",
        "127.0.0.1:x/",
    ] {
        assert_eq!(plan(wrong).unwrap_err()[0].field, "url", "{wrong}");
    }
}

#[test]
fn a_host_goes_out_as_it_is_typed_and_only_its_meaning_is_connected_to() {
    for (typed, sent, address) in [
        ("127.1:1", "127.1:1", "127.0.0.1:1"),
        ("0x7f.1", "0x7f.1", "127.0.0.1:80"),
        ("0177.0.0.1:80", "0177.0.0.1", "127.0.0.1:80"),
        ("127.000.000.001:1", "127.000.000.001:1", "127.0.0.1:1"),
        ("2130706433:1", "2130706433:1", "127.0.0.1:1"),
        ("u:p@[0:0::1]:1", "[0:0::1]:1", "[::1]:1"),
        ("[::FFFF:127.0.0.1]", "[::FFFF:127.0.0.1]", "[::ffff:127.0.0.1]:80"),
        // A Host field cannot carry these hosts as given, so their normal form is sent.
        ("127.0.0.%31:1", "127.0.0.1:1", "127.0.0.1:1"),
        ("\u{ff11}27.0.0.1:1", "127.0.0.1:1", "127.0.0.1:1"),
    ] {
        let workload = HttpWorkload { url: format!("http://{typed}/"), ..HttpWorkload::default() };
        let mut plan = workload.plan(&LIMITS).unwrap_or_else(|why| panic!("{typed}: {why:?}"));
        assert_eq!(plan.request.headers.remove(0), ("Host".to_owned(), sent.to_owned()));
        assert_eq!(plan.targets, [address.parse().unwrap()], "{typed}");
    }
}

#[test]
fn fields_that_a_request_has_once_are_refused_twice() {
    let plan = |headers: &[&str]| {
        let headers = headers.iter().map(|header| (*header).to_owned()).collect();
        HttpWorkload { url: "127.0.0.1:1".to_owned(), headers, ..HttpWorkload::default() }.plan(&LIMITS)
    };
    for wrong in [
        &["host: a.test", "Host: b.test"][..],
        &["User-Agent: a", "user-agent: a"],
        &["Authorization: a", "Authorization: b"],
        &["Content-Type: a", "Content-Type: a"],
        &["Host: a b"],
        &["Host: a/b"],
    ] {
        let mistakes = plan(wrong).unwrap_err();
        assert_eq!((mistakes.len(), mistakes[0].field), (1, "headers"), "{wrong:?}");
    }
    let sound = plan(&["host: a.test:80", "X-A: 1", "X-A: 2", "Host-B: a b"]).unwrap().request.headers;
    assert_eq!(sound.len(), 5, "{sound:?}");
    assert!(plan(&["Host: {{random 1 9}}.test"]).is_ok());
}

#[test]
fn an_unknown_order_of_rows_is_told_with_those_there_are() {
    let workload =
        HttpWorkload { feeders: vec!["/no/rows.csv,shuffle".to_owned()], ..HttpWorkload::default() };
    let messages = closed(workload).unwrap_err();
    assert!(messages[0].contains("'shuffle' is not an order of rows: write in-order, once"), "{messages:?}");
}

proptest::proptest! {
    #[test]
    fn what_is_written_literally_is_read_as_it_is(words in "[{}$#@\"a]{0,9}|.{0,20}") {
        let text = text::read_body(&written_literally(&words, &[])).unwrap();
        proptest::prop_assert_eq!(&text, &record::Text::literal(words.as_str()));
        let url = written_literally(&format!("http://h/{words}"), &['#']);
        let url = text::read_target(&url).unwrap();
        proptest::prop_assert_eq!(url, record::Text::literal(format!("http://h/{words}")));
    }
}

#[test]
fn a_name_is_planned_with_all_its_addresses_that_the_sources_reach() {
    let (six, four): (SocketAddr, SocketAddr) =
        ("[::1]:80".parse().unwrap(), "127.0.0.1:80".parse().unwrap());
    let lookup = |host: &str, port: u16| match host {
        "two" => Ok(vec![SocketAddr::new(six.ip(), port), SocketAddr::new(four.ip(), port)]),
        host => addresses::look_up(host, port),
    };
    let plan = |url: &str, change: fn(&mut HttpWorkload)| {
        let mut workload = HttpWorkload { url: url.to_owned(), ..HttpWorkload::default() };
        change(&mut workload);
        workload.plan_with(&LIMITS, &lookup)
    };
    let named = |plan: &HttpPlan| -> Vec<(String, Vec<SocketAddr>)> {
        plan.connection.names.iter().map(|name| (name.name.clone(), name.addresses.clone())).collect()
    };
    let usual = plan("http://two/", |_| ()).unwrap();
    assert_eq!(
        (usual.targets.clone(), named(&usual)),
        (vec![six], vec![("two:80".to_owned(), vec![six, four])])
    );
    let tunnel = plan("http://a/", |workload| workload.proxy = Some("http://two:80".to_owned())).unwrap();
    assert_eq!((tunnel.targets.clone(), named(&tunnel)), (vec![six], named(&usual)));
    let listed = plan("http://a/", |workload| {
        workload.connect_to = Some("127.0.0.9:1,two:80".to_owned());
        workload.address = Some("all".to_owned());
    });
    let listed = listed.unwrap();
    assert_eq!(listed.targets, ["127.0.0.9:1".parse().unwrap(), six]);
    assert!(named(&listed) == named(&usual) && listed.connection.names[0].all);
    // Addresses of one element are treated like those of a name.
    let alternatives =
        plan("http://a/", |workload| workload.connect_to = Some("127.0.0.9:1|two:80".to_owned()));
    let alternatives = alternatives.unwrap();
    let down = "127.0.0.9:1".parse().unwrap();
    assert_eq!(alternatives.targets, [down]);
    assert_eq!(named(&alternatives), [("127.0.0.9:1|two:80".to_owned(), vec![down, six, four])]);
    let family = plan("http://two/", |workload| workload.source = Some("0.0.0.0".to_owned())).unwrap();
    assert_eq!(family.targets, [four]);
    let bound = plan("http://two/", |workload| workload.source = Some("127.0.0.2".to_owned())).unwrap();
    assert_eq!((bound.targets.clone(), named(&bound)), (vec![four], Vec::new()));
    let refused = |url: &str, source: fn(&mut HttpWorkload)| plan(url, source).unwrap_err().remove(0);
    let other = refused("http://[::1]:80/", |workload| workload.source = Some("127.0.0.2".to_owned()));
    assert_eq!(other.field, "source");
    assert!(
        other.message.starts_with("[::1]:80 has only addresses of IPv6, which 127.0.0.2 cannot reach"),
        "{other:?}"
    );
    let mixed = refused("http://two/", |workload| workload.source = Some("127.0.0.2,::1".to_owned()));
    assert!(mixed.field == "source" && mixed.message.contains("give addresses of one family"), "{mixed:?}");
}
