//! Rules about the target's programs and its host.

use record::{
    HostCounters, HttpTrial, ListenerUse, ProgramUse,
    units::{show_count, show_rate, show_time_ns},
};

use super::{
    busiest_target, core_full_of_interrupts, counted, have_time, hidden_programs, in_flight, inside,
    is_asked, likely, listeners,
    load::{MIN_REQUESTS_PER_FAILURE, at_host, carried},
    machines,
    network::is_a_link_full,
    percent, share_at, stolen_share, target_programs, targets,
    work::{Work, processors_of},
};
use crate::{
    Finding, Observed, Role,
    account::{Account, LITTLE_SHARE},
};

/// A quota matters only if it stops its group for at least this share of the trial.
const THROTTLED_SHARE: f64 = 0.05;
/// A program may open or close this many descriptors between two samples.
const BETWEEN_LOOKS: u64 = 3;
/// A disk matters only if programs wait for it for at least this share of the trial.
const DISK_SHARE: f64 = 0.3;
/// The same, for a target that was seen to wait for a device in at least half of the samples.
const STOOD_DISK_SHARE: f64 = 0.1;
/// The kernel delays an acknowledgement for this time, in seconds (`TCP_DELACK_MIN`).
const DELAYED_ACK_S: f64 = 0.04;
/// A rate limit matters only if it refuses at least this share of the requests.
const REFUSED_SHARE: f64 = 0.01;
/// A process counts as stopped if this share of the samples found it so.
const STOPPED_SHARE: f64 = 0.1;
/// From this share of the processors' time on, other programs keep the target waiting.
const OTHERS_SHARE: f64 = 0.2;
/// After this time, the kernel sends a SYN again (`TCP_TIMEOUT_INIT`).
const FIRST_RETRANSMISSION_NS: u64 = 1_000_000_000;
/// This many connections that took that long show that the target dropped their first packets. Fewer may be packets lost on the way.
const LATE_CONNECTS: u64 = 10;
/// A connection limit matters only if at least this share of the requests under way waits to be accepted: a few have always just arrived.
const WAITING_SHARE: f64 = 0.1;
/// From this share of steal time on, the programs of a virtual machine may be slow for lack of processors.
const STOLEN_SHARE: f64 = 0.2;
/// Fewer samples of a listener or a process prove nothing.
const MIN_SAMPLES: u32 = 3;

/// A process had reached its limit of open descriptors.
pub(super) fn descriptors(observed: &Observed<'_>) -> Finding {
    // A program that does not listen serves no requests.
    let servers = target_programs(observed).into_iter().filter(|(_, program)| !program.listens.is_empty());
    let used = servers.filter_map(|(host, program)| {
        let (most, max) = (program.most_descriptors?, program.max_descriptors?);
        // A program that has many more than its limit has lowered the limit itself, to sandbox its own process, as sshd does.
        if most > max + BETWEEN_LOOKS {
            return None;
        }
        Some((most as f64 / max.max(1) as f64, most, max, host, program))
    });
    let Some((_, most, max, host, program)) = used.max_by(|a, b| a.0.total_cmp(&b.0)) else {
        return no_program(observed);
    };
    // While opening one more descriptor fails, the kernel's count includes it.
    let evidence = format!("{} had {} of {max} descriptors open", program.name, most.min(max));
    let is_near = most + BETWEEN_LOOKS >= max && leaves_connections(observed, host, program);
    match hidden_programs(observed, true) {
        _ if most >= max || is_near => counted(&host.host, evidence),
        Some(why) => Finding::Unknown(format!("{evidence}, but not all processes could be examined ({why})")),
        None => Finding::Not(evidence),
    }
}

/// Whether connections to a program waited or failed. They do if the program has no descriptor for them.
fn leaves_connections(observed: &Observed<'_>, host: &HostCounters, program: &ProgramUse) -> bool {
    let waits = |at: &String| host.listeners.get(at).is_some_and(|queue| queue.samples_waiting > 0);
    let has_failed = observed.trial.http().is_none_or(|http| http.counts.failed > 0);
    has_failed || program.listens.iter().any(waits)
}

fn no_program(observed: &Observed<'_>) -> Finding {
    let why = targets(observed).find_map(|host| host.counters.missing.get("programs"));
    let why = why.map_or_else(String::new, |why| format!(" ({why})"));
    Finding::Unknown(format!("no process of the target could be examined{why}"))
}

/// The largest share of the time for which a quota stopped a control group of the target, with its host.
fn throttled<'a>(observed: &'a Observed<'_>) -> Option<(f64, &'a HostCounters)> {
    let elapsed_s = |host: &HostCounters| observed.counters.elapsed_s_at(&host.host);
    let hosts = targets(observed).map(|host| (host.stopped_share(elapsed_s(host)), host));
    let of_programs = target_programs(observed)
        .into_iter()
        .map(|(host, program)| (program.stopped_share(elapsed_s(host)), host));
    let stopped = hosts.chain(of_programs).filter_map(|(share, host)| Some((share?, host)));
    stopped.max_by(|a, b| a.0.total_cmp(&b.0))
}

pub(crate) fn throttled_share(observed: &Observed<'_>) -> f64 {
    throttled(observed).map_or(0.0, |(share, _)| share)
}

/// A control group used up its quota.
pub(super) fn cpu_quota(observed: &Observed<'_>) -> Finding {
    let Some((share, host)) = throttled(observed) else { return Finding::Irrelevant };
    let evidence =
        format!("the target's control group was throttled for up to {} of the time", percent(share));
    if share >= THROTTLED_SHARE && !is_a_link_full(observed) {
        counted(&host.host, evidence)
    } else {
        Finding::Not(evidence)
    }
}

/// A thread of the target, or all its threads on their processors, had no time left, or a core was busy with the network.
pub(super) fn hot_core(observed: &Observed<'_>) -> Finding {
    let full = machines(observed, targets(observed))
        .find_map(|(place, machine)| Some((place, core_full_of_interrupts(observed, place, machine)?)));
    if let Some((place, evidence)) = full {
        return counted(place, evidence);
    }
    let Some(work) = busiest_target(observed) else {
        return no_program(observed);
    };
    match work.is_hot() {
        true if work.is_server || observed.trial.http().is_none() => counted(work.host, work.in_words()),
        // The hot program does not listen, which does not prove the cause.
        true => likely(work.host, work.in_words()),
        false => match hidden_programs(observed, false) {
            Some(why) => some_hidden(why),
            None => Finding::Not(at_host(&work)),
        },
    }
}

/// Other programs used the processors that the target may use.
pub(super) fn lacks_processor(observed: &Observed<'_>) -> Finding {
    let Some(work) = busiest_target(observed).filter(|work| !work.is_hot() && work.waits()) else {
        return Finding::Irrelevant;
    };
    let Some(processors) = processors_of(observed, &work).filter(|processors| processors.is_full()) else {
        let lacks = work.lacks_processors() && !is_a_link_full(observed);
        return if lacks { likely(work.host, work.in_words()) } else { Finding::Irrelevant };
    };
    let evidence = format!(
        "{}; its processors had no time left, and other programs used {} of it",
        work.in_words(),
        percent(processors.others)
    );
    let is_generators = processors.generator >= OTHERS_SHARE;
    let is_theirs = processors.others >= OTHERS_SHARE || work.lacks_processors() && !is_generators;
    if is_theirs && !is_a_link_full(observed) { likely(work.host, evidence) } else { Finding::Not(evidence) }
}

/// The largest share of samples that found a process of the target stopped, with its host.
fn stopped_program<'a>(observed: &'a Observed<'_>) -> Option<(f64, &'a HostCounters, &'a ProgramUse)> {
    let sampled = target_programs(observed).into_iter().filter(|(_, program)| program.samples >= MIN_SAMPLES);
    let share = |program: &ProgramUse| f64::from(program.samples_stopped) / f64::from(program.samples);
    let stopped = sampled.map(|(host, program)| (share(program), host, program));
    stopped.max_by(|a, b| a.0.total_cmp(&b.0))
}

pub(crate) fn stopped_share(observed: &Observed<'_>) -> f64 {
    stopped_program(observed).map_or(0.0, |(share, ..)| share)
}

/// A signal stopped a process of the target.
pub(super) fn stopped(observed: &Observed<'_>) -> Finding {
    match stopped_program(observed) {
        Some((share, host, program)) if share >= STOPPED_SHARE => {
            let (stopped, all) = (program.samples_stopped, program.samples);
            let evidence =
                format!("{} was stopped by a signal in {stopped} of {all} samples (state T)", program.name);
            counted(&host.host, evidence)
        }
        _ => Finding::Irrelevant,
    }
}

/// The share of the time of requests and answers for which acknowledgements of the load's hosts were delayed.
pub(crate) fn delayed_ack_share(observed: &Observed<'_>) -> f64 {
    let hosts = observed.counters.hosts.iter().zip(observed.roles);
    let loads = hosts.filter(|(_, role)| **role != Role::Target);
    let delayed: u64 = loads.filter_map(|(host, _)| host.counters.get("TcpExt.DelayedACKs")).sum();
    observed.trial.http().map_or(0.0, |http| {
        let users = &http.users_time;
        let s = users.sending_s + users.waiting_s + users.receiving_s;
        (delayed as f64 * DELAYED_ACK_S / s.max(f64::MIN_POSITIVE)).min(1.0)
    })
}

/// The target waits for an acknowledgement within its answers. Then the rest of an answer comes when the delay of the acknowledgement ends.
pub(super) fn delayed_ack(observed: &Observed<'_>) -> Finding {
    let Some(http) = observed.trial.http() else { return Finding::Irrelevant };
    let mean_receiving_s = http.users_time.receiving_s / http.counts.completed.max(1) as f64;
    let share = delayed_ack_share(observed);
    if share < 0.5 || mean_receiving_s < DELAYED_ACK_S / 2.0 {
        return Finding::Irrelevant;
    }
    let evidence = format!(
        "between the first and the last byte of an answer {} passed (on average), and this side delayed about one acknowledgement for each",
        show_time_ns((mean_receiving_s * 1e9) as u64)
    );
    let place = targets(observed).next().map_or("", |host| &host.host);
    likely(place, evidence)
}

/// A limit of rates refused requests.
pub(super) fn rate_limiter(observed: &Observed<'_>) -> Finding {
    let Some(http) = observed.trial.http() else { return Finding::Irrelevant };
    let of = |status| http.statuses.get(&status).copied().unwrap_or(0);
    let answers: u64 = http.statuses.values().sum();
    // Limiters answer with 429, and by default nginx's with 503, as an overloaded program does after a while.
    let is_quick = Account::of(observed).is_some_and(|account| account.refuses_quickly());
    let (status, refused) = match (of(429), of(503)) {
        (0, unavailable) if is_quick && have_time(observed) => (503, unavailable),
        (refused, _) => (429, refused),
    };
    if (refused as f64) < REFUSED_SHARE * answers as f64 || refused == 0 {
        return Finding::Irrelevant;
    }
    let passed_per_s = (answers - refused) as f64 / observed.trial.elapsed_s.max(f64::MIN_POSITIVE);
    let evidence = format!(
        "{} of {} answers were {status}, and {} passed",
        show_count(refused),
        show_count(answers),
        show_rate(passed_per_s)
    );
    let place = targets(observed).find(|host| host.listeners.keys().any(|at| is_asked(observed, at)));
    likely(place.map_or("", |host| &host.host), evidence)
}

/// Whether most failures are connections that could not be opened.
pub(crate) fn fails_to_connect(http: &HttpTrial) -> bool {
    let (failed, scheduled) = (http.counts.failed, http.counts.scheduled);
    failed > scheduled / MIN_REQUESTS_PER_FAILURE && http.errors.connect_failures() * 2 >= failed
}

/// The group of target processes that had the least time left. The error is the finding to return if a process was hidden or none was seen.
fn seen_work<'a>(observed: &'a Observed<'_>) -> Result<Work<'a>, Finding> {
    let work = busiest_target(observed).ok_or_else(|| no_program(observed))?;
    hidden_programs(observed, false).map_or(Ok(work), |why| Err(some_hidden(why)))
}

fn some_hidden(why: &str) -> Finding {
    Finding::Unknown(format!("not every process of the target could be examined ({why})"))
}

/// Connections wait to be accepted most of the time although the program has time to accept them.
pub(super) fn connection_limit(observed: &Observed<'_>) -> Finding {
    let work = match seen_work(observed) {
        Ok(work) => work,
        Err(unknown) => return unknown,
    };
    if let Some(why) = targets(observed).find_map(|host| host.counters.missing.get("listeners")) {
        return Finding::Unknown(format!("no queue of connections could be examined ({why})"));
    }
    let least = WAITING_SHARE * in_flight(observed);
    let waits = |queue: &ListenerUse| {
        let (under_load, waiting) = under_load(queue);
        let is_often = under_load >= MIN_SAMPLES && waiting * 2 > under_load;
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
    // Where most users wait to be accepted, it does not matter how busy the target is with the others.
    let is_most =
        waiting_share(observed) >= 0.5 && work.has_some_time() && throttled_share(observed) < LITTLE_SHARE;
    if is_most || have_time(observed) { likely(&host.host, evidence) } else { Finding::Not(evidence) }
}

/// Samples of a queue under load, and those of them with connections that waited. The first sample precedes the load, and the last one
/// follows it.
fn under_load(queue: &ListenerUse) -> (u32, u32) {
    (queue.samples.saturating_sub(2), queue.samples_waiting)
}

/// The share of the requests under way that waited to be accepted.
fn waiting_share(observed: &Observed<'_>) -> f64 {
    (mean_waiting(observed, false) / in_flight(observed).max(f64::MIN_POSITIVE)).min(1.0)
}

/// How many connections waited to be accepted on average, in the queue with the most; of those only that requests go to, if wanted.
pub(crate) fn mean_waiting(observed: &Observed<'_>, only_asked: bool) -> f64 {
    let queues = listeners(observed).filter(|(_, at, _)| !only_asked || is_asked(observed, at));
    let mean = |queue: &ListenerUse| queue.sum_waiting as f64 / f64::from(under_load(queue).0.max(1));
    queues.map(|(_, _, queue)| mean(queue)).fold(0.0, f64::max)
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
    // A host behind the one that receives the requests gets none directly, but its queues belong to the target, too.
    let (of_target, others) = if asked.is_empty() { (others, asked) } else { (asked, others) };
    let share = |queue: &ListenerUse| f64::from(queue.most_waiting) / f64::from(queue.backlog.max(1));
    let fullest = of_target.iter().max_by(|(_, a), (_, b)| share(a).total_cmp(&share(b)));
    let what = fullest.map_or_else(|| "it".to_owned(), |(_, queue)| format!("a queue of {}", queue.backlog));
    let times = how_often(times);
    let busiest = busiest_target(observed).map_or_else(String::new, |work| format!("; {}", work.in_words()));
    // The kernel adds up the overflows of all sockets of a network namespace. A queue is full when its size plus one connection waits.
    let was_full = |queue: &ListenerUse| queue.most_waiting > queue.backlog;
    // A connection to the target that took this long shows that the target dropped its first packet.
    let connects = observed.trial.http().map(|http| http.connect_time.max_ns());
    let has_dropped = connects.is_some_and(|longest_ns| longest_ns >= FIRST_RETRANSMISSION_NS);
    let other = others.iter().find(|(_, queue)| was_full(queue));
    // Samples may miss a queue while it is full, so late connections count as well. It takes several, because a single packet may have been
    // lost on the way. The bound is 10 % lower, because a bin of the histogram may begin below the timeout.
    let is_late = |http: &HttpTrial| {
        http.connect_time.count() - http.connect_time.count_up_to_ns(FIRST_RETRANSMISSION_NS / 10 * 9)
            >= LATE_CONNECTS
    };
    let is_dropper = other.is_none() && observed.trial.http().is_some_and(is_late);
    let is_own = is_only || is_dropper || of_target.iter().any(|(_, queue)| was_full(queue));
    match fullest {
        Some(_) if is_own => counted(&host.host, format!("{what} overflowed {times}{busiest}")),
        Some((_, queue))
            if !others.is_empty() && !has_dropped && (other.is_some() || share(queue) <= 0.5) =>
        {
            let at = other.map_or("another socket", |(address, _)| address.as_str());
            Finding::Not(format!(
                "an accept queue overflowed {times}, but probably that of {at}, not the target's: at most {} connections waited in the \
                 target's queue of {}",
                queue.most_waiting, queue.backlog
            ))
        }
        _ => likely(&host.host, format!("{what} overflowed {times}{busiest}")),
    }
}

fn how_often(times: u64) -> String {
    if times == 1 { "once".to_owned() } else { format!("{} times", show_count(times)) }
}

/// The queue of connections whose handshake is not complete overflowed.
pub(super) fn syn_queue(observed: &Observed<'_>) -> Finding {
    if targets(observed).next().is_none() {
        return Finding::Irrelevant;
    }
    let of = |host: &HostCounters| {
        let get = |name| host.counters.get(name);
        Some((get("TcpExt.TCPReqQFullDrop")?, get("TcpExt.TCPReqQFullDoCookies")?))
    };
    let counts = targets(observed).filter_map(|host| Some((of(host)?, host)));
    let Some(((dropped, cookies), host)) = counts.max_by_key(|((dropped, cookies), _)| dropped + cookies)
    else {
        return Finding::Unknown("the kernel does not count TcpExt.TCPReqQFullDrop".to_owned());
    };
    if dropped + cookies == 0 {
        return Finding::Not("no SYN queue overflowed".to_owned());
    }
    let evidence = format!(
        "it was full {}: {dropped} SYNs dropped, {cookies} cookies sent",
        how_often(dropped + cookies)
    );
    // A SYN cookie replaces a place in the queue for connections that need no more than a cookie can hold.
    match dropped {
        0 => likely(&host.host, evidence),
        _ => counted(&host.host, evidence),
    }
}

/// The share of the time for which some process of the targets' machines waited for a disk.
pub(crate) fn disk_share(observed: &Observed<'_>) -> f64 {
    let waited = machines(observed, targets(observed)).filter_map(|(place, machine)| {
        Some(share_at(observed, place, machine.get("pressure.io.some_us")? as f64 / 1e6))
    });
    waited.fold(0.0, f64::max).min(1.0)
}

/// The share of the samples that found a process of the target waiting for a device, of the process with the most.
pub(crate) fn blocked_share(observed: &Observed<'_>) -> f64 {
    let share = |program: &ProgramUse| f64::from(program.samples_blocked) / f64::from(program.samples.max(1));
    target_programs(observed).iter().map(|(_, program)| share(program)).fold(0.0, f64::max)
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
            "the kernel does not report how long processes waited for disks (/proc/pressure/io)".to_owned(),
        );
    };
    let share = share_at(observed, place, us as f64 / 1e6);
    let evidence = format!("some process waited for a disk {} of the time", percent(share));
    // The kernel does not count waits for the journal of a file system, so samples that found the program blocked are used too.
    let stood = target_programs(observed).into_iter().find(|(_, program)| {
        program.samples >= MIN_SAMPLES && program.samples_blocked * 2 >= program.samples
    });
    // If none of the target's processes was ever seen to wait, another program waited.
    let never_waited =
        |(_, program): (_, &ProgramUse)| program.samples >= MIN_SAMPLES && program.samples_blocked == 0;
    let is_of_another =
        !target_programs(observed).is_empty() && target_programs(observed).into_iter().all(never_waited);
    match stood {
        Some((_, program)) if share >= STOOD_DISK_SHARE => {
            let (of, stood) = (program.samples, program.samples_blocked);
            likely(place, format!("{evidence}, and {} was blocked in {stood} of {of} samples", program.name))
        }
        _ if share >= DISK_SHARE && !is_of_another => likely(place, evidence),
        _ => match hidden_programs(observed, true).filter(|_| share >= STOOD_DISK_SHARE) {
            Some(why) => {
                Finding::Unknown(format!("{evidence}, but not all processes could be examined ({why})"))
            }
            None => Finding::Not(evidence),
        },
    }
}

/// The target answered slowly although it had processor time left.
pub(super) fn slow_handler(observed: &Observed<'_>) -> Finding {
    let Some(http) = observed.trial.http() else { return Finding::Irrelevant };
    let Some(account) = Account::of(observed) else { return Finding::Irrelevant };
    let is_open_and_carried = observed.trial.is_open() && carried(observed).is_some();
    let is_empty = http.service_time.observed.is_empty() && http.service_time.censored.is_empty();
    if is_empty || is_open_and_carried || account.rests() || account.served() < LITTLE_SHARE {
        return Finding::Irrelevant;
    }
    let work = match seen_work(observed) {
        Ok(work) => work,
        Err(unknown) => return unknown,
    };
    // The program that waits for others works least, so the place is the host that receives the requests instead of the busiest one.
    let is_asked = |host: &&HostCounters| host.listeners.keys().any(|address| is_asked(observed, address));
    let place = targets(observed).find(is_asked).map_or(work.host, |host| &host.host);
    let answers = account.answers_in_words();
    let evidence = if work.host == place {
        format!("it answered in {answers}, while {}", work.in_words())
    } else {
        format!("it, or a service that it waits for, took {answers}, while {}", at_host(&work))
    };
    // Steal time of a virtual machine is not part of any thread's time.
    let stolen =
        machines(observed, targets(observed)).map(|(place, machine)| stolen_share(observed, place, machine));
    match stolen.fold(0.0, f64::max) {
        stolen if stolen >= STOLEN_SHARE => Finding::Not(format!(
            "{evidence}; but other virtual machines had its processors for {} of the time",
            percent(stolen)
        )),
        _ if have_time(observed) || inside::is_asleep(observed) => likely(place, evidence),
        _ => Finding::Not(evidence),
    }
}
