use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;

/// What a path does to datagrams, in percent, and when it carries nothing at all, in milliseconds.
#[derive(Debug, Clone)]
struct Path {
    lost: u64,
    repeated: u64,
    late: u64,
    cuts: Vec<(u64, u64)>,
    delay_ms: u64,
}

/// Two ends and what is between them, on virtual time.
struct World {
    ends: [Link; 2],
    wanted: [Vec<u8>; 2],
    written: [usize; 2],
    read: [Vec<u8>; 2],
    /// Datagrams on their way, by time of arrival and number: the end that each is for, and its bytes.
    flying: BTreeMap<(u64, u64), (usize, Vec<u8>)>,
    number: u64,
    seed: u64,
    now_ns: u64,
    finishes: bool,
}

impl World {
    fn new(wanted: [Vec<u8>; 2], piece_bytes: usize, seed: u64) -> Self {
        Self {
            ends: [Link::new(0, piece_bytes), Link::new(0, piece_bytes)],
            wanted,
            written: [0; 2],
            read: [Vec::new(), Vec::new()],
            flying: BTreeMap::new(),
            number: 0,
            seed,
            now_ns: 0,
            finishes: true,
        }
    }

    fn percent(&mut self) -> u64 {
        // Knuth's generator; its high bits are good.
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % 100
    }

    fn turn(&mut self, path: &Path) {
        while let Some(entry) = self.flying.first_entry().filter(|entry| entry.key().0 <= self.now_ns) {
            let (to, datagram) = entry.remove();
            self.ends[to].receive(self.now_ns, &datagram);
        }
        for end in [0, 1] {
            // A reader that does not read each time.
            if self.percent() < 70 {
                let bytes = self.ends[end].read();
                self.read[end].extend(bytes);
            }
            let rest = &self.wanted[end][self.written[end]..];
            self.written[end] += self.ends[end].write(rest);
            if self.finishes && self.written[end] == self.wanted[end].len() {
                self.ends[end].finish();
            }
            while let Some(datagram) = self.ends[end].transmit(self.now_ns) {
                assert!(datagram.len() <= PIECE_BYTES + HEADER_BYTES);
                self.send(path, 1 - end, &datagram);
            }
            assert!(self.ends[end].into.ready.len() <= WINDOW_BYTES);
            assert!(self.ends[end].out.queued.len() + self.ends[end].out.on_way <= WINDOW_BYTES);
        }
    }

    fn send(&mut self, path: &Path, to: usize, datagram: &[u8]) {
        let now_ms = self.now_ns / MS;
        if path.cuts.iter().any(|(from, length)| (*from..from + length).contains(&now_ms))
            || self.percent() < path.lost
        {
            return;
        }
        let copies = 1 + usize::from(self.percent() < path.repeated);
        for _ in 0..copies {
            let late = if self.percent() < path.late { self.percent() * 5 } else { 0 };
            self.number += 1;
            let at_ns = self.now_ns + (path.delay_ms + late) * MS;
            self.flying.insert((at_ns, self.number), (to, datagram.to_vec()));
        }
    }

    /// Runs until both ends are over or dead.
    fn run(&mut self, path: &Path, bound_ns: u64) {
        loop {
            self.turn(path);
            if self.ends.iter().all(|end| end.dead().is_some() || end.is_over() && end.has_read_all()) {
                return;
            }
            assert!(self.now_ns < bound_ns, "hangs: {:?}", self.ends);
            let arrival = self.flying.first_key_value().map_or(u64::MAX, |((at_ns, _), _)| *at_ns);
            let next_ns = self.ends.iter().map(Link::wake_ns).min().unwrap_or(u64::MAX).min(arrival);
            // The reader and the writer come back after a while.
            self.now_ns = next_ns.clamp(self.now_ns + 1, self.now_ns + 20 * MS);
        }
    }
}

fn path() -> impl Strategy<Value = Path> {
    let cut = (0_u64..5_000, 0_u64..30_000);
    (0_u64..30, 0_u64..30, 0_u64..50, prop::collection::vec(cut, 0..3), 0_u64..120)
        .prop_map(|(lost, repeated, late, cuts, delay_ms)| Path { lost, repeated, late, cuts, delay_ms })
}

fn pattern(length: usize, salt: u8) -> Vec<u8> {
    (0..length).map(|index| (index / 251 + index) as u8 ^ salt).collect()
}

const SOUND: Path = Path { lost: 0, repeated: 0, late: 0, cuts: Vec::new(), delay_ms: 10 };
const HOUR_NS: u64 = 3_600_000 * MS;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Each byte arrives once and in its order, or the link says that it is dead; and nothing hangs.
    #[test]
    fn bytes_arrive_once_and_in_order(
        path in path(),
        lengths in [0_usize..300_000, 0_usize..300_000],
        piece_bytes in 200_usize..PIECE_BYTES,
        seed: u64,
    ) {
        let wanted = [pattern(lengths[0], 3), pattern(lengths[1], 77)];
        let mut world = World::new(wanted.clone(), piece_bytes, seed);
        world.run(&path, HOUR_NS);
        for end in [0, 1] {
            let read = &world.read[end];
            prop_assert!(wanted[1 - end].starts_with(read));
            if world.ends[end].dead().is_none() {
                prop_assert_eq!(read.len(), wanted[1 - end].len());
            }
        }
        // A path without long cuts does not kill a link.
        if path.cuts.iter().all(|(_, length)| *length < 8_000) && path.cuts.len() < 2 && path.lost < 15 {
            prop_assert!(world.ends.iter().all(|end| end.dead().is_none()), "{:?}", world.ends[0].dead());
        }
    }

    /// Foreign bytes change nothing that they should not, and the memory that they need is bounded.
    #[test]
    fn foreign_datagrams_are_borne(datagrams in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..50)) {
        let mut link = Link::new(0, PIECE_BYTES);
        for bytes in datagrams {
            link.receive(1, &bytes);
            let mut near = vec![VERSION, bytes.first().copied().unwrap_or(0) & 3];
            // Small numbers, which are more plausible.
            near.extend(bytes.iter().enumerate().skip(1).map(|(at, byte)| if at % 8 < 2 { *byte } else { 0 }));
            link.receive(2, &near);
            opens(&bytes);
            prop_assert!(link.into.ready.len() <= WINDOW_BYTES);
            link.read();
            link.transmit(3);
        }
    }
}

#[test]
fn silence_kills_a_link_after_its_bound_and_a_stop_of_this_program_does_not() {
    let silent = Path { lost: 100, ..SOUND };
    let mut world = World::new([pattern(10, 0), Vec::new()], 1000, 1);
    world.run(&silent, SILENCE_NS + 100 * MS);
    assert!(world.ends.iter().all(|end| end.dead().is_some()));

    let mut link = Link::new(0, 1000);
    link.write(b"x");
    link.transmit(0);
    assert!(link.transmit(60_000 * MS).is_some(), "stopped for a minute, and sends again");
    assert_eq!(link.dead(), None);
    // An idle link lives on keep-alives.
    let mut world = World { finishes: false, ..World::new([vec![7], Vec::new()], 1000, 1) };
    for step in 0..10_000 {
        world.now_ns = step * 50 * MS;
        world.turn(&SOUND);
    }
    assert!(world.ends.iter().all(|end| end.dead().is_none()) && world.read[1] == [7]);
    assert!((300..400).contains(&world.number), "{} datagrams in 500 s", world.number);
}

#[test]
fn the_timeout_follows_the_round_trip_and_a_lost_window_costs_one() {
    let mut link = Link::new(0, 1000);
    link.write(&[1; 5000]);
    let sent: Vec<_> = std::iter::from_fn(|| link.transmit(0)).collect();
    assert_eq!(sent.len(), 5);
    assert_eq!(link.wake_ns(), FIRST_RESEND_NS);
    // Lost: only the first is sent again, then all that an answer shows to be lost.
    assert_eq!(std::iter::from_fn(|| link.transmit(FIRST_RESEND_NS)).count(), 1);
    let mut other = Link::new(0, 1000);
    other.receive(0, &sent[0]);
    let ack = other.transmit(0).unwrap();
    link.receive(FIRST_RESEND_NS + 50 * MS, &ack);
    assert_eq!(std::iter::from_fn(|| link.transmit(FIRST_RESEND_NS + 50 * MS)).count(), 4);

    let mut world = World::new([pattern(2_000_000, 1), Vec::new()], 30_000, 5);
    world.run(&Path { delay_ms: 150, ..SOUND }, HOUR_NS);
    assert!(world.ends[0].out.round_trip_ns.unwrap().0 >= 290 * MS);
    assert!(world.ends[0].out.resend_ns >= 300 * MS);
}

#[test]
fn an_end_that_is_forgotten_there_ends_here() {
    let mut link = Link::new(0, 1000);
    link.write(b"x");
    let first = link.transmit(0).unwrap();
    assert!(opens(&first) && !is_over(&first) && !opens(&over()) && is_over(&over()) && is_over(b""));
    link.receive(1, &over());
    assert!(link.dead().is_some());
    // Everything has arrived, only the last acknowledgement was lost: no fault.
    let (mut near, mut far) = (Link::new(0, 1000), Link::new(0, 1000));
    far.finish();
    near.receive(1, &far.transmit(0).unwrap());
    near.finish();
    near.transmit(1);
    near.receive(2, &over());
    assert!(near.dead().is_none() && near.is_over() && near.has_read_all());
}
