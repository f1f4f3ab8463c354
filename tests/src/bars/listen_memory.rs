//! Bounds of the listener's memory: idle connections cost little, and a slow disk costs at most the budget.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use record::AckLevel;
use testing::{
    PATIENCE,
    http::{exchange, post},
    until,
};

use super::{Bar, By, Outcome, Runs, Scale};
use crate::{
    faulty_disk::{FaultyDisk, Mood},
    listen::{EventLoad, Listen, ListenCall, audit},
    machine,
    temporary::TemporaryFolder,
};

pub(super) const BAR: Bar = Bar {
    name: "listen-memory",
    what: "10,000 idle connections of the listener take at most 4 KiB each, new ones and used ones; 10 min on \
           a slow disk stay within the budget",
    full_seconds: 640,
    decided_by: By::Counts,
    run,
};

const IDLE: usize = 10_000;
const MAX_BYTES: f64 = 4_096.0;
/// Budget of bodies and lines of the listener with the slow disk, in MiB.
const BUDGET_MIB: u64 = 32;
/// Allowed memory in addition to the budget, in MiB: the program, and buffers kept for the next requests.
const BESIDE_MIB: u64 = 64;
/// Largest ratio of the memory in the second half of the soak to that in the first half.
const MAX_GROWTH: f64 = 1.1;

fn run(scale: Scale) -> Result<Outcome> {
    let _most = machine::most_descriptors();
    let limit = machine::raise_descriptor_limit();
    ensure!(limit > IDLE as u64 + 200, "{IDLE} connections need a limit of open files above {limit}");
    let mut outcome = Outcome::default();
    idle(&mut outcome).context("idle connections")?;
    soak(scale, &mut outcome).context("soak")?;
    Ok(outcome)
}

fn idle(outcome: &mut Outcome) -> Result<()> {
    let folder = TemporaryFolder::new()?;
    let listen =
        ListenCall::new(folder.path(), "--threads 1 --idle-timeout 300s --head-timeout 300s")?.start()?;
    // The first request allocates everything that exists only once.
    let request = post("/idle", "Content-Type: application/json\r\n", b"{\"a\":1}");
    exchange(listen.address(), &request)?;
    let before = listen.resident_bytes()?;
    let mut streams = open(listen.address())?;
    // Connections are accepted in order, so this answer shows that all are accepted.
    exchange(listen.address(), &request)?;
    let new = listen.resident_bytes()?;
    for stream in &mut streams {
        stream.write_all(&request)?;
    }
    for stream in &mut streams {
        let answer = read_answer_quickly(stream)?;
        ensure!(answer == 204, "an idle connection's request was answered with {answer}");
    }
    let used = listen.resident_bytes()?;
    let each = |bytes: u64| bytes.saturating_sub(before) as f64 / IDLE as f64;
    let single = |value: f64| {
        let mut runs = Runs::default();
        runs.push(value);
        runs
    };
    outcome.at_most("idle_new", &single(each(new)), MAX_BYTES, " B");
    outcome.at_most("idle_used", &single(each(used)), MAX_BYTES, " B");
    drop(streams);
    let report = listen.stop()?;
    let peak = report.statistics.connections_peak;
    outcome.figure("idle_open", peak, format!(">= {IDLE}"), peak >= IDLE as u64);
    Ok(())
}

fn open(address: SocketAddr) -> Result<Vec<TcpStream>> {
    (0..IDLE).map(|_| TcpStream::connect(address).context("the connection was not taken")).collect()
}

/// The status of an answer that arrives soon.
fn read_answer_quickly(stream: &mut TcpStream) -> Result<u16> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut head = [0; 512];
    let length = stream.read(&mut head)?;
    let text = String::from_utf8_lossy(&head[..length]);
    text.split(' ').nth(1).and_then(|status| status.parse().ok()).with_context(|| format!("answer {text:?}"))
}

fn soak(scale: Scale, outcome: &mut Outcome) -> Result<()> {
    let (disk, folder) = (FaultyDisk::new()?, TemporaryFolder::new()?);
    let call = ListenCall::new(
        &disk.path(),
        &format!("--threads 1 --budget {BUDGET_MIB}MiB --max-body 4MiB --max-inflated 4MiB"),
    )?;
    let listen = call.start_by(|launch| disk.start(launch))?;
    disk.set(Mood { write: Duration::from_millis(50), sync: Duration::from_millis(200), ..Mood::default() });
    let receipts = [folder.path().join("accepted"), folder.path().join("synced")];
    // More events than such a disk can take: accepted events do not wait for it.
    let words = "--events-per-request 2000 --as ndjson -u 32 -d 3600s --timeout 30s --threads 1";
    let loads = [
        EventLoad::start(&call.url("/soak"), &receipts[0], AckLevel::Accepted, words)?,
        EventLoad::start(&call.url("/soak"), &receipts[1], AckLevel::Synced, words)?,
    ];
    let half = Duration::from_secs(scale.pick(4, 300));
    let (first, second) = (peak_of(&listen, half)?, peak_of(&listen, half)?);
    until("the budget is used up", || listen.counted("refused_total", "").is_some_and(|count| count > 0));
    let peak = first.max(second);
    disk.set(Mood::default());
    for load in loads {
        load.interrupt()?;
    }
    let report = listen.stop()?;
    let most = BUDGET_MIB + BESIDE_MIB;
    let mib = peak as f64 / 1_048_576.0;
    outcome.figure(
        "soak_peak",
        format!("{mib:.1} MiB"),
        format!("<= {most} MiB, the budget and {BESIDE_MIB}"),
        peak <= most << 20,
    );
    if scale == Scale::Full {
        let growth = second as f64 / first as f64;
        let bound = format!("<= {MAX_GROWTH}, the peak of the second half over that of the first");
        outcome.figure("soak_growth", format!("{growth:.3}"), bound, growth <= MAX_GROWTH);
    }
    let refused = report.statistics.refused.values().sum::<u64>();
    outcome.figure("soak_refused", refused, ">= 1: the budget was used up", refused > 0);
    let result = audit(&[&receipts[0], &receipts[1]], &disk.store(), AckLevel::Accepted)?;
    outcome.equal("soak_lost", result.lost, 0, "of those acknowledged at any level");
    outcome.note(format!(
        "{} events accepted, {} synced, {} refused; disk: {:?}",
        result.sent.accepted,
        result.sent.synced,
        result.sent.refused,
        disk.used()
    ));
    Ok(())
}

fn peak_of(listen: &Listen, during: Duration) -> Result<u64> {
    let (begun, mut peak) = (Instant::now(), 0);
    while begun.elapsed() < during {
        peak = peak.max(listen.resident_bytes()?);
        thread::sleep(Duration::from_millis(100));
    }
    Ok(peak)
}
