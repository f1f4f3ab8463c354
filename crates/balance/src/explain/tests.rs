use std::process::Command;

use kernel::netlink::Link;

use super::{
    facts::{DeviceFacts, OwnAddress},
    *,
};
use crate::alone;

fn own(interface: &str, address: &str, prefix: u8) -> OwnAddress {
    OwnAddress { interface: interface.to_owned(), address: address.parse().unwrap(), prefix }
}

fn config(more: &str) -> Config {
    let text = format!(
        "device = \"eth0\"\n{more}\n[[vips]]\naddress = \"10.0.0.100\"\nport = 80\n[[vips.servers]]\naddress = \"10.0.0.11\"\n\
         [[vips.servers]]\naddress = \"10.9.0.1\"\n"
    );
    Config::read("file", &text).unwrap()
}

fn facts() -> BalancerFacts {
    let link = Link {
        index: 2,
        name: "eth0".to_owned(),
        mac: Some([2, 0, 0, 0, 0, 1]),
        mtu: 1_500,
        is_up: true,
        has_carrier: true,
        kind: None,
        xdp: None,
    };
    BalancerFacts {
        kernel: (6, 12, 48),
        lacking_rights: Vec::new(),
        has_bpf_file_system: true,
        may_pin: true,
        may_mount: true,
        devices: vec!["eth0".to_owned()],
        link: Some(link),
        driver: Some("ixgbe".to_owned()),
        programs: Vec::new(),
        is_running: false,
        addresses: vec![own("lo", "127.0.0.1", 8), own("eth0", "10.0.0.1", 24)],
        servers: [("10.0.0.11", Some([2, 0, 0, 0, 0, 0x11]))]
            .map(|(server, mac)| (server.parse().unwrap(), mac))
            .into(),
        rivals: std::collections::BTreeMap::new(),
        arp_ignore: 0,
        log_martians: false,
        forwards: false,
        sends_redirects: true,
    }
}

/// All findings except good ones.
fn wrong(findings: &[Finding]) -> Vec<String> {
    findings.iter().filter(|finding| finding.verdict != Verdict::Good).map(ToString::to_string).collect()
}

#[test]
fn a_good_balancer_lacks_nothing() {
    let findings = of_balancer(&config(""), &facts());
    assert_eq!(wrong(&findings), Vec::<String>::new());
    let text: Vec<String> = findings.iter().map(ToString::to_string).collect();
    for line in [
        "ok       eth0 is hardware with the driver ixgbe",
        "ok       frames are seen at the hook xdp, because it is hardware; cls if its driver refuses",
        "ok       servers are probed and looked up from 10.0.0.1",
        "ok       the server 10.0.0.11 has the MAC address 02:00:00:00:00:11 on eth0",
    ] {
        assert!(text.iter().any(|own| own == line), "{line}\n{text:#?}");
    }
}

#[test]
fn each_fact_that_is_missing_is_named() {
    type Spoil = fn(&mut BalancerFacts);
    fn link(facts: &mut BalancerFacts) -> &mut Link {
        facts.link.as_mut().unwrap()
    }
    let cases: [(&str, Spoil, &str); 23] = [
        ("", |facts| facts.kernel = (5, 10, 0), "missing  Linux 5.10.0: the program needs 5.15 or later"),
        (
            "",
            |facts| facts.lacking_rights = vec!["CAP_BPF"],
            "missing  this user lacks CAP_BPF: run this as root, or give this user these capabilities",
        ),
        ("", |facts| facts.has_bpf_file_system = false, "note     no BPF file system is at /sys/fs/bpf"),
        ("", |facts| facts.link = None, "missing  there is no device eth0: there are eth0"),
        ("", |facts| link(facts).is_up = false, "missing  eth0 is set down: ip link set eth0 up"),
        ("", |facts| link(facts).has_carrier = false, "missing  eth0 has no carrier"),
        ("", |facts| link(facts).mac = None, "missing  eth0 is hardware"),
        (
            "hook = \"xdp\"",
            |facts| link(facts).kind = Some("veth".to_owned()),
            "note     XDP on veth sends frames back only if",
        ),
        (
            "hook = \"xdp\"",
            |facts| link(facts).kind = Some("bridge".to_owned()),
            "note     XDP on a device of the kind bridge",
        ),
        (
            "hook = \"xdp\"",
            |facts| link(facts).mtu = 9_000,
            "missing  the MTU of eth0 is 9000: ip link set eth0 mtu 3498",
        ),
        (
            "",
            |facts| link(facts).mtu = 9_000,
            "note     the MTU of eth0 is 9000: cls is used instead; for xdp",
        ),
        (
            "hook = \"xdp\"",
            |facts| link(facts).xdp = Some(7),
            "missing  another XDP program is attached to eth0",
        ),
        ("", |facts| facts.may_pin = false, "missing  this user may not write to /sys/fs/bpf"),
        (
            "",
            |facts| (facts.has_bpf_file_system, facts.may_mount) = (false, false),
            "missing  no BPF file system is at /sys/fs/bpf, and this user may not mount one: run this as root",
        ),
        (
            "",
            |facts| facts.programs = vec!["l2dsr".to_owned(), "tap".to_owned()],
            "note     other programs are attached to eth0: tap",
        ),
        ("", |facts| drop(facts.addresses.pop()), "missing  eth0 has no IPv4 address of its own"),
        (
            "",
            |facts| facts.addresses.push(own("lo", "10.0.0.100", 32)),
            "missing  10.0.0.100 is an address of lo",
        ),
        (
            "",
            |facts| facts.rivals = [("10.0.0.100".parse().unwrap(), [2, 0, 0, 0, 0, 9])].into(),
            "missing  another host (02:00:00:00:00:09) answers for 10.0.0.100 on eth0",
        ),
        ("answer_arp = false", |_| (), "note     arp_ignore of eth0 is 0: the balancer sets it to 1"),
        (
            "answer_arp = false",
            |facts| facts.arp_ignore = 3,
            "note     arp_ignore of eth0 is 3: the balancer sets it to 1",
        ),
        ("hook = \"xdp\"", |facts| facts.kernel = (5, 15, 0), "missing  frames are seen at the hook xdp"),
        ("", |facts| facts.forwards = true, "note     this host sends ICMP redirects to clients"),
        (
            "",
            |facts| {
                facts.servers = [("10.0.0.9", None), ("10.9.0.1", None)]
                    .map(|(own, mac)| (own.parse().unwrap(), mac))
                    .into()
            },
            "missing  the server 10.0.0.9 does not answer",
        ),
    ];
    for (more, spoil, line) in cases {
        let mut facts = facts();
        spoil(&mut facts);
        let wrong = wrong(&of_balancer(&config(more), &facts));
        assert!(wrong.first().is_some_and(|first| first.starts_with(line)), "{line}\n{wrong:#?}");
    }
    let oldest = BalancerFacts { kernel: (5, 15, 0), ..facts() };
    let found = of_balancer(&config(""), &oldest).iter().map(ToString::to_string).collect::<String>();
    assert!(found.contains("at the hook cls, because XDP needs Linux 5.18"), "{found}");
    let mut dotted = facts();
    (dotted.forwards, dotted.log_martians) = (true, true);
    dotted.link.as_mut().unwrap().name = "eth0.5".to_owned();
    let of_dotted = Config { device: "eth0.5".to_owned(), ..config("") };
    let found = of_balancer(&of_dotted, &dotted).iter().map(ToString::to_string).collect::<String>();
    for key in ["conf.eth0/5.log_martians", "conf.eth0/5.send_redirects"] {
        assert!(found.contains(key), "{found}");
    }
    let old = BalancerFacts { kernel: (6, 1, 0), ..facts() };
    let text =
        of_balancer(&config("hook = \"cls\""), &old).iter().map(ToString::to_string).collect::<String>();
    assert!(text.contains("by a filter on the clsact qdisc"), "{text}");
}

#[test]
fn ipv6_needs_an_address_of_the_link_alone() {
    let text = "device = \"eth0\"\nhook = \"cls\"\n[[vips]]\naddress = \"fd00::100\"\nport = 80\n\
                [[vips.servers]]\naddress = \"fd00::11\"\n";
    let config = Config::read("file", text).unwrap();
    let (server, vip) = ("fd00::11".parse().unwrap(), "fd00::100".parse().unwrap());
    for (link_local, mac, lines) in [
        (Some(own("eth0", "fe80::7", 64)), Some([2, 0, 0, 0, 0, 9]), &[][..]),
        (
            None,
            None,
            &[
                "missing  eth0 has no link-local address: ip address add fe80::1/64 dev eth0",
                "missing  the server fd00::11 does not answer ARP or neighbour discovery on eth0: asking it takes a link-local address",
            ],
        ),
    ] {
        let mut addresses = vec![own("eth0", "fd00::1", 64), own("lo", "fd00::100", 128)];
        addresses.extend(link_local);
        let with = BalancerFacts { addresses: addresses.clone(), servers: [(server, mac)].into(), ..facts() };
        let wrong = wrong(&of_balancer(&config, &with));
        let says = |line: &&str| wrong.iter().any(|own| own.starts_with(*line));
        assert!(lines.iter().all(says), "{wrong:#?}");
        let of_link = wrong.iter().filter(|own| own.contains("link-local")).count();
        assert_eq!(of_link, lines.len(), "{wrong:#?}");
        let device = DeviceFacts { name: "eth0".to_owned(), arp_ignore: 0, arp_announce: 0, rp_filter: 0 };
        let listeners = vec!["[::]:80".parse().unwrap()];
        let found =
            self::wrong(&of_server(&[vip], &ServerFacts { addresses, devices: vec![device], listeners }));
        assert_eq!(found.len(), lines.len() / 2, "{found:#?}");
    }
}

#[test]
fn a_server_is_judged() {
    let device = |arp_ignore, arp_announce, rp_filter| DeviceFacts {
        name: "eth0".to_owned(),
        arp_ignore,
        arp_announce,
        rp_filter,
    };
    let facts = |address, device| ServerFacts {
        addresses: vec![own("eth0", "10.0.0.11", 24), address],
        devices: vec![device],
        listeners: vec!["0.0.0.0:80".parse().unwrap(), "10.0.0.100:443".parse().unwrap()],
    };
    let vip = ["10.0.0.100".parse().unwrap()];
    let good = of_server(&vip, &facts(own("lo", "10.0.0.100", 32), device(1, 2, 0)));
    assert_eq!(wrong(&good), Vec::<String>::new());
    assert_eq!(good[1].to_string(), "ok       programs listen on 10.0.0.100, ports 80, 443");
    for (address, device, lines) in [
        (
            own("lo", "127.0.0.1", 8),
            device(1, 2, 2),
            &["missing  lo has no 10.0.0.100/32: proofload balance server-setup"][..],
        ),
        (
            own("eth0", "10.0.0.100", 32),
            device(1, 2, 2),
            &["missing  10.0.0.100 is an address of eth0: only the balancer"],
        ),
        (own("lo", "10.0.0.100", 24), device(1, 2, 2), &["missing  lo has 10.0.0.100/24: this host treats"]),
        (
            own("lo", "10.0.0.100", 32),
            device(3, 2, 0),
            &[
                "missing  arp_ignore of eth0 is 3: set net.ipv4.conf.all.arp_ignore=1 and net.ipv4.conf.eth0.arp_ignore=1 ",
            ],
        ),
        (
            own("lo", "10.0.0.100", 32),
            device(8, 0, 1),
            &[
                "missing  arp_ignore of eth0 is 8",
                "missing  arp_announce of eth0 is 0",
                "note     rp_filter of eth0 is 1",
            ],
        ),
    ] {
        let wrong = wrong(&of_server(&vip, &facts(address, device)));
        assert!(
            wrong.len() == lines.len() && wrong.iter().zip(lines).all(|(own, line)| own.starts_with(line)),
            "{wrong:#?}"
        );
    }
    let silent = ServerFacts { listeners: Vec::new(), ..facts(own("lo", "10.0.0.100", 32), device(1, 2, 0)) };
    assert!(wrong(&of_server(&vip, &silent))[0].starts_with("missing  no program listens on 10.0.0.100"));
}

#[test]
fn as_root_a_host_is_explained() {
    alone::run("explain::tests::as_root_a_host_is_explained", in_a_namespace_of_its_own);
}

fn in_a_namespace_of_its_own() {
    let made = "ip link set lo up && ip link add eth0 type veth peer name far && ip link set far up && ip link set eth0 up && \
                ip address add 10.0.0.1/24 dev eth0 && ip neigh add 10.0.0.11 lladdr 02:00:00:00:00:11 dev eth0 && \
                sysctl -qw net.ipv4.conf.all.arp_ignore=0 net.ipv4.conf.all.log_martians=0 net.ipv4.conf.eth0.log_martians=0 net.ipv4.ip_forward=0";
    assert!(Command::new("sh").args(["-c", made]).status().unwrap().success());
    let findings = explain_balancer(&config("")).unwrap();
    let bad: Vec<String> =
        findings.iter().filter(|own| own.verdict == Verdict::Missing).map(ToString::to_string).collect();
    assert!(
        bad.len() == 1 && bad[0].starts_with("missing  the server 10.9.0.1 is in no network of eth0"),
        "{bad:#?}"
    );
    let text: String = findings.iter().map(|finding| format!("{finding}\n")).collect();
    assert!(
        text.contains("ok       eth0 is of the kind veth\n") && text.contains("02:00:00:00:00:11"),
        "{text}"
    );
    let server = explain_server(&["10.0.0.100".parse().unwrap()]).unwrap();
    assert!(wrong(&server)[0].starts_with("missing  lo has no 10.0.0.100/32"), "{server:#?}");
    let listener = std::net::TcpListener::bind("0.0.0.0:8099").unwrap();
    let server = explain_server(&["10.0.0.100".parse().unwrap()]).unwrap();
    assert!(server.iter().any(|own| own.fact == "programs listen on 10.0.0.100, ports 8099"), "{server:#?}");
    drop(listener);
}
