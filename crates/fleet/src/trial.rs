//! One HTTP trial, in this process or over worker processes.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use clock::monotonic_ns;
use load::{RunError, Share, Tick, TickMerger, WorkerResult};
use record::HttpPlan;
use serde::{Deserialize, Serialize};

use processes::{Output, Processes, receive_from_parent, send_to_parent};

/// Delay between the start message and the start of the load, in nanoseconds: time for every worker to receive the message.
const START_NOTICE_NS: u64 = 20_000_000;
/// How long after the planned end workers may take to send their results. Workers without a result then count as lost.
const RESULT_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a wait for workers checks the stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Why a trial could not be run.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// The trial failed in this process.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A worker process could not be started.
    #[error("cannot start a worker process: {0}; see `ulimit -u` and `ulimit -n`")]
    Start(io::Error),
    /// A worker process ran out of a resource before the start.
    #[error("a worker process could not be set up: {0}")]
    OutOfResources(String),
    /// A worker process failed before the start.
    #[error("a worker process failed before the start: {0}")]
    Worker(String),
}

impl FleetError {
    /// Whether the machine ran out of a resource: processes, threads, descriptors or memory.
    pub fn is_resource_shortage(&self) -> bool {
        matches!(self, Self::Start(_) | Self::OutOfResources(_) | Self::Run(RunError::Setup(_)))
    }
}

/// A message to a worker process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ToWorker {
    /// `secrets`: texts to mask in all output, each with its replacement.
    Prepare {
        plan: Box<HttpPlan>,
        share: Share,
        secrets: Vec<(String, String)>,
    },
    Start {
        t0_ns: u64,
    },
}

/// A message from a worker process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FromWorker {
    Ready,
    Tick(Tick),
    Done(Box<WorkerResult>),
    Failed(String),
    #[serde(rename = "lacking")]
    OutOfResources(String),
}

/// Where a trial's workers run.
#[derive(Debug, Clone, Copy)]
pub enum Workers<'a> {
    /// In this process if the plan has one process; otherwise in copies of this program, started with these arguments so
    /// that they call [`run_worker`].
    Here(&'a [String]),
    /// In copies of this program, even for one process. Each list of arguments starts a worker on one host; the workers use
    /// the lists round-robin.
    On(&'a [Vec<String>]),
}

/// Runs a trial on `plan.processes` processes.
///
/// # Errors
/// When the workers cannot be set up. A worker lost after the start is no error: it makes the result void.
pub fn run(
    plan: &Arc<HttpPlan>,
    workers: Workers<'_>,
    stop: &Arc<AtomicBool>,
    mut on_tick: impl FnMut(Tick),
) -> Result<WorkerResult, FleetError> {
    let arguments: Vec<&[String]> = match workers {
        Workers::Here(_) if plan.processes <= 1 => {
            let start = || (!stop.load(Ordering::Relaxed)).then(|| monotonic_ns() + 1_000_000);
            return Ok(load::run(plan, Share::WHOLE, stop, start, on_tick)?);
        }
        Workers::Here(arguments) => vec![arguments],
        Workers::On(hosts) => hosts.iter().map(Vec::as_slice).collect(),
    };
    let count = plan.processes as usize;
    let arguments_of_each = arguments.into_iter().cycle().take(count);
    let mut workers: Processes<FromWorker> =
        Processes::start(arguments_of_each).map_err(FleetError::Start)?;
    let secrets = secrets::mask::learned();
    for index in 0..count {
        let share = Share { index: index as u64, of: count as u64 };
        let (plan, secrets) = (Box::new((**plan).clone()), secrets.clone());
        let message = ToWorker::Prepare { plan, share, secrets };
        // Sending fails only if the worker has ended; `await_ready` then receives the reason.
        let _ = workers.send(index, &message);
    }
    await_ready(&workers, stop)?;
    workers.send_all(&ToWorker::Start { t0_ns: monotonic_ns() + START_NOTICE_NS });
    Ok(collect(plan, &mut workers, stop, &mut on_tick))
}

/// The main function of a worker process.
///
/// # Errors
/// When the parent has ended, or its first message is not `Prepare`.
pub fn run_worker() -> io::Result<()> {
    let stop = files::stop();
    let messages = match receive_from_parent(Arc::clone(&stop)) {
        Ok(messages) => messages,
        Err(error) => {
            return send_to_parent(&FromWorker::OutOfResources(RunError::Setup(error).to_string()));
        }
    };
    let Ok(ToWorker::Prepare { plan, share, secrets }) = messages.recv() else {
        return Err(io::Error::other("a worker process is started by proofload itself, not by hand"));
    };
    secrets.iter().for_each(|(text, shown)| secrets::mask::learn_text(text, shown));
    let start = || {
        send_to_parent(&FromWorker::Ready).ok()?;
        match messages.recv() {
            Ok(ToWorker::Start { t0_ns }) => Some(t0_ns),
            _ => None,
        }
    };
    let outcome = load::run(&Arc::new(*plan), share, &stop, start, |tick| {
        // A failed send means that the parent has ended. The end of standard input then stops the trial.
        let _ = send_to_parent(&FromWorker::Tick(tick));
    });
    send_to_parent(&match outcome {
        Ok(result) => FromWorker::Done(Box::new(result)),
        Err(error @ RunError::Setup(_)) => FromWorker::OutOfResources(error.to_string()),
        Err(error) => FromWorker::Failed(error.to_string()),
    })
}

/// Waits until every worker has opened its connections.
fn await_ready(workers: &Processes<FromWorker>, stop: &AtomicBool) -> Result<(), FleetError> {
    let mut ready = 0;
    while ready < workers.count() {
        if stop.load(Ordering::Relaxed) {
            return Err(FleetError::Run(RunError::Cancelled));
        }
        match workers.receive(POLL_INTERVAL) {
            Some((_, Output::Message(FromWorker::Ready))) => ready += 1,
            Some((_, Output::Message(FromWorker::Failed(why)))) => return Err(FleetError::Worker(why)),
            Some((_, Output::Message(FromWorker::OutOfResources(why)))) => {
                return Err(FleetError::OutOfResources(why));
            }
            // Counts as a resource shortage, because the kernel may have killed the worker for lack of memory.
            Some((index, Output::Ended)) => {
                let why = format!("worker {} ended without a message", index + 1);
                return Err(FleetError::OutOfResources(why));
            }
            Some((_, Output::Message(FromWorker::Tick(_) | FromWorker::Done(_)))) | None => {}
        }
    }
    Ok(())
}

/// Merges the ticks and results of all workers. A worker that ends without a result counts as lost.
fn collect(
    plan: &HttpPlan,
    workers: &mut Processes<FromWorker>,
    stop: &AtomicBool,
    on_tick: &mut impl FnMut(Tick),
) -> WorkerResult {
    let mut merger = TickMerger::new(workers.count());
    let mut merged: Option<WorkerResult> = None;
    let mut running = vec![true; workers.count()];
    let mut lost = 0;
    let mut is_stopping = false;
    // A plan without a duration has no deadline here: its requests end by their own timeouts.
    let mut deadline =
        plan.duration_ns.map(|ns| Instant::now() + Duration::from_nanos(ns + plan.drain_ns) + RESULT_TIMEOUT);
    while running.contains(&true) {
        if stop.load(Ordering::Relaxed) && !is_stopping {
            workers.stop_all();
            is_stopping = true;
            deadline = Some(Instant::now() + RESULT_TIMEOUT);
        }
        if deadline.is_some_and(|deadline| Instant::now() > deadline) {
            lost += running.iter().filter(|&&r| r).count() as u64;
            break;
        }
        let mut end_worker = |index: usize, running: &mut Vec<bool>| {
            let was_running = std::mem::replace(&mut running[index], false);
            if was_running { merger.worker_ended() } else { Vec::new() }
        };
        let ticks = match workers.receive(POLL_INTERVAL) {
            Some((_, Output::Message(FromWorker::Tick(tick)))) => merger.push(&tick),
            Some((index, Output::Message(FromWorker::Done(result)))) => {
                match &mut merged {
                    Some(merged) => merged.merge(&result),
                    None => merged = Some(*result),
                }
                end_worker(index, &mut running)
            }
            Some((index, Output::Ended))
            | Some((index, Output::Message(FromWorker::Failed(_) | FromWorker::OutOfResources(_)))) => {
                lost += u64::from(running[index]);
                end_worker(index, &mut running)
            }
            Some((_, Output::Message(FromWorker::Ready))) | None => Vec::new(),
        };
        ticks.into_iter().for_each(&mut *on_tick);
    }
    let mut result = merged.unwrap_or_default();
    result.lost_workers += lost;
    result
}
