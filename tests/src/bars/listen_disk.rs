//! Disks that fill up, refuse, fail, slow down and stall, and clocks that jump: no acknowledged event is lost, every refusal is clear, and
//! the listener recovers without a restart.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use record::{AckLevel, AuditResult};
use testing::{
    PATIENCE, find,
    http::{Answer, exchange, get, post},
    until,
};

use super::{Bar, By, Outcome, Scale, seconds};
use crate::{
    Vm,
    faulty_disk::{FaultyDisk, Mood},
    listen::{EventLoad, Listen, ListenCall, audit},
    mounts::PrivateMounts,
    process::Launch,
    temporary::TemporaryFolder,
};

pub(super) const BAR: Bar = Bar {
    name: "listen-disk",
    what: "a full, read-only, broken, slow or hanging disk and a jumping clock: no acknowledged loss, clear \
           answers, recovery without a restart",
    full_seconds: 120,
    decided_by: By::Both,
    run,
};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;

/// The options of each client load. The pace leaves processor time for the rest.
const LOAD: &str = "-u 4 --think-time 5ms -d 600s --timeout 20s --threads 1";

fn run(scale: Scale) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    full_memory_disk(scale, &mut outcome).context("full disk")?;
    for (name, errno, status) in [("no_space", ENOSPC, 507), ("read_only", EROFS, 503), ("broken", EIO, 500)]
    {
        refusing(name, errno, status, scale, &mut outcome).context(name)?;
    }
    slow(scale, &mut outcome).context("slow disk")?;
    standing_still(scale, &mut outcome).context("standing disk")?;
    jumping_clock(scale, &mut outcome).context("jumping clock")?;
    Ok(outcome)
}

/// A real file system that is full, and then has room again.
fn full_memory_disk(scale: Scale, outcome: &mut Outcome) -> Result<()> {
    let (mounts, folder) = (Arc::new(PrivateMounts::new()?), TemporaryFolder::new()?);
    let store = folder.path().join("store");
    fs::create_dir(&store)?;
    mounts.memory(&store, 8 << 20)?;
    let ballast = store.join(".ballast");
    mounts.run({
        let ballast = ballast.clone();
        move || Ok(fs::write(ballast, vec![b'x'; 7 << 20])?)
    })?;
    let call = ListenCall::new(&store, "--threads 1")?;
    let mut listen = call.start_by(|launch| mounts.run(move || launch.start()))?;
    let loads = Loads::start(&call, folder.path())?;
    let refusal = until_answer(call.address(), 507, PATIENCE);
    clear(outcome, "full", refusal.as_ref(), 507);
    thread::sleep(Duration::from_millis(scale.pick(300, 3_000)));
    mounts.run(move || Ok(fs::remove_file(ballast)?))?;
    recovered(outcome, scale, "full", call.address());
    loads.await_events(&listen);
    let receipts = loads.end()?;
    listen.wait_until_ready()?;
    listen.stop()?;
    let result = mounts.run(move || audit_all(&receipts, &store))?;
    sound(outcome, "full", &result);
    Ok(())
}

/// Tests a disk that refuses every write for a while.
fn refusing(name: &str, errno: i32, status: u16, scale: Scale, outcome: &mut Outcome) -> Result<()> {
    let bed = Bed::new("--threads 1")?;
    thread::sleep(Duration::from_millis(scale.pick(300, 1_000)));
    bed.disk.set(Mood { refusal: Some(errno), ..Mood::default() });
    let refusal = until_answer(bed.call.address(), status, PATIENCE);
    clear(outcome, name, refusal.as_ref(), status);
    thread::sleep(Duration::from_millis(scale.pick(300, 3_000)));
    bed.disk.set(Mood::default());
    recovered(outcome, scale, name, bed.call.address());
    thread::sleep(Duration::from_millis(300));
    let result = bed.end()?;
    sound(outcome, name, &result);
    Ok(())
}

/// Tests a disk on which every write takes 20 ms and every sync 100 ms.
fn slow(scale: Scale, outcome: &mut Outcome) -> Result<()> {
    let bed = Bed::new("--threads 1")?;
    let mood = Mood { write: Duration::from_millis(20), sync: Duration::from_millis(100), ..Mood::default() };
    bed.disk.set(mood);
    let worst = worst_health(bed.call.address(), Duration::from_millis(scale.pick(1_000, 5_000)))?;
    bed.until_synced()?;
    bed.disk.set(Mood::default());
    let result = bed.end()?;
    prompt(outcome, scale, "slow", worst);
    outcome.figure("slow_synced", result.sent.synced, ">= 1", result.sent.synced > 0);
    sound(outcome, "slow", &result);
    Ok(())
}

/// A disk that answers no write for a while. Memory must stay within the budget, the listener must refuse what does not fit, and must store
/// later what waited.
fn standing_still(scale: Scale, outcome: &mut Outcome) -> Result<()> {
    let bed =
        Bed::new("--threads 1 --budget 1MiB --max-body 256KiB --max-inflated 256KiB --store-timeout 1s")?;
    thread::sleep(Duration::from_millis(300));
    bed.disk.set(Mood { stands_still: true, ..Mood::default() });
    // Fill the budget with events that need only be accepted, which the listener answers at once until nothing more fits.
    let body = format!("{{\"filler\":\"{}\"}}", "x".repeat(64 << 10));
    let request =
        post("/filler", "Content-Type: application/json\r\nProofload-Ack: accepted\r\n", body.as_bytes());
    let (mut accepted, mut refusal) = (0_u64, None);
    for _ in 0..100 {
        let answer = exchange(bed.call.address(), &request)?;
        match answer.status {
            202 => accepted += 1,
            _ => {
                refusal = Some(answer);
                break;
            }
        }
    }
    clear(outcome, "standing", refusal.as_ref(), 503);
    outcome.figure(
        "standing_accepted",
        accepted,
        "1 to 16: the budget holds 16",
        (1..=16).contains(&accepted),
    );
    let worst = worst_health(bed.call.address(), Duration::from_millis(scale.pick(500, 5_000)))?;
    // A client that only asks for `/health` must learn that the listener stores nothing.
    let health = |status| until_health(bed.call.address(), status, PATIENCE);
    outcome.equal("standing_health", health(503)?, 503, "/health");
    bed.disk.set(Mood::default());
    recovered(outcome, scale, "standing", bed.call.address());
    outcome.equal("standing_health_afterwards", health(200)?, 200, "/health");
    let stored = bed.disk.store();
    let result = bed.end_after(|| {
        let lines = fs::read_to_string(stored.join("filler.log")).unwrap_or_default();
        outcome.equal("standing_stored", lines.matches("{\"filler\"").count() as u64, accepted, "accepted");
    })?;
    prompt(outcome, scale, "standing", worst);
    sound(outcome, "standing", &result);
    Ok(())
}

/// A machine whose clock jumps back and forth while events arrive.
fn jumping_clock(scale: Scale, outcome: &mut Outcome) -> Result<()> {
    let script = format!("JUMPS={}\n{}", scale.pick(6, 40), include_str!("listen_disk_clock.sh"));
    let ran = Vm::default().proofload()?.run(&script, seconds(1_800))?;
    let output = ran.succeeded()?;
    let (_, json) = output.split_once("== audit\n").context("the machine wrote no audit")?;
    let result: AuditResult = serde_json::from_str(json).with_context(|| format!("no audit: {json}"))?;
    ensure!(result.is_conclusive(), "the audit concludes nothing: {:?}", result.incomplete);
    // At most the events in flight when the clients were stopped: two of each load.
    outcome.figure("clock_unknown", result.sent.unknown, "<= 6", result.sent.unknown <= 6);
    outcome.figure(
        "clock_taken_over",
        result.sent.all_acknowledged(),
        ">= 100",
        result.sent.all_acknowledged() >= 100,
    );
    outcome.equal("clock_refused", result.sent.refused, 0, "a clock is no reason to");
    sound(outcome, "clock", &result);
    Ok(())
}

/// A listener on a faulty disk, under load at all three levels.
struct Bed {
    call: ListenCall,
    listen: Listen,
    loads: Loads,
    disk: FaultyDisk,
    folder: TemporaryFolder,
}

impl Bed {
    fn new(words: &str) -> Result<Self> {
        let (disk, folder) = (FaultyDisk::new()?, TemporaryFolder::new()?);
        let call = ListenCall::new(&disk.path(), words)?;
        let listen = call.start_by(|launch: Launch| disk.start(launch))?;
        let loads = Loads::start(&call, folder.path())?;
        loads.await_events(&listen);
        Ok(Self { call, listen, loads, disk, folder })
    }

    /// Waits until at least one event is stored and synced.
    fn until_synced(&self) -> Result<()> {
        let synced = || self.listen.counted("events_total", "\"synced\"").filter(|count| *count > 0);
        find(PATIENCE, synced).map(drop).context("no event was synced")
    }

    fn end(self) -> Result<AuditResult> {
        self.end_after(|| {})
    }

    /// Ends the loads and the listener, calls `then`, and audits.
    fn end_after(self, then: impl FnOnce()) -> Result<AuditResult> {
        let receipts = self.loads.end()?;
        self.listen.stop()?;
        then();
        let result = audit_all(&receipts, &self.disk.store());
        drop(self.folder);
        result
    }
}

/// One load for each acknowledgement level.
struct Loads(Vec<EventLoad>);

impl Loads {
    fn start(call: &ListenCall, folder: &Path) -> Result<Self> {
        let start =
            |level: AckLevel| EventLoad::start(&call.url("/events"), &folder.join(level.name()), level, LOAD);
        AckLevel::ALL.into_iter().map(start).collect::<Result<_>>().map(Self)
    }

    /// Waits until events of every level have arrived.
    fn await_events(&self, listen: &Listen) {
        let has_come = |level: &AckLevel| {
            listen.counted("events_total", &format!("\"{}\"", level.name())).is_some_and(|count| count > 0)
        };
        until("events of every level have come", || AckLevel::ALL.iter().all(has_come));
    }

    fn end(self) -> Result<Vec<std::path::PathBuf>> {
        let receipts = self.0.iter().map(|load| load.receipts().to_owned()).collect();
        for load in self.0 {
            load.interrupt()?;
        }
        Ok(receipts)
    }
}

/// Audits all events. A disk that refuses writes later may lose events that are only `accepted`, but no others.
fn audit_all(receipts: &[std::path::PathBuf], store: &Path) -> Result<AuditResult> {
    let receipts: Vec<&Path> = receipts.iter().map(|path| path.as_path()).collect();
    audit(&receipts, store, AckLevel::Written)
}

fn sound(outcome: &mut Outcome, name: &str, result: &AuditResult) {
    outcome.equal(&format!("{name}_lost"), result.lost, 0, "acknowledged as written or synced");
    let wrong = result.corrupt + result.duplicated + result.never_sent + result.places.wrong;
    outcome.equal(&format!("{name}_wrong"), wrong, 0, "corrupt, beyond what was sent, or in the wrong place");
    result.examples.iter().take(3).for_each(|example| outcome.note(format!("{name}: {example:?}")));
    let sent = &result.sent;
    outcome.note(format!(
        "{name}: {} accepted ({} of them missing), {} written, {} synced, {} refused, {} unknown",
        sent.accepted, result.missing.accepted, sent.written, sent.synced, sent.refused, sent.unknown
    ));
}

/// Checks that an answer gives the reason of the refusal and a time for a retry.
fn clear(outcome: &mut Outcome, name: &str, answer: Option<&Answer>, status: u16) {
    let is_clear = answer.is_some_and(|answer| {
        answer.status == status && answer.header("Retry-After").is_some() && !answer.body.is_empty()
    });
    outcome.holds(&format!("{name}_answer"), is_clear, &format!("{status} with Retry-After and a reason"));
    if !is_clear {
        outcome.note(format!("{name}: answered {:?}", answer.map(Answer::whole)));
    }
}

fn recovered(outcome: &mut Outcome, scale: Scale, name: &str, address: SocketAddr) {
    let begun = Instant::now();
    let answer = until_answer(address, 204, PATIENCE);
    let took = begun.elapsed();
    let bound = "events are written again, without a restart";
    outcome.holds(&format!("{name}_recovered"), answer.is_some(), bound);
    if scale.is_timed() {
        let value = format!("{:.3}", took.as_secs_f64());
        outcome.time().figure(&format!("{name}_recovered_s"), value, "<= 5", took <= seconds(5));
    }
}

/// Posts until an answer has this status; none if that takes longer than `within`.
fn until_answer(address: SocketAddr, status: u16, within: Duration) -> Option<Answer> {
    let headers = "Content-Type: application/json\r\nProofload-Ack: written\r\n";
    let request = post("/probe", headers, b"{\"probe\":1}");
    find(within, || exchange(address, &request).ok().filter(|answer| answer.status == status))
}

/// Waits until `/health` has this status. Returns its last status if that takes longer than `within`.
fn until_health(address: SocketAddr, status: u16, within: Duration) -> Result<u64> {
    let begun = Instant::now();
    loop {
        let answer = exchange(address, &get("/health"))?;
        if answer.status == status || begun.elapsed() > within {
            return Ok(u64::from(answer.status));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// The longest time of `GET /metrics` in this period. It shows that the event loop does not wait for the disk.
fn worst_health(address: SocketAddr, during: Duration) -> Result<Duration> {
    let (begun, mut worst) = (Instant::now(), Duration::ZERO);
    while begun.elapsed() < during {
        let asked = Instant::now();
        let answer = exchange(address, &get("/metrics"))?;
        worst = worst.max(asked.elapsed());
        ensure!(answer.status == 200, "the metrics are not answered: {}", answer.whole());
        thread::sleep(Duration::from_millis(10));
    }
    Ok(worst)
}

fn prompt(outcome: &mut Outcome, scale: Scale, name: &str, worst: Duration) {
    if !scale.is_timed() {
        return;
    }
    let value = format!("{:.1} ms", worst.as_secs_f64() * 1e3);
    let bound = "<= 200 ms, the slowest of the answers that need no disk";
    outcome.time().figure(&format!("{name}_metrics"), value, bound, worst <= Duration::from_millis(200));
}
