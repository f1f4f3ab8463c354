//! An agent: this program on another machine, which makes its part of the load in worker processes of its own.
//!
//! A thread reads the controller's messages and answers at once when it is asked for the time. The agent ends with its input.

use std::{
    io::{self, BufRead},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use clock::{boottime_ns, monotonic_ns};
use load::{Lease, MachineLimits, RunError, preflight};
use processes::send_to_parent;

use crate::{
    drive::drive,
    error::FleetError,
    protocol::{FromMember, Hello, Numbered, Order, ToMember},
    trial::Trial,
    workers::WorkerProcesses,
};

/// How often the wait for the start checks whether the trial is cancelled.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Runs an agent until its standard input ends. `worker`: the arguments that make this program a worker process.
///
/// # Errors
/// If this machine's limits cannot be read, or the controller is gone.
pub fn run_agent(worker: &[String]) -> io::Result<()> {
    // The folder of the copy may be removed while this runs.
    std::env::set_current_dir("/")?;
    let hello = Hello { version: env!("CARGO_PKG_VERSION").to_owned(), limits: MachineLimits::read()? };
    send(0, FromMember::Hello(Box::new(hello)))?;
    let (sender, orders) = mpsc::channel();
    let reader = OrderReader { orders: sender, current: None };
    thread::Builder::new().spawn(move || reader.read(io::stdin().lock()))?;
    for ordered in orders {
        let trial = ordered.trial;
        let message = match ordered.run(worker) {
            Ok(message) => message,
            Err(error @ (FleetError::OutOfResources(_) | FleetError::Start(_))) => {
                FromMember::OutOfResources(error.to_string())
            }
            Err(error) => FromMember::Failed(error.to_string()),
        };
        send(trial, message)?;
    }
    Ok(())
}

/// A trial that the controller has ordered.
struct OrderedTrial {
    trial: u64,
    order: Box<Order>,
    stop: Arc<AtomicBool>,
    lease: Arc<Lease>,
    starts: mpsc::Receiver<u64>,
}

impl OrderedTrial {
    fn run(self, worker: &[String]) -> Result<FromMember, FleetError> {
        let Self { trial, order, stop, lease, starts } = self;
        order.secrets.iter().for_each(|(text, shown)| secrets::mask::learn_text(text, shown));
        let missing = preflight::missing_here(&order.plan);
        if !missing.is_empty() {
            let words = missing.iter().map(|mistake| format!("{}: {}", mistake.field, mistake.message));
            return Ok(FromMember::Failed(words.collect::<Vec<_>>().join("; ")));
        }
        let count = order.processes as usize;
        let arguments = std::iter::repeat_n(worker, count);
        let mut workers = WorkerProcesses::start(arguments, &order, Some(lease))?;
        let start = |_: &mut WorkerProcesses| {
            let cancelled = FleetError::Run(RunError::Cancelled);
            if send(trial, FromMember::Ready).is_err() {
                return Err(cancelled);
            }
            let t0_ns = loop {
                match starts.recv_timeout(POLL_INTERVAL) {
                    Ok(t0_ns) => break t0_ns,
                    Err(RecvTimeoutError::Timeout) if !stop.load(Ordering::Relaxed) => {}
                    Err(_) => return Err(cancelled),
                }
            };
            let late_ns = monotonic_ns().saturating_sub(t0_ns);
            if late_ns == 0 { Ok(t0_ns) } else { Err(FleetError::LateStart { late_ns }) }
        };
        let on_tick = &mut |tick| {
            // A failed send means that the controller is gone. The end of standard input then stops the trial.
            let _ = send(trial, FromMember::Tick(tick));
        };
        drive(Trial::of_processes(&order.plan, count), &mut workers, &stop, start, on_tick)
            .map(|result| FromMember::Done(Box::new(result)))
    }
}

/// Reads the controller's messages.
struct OrderReader {
    orders: mpsc::Sender<OrderedTrial>,
    current: Option<Current>,
}

/// What messages to the current trial change.
struct Current {
    trial: u64,
    stop: Arc<AtomicBool>,
    lease: Arc<Lease>,
    starts: mpsc::Sender<u64>,
}

impl OrderReader {
    fn read(mut self, input: impl BufRead) {
        for line in input.lines().map_while(Result::ok) {
            let (monotonic_ns, boottime_ns) = (monotonic_ns(), boottime_ns());
            let Ok(Numbered { trial, message }) = serde_json::from_str(&line) else { break };
            let current = self.current.as_ref().filter(|current| current.trial == trial);
            match (message, current) {
                (ToMember::Clock { number }, _) => {
                    let message = FromMember::Clock { number, monotonic_ns, boottime_ns };
                    if send(trial, message).is_err() {
                        break;
                    }
                }
                (ToMember::Prepare(order), _) => self.prepare(trial, order),
                (ToMember::Start { t0_ns }, Some(current)) => drop(current.starts.send(t0_ns)),
                (ToMember::Lease { until_ns }, Some(current)) => current.lease.extend(until_ns),
                (ToMember::Stop, Some(current)) => current.stop.store(true, Ordering::Relaxed),
                (ToMember::Start { .. } | ToMember::Lease { .. } | ToMember::Stop, None) => {}
            }
        }
        self.stop();
    }

    fn prepare(&mut self, trial: u64, order: Box<Order>) {
        self.stop();
        let (sender, starts) = mpsc::channel();
        // The controller gives every machine a lease.
        let lease = Arc::new(Lease::new(order.lease_until_ns.unwrap_or(0)));
        let current = Current { trial, stop: Arc::default(), lease, starts: sender };
        let (stop, lease) = (Arc::clone(&current.stop), Arc::clone(&current.lease));
        self.current = Some(current);
        let _ = self.orders.send(OrderedTrial { trial, order, stop, lease, starts });
    }

    fn stop(&self) {
        self.current.iter().for_each(|current| current.stop.store(true, Ordering::Relaxed));
    }
}

fn send(trial: u64, message: FromMember) -> io::Result<()> {
    send_to_parent(&Numbered { trial, message })
}
