use std::{net::IpAddr, time::Duration};

use proptest::prelude::*;

use super::*;
use crate::plan::{Flood, Known, KnownKind, LinkKind, Program, Ready};

const WHOLE: &str = r#"
title = "whole"
[hosts]
client = { count = 2, cpus = "0,2-3", routes = [{ to = "default", via = "router" }] }
router = { forward = true, cpu_quota = 1.5, congestion = "bbr", tcp_rmem = "64MB", tcp_wmem = "8KiB" }
web = { loopback = ["192.168.16.100"], sysctls = { "net.ipv4.conf.all.arp_ignore" = 1 } }
[[links]]
name = "lan"
between = ["client", "router"]
[[links]]
between = ["router", "web"]
network = "192.168.16.0/24"
addresses = { web = "192.168.16.1" }
rate = "20mbit"
delay = "50ms"
b_to_a = { rate = "1gbit" }
[[links]]
between = ["client1", "web"]
segment = true
[[processes]]
on = "web"
run = "nginx"
files = { "/5k" = "5KiB" }
[[processes]]
on = ["client", "router"]
name = "look"
command = ["curl", "http://{web}/5k"]
ready = "http://web:81/x"
ready_timeout = "2s"
flood = "truncate"
"#;

#[test]
fn a_whole_file_leaves_nothing_undecided() {
    let plan = parse("f", WHOLE).unwrap();
    let names: Vec<&str> = plan.hosts.iter().map(|host| host.name.as_str()).collect();
    assert_eq!(names, ["client1", "client2", "router", "web"]);
    assert_eq!(plan.hosts[1].cpus.as_deref(), Some(&[0, 2, 3][..]));
    let settings = plan.hosts[2].sysctls.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let expected = [
        ("net.ipv4.tcp_congestion_control", "bbr"),
        ("net.ipv4.tcp_rmem", "4096 131072 64000000"),
        ("net.ipv4.tcp_wmem", "4096 8192 8192"),
    ];
    assert_eq!(settings.collect::<Vec<_>>(), expected);
    assert_eq!(plan.hosts[1].routes[0].via, [IpAddr::from([10, 1, 0, 3])]);
    let [lan, wan, side] = &plan.links[..] else { panic!("{:?}", plan.links) };
    assert_eq!(
        (&lan.kind, lan.network, lan.prefix),
        (&LinkKind::Segment { port_rate_bits_per_s: None }, IpAddr::from([10, 1, 0, 0]), 16)
    );
    let LinkKind::Emulated(spec) = &wan.kind else { panic!("{:?}", wan.kind) };
    assert_eq!(
        (spec.a_to_b.rate_bits_per_s, spec.b_to_a.rate_bits_per_s),
        (Some(20_000_000), Some(1_000_000_000))
    );
    assert_eq!(spec.round_trip_ns(), 100_000_000);
    // The automatic addresses skip the one that is given to web.
    assert_eq!(wan.ends[0].address, IpAddr::from([192, 168, 16, 2]));
    assert_eq!((wan.ends[0].device.as_str(), side.ends[0].device.as_str()), ("eth1", "eth1"));
    assert_eq!(side.network, IpAddr::from([10, 3, 0, 0]));
    let [nginx, look, ..] = &plan.processes[..] else { panic!("{:?}", plan.processes) };
    let Program::Known(Known { kind: KnownKind::Nginx(own), .. }) = &nginx.program else {
        panic!("{nginx:?}")
    };
    assert_eq!(own.files, [("/5k".to_owned(), 5_120)]);
    assert_eq!((nginx.name.as_str(), &nginx.ready), ("web-nginx", &Some(Ready::Tcp(None, 80))));
    let http = Ready::Http { address: Some(IpAddr::from([192, 168, 16, 1])), port: 81, path: "/x".into() };
    assert_eq!((look.name.as_str(), look.ready.as_ref()), ("client1-look", Some(&http)));
    assert_eq!((look.ready_timeout, look.flood, look.stage), (Duration::from_secs(2), Flood::Truncate, 1));
    assert_eq!(plan.processes.len(), 4);
}

#[test]
fn a_lab_may_have_networks_of_both_ip_versions() {
    let text = |to: &str, via: &str| {
        format!(
            "[hosts]\na = {{ loopback = [\"fd00:9::1\"], routes = [{{ to = {to:?}, via = {via:?} }}] }}\n\
             b = {{ count = 2 }}\n[[links]]\nbetween = [\"a\", \"b\"]\n[[links]]\nbetween = [\"a\", \"b\"]\n\
             network = \"fd00:1::/64\"\naddresses = {{ b = \"fd00:1::ff\" }}\n"
        )
    };
    let plan = parse("f", &text("fd00:2::/64", "b1")).unwrap();
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    let ends: Vec<IpAddr> = plan.links[1].ends.iter().map(|end| end.address).collect();
    assert_eq!(ends, ["fd00:1::1", "fd00:1::ff", "fd00:1::100"].map(address));
    // Of the gateway's addresses, the route uses the one with the route's IP version.
    assert_eq!(plan.hosts[0].routes[0].via, [address("fd00:1::ff")]);
    assert_eq!(parse("f", &text("10.9.0.0/16", "b1")).unwrap().hosts[0].routes[0].via, [address("10.1.0.2")]);
    let default = parse("f", &text("default", "fd00:1::ff")).unwrap().hosts[0].routes.remove(0);
    assert_eq!((default.to, default.prefix), (address("::"), 0));
    assert_eq!((plan.address_of(1), plan.has_ipv6(0)), (Some(address("10.1.0.2")), true));
    for (to, via, part) in [
        ("10.9.0.0/16", "fd00:1::ff", "of different IP versions"),
        ("fd00:2::/64", "fd00:3::1", "has no link whose network contains"),
        ("fd00:2::1/64", "b1", "the network is fd00:2::/64"),
    ] {
        let mistakes = parse("f", &text(to, via)).unwrap_err();
        assert!(mistakes[0].message.contains(part), "{mistakes:?}");
    }
}

#[test]
fn a_route_may_have_several_gateways() {
    let routes = |via: &str| {
        let text = format!(
            "[hosts]\na = {{ routes = [{{ to = \"192.168.16.100/32\", via = {via} }}] }}\nb = {{ count = 3 }}\n\
             [[links]]\nbetween = [\"a\", \"b\"]\n"
        );
        parse("f", &text).map(|mut plan| plan.hosts.swap_remove(0).routes)
    };
    let by_group = routes("\"b\"").unwrap();
    assert_eq!(by_group[0].to_string(), "192.168.16.100/32 via 10.1.0.2, 10.1.0.3, 10.1.0.4");
    assert_eq!(routes("[\"b1\", \"b2\", \"10.1.0.4\"]"), Ok(by_group));
    for (via, part) in [
        ("[]", "at least one gateway"),
        ("[\"b\", \"b2\"]", "named twice"),
        ("[\"b1\", \"c\"]", "there is no host 'c'"),
        ("\"a\"", "a has no link to 'a'"),
    ] {
        let mistakes = routes(via).unwrap_err();
        assert!(mistakes.len() == 1 && mistakes[0].message.contains(part), "{mistakes:?}");
    }
}

#[test]
fn the_same_file_gives_the_same_plan() {
    assert_eq!(parse("f", WHOLE), parse("f", WHOLE));
}

#[test]
fn a_segment_supports_only_a_rate() {
    let kind = |settings: &str| {
        let text = format!("[hosts]\nh = {{ count = 3 }}\n[[links]]\nbetween = [\"h\"]\n{settings}");
        parse("f", &text).map(|mut plan| plan.links.remove(0).kind)
    };
    let segment = |port_rate_bits_per_s| Ok(LinkKind::Segment { port_rate_bits_per_s });
    assert_eq!(kind("rate = \"10gbit\""), segment(Some(10_000_000_000)));
    assert_eq!(kind("rate = \"100mbit\"\nlayer = \"frame\""), segment(Some(100_000_000)));
    assert_eq!(kind("rate = \"unlimited\""), segment(None));
    let mistakes =
        kind("rate = \"1gbit\"\nlayer = \"wire\"\ndelay = \"1ms\"\nseed = 1\nb_to_a = {}").unwrap_err();
    let messages: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
    for (line, part) in [(6, "counts Ethernet frames"), (7, "'delay'"), (8, "'seed'"), (9, "'b_to_a'")] {
        assert!(
            messages.iter().any(|t| t.starts_with(&format!("f:{line}:")) && t.contains(part)),
            "{messages:?}"
        );
    }
    assert_eq!(messages.len(), 4, "{messages:?}");
}

#[test]
fn what_netem_cannot_do_is_reported_at_the_driver() {
    let text = "[hosts]\na = {}\nb = {}\n[[links]]\nbetween = [\"a\", \"b\"]\ndriver = \"netem\"\n";
    assert!(parse("f", &format!("{text}delay = \"1ms\"\njitter = \"uniform:0ms..1ms\"\n")).is_ok());
    let mistakes = parse("f", &format!("{text}reorder = \"1%,2ms\"\nlayer = \"ip\"\n")).unwrap_err();
    let positions: Vec<(usize, usize)> =
        mistakes.iter().map(|mistake| (mistake.line, mistake.column)).collect();
    assert_eq!(positions, [(6, 10), (6, 10)], "{mistakes:?}");
}

#[test]
fn an_unknown_host_is_reported_once() {
    let messages = |between: &str| {
        let text = format!("[hosts]\nweb = {{}}\n[[links]]\nbetween = {between}\n");
        let mistakes = parse("f", &text).unwrap_err();
        mistakes.into_iter().map(|mistake| mistake.message).collect::<Vec<_>>()
    };
    assert_eq!(messages("[\"web\", \"foo\"]"), ["there is no host 'foo'"]);
    assert_eq!(messages("[\"web\"]"), ["a link joins at least two hosts"]);
    assert_eq!(messages("[]"), ["a link joins at least two hosts"]);
}

#[test]
fn a_placeholder_in_a_command_must_be_a_host() {
    let messages = |word: &str| {
        let text = format!(
            "[hosts]\nweb = {{}}\nclient = {{ count = 2 }}\n[[links]]\nbetween = [\"web\", \"client\"]\n\
             [[processes]]\non = \"web\"\ncommand = [\"echo\", '{word}']\n"
        );
        let mistakes = parse("f", &text).err().unwrap_or_default();
        mistakes.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for sound in ["{web} {client2} {self}", "${HOME}", "{{print}}", "{ print; }", "{\"a\": 1}", "{}"] {
        assert_eq!(messages(sound), [""; 0], "{sound}");
    }
    let mistakes = messages("http://{nohost}/");
    assert!(mistakes[0].starts_with("f:8:20: there is no host 'nohost'"), "{mistakes:?}");
    assert!(messages("{client}")[0].contains("'client' names several hosts"));
}

#[test]
fn networks_run_out_without_a_panic() {
    let links = |count| {
        let link = "[[links]]\nbetween = [\"a\", \"b\"]\n".repeat(count);
        parse("f", &format!("[hosts]\na = {{}}\nb = {{}}\n{link}"))
    };
    assert_eq!(links(255).unwrap().links[254].network, IpAddr::from([10, 255, 0, 0]));
    assert!(links(257).unwrap_err()[0].message.contains("no automatic network is left"));
}

#[test]
fn columns_count_characters() {
    let mistakes = parse("f", "title = \"ä\"\n[hosts]\na = { forward = \"ü\", x = 1 }\n").unwrap_err();
    let messages: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
    assert!(messages[0].starts_with("f:3:17: expected true or false, found text"), "{messages:?}");
    assert!(messages[1].starts_with("f:3:22: unknown key 'x'"), "{messages:?}");
}

#[test]
fn private_folders_are_refused_with_their_places() {
    let text = "[hosts]\na = { count = 2, private = [\"/tmp\", \"/run/\"] }\nb = { private = [\"tmp\",\n\"/proc\", 7,\n\"/tmp\", \
                \"/tmp\"] }\nc = { private = \"/tmp\" }\n";
    let mistakes: Vec<String> = parse("f", text).unwrap_err().iter().map(ToString::to_string).collect();
    let expected = [
        ("f:3:18:", "absolute path"),
        ("f:4:1:", "kernel"),
        ("f:4:10:", "a folder in quotes"),
        ("f:5:9:", "named twice"),
        ("f:6:17:", "a list of folders"),
    ];
    for (mistake, (place, part)) in mistakes.iter().zip(expected) {
        assert!(mistake.starts_with(place) && mistake.contains(part), "{mistakes:?}");
    }
    assert_eq!(mistakes.len(), expected.len(), "{mistakes:?}");
    let plan = parse("f", "[hosts]\na = { count = 2, private = [\"/tmp\", \"/run/\"] }\nb = {}\n").unwrap();
    let folders: Vec<_> = plan.hosts.iter().map(|host| host.private.len()).collect();
    assert_eq!(folders, [2, 2, 0]);
}

#[test]
fn a_thousand_hosts_have_a_thousand_addresses() {
    let plan = parse("f", "[hosts]\nh = { count = 1000 }\n[[links]]\nbetween = [\"h\"]\n").unwrap();
    assert_eq!(plan.address_of(999), Some(IpAddr::from([10, 1, 3, 232])));
    assert!(parse("f", "[hosts]\nh = { count = 1001 }\n").is_err());
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,200}") {
        let _ = parse("f", &text);
    }

    #[test]
    fn no_change_of_a_sound_file_panics(at in 0..WHOLE.len(), byte in "[ -~\n]") {
        let changed = format!("{}{byte}{}", &WHOLE[..at], &WHOLE[at + 1..]);
        if let Err(mistakes) = parse("f", &changed) {
            let lines = changed.matches('\n').count() + 1;
            prop_assert!(mistakes.iter().all(|mistake| (1..=lines).contains(&mistake.line)));
        }
    }
}
