use super::*;

const HOST: Host = Host { hard_descriptors: 20_000, ports: 28_232, available_memory_bytes: 1 << 34, cpus: 2 };

#[test]
fn all_mistakes_are_told_at_once_with_their_fields() {
    let text = |text: &str| Some(text.to_owned());
    let workload = HttpWorkload {
        url: "ftp://x".to_owned(),
        users: text("0"),
        timeout: text("soon"),
        expect: text("ok"),
        cpus: text("x"),
        headers: vec!["nonsense".to_owned()],
        duration: text("never"),
        ..HttpWorkload::default()
    };
    let fields: Vec<_> = workload.plan(&HOST).unwrap_err().into_iter().map(|m| m.field).collect();
    assert_eq!(fields, ["url", "headers", "duration", "users", "expect", "timeout", "cpus"]);
}

#[test]
fn defaults_are_those_of_the_comments() {
    let plan =
        HttpWorkload { url: "127.0.0.1:8080".to_owned(), ..HttpWorkload::default() }.plan(&HOST).unwrap();
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
fn a_rate_that_cannot_be_read_is_told_once() {
    let told = |rate: &str| {
        let workload = HttpWorkload {
            url: "127.0.0.1:1".to_owned(),
            rate: Some(rate.to_owned()),
            duration: Some("5s".to_owned()),
            ..HttpWorkload::default()
        };
        let mistakes = workload.plan(&HOST).unwrap_err();
        mistakes.into_iter().map(|m| format!("{}: {}", m.field, m.message)).collect::<Vec<_>>()
    };
    assert_eq!(told("fast"), ["rate: 'fast' is not a rate per second such as 500, 5k or 1.5M"]);
    for zero in ["0", "0k", "0.0/s"] {
        let told = told(zero);
        assert!(told.len() == 1 && told[0].contains("must be above 0"), "{told:?}");
    }
}

#[test]
fn a_host_that_is_not_found_can_be_given_an_address() {
    // No name can have a part so long, which is known without asking anybody.
    let url = format!("http://{}.invalid/", "a".repeat(64));
    let workload = HttpWorkload { url, ..HttpWorkload::default() };
    let mistakes = workload.plan(&HOST).unwrap_err();
    assert!(mistakes[0].message.contains("add --connect-to ADDRESS:PORT"), "{mistakes:?}");
}
