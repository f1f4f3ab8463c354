//! Rules about the network path between the load and the target.

use std::ops::RangeInclusive;

use record::{
    HostCounters, ProgramUse, SenderUse,
    units::{show_bytes, show_count, show_time_ns},
};

use super::{
    Rule, counted, is_lost, likely, machines, percent, share_of_trial,
    target::{accept_queue, connection_limit, syn_queue},
};
use crate::{Finding, LinkUse, Observed, Role, account::Account};

/// Smallest share of its rate that a full link carries.
const FULL_LINK_SHARE: f64 = 0.9;
/// A link bounds a trial only if it is full for at least this share of it. The share is below 1 because programs first log in and send
/// slowly.
const FULL_LINK_TIME_SHARE: f64 = 0.5;
/// The window of a channel of OpenSSH (`CHAN_SES_WINDOW_DEFAULT` in its channels.h): a sender stops when this much is not acknowledged.
const SSH_WINDOW_BYTES: u64 = 2 << 20;
/// The share of the SSH window that is in flight when the window stops the sender. It may be below 1, because the receiver reopens the
/// window gradually, or above, because encryption adds bytes. A connection with still more in flight has several channels.
const FULL_SSH_WINDOW_SHARES: RangeInclusive<f64> = 0.8..=1.1;
/// A connection tracking table that was full during a trial still has at least this share of its entries in use at the end.
const FULL_TABLE_SHARE: f64 = 0.5;
/// An interface that carries the load received at least this share of the packets of the host's busiest interface.
const MAIN_INTERFACE_SHARE: f64 = 0.1;
/// Smallest share of packets whose loss matters.
const LOSS_SHARE: f64 = 0.000_5;
/// Fewer dropped packets prove nothing.
const MIN_DROPS: u64 = 10;
/// Fewer retransmitted segments prove nothing: a retransmission timer may have been too short.
const MIN_SENT_AGAIN: u64 = 10;
/// A limit matters only if it stops a sender for at least this share of the sender's busy time.
const LIMITED_SHARE: f64 = 0.5;
/// A send buffer of which at least this share is in use is full: the program refills freed space only gradually.
const FULL_BUFFER_SHARE: f64 = 0.6;
/// The congestion window limits a sender only if at least this share of it is in flight.
const FILLED_WINDOW_SHARE: f64 = 0.7;

/// The connection tracking table was full.
pub(super) fn conntrack(observed: &Observed<'_>) -> Finding {
    let get = |host: &HostCounters, name: &str| host.counters.get(&format!("conntrack.{name}"));
    let figures = observed.counters.hosts.iter().filter_map(|host| {
        let (entries, max) = (get(host, "entries")?, get(host, "max_entries")?);
        Some((get(host, "drop"), entries, max, host))
    });
    let fullness = |entries: u64, max: u64| entries as f64 / max.max(1) as f64;
    // Prefer a full table that dropped packets, then the table with the most drops, then the fullest.
    let rank = |&(dropped, entries, max, _): &(Option<u64>, u64, u64, &HostCounters)| {
        let fullness = fullness(entries, max);
        (dropped.is_some_and(|dropped| dropped > 0) && fullness >= FULL_TABLE_SHARE, dropped, fullness)
    };
    let fullest = figures.max_by(|a, b| rank(a).partial_cmp(&rank(b)).expect("numbers"));
    let Some((dropped, entries, max, host)) = fullest else { return Finding::Irrelevant };
    let is_full = fullness(entries, max) >= FULL_TABLE_SHARE;
    match dropped {
        None if is_full => Finding::Unknown("the kernel does not count drops of a full table".to_owned()),
        None => Finding::Irrelevant,
        // Entries of closed connections make room for new ones, which costs nothing.
        Some(0) => Finding::Not(format!(
            "no packet was dropped because of a full table; it had {entries} of {max} entries"
        )),
        Some(dropped) if is_full => counted(
            &host.host,
            format!("{dropped} packets were dropped because all {max} entries were in use"),
        ),
        // For example, two packets of a new connection arrived at the same time.
        Some(dropped) => Finding::Not(format!(
            "{dropped} packets were dropped, but not because of a full table; it had {entries} of {max} entries"
        )),
    }
}

/// A link carried all that its rate allows.
pub(super) fn link_rate(observed: &Observed<'_>) -> Finding {
    let used = observed.links.iter().filter_map(|link| {
        let rate = link.rate_bits_per_s?;
        let full_share = share_of_trial(observed, link.full_s);
        // At least 1 if the link was full.
        let fullness =
            (link.carried_bits_per_s / rate / FULL_LINK_SHARE).max(full_share / FULL_LINK_TIME_SHARE);
        Some((fullness, rate, full_share, link))
    });
    let Some((fullness, rate, full_share, link)) = used.max_by(|a, b| a.0.total_cmp(&b.0)) else {
        return Finding::Irrelevant;
    };
    let mut evidence = format!("it carried {:.1} of {:.1} Mbit/s", link.carried_bits_per_s / 1e6, rate / 1e6);
    if link.full_s > 0.0 {
        evidence += &format!(", and was full for {} of the time", percent(full_share));
    }
    if fullness >= 1.0 {
        counted(&link.name, evidence)
    } else {
        Finding::Not(format!("{}: {evidence}", link.name))
    }
}

/// Whether a link carried nearly all that its rate allows. If so, a limit that stops senders before the link costs nothing.
pub(super) fn is_a_link_full(observed: &Observed<'_>) -> bool {
    let is_full = |link: &LinkUse| {
        link.rate_bits_per_s.is_some_and(|rate| link.carried_bits_per_s >= FULL_LINK_SHARE * rate)
    };
    observed.links.iter().any(is_full)
}

/// A link that was not full dropped packets at its queue.
pub(super) fn link_queue(observed: &Observed<'_>) -> Finding {
    let dropped = observed.links.iter().max_by(|a, b| dropped_share(a).total_cmp(&dropped_share(b)));
    let Some(link) = dropped else { return Finding::Irrelevant };
    let evidence = format!(
        "its queue dropped {} of {} packets",
        show_count(link.dropped_packets),
        show_count(link.offered_packets)
    );
    // Drops bound a sender only through its congestion window, so they do not bound a sender that another window stops.
    let other_windows: [Rule; 3] = [receive_window, send_buffer, ssh_window];
    let is_other_window = other_windows.iter().any(|rule| is_bound(observed, *rule));
    if dropped_share(link) >= LOSS_SHARE && !is_other_window {
        counted(&link.name, evidence)
    } else {
        Finding::Not(evidence)
    }
}

fn dropped_share(link: &LinkUse) -> f64 {
    link.dropped_packets as f64 / link.offered_packets.max(1) as f64
}

/// The kernel dropped packets because a processor or an interface had no room.
pub(super) fn packet_queue(observed: &Observed<'_>) -> Finding {
    let counts = machines(observed, observed.counters.hosts.iter()).filter_map(|(place, machine)| {
        Some((place, machine.get("softnet.drops")?, machine.get("softnet.packets")?.max(1)))
    });
    let share = |drops: u64, packets: u64| drops as f64 / packets as f64;
    let most = counts.max_by(|a, b| share(a.1, a.2).total_cmp(&share(b.1, b.2)));
    let Some((place, drops, packets)) = most else {
        return Finding::Unknown("the kernel does not count softnet_stat".to_owned());
    };
    let at = |share: f64| share >= LOSS_SHARE;
    if at(share(drops, packets)) && drops >= MIN_DROPS {
        return counted(
            place,
            format!("the processors' queues dropped {drops} of {packets} packets (softnet_stat)"),
        );
    }
    let of_interfaces = observed.counters.hosts.iter().flat_map(dropped_by_interfaces);
    match of_interfaces.max_by(|a, b| a.share.total_cmp(&b.share)) {
        Some(Dropped { share, host, of_driver: true, evidence }) if at(share) => counted(host, evidence),
        // This counter of the kernel includes packets of unknown protocols, so the cause is only likely.
        Some(Dropped { share, host, evidence, .. }) if at(share) => likely(host, evidence),
        Some(_) => Finding::Not("neither processors nor interfaces dropped packets".to_owned()),
        None => Finding::Not("no processor dropped packets".to_owned()),
    }
}

/// The evidence of one drop counter of an interface.
struct Dropped<'a> {
    /// The drops as a share of the received packets.
    share: f64,
    host: &'a str,
    /// Whether the counter is the driver's, which counts only packets that found no room. The kernel's also counts packets of unknown
    /// protocols.
    of_driver: bool,
    evidence: String,
}

/// One result for each drop counter of a host's interfaces; its share is 0 if the interface does not carry the load. Drivers count
/// the same packets by queue and again by reason, so the counters are not added up.
fn dropped_by_interfaces(host: &HostCounters) -> impl Iterator<Item = Dropped<'_>> {
    let get = |interface: &str, name: &str| host.counters.get(&format!("interface.{interface}.{name}"));
    let all = host.counters.values.iter();
    let received =
        all.filter(|(name, _)| name.starts_with("interface.") && name.ends_with(".received_packets"));
    let busiest = received.map(|(_, packets)| *packets).max().unwrap_or(0);
    host.counters.values.iter().filter_map(move |(name, drops)| {
        let name = name.strip_prefix("interface.")?;
        let of_driver = name.split_once(".ethtool.").filter(|(_, counter)| is_lack_of_room(counter));
        let (interface, counter) = of_driver.or_else(|| Some((name.strip_suffix(".receive_drops")?, "")))?;
        let received = get(interface, "received_packets").unwrap_or(0);
        let is_main = received as f64 >= MAIN_INTERFACE_SHARE * busiest as f64;
        let share = if is_main && *drops >= MIN_DROPS { *drops as f64 / received.max(1) as f64 } else { 0.0 };
        let ring = get(interface, "receive_ring_packets").zip(get(interface, "largest_receive_ring_packets"));
        let ring = ring
            .filter(|_| !counter.is_empty())
            .map_or_else(String::new, |(now, most)| format!("; its ring has room for {now}, at most {most}"));
        let words = if counter.is_empty() { String::new() } else { format!(" ({counter}{ring})") };
        Some(Dropped {
            share,
            host: &host.host,
            of_driver: !counter.is_empty(),
            evidence: format!("{interface} dropped {drops} of {received} packets{words}"),
        })
    })
}

/// Whether a driver's counter, by its name, counts received packets that were dropped for lack of room. Programs and filters drop other
/// packets on purpose.
fn is_lack_of_room(counter: &str) -> bool {
    let has = |words: &[&str]| words.iter().any(|word| counter.contains(word));
    has(&["drop", "discard", "missed", "fifo", "no_buf", "out_of_buf", "no_dma"])
        && !has(&["tx", "xdp", "filter", "steer", "vlan"])
}

/// The host with the most data in flight, if its connections sent in at least half of the samples; otherwise the finding of a rule on
/// windows.
fn sender<'a>(observed: &'a Observed<'_>) -> Result<(&'a str, SenderUse), Finding> {
    let hosts = &observed.counters.hosts;
    let most = hosts.iter().max_by_key(|host| host.senders.in_flight_bytes);
    let sends = |host: &&HostCounters| {
        host.senders.samples_sending > 0 && host.senders.samples_sending * 2 >= host.senders.samples
    };
    if let Some(host) = most.filter(sends) {
        return Ok((&host.host, host.senders));
    }
    let why = hosts.iter().find_map(|host| host.counters.missing.get("connections"));
    if why.is_none() && hosts.iter().any(|host| host.senders.samples > 0) {
        return Err(Finding::Irrelevant);
    }
    let why = why.map_or("no sending connection was open when connections were sampled", String::as_str);
    Err(Finding::Unknown(format!("the target's connections could not be examined ({why})")))
}

/// The share of the time of requests and answers that their bytes needed at one window for each round trip.
pub(crate) fn window_share(observed: &Observed<'_>) -> f64 {
    let (Some(http), Ok((_, senders))) = (observed.trial.http(), sender(observed)) else { return 1.0 };
    let users = &http.users_time;
    let bytes = (http.counts.sent_bytes + http.counts.received_bytes) as f64;
    // Both are sums over the same samples.
    let s = bytes * senders.rtt_us as f64 / 1e6 / senders.in_flight_bytes.max(1) as f64;
    (s / (users.sending_s + users.waiting_s + users.receiving_s).max(f64::MIN_POSITIVE)).min(1.0)
}

/// How many answers lost packets may have delayed; none if they delayed all, because what was on the way filled the congestion window.
pub(crate) fn lost(observed: &Observed<'_>) -> Option<u64> {
    if sender(observed).is_ok_and(|(_, senders)| filled_share(&senders) >= FILLED_WINDOW_SHARE) {
        return None;
    }
    observed.counters.hosts.iter().filter_map(sent_again).max()
}

/// Segments that a host sent again, without those that open connections.
fn sent_again(host: &HostCounters) -> Option<u64> {
    let opening = host.counters.get("TcpExt.TCPSynRetrans").unwrap_or(0);
    Some(host.counters.get("Tcp.RetransSegs")?.saturating_sub(opening))
}

/// Judges a limit by the share of the senders' busy time for which it stopped them.
fn limited(observed: &Observed<'_>, of: fn(&SenderUse) -> u64, what: &str, is_other: bool) -> Finding {
    let (host, senders) = match sender(observed) {
        Ok(sender) => sender,
        Err(finding) => return finding,
    };
    let Some(busy_us) = senders.busy_us.filter(|busy_us| *busy_us > 0) else {
        return Finding::Unknown("the kernel does not report how long senders were stopped".to_owned());
    };
    let place = if is_other { other_end(observed, host) } else { host };
    let share = of(&senders) as f64 / busy_us as f64;
    let evidence = format!("{what} stopped the senders for {} of their busy time", percent(share));
    if share >= LIMITED_SHARE { counted(place, evidence) } else { Finding::Not(evidence) }
}

/// The host at the other end of a sender's connections: that of the load or that of the target. The sender itself if that is unknown.
fn other_end<'a>(observed: &'a Observed<'_>, sender: &'a str) -> &'a str {
    let roles =
        || observed.counters.hosts.iter().zip(observed.roles).filter(|(host, _)| is_lost(host).is_none());
    let is_of_load = roles().any(|(host, role)| host.host == sender && *role == Role::Load);
    let is_other = |role: &Role| (*role == Role::Load) != is_of_load && *role != Role::Both;
    let mut others = roles().filter(|(_, role)| is_other(role));
    match (observed.trial.http().is_some(), others.next(), others.next()) {
        (true, Some((other, _)), None) => &other.host,
        _ => sender,
    }
}

/// The receiver's window was closed.
pub(super) fn receive_window(observed: &Observed<'_>) -> Finding {
    limited(
        observed,
        |senders| senders.receive_window_limited_us,
        "the receive window of the other end",
        true,
    )
}

/// The sender's buffer was full, although the windows were not. The kernel's own count of that time is often 0: it only sees a
/// program that waits while nothing is left to send.
pub(super) fn send_buffer(observed: &Observed<'_>) -> Finding {
    let by_time = limited(observed, |senders| senders.send_buffer_limited_us, "the send buffer", false);
    let (Finding::Not(_), Ok((host, senders))) = (&by_time, sender(observed)) else { return by_time };
    let used_share = senders.send_buffer_used_bytes as f64 / senders.send_buffer_bytes.max(1) as f64;
    let mean = |sum: u64| show_bytes(sum / senders.samples_sending.max(1));
    let evidence = format!(
        "the send buffer used {} of memory, and its limit is {}; {}",
        mean(senders.send_buffer_used_bytes),
        mean(senders.send_buffer_bytes),
        window_in_words(&senders)
    );
    // SSH fills the buffer to the size of its own window, and the kernel lets the buffer grow with the congestion window.
    let full_share = if ssh(observed).is_some() { 1.0 } else { FULL_BUFFER_SHARE };
    let is_full = used_share >= full_share && filled_share(&senders) < FILLED_WINDOW_SHARE;
    let is_window = is_bound(observed, receive_window);
    if is_full && !is_window { likely(host, evidence) } else { Finding::Not(evidence) }
}

/// Whether a rule above explains what stopped the senders. Clients whose SYN or request a full queue refused send it again.
fn is_explained(observed: &Observed<'_>) -> bool {
    let rules: [Rule; 5] = [accept_queue, syn_queue, link_rate, receive_window, send_buffer];
    rules.iter().any(|rule| is_bound(observed, *rule))
}

fn is_bound(observed: &Observed<'_>, rule: Rule) -> bool {
    matches!(rule(observed), Finding::Bound { .. })
}

/// Packets were lost on the way.
pub(super) fn packet_loss(observed: &Observed<'_>) -> Finding {
    // Each direction and each host is judged separately: hosts that send only acknowledgements lose nothing that matters.
    let of_links = observed.links.iter().map(|link| (link.lost_packets, link.offered_packets));
    let of_hosts = observed.counters.hosts.iter().map(|host| {
        let again = sent_again(host).unwrap_or(0);
        let get = |counter| host.counters.get(counter);
        let data = get("TcpExt.TCPOrigDataSent").or_else(|| get("Tcp.OutSegs")).unwrap_or(0);
        (again, data + again)
    });
    let of_hosts = of_hosts.filter(|(again, _)| *again >= MIN_SENT_AGAIN);
    let share = |&(part, all): &(u64, u64)| part as f64 / all.max(1) as f64;
    let worst = |a: &(u64, u64), b: &(u64, u64)| share(a).total_cmp(&share(b));
    let (lost, again) =
        (of_links.max_by(worst).unwrap_or_default(), of_hosts.max_by(worst).unwrap_or_default());
    let on_link =
        if lost.0 > 0 { format!("; a link lost {} of {} packets", lost.0, lost.1) } else { String::new() };
    let evidence = format!(
        "{} of {} segments with data were sent again{on_link}",
        show_count(again.0),
        show_count(again.1)
    );
    // A full queue causes retransmissions, too.
    let queues: [Rule; 3] = [connection_limit, link_queue, packet_queue];
    let is_lossy = share(&lost) >= LOSS_SHARE
        || share(&again) >= LOSS_SHARE && !queues.iter().any(|rule| is_bound(observed, *rule));
    let is_slow = Account::of(observed).is_some_and(|account| !account.rests());
    let matters = sender(observed).is_ok() || !observed.goals_met || is_slow;
    if is_lossy && matters && !is_explained(observed) && !is_bound(observed, ssh_window) {
        likely("", with_window(observed, evidence))
    } else {
        Finding::Not(evidence)
    }
}

fn with_window(observed: &Observed<'_>, evidence: String) -> String {
    match sender(observed) {
        Ok((_, senders)) => format!("{evidence}; {}", window_in_words(&senders)),
        Err(_) => evidence,
    }
}

fn window_in_words(senders: &SenderUse) -> String {
    let mean = |sum: u64| sum / senders.samples_sending.max(1);
    format!(
        "{} of a congestion window of {} on the way, at a round trip of {}",
        show_bytes(mean(senders.in_flight_bytes)),
        show_bytes(mean(senders.congestion_window_bytes)),
        show_time_ns(mean(senders.rtt_us) * 1_000)
    )
}

/// The share of the congestion window that was in flight.
fn filled_share(senders: &SenderUse) -> f64 {
    senders.in_flight_bytes as f64 / senders.congestion_window_bytes.max(1) as f64
}

/// An SSH program that used processor time. The sshd that listens is left out, because other processes carry its data.
fn ssh<'a>(observed: &'a Observed<'_>) -> Option<&'a ProgramUse> {
    let mut programs = observed.counters.hosts.iter().flat_map(|host| &host.programs);
    programs.find(|program| {
        program.name.starts_with("ssh") && program.running_s > 0.0 && program.listens.is_empty()
    })
}

/// SSH waited for its own window.
pub(super) fn ssh_window(observed: &Observed<'_>) -> Finding {
    let Ok((host, senders)) = sender(observed) else { return Finding::Irrelevant };
    let Some(program) = ssh(observed) else { return Finding::Irrelevant };
    let typical = senders.typical_in_flight_bytes;
    let evidence = format!(
        "{} typically had {} of its window of {} on the way; {}",
        program.name,
        show_bytes(typical),
        show_bytes(SSH_WINDOW_BYTES),
        window_in_words(&senders)
    );
    let is_full = FULL_SSH_WINDOW_SHARES.contains(&(typical as f64 / SSH_WINDOW_BYTES as f64));
    if is_full && !is_explained(observed) { likely(host, evidence) } else { Finding::Not(evidence) }
}

/// The congestion window was full.
pub(super) fn congestion_window(observed: &Observed<'_>) -> Finding {
    let (host, senders) = match sender(observed) {
        Ok(sender) => sender,
        Err(finding) => return finding,
    };
    let evidence = window_in_words(&senders);
    // The kernel hardly grows the window beyond what is used, so the window looks full for any cause that stops the sender.
    let is_other = is_explained(observed) || is_bound(observed, ssh_window);
    if filled_share(&senders) >= FILLED_WINDOW_SHARE && !is_other {
        likely(host, evidence)
    } else {
        Finding::Not(evidence)
    }
}
