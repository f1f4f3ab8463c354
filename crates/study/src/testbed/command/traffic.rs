//! What the hosts of a load send and receive, also after their programs have ended.

use std::{
    fs::File,
    io::{self, Read, Seek},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use lab::plan::LinkKind;

use super::{moved::Counters, samples::Samples};
use crate::testbed::{Testbed, TestbedError};

/// A goodput that may be wrong by a larger share is unknown.
const MAX_GOODPUT_ERROR: f64 = 0.1;
/// Interval between samples after the programs have ended.
const DRAIN_INTERVAL: Duration = Duration::from_millis(2);

impl Testbed {
    /// Counts what the kernel sends after the programs have ended, until the other sides have acknowledged all of it, at most
    /// for `timeout`. Returns whether they have.
    pub(super) fn drain(
        &mut self,
        samples: &mut Samples<'_>,
        timeout: Duration,
        stop: &AtomicBool,
    ) -> Result<bool, TestbedError> {
        let started = Instant::now();
        let mut tables = self.tcp_tables().map_err(TestbedError::Host)?;
        loop {
            // What was acknowledged before is in the sample.
            let is_sent = unacknowledged_sockets(&mut tables).map_err(TestbedError::Host)? == 0;
            samples.sample(Some(self.link_counters()?)).map_err(TestbedError::Host)?;
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
            for (index, end) in
                link.ends.iter().enumerate().filter(|(_, end)| self.setup.from.contains(&end.host))
            {
                let [sent, received] = match (&link.kind, index) {
                    (LinkKind::Emulated(_), 0) => {
                        ["a to b", "b to a"].map(|way| format!("link {} {way}", link.name))
                    }
                    (LinkKind::Emulated(_), _) => {
                        ["b to a", "a to b"].map(|way| format!("link {} {way}", link.name))
                    }
                    _ => ["sent", "received"]
                        .map(|way| format!("{} {} {way}", plan.hosts[end.host].name, end.device)),
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
            "the last bytes were sent within {:.0} ms after the end of the programs, in which nobody looked: the trial is too \
             short, or proofload needs a processor of its own",
            most_s * 1e3
        ));
    }
    Ok(wall_s + if least_s > 0.0 { most_s } else { 0.0 })
}

fn unacknowledged_sockets(tables: &mut [File]) -> io::Result<usize> {
    let mut count = 0;
    for table in tables {
        let mut text = String::new();
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
        let seconds = |samples: &[(f64, u64)], is_sent| sending_s(1.0, sent_after_s(samples, 0.0), is_sent);
        assert_eq!(seconds(&[(-0.1, 1_000), (0.01, 1_000)], true), Ok(1.0));
        assert_eq!(seconds(&[(-0.1, 500), (0.01, 1_000)], true), Ok(1.0));
        assert_eq!(seconds(&[(-0.1, 500), (0.5, 900), (0.55, 1_000)], true), Ok(1.55));
        assert!(seconds(&[(-0.1, 500), (0.5, 1_000)], true).unwrap_err().contains("nobody looked"));
        assert!(seconds(&[(-0.1, 500), (0.01, 1_000)], false).unwrap_err().contains("settle"));
    }
}
