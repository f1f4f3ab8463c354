//! `proofload serve`: the programmable target, in one process or several.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use fleet::processes::{Output, Processes, receive_from_parent, send_to_parent};
use load::raise_descriptors;
use serde::{Deserialize, Serialize};
use serve::{Config, Report, Server, render};

use super::{serve_args::ServeArgs, stop};
use crate::{
    exit::{Exit, Refusal},
    output::{
        destination::{Destination, leave},
        standard,
    },
};

/// How long worker processes may take to listen, and to hand in their reports.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often a wish to stop is looked for.
const GLANCE: Duration = Duration::from_millis(50);

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Listening(Vec<SocketAddr>),
    Report(Box<Report>),
    Failed(String),
}

/// Serves until told to stop, then tells what was really done.
pub(crate) fn run(arguments: &ServeArgs) -> Result<Exit, Refusal> {
    let (config, processes) = arguments.config().map_err(Refusal::new)?;
    let json = Destination::of("--json", arguments.json.as_deref())?;
    raise_descriptors();
    let stop = stop::on_signal()?;
    let report = if processes > 1 {
        serve_in_processes(&config, processes as usize, &stop)?
    } else {
        let server = Server::bind(config).map_err(|error| Refusal::one(told(&error)))?;
        announce(server.local_addrs())?;
        server.run(stop)
    };
    leave(json, &report, arguments.quiet, || render(&report))?;
    Ok(Exit::GoalsMet)
}

/// A worker process.
pub(crate) fn work() -> Result<Exit, Refusal> {
    raise_descriptors();
    let stop = Arc::new(AtomicBool::new(false));
    let orders = receive_from_parent(Arc::clone(&stop)).map_err(Refusal::one)?;
    let Ok(config) = orders.recv() else {
        return Err(Refusal::one("a worker process is started by proofload itself, not by hand"));
    };
    let answer = match Server::bind(config) {
        Ok(server) => {
            send_to_parent(&Answer::Listening(server.local_addrs().to_vec())).map_err(Refusal::one)?;
            Answer::Report(Box::new(server.run(stop)))
        }
        Err(error) => Answer::Failed(told(&error)),
    };
    send_to_parent(&answer).map_err(Refusal::one)?;
    Ok(Exit::GoalsMet)
}

/// With the option that it is about, where the error cannot know it.
fn told(error: &serve::Error) -> String {
    match error {
        serve::Error::Start(serve::StartError::Processors { .. }) => format!("--cpus: {error}"),
        _ => error.to_string(),
    }
}

/// Several processes share the addresses; the kernel spreads connections over them (SO_REUSEPORT).
fn serve_in_processes(config: &Config, count: usize, stop: &AtomicBool) -> Result<Report, Refusal> {
    Server::check_free(&config.listen).map_err(|error| Refusal::one(told(&error)))?;
    let start = |e| Refusal::one(format_args!("cannot start a worker process: {e}; see `ulimit -u`"));
    let arguments = ["serve-worker".to_owned()];
    let each = std::iter::repeat_n(&arguments[..], count);
    let mut workers: Processes<Answer> = Processes::start(each).map_err(start)?;
    // The first may be given port 0; the others then take the port it got.
    let addresses = order_to_serve(&mut workers, 0, config)?;
    let rest = Config { listen: addresses.clone(), ..config.clone() };
    for index in 1..count {
        // Each draws its own random numbers.
        let config = Config { seed: rest.seed.wrapping_add(index as u64), ..rest.clone() };
        order_to_serve(&mut workers, index, &config)?;
    }
    announce(&addresses)?;
    gather(&mut workers, stop)
}

fn order_to_serve(
    workers: &mut Processes<Answer>,
    index: usize,
    config: &Config,
) -> Result<Vec<SocketAddr>, Refusal> {
    workers.send(index, config).map_err(Refusal::one)?;
    match workers.receive(PATIENCE) {
        Some((_, Output::Message(Answer::Listening(addresses)))) => Ok(addresses),
        Some((_, Output::Message(Answer::Failed(why)))) => Err(Refusal::one(why)),
        Some(_) => Err(Refusal::one("a worker process ended before it listened")),
        None => {
            Err(Refusal::one(format_args!("a worker process did not listen within {} s", PATIENCE.as_secs())))
        }
    }
}

/// Waits for the end, and adds up what the workers did.
fn gather(workers: &mut Processes<Answer>, stop: &AtomicBool) -> Result<Report, Refusal> {
    let mut gathered = Gathered::of(workers.count());
    let mut told = false;
    while gathered.missing() > 0 {
        if stop.load(Ordering::Relaxed) && !told {
            workers.stop_all();
            told = true;
        }
        match workers.receive(if told { PATIENCE } else { GLANCE }) {
            Some((index, heard)) => gathered.take(index, heard)?,
            None if told => {
                return Err(Refusal::one(format_args!(
                    "{} worker process(es) did not hand in their report",
                    gathered.missing()
                )));
            }
            None => {}
        }
    }
    gathered.whole.ok_or_else(|| Refusal::one("no worker process handed in a report"))
}

/// What worker processes have handed in.
struct Gathered {
    /// Of each, whether it has.
    reported: Vec<bool>,
    whole: Option<Report>,
}

impl Gathered {
    /// Nothing yet of so many.
    fn of(count: usize) -> Self {
        Self { reported: vec![false; count], whole: None }
    }

    /// How many have not handed in their report.
    fn missing(&self) -> usize {
        self.reported.iter().filter(|reported| !**reported).count()
    }

    /// Takes what one says; refuses to go on without the report of one that has failed or is lost.
    fn take(&mut self, index: usize, heard: Output<Answer>) -> Result<(), Refusal> {
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
            // After the report it is the usual end.
            Output::Ended if !self.reported[index] => {
                return Err(Refusal::one(format_args!(
                    "worker process {} was lost: it left no report",
                    index + 1
                )));
            }
            Output::Message(Answer::Listening(_)) | Output::Ended => {}
        }
        Ok(())
    }
}

fn announce(addresses: &[SocketAddr]) -> Result<(), Refusal> {
    let list: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    standard::show(&format!("listening on {}\n", list.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(requests: u64) -> Output<Answer> {
        Output::Message(Answer::Report(Box::new(Report { requests, ..Report::new() })))
    }

    #[test]
    fn a_worker_that_ends_without_a_report_is_lost_whatever_others_did() {
        let mut gathered = Gathered::of(3);
        gathered.take(1, report(5)).unwrap();
        gathered.take(1, Output::Ended).unwrap();
        gathered.take(0, report(7)).unwrap();
        assert_eq!(gathered.missing(), 1);
        let lost = gathered.take(2, Output::Ended).unwrap_err();
        assert!(format!("{lost:?}").contains("worker process 3 was lost"), "{lost:?}");
        gathered.take(2, report(1)).unwrap();
        assert_eq!((gathered.missing(), gathered.whole.map(|whole| whole.requests)), (0, Some(13)));
    }

    #[test]
    fn processes_do_not_share_an_address_with_others_unnoticed() {
        let forgotten = Server::bind(Config { reuse_port: true, ..Config::default() }).unwrap();
        let listen = forgotten.local_addrs().to_vec();
        let config = Config { reuse_port: true, listen: listen.clone(), ..Config::default() };
        let refused = serve_in_processes(&config, 2, &AtomicBool::new(true)).unwrap_err();
        assert!(format!("{refused:?}").contains(&format!("cannot listen on {}", listen[0])), "{refused:?}");
    }

    #[test]
    fn processors_are_told_by_their_option() {
        let error =
            serve::Error::Start(serve::StartError::Processors { missing: vec![99], allowed: vec![0, 1] });
        assert!(told(&error).starts_with("--cpus: processors [99] do not exist"), "{error}");
    }
}
