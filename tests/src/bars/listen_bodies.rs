//! Ordinary clients of the listener do not wait for the bodies of other clients, however costly these are within the limits.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use crate::proofload::Trial;
use anyhow::{Context, Result, bail};
use record::AckLevel;
use testing::http::{exchange, post};

use super::{Bar, By, Outcome, Runs, Scale, us};
use crate::{
    disturbance::{Awake, Gaps, Witness},
    listen::{EventLoad, Listen, ListenCall, audit},
    machine::Cores,
    siege::{gzipped, stay_on},
    temporary::TemporaryFolder,
};

pub(super) const BAR: Bar = Bar {
    name: "listen-bodies",
    what: "the worst bodies that are legal, beside ordinary clients on one thread: their p99 is at most 20 ms, and \
           nothing of theirs fails",
    full_seconds: 100,
    decided_by: By::Both,
    run,
};

/// Requests per second of the ordinary clients, over 8 connections.
const RATE_PER_S: u64 = 500;
const MOST_P99_MS: f64 = 20.0;
/// Largest p99 without the bad clients. A larger value would mean that this machine is too slow to tell.
const MOST_CALM_P99_MS: f64 = 5.0;

/// The bodies of a sample. In its few seconds, `files` and `long_tag` allow too few requests for a p99.
const SAMPLE: [&str; 4] = ["events", "depth", "packed", "many_small"];

/// If the listener's processor was gone for more than this share of the time, the times do not measure the listener.
const MOST_GAPS_SHARE: f64 = 0.002;

/// Maximum memory of the listener: the budget, the largest inflated body, the same again as lines, and the memory at the start.
const MOST_MIB: u64 = 256 + 64 + 256 + 10;

/// Disk space that the worst body fills in a full run.
const ROOM_BYTES: u64 = 4 << 30;

const JSON: &str = "Content-Type: application/json\r\n";
const NDJSON: &str = "Content-Type: application/x-ndjson\r\n";
const FORM: &str = "Content-Type: application/x-www-form-urlencoded\r\n";

/// Pause of a bad client between two bodies.
const PAUSE: Duration = Duration::from_millis(100);

/// A bad body, the number of clients that send it, and the expected answers.
struct Bad {
    name: &'static str,
    clients: usize,
    /// The requests, sent in turn.
    requests: Vec<Vec<u8>>,
    statuses: &'static [u16],
}

fn bodies() -> Result<Vec<Bad>> {
    let array = |event: &str, times: usize| format!("[{}]", vec![event; times].join(","));
    let brackets = 15 << 20;
    let packed = gzipped("printf '{\"a\":\"'; head -c 60M /dev/zero | tr '\\0' x; printf '\"}'")?;
    let multipart = format!(
        "--xx\r\nContent-Disposition: form-data; name=\"json\"\r\n\r\n{}\r\n--xx--\r\n",
        array("{}", 999_000)
    );
    let one = |name, path: &str, headers: &str, body: &[u8]| Bad {
        name,
        clients: 1,
        requests: vec![post(path, headers, body)],
        statuses: &[204],
    };
    let text = |name, headers: &str, body: String| one(name, "/bad", headers, body.as_bytes());
    Ok(vec![
        text("events", JSON, array("{}", 999_000)),
        one("events_same_file", "/good", JSON, array("{}", 999_000).as_bytes()),
        text("lines", NDJSON, "{}\n".repeat(999_000)),
        text("one_event", JSON, format!("{{\"a\":\"{}\"}}", "x".repeat(31 << 20))),
        Bad {
            statuses: &[400],
            ..text("depth", JSON, format!("{{\"a\":{}{}}}", "[".repeat(brackets), "]".repeat(brackets)))
        },
        one("packed", "/bad", &format!("{JSON}Content-Encoding: gzip\r\n"), &packed),
        text("form", FORM, format!("json=%5b{}%7b%7d%5d", "%7b%7d,".repeat(900_000))),
        text("multipart", "Content-Type: multipart/form-data; boundary=xx\r\n", multipart),
        one("long_tag", &format!("/{}", "t".repeat(1_000)), JSON, array("{}", 150_000).as_bytes()),
        Bad { clients: 32, ..text("many_small", NDJSON, "{}\n".repeat(5_400)) },
        Bad { requests: (0..4).map(files).collect(), ..text("files", NDJSON, String::new()) },
    ])
}

/// Events for 1,000 different files each.
fn files(set: usize) -> Vec<u8> {
    let events: String = (0..1_000).map(|number| format!("{{\"file\":\"{set}_{number}\"}}\n")).collect();
    post("/bad", NDJSON, events.as_bytes())
}

fn run(scale: Scale) -> Result<Outcome> {
    let seconds = scale.pick(2, 7);
    let cores = Cores::of_this_process()?;
    let _awake = scale.is_timed().then(|| Awake::keep(cores));
    let (mut outcome, mut calm, mut peak) = (Outcome::default(), Runs::default(), 0);
    let is_run = |bad: &Bad| scale == Scale::Full || SAMPLE.contains(&bad.name);
    for (number, bad) in bodies()?.into_iter().filter(is_run).enumerate() {
        // Store in memory, because a disk that is busy with writes would disturb the times: `listen-disk` tests that.
        let folder = TemporaryFolder::in_memory(ROOM_BYTES)?;
        let store = folder.path().join("store");
        std::fs::create_dir(&store)?;
        let path = store.join("${tag}-${file}.log");
        let words = format!("--threads 1 --path {}", path.display());
        let listen = ListenCall::new(&store, &words)?.on_core(cores.server).start()?;
        let load = |name: &str| -> Result<(Trial, PathBuf)> {
            let path = folder.path().join(format!("receipts-{name}"));
            // If only counts matter, send a fixed number of requests, however long they take.
            let length = match scale.is_timed() {
                true => format!("-d {seconds}s"),
                false => format!("-n {}", RATE_PER_S * seconds),
            };
            let words = format!(
                "-R {RATE_PER_S} -c 8 {length} --threads 1 --cpus {} --timeout 120s",
                cores.generator
            );
            let output =
                EventLoad::start(&listen.url("/good"), &path, AckLevel::Written, &words)?.finish()?;
            Ok((output.trial.clone().with_context(|| output.described())?, path))
        };
        let mut receipts = Vec::new();
        if number % 4 == 0 && scale.is_timed() {
            let (without, path) = load("calm")?;
            calm.push(p99_ms(&without));
            outcome.equal("calm_failed", without.errors.total(), 0, "requests of ordinary clients");
            receipts.push(path);
        }
        let witness = Witness::on(cores.server)?;
        let (answered, (with, path)) = beside(&bad, &listen, cores.other, || load("with"))?;
        let gaps = witness.end()?;
        if scale.is_timed() {
            times(&mut outcome, bad.name, &with, &gaps);
        }
        receipts.push(path);
        let failed = with.errors.total();
        outcome.equal(&format!("{}_failed", bad.name), failed, 0, "requests of ordinary clients");
        outcome.figure(&format!("{}_answered", bad.name), answered, ">= 1", answered > 0);
        outcome.note(format!(
            "{}: own lateness p99 {:.0} us with; {answered} bad bodies answered",
            bad.name,
            us(with.own_lateness.quantile_ns(0.99)),
        ));
        peak = peak.max(peak_bytes(listen.pid())?);
        listen.stop()?;
        let result =
            audit(&receipts.iter().map(PathBuf::as_path).collect::<Vec<_>>(), &store, AckLevel::Written)?;
        outcome.equal(&format!("{}_lost", bad.name), result.lost + result.corrupt, 0, "ordinary events");
    }
    if scale.is_timed() {
        outcome.time().at_most("calm", &calm, MOST_CALM_P99_MS, " ms");
    }
    let value = format!("{} MiB", peak >> 20);
    outcome.figure("memory", value, format!("<= {MOST_MIB} MiB"), peak <= MOST_MIB << 20);
    Ok(outcome)
}

/// Judges the p99 of ordinary clients. Undecided if the generator was late by itself, or if the listener's processor was gone for real-time
/// priority, too: the listener causes neither.
fn times(outcome: &mut Outcome, name: &str, with: &Trial, gaps: &Gaps) {
    let value = p99_ms(with);
    let late_ms = us(with.own_lateness.quantile_ns(0.99)) / 1_000.0;
    let bound = format!("<= {MOST_P99_MS} ms");
    if value > MOST_P99_MS && (late_ms > MOST_CALM_P99_MS || gaps.share > MOST_GAPS_SHARE) {
        let why = format!(
            "{value:.2} ms, but the generator was late by {late_ms:.1} ms itself, and the listener's processor was gone {gaps}"
        );
        outcome.undecided(name, bound, why);
    } else {
        outcome.time().figure(name, format!("{value:.2} ms"), bound, value <= MOST_P99_MS);
    }
}

/// The largest memory that a process has had so far, in bytes.
fn peak_bytes(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB")).context("no VmHWM")?;
    Ok(kib.trim().parse::<u64>()? << 10)
}

/// The p99 of response times, without the generator's possible share.
pub(super) fn p99_ms(trial: &Trial) -> f64 {
    let own = trial.own_percentiles.iter();
    let mut own = own.filter(|own| own.times == "response_time" && own.percentile == "p99");
    let measured_us = us(trial.response_time.percentile(0.99).value as u64);
    own.next().map_or(measured_us, |own| own.less_own_us) / 1_000.0
}

/// Runs `work` while bad clients send one body after another. Also returns the number of answered bodies.
fn beside<T>(bad: &Bad, listen: &Listen, core: u32, work: impl FnOnce() -> Result<T>) -> Result<(u64, T)> {
    let (over, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    let address = listen.address();
    thread::scope(|scope| {
        let (over, answered) = (&over, &answered);
        let client = move || {
            stay_on(core);
            send(bad, address, over, answered)
        };
        let clients: Vec<_> = (0..bad.clients).map(|_| scope.spawn(client)).collect();
        let done = work();
        over.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().expect("a client does not panic")?;
        }
        Ok((answered.load(Ordering::Relaxed), done?))
    })
}

fn send(bad: &Bad, address: SocketAddr, over: &AtomicBool, answered: &AtomicU64) -> Result<()> {
    for request in bad.requests.iter().cycle() {
        if over.load(Ordering::Relaxed) {
            break;
        }
        let answer = exchange(address, request)?;
        // 503 is allowed: if the bad clients' own lines fill the budget, the listener refuses more.
        if !bad.statuses.contains(&answer.status) && answer.status != 503 {
            bail!("{}: answered {}", bad.name, answer.whole());
        }
        answered.fetch_add(u64::from(answer.status != 503), Ordering::Relaxed);
        thread::sleep(PAUSE);
    }
    Ok(())
}
