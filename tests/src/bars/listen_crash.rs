//! A listener that is killed at any moment keeps every acknowledged event and leaves no torn line.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use record::{AckLevel, AuditResult};

use super::{Bar, By, Outcome, Scale};
use crate::{
    listen::{EventLoad, ListenCall, audit, stored_files},
    random::Random,
    temporary::TemporaryFolder,
};

pub(super) const BAR: Bar = Bar {
    name: "listen-crash",
    what: "kill -9 of the listener at 100 moments under load: nothing acknowledged as written is lost, \
           nothing is stored more often than sent, no line is torn",
    full_seconds: 180,
    decided_by: By::Counts,
    run,
};

/// Number of kills during one load, which keeps its files, receipts and clients.
const KILLS_OF_A_LOAD: u64 = 10;
/// Longest time between two kills. Some kills fall into the recovery.
const LONGEST_LIFE: Duration = Duration::from_millis(1_000);
/// The options of each of the three loads. A client that lost its connection sends the same event again.
const LOAD: &str = "-u 12 -d 600s --retries 250 --timeout 60s --threads 1";

fn run(scale: Scale) -> Result<Outcome> {
    let kills = scale.pick(5, 100);
    let mut random = Random::new(0x6b69_6c6c);
    let (mut totals, mut done) = (Totals::default(), 0);
    let mut outcome = Outcome::default();
    while done < kills {
        let of_this_load = KILLS_OF_A_LOAD.min(kills - done);
        let result = one_load(of_this_load, &mut random, &mut totals)?;
        totals.add(&result);
        result.examples.iter().take(3).for_each(|example| outcome.note(format!("{example:?}")));
        done += of_this_load;
    }
    outcome.equal("kills", done, kills, "at moments drawn evenly");
    outcome.equal("lost_written", totals.lost, 0, "acknowledged as written or synced and not in the files");
    outcome.equal("stored_beyond_sent", totals.duplicated, 0, "copies beyond the attempts to send it");
    outcome.equal("torn_lines", totals.torn_lines, 0, "in the files after the last recovery");
    outcome.equal("corrupt", totals.corrupt, 0, "events that are not as they were sent");
    outcome.equal("never_sent", totals.never_sent, 0, "events that nobody sent");
    outcome.equal("wrong_places", totals.wrong_places, 0, "receipts that do not lead to their event");
    // With a slow disk, a listener stores few events before it is killed.
    let enough = scale.pick(1, 200) * kills;
    let bound = format!(">= {enough}, written or synced, so that the kills fell under load");
    outcome.figure("acknowledged", totals.written_and_synced, bound, totals.written_and_synced >= enough);
    outcome.note(format!(
        "{} events taken over, {} of them only as accepted, of which {} went with the killed process; {} stored \
         twice because a retry followed a lost answer; {} right places; slowest recovery {:.0} ms",
        totals.taken_over,
        totals.accepted,
        totals.lost_accepted,
        totals.repeated,
        totals.right_places,
        totals.slowest_start.as_secs_f64() * 1e3
    ));
    Ok(outcome)
}

/// Kills the listener of one load this often, then waits until all is stored, and audits.
fn one_load(kills: u64, random: &mut Random, totals: &mut Totals) -> Result<AuditResult> {
    let folder = TemporaryFolder::new()?;
    let store = folder.path().join("store");
    fs::create_dir(&store)?;
    // Small files, so that rotation happens during the load.
    let call = ListenCall::new(&store, "--threads 2 --rotate-size 16MiB")?;
    let mut listen = call.start()?;
    let mut loads = Vec::new();
    for level in AckLevel::ALL {
        let receipts = folder.path().join(level.name());
        loads.push(EventLoad::start(&call.url("/crash"), &receipts, level, LOAD)?);
    }
    for _ in 0..kills {
        thread::sleep(random.between(Duration::ZERO, LONGEST_LIFE));
        listen.kill()?;
        listen = call.begin()?;
    }
    let begun = Instant::now();
    listen.wait_until_ready()?;
    totals.slowest_start = totals.slowest_start.max(begun.elapsed());
    // Longer than the pauses of the clients between attempts.
    thread::sleep(Duration::from_secs(2));
    let mut receipts = Vec::new();
    for load in loads {
        receipts.push(load.receipts().to_owned());
        load.interrupt()?;
    }
    let report = listen.stop()?;
    ensure!(report.close_error.is_none(), "the last listener could not store all: {:?}", report.close_error);
    totals.torn_lines += torn_lines(&store)?;
    let receipts: Vec<_> = receipts.iter().map(|path| path.as_path()).collect();
    audit(&receipts, &store, AckLevel::Written)
}

/// Number of lines that have no end, contain a zero byte, or do not end like an event.
fn torn_lines(store: &std::path::Path) -> Result<u64> {
    let mut torn = 0;
    for file in stored_files(store)? {
        let bytes = fs::read(&file)?;
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let end = rest.iter().position(|&byte| byte == b'\n');
            let line = &rest[..end.unwrap_or(rest.len())];
            torn += u64::from(end.is_none() || !line.ends_with(b"\"}") || line.contains(&0));
            rest = &rest[end.map_or(rest.len(), |end| end + 1)..];
        }
    }
    Ok(torn)
}

#[derive(Debug, Default)]
struct Totals {
    lost: u64,
    duplicated: u64,
    torn_lines: u64,
    corrupt: u64,
    never_sent: u64,
    wrong_places: u64,
    right_places: u64,
    repeated: u64,
    taken_over: u64,
    accepted: u64,
    lost_accepted: u64,
    written_and_synced: u64,
    slowest_start: Duration,
}

impl Totals {
    fn add(&mut self, result: &AuditResult) {
        self.lost += result.lost;
        self.duplicated += result.duplicated;
        self.corrupt += result.corrupt;
        self.never_sent += result.never_sent;
        self.wrong_places += result.places.wrong;
        self.right_places += result.places.right;
        self.repeated += result.repeated;
        self.taken_over += result.sent.all_acknowledged();
        self.accepted += result.sent.accepted;
        self.lost_accepted += result.missing.accepted;
        self.written_and_synced += result.sent.written + result.sent.synced;
    }
}
