//! A balancer with VIPs and servers, and the expected treatment of its frames.

use std::{net::IpAddr, time::Duration};

use balance::{
    Hook, Mac, Member, Program, Reason, Ring, Schedule, ServerCounts, ServerEntry, ServiceEntry, Settings,
    Sizes, State, Table, VipCounts,
};
use clock::monotonic_ns;

use crate::frames::{ACK, Ends, FIN, Header, RST, SYN, TCP, ethernet, ip, tcp};

pub(crate) const OURS: Mac = [2, 0, 0, 0, 0, 1];
pub(crate) const ROUTER: Mac = [2, 0, 0, 0, 0, 2];
/// Longer than any handshake of these tests.
const HANDSHAKE: Duration = Duration::from_secs(3_600);

/// Numbers of the VIPs by schedule: ring, round robin, persistent round robin, persistent ring. The first has port 80,
/// the others have all ports.
pub(crate) const BY_RING: u32 = 1;
pub(crate) const BY_TURNS: u32 = 2;
pub(crate) const BY_TURNS_PERSISTENT: u32 = 3;
pub(crate) const BY_RING_PERSISTENT: u32 = 4;

/// Number of servers of each VIP. The numbers of the servers are consecutive.
pub(crate) const SERVERS_EACH: u16 = 3;

/// The treatment of a frame by the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It was sent to this server.
    Sent(u16),
    Passed,
    Dropped,
}

pub(crate) struct World {
    pub(crate) hook: Hook,
    pub(crate) program: Program,
    pub(crate) table: Table,
    settings: Settings,
}

/// The counts of all servers and VIPs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) servers: Vec<ServerCounts>,
    pub(crate) vips: Vec<VipCounts>,
}

impl World {
    /// A world in which each VIP has a ring with all of its servers.
    pub(crate) fn new(hook: Hook) -> Self {
        let is_root = rustix::process::geteuid().is_root();
        assert!(is_root, "root is needed: make test leaves this out without root");
        let (program, table) = Program::load(hook, &Sizes::default(), None).unwrap();
        let settings = Settings { mac: OURS, inserts_per_second: 0, sweep: 1, handshake: HANDSHAKE, seed: 7 };
        let mut world = Self { hook, program, table, settings };
        world.set_budget(1_000_000);
        for vip in BY_RING..=BY_RING_PERSISTENT {
            let schedule = if [BY_TURNS, BY_TURNS_PERSISTENT].contains(&vip) {
                Schedule::RoundRobin
            } else {
                Schedule::Ring
            };
            let persistence = (vip >= BY_TURNS_PERSISTENT).then_some(Duration::from_secs(300));
            let entry = ServiceEntry { vip, schedule, persistence };
            for address in [v4(vip), v6(vip)] {
                if vip == BY_RING {
                    world.table.set_service(address, 80, &entry).unwrap();
                    world.table.set_address(address, vip).unwrap();
                } else {
                    world.table.set_service(address, 0, &entry).unwrap();
                }
            }
            for number in servers_of(vip) {
                world.set_state(number, State::UP);
            }
            let ring = ring(servers_of(vip));
            world.table.set_ring(vip, &ring, &ring, 0).unwrap();
        }
        world
    }

    /// A world whose ring sends everything to the first server.
    pub(crate) fn with_one(hook: Hook) -> Self {
        let mut world = Self::new(hook);
        let ring = ring(1..2);
        world.table.set_ring(BY_RING, &ring, &ring, 0).unwrap();
        world
    }

    pub(crate) fn set_budget(&mut self, inserts_per_second: u32) {
        self.settings.inserts_per_second = inserts_per_second;
        self.table.set_settings(&self.settings).unwrap();
    }

    pub(crate) fn set_state(&mut self, number: u16, state: State) {
        let vip = u32::from((number - 1) / SERVERS_EACH) + 1;
        let entry = ServerEntry { mac: mac(number), state, generation: 1, vip };
        self.table.set_server(number, Some(&entry)).unwrap();
    }

    /// Changes the ring from one server to another; with `is_recent`, less than the duration of a handshake ago.
    pub(crate) fn change(&mut self, vip: u32, from: u16, to: u16, is_recent: bool) {
        let now_ns = monotonic_ns();
        // The monotonic clock starts at boot, which may be less than a handshake ago.
        let (handshake, changed_ns) = match is_recent {
            true => (HANDSHAKE, now_ns.saturating_sub(1_000_000_000)),
            false => (Duration::from_nanos(now_ns / 2), now_ns / 4),
        };
        self.settings.handshake = handshake;
        self.table.set_settings(&self.settings).unwrap();
        self.table.set_ring(vip, &ring(to..to + 1), &ring(from..from + 1), changed_ns).unwrap();
    }

    /// Replaces the servers of the VIP; each has a number and a weight.
    pub(crate) fn set_servers(&mut self, vip: u32, weights: &[(u16, u32)]) {
        for (number, _) in weights {
            let entry = ServerEntry { mac: mac(*number), state: State::UP, generation: 1, vip };
            self.table.set_server(*number, Some(&entry)).unwrap();
        }
        let member =
            |&(number, weight): &(u16, u32)| Member { number, name: format!("server {number}"), weight };
        let ring = Ring::new(&weights.iter().map(member).collect::<Vec<_>>());
        self.table.set_ring(vip, &ring, &ring, 0).unwrap();
    }

    pub(crate) fn counts(&self) -> Counts {
        let servers = 0..=SERVERS_EACH * BY_RING_PERSISTENT as u16;
        Counts {
            servers: servers.map(|number| self.table.server_counts(number).unwrap()).collect(),
            vips: (0..=BY_RING_PERSISTENT).map(|vip| self.table.vip_counts(vip).unwrap()).collect(),
        }
    }

    /// Runs the program on a frame and checks that the resulting frame fits its treatment.
    pub(crate) fn run(&self, frame: &[u8]) -> Fate {
        let ran = self.program.run(frame, 1).unwrap();
        let [passed, dropped, sent] = match self.hook {
            Hook::Cls => [u32::MAX, 2, 7],
            Hook::Xdp => [2, 1, 3],
        };
        if ran.action != sent {
            assert_eq!(ran.frame, frame, "a frame that is not sent stays as it is");
            assert!([passed, dropped].contains(&ran.action), "{}", ran.action);
            return if ran.action == passed { Fate::Passed } else { Fate::Dropped };
        }
        let number = u16::from_be_bytes([ran.frame[4], ran.frame[5]]) - 0x100;
        let expected = [&mac(number)[..], &OURS, &frame[12..]].concat();
        assert_eq!(ran.frame, expected, "only addresses change");
        Fate::Sent(number)
    }

    /// Runs the program on a segment of TCP.
    pub(crate) fn segment(&self, ends: Ends, flags: u8) -> Fate {
        self.run(&segment(ends, flags))
    }

    /// Establishes a connection with SYN, the ACK of the handshake, and data.
    pub(crate) fn open(&self, ends: Ends) -> u16 {
        let Fate::Sent(number) = self.segment(ends, SYN) else { panic!("a SYN is not sent") };
        for _ in 0..2 {
            assert_eq!(self.segment(ends, ACK), Fate::Sent(number), "{ends:?}");
        }
        number
    }

    pub(crate) fn close(&self, ends: Ends) {
        self.segment(ends, FIN | ACK);
    }

    pub(crate) fn reset(&self, ends: Ends) {
        self.segment(ends, RST);
    }

    pub(crate) fn reasons(&self, vip: u32, reason: Reason) -> u64 {
        self.table.vip_counts(vip).unwrap().of(reason)
    }
}

pub(crate) fn segment(ends: Ends, flags: u8) -> Vec<u8> {
    ethernet(OURS, ROUTER, &[], &ip(ends, TCP, &Header::default(), &tcp(ends, flags, &[], &[])))
}

pub(crate) fn ring(numbers: std::ops::Range<u16>) -> Ring {
    let member = |number| Member { number, name: format!("server {number}"), weight: 1 };
    Ring::new(&numbers.map(member).collect::<Vec<_>>())
}

pub(crate) fn servers_of(vip: u32) -> std::ops::Range<u16> {
    let first = (vip as u16 - 1) * SERVERS_EACH + 1;
    first..first + SERVERS_EACH
}

pub(crate) fn mac(number: u16) -> Mac {
    let [high, low] = (number + 0x100).to_be_bytes();
    [2, 1, 2, 3, high, low]
}

pub(crate) fn v4(vip: u32) -> IpAddr {
    format!("10.0.0.{}", 100 + vip).parse().unwrap()
}

pub(crate) fn v6(vip: u32) -> IpAddr {
    format!("fd00::{vip}").parse().unwrap()
}

/// A client's connection to port 80 of a VIP, over IPv4.
pub(crate) fn from_v4(client: u8, port: u16, vip: u32) -> Ends {
    Ends { from: ([10, 0, 1, client].into(), port), to: (v4(vip), 80) }
}

/// The same over IPv6.
pub(crate) fn from_v6(client: u16, port: u16, vip: u32) -> Ends {
    Ends { from: ([0xfd00, 1, 0, 0, 0, 0, 0, client].into(), port), to: (v6(vip), 80) }
}

/// Both hooks.
pub(crate) fn on_both(test: impl Fn(Hook)) {
    [Hook::Cls, Hook::Xdp].into_iter().for_each(test);
}
