//! The model of one direction of a link: a bounded queue, a wire with a certain rate, faults and a delay line. It has
//! no clock: the caller passes the current time.
//!
//! The model computes departures to the nanosecond. A late call does not change them, so that delays do not add up.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::{
    counters::PipeCounters,
    loss::LossProcess,
    spec::{JitterOrder, Shape},
    store::{PacketId, Store},
};

/// Segments of one packet that leave the link at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Delivery {
    /// Time of arrival, in nanoseconds, on the clock of [`Pipe::offer`].
    pub due_ns: u64,
    /// The packet that the segments belong to. The receiver of the delivery must release it.
    pub packet: PacketId,
    /// Index of the first segment.
    pub first: u16,
    /// Number of segments.
    pub count: u16,
}

/// One direction of a link.
#[derive(Debug)]
pub(super) struct Pipe {
    shape: Shape,
    queue_bytes: Option<u64>,
    is_up: bool,
    rng: Pcg64Mcg,
    loss: LossProcess,
    waiting: VecDeque<Group>,
    waiting_bytes: u64,
    wire: Wire,
    second: Second,
    line: VecDeque<Delivery>,
    late: BinaryHeap<Reverse<Delivery>>,
    counters: PipeCounters,
}

/// Segments of one packet that pass the wire as a unit.
#[derive(Debug, Clone, Copy)]
struct Group {
    packet: PacketId,
    first: u16,
    count: u16,
    bytes: u64,
    arrived_ns: u64,
    /// Jitter, if it is drawn when the packet arrives; none if it is drawn when the group departs.
    jitter_ns: Option<u64>,
}

/// The state of the wire. The first waiting group is on it.
#[derive(Debug, Clone, Copy, Default)]
struct Wire {
    /// Start of the current group. Like `finish_ns`, it has a meaning only while a group waits.
    started_ns: u64,
    finish_ns: u64,
    /// Bits × 10⁹ of the current group that were left at `started_ns`.
    remaining: u128,
    /// Bits × 10⁹ lost by rounding up to whole nanoseconds: a credit for the next group.
    credit: u128,
    /// Time at which the wire becomes free, or became free if nothing waits.
    free_ns: u64,
}

/// The busy time of the wire in the current second.
#[derive(Debug, Clone, Copy, Default)]
struct Second {
    began_ns: u64,
    worked_ns: u64,
}

impl Second {
    /// Adds work that ended at `now_ns`. When the second has ended and the wire was busy for 90 % of it, returns its
    /// length, otherwise 0.
    fn add(&mut self, worked_ns: u64, now_ns: u64) -> u64 {
        self.worked_ns += worked_ns;
        let passed_ns = now_ns - self.began_ns;
        if passed_ns < 1_000_000_000 {
            return 0;
        }
        let is_full = self.worked_ns * 10 >= passed_ns * 9;
        *self = Self { began_ns: now_ns, worked_ns: 0 };
        if is_full { passed_ns } else { 0 }
    }
}

impl Pipe {
    /// An idle link. `round_trip_ns` sets the size of a queue that is a multiple of the bandwidth-delay product.
    pub(super) fn new(shape: Shape, round_trip_ns: u64) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(shape.seed);
        Self {
            queue_bytes: shape.queue_bytes(round_trip_ns),
            loss: LossProcess::new(shape.loss, &mut rng),
            is_up: true,
            rng,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            wire: Wire::default(),
            second: Second::default(),
            line: VecDeque::new(),
            late: BinaryHeap::new(),
            counters: PipeCounters::default(),
            shape,
        }
    }

    /// Changes the shape at `now_ns`. Waiting packets leave at the new rate. Packets in the delay line arrive as
    /// planned, and later packets do not overtake them. A new seed restarts the random numbers.
    pub(super) fn reshape(&mut self, now_ns: u64, shape: Shape, round_trip_ns: u64, store: &mut Store) {
        self.advance(now_ns, store);
        if !self.waiting.is_empty() && now_ns > self.wire.started_ns {
            let rate = u128::from(self.shape.rate_bits_per_s.unwrap_or(u64::MAX));
            let done = u128::from(now_ns - self.wire.started_ns) * rate;
            self.wire.remaining = self.wire.remaining.saturating_sub(done);
            self.wire.started_ns = now_ns;
        }
        self.wire.credit = 0;
        let is_drawn_anew = self.shape.seed != shape.seed;
        if is_drawn_anew {
            self.rng = Pcg64Mcg::seed_from_u64(shape.seed);
        }
        if is_drawn_anew || self.shape.loss != shape.loss {
            self.loss = LossProcess::new(shape.loss, &mut self.rng);
        }
        self.queue_bytes = shape.queue_bytes(round_trip_ns);
        self.shape = shape;
        if !self.waiting.is_empty() {
            self.wire.set_finish(self.shape.rate_bits_per_s);
        }
        self.advance(now_ns, store);
    }

    /// Takes the link up or down. A link that goes down loses all its packets.
    pub(super) fn set_up(&mut self, now_ns: u64, is_up: bool, store: &mut Store) {
        self.advance(now_ns, store);
        self.is_up = is_up;
        if is_up {
            return;
        }
        let waiting = self.waiting.drain(..).map(|group| (group.packet, group.count));
        let in_delay_line = self.line.drain(..).chain(self.late.drain().map(|Reverse(delivery)| delivery));
        for (packet, count) in waiting.chain(in_delay_line.map(|delivery| (delivery.packet, delivery.count)))
        {
            self.counters.dropped_down_packets += u64::from(count);
            store.release(packet);
        }
        self.waiting_bytes = 0;
        self.wire = Wire { free_ns: now_ns, ..Wire::default() };
    }

    /// Adds a packet that arrived at `now_ns`. The pipe takes over the caller's reference to it.
    pub(super) fn offer(&mut self, now_ns: u64, packet: PacketId, store: &mut Store) {
        self.advance(now_ns, store);
        let layout = store.layout(packet);
        let layer = self.shape.layer;
        let bytes_of = |first, count| layout.sum(first, count, |ip| layer.bytes(ip));
        let all_bytes = bytes_of(0, layout.segments);
        let jitter_ns = (self.shape.jitter_order == JitterOrder::Free).then(|| self.draw_jitter());
        self.counters.offered_packets += u64::from(layout.segments);
        self.counters.offered_bytes += all_bytes;
        self.counters.reads += 1;
        if !self.is_up {
            self.counters.dropped_down_packets += u64::from(layout.segments);
        } else if let Some(rate) = self.shape.rate_bits_per_s {
            let segment_bytes = bytes_of(0, 1);
            let limit = self.queue_bytes.unwrap_or(u64::MAX);
            let group_bytes = u128::from(rate) * u128::from(self.shape.group_ns()) / 8_000_000_000;
            let max_count =
                ((group_bytes / u128::from(segment_bytes)) as u64).clamp(1, u64::from(u16::MAX)) as u16;
            // The groups have about the same size: 45 segments in groups of at most 40 become 23 and 22.
            let together = layout.segments.div_ceil(layout.segments.div_ceil(max_count));
            let mut first = 0;
            while first < layout.segments {
                let mut count = together.min(layout.segments - first);
                let mut bytes = bytes_of(first, count);
                // On an empty link, a frame goes to the wire at once, however small the queue is.
                if !self.waiting.is_empty() && self.waiting_bytes + bytes > limit {
                    let room = limit.saturating_sub(self.waiting_bytes) / segment_bytes;
                    count = count.min(room as u16);
                    bytes = bytes_of(first, count);
                }
                if count == 0 {
                    self.counters.dropped_queue_packets += u64::from(layout.segments - first);
                    break;
                }
                store.retain(packet);
                self.enqueue(Group { packet, first, count, bytes, arrived_ns: now_ns, jitter_ns });
                first += count;
            }
            self.counters.peak_queue_bytes = self.counters.peak_queue_bytes.max(self.waiting_bytes);
        } else {
            store.retain(packet);
            let (count, bytes) = (layout.segments, all_bytes);
            let group = Group { packet, first: 0, count, bytes, arrived_ns: now_ns, jitter_ns };
            self.depart(group, now_ns, store);
        }
        store.release(packet);
    }

    /// Removes the next segments that are due at `now_ns`; none if nothing is due. The caller must release their
    /// packet.
    pub(super) fn pop(&mut self, now_ns: u64, store: &mut Store) -> Option<Delivery> {
        self.advance(now_ns, store);
        let ordered = self.line.front().map(|delivery| delivery.due_ns);
        let late = self.late.peek().map(|Reverse(delivery)| delivery.due_ns);
        let delivery = match (ordered, late) {
            (Some(due_ns), late) if due_ns <= now_ns && late.is_none_or(|late| due_ns <= late) => {
                self.line.pop_front()
            }
            (_, Some(due_ns)) if due_ns <= now_ns => self.late.pop().map(|Reverse(delivery)| delivery),
            _ => None,
        }?;
        self.counters.delivered_packets += u64::from(delivery.count);
        let layer = self.shape.layer;
        self.counters.delivered_bytes +=
            store.layout(delivery.packet).sum(delivery.first, delivery.count, |ip| layer.bytes(ip));
        Some(delivery)
    }

    /// Time at which to call [`pop`](Self::pop) next; none while the link is empty.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let waiting = self.waiting.front().map(|_| self.wire.finish_ns.saturating_add(self.shape.delay_ns));
        let line = self.line.front().map(|delivery| delivery.due_ns);
        let late = self.late.peek().map(|Reverse(delivery)| delivery.due_ns);
        // A waiting group may overtake packets in the delay line, so both are compared.
        [line, waiting, late].into_iter().flatten().min()
    }

    pub(super) fn counters(&self) -> PipeCounters {
        let in_delay_line = self.line.iter().chain(self.late.iter().map(|Reverse(delivery)| delivery));
        PipeCounters {
            queue_bytes: self.waiting_bytes,
            queue_packets: self.waiting.iter().map(|group| u64::from(group.count)).sum(),
            flying_packets: in_delay_line.map(|delivery| u64::from(delivery.count)).sum(),
            ..self.counters
        }
    }

    fn enqueue(&mut self, group: Group) {
        self.waiting_bytes += group.bytes;
        self.waiting.push_back(group);
        if self.waiting.len() == 1 {
            self.wire.start(&group, self.shape.rate_bits_per_s);
        }
    }

    /// Moves the groups that have left the wire by `now_ns` to the delay line.
    fn advance(&mut self, now_ns: u64, store: &mut Store) {
        while let Some(&group) = self.waiting.front() {
            let finish_ns = self.wire.finish_ns;
            if finish_ns > now_ns {
                break;
            }
            self.waiting.pop_front();
            self.waiting_bytes -= group.bytes;
            self.wire.free_ns = finish_ns;
            self.counters.full_ns += self.second.add(finish_ns - self.wire.started_ns, finish_ns);
            if let Some(next) = self.waiting.front() {
                self.wire.start(next, self.shape.rate_bits_per_s);
            }
            self.depart(group, finish_ns, store);
        }
    }

    /// Moves a group whose last bit leaves the wire at `at_ns` to the delay line. Applies loss, reordering and
    /// duplication.
    fn depart(&mut self, group: Group, at_ns: u64, store: &mut Store) {
        let jitter_ns = group.jitter_ns.unwrap_or_else(|| self.draw_jitter());
        let arrival_ns = at_ns.saturating_add(self.shape.delay_ns).saturating_add(jitter_ns);
        let may_overtake = group.jitter_ns.is_some();
        let before_ns = self.line.back().filter(|_| !may_overtake).map_or(0, |delivery| delivery.due_ns);
        let due_ns = arrival_ns.max(before_ns);
        let delivery = Delivery { due_ns, packet: group.packet, first: group.first, count: group.count };
        let is_plain = self.shape.reorder.is_none() && self.shape.duplicate_ratio == 0.0;
        if is_plain && self.loss.pass_all(u64::from(group.count)) {
            self.schedule(delivery, may_overtake);
            return;
        }
        let mut run = Delivery { count: 0, ..delivery };
        for index in group.first..group.first + group.count {
            let single = Delivery { first: index, count: 1, ..delivery };
            if self.loss.step(&mut self.rng) {
                self.counters.dropped_loss_packets += 1;
                self.flush_run(&mut run, index + 1, may_overtake, store);
                continue;
            }
            if let Some(reorder) = self.shape.reorder
                && self.rng.random::<f64>() < reorder.ratio
            {
                self.counters.reordered_packets += 1;
                store.retain(group.packet);
                self.late
                    .push(Reverse(Delivery { due_ns: due_ns.saturating_add(reorder.late_ns), ..single }));
                self.flush_run(&mut run, index + 1, may_overtake, store);
                continue;
            }
            run.count += 1;
            if self.shape.duplicate_ratio > 0.0 && self.rng.random::<f64>() < self.shape.duplicate_ratio {
                self.counters.duplicated_packets += 1;
                self.flush_run(&mut run, index + 1, may_overtake, store);
                store.retain(group.packet);
                self.schedule(single, may_overtake);
            }
        }
        self.flush_run(&mut run, 0, may_overtake, store);
        store.release(group.packet);
    }

    /// Schedules a run of adjacent segments that were not lost, and begins the next run.
    fn flush_run(&mut self, run: &mut Delivery, next_first: u16, may_overtake: bool, store: &mut Store) {
        if run.count > 0 {
            store.retain(run.packet);
            self.schedule(*run, may_overtake);
        }
        (run.first, run.count) = (next_first, 0);
    }

    /// Adds a delivery to the delay line, or to the heap of deliveries that may overtake others.
    fn schedule(&mut self, delivery: Delivery, may_overtake: bool) {
        if may_overtake { self.late.push(Reverse(delivery)) } else { self.line.push_back(delivery) }
    }

    fn draw_jitter(&mut self) -> u64 {
        if self.shape.jitter.is_zero() { 0 } else { self.shape.jitter.sample_ns(&mut self.rng) }
    }
}

impl Wire {
    /// Starts a group when it has arrived and the wire is free.
    fn start(&mut self, group: &Group, rate_bits_per_s: Option<u64>) {
        if group.arrived_ns > self.free_ns {
            self.credit = 0;
        }
        self.started_ns = group.arrived_ns.max(self.free_ns);
        self.remaining = (u128::from(group.bytes) * 8_000_000_000).saturating_sub(self.credit);
        self.credit = 0;
        self.set_finish(rate_bits_per_s);
    }

    fn set_finish(&mut self, rate_bits_per_s: Option<u64>) {
        let Some(rate) = rate_bits_per_s else {
            self.finish_ns = self.started_ns;
            return;
        };
        let rate = u128::from(rate);
        let ns = self.remaining.div_ceil(rate);
        self.credit = ns * rate - self.remaining;
        self.finish_ns = self.started_ns.saturating_add(u64::try_from(ns).unwrap_or(u64::MAX));
    }
}

#[cfg(test)]
#[path = "pipe_tests.rs"]
mod tests;
