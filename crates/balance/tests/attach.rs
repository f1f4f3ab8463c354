//! The program on a device: attached, replaced while packets flow, and detached again.

use std::{
    net::{IpAddr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

mod alone;

use aya::maps::{HashMap, Map, MapData};
use balance::{
    Hook, Mac, Member, Program, Ring, Schedule, ServerEntry, ServiceEntry, Settings, Sizes, State, Table,
    unpin,
};
use testing::until;

const MAC: Mac = [2, 0, 0, 0, 0, 1];
const VIP: [u8; 4] = [10, 0, 0, 100];

/// Both ends of a veth pair, and a neighbour entry for the VIP.
const DEVICES: &str = "ip link add near type veth peer name far.1 && ip link set far.1 address 02:00:00:00:00:01 && \
                       ip address add 10.0.0.1/24 dev near && ip link set near up && ip link set far.1 up && \
                       ip neigh add 10.0.0.100 lladdr 02:00:00:00:00:01 dev near";

#[test]
fn as_root_programs_are_attached_replaced_and_detached() {
    alone::run("as_root_programs_are_attached_replaced_and_detached", in_namespaces_of_its_own);
}

fn in_namespaces_of_its_own() {
    let made = Command::new("sh").args(["-c", DEVICES]).status().unwrap();
    assert!(made.success());
    for (at, hook) in [Hook::Cls, Hook::Xdp].into_iter().enumerate() {
        let pins = PathBuf::from(format!("/sys/fs/bpf/proofload-test-{}-{at}", std::process::id()));
        let (mut first, table) = load(hook, Some(&pins));
        first.attach("far.1", Some(&pins)).unwrap();
        is_attached(&table);
        let before = table.server_counts(1).unwrap().packets;
        drop((first, table));

        let (mut second, table) = Program::load(hook, &Sizes::default(), Some(&pins)).unwrap();
        let known = table.server_counts(1).unwrap().packets;
        assert!(known >= before, "the tables are still there");
        is_attached(&table);
        second.attach("far.1", Some(&pins)).unwrap();
        drop(second);
        is_attached(&table);

        unpin(&pins).unwrap();
        unpin(&pins).unwrap();
        assert!(!pins.exists());
        is_detached(&table);

        clocks_may_differ(hook, &pins);
        let (mut third, table) = load(hook, None);
        third.attach("far.1", None).unwrap();
        is_attached(&table);
        drop(third);
        // An attachment without a pin ends with its process.
        is_detached(&table);
        if hook == Hook::Xdp {
            // If the driver does not support XDP, the hook cls costs less than XDP on packets that the kernel has
            // built.
            let made = Command::new("ip").args(["link", "add", "plain", "type", "bridge"]).status().unwrap();
            assert!(made.success() && load(hook, None).0.attach("plain", None).is_err());
        }
        let refused = load(hook, None).0.attach("nowhere", None).unwrap_err().to_string();
        assert!(refused.starts_with("cannot attach the balancer to nowhere: "), "{refused}");
    }
}

/// The coarse clock of another processor may be ahead. Entries with such times count as new.
fn clocks_may_differ(hook: Hook, pins: &Path) {
    let (program, mut table) = load(hook, Some(pins));
    let members = [1, 2, 3].map(|number| Member { number, name: number.to_string(), weight: 1 });
    for Member { number, .. } in &members {
        let mac = [2, 0, 0, 0, 1, *number as u8];
        let entry = ServerEntry { mac, state: State::UP, generation: 1, vip: 1 };
        table.set_server(*number, Some(&entry)).unwrap();
    }
    let ring = Ring::new(&members);
    table.set_ring(1, &ring, &ring, 0).unwrap();
    for (port, persistence) in [(81, Some(Duration::from_secs(300))), (82, None)] {
        let entry = ServiceEntry { vip: 1, schedule: Schedule::RoundRobin, persistence };
        table.set_service(IpAddr::from(VIP), port, &entry).unwrap();
    }
    let server_of = |client_port, port| {
        let ran = program.run(&syn(client_port, port), 1).unwrap();
        assert_ne!(ran.frame[..6], MAC, "it is sent");
        ran.frame[5]
    };
    let persistent = server_of(1_000, 81);
    let begun = server_of(1_000, 82);
    set_ahead::<20>(pins, "sources");
    set_ahead::<36>(pins, "pending");
    assert_eq!(server_of(1_001, 81), persistent, "a source persists");
    assert_eq!(server_of(1_000, 82), begun, "a SYN that is repeated takes no turn");
    assert_ne!(server_of(1_001, 82), begun, "a new one does");
    unpin(pins).unwrap();
}

/// Moves the times of all entries of a pinned table into the future.
fn set_ahead<const KEY: usize>(pins: &Path, name: &str) {
    let map = Map::from_map_data(MapData::from_pin(pins.join(name)).unwrap()).unwrap();
    let mut table: HashMap<MapData, [u8; KEY], [u8; 16]> = map.try_into().unwrap();
    let entries: Vec<_> = table.iter().map(Result::unwrap).collect();
    assert!(!entries.is_empty(), "{name}");
    for (key, mut entry) in entries {
        entry[..8].copy_from_slice(&(clock::monotonic_ns() + 1_000_000_000_000).to_ne_bytes());
        table.insert(key, entry, 0).unwrap();
    }
}

fn syn(client_port: u16, port: u16) -> Vec<u8> {
    let mut frame = [&MAC[..], &MAC, &[8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 9]].concat();
    frame.extend(VIP);
    frame.extend([client_port, port].map(u16::to_be_bytes).concat());
    frame.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0]);
    frame
}

/// A balancer with one server that does not exist.
fn load(hook: Hook, pins: Option<&Path>) -> (Program, Table) {
    let (program, mut table) = Program::load(hook, &Sizes::default(), pins).unwrap();
    let handshake = Duration::from_secs(600);
    let settings = Settings { mac: MAC, inserts_per_second: 1_000, sweep: 1, handshake, seed: 7 };
    table.set_settings(&settings).unwrap();
    let ring = Ring::new(&[Member { number: 1, name: "server".to_owned(), weight: 1 }]);
    let entry = ServiceEntry { vip: 1, schedule: Schedule::Ring, persistence: None };
    table.set_service(IpAddr::from(VIP), 80, &entry).unwrap();
    let server = ServerEntry { mac: [2, 0, 0, 0, 0, 9], state: State::UP, generation: 1, vip: 1 };
    table.set_server(1, Some(&server)).unwrap();
    table.set_ring(1, &ring, &ring, 0).unwrap();
    assert_eq!(table.ring(1).unwrap().unwrap(), ring);
    assert_eq!(table.ring(2).unwrap(), None);
    (program, table)
}

fn is_attached(table: &Table) {
    until("the program sees packets", || packets_of_an_attempt(table) > 0);
}

/// The kernel detaches the program shortly after the last descriptor or pin is gone, so this waits.
fn is_detached(table: &Table) {
    until("the program sees no packets", || packets_of_an_attempt(table) == 0);
}

/// Number of packets that the balancer sends to its server while a client tries to connect.
fn packets_of_an_attempt(table: &Table) -> u64 {
    let before = table.server_counts(1).unwrap().packets;
    let refused = TcpStream::connect_timeout(&SocketAddr::from((VIP, 80)), Duration::from_millis(200));
    assert!(refused.is_err(), "there is no server");
    table.server_counts(1).unwrap().packets - before
}
