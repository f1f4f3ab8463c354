//! `proofload serve`: the programmable target server, in one process or several.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use load::raise_descriptors;
use processes::{Output, Processes, receive_from_parent, send_to_parent};
use serde::{Deserialize, Serialize};
use serve::{Config, Report, Server, render};

use super::serve_args::ServeArgs;
use crate::{
    exit::{Exit, Refusal, Result},
    output::{
        destination::{Destination, write_result},
        standard,
    },
};

/// Maximum wait for a worker process to start listening, and at the end for its report.
const WORKER_TIMEOUT: Duration = Duration::from_secs(30);
/// Time between two checks of the stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Listening(Vec<SocketAddr>),
    Report(Box<Report>),
    Failed(String),
}

/// Serves until stopped, then prints the report.
pub(crate) fn run(arguments: &ServeArgs) -> Result<Exit> {
    let (config, processes) = arguments.config().map_err(Refusal::new)?;
    let json = Destination::open_optional("--json", arguments.json.as_deref())?;
    raise_descriptors();
    let stop = crate::stop::on_signal()?;
    let report = if processes > 1 {
        serve_in_processes(&config, processes as usize, &stop)?
    } else {
        let server = Server::bind(config).map_err(|error| Refusal::one(error_text(&error)))?;
        announce(server.local_addrs())?;
        server.run(stop)
    };
    write_result(json, &report, arguments.quiet, || render(&report))?;
    match &report.record_failure {
        Some(why) => Err(Refusal::one(format_args!("--record: requests are missing from the file: {why}"))),
        None => Ok(Exit::GoalsMet),
    }
}

/// Entry point of a worker process.
pub(crate) fn work() -> Result<Exit> {
    raise_descriptors();
    let stop = files::stop();
    let orders = receive_from_parent(Arc::clone(&stop)).map_err(Refusal::one)?;
    let Ok(config) = orders.recv() else {
        return Err(Refusal::one("a worker process is started by proofload itself, not by hand"));
    };
    let answer = match Server::bind(config) {
        Ok(server) => {
            send_to_parent(&Answer::Listening(server.local_addrs().to_vec())).map_err(Refusal::one)?;
            Answer::Report(Box::new(server.run(stop)))
        }
        Err(error) => Answer::Failed(error_text(&error)),
    };
    send_to_parent(&answer).map_err(Refusal::one)?;
    Ok(Exit::GoalsMet)
}

/// The message of an error, prefixed by the option that caused it.
fn error_text(error: &serve::Error) -> String {
    match error {
        serve::Error::Start(serve::StartError::Processors { .. }) => format!("--cpus: {error}"),
        serve::Error::Record { .. } => format!("--record: {error}"),
        serve::Error::Tls(_) => format!("TLS: {error}"),
        _ => error.to_string(),
    }
}

/// Runs several processes on the same addresses. The kernel distributes connections among them (SO_REUSEPORT).
fn serve_in_processes(config: &Config, count: usize, stop: &AtomicBool) -> Result<Report> {
    Server::check_free(&config.listen).map_err(|error| Refusal::one(error_text(&error)))?;
    let start = |e| Refusal::one(format_args!("cannot start a worker process: {e}; see `ulimit -u`"));
    let arguments = ["serve-worker".to_owned()];
    let each = std::iter::repeat_n(&arguments[..], count);
    let mut workers: Processes<Answer> = Processes::start(each).map_err(start)?;
    // With port 0, the kernel chooses the first worker's port; the others must use the same.
    let addresses = start_serving(&mut workers, 0, config)?;
    let rest = Config { listen: addresses.clone(), ..config.clone() };
    for index in 1..count {
        // A different seed, so that workers draw different random numbers.
        let config = Config { seed: rest.seed.wrapping_add(index as u64), ..rest.clone() };
        start_serving(&mut workers, index, &config)?;
    }
    announce(&addresses)?;
    gather(&mut workers, stop)
}

fn start_serving(workers: &mut Processes<Answer>, index: usize, config: &Config) -> Result<Vec<SocketAddr>> {
    workers.send(index, config).map_err(Refusal::one)?;
    match workers.receive(WORKER_TIMEOUT) {
        Some((_, Output::Message(Answer::Listening(addresses)))) => Ok(addresses),
        Some((_, Output::Message(Answer::Failed(why)))) => Err(Refusal::one(why)),
        Some(_) => Err(Refusal::one("a worker process ended before it listened")),
        None => Err(Refusal::one(format_args!(
            "a worker process did not listen within {} s",
            WORKER_TIMEOUT.as_secs()
        ))),
    }
}

/// Waits until the workers end, and merges their reports.
fn gather(workers: &mut Processes<Answer>, stop: &AtomicBool) -> Result<Report> {
    let mut reports = WorkerReports::new(workers.count());
    let mut stop_sent = false;
    while reports.missing() > 0 {
        if stop.load(Ordering::Relaxed) && !stop_sent {
            workers.stop_all();
            stop_sent = true;
        }
        match workers.receive(if stop_sent { WORKER_TIMEOUT } else { POLL_INTERVAL }) {
            Some((index, heard)) => reports.take(index, heard)?,
            None if stop_sent => {
                return Err(Refusal::one(format_args!(
                    "{} worker process(es) sent no report",
                    reports.missing()
                )));
            }
            None => {}
        }
    }
    reports.whole.ok_or_else(|| Refusal::one("no worker process sent a report"))
}

/// The reports received so far from worker processes.
struct WorkerReports {
    /// Whether each worker has reported.
    reported: Vec<bool>,
    whole: Option<Report>,
}

impl WorkerReports {
    /// Starts with no reports from `count` workers.
    fn new(count: usize) -> Self {
        Self { reported: vec![false; count], whole: None }
    }

    /// Number of workers that have not reported yet.
    fn missing(&self) -> usize {
        self.reported.iter().filter(|reported| !**reported).count()
    }

    /// Processes a worker's message. An error if the worker failed or ended without a report.
    fn take(&mut self, index: usize, heard: Output<Answer>) -> Result {
        match heard {
            Output::Message(Answer::Report(part)) => {
                self.reported[index] = true;
                match &mut self.whole {
                    Some(whole) => whole.merge(&part),
                    None => self.whole = Some(*part),
                }
            }
            Output::Message(Answer::Failed(why)) => {
                return Err(Refusal::one(format_args!("worker process {} failed: {why}", index + 1)));
            }
            Output::Ended if !self.reported[index] => {
                return Err(Refusal::one(format_args!(
                    "worker process {} was lost: it sent no report",
                    index + 1
                )));
            }
            Output::Message(Answer::Listening(_)) | Output::Ended => {}
        }
        Ok(())
    }
}

fn announce(addresses: &[SocketAddr]) -> Result {
    let list: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    standard::print_wrapped(&format!("listening on {}\n", list.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(requests: u64) -> Output<Answer> {
        Output::Message(Answer::Report(Box::new(Report { requests, ..Report::new() })))
    }

    #[test]
    fn a_worker_that_ends_without_a_report_is_lost() {
        let mut reports = WorkerReports::new(3);
        reports.take(1, report(5)).unwrap();
        reports.take(1, Output::Ended).unwrap();
        reports.take(0, report(7)).unwrap();
        assert_eq!(reports.missing(), 1);
        let lost = reports.take(2, Output::Ended).unwrap_err();
        assert!(format!("{lost:?}").contains("worker process 3 was lost"), "{lost:?}");
        reports.take(2, report(1)).unwrap();
        assert_eq!((reports.missing(), reports.whole.map(|whole| whole.requests)), (0, Some(13)));
    }

    #[test]
    fn an_address_in_use_is_refused() {
        let forgotten = Server::bind(Config { reuse_port: true, ..Config::default() }).unwrap();
        let listen = forgotten.local_addrs().to_vec();
        let config = Config { reuse_port: true, listen: listen.clone(), ..Config::default() };
        let refused = serve_in_processes(&config, 2, &AtomicBool::new(true)).unwrap_err();
        assert!(format!("{refused:?}").contains(&format!("cannot listen on {}", listen[0])), "{refused:?}");
    }

    #[test]
    fn an_error_about_processors_names_its_option() {
        let error =
            serve::Error::Start(serve::StartError::Processors { missing: vec![99], allowed: vec![0, 1] });
        assert!(error_text(&error).starts_with("--cpus: processors [99] do not exist"), "{error}");
    }
}
