//! One HTTP trial, in this process, over worker processes, or over other machines.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use clock::monotonic_ns;
use load::{Share, Tick, WorkerResult};
use record::HttpPlan;

use crate::{
    drive::drive,
    error::FleetError,
    files_of_plan::{Files, Outputs},
    machines::Machines,
    protocol::Order,
    trial::Trial,
    workers::WorkerProcesses,
};

/// Delay between the start message and the start of the load, in nanoseconds: time for every worker to receive the message.
const START_NOTICE_NS: u64 = 20_000_000;

/// Where a trial's workers run.
#[derive(Debug, Clone, Copy)]
pub enum Workers<'a> {
    /// In this process if the plan has one process; otherwise in copies of this program, started with these arguments so
    /// that they call [`run_worker`](crate::run_worker).
    Here(&'a [String]),
    /// In copies of this program, even for one process. Each list of arguments starts a worker on one host; the workers use
    /// the lists round-robin.
    On(&'a [Vec<String>]),
    /// On other machines.
    Machines(&'a Machines),
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
            return Ok(load::run(plan, Share::WHOLE, stop, None, start, on_tick)?);
        }
        Workers::Here(arguments) => vec![arguments],
        Workers::On(hosts) => hosts.iter().map(Vec::as_slice).collect(),
        Workers::Machines(machines) => {
            let mut outputs = Outputs::open(plan)?;
            let mut result =
                machines.run(plan, stop, &mut on_tick, &mut |path, lines| outputs.write(path, &lines))?;
            outputs.finish(&mut result);
            return Ok(result);
        }
    };
    let count = u64::from(plan.processes);
    let order = Order {
        plan: (**plan).clone(),
        first: Share { index: 0, of: count },
        processes: count,
        secrets: secrets::mask::learned(),
        lease_until_ns: None,
        elsewhere: false,
    };
    let arguments_of_each = arguments.into_iter().cycle().take(count as usize);
    let mut workers = WorkerProcesses::start(arguments_of_each, &order, None, &Files::new())?;
    let trial = Trial::of_processes(plan, count as usize);
    // Processes of this machine write their files themselves.
    let on_written = &mut |_, _| ();
    drive(trial, &mut workers, stop, |_| Ok(monotonic_ns() + START_NOTICE_NS), &mut on_tick, on_written)
}
