//! The traffic of the load's hosts, including the time after their programs have ended.

use std::{
    collections::BTreeSet,
    fs::File,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use command::Rest;
use lab::plan::LinkKind;
use record::{ByteSource, Flow, units::show_bytes};

use super::{moved::Counters, samples::Samples, supervisors::LinkCounter};
use crate::testbed::{Testbed, TestbedError};

/// The goodput counts as unknown if its error may exceed this share.
const MAX_GOODPUT_ERROR: f64 = 0.1;
/// A program has waited for its data if it leaves at most this share of its bytes to the kernel: these are only its closing messages.
const MAX_FAREWELL: f64 = 0.01;
/// The number of bytes that arrived is unknown if links lose more than this share of datagrams.
const MAX_LOST_DATAGRAMS: f64 = 0.01;
/// Interval between samples after the programs have ended.
const DRAIN_INTERVAL: Duration = Duration::from_millis(2);

/// The paths that packets can take from the load's hosts.
#[derive(Debug, Default)]
struct Ways {
    /// The outgoing flows of emulated links, grouped by the number of links before them.
    emulated: Vec<Vec<String>>,
    /// A segment whose ports have a rate. Its queues cannot be observed.
    rated_segment: Option<String>,
}

impl Testbed {
    /// Waits until the emulated links have delivered the datagrams that they held when the programs ended, for at most
    /// `timeout`.
    pub(super) fn drain(
        &mut self,
        samples: &mut Samples<'_>,
        rest: &mut Rest,
        timeout: Duration,
        stop: &AtomicBool,
    ) -> Result<(), TestbedError> {
        let started = Instant::now();
        let mut links = DrainedLinks { ways: self.ways().emulated, offered_packets: Vec::new() };
        let mut between_s = rest.between_s;
        loop {
            let counters = self.link_counters()?;
            samples.sample(Some(&counters)).map_err(TestbedError::Traffic)?;
            let is_drained = links.check(&counters);
            between_s = (between_s.1, clock::monotonic_s());
            if is_drained || started.elapsed() >= timeout || stop.load(Ordering::Relaxed) {
                (rest.between_s, rest.is_acknowledged) = (between_s, rest.is_acknowledged && is_drained);
                return Ok(());
            }
            thread::sleep(DRAIN_INTERVAL);
        }
    }

    /// The counters of the data that arrives from and at the load's hosts.
    pub(super) fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        let Some(lab) = &self.lab else { return counters };
        let plan = lab.plan();
        for link in &plan.links {
            for (index, end) in
                link.ends.iter().enumerate().filter(|(_, end)| self.setup.from.contains(&end.host))
            {
                let mut names = match link.kind {
                    LinkKind::Emulated(_) => Flow::names_of_link(&link.name),
                    _ => Flow::names_of_interface(&plan.hosts[end.host].name, &end.device),
                };
                if index > 0 && matches!(link.kind, LinkKind::Emulated(_)) {
                    names.reverse();
                }
                let [sent, received] = names;
                counters.sent.push(sent);
                counters.received.push(received);
            }
        }
        counters
    }

    /// Why it is unknown how many of the bytes from `source` have arrived. This applies to programs that send mostly datagrams, because
    /// lost datagrams are not retransmitted. `before` has the counters of the links before the trial.
    pub(super) fn unseen_datagrams(
        &mut self,
        source: &ByteSource,
        rest: &Rest,
        before: &[LinkCounter],
    ) -> Result<Option<String>, TestbedError> {
        if rest.sent.datagrams <= rest.sent.segments {
            return Ok(None);
        }
        let (ways, after) = (self.ways(), self.link_counters()?);
        let segment = match (source, ways.rated_segment) {
            (ByteSource::Path(_), _) | (ByteSource::Link, None) => return Ok(None),
            (ByteSource::Declared(_), None) => return Ok(lost_datagrams(&ways.emulated, before, &after)),
            (_, Some(segment)) => segment,
        };
        Ok(Some(format!(
            "the program sends datagrams, and the queues of the segment {segment} may lose them unseen; count the bytes that \
             arrive, by a path, or give the rate to a link of two hosts with a delay"
        )))
    }

    fn ways(&self) -> Ways {
        let (mut ways, mut passed) = (Ways::default(), BTreeSet::new());
        let Some(lab) = &self.lab else { return ways };
        let plan = lab.plan();
        let mut hosts: BTreeSet<usize> = self.setup.from.iter().copied().collect();
        let mut reached = hosts.clone();
        while !hosts.is_empty() {
            let (mut way, mut next) = (Vec::new(), BTreeSet::new());
            for (number, link) in plan.links.iter().enumerate() {
                if passed.contains(&number) || !link.ends.iter().any(|end| hosts.contains(&end.host)) {
                    continue;
                }
                passed.insert(number);
                match link.kind {
                    LinkKind::Emulated(_) => {
                        let flows = link.ends.iter().zip(Flow::names_of_link(&link.name));
                        way.extend(flows.filter(|(end, _)| hosts.contains(&end.host)).map(|(_, flow)| flow));
                    }
                    LinkKind::Segment { port_rate_bits_per_s: Some(_) } => {
                        ways.rated_segment = Some(link.name.clone());
                    }
                    LinkKind::Segment { .. } | LinkKind::Pair => {}
                }
                next.extend(link.ends.iter().map(|end| end.host).filter(|&host| plan.hosts[host].forward));
            }
            hosts = next.difference(&reached).copied().collect();
            reached.extend(&hosts);
            ways.emulated.push(way);
        }
        ways
    }

    /// The file `net/dev` of each of the load's hosts.
    pub(super) fn interfaces(&self) -> Result<Vec<(String, File)>, TestbedError> {
        let Some(lab) = &self.lab else { return Ok(Vec::new()) };
        let hosts: Vec<_> = lab.hosts().collect();
        let open = |&host: &usize| {
            let file = hosts[host].inside(|| File::open("/proc/thread-self/net/dev"))?;
            Ok((lab.plan().hosts[host].name.clone(), file))
        };
        self.setup.from.iter().map(open).collect::<Result<_, _>>().map_err(TestbedError::Traffic)
    }
}

/// Detects when emulated links have finished the packets that they held at the end of the programs, first those next to the load, then
/// those behind them. Links are queues, so it does not matter whose packets come later.
struct DrainedLinks {
    /// See [`Ways::emulated`].
    ways: Vec<Vec<String>>,
    /// The number of packets that each of the first links had received when this step began, and must finish; empty before that.
    offered_packets: Vec<u64>,
}

impl DrainedLinks {
    /// Whether the links are drained, judged by their current counters.
    fn check(&mut self, links: &[LinkCounter]) -> bool {
        while let Some(first) = self.ways.first() {
            let links: Vec<&LinkCounter> = links.iter().filter(|link| first.contains(&link.flow)).collect();
            if self.offered_packets.is_empty() {
                self.offered_packets = links.iter().map(|link| link.offered_packets).collect();
            }
            let mut pairs = links.iter().zip(&self.offered_packets);
            if pairs.any(|(link, offered)| link.finished_packets < *offered) {
                return false;
            }
            self.ways.remove(0);
            self.offered_packets.clear();
        }
        true
    }
}

/// How long the programs and the kernel sent, in seconds. `wall_s`: running time of the programs from `began_s` on. `bytes`:
/// the bytes that they moved, or a part of them if `is_partial`.
///
/// # Errors
/// The reason why the time is not known precisely enough.
pub(super) fn sending_s(
    wall_s: f64,
    began_s: f64,
    rest: &Rest,
    bytes: u64,
    is_partial: bool,
) -> Result<f64, String> {
    if rest.sent.mptcp_connections > 0 {
        return Err(
            "the program uses MPTCP, and proofload cannot see how much MPTCP sockets still have to send; run it without MPTCP"
                .to_owned()
        );
    }
    let ended_s = began_s + wall_s;
    // Programs do not wait for datagrams to arrive.
    let has_waited = rest.sent.datagrams == 0 && rest.bytes as f64 <= MAX_FAREWELL * bytes as f64;
    // If the program has waited, only its closing messages are sent after the first look.
    let (least_s, most_s) = if has_waited { (ended_s, rest.looked_s) } else { rest.between_s };
    if !rest.is_acknowledged && !has_waited && !is_partial {
        return Err(
            "the kernel was still sending data of the ended programs; give a longer settle in [trial]"
                .to_owned(),
        );
    }
    let after_ms = |time_s: f64| (time_s - ended_s).max(0.0) * 1e3;
    if most_s - least_s > MAX_GOODPUT_ERROR * (most_s - began_s) {
        return Err(format!(
            "the last bytes were sent between {:.0} and {:.0} ms after the end of the programs, and proofload took no \
             sample in between: the trial is too short, or proofload needs a processor of its own",
            after_ms(least_s),
            after_ms(most_s)
        ));
    }
    Ok(if least_s > ended_s { (least_s + most_s) / 2.0 - began_s } else { wall_s })
}

/// The reason why not all of `bytes` can have arrived: the links of the hosts carried only `carried_bytes`. A program whose connection was
/// reset may have ended before the data arrived.
pub(super) fn reset_connection(rest: &Rest, bytes: u64, carried_bytes: u64) -> Option<String> {
    let is_handed_over = rest.sent.resets > 0 || rest.bytes as f64 > MAX_FAREWELL * bytes as f64;
    (is_handed_over && carried_bytes < bytes).then(|| {
        format!(
            "a connection was reset, and the hosts' links have carried only {} of {}; check how much the other side received, or count \
             the bytes by a path",
            show_bytes(carried_bytes),
            show_bytes(bytes)
        )
    })
}

fn lost_datagrams(ways: &[Vec<String>], before: &[LinkCounter], after: &[LinkCounter]) -> Option<String> {
    let mut totals = (0, 0);
    for (before, after) in before.iter().zip(after) {
        if ways.iter().flatten().any(|flow| *flow == after.flow) {
            totals.0 += after.lost_packets - before.lost_packets;
            totals.1 += after.offered_packets - before.offered_packets;
        }
    }
    let (lost, offered) = totals;
    (lost as f64 > MAX_LOST_DATAGRAMS * offered as f64).then(|| {
        format!(
            "the program sends datagrams, and links have lost {lost} of {offered} packets; count the bytes that arrive, by a path"
        )
    })
}

#[cfg(test)]
mod tests {
    use command::Sent;

    use super::*;

    fn rest(bytes: u64, looked_s: f64, between_s: (f64, f64), is_acknowledged: bool) -> Rest {
        Rest { looked_s, bytes, between_s, is_acknowledged, sent: Sent::default() }
    }

    #[test]
    fn what_the_kernel_sends_after_the_end_takes_its_time() {
        let seconds = |rest: Rest| sending_s(1.0, 5.0, &rest, 10_000, false);
        assert_eq!(seconds(rest(0, 6.002, (6.0, 6.002), true)), Ok(1.0));
        assert_eq!(seconds(rest(100, 6.002, (6.2, 6.21), true)), Ok(1.0), "a farewell");
        assert_eq!(seconds(rest(100, 6.002, (16.2, 16.21), false)), Ok(1.0), "a farewell to nobody");
        assert_eq!(seconds(rest(5_000, 6.002, (6.4375, 6.5625), true)), Ok(1.5));
        assert!(seconds(rest(5_000, 6.002, (6.1, 6.5), true)).unwrap_err().contains("took no sample"));
        assert!(seconds(rest(0, 6.5, (6.0, 6.5), true)).unwrap_err().contains("took no sample"));
        let unfinished = rest(5_000, 6.002, (16.4375, 16.5625), false);
        assert!(seconds(unfinished).unwrap_err().contains("settle"));
        assert_eq!(sending_s(1.0, 5.0, &unfinished, 10_000, true), Ok(11.5), "the bytes so far");
        let datagrams = |is_drained| Rest {
            sent: Sent { datagrams: 7, ..Sent::default() },
            ..rest(0, 6.002, (6.25, 6.375), is_drained)
        };
        assert_eq!(seconds(datagrams(true)), Ok(1.3125));
        assert!(seconds(datagrams(false)).unwrap_err().contains("settle"));
        let mptcp = Sent { mptcp_connections: 1, ..Sent::default() };
        assert!(seconds(Rest { sent: mptcp, ..rest(0, 6.002, (6.0, 6.002), true) }).is_err());
    }

    #[test]
    fn bytes_of_a_reset_connection_must_have_been_carried() {
        let of =
            |resets, left| Rest { bytes: left, sent: Sent { resets, ..Sent::default() }, ..Rest::default() };
        assert_eq!(
            reset_connection(&of(0, 100), 10_000, 500),
            None,
            "compressed, or moved on the host itself"
        );
        assert_eq!(reset_connection(&of(1, 5_000), 10_000, 10_600), None);
        for handed_over in [of(1, 0), of(0, 5_000)] {
            assert!(reset_connection(&handed_over, 10_000, 9_000).unwrap().contains("was reset"));
        }
    }

    #[test]
    fn links_are_drained_one_after_the_other() {
        let link = |flow: &str, offered_packets, finished_packets| LinkCounter {
            flow: flow.to_owned(),
            delivered: (0, 0),
            offered_packets,
            finished_packets,
            lost_packets: finished_packets / 2,
        };
        let links = |first, second| {
            [link("first", first, first - 5), link("second", second, second - 3), link("x", 9, 0)]
        };
        let ways: Vec<Vec<String>> = [vec!["first"], vec![], vec!["second"]]
            .map(|way| way.iter().map(|flow| (*flow).to_owned()).collect())
            .into();
        let drained = || DrainedLinks { ways: ways.clone(), offered_packets: Vec::new() };
        assert!(drained().check(&[link("x", 9, 0)]));
        assert!(drained().check(&[link("first", 5, 5), link("second", 3, 3)]), "empty");
        let mut watched = drained();
        assert!(!watched.check(&links(10, 10)));
        assert!(!watched.check(&links(15, 20)), "the second link holds what the first has delivered");
        assert!(watched.check(&links(20, 23)), "what came later does not count");
        assert_eq!(lost_datagrams(&ways, &links(10, 10), &links(10, 10)), None);
        assert!(lost_datagrams(&ways, &links(10, 10), &links(30, 10)).unwrap().contains("lost 10 of 20"));
    }
}
