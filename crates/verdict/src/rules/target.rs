//! What bounds the target's programs and its host.

use std::cmp::Reverse;

use record::{
    Histogram, HostCounters, ListenerUse,
    units::{show_count, show_time_ns},
};

use super::{
    HOT_SHARE, IDLE_SHARE, busiest_target, counted, is_asked, likely, listeners,
    load::{answers_shortly, carried, of_host},
    machines,
    network::is_a_link_full,
    percent, programs, share_of_trial, sum, targets,
};
use crate::{Finding, Observed};

/// Smallest share of the trial for which a quota that matters stops its group.
const THROTTLED_SHARE: f64 = 0.05;
/// Descriptors that may be opened and closed between two looks.
const BETWEEN_LOOKS: u64 = 3;
/// Smallest share of the trial for which somebody waits for a busy disk.
const DISK_SHARE: f64 = 0.3;
/// The same if the target was seen to wait for a device in half of the samples.
const STOOD_DISK_SHARE: f64 = 0.1;
/// Smallest share of a core that interrupts of the network take where they are its main work.
const SOFTIRQ_SHARE: f64 = 0.5;
/// A core that is busy for this share has no time left.
const FULL_CORE_SHARE: f64 = 0.97;
/// The least time after which the kernel sends a segment again (`TCP_RTO_MIN`).
const LEAST_RETRANSMISSION_NS: u64 = 200_000_000;
/// Samples of a listener that say something.
const MIN_SAMPLES: u32 = 3;

/// A process had as many descriptors open as it may.
pub(super) fn descriptors(observed: &Observed<'_>) -> Finding {
    let used = programs(observed).filter_map(|(host, program)| {
        let (most, max) = (program.most_descriptors?, program.max_descriptors?);
        // A program that has many more than its limit has lowered it itself, to shut its own process in, as sshd does.
        if most > max + BETWEEN_LOOKS {
            return None;
        }
        Some((most as f64 / max.max(1) as f64, most, max, host, program))
    });
    let Some((_, most, max, host, program)) = used.max_by(|a, b| a.0.total_cmp(&b.0)) else {
        return no_program(observed);
    };
    let evidence = format!("{} had {most} of {max} descriptors open", program.name);
    if most + BETWEEN_LOOKS >= max { counted(&host.host, evidence) } else { Finding::Not(evidence) }
}

fn no_program(observed: &Observed<'_>) -> Finding {
    let why = targets(observed).find_map(|host| host.counters.missing.get("programs"));
    let why = why.map_or_else(String::new, |why| format!(" ({why})"));
    Finding::Unknown(format!("no process of the target could be looked at{why}"))
}

/// A control group used up its quota.
pub(super) fn cpu_quota(observed: &Observed<'_>) -> Finding {
    let throttled =
        targets(observed).filter_map(|host| Some((host.counters.get("cgroup.throttled_us")?, host)));
    let Some((us, host)) = throttled.max_by_key(|(us, _)| *us) else { return Finding::Irrelevant };
    let share = share_of_trial(observed, us as f64 / 1e6);
    let evidence = format!("its control group was stopped for {} of the time", percent(share));
    if share >= THROTTLED_SHARE && !is_a_link_full(observed) {
        counted(&host.host, evidence)
    } else {
        Finding::Not(evidence)
    }
}

/// A thread of the target had no time left, or a core was busy with the network.
pub(super) fn hot_core(observed: &Observed<'_>) -> Finding {
    let elapsed_ms = observed.counters.elapsed_s * 1e3;
    let cores = machines(observed, observed.counters.hosts.iter()).flat_map(|(place, machine)| {
        (0..).map_while(move |core| {
            let of =
                |what: &str| machine.get(&format!("cpu{core}.{what}_ms")).map(|ms| ms as f64 / elapsed_ms);
            Some((core, 1.0 - of("idle")?, of("softirq")?, place))
        })
    });
    let full = cores.filter(|(_, busy, softirq, _)| *busy >= FULL_CORE_SHARE && *softirq >= SOFTIRQ_SHARE);
    if let Some((core, busy, softirq, place)) = full.max_by(|a, b| a.2.total_cmp(&b.2)) {
        let evidence = format!(
            "core {core} was busy {} of the time, {} with the network's interrupts",
            percent(busy),
            percent(softirq)
        );
        return counted(place, evidence);
    }
    let Some((share, program, host)) = busiest_target(observed) else {
        return no_program(observed);
    };
    let evidence = format!("the busiest thread of {program} worked {} of the time", percent(share));
    if share >= HOT_SHARE {
        counted(host, evidence)
    } else {
        Finding::Not(format!("{evidence}{}", of_host(host)))
    }
}

/// Connections wait to be accepted all the time, and the program has time to accept them.
pub(super) fn connection_limit(observed: &Observed<'_>) -> Finding {
    let Some((share, program, _)) = busiest_target(observed).filter(|(share, ..)| *share < IDLE_SHARE) else {
        return Finding::Irrelevant;
    };
    let waits = |queue: &ListenerUse| {
        // The first look and the last are before the load and after it.
        let under_load = queue.samples.saturating_sub(2);
        under_load >= MIN_SAMPLES && queue.samples_waiting * 2 > under_load
    };
    let waiting = listeners(observed).filter(|(_, _, queue)| waits(queue));
    let Some((host, at, queue)) = waiting.max_by_key(|(_, _, queue)| queue.most_waiting) else {
        return Finding::Irrelevant;
    };
    let evidence = format!(
        "up to {} connections waited at {at} in {} of {} samples, while the busiest thread of {program} worked {} of the time",
        queue.most_waiting,
        queue.samples_waiting,
        queue.samples,
        percent(share)
    );
    likely(&host.host, evidence)
}

/// Whether a connection or an answer took as long as a segment that is sent again, or is missing.
fn may_have_sent_again(observed: &Observed<'_>) -> bool {
    let Some(http) = observed.trial.http() else { return true };
    let took_long = |times: &Histogram| times.max_ns() >= LEAST_RETRANSMISSION_NS;
    let is_missing = http.counts.failed + http.counts.in_flight > 0;
    is_missing || took_long(&http.connect_time) || took_long(&http.service_time.observed)
}

/// The queue of connections to be accepted overflowed.
pub(super) fn accept_queue(observed: &Observed<'_>) -> Finding {
    const COUNTER: &str = "TcpExt.ListenOverflows";
    let overflows = |host: &HostCounters| host.counters.get(COUNTER);
    let Some(host) = targets(observed).max_by_key(|host| overflows(host)) else { return Finding::Irrelevant };
    let times = match overflows(host) {
        None => return Finding::Unknown(format!("the kernel does not count {COUNTER}")),
        Some(0) => return Finding::Not("no accept queue overflowed".to_owned()),
        Some(times) => times,
    };
    let own: Vec<_> = listeners(observed).filter(|(of, ..)| of.host == host.host).collect();
    let asked: Vec<_> = own.iter().filter(|(_, address, _)| is_asked(observed, address)).copied().collect();
    let own = if asked.is_empty() { own } else { asked };
    let fullest = own.into_iter().max_by_key(|(_, _, queue)| (queue.most_waiting, Reverse(queue.backlog)));
    let (size, waited) = fullest.map_or((String::new(), 0), |(_, _, queue)| {
        (format!("queue of {} ", queue.backlog), queue.most_waiting)
    });
    let busiest = busiest_target(observed).map_or_else(String::new, |(share, program, _)| {
        format!("; the busiest thread of {program} worked {} of the time", percent(share))
    });
    let times = if times == 1 { "once".to_owned() } else { format!("{} times", show_count(times)) };
    let evidence = format!("{size}overflowed {times}{busiest}");
    // Where others listen as well, it may have been their queue.
    if waited == 0 && !may_have_sent_again(observed) {
        likely(&host.host, evidence)
    } else {
        counted(&host.host, evidence)
    }
}

/// The queue of connections whose handshake is not complete overflowed.
pub(super) fn syn_queue(observed: &Observed<'_>) -> Finding {
    if targets(observed).next().is_none() {
        return Finding::Irrelevant;
    }
    let dropped = sum(targets(observed), "TcpExt.TCPReqQFullDrop");
    let cookies = sum(targets(observed), "TcpExt.TCPReqQFullDoCookies");
    let (Some(dropped), Some(cookies)) = (dropped, cookies) else {
        return Finding::Unknown("the kernel does not count TcpExt.TCPReqQFullDrop".to_owned());
    };
    if dropped + cookies == 0 {
        return Finding::Not("no SYN queue overflowed".to_owned());
    }
    let of = |host: &HostCounters, name| host.counters.get(name).unwrap_or(0);
    let full =
        |host: &&HostCounters| of(host, "TcpExt.TCPReqQFullDrop") + of(host, "TcpExt.TCPReqQFullDoCookies");
    let host = targets(observed).max_by_key(full).expect("one has the counter");
    counted(
        &host.host,
        format!("it was full {} times: {dropped} SYNs dropped, {cookies} cookies sent", dropped + cookies),
    )
}

/// Processes waited for the disk.
pub(super) fn disk(observed: &Observed<'_>) -> Finding {
    if targets(observed).next().is_none() {
        return Finding::Irrelevant;
    }
    let waited = machines(observed, targets(observed))
        .filter_map(|(place, machine)| Some((machine.get("pressure.io.some_us")?, place)));
    let Some((us, place)) = waited.max_by_key(|(us, _)| *us) else {
        return Finding::Unknown(
            "the kernel does not count waiting for disks (/proc/pressure/io)".to_owned(),
        );
    };
    let share = share_of_trial(observed, us as f64 / 1e6);
    let evidence = format!("some process waited for a disk {} of the time", percent(share));
    // The kernel does not count those who wait for the journal of a file system.
    let stood = programs(observed).find(|(_, program)| {
        program.samples >= MIN_SAMPLES && program.samples_blocked * 2 >= program.samples
    });
    match stood {
        Some((_, program)) if share >= STOOD_DISK_SHARE => {
            let (of, stood) = (program.samples, program.samples_blocked);
            likely(place, format!("{evidence}, and {} was blocked in {stood} of {of} samples", program.name))
        }
        _ if share >= DISK_SHARE => likely(place, evidence),
        _ => Finding::Not(evidence),
    }
}

/// The target took its time although it had processors.
pub(super) fn slow_handler(observed: &Observed<'_>) -> Finding {
    let Some(http) = observed.trial.http() else { return Finding::Irrelevant };
    let Some((share, program, host)) = busiest_target(observed) else { return Finding::Irrelevant };
    let is_open_and_carried = observed.trial.is_open() && carried(observed).is_some();
    if http.service_time.observed.is_empty() || is_open_and_carried || answers_shortly(observed) {
        return Finding::Irrelevant;
    }
    let evidence = format!(
        "the median answer took {}, while the busiest thread of {program} worked {} of the time",
        show_time_ns(http.service_time.percentile(0.5).ns),
        percent(share)
    );
    if share < IDLE_SHARE { likely(host, evidence) } else { Finding::Not(evidence) }
}
