use std::{collections::HashMap, sync::Arc};

use proptest::prelude::*;

use super::*;
use crate::{
    Schedule, ServiceEntry, State,
    config::{Persistence, WhenServerDies},
    health::Check,
};

const HANDSHAKE_NS: u64 = 3_000_000_000;
const PLACES: usize = crate::maglev::PLACES;

/// The tables in the kernel, with assertions about states that must never occur.
#[derive(Default)]
struct Tables {
    servers: HashMap<u16, ServerEntry>,
    services: HashMap<(IpAddr, u16), ServiceEntry>,
    addresses: HashMap<IpAddr, u32>,
    /// Ring, former ring and time of the change, by the VIP's number.
    rings: HashMap<u32, (Arc<Ring>, Arc<Ring>, u64)>,
    /// The server of each number and generation.
    owners: HashMap<(u16, u32), IpAddr>,
}

impl Tables {
    fn make(&mut self, operations: Vec<Operation>, now_ns: u64) {
        for operation in operations {
            match operation {
                Operation::SetServer { number, entry } => {
                    if let Some(before) = self.servers.insert(number, entry.clone())
                        && before.generation == entry.generation
                        && before.mac != entry.mac
                    {
                        assert_eq!((before.state, entry.state), (State::HELD, State::HELD), "torn address");
                    }
                }
                Operation::FreeServer { number } => {
                    assert!(self.servers.remove(&number).is_some());
                    let is_used = |vip: &u32| self.services.values().any(|entry| entry.vip == *vip);
                    for (_, (ring, former, changed_ns)) in self.rings.iter().filter(|(vip, _)| is_used(vip)) {
                        let is_over = now_ns - changed_ns >= HANDSHAKE_NS;
                        assert!(ring.share(number) == 0 && (is_over || former.share(number) == 0));
                    }
                }
                Operation::SetRing { vip, ring, former, changed_ns } => {
                    assert_eq!(changed_ns, now_ns);
                    for number in ring.shares().into_keys().filter(|number| *number > 0) {
                        assert_eq!(self.servers[&number].vip, vip, "server {number} is not there");
                    }
                    if let Some((present, _, last_ns)) = self.rings.get(&vip) {
                        assert!(now_ns - last_ns >= HANDSHAKE_NS, "a change within a handshake");
                        assert_eq!(*present, former);
                    }
                    self.rings.insert(vip, (ring, former, changed_ns));
                }
                Operation::SetService { address, port, entry } => {
                    assert!(self.rings.contains_key(&entry.vip), "a service without a ring");
                    self.services.insert((address, port), entry);
                }
                Operation::SetAddress { address, vip } => drop(self.addresses.insert(address, vip)),
                Operation::RemoveService { address, port } => {
                    self.services.remove(&(address, port));
                    if port == 0 {
                        self.addresses.remove(&address);
                    }
                }
                // A new VIP may get the number while the former ring is still in the table.
                Operation::ClearVipCounts { vip } => drop(self.rings.remove(&vip)),
                Operation::ClearServerCounts { number } => assert!(!self.servers.contains_key(&number)),
            }
        }
    }

    /// Checks the invariants after a step.
    fn check(&mut self, balancer: &Balancer, config: &Config) {
        for state in balancer.vips() {
            for server in &state.servers {
                let owner =
                    self.owners.entry((server.number, server.generation)).or_insert(server.server.address);
                assert_eq!(*owner, server.server.address, "a number was given twice within a generation");
                let entry = &self.servers[&server.number];
                assert_eq!((entry.generation, entry.vip), (server.generation, state.number));
                let takes_new = !server.is_leaving && !server.server.drain && server.server.weight > 0;
                // A server that answers keeps its flows, even if its checks fail.
                let is_dead = [State::DEAD, State::DEAD | State::FULL].map(|state| state | State::DRAINING);
                let is_dead = is_dead.contains(&(entry.state | State::DRAINING));
                assert!(!is_dead || server.is_silent() || !server.is_resolved);
                if entry.state == State::UP {
                    assert!(takes_new && server.is_resolved && !server.is_full);
                    assert!(server.health.is_ok() || state.ignores_health());
                }
            }
        }
        for vip in &config.vips {
            for port in &vip.ports {
                let number = self.services[&(vip.address, *port)].vip;
                let state = balancer.vips().iter().find(|state| state.number == number).unwrap();
                assert!(!state.is_leaving && state.vip == *vip);
            }
        }
        let ports: usize = config.vips.iter().map(|vip| vip.ports.len()).sum();
        assert_eq!(self.services.len(), ports);
    }
}

fn vip(last: u8, ports: Vec<u16>, weights: &[(u8, u32)]) -> Vip {
    let server =
        |(address, weight): &(u8, u32)| Server { weight: *weight, ..Server::new(server_address(*address)) };
    Vip {
        address: IpAddr::from([10, 0, 0, last]),
        ports,
        schedule: Schedule::Ring,
        persistence: Persistence::Off,
        when_all_down: WhenAllDown::Drop,
        when_server_dies: WhenServerDies::Move,
        check: Check { kind: CheckKind::None, ..Check::default() },
        servers: weights.iter().map(server).collect(),
    }
}

fn server_address(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 1, last])
}

fn config(vips: Vec<Vip>) -> Config {
    Config { vips, ..Config::new("eth0") }
}

/// A balancer whose servers 1 to 9 have answered ARP for their addresses.
fn ready(config: &Config) -> (Balancer, Tables) {
    let (mut balancer, mut tables) = (Balancer::new(), Tables::default());
    balancer.configure(config).unwrap();
    (1..10).for_each(|last| balancer.set_neighbour(server_address(last), Some([last; 6])));
    tables.make(balancer.step(1, usize::MAX), 1);
    tables.check(&balancer, config);
    (balancer, tables)
}

fn sweep(balancer: &mut Balancer, now_ns: u64, flows: &[(u16, u64)]) {
    let counted = flows.iter().map(|&(number, active)| ((number, 1), (active, 0))).collect();
    balancer.apply_sweep(&Swept { begun_ns: now_ns, is_whole: true, counted, ..Swept::default() });
}

#[test]
fn a_server_that_is_taken_out_stays_until_its_flows_have_ended() {
    let before = config(vec![vip(100, vec![80], &[(1, 1), (2, 1)])]);
    let (mut balancer, mut tables) = ready(&before);
    let ring = Arc::clone(&tables.rings[&1].0);
    let after = config(vec![vip(100, vec![80], &[(1, 1)])]);
    balancer.configure(&after).unwrap();
    let mut step = |balancer: &mut Balancer, now_ns| {
        tables.make(balancer.step(now_ns, usize::MAX), now_ns);
        tables.check(balancer, &after);
        (tables.servers.get(&2).map(|entry| entry.state), tables.rings[&1].0.share(2))
    };
    let half = ring.share(2);
    assert_eq!(step(&mut balancer, 2), (Some(State::DRAINING), half), "a ring has just been made");
    assert_eq!(balancer.next_step_ns(), Some(1 + HANDSHAKE_NS));
    assert_eq!(step(&mut balancer, 1 + HANDSHAKE_NS), (Some(State::DRAINING), 0));
    // Only a sweep that begins after the handshakes of the former ring proves that no flow is left.
    let over_ns = 1 + 2 * HANDSHAKE_NS;
    balancer.apply_sweep(&Swept { begun_ns: over_ns, ..Swept::default() });
    assert!(step(&mut balancer, over_ns).0.is_some(), "a sweep that is not whole says nothing");
    for (at_ns, flows, is_there) in [(over_ns - 1, 0, true), (over_ns, 3, true), (over_ns + 1, 0, false)] {
        sweep(&mut balancer, at_ns, &[(2, flows)]);
        assert_eq!(step(&mut balancer, over_ns + 1).0.is_some(), is_there, "{at_ns} {flows}");
    }
    // Another server may get the number, but with a new generation.
    balancer.configure(&config(vec![vip(100, vec![80], &[(1, 1), (3, 1)])])).unwrap();
    let new = &balancer.vips()[0].servers[1];
    assert_eq!((new.number, new.generation), (2, 2));
}

#[test]
fn a_server_that_comes_back_while_it_leaves_goes_on() {
    let both = config(vec![vip(100, vec![80], &[(1, 1), (2, 1)])]);
    let (mut balancer, mut tables) = ready(&both);
    balancer.configure(&config(vec![vip(100, vec![80], &[(1, 1)])])).unwrap();
    tables.make(balancer.step(HANDSHAKE_NS + 5, usize::MAX), HANDSHAKE_NS + 5);
    balancer.configure(&both).unwrap();
    tables.make(balancer.step(2 * HANDSHAKE_NS + 5, usize::MAX), 2 * HANDSHAKE_NS + 5);
    tables.check(&balancer, &both);
    assert_eq!((tables.servers[&2].generation, tables.servers[&2].state), (1, State::UP));
    assert!(tables.rings[&1].0.share(2).abs_diff(PLACES / 2) <= 1);
}

#[test]
fn a_vip_that_leaves_is_not_asked_by_a_later_daemon_what_nobody_asked_before() {
    let mut both = config(vec![vip(100, vec![80], &[(1, 1)]), vip(101, vec![80], &[(2, 1)])]);
    both.vips[1].check = Check { port: Some(8080), ..Check::default() };
    let (mut balancer, mut tables) = ready(&both);
    let id = balancer.targets()[1].id;
    balancer.set_health(id, Ok(()));
    let one = config(both.vips[..1].to_vec());
    balancer.configure(&one).unwrap();
    let take_over = |balancer: &Balancer, tables: &Tables, config: &Config| {
        let ring = |number| Ok(tables.rings.get(&number).map(|(ring, ..)| (**ring).clone()));
        let mut later = Balancer::taken_over(balancer.saved(), ring).unwrap();
        later.configure(config).unwrap();
        later
    };
    let mut later = take_over(&balancer, &tables, &one);
    let target = later.targets().into_iter().find(|target| target.id == id).unwrap();
    assert_eq!(target.check.kind, CheckKind::None);
    tables.make(later.step(HANDSHAKE_NS, usize::MAX), HANDSHAKE_NS);
    assert_eq!(tables.servers[&2].state, State::DRAINING, "it goes on");
    // If the VIP is wanted again without checks, its server counts as up, whatever the result of earlier checks.
    balancer.set_health(id, silent());
    both.vips[1].check.kind = CheckKind::None;
    let mut later = take_over(&balancer, &tables, &both);
    tables.make(later.step(2 * HANDSHAKE_NS, usize::MAX), 2 * HANDSHAKE_NS);
    assert_eq!(tables.servers[&2].state, State::UP);
}

#[test]
fn thresholds_are_those_of_ipvs() {
    let mut limited = config(vec![vip(100, vec![80], &[(1, 1), (2, 1)])]);
    limited.vips[0].servers[0].max_connections = Some(100);
    let (mut balancer, mut tables) = ready(&limited);
    for (active, state) in
        [(99, State::UP), (100, State::FULL), (75, State::FULL), (74, State::UP), (99, State::UP)]
    {
        sweep(&mut balancer, 2, &[(1, active), (2, 500)]);
        tables.make(balancer.step(2, usize::MAX), 2);
        assert_eq!((tables.servers[&1].state, tables.servers[&2].state), (state, State::UP), "{active}");
    }
    sweep(&mut balancer, 3, &[(1, 100)]);
    balancer.apply_sweep(&Swept { begun_ns: 4, ..Swept::default() });
    assert!(balancer.vips()[0].servers[0].is_full, "a sweep that is not whole decides nothing");
    let mut later = Balancer::taken_over(balancer.saved(), |number| {
        Ok(tables.rings.get(&number).map(|(ring, ..)| (**ring).clone()))
    });
    let later = later.as_mut().unwrap();
    later.configure(&limited).unwrap();
    assert!(later.vips()[0].servers[0].is_full, "nothing is decided before a sweep");
    sweep(later, 4, &[(1, 74)]);
    assert!(!later.vips()[0].servers[0].is_full);
    sweep(&mut balancer, 5, &[(1, 99)]);
    balancer.vips[0].servers[0].is_full = false;
    assert!(!balancer.may_be_full(|_| 0) && balancer.may_be_full(|number| u64::from(number == 1)));
}

#[test]
fn a_dead_server_is_gone_round_or_waited_for() {
    for (dies, dead) in [(WhenServerDies::Move, State::DEAD), (WhenServerDies::Hold, State::HELD)] {
        let mut checked = config(vec![vip(100, vec![80], &[(1, 1), (2, 1)])]);
        (checked.vips[0].check, checked.vips[0].when_server_dies) = (Check::default(), dies);
        let (mut balancer, mut tables) = ready(&checked);
        assert_eq!(tables.servers[&1].state, dead, "nobody knows yet");
        let ids: Vec<u64> = balancer.targets().iter().map(|target| target.id).collect();
        let mut states = |balancer: &mut Balancer| {
            tables.make(balancer.step(2, usize::MAX), 2);
            [1, 2].map(|number| tables.servers[&number].state)
        };
        ids.iter().for_each(|id| assert!(balancer.set_health(*id, Ok(())).is_some()));
        assert_eq!(states(&mut balancer), [State::UP; 2]);
        balancer.set_neighbour(server_address(1), None);
        assert_eq!(states(&mut balancer), [State::FAILING, State::UP], "answers for its address may be lost");
        balancer.set_health(ids[0], silent());
        assert_eq!(states(&mut balancer), [dead, State::UP]);
        balancer.set_neighbour(server_address(1), Some([1; 6]));
        balancer.set_health(ids[1], silent());
        assert_eq!(states(&mut balancer), [dead; 2]);
        checked.vips[0].when_all_down = WhenAllDown::All;
        balancer.configure(&checked).unwrap();
        assert_eq!(states(&mut balancer), [State::UP; 2], "as if all were up");
        balancer.set_neighbour(server_address(1), None);
        assert_eq!(states(&mut balancer), [dead, State::UP], "nothing can be sent there");
        assert_eq!(balancer.set_health(u64::MAX, Ok(())), None);
        checked.vips[0].check.kind = CheckKind::None;
        balancer.configure(&checked).unwrap();
        assert_eq!(balancer.set_health(ids[1], silent()), None, "it comes after checks were put off");
        assert_eq!(states(&mut balancer)[1], State::UP);
    }
}

fn silent() -> Outcome {
    Err(Fault::silent("no answer"))
}

/// The outcome for a server that answers 503, or for a host without a listening program.
fn failing() -> Outcome {
    Err(Fault::answered("refuses".to_owned()))
}

#[test]
fn a_server_that_answers_badly_keeps_its_flows() {
    let mut checked = config(vec![vip(100, vec![80], &[(1, 1), (2, 1)])]);
    (checked.vips[0].check, checked.vips[0].when_server_dies) = (Check::default(), WhenServerDies::Hold);
    let (mut balancer, mut tables) = ready(&checked);
    let ids: Vec<u64> = balancer.targets().iter().map(|target| target.id).collect();
    ids.iter().for_each(|id| assert!(balancer.set_health(*id, silent()).is_some(), "the log says so"));
    assert_eq!(balancer.set_health(ids[0], Err(Fault::silent("no ARP"))), None, "it is down all the same");
    ids.iter().for_each(|id| assert!(balancer.set_health(*id, Ok(())).is_some()));
    for (fault, state) in [
        (failing(), State::FAILING),
        (silent(), State::HELD),
        (failing(), State::FAILING),
        (Ok(()), State::UP),
        (failing(), State::FAILING),
    ] {
        balancer.set_health(ids[1], fault);
        tables.make(balancer.step(2, usize::MAX), 2);
        assert_eq!(tables.servers[&2].state, state);
    }
    // Nothing listens on a removed server any more. The balancer waits for its flows until the server is silent.
    balancer
        .configure(&config(vec![Vip {
            servers: checked.vips[0].servers[..1].to_vec(),
            ..checked.vips[0].clone()
        }]))
        .unwrap();
    for (at, flows, fault, is_there) in
        [(1, 3, failing(), true), (2, 3, failing(), true), (3, 3, silent(), false)]
    {
        let now_ns = 1 + at * HANDSHAKE_NS;
        sweep(&mut balancer, now_ns, &[(2, flows)]);
        balancer.set_health(ids[1], fault);
        tables.make(balancer.step(now_ns, usize::MAX), now_ns);
        assert_eq!(tables.servers.contains_key(&2), is_there, "{at}");
    }
}

#[test]
fn a_changed_mac_is_written_while_flows_wait() {
    let one = config(vec![vip(100, vec![80], &[(1, 1)])]);
    let (mut balancer, mut tables) = ready(&one);
    balancer.set_neighbour(server_address(1), Some([77; 6]));
    let operations = balancer.step(2, usize::MAX);
    assert_eq!(operations.len(), 3, "{operations:?}");
    tables.make(operations, 2);
    assert_eq!((tables.servers[&1].mac, tables.servers[&1].state), ([77; 6], State::UP));
    assert_eq!(balancer.step(3, usize::MAX), []);
}

#[test]
fn ports_may_come_and_go_without_touching_the_ring() {
    let (mut balancer, mut tables) = ready(&config(vec![vip(100, vec![80], &[(1, 1), (2, 1)])]));
    assert_eq!(tables.addresses.len(), 1);
    let ring = Arc::clone(&tables.rings[&1].0);
    for ports in [vec![80, 443], vec![443], vec![0]] {
        let changed = config(vec![vip(100, ports, &[(1, 1), (2, 1)])]);
        balancer.configure(&changed).unwrap();
        tables.make(balancer.step(2, usize::MAX), 2);
        tables.check(&balancer, &changed);
        assert!(Arc::ptr_eq(&ring, &tables.rings[&1].0));
    }
}

#[test]
fn a_removal_that_failed_is_made_again() {
    let (mut balancer, _) = ready(&config(vec![vip(100, vec![80, 443], &[(1, 1)])]));
    balancer.configure(&config(vec![vip(100, vec![443], &[(1, 1)])])).unwrap();
    for _ in 0..2 {
        assert!(
            balancer
                .step(2, usize::MAX)
                .contains(&Operation::RemoveService { address: [10, 0, 0, 100].into(), port: 80 })
        );
        balancer.distrust_tables();
        let saved = serde_json::to_string(&balancer.saved()).unwrap();
        assert!(saved.contains("[\"10.0.0.100\",80]"), "a later daemon removes it, too: {saved}");
    }
    balancer.step(2, usize::MAX);
    assert_eq!(balancer.step(3, usize::MAX), [], "it is made once");
}

/// The last byte of a VIP's address, whether it uses round robin, and its servers: last byte of the address, weight.
type DrawnVip = (u8, bool, Vec<(u8, u32)>);

/// An event in the life of a balancer.
#[derive(Debug, Clone)]
enum Happening {
    Configured(Vec<DrawnVip>),
    Resolved(u8, Option<u8>),
    Checked(usize, bool, bool),
    Swept(Vec<(u16, u64)>),
    TimePassed(u64),
    /// The daemon is killed, before or after it has written the tables, and another one takes over.
    TakenOver,
}

fn happening() -> impl Strategy<Value = Happening> {
    let servers = prop::collection::btree_map(1_u8..8, 0_u32..4, 0..5);
    let vips = prop::collection::btree_map(100_u8..103, (any::<bool>(), servers), 0..3);
    let vips = vips.prop_map(|vips| {
        let of = |(last, (two, servers)): (u8, (bool, BTreeMap<u8, u32>))| {
            (last, two, servers.into_iter().collect())
        };
        Happening::Configured(vips.into_iter().map(of).collect())
    });
    let swept = prop::collection::vec((1_u16..10, 0_u64..3), 0..4).prop_map(Happening::Swept);
    prop_oneof![
        3 => vips,
        2 => (1_u8..8, prop::option::of(1_u8..4)).prop_map(|(last, mac)| Happening::Resolved(last, mac)),
        2 => (0_usize..9, any::<bool>(), any::<bool>())
            .prop_map(|(at, is_up, is_silent)| Happening::Checked(at, is_up, is_silent)),
        2 => swept,
        3 => (1..2 * HANDSHAKE_NS).prop_map(Happening::TimePassed),
        1 => Just(Happening::TakenOver),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn whatever_happens_the_tables_are_sound(happenings in prop::collection::vec(happening(), 1..30)) {
        let (mut balancer, mut tables) = (Balancer::new(), Tables::default());
        let (mut wanted, mut now_ns) = (config(Vec::new()), 1);
        for happening in happenings {
            match happening {
                Happening::Configured(vips) => {
                    let of = |(last, two, servers): DrawnVip| {
                        let mut vip = vip(last, if two { vec![80, 443] } else { vec![443] }, &servers);
                        vip.check = Check::default();
                        vip
                    };
                    wanted = config(vips.into_iter().map(of).collect());
                    balancer.configure(&wanted).unwrap();
                }
                Happening::Resolved(last, mac) => {
                    balancer.set_neighbour(server_address(last), mac.map(|mac| [mac; 6]));
                }
                Happening::Checked(at, is_up, is_silent) => {
                    let id = balancer.targets().get(at).map_or(0, |target| target.id);
                    let fault = Fault { is_silent, ..Fault::answered(String::new()) };
                    balancer.set_health(id, if is_up { Ok(()) } else { Err(fault) });
                }
                Happening::Swept(flows) => sweep(&mut balancer, now_ns, &flows),
                Happening::TimePassed(ns) => now_ns += ns,
                Happening::TakenOver => {
                    let saved = balancer.saved();
                    let text = serde_json::to_string(&saved).unwrap();
                    let ring = |number| Ok(tables.rings.get(&number).map(|(ring, ..)| (**ring).clone()));
                    balancer = Balancer::taken_over(serde_json::from_str(&text).unwrap(), ring).unwrap();
                    balancer.configure(&wanted).unwrap();
                }
            }
            tables.make(balancer.step(now_ns, usize::MAX), now_ns);
            tables.check(&balancer, &wanted);
        }
        // Without further events, the tables reach the wanted state.
        for _ in 0..4 {
            now_ns += HANDSHAKE_NS;
            sweep(&mut balancer, now_ns, &[]);
            tables.make(balancer.step(now_ns, usize::MAX), now_ns);
            tables.check(&balancer, &wanted);
        }
        prop_assert_eq!(balancer.next_step_ns(), None);
        prop_assert_eq!(balancer.vips().len(), wanted.vips.len());
        let servers: usize = wanted.vips.iter().map(|vip| vip.servers.len()).sum();
        prop_assert_eq!(tables.servers.len(), servers);
        for state in balancer.vips() {
            let ring = &tables.rings[&state.number].0;
            let sum: f64 = state.servers.iter().map(|server| f64::from(server.server.weight)).sum();
            for server in &state.servers {
                let exact = PLACES as f64 * f64::from(server.server.weight) / sum.max(1.0);
                prop_assert!((ring.share(server.number) as f64 - exact).abs() <= 1.0);
            }
        }
    }
}

#[test]
fn many_rings_are_made_part_by_part_and_nothing_goes_before_its_successor_is_there() {
    let before = config(vec![vip(100, vec![80, 81], &[(1, 1)])]);
    let (mut balancer, mut tables) = ready(&before);
    let leads_to = |tables: &Tables, last: u8, port| {
        tables.services.get(&(IpAddr::from([10, 0, 0, last]), port)).map(|entry| entry.vip)
    };
    // Port 81 moves to a separate VIP, which is the last one.
    let wanted = config(
        [vip(100, vec![80], &[(1, 1)]), vip(101, vec![80], &[(2, 1)]), vip(102, vec![80], &[(3, 1)])]
            .into_iter()
            .chain([vip(100, vec![81], &[(4, 1)])])
            .collect(),
    );
    balancer.configure(&wanted).unwrap();
    (1..10).for_each(|last| balancer.set_neighbour(server_address(last), Some([last; 6])));
    for ready in [1, 2] {
        tables.make(balancer.step(2, 1), 2);
        assert!(balancer.is_unfinished() && balancer.next_step_ns() == Some(0));
        assert_eq!(tables.rings.len(), 1 + ready);
        assert_eq!(balancer.addresses().len(), 1 + ready, "no client comes to what has no ring");
        assert_eq!(leads_to(&tables, 100, 81), Some(1), "it is served as before");
        // The program bypasses a server that dies meanwhile at once.
        balancer.set_neighbour(server_address(ready as u8), None);
        let operations = balancer.step(2, 0);
        assert!(
            matches!(&operations[..], [Operation::SetServer { entry, .. }] if entry.state == State::DEAD),
            "{operations:?}"
        );
        tables.make(operations, 2);
        balancer.set_neighbour(server_address(ready as u8), Some([ready as u8; 6]));
    }
    tables.make(balancer.step(2, 1), 2);
    assert!(!balancer.is_unfinished() && balancer.next_step_ns() != Some(0));
    assert_eq!(leads_to(&tables, 100, 81), Some(4));
    tables.check(&balancer, &wanted);

    // A change that is not finished can be undone.
    let (mut balancer, mut tables) = ready(&before);
    balancer.configure(&wanted).unwrap();
    tables.make(balancer.step(2, 1), 2);
    balancer.configure(&before).unwrap();
    tables.make(balancer.step(3, 1), 3);
    assert!(!balancer.is_unfinished());
    tables.check(&balancer, &before);
}
