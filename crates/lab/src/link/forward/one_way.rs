//! One direction of a link: reads packets from one device and writes them to the other when they are due.

use std::{fs::File, sync::Arc};

use clock::monotonic_ns;
use hdrhistogram::Histogram;
use rustix::io::{Errno, IoSlice, read, write, writev};

use crate::link::{
    counters::{Counters, LATE_NS, Lateness},
    packet::{Layout, MAX_HEADER_BYTES},
    pipe::{Delivery, Pipe},
    store::Store,
};

/// Maximum number of packets read before due packets are written.
pub(super) const READS_PER_TURN: usize = 32;

/// One direction.
pub(super) struct OneWay {
    pub(super) from: Arc<File>,
    pub(super) to: Arc<File>,
    pub(super) pipe: Pipe,
    pub(super) store: Store,
    pub(super) counters: Counters,
    lateness: Histogram<u64>,
    /// Whether the source device is gone.
    pub(super) is_gone: bool,
}

impl OneWay {
    pub(super) fn new(from: Arc<File>, to: Arc<File>, pipe: Pipe, max_bytes: usize) -> Self {
        Self {
            from,
            to,
            pipe,
            store: Store::new(max_bytes),
            counters: Counters::default(),
            // The maximum is one minute, in nanoseconds, with three significant digits.
            lateness: Histogram::new_with_max(60_000_000_000, 3).expect("the bounds are valid"),
            is_gone: false,
        }
    }

    /// Reads at most [`READS_PER_TURN`] packets and returns their number. With `is_late`, they count as late.
    pub(super) fn read_some(&mut self, is_late: bool) -> usize {
        let mut discarded = [0; 64];
        for number in 0..READS_PER_TURN {
            if self.is_gone {
                return 0;
            }
            let (buffer, is_kept) = match self.store.next_buffer() {
                Some(buffer) => (buffer, true),
                // Without free memory, the packet is read and dropped here: if the kernel dropped it, this counter
                // would miss it.
                None => (&mut discarded[..], false),
            };
            match read(&*self.from, &mut *buffer) {
                Ok(bytes) if is_kept => match Layout::of(&buffer[..bytes]) {
                    Some(layout) => {
                        self.counters.late_packets += if is_late { u64::from(layout.segments) } else { 0 };
                        let packet = self.store.commit(bytes, layout);
                        self.pipe.offer(monotonic_ns(), packet, &mut self.store);
                    }
                    None => self.counters.refused_writes += 1,
                },
                Ok(_) => self.counters.dropped_memory_packets += 1,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return number,
                // The device fails only when the host and its interface are gone.
                Err(_) => self.is_gone = true,
            }
        }
        READS_PER_TURN
    }

    /// Writes the packets that are due and returns their number.
    pub(super) fn write_due(&mut self) -> usize {
        let mut written = 0;
        let mut now = monotonic_ns();
        while let Some(delivery) = self.pipe.pop(now, &mut self.store) {
            self.write(&delivery);
            self.store.release(delivery.packet);
            let late_ns = now.saturating_sub(delivery.due_ns);
            self.lateness.saturating_record(late_ns);
            self.counters.late_packets += if late_ns > LATE_NS { u64::from(delivery.count) } else { 0 };
            now = monotonic_ns();
            written += 1;
        }
        written
    }

    fn write(&mut self, delivery: &Delivery) {
        let packet = self.store.bytes(delivery.packet);
        let mut buffer = [0; MAX_HEADER_BYTES];
        let (head, payload) =
            self.store.layout(delivery.packet).cut(packet, delivery.first, delivery.count, &mut buffer);
        let written = if head == 0 {
            write(&*self.to, packet)
        } else {
            writev(&*self.to, &[IoSlice::new(&buffer[..head]), IoSlice::new(&packet[payload])])
        };
        self.counters.writes += 1;
        if let Err(error) = written {
            self.counters.refused_writes += 1;
            self.counters.refused_because = Some(error.to_string());
        }
    }

    pub(super) fn count(&self) -> Counters {
        let some = |ns| (!self.lateness.is_empty()).then_some(ns);
        let at = |quantile| some(self.lateness.value_at_quantile(quantile));
        Counters {
            pipe: self.pipe.counters(),
            lateness: Lateness {
                p50_ns: at(0.5),
                p99_ns: at(0.99),
                p999_ns: at(0.999),
                max_ns: some(self.lateness.max()),
            },
            ..self.counters.clone()
        }
    }
}
