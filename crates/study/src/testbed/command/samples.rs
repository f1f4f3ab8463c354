//! Samples the memory and the traffic of programs while they run.

use std::{
    io,
    time::{Duration, Instant},
};

use command::{Flows, MemoryGroup};

use super::supervisors::LinkCounter;

/// Samples the memory of programs and their traffic.
pub(super) struct Samples<'a> {
    pub flows: Flows,
    pub memory: Option<&'a MemoryGroup>,
    pub peak_memory_bytes: Option<u64>,
    /// The longest time without a sample.
    pub unsampled: Duration,
    sampled: Instant,
}

impl<'a> Samples<'a> {
    pub(super) fn start(flows: Flows, memory: Option<&'a MemoryGroup>) -> Self {
        let (peak_memory_bytes, unsampled, sampled) = (None, Duration::ZERO, Instant::now());
        Self { flows, memory, peak_memory_bytes, unsampled, sampled }
    }

    /// Samples the memory and, if the counters of the links are given, all traffic.
    pub(super) fn sample(&mut self, links: Option<&[LinkCounter]>) -> io::Result<()> {
        self.unsampled = self.unsampled.max(self.sampled.elapsed());
        self.sampled = Instant::now();
        let used_bytes = self.memory.and_then(MemoryGroup::used_bytes);
        self.peak_memory_bytes = self.peak_memory_bytes.max(used_bytes);
        let Some(links) = links else { return Ok(()) };
        self.flows.sample()?;
        links.iter().for_each(|link| self.flows.count(link.flow.clone(), link.delivered.0, link.delivered.1));
        Ok(())
    }
}
