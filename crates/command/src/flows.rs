//! Counts the traffic of interfaces while programs run, in bins of time.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read, Seek},
    time::{Duration, Instant},
};

use record::Flow;

/// Byte and packet counters of interfaces, sampled into time bins of equal length.
#[derive(Debug)]
pub struct Flows {
    started: Instant,
    bin: Duration,
    hosts: Vec<(String, File)>,
    counters: BTreeMap<String, Counter>,
}

#[derive(Debug)]
struct Counter {
    first: Counts,
    last: Counts,
    /// When `last` was read, in nanoseconds since the start.
    read_ns: u128,
    bins: Vec<u64>,
}

impl Flows {
    /// Starts counting. `hosts` has the name of each host and its file `net/dev`, opened on the host.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn start(bin: Duration, hosts: Vec<(String, File)>) -> io::Result<Self> {
        let mut flows = Self { started: Instant::now(), bin, hosts, counters: BTreeMap::new() };
        flows.sample()?;
        Ok(flows)
    }

    /// Reads the counters of all interfaces.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn sample(&mut self) -> io::Result<()> {
        let mut found = Vec::new();
        for (host, file) in &mut self.hosts {
            let mut text = String::new();
            file.rewind()?;
            file.read_to_string(&mut text)?;
            for (interface, received, sent) in interfaces(&text) {
                found.extend(Flow::names_of_interface(host, &interface).into_iter().zip([sent, received]));
            }
        }
        found.into_iter().for_each(|(name, (bytes, packets))| self.count(name, bytes, packets));
        Ok(())
    }

    /// Adds the current values of a counter from another source.
    pub fn count(&mut self, name: String, bytes: u64, packets: u64) {
        self.count_at(self.started.elapsed().as_nanos(), name, bytes, packets);
    }

    fn count_at(&mut self, now_ns: u128, name: String, bytes: u64, packets: u64) {
        let now = (bytes, packets);
        let counter = self.counters.entry(name).or_insert_with(|| Counter {
            first: now,
            last: now,
            read_ns: now_ns,
            bins: Vec::new(),
        });
        let (grown, since_ns) = (u128::from(bytes.saturating_sub(counter.last.0)), counter.read_ns);
        (counter.last, counter.read_ns) = (now, now_ns);
        // The counter does not say when the bytes passed, so spread them evenly over the time between the two samples.
        let (bin_ns, length_ns) = (self.bin.as_nanos().max(1), now_ns.saturating_sub(since_ns).max(1));
        let until = |ns: u128| grown * ns.clamp(since_ns, now_ns).saturating_sub(since_ns) / length_ns;
        counter.bins.resize(counter.bins.len().max((now_ns / bin_ns) as usize + 1), 0);
        for (bin, ends_ns) in counter.bins.iter_mut().zip((1..).map(|number| number * bin_ns)) {
            *bin += (until(ends_ns) - until(ends_ns - bin_ns)) as u64;
        }
    }

    /// Returns the traffic of each interface, without those that carried nothing.
    pub fn finish(self) -> BTreeMap<String, Flow> {
        let flow = |counter: Counter| Flow {
            bytes: counter.last.0.saturating_sub(counter.first.0),
            packets: counter.last.1.saturating_sub(counter.first.1),
            bins: counter.bins,
        };
        let flows = self.counters.into_iter().map(|(name, counter)| (name, flow(counter)));
        flows.filter(|(_, flow)| flow.packets > 0).collect()
    }
}

/// Bytes and packets.
type Counts = (u64, u64);

/// Reads `net/dev`: the received and sent bytes and packets of all interfaces except `lo`.
fn interfaces(text: &str) -> Vec<(String, Counts, Counts)> {
    let lines = text.lines().filter_map(|line| {
        let (name, numbers) = line.split_once(':')?;
        // Received: bytes packets errs drop fifo frame compressed multicast; then the same for sent.
        let numbers: Vec<u64> = numbers.split_whitespace().map_while(|number| number.parse().ok()).collect();
        let field = |index: usize| numbers.get(index).copied();
        Some((name.trim().to_owned(), (field(0)?, field(1)?), (field(8)?, field(9)?)))
    });
    lines.filter(|(name, ..)| name != "lo").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_of_every_interface_are_read() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes packets\n    lo: 5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n  \
                    eth0:  900  9 0 0 0 0 0 0   70  7 0 0 0 0 0 0\n";
        assert_eq!(interfaces(text), [("eth0".to_owned(), (900, 9), (70, 7))]);
    }

    #[test]
    fn bytes_fall_into_the_bins_in_which_they_were_seen() {
        let mut flows = Flows::start(Duration::from_millis(20), Vec::new()).unwrap();
        for (ms, bytes, packets) in [(1, 1_000, 10), (21, 1_600, 14), (71, 1_700, 15)] {
            flows.count_at(ms * 1_000_000, "x".to_owned(), bytes, packets);
        }
        let flows = flows.finish();
        let flow = &flows["x"];
        // 600 bytes in 20 ms are 30 in each millisecond; then 100 bytes in 50 ms are 2.
        assert_eq!((flow.bytes, flow.packets, &flow.bins[..]), (700, 5, &[570, 68, 40, 22][..]));
    }
}
