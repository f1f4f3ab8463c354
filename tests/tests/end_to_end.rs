//! The binary from outside: a sample of every bar, and the command line's promises.

mod audit;
mod balance;
mod broker;
mod copying;
mod ending;
mod fleet;
mod foreign;
mod lab;
mod links;
mod listen;
mod locks;
mod machines;
mod programs;
mod says;
mod secure;
mod serving;
mod sessions;
mod simulated;
mod stages;
mod study;
mod values;
mod ways;

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::Path,
    sync::atomic::{AtomicU8, Ordering},
};

use anyhow::{Context, Result, ensure};
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use locks::{beside_others, without_other_balancers, without_other_labs};
use proofload_tests::Trial;
use proofload_tests::{
    Bar, Nginx, Output, Proofload, Scale, Serve,
    bars::{By, Verdict},
    link::LinkedHosts,
    nginx,
    process::{Launch, children_of},
    proofload::{accepts_void, adds_up, binary, parse_trial},
    temporary::TemporaryFolder,
};
use record::{ErrorClass, Histogram, ResultFolder, TrialEntry, VoidRule};
use rustix::process::Signal;
use testing::{PATIENCE, until};

/// The sample of a bar, as far as it counts.
fn sample(name: &str) {
    let bar = Bar::named(name).unwrap_or_else(|| panic!("no bar '{name}'"));
    let checked = bar.check(Scale::Counts);
    assert!(checked.verdict == Verdict::Reached, "bar {name} was not reached:\n{}", checked.missed);
}

macro_rules! samples {
    ($($how:ident { $($test:ident $name:literal,)* })*) => {
        $($(
            #[test]
            fn $test() {
                let _lock = $how();
                sample($name);
            }
        )*)*

        #[test]
        fn every_bar_that_counts_has_a_sample() {
            for (how, test) in [$($((stringify!($how), stringify!($test)),)*)*] {
                let is_inventory = how == "without_other_labs";
                assert_eq!(test.starts_with("inventory_"), is_inventory, "{test}");
            }
            let sampled = [$($($name,)*)*];
            // Of the fuzzers' bars, the tests of the crate `fuzz` are the sample.
            for bar in proofload_tests::bars::ALL.iter().filter(|bar| !bar.name.starts_with("fuzz-")) {
                let counts = bar.decided_by != By::Times;
                assert_eq!(sampled.contains(&bar.name), counts, "{}: {:?}", bar.name, bar.decided_by);
            }
        }
    };
}

// Nothing here can be turned by what else runs on the machine: these tests judge what a program did, not when, and run beside each
// other. `inventory_` at the beginning of a name says that the test has the only lab, and looks for what that leaves; these run
// one after another, beside the tests of the crates, whose namespaces are left out, and beside those that only make a virtual machine
// compute: `in_a_vm_`.
samples! {
    without_other_labs {
        inventory_sample_of_balance_spread "balance-spread",
        inventory_sample_of_lab_crash "lab-crash",
        inventory_sample_of_lab_files "lab-files",
        inventory_sample_of_lab_hosts "lab-hosts",
        inventory_sample_of_lab_nested "lab-nested",
        inventory_sample_of_processor_by_host "processor-by-host",
        inventory_sample_of_study_files "study-files",
    }
    beside_others {
        in_a_vm_sample_of_balance_vm "balance-vm",
        in_a_vm_sample_of_listen_power_cut "listen-power-cut",
        in_a_vm_sample_of_verdict_conntrack "verdict-conntrack",
        in_a_vm_sample_of_vm_netem "vm-netem",
        sample_of_command_figures "command-figures",
        sample_of_copy_faults "copy-faults",
        sample_of_descriptors "descriptors",
        sample_of_first_contact "first-contact",
        sample_of_fleet_faults "fleet-faults",
        sample_of_fleet_limit "fleet-limit",
        sample_of_fleet_requests "fleet-requests",
        sample_of_fleet_secrets "fleet-secrets",
        sample_of_foreign_grammar "foreign-grammar",
        sample_of_host_settings "host-settings",
        sample_of_hostile_text "hostile-text",
        sample_of_interrupt "interrupt",
        sample_of_link_certified "link-certified",
        sample_of_link_loss "link-loss",
        sample_of_listen_bodies "listen-bodies",
        sample_of_listen_compat "listen-compat",
        sample_of_listen_crash "listen-crash",
        sample_of_listen_disk "listen-disk",
        sample_of_listen_hostile "listen-hostile",
        sample_of_listen_memory "listen-memory",
        sample_of_local_scarcity "local-scarcity",
        sample_of_misbehaviour "misbehaviour",
        sample_of_no_secrets "no-secrets",
        sample_of_readme "readme",
        sample_of_report_browser "report-browser",
        sample_of_sessions "sessions",
        sample_of_study_folders "study-folders",
        sample_of_study_fresh "study-fresh",
        sample_of_study_resume "study-resume",
        sample_of_templates "templates",
        sample_of_void_rules "void-rules",
    }
}

/// An address where nobody else listens. A free port of 127.0.0.1 may be another test's a moment later.
fn own_address() -> Result<SocketAddr> {
    static COUNT: AtomicU8 = AtomicU8::new(0);
    let [.., high, low] = std::process::id().to_be_bytes();
    let address = Ipv4Addr::new(127, high | 128, low, COUNT.fetch_add(1, Ordering::Relaxed));
    Ok(TcpListener::bind((address, 0))?.local_addr()?)
}

fn run(url: &str, words: &str) -> Result<Output> {
    Proofload::http(url, words)?.arg("-q").run()
}

/// The trial of so many requests against a sound target: all completed, whatever else was going on.
fn completed(output: &Output, requests: u64) -> Result<&Trial> {
    let trial = output.counted(0)?;
    let are_all = trial.counts.completed == requests && trial.counts.failed == 0 && adds_up(trial);
    ensure!(are_all, "not all {requests} were completed: {}", output.described());
    Ok(trial)
}

/// Of tests whose names say `as_root`, and of those of the module `balance`.
fn need_root() -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "root is needed: nobody else may load BPF programs");
    Ok(())
}

/// The trials that a study left in a folder. It ended well, or has trials that are void for nothing but want of time.
fn trials_of(folder: &Path, output: &Output) -> Result<Vec<TrialEntry>> {
    let trials = ResultFolder::open(folder)?.trials()?;
    let void: Vec<_> = trials.iter().filter(|entry| entry.trial.validity.is_void()).collect();
    for entry in &void {
        let is_accepted =
            accepts_void(&format!("{}, trial {}", output.line, entry.index), &entry.trial.validity);
        ensure!(is_accepted, "{:?}: {}", entry.trial.validity, output.described());
    }
    let is_well = output.code == Some(0) || (output.code == Some(3) && !void.is_empty());
    ensure!(is_well && !trials.is_empty(), "{} trials: {}", trials.len(), output.described());
    Ok(trials)
}

#[test]
fn every_mistake_on_the_command_line_is_named_at_once() -> Result<()> {
    let url = "http://127.0.0.1:1/";
    let output = run(url, "--rate many --duration soon --expect 20 --timeout never --json /dev/null")?;
    ensure!(output.code == Some(2), "{}", output.described());
    for mistake in ["many", "soon", "'20'", "never"] {
        ensure!(output.stderr.contains(mistake), "{mistake} is not named: {}", output.described());
    }
    let unknown = run(url, "--no-such-option")?;
    ensure!(
        unknown.code == Some(2) && unknown.stderr.contains("--no-such-option"),
        "{}",
        unknown.described()
    );
    let serve = Proofload::new("serve --delay never --queue 5 --misbehave explode=1 --duration 1s")?.run()?;
    ensure!(serve.code == Some(2), "{}", serve.described());
    for mistake in ["never", "explode"] {
        ensure!(serve.stderr.contains(mistake), "{mistake} is not named: {}", serve.described());
    }
    Ok(())
}

#[test]
fn nobody_listening_is_a_refused_connection() -> Result<()> {
    let output = run(&format!("http://{}/", own_address()?), "-c 2 -n 20")?;
    let trial = output.unanswered()?;
    let counted = (trial.errors.of(ErrorClass::ConnectRefused), trial.counts.failed_unsent);
    ensure!(counted == (20, 20) && trial.counts.sent == 0, "{}", output.described());
    ensure!(output.stderr.contains("refused"), "the text does not say so: {}", output.described());
    // Tried again ten times a second, these would take hours.
    run(&format!("http://{}/", own_address()?), "-c 1 -n 100000")?.unanswered()?;
    Ok(())
}

#[test]
fn json_has_standard_output_for_itself() -> Result<()> {
    let serve = Serve::start("")?;
    let output = run(&serve.url(), "-c 4 -n 100 --json -")?;
    completed(&Output { trial: Some(parse_trial(&output.stdout)?), ..output }, 100)?;
    ensure!(serve.stop()?.requests == 100, "serve read other requests than were sent");
    Ok(())
}

#[test]
fn the_histogram_log_is_read_by_the_histogram_library() -> Result<()> {
    let (serve, folder) = (Serve::start("")?, TemporaryFolder::new()?);
    let output = run(&serve.url(), &format!("-c 4 -n 500 --hlog {}", folder.file("trial.hlog")))?;
    let trial = completed(&output, 500)?;
    let log = fs::read(folder.file("trial.hlog"))?;
    let mut counts = Vec::new();
    for entry in IntervalLogIterator::new(&log) {
        if let LogEntry::Interval(interval) = entry.map_err(|error| anyhow::anyhow!("{error:?}"))? {
            let tag = interval.tag().map_or("", |tag| tag.as_str()).to_owned();
            let histogram = Histogram::from_base64(interval.encoded_histogram())
                .map_err(anyhow::Error::msg)
                .with_context(|| format!("histogram '{tag}'"))?;
            counts.push((tag, histogram.count()));
        }
    }
    for tag in ["response", "service"] {
        ensure!(counts.contains(&(tag.to_owned(), trial.counts.completed)), "{tag}: {counts:?}");
    }
    Ok(())
}

#[test]
fn no_color_is_obeyed_on_a_terminal() -> Result<()> {
    let serve = Serve::start("")?;
    let command = format!("{} http {} -c 2 -n 50 --timeout 5m", binary()?.display(), serve.url());
    // util-linux's script gives it a terminal.
    let launch = Launch::new("script").args(["-qefc", &command, "/dev/null"]).env("TERM", "xterm-256color");
    let plain = launch.env("NO_COLOR", "1").run(PATIENCE)?;
    ensure!(plain.stdout.contains("Response time"), "{plain:?}");
    ensure!(!has_color(&plain.stdout), "colour in spite of NO_COLOR: {:?}", plain.stdout);
    Ok(())
}

/// Whether text sets a colour or a face: the CSI sequences that end in `m` (ECMA-48, SGR).
fn has_color(text: &str) -> bool {
    text.split("\x1b[").skip(1).any(|rest| {
        let parameters = rest.find(|c: char| !c.is_ascii_digit() && c != ';').unwrap_or(rest.len());
        rest[parameters..].starts_with('m') && !matches!(&rest[..parameters], "" | "0")
    })
}

#[test]
fn colours_are_recognised() {
    assert!(has_color("a\x1b[1;32mgreen\x1b[0m") && !has_color("\x1b[2K\x1b[1A\x1b[0mplain m"));
}

#[test]
fn connections_that_the_server_ends_are_replaced_without_errors() -> Result<()> {
    let nginx = Nginx::start(&nginx::Options { keepalive_requests: 100, ..Default::default() })?;
    for load in ["-c 4", "-c 4 -R 5k"] {
        let output = run(&nginx.url("/"), &format!("{load} -n 4000"))?;
        let trial = completed(&output, 4_000)?;
        let opened = trial.counts.connections_opened;
        ensure!((40..=44).contains(&opened), "{opened} connections for 40 hundreds of requests");
        ensure!(trial.counts.reconnects == opened - 4, "{:?}", trial.counts);
    }
    Ok(())
}

#[test]
fn pipelined_requests_behind_the_last_of_a_connection_are_sent_again() -> Result<()> {
    let nginx = Nginx::start(&nginx::Options { keepalive_requests: 20, ..Default::default() })?;
    for load in ["-u 4 --pipeline 16", "-c 1 -R 2k --pipeline 8"] {
        let output = run(&nginx.url("/"), &format!("{load} -n 1000"))?;
        let trial = completed(&output, 1_000)?;
        ensure!(trial.counts.failed == 0 && trial.counts.connections_opened >= 50, "{}", output.described());
    }
    Ok(())
}

#[test]
fn bodies_come_from_text_a_file_and_standard_input() -> Result<()> {
    let (nginx, folder) = (Nginx::start(&nginx::Options::default())?, TemporaryFolder::new()?);
    let (file, body) = (folder.file("body"), vec![b'x'; 12_345]);
    fs::write(&file, &body)?;
    let url = nginx.url("/length");
    for (argument, input, digits) in [
        ("0123456789".to_owned(), Vec::new(), 2),
        (format!("@{file}"), Vec::new(), 5),
        ("@-".to_owned(), body.clone(), 5),
    ] {
        let call = Proofload::http(&url, "-X POST -c 2 -n 50 -q")?.arg("--body").arg(&argument);
        let output = call.with(|launch| launch.input(input)).run()?;
        let trial = completed(&output, 50)?;
        // nginx answers with the length it was told, in digits.
        let received = trial.counts.received_body_bytes;
        ensure!(received == 50 * digits, "--body {argument}: {received} bytes for 50 lengths");
    }

    let serve = Serve::start("")?;
    let output =
        Proofload::http(&serve.url(), "-X POST -c 2 -n 50 -q --body")?.arg(&format!("@{file}")).run()?;
    completed(&output, 50)?;
    let report = serve.stop()?;
    ensure!(report.requests == 50 && report.bad_requests == 0, "{report:?}");
    ensure!(report.request_bytes > 50 * 12_345, "{} bytes came", report.request_bytes);
    Ok(())
}

#[test]
fn the_expected_statuses_decide_what_is_a_success() -> Result<()> {
    let serve = Serve::start("--status 404")?;
    let unexpected = run(&serve.url(), "-c 2 -n 50")?;
    let trial = unexpected.counted(1)?;
    ensure!(trial.errors.of(ErrorClass::Status) == 50 && adds_up(trial), "{}", unexpected.described());
    let expected = run(&serve.url(), "-c 2 -n 50 --expect 404")?;
    let trial = completed(&expected, 50)?;
    ensure!(trial.statuses.get(&404) == Some(&50), "{:?}", trial.statuses);
    Ok(())
}

#[test]
fn every_connection_is_new_without_keepalive() -> Result<()> {
    let serve = Serve::start("")?;
    let output = run(&serve.url(), "-c 4 -n 300 --no-keepalive")?;
    completed(&output, 300)?;
    let report = serve.stop()?;
    ensure!(report.connections_accepted == 300, "{} connections", report.connections_accepted);
    Ok(())
}

#[test]
fn pipelined_requests_are_all_answered() -> Result<()> {
    let nginx = Nginx::start(&nginx::Options::default())?;
    let output = run(&nginx.url("/64k"), "-c 2 -n 400 --pipeline 8")?;
    let trial = completed(&output, 400)?;
    ensure!(trial.counts.received_body_bytes == 400 * 65_536, "{:?}", trial.counts);
    Ok(())
}

/// The worker processes of a trial of 8 connections, once all are open: its children, by the kernel's own list.
fn workers_of(pid: u32, serve: &Serve) -> Result<Vec<u32>> {
    let address = serve.addresses()[0].parse()?;
    until("all connections are open", || testing::unread_bytes(address).len() >= 8);
    Ok(children_of(pid))
}

fn kill(pid: u32) -> Result<()> {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).context("a process id")?;
    Ok(rustix::process::kill_process(pid, Signal::KILL)?)
}

#[test]
fn a_lost_worker_process_voids_the_trial() -> Result<()> {
    let mut serve = Serve::start("")?;
    // Stopped, it leaves unread what it is sent. Open connections do not tell that the load has begun: on a crowded
    // machine a worker opens them long before it says that it is ready, and its loss until then refuses the trial.
    serve.signal(Signal::STOP);
    let running = Proofload::http(&serve.url(), "-R 500 -n 2000 -c 8 --processes 2 -q")?.start()?;
    let workers = workers_of(running.process.pid(), &serve)?;
    ensure!(workers.len() == 2, "{workers:?}");
    let address = serve.addresses()[0].parse()?;
    until("a request is sent", || testing::unread_bytes(address).iter().any(|&bytes| bytes > 0));
    // Not yet waited for by its parent, so that the number is still its own.
    kill(workers[0])?;
    serve.signal(Signal::CONT);
    let output = running.finish()?;
    let trial = output.trial_with_code(3)?;
    let rules: Vec<_> = trial.validity.reasons().iter().map(|reason| reason.rule).collect();
    ensure!(rules.contains(&VoidRule::WorkerLost), "{rules:?}");
    ensure!(trial.counts.completed == 1_000, "the other worker's half is kept: {:?}", trial.counts);
    Ok(())
}

#[test]
fn worker_processes_die_with_their_parent() -> Result<()> {
    let serve = Serve::start("--processes 2")?;
    let mut running = Proofload::http(&serve.url(), "-c 8 -d 1h --processes 2 -q")?.start()?;
    let workers = workers_of(running.process.pid(), &serve)?;
    ensure!(workers.len() == 2, "{workers:?}");
    running.process.signal(Signal::KILL);
    running.process.wait(PATIENCE)?;
    until("no worker outlives its parent", || !workers.iter().any(|pid| is_alive(*pid)));
    Ok(())
}

fn is_alive(pid: u32) -> bool {
    let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    state.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['Z', 'X']))
}
