//! What bounds the target's programs and its host.

use record::{
    HostCounters, ListenerUse, ProgramUse,
    units::{show_count, show_time_ns},
};

use super::{
    busiest_target, counted, have_time, hidden_programs, in_flight, is_asked, likely, listeners,
    load::{answers_shortly, at_host, carried},
    machines,
    network::is_a_link_full,
    percent, programs, share_at, sum, targets,
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
/// After this time, the kernel sends a SYN again (`TCP_TIMEOUT_INIT`).
const FIRST_RETRANSMISSION_NS: u64 = 1_000_000_000;
/// Smallest share of the requests under way that wait to be accepted where a limit of connections matters: some always have just come.
const WAITING_SHARE: f64 = 0.1;
/// Samples of a listener that say something.
const MIN_SAMPLES: u32 = 3;

/// A process had as many descriptors open as it may.
pub(super) fn descriptors(observed: &Observed<'_>) -> Finding {
    // What does not listen serves nobody.
    let servers = programs(observed).filter(|(_, program)| !program.listens.is_empty());
    let used = servers.filter_map(|(host, program)| {
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
    let is_near = most + BETWEEN_LOOKS >= max && leaves_connections(observed, host, program);
    match hidden_programs(observed) {
        _ if most >= max || is_near => counted(&host.host, evidence),
        Some(why) => Finding::Unknown(format!("{evidence}, but not all processes were looked at ({why})")),
        None => Finding::Not(evidence),
    }
}

/// Whether connections to a program waited or failed, as they do once it has no descriptor for them.
fn leaves_connections(observed: &Observed<'_>, host: &HostCounters, program: &ProgramUse) -> bool {
    let waits = |at: &String| host.listeners.get(at).is_some_and(|queue| queue.samples_waiting > 0);
    let has_failed = observed.trial.http().is_none_or(|http| http.counts.failed > 0);
    has_failed || program.listens.iter().any(waits)
}

fn no_program(observed: &Observed<'_>) -> Finding {
    let why = targets(observed).find_map(|host| host.counters.missing.get("programs"));
    let why = why.map_or_else(String::new, |why| format!(" ({why})"));
    Finding::Unknown(format!("no process of the target could be looked at{why}"))
}

/// A control group used up its quota.
pub(super) fn cpu_quota(observed: &Observed<'_>) -> Finding {
    let elapsed_s = |host: &HostCounters| observed.counters.elapsed_s_at(&host.host);
    let hosts = targets(observed).map(|host| (host.stopped_share(elapsed_s(host)), host));
    let own = programs(observed).map(|(host, program)| (program.stopped_share(elapsed_s(host)), host));
    let stopped = hosts.chain(own).filter_map(|(share, host)| Some((share?, host)));
    let Some((share, host)) = stopped.max_by(|a, b| a.0.total_cmp(&b.0)) else { return Finding::Irrelevant };
    let evidence = format!("its control group was stopped for up to {} of the time", percent(share));
    if share >= THROTTLED_SHARE && !is_a_link_full(observed) {
        counted(&host.host, evidence)
    } else {
        Finding::Not(evidence)
    }
}

/// A thread of the target, or all on their processors, had no time left, or a core was busy with the network.
pub(super) fn hot_core(observed: &Observed<'_>) -> Finding {
    let elapsed_ms = observed.counters.elapsed_s * 1e3;
    let cores = machines(observed, observed.counters.hosts.iter()).flat_map(|(place, machine)| {
        machine.online_cpus().into_iter().filter_map(move |core| {
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
    let Some(work) = busiest_target(observed) else {
        return no_program(observed);
    };
    match work.is_hot() {
        true if work.is_server || observed.trial.http().is_none() => counted(work.host, work.in_words()),
        // A program beside the target, or one that it shares a processor with.
        is_hot if is_hot || work.lacks_processors() && !is_a_link_full(observed) => {
            likely(work.host, work.in_words())
        }
        _ => Finding::Not(at_host(&work)),
    }
}

/// Connections wait to be accepted all the time, and the program has time to accept them.
pub(super) fn connection_limit(observed: &Observed<'_>) -> Finding {
    let Some(work) = busiest_target(observed) else { return no_program(observed) };
    if let Some(why) = targets(observed).find_map(|host| host.counters.missing.get("listeners")) {
        return Finding::Unknown(format!("no queue of connections could be looked at ({why})"));
    }
    let least = WAITING_SHARE * in_flight(observed);
    let waits = |queue: &ListenerUse| {
        // The first look and the last are before the load and after it.
        let under_load = queue.samples.saturating_sub(2);
        let is_often = under_load >= MIN_SAMPLES && queue.samples_waiting * 2 > under_load;
        is_often && f64::from(queue.most_waiting) >= least
    };
    let waiting = listeners(observed).filter(|(_, _, queue)| waits(queue));
    let Some((host, at, queue)) = waiting.max_by_key(|(_, _, queue)| queue.most_waiting) else {
        return Finding::Irrelevant;
    };
    let evidence = format!(
        "up to {} connections waited at {at} in {} of {} samples, while {}",
        queue.most_waiting,
        queue.samples_waiting,
        queue.samples,
        work.in_words()
    );
    if have_time(observed) { likely(&host.host, evidence) } else { Finding::Not(evidence) }
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
    let (asked, others): (Vec<_>, Vec<_>) =
        host.listeners.iter().partition(|(address, _)| is_asked(observed, address));
    let is_only = if asked.is_empty() { others.len() == 1 } else { others.is_empty() };
    // Requests do not go to a host behind the one that is asked, but its queues are the target's.
    let (own, others) = if asked.is_empty() { (others, asked) } else { (asked, others) };
    let share = |queue: &ListenerUse| f64::from(queue.most_waiting) / f64::from(queue.backlog.max(1));
    let fullest = own.iter().max_by(|(_, a), (_, b)| share(a).total_cmp(&share(b)));
    let size = fullest.map_or_else(String::new, |(_, queue)| format!("queue of {} ", queue.backlog));
    let times = if times == 1 { "once".to_owned() } else { format!("{} times", show_count(times)) };
    let busiest = busiest_target(observed).map_or_else(String::new, |work| format!("; {}", work.in_words()));
    // The kernel counts for all sockets of the namespace. A queue is full when one more waits than its size.
    let was_full = |queue: &ListenerUse| queue.most_waiting > queue.backlog;
    let is_own = is_only || own.iter().any(|(_, queue)| was_full(queue));
    // Who is asked dropped the first packet of a connection that took so long.
    let connects = observed.trial.http().map(|http| http.connect_time.max_ns());
    let has_dropped = connects.is_some_and(|longest_ns| longest_ns >= FIRST_RETRANSMISSION_NS);
    let other = others.iter().find(|(_, queue)| was_full(queue));
    match fullest {
        Some(_) if is_own => counted(&host.host, format!("{size}overflowed {times}{busiest}")),
        Some((_, queue))
            if !others.is_empty() && !has_dropped && (other.is_some() || share(queue) <= 0.5) =>
        {
            let at = other.map_or("another socket", |(address, _)| address.as_str());
            Finding::Not(format!(
                "a queue overflowed {times}, and it was rather that of {at}: in the {size}at most {} waited",
                queue.most_waiting
            ))
        }
        _ => likely(&host.host, format!("{size}overflowed {times}{busiest}")),
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
    let share = share_at(observed, place, us as f64 / 1e6);
    let evidence = format!("some process waited for a disk {} of the time", percent(share));
    // The kernel does not count those who wait for the journal of a file system.
    let stood = programs(observed).find(|(_, program)| {
        program.samples >= MIN_SAMPLES && program.samples_blocked * 2 >= program.samples
    });
    // If none of the target's processes was ever seen to wait, another program did.
    let never_waited =
        |(_, program): (_, &ProgramUse)| program.samples >= MIN_SAMPLES && program.samples_blocked == 0;
    let is_of_another = programs(observed).next().is_some() && programs(observed).all(never_waited);
    match stood {
        Some((_, program)) if share >= STOOD_DISK_SHARE => {
            let (of, stood) = (program.samples, program.samples_blocked);
            likely(place, format!("{evidence}, and {} was blocked in {stood} of {of} samples", program.name))
        }
        _ if share >= DISK_SHARE && !is_of_another => likely(place, evidence),
        _ => match hidden_programs(observed).filter(|_| share >= STOOD_DISK_SHARE) {
            Some(why) => {
                Finding::Unknown(format!("{evidence}, but not all processes were looked at ({why})"))
            }
            None => Finding::Not(evidence),
        },
    }
}

/// The target took its time although it had processors.
pub(super) fn slow_handler(observed: &Observed<'_>) -> Finding {
    let Some(http) = observed.trial.http() else { return Finding::Irrelevant };
    let is_open_and_carried = observed.trial.is_open() && carried(observed).is_some();
    if http.service_time.observed.is_empty() || is_open_and_carried || answers_shortly(observed) {
        return Finding::Irrelevant;
    }
    let Some(work) = busiest_target(observed) else { return no_program(observed) };
    // Who waits for others works least, so the place is where requests go to.
    let is_asked = |host: &&HostCounters| host.listeners.keys().any(|address| is_asked(observed, address));
    let place = targets(observed).find(is_asked).map_or(work.host, |host| &host.host);
    let whose = if place.is_empty() { "the target" } else { place };
    let evidence = format!(
        "the median answer of {whose}, or of what it waits for, took {}, while {}",
        show_time_ns(http.service_time.percentile(0.5).ns),
        at_host(&work)
    );
    if have_time(observed) { likely(place, evidence) } else { Finding::Not(evidence) }
}
