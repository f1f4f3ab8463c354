//! What the hosts of a load send and receive, also after their programs have ended.

use std::{
    fs::File,
    io::{self, Read, Seek},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use lab::plan::LinkKind;
use record::Flow;

use super::{moved::Counters, samples::Samples, supervisors::LinkCounter};
use crate::testbed::{Testbed, TestbedError};

/// A goodput that may be wrong by a larger share is unknown.
const MAX_GOODPUT_ERROR: f64 = 0.1;
/// Interval between samples after the programs have ended.
const DRAIN_INTERVAL: Duration = Duration::from_millis(2);
const TABLE_BUFFER_BYTES: usize = 1 << 16;

impl Testbed {
    /// Counts what the kernel sends after the programs have ended, until the other sides have acknowledged all of it and
    /// emulated links have delivered what they held, at most for `timeout`. Returns whether they have.
    pub(super) fn drain(
        &mut self,
        samples: &mut Samples<'_>,
        timeout: Duration,
        stop: &AtomicBool,
    ) -> Result<bool, TestbedError> {
        let started = Instant::now();
        let mut tables = self.tcp_tables().map_err(TestbedError::Host)?;
        let (mut links, mut is_acknowledged) = (DrainedLinks::default(), false);
        loop {
            // What was acknowledged before is in the sample. The tables take the kernel milliseconds, so they are read no longer
            // than necessary.
            is_acknowledged =
                is_acknowledged || unacknowledged_sockets(&mut tables).map_err(TestbedError::Host)? == 0;
            let counters = self.link_counters()?;
            samples.sample(Some(&counters)).map_err(TestbedError::Host)?;
            let is_sent = links.check(&counters) && is_acknowledged;
            if is_sent || started.elapsed() >= timeout || stop.load(Ordering::Relaxed) {
                return Ok(is_sent);
            }
            thread::sleep(DRAIN_INTERVAL);
        }
    }

    /// The counters of what arrives from the load's hosts and at them.
    pub(super) fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        let Some(lab) = &self.lab else { return counters };
        let plan = lab.plan();
        for link in &plan.links {
            let emulated =
                matches!(link.kind, LinkKind::Emulated(_)).then(|| Flow::names_of_link(&link.name));
            counters.lines.extend(emulated.clone());
            for (index, end) in
                link.ends.iter().enumerate().filter(|(_, end)| self.setup.from.contains(&end.host))
            {
                let [sent, received] = match (&emulated, index) {
                    (Some([there, back]), 0) => [there.clone(), back.clone()],
                    (Some([there, back]), _) => [back.clone(), there.clone()],
                    (None, _) => {
                        let names = Flow::names_of_interface(&plan.hosts[end.host].name, &end.device);
                        counters.lines.push(names.clone());
                        names
                    }
                };
                counters.sent.push(sent);
                counters.received.push(received);
            }
        }
        counters
    }

    /// The file `net/dev` of each host that the load comes from.
    pub(super) fn interfaces(&self) -> Result<Vec<(String, File)>, TestbedError> {
        let names = self.load_hosts();
        let files = self.open_on_hosts("net/dev").map_err(TestbedError::Host)?;
        Ok(names.into_iter().zip(files).collect())
    }

    /// The tables of TCP sockets of the hosts that the load comes from. Without IPv6, there is only one for each.
    fn tcp_tables(&self) -> io::Result<Vec<File>> {
        let mut tables = self.open_on_hosts("net/tcp")?;
        match self.open_on_hosts("net/tcp6") {
            Ok(more) => tables.extend(more),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(tables)
    }

    /// A file of `/proc` on each host that the load comes from. It stays in the network namespace it was opened in.
    fn open_on_hosts(&self, path: &str) -> io::Result<Vec<File>> {
        let Some(lab) = &self.lab else { return Ok(Vec::new()) };
        let hosts: Vec<_> = lab.hosts().collect();
        let open = |&host: &usize| hosts[host].inside(|| File::open(format!("/proc/thread-self/{path}")));
        self.setup.from.iter().map(open).collect()
    }
}

/// Finds when emulated links have finished all packets that they held at the end of the programs, and those that these packets
/// became on links behind them. Later packets of others do not count.
#[derive(Debug, Default)]
struct DrainedLinks {
    /// The packets that each direction has to finish first.
    offered_packets: Vec<u64>,
    /// How often all directions have finished theirs.
    times: usize,
}

impl DrainedLinks {
    /// Whether the links are drained, by their counters now.
    fn check(&mut self, links: &[LinkCounter]) -> bool {
        let offered = || links.iter().map(|link| link.offered_packets).collect();
        if self.offered_packets.is_empty() {
            self.offered_packets = offered();
        }
        // A packet may pass all links one after the other.
        while self.times < links.len()
            && links
                .iter()
                .zip(&self.offered_packets)
                .all(|(link, offered)| link.finished_packets >= *offered)
        {
            self.times += 1;
            self.offered_packets = offered();
        }
        self.times >= links.len()
    }
}

/// How long the programs and the kernel sent, in seconds. `after_s`: how long the kernel still did after their end, at least
/// and at most.
///
/// # Errors
/// Why that is not known well enough.
pub(super) fn sending_s(wall_s: f64, (least_s, most_s): (f64, f64), is_sent: bool) -> Result<f64, String> {
    if !is_sent {
        return Err(
            "the kernel still sent what the programs had written; a longer settle in [trial] waits for it"
                .to_owned(),
        );
    }
    if most_s - least_s > MAX_GOODPUT_ERROR * (wall_s + most_s) {
        return Err(format!(
            "the last bytes were sent between {:.0} and {:.0} ms after the end of the programs, and nobody looked in between: the \
             trial is too short, or proofload needs a processor of its own",
            least_s * 1e3,
            most_s * 1e3
        ));
    }
    Ok(wall_s + if least_s > 0.0 { most_s } else { 0.0 })
}

fn unacknowledged_sockets(tables: &mut [File]) -> io::Result<usize> {
    let mut count = 0;
    // Each read walks all of the kernel's table.
    let mut text = String::with_capacity(TABLE_BUFFER_BYTES);
    for table in tables {
        text.clear();
        table.rewind()?;
        table.read_to_string(&mut text)?;
        count += kernel::unacknowledged_sockets(&text);
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::{super::samples::sent_after_s, *};

    #[test]
    fn a_time_in_which_nobody_looked_is_no_time_of_sending() {
        let seconds = |samples: &[(f64, u64)], is_sent| {
            let samples: Vec<_> = samples.iter().map(|&(at_s, bytes)| (at_s, vec![[bytes, 0]])).collect();
            sending_s(1.0, sent_after_s(&samples, 0.0), is_sent)
        };
        assert_eq!(seconds(&[(-0.1, 1_000), (0.01, 1_000)], true), Ok(1.0));
        assert_eq!(seconds(&[(-0.1, 500), (0.01, 1_000)], true), Ok(1.0));
        assert_eq!(seconds(&[(-0.1, 500), (0.5, 900), (0.55, 1_000)], true), Ok(1.55));
        assert!(seconds(&[(-0.1, 500), (0.5, 1_000)], true).unwrap_err().contains("nobody looked"));
        assert!(seconds(&[(-0.1, 500), (0.01, 1_000)], false).unwrap_err().contains("settle"));
    }

    #[test]
    fn links_are_drained_one_after_the_other() {
        let link = |offered_packets, finished_packets| LinkCounter {
            flow: String::new(),
            delivered: (0, 0),
            offered_packets,
            finished_packets,
        };
        assert!(DrainedLinks::default().check(&[]));
        assert!(DrainedLinks::default().check(&[link(5, 5), link(3, 3)]), "empty");
        let mut links = DrainedLinks::default();
        assert!(!links.check(&[link(10, 5), link(5, 5)]));
        assert!(
            !links.check(&[link(12, 10), link(10, 6)]),
            "the second link holds what the first has delivered"
        );
        assert!(links.check(&[link(20, 15), link(15, 12)]), "what came later does not count");
    }
}
