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

use crate::processes::{Heard, Processes, attend, report};

/// From the word to start to the start: time for every worker to hear it, in nanoseconds.
const START_NOTICE_NS: u64 = 20_000_000;
/// Beyond the plan's own times, workers have this long to hand in their parts.
const HAND_IN: Duration = Duration::from_secs(30);

/// Why a trial could not be run.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// In this process.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A worker process could not be started.
    #[error("cannot start a worker process: {0}; see `ulimit -u` and `ulimit -n`")]
    Start(io::Error),
    /// A worker process lacked something on its machine.
    #[error("a worker process could not be set up: {0}")]
    Lacking(String),
    /// A worker process gave up before the start.
    #[error("a worker process failed before the start: {0}")]
    Worker(String),
}

impl FleetError {
    /// Whether the machine had too little of something: processes, threads, descriptors, memory.
    pub fn is_for_want(&self) -> bool {
        matches!(self, Self::Start(_) | Self::Lacking(_) | Self::Run(RunError::Setup(_)))
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Order {
    Prepare { plan: Box<HttpPlan>, share: Share },
    Start { t0_ns: u64 },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Ready,
    Tick(Tick),
    Done(Box<WorkerResult>),
    Failed(String),
    Lacking(String),
}

/// Where a trial's workers run.
#[derive(Debug, Clone, Copy)]
pub enum Workers<'a> {
    /// In this process if the plan wants one; otherwise in copies of this program, which these arguments make
    /// call [`work`].
    Here(&'a [String]),
    /// In copies of this program, also if the plan wants only one. Its arguments put each where it belongs: they
    /// are taken in turn.
    On(&'a [Vec<String>]),
}

/// Runs a trial on `plan.processes` processes.
///
/// # Errors
/// When the workers cannot be set up. A worker lost after the start does not fail the trial: it voids it.
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
    let of_each = arguments.into_iter().cycle().take(count);
    let mut workers: Processes<Answer> = Processes::start(of_each).map_err(FleetError::Start)?;
    for index in 0..count {
        let share = Share { index: index as u64, of: count as u64 };
        let order = Order::Prepare { plan: Box::new((**plan).clone()), share };
        // One that could not start has said why, which is heard below.
        let _ = workers.tell(index, &order);
    }
    await_ready(&workers, stop)?;
    workers.tell_all(&Order::Start { t0_ns: monotonic_ns() + START_NOTICE_NS });
    Ok(collect(plan, &mut workers, stop, &mut on_tick))
}

/// The whole life of a worker process.
///
/// # Errors
/// When the parent is gone or its orders make no sense.
pub fn work() -> io::Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    let orders = match attend(Arc::clone(&stop)) {
        Ok(orders) => orders,
        Err(error) => return report(&Answer::Lacking(RunError::Setup(error).to_string())),
    };
    let Ok(Order::Prepare { plan, share }) = orders.recv() else {
        return Err(io::Error::other("a worker process is started by proofload itself, not by hand"));
    };
    let start = || {
        report(&Answer::Ready).ok()?;
        match orders.recv() {
            Ok(Order::Start { t0_ns }) => Some(t0_ns),
            _ => None,
        }
    };
    let outcome = load::run(&Arc::new(*plan), share, &stop, start, |tick| {
        // A parent that is gone is noticed by its end of the standard input.
        let _ = report(&Answer::Tick(tick));
    });
    report(&match outcome {
        Ok(part) => Answer::Done(Box::new(part)),
        Err(error @ RunError::Setup(_)) => Answer::Lacking(error.to_string()),
        Err(error) => Answer::Failed(error.to_string()),
    })
}

fn await_ready(workers: &Processes<Answer>, stop: &AtomicBool) -> Result<(), FleetError> {
    let mut ready = 0;
    while ready < workers.count() {
        if stop.load(Ordering::Relaxed) {
            return Err(FleetError::Run(RunError::Cancelled));
        }
        match workers.hear(Duration::from_millis(50)) {
            Some((_, Heard::Message(Answer::Ready))) => ready += 1,
            Some((_, Heard::Message(Answer::Failed(why)))) => return Err(FleetError::Worker(why)),
            Some((_, Heard::Message(Answer::Lacking(why)))) => return Err(FleetError::Lacking(why)),
            // As the kernel ends what takes too much memory.
            Some((index, Heard::Ended)) => {
                return Err(FleetError::Lacking(format!("worker {} ended without a word", index + 1)));
            }
            Some((_, Heard::Message(Answer::Tick(_) | Answer::Done(_)))) | None => {}
        }
    }
    Ok(())
}

/// Hears the workers out. Those that end without their part are counted as lost.
fn collect(
    plan: &HttpPlan,
    workers: &mut Processes<Answer>,
    stop: &AtomicBool,
    on_tick: &mut impl FnMut(Tick),
) -> WorkerResult {
    let mut merger = TickMerger::new(workers.count());
    let mut whole: Option<WorkerResult> = None;
    let mut running = vec![true; workers.count()];
    let mut lost = 0;
    let mut told_to_stop = false;
    // Bounded by time; otherwise every request is bounded by its timeout, in the worker.
    let mut deadline =
        plan.duration_ns.map(|ns| Instant::now() + Duration::from_nanos(ns + plan.drain_ns) + HAND_IN);
    while running.contains(&true) {
        if stop.load(Ordering::Relaxed) && !told_to_stop {
            workers.stop_all();
            told_to_stop = true;
            deadline = Some(Instant::now() + HAND_IN);
        }
        if deadline.is_some_and(|deadline| Instant::now() > deadline) {
            lost += running.iter().filter(|&&r| r).count() as u64;
            break;
        }
        let mut end = |index: usize, running: &mut Vec<bool>| {
            let was = std::mem::replace(&mut running[index], false);
            if was { merger.worker_ended() } else { Vec::new() }
        };
        let ticks = match workers.hear(Duration::from_millis(50)) {
            Some((_, Heard::Message(Answer::Tick(tick)))) => merger.push(&tick),
            Some((index, Heard::Message(Answer::Done(part)))) => {
                match &mut whole {
                    Some(whole) => whole.merge(&part),
                    None => whole = Some(*part),
                }
                end(index, &mut running)
            }
            Some((index, Heard::Ended | Heard::Message(Answer::Failed(_) | Answer::Lacking(_)))) => {
                lost += u64::from(running[index]);
                end(index, &mut running)
            }
            Some((_, Heard::Message(Answer::Ready))) | None => Vec::new(),
        };
        ticks.into_iter().for_each(&mut *on_tick);
    }
    let mut part = whole.unwrap_or_default();
    part.lost_workers += lost;
    part
}
