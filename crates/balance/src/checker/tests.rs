//! Probes of real servers: nginx in network namespaces behind a switch.

use std::{
    fs,
    process::{Child, Command},
    sync::mpsc::Receiver,
};

use testing::{PATIENCE, until};

use super::*;
use crate::{Check, CheckKind, alone, probe::Fault, wire::announce};

const V4: [u8; 4] = [10, 0, 0, 100];
const V6: [u16; 8] = [0xfd00, 0, 0, 0, 0, 0, 0, 0x100];

/// A switch with the balancer, a server that has the VIPs, and a server that has lost them. Duplicate address detection
/// is off.
const NETWORK: &str = "set -e
ip link set lo up
quiet='sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0 net.ipv4.ip_forward=0 \
net.ipv4.conf.all.accept_local=0'
$quiet
ip netns add switch
ip -n switch link add bridge type bridge
ip -n switch link set bridge up
attach() { # namespace, name at the switch, address of the device, last part of the addresses
    ip -n switch link add $2 type veth peer name eth0 address $3 netns $1
    ip -n switch link set $2 master bridge up
}
ip netns attach own $$
attach own own 02:00:00:00:00:01
ip address add 10.0.0.1/24 dev eth0; ip address add fd00::1/64 dev eth0 nodad; ip link set eth0 up
ip address add 10.0.0.100/32 dev eth0; ip address add fd00::100/128 dev eth0 nodad
for at in 1 2; do
    web=web$at
    ip netns add $web
    ip netns exec $web $quiet net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2
    ip -n $web link set lo up
    attach $web $web 02:00:00:00:00:1$at
    ip -n $web address add 10.0.0.1$at/24 dev eth0; ip -n $web address add fd00::1$at/64 dev eth0 nodad
    ip -n $web link set eth0 up
done
ip -n web1 address add 10.0.0.100/32 dev lo; ip -n web1 address add fd00::100/128 dev lo nodad
";

const NGINX: &str = "daemon off; master_process off; pid NAME.pid; error_log /dev/null;
events {} http { access_log NAME.log; client_body_temp_path t; proxy_temp_path t; fastcgi_temp_path t; uwsgi_temp_path t;
scgi_temp_path t; server { listen 80; listen [::]:80; location /two { return 200 BIG; } location /broken { return 503; } location / { return 200; } } }";

#[test]
fn as_root_servers_are_probed_through_the_vip() {
    alone::run("checker::tests::as_root_servers_are_probed_through_the_vip", in_namespaces_of_its_own);
}

fn in_namespaces_of_its_own() {
    fs::create_dir("/run/t").unwrap();
    shell(NETWORK);
    let mut nginx = [start_nginx("web1"), start_nginx("web2")];
    let device = Device::find("eth0").unwrap();
    assert_eq!((device.mac, device.addresses.len()), ([2, 0, 0, 0, 0, 1], 5), "{device:?}");
    announced(&device);
    // The server that has lost the VIP forwards packets to the server that has it.
    shell(
        "ip netns exec web2 sysctl -qw net.ipv4.ip_forward=1; ip -n web2 route add 10.0.0.100 via 10.0.0.11",
    );

    let (sender, events) = mpsc::channel();
    let checker = Checker::start(&device, sender).unwrap();
    let (v4, v6) = (IpAddr::from(V4), IpAddr::from(V6));
    let (web1, web1_v6, web2) = ([10, 0, 0, 11].into(), "fd00::11".parse().unwrap(), [10, 0, 0, 12].into());
    // A server that answers or refuses may be slow, so its timeout is long. For a silent server, a short one is enough.
    let (patient, brief) = (Duration::from_secs(60), Duration::from_millis(300));
    let tcp = Check { interval: Duration::from_millis(200), timeout: patient, rise: 3, ..Check::default() };
    let http = |path: &str| {
        let kind = CheckKind::Http { tls: false, path: path.to_owned(), host: None, status: 200..=399 };
        Check { kind, ..tcp.clone() }
    };
    let target = |id, vip, server, check: Check, is_up| Target {
        id,
        vip,
        port: 80,
        server,
        check,
        health: if is_up { Ok(()) } else { Err(Fault::unknown("not checked", true)) },
    };
    let mut targets = vec![
        target(1, v4, web1, tcp.clone(), false),
        target(2, v4, web1, http("/two"), false),
        target(5, v4, web1, http("/broken"), true),
        // The server answers at its own address but does not have the VIP.
        target(6, v4, web2, Check { timeout: brief, ..tcp.clone() }, true),
        target(7, v4, web2, Check { kind: CheckKind::None, ..tcp.clone() }, true),
    ];
    checker.set_targets(targets.clone());
    assert_eq!(get("10.0.0.12"), 200);
    let (macs, up, down) = collect(&events, 2, 2, 2);
    let mac = |last| Some([2, 0, 0, 0, 0, last]);
    assert_eq!((macs, up), (vec![(web1, mac(0x11)), (web2, mac(0x12))], vec![1, 2]));
    let broken = (5, Fault::answered("answers with status 503 on port 80; 200 to 399 are good".to_owned()));
    let lost = (6, Fault::silent("does not answer a SYN to port 80 within 300 ms"));
    assert_eq!(down, [broken, lost]);
    // The kernel drops packets whose source is one of its own addresses, so it does not reset the connections of
    // probes.
    let snmp = kernel::read("/proc/net/snmp").unwrap();
    assert_eq!(kernel::protocol_number(&snmp, "Tcp", "OutRsts"), Some(0), "{snmp}");

    // With IPv6, the kernel does send resets, but only to itself, and the server has already received the request.
    targets.push(target(3, v6, web1_v6, tcp.clone(), false));
    targets.push(target(4, v6, web1_v6, http("/four"), false));
    checker.set_targets(targets.clone());
    let (macs, up, _) = collect(&events, 1, 2, 0);
    assert_eq!((macs, up), (vec![(web1_v6, mac(0x11))], vec![3, 4]));

    nginx[0].kill().unwrap();
    nginx[0].wait().unwrap();
    let why = Fault::answered("refuses connections to port 80".to_owned());
    await_faults(&events, &[1, 2, 3, 4, 5], |fault| *fault == why);
    let before = requests("/two");
    nginx[0] = start_nginx("web1");
    let (_, up, _) = collect(&events, 0, 4, 0);
    assert_eq!(up, [1, 2, 3, 4]);
    // The server logs a request shortly after it has sent the answer.
    until("as many answers were good as it takes", || requests("/two") - before >= 3);

    // The checks of a server that loses the VIP fail, and so do those of a removed server.
    let mut expect_silence_of = |ids: &[u64]| {
        targets.iter_mut().filter(|own| ids.contains(&own.id)).for_each(|own| own.check.timeout = brief);
        checker.set_targets(targets.clone());
    };
    shell("ip -n web1 address del 10.0.0.100/32 dev lo");
    expect_silence_of(&[1, 2, 5]);
    await_faults(&events, &[1, 2, 5], |fault| fault.is_silent);
    shell("ip -n web1 link set eth0 down");
    expect_silence_of(&[3, 4]);
    await_faults(&events, &[3, 4], |fault| fault.is_silent);
    drop(checker);
    let is_up = |event| matches!(event, Event::Health { health: Ok(()), .. });
    assert!(!events.iter().any(is_up), "nothing comes after the end");
    for mut nginx in nginx {
        nginx.kill().unwrap();
        nginx.wait().unwrap();
    }
}

/// Neighbours with a wrong entry for the VIPs learn the MAC address of our device.
fn announced(device: &Device) {
    let wrong = "lladdr 02:00:00:00:00:99 nud stale dev eth0";
    shell(&format!(
        "ip -n web2 neigh replace 10.0.0.100 {wrong}; ip -n web2 neigh replace fd00::100 {wrong}"
    ));
    for vip in [IpAddr::from(V4), IpAddr::from(V6)] {
        announce(device, vip).unwrap();
        until("neighbours learn the device", || {
            shell(&format!("ip -n web2 neigh show {vip} dev eth0")).contains("02:00:00:00:00:01")
        });
    }
}

/// MAC addresses by server, targets that came up, and targets that went down with the reasons.
type Collected = (Vec<(IpAddr, Option<crate::Mac>)>, Vec<u64>, Vec<(u64, Fault)>);

/// Waits until `macs` servers have a MAC address, `up` targets have come up and `down` have gone down.
fn collect(events: &Receiver<Event>, macs: usize, up: usize, down: usize) -> Collected {
    let mut all = (Vec::new(), Vec::new(), Vec::new());
    while all.0.len() < macs || all.1.len() < up || all.2.len() < down {
        let event = events.recv_timeout(PATIENCE);
        match event.unwrap_or_else(|_| panic!("no event, after {all:?}")) {
            Event::Mac { server, mac } => all.0.push((server, mac)),
            Event::Health { id, health: Ok(()) } => all.1.push(id),
            Event::Health { id, health: Err(fault) } => all.2.push((id, fault)),
        }
    }
    all.0.sort();
    all.1.sort();
    all.2.sort_by_key(|(id, _)| *id);
    all
}

/// Waits until each of these targets has had a fault for which `is_such` holds.
fn await_faults(events: &Receiver<Event>, ids: &[u64], is_such: impl Fn(&Fault) -> bool) {
    let mut missing = ids.to_vec();
    while !missing.is_empty() {
        let event = events.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("nothing of {missing:?}"));
        if let Event::Health { id, health: Err(fault) } = event
            && is_such(&fault)
        {
            missing.retain(|other| *other != id);
        }
    }
}

fn start_nginx(name: &str) -> Child {
    fs::write(
        format!("/run/{name}.conf"),
        NGINX.replace("NAME", &format!("/run/{name}")).replace("BIG", &"x".repeat(3_500)),
    )
    .unwrap();
    let file = format!("/run/{name}.conf");
    // `ip netns exec` executes nginx in its own process, so the child is nginx.
    let words = ["netns", "exec", name, "nginx", "-p", "/run", "-c", &file];
    let child = Command::new("ip").args(words).spawn().unwrap();
    until("nginx listens", || {
        shell(&format!("ip netns exec {name} cat /proc/net/tcp")).contains(":0050 00000000:0000 0A")
    });
    child
}

fn get(host: &str) -> u16 {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect((host, 80)).unwrap();
    write!(stream, "GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.split(' ').nth(1).unwrap().parse().unwrap()
}

fn requests(path: &str) -> usize {
    fs::read_to_string("/run/web1.log").unwrap().matches(&format!("GET {path} HTTP/1.1\" 200")).count()
}

fn shell(script: &str) -> String {
    let done = Command::new("sh").args(["-c", script]).output().unwrap();
    assert!(done.status.success(), "{script}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}
