//! Waits before a trial until the leftovers of closed connections on its hosts cannot disturb it.

use std::{
    collections::BTreeMap,
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use kernel::leftovers::{self, Kind, Leftover};
use record::{
    Warning,
    units::{show_count, show_nominal_time_ns},
};

use super::Runner;
use crate::{
    event::Event,
    stop_reason::{Result, StopReason},
    study::Setup,
};

/// Interval between checks for a stop request, and first interval between looks at the hosts.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Longest interval between looks, because each look at a remote host starts a few programs.
const MAX_INTERVAL: Duration = Duration::from_millis(500);
/// Only longer waits are reported.
const SHORT: Duration = Duration::from_millis(300);
/// Prefix of the names of a lab's hosts.
const LAB_HOST: &str = "host ";

/// The number of leftovers of each kind on each host before its first trial. These are not the study's.
pub(super) type Idle = BTreeMap<(String, Kind), u64>;

/// The description of a kind of leftover, the default of the longest wait for it, and the remedy.
fn about(kind: Kind) -> (&'static str, Duration, &'static str) {
    let (words, wait_s, help) = match kind {
        Kind::Open => ("open connections", 10, "the target keeps connections open, or settle is too short"),
        // The kernel keeps TIME_WAIT for 60 s, and connection tracking keeps it for 120 s.
        Kind::Port => (
            "local ports in TIME_WAIT towards one target",
            65,
            "other programs keep adding to them, or settle is below 65s; to avoid the wait, widen \
             net.ipv4.ip_local_port_range or keep connections alive",
        ),
        Kind::TimeWait => (
            "sockets in TIME_WAIT",
            65,
            "other programs keep adding to them, or settle is below 65s; to avoid the wait, raise net.ipv4.tcp_max_tw_buckets",
        ),
        Kind::Tracked => (
            "tracked connections",
            125,
            "other programs keep adding to them, or settle is below 125s; to avoid the wait, raise \
             net.netfilter.nf_conntrack_max, or do not track this traffic",
        ),
    };
    (words, Duration::from_secs(wait_s), help)
}

impl Runner<'_> {
    /// Waits for the pause, the gap of a search, the backlog of the last trial, and leftovers that would disturb the next trial.
    pub(super) fn settle(&mut self, setup: &Setup) -> Result {
        // The target still works on requests that were given up, and this work would count against the next load.
        let gap = std::mem::take(&mut self.gap);
        let backlog = std::mem::take(&mut self.backlog).min(self.study.trial.settle.unwrap_or(Duration::MAX));
        if backlog > SHORT {
            let (time, next) = (show_nominal_time_ns(backlog.as_nanos() as u64), self.next_index);
            let text = format!(
                "waiting {time} before trial {next}: the target may still work on requests that the last trial gave up"
            );
            (self.on_event)(Event::Waiting(&text));
        }
        let until = Instant::now() + self.study.trial.pause + gap + backlog;
        while Instant::now() < until && !self.is_stopped() && self.budget_left_s() > 0.0 {
            thread::sleep(POLL_INTERVAL.min(until.saturating_duration_since(Instant::now())));
        }
        self.wait_for_leftovers(setup)
    }

    /// Waits while leftovers on the hosts would disturb a trial. Leftovers that outlast the wait, such as connections that a target never
    /// closes, count as idle from then on, unless the kernel is certain to remove them.
    pub(super) fn wait_for_leftovers(&mut self, setup: &Setup) -> Result {
        let wait = self.study.trial.settle;
        if wait == Some(Duration::ZERO) {
            return Ok(());
        }
        let longest = |left: &Leftover| wait.unwrap_or(about(left.kind).1);
        let (began, mut interval, mut is_told) = (Instant::now(), POLL_INTERVAL, false);
        let (seen, late) = loop {
            let seen = self.look(setup);
            let late: Vec<_> = seen
                .iter()
                .filter(|(host, left)| left.is_in_the_way(self.idle(host, left)))
                .cloned()
                .collect();
            let most = late.iter().map(|(_, left)| longest(left)).max().unwrap_or_default();
            if began.elapsed() >= most || self.is_stopped() || self.budget_left_s() <= 0.0 {
                break (seen, late);
            }
            if began.elapsed() >= SHORT && !std::mem::replace(&mut is_told, true) {
                let most = show_nominal_time_ns(most.as_nanos() as u64);
                let text =
                    format!("waiting at most {most} before trial {}: {}", self.next_index, self.shown(&late));
                (self.on_event)(Event::Waiting(&text));
            }
            thread::sleep(interval.min(most.saturating_sub(began.elapsed())));
            interval = (interval * 2).min(MAX_INTERVAL);
        };
        if self.is_stopped() {
            return Err(StopReason::Stopped);
        }
        if !late.is_empty() {
            let mut help: Vec<&str> = late.iter().map(|(_, left)| about(left.kind).2).collect();
            help.dedup();
            let message = format!(
                "trial {} begins after a wait of {:.1} s, although there are {}: {}",
                self.next_index,
                began.elapsed().as_secs_f64(),
                self.shown(&late),
                help.join("; ")
            );
            self.warn(Warning::new("not_settled", message));
        }
        for (host, left) in
            late.into_iter().filter(|(_, left)| matches!(left.kind, Kind::Open | Kind::Tracked))
        {
            self.idle.insert((host, left.kind), left.count);
        }
        self.remember(seen);
        Ok(())
    }

    /// Counts the leftovers on the hosts of a new lab, before anything is sent to them.
    pub(super) fn note_idle_lab(&mut self, setup: &Setup) {
        self.idle.retain(|(host, _), _| !host.starts_with(LAB_HOST));
        let seen = self.look(setup);
        self.remember(seen);
    }

    /// Records the number of idle leftovers: the first one seen, or a smaller one seen later (except for open connections). Other programs
    /// than this study's left them.
    fn remember(&mut self, seen: Vec<(String, Leftover)>) {
        for (host, left) in seen {
            let idle = self.idle.entry((host, left.kind)).or_insert(left.count);
            if left.kind != Kind::Open {
                *idle = left.count.min(*idle);
            }
        }
    }

    /// The number of leftovers before the first trial. Before that number is known, only open connections count as idle, because other
    /// programs may own them.
    fn idle(&self, host: &str, left: &Leftover) -> u64 {
        let unknown = if left.kind == Kind::Open { left.count } else { 0 };
        self.idle.get(&(host.to_owned(), left.kind)).copied().unwrap_or(unknown)
    }

    /// The leftovers on the hosts of the lab (without a lab: on this machine) and on remote hosts. Skips hosts whose leftovers cannot be
    /// read, because their observers warn of them.
    fn look(&self, setup: &Setup) -> Vec<(String, Leftover)> {
        let of_hosts = match (&self.testbed, &setup.lab) {
            (_, None) => vec![("this machine".to_owned(), leftovers::here())],
            (Some(testbed), _) => testbed.leftovers(LAB_HOST),
            (None, _) => Vec::new(),
        };
        let remotes = self.options.remotes.0.iter();
        let all =
            of_hosts.into_iter().chain(remotes.map(|remote| (remote.name().to_owned(), remote.leftovers())));
        all.flat_map(|(host, left)| {
            left.unwrap_or_default().into_iter().map(move |left| (host.clone(), left))
        })
        .collect()
    }

    fn shown(&self, late: &[(String, Leftover)]) -> String {
        let shown = late.iter().map(|(host, left)| {
            let before = self.idle(host, left);
            format!(
                "{} {} on {host} (up to {} do no harm)",
                show_count(left.count),
                about(left.kind).0,
                show_count(before + left.harmless(before)),
            )
        });
        shown.collect::<Vec<_>>().join(", ")
    }

    fn is_stopped(&self) -> bool {
        self.options.stop.load(Ordering::Relaxed)
    }
}

/// Longest wait for open connections, unless the study sets one.
pub(super) fn closing_wait(given: Option<Duration>) -> Duration {
    given.unwrap_or(about(Kind::Open).1)
}
