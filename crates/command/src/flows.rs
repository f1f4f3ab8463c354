//! What goes over interfaces while programs run, in bins of time.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read, Seek},
    time::{Duration, Instant},
};

use record::Flow;

/// Counters of bytes and packets, looked at again and again.
#[derive(Debug)]
pub struct Flows {
    begun: Instant,
    bin: Duration,
    hosts: Vec<(String, File)>,
    counts: BTreeMap<String, Counted>,
}

#[derive(Debug)]
struct Counted {
    first: Seen,
    last: Seen,
    bins: Vec<u64>,
}

impl Flows {
    /// Begins to count what the interfaces of these hosts carry, each given by its file `net/dev`, opened on the host.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn begin(bin: Duration, hosts: Vec<(String, File)>) -> io::Result<Self> {
        let mut flows = Self { begun: Instant::now(), bin, hosts, counts: BTreeMap::new() };
        flows.look()?;
        Ok(flows)
    }

    /// When the bin that is being filled ends.
    pub fn next_look(&self) -> Instant {
        let filled = (self.begun.elapsed().as_nanos() / self.bin.as_nanos().max(1)) as u32;
        self.begun + self.bin * (filled + 1)
    }

    /// Looks at the counters of all interfaces.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn look(&mut self) -> io::Result<()> {
        let mut found = Vec::new();
        for (host, file) in &mut self.hosts {
            let mut text = String::new();
            file.rewind()?;
            file.read_to_string(&mut text)?;
            for (interface, received, sent) in interfaces(&text) {
                found.push((format!("{host} {interface} received"), received));
                found.push((format!("{host} {interface} sent"), sent));
            }
        }
        found.into_iter().for_each(|(name, (bytes, packets))| self.count(name, bytes, packets));
        Ok(())
    }

    /// Takes in the bytes and packets that a counter of another source shows now.
    pub fn count(&mut self, name: String, bytes: u64, packets: u64) {
        // A look comes at the end of its bin, or a little later.
        let elapsed = self.begun.elapsed().as_nanos();
        let bins = (elapsed / self.bin.as_nanos().max(1)) as usize;
        let now = (bytes, packets);
        let counted =
            self.counts.entry(name).or_insert_with(|| Counted { first: now, last: now, bins: Vec::new() });
        let grown = bytes.saturating_sub(counted.last.0);
        counted.last = now;
        if counted.bins.len() < bins.max(1) {
            counted.bins.resize(bins.max(1), 0);
        }
        if let Some(bin) = counted.bins.last_mut() {
            *bin += grown;
        }
    }

    /// What was counted; interfaces that carried nothing are left out.
    pub fn end(self) -> BTreeMap<String, Flow> {
        let flow = |counted: Counted| Flow {
            bytes: counted.last.0.saturating_sub(counted.first.0),
            packets: counted.last.1.saturating_sub(counted.first.1),
            bins: counted.bins,
        };
        let flows = self.counts.into_iter().map(|(name, counted)| (name, flow(counted)));
        flows.filter(|(_, flow)| flow.packets > 0).collect()
    }
}

/// Bytes and packets.
type Seen = (u64, u64);

/// The interfaces of `net/dev` with the bytes and packets that they received and sent, `lo` left out.
fn interfaces(text: &str) -> Vec<(String, Seen, Seen)> {
    let lines = text.lines().filter_map(|line| {
        let (name, numbers) = line.split_once(':')?;
        // Received: bytes packets errs drop fifo frame compressed multicast; then the same for sent.
        let numbers: Vec<u64> = numbers.split_whitespace().map_while(|number| number.parse().ok()).collect();
        let at = |place: usize| numbers.get(place).copied();
        Some((name.trim().to_owned(), (at(0)?, at(1)?), (at(8)?, at(9)?)))
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
        let mut flows = Flows::begin(Duration::from_millis(20), Vec::new()).unwrap();
        flows.count("x".to_owned(), 1_000, 10);
        std::thread::sleep(flows.next_look().saturating_duration_since(Instant::now()));
        flows.count("x".to_owned(), 1_600, 14);
        std::thread::sleep(Duration::from_millis(45));
        flows.count("x".to_owned(), 1_700, 15);
        let ended = flows.end();
        let flow = &ended["x"];
        assert_eq!((flow.bytes, flow.packets, flow.bins.iter().sum::<u64>()), (700, 5, 700));
        assert!(flow.bins.len() >= 3 && flow.bins[0] == 600, "{:?}", flow.bins);
    }
}
