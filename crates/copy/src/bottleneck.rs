//! Determines the bottleneck of a copy from its measurements. Uses no clock, input or output. `docs/copy.md` explains
//! each rule.

mod cause;

use record::{
    counters::SenderUse,
    units::{show_bytes, show_count, show_time_ns},
};

pub use cause::{Bottleneck, Cause};

use crate::{host_sampler::HostUse, options::Direction};

/// Minimum time for which a steady copy must have been observed, in seconds.
const LEAST_STEADY_S: f64 = 2.0;
/// A bound counts as reached from this share of it on.
pub(crate) const REACHED_SHARE: f64 = 0.9;
/// A program counts as limited by its processor if it uses at least this share of the processor.
const HOT_SHARE: f64 = 0.85;
/// If no window is full, a program that uses at least this share of a processor delays the other programs at each
/// piece.
const BUSY_SHARE: f64 = 0.35;
/// Minimum bytes per round trip of one channel if a window of 2 MiB holds it back.
const WINDOW_BYTES: f64 = (1 << 20) as f64;
/// As [`WINDOW_BYTES`], for servers with small windows. Used only if TCP certainly has room on all connections.
const SMALL_WINDOW_BYTES: f64 = (16 << 10) as f64;
/// A machine has no processor time left if its processors are busy for at least this share of the time.
const FULL_SHARE: f64 = 0.95;
/// A limit counts if it acted for at least this share of the time or of the samples.
const HALF: f64 = 0.5;
/// A disk counts as the bottleneck if a program waited for it for at least this share of the time.
const DISK_SHARE: f64 = 0.3;
/// As [`DISK_SHARE`], if one of the copy's own programs was blocked in half of the samples.
const BLOCKED_DISK_SHARE: f64 = 0.1;
/// A send buffer counts as full from this share on, because freed space is refilled only gradually.
const FULL_BUFFER_SHARE: f64 = 0.6;
/// A sender with less than this share of its congestion window in flight is not limited by the window.
const FILLED_WINDOW_SHARE: f64 = 0.7;
/// As [`FILLED_WINDOW_SHARE`], for a sender whose segments wait to be sent: BBR has only half of its window in flight.
const HARDLY_FILLED_WINDOW_SHARE: f64 = 0.25;
/// The path has a queue if packets are delayed by at least this share of the smallest round trip, and by
/// [`LEAST_QUEUE_US`].
const QUEUE_SHARE: f64 = 0.1;
/// As [`QUEUE_SHARE`], if packets are lost: packets behind a lost one wait until it is retransmitted.
const LOSSY_QUEUE_SHARE: f64 = 0.25;
/// Packets count as lost if at least this share of the segments is retransmitted.
const LOSS_SHARE: f64 = 0.002;
/// Payload bytes of a segment.
const SEGMENT_BYTES: f64 = 1_448.0;
/// Minimum delay that counts as a queue on the path, in microseconds, in addition to [`QUEUE_SHARE`]. Without a queue,
/// acknowledgement times vary by less.
const LEAST_QUEUE_US: f64 = 1_000.0;
/// From this smallest round trip on, in microseconds, delays count as those of the path even if all processors are
/// busy. On a shorter path, they may be caused by programs that wait for a processor and therefore read and answer
/// late.
const LEAST_PATH_US: f64 = 200.0;
/// Up to this round trip, in seconds, the wait for a checksum is mostly a wait for the program that computes it.
const SHORT_ROUND_TRIP_S: f64 = 0.001;
/// The fastest cipher on most processors.
pub(crate) const FAST_CIPHER: &str = "aes128-gcm@openssh.com";
/// Buffer of a connection in each direction, in bytes: twice the need of 1 Gbit/s at 250 ms.
const LARGE_BUFFER_BYTES: u32 = 64 << 20;

/// The measurements of a copy, taken at its end.
#[derive(Debug)]
pub(crate) struct Seen<'a> {
    pub(crate) direction: Direction,
    /// The name of the other machine.
    pub(crate) machine: &'a str,
    pub(crate) here: &'a HostUse,
    /// None if no shell on the other machine has answered.
    pub(crate) there: Option<&'a HostUse>,
    /// Bytes per second while all connections carried data.
    pub(crate) rate: f64,
    /// The rate limit that the user set, in bytes per second.
    pub(crate) limit: Option<u64>,
    /// The limit on bytes in flight that the user set, and the share of the time in which it was reached.
    pub(crate) in_flight: Option<(usize, f64)>,
    /// Mean share of the channels whose bytes in flight had reached their limit.
    pub(crate) full_channels_share: f64,
    pub(crate) channels: u32,
    pub(crate) connections: u32,
    pub(crate) round_trip_s: f64,
    /// Whether only small files were left, which are not split into chunks.
    pub(crate) are_files_small: bool,
    /// Whether files are copied, so that a disk can be the limit.
    pub(crate) has_files: bool,
    /// Whether the observed connections certainly end at the other machine.
    pub(crate) is_direct: bool,
    /// Share of the time in which the copy waited for a checksum from the other machine.
    pub(crate) sums_share: f64,
    /// Whether the user chose [`FAST_CIPHER`].
    pub(crate) has_fast_cipher: bool,
}

type Rule = fn(&Seen<'_>) -> Option<Bottleneck>;

/// The first rule that applies gives the cause. Programs come before windows, because a program without processor time
/// reads its socket late, so that windows close. Busy processors come after windows, because other work may use them
/// without harm to a copy that waits for its windows. SSH's window comes last, because it is the cause only if nothing
/// else stopped the channels.
/// its windows. The window of SSH comes last, because it is the cause only if nothing else stopped the channels.
const RULES: [Rule; 12] = [
    asked,
    sums_of_small_files,
    hot_program,
    receive_buffer,
    path,
    send_buffer,
    congestion_window,
    full_machine,
    any_disk,
    small_files,
    busy_program,
    ssh_window,
];

/// Returns the bottleneck of a copy.
pub(crate) fn judge(seen: &Seen<'_>) -> Bottleneck {
    // This rule applies even to a short copy, because programs wait for a disk mostly at its end.
    if let Some(held) = own_disk(seen) {
        return held;
    }
    if seen.here.steady_s < LEAST_STEADY_S {
        return unknown(format!(
            "all connections carried data at once for only {:.1} s, too short for a judgement",
            seen.here.steady_s
        ));
    }
    RULES.iter().find_map(|rule| rule(seen)).unwrap_or_else(|| unknown(in_words(seen)))
}

fn unknown(evidence: String) -> Bottleneck {
    Bottleneck { cause: Cause::Unknown, evidence, advice: None }
}

fn held(cause: Cause, evidence: String, advice: Option<String>) -> Option<Bottleneck> {
    Some(Bottleneck { cause, evidence, advice })
}

fn asked(seen: &Seen<'_>) -> Option<Bottleneck> {
    let limit = seen.limit.filter(|limit| seen.rate >= REACHED_SHARE * *limit as f64);
    if let Some(limit) = limit {
        return held(Cause::Asked, format!("-l allows {} kbit/s", show_count(limit * 8 / 1_000)), None);
    }
    let (bytes, _) = seen.in_flight.filter(|(_, share)| *share >= HALF)?;
    held(Cause::Asked, format!("--in-flight allows {} in flight", show_bytes(bytes as u64)), None)
}

/// Both ends with their names, first the sender.
fn ends<'a>(seen: &'a Seen<'_>) -> [(&'a str, Option<&'a HostUse>); 2] {
    let (here, there) = (("this machine", Some(seen.here)), (seen.machine, seen.there));
    if seen.direction == Direction::Up { [here, there] } else { [there, here] }
}

/// Each small file needs a new `cksum` process on the other machine. On a short path, the copy mostly waits for that.
fn sums_of_small_files(seen: &Seen<'_>) -> Option<Bottleneck> {
    if !seen.are_files_small || seen.round_trip_s > SHORT_ROUND_TRIP_S || seen.sums_share < HALF {
        return None;
    }
    let share = percent(seen.sums_share.min(1.0));
    let evidence = format!("{} summed up small files one by one for {share} of the time", seen.machine);
    let advice = format!("--no-verify, which saves up to {share} of the time, but compares nothing");
    held(Cause::Processor, evidence, Some(advice))
}

fn hot_program(seen: &Seen<'_>) -> Option<Bottleneck> {
    hottest_program(seen, HOT_SHARE)
}

/// A program can be the bottleneck without a full processor, because the programs of a copy wait for each other at
/// every piece.
fn busy_program(seen: &Seen<'_>) -> Option<Bottleneck> {
    if each_carried(seen) < WINDOW_BYTES { hottest_program(seen, BUSY_SHARE) } else { None }
}

fn hottest_program(seen: &Seen<'_>, least_share: f64) -> Option<Bottleneck> {
    let hot = ends(seen).into_iter().filter_map(|(place, shown)| {
        let (program, share) = shown?.busiest.as_ref()?;
        Some((place, program, *share))
    });
    let (place, program, share) =
        hot.max_by(|a, b| a.2.total_cmp(&b.2)).filter(|hot| hot.2 >= least_share)?;
    processor(seen, format!("{program} ({place}) took {} of a processor", percent(share)))
}

fn full_machine(seen: &Seen<'_>) -> Option<Bottleneck> {
    let full = ends(seen).into_iter().filter_map(|(place, shown)| Some((place, shown?.busy_share?)));
    let (place, share) = full.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|full| full.1 >= FULL_SHARE)?;
    processor(seen, format!("all processors ({place}) were busy for {} of the time", percent(share)))
}

fn processor(seen: &Seen<'_>, evidence: String) -> Option<Bottleneck> {
    let cipher = format!("a faster cipher, such as -c {FAST_CIPHER}; ");
    let cipher = if seen.has_fast_cipher { String::new() } else { cipher };
    let advice = format!("{cipher}more --connections, if there are more processors");
    held(Cause::Processor, evidence, Some(advice))
}

/// If the sending end's connections had data to send most of the time: the sending end, what stopped them, and the
/// receiving end.
fn sender<'a>(seen: &'a Seen<'_>) -> Option<(&'a str, SenderUse, &'a str)> {
    let [(sender, shown), (receiver, _)] = ends(seen);
    let senders = shown?.senders;
    let is_sending = senders.samples_sending > 0 && senders.samples_sending * 2 >= senders.samples;
    is_sending.then_some((sender, senders, receiver))
}

fn limited_share(senders: &SenderUse, limited_us: u64) -> f64 {
    limited_us as f64 / senders.busy_us.unwrap_or(0).max(1) as f64
}

fn larger_buffers(which: &str, place: &str) -> Option<String> {
    Some(format!(
        "at {place}, as root: sysctl -w net.ipv4.tcp_{which}='4096 131072 {LARGE_BUFFER_BYTES}'; or more --connections"
    ))
}

fn receive_buffer(seen: &Seen<'_>) -> Option<Bottleneck> {
    let (_, senders, receiver) = sender(seen)?;
    let jump = if seen.is_direct { "" } else { " (or of a jump host before it)" };
    let share = limited_share(&senders, senders.receive_window_limited_us);
    if share < HALF {
        return None;
    }
    let evidence = format!(
        "the receive window of {receiver}{jump} stopped the sender for {} of its busy time; {}",
        percent(share),
        window_in_words(&senders)
    );
    held(Cause::SocketBuffer, evidence, larger_buffers("rmem", receiver))
}

fn send_buffer(seen: &Seen<'_>) -> Option<Bottleneck> {
    let (place, senders, _) = sender(seen)?;
    let by_time = limited_share(&senders, senders.send_buffer_limited_us) >= HALF;
    let used_share = senders.send_buffer_used_bytes as f64 / senders.send_buffer_bytes.max(1) as f64;
    // A buffer with unsent segments has room for more than the windows allow, so it is not the bottleneck.
    let is_full = used_share >= FULL_BUFFER_SHARE
        && filled_share(&senders) < FILLED_WINDOW_SHARE
        && unsent_share(&senders) < HALF;
    if !by_time && !is_full {
        return None;
    }
    let mean = |sum: u64| show_bytes(sum / senders.samples_sending.max(1));
    let evidence = format!(
        "the send buffer used {} of memory, and its limit is {}; {}",
        mean(senders.send_buffer_used_bytes),
        mean(senders.send_buffer_bytes),
        window_in_words(&senders)
    );
    held(Cause::SocketBuffer, evidence, larger_buffers("wmem", place))
}

/// Packets wait in a queue on the path, so its slowest link is always busy.
fn path(seen: &Seen<'_>) -> Option<Bottleneck> {
    let (_, senders, _) = sender(seen)?;
    let mean_us = |sum: u64| sum as f64 / senders.samples_sending.max(1) as f64;
    let (rtt_us, least_us) = (mean_us(senders.rtt_us), mean_us(senders.least_rtt_us));
    let queue_us = rtt_us - least_us;
    let segments = seen.rate * seen.here.steady_s / SEGMENT_BYTES;
    let is_lossy = senders.retransmits as f64 >= LOSS_SHARE * segments;
    let share = if is_lossy { LOSSY_QUEUE_SHARE } else { QUEUE_SHARE };
    if least_us <= 0.0 || queue_us < (share * least_us).max(LEAST_QUEUE_US) {
        return None;
    }
    if least_us <= LEAST_PATH_US && full_machine(seen).is_some() {
        return None;
    }
    let evidence = format!(
        "packets waited {} in a queue on the path; without that wait, a round trip takes {}",
        show_time_ns((queue_us * 1e3) as u64),
        show_time_ns((least_us * 1e3) as u64)
    );
    held(Cause::Path, evidence, None)
}

fn congestion_window(seen: &Seen<'_>) -> Option<Bottleneck> {
    let (_, senders, _) = sender(seen)?;
    let least = if unsent_share(&senders) < HALF { FILLED_WINDOW_SHARE } else { HARDLY_FILLED_WINDOW_SHARE };
    if filled_share(&senders) < least {
        return None;
    }
    let evidence = format!(
        "{}; {} segments were retransmitted",
        window_in_words(&senders),
        show_count(senders.retransmits)
    );
    let advice = "more --connections, or at the sender: sysctl -w net.ipv4.tcp_congestion_control=bbr";
    held(Cause::CongestionWindow, evidence, Some(advice.to_owned()))
}

/// A program of the copy waited for a disk most of the time.
fn own_disk(seen: &Seen<'_>) -> Option<Bottleneck> {
    disk(seen, |shown| shown.blocked_share >= HALF && shown.disk_share >= Some(BLOCKED_DISK_SHARE))
}

/// A program waited for a disk, and no other rule explains the copy.
fn any_disk(seen: &Seen<'_>) -> Option<Bottleneck> {
    disk(seen, |shown| shown.disk_share >= Some(DISK_SHARE))
}

fn disk(seen: &Seen<'_>, is_slow: impl Fn(&HostUse) -> bool) -> Option<Bottleneck> {
    if !seen.has_files {
        return None;
    }
    let causes = [Cause::SourceDisk, Cause::TargetDisk];
    let slow = ends(seen)
        .into_iter()
        .zip(causes)
        .filter_map(|((place, shown), cause)| Some((place, shown.filter(|shown| is_slow(shown))?, cause)));
    // If both ends are the same machine, both report its disk. The blocked programs tell which end waited for it.
    let (place, shown, cause) =
        slow.max_by(|(_, a, _), (_, b, _)| a.blocked_share.total_cmp(&b.blocked_share))?;
    let evidence = format!(
        "at {place}, some process waited for a disk for {} of the time, and a program of the copy was blocked \
         in {} of the samples",
        percent(shown.disk_share.unwrap_or(0.0)),
        percent(shown.blocked_share)
    );
    held(cause, evidence, None)
}

fn small_files(seen: &Seen<'_>) -> Option<Bottleneck> {
    let evidence = format!(
        "most of the time, only files of at most 2 MiB were left, and each takes several round trips \
         of {:.1} ms; {} channels carry them in parallel",
        seen.round_trip_s * 1e3,
        seen.channels
    );
    if seen.are_files_small && seen.full_channels_share < HALF {
        held(Cause::SmallFiles, evidence, Some("more --connections".to_owned()))
    } else {
        None
    }
}

/// Bytes that a channel carried per round trip.
fn each_carried(seen: &Seen<'_>) -> f64 {
    seen.rate * seen.round_trip_s / f64::from(seen.channels.max(1))
}

fn ssh_window(seen: &Seen<'_>) -> Option<Bottleneck> {
    let is_seen = seen.is_direct && ends(seen)[0].1.is_some_and(|shown| shown.senders.samples > 0);
    let least_bytes = if is_seen { SMALL_WINDOW_BYTES } else { WINDOW_BYTES };
    if seen.full_channels_share < HALF || each_carried(seen) < least_bytes {
        return None;
    }
    let evidence = format!(
        "each of {} channels carried {} in a round trip of {:.1} ms{}",
        seen.channels,
        show_bytes(each_carried(seen) as u64),
        seen.round_trip_s * 1e3,
        if is_seen { ", and TCP had room for more" } else { "" }
    );
    held(Cause::SshWindow, evidence, Some(format!("more --connections than {}", seen.connections)))
}

/// The measurements in words, for a copy whose bottleneck is unknown.
fn in_words(seen: &Seen<'_>) -> String {
    let mut words = Vec::new();
    for (place, shown) in ends(seen) {
        match shown {
            Some(HostUse { busiest: Some((program, share)), .. }) => {
                words.push(format!("{program} ({place}) took {} of a processor", percent(*share)));
            }
            Some(_) => {}
            None => words.push(format!(
                "the processors and disks of {place} are unknown, because no shell there answered"
            )),
        }
    }
    match sender(seen) {
        Some((_, senders, _)) => words.push(window_in_words(&senders)),
        None if ends(seen)[0].1.is_some_and(|shown| shown.senders.samples > 0) => {
            words.push("its connections had nothing to send most of the time".to_owned());
        }
        None => words.push("the limit of its connections is unknown".to_owned()),
    }
    words.join("; ")
}

fn filled_share(senders: &SenderUse) -> f64 {
    senders.in_flight_bytes as f64 / senders.congestion_window_bytes.max(1) as f64
}

fn unsent_share(senders: &SenderUse) -> f64 {
    senders.samples_unsent as f64 / senders.samples_sending.max(1) as f64
}

fn window_in_words(senders: &SenderUse) -> String {
    let mean = |sum: u64| sum / senders.samples_sending.max(1);
    format!(
        "each connection had {} on the way, with a congestion window of {}",
        show_bytes(mean(senders.in_flight_bytes)),
        show_bytes(mean(senders.congestion_window_bytes))
    )
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

#[cfg(test)]
mod tests;
