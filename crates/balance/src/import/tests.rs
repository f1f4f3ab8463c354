use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn import(text: &str) -> Result<Config, Vec<String>> {
    let read = Config::import_ipvsadm("lvs", text, "eth0");
    read.map_err(|wrong| wrong.iter().map(ToString::to_string).collect())
}

/// Output of `ipvsadm-save -n`.
const SAVED: &str = "\
-A -t 192.168.16.100:80 -s wrr
-a -t 192.168.16.100:80 -r 172.16.0.101:80 -g -w 1
-a -t 192.168.16.100:80 -r 172.16.0.102:80 -g -w 3
-A -t 192.168.16.100:0 -s rr -p 360
-a -t 192.168.16.100:0 -r 172.16.0.101:0 -g -w 7
-A -t [fd00::100]:443 -s mh -b mh-fallback,mh-port
-a -t [fd00::100]:443 -r [fd00::1]:443 -g -w 0
";

#[test]
fn what_is_saved_is_read() {
    let config = import(SAVED).unwrap();
    let [first, all, v6] = &config.vips[..] else { panic!("{config:?}") };
    assert_eq!(
        (first.name().as_str(), first.schedule, first.persistence),
        ("192.168.16.100:80", Schedule::RoundRobin, Persistence::Off)
    );
    let weights: Vec<(String, u32)> =
        first.servers.iter().map(|server| (server.name.clone(), server.weight)).collect();
    assert_eq!(weights, [("172.16.0.101".to_owned(), 1), ("172.16.0.102".to_owned(), 3)]);
    assert_eq!(
        (all.persistence, all.check.kind.clone()),
        (Persistence::For(Duration::from_secs(360)), CheckKind::None)
    );
    assert_eq!(all.servers[0].weight, 1, "rr counts no weights");
    assert_eq!((v6.schedule, v6.persistence, v6.servers[0].weight), (Schedule::Ring, Persistence::Off, 0));
    assert_eq!(config.device, "eth0");
}

#[test]
fn what_is_typed_is_read() {
    let config = import(
        "# our balancer
         ipvsadm -C
         /sbin/ipvsadm --add-service --tcp-service=10.0.0.1:80 --scheduler sh
         sudo ipvsadm -at 10.0.0.1:80 -r10.0.0.11 -gw 2 \\
             -x 35000 -y 30000   # the large one
         ipvsadm -a -t 10.0.0.1:80 -r 10.0.0.12:80 --u-threshold 100 --l-threshold 0

         ipvsadm -a -t 10.0.0.1:80 -r 10.0.0.13
         ipvsadm -e -t 10.0.0.1:80 -r 10.0.0.12 -w 5
         ipvsadm -d -t 10.0.0.1:80 -r 10.0.0.13
         ipvsadm -E -t 10.0.0.1:80 -s wrr -p
         ipvsadm -A -t 10.0.0.2:80 -s rr
         ipvsadm -D -t 10.0.0.2:80
        ",
    );
    let config = config.unwrap();
    let [vip] = &config.vips[..] else { panic!("{config:?}") };
    assert_eq!(
        (vip.schedule, vip.persistence),
        (Schedule::RoundRobin, Persistence::For(Duration::from_secs(300)))
    );
    let [large, changed] = &vip.servers[..] else { panic!("{vip:?}") };
    assert_eq!(
        (large.weight, large.max_connections, large.resume_connections),
        (2, Some(35_000), Some(30_000))
    );
    assert_eq!((changed.weight, changed.max_connections), (5, None));
}

#[test]
fn all_that_cannot_be_done_is_refused_at_once() {
    let wrong = import(
        "-A -u 10.0.0.1:53 -s rr
-A -t 10.0.0.1:80 -s wlc
-a -t 10.0.0.1:80 -r 10.0.0.11:8080 -m
-A -t 10.0.0.1:81
-A -t 10.0.0.1:82 -s rr -M 255.255.255.0 -o
-a -t 10.0.0.1:82 -r 10.0.0.11:8080
-a -t 10.0.0.1:99 -r 10.0.0.11:99
-A -t www:http -s rr
-A -f 7 -s rr
-L -n
--set 900 120 300
-A -t 10.0.0.1:83 -s rr -Q
-A -t 10.0.0.1:84 -s rr -p soon
-a -t 10.0.0.1:84 -r 10.0.0.11 -w 70000 -i
",
    );
    let parts = [
        "lvs:1:7: only TCP is supported",
        "lvs:2:22: the scheduler wlc is not known to this balancer; it cannot choose by the number of connections: the nearest is wrr",
        "lvs:3:22: the server's port differs from that of 10.0.0.1:80",
        "lvs:3:37: addresses are not rewritten",
        "lvs:4:1: -s is missing",
        "lvs:5:28: persistence applies to single addresses",
        "lvs:5:42: --ops (one-packet scheduling)",
        "lvs:6:22: the server's port differs",
        "lvs:7:1: 10.0.0.1:99 is not added",
        "lvs:8:7: 'www:http' is not a service such as 192.168.16.100:80 or [fd00::100]:80: write numbers, as ipvsadm-save -n does",
        "lvs:9:7: firewall marks",
        "lvs:10:1: '-L' adds no service or server: leave this line out, or import",
        "lvs:11:1: --set adds no service or server: set idle_timeout",
        "lvs:12:25: -Q is not an option",
        "lvs:13:28: 'soon' is not a time in seconds",
        "lvs:14:35: the weight 70000 is above",
        "lvs:14:41: packets are not sent through tunnels",
    ];
    let wrong = wrong.unwrap_err();
    assert_eq!(wrong.len(), parts.len(), "{wrong:#?}");
    for (wrong, part) in wrong.iter().zip(parts) {
        assert!(wrong.starts_with(part), "{wrong}\n{part}");
    }
    let port = import("-A -t 10.0.0.1:80 -s rr\n-a -t 10.0.0.1:80 -r 10.0.0.11:8080").unwrap_err();
    assert!(port[0].starts_with("lvs:2:22: the server's port differs from that of 10.0.0.1:80"), "{port:?}");
    assert!(import("# nothing\n").unwrap_err()[0].contains("there is no VIP"));
    let most = import("-A -t 10.0.0.1:80 -s rr\n-a -t 10.0.0.1:80 -r 10.0.0.11 -x 5 -y 9").unwrap_err();
    assert!(most[0].contains("resume_connections (9)"), "{most:?}");
}

proptest! {
    #[test]
    fn no_text_is_a_danger(text in "([-a-zA-Z0-9:.\\[\\]#= \\\\]{0,30}\n?){0,8}") {
        drop(import(&text));
    }

    #[test]
    fn words_in_any_order_are_no_danger(words in proptest::collection::vec(
        prop::sample::select(vec![
            "-A", "-a", "-E", "-e", "-D", "-d", "-C", "-t", "10.0.0.1:80", "[::1]:80", "-s", "rr", "mh", "-p", "300", "-r", "10.0.0.9",
            "-w", "1", "-x", "-y", "-g", "-m", "-b", "mh-port", "--weight=3", "\n", "ipvsadm", "-M", "\\\n", "é", "-",
        ]), 0..40,
    )) {
        drop(import(&words.join(" ")));
    }

    /// An imported configuration stays unchanged when it is written to a file and read again.
    #[test]
    fn an_import_is_a_configuration(services in proptest::collection::vec(
        (0_u16..3, prop::sample::select(vec!["rr", "wrr", "sh", "mh", "mh -b mh-port", "rr -p", "wrr -p 60"]),
         proptest::collection::vec((0_u32..100, proptest::option::of(4_u32..100_000)), 1..6), any::<bool>()),
        1..6,
    )) {
        let mut text = String::new();
        for (at, (port, schedule, servers, is_v6)) in services.iter().enumerate() {
            let vip = if *is_v6 { format!("[fd00::{at}:100]:{port}") } else { format!("10.0.{at}.100:{port}") };
            text += &format!("ipvsadm -A -t {vip} -s {schedule}\n");
            for (number, (weight, most)) in servers.iter().enumerate() {
                let server = if *is_v6 { format!("[fd00::{number}:1]") } else { format!("10.1.0.{number}") };
                let most = most.map_or(String::new(), |most| format!(" -x {most} -y {}", most / 2));
                text += &format!("ipvsadm -a -t {vip} -r {server} -w {weight}{most}\n");
            }
        }
        let config = import(&text).unwrap();
        let written = config.text();
        prop_assert_eq!(&Config::read("file", &written).unwrap(), &config, "{}", written);
    }
}
