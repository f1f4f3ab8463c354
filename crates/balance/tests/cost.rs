//! What the program costs for each frame, in units of the least balancer that remembers flows (`bpf/reference.bpf.c`).
//!
//! Both run in turns, so that what disturbs the machine disturbs both; each run has another port. Flows that are known, and new flows by
//! the ring, which leave no trace, are repeated within a run. New flows by turns are remembered, so each run is a single one, of either
//! program: such times contain what the kernel needs to take them, about as much as the reference costs.

use std::{net::IpAddr, time::Duration};

use aya::{
    Ebpf, include_bytes_aligned,
    maps::HashMap,
    programs::{SchedClassifier, TestRun, TestRunOptions},
};
use balance::{
    Hook, Mac, Member, Program, Ring, Schedule, ServerEntry, ServiceEntry, Settings, Sizes, State, Table,
};

const REFERENCE: &[u8] = include_bytes_aligned!("../bpf/reference.bpf.o");

/// The same for the device and all servers, so that a frame that was sent can be sent again.
const MAC: Mac = [2, 0, 0, 0, 0, 1];
const CLIENT: [u8; 4] = [10, 0, 1, 9];
const VIP: [u8; 4] = [10, 0, 0, 100];
const BY_RING: u16 = 80;
const BY_TURNS: u16 = 81;
const SYN: u8 = 2;
const ACK: u8 = 16;

const REPEATS: u32 = 2_000;
const ROUNDS: u16 = 101;
const SINGLE_ROUNDS: u16 = 3_001;
/// Ports of flows that are known.
const KNOWN: u16 = 4_000;
const MAX_HIT: f64 = 1.4;
const MAX_NEW: f64 = 4.0;

/// The least frame of TCP over IPv4.
fn frame(client_port: u16, vip_port: u16, flags: u8) -> Vec<u8> {
    let mut frame = [&MAC[..], &MAC, &[8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0]].concat();
    frame.extend(CLIENT);
    frame.extend(VIP);
    frame.extend(client_port.to_be_bytes());
    frame.extend(vip_port.to_be_bytes());
    frame.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    frame.resize(60, 0);
    frame
}

/// Runs one of the programs, and gives the time of a repeat in nanoseconds.
trait Timed {
    fn time(&self, frame: &[u8], repeat: u32) -> f64;
}

impl Timed for Program {
    fn time(&self, frame: &[u8], repeat: u32) -> f64 {
        let ran = self.run(frame, repeat).unwrap();
        assert_eq!(ran.action, 7, "it is sent");
        nanoseconds(ran.duration)
    }
}

impl Timed for Ebpf {
    fn time(&self, frame: &[u8], repeat: u32) -> f64 {
        let program: &SchedClassifier = self.program("reference").unwrap().try_into().unwrap();
        let mut out = [0; 128];
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut out),
            repeat,
            ..TestRunOptions::default()
        };
        let ran = program.test_run(options).unwrap();
        assert_eq!(ran.return_value, 7, "it is sent");
        nanoseconds(ran.duration)
    }
}

fn nanoseconds(time: Duration) -> f64 {
    time.as_nanos() as f64
}

fn reference() -> Ebpf {
    let mut ebpf = Ebpf::load(REFERENCE).unwrap();
    let program: &mut SchedClassifier = ebpf.program_mut("reference").unwrap().try_into().unwrap();
    program.load().unwrap();
    let mut flows: HashMap<_, [u8; 12], [u8; 12]> =
        ebpf.map_mut("reference_flows").unwrap().try_into().unwrap();
    for port in 0..KNOWN {
        let key = [&CLIENT[..], &VIP, &port.to_be_bytes(), &BY_RING.to_be_bytes()].concat();
        let macs = [MAC, MAC].concat();
        let (key, macs): ([u8; 12], [u8; 12]) = (key.try_into().unwrap(), macs.try_into().unwrap());
        flows.insert(key, macs, 0).unwrap();
    }
    ebpf
}

fn balancer() -> (Program, Table) {
    let (program, mut table) = Program::load(Hook::Cls, &Sizes::default(), None).unwrap();
    let handshake = Duration::from_secs(3);
    let settings = Settings { mac: MAC, inserts_per_second: u32::MAX, sweep: 1, handshake, seed: 7 };
    table.set_settings(&settings).unwrap();
    let members: Vec<Member> =
        (1..=25).map(|number| Member { number, name: format!("10.0.2.{number}"), weight: 1 }).collect();
    let ring = Ring::new(&members);
    for (vip, port, schedule) in [(1, BY_RING, Schedule::Ring), (2, BY_TURNS, Schedule::RoundRobin)] {
        let entry = ServiceEntry { vip, schedule, persistence: None };
        table.set_service(IpAddr::from(VIP), port, &entry).unwrap();
        table.set_ring(vip, &ring, &ring, 0).unwrap();
    }
    for member in &members {
        let entry = ServerEntry { mac: MAC, state: State::UP, generation: 1, vip: 1 };
        table.set_server(member.number, Some(&entry)).unwrap();
    }
    for port in 0..KNOWN {
        for flags in [SYN, ACK, ACK] {
            program.run(&frame(port, BY_RING, flags), 1).unwrap();
        }
    }
    assert_eq!(table.flows().count(), usize::from(KNOWN));
    (program, table)
}

/// A frame of a known flow, in each round another.
fn hit(round: u16) -> Vec<u8> {
    frame((u32::from(round) * 37 % u32::from(KNOWN)) as u16, BY_RING, ACK)
}

/// Middle, first and last tenth.
fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [values.len() / 2, values.len() / 10, values.len() - 1 - values.len() / 10].map(|at| values[at])
}

/// Runs both in turns, and says what frames that `of_round` makes cost in units of a hit of the reference.
fn compare(
    name: &str,
    rounds: u16,
    repeat: u32,
    of_round: impl Fn(u16) -> Vec<u8>,
    programs: &(Ebpf, Program),
) -> f64 {
    let (mut costs, mut times) = (Vec::new(), [Vec::new(), Vec::new()]);
    for round in 0..rounds {
        let known = hit(round);
        let (least, own) = (programs.0.time(&known, repeat), programs.1.time(&of_round(round), repeat));
        costs.push(own / least);
        times[0].push(least);
        times[1].push(own);
    }
    let ([middle, low, high], [least, own]) = (spread(costs), times.map(spread));
    println!(
        "{name}: {middle:.2} times the reference ({low:.2} to {high:.2}), {:.0} and {:.0} ns",
        own[0], least[0]
    );
    middle
}

#[test]
fn a_frame_costs_little_more_than_the_least_balancer() {
    if std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap()) != 0 {
        println!("not run: only root may load BPF programs");
        return;
    }
    let (program, _table) = balancer();
    let programs = (reference(), program);
    let by_ring = |round: u16| frame(KNOWN + round, BY_RING, SYN);
    let by_turns = |round: u16| frame(KNOWN + round, BY_TURNS, SYN);
    // The first rounds find cold caches.
    compare("warming up", 10, REPEATS, hit, &programs);
    let known = compare("a known flow", ROUNDS, REPEATS, hit, &programs);
    let ring = compare("a new flow by the ring", ROUNDS, REPEATS, by_ring, &programs);
    let turns = compare("a new flow by turns", SINGLE_ROUNDS, 1, by_turns, &programs);
    assert!(known <= MAX_HIT, "{known}");
    assert!(ring <= MAX_NEW && turns <= MAX_NEW, "{ring}, {turns}");
}
