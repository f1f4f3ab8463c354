mod schema;

use proptest::prelude::*;

use super::*;
use crate::health::CheckKind;

#[test]
fn the_documented_file_is_valid_and_means_what_it_says() {
    let text = include_str!("../../../../docs/balance.md");
    let lines = text.lines().skip_while(|line| *line != "    # balance.toml");
    let lines: Vec<&str> = lines.take_while(|line| line.is_empty() || line.starts_with("    ")).collect();
    let file: String = lines.iter().map(|line| line.trim_start().to_owned() + "\n").collect();
    let config = Config::read("balance.toml", &file).unwrap();
    assert!(lines.len() > 20 && config.vips[0].servers.len() > 1, "{file}");
    assert_eq!(Config::read("again", &config.text()).unwrap(), config);
}

#[test]
fn what_is_not_said_is_as_usual() {
    let file = "device = \"eth0\"\n[[vips]]\naddress = \"fd00::64\"\nport = 80\n[[vips.servers]]\naddress = \"fd00::1\"\n";
    let config = Config::read("f", file).unwrap();
    let usual = Config::new("eth0");
    assert_eq!(Config { vips: Vec::new(), ..config.clone() }, usual);
    let vip = &config.vips[0];
    assert_eq!(
        (vip.schedule, vip.persistence, vip.name().as_str()),
        (Schedule::Ring, Persistence::Off, "[fd00::64]:80")
    );
    assert_eq!((vip.check.kind.clone(), vip.servers[0].name.as_str()), (CheckKind::Tcp, "fd00::1"));
    let limited = Server { max_connections: Some(1_000), ..vip.servers[0].clone() };
    assert_eq!(limited.resumes_below(), 750, "as ipvs");
}

#[test]
fn every_mistake_has_its_place() {
    let file = "hook = \"tc\"\nseed = -1\nmetrics = \"9100\"\nhandshake = \"0s\"\ntables = { flow = 1 }\n\
                [[vips]]\naddress = \"here\"\nports = []\nschedule = \"wlc\"\npersistence = \"often\"\n\
                check = { kind = \"tcp\", path = \"/\", jitter = \"200%\", rise = 0 }\n\
                [[vips.servers]]\nweight = 70_000\nname = \"a b\"\n\
                [[vips]]\naddress = \"10.0.0.9\"\nports = \"all\"\n[[vips]]\naddress = \"10.0.0.8\"\n";
    let wrong: Vec<String> = Config::read("f", file).unwrap_err().iter().map(ToString::to_string).collect();
    let expected = [
        "f:1:1: 'device' is missing",
        "f:1:8: 'tc' is not known here",
        "f:2:8: -1 is not a whole number",
        "f:3:11: '9100' is not an address and a port",
        "f:4:13: the time must be above 0",
        "f:5:12: unknown key 'flow'; did you mean 'flows'?",
        "f:7:11: 'here' is not an address",
        "f:8:9: the list is empty",
        "f:9:12: 'wlc' is not known here",
        "f:10:15: 'often' is not a time",
        "f:11:32: 'path' needs kind = \"http\"",
        "f:11:46: '200%' is not",
        "f:11:61: 0 is not a whole number from 1 to 1000",
        "f:12:1: 'address' is missing",
        "f:13:10: 70000 is not a whole number from 0 to 65535",
        "f:14:8: \"a b\" is not a name",
        "f:15:1: 'check' is missing: with ports = \"all\"",
        "f:18:1: 'ports' is missing",
    ];
    for (message, expected) in wrong.iter().zip(expected) {
        assert!(message.starts_with(expected), "{expected}\n{message}");
    }
    assert_eq!(wrong.len(), expected.len(), "{wrong:#?}");
}

#[test]
fn what_only_the_whole_shows_is_refused() {
    let vip = |rest: &str, servers: &str| {
        format!("device = \"eth0\"\n[[vips]]\naddress = \"10.0.0.9\"\nport = 80\n{rest}\n{servers}")
    };
    let one = "[[vips.servers]]\naddress = \"10.0.0.1\"\n";
    for (file, why) in [
        ("device = \"eth0\"\nvips = []".to_owned(), "there is no VIP"),
        (vip("", &format!("{one}{one}")), "two servers have the address 10.0.0.1"),
        (vip("", &one.replace("0.1", "0.9")), "the address of the VIP"),
        (vip("persistence = \"5m\"", one), "needs schedule = \"round-robin\""),
        (vip("schedule = \"wrr\"\npersistence = \"source\"", one), "needs schedule = \"maglev\""),
        (vip("", &format!("{one}resume_connections = 5")), "needs max_connections"),
        (vip("", &format!("{one}max_connections = 4\nresume_connections = 5")), "above max_connections"),
        (vip("ports = [80, 80]", one).replace("port = 80\n", ""), "10.0.0.9:80 is listed twice"),
        (vip("", one).replace("10.0.0.9", "0.0.0.0"), "is the unspecified address"),
        (
            vip("", &one.replace("10.0.0.1", "224.0.0.1")),
            "multicast or broadcast address: give the server's own",
        ),
        (vip("", &format!("{one}name = {:?}", "a".repeat(254))), "use 1 to 253 bytes without white space"),
        (vip("", one).replace("10.0.0.9", "127.0.0.5"), "is a loopback address"),
        (vip("", one).replace("10.0.0.9", "::1"), "is a loopback address"),
        (vip("", one).replace("10.0.0.9", "224.0.0.9"), "is a multicast or broadcast address"),
        (vip("", one).replace("10.0.0.9", "ff02::9"), "is a multicast or broadcast address"),
        (vip("", one).replace("10.0.0.9", "255.255.255.255"), "is a multicast or broadcast address"),
        (vip("", one).replace("10.0.0.9", "::ffff:10.0.0.9"), "IPv4-mapped IPv6 (write 10.0.0.9)"),
        (vip("", "[[vips]]\naddress = \"10.0.0.9\"\nports = [443, 80]"), "10.0.0.9:80 is listed twice"),
        (
            vip("", one).replace("port = 80", &format!("ports = {:?}", (1..=16_384).collect::<Vec<_>>())),
            "16385 ports of VIPs: a balancer holds at most",
        ),
    ] {
        let wrong = Config::read("f", &file).unwrap_err();
        assert!(wrong.iter().any(|wrong| wrong.message.contains(why)), "{why}: {wrong:#?}");
    }
}

#[test]
fn what_only_the_whole_shows_has_its_line() {
    let file = "device = \"lo\"\n[[vips]]\naddress = \"10.9.9.9\"\nport = 80\n\
                [[vips.servers]]\naddress = \"127.0.0.2\"\n[[vips.servers]]\naddress = \"10.9.9.9\"\n\
                [[vips]]\naddress = \"10.9.9.9\"\nport = 80\n";
    let wrong: Vec<String> = Config::read("f", file).unwrap_err().iter().map(ToString::to_string).collect();
    let expected =
        ["f:5:1: 10.9.9.9:80, 127.0.0.2: ", "f:7:1: 10.9.9.9:80: a server", "f:9:1: 10.9.9.9:80 is listed"];
    for (message, expected) in wrong.iter().zip(expected) {
        assert!(message.starts_with(expected), "{expected}\n{message}");
    }
    assert_eq!(wrong.len(), expected.len(), "{wrong:#?}");
    // With an unknown key, these mistakes are still reported; with a wrong value, they are not.
    let unknown = Config::read("f", &file.replace("port = 80", "port = 80\nfoo = 1")).unwrap_err();
    assert_eq!(unknown.len(), expected.len() + 2, "{unknown:#?}");
    let wrong = Config::read("f", &file.replacen("port = 80", "port = 0", 1)).unwrap_err();
    assert_eq!(wrong.len(), 1, "{wrong:#?}");
}

#[test]
fn addresses_that_clients_can_reach_are_sound() {
    for address in ["10.0.0.9", "192.168.16.100", "fd00:16::100", "fe80::9", "2001:db8::9"] {
        assert_eq!(unusable(address.parse().unwrap()), None);
    }
}

#[test]
fn what_handshakes_depend_on_takes_another_start() {
    let was = Config::new("eth0");
    let other =
        Config { seed: 1, hook: Some(Hook::Cls), idle_timeout: Duration::from_secs(1), ..was.clone() };
    let keys: Vec<&str> = other.fixed_changes(&was).into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["hook", "seed"]);
    assert!(Config { remember_per_second: 1, ..was.clone() }.fixed_changes(&was).is_empty());
}

fn servers() -> impl Strategy<Value = Vec<Server>> {
    let server = (0..=MAX_WEIGHT, prop::option::of(1_u32..), "[a-z\"\\\\=#ä]{0,4}", any::<bool>());
    prop::collection::vec(server, 0..5).prop_map(|all| {
        let of = |(at, (weight, max_connections, name, drain)): (usize, (u32, Option<u32>, String, bool))| {
            Server {
                name: format!("{name}{at}"),
                weight,
                max_connections,
                resume_connections: max_connections.map(|most| most / 2).filter(|resume| *resume > 0),
                drain,
                ..Server::new(IpAddr::from([10, 0, 1, at as u8]))
            }
        };
        all.into_iter().enumerate().map(of).collect()
    })
}

proptest! {
    #[test]
    fn a_configuration_that_is_written_is_read_as_the_same(
        (seed, ns, all_down, dies) in (0..i64::MAX as u64, 1_u64..1 << 50, any::<bool>(), any::<bool>()),
        (schedule, ports, status) in (0..4_usize, prop::collection::btree_set(1_u16.., 0..4), 100_u16..300),
        (servers, jitter, flows) in (servers(), 0..=100_u8, 1_u32..1 << 26),
    ) {
        let (schedule, persistence) = [
            (Schedule::Ring, Persistence::Off),
            (Schedule::Ring, Persistence::Source),
            (Schedule::RoundRobin, Persistence::Off),
            (Schedule::RoundRobin, Persistence::For(Duration::from_nanos(ns))),
        ][schedule];
        let kind = match ns % 3 {
            0 => CheckKind::None,
            1 => CheckKind::Tcp,
            _ => CheckKind::Http { tls: status.is_multiple_of(2), path: "/a\"b".to_owned(), host: Some("h".to_owned()), status: status..=399 },
        };
        // A VIP without checks keeps the default times.
        let usual = Check::default();
        let check = if kind == CheckKind::None { Check { kind, ..usual } } else {
            Check { kind, port: Some(8080), timeout: Duration::from_nanos(ns), jitter: f64::from(jitter) / 100.0, rise: 7, ..usual }
        };
        let mut config = Config::new("eth0.5");
        (config.seed, config.idle_timeout, config.answer_arp) = (seed, Duration::from_nanos(ns), all_down);
        (config.sizes.flows, config.metrics) = (flows, Some("[::1]:9100".parse().unwrap()));
        config.vips.push(Vip {
            address: "fd00::100".parse().unwrap(),
            ports: if ports.is_empty() { vec![ALL_PORTS] } else { ports.into_iter().collect() },
            schedule,
            persistence,
            when_all_down: if all_down { WhenAllDown::All } else { WhenAllDown::Drop },
            when_server_dies: if dies { WhenServerDies::Hold } else { WhenServerDies::Move },
            check,
            servers,
        });
        prop_assert_eq!(Config::read("f", &config.text()), Ok(config));
    }
}
