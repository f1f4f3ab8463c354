//! What a plan writes: the log of requests, and receipts, which a real listener's file is compared with.

use std::{
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    time::{SystemTime, UNIX_EPOCH},
};

use record::AuditResult;

use super::*;

#[test]
fn inventory_as_root_logs_and_receipts_of_machines_are_written_here() -> Result<()> {
    try_all_in(
        lab_of_own_folders,
        &[
            ("log", a_log_has_the_requests_of_all_machines),
            ("refused", what_cannot_be_written_here_is_refused_before_any_request),
            ("large log", lines_beyond_64_mib_are_lost_and_said),
            ("interrupted log", the_log_of_an_interrupted_load_is_whole),
            ("receipts", receipts_prove_what_a_listener_stored),
            ("interrupted", receipts_of_an_interrupted_load_are_whole),
            ("lost", receipts_of_a_lost_machine_are_missed),
        ],
    )
}

fn now_s() -> Result<f64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64())
}

/// Each line is of a request that the target saw, with the machine's address; each of its requests has at most one line. Times lie
/// within these bounds. Returns the number of lines whose request was answered, and of the others.
fn is_joined(fleet: &Fleet, lines: &str, times_s: [f64; 2]) -> Result<[usize; 2]> {
    let received = fleet.target.received();
    let mut by_trace = BTreeMap::new();
    for request in &received {
        let trace = request.field("traceparent").context("a request without traceparent")?;
        ensure!(by_trace.insert(trace, request).is_none(), "the target saw {trace} twice");
    }
    let mut numbers = [0; 2];
    for line in lines.lines() {
        let line: serde_json::Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        let trace = line["traceparent"].as_str().context("no traceparent")?;
        let request = by_trace.remove(trace).with_context(|| format!("not seen, or logged twice: {line}"))?;
        ensure!(line["target"] == request.path(), "{line}: the target saw {}", request.path());
        let client: SocketAddr = line["connection"].as_str().context("no connection")?.parse()?;
        ensure!(client.ip() == request.from, "{line}: it came from {}", request.from);
        let is_answered = !line["ended_unix_s"].is_null();
        numbers[usize::from(!is_answered)] += 1;
        ensure!(is_answered == (line["status"] == 200) && line["error"].is_null(), "{line}");
        let time = |key: &str| line[key].as_f64().with_context(|| format!("no {key}: {line}"));
        let mut times = vec![times_s[0], time("due_unix_s")?, time("sent_unix_s")?];
        times.extend(if is_answered { Some(time("ended_unix_s")?) } else { None });
        times.push(times_s[1]);
        ensure!(times.is_sorted(), "{line}: {times:?}");
    }
    Ok(numbers)
}

fn a_log_has_the_requests_of_all_machines(fleet: &Fleet) -> Result<()> {
    let log = fleet.labs.path("requests.ndjson");
    let mut known = String::new();
    // At first there is no such file; later it is appended to.
    for requests in [300, 240] {
        let words = format!("-u 6 -n {requests} --log {log} --log-sample 100% {}", on(&ALL_MACHINES));
        let begun_s = now_s()?;
        let output = fleet.start(&fleet.http("{{counter}}", &words)?, ALL)?.finish()?;
        fleet.is_quiet()?;
        let counts = &output.counted(0)?.counts;
        ensure!(counts.completed == requests && counts.failed == 0, "{}", output.described());
        let text = fs::read_to_string(&log).with_context(|| output.described())?;
        let new = text.strip_prefix(&known).context("what was in the log has changed")?;
        let [answered, other] = is_joined(fleet, new, [begun_s, now_s()?])?;
        ensure!((answered as u64, other) == (requests, 0), "{answered} and {other} lines of {requests}");
        let from_all = ALL_MACHINES.iter().all(|machine| new.contains(&format!("\"{}:", address(machine))));
        ensure!(from_all, "not of all machines: {new}");
        let mode = fs::metadata(&log)?.permissions().mode() & 0o7777;
        ensure!(mode == 0o600, "the mode of the log is {mode:o}");
        known = text;
    }
    // A part of the requests: each worker logs every tenth.
    let sample = fleet.labs.path("sample.ndjson");
    let words = format!("-u 6 -n 300 --log {sample} --log-sample 10% {}", on(&ALL_MACHINES));
    let begun_s = now_s()?;
    let output = fleet.start(&fleet.http("{{counter}}", &words)?, ALL)?.finish()?;
    let workers: u32 = output.counted(0)?.machines.iter().map(|machine| machine.processes).sum();
    fleet.is_quiet()?;
    let [answered, other] = is_joined(fleet, &fs::read_to_string(&sample)?, [begun_s, now_s()?])?;
    let least = 30_usize.saturating_sub(workers as usize);
    ensure!((least..=30).contains(&answered) && other == 0, "{answered} lines of 300, {workers} workers");
    ensure!(fs::read_to_string(&log)? == known, "the other log has changed");
    Ok(())
}

fn what_cannot_be_written_here_is_refused_before_any_request(fleet: &Fleet) -> Result<()> {
    // In a folder that is missing, in one that is a file, and where a folder is.
    let [none, file, folder] =
        [fleet.labs.path("none/file"), fleet.labs.file("plain", "")? + "/file", fleet.labs.path("folder")];
    fs::create_dir(&folder)?;
    // The machines could write them.
    for machine in BOTH {
        said(fleet, machine, &format!("mkdir -p {folder} $(dirname {none} {file})"), "")?;
    }
    let mut wrong = Vec::new();
    for (option, path) in [
        ("--log-sample 100% --log", &none),
        ("--log", &file),
        ("--log", &folder),
        ("--events --receipts", &file),
    ] {
        let output = fleet.run(&format!("-u 4 -n 40 {option} {path} {}", on(&BOTH)))?;
        fleet.is_quiet()?;
        let sent = fleet.target.received().len();
        if output.code != Some(2) || !output.stdout.is_empty() || !output.stderr.contains(path) || sent > 0 {
            wrong.push(format!("{sent} requests: {}", output.described()));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

fn lines_beyond_64_mib_are_lost_and_said(fleet: &Fleet) -> Result<()> {
    const REQUESTS: u64 = 13_000;
    const MOST: u64 = 64 << 20;
    let log = fleet.labs.path("large.ndjson");
    // 80 MB of lines on one worker.
    let path = format!("{{{{counter}}}}?{}", "x".repeat(6_000));
    let words = format!("-u 4 -n {REQUESTS} -q --log {log} --log-sample 100% --share c1=1 {}", on(&["c1"]));
    let output = fleet.start(&fleet.http(&path, &words)?, ALL)?.finish()?;
    fleet.is_quiet()?;
    let trial = output.counted(0)?;
    ensure!(trial.counts.completed == REQUESTS, "{:?} {:?}", trial.counts, trial.warnings);
    let workers: u64 = trial.machines.iter().map(|machine| u64::from(machine.processes)).sum();
    ensure!(workers == 1, "{workers} workers have room for all lines");
    let text = fs::read_to_string(&log)?;
    fs::remove_file(&log)?;
    let bytes = text.len() as u64;
    ensure!((MOST / 2..=MOST).contains(&bytes), "{bytes} bytes in the log, {MOST} are allowed");
    let mut traces = BTreeSet::new();
    for line in text.lines() {
        let line: serde_json::Value = serde_json::from_str(line).context("a line was cut")?;
        traces.insert(line["traceparent"].as_str().context("no traceparent")?.to_owned());
    }
    let lines = traces.len() as u64;
    ensure!(lines == text.lines().count() as u64 && text.ends_with('\n'), "{lines} traces");
    let lost = REQUESTS - lines;
    let warnings: Vec<_> = trial.warnings.iter().map(|warning| warning.message.as_str()).collect();
    // "up to", because a part of what could not be written may be there.
    let digits = |text: &str| text.chars().filter(|c| c.is_ascii_digit() || *c == ' ').collect::<String>();
    let numbers: Vec<u64> = warnings
        .iter()
        .flat_map(|text| digits(&text.replace(',', "")).split(' ').flat_map(str::parse).collect::<Vec<u64>>())
        .collect();
    let is_said = numbers.iter().any(|said| (lost..lost + 1_001).contains(said));
    ensure!(
        is_said && warnings.iter().any(|text| text.contains("log")),
        "{lost} lines are lost: {warnings:?}"
    );
    Ok(())
}

fn the_log_of_an_interrupted_load_is_whole(fleet: &Fleet) -> Result<()> {
    let log = fleet.labs.path("interrupted.ndjson");
    let words = format!("-u 6 -d 1h --log {log} --log-sample 100% {}", on(&ALL_MACHINES));
    let begun_s = now_s()?;
    let mut load = fleet.start(&fleet.http("{{counter}}", &words)?, 40)?;
    load.until("all users wait", || fleet.counts(ALL_MACHINES) == [42; 3])?;
    load.signal(Signal::INT)?;
    let output = load.finish()?;
    fleet.is_quiet()?;
    ensure!(output.trial_with_code(130)?.interrupted, "{}", output.described());
    let [answered, other] = is_joined(fleet, &fs::read_to_string(&log)?, [begun_s, now_s()?])?;
    ensure!([answered, other] == [120, 6], "{answered} and {other} lines: {}", output.described());
    Ok(())
}

/// A real listener on the host `web`, and where it stores events.
struct Listener {
    server: Server,
    stored: String,
}

impl Listener {
    fn start(fleet: &Fleet, name: &str) -> Result<Self> {
        let (server, stored) = listener(fleet, name)?;
        Ok(Self { server, stored })
    }

    /// The load of events on three machines.
    fn load(&self, fleet: &Fleet, receipts: &str, words: &str) -> Result<Command> {
        let words = format!(
            "{} --events --ack written --receipts {receipts} -q --json - {}",
            patient(words),
            on(&ALL_MACHINES)
        );
        fleet.start(&fleet.control("http")?.arg(EVENTS_URL).words(&words), ALL)
    }

    /// Number of lines so far.
    fn lines(&self) -> usize {
        fs::read(&self.stored).map_or(0, |text| text.iter().filter(|&&byte| byte == b'\n').count())
    }
}

/// What the audit of a file finds, and its exit status.
fn audited(fleet: &Fleet, receipts: &str, stored: &str) -> Result<(Option<i32>, AuditResult)> {
    let json = fleet.labs.path("audit.json");
    let _ = fs::remove_file(&json);
    let line = format!("audit --receipts {receipts} --level written --json {json} {stored}");
    let finished = fleet.labs.run(&line)?;
    let text = fs::read_to_string(&json).with_context(|| format!("{finished:?}"))?;
    Ok((finished.code, serde_json::from_str(&text)?))
}

/// Nothing is missing, double or corrupt, and so many events were stored.
fn is_clean(fleet: &Fleet, receipts: &str, stored: &str, events: u64) -> Result<()> {
    let (code, audit) = audited(fleet, receipts, stored)?;
    let is_whole = audit.is_conclusive() && audit.is_clean() && audit.runs == 1;
    ensure!(code == Some(0) && is_whole && audit.stored == events, "{code:?}, {events} events: {audit:?}");
    ensure!(audit.sent.written == events && audit.missing.written == 0, "{events} events: {audit:?}");
    let others = [audit.repeated, audit.unaccounted, audit.foreign_events, audit.out_of_order];
    ensure!(others == [0; 4] && audit.places.wrong == 0, "{audit:?}");
    Ok(())
}

/// The files of a folder with their bytes.
fn contents(folder: &str) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let files = files_below(Path::new(folder))?;
    files.into_iter().map(|path| Ok((path.clone(), fs::read(path)?))).collect()
}

/// What was done to a listener's file, its text, and how often the audit finds it.
type Change = (&'static str, String, fn(&AuditResult) -> u64);

fn receipts_prove_what_a_listener_stored(fleet: &Fleet) -> Result<()> {
    const EVENTS: u64 = 3_000;
    let listener = Listener::start(fleet, "stored")?;
    let (receipts, stored) = (fleet.labs.path("receipts"), listener.stored.clone());
    let output = listener.load(fleet, &receipts, &format!("-u 12 -n {EVENTS}"))?.finish()?;
    is_quiet_but(fleet, &listener)?;
    let trial = output.counted(0)?;
    ensure!(trial.counts.completed == EVENTS && names(trial) == ALL_MACHINES, "{}", output.described());
    is_their_sum(trial).with_context(|| output.described())?;
    let workers: u64 = trial.machines.iter().map(|machine| u64::from(machine.processes)).sum();
    let files: Vec<_> = contents(&receipts)?.into_keys().collect();
    let expected: Vec<_> =
        (0..workers).map(|worker| Path::new(&receipts).join(format!("receipts-{worker}.jsonl"))).collect();
    ensure!(workers >= 3 && files.len() as u64 == workers, "{files:?} of {workers} workers");
    ensure!(files == expected || workers > 10, "{files:?} in place of {expected:?}");
    is_clean(fleet, &receipts, &stored, EVENTS)?;

    // Another run does not add to them.
    let (known, lines) = (contents(&receipts)?, listener.lines());
    let refused = listener.load(fleet, &receipts, "-u 12 -n 300")?.finish()?;
    ensure!(refused.code == Some(2) && refused.stdout.is_empty(), "{}", refused.described());
    let is_told =
        refused.stderr.contains("give a folder without receipts") && refused.stderr.contains(&receipts);
    ensure!(is_told, "{}", refused.described());
    ensure!(listener.lines() == lines && contents(&receipts)? == known, "something was sent or written");
    listener.server.stop()?;
    is_clean(fleet, &receipts, &stored, EVENTS)?;

    // The audit finds what is missing.
    let text = fs::read_to_string(&stored)?;
    let mut wrong = Vec::new();
    for file in &files {
        let bytes = fs::read(file)?;
        fs::remove_file(file)?;
        let (code, audit) = audited(fleet, &receipts, &stored)?;
        if code != Some(3) || audit.is_conclusive() || audit.unaccounted == 0 {
            wrong.push(format!("without {}: {code:?} {audit:?}", file.display()));
        }
        fs::write(file, bytes)?;
    }
    let last = text.lines().next_back().context("nothing was stored")?.len() + 1;
    let (rest, last) = text.split_at(text.len() - last);
    let changed = last.replacen("\"interest\":", "\"interesT\":", 1);
    ensure!(changed != last, "the event has no such member: {last}");
    let changes: [Change; 3] = [
        ("a line less", rest.to_owned(), |audit| audit.lost),
        ("a line more", text.clone() + last, |audit| audit.duplicated),
        ("a changed line", rest.to_owned() + &changed, |audit| audit.corrupt),
    ];
    for (what, text, found) in changes {
        fs::write(&stored, text)?;
        let (code, audit) = audited(fleet, &receipts, &stored)?;
        if code != Some(1) || found(&audit) != 1 || !audit.is_conclusive() {
            wrong.push(format!("{what}: {code:?} {audit:?}"));
        }
    }
    fs::write(&stored, &text)?;
    ensure!(wrong.is_empty(), "not found: {}", wrong.join("\n"));
    is_clean(fleet, &receipts, &stored, EVENTS)
}

/// Waits until nothing runs but the listener.
fn is_quiet_but(fleet: &Fleet, listener: &Listener) -> Result<()> {
    let own = [listener.server.pid(), Some(listener.server.process.pid().cast_signed())];
    let is_quiet = || fleet.left(&HOSTS).keys().all(|pid| own.contains(&Some(*pid)));
    ensure!(
        find(PATIENCE, || is_quiet().then_some(())).is_some(),
        "still running: {:#?}",
        fleet.left(&HOSTS)
    );
    Ok(())
}

fn receipts_of_an_interrupted_load_are_whole(fleet: &Fleet) -> Result<()> {
    let listener = Listener::start(fleet, "stored-interrupted")?;
    let receipts = fleet.labs.path("receipts-interrupted");
    let mut load = listener.load(fleet, &receipts, "-u 6 --think-time 5ms -d 1h")?;
    load.until("events are stored", || listener.lines() >= 200)?;
    load.signal(Signal::INT)?;
    let output = load.finish()?;
    is_quiet_but(fleet, &listener)?;
    let trial = output.trial_with_code(130)?;
    ensure!(trial.interrupted && names(trial) == ALL_MACHINES, "{}", output.described());
    let (completed, stored) = (trial.counts.completed, listener.stored.clone());
    listener.server.stop()?;
    let (code, audit) = audited(fleet, &receipts, &stored)?;
    let is_whole = audit.is_conclusive() && audit.is_clean() && audit.unaccounted == 0;
    ensure!(code == Some(0) && is_whole, "{code:?} {audit:?}: {}", output.described());
    // An answer may have come after the end.
    ensure!(audit.sent.written >= completed && audit.stored >= 200, "{completed} completed: {audit:?}");
    Ok(())
}

fn receipts_of_a_lost_machine_are_missed(fleet: &Fleet) -> Result<()> {
    let listener = Listener::start(fleet, "stored-lost")?;
    let receipts = fleet.labs.path("receipts-lost");
    let mut load = listener.load(fleet, &receipts, "-u 12 -n 12000 --think-time 5ms")?;
    load.until("events are stored", || listener.lines() >= 200)?;
    fleet.agents("c2").into_iter().try_for_each(|pid| signal(pid, Signal::KILL))?;
    let output = load.finish()?;
    is_quiet_but(fleet, &listener)?;
    // Whether receipts or the trial come first: it is no success.
    ensure!(matches!(output.code, Some(2 | 3)), "{}", output.described());
    ensure!(output.stderr.contains("c2") || output.stdout.contains("c2"), "{}", output.described());
    let stored = listener.stored.clone();
    listener.server.stop()?;
    let (code, audit) = audited(fleet, &receipts, &stored)?;
    ensure!(code == Some(3) && !audit.is_conclusive(), "{code:?} {audit:?}: {}", output.described());
    // What the others know is there, and no event is called lost.
    ensure!(audit.is_clean() && audit.sent.written >= 8_000, "{audit:?}: {}", output.described());
    ensure!(audit.unaccounted > 0, "{audit:?}");
    Ok(())
}
