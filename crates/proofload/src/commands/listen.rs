//! `proofload listen`: the HTTP data listener as a service: its settings, its signals, its log.

mod args;
mod draft;
mod file;
mod logs;
mod reading;
mod schema;
mod secrets;
mod service;
mod settings;
mod watch;

use std::{
    os::fd::OwnedFd,
    path::Path,
    process,
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use listen::{Config, Handle, Report, Server, Statistics, render};
use load::host::raise_descriptors;
use record::units::show_count;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ},
    iterator::Signals,
};
use tracing::{error, info, warn};

pub(crate) use args::ListenArgs;

use self::{
    draft::{Draft, Plan},
    service::Service,
    watch::Watch,
};
use crate::{
    exit::{Exit, Refusal},
    output::{
        destination::{Destination, leave},
        standard,
    },
};

/// How often it is looked what has changed.
const GLANCE: Duration = Duration::from_millis(500);

/// What the service waits for.
enum Event {
    Signal(i32),
    Ended(Box<Report>),
}

/// Listens until told to stop, then tells what was done.
pub(crate) fn run(arguments: &ListenArgs) -> Result<Exit, Refusal> {
    // First of all: it changes the environment, which only one thread may do.
    let handed = service::handed()?;
    if arguments.schema {
        standard::print(&format!("{:#}\n", schema::schema()))?;
        return Ok(Exit::GoalsMet);
    }
    let (plan, notes) = plan(arguments)?;
    if arguments.check {
        Server::check(&plan.config, handed.len()).map_err(refused)?;
        notes.iter().chain(&plan.warnings).for_each(|note| standard::tell(format_args!("proofload: {note}")));
        standard::show(&format!("the settings are sound: {}\n", in_words(&plan.config)))?;
        return Ok(Exit::GoalsMet);
    }
    let report = Destination::of("--report", plan.report.as_deref())?;
    raise_descriptors();
    logs::begin(plan.log, plan.log_level);
    let ended = listen(plan, notes, handed, report, arguments.quiet);
    match (logs::end(), ended) {
        // Standard error makes whoever writes there wait.
        (false, Err(_)) => Ok(Exit::WrongUse),
        (_, ended) => ended,
    }
}

fn listen(
    plan: Plan,
    notes: Vec<String>,
    handed: Vec<OwnedFd>,
    report: Option<Destination>,
    quiet: bool,
) -> Result<Exit, Refusal> {
    let (sender, events) = mpsc::channel();
    pass_signals(sender.clone())?;
    let mut config = plan.config;
    if !handed.is_empty() && !plan.listens_as_told {
        config.listen.clear();
    }
    let (stored, asked_files) = (storage_in_words(&config), config.store.max_open);
    let server = Server::bind(config, handed).map_err(refused)?;
    notes.iter().for_each(|note| info!("{note}"));
    plan.warnings.iter().for_each(|warning| warn!("{warning}"));
    if server.open_files() < asked_files {
        warn!(
            "{} files are open at once, not {asked_files} (--open-files): this process may have no more descriptors; raise \
             `ulimit -n`, or LimitNOFILE= of the service",
            server.open_files()
        );
    }
    tell_recovery(&server);
    let listening = addresses_in_words(&server);
    info!("listening on {listening}; storing in {stored}");
    let (done, stops) = serve(server, sender, &events, &format!("listening on {listening}"))?;
    // From here on a signal ends the process: standard output may make us wait, too.
    drop(events);
    if let Some(why) = &done.close_error {
        error!("{why}{}", unsure(&done.statistics));
    }
    leave(report, &done, quiet, || render(&done))?;
    Ok(match stops {
        _ if done.close_error.is_some() || done.statistics.accepted_events_lost > 0 => Exit::GoalsNotMet,
        0 | 1 => Exit::GoalsMet,
        _ => Exit::Interrupted,
    })
}

/// All settings: what was imported, the file over it, the options over both. With them what should be known.
pub(crate) fn plan(arguments: &ListenArgs) -> Result<(Plan, Vec<String>), Refusal> {
    let mut mistakes = Vec::new();
    let mut notes = Vec::new();
    if let Some(path) = &arguments.fluentd_config {
        let path = path.display();
        mistakes.push(format!(
            "-c: write --import {path} for a configuration of Fluentd's, --config {path} for one of proofload's own"
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
    let mut draft = Draft::new(imported).map_err(Refusal::one)?;
    if let Some(path) = &arguments.config {
        let read = text_of("--config", path).and_then(|text| {
            let told = |wrong: Vec<::settings::Mistake>| wrong.iter().map(ToString::to_string).collect();
            file::read(&path.display().to_string(), &text, &mut draft).map_err(told)
        });
        mistakes.extend(read.err().unwrap_or_default());
    }
    mistakes.extend(arguments.given.put(&mut draft));
    match draft.finish() {
        Ok(plan) if mistakes.is_empty() => Ok((plan, notes)),
        Ok(_) => Err(Refusal::new(mistakes)),
        Err(more) => Err(Refusal::new([mistakes, more].concat())),
    }
}

/// Why it cannot start, every mistake on its own.
fn refused(error: listen::Error) -> Refusal {
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
    let text = text_of("--import", path)?;
    let imported = listen::import::fluentd(&path.display().to_string(), &text);
    imported.map_err(|wrong| wrong.iter().map(ToString::to_string).collect())
}

fn text_of(option: &str, path: &Path) -> Result<String, Vec<String>> {
    record::input::read_text(path).map_err(|error| vec![format!("{option}: {error}")])
}

fn pass_signals(sender: Sender<Event>) -> Result<(), Refusal> {
    let failed = |error| Refusal::one(format_args!("cannot handle signals: {error}"));
    // Beyond the largest file that this process may have (`ulimit -f`), writing is to fail, not to kill.
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map_err(failed)?;
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(failed)?;
    // Ends with the process.
    thread::spawn(move || {
        for signal in signals.forever() {
            if sender.send(Event::Signal(signal)).is_err() {
                process::exit(130);
            }
        }
    });
    Ok(())
}

/// Serves until the end, obeys signals meanwhile. Hands out the report and how often it was told to stop.
fn serve(
    server: Server,
    sender: Sender<Event>,
    events: &Receiver<Event>,
    status: &str,
) -> Result<(Report, u32), Refusal> {
    let handle = server.handle();
    let running = thread::spawn(move || {
        let report = server.run();
        // Nobody is left to hear it only if this process ends anyhow.
        let _ = sender.send(Event::Ended(Box::new(report)));
    });
    let mut service = Service::new(status);
    service.ready();
    let mut watch = Watch::new(handle.statistics());
    let mut next_look = Instant::now() + GLANCE;
    let mut stops = 0;
    loop {
        match events.recv_timeout(next_look.saturating_duration_since(Instant::now())) {
            Ok(Event::Signal(SIGHUP)) => reload(&handle, &mut service),
            Ok(Event::Signal(_)) => {
                stops += 1;
                stop(&handle, &mut service, stops);
            }
            Ok(Event::Ended(report)) => return Ok((*report, stops)),
            Err(RecvTimeoutError::Timeout) => {
                next_look = Instant::now() + GLANCE;
                let statistics = handle.statistics();
                if handle.has_died() && stops == 0 {
                    error!(
                        "a thread of the storage has died: ending, so that the next start can recover what is stored"
                    );
                    stops = 1;
                    stop(&handle, &mut service, stops);
                }
                watch.look(statistics).iter().for_each(watch::Change::tell);
                service.alive();
                if running.is_finished() {
                    // It may have ended since nothing was heard.
                    let report = report_among(events);
                    let report = report
                        .ok_or_else(|| Refusal::one("the listener broke down; what it said is above"))?;
                    return Ok((*report, stops));
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Refusal::one("nobody is left to end the listener"));
            }
        }
    }
}

/// The report, if it is among what is there already.
fn report_among(events: &Receiver<Event>) -> Option<Box<Report>> {
    events.try_iter().find_map(|event| match event {
        Event::Ended(report) => Some(report),
        Event::Signal(_) => None,
    })
}

fn reload(handle: &Handle, service: &mut Service) {
    service.reloading();
    match handle.reload() {
        Ok(()) => info!("reloaded: files are opened anew, certificates were read again"),
        Err(error) => error!("not reloaded: {error}; the old certificates stay"),
    }
    service.ready();
}

fn stop(handle: &Handle, service: &mut Service, times: u32) {
    match times {
        1 => {
            info!("stopping: requests in flight are finished; once more does not wait for them");
            service.stopping();
            handle.stop();
        }
        2 => {
            warn!("stopping at once; once more ends without waiting for the disk");
            handle.stop_now();
        }
        _ => {
            error!("ended without waiting for the disk{}", unsure(&handle.statistics()));
            logs::end();
            process::exit(130)
        }
    }
}

/// How many events were promised nothing but to be stored, and may not be.
fn unsure(statistics: &Statistics) -> String {
    match statistics.accepted_events_pending {
        0 => String::new(),
        count => {
            format!("; {} events that were acknowledged as accepted may not be stored", show_count(count))
        }
    }
}

fn tell_recovery(server: &Server) {
    let recovery = server.recovery();
    if recovery.journal_damaged_lines > 0 {
        warn!("{} damaged lines of the journal were passed over", recovery.journal_damaged_lines);
    }
    for cut in &recovery.truncations {
        let bytes = cut.from_bytes - cut.to_bytes;
        warn!(
            "cut a torn end of {bytes} bytes off {}: nobody was told that it was written",
            cut.path.display()
        );
    }
    if recovery.segments > 0 {
        info!(
            "recovered from an end without a stop: {} files were open, {} of them gone or replaced since; {} torn ends cut; \
             {} compressions finished, {} begun anew",
            recovery.segments,
            recovery.replaced,
            recovery.truncations.len(),
            recovery.compressions_finished,
            recovery.compressions_undone
        );
    }
}

fn addresses_in_words(server: &Server) -> String {
    let list: Vec<String> = server.local_addrs().iter().map(ToString::to_string).collect();
    let admin = server.admin_addr().map_or(String::new(), |admin| format!(" (admin {admin})"));
    format!("{}{admin}", list.join(", "))
}

fn storage_in_words(config: &Config) -> String {
    format!("{}{}", config.store.template, config.store.suffix)
}

fn in_words(config: &Config) -> String {
    let list: Vec<String> = config.listen.iter().map(ToString::to_string).collect();
    format!("it would listen on {} and store in {}", list.join(", "), storage_in_words(config))
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
    fn an_end_that_came_behind_a_signal_is_no_breakdown() {
        let (sender, events) = mpsc::channel();
        sender.send(Event::Signal(SIGTERM)).unwrap();
        let done = Report { unanswered: 3, ..Report::default() };
        sender.send(Event::Ended(Box::new(done))).unwrap();
        assert_eq!(report_among(&events).map(|report| report.unanswered), Some(3));
        assert!(report_among(&events).is_none());
    }

    fn checked(line: &str) -> Result<(), Refusal> {
        let words = ["listen"].into_iter().chain(line.split_whitespace());
        let (plan, _) = plan(&Line::try_parse_from(words).unwrap().listen)?;
        Server::check(&plan.config, 0).map_err(refused)
    }

    #[test]
    fn a_check_finds_what_would_not_start() {
        assert!(checked("--max-body 1MiB").is_ok());
        for (line, part) in [
            ("--max-body 10GiB --budget 1MB", "the budget must hold the largest body"),
            ("--tls-cert /no/cert.pem --tls-key /no/key.pem", "/no/cert.pem: cannot be read"),
            ("--sync-delay 11s", "--sync-delay must be at most 10 s"),
            ("--sync-delay 5s --store-timeout 5s", "shorter than --store-timeout"),
            ("-c fluent.conf", "--import fluent.conf"),
            ("--path e/${tag}.log.gz", "--compress gzip"),
            ("--path e/${tag}.zst --rotate-size 1MB", "--compress gzip"),
        ] {
            let told = format!("{:?}", checked(line).unwrap_err());
            assert!(told.contains(part), "{line}: {told}");
        }
    }
}
