//! `proofload listen`: runs the HTTP event listener as a service, with its settings, signals and log.

mod args;
mod body_rules;
mod config_builder;
mod file;
mod schema;
mod secrets;
mod service;
mod settings;
mod watch;

use std::{
    os::fd::OwnedFd,
    path::Path,
    process,
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread,
    time::{Duration, Instant},
};

use listen::{Config, Handle, Report, Server, Statistics, render};
use load::raise_descriptors;
use record::units::show_count;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use tracing::{error, info, warn};

pub(crate) use args::ListenArgs;

use self::{args::ListenCommand, config_builder::ConfigBuilder, service::Service, watch::Watch};
use super::{init, logs};
use crate::{
    exit::{Exit, Refusal, Result},
    output::{
        destination::{Destination, write_result},
        standard,
    },
};

/// Time between two checks of the statistics for changes.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// An event that the main thread waits for.
enum Event {
    Signal(i32),
    Ended(Box<Report>),
}

/// Listens until stopped, then prints the report.
pub(crate) fn run(arguments: &ListenArgs) -> Result<Exit> {
    if let Some(ListenCommand::Init(arguments)) = &arguments.command {
        return init::listen(arguments, settings::all());
    }
    // Must come first: it changes the environment, which is safe only while no other thread runs.
    let inherited = service::inherited_sockets()?;
    if arguments.schema {
        standard::print_raw(&format!("{:#}\n", schema::schema()))?;
        return Ok(Exit::GoalsMet);
    }
    let (plan, notes) = plan(arguments)?;
    if arguments.check {
        Server::check(&plan.config, inherited.len()).map_err(start_refusal)?;
        notes
            .iter()
            .chain(&plan.warnings)
            .for_each(|note| standard::print_to_stderr(format_args!("proofload: {note}")));
        standard::print_wrapped(&format!("the settings are valid: {}\n", description(&plan.config)))?;
        return Ok(Exit::GoalsMet);
    }
    let report = Destination::open_optional("--report", plan.report.as_deref())?;
    raise_descriptors();
    logs::start(plan.log, plan.log_level);
    let ended = listen(plan, notes, inherited, report, arguments.quiet);
    match (logs::flush(), ended) {
        // The log was not flushed, so standard error blocks, and printing the refusal would block too.
        (false, Err(_)) => Ok(Exit::WrongUse),
        (_, ended) => ended,
    }
}

fn listen(
    plan: ConfigBuilder,
    notes: Vec<String>,
    inherited: Vec<OwnedFd>,
    report: Option<Destination>,
    quiet: bool,
) -> Result<Exit> {
    let (sender, events) = mpsc::channel();
    forward_signals(sender.clone())?;
    let mut config = plan.config;
    if !inherited.is_empty() && !plan.has_explicit_addresses {
        config.listen.clear();
    }
    let (storage, asked_files) = (storage_pattern(&config), config.store.max_open);
    let server = Server::bind(config, inherited).map_err(start_refusal)?;
    notes.iter().for_each(|note| info!("{note}"));
    plan.warnings.iter().for_each(|warning| warn!("{warning}"));
    if server.open_files() < asked_files {
        warn!(
            "at most {} files are open at once, not {asked_files} (--open-files), because of the descriptor limit; raise \
             `ulimit -n`, or LimitNOFILE= of the service",
            server.open_files()
        );
    }
    log_recovery(&server);
    let addresses = address_list(&server);
    info!("listening on {addresses}; storing in {storage}");
    let (final_report, stops) = serve(server, sender, &events, &format!("listening on {addresses}"))?;
    // Without a receiver of events, the next signal ends the process, because writing the outputs may block. The flag
    // makes outputs give up at once if a signal has already arrived.
    drop(events);
    files::stop().store(stops > 0, std::sync::atomic::Ordering::Relaxed);
    if let Some(why) = &final_report.close_error {
        error!("{why}{}", unstored_note(&final_report.statistics));
    }
    write_result(report, &final_report, quiet, || render(&final_report))?;
    Ok(match stops {
        _ if final_report.close_error.is_some() || final_report.statistics.accepted_events_lost > 0 => {
            Exit::GoalsNotMet
        }
        0 | 1 => Exit::GoalsMet,
        _ => Exit::Interrupted,
    })
}

/// Reads all settings: options override the settings file, which overrides the imported configuration. Also returns
/// notes on the import for the user.
pub(crate) fn plan(arguments: &ListenArgs) -> Result<(ConfigBuilder, Vec<String>)> {
    let mut mistakes = Vec::new();
    let mut notes = Vec::new();
    if let Some(path) = &arguments.fluentd_config {
        let path = path.display();
        mistakes.push(format!(
            "-c: write --import {path} for a configuration of Fluentd, --config {path} for one of proofload"
        ));
    }
    let imported = arguments.import.as_deref().and_then(|path| match import(path) {
        Ok(imported) => {
            notes.extend(imported.notes.iter().map(ToString::to_string));
            Some(imported)
        }
        Err(wrong) => {
            mistakes.extend(wrong);
            None
        }
    });
    let mut builder = ConfigBuilder::new(imported).map_err(Refusal::one)?;
    if let Some(path) = &arguments.config {
        let read = file_text("--config", path).and_then(|text| {
            let messages = |wrong: Vec<::settings::Mistake>| wrong.iter().map(ToString::to_string).collect();
            file::read(&path.display().to_string(), &text, &mut builder).map_err(messages)
        });
        mistakes.extend(read.err().unwrap_or_default());
    }
    mistakes.extend(arguments.given.apply(&mut builder));
    match builder.build() {
        Ok(plan) if mistakes.is_empty() => Ok((plan, notes)),
        Ok(_) => Err(Refusal::new(mistakes)),
        Err(more) => Err(Refusal::new([mistakes, more].concat())),
    }
}

/// The refusal if the listener cannot start.
fn start_refusal(error: listen::Error) -> Refusal {
    match error {
        listen::Error::Config(mistakes) => Refusal::new(mistakes),
        listen::Error::Start(listen::StartError::Processors { .. }) => {
            Refusal::one(format_args!("--cpus: {error}"))
        }
        listen::Error::Tls { .. } => Refusal::one(format_args!("--tls-cert, --tls-key: {error}")),
        error => Refusal::one(error),
    }
}

fn import(path: &Path) -> Result<listen::import::Imported, Vec<String>> {
    let text = file_text("--import", path)?;
    let imported = listen::import::fluentd(&path.display().to_string(), &text);
    imported.map_err(|wrong| wrong.iter().map(ToString::to_string).collect())
}

fn file_text(option: &str, path: &Path) -> Result<String, Vec<String>> {
    record::input::read_text(path).map_err(|error| vec![format!("{option}: {error}")])
}

fn forward_signals(sender: Sender<Event>) -> Result {
    let failed = |error| Refusal::one(format_args!("cannot handle signals: {error}"));
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(failed)?;
    // No handle is kept: the thread runs until the process ends.
    thread::spawn(move || {
        for signal in signals.forever() {
            if sender.send(Event::Signal(signal)).is_err() {
                process::exit(130);
            }
        }
    });
    Ok(())
}

/// Runs the server and handles signals until the server ends. Returns the report and the number of stop signals.
fn serve(
    server: Server,
    sender: Sender<Event>,
    events: &Receiver<Event>,
    status: &str,
) -> Result<(Report, u32)> {
    let handle = server.handle();
    let running = thread::spawn(move || {
        let report = server.run();
        // Sending fails only if the process is already ending.
        let _ = sender.send(Event::Ended(Box::new(report)));
    });
    let mut service = Service::new(status);
    service.ready();
    let mut watch = Watch::new(handle.statistics());
    let mut next_check = Instant::now() + POLL_INTERVAL;
    let mut stops = 0;
    loop {
        match events.recv_timeout(next_check.saturating_duration_since(Instant::now())) {
            Ok(Event::Signal(SIGHUP)) => reload(&handle, &mut service),
            Ok(Event::Signal(_)) => {
                stops += 1;
                stop(&handle, &mut service, stops);
            }
            Ok(Event::Ended(report)) => return Ok((*report, stops)),
            Err(RecvTimeoutError::Timeout) => {
                next_check = Instant::now() + POLL_INTERVAL;
                let statistics = handle.statistics();
                if handle.has_died() && stops == 0 {
                    error!(
                        "a storage thread has died: stopping, so that the next start can recover what is stored"
                    );
                    stops = 1;
                    stop(&handle, &mut service, stops);
                }
                watch.update(statistics, Instant::now()).iter().for_each(watch::Change::log);
                service.alive();
                if running.is_finished() {
                    // The report may have arrived after `recv_timeout` returned.
                    let report = pending_report(events);
                    let report = report
                        .ok_or_else(|| Refusal::one("the listener has crashed; its messages are above"))?;
                    return Ok((*report, stops));
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Refusal::one("the listener's threads have ended without a report"));
            }
        }
    }
}

/// The report, if it is in the event queue.
fn pending_report(events: &Receiver<Event>) -> Option<Box<Report>> {
    events.try_iter().find_map(|event| match event {
        Event::Ended(report) => Some(report),
        Event::Signal(_) => None,
    })
}

fn reload(handle: &Handle, service: &mut Service) {
    service.reloading();
    match handle.reload() {
        Ok(()) => info!("reloaded: files are reopened, certificates were read again"),
        Err(error) => error!("not reloaded: {error}; the old certificates stay in use"),
    }
    service.ready();
}

fn stop(handle: &Handle, service: &mut Service, times: u32) {
    match times {
        1 => {
            info!("stopping: waiting for requests in flight; a second signal ends this wait");
            service.stopping();
            handle.stop();
        }
        2 => {
            warn!("not waiting for requests any longer; a third signal ends the wait for the disk");
            handle.stop_now();
        }
        _ => {
            error!("stopped without waiting for the disk{}", unstored_note(&handle.statistics()));
            logs::flush();
            process::exit(130)
        }
    }
}

/// A note on events that were acknowledged as accepted but may not be stored; empty if there are none.
fn unstored_note(statistics: &Statistics) -> String {
    match statistics.accepted_events_pending {
        0 => String::new(),
        count => {
            format!("; {} events that were acknowledged as accepted may not be stored", show_count(count))
        }
    }
}

fn log_recovery(server: &Server) {
    let recovery = server.recovery();
    if recovery.journal_damaged_lines > 0 {
        warn!("{} damaged lines of the journal were skipped", recovery.journal_damaged_lines);
    }
    for path in &recovery.elsewhere {
        warn!(
            "the journal names {}, which is outside the folder of --path: the file is left as it is; to recover it, start the \
             listener with the --path that wrote it",
            path.display()
        );
    }
    for cut in &recovery.truncations {
        let bytes = cut.from_bytes - cut.to_bytes;
        warn!(
            "removed a torn end of {bytes} bytes from {}: its events were not acknowledged",
            cut.path.display()
        );
    }
    if recovery.segments > 0 {
        info!(
            "recovered from an unclean end: {} files were open, {} of them deleted or replaced since; {} torn ends removed; \
             {} compressions finished, {} restarted",
            recovery.segments,
            recovery.replaced,
            recovery.truncations.len(),
            recovery.compressions_finished,
            recovery.compressions_undone
        );
    }
}

fn address_list(server: &Server) -> String {
    let list: Vec<String> = server.local_addrs().iter().map(ToString::to_string).collect();
    let admin = server.admin_addr().map_or(String::new(), |admin| format!(" (admin {admin})"));
    format!("{}{admin}", list.join(", "))
}

fn storage_pattern(config: &Config) -> String {
    format!("{}{}", config.store.template, config.store.suffix)
}

fn description(config: &Config) -> String {
    let list: Vec<String> = config.listen.iter().map(ToString::to_string).collect();
    format!("the listener would listen on {} and store in {}", list.join(", "), storage_pattern(config))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        listen: ListenArgs,
    }

    #[test]
    fn a_report_behind_a_signal_is_found() {
        let (sender, events) = mpsc::channel();
        sender.send(Event::Signal(SIGTERM)).unwrap();
        let report = Report { unanswered: 3, ..Report::default() };
        sender.send(Event::Ended(Box::new(report))).unwrap();
        assert_eq!(pending_report(&events).map(|report| report.unanswered), Some(3));
        assert!(pending_report(&events).is_none());
    }

    fn checked(line: &str) -> Result {
        let words = ["listen"].into_iter().chain(line.split_whitespace());
        let (plan, _) = plan(&Line::try_parse_from(words).unwrap().listen)?;
        Server::check(&plan.config, 0).map_err(start_refusal)
    }

    #[test]
    fn check_finds_settings_that_cannot_start() {
        assert!(checked("--max-body 1MiB").is_ok());
        for (line, part) in [
            ("--max-body 10GiB --budget 1MB", "must hold the largest body"),
            ("--tls-cert /no/cert.pem --tls-key /no/key.pem", "/no/cert.pem: cannot be read"),
            ("--sync-delay 11s", "--sync-delay must be at most 10 s"),
            ("--sync-delay 5s --store-timeout 5s", "shorter than --store-timeout"),
            ("-c fluent.conf", "--import fluent.conf"),
            ("--path e/${tag}.log.gz", "--compress gzip"),
            ("--path e/${tag}.zst --rotate-size 1MB", "--compress gzip"),
        ] {
            let refusal = format!("{:?}", checked(line).unwrap_err());
            assert!(refusal.contains(part), "{line}: {refusal}");
        }
    }
}
