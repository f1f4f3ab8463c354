//! The table `[balancer]`.

use std::net::IpAddr;

use serde_json::{Map, Value as Json};
use settings::{Reader, Value, schema};

use crate::{
    balancer::{Balancer, BalancerKind, Details, Schedule},
    host_names::{HostGroups, HostNames},
    keys::{self, Key, KeyType, key_table},
    plan::Plan,
    program::Haproxy,
};

/// Keys that this table shares with a HAProxy process in a lab file.
const OF_HAPROXY: [&str; 9] =
    ["mode", "check", "check_interval", "retries", "redispatch", "maxconn", "backlog", "reuse", "tls"];
const KINDS: [&str; 4] = ["direct", "l2dsr", "haproxy", "lvs"];
/// Default port that clients connect to with TLS.
const TLS_PORT: u16 = 443;

/// The values given in the table.
struct Given {
    on: Vec<usize>,
    servers: Vec<usize>,
    kind: Option<BalancerKind>,
    vip: Option<IpAddr>,
    port: Option<u16>,
    threads: u32,
    details: Details,
}

const KEYS: &[Key<Given>] = key_table! {
    /// the host between the load and the servers
    "on", KeyType::Other(
        |what| schema::text(what, "balancer"),
        |given, reader, value, names| given.on = names.groups.read_hosts(reader, value),
    );
    /// the balancer: none (direct), proofload balance (l2dsr), HAProxy, or the kernel's IPVS (lvs)
    "run", KeyType::Choice(&KINDS, |given, index| given.kind = Some(BalancerKind::ALL[index]));
    /// the virtual address, which the load goes to
    "vip", KeyType::Other(
        |what| schema::text(what, "192.168.16.100"),
        |given, reader, value, _| given.vip = reader.address(value),
    );
    /// the port that the load goes to; that of the target unless given, or 443 with TLS
    "port", KeyType::Whole(1..65_536, 80, |given, n| given.port = Some(n as u16));
    /// the hosts that it balances over; those of the target unless given
    "servers", KeyType::Other(
        |what| schema::one_or_more(what, "web"),
        |given, reader, value, names| given.servers = names.groups.read_hosts(reader, value),
    );
    /// haproxy: threads, each on a processor of its own; 1 unless given
    "threads", KeyType::Whole(1..65, 1, |given, n| given.threads = n as u32);
    /// haproxy: processes that share the port (SO_REUSEPORT) and the threads' processors; 1 unless given
    "processes", KeyType::Whole(1..65, 1, |given, n| given.details.processes = n as u32);
    /// l2dsr, lvs: how it chooses a server; l2dsr: maglev, lvs: round-robin unless given
    "schedule", KeyType::Choice(&["maglev", "round-robin"], |given, index| {
        given.details.schedule = Some([Schedule::Maglev, Schedule::RoundRobin][index]);
    });
    /// l2dsr, lvs: a server with this many connections gets no new ones
    "max_connections", KeyType::Whole(1..1 << 32, 35_000, |given, n| given.details.max_connections = Some(n));
    /// l2dsr, lvs: connections below which a full server gets new ones again
    "resume_connections", KeyType::Whole(1..1 << 32, 30_000, |given, n| given.details.resume_connections = Some(n));
};

fn haproxy_keys() -> impl Iterator<Item = &'static Key<Haproxy>> {
    Haproxy::keys().iter().filter(|key| OF_HAPROXY.contains(&key.name))
}

/// The schema of the table's keys.
pub fn balancer_schema() -> Map<String, Json> {
    let mut all = keys::schema(KEYS);
    all.extend(keys::schema(haproxy_keys()));
    all
}

/// Reads the table and adds what the balancer needs to the hosts of the plan. `target` are the servers and their port,
/// unless the table names others; `clients` are the hosts that make the load. None if there are mistakes.
pub fn read_balancer(
    reader: &mut Reader<'_>,
    value: &Value<'_>,
    (plan, groups): (&mut Plan, &HostGroups),
    target: Option<(&[usize], u16)>,
    clients: &[usize],
) -> Option<Balancer> {
    let mistakes_before = reader.mistake_count();
    let mut table = reader.table(value, "a table such as { on = \"balancer\", run = \"haproxy\", vip = … }");
    for (key, what) in [
        ("on", "the host between the load and the servers"),
        ("run", "the balancer: direct, l2dsr, haproxy or lvs"),
        ("vip", "the address that the load goes to, such as \"192.168.16.100\""),
    ] {
        table.require(reader, key, what);
    }
    // The published test used these settings of HAProxy, as far as the publication describes them.
    let haproxy =
        Haproxy { pin: true, check: true, redispatch: true, backlog: Some(15_000), ..Haproxy::default() };
    let details = Details {
        server_port: 0,
        later_servers: Vec::new(),
        schedule: None,
        max_connections: None,
        resume_connections: None,
        processes: 1,
        haproxy,
    };
    let mut given =
        Given { on: Vec::new(), servers: Vec::new(), kind: None, vip: None, port: None, threads: 1, details };
    let names = HostNames { plan, groups };
    keys::read(KEYS, &mut given, reader, &mut table, &names);
    keys::read(haproxy_keys(), &mut given.details.haproxy, reader, &mut table, &names);
    let span = table.span();
    table.finish(reader);
    let Given { on, mut servers, kind, vip, port, threads, mut details } = given;
    if let [_, _, ..] = on[..] {
        reader.mistake(span.clone(), "a balancer runs on one host: 'on' names several");
    }
    if servers.is_empty() {
        servers.extend(target.iter().flat_map(|(hosts, _)| hosts.iter()));
    }
    if servers.is_empty() {
        reader.mistake(span.clone(), "'servers' is missing: the hosts that get the requests");
    }
    if reader.mistake_count() > mistakes_before {
        return None;
    }
    let (&host, kind, vip) = (on.first()?, kind?, vip?);
    let most = Haproxy::most_connections(None);
    if kind == BalancerKind::Haproxy && details.haproxy.maxconn.is_some_and(|asked| asked > most) {
        let message = format!(
            "a process of this machine holds {most} connections of clients at most, because each takes two descriptors \
             (ulimit -Hn): give maxconn = {most}, and more processes"
        );
        return reader.refuse(span, message);
    }
    if details
        .resume_connections
        .is_some_and(|resume| details.max_connections.is_none_or(|most| resume > most))
    {
        return reader.refuse(span, "'resume_connections' needs 'max_connections', and must not exceed it");
    }
    details.later_servers.extend(target.iter().flat_map(|(hosts, _)| hosts.iter()));
    details.server_port = target.map_or(80, |(_, port)| port);
    let is_tls = kind == BalancerKind::Haproxy && details.haproxy.tls;
    let port = port.unwrap_or(if is_tls { TLS_PORT } else { details.server_port });
    let threads = if kind == BalancerKind::Haproxy { threads } else { 1 };
    let mut balancer = Balancer { host, kind, vip, port, is_tls, servers, processes: Vec::new(), threads };
    match balancer.apply(plan, clients, &details) {
        Ok(()) => Some(balancer),
        Err(mistake) => reader.refuse(span, mistake),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{KnownKind, Program};

    const HOSTS: &str = "[hosts]\nclient = { count = 2 }\nbalancer = {}\nweb = { count = 3 }\nalone = {}\n\
                         [[links]]\nbetween = [\"client\", \"balancer\", \"web\"]\n";

    /// The plan and its balancer, or the mistakes.
    fn with(keys: &str) -> Result<(Plan, Balancer), Vec<String>> {
        let text = format!("{HOSTS}[balancer]\n{keys}");
        let mut reader = Reader::new("f", &text);
        let document = reader.document(&text);
        let mut table = reader.root(&document);
        let balancer = table.take("balancer").unwrap();
        let (mut plan, groups) = super::super::read_with_groups(&mut reader, &mut table, String::new());
        let read =
            read_balancer(&mut reader, balancer, (&mut plan, &groups), Some((&[3, 4, 5], 80)), &[0, 1]);
        reader
            .finish(())
            .map(|()| (plan, read.unwrap()))
            .map_err(|mistakes| mistakes.iter().map(ToString::to_string).collect())
    }

    fn keys(run: &str) -> String {
        format!("on = \"balancer\"\nrun = \"{run}\"\nvip = \"192.168.16.100\"\n")
    }

    #[test]
    fn a_kind_is_known_by_its_place_among_the_words() {
        assert_eq!(BalancerKind::ALL.map(BalancerKind::name), KINDS);
    }

    #[test]
    fn clients_reach_the_address_by_the_balancer_and_without_one_by_all_servers() {
        let route = |run: &str| with(&keys(run)).unwrap().0.hosts[1].routes[0].to_string();
        assert_eq!(route("direct"), "192.168.16.100/32 via 10.1.0.4, 10.1.0.5, 10.1.0.6");
        for run in ["l2dsr", "haproxy", "lvs"] {
            assert_eq!(route(run), "192.168.16.100/32 via 10.1.0.3");
        }
        let (plan, _) = with(&keys("direct")).unwrap();
        assert_eq!(plan.hosts[0].sysctls["net.ipv4.fib_multipath_hash_policy"], "1");
        assert!(plan.processes.is_empty(), "{:?}", plan.processes);
    }

    #[test]
    fn the_address_is_where_its_packets_end() {
        for (run, at_balancer, at_servers) in
            [("direct", 0, 1), ("l2dsr", 0, 1), ("haproxy", 1, 0), ("lvs", 1, 1)]
        {
            let (plan, _) = with(&keys(run)).unwrap();
            let count = |host: usize| plan.hosts[host].loopback.len();
            assert_eq!(
                (count(2), count(3), count(5), count(0)),
                (at_balancer, at_servers, at_servers, 0),
                "{run}"
            );
        }
    }

    #[test]
    fn haproxy_has_the_published_settings_unless_told_otherwise() {
        let haproxy = |more: &str| {
            let (plan, balancer) = with(&(keys("haproxy") + more)).unwrap();
            let processes: Vec<_> = plan.processes.iter().map(|process| process.name.clone()).collect();
            assert_eq!(processes, balancer.processes);
            match &plan.processes[0].program {
                Program::Known(known) => match &known.kind {
                    KnownKind::Haproxy(proxy) => (proxy.clone(), known.port, processes),
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            }
        };
        let (proxy, port, _) = haproxy("");
        assert!(proxy.check && proxy.redispatch && proxy.pin && !proxy.is_tcp && !proxy.tls, "{proxy:?}");
        assert_eq!(
            (proxy.backlog, proxy.workers, proxy.backends.len(), port),
            (Some(15_000), Some(1), 3, 80)
        );
        let (proxy, port, names) = haproxy("tls = true\nthreads = 2\nprocesses = 2\nredispatch = false\n");
        assert!(proxy.tls && !proxy.redispatch, "{proxy:?}");
        assert_eq!((port, names), (443, vec!["balancer-haproxy".to_owned(), "balancer-haproxy2".to_owned()]));
    }

    #[test]
    fn our_own_balancer_gets_its_configuration() {
        let more = "max_connections = 35_000\nschedule = \"round-robin\"\ncheck = false\n";
        let (plan, _) = with(&(keys("l2dsr") + more)).unwrap();
        let Program::Known(known) = &plan.processes[0].program else { panic!("{:?}", plan.processes) };
        let KnownKind::Balance(program) = &known.kind else { panic!("{known:?}") };
        let text = program.text.as_deref().unwrap();
        let written: toml::Table = toml::from_str(text).unwrap();
        let vip = &written["vips"][0];
        assert_eq!(written["device"].as_str(), Some("eth0"));
        assert_eq!(vip["schedule"].as_str(), Some("round-robin"));
        assert_eq!(vip["check"]["kind"].as_str(), Some("none"));
        assert_eq!(vip["servers"][2]["address"].as_str(), Some("10.1.0.6"));
        assert_eq!(vip["servers"][2]["max_connections"].as_integer(), Some(35_000));
    }

    #[test]
    fn the_kernels_balancer_gets_its_commands() {
        let (plan, balancer) =
            with(&(keys("lvs") + "max_connections = 9\nresume_connections = 7\n")).unwrap();
        let Program::Command(words) = &plan.processes[0].program else { panic!("{:?}", plan.processes) };
        let lines: Vec<&str> = words[2].lines().collect();
        assert_eq!(lines[0], "ipvsadm -A -t 192.168.16.100:80 -s rr");
        assert_eq!(lines[3], "ipvsadm -a -t 192.168.16.100:80 -r 10.1.0.6:80 -g -x 9 -y 7");
        assert!(plan.processes[0].may_end && balancer.processes.is_empty());
    }

    #[test]
    fn mistakes_are_all_reported_with_their_places() {
        let messages = |keys: &str| with(keys).unwrap_err();
        let several = messages("on = \"nowhere\"\nrun = \"f5\"\nvip = \"web\"\nmaxcon = 1\n");
        let wanted = [
            "there is no host 'nowhere'",
            "'f5' is not a valid 'run'",
            "'web' is not an address",
            "unknown key 'maxcon'",
        ];
        for part in wanted {
            assert!(several.iter().any(|message| message.contains(part)), "{part}: {several:?}");
        }
        let at = "on = \"balancer\"\nvip = \"192.168.16.100\"\n";
        assert!(messages(at)[0].contains("'run' is missing"), "{:?}", messages(at));
        for (keys, part) in [
            (keys("direct").replace("balancer", "web1"), "'web1' is a server"),
            (keys("haproxy").replace("balancer", "client1"), "'client1' generates the load"),
            (keys("l2dsr").replace("balancer", "alone"), "has no link to"),
            (keys("haproxy").replace("balancer", "alone"), "'client1' has no link to 'alone'"),
            (keys("lvs").replace("\"balancer\"", "[\"balancer\", \"alone\"]"), "'on' names several"),
            (keys("l2dsr").replace("192.168.16.100", "10.1.0.6"), "is already the address of 'web3'"),
            (keys("l2dsr") + "port = 8080\n", "8080 is not the servers' port 80"),
            (keys("haproxy") + "maxconn = 2_000_000_000\n", "and more processes"),
        ] {
            let found = messages(&keys);
            assert!(found.len() == 1 && found[0].contains(part), "{part}: {found:?}");
        }
    }
}
