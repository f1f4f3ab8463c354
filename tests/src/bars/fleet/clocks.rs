//! Machines whose clocks differ: they start together all the same, and tell their own kernels' counters.

mod capture;
mod guests;

use std::{collections::BTreeMap, fs};

use anyhow::{Context, Result, ensure};
use record::{Cause, HostCounters, HttpTrial, MachineTrial, TrialCounters, TrialEntry, nearest_rank};
use serde_json::Value;

use self::{
    capture::first_data,
    guests::{Guests, KINDS, PORT, TARGET, address},
};
use super::{http, trials};
use crate::{
    bars::{Bar, By, Outcome, Scale, is_wanted, seconds, verdict_table::decide},
    disturbance::{Gaps, Witness},
    process::Finished,
};

pub(super) const BAR: Bar = Bar {
    name: "fleet-clocks",
    what: "three virtual machines on a segment, clocks set by +10 s and -3 s that drift by 200 ppm: 100 starts over ssh lie within the \
           printed bounds by arrivals at one of them; a study on them has the verdict of the guests' own counters",
    full_seconds: 400,
    decided_by: By::Times,
    run,
};

/// Largest difference between a clock's rate and the one it was given, besides the error of the measurement.
const RATE_ERROR_PPM: f64 = 10.0;
/// The same for its time of day, of which a question takes some milliseconds to come to the guest.
const TIME_ERROR_S: f64 = 0.2;
/// Round trips that are measured between each client and the target.
const PINGS: u32 = 40;
/// The queue of connections that the target of the study has, and how many users come while it stalls.
const BACKLOG: u32 = 4;
const USERS: u32 = 40;

fn run(scale: Scale) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let (_, gaps) = Witness::of_all(|| {
        let mut guests = Guests::start()?;
        for kind in KINDS {
            let clock = guests.ask(kind.name, "cat /sys/devices/system/clocksource/*/current_clocksource")?;
            ensure!(clock.trim() == "hpet", "{} has the clock {clock}", kind.name);
        }
        guests.set_real_time()?;
        let before = clocks(&mut guests)?;
        if is_wanted("starts") {
            starts(&mut outcome, &mut guests, scale.pick(5, 100)).context("starts")?;
        }
        if is_wanted("study") {
            study(&mut outcome, &mut guests, scale.pick(1, 3)).context("study")?;
        }
        let after = clocks(&mut guests)?;
        check_clocks(&mut outcome, &before, &after);
        Ok(())
    })?;
    outcome.note(format!("a witness of real-time priority had no processor for {gaps}"));
    if scale == Scale::Full && gaps.disturb() {
        outcome.excuse_times(&format!("a witness of real-time priority had no processor for {gaps}"));
    }
    Ok(outcome)
}

/// A reading of a guest's clock.
struct Reading {
    at_s: f64,
    /// By how much its time of day and its clock CLOCK_MONOTONIC are ahead of this machine's time, each with its largest error.
    time_of_day_s: (f64, f64),
    monotonic_s: (f64, f64),
}

fn clocks(guests: &mut Guests) -> Result<Vec<Reading>> {
    let read = |kind: &guests::Kind| {
        let time_of_day_s = guests.ahead_s(kind.name)?;
        let monotonic_s = guests.monotonic_ahead_s(kind.name)?;
        Ok(Reading { at_s: guests.now_s(), time_of_day_s, monotonic_s })
    };
    KINDS.iter().map(read).collect()
}

/// The clocks must be as wrong as they are meant to be, or the bar would show nothing.
fn check_clocks(outcome: &mut Outcome, before: &[Reading], after: &[Reading]) {
    for (kind, (before, after)) in KINDS.iter().zip(before.iter().zip(after)) {
        let name = kind.name;
        let (ahead_s, error_s) = before.time_of_day_s;
        outcome.time().near(&format!("{name}_ahead"), ahead_s, kind.ahead_s, TIME_ERROR_S + error_s, " s");
        let passed_s = after.at_s - before.at_s;
        let ppm = (after.monotonic_s.0 - before.monotonic_s.0) / passed_s * 1e6;
        let error_ppm = RATE_ERROR_PPM + (before.monotonic_s.1 + after.monotonic_s.1) / passed_s * 1e6;
        outcome.time().near(&format!("{name}_drift"), ppm, f64::from(kind.fast_ppm), error_ppm, " ppm");
    }
}

/// Trials in which each client sends one request, at the common start.
fn starts(outcome: &mut Outcome, guests: &mut Guests, repeats: usize) -> Result<()> {
    let clients = [KINDS[0].name, KINDS[1].name];
    let to = (address(TARGET), PORT);
    let mut path_ms: f64 = 0.0;
    for client in clients {
        let said = guests.ask(client, &format!("ping -q -c {PINGS} -i 0.05 {}", to.0))?;
        let (mean_ms, most_ms) = round_trips_ms(&said).with_context(|| format!("ping says: {said}"))?;
        outcome.note(format!(
            "a round trip from {client} to {TARGET} takes {mean_ms:.2} ms, at most {most_ms:.2} ms"
        ));
        path_ms = path_ms.max(mean_ms);
    }
    let text = format!(
        "title = \"starts\"\n[targets.web]\nurl = \"http://{}:{PORT}/\"\n[workload.http]\npath = \"/{{{{user}}}}\"\n\
         users = {}\nloops = 1\n[trial]\nrepeats = {repeats}\nvoid_attempts = 0\npause = \"0s\"\n",
        to.0,
        clients.len()
    );
    let study = guests.labs.file("starts.toml", &text)?;
    let out = guests.labs.path("starts");
    let witnesses: Vec<Witness> =
        kernel::noise::allowed_cpus()?.into_iter().map(Witness::on).collect::<Result<_>>()?;
    let done = finished(guests, &format!("run {study} --out {out} {}", guests.on()))?;
    let gaps: Vec<Gaps> = witnesses.into_iter().map(Witness::end).collect::<Result<_>>()?;
    let stalls: Vec<[f64; 2]> = gaps
        .iter()
        .flat_map(|gaps| gaps.spans.iter().map(|(from, to)| [guests.at_s(*from), guests.at_s(*to)]))
        .collect();
    done.stderr.lines().filter(|line| line.contains("clock known to")).for_each(|line| outcome.note(line));
    let entries = trials(&out).with_context(|| format!("{done:?}"))?;
    let https: Vec<&HttpTrial> = entries.iter().map(http).collect::<Result<_>>()?;
    let parts: Vec<&[MachineTrial]> = https.iter().map(|http| &http.machines[..]).collect();
    let bound = format!(">= {repeats}, each with one request of each client");
    let is_whole = |parts: &&[MachineTrial]| {
        parts.len() == clients.len() && parts.iter().all(|part| part.counts.sent == 1)
    };
    let counted = parts.iter().filter(|parts| is_whole(parts)).count();
    outcome.figure("starts", counted, bound, counted >= repeats && counted == parts.len());

    let wire: Vec<Vec<u64>> = first_data(&guests.capture()?, to)?.into_values().collect();
    // Both are of the same arrivals. The log's clock is one that can be compared with this machine's.
    let (log, (ahead_s, error_s)) = (in_the_log(guests)?, guests.monotonic_ahead_s(TARGET)?);
    let stalled_ms = |start: usize| {
        let times = log.iter().filter_map(|times| Some(*times.get(start)? as f64 / 1e9 - ahead_s));
        let [first, last] =
            times.fold([f64::MAX, f64::MIN], |[first, last], at| [at.min(first), at.max(last)]);
        covered_s(&stalls, [first - error_s, last + error_s]) * 1e3
    };
    let is_told = |times: &[Vec<u64>]| {
        times.len() == clients.len() && times.iter().all(|times| times.len() == parts.len())
    };
    for (name, times) in [("on_the_wire", &wire), ("in_the_log", &log)] {
        outcome.holds(&format!("all_{name}"), is_told(times), "one request of each client for each start");
        if is_told(times) {
            judge(outcome, name, &parts, [&times[0], &times[1]], path_ms, stalled_ms);
        } else {
            let lengths: Vec<usize> = times.iter().map(Vec::len).collect();
            outcome.note(format!("{name}: {lengths:?} arrivals in {} trials; {done:?}", parts.len()));
        }
    }
    note_bounds(outcome, &clients, &parts);
    Ok(())
}

/// Compares how far the first requests of both clients were apart with the bounds of their clocks. The ways of two requests to the target
/// differ by no more than a round trip. `stalled_ms`: for how long, between both, a witness of real-time priority had no processor here, and
/// so may have had no guest.
fn judge(
    outcome: &mut Outcome,
    name: &str,
    parts: &[&[MachineTrial]],
    times: [&[u64]; 2],
    path_ms: f64,
    stalled_ms: impl Fn(usize) -> f64,
) {
    let [mut outside, mut beyond_clocks, mut beyond_path, mut beyond_lateness] = [0_u64; 4];
    let mut skews = Vec::new();
    for (index, parts) in parts.iter().enumerate() {
        let apart_ms = times[0][index].abs_diff(times[1][index]) as f64 / 1e6;
        let bounds = parts.iter().map(|part| part.clock_bound_s * 1e3);
        let (bound_ms, bounds) = (bounds.clone().sum::<f64>(), bounds.collect::<Vec<_>>());
        let late = parts.iter().map(|part| part.own_lateness.max_ns() as f64 / 1e6).collect::<Vec<_>>();
        let late_ms = late.iter().copied().fold(0.0, f64::max);
        beyond_clocks += u64::from(apart_ms > bound_ms);
        if apart_ms > bound_ms + path_ms {
            let stalled_ms = stalled_ms(index);
            beyond_path += 1;
            outside += u64::from(apart_ms - stalled_ms > bound_ms + path_ms);
            beyond_lateness += u64::from(apart_ms - stalled_ms > bound_ms + path_ms + late_ms);
            outcome.note(format!(
                "{name}: start {}: {apart_ms:.2} ms apart; bounds of the clocks {bounds:.2?} ms, path {path_ms:.2} ms, a witness's \
                 stalls {stalled_ms:.2} ms; the clients say that they sent {late:.2?} ms late",
                index + 1
            ));
        }
        skews.push(apart_ms);
    }
    skews.sort_unstable_by(f64::total_cmp);
    let [half, most_of_them, all] =
        [0.5, 0.99, 1.0].map(|quantile| nearest_rank(&skews, quantile).unwrap_or(f64::NAN));
    outcome.note(format!(
        "{name}: first requests of both clients are {half:.2} ms apart (p50), {most_of_them:.2} ms (p99), {all:.2} ms (max); \
         {beyond_clocks} of {} starts by more than both bounds, {beyond_path} with the path, {outside} with the witness's stalls, \
         {beyond_lateness} with the lateness that the clients tell",
        parts.len()
    ));
    let what = format!("of {} starts, further apart than both clocks' bounds and the path", parts.len());
    outcome.time().equal(&format!("outside_{name}"), outside, 0, &what);
}

/// How much of a time these spans cover together, in seconds.
fn covered_s(spans: &[[f64; 2]], [from, to]: [f64; 2]) -> f64 {
    let mut within: Vec<[f64; 2]> = spans
        .iter()
        .map(|[begin, end]| [begin.max(from), end.min(to)])
        .filter(|[begin, end]| begin < end)
        .collect();
    within.sort_unstable_by(|a, b| a[0].total_cmp(&b[0]));
    let mut covered = (0.0, from);
    for [begin, end] in within {
        covered = (covered.0 + (end - begin.max(covered.1)).max(0.0), covered.1.max(end));
    }
    covered.0
}

fn note_bounds(outcome: &mut Outcome, clients: &[&str], parts: &[&[MachineTrial]]) {
    for (number, client) in clients.iter().enumerate() {
        let mut of_client = Vec::new();
        for part in parts.iter().filter_map(|parts| parts.get(number)) {
            of_client.push([
                part.clock_bound_s * 1e3,
                part.round_trip_s * 1e3,
                part.own_lateness.max_ns() as f64 / 1e6,
            ]);
        }
        let shown = |which: usize| {
            let mut values: Vec<f64> = of_client.iter().map(|values| values[which]).collect();
            values.sort_unstable_by(f64::total_cmp);
            let [half, most] = [0.5, 1.0].map(|quantile| nearest_rank(&values, quantile).unwrap_or(f64::NAN));
            format!("{half:.2} ms (p50), {most:.2} ms (max)")
        };
        outcome.note(format!(
            "{client}: bound of the clock ± {}; round trip of the controller {}; first request late by {}",
            shown(0),
            shown(1),
            shown(2)
        ));
    }
}

/// When each user's requests were read by the target, in the order of its record, in nanoseconds of its clock. Ends the target.
fn in_the_log(guests: &mut Guests) -> Result<Vec<Vec<u64>>> {
    let line = "pid=$(cat /run/serve.pid); kill $pid; while kill -0 $pid 2>/dev/null; do sleep 0.1; done; cat /run/requests";
    let mut of_users: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for request in guests.ask(TARGET, line)?.lines().filter(|line| !line.trim().is_empty()) {
        let request: Value = serde_json::from_str(request).with_context(|| request.to_owned())?;
        let (target, at_ns) = (request["target"].as_str(), request["received_ns"].as_u64());
        let (target, at_ns) = target.zip(at_ns).with_context(|| format!("an odd record: {request}"))?;
        of_users.entry(target.to_owned()).or_default().push(at_ns);
    }
    let mut all: Vec<Vec<u64>> = of_users.into_values().collect();
    all.iter_mut().for_each(|times| times.sort_unstable());
    Ok(all)
}

/// A study whose hosts are the guests, with a target that lets its queue of connections overflow.
fn study(outcome: &mut Outcome, guests: &mut Guests, repeats: u64) -> Result<()> {
    let text = format!(
        "title = \"guests\"\n[hosts]\nclient = {{ count = 2 }}\nweb = {{}}\n[[links]]\nbetween = [\"client\", \"web\"]\n\
         [targets.web]\non = \"web\"\nrun = \"serve\"\nargs = [\"--backlog\", \"{BACKLOG}\", \"--stall\", \"1s,300ms\", \"--delay\", \"100ms\"]\n\
         ready_timeout = \"5m\"\n[workload.http]\nfrom = \"client\"\nusers = {USERS}\nthink_time = \"exp:400ms\"\n\
         keepalive = false\nduration = \"5s\"\n[trial]\nrepeats = {repeats}\nvoid_attempts = 2\n"
    );
    let file = guests.labs.file("guests.toml", &text)?;
    let (out, inventory) = (guests.labs.path("guests"), guests.inventory()?);
    let before = told_by_kernels(guests)?;
    let done = finished(guests, &format!("run {file} --machines {inventory} --out {out} -q"))?;
    let after = told_by_kernels(guests)?;
    let entries = trials(&out).with_context(|| format!("{done:?}"))?;
    let counters = fs::read_to_string(format!("{out}/counters.jsonl")).context("no counters")?;
    let counters: Vec<TrialCounters> =
        counters.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;

    let valid: Vec<&TrialEntry> = entries.iter().filter(|entry| !entry.trial.validity.is_void()).collect();
    for entry in &entries {
        let verdict = entry.trial.verdict.as_ref();
        let words = verdict.and_then(|verdict| verdict.in_words()).unwrap_or_default();
        let validity = if entry.trial.validity.is_void() { "void" } else { "valid" };
        outcome.note(format!("trial {} ({validity}): {words}", entry.index));
    }
    let named = valid.iter().filter(|entry| is_named(entry)).count() as u64;
    let absent = repeats.saturating_sub(valid.len() as u64);
    for entry in valid.iter().filter(|entry| !is_named(entry)) {
        outcome.note(format!("WRONG: {:#?}", entry.trial.verdict));
    }
    decide(
        outcome,
        "accept_queue",
        [named, absent, repeats],
        "valid trials that name it, and the target as its place",
    );
    if absent > 0 {
        let reasons = entries.iter().flat_map(|entry| entry.trial.validity.reasons());
        outcome.note(format!("void: {:#?}", reasons.collect::<Vec<_>>()));
    }

    let mut known = KINDS.map(|kind| kind.name);
    known.sort_unstable();
    // This machine has more processors than a guest, which has one.
    let is_of_guests = |of: &TrialCounters| {
        let mut hosts: Vec<&str> = of.hosts.iter().map(|host| host.host.as_str()).collect();
        hosts.sort_unstable();
        let has_own = |host: &HostCounters| {
            host.machine.as_ref().is_some_and(|machine| machine.online_cpus().into_iter().eq([0]))
        };
        hosts == known && of.hosts.iter().all(has_own)
    };
    let of_guests = counters.iter().filter(|of| is_of_guests(of)).count() as u64;
    outcome.equal("of_the_guests", of_guests, entries.len() as u64, "trials with counters of each guest");
    let counted = |host: &str, counter: &str| -> u64 {
        let hosts = counters.iter().flat_map(|of| &of.hosts).filter(|of| of.host == host);
        hosts.filter_map(|of| of.counters.get(counter)).sum()
    };
    let told = |host: &str, counter: &str| -> Result<u64> {
        let of = |all: &BTreeMap<String, BTreeMap<String, u64>>| all.get(host)?.get(counter).copied();
        let (before, after) = of(&before).zip(of(&after)).with_context(|| format!("{host}: no {counter}"))?;
        Ok(after - before)
    };
    const OVERFLOWS: &str = "TcpExt.ListenOverflows";
    let overflows = counted(TARGET, OVERFLOWS);
    outcome.equal("overflows", overflows, told(TARGET, OVERFLOWS)?, "the target's kernel, by a shell there");
    for client in [KINDS[0].name, KINDS[1].name] {
        const OPENS: &str = "Tcp.ActiveOpens";
        let parts = entries.iter().filter_map(|entry| entry.trial.http()).flat_map(|http| &http.machines);
        let opened: u64 =
            parts.filter(|part| part.name == client).map(|part| part.counts.connections_opened).sum();
        let (counted, told) = (counted(client, OPENS), told(client, OPENS)?);
        let bound = format!(">= {opened}, its generator's; <= {told}, its kernel's by a shell there");
        let is_within = opened > 0 && (opened..=told).contains(&counted);
        outcome.figure(&format!("{client}_opens"), counted, bound, is_within);
    }
    Ok(())
}

fn is_named(entry: &TrialEntry) -> bool {
    let first = entry.trial.verdict.as_ref().and_then(|verdict| verdict.bottlenecks.first());
    first.is_some_and(|first| first.cause == Cause::AcceptQueue && first.place == TARGET)
}

/// What the kernel of each guest has counted since its boot.
fn told_by_kernels(guests: &mut Guests) -> Result<BTreeMap<String, BTreeMap<String, u64>>> {
    let read = |kind: &guests::Kind| {
        let text = guests.ask(kind.name, "cat /proc/net/netstat /proc/net/snmp")?;
        Ok((kind.name.to_owned(), pairs(&text)))
    };
    KINDS.iter().map(read).collect()
}

/// The counters of a text in which each line of names, `Tcp: RtoAlgorithm …`, comes before a line of values.
fn pairs(text: &str) -> BTreeMap<String, u64> {
    let mut lines = text.lines();
    let mut all = BTreeMap::new();
    while let Some((names, values)) = lines.next().zip(lines.next()) {
        let Some((group, names)) = names.split_once(':') else { break };
        let values = values.split_whitespace().skip(1);
        for (name, value) in names.split_whitespace().zip(values) {
            // One of them, `MaxConn`, is -1.
            all.extend(value.parse().ok().map(|value| (format!("{group}.{name}"), value)));
        }
    }
    all
}

/// Mean and maximum from ping's line `rtt min/avg/max/mdev = 0.412/0.591/1.022/0.100 ms`.
fn round_trips_ms(ping: &str) -> Option<(f64, f64)> {
    let mut figures = ping.split_once("min/avg/max/mdev = ")?.1.split('/').skip(1);
    Some((figures.next()?.parse().ok()?, figures.next()?.parse().ok()?))
}

/// Runs a study to its end.
fn finished(guests: &Guests, words: &str) -> Result<Finished> {
    let launch = guests.command(words)?;
    let finished = launch.run(seconds(1_800))?;
    ensure!(!finished.stderr.contains("panicked at"), "`{}`: {finished:?}", launch.shown());
    ensure!(matches!(finished.code, Some(0 | 1 | 3)), "`{}`: {finished:?}", launch.shown());
    Ok(finished)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_are_counted_once_and_only_within_the_time() {
        let spans = [[0.0, 10.0], [5.0, 15.0], [18.0, 30.0], [40.0, 50.0]];
        assert_eq!([covered_s(&spans, [8.0, 20.0]), covered_s(&spans, [30.0, 40.0])], [9.0, 0.0]);
    }

    #[test]
    fn what_a_kernel_and_ping_tell_is_read() {
        let text = "TcpExt: SyncookiesSent ListenOverflows\nTcpExt: 0 7\nTcp: RtoMin MaxConn ActiveOpens\nTcp: 200 -1 12\n";
        let told = pairs(text);
        assert_eq!((told.get("TcpExt.ListenOverflows"), told.get("Tcp.ActiveOpens")), (Some(&7), Some(&12)));
        assert_eq!(told.get("Tcp.MaxConn"), None);
        let ping = "40 received\nrtt min/avg/max/mdev = 0.412/0.591/1.022/0.100 ms\n";
        assert_eq!(round_trips_ms(ping), Some((0.591, 1.022)));
    }
}
