//! Tests of the model on virtual time.

use proptest::prelude::*;
use record::Distribution;

use super::*;
use crate::link::{
    packet::{Layout, VIRTIO_BYTES},
    spec::{JitterOrder, Layer, Loss, Queue, Reorder},
};

const MS: u64 = 1_000_000;
const GBIT: u64 = 1_000_000_000;

struct TestPipe {
    pipe: Pipe,
    store: Store,
}

impl TestPipe {
    fn new(shape: Shape) -> Self {
        Self { pipe: Pipe::new(shape, 228 * MS), store: Store::new(64 << 20) }
    }

    fn offer(&mut self, now_ns: u64, ip_bytes: u32) {
        let _ = self.store.next_buffer().expect("memory");
        let id = self.store.commit(VIRTIO_BYTES, Layout::single(ip_bytes));
        self.pipe.offer(now_ns, id, &mut self.store);
    }

    /// A TCP super-packet, as the kernel makes it, with segments of 1,500 IP bytes.
    fn offer_super(&mut self, now_ns: u64, segments: usize) {
        let mut packet = vec![0; VIRTIO_BYTES + 52 + segments * 1_448];
        packet[1] = 1;
        packet[4..6].copy_from_slice(&1_448_u16.to_le_bytes());
        packet[6..8].copy_from_slice(&20_u16.to_le_bytes());
        packet[VIRTIO_BYTES] = 0x45;
        packet[VIRTIO_BYTES + 32] = 8 << 4;
        let layout = Layout::of(&packet).unwrap();
        assert_eq!(usize::from(layout.segments), segments);
        self.store.next_buffer().expect("memory")[..packet.len()].copy_from_slice(&packet);
        let id = self.store.commit(packet.len(), layout);
        self.pipe.offer(now_ns, id, &mut self.store);
    }

    /// Times until `until_ns` at which segments leave the link, each with the number of segments.
    fn drain(&mut self, until_ns: u64) -> Vec<(u64, u16)> {
        let mut out = Vec::new();
        while let Some(next_ns) = self.pipe.next_ns().filter(|&next_ns| next_ns <= until_ns) {
            let Some(delivery) = self.pipe.pop(next_ns, &mut self.store) else { continue };
            self.store.release(delivery.packet);
            out.push((next_ns, delivery.count));
        }
        out
    }

    fn finish(mut self) -> PipeCounters {
        self.drain(u64::MAX);
        let counters = self.pipe.counters();
        assert!(is_balanced(&counters), "{counters:?}");
        assert_eq!((self.store.packets(), self.pipe.next_ns()), (0, None), "something is left");
        counters
    }
}

#[test]
fn another_seed_draws_anew_and_the_first_one_from_the_start() {
    let shape = |seed| Shape {
        jitter: Distribution::Exponential { mean_ns: 5 * MS },
        jitter_order: JitterOrder::Free,
        loss: Loss::Random { ratio: 0.3 },
        seed,
        ..Shape::default()
    };
    let mut test = TestPipe::new(shape(1));
    let drawn = |test: &mut TestPipe, number: u64| {
        let from_ns = number * 10_000 * MS;
        (0..50).for_each(|packet| test.offer(from_ns + packet, 100));
        let came = test.drain(from_ns + 10_000 * MS);
        came.into_iter().map(|(at_ns, _)| at_ns - from_ns).collect::<Vec<u64>>()
    };
    let first = drawn(&mut test, 0);
    test.pipe.reshape(10_000 * MS, shape(2), 0, &mut test.store);
    let second = drawn(&mut test, 1);
    test.pipe.reshape(20_000 * MS, shape(1), 0, &mut test.store);
    let third = drawn(&mut test, 2);
    assert!(first != second && first == third, "{first:?}\n{second:?}\n{third:?}");
}

/// Whether the counters account for every packet.
fn is_balanced(counters: &PipeCounters) -> bool {
    let gone = counters.dropped_queue_packets + counters.dropped_loss_packets + counters.dropped_down_packets;
    counters.offered_packets + counters.duplicated_packets
        == counters.delivered_packets + gone + counters.queue_packets + counters.flying_packets
}

fn gigabit() -> Shape {
    Shape { rate_bits_per_s: Some(GBIT), delay_ns: 114 * MS, ..Shape::default() }
}

#[test]
fn a_lone_frame_takes_its_time_on_the_wire_and_then_the_delay() {
    let mut test = TestPipe::new(gigabit());
    test.offer(5, 1_500);
    assert_eq!(test.drain(u64::MAX), [(5 + 1_538 * 8 + 114 * MS, 1)]);
}

#[test]
fn the_rate_is_exact_over_any_number_of_frames() {
    // At 3 Gbit/s, a byte takes 8/3 ns, which is not a whole number of nanoseconds.
    let shape = Shape { rate_bits_per_s: Some(3 * GBIT), ..Shape::default() };
    let mut test = TestPipe::new(Shape { queue: Queue::Bytes { bytes: 1 << 30 }, ..shape });
    for _ in 0..10_000 {
        test.offer(0, 1_501);
    }
    let last = test.drain(u64::MAX).last().unwrap().0;
    let exact = 10_000.0 * 1_539.0 * 8.0 / 3.0;
    assert!((last as f64 - exact).abs() <= 1.0, "{last} for {exact}");
}

#[test]
fn a_super_packet_leaves_in_pieces_of_a_fiftieth_of_the_delay() {
    let mut test = TestPipe::new(Shape { delay_ns: 5 * MS, ..gigabit() });
    test.offer_super(0, 40);
    let out = test.drain(u64::MAX);
    assert!(out.iter().all(|&(_, count)| count == 8) && out.len() == 5, "{out:?}");
    assert_eq!(out[0].0, 5 * MS + 8 * 1_538 * 8);
    assert_eq!(out[4].0, 5 * MS + 40 * 1_538 * 8);
    let mut long = TestPipe::new(gigabit());
    long.offer_super(0, 45);
    assert_eq!(long.drain(u64::MAX), [(114 * MS + 45 * 1_538 * 8, 45)]);
    let mut slow = TestPipe::new(Shape { rate_bits_per_s: Some(20_000_000), ..Shape::default() });
    slow.offer_super(0, 40);
    assert_eq!(slow.drain(u64::MAX).len(), 40);
}

#[test]
fn without_a_rate_there_is_no_queue_and_no_cutting() {
    let mut test = TestPipe::new(Shape { delay_ns: MS, ..Shape::default() });
    test.offer_super(7, 45);
    assert_eq!(test.drain(u64::MAX), [(7 + MS, 45)]);
}

#[test]
fn a_full_queue_drops_the_tail_by_segments() {
    let queue = Queue::Bytes { bytes: 30 * 1_538 };
    let mut test = TestPipe::new(Shape { queue, delay_ns: 5 * MS, ..gigabit() });
    test.offer_super(0, 40);
    test.offer(0, 1_500);
    // Segments leave in groups of 8, so only 8 have left after the time of 10 segments. There is then room for 8 more.
    test.offer_super(10 * 1_538 * 8, 40);
    let counters = test.finish();
    assert_eq!(counters.delivered_packets, 30 + 8);
    assert_eq!(counters.dropped_queue_packets, 10 + 1 + 32);
    assert_eq!(counters.peak_queue_bytes, 30 * 1_538);
}

#[test]
fn the_seconds_in_which_the_wire_is_full_are_counted() {
    let mut test = TestPipe::new(gigabit());
    let mut carry = |seconds: std::ops::Range<u64>, share: u64| {
        // At 1 Gbit/s, 812 frames take 10 ms.
        for tick in seconds.start * 100..seconds.end * 100 {
            (0..812 * share / 100).for_each(|_| test.offer(tick * 10 * MS, 1_500));
            test.drain(tick * 10 * MS);
        }
    };
    carry(0..3, 80);
    carry(3..6, 100);
    carry(9..12, 80);
    let full_s = test.finish().full_ns as f64 / 1e9;
    assert!((1.9..=3.1).contains(&full_s), "{full_s}");
}

#[test]
fn a_frame_larger_than_the_queue_passes_an_idle_link() {
    let mut test = TestPipe::new(Shape { queue: Queue::Bytes { bytes: 1_600 }, ..gigabit() });
    test.offer(0, 9_000);
    test.offer(0, 1_500);
    assert_eq!(test.finish().delivered_packets, 1);
}

#[test]
fn lost_segments_split_a_super_packet() {
    let mut test = TestPipe::new(Shape { loss: Loss::Random { ratio: 0.01 }, ..gigabit() });
    for i in 0..2_000 {
        test.offer_super(i * MS, 45);
        test.drain(i * MS);
    }
    let counters = test.finish();
    let share = counters.dropped_loss_packets as f64 / counters.offered_packets as f64;
    assert!((share - 0.01).abs() < 0.0014, "{share}");
}

#[test]
fn what_is_lost_has_taken_its_time_on_the_wire() {
    let mut test = TestPipe::new(Shape { loss: Loss::Random { ratio: 0.5 }, ..gigabit() });
    (0..200).for_each(|_| test.offer(0, 1_500));
    for (at_ns, _) in test.drain(u64::MAX) {
        assert_eq!((at_ns - 114 * MS) % (1_538 * 8), 0);
    }
}

#[test]
fn late_segments_are_overtaken_and_twins_follow_at_once() {
    let reorder = Some(Reorder { ratio: 0.1, late_ns: 2 * MS });
    let mut test = TestPipe::new(Shape { reorder, duplicate_ratio: 0.1, ..Shape::default() });
    for i in 0..1_000 {
        test.offer(i * MS, 1_000);
    }
    let out = test.drain(u64::MAX);
    let counters = test.finish();
    assert!((60..140).contains(&counters.reordered_packets), "{counters:?}");
    assert!((60..140).contains(&counters.duplicated_packets), "{counters:?}");
    assert_eq!(out.len() as u64, 1_000 + counters.duplicated_packets);
}

#[test]
fn jitter_is_added_and_keeps_the_order() {
    let jitter = Distribution::Uniform { min_ns: 0, max_ns: 10 * MS };
    let mut test = TestPipe::new(Shape { delay_ns: MS, jitter, ..Shape::default() });
    for i in 0..1_000 {
        test.offer(i * 100 * MS, 1_000);
    }
    let delays: Vec<u64> =
        test.drain(u64::MAX).iter().zip(0..).map(|((at, _), i)| at - i * 100 * MS).collect();
    assert!(delays.iter().all(|&delay| (MS..=11 * MS).contains(&delay)));
    let mean = delays.iter().sum::<u64>() as f64 / 1e3;
    assert!((mean / 6e6 - 1.0).abs() < 0.05, "{mean}");
}

#[test]
fn free_jitter_is_what_was_asked_for_at_any_rate_and_kept_order_adds_to_it() {
    let delays = |jitter_order| {
        let jitter = Distribution::Uniform { min_ns: 0, max_ns: 20 * MS };
        let mut test = TestPipe::new(Shape { jitter, jitter_order, ..Shape::default() });
        // There are 5,000 packets per second, and the size of each identifies it.
        let left_ns = |bytes: u64| bytes * MS / 5;
        (1..=5_000).for_each(|bytes| test.offer(left_ns(bytes), bytes as u32));
        let mut arrived = Vec::new();
        while let Some(delivery) = test.pipe.pop(u64::MAX, &mut test.store) {
            let bytes = u64::from(test.store.layout(delivery.packet).ip_bytes);
            arrived.push((bytes, delivery.due_ns - left_ns(bytes)));
        }
        let is_ordered = arrived.is_sorted_by_key(|(bytes, _)| *bytes);
        let mut delays: Vec<u64> = arrived.into_iter().map(|(_, delay)| delay).collect();
        delays.sort_unstable();
        (is_ordered, delays)
    };
    let (is_ordered, free) = delays(JitterOrder::Free);
    let farthest = free.iter().zip(1..).map(|(&ns, rank)| (ns as f64 / 20e6 - rank as f64 / 5e3).abs());
    assert!(!is_ordered && farthest.fold(0.0, f64::max) < 0.025, "Kolmogorov-Smirnov");
    let (is_ordered, kept) = delays(JitterOrder::Keep);
    assert!(is_ordered && kept[2_500] > 17 * MS, "{}", kept[2_500]);
}

#[test]
fn a_packet_draws_its_free_jitter_once() {
    let jitter = Distribution::Uniform { min_ns: 0, max_ns: 20 * MS };
    let shape = Shape {
        rate_bits_per_s: Some(GBIT / 100),
        jitter,
        jitter_order: JitterOrder::Free,
        ..Shape::default()
    };
    let mut test = TestPipe::new(shape);
    test.offer_super(0, 10);
    let arrived = test.drain(u64::MAX);
    let each_ns = arrived[1].0 - arrived[0].0;
    assert!(
        arrived.len() == 10 && arrived.windows(2).all(|pair| (pair[1].0 - pair[0].0).abs_diff(each_ns) <= 1)
    );
}

#[test]
fn a_new_rate_holds_for_what_already_waits() {
    let shape = Shape { rate_bits_per_s: Some(GBIT), layer: Layer::Ip, ..Shape::default() };
    let mut test = TestPipe::new(shape.clone());
    test.offer(0, 1_000);
    test.offer(0, 1_000);
    let slower = Shape { rate_bits_per_s: Some(GBIT / 10), delay_ns: 5, ..shape.clone() };
    // After 4 µs, half of the first packet has left.
    test.pipe.reshape(4_000, slower, 0, &mut test.store);
    assert_eq!(test.drain(u64::MAX), [(4_000 + 40_000 + 5, 1), (4_000 + 120_000 + 5, 1)]);
    test.offer(MS, 1_000);
    test.offer(MS, 1_000);
    test.pipe.reshape(MS + 1, Shape { rate_bits_per_s: None, ..shape }, 0, &mut test.store);
    assert_eq!(test.drain(u64::MAX).len(), 2);
    assert_eq!(test.finish().delivered_packets, 4);
}

#[test]
fn a_shorter_delay_lets_nothing_overtake() {
    let mut test = TestPipe::new(gigabit());
    test.offer(0, 1_000);
    test.pipe.reshape(MS, Shape { delay_ns: MS, ..gigabit() }, 2 * MS, &mut test.store);
    test.offer(2 * MS, 1_000);
    let out = test.drain(u64::MAX);
    assert_eq!(out.len(), 2);
    assert!(out[1].0 >= out[0].0 && out[0].0 > 114 * MS);
}

#[test]
fn a_cut_link_loses_what_is_in_it_and_works_again_when_mended() {
    let mut test = TestPipe::new(gigabit());
    (0..100).for_each(|_| test.offer(0, 1_500));
    test.pipe.set_up(50 * 1_538 * 8, false, &mut test.store);
    test.offer(MS, 1_500);
    assert_eq!(test.pipe.next_ns(), None);
    test.pipe.set_up(2 * MS, true, &mut test.store);
    test.offer(3 * MS, 1_500);
    assert_eq!(test.drain(u64::MAX), [(3 * MS + 1_538 * 8 + 114 * MS, 1)]);
    let counters = test.finish();
    assert_eq!((counters.dropped_down_packets, counters.delivered_packets), (101, 1));
}

proptest! {
    #[test]
    fn nothing_is_lost_from_the_books(
        seed: u64, rate in prop::option::of(100_000_u64..10 * GBIT), delay_ns in 0..10 * MS,
        lost in 0.0..1.0, twice in 0.0..1.0, late in 0.0..1.0, queue in 1_600_u64..200_000,
        steps in prop::collection::vec((0_u8..6, 0..MS, 1_usize..46), 1..100),
    ) {
        let shape = Shape {
            rate_bits_per_s: rate, delay_ns, loss: Loss::Random { ratio: lost }, duplicate_ratio: twice,
            reorder: Some(Reorder { ratio: late, late_ns: MS }), queue: Queue::Bytes { bytes: queue }, seed,
            ..Shape::default()
        };
        let mut test = TestPipe::new(shape.clone());
        let mut now_ns = 0;
        for (action, wait_ns, size) in steps {
            now_ns += wait_ns;
            match action {
                0 => { test.drain(now_ns); }
                1 => test.pipe.set_up(now_ns, size % 2 == 0, &mut test.store),
                2 => {
                    let rate_bits_per_s = (size > 2).then_some(size as u64 * 1_000_000);
                    test.pipe.reshape(now_ns, Shape { rate_bits_per_s, ..shape.clone() }, 0, &mut test.store);
                }
                3 => test.offer(now_ns, size as u32 * 30),
                _ => test.offer_super(now_ns, size),
            }
            prop_assert!(is_balanced(&test.pipe.counters()));
        }
        test.finish();
    }
}

#[test]
fn what_is_free_to_overtake_is_asked_for_in_time() {
    let jitter = Distribution::Fixed { ns: 500 * MS };
    let kept = Shape { rate_bits_per_s: Some(GBIT), delay_ns: MS, jitter, ..Shape::default() };
    let free =
        Shape { jitter: Distribution::Fixed { ns: 0 }, jitter_order: JitterOrder::Free, ..kept.clone() };
    let mut test = TestPipe::new(kept);
    test.offer(0, 1_462);
    test.pipe.reshape(MS, free, 2 * MS, &mut test.store);
    test.offer(MS, 1_462);
    // 1,500 bytes take 12 µs.
    assert_eq!(test.drain(10 * MS), [(2 * MS + 12_000, 1)]);
    assert_eq!(test.drain(1_000 * MS), [(501 * MS + 12_000, 1)]);
}
