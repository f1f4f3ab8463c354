//! The binary from outside: a sample of every bar, and the command line's promises.

mod audit;
mod balance;
mod copying;
mod ending;
mod foreign;
mod lab;
mod links;
mod listen;
mod locks;
mod programs;
mod says;
mod secure;
mod serving;
mod sessions;
mod stages;
mod study;
mod ways;

use std::fs;

use anyhow::{Context, Result, ensure};
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use locks::{alone, beside_all, beside_others, without_other_labs};
use proofload_tests::Trial;
use proofload_tests::{
    Bar, Nginx, Output, Proofload, Scale, Serve,
    link::LinkedHosts,
    nginx::{self, free_address},
    process::{Launch, children_of},
    proofload::{adds_up, binary, is_crowded, parse_trial},
    temporary::TemporaryFolder,
};
use record::{ErrorClass, Histogram, VoidRule};
use rustix::process::Signal;
use testing::{PATIENCE, until};

fn sample(name: &str) {
    let bar = Bar::named(name).unwrap_or_else(|| panic!("no bar '{name}'"));
    bar.check(Scale::Sample).unwrap_or_else(|missed| panic!("bar {name} was not reached:\n{missed}"));
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
        fn every_bar_has_a_sample() {
            for (how, test) in [$($((stringify!($how), stringify!($test)),)*)*] {
                let stage = match how {
                    "alone" => "measured_",
                    "without_other_labs" => "inventory_",
                    _ => "",
                };
                assert!(test.starts_with(stage), "{test} does not begin with {stage}");
            }
            let sampled = [$($($name,)*)*];
            // Of the fuzzers' bars, the tests of the crate `fuzz` are the sample.
            let here = |bar: &&Bar| !bar.name.starts_with("fuzz-");
            for bar in proofload_tests::bars::ALL.iter().filter(here) {
                assert!(sampled.contains(&bar.name), "bar {} has no sample here", bar.name);
            }
        }
    };
}

// The beginning of a name says in which stage of `make test` a test runs. `measured_`: it has the machine to itself, because it measures.
// `inventory_`: it has the only lab, and looks for what that leaves; it runs beside the tests of the crates, whose namespaces are left out.
// `paced_`: links, disks and timers pace it, and the processors are mostly idle; so it runs beside others of its kind. All others count:
// they judge what a program did, not when, and run beside each other.
samples! {
    alone {
        measured_sample_of_balance_cost "balance-cost",
        measured_sample_of_balance_disruption "balance-disruption",
        measured_sample_of_balance_spread "balance-spread",
        measured_sample_of_command_figures "command-figures",
        measured_sample_of_connections_18k "connections-18k",
        measured_sample_of_connections_200k "connections-200k",
        measured_sample_of_copy_loopback "copy-loopback",
        measured_sample_of_generator_away "generator-away",
        measured_sample_of_known_closed "known-closed",
        measured_sample_of_known_exponential "known-exponential",
        measured_sample_of_known_stalls "known-stalls",
        measured_sample_of_lab_hosts "lab-hosts",
        measured_sample_of_limit_away "limit-away",
        measured_sample_of_limit_generator_bound "limit-generator-bound",
        measured_sample_of_limit_short_trials "limit-short-trials",
        measured_sample_of_link_certified "link-certified",
        measured_sample_of_link_delay "link-delay",
        measured_sample_of_link_rate "link-rate",
        measured_sample_of_listen_bodies "listen-bodies",
        measured_sample_of_listen_hostile "listen-hostile",
        measured_sample_of_ocean_copy "ocean-copy",
        measured_sample_of_pacing "pacing",
        measured_sample_of_processor_by_host "processor-by-host",
        measured_sample_of_remote_verdict "remote-verdict",
        measured_sample_of_sessions "sessions",
        measured_sample_of_verdict_proof "verdict-proof",
        measured_sample_of_verdict_table "verdict-table",
        measured_sample_of_void_rules "void-rules",
    }
    without_other_labs {
        inventory_sample_of_lab_crash "lab-crash",
        inventory_sample_of_lab_files "lab-files",
        inventory_sample_of_lab_nested "lab-nested",
        inventory_sample_of_study_files "study-files",
    }
    beside_others {
        paced_sample_of_copy_held_back "copy-held-back",
        paced_sample_of_copy_manners "copy-manners",
        paced_sample_of_copy_ocean "copy-ocean",
        paced_sample_of_copy_paths "copy-paths",
        paced_sample_of_interrupt "interrupt",
        paced_sample_of_lab_segment "lab-segment",
        paced_sample_of_limit_capacity "limit-capacity",
        paced_sample_of_link_loss "link-loss",
        paced_sample_of_link_lossy_times "link-lossy-times",
        paced_sample_of_listen_disk "listen-disk",
        paced_sample_of_listen_memory "listen-memory",
        paced_sample_of_local_scarcity "local-scarcity",
        paced_sample_of_ocean_path "ocean-path",
        paced_sample_of_study_folders "study-folders",
        paced_sample_of_verdict_rivals "verdict-rivals",
        paced_sample_of_verdict_studies "verdict-studies",
        paced_sample_of_vm_netem "vm-netem",
        counted_sample_of_balance_vm "balance-vm",
        counted_sample_of_copy_faults "copy-faults",
        counted_sample_of_descriptors "descriptors",
        counted_sample_of_host_settings "host-settings",
        counted_sample_of_hostile_text "hostile-text",
        counted_sample_of_listen_compat "listen-compat",
        counted_sample_of_listen_crash "listen-crash",
        counted_sample_of_listen_power_cut "listen-power-cut",
        counted_sample_of_misbehaviour "misbehaviour",
        counted_sample_of_no_secrets "no-secrets",
        counted_sample_of_readme "readme",
        counted_sample_of_report_browser "report-browser",
        counted_sample_of_study_fresh "study-fresh",
        counted_sample_of_study_resume "study-resume",
        counted_sample_of_templates "templates",
        counted_sample_of_verdict_conntrack "verdict-conntrack",
    }
}

fn run(url: &str, words: &str) -> Result<Output> {
    Proofload::http(url, words)?.arg("-q").run()
}

/// The trial of so many requests against a sound target: all completed, whatever else was going on.
fn completed(output: &Output, requests: u64) -> Result<&Trial> {
    let trial = output.trial_even_if_crowded(0)?;
    ensure!(sound(trial, requests), "not all {requests} were completed: {}", output.described());
    Ok(trial)
}

/// These tests share the processors with each other, so a trial may be void for want of one.
fn sound(trial: &Trial, requests: u64) -> bool {
    let counts = &trial.counts;
    let all = counts.completed == requests && counts.failed == 0 && adds_up(trial);
    all && (is_crowded(&trial.validity) || !trial.validity.is_void())
}

#[test]
fn every_mistake_on_the_command_line_is_named_at_once() -> Result<()> {
    let _shared = beside_all();
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
    let _shared = beside_all();
    let output = run(&format!("http://{}/", free_address()?), "-c 2 -n 20")?;
    let trial = output.trial_even_if_crowded(1)?;
    let counted = (trial.errors.of(ErrorClass::ConnectRefused), trial.counts.failed_unsent);
    ensure!(counted == (20, 20) && trial.counts.sent == 0, "{}", output.described());
    ensure!(output.stdout.contains("refused"), "the text does not say so: {}", output.described());
    Ok(())
}

#[test]
fn json_has_standard_output_for_itself() -> Result<()> {
    let _shared = beside_all();
    let serve = Serve::start("")?;
    let output = run(&serve.url(), "-c 4 -n 100 --json -")?;
    ensure!(sound(&parse_trial(&output.stdout)?, 100), "{}", output.described());
    ensure!(serve.stop()?.requests == 100, "serve read other requests than were sent");
    Ok(())
}

#[test]
fn the_histogram_log_is_read_by_the_histogram_library() -> Result<()> {
    let _shared = beside_all();
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
    let _shared = beside_all();
    let serve = Serve::start("")?;
    let command = format!("{} http {} -c 2 -d 1s", binary()?.display(), serve.url());
    // util-linux's script gives it a terminal.
    let launch = Launch::new("script").args(["-qefc", &command, "/dev/null"]).env("TERM", "xterm-256color");
    let plain = launch.env("NO_COLOR", "1").run(std::time::Duration::from_secs(30))?;
    ensure!(matches!(plain.code, Some(0 | 3)) && plain.stdout.contains("Response time"), "{plain:?}");
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
    let _shared = beside_all();
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
fn bodies_come_from_text_a_file_and_standard_input() -> Result<()> {
    let _shared = beside_all();
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
    let _shared = beside_all();
    let serve = Serve::start("--status 404")?;
    let unexpected = run(&serve.url(), "-c 2 -n 50")?;
    let trial = unexpected.trial_even_if_crowded(1)?;
    ensure!(trial.errors.of(ErrorClass::Status) == 50 && adds_up(trial), "{}", unexpected.described());
    let expected = run(&serve.url(), "-c 2 -n 50 --expect 404")?;
    let trial = completed(&expected, 50)?;
    ensure!(trial.statuses.get(&404) == Some(&50), "{:?}", trial.statuses);
    Ok(())
}

#[test]
fn every_connection_is_new_without_keepalive() -> Result<()> {
    let _shared = beside_all();
    let serve = Serve::start("")?;
    let output = run(&serve.url(), "-c 4 -n 300 --no-keepalive")?;
    completed(&output, 300)?;
    let report = serve.stop()?;
    ensure!(report.connections_accepted == 300, "{} connections", report.connections_accepted);
    Ok(())
}

#[test]
fn pipelined_requests_are_all_answered() -> Result<()> {
    let _shared = beside_all();
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
    let _shared = beside_all();
    let mut serve = Serve::start("")?;
    // Stopped, it leaves unread what it is sent. Open connections do not tell that the load has begun: on a crowded
    // machine a worker opens them long before it says that it is ready, and its loss until then refuses the trial.
    serve.signal(Signal::STOP);
    let running = Proofload::http(&serve.url(), "-R 500 -c 8 -d 4s --processes 2 -q")?.start()?;
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
    ensure!(trial.counts.completed > 500, "the other worker's part is kept: {:?}", trial.counts);
    Ok(())
}

#[test]
fn worker_processes_die_with_their_parent() -> Result<()> {
    let _shared = beside_all();
    let serve = Serve::start("--processes 2")?;
    let mut running = Proofload::http(&serve.url(), "-c 8 -d 30s --processes 2 -q")?.start()?;
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
